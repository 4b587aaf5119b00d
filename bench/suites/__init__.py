"""Suites: what ``python -m bench NAME`` runs. A suite is a module with ``cases(folder, effort)``."""

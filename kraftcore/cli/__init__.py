"""The ``kraftcore`` command: one file a command."""

"""Benchmarks: kraftcore beside its peers, in the same run and on the same bytes. See bench/README.md.

``python -m bench core`` prints one table; ``pytest bench`` runs the in-process part under pytest-benchmark.
"""

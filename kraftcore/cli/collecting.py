"""When Python's garbage collector runs: not during imports, whose objects stay, and more rarely in servers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SERVER_THRESHOLDS = (20_000, 50, 100)
"""Thresholds of the collector in a server's process; Python's defaults are 700, 10 and 10.

A request about a thousand partitions makes thousands of objects, nearly all of which are freed by their reference
counts; a search through all objects of a node that has just started takes some 30 ms, in which nothing is answered.
"""


@contextmanager
def not_collecting() -> Iterator[None]:
    """Keep the collector off in the block, unless it is enabled meanwhile (``node_run.begin_serving``)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

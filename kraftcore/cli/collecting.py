"""When Python's garbage collector looks for garbage: what imports make is none, and need not be looked through."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SERVER_THRESHOLDS = (20_000, 50, 100)
"""Of the collector in a server's process; by default 700, 10 and 10.

A request about a thousand partitions is thousands of objects, nearly all of which go by their reference counts; looking
through all objects of a node that has just started takes some 30 ms, in which nobody is answered.
"""


@contextmanager
def not_collecting() -> Iterator[None]:
    """The collector rests, unless it is enabled meanwhile (``node_run.begin_serving``)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

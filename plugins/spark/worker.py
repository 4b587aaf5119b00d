"""What a worker process of Spark's is told once, when it first imports this package."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Any


@cache
def settle() -> None:
    """In a worker process: spare it useless work, and the terminal its last words. Elsewhere: nothing."""
    daemon: Any = sys.modules["__main__"]
    if getattr(getattr(daemon, "__spec__", None), "name", "") != "pyspark.daemon" or not hasattr(daemon, "worker"):
        return
    serve = daemon.worker
    known = 0

    def worker(*arguments: Any) -> int:
        # From the second task on: after each, workers look through all objects for garbage. Where a task imported
        # modules, what outlived it is these and what belongs to them, 30 ms' worth, and none.
        nonlocal known
        if len(sys.modules) != known:
            known = len(sys.modules)
            gc.freeze()
        # Over a Unix domain socket a worker that waits for its next task may answer a program that has ended.
        try:
            status: int = serve(*arguments)
        except BrokenPipeError:
            return 1
        return status

    daemon.worker = worker

"""What a worker process of Spark's is told once, when it first imports this package."""

from __future__ import annotations

import gc
import socket
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
        if _is_gone(arguments[0]):
            return 1
        status: int = serve(*arguments)
        return status

    daemon.worker = worker


def _is_gone(connection: socket.socket) -> bool:
    # Waits for the next task. Spark's own code answers a program that has ended meanwhile, and prints how that failed.
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True

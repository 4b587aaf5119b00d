"""Changes a worker process of Spark once, when it first imports this package."""

from __future__ import annotations

import gc
import socket
import sys
from functools import cache
from typing import Any


@cache
def settle() -> None:
    """In a worker process, avoid needless garbage collection and error output; in other processes do nothing."""
    daemon: Any = sys.modules["__main__"]
    if getattr(getattr(daemon, "__spec__", None), "name", "") != "pyspark.daemon" or not hasattr(daemon, "worker"):
        return
    serve = daemon.worker
    known = 0

    def worker(*arguments: Any) -> int:
        # After each task a worker collects garbage, which takes 30 ms for the objects of imported modules. So all
        # objects are excluded once, and again after a task that imported modules.
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
    # Waits for the next task. If the program has ended, Spark's own code would try to answer and print its failure.
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True

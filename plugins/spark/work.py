"""Does tasks in this process if there is little work, for Spark takes seconds to start; else by Spark's workers."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kraftcore import errors
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins.spark.tables import Tables

T = TypeVar("T")
R = TypeVar("R")
LITTLE_BYTES = 64 << 20
"""Bytes of log that this process takes through all layers in about the time of Spark's start."""
_TASKS_A_CORE = 2
_TRIES_MAX = 3
_SLOW_WORKER = "failed to connect back"  # Spark gives a worker 10 s to start; a busy machine may need more
_WORKER_ERROR = re.compile(r"kraftcore\.errors\.(\w+): (.*)")
_OS_ERROR = re.compile(r"\[Errno (-?\d+)\] (.*): ('.*'|\".*\")")


def is_done_here(tables: Tables, size: int) -> bool:
    """Whether this process does the work itself.

    Args:
        tables: the folder of tables; on a cluster workers do all of the work.
        size: bytes of log to read.
    """
    return size <= LITTLE_BYTES and not tables.is_on_cluster


def spread(tables: Tables, work: Callable[[T], R], tasks: Sequence[T], *, here: bool) -> Iterator[R]:
    """Do tasks and yield their results in any order; ``here``: in this process, one after the other, else by workers.

    Workers that cannot write to the folder of tables return files. Then a few tasks are done at a time, for this
    process holds the files in memory.

    Raises:
        KraftError: an error of ours in a worker.
        PySparkException, Py4JError: another error.
    """
    if here:
        yield from map(work, tasks)
        return
    context = tables.session.sparkContext
    step = len(tasks) if tables.is_local else _TASKS_A_CORE * context.defaultParallelism
    for start in range(0, len(tasks), max(step, 1)):
        some = tasks[start : start + step]
        yield from tried(lambda some=some: context.parallelize(some, len(some)).map(work).collect())  # type: ignore[misc]


def tried(job: Callable[[], R]) -> R:
    """Run a job of Spark; if a worker was slow to start, up to three times.

    Raises:
        KraftError: an error of ours in a worker.
        PySparkException, Py4JError: another error.
    """
    attempt = 1
    while True:
        try:
            return job()
        except (PySparkException, Py4JError) as error:
            if attempt == _TRIES_MAX or _SLOW_WORKER not in str(error):
                raise worker_error(error) from None
            attempt += 1


def worker_error(error: Exception) -> Exception:
    """The error of ours that a worker raised, read from Spark's error; else Spark's error itself."""
    found = _WORKER_ERROR.findall(str(error))
    if not found:
        return error
    name, text = found[-1]
    if name == "StorageError":
        parts = _OS_ERROR.fullmatch(text)
        return StorageError(int(parts[1]), parts[2], literal_eval(parts[3])) if parts else StorageError(text)
    known = getattr(errors, name, LocalError)
    if issubclass(known, CorruptDataError):  # position and path are in the text
        return CorruptDataError(text)
    made: Exception = next(one for one in known.__mro__ if _is_made_of_text(one))(text)
    return made


def _is_made_of_text(kind: type) -> bool:
    return not any("__init__" in vars(base) for base in kind.__mro__ if base.__module__ == errors.__name__)

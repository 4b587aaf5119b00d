"""Changes of partitions in steps, some of which wait for a disk: without I/O of their own, tasks or threads.

Such a change is a generator: it yields what a thread may do, and is resumed when that is done, or with the error that
it raised; None lets others run. Whoever runs it (``disk_work``, the simulator) sees to it that no two meet in a log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from kraftcore.errors import KraftError

_T = TypeVar("_T")
DiskSteps: TypeAlias = Generator[Callable[[], object] | None, None, _T]


def run_here(steps: DiskSteps[_T]) -> _T:
    """Run all steps and the work at once; what the generator returns or raises."""
    error = None
    while True:
        try:
            work = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            found: _T = end.value
            return found
        error = None if work is None else failure_of(work)


def failure_of(work: Callable[[], object]) -> KraftError | None:
    """Do the work of a step here: what made it fail, or None."""
    try:
        work()
    except KraftError as error:
        return error
    return None

"""Changes of partitions in steps, some of which wait for a disk: without I/O of their own, tasks or threads.

Such a change is a generator: it yields what a thread may do, and is resumed when that is done, or with the error that
it raised; None lets others run. What is in a list is done at the same time, by several disks, say: then it is resumed
with what made each fail, in order. The caller (``disk_threads``, the simulator) lets no two changes meet in a log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from kraftcore.errors import KraftError

_T = TypeVar("_T")
Work: TypeAlias = Callable[[], object]
Failures: TypeAlias = list[KraftError | None]
DiskSteps: TypeAlias = Generator[Work | list[Work] | None, Failures | None, _T]


def run_here(steps: DiskSteps[_T]) -> _T:
    """Run all steps and the work at once; what the generator returns or raises."""
    error: KraftError | None = None
    failures: Failures | None = None
    while True:
        try:
            work = steps.send(failures) if error is None else steps.throw(error)
        except StopIteration as end:
            found: _T = end.value
            return found
        error = failures = None
        if isinstance(work, list):
            failures = [failure_of(each) for each in work]
        elif work is not None:
            error = failure_of(work)


def failure_of(work: Work) -> KraftError | None:
    """Do the work of a step here: what made it fail, or None."""
    try:
        work()
    except KraftError as error:
        return error
    return None

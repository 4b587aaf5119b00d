"""Changes of partitions in steps, some of which wait for a disk, without own I/O, tasks or threads.

Such a change is a generator. It yields a function for a thread, and is resumed when the function has returned, or with
the error that it raised. It yields a list of functions that run at the same time, and is resumed with their errors, in
order. It yields None to let other tasks run. The caller (``disk_threads``, the simulator) lets no two changes of one
log run at the same time.
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
    """Run all steps, and their work, here; return or raise what the generator does."""
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
    """Do the work of a step here; return its error, or None."""
    try:
        work()
    except KraftError as error:
        return error
    return None

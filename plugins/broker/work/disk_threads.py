"""Threads for the steps of ``disk_steps``. The caller holds the lock of disk work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import trio

from kraftcore.errors import KraftError
from kraftcore.plugins.broker.work.disk_steps import DiskSteps, Failures, Work

_AT_ONCE = 20  # steps without work between two turns of other tasks
_T = TypeVar("_T")


async def run_in_thread(work: Work) -> None:
    """Have a thread do the work, also if the caller was cancelled: the change that it belongs to has begun."""
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(work)


async def failure_in_thread(work: Work) -> KraftError | None:
    """Have a thread do the work; return its error, or None."""
    try:
        await run_in_thread(work)
    except KraftError as error:
        return error
    return None


async def failures_in_threads(works: Sequence[Work]) -> Failures:
    """Have a thread do each piece of work, all at the same time; return their errors, in order."""
    if len(works) == 1:
        return [await failure_in_thread(works[0])]
    failures: Failures = [None] * len(works)

    async def do(number: int, work: Work) -> None:
        failures[number] = await failure_in_thread(work)

    async with trio.open_nursery() as nursery:
        for entry in enumerate(works):
            nursery.start_soon(do, *entry)
    return failures


async def run_in_threads(steps: DiskSteps[_T]) -> _T:
    """Run all steps, with their work in threads; return or raise what the generator does."""
    pauses = 0
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
            failures = await failures_in_threads(work)
        elif work is not None:
            error = await failure_in_thread(work)
        else:
            pauses += 1
            if pauses % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

"""How long a test's cluster waits, and virtual time beside threads."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from kraftcore.ports.nursery import open_nursery

TIMEOUT_S = 30.0
"""For what must happen, unless a test says otherwise."""
_YIELD_S = 0.0002


@asynccontextmanager
async def no_jumps() -> AsyncIterator[None]:
    """While the block runs, a ``MockClock`` does not leap because the only work is in a thread."""
    if not isinstance(trio.lowlevel.current_clock(), MockClock):
        yield
        return
    async with open_nursery() as nursery:
        nursery.start_soon(_spin)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def _spin() -> None:
    while True:
        await trio.lowlevel.checkpoint()
        time.sleep(_YIELD_S)

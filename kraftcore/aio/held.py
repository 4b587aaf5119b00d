"""``Lock.hold()`` and ``Queue.take()`` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kraftcore.aio import Node
from kraftcore.aio.waiting import settled
from kraftcore.errors import LeaseLostError
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.holding import Holding
from kraftcore.plugins.recipes.leases import Grant
from kraftcore.plugins.recipes.leases import Held as TrioHeld

Lease = TypeVar("Lease")


class Held(Owned, Generic[Lease]):
    """What ``Lock.hold`` and ``Queue.take`` return for asyncio: an asynchronous context manager.

    When the lease is lost, the block is cancelled, and `LeaseLostError` comes out of it.

    Args:
        node: the lock's.
        held: trio's.
        lease_of: makes asyncio's lease of trio's.
    """

    def __init__(self, node: Node[Any], held: TrioHeld[Grant], lease_of: Callable[[Grant], Lease]) -> None:
        self._node = node
        self._holding = Holding(held)
        self._lease_of = lease_of

    async def __aenter__(self) -> Lease:
        self._holding.check_new()
        self._block = asyncio.current_task()
        self._task = asyncio.ensure_future(self._node.call(self._holding.run))
        taken = asyncio.ensure_future(self._node.call(self._holding.taken))
        try:
            await asyncio.wait([taken, self._task], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            await settled(self._task)
            raise
        finally:
            taken.cancel()
        lease = self._holding.lease
        if self._task.done() or lease is None:
            await self._task
            raise LeaseLostError("the lease was lost at once")
        self._is_left = False
        self._was_cancelled = False
        self._cancelling = 0 if self._block is None else self._block.cancelling()
        self._task.add_done_callback(self._ended)
        return self._lease_of(lease)

    def _ended(self, _: asyncio.Future[None]) -> None:
        if not self._is_left and self._block is not None:
            self._was_cancelled = self._block.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if not belongs_here(self):
            return
        self._is_left = True
        self._holding.leave(error is not None)
        interrupted = await settled(self._task)
        if self._was_cancelled and self._block is not None:
            interrupted = self._block.uncancel() > self._cancelling
        lost = None if self._task.cancelled() else self._task.exception()
        if interrupted:
            raise asyncio.CancelledError from lost
        if lost is not None and (error is None or (self._was_cancelled and isinstance(error, asyncio.CancelledError))):
            raise lost

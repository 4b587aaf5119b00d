"""``Lock.hold()`` and ``Queue.take()`` for threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

from kraftcore.blocking import Node
from kraftcore.errors import LeaseLostError, NodeStoppedError
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.holding import Holding
from kraftcore.plugins.recipes.leases import Grant
from kraftcore.plugins.recipes.leases import Held as TrioHeld

Lease = TypeVar("Lease")


class Held(Owned, Generic[Lease]):
    """What ``Lock.hold`` and ``Queue.take`` return for threads: a context manager.

    A block of a thread cannot be cancelled: when the lease is lost, ``lease.is_valid`` is False from then on, and
    `LeaseLostError` comes out of the block when it ends.

    Args:
        node: the lock's.
        held: trio's.
        lease_of: makes the threads' lease of trio's.
    """

    def __init__(self, node: Node[Any], held: TrioHeld[Grant], lease_of: Callable[[Grant], Lease]) -> None:
        self._node = node
        self._holding = Holding(held)
        self._lease_of = lease_of

    def __enter__(self) -> Lease:
        self._holding.check_new()
        self._task = self._node.submit(self._holding.run)
        try:
            self._node.call(self._holding.taken)
        except BaseException as error:
            self._task.cancel()
            if isinstance(error, TimeoutError):
                limit = f"{self._node._timeout_s:g} s"
                raise TimeoutError(f"{self._holding.what} could not be had within {limit}: {self._node!r}") from None
            raise
        lease = self._holding.lease
        if lease is None:
            self._task.result()
            raise LeaseLostError("the lease was lost at once")
        return self._lease_of(lease)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if not belongs_here(self):
            return
        with suppress(NodeStoppedError):  # then the task has ended, too
            self._node.submit(self._holding.leave, error is not None)
        wait([self._task])
        lost = self._task.exception()
        if lost is not None and error is None:
            raise lost

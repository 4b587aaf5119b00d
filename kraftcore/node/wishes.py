"""What callers want of the consensus besides appending: barriers, transfer, changes of the voter set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftcore.errors import KraftError, RefusedError
from kraftcore.node.proposals import Proposal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Event, Outcome, Received

if TYPE_CHECKING:
    from kraftcore.node.node import Node


class Wishes:
    """Feeds them to the replica and waits for what becomes of them; the node's end ends them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: set[Proposal] = set()

    async def ask(self, make: Callable[[Callable[[Outcome], None]], Event]) -> Outcome:
        """Feed an event of the node's own.

        Args:
            make: builds it around the ticket that gets the outcome.

        Raises:
            NotLeaderError: only a leader can do it.
            RefusedError: it was refused.
        """
        outcome: Outcome = await self._await(lambda future: make(future.succeed))
        if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise self._node.not_leader(outcome.message)
        if outcome.error is not ErrorCode.NONE:
            raise RefusedError(outcome.error.name, outcome.message)
        return outcome

    async def request(self, request: Request) -> None:
        """Have the replica answer a request as if somebody had sent it.

        Raises:
            NotLeaderError, RefusedError: by the answer's error.
        """
        listener = self._node.endpoints[0].name if self._node.endpoints else ""
        version = api_of(type(request)).max_version
        response = await self._await(lambda future: Received(LocalTicket(future.succeed), request, version, listener))
        if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise self._node.not_leader()
        if response.error_code != ErrorCode.NONE:
            raise RefusedError(ErrorCode.of(response.error_code).name, response.error_message or "")

    async def _await(self, make: Callable[[Proposal], Event]) -> Any:
        self._node.check_running()
        future = Proposal(None, 0, False)
        self._open.add(future)
        try:
            self._node.feed(make(future))
            return await future.wait()
        finally:
            self._open.discard(future)

    def fail(self, make_error: Callable[[], KraftError]) -> None:
        """Nobody will answer any more."""
        for future in list(self._open):
            future.fail(make_error())


class LocalTicket:
    """Stands for a remote caller."""

    __slots__ = ("answer",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.answer = done

"""Requests of this node's own callers to its replica, besides appending: barriers, transfer, voter changes, upgrade."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftcore.errors import KraftError, NotLeaderError, OutcomeUnknownError, RefusedError
from kraftcore.node.waiting import TaskProposal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Event, Outcome, Received, Transfer, Upgrade
from kraftcore.raft.quorum import Endpoint


class LocalRequests:
    """Feeds requests to the replica and waits for their outcomes, until the node ends.

    Args:
        feed: hands events to the consensus.
        check_running: raises if the node stops or has stopped.
        not_leader: makes the error of a replica that does not lead.
        endpoints: the node's endpoints.
    """

    def __init__(
        self,
        feed: Callable[[Event], None],
        check_running: Callable[[], None],
        not_leader: Callable[[str], NotLeaderError],
        endpoints: tuple[Endpoint, ...],
    ) -> None:
        self._feed = feed
        self._check_running = check_running
        self._not_leader = not_leader
        self._listener = endpoints[0].name if endpoints else ""
        self._open: set[TaskProposal] = set()

    async def ask(self, make: Callable[[Callable[[Outcome], None]], Event]) -> Outcome:
        """Feed an event, and wait for its outcome.

        Args:
            make: builds the event around the ticket that gets the outcome.

        Raises:
            NotLeaderError: this replica does not lead.
            RefusedError: the replica refused.
        """
        self._check_running()
        outcome: Outcome = await self.wait(lambda future: self._feed(make(future.succeed)))
        if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise self._not_leader(outcome.message)
        if outcome.error is not ErrorCode.NONE:
            raise RefusedError(outcome.error.name, outcome.message)
        return outcome

    async def transfer(self, voter_id: int) -> None:
        """Hand leadership to a voter; see ``Node.transfer_leadership``."""
        await self.ask(lambda done: Transfer(done, voter_id))

    async def change(self, request: Request, is_made: Callable[[], bool]) -> None:
        """Have the replica answer a request as if it had been received.

        Args:
            request: its body.
            is_made: returns whether the change is in this replica's log, committed or not.

        Raises:
            NotLeaderError, RefusedError: by the answer's error.
            OutcomeUnknownError: the change was appended, and the leadership or the time ended before it was committed.
        """
        self._check_running()
        version = api_of(type(request)).max_version
        was_made = is_made()
        appended = False

        def begin(future: TaskProposal) -> None:
            def answered(response: Any) -> None:
                nonlocal appended  # looked up now, before another leader's log replaces this one
                appended = not was_made and is_made()
                future.succeed(response)

            self._feed(Received(LocalTicket(answered), request, version, self._listener))

        response = await self.wait(begin)
        if appended and response.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
            raise _unknown(ErrorCode.of(response.error_code))
        if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise self._not_leader("")
        if response.error_code != ErrorCode.NONE:
            raise RefusedError(ErrorCode.of(response.error_code).name, response.error_message or "")

    async def upgrade(self, level: int, kraft_version: Callable[[], int]) -> Outcome:
        """Raise kraft.version.

        Args:
            level: the new level.
            kraft_version: returns the level in this replica's log, committed or not.

        Raises:
            NotLeaderError, RefusedError, OutcomeUnknownError: see ``change``.
        """
        before = kraft_version()
        appended = False

        def make(done: Callable[[Outcome], None]) -> Event:
            def ended(outcome: Outcome) -> None:
                nonlocal appended
                appended = kraft_version() == level != before
                done(outcome)

            return Upgrade(ended, level)

        try:
            return await self.ask(make)
        except NotLeaderError:
            if appended:
                raise _unknown(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
            raise

    async def wait(self, begin: Callable[[TaskProposal], None]) -> Any:
        """Call ``begin`` with a future, and wait until that or the node ends."""
        future = TaskProposal(None, 0, False)
        self._open.add(future)
        try:
            begin(future)
            return await future.wait()
        finally:
            self._open.discard(future)

    def fail(self, make_error: Callable[[], KraftError]) -> None:
        """End all waiting requests with an error."""
        for future in list(self._open):
            future.fail(make_error())


class LocalTicket:
    """Takes the answer to a request that came from no connection."""

    __slots__ = ("answer",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.answer = done


def _unknown(error: ErrorCode) -> OutcomeUnknownError:
    why = "this node lost its leadership" if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else "the time ended"
    return OutcomeUnknownError(
        f"the change is in the log, and {why} before it was committed: it may be made or not; the quorum's next leader "
        "tells (`kraftcore quorum describe --status`)"
    )

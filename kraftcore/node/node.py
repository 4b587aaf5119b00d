"""`Node`, which applications call: a member or observer of a quorum in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any, Final, Generic, Literal, overload

import trio
from trio.lowlevel import current_task, in_trio_task, wait_task_rescheduled

from kraftcore.config import NodeConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import RECORD_OVERHEAD, Appended, AppendedMany, empty_record, record_bytes
from kraftcore.executor.sessions import numbering
from kraftcore.node.engine import Engine
from kraftcore.node.events import Missed, NodeEvent
from kraftcore.node.health import MAX_LAG, Health
from kraftcore.node.logins import LoginCounts
from kraftcore.node.status import Status
from kraftcore.node.subscription import Event, Subscription
from kraftcore.node.waiting import AppendFuture, TaskProposal
from kraftcore.node.wrong_library import elsewhere
from kraftcore.ownership import Owned
from kraftcore.ports.nursery import uninterrupted_methods
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.raft.quorum import Endpoint
from kraftcore.state_machine import Machine_co, Result, StateMachine


@uninterrupted_methods
class Node(Owned, Generic[Machine_co]):
    """A node of a quorum, made by ``open_node``; do not call the constructor.

    All methods are called from the trio loop that opened the node. ``kraftcore.aio`` is for asyncio,
    ``kraftcore.blocking`` for threads.

    Attributes:
        config: as given to ``open_node``.
        key: its id and directory id.
        cluster_id: of its quorum.
        endpoints: where its listeners are bound.
        broker_endpoints: where the listeners of its broker are, if it has one.
        state_machine: as given to ``open_node``.
        stopped: an event, set when the node takes no more calls.
    """

    def __init__(self, engine: Engine, machine: Machine_co) -> None:
        self._engine = engine
        self._executor = engine.executor
        self._queue = engine.queue
        self.state_machine: Final[Machine_co] = machine
        self.config: NodeConfig = engine.config
        self.key: ReplicaKey = engine.home.key
        self.cluster_id: str = engine.home.cluster_id
        self.endpoints: tuple[Endpoint, ...] = engine.endpoints
        self.broker_endpoints: tuple[Endpoint, ...] = engine.broker_endpoints
        self.stopped: trio.Event = engine.stopped
        self._thread_id = engine.thread_id

    def __repr__(self) -> str:
        return f"<kraftcore.Node {self._engine.in_one_line()}>"

    def _check_thread(self, method: str) -> None:
        """Check as `check_here`, for methods that do not wait: signal handlers and trio's callbacks may call them."""
        if get_ident() != self._thread_id:
            raise elsewhere(method)

    # --- appending ----------------------------------------------------------------------------------------------------

    @overload
    async def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: Literal[False] = False,
    ) -> Appended[Result]: ...
    @overload
    async def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool,
    ) -> Appended[Result | None]: ...
    async def append(
        self,
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> Appended[Any]:
        """Append a record; returns when it is committed and applied here.

        Args:
            value: not empty; fits ``max_batch_bytes``.
            client_id: the caller's name or number, with ``sequence``: a retry with the same two, and the same records,
                is applied once. A client has one proposal in flight at a time.
            sequence: 0 to 2**31 - 1; one more than in the client's last proposal. A program that starts again goes on
                with its numbers, or takes another client id.
            forward: have the leader append the record, asking present and later leaders until it is applied, once. A
                record that came here inside a snapshot has no result.

        Returns:
            The record's offset, and what the state machine returned for it here.

        Raises:
            NotLeaderError: nothing was appended; the error names the leader.
            OutcomeUnknownError: leadership was lost; the record may be committed or not.
            LocalError: the value is empty, too large or not bytes, or ``sequence`` is missing or out of range.
            SequenceError: ``sequence`` was used for other records, or is too high; nothing was applied.
            NodeStoppedError: the node stopped; the outcome is unknown.
        """
        try:
            task = current_task()
        except RuntimeError:
            raise elsewhere("append") from None
        if get_ident() != self._thread_id:
            raise elsewhere("append")
        if client_id is None and sequence is None and not forward:
            proposal = _proposal_of(value)
            if self._queue.is_full:
                await self._engine.room.wait()
            self._engine.submit(proposal)
            if proposal.done:
                return await proposal.wait()
            # As `TaskProposal.wait`, without its coroutine: the garbage collector walks over all objects callers hold.
            proposal.waiter = task
            return await wait_task_rescheduled(proposal)  # type: ignore[no-any-return]
        many = await self.append_many((value,), client_id=client_id, sequence=sequence, forward=forward)
        return Appended(many.offset, None if many.results is None else many.results[0])

    async def append_many(
        self: Node[StateMachine[Result]],
        values: Sequence[bytes],
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> AppendedMany[Result]:
        """Append records at consecutive offsets, all or none; else as ``append``.

        Args:
            values: at least one; together they fit ``max_batch_bytes``.
            client_id: see ``append``.
            sequence: of the first record; the records take ``len(values)`` numbers.
            forward: see ``append``.
        """
        check_here(self, "append_many")
        if isinstance(values, bytes | bytearray | memoryview | str):
            raise LocalError("append_many takes a sequence of records: put the one into a list")
        values = tuple(values)  # the caller may change its list while this waits
        if {*map(type, values)} != {bytes}:
            values = tuple(map(record_bytes, values))
        client = numbering(client_id, sequence, len(values))
        if not all(values) or not values:
            raise empty_record()
        if forward:  # numbered on a leader, too: it may lose its leadership before the record is committed
            return await self._engine.forwarder.append(list(values), client)
        number, first = client if client is not None else (-1, -1)
        proposal = TaskProposal(values, size_of(values), True, number, first)
        found: AppendedMany[Result] = await self._engine.propose(proposal)
        return found

    def append_nowait(self: Node[StateMachine[Result]], value: bytes) -> AppendFuture[Result]:
        """Append a record without waiting for its end.

        Raises:
            OverloadedError: too much is in flight.
            NotLeaderError, LocalError, NodeStoppedError: see ``append``.
        """
        self._check_thread("append_nowait")
        proposal = _proposal_of(value)
        self._engine.submit(proposal)
        return proposal

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read_barrier(self, *, forward: bool = True) -> int:
        """Make the next read from the state machine linearizable.

        When it returns, everything that was committed anywhere before the call is applied here. The leader asks a
        majority whether it still leads; with ``leader_lease_ms`` it need not, as far as clocks can be relied on.

        Args:
            forward: on a node that does not lead, ask the leader, and keep asking until there is one.

        Returns:
            The offset below which everything is applied, at least.

        Raises:
            NotLeaderError: this node does not lead, and ``forward`` is False.
            NodeStoppedError: the node stopped.
        """
        check_here(self, "read_barrier")
        engine = self._engine
        offset = await (engine.forwarder.barrier() if forward else engine.local_barrier())
        await engine.wait_applied(offset)
        return offset

    async def wait_applied(self, offset: int) -> None:
        """Wait until everything below ``offset`` is applied here.

        Raises:
            NodeStoppedError: the node stopped.
        """
        check_here(self, "wait_applied")
        await self._engine.wait_applied(offset)

    def read(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Return committed record batches, encoded as in the log; ``iter_batches`` decodes them.

        Args:
            offset: of a record; its batch is the first one.
            max_bytes: size of all batches together, but at least one whole batch is returned.

        Returns:
            Empty at the high watermark.

        Raises:
            LocalError: ``offset`` is below the log's start: the records are only in a snapshot.
            NodeStoppedError: the node stopped.
        """
        self._check_thread("read")
        engine = self._engine
        engine.check_open()
        high_watermark = engine.executor.high_watermark
        if offset >= high_watermark:
            return b""
        if engine.executor.is_installing:
            raise LocalError(
                f"the log is being replaced by a snapshot: what is below {high_watermark} is only in there"
            )
        return engine.home.log.read(offset, max_bytes, up_to=high_watermark)

    # --- the quorum ---------------------------------------------------------------------------------------------------

    async def transfer_leadership(self, voter_id: int) -> None:
        """Hand leadership to a voter, once it has everything; returns when this node has stepped down.

        Raises:
            NotLeaderError: this node does not lead.
            RefusedError: there is no such voter, or it did not catch up within an election timeout.
        """
        check_here(self, "transfer_leadership")
        await self._engine.local.transfer(voter_id)

    def resign(self) -> None:
        """Give leadership up, if this node leads: another voter leads next, or this node again if it is alone."""
        self._check_thread("resign")
        self._engine.resign()

    async def add_voter(
        self, voter_id: int, directory_id: Uuid, endpoints: Iterable[Endpoint], *, timeout_ms: int = 30_000
    ) -> None:
        """Make a caught-up replica a voter; returns when the change is committed (KIP-853 AddRaftVoter).

        Raises:
            NotLeaderError, RefusedError: nothing was appended; the latter has Kafka's reason.
            OutcomeUnknownError: the change was appended, and leadership or time ended before it was committed: the
                replica may become a voter.
            LocalError: the id is not a number.
        """
        check_here(self, "add_voter")
        listeners = [
            AddRaftVoterRequest.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ]
        _check_number("voter_id", voter_id)
        request = AddRaftVoterRequest(
            cluster_id=self.cluster_id,
            timeout_ms=timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=listeners,
        )
        await self._engine.local.change(request, lambda: self._is_voter(voter_id, directory_id))

    async def remove_voter(self, voter_id: int, directory_id: Uuid) -> None:
        """Remove a voter; returns when the change is committed (KIP-853 RemoveRaftVoter). A leader may remove itself.

        Raises:
            NotLeaderError, RefusedError, OutcomeUnknownError: see ``add_voter``.
        """
        check_here(self, "remove_voter")
        _check_number("voter_id", voter_id)
        request = RemoveRaftVoterRequest(cluster_id=self.cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
        await self._engine.local.change(request, lambda: not self._is_voter(voter_id, directory_id))

    def _is_voter(self, voter_id: int, directory_id: Uuid) -> bool:
        return self._executor.replica.voters.is_voter(ReplicaKey(voter_id, directory_id))

    async def upgrade(self, level: int) -> None:
        """Raise kraft.version to ``level``; returns when the change is committed.

        Raises:
            NotLeaderError, RefusedError, OutcomeUnknownError: see ``add_voter``.
        """
        check_here(self, "upgrade")
        _check_number("level", level)
        outcome = await self._engine.local.upgrade(level, lambda: self._executor.replica.kraft_version)
        await self._engine.wait_applied(outcome.offset)

    async def snapshot_now(self) -> tuple[int, int]:
        """Write a snapshot of the state machine as it is.

        Returns:
            The snapshot's (end offset, epoch).

        Raises:
            LocalError: nothing is applied yet.
            StateMachineError: the state machine's ``snapshot`` raised; no snapshot is written, and the node goes on.
            StorageError: the disk failed; no snapshot is written, and the node goes on.
            NodeStoppedError: the node stopped.
        """
        check_here(self, "snapshot_now")
        self._engine.check_running()
        return await self._engine.snapshotting.take()

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows; False once the node stopped."""
        return self._engine.is_leader

    def now_ms(self) -> int:
        """The node's time, milliseconds since 1970."""
        return self._engine.now_ms()

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, as far as known; None once the node stopped."""
        return self._engine.leader_endpoint

    @property
    def leader_id(self) -> int | None:
        """The leader's id; None if no leader is known, or the one that led has not answered for a fetch timeout."""
        return self._engine.executor.replica.answering_leader_id

    @property
    def leading_epoch(self) -> int | None:
        """The epoch in which this node takes decisions; None while it does not, see `LeadershipReady`."""
        return self._engine.executor.leading_epoch

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self._engine.executor.replica.kraft_version

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self._engine.executor.high_watermark

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was committed when this node first heard of a leader is applied here."""
        return self._engine.is_caught_up

    @property
    def logins(self) -> Mapping[str, LoginCounts]:
        """Counts of logins, by listener; only listeners with authentication are in it."""
        return self._engine.logins

    def status(self) -> Status:
        """The node's status at this moment.

        Raises:
            NodeStoppedError: the node stopped.
        """
        self._check_thread("status")
        self._engine.check_open()
        return self._engine.describe()

    def health(self, *, max_lag: int = MAX_LAG) -> Health:
        """Whether the node works, and why it should get no work; sends nothing, and also answers once it stopped.

        It is ready if the leader has answered it within ``fetch_timeout_ms`` (if it leads: if a majority has fetched),
        no record has waited longer for its commit while none was committed, and it has applied what is committed.

        Args:
            max_lag: so many committed records may be not applied, >= 0.

        Raises:
            LocalError: ``max_lag`` is negative.
        """
        if not self._engine.is_closed:
            self._check_thread("health")
        if max_lag < 0:
            raise LocalError(f"max_lag is {max_lag}: it must be 0 or more records")
        return self._engine.health(max_lag)

    @overload
    def events(self, *, max_buffered: int = 1024) -> Subscription[NodeEvent]: ...
    @overload
    def events(self, kind: type[Event], /, *, max_buffered: int = 1024) -> Subscription[Event | Missed]: ...
    @overload
    def events(self, *kinds: type[NodeEvent], max_buffered: int = 1024) -> Subscription[NodeEvent]: ...
    def events(self, *kinds: type, max_buffered: int = 1024) -> Subscription[Any]:
        """The node's events from now on, as an async iterator, which ends when the node stops.

        Args:
            kinds: event classes; none: all but `Measured`.
            max_buffered: > 0; for a slower reader the oldest events are dropped, and `Missed` says how many.

        Raises:
            LocalError: ``max_buffered`` is below 1.
            NodeStoppedError: the node stopped.
        """
        self._check_thread("events")
        self._engine.check_open()
        return Subscription(self._engine.events, kinds, max_buffered)

    async def wait_leader(self) -> int:
        """Wait until there is a leader that answers this node; returns its id.

        Raises:
            NodeStoppedError: the node stopped.
        """
        check_here(self, "wait_leader")
        return await self._engine.wait_leader()

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to stop; the block of ``async with open_node(...)`` is cancelled, and the statement ends normally."""
        self._check_thread("stop")
        self._engine.stop()

    @property
    def error(self) -> BaseException | None:
        """The error that stopped the node, or None."""
        return self._engine.error


def check_here(node: Node, method: str) -> None:
    """Refuse a call from outside the node's trio loop, which would wait for ever or break the node's own work.

    Raises:
        LocalError: the caller runs in asyncio, in another thread, or in another trio loop.
    """
    if get_ident() != node._thread_id or not in_trio_task():
        raise elsewhere(method)


def _check_number(name: str, number: int) -> None:
    """Refuse a number that is no int: inside the consensus it would raise, and stop the node."""
    if not isinstance(number, int):
        raise LocalError(f"{name} is {number!r}: it must be an int")


def _proposal_of(value: bytes) -> TaskProposal[Appended[Any]]:
    """Make the proposal of one record without a number: the fast way, also taken by ``append_nowait``."""
    if type(value) is not bytes:
        value = record_bytes(value)
    if not value:
        raise empty_record()
    return TaskProposal(value, len(value) + RECORD_OVERHEAD, False)

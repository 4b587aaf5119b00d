"""A member or observer of a quorum in this process: what applications hold in their hands."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import trio
from trio.lowlevel import current_task, wait_task_rescheduled

from kraftcore import __version__
from kraftcore.config import NodeConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import (
    KraftError,
    LocalError,
    NodeStoppedError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    RefusedError,
    StorageError,
)
from kraftcore.node.administration import Administration
from kraftcore.node.applier import Applier
from kraftcore.node.busy_poll import BusyPoll
from kraftcore.node.clock import Clock
from kraftcore.node.driver import Aftermath, Driver
from kraftcore.node.events import (
    Committed,
    Elected,
    LeaderChanged,
    Measured,
    NodeEvent,
    Noted,
    RoleChanged,
    SnapshotRestored,
    Stopped,
    VotersChanged,
)
from kraftcore.node.forwarding import Forwarder, LeaderSide
from kraftcore.node.home import Home
from kraftcore.node.inbox import Inbox
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.node.plugin import Listeners, Plugin
from kraftcore.node.proposals import RECORD_OVERHEAD, Appended, AppendedMany, Group, Proposal, ProposalQueue
from kraftcore.node.pump import Pump
from kraftcore.node.sessions import SEQUENCE_MAX, producer_id_of
from kraftcore.node.snapshotting import Snapshotting
from kraftcore.node.status import Status, describe
from kraftcore.node.subscription import Subscription
from kraftcore.node.wishes import Wishes
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Barrier, Effects, Event, Outcome, Shutdown, Tick, Transfer, Upgrade
from kraftcore.raft.quorum import Endpoint
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Role
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshot_batches import verify_snapshot
from kraftcore.transports.base import Transport

_logger = logging.getLogger("kraftcore.node")

APPLY_BYTES = 4 << 20  # applied in one go; then everybody else gets a turn
_POLL_S = 0.005


class Node:
    """Made by ``open_node``; do not call the constructor.

    Everything is called from the trio loop that opened it. Other worlds: ``kraftcore.aio``, ``kraftcore.blocking``.

    Attributes:
        config: what it was opened with.
        key: its id and directory id.
        cluster_id: of its quorum.
        endpoints: where its listeners are bound.
        state_machine: what it was opened with.
        stopped: set when it takes no more calls.
    """

    sequence_limit = SEQUENCE_MAX

    def __init__(
        self,
        config: NodeConfig,
        home: Home,
        endpoints: tuple[Endpoint, ...],
        machine: StateMachine,
        transport: Transport,
        plugins: Sequence[Plugin],
        nursery: trio.Nursery,
        end: Callable[[], object],
    ) -> None:
        self.config = config
        self.key = home.key
        self.cluster_id = home.cluster_id
        self.endpoints = endpoints
        self._home = home
        self._log = log = home.log
        self._store = home.store
        self._plugins = tuple(plugins)
        self._nursery = nursery
        self._end = end
        self._clock = Clock()
        self._listeners = Listeners(plugins, self._fail)
        self._queue = ProposalQueue(config.max_batch_bytes, config.max_bytes_in_flight)
        self.state_machine = machine
        self.stopped = trio.Event()
        self.applier = Applier(machine, log, self._queue, config.session_expiry_ms, self._group_settled)
        self._replica = _replica(config, home, endpoints)
        self.outbox = Outbox(transport, f"kraftcore-{home.key.id}", __version__, self._note)
        self._driver = Driver(
            self._replica,
            log,
            home.quorum_state,
            self.outbox,
            self._clock,
            config.inline_flush_bytes,
            self._settle,
            self._fail,
        )
        self._pump = Pump(self._queue, self._driver, self._clock, config.append_linger_ms, self._has_backlog)
        self._busy_poll = BusyPoll(self._queue, config.busy_poll_us)
        self._snapshotting = Snapshotting(self, config.cleaning_config(), log, home.store)
        self._forwarder = Forwarder(self)
        self.administration = administration = Administration(self)
        own = administration.handlers | LeaderSide(self, self._queue).handlers
        self.inbox = Inbox(self._driver, own, plugins, nursery, administration.describe_features, self._note)
        self.is_leader = False
        self._accepts = False  # proposals: it leads, and does not stop
        self._role: tuple[Role, int] | None = None
        self._leader: tuple[int | None, int] | None = None
        self._asking_since: float | None = None
        self._high_watermark = 0
        self._changed = trio.Event()
        self._applied = trio.lowlevel.ParkingLot()
        self._error: BaseException | None = None
        self._stopping = False
        self._closed = False
        self._wishes = Wishes(self)

    def begin(self) -> None:
        """Start the tasks, then take part."""
        start = self._nursery.start_soon
        start(self._driver.run_timer)
        start(self._pump.run)
        if self._busy_poll.pays:
            start(self._busy_poll.run)
        start(self._snapshotting.run)
        for plugin in self._plugins:
            start(self._run_plugin, plugin)
        self._driver.feed(Tick())

    async def _run_plugin(self, plugin: Plugin) -> None:
        try:
            await plugin.run(self)
        except Exception as error:
            if plugin.participates:
                self._fail(error)
            else:
                _logger.exception("plugin %s raised and is dropped", plugin.name)
                self._listeners.drop(plugin)

    # --- appending ----------------------------------------------------------------------------------------------------

    async def append(
        self,
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> Appended:
        """Append a record; returns when it is committed and applied here.

        Args:
            value: not empty; fits ``max_batch_bytes``.
            client_id: who asks, with ``sequence``: a retry with the same two is applied once. A client has one
                proposal in flight at a time.
            sequence: 0 to 2**31 - 1, larger in each of a client's new proposals.
            forward: have the leader append it, whoever that is and becomes, and keep asking until it is done, applied
                once. A record that came here inside a snapshot has no result.

        Returns:
            The record's offset, and what the state machine returned for it here.

        Raises:
            NotLeaderError: nothing was appended; it names the leader.
            OutcomeUnknownError: leadership was lost; the record may be committed or not.
            LocalError: the value is empty or too large, or the client's number is out of range.
            NodeStoppedError: the node stopped; the outcome is unknown.
        """
        if client_id is None and sequence is None and not forward:
            if not value:
                raise _empty_record()
            if self._queue.is_full:
                await self._queue.wait_for_room()
            if not self._accepts:
                raise self._refusal()
            proposal = Proposal(value, len(value) + RECORD_OVERHEAD, False)
            self._pump.submit(proposal)
            if proposal.done:
                return await proposal.wait()  # type: ignore[no-any-return]
            # As `wait`, without its coroutine: the garbage collector walks over all that thousands of callers hold.
            proposal.task = current_task()
            return await wait_task_rescheduled(proposal)  # type: ignore[no-any-return]
        many = await self.append_many((value,), client_id=client_id, sequence=sequence, forward=forward)
        return Appended(many.offset, None if many.results is None else many.results[0])

    async def append_many(
        self,
        values: Sequence[bytes],
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> AppendedMany:
        """Append records at consecutive offsets, all or none; else as ``append``.

        Args:
            values: at least one; together they fit ``max_batch_bytes``.
            client_id: see ``append``.
            sequence: of the first record; the records take ``len(values)`` numbers.
            forward: see ``append``.
        """
        client = _client(client_id, sequence, len(values))
        if not values or not all(values):
            raise _empty_record()
        if forward:  # numbered also where this node leads: it may lose that before the record is committed
            return await self._forwarder.append(list(values), client)
        number, first = client if client is not None else (-1, -1)
        found: AppendedMany = await self.propose(Proposal(values, self.size_of(values), True, number, first))
        return found

    def append_nowait(self, value: bytes) -> Proposal:
        """Append a record without waiting for its end.

        Returns:
            A future: ``done``, ``result()``, ``await wait()``, ``add_done_callback(...)``.

        Raises:
            OverloadedError: too much is in flight.
            NotLeaderError, LocalError, NodeStoppedError: see ``append``.
        """
        if not value:
            raise _empty_record()
        proposal = Proposal(value, len(value) + RECORD_OVERHEAD, False)
        if self._queue.is_full:
            raise OverloadedError(f"{self._queue.bytes_in_flight} bytes are in flight: wait for some to be committed")
        self.submit(proposal)
        return proposal

    async def propose(self, proposal: Proposal) -> Any:
        """Append a proposal made elsewhere, and wait for its end."""
        if self._queue.is_full:
            await self._queue.wait_for_room()
        self.submit(proposal)
        return await proposal.wait()

    def submit(self, proposal: Proposal) -> None:
        """Put a proposal into the next batch, or make it that batch."""
        if not self._accepts:
            raise self._refusal()
        if proposal.producer_id >= 0:
            known = self.applier.sessions.find(proposal.producer_id)
            if known is not None and known.sequence == proposal.sequence + len(proposal.values) - 1:
                proposal.succeed(AppendedMany(known.offset, known.results))
                return
        self._pump.submit(proposal)

    @staticmethod
    def size_of(values: Sequence[bytes]) -> int:
        """What values take in a batch, at most."""
        return sum(map(len, values)) + RECORD_OVERHEAD * len(values)

    # --- what effects mean for the application ------------------------------------------------------------------------

    def _settle(self, aftermath: Aftermath) -> None:
        if aftermath.outcomes is not None:
            for outcome in aftermath.outcomes:
                self._finish(outcome)
        if aftermath.restore is not None:
            self._restore(*aftermath.restore)
        rose = aftermath.high_watermark is not None and aftermath.high_watermark > self._high_watermark
        if rose and aftermath.high_watermark is not None:
            self._high_watermark = aftermath.high_watermark
        if self._has_backlog():
            self._apply()
        if rose and self._listeners.wants(Committed):
            self._listeners.tell(Committed(self._high_watermark))
        if aftermath.news is not None:
            for effects in aftermath.news:
                self._tell_news(effects)
        self._notice_role()
        if self._queue.pending or self._has_backlog():
            self._pump.wake()
        if self._queue.groups:
            self._busy_poll.wake()

    def _has_backlog(self) -> bool:
        return self.applier.offset < self._high_watermark and not self._driver.stopped

    def _finish(self, outcome: Outcome) -> None:
        ticket = outcome.ticket
        if not isinstance(ticket, Group):
            ticket(outcome)
        elif outcome.error is ErrorCode.NONE:
            self._queue.appended(ticket, outcome.offset, self._replica.epoch)
        else:
            self._queue.release(ticket)
            if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                ticket.fail(lambda: self.not_leader(outcome.message))
            else:
                ticket.fail(lambda: RefusedError(outcome.error.name, outcome.message))

    def _apply(self) -> None:
        size = self.applier.apply(self._high_watermark, APPLY_BYTES)
        self._snapshotting.applied(size)
        if self._applied:
            self._applied.unpark_all()

    def _restore(self, end_offset: int, epoch: int) -> None:
        with self._snapshotting.open((end_offset, epoch)) as reader:
            self.applier.restore(reader, end_offset, epoch)
        self._snapshotting.begun()
        if self._applied:
            self._applied.unpark_all()
        self._listeners.tell(SnapshotRestored(end_offset, epoch))

    def _group_settled(self, group: Group) -> None:
        if self._listeners.wants(Measured):
            self._listeners.tell(Measured(perf_counter() - group.appended_at, group.count))

    def _tell_news(self, effects: Effects) -> None:
        found = effects.leadership
        if found is not None:
            self.is_leader = found.is_local
            self._accepts = found.is_local and not self._closed and not self._stopping
            queue = self._queue
            if found.is_local:
                queue.fail_groups(self._unknown, found.epoch)
            else:
                self.administration.forget_registered()
                queue.fail_groups(self._unknown)
                queue.fail_pending(self.not_leader)
            if (found.leader_id, found.epoch) != self._leader:
                self._leader = (found.leader_id, found.epoch)
                if found.leader_id is not None and self._asking_since is not None:
                    self._listeners.tell(Elected(trio.current_time() - self._asking_since))
                    self._asking_since = None
                self._listeners.tell(LeaderChanged(found.leader_id, found.epoch))
            self._has_changed()
        if effects.voters is not None:
            self._listeners.tell(VotersChanged(effects.voters))
            self._has_changed()
        for text in effects.notes:
            self._note(text)

    def _notice_role(self) -> None:
        now = (self._replica.role, self._replica.epoch)
        if now != self._role:
            self._role = now
            if now[0] is Role.PROSPECTIVE and self._asking_since is None:
                self._asking_since = trio.current_time()
            self._listeners.tell(RoleChanged(*now))
            self._has_changed()

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _note(self, text: str) -> None:
        _logger.warning("node %d: %s", self.key.id, text)
        self._listeners.tell(Noted(text))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read_barrier(self, *, forward: bool = True) -> int:
        """Make what is read from the state machine next linearizable.

        When it returns, everything that was committed anywhere before the call is applied here.

        Args:
            forward: on a node that does not lead, ask the leader, and keep asking until there is one.

        Returns:
            The offset below which everything is applied, at least.

        Raises:
            NotLeaderError: this node does not lead, and ``forward`` is False.
            NodeStoppedError: the node stopped.
        """
        offset = await (self._forwarder.barrier() if forward else self.local_barrier())
        await self.wait_applied(offset)
        return offset

    async def local_barrier(self) -> int:
        """As leader, confirm it and return the offset to apply."""
        outcome = await self._wishes.ask(lambda done: Barrier(done))
        return outcome.offset

    def ask_barrier(self, answer: Callable[[ErrorCode, int], None]) -> None:
        """As ``local_barrier``, for whoever is not a task."""
        self._driver.feed(Barrier(lambda outcome: answer(outcome.error, outcome.offset)))

    async def wait_applied(self, offset: int) -> None:
        """Wait until everything below ``offset`` is applied here."""
        while self.applier.offset < offset:
            if self._closed:
                raise self.stopped_error()
            await self._applied.park()
        await trio.lowlevel.checkpoint_if_cancelled()

    def read(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Committed record batches from the log, as they lie there; ``iter_batches`` takes them apart.

        Args:
            offset: from the batch that holds it on.
            max_bytes: whole batches up to this, but at least one.

        Returns:
            Empty at the high watermark.

        Raises:
            LocalError: below the log's start: the records are only in a snapshot.
        """
        if offset >= self._high_watermark:
            return b""
        return self._log.read(offset, max_bytes, up_to=self._high_watermark)

    # --- the quorum ---------------------------------------------------------------------------------------------------

    async def transfer_leadership(self, voter_id: int) -> None:
        """Hand leadership to a voter, once it has everything; returns when this node has stepped down.

        Raises:
            NotLeaderError: this node does not lead.
            RefusedError: no such voter, or it did not catch up within an election timeout.
        """
        await self._wishes.ask(lambda done: Transfer(done, voter_id))

    async def add_voter(
        self, voter_id: int, directory_id: Uuid, endpoints: Iterable[Endpoint], *, timeout_ms: int = 30_000
    ) -> None:
        """Add a replica that is caught up to the voters; returns when that is committed (KIP-853 AddRaftVoter).

        Raises:
            NotLeaderError: this node does not lead.
            RefusedError: the quorum refused, with Kafka's reason.
        """
        listeners = [
            AddRaftVoterRequest.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ]
        request = AddRaftVoterRequest(
            cluster_id=self.cluster_id,
            timeout_ms=timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=listeners,
        )
        await self._wishes.request(request)

    async def remove_voter(self, voter_id: int, directory_id: Uuid) -> None:
        """Remove a voter; returns when that is committed (KIP-853 RemoveRaftVoter). A leader may remove itself.

        Raises:
            NotLeaderError, RefusedError: see ``add_voter``.
        """
        request = RemoveRaftVoterRequest(cluster_id=self.cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
        await self._wishes.request(request)

    async def upgrade(self, level: int) -> None:
        """Raise kraft.version; returns when that is committed.

        Raises:
            NotLeaderError, RefusedError: see ``add_voter``.
        """
        outcome = await self._wishes.ask(lambda done: Upgrade(done, level))
        await self.wait_applied(outcome.offset)

    async def snapshot_now(self) -> tuple[int, int]:
        """Write a snapshot of the state machine as it is.

        Returns:
            Its (end offset, epoch).

        Raises:
            LocalError: nothing is applied yet.
            StorageError: the disk failed; there is no snapshot, and the node goes on.
        """
        return await self._snapshotting.take()

    async def ask(self, host: str, port: int, request: Request, timeout_ms: int, lane: int = OTHERS) -> Any:
        """Send any request to any node; returns the response, or a `Failure`."""
        future = Proposal(None, 0, False)
        self.outbox.send(host, port, request, timeout_ms, future.succeed, lane=lane)
        return await future.wait()

    # --- looking ------------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """News for the replica, from a part of this node."""
        self._driver.feed(event)

    def tell(self, event: NodeEvent) -> None:
        """News for whoever listens, from a part of this node."""
        self._listeners.tell(event)

    def report(self, text: str) -> None:
        """A line for the operator, from a part of this node."""
        self._note(text)

    @property
    def is_flushing(self) -> bool:
        """Whether the log is being synced now."""
        return self._driver.flusher.is_running

    def now_ms(self) -> int:
        """The node's time, milliseconds since 1970."""
        return self._clock.now_ms()

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, as far as known."""
        endpoints = self._replica.state.leader_endpoints
        return endpoints[0] if endpoints else None

    @property
    def replica(self) -> Replica:
        """The consensus itself, for those who know it; it belongs to the node."""
        return self._replica

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed."""
        return self._high_watermark

    def status(self) -> Status:
        """The node at this moment."""
        return describe(self._replica, self._home, self.applier.offset, self._queue.bytes_in_flight)

    def events(self, *kinds: type, max_buffered: int = 1024) -> Subscription:
        """What happens from now on, as an async iterator; ends when the node stops.

        Args:
            kinds: event classes; none: all but `Measured`.
            max_buffered: a listener that is slower loses the oldest; `Missed` says how many.
        """
        return Subscription(self._listeners, kinds, max_buffered)

    async def wait_leader(self) -> int:
        """Wait until a leader is known here; returns its id."""
        while self._replica.leader_id is None or self._replica.role is Role.RESIGNED:
            if self._closed:
                raise self.stopped_error()
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        return self._replica.leader_id

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to stop; ``async with open_node(...)`` then ends as if its block had."""
        self._end()

    def abort(self) -> None:
        """Stop at once and tell nobody, as if the process had died. ``kraftcore.testing`` kills nodes so."""
        self._driver.stopped = True
        self._end()

    async def shut_down(self) -> None:
        """Leave the quorum in good order: hand leadership over if held, make the log durable."""
        with trio.move_on_after(self.config.shutdown_timeout_ms / 1000):
            if self.is_leader and not self._driver.stopped:
                heir = self._heir()
                if heir is not None:
                    try:
                        await self.transfer_leadership(heir)
                    except KraftError as error:
                        self._note(f"leadership could not be handed to {heir}: {error}")
            self._refuse_more()
            self._driver.feed(Shutdown())
            while self._driver.is_busy or self._snapshotting.is_running:
                await trio.sleep(_POLL_S)
        self._refuse_more()

    def _refuse_more(self) -> None:
        self._stopping = True
        self._accepts = False

    def _heir(self) -> int | None:
        others = [seen for seen in self._replica.progress if seen.key != self.key and seen.log_end_offset is not None]
        voters = [seen for seen in others if self._replica.voters.is_voter(seen.key)]
        best = max(voters, key=lambda seen: seen.log_end_offset or 0, default=None)
        return None if best is None else best.key.id

    def close(self) -> None:
        """Answer whoever still waits, and close the log."""
        self._driver.stopped = True
        self._driver.flusher.close()
        self._closed = True
        self._accepts = False
        self.stopped.set()
        self._queue.fail_pending(self.stopped_error)
        self._queue.fail_groups(self.stopped_error)
        self._wishes.fail(self.stopped_error)
        for proposal in self.applier.expected.values():
            proposal.fail(self.stopped_error())
        self._applied.unpark_all()
        self._has_changed()
        self._listeners.tell(Stopped(self._error))
        try:
            self._home.close()
        except (LocalError, StorageError) as error:  # a flush that never ends, or a disk that failed
            self._error = self._error or error

    def _fail(self, error: BaseException) -> None:
        if not self._closed:
            self._closed = True
            self._accepts = False
            self.stopped.set()
            self._error = error
            self._driver.stopped = True
            _logger.critical("node %d stops: %s", self.key.id, error)
            self._end()

    @property
    def error(self) -> BaseException | None:
        """Why it failed, or None."""
        return self._error

    def check_running(self) -> None:
        """Raise `NodeStoppedError` if the node stops or has stopped."""
        if self._closed or self._stopping:
            raise self.stopped_error()

    def _refusal(self) -> KraftError:
        return self.stopped_error() if self._closed or self._stopping else self.not_leader()

    def stopped_error(self) -> NodeStoppedError:
        """What whoever still waits is told."""
        error = NodeStoppedError(f"node {self.key.id} stopped: {self._error or 'it was closed'}")
        error.__cause__ = self._error
        return error

    def not_leader(self, reason: str = "") -> NotLeaderError:
        """Why only another node can do it."""
        endpoint = None if self.is_leader else self.leader_endpoint
        leader_id = None if self.is_leader else self._replica.leader_id
        return NotLeaderError(leader_id, None if endpoint is None else str(endpoint), reason)

    def _unknown(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"node {self.key.id} lost leadership before the record was known to be committed: it may be or not; "
            "append with a client id and sequence to retry safely"
        )


def _client(client_id: str | int | None, sequence: int | None, count: int) -> tuple[int, int] | None:
    if (client_id is None) != (sequence is None):
        raise LocalError("client_id and sequence come together: give both, or neither")
    if client_id is None or sequence is None:
        return None
    if not 0 <= sequence <= SEQUENCE_MAX - count:
        raise LocalError(f"sequence {sequence} is not in 0 to {SEQUENCE_MAX - count}: take another client id")
    return producer_id_of(client_id), sequence


def _empty_record() -> LocalError:
    return LocalError("a record may not be empty, nor may there be none: Kafka's readers refuse that")


def _replica(config: NodeConfig, home: Home, endpoints: tuple[Endpoint, ...]) -> Replica:
    return Replica(
        config.raft_config(home.key, home.cluster_id, config.advertise(endpoints)),
        home.log,
        home.store,
        random.Random(int.from_bytes(os.urandom(16))),
        home.quorum_state.read(),
        verify_snapshot=_verify,
    )


def _verify(reader: Any) -> None:
    with reader:
        verify_snapshot(reader)

"""The implementation of `Node`: the executor on trio, and the parts that send and answer requests.

The parts get functions or small protocols, never the engine or the node, so each can be read and tested by itself.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

import trio

from kraftcore import __version__
from kraftcore.config import NodeConfig
from kraftcore.errors import KraftError, LocalError, NodeStoppedError, StorageError
from kraftcore.executor.decisions import Decision
from kraftcore.executor.executor import Executor, ExecutorHooks, ExecutorLimits
from kraftcore.executor.proposals import Group, Proposal
from kraftcore.node.administration import Administration
from kraftcore.node.announcing import Announcer
from kraftcore.node.authorization import Authorization
from kraftcore.node.busy_poll import BusyPoll
from kraftcore.node.clock import Clock
from kraftcore.node.damage import what_stopped
from kraftcore.node.event_hub import EventHub, Extension
from kraftcore.node.events import (
    Committed,
    LeadershipEnded,
    LeadershipReady,
    Measured,
    SnapshotRestored,
    SnapshotTaken,
    Stopped,
)
from kraftcore.node.forwarding import Forwarder, LeaderSide
from kraftcore.node.health import Health, troubles
from kraftcore.node.home import Home
from kraftcore.node.inbox import Inbox
from kraftcore.node.leaderless import Leaderless
from kraftcore.node.listeners import principal_builder, sasl_handlers
from kraftcore.node.local_requests import LocalRequests
from kraftcore.node.logins import LoginCounts
from kraftcore.node.outbox import FORWARDS, OTHERS, Outbox
from kraftcore.node.pump import Pump
from kraftcore.node.registry import Registry
from kraftcore.node.serving import consensus_handlers
from kraftcore.node.shell import Shell
from kraftcore.node.snapshotting import Snapshotting
from kraftcore.node.status import Status, describe
from kraftcore.node.waiting import TaskProposal, WaitingRoom
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Address, Answer, Parts, Transport
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Barrier, Leadership, Resign, Shutdown, Tick
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Role
from kraftcore.state_machine import StateMachine

if TYPE_CHECKING:
    from kraftcore.node.authentication import Authentication
    from kraftcore.node.recorder import Recorder
    from kraftcore.security.sasl.credentials import Credentials

_logger = logging.getLogger("kraftcore.node")
_POLL_S = 0.005


class Engine(ExecutorHooks):
    """An engine runs a node: the executor on trio, and the parts that send and answer requests.

    Args:
        config: of the node.
        home: the node's directory, open.
        endpoints: where the node's listeners are bound, and where its broker's are.
        machine: the state machine to which committed records are applied.
        transport: carries frames.
        plugins: get events.
        nursery: for its tasks.
        end: cancels the block around the node.

    Attributes:
        executor: see `Executor`.
        registry: the handlers of requests.
        inbox: takes frames of requests.
        administration: answers Kafka's tools.
        queue: takes the proposals of this node's callers.
        label: the node's id, for people.
        error: the error that stopped the node, or None.
        is_closed: whether every call raises `NodeStoppedError`.
        stopped: set when ``is_closed`` becomes True.
    """

    def __init__(
        self,
        config: NodeConfig,
        home: Home,
        endpoints: tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]],
        machine: StateMachine,
        transport: Transport,
        plugins: Sequence[Extension],
        nursery: trio.Nursery,
        end: Callable[[], object],
    ) -> None:
        self.config = config
        self.home = home
        self.endpoints, self.broker_endpoints = endpoints
        self.transport = transport
        self.events = EventHub(plugins, self.fail)
        self._plugins = plugins
        self.clock = clock = Clock(counts_sleep=config.leader_lease_ms > 0)
        self.stopped = trio.Event()
        self.thread_id = get_ident()
        self.error: BaseException | None = None
        self.failure = ""
        self.label = str(home.key.id)
        self.is_closed = False
        self.logins: Mapping[str, LoginCounts] = {}
        self._is_stopping = False
        self._nursery = nursery
        self._end = end
        self._changed = trio.Event()
        self._applied = trio.lowlevel.ParkingLot()
        self._announcer = Announcer(self.label, self.events, trio.current_time)
        self.note = self._announcer.note
        self.outbox = Outbox(transport, f"kraftcore-{home.key.id}", __version__, self.note)
        self._recorder: Recorder | None = None
        self._open_executor(machine)
        self.queue = self.executor.queue
        self.room = WaitingRoom(self.queue)
        self.local = LocalRequests(self.shell.feed, self.check_running, self.executor.not_leader, self.endpoints)
        self._pump = Pump(self.executor, self.shell.run, config.append_linger_ms)
        self._busy_poll = BusyPoll(self.executor, config.busy_poll_us)
        self._polls = self._busy_poll.pays
        self.snapshotting = Snapshotting(self.executor, self.shell, config.cleaning_config(), clock.now_ms, self)
        self.forwarder = Forwarder(self, config)
        self._leaderless = Leaderless(
            home.key, config.bootstrap_servers, self.outbox, self.executor.replica, self.silent_ms, self.note
        )
        self.administration = Administration(home.key.id, self.describe, self.executor, self.shell.feed)
        self.registry = Registry(endpoint.name for endpoint in self.broker_endpoints)
        if config.authorizer is not None:
            self.registry.authorization = Authorization(config.authorizer)
        self.inbox = Inbox(
            self.shell.feed,
            self.registry,
            nursery,
            self.administration.describe_features,
            self.note,
            self.fail,
            clock.now_ms,
            {each.name: config.security_protocol(each.name) for each in (*self.endpoints, *self.broker_endpoints)},
        )
        leader_side = LeaderSide(self.executor, self.look, config, self.ask_barrier)
        logins = sasl_handlers() if config.listener_sasl else ()
        for handler in (*consensus_handlers(), *self.administration.handlers, *leader_side.handlers, *logins):
            self.registry.register(handler)

    def _open_executor(self, machine: StateMachine) -> None:
        config, home = self.config, self.home
        self.shell = Shell(
            home.log,
            home.store,
            home.quorum_state,
            self.outbox,
            self.clock,
            config.inline_flush_bytes,
            self.fail,
            self.look,
            home.committed,
            self._end_probation,
        )
        may_have_forgotten = home.probation.is_set()
        raft_config = config.raft_config(home.key, home.cluster_id, config.advertise(self.endpoints))
        seed = int.from_bytes(os.urandom(16))
        if config.record_file is not None:
            from kraftcore.node.recorder import Recorder

            self._recorder = Recorder(config.record_file, home.log, home.store)
            cleaning = config.cleaning_config()
            self._recorder.begin(raft_config, seed, cleaning, may_have_forgotten=may_have_forgotten)
        replica = Replica(
            raft_config,
            home.log,
            home.store,
            random.Random(seed),
            home.quorum_state.read(),
            committed=home.committed.read(),
            may_have_forgotten=may_have_forgotten,
        )
        limits = ExecutorLimits(
            config.max_batch_bytes,
            config.max_bytes_in_flight,
            config.session_expiry_ms,
            gathers=config.append_linger_ms > 0,
        )
        self.executor = Executor(
            replica,
            home.log,
            home.store,
            machine,
            self.shell,
            self,
            limits,
            config.cleaning_config(),
            self.now_ms(),
            self._recorder,
        )
        self.shell.drive(self.executor)

    def _end_probation(self) -> None:
        self.home.probation.clear()
        _logger.info(
            "node %d: has heard from all other voters since it began with an empty directory, and votes from now on",
            self.home.key.id,
        )

    # --- start and stop -----------------------------------------------------------------------------------------------

    def make_authentication(self, credentials: Credentials | None) -> Authentication:
        """Make the part that authenticates clients; ``credentials`` are for SCRAM, see `Authentication`."""
        from kraftcore.node.authentication import Authentication  # only here: imports SASL

        principals = principal_builder(self.config)
        note, now_ms = self.note, self.clock.now_ms
        authentication = Authentication(
            self.config, credentials, principals, self.registry, self.inbox, self._nursery, note, now_ms
        )
        self.logins = authentication.logins
        return authentication

    def begin(self) -> None:
        """Start the tasks, then take part in the quorum."""
        self.spawn(self.shell.run_timer)
        self.spawn(self._pump.run)
        if self._polls:
            self.spawn(self._busy_poll.run)
        self.spawn(self.snapshotting.run)
        self.spawn(self._leaderless.run)
        self.shell.feed(Tick())

    def spawn(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a function as a task of the node: an exception that it raises stops the node."""
        self._nursery.start_soon(self._run, partial(function, *arguments))

    @uninterrupted
    async def _run(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:
            self.fail(error)

    def stop(self) -> None:
        """Begin to stop; returns at once."""
        self._end()

    def abort(self) -> None:
        """Stop at once, without a message to any other node."""
        self.executor.stop()
        self._end()

    async def shut_down(self) -> None:
        """Leave the quorum in good order: hand leadership over if held, make the log durable."""
        executor = self.executor
        with trio.move_on_after(self.config.shutdown_timeout_ms / 1000):
            if self.is_leader and not executor.stopped:
                preferred_successor = executor.replica.preferred_successor
                if preferred_successor is not None:
                    try:
                        await self.local.transfer(preferred_successor)
                    except KraftError as error:
                        self.note(f"leadership could not be handed to {preferred_successor}: {error}")
            self._refuse_more()
            self.shell.feed(Shutdown())
            while self.shell.is_busy or self.snapshotting.is_running:
                await trio.sleep(_POLL_S)
        self._refuse_more()

    def _refuse_more(self) -> None:
        self._is_stopping = True
        self.executor.refuse(self.stopped_error)

    def close(self) -> None:
        """End the calls that still wait, and close the log."""
        self.shell.close()
        self._end_calls()
        self.inbox.close()
        if self._recorder is not None:
            self._recorder.close()
        try:
            self.home.close()
        except (LocalError, StorageError) as error:  # a flush that never ends, or a disk that failed
            if self.error is None:
                self.error, self.failure = error, what_stopped(self.home.files, self.home.directory, error)

    def fail(self, error: BaseException) -> None:
        """Stop the node because of an error; only the first error is kept."""
        if not self.is_closed:
            self.error = error
            self.failure = what_stopped(self.home.files, self.home.directory, error)
            _logger.critical("node %s stops: %s", self.label, self.failure)
            self._end_calls()
            self._end()

    def _end_calls(self) -> None:
        """End every call that waits with `NodeStoppedError`; later calls raise it, too."""
        if self.is_closed:
            return
        self.is_closed = True
        self.stopped.set()
        self.executor.end(self.stopped_error)
        self.local.fail(self.stopped_error)
        self._applied.unpark_all()
        self._has_changed()
        self.events.tell(Stopped(self.error))

    def stopped_error(self) -> NodeStoppedError:
        """The error for calls that wait when the node stops, and for later calls."""
        error = NodeStoppedError(f"node {self.label} stopped: {self.failure or 'it was closed'}")
        error.__cause__ = self.error
        return error

    def check_running(self) -> None:
        """Raise `NodeStoppedError` if the node stops or has stopped."""
        if self.is_closed or self._is_stopping:
            raise self.stopped_error()

    def check_open(self) -> None:
        """Raise `NodeStoppedError` if the node has stopped."""
        if self.is_closed:
            raise self.stopped_error()

    # --- proposals and decisions --------------------------------------------------------------------------------------

    def submit(self, proposal: Proposal) -> None:
        """Put a proposal into the next batch, or make a batch of it."""
        if self.executor.add(proposal):
            self.give()

    def give(self) -> None:
        """Call the executor's ``propose`` now, or have the pump call it, as the executor asks for."""
        executor = self.executor
        if executor.wants_batch:
            self.shell.run(executor.propose)
        elif executor.wants_turn:
            self._pump.wake()

    async def propose(self, proposal: TaskProposal) -> Any:
        """Append a proposal, and wait for its end."""
        if self.queue.is_full:
            await self.room.wait()
        self.submit(proposal)
        return await proposal.wait()

    def decide(self, decision: Decision) -> None:
        """Make a decision, at once or together with others that are queued."""
        self.executor.decide(decision)
        self.give()

    def resign(self) -> None:
        """Give leadership up, if it is held."""
        self.shell.feed(Resign())

    def look(self) -> None:
        """Do as ``give`` does after the executor handled an event, and wake the busy poll."""
        executor = self.executor
        if executor.wants_batch and not executor.is_busy:
            self.shell.run(executor.propose)
        if executor.wants_turn:
            self._pump.wake()
        if self._polls and executor.on_its_way is not None:
            self._busy_poll.wake()

    # --- ExecutorHooks ------------------------------------------------------------------------------------------------

    def appending(self, group: Group) -> None:
        """See `ExecutorHooks`."""
        group.appended_at = perf_counter()

    def settled(self, group: Group) -> None:
        """See `ExecutorHooks`."""
        if self.events.wants(Measured):
            self.events.tell(Measured(perf_counter() - group.appended_at, group.count))

    def applied(self, offset: int) -> None:
        """See `ExecutorHooks`."""
        if self._applied:
            self._applied.unpark_all()

    def snapshot_due(self) -> None:
        """See `ExecutorHooks`."""
        self.snapshotting.wake()

    def committed(self, high_watermark: int) -> None:
        """See `ExecutorHooks`."""
        if self.events.wants(Committed):
            self.events.tell(Committed(high_watermark))

    def restored(self, end_offset: int, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.applied(end_offset)
        self.events.tell(SnapshotRestored(end_offset, epoch))

    def leader_changed(self, found: Leadership) -> None:
        """See `ExecutorHooks`."""
        if not found.is_local:
            self.administration.forget_registered()
        self._announcer.leader(found.leader_id, found.epoch)
        self._has_changed()

    def leading(self, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.events.tell(LeadershipReady(epoch))

    def leading_ended(self, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.events.tell(LeadershipEnded(epoch))

    def role_changed(self, role: Role, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self._announcer.role(role, epoch)
        self._has_changed()

    def voters_changed(self, voters: VoterSet) -> None:
        """See `ExecutorHooks`."""
        self._announcer.voters(voters)
        self._has_changed()

    def noted(self, text: str) -> None:
        """See `ExecutorHooks`."""
        self.note(text)

    def alarmed(self, text: str) -> None:
        """See `ExecutorHooks`."""
        self._announcer.alarm(text)

    def snapshot_taken(self, end_offset: int, epoch: int) -> None:
        """Tell subscribers of a snapshot that this node wrote."""
        self.events.tell(SnapshotTaken(end_offset, epoch))

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # --- asking and waiting -------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether the node leads, as far as it knows."""
        return self.executor.is_leader and not self.is_closed

    @property
    def is_caught_up(self) -> bool:
        """See `Node.is_caught_up`."""
        first = self.executor.replica.first_high_watermark
        return first is not None and self.executor.applier.offset >= first

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, as far as known: its listener with the name of our first listener, if it has one.

        None once the node stopped.
        """
        if self.is_closed:
            return None
        endpoints = self.executor.replica.leader_endpoints
        name = self.config.listeners[0].name if self.config.listeners else None
        return next((each for each in endpoints if each.name == name), endpoints[0] if endpoints else None)

    def now_ms(self) -> int:
        """The node's time, milliseconds since 1970."""
        return self.clock.now_ms()

    def silent_ms(self) -> int:
        """See `Status.leader_silent_ms`."""
        return self.executor.replica.leader_silent_ms(self.now_ms())

    def in_one_line(self) -> str:
        """The node's id, role, epoch and leader for people; also works once the node stopped."""
        replica, who = self.executor.replica, self.label
        if self.is_closed:
            return f"{who}: stopped" + ("" if self.error is None else f", {type(self.error).__name__}: {self.failure}")
        leader_id = replica.answering_leader_id
        leader = "no leader known" if leader_id is None else f"leader {leader_id}"
        return (
            f"{who}: {replica.role.value}, epoch {replica.epoch}, {leader}, "
            f"high watermark {self.executor.high_watermark}"
        )

    def describe(self) -> Status:
        """The node's `Status` now."""
        return describe(self.executor, self.home, self.outbox.connections, self.silent_ms())

    def health(self, max_lag: int) -> Health:
        """See `Node.health`."""
        if self.is_closed:
            return Health(False, (f"the node has stopped: {self.failure or 'it was told to'}",))
        found = ["the node is stopping"] if self._is_stopping else []
        timeout_ms = self.config.fetch_timeout_ms
        found += troubles(self.executor, self.now_ms(), timeout_ms, max_lag, self._leaderless.describe)
        for plugin in self._plugins:
            found += plugin.unready()
        return Health(True, tuple(found))

    async def local_barrier(self) -> int:
        """Confirm that this node leads; returns the offset that must be applied before reading."""
        outcome = await self.local.ask(lambda done: Barrier(done))
        return outcome.offset

    def ask_barrier(self, answer: Callable[[ErrorCode, int], None]) -> None:
        """Do as ``local_barrier`` does, with a callback: (error, offset)."""
        self.shell.feed(Barrier(lambda outcome: answer(outcome.error, outcome.offset)))

    async def wait_applied(self, offset: int) -> None:
        """Wait until everything below ``offset`` is applied."""
        self.check_open()
        while self.executor.applier.offset < offset:
            await self._applied.park()
            self.check_open()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def wait_leader(self) -> int:
        """Wait until there is a leader that answers; returns its id."""
        self.check_open()
        replica = self.executor.replica
        while (leader_id := replica.answering_leader_id) is None:
            await self._changed.wait()
            self.check_open()
        await trio.lowlevel.checkpoint()
        return leader_id

    def relay(self, address: Address, parts: Parts, answer: Answer) -> None:
        """Send a request's frame that an attached process made, as a request of this node's; see `Transport`."""
        self.transport.request(address, parts, self.config.request_timeout_ms, answer)

    async def ask(
        self, host: str, port: int, request: Request, timeout_ms: int, lane: int = OTHERS, min_version: int = 0
    ) -> Any:
        """Send any request to any node; returns the response, or a `Failure`."""
        self.check_open()
        return await self.local.wait(
            lambda future: self.outbox.send(host, port, request, timeout_ms, future.succeed, min_version, lane)
        )

    def make_outbox(self, client_id: str) -> Outbox:
        """Make another outbox on the same transport, for requests that do not belong to the consensus."""
        return Outbox(self.transport, client_id, __version__, self.note)

    async def ask_leader(self, endpoint: Endpoint, request: Request) -> Any:
        """Send a forwarded request to the leader; returns the response, or a `Failure`."""
        return await self.ask(endpoint.host, endpoint.port, request, self.config.request_timeout_ms, FORWARDS)

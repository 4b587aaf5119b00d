"""The executor: proposals become batches, committed records are applied, and callers get results.

A replica only appends batches and says what is committed. An application wants its records applied to a state machine,
one after the other, and wants to know what became of a record that it proposed. `Executor` is a `Driver` that adds
this.

* Everything pending becomes a batch as soon as no batch is uncommitted, or `ENOUGH_BYTES` are pending. There is no
  timer. Where one commit wakes many callers together, the first new proposal waits for a *turn*: a call of ``turn``
  that the executor's caller makes when all tasks that can run have run. So these callers share a batch.
* Committed records are applied `APPLY_BYTES` at a time; the rest waits for a turn, so that other work comes between.
* A leader that loses its leadership ends everything uncommitted with `OutcomeUnknownError` at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kraftcore.errors import (
    InvariantError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RefusedError,
    StateMachineError,
)
from kraftcore.executor.applier import Applier
from kraftcore.executor.client_numbers import NumberedProposals
from kraftcore.executor.decisions import Decided, Decision, DecisionQueue
from kraftcore.executor.driver import Driver, Ports, Probe
from kraftcore.executor.proposals import RECORD_OVERHEAD, AppendedMany, Group, Proposal, ProposalQueue
from kraftcore.executor.snapshot_contents import SnapshotContents
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.raft.events import Barrier, Effects, Leadership, Outcome, Propose, SnapshotWritten
from kraftcore.raft.ports import LogPort
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Role
from kraftcore.raft.snapshot_schedule import Cleaner, CleaningConfig, SnapshotSchedule
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshot_batches import SnapshotReader
from kraftcore.storage.snapshots import SnapshotStore

APPLY_BYTES = 4 << 20  # of committed records, applied in one turn
ENOUGH_BYTES = 128 * 1024  # pending: a larger batch would cost as much for each byte, and come later


class ExecutorHooks:
    """What an executor tells its caller, in order; a method that is not overridden does nothing.

    The methods are called while the executor handles events, so they must not wait. Events that they hand in are taken
    after the present ones.
    """

    def appending(self, group: Group) -> None:
        """A batch is about to be appended."""

    def settled(self, group: Group) -> None:
        """A batch of proposals that this replica appended is committed and applied."""

    def restored(self, end_offset: int, epoch: int) -> None:
        """The state machine was loaded from this snapshot: everything below its end is applied."""

    def applied(self, offset: int) -> None:
        """Records were applied: everything below ``offset`` is applied now."""

    def snapshot_due(self) -> None:
        """A snapshot is due; see ``Executor.gather_snapshot``. This is called again until one was gathered."""

    def committed(self, high_watermark: int) -> None:
        """Everything below ``high_watermark`` is committed; some of it may be applied in a later turn."""

    def leader_changed(self, found: Leadership) -> None:
        """Another leader, or another epoch, is known."""

    def leading(self, epoch: int) -> None:
        """This replica leads and has applied all records of earlier epochs: it takes decisions from now on."""

    def leading_ended(self, epoch: int) -> None:
        """This replica leads no more; called once after each ``leading``."""

    def role_changed(self, role: Role, epoch: int) -> None:
        """This replica is in another role, or in another epoch."""

    def voters_changed(self, voters: VoterSet) -> None:
        """Another voter set is in force; its record may not be committed yet."""

    def noted(self, text: str) -> None:
        """A line for the operator's log."""

    def alarmed(self, text: str) -> None:
        """An alarm for the operator: a leader would have this replica drop committed records."""


class ExecutorLimits(NamedTuple):
    """Bounds of an executor.

    Attributes:
        max_batch_bytes: no batch of proposals is larger.
        max_bytes_in_flight: of all pending and uncommitted proposals.
        session_expiry_ms: how long a client that proposes nothing is remembered; the same on every replica.
        gathers: whether every batch waits for a turn, because the executor's caller lets time pass before a turn.
        apply_bytes: of committed records that are applied in one turn.
    """

    max_batch_bytes: int
    max_bytes_in_flight: int
    session_expiry_ms: int
    gathers: bool = False
    apply_bytes: int = APPLY_BYTES


class Executor(Driver):
    """Runs a state machine on a replica: appends proposals, applies records, and gives callers results.

    Args:
        replica: the replica that is driven.
        log: the replica's log.
        store: the replica's snapshots.
        machine: the state machine to which committed records are applied.
        ports: disk and network.
        hooks: told what happens.
        limits: bounds.
        cleaning: when snapshots are due, and when old ones are deleted.
        now_ms: the time, milliseconds since 1970.
        probe: see `Probe`.

    Attributes:
        queue: the proposals that have not ended.
        decisions: the decisions that have not ended.
        numbered: the forwarded proposals that have not ended.
        applier: applies committed records.
        high_watermark: everything below it is committed.
        uncommitted_since_ms: since when records have waited for their commit while none was committed, by the time that
            ``handle`` was given; None: none waits.
        is_leader: whether this replica leads, as far as it knows.
        leading_epoch: the epoch in which decisions are taken, or None; see ``ExecutorHooks.leading``.
        accepts: whether proposals are taken.
        wants_batch: ``propose`` is to be called at once.
        wants_turn: ``turn`` is to be called soon, after the tasks that can run now.
    """

    def __init__(
        self,
        replica: Replica,
        log: LogPort,
        store: SnapshotStore,
        machine: StateMachine,
        ports: Ports,
        hooks: ExecutorHooks,
        limits: ExecutorLimits,
        cleaning: CleaningConfig,
        now_ms: int,
        probe: Probe | None = None,
    ) -> None:
        super().__init__(replica, log, ports, probe)
        self.store = store
        self.limits = limits
        self.queue = ProposalQueue(limits.max_batch_bytes, limits.max_bytes_in_flight)
        self.decisions = DecisionQueue(limits.max_batch_bytes)
        self.numbered = NumberedProposals()
        self.applier = Applier(machine, log, self.queue, limits.session_expiry_ms, hooks.settled)
        self.schedule = SnapshotSchedule(cleaning, now_ms)
        self.high_watermark = 0
        self.uncommitted_since_ms: int | None = None
        self.is_leader = False
        self.leading_epoch: int | None = None
        self.accepts = False
        self.wants_batch = False
        self.wants_turn = False
        self._gathers = limits.gathers
        self._cleaner = Cleaner(cleaning, log, store)
        self._hooks = hooks
        self._claim: Leadership | None = (
            None  # this replica's leadership, until it has applied its predecessors' records
        )
        self._role: tuple[Role, int] | None = None
        self._refuse: Callable[[], KraftError] | None = None

    # --- proposals ----------------------------------------------------------------------------------------------------

    def add(self, proposal: Proposal) -> bool:
        """Take a proposal.

        Returns:
            Whether ``wants_batch`` or ``wants_turn`` is set because of it.

        Raises:
            NotLeaderError: this replica does not lead; nothing was appended.
            OverloadedError: too much is in flight; see ``ProposalQueue.add``.
            LocalError: its records do not fit a batch.
            SequenceError: its numbers were used for something else.
            KraftError: the error that ``refuse`` was given.
        """
        if not self.accepts:
            raise self.refusal()
        if proposal.producer_id >= 0:
            sessions = self.applier.sessions
            known = sessions.seen(proposal.producer_id, proposal.producer_epoch, proposal.sequence, proposal.values)
            if known is not None:
                proposal.succeed(AppendedMany(known.offset, known.results))
                return False
        queue = self.queue
        queue.add(proposal)
        if self.wants_turn:
            return False
        if not queue.groups:
            if queue.last_settled <= 1 and not self._gathers:
                self.wants_batch = True
            else:
                self.wants_turn = True
            return True
        if queue.pending_bytes >= ENOUGH_BYTES:
            self.wants_turn = True
            return True
        return False

    def join(
        self,
        make: Callable[..., Proposal],
        values: Sequence[bytes],
        producer_id: int,
        sequence: int,
        producer_epoch: int = 0,
        digest: bytes = b"",
    ) -> Proposal:
        """Take a proposal that another node forwarded, perhaps not for the first time; see ``add``.

        If a proposal with the same numbers is in flight, that proposal is returned. A numbered proposal is taken only
        when all records of earlier epochs are applied, for an earlier leader may have appended it.

        Args:
            make: the class of the proposal.
            values: the proposal's records.
            producer_id: the client's number; -1: the proposal is not numbered.
            sequence: of the first record; -1 without a number.
            producer_epoch: the client's epoch.
            digest: of the records, see ``sessions.digest_of``.

        Raises:
            NotLeaderError, OverloadedError, LocalError, KraftError: see ``add``.
        """
        key = (producer_id, producer_epoch, sequence, digest)
        running = self.numbered.find(key) if producer_id >= 0 else None
        if running is not None:
            return running
        proposal = make(values, size_of(values), True, producer_id, sequence, producer_epoch)
        if producer_id >= 0:
            if not self.accepts:
                raise self.refusal()
            if self.leading_epoch is None:
                raise self.not_leader("it has not applied its predecessors' records yet")
            self.numbered.add(key, proposal)
        try:
            self.add(proposal)
        except KraftError:
            self.numbered.forget(key)
            raise
        return proposal

    def decide(self, decision: Decision) -> None:
        """Take a decision; ``propose`` or ``turn`` asks it for its records and appends them.

        Raises:
            NotLeaderError: this replica does not lead, or has not applied all records of earlier epochs.
            KraftError: the error that ``refuse`` was given.
        """
        if not self.accepts:
            raise self.refusal()
        if self.leading_epoch is None:
            raise self.not_leader("it has not applied its predecessors' records yet")
        self.decisions.pending.append(decision)
        is_first = not self.wants_turn and self.on_its_way is None and self.decisions.is_alone
        if is_first and not self._gathers and not self.is_busy:
            self.wants_batch = True
        else:
            self.wants_turn = True

    @property
    def on_its_way(self) -> object | None:
        """The oldest appended batch or decision that is not committed; None: there is none."""
        if self.queue.groups:
            return self.queue.groups[0]
        appended = self.decisions.appended
        return appended[0] if appended else None

    def propose(self, now_ms: int) -> None:
        """Append everything pending, in batches."""
        self.wants_batch = False
        queue = self.queue
        proposed = []
        while (group := queue.next_group()) is not None:
            batch = group.build(now_ms)
            self._hooks.appending(group)
            proposed.append(Propose(group, batch))
        if proposed:
            self.handle(now_ms, *proposed)
            if not queue.groups:  # the only voter has committed them: who appends before the next turn shares a batch
                self.wants_turn = True
        if self.decisions.pending and not self.is_busy and not self.stopped:
            self._decide(now_ms)

    def _decide(self, now_ms: int) -> None:
        # No event waits in the driver, so the next batch is appended at the log end offset.
        decided = self.decisions.decide(self.log.log_end_offset, self.replica.epoch, now_ms)
        if decided.batches:
            self.handle(now_ms, Propose(decided, decided.batches[0], tuple(decided.batches[1:])))
        elif decided.needs_barrier:
            self.handle(now_ms, Barrier(partial(self._confirmed, decided)))
        else:
            self.decisions.took(decided)
            self.decisions.applied(self.applier.offset)

    def _confirmed(self, decided: Decided, outcome: Outcome) -> None:
        if outcome.error is ErrorCode.NONE:
            self.decisions.took(decided)
            self.decisions.applied(self.applier.offset)
        else:
            self.decisions.refused(decided, lambda: self._refused(outcome))

    def turn(self, now_ms: int) -> None:
        """Go on with everything that waited for a turn: pending proposals and decisions, and records to apply."""
        self.wants_turn = False
        if self._is_time:
            self.propose(now_ms)
        if self.has_backlog:
            self.handle(now_ms)

    @property
    def _is_time(self) -> bool:
        """Whether the pending proposals and decisions should become a batch now."""
        queue, decisions = self.queue, self.decisions
        if not queue.pending and not decisions.pending:
            return False
        return queue.pending_bytes >= ENOUGH_BYTES or decisions.is_time or self.on_its_way is None

    @property
    def has_backlog(self) -> bool:
        """Whether committed records wait to be applied."""
        return self.applier.offset < self.high_watermark and not self.stopped

    # --- effects for the application ----------------------------------------------------------------------------------

    def _settle(self, unsettled: list[Effects]) -> None:
        if not unsettled and self.has_backlog:
            self._apply()
        for effects in unsettled:
            if effects.restore is not None:
                self._restore(*effects.restore)
            high_watermark = effects.high_watermark
            if high_watermark is not None and high_watermark > self.high_watermark:
                self.high_watermark = high_watermark
                self.uncommitted_since_ms = None
                self._apply()
                self._hooks.committed(high_watermark)
            for outcome in effects.outcomes:
                self._finish(outcome)
            if effects.leadership is not None:
                self._led(effects.leadership)
            if effects.voters is not None:
                self._hooks.voters_changed(effects.voters)
            for text in effects.notes:
                self._hooks.noted(text)
            for text in effects.alarms:
                self._hooks.alarmed(text)
        self._notice()

    def _notice(self) -> None:
        replica = self.replica
        if not self.is_installing:
            if self.log.log_end_offset <= self.high_watermark:
                self.uncommitted_since_ms = None
            elif self.uncommitted_since_ms is None:
                self.uncommitted_since_ms = self.now_ms
        role = (replica.role, replica.epoch)
        if role != self._role:
            self._role = role
            self._hooks.role_changed(*role)
        if self.applier.offset < self.high_watermark or (
            (self.queue.pending or self.decisions.pending) and self._is_time
        ):
            self.wants_turn = True

    def _finish(self, outcome: Outcome) -> None:
        ticket = outcome.ticket
        if type(ticket) is Group:
            if outcome.error is ErrorCode.NONE:
                self.queue.appended(ticket, outcome.offset, self.replica.epoch)
            else:
                self.queue.refused(ticket, lambda: self._refused(outcome))
        elif type(ticket) is Decided:
            self._appended(ticket, outcome)
        else:
            ticket(outcome)

    def _appended(self, decided: Decided, outcome: Outcome) -> None:
        if outcome.error is not ErrorCode.NONE:
            self.decisions.refused(decided, lambda: self._refused(outcome))
            return
        if outcome.offset != decided.offset:
            raise InvariantError(f"records decided for offset {decided.offset} were appended at {outcome.offset}")
        self.decisions.took(decided)
        self.decisions.applied(self.applier.offset)  # a decision without records may be committed already

    def _refused(self, outcome: Outcome) -> KraftError:
        if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self.not_leader(outcome.message)
        return RefusedError(outcome.error.name, outcome.message)

    def _apply(self) -> None:
        applier = self.applier
        self.schedule.applied(applier.apply(self.high_watermark, self.limits.apply_bytes))
        self._hooks.applied(applier.offset)
        if self.schedule.is_due(self.now_ms):
            self._hooks.snapshot_due()
        if self.decisions.appended:
            self.decisions.applied(applier.offset)
        claim = self._claim
        if claim is not None and applier.offset > claim.epoch_start_offset:
            self._claim = None
            self.leading_epoch = claim.epoch
            self._hooks.leading(claim.epoch)

    def _restore(self, end_offset: int, epoch: int) -> None:
        with SnapshotReader(self.store.open((end_offset, epoch))) as reader:
            self.applier.restore(reader, end_offset, epoch)
        self.schedule.begun(self.now_ms)
        self._hooks.restored(end_offset, epoch)

    def _led(self, found: Leadership) -> None:
        queue = self.queue
        self.is_leader = found.is_local
        self.accepts = found.is_local and self._refuse is None
        self._claim = found if found.is_local else None
        ended, self.leading_epoch = self.leading_epoch, None
        queue.fail_appended(self._unknown, found.epoch if found.is_local else None)
        self.decisions.fail_appended(self._unknown)
        if not found.is_local:
            queue.fail_pending(self.not_leader)
            self.decisions.fail_pending(self.not_leader)
        if ended is not None:
            self._hooks.leading_ended(ended)
        self._hooks.leader_changed(found)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot_is_due(self, now_ms: int) -> bool:
        """Whether a snapshot is to be written now."""
        return self.schedule.is_due(now_ms)

    def gather_snapshot(self, now_ms: int) -> SnapshotContents | None:
        """The contents of a snapshot of everything applied; None: nothing is applied, or there is that snapshot
        already.

        When the snapshot is written, call ``snapshot_written`` with the contents.

        Raises:
            SnapshotLaterError: the state machine wants to be asked later; a snapshot stays due.
            StateMachineError: the state machine's ``snapshot`` raised something else.
        """
        applier = self.applier
        if applier.offset == 0 or (applier.offset, applier.epoch) in self.store:
            self.schedule.begun(now_ms)
            return None
        version, voters = self.replica.voters_at(applier.offset)
        try:
            values, sessions = applier.collect()
        except StateMachineError:
            self.schedule.begun(now_ms)
            raise
        self.schedule.begun(now_ms)
        return SnapshotContents(
            applier.offset, applier.epoch, now_ms, applier.timestamp_ms, version, voters, values, sessions
        )

    def snapshot_written(self, now_ms: int, contents: SnapshotContents) -> None:
        """Tell the replica that a snapshot with these contents is complete and durable."""
        self.handle(now_ms, SnapshotWritten(contents.end_offset, contents.epoch))

    def clean(self, now_ms: int) -> int:
        """Delete old snapshots and segments, see `Cleaner`, and return how many snapshots; not while a flush runs.

        Raises:
            StorageError: the disk failed.
        """
        if self._probe is not None:
            self._probe.cleaning(now_ms)
        return self._cleaner.clean(now_ms)

    # --- the end ------------------------------------------------------------------------------------------------------

    def refuse(self, make_error: Callable[[], KraftError]) -> None:
        """Refuse proposals and decisions from now on, with the error that ``make_error`` makes."""
        self._refuse = make_error
        self.accepts = False

    def end(self, make_error: Callable[[], KraftError]) -> None:
        """Stop for good, and end everything that waits with the error that ``make_error`` makes."""
        self.stop()
        self.refuse(make_error)
        self.queue.end(make_error)
        self.decisions.end(make_error)
        for proposal in list(self.applier.expected.values()):
            proposal.fail(make_error())

    def refusal(self) -> KraftError:
        """The error that says why proposals are not taken now."""
        return self.not_leader() if self._refuse is None else self._refuse()

    def not_leader(self, reason: str = "") -> NotLeaderError:
        """The error of a request that only the leader can serve; it names the leader if one is known."""
        if self.is_leader:
            return NotLeaderError(None, None, reason)
        endpoints = self.replica.leader_endpoints
        return NotLeaderError(self.replica.answering_leader_id, str(endpoints[0]) if endpoints else None, reason)

    def _unknown(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"node {self.replica.node_id} lost leadership before the record was known to be committed: it may be or "
            "not; append with a client id and sequence to retry safely"
        )

    # --- checks -------------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check, between two calls of ``handle``, that executor, replica and log agree with each other.

        Raises:
            InvariantError: they do not, which is a bug.
        """
        super().check_invariants()
        if self.is_installing:
            return
        applied, end = self.applier.offset, self.log.log_end_offset
        if not applied <= self.high_watermark <= end:
            raise InvariantError(
                f"applied {applied}, high watermark {self.high_watermark}, log end {end}: not in order"
            )
        known = self.replica.high_watermark
        if known is not None and known != self.high_watermark:
            raise InvariantError(f"the high watermark is {known} to the replica, {self.high_watermark} here")
        leads = self.replica.role is Role.LEADER
        if self.is_leader != leads or (self.accepts and not leads):
            raise InvariantError(f"is_leader={self.is_leader}, accepts={self.accepts}, role {self.replica.role.value}")
        if self.leading_epoch is not None and self.leading_epoch != self.replica.epoch:
            raise InvariantError(f"it leads epoch {self.replica.epoch}, decisions are taken for {self.leading_epoch}")
        if (self.queue.groups or self.decisions.appended) and not leads:
            raise InvariantError("callers wait for records of an epoch that this replica does not lead any more")
        self.queue.check_invariants(applied, end)
        self.decisions.check_invariants(applied, end)


def size_of(values: Sequence[Any]) -> int:
    """The bytes that values take in a batch, at most."""
    return sum(map(len, values)) + RECORD_OVERHEAD * len(values)

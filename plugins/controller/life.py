"""The life of a controller: whether it is active, and decisions that run ahead of the committed records.

This module has no sockets, tasks or clock: a node or the simulator says when the controller leads, hands its `Step`
objects to the executor, and passes the time. The executor asks a step for its records when it knows their offset; the
step decides, and puts the records into the image at once, so that the next step sees them. A step's answer waits until
all records that the step saw are committed.

Rules of this file:

* Leading begins when everything in the log is committed and applied; the first step writes the records of ``activate``.
* A step that raises changes nothing: its records are taken back, and no other step fails. If it was the first step, the
  controller is not active, and its node must give leadership up, as in Kafka.
* If a step was decided and is not appended, its changes of image and soft state, and those of all later steps, are
  taken back.
* When leadership ends the image goes back to the committed records; soft state and timers are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from kraftcore.errors import (
    InvariantError,
    KraftError,
    LocalError,
    NodeStoppedError,
    NotLeaderError,
    OutcomeUnknownError,
    RemoteProtocolError,
)
from kraftcore.executor import decisions
from kraftcore.metadata import Broker, MetadataMachine
from kraftcore.plugins.controller import activation, brokers, elections, tokens
from kraftcore.plugins.controller.caller import UNKNOWN_CALLER, Caller
from kraftcore.plugins.controller.decision import (
    MAX_RECORDS,
    Context,
    ControllerResult,
    ControllerSettings,
    Randomness,
    Record,
    allow_all,
)
from kraftcore.plugins.controller.settings import Periods
from kraftcore.plugins.controller.soft_state import LONG_AGO, SoftState
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.security.audit import Action

TRANSACTION: Final = "Large operation"
"""Name of the metadata transaction around a decision that does not fit one batch."""
_SESSIONS: Final = "broker sessions"
_SESSION_CHECKS: Final = 8  # checks within one session timeout, as in Kafka
_RESIGN_PAUSE_MS: Final = 1_000
_RESIGN_PAUSE_MAX_MS: Final = 60_000
_IN_A_ROW_MS: Final = 10_000
_logger = logging.getLogger("kraftcore.controller")

Decide = Callable[[Context], ControllerResult]


class Life:
    """Tells whether this controller is active; while it is, its decisions run ahead of the committed records.

    Args:
        machine: the state machine of the log.
        settings: of the controller's file.
        periods: of the timers.
        random: for placement, ids and tokens.
        read_bootstrap: returns the records that formatting left for an empty log.
        kraft_version: returns the level of kraft.version.
        max_batch_bytes: size limit of one batch.
        wall_ms: the wall clock, with which brokers compare times of tokens; it may be set back. None: ``now_ms``.

    Attributes:
        machine, settings: as given.
        soft: state that only the active controller has.
        epoch: the epoch in which it leads; None while it does not.
        now_ms: the latest time it was told, milliseconds since 1970.
        must_resign: whether it cannot become active, see ``failed_to_activate``; its node resigns at ``due_ms``.
        on_timers: called when ``due_ms`` may have come nearer.
        on_bug: called with words and an error when a bug showed; logs it.
    """

    def __init__(
        self,
        machine: MetadataMachine,
        settings: ControllerSettings,
        periods: Periods,
        random: Randomness,
        read_bootstrap: Callable[[], Sequence[bytes]],
        kraft_version: Callable[[], int],
        max_batch_bytes: int,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.machine = machine
        self.settings = settings
        self.soft = SoftState()
        self.epoch: int | None = None
        self.now_ms = 0
        self.must_resign = False
        self.on_timers: Callable[[], None] = _nothing
        self.on_bug: Callable[[str, Exception], None] = _log_bug
        self._random = random
        self._read_bootstrap = read_bootstrap
        self._kraft_version = kraft_version
        self._wall_ms = wall_ms
        self._max_bytes = max_batch_bytes // 2  # of records in one batch; the rest is for their frames
        self._periods = periods
        self._timers: dict[str, _Timer] = {}
        self._written_ms = 0
        self._resign_ms = -_IN_A_ROW_MS  # time of the last resignation, or of the next one
        self._resign_pause_ms = 0

    @property
    def is_active(self) -> bool:
        """Whether requests are decided here."""
        return self.epoch is not None and self.machine.trouble is None

    @property
    def present(self) -> list[Broker]:
        """The brokers that have a session, fenced or not."""
        brokers = self.machine.image.brokers.values()
        return [each for each in brokers if self.soft.session(each.id, each.epoch) is not None]

    # --- leading and following ----------------------------------------------------------------------------------------

    def lead(self, epoch: int, now_ms: int) -> Step | None:
        """Become active: this node leads, and everything in the log is committed and applied.

        Returns:
            The first step, to be handed to the executor before any other; None if this node cannot apply the log:
            another node may be able to lead, see ``must_resign``.
        """
        self.now_ms = max(self.now_ms, now_ms)
        if self.machine.trouble is not None:
            self._cannot_lead(self.machine.trouble)
            return None
        self.now_ms = self._written_ms = now_ms
        self.machine.lead()
        self.epoch = epoch
        unfenced = ((each.id, each.epoch) for each in self.machine.image.brokers.values() if not each.is_fenced)
        self.soft = SoftState.of_unfenced(unfenced, now_ms)
        self._timers = {timer.name: timer for timer in self._make_timers(now_ms)}
        self.on_timers()
        return _Activation(self)

    def activate(self, context: Context) -> ControllerResult:
        """Decide the first step: see `kraftcore.plugins.controller.activation`."""
        bootstrap: list[Record] = []
        if context.image.features.metadata_version is None:
            bootstrap = [decode_metadata_record(value) for value in self._read_bootstrap()]
        return activation.activate(context, bootstrap)

    def follow(self) -> None:
        """Stop being active: this node does not lead any more."""
        self.epoch = None
        self.must_resign = False
        self._timers.clear()
        self.soft = SoftState()
        self.machine.follow()

    def failed_to_activate(self, error: Exception) -> None:
        """Set ``must_resign`` until `follow` is called: the first step failed here, but may succeed on another node."""
        self._give_up("the controller cannot become active", str(error))

    def _cannot_lead(self, why: str) -> None:
        self._give_up("this node cannot follow the log", why)

    def _give_up(self, what: str, why: str) -> None:
        # A node that leads again soon after it resigned is the only voter, or the other voters cannot become active
        # either: it waits longer each time, for every change of leader adds to the log.
        if self.now_ms - self._resign_ms > _IN_A_ROW_MS:
            self._resign_pause_ms = 0
        pause_ms = self._resign_pause_ms
        self._resign_pause_ms = min(max(2 * pause_ms, _RESIGN_PAUSE_MS), _RESIGN_PAUSE_MAX_MS)
        _logger.error("%s, and gives leadership up in %d ms: %s", what, pause_ms, why)
        self.follow()
        self.must_resign = True
        self._resign_ms = self.now_ms + pause_ms
        self.on_timers()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def context(
        self,
        next_offset: int,
        caller: Caller = UNKNOWN_CALLER,
        is_allowed: Callable[[Action], bool] = allow_all,
    ) -> Context:
        """Make the context of a decision now."""
        return Context(
            image=self.machine.image,
            soft=self.soft,
            now_ms=self.now_ms,
            next_offset=next_offset,
            settings=self.settings,
            random=self._random,
            kraft_version=self._kraft_version(),
            is_allowed=is_allowed,
            caller=caller,
            wall_ms=self.now_ms if self._wall_ms is None else self._wall_ms(),
        )

    def take(self, decision: ControllerResult, offset: int) -> list[bytes]:
        """Put a decision's records into the image, and return them encoded; the caller updates ``soft``.

        Raises:
            LocalError: the records must be one batch and do not fit.
            InvariantError: a record does not fit the image, or cannot be encoded, a bug; nothing has changed.
        """
        records = decision.records
        if not records:
            return []
        try:
            values = [encode_metadata_record(*record) for record in records]
        except RemoteProtocolError as error:
            raise InvariantError(f"a decision's record cannot be written: {error}") from error
        if decision.is_atomic and sum(map(len, values)) > self._max_bytes:
            values = self._as_transaction(values)
        try:
            self.machine.put(values, offset)
        except RemoteProtocolError as error:
            raise InvariantError(f"a decision does not fit the image: {error}") from error
        self._written_ms = self.now_ms
        return values

    def _as_transaction(self, values: list[bytes]) -> list[bytes]:
        image = self.machine.image
        if image.features.metadata_version_or_minimum < MetadataVersion.V3_6_IV1 or image.in_transaction:
            raise LocalError(f"{len(values)} records do not fit one batch: ask for less at once")
        begin = encode_metadata_record(BeginTransactionRecord(name=TRANSACTION), 0)
        return [begin, *values, encode_metadata_record(EndTransactionRecord(), 0)]

    def end_session(self, broker_id: int, broker_epoch: int) -> None:
        """End the session of a broker that is gone for sure; the timer for sessions fences it at once."""
        session = self.soft.session(broker_id, broker_epoch)
        timer = self._timers.get(_SESSIONS)
        if self.is_active and session is not None and timer is not None:
            self.soft.sessions[broker_id] = session._replace(contact_ms=LONG_AGO)
            timer.due_ms = self.now_ms
            self.on_timers()

    # --- timers -------------------------------------------------------------------------------------------------------

    def _make_timers(self, now_ms: int) -> list[_Timer]:
        periods = self._periods
        session_ms = max(self.settings.session_timeout_ms // _SESSION_CHECKS, 1)
        wanted = (
            (_SESSIONS, brokers.fence_expired, session_ms),
            ("preferred leaders", elections.rebalance_leaders, periods.rebalance_ms),
            ("unclean leaders", elections.elect_unclean_leaders, periods.unclean_ms),
            ("expired tokens", tokens.remove_expired, periods.tokens_ms),
            ("idle", self._no_op, periods.idle_ms),
        )
        return [_Timer(name, decide, period, now_ms + period) for name, decide, period in wanted if period > 0]

    def _no_op(self, context: Context) -> ControllerResult:
        is_idle = self._written_ms + self._periods.idle_ms <= self.now_ms
        return activation.no_op(context) if is_idle else ControllerResult(None)

    @property
    def due_ms(self) -> int | None:
        """When ``due`` has steps, or the node must resign; None while this controller does not lead."""
        if self.must_resign:
            return self._resign_ms
        waiting = [timer.due_ms for timer in self._timers.values() if not timer.is_pending]
        return min(waiting, default=None)

    def due(self, now_ms: int) -> list[Step]:
        """The steps of timers that ran out, to be handed to the executor."""
        self.now_ms = max(self.now_ms, now_ms)
        steps: list[Step] = []
        if self.epoch is not None and self.machine.trouble is not None:  # the trouble began while this node led
            self._cannot_lead(self.machine.trouble)
        if self.is_active:
            for timer in self._timers.values():
                if not timer.is_pending and timer.due_ms <= self.now_ms:
                    timer.is_pending = True
                    steps.append(_Tick(self, timer))
        return steps


class Step(decisions.Decision):
    """One decision on its way through the executor; ended by exactly one call of ``committed`` or ``failed``.

    Args:
        life: gives the context, and takes the records.

    Attributes:
        made: the result; None before the decision, and if it was refused.
        decided_at: the offset for which it was decided: the decision saw all records below.
    """

    records_a_batch = MAX_RECORDS

    def __init__(self, life: Life) -> None:
        self._life = life
        self._offset: int | None = None  # offset of its first record in the image
        self._soft: tuple[SoftState, int] | None = None  # the soft state it changed, and the number of that change
        self.made: ControllerResult | None = None
        self.decided_at: int | None = None

    def context(self, next_offset: int) -> Context:
        """Make the decision's context."""
        return self._life.context(next_offset)

    def make(self, context: Context) -> ControllerResult:
        """Decide. Raises ``Refusal``."""
        raise NotImplementedError

    def decide(self, next_offset: int, leader_epoch: int) -> Sequence[bytes]:
        """See `kraftcore.executor.decisions.Decision`."""
        life = self._life
        if not life.is_active:
            raise NotLeaderError(None, None, "this controller is not active")
        made = self.make(self.context(next_offset))
        values = life.take(made, next_offset)
        if values:
            self._offset = next_offset
            self.may_split = not made.is_atomic or len(values) > len(made.records)
        self.made, self.decided_at = made, next_offset
        self._soft = life.soft, life.soft.update(made.sessions)
        return values

    def appended(self, offset: int) -> None:
        """See `kraftcore.executor.decisions.Decision`."""
        if self._soft is not None:
            soft, change = self._soft
            soft.settle(change)

    def failed(self, error: Exception) -> None:
        """See `kraftcore.executor.decisions.Decision`."""
        if isinstance(error, OutcomeUnknownError):
            return
        if self._offset is not None:
            self._life.machine.take_back(self._offset)
        if self._soft is not None:
            soft, change = self._soft
            soft.take_back(change)


class _Activation(Step):
    def make(self, context: Context) -> ControllerResult:
        return self._life.activate(context)

    def failed(self, error: Exception) -> None:
        super().failed(error)
        if not isinstance(error, NotLeaderError | OutcomeUnknownError | NodeStoppedError):
            self._life.failed_to_activate(error)


class _Timer:
    """A periodic decision of the active controller."""

    __slots__ = ("decide", "due_ms", "is_pending", "name", "period_ms")

    def __init__(self, name: str, decide: Decide, period_ms: int, due_ms: int) -> None:
        self.name = name
        self.decide = decide
        self.period_ms = period_ms
        self.due_ms = due_ms
        self.is_pending = False


class _Tick(Step):
    def __init__(self, life: Life, timer: _Timer) -> None:
        super().__init__(life)
        self._timer = timer

    def make(self, context: Context) -> ControllerResult:
        return self._timer.decide(context)

    def decide(self, next_offset: int, leader_epoch: int) -> Sequence[bytes]:
        timer = self._timer
        timer.is_pending = False
        timer.due_ms = self._life.now_ms + timer.period_ms
        values = super().decide(next_offset, leader_epoch)
        if self.made is not None and self.made.is_more:
            timer.due_ms = self._life.now_ms
        self._life.on_timers()
        return values

    def failed(self, error: Exception) -> None:
        super().failed(error)
        self._timer.is_pending = False
        self._timer.due_ms = self._life.now_ms + self._timer.period_ms  # later, for at once it would fail again
        if not isinstance(error, KraftError):
            self._life.on_bug(f"the timer for {self._timer.name} failed", error)


def _nothing() -> None:
    pass


def _log_bug(what: str, error: Exception) -> None:
    _logger.error("%s", what, exc_info=error)

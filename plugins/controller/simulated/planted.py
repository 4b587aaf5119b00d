"""Mistakes to plant in the controller, to see whether the rules notice; as ``kraftcore.simulation.planted``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kraftcore.core.batch import RecordBatch
from kraftcore.metadata import Broker, MetadataMachine, Partition
from kraftcore.partition_rules.isr_change import IsrProposals
from kraftcore.plugins.controller import activation, brokers, isr
from kraftcore.plugins.controller.decision import Context, ControllerResult, Record
from kraftcore.plugins.controller.life import Life, Step
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.plugins.controller.requests import RequestStep
from kraftcore.plugins.controller.soft_state import SoftState
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_partition import AlterPartitionResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.simulation.planted import Planted

_make = RequestStep.make
_take = Life.take
_appended = Step.appended
_NO_LEADER_CHANGE = -2


def _blind(partitions: Any, rules: Any, known: Any, sender: int, names_epochs: bool) -> IsrProposals:
    everybody = {each.id: replace(each, is_fenced=False, is_shutting_down=False) for each in known.values()}
    return IsrProposals(partitions, rules, everybody, sender, names_epochs)


def _changed(change: Callable[[PartitionChangeRecord, Partition], None]) -> Callable[..., list[bytes]]:
    """Change every PartitionChange record on its way into the image and the log."""

    def take(self: Life, made: ControllerResult, offset: int) -> list[bytes]:
        for record, _ in made.records:
            if isinstance(record, PartitionChangeRecord):
                before = self.machine.image.partitions.get(record.topic_id, record.partition_id)
                if before is not None:
                    change(record, before)
        return _take(self, made, offset)

    return take


def _keep_epoch(record: PartitionChangeRecord, before: Partition) -> None:
    if record.leader == before.leader:
        record.leader = _NO_LEADER_CHANGE


def _never_recover(record: PartitionChangeRecord, before: Partition) -> None:
    if record.leader >= 0:
        record.leader_recovery_state = -1


def _keep_in_elr(record: PartitionChangeRecord, before: Partition) -> None:
    left = before.isr if record.isr is None else record.isr
    if record.eligible_leader_replicas and left:
        record.eligible_leader_replicas = [*record.eligible_leader_replicas, left[0]]


def _told_too_early(self: Step, offset: int) -> None:
    _appended(self, offset)
    self.committed()


def _stay_ahead(self: MetadataMachine) -> None:
    if self._is_ahead:
        self._is_ahead = False
        self._ahead.clear()
        self.image.forget_marks()
        self.image._ahead = False


def _ids_not_written(self: RequestStep, context: Context) -> ControllerResult:
    made = _make(self, context)
    if isinstance(self._request, AllocateProducerIdsRequest) and context.next_offset % 2:
        made.records.clear()
    return made


def _broker_epoch_kept(self: RequestStep, context: Context) -> ControllerResult:
    made = _make(self, context)
    if isinstance(self._request, BrokerRegistrationRequest):
        known = context.image.brokers.get(self._request.broker_id)
        answer: Any = made.answer
        for record, _ in made.records:
            if known is not None and isinstance(record, RegisterBrokerRecord):
                record.broker_epoch = answer.broker_epoch = known.epoch
    return made


def _fenced_alone(context: Context, broker: Broker) -> list[Record]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
    return [(change, 0)]


def _applied_twice(self: MetadataMachine, batch: RecordBatch) -> Sequence[Any] | None:
    if self._ahead and self._ahead[0].offset <= batch.base_offset < self._ahead[0].end:
        self._commit(batch.next_offset)
        if not self._ahead and not self.image.in_transaction:
            self.image.apply_values(batch.values(), batch.base_offset)
    else:
        return _apply(self, batch)
    self.offset = batch.next_offset
    return None


_apply = MetadataMachine.apply


def _old_epoch_told(self: RequestStep, context: Context) -> ControllerResult:
    made = _make(self, context)
    if isinstance(made.answer, AlterPartitionResponse):
        for topic in made.answer.topics:
            for each in topic.partitions:
                each.partition_epoch = max(each.partition_epoch - 1, 0)
    return made


def _half_applied(self: MetadataMachine, values: Any, offset: int) -> None:
    self.image.run_ahead()
    _take_values(self, values, offset)


_take_values = MetadataMachine._take


def _transaction_ended(context: Context, version: MetadataVersion) -> list[Record]:
    return [(EndTransactionRecord(), 0)] if context.image.in_transaction else []


def _any_epoch(context: Context, broker_id: int, broker_epoch: int) -> Broker:
    broker: Broker | None = context.image.brokers.get(broker_id)
    return check_epoch(context, broker_id, broker_epoch if broker is None else broker.epoch)


def _no_sessions(brokers: Any, now_ms: int) -> SoftState:
    return SoftState()


_ROWS: tuple[tuple[str, str, Any, str, Any], ...] = (
    ("ineligible-accepted", "an ineligible replica is let into an ISR", isr, "IsrProposals", _blind),
    ("leader-epoch-kept", "the leader epoch stays when replicas go", Life, "take", _changed(_keep_epoch)),
    ("answered-early", "a decision is answered when it is appended", Step, "appended", _told_too_early),
    ("not-rolled-back", "a former leader's image keeps what was not committed", MetadataMachine, "follow", _stay_ahead),
    ("ids-not-written", "a block of producer ids is answered without a record", RequestStep, "make", _ids_not_written),
    (
        "broker-epoch-kept",
        "a new incarnation gets the broker epoch of the old",
        RequestStep,
        "make",
        _broker_epoch_kept,
    ),
    ("fenced-alone", "a broker is fenced, its partitions stay as they are", brokers, "fencing", _fenced_alone),
    (
        "shutting-down-leads",
        "a broker in controlled shutdown counts as active",
        Broker,
        "is_active",
        property(lambda self: not self.is_fenced),
    ),
    (
        "unclean-forgotten",
        "a leader from outside ISR and ELR does not recover",
        Life,
        "take",
        _changed(_never_recover),
    ),
    ("isr-in-elr", "a member of the ISR stays in the ELR", Life, "take", _changed(_keep_in_elr)),
    ("applied-twice", "a leader applies its own records again", MetadataMachine, "apply", _applied_twice),
    (
        "half-applied",
        "a follower takes records of a transaction over before it ends",
        MetadataMachine,
        "_take",
        _half_applied,
    ),
    (
        "transaction-ended",
        "a transaction that a former controller left open is ended, not aborted",
        activation,
        "_aborted",
        _transaction_ended,
    ),
    ("stale-sender-accepted", "a request of a former incarnation is carried out", brokers, "check_epoch", _any_epoch),
    ("sessions-forgotten", "a new controller begins no sessions", SoftState, "of_unfenced", staticmethod(_no_sessions)),
    ("old-epoch-told", "AlterPartition answers the former partition epoch", RequestStep, "make", _old_epoch_told),
)

FAULTS: dict[str, Planted] = {row[0]: Planted(*row) for row in _ROWS}

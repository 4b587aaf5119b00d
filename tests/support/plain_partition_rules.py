"""The rules of partitions, the checks of AlterPartition and elections where they are needed, in plain Python: what the
compiled ones are held against.

`kraftcore.partition_rules.partition_change`, and `leader_choice`, `isr_change` and `elect_leaders` beside it, say what
the rules are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kraftcore.core.uuid import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import RefusedError
from kraftcore.metadata import Broker, Partition, PartitionKey
from kraftcore.metadata.partition import NO_LEADER, RECOVERED, RECOVERING
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import NOBODY
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersResponse
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

Ids = tuple[int, ...]
"""Broker ids, in an order that counts."""

_LEADER_UNCHANGED: Final = -2


class PlainPartitionRules:
    """See ``PartitionRules``."""

    def __init__(
        self,
        metadata_version: MetadataVersion,
        is_elr_on: bool,
        brokers: Mapping[int, Broker],
        *,
        without: int = NOBODY,
        including: int = NOBODY,
        unclean: int = NOBODY,
    ) -> None:
        self._brokers = brokers
        self._active: dict[int, Broker | None] = {without: None, unclean: None}
        self._is_elr_on = is_elr_on
        self._has_directories = metadata_version >= MetadataVersion.V3_7_IV2
        self._raises_epoch_on_shrink = metadata_version < MetadataVersion.V3_6_IV0
        self._including = including
        self._unclean = unclean
        self._departing = (without, unclean)
        self.version = metadata_version.partition_record_version

    def change(
        self,
        topic_id: Uuid,
        partition_id: int,
        before: Partition,
        min_isr: int,
        *,
        election: Election = Election.ONLINE,
        isr: Ids | None = None,
        replicas: Ids | None = None,
        removing: Ids | None = None,
        adding: Ids | None = None,
        recovery_state: int | None = None,
        directory: tuple[int, Uuid] | None = None,
    ) -> PartitionChangeRecord | None:
        """See ``PartitionRules.change``."""
        isr_before, replicas_before = before.isr, before.replicas
        isr = isr_before if isr is None else isr
        replicas = replicas_before if replicas is None else replicas
        removing = before.removing if removing is None else removing
        adding = before.adding if adding is None else adding
        is_reassigned = bool(removing or adding)
        if is_reassigned:
            isr, replicas, removing, adding = _completed(isr, replicas, removing, adding)
        elr = self._next_elr(before, isr, min_isr) if self._is_elr_on else before.elr

        record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
        is_changed = False
        leader, is_unclean = self._elect(before, election, isr, elr, replicas)
        is_unclean = is_unclean and leader != before.leader
        if leader != before.leader:
            is_changed = True
            isr, elr = _hand_over(record, before, leader, is_unclean, isr, elr)
        elif replicas is not replicas_before and not _holds_all(replicas, replicas_before):
            is_changed = True
            record.leader = leader

        if not self._is_elr_on:
            elr = ()
        if elr != before.elr:
            is_changed = True
            record.eligible_leader_replicas = list(elr)
        if not is_unclean and isr != isr_before and (isr or self._is_elr_on):
            is_changed = True
            record.isr = list(isr)
            if self._raises_epoch_on_shrink and record.leader == _LEADER_UNCHANGED and not _holds_all(isr, isr_before):
                record.leader = before.leader
        if self._is_elr_on:
            is_changed |= _note_last_leader(record, before)
        if replicas is not replicas_before or is_reassigned or directory is not None or before.is_reassigning:
            is_changed |= self._assign(record, before, replicas, removing, adding, directory)
        if recovery_state is not None and recovery_state != before.recovery_state:
            is_changed = True
            record.leader_recovery_state = recovery_state
        return record if is_changed else None

    def refresh(
        self,
        partitions: Iterable[tuple[PartitionKey, Partition]],
        terms: Callable[[Uuid], tuple[int, Election]],
    ) -> list[tuple[PartitionChangeRecord, int]]:
        """See ``PartitionRules.refresh``."""
        records = []
        for (topic_id, partition_id), partition in partitions:
            min_isr, election = terms(topic_id)
            isr = _without(partition.isr, *self._departing)
            record = self.change(topic_id, partition_id, partition, min_isr, isr=isr, election=election)
            if record is not None:
                records.append((record, self.version))
        return records

    def may_lead(self, broker_id: int, partition: Partition) -> bool:
        """Whether a replica is on an active broker and in a directory that is online (KIP-841, KIP-858)."""
        try:
            broker = self._active[broker_id]
        except KeyError:
            known = self._brokers.get(broker_id)
            is_active = known is not None and (known.is_active or broker_id == self._including)
            broker = self._active[broker_id] = known if is_active else None
        if broker is None or broker_id not in partition.replicas:
            return False
        return broker.has_online_directory(partition.directory_of(broker_id))

    def _next_elr(self, before: Partition, isr: Ids, min_isr: int) -> Ids:
        if len(isr) >= min_isr:
            return ()
        candidates = ids_in_hash_order((*before.elr, *before.isr))
        return tuple([replica for replica in candidates if replica not in isr and replica != self._unclean])

    def _elect(
        self,
        before: Partition,
        election: Election,
        isr: Ids,
        elr: Ids,
        replicas: Ids,
    ) -> tuple[int, bool]:
        """The leader, and whether it takes an unclean election."""
        candidates = isr or elr
        if election is Election.PREFERRED and replicas[0] in candidates and self.may_lead(replicas[0], before):
            return replicas[0], False
        if before.leader in candidates and self.may_lead(before.leader, before):
            return before.leader, False
        for replica in replicas:
            if replica in candidates and self.may_lead(replica, before):
                return replica, False
        if not candidates and self._is_elr_on and len(before.last_known_elr) == 1:
            last = before.last_known_elr[0]
            if self.may_lead(last, before):
                return last, True
        if election is Election.UNCLEAN:
            for replica in replicas:
                if self.may_lead(replica, before):
                    return replica, True
        return NO_LEADER, False

    def _assign(
        self,
        record: PartitionChangeRecord,
        before: Partition,
        replicas: Ids,
        removing: Ids,
        adding: Ids,
        directory: tuple[int, Uuid] | None,
    ) -> bool:
        """Replicas and where they are. Returns whether that changes."""
        is_changed = False
        is_moved = replicas != before.replicas
        if self._has_directories and (is_moved or directory is not None):
            known = dict(zip(before.replicas, before.directories, strict=False))
            if directory is not None:
                known[directory[0]] = directory[1]
            wanted = [known[replica] if replica in known else self.default_directory(replica) for replica in replicas]
            if tuple(wanted) != before.directories:
                is_changed = True
                record.directories = wanted
        if is_moved:
            is_changed = True
            record.replicas = list(replicas)
        if removing != before.removing:
            is_changed = True
            record.removing_replicas = list(removing)
        if adding != before.adding:
            is_changed = True
            record.adding_replicas = list(adding)
        return is_changed

    def default_directory(self, broker_id: int) -> Uuid:
        """Where a new replica goes on a broker: its only directory, or UNASSIGNED until it says so (KIP-858)."""
        if not self._has_directories:
            return MIGRATING_DIRECTORY
        broker = self._brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED_DIRECTORY
        if not broker.directories:
            return MIGRATING_DIRECTORY
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


def ids_in_hash_order(ids: Iterable[int]) -> list[int]:
    """Distinct numbers, not negative, in the order in which a Java HashSet walks them."""
    distinct = list(dict.fromkeys(ids))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return sorted(distinct, key=lambda number: (number ^ number >> 16) & buckets - 1)


def _completed(isr: Ids, replicas: Ids, removing: Ids, adding: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """The four of them after the reassignment, or as they are while it goes on."""
    left_in_sync = _without(isr, *removing)
    left = _without(replicas, *removing)
    is_complete = bool(left_in_sync and left) and _holds_all(left_in_sync, adding)
    if is_complete and len(adding) < len(removing):
        is_complete = _holds_all(left_in_sync, left)
    return (left_in_sync, left, (), ()) if is_complete else (isr, replicas, removing, adding)


def _hand_over(
    record: PartitionChangeRecord, before: Partition, leader: int, is_unclean: bool, isr: Ids, elr: Ids
) -> tuple[Ids, Ids]:
    """Another leader, or none. Returns the ISR and the ELR that go with it."""
    record.leader = leader
    if is_unclean:
        record.isr = [leader]
        if before.recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
        return (leader,), ()
    return ((leader,), _without(elr, leader)) if leader in elr else (isr, elr)


def _note_last_leader(record: PartitionChangeRecord, before: Partition) -> bool:
    if record.leader == NO_LEADER and not before.last_known_elr:
        record.last_known_elr = [before.leader]
        return True
    if record.leader >= 0 and before.last_known_elr:
        record.last_known_elr = []
        return True
    return False


def _holds_all(whole: Ids, part: Ids) -> bool:
    return whole is part or set(whole).issuperset(part)


def _without(replicas: Ids, *gone: int) -> Ids:
    return tuple([replica for replica in replicas if replica not in gone])


class PlainLeaderElections:
    """See ``LeaderElections``."""

    def __init__(
        self, rules: Any, needing: Iterable[tuple[PartitionKey, Partition]], election: Election, error: ErrorCode
    ) -> None:
        self._rules = rules
        self._needing = sorted(needing, key=lambda found: found[0])
        self._election = election
        self._error = error

    def __contains__(self, topic_id: Uuid) -> bool:
        return any(key.topic_id == topic_id for key, _ in self._needing)

    def hold(self, topic_id: Uuid, min_isr: int, records: list[Any]) -> list[_Elected]:
        """See ``LeaderElections.hold``."""
        results = []
        for key, partition in self._needing:
            if key.topic_id == topic_id:
                record = self._rules.change(topic_id, key.partition_id, partition, min_isr, election=self._election)
                error = self._error if record is None else ErrorCode.NONE
                if record is not None:
                    records.append((record, self._rules.version))
                result = _Elected(partition_id=key.partition_id, error_code=error, error_message=error.message)
                results.append(result)
        self._needing = [found for found in self._needing if found[0].topic_id != topic_id]
        return results


_Elected = ElectLeadersResponse.ReplicaElectionResult.PartitionResult
_Wanted = AlterPartitionRequest.TopicData.PartitionData
_Result = AlterPartitionResponse.TopicData.PartitionData


class PlainIsrProposals:
    """See ``IsrProposals``."""

    def __init__(
        self, partitions: Any, rules: Any, brokers: Mapping[int, Broker], sender: int, names_epochs: bool
    ) -> None:
        self._partitions = partitions
        self._rules = rules
        self._brokers = brokers
        self._sender = sender
        self._names_epochs = names_epochs

    def take(
        self, topic_id: Uuid, wanted: list[_Wanted], min_isr: int, election: Election, records: list[Any]
    ) -> list[_Result]:
        """See ``IsrProposals.take``."""
        return [self._take_one(topic_id, each, min_isr, election, records) for each in wanted]

    def _take_one(
        self, topic_id: Uuid, wanted: _Wanted, min_isr: int, election: Election, records: list[Any]
    ) -> _Result:
        index, state = wanted.partition_index, wanted.leader_recovery_state
        partition = self._partitions.get(topic_id, index)
        if partition is None:
            return _Result(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        members = wanted.new_isr_with_epochs
        isr = tuple([each.broker_id for each in members] if self._names_epochs else wanted.new_isr)
        error = _what_is_wrong(self._sender, partition, wanted, isr)
        if error is ErrorCode.NONE and not self._are_eligible(isr, members):
            error = ErrorCode.INELIGIBLE_REPLICA
        if error is not ErrorCode.NONE:
            return _Result(partition_index=index, error_code=error)
        record = self._rules.change(
            topic_id, index, partition, min_isr, election=election, isr=isr, recovery_state=state
        )
        leader_epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
        isr_after = list(partition.isr)
        if record is not None:
            records.append((record, self._rules.version))
            if record.leader != _LEADER_UNCHANGED:
                if record.leader != partition.leader:
                    return _Result(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
                leader_epoch += 1
            partition_epoch += 1
            if record.isr is not None:
                isr_after = record.isr
        return _Result(
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=leader_epoch,
            isr=isr_after,
            leader_recovery_state=state,
            partition_epoch=partition_epoch,
        )

    def _are_eligible(self, isr: Ids, members: list[_Wanted.BrokerState]) -> bool:
        named = {each.broker_id: each.broker_epoch for each in members}
        for broker_id in isr or named:
            broker = self._brokers.get(broker_id)
            if broker is None or not broker.is_active or named.get(broker_id, -1) not in (-1, broker.epoch):
                return False
        return True


def _what_is_wrong(sender: int, partition: Partition, wanted: _Wanted, isr: Ids) -> ErrorCode:
    leader_epoch, partition_epoch, leader = partition.leader_epoch, partition.partition_epoch, partition.leader
    if wanted.leader_epoch > leader_epoch or wanted.partition_epoch > partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = set(isr)
    if len(members) != len(isr) or leader not in members or not members.issubset(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    state = wanted.leader_recovery_state
    if state == RECOVERING:
        if len(isr) > 1 or partition.recovery_state == RECOVERED:
            return ErrorCode.INVALID_REQUEST
    elif state != RECOVERED:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR.name, "")
    return ErrorCode.NONE

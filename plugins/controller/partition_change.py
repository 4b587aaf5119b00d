"""The rules by which a partition changes. Everything that changes a partition goes through ``PartitionRules.change``.

Sources: KIP-455 (reassignment), KIP-704 (leader recovery), KIP-841 (fenced replicas), KIP-858 (directories), KIP-966
(eligible leader replicas); where they differ, Kafka 4.3.1's PartitionChangeBuilder. The rules, in the order in which
they are applied; each sees what those before it have settled:

1. **Reassignment.** It is complete when, without the replicas being removed, the ISR is not empty and holds all being
   added; and, if fewer are added than removed, all that remain. Then the removed ones leave replicas and ISR, and
   nothing is being added or removed.
2. **Eligible leader replicas (ELR)**, if the feature is on. With min.insync.replicas or more in the ISR: none. Below
   it: those that were eligible or in the ISR before, without the new ISR and without whoever shut down uncleanly.
3. **Leader.** A candidate is active, its directory is online (``may_lead``), and it is in the ISR, or, with an empty
   ISR, in the ELR. The first row that finds somebody decides:

   ===================================================  ======  =========  =======
   who                                                  ONLINE  PREFERRED  UNCLEAN
   ===================================================  ======  =========  =======
   the first replica, if a candidate                              1st
   the present leader, if a candidate                   1st       2nd        1st
   the first replica that is a candidate                2nd       3rd        2nd
   with ISR and ELR empty: the last known leader *      3rd       4th        3rd
   the first replica that may lead at all *                                  4th
   nobody                                               4th       5th        5th
   ===================================================  ======  =========  =======

   \\* These elections are unclean: the ISR becomes the leader alone, the ELR empty, and the leader recovers. A leader
   from the ELR becomes the ISR, alone, and leaves the ELR; nothing is lost by that.
4. **Leader epoch.** It rises with every record that names a leader: when the leader changes; when replicas are dropped;
   below metadata.version 3.6-IV0 also when the ISR shrinks (KAFKA-15021).
5. **ISR.** Without the ELR feature the last ISR stays as it is rather than become empty.
6. **Last known leader**, with the ELR feature: kept when a partition loses its leader, cleared when it has one again.
7. **Directories** follow the replicas; a new replica gets its broker's only directory, or stays unassigned.
8. **Partition epoch.** It rises by one with every record. What changes nothing gives no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kraftcore.core.uuid import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Broker, Partition
from kraftcore.metadata.partition import NO_LEADER, RECOVERING
from kraftcore.plugins.controller.hash_order import ids_in_hash_order
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

Ids = tuple[int, ...]
"""Broker ids, in an order that counts."""

_LEADER_UNCHANGED: Final = -2
NOBODY: Final = -1
"""Stands for no broker where a broker id is expected."""


class Election(Enum):
    """Whom a change may make leader; see the table above."""

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


class PartitionRules:
    """The rules for the changes of one decision.

    Args:
        metadata_version: the finalized level; it decides which fields and versions records have.
        is_elr_on: eligible.leader.replicas.version is 1 or higher.
        brokers: the registered brokers.
        without: a broker that may not lead any more, although the image still shows it active.
        including: a broker that may lead already, although the image still shows it fenced.
        unclean: a broker whose last shutdown was unclean; it neither leads nor stays in an ELR.
    """

    __slots__ = (
        "_active",
        "_brokers",
        "_has_directories",
        "_including",
        "_is_elr_on",
        "_raises_epoch_on_shrink",
        "_unclean",
        "version",
    )

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
        """The record that takes the partition to what is wanted, or None if nothing changes.

        Args:
            topic_id: of the topic.
            partition_id: number of the partition.
            before: the partition as it is.
            min_isr: the topic's min.insync.replicas, at most its replication factor.
            election: whom the change may make leader.
            isr: wanted in-sync replicas; as they are when left out, like the rest.
            replicas: wanted replicas, first the preferred one; those being added or removed are among them.
            removing: replicas that leave when the reassignment completes.
            adding: replicas that the reassignment waits for.
            recovery_state: what the leader says of its recovery (KIP-704).
            directory: a broker, and the directory in which its replica is now.
        """
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

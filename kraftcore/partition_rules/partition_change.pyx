"""The rules by which a partition changes. Everything that changes a partition goes through ``PartitionRules``.

Sources: KIP-455 (reassignment), KIP-704 (leader recovery), KIP-841 (fenced replicas), KIP-858 (directories), KIP-966
(eligible leader replicas); where they differ, Kafka 4.3.1's PartitionChangeBuilder. The rules, in the order in which
they are applied; each sees what those before it have settled:

1. **Reassignment.** It is complete when, without the replicas being removed, the ISR is not empty and holds all being
   added; and, if fewer are added than removed, all that remain. Then the removed ones leave replicas and ISR, and
   nothing is being added or removed.
2. **Eligible leader replicas (ELR)**, if the feature is on. With min.insync.replicas or more in the ISR: none. Below
   it: those that were eligible or in the ISR before, without the new ISR and without whoever shut down uncleanly.
3. **Leader.** `leader_choice` says whom an election makes leader. After an unclean election the ISR is the leader
   alone, the ELR empty, and the leader recovers. A leader from the ELR becomes the ISR, alone, and leaves the ELR;
   nothing is lost by that.
4. **Leader epoch.** It rises with every record that names a leader: when the leader changes; when replicas are dropped;
   below metadata.version 3.6-IV0 also when the ISR shrinks (KAFKA-15021).
5. **ISR.** Without the ELR feature the last ISR stays as it is rather than become empty.
6. **Last known leader**, with the ELR feature: kept when a partition loses its leader, cleared when it has one again.
7. **Directories** follow the replicas; a new replica gets its broker's only directory, or stays unassigned.
8. **Partition epoch.** It rises by one with every record. What changes nothing gives no record.
"""

# Lists of brokers are the tuples of `Partition`, never changed. Most of them are the very object that the partition
# had before, which is compared first.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.core.wire.struct cimport Member, new_struct
from kraftcore.metadata.partition cimport Partition
from kraftcore.metadata.partitions cimport Matches
from kraftcore.partition_rules.leader_choice cimport LeaderChoice

from kraftcore.core.uuid import MIGRATING_DIRECTORY as _MIGRATING, UNASSIGNED_DIRECTORY as _UNASSIGNED
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

NOBODY = -1  # stands for no broker where a broker id is expected

cdef enum:
    NO_LEADER = -1
    LEADER_UNCHANGED = -2
    STATE_UNCHANGED = -1
    RECOVERING = 1
    FIRST_BUCKETS = 16  # of Java's HashSet

cdef object ONLINE_ELECTION = Election.ONLINE
cdef object V3_7_IV2 = MetadataVersion.V3_7_IV2
cdef object V3_6_IV0 = MetadataVersion.V3_6_IV0
cdef object Record = PartitionChangeRecord
cdef Member TOPIC_ID = Member(Record, "topic_id")
cdef Member PARTITION_ID = Member(Record, "partition_id")
cdef Member LEADER = Member(Record, "leader")
cdef Member ISR = Member(Record, "isr")
cdef Uuid MIGRATING = _MIGRATING
cdef Uuid UNASSIGNED = _UNASSIGNED


@cython.final
@cython.auto_pickle(False)
cdef class PartitionRules:
    """The rules for the changes of one decision.

    Args:
        metadata_version: the finalized level; it decides which fields and versions records have.
        is_elr_on: eligible.leader.replicas.version is 1 or higher.
        brokers: the registered brokers.
        without: a broker that may not lead any more, although the image still shows it active.
        including: a broker that may lead already, although the image still shows it fenced.
        unclean: a broker whose last shutdown was unclean; it neither leads nor stays in an ELR.

    Attributes:
        version: in which PartitionRecord and PartitionChangeRecord are written.
    """

    def __init__(
        self,
        metadata_version,
        bint is_elr_on,
        brokers not None,
        *,
        int32_t without=-1,
        int32_t including=-1,
        int32_t unclean=-1,
    ):
        self.brokers = brokers
        self.leaders = LeaderChoice(brokers, is_elr_on, without, including, unclean)
        self.is_elr_on = is_elr_on
        self.has_directories = metadata_version >= V3_7_IV2
        self.raises_epoch_on_shrink = metadata_version < V3_6_IV0
        self.without = without
        self.unclean = unclean
        self.version = metadata_version.partition_record_version

    def change(
        self,
        Uuid topic_id not None,
        int32_t partition_id,
        Partition before not None,
        int min_isr,
        *,
        election=ONLINE_ELECTION,
        tuple isr=None,
        tuple replicas=None,
        tuple removing=None,
        tuple adding=None,
        recovery_state=None,
        tuple directory=None,
    ):
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
            recovery_state: what the leader says of its recovery (KIP-704), 0 or 1.
            directory: a broker, and the directory in which its replica is now.
        """
        cdef int state = STATE_UNCHANGED if recovery_state is None else recovery_state
        return self.changed(
            topic_id, partition_id, before, min_isr, election, isr, replicas, removing, adding, state, directory
        )

    def refresh(self, partitions not None, terms not None):
        """Let brokers that go leave the ISRs, and elect leaders where the present one may not lead or there is none.

        Args:
            partitions: pairs of `PartitionKey` and `Partition`; what the table of partitions finds is taken from it
                without a pair for each.
            terms: called with a topic's id, gives what is to be used as ``min_isr`` and ``election`` for its
                partitions.

        Returns:
            The records of those that change, each with its version, in the order of the partitions.
        """
        cdef list records = []
        cdef Matches found
        cdef Uuid topic_id, last = None
        cdef Partition before
        cdef int32_t partition_id
        cdef int64_t row
        cdef int min_isr = 0
        cdef object election = None, record
        if isinstance(partitions, Matches):
            found = <Matches>partitions
            row = found.next_row()
            while row >= 0:
                topic_id = found.table.topic_of_row(<uint32_t>row).id
                if topic_id is not last:
                    min_isr, election = terms(topic_id)
                    last = topic_id
                before = found.table.row_value(<uint32_t>row)
                record = self.refreshed(topic_id, found.table.id_of_row(<uint32_t>row), before, min_isr, election)
                if record is not None:
                    records.append((record, self.version))
                row = found.next_row()
            return records
        for (topic_id, partition_id), before in partitions:
            if topic_id is None or before is None:
                raise TypeError("pairs of PartitionKey and Partition are wanted, not None")
            min_isr, election = terms(topic_id)
            record = self.refreshed(topic_id, partition_id, before, min_isr, election)
            if record is not None:
                records.append((record, self.version))
        return records

    cdef object refreshed(
        self, Uuid topic_id, int32_t partition_id, Partition before, int min_isr, object election
    ):
        cdef tuple isr = without_ids(before.isr, (self.without, self.unclean))
        return self.changed(
            topic_id, partition_id, before, min_isr, election, isr, None, None, None, STATE_UNCHANGED, None
        )

    def may_lead(self, int32_t broker_id, Partition partition not None):
        """Whether a replica is on an active broker and in a directory that is online (KIP-841, KIP-858)."""
        return self.leaders.can_lead(broker_id, partition)

    def default_directory(self, int32_t broker_id):
        """Where a new replica goes on a broker: its only directory, or UNASSIGNED until it says so (KIP-858)."""
        if not self.has_directories:
            return MIGRATING
        broker = self.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED
        if not broker.directories:
            return MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED

    # --- the rules, in their order ------------------------------------------------------------------------------------

    cdef object changed(
        self,
        Uuid topic_id,
        int32_t partition_id,
        Partition before,
        int min_isr,
        object election,
        tuple isr,  # None here and below: as before
        tuple replicas,
        tuple removing,
        tuple adding,
        int recovery_state,
        tuple directory,
    ):
        cdef bint is_unclean, is_reassigned
        cdef int32_t leader, named = LEADER_UNCHANGED
        cdef int state = STATE_UNCHANGED
        cdef tuple elr, new_isr = None, new_elr = None, last_known = None
        cdef list directories = None

        # 1. Reassignment.
        if isr is None:
            isr = before.isr
        if replicas is None:
            replicas = before.replicas
        if removing is None:
            removing = before.removing
        if adding is None:
            adding = before.adding
        is_reassigned = len(removing) > 0 or len(adding) > 0
        if is_reassigned:
            isr, replicas, removing, adding = completed(isr, replicas, removing, adding)

        # 2. Eligible leader replicas.
        elr = self.next_elr(before, isr, min_isr) if self.is_elr_on else before.elr

        # 3. Leader. 4. Leader epoch.
        leader, is_unclean = self.leaders.choose(before, election, isr, elr, replicas)
        is_unclean = is_unclean and leader != before.leader
        if leader != before.leader:
            named = leader
            if is_unclean:
                new_isr = isr = (leader,)
                elr = ()
                if before.recovery_state != RECOVERING:
                    state = RECOVERING
            elif leader in elr:
                isr = (leader,)
                elr = without_ids(elr, isr)
        elif replicas is not before.replicas and not holds_all(replicas, before.replicas):
            named = leader
        if not self.is_elr_on:
            elr = ()
        if elr is not before.elr and elr != before.elr:
            new_elr = elr

        # 5. ISR.
        if not is_unclean and isr is not before.isr and isr != before.isr and (len(isr) > 0 or self.is_elr_on):
            new_isr = isr
            if self.raises_epoch_on_shrink and named == LEADER_UNCHANGED and not holds_all(isr, before.isr):
                named = before.leader

        # 6. Last known leader.
        if self.is_elr_on:
            if named == NO_LEADER and len(before.last_known_elr) == 0:
                last_known = (before.leader,)
            elif named >= 0 and len(before.last_known_elr) > 0:
                last_known = ()

        # 7. Directories, and the replicas that they follow.
        if self.has_directories and (directory is not None or replicas != before.replicas):
            directories = self.wanted_directories(before, replicas, directory)
        if recovery_state != STATE_UNCHANGED and recovery_state != before.recovery_state:
            state = recovery_state

        # 8. The record, if there is anything to say.
        cdef bint is_moved = replicas is not before.replicas and replicas != before.replicas
        cdef bint removes = removing is not before.removing and removing != before.removing
        cdef bint adds = adding is not before.adding and adding != before.adding
        if (
            named == LEADER_UNCHANGED and state == STATE_UNCHANGED and new_isr is None and new_elr is None
            and last_known is None and directories is None and not (is_moved or removes or adds)
        ):
            return None
        record = new_struct(Record)
        TOPIC_ID.set(record, topic_id)
        PARTITION_ID.set(record, partition_id)
        if named != LEADER_UNCHANGED:
            LEADER.set(record, named)
        if new_isr is not None:
            ISR.set(record, list(new_isr))
        if new_elr is not None:
            record.eligible_leader_replicas = list(new_elr)
        if last_known is not None:
            record.last_known_elr = list(last_known)
        if directories is not None:
            record.directories = directories
        if is_moved:
            record.replicas = list(replicas)
        if removes:
            record.removing_replicas = list(removing)
        if adds:
            record.adding_replicas = list(adding)
        if state != STATE_UNCHANGED:
            record.leader_recovery_state = state
        return record

    cdef tuple next_elr(self, Partition before, tuple isr, int min_isr):
        cdef list found
        if len(isr) >= min_isr:
            return ()
        found = []
        for replica in in_hash_order(before.elr + before.isr):
            if replica not in isr and replica != self.unclean:
                found.append(replica)
        return tuple(found)

    cdef list wanted_directories(self, Partition before, tuple replicas, tuple directory):
        # Of each replica; None: as before.
        cdef dict known = dict(zip(before.replicas, before.directories))
        cdef list wanted = []
        if directory is not None:
            broker_id, where = directory
            known[broker_id] = where
        for replica in replicas:
            found = known.get(replica)
            wanted.append(self.default_directory(replica) if found is None else found)
        return None if tuple(wanted) == before.directories else wanted


cdef tuple completed(tuple isr, tuple replicas, tuple removing, tuple adding):
    # The four of them after the reassignment, or as they are while it goes on.
    cdef tuple left_in_sync = without_ids(isr, removing)
    cdef tuple left = without_ids(replicas, removing)
    cdef bint is_complete = len(left_in_sync) > 0 and len(left) > 0 and holds_all(left_in_sync, adding)
    if is_complete and len(adding) < len(removing):
        is_complete = holds_all(left_in_sync, left)
    return (left_in_sync, left, (), ()) if is_complete else (isr, replicas, removing, adding)


cdef bint holds_all(tuple whole, tuple part) except -1:
    if whole is part:
        return True
    for each in part:
        if each not in whole:
            return False
    return True


cdef tuple without_ids(tuple ids, tuple gone):
    # The same tuple if there is nothing to take out of it.
    cdef bint is_changed = False
    for each in ids:
        if each in gone:
            is_changed = True
            break
    return tuple([each for each in ids if each not in gone]) if is_changed else ids


cdef list in_hash_order(tuple ids):
    # Distinct ids, not negative, in the order in which a Java HashSet walks them.
    cdef list distinct = list(dict.fromkeys(ids))
    cdef int32_t buckets = FIRST_BUCKETS
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    distinct.sort(key=lambda number: (number ^ number >> 16) & buckets - 1)
    return distinct

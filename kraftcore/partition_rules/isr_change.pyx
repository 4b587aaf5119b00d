"""The ISRs that a leader proposes for its partitions in AlterPartition (KIP-497, KIP-704, KIP-841, KIP-903).

The checks of a partition, in their order; the first that fails is its error:

=============================================================  ============================
the topic has no such partition                                UNKNOWN_TOPIC_OR_PARTITION
leader epoch or partition epoch above ours: not we control it  NOT_CONTROLLER
leader epoch below ours                                        FENCED_LEADER_EPOCH
the sender does not lead                                       INVALID_REQUEST
partition epoch below ours                                     INVALID_UPDATE_VERSION
the ISR names somebody twice, or who is no replica             INVALID_REQUEST
the ISR is without the leader                                  INVALID_REQUEST
no such recovery state: the whole request is refused           UNKNOWN_SERVER_ERROR
a recovering leader with others in the ISR                     INVALID_REQUEST
recovering again after it had recovered                        INVALID_REQUEST
a member is not registered, shutting down, fenced, or of
another broker epoch than the one named (-1: any)              INELIGIBLE_REPLICA
=============================================================  ============================

A change that completes a reassignment may give the partition another leader: it is made, and answered with
NEW_LEADER_ELECTED. Errors come with nothing else of the partition.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.core.wire.struct cimport Member, new_struct
from kraftcore.metadata.partition cimport Partition
from kraftcore.partition_rules.partition_change cimport PartitionRules
from kraftcore.metadata.partitions cimport Partitions
from kraftcore.metadata.topic_rows cimport TopicRows

from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

cdef enum:
    ANY_EPOCH = -1
    NO_LEADER_CHANGE = -2
    RECOVERED = 0
    RECOVERING = 1

cdef object Result = AlterPartitionResponse.TopicData.PartitionData
cdef object Proposal = AlterPartitionRequest.TopicData.PartitionData
cdef object State = Proposal.BrokerState
cdef object NONE = ErrorCode.NONE
cdef object UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
cdef object NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
cdef object FENCED_LEADER_EPOCH = ErrorCode.FENCED_LEADER_EPOCH
cdef object INVALID_REQUEST = ErrorCode.INVALID_REQUEST
cdef object INVALID_UPDATE_VERSION = ErrorCode.INVALID_UPDATE_VERSION
cdef object INELIGIBLE_REPLICA = ErrorCode.INELIGIBLE_REPLICA
cdef object NEW_LEADER_ELECTED = ErrorCode.NEW_LEADER_ELECTED

cdef Member WANTED_INDEX = Member(Proposal, "partition_index")
cdef Member WANTED_LEADER_EPOCH = Member(Proposal, "leader_epoch")
cdef Member WANTED_ISR = Member(Proposal, "new_isr")
cdef Member WANTED_MEMBERS = Member(Proposal, "new_isr_with_epochs")
cdef Member WANTED_STATE = Member(Proposal, "leader_recovery_state")
cdef Member WANTED_EPOCH = Member(Proposal, "partition_epoch")
cdef Member MEMBER_ID = Member(State, "broker_id")
cdef Member MEMBER_EPOCH = Member(State, "broker_epoch")
cdef Member CHANGED_LEADER = Member(PartitionChangeRecord, "leader")
cdef Member CHANGED_ISR = Member(PartitionChangeRecord, "isr")
cdef Member RESULT_INDEX = Member(Result, "partition_index")
cdef Member RESULT_ERROR = Member(Result, "error_code")
cdef Member RESULT_LEADER = Member(Result, "leader_id")
cdef Member RESULT_LEADER_EPOCH = Member(Result, "leader_epoch")
cdef Member RESULT_ISR = Member(Result, "isr")
cdef Member RESULT_STATE = Member(Result, "leader_recovery_state")
cdef Member RESULT_EPOCH = Member(Result, "partition_epoch")


@cython.final
@cython.auto_pickle(False)
cdef class IsrProposals:
    """Takes the proposals of one AlterPartition request.

    Args:
        partitions: as they are.
        rules: by which they change.
        brokers: the registered brokers.
        sender: id of the broker that sends the request.
        names_epochs: members of ISRs come with their broker epochs (from version 3 on).
    """

    cdef Partitions partitions
    cdef PartitionRules rules
    cdef object brokers
    cdef dict epochs  # of brokers that may be in an ISR (KIP-841), None for others; filled as they are asked for
    cdef int32_t sender
    cdef bint names_epochs

    def __init__(
        self,
        Partitions partitions not None,
        PartitionRules rules not None,
        brokers not None,
        int32_t sender,
        bint names_epochs,
    ):
        self.partitions = partitions
        self.rules = rules
        self.brokers = brokers
        self.epochs = {}
        self.sender = sender
        self.names_epochs = names_epochs

    def take(self, Uuid topic_id not None, list wanted not None, int min_isr, election, list records not None):
        """Accept or refuse the proposals for partitions of a topic.

        Args:
            topic_id: of a topic that is there.
            wanted: AlterPartitionRequest's data of each partition.
            min_isr, election: as for `PartitionRules.change`.
            records: gets the record of each partition that changes, with its version.

        Returns:
            AlterPartitionResponse's data of each partition, in the same order.

        Raises:
            RefusedError: UNKNOWN_SERVER_ERROR: a recovery state that does not exist; the whole request is refused.
        """
        cdef list results = [], members
        cdef Partition partition
        cdef TopicRows rows = self.partitions.topics.get(topic_id)
        cdef int32_t index
        cdef tuple isr
        cdef object each, member, error, state, record
        for each in wanted:
            index = WANTED_INDEX.get(each)
            partition = None if rows is None else self.partitions.find_in(rows, index)
            if partition is None:
                results.append(refused(index, UNKNOWN_TOPIC_OR_PARTITION))
                continue
            members = WANTED_MEMBERS.get(each)
            if self.names_epochs:
                isr = tuple([MEMBER_ID.get(member) for member in members])
            else:
                isr = tuple(WANTED_ISR.get(each))
            error = self.what_is_wrong(partition, each, isr)
            if error is NONE and not self.are_eligible(isr, members):
                error = INELIGIBLE_REPLICA
            if error is NONE:
                state = WANTED_STATE.get(each)
                record = self.rules.changed(
                    topic_id, index, partition, min_isr, election, isr, None, None, None, state, None
                )
                if record is not None:
                    records.append((record, self.rules.version))
                results.append(accepted(index, partition, state, record))
            else:
                results.append(refused(index, error))
        return results

    cdef object what_is_wrong(self, Partition partition, wanted, tuple isr):
        # The first check that fails, without those of the members' brokers; NONE if none does.
        cdef int32_t leader_epoch = WANTED_LEADER_EPOCH.get(wanted), partition_epoch = WANTED_EPOCH.get(wanted)
        cdef int state = WANTED_STATE.get(wanted)
        if leader_epoch > partition.leader_epoch or partition_epoch > partition.partition_epoch:
            return NOT_CONTROLLER
        if leader_epoch < partition.leader_epoch:
            return FENCED_LEADER_EPOCH
        if self.sender != partition.leader:
            return INVALID_REQUEST
        if partition_epoch < partition.partition_epoch:
            return INVALID_UPDATE_VERSION
        if not is_part_of(isr, partition.replicas) or partition.leader not in isr:
            return INVALID_REQUEST
        if state == RECOVERING:
            if len(isr) > 1 or partition.recovery_state == RECOVERED:
                return INVALID_REQUEST
        elif state != RECOVERED:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR.name, "")  # Kafka's controller resigns as well
        return NONE

    cdef bint are_eligible(self, tuple isr, list members) except -1:
        # Whether all members may be in an ISR, in the incarnations that the request names, if it does.
        cdef int64_t named
        if not members:
            for broker_id in isr:
                if self.eligible_epoch(broker_id) is None:
                    return False
            return True
        for member in members:
            epoch = self.eligible_epoch(MEMBER_ID.get(member))
            if epoch is None:
                return False
            named = MEMBER_EPOCH.get(member)
            if named != ANY_EPOCH and named != <int64_t>epoch:
                return False
        return True

    cdef object eligible_epoch(self, broker_id):
        epoch = self.epochs.get(broker_id, self)
        if epoch is self:  # not asked for yet
            broker = self.brokers.get(broker_id)
            epoch = None if broker is None or not broker.is_active else broker.epoch
            self.epochs[broker_id] = epoch
        return epoch


cdef bint is_part_of(tuple isr, tuple replicas) except -1:
    # Whether all are replicas, and none comes twice.
    cdef Py_ssize_t i, j
    cdef object each
    if len(isr) > len(replicas):
        return False
    for i in range(len(isr)):
        each = isr[i]
        if each not in replicas:
            return False
        for j in range(i):
            if isr[j] == each:
                return False
    return True


cdef object refused(object index, error):
    result = new_struct(Result)
    RESULT_INDEX.set(result, index)
    RESULT_ERROR.set(result, error)
    return result


cdef object accepted(object index, Partition before, state, record):
    # The partition as it is after the record, or as it was if there is none.
    cdef int32_t leader_epoch = before.leader_epoch, partition_epoch = before.partition_epoch, leader
    cdef list isr = None
    if record is not None:
        leader = CHANGED_LEADER.get(record)
        if leader != NO_LEADER_CHANGE:
            if leader != before.leader:
                return refused(index, NEW_LEADER_ELECTED)
            leader_epoch += 1
        partition_epoch += 1
        isr = CHANGED_ISR.get(record)
    result = new_struct(Result)
    RESULT_INDEX.set(result, index)
    RESULT_LEADER.set(result, before.leader)
    RESULT_LEADER_EPOCH.set(result, leader_epoch)
    RESULT_ISR.set(result, list(before.isr) if isr is None else isr)
    RESULT_STATE.set(result, state)
    RESULT_EPOCH.set(result, partition_epoch)
    return result

"""AlterPartition: a leader proposes the ISR of its partitions (KIP-497, KIP-704, KIP-841, KIP-903).

The checks, in their order; the first that fails is the partition's error:

=============================================================  ============================
the topic id is unknown                                        UNKNOWN_TOPIC_ID
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

from __future__ import annotations

from collections.abc import Mapping

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Broker, Partition
from kraftcore.metadata.partition import RECOVERED, RECOVERING
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.schema import Request

_Wanted = AlterPartitionRequest.TopicData.PartitionData
_Member = AlterPartitionRequest.TopicData.PartitionData.BrokerState
_Result = AlterPartitionResponse.TopicData.PartitionData
_EPOCHS_FROM = 3
"""From this version on, members of the ISR come with their broker epochs."""
_ANY_EPOCH = -1
_NO_LEADER_CHANGE = -2


class _EligibleEpochs(dict[int, int | None]):
    """The broker epoch of whoever may be in an ISR (KIP-841), None for the others; looked up once a decision."""

    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        super().__init__()
        self._brokers = brokers

    def __missing__(self, broker_id: int) -> int | None:
        broker = self._brokers.get(broker_id)
        epoch = self[broker_id] = None if broker is None or not broker.is_active else broker.epoch
        return epoch


def alter_partition(context: Context, request: AlterPartitionRequest, version: int) -> ControllerResult:
    """Accept or refuse the ISR of each partition.

    Raises:
        Refusal: the sender's broker epoch is stale, or a recovery state does not exist.
    """
    if not request.topics:
        return ControllerResult(AlterPartitionResponse())  # Kafka looks at nothing else then
    sender = check_epoch(context, request.broker_id, request.broker_epoch).id
    image = context.image
    updates = PartitionUpdates(context)
    eligible = _EligibleEpochs(image.brokers)
    answer = AlterPartitionResponse()
    for topic in request.topics:
        results: list[_Result] = []
        topic_id = topic.topic_id
        answer.topics.append(AlterPartitionResponse.TopicData(topic_id=topic_id, partitions=results))
        if topic_id not in image.topics:
            results += [_refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID) for wanted in topic.partitions]
            continue
        for wanted in topic.partitions:
            partition = image.partitions.get(topic_id, wanted.partition_index)
            if partition is None:
                results.append(_refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            members = wanted.new_isr_with_epochs
            isr = tuple([each.broker_id for each in members] if version >= _EPOCHS_FROM else wanted.new_isr)
            error = _what_is_wrong(sender, partition, wanted, isr)
            if error is ErrorCode.NONE and not _are_eligible(eligible, isr, members):
                error = ErrorCode.INELIGIBLE_REPLICA
            if error is ErrorCode.NONE:
                results.append(_alter(updates, topic_id, wanted, partition, isr))
            else:
                results.append(_refused(wanted, error))
    return ControllerResult(answer, updates.records, is_atomic=False)


def _refused(wanted: _Wanted, error: ErrorCode) -> _Result:
    return _Result(partition_index=wanted.partition_index, error_code=error)


def _alter(
    updates: PartitionUpdates, topic_id: Uuid, wanted: _Wanted, partition: Partition, isr: tuple[int, ...]
) -> _Result:
    min_isr, election = updates.terms(topic_id)
    index, state = wanted.partition_index, wanted.leader_recovery_state
    record = updates.rules.change(topic_id, index, partition, min_isr, election=election, isr=isr, recovery_state=state)
    leader_epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
    isr_after = list(partition.isr)
    if record is not None:
        updates.records.append((record, updates.rules.version))
        if record.leader != _NO_LEADER_CHANGE:
            if record.leader != partition.leader:
                return _refused(wanted, ErrorCode.NEW_LEADER_ELECTED)
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


def _what_is_wrong(sender: int, partition: Partition, wanted: _Wanted, isr: tuple[int, ...]) -> ErrorCode:
    """The first check that fails, without those of the members' brokers; NONE if none does."""
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
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's controller resigns as well
    return ErrorCode.NONE


def _are_eligible(eligible: _EligibleEpochs, isr: tuple[int, ...], members: list[_Member]) -> bool:
    """Whether all members may be in an ISR, in the incarnations that the request names, if it does."""
    if not members:
        return all(eligible[broker_id] is not None for broker_id in isr)
    for member in members:
        epoch = eligible[member.broker_id]
        if epoch is None or (member.broker_epoch != epoch and member.broker_epoch != _ANY_EPOCH):
            return False
    return True


def _refuse(
    request: AlterPartitionRequest, version: int, error: ErrorCode, message: str | None
) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error)


APIS: dict[type[Request], Api] = {AlterPartitionRequest: Api(alter_partition, _refuse)}

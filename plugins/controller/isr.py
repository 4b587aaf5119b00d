"""AlterPartition: a leader proposes the ISR of its partitions. The checks are in `partition_rules.isr_change`.

Each partition of an unknown topic id is answered UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from kraftcore.errors import RefusedError
from kraftcore.partition_rules.isr_change import IsrProposals
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.schema import Request

_Result = AlterPartitionResponse.TopicData.PartitionData
_EPOCHS_FROM = 3
"""From this version on, members of the ISR come with their broker epochs."""


def alter_partition(context: Context, request: AlterPartitionRequest, version: int) -> ControllerResult:
    """Accept or refuse the ISR of each partition.

    Raises:
        Refusal: the sender's broker epoch is stale, or a recovery state does not exist.
    """
    if not request.topics:
        return ControllerResult(AlterPartitionResponse())  # Kafka checks nothing else of a request without topics
    sender = check_epoch(context, request.broker_id, request.broker_epoch).id
    image = context.image
    updates = PartitionUpdates(context)
    proposals = IsrProposals(image.partitions, updates.rules, image.brokers, sender, version >= _EPOCHS_FROM)
    answer = AlterPartitionResponse()
    for topic in request.topics:
        topic_id = topic.topic_id
        if topic_id in image.topics:
            min_isr, election = updates.terms(topic_id)
            try:
                results = proposals.take(topic_id, topic.partitions, min_isr, election, updates.records)
            except RefusedError as refused:
                raise Refusal(ErrorCode[refused.error]) from None
        else:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            results = [_Result(partition_index=each.partition_index, error_code=unknown) for each in topic.partitions]
        answer.topics.append(AlterPartitionResponse.TopicData(topic_id=topic_id, partitions=results))
    return ControllerResult(answer, updates.records, is_atomic=False)


def _refuse(
    request: AlterPartitionRequest, version: int, error: ErrorCode, message: str | None
) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error)


APIS: dict[type[Request], Api] = {AlterPartitionRequest: Api(alter_partition, _refuse)}

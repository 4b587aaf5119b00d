"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, and KIP-860 for the replication factor).

A reassignment that adds replicas starts with one record: its replicas are the targets, then the replicas to be removed,
beside the lists of added and removed ones. It ends with the AlterPartition that brings the last target into the ISR
(``partition_change``). A reassignment that adds none ends at once, unless no replica that stays is in sync.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Partition, Topic
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.plugins.controller.assignments import check_assignment
from kraftcore.plugins.controller.decision import (
    Api,
    Context,
    ControllerResult,
    Refusal,
    check_item_count,
    check_record_count,
    check_time,
)
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.error_text_budget import ErrorTexts
from kraftcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftcore.protocol.schema import Request

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment


def alter(context: Context, request: AlterPartitionReassignmentsRequest, version: int) -> ControllerResult:
    """Start, replace or cancel reassignments, each partition on its own."""
    if not request.topics:
        return ControllerResult(AlterPartitionReassignmentsResponse())  # Kafka checks nothing else without topics
    check_time(request.timeout_ms)
    check_item_count(sum(len(topic.partitions) for topic in request.topics))
    updates = PartitionUpdates(context)
    may_change_factor = version < 1 or request.allow_replication_factor_change
    answer = AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_factor, error_message=None)
    texts = ErrorTexts()
    for topic in request.topics:
        results = _Topic(name=topic.name)
        answer.responses.append(results)
        for wanted in topic.partitions:
            result = _Topic.ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            results.partitions.append(result)
            try:
                _alter_one(context, updates, topic.name, wanted, may_change_factor)
            except Refusal as refused:
                result.error_code = refused.code
                result.error_message = texts.take(refused.text)
    check_record_count(len(updates.records))
    return ControllerResult(answer, updates.records)


def _alter_one(
    context: Context,
    updates: PartitionUpdates,
    name: str,
    wanted: AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition,
    may_change_factor: bool,
) -> None:
    topic = context.image.topics.by_name(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    number = wanted.partition_index
    partition = context.image.partitions.get(topic.id, number)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    if wanted.replicas is None:
        _cancel(updates, topic.id, name, number, partition)
        return
    targets = tuple(wanted.replicas)
    check_assignment(context, targets)
    if not may_change_factor:
        _check_factor(partition, len(targets))
    removing = tuple(sorted(set(partition.replicas).difference(targets)))
    adding = tuple(sorted(set(targets).difference(partition.replicas)))
    updates.change(
        topic.id,
        number,
        partition,
        replicas=targets + removing,
        removing=removing or None,
        adding=adding or None,
    )


def _cancel(updates: PartitionUpdates, topic_id: Uuid, name: str, number: int, partition: Partition) -> None:
    """Go back to the former replicas. If none of them is in sync, an unclean election is needed."""
    if not partition.is_reassigning:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple([replica for replica in partition.replicas if replica not in partition.adding])
    isr = tuple([replica for replica in partition.isr if replica not in partition.adding])
    election = updates.terms(topic_id).election
    if not isr:
        if not replicas:
            text = "Invalid replica assignment: addingReplicas contains all replicas."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if election is not Election.UNCLEAN:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {name}:{number} because it would require an unclean "
                "leader election.",
            )
        if not any(updates.rules.may_lead(replica, partition) for replica in replicas):
            # Kafka 4.3.1 makes the first replica the ISR although it is fenced, against KIP-841.
            text = f"Unable to revert partition assignment for {name}:{number} because none of its replicas is active."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    updates.change(topic_id, number, partition, election=election, isr=isr, replicas=replicas, removing=(), adding=())


def _check_factor(partition: Partition, wanted: int) -> None:
    staying = set(partition.replicas).union(partition.adding).difference(partition.removing)
    factor = len(staying) if partition.is_reassigning else len(partition.replicas)
    if factor != wanted:
        text = f"The replication factor is changed from {factor} to {wanted}"
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def list_ongoing(context: Context, request: ListPartitionReassignmentsRequest, version: int) -> ControllerResult:
    """List ongoing reassignments, of the requested partitions or of all; partitions without one are left out."""
    if request.topics is not None and not request.topics:
        return ControllerResult(ListPartitionReassignmentsResponse(error_message=None))
    image = context.image
    found: list[_Ongoing] = []
    if request.topics is None:
        by_topic: dict[Uuid, list[int]] = {}
        for (topic_id, number), _ in image.partitions.reassigning():
            by_topic.setdefault(topic_id, []).append(number)
        found = [_ongoing(context, image.topics[topic_id], numbers) for topic_id, numbers in by_topic.items()]
    else:
        for asked in request.topics:
            topic = image.topics.by_name(asked.name)
            if topic is not None:
                found.append(_ongoing(context, topic, asked.partition_indexes))
    topics = [each for each in found if each.partitions]
    return ControllerResult(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _ongoing(context: Context, topic: Topic, numbers: Iterable[int]) -> _Ongoing:
    """The reassignments of these partitions of a topic; partitions without one are left out."""
    result = _Ongoing(name=topic.name)
    for number in numbers:
        partition = context.image.partitions.get(topic.id, number)
        if partition is not None and partition.is_reassigning:
            result.partitions.append(
                _Ongoing.OngoingPartitionReassignment(
                    partition_index=number,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return result


def _refuse_alter(
    request: AlterPartitionReassignmentsRequest, version: int, error: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    answer = AlterPartitionReassignmentsResponse(error_code=error, error_message=message)
    texts = ErrorTexts()
    for topic in request.topics:
        results = [
            _Topic.ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_code=error, error_message=texts.take(message)
            )
            for wanted in topic.partitions
        ]
        answer.responses.append(_Topic(name=topic.name, partitions=results))
    return answer


def _refuse_list(
    request: ListPartitionReassignmentsRequest, version: int, error: ErrorCode, message: str | None
) -> ListPartitionReassignmentsResponse:
    answer = ListPartitionReassignmentsResponse(error_code=error, error_message=message)
    for topic in request.topics or ():
        results = [_Ongoing.OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes]
        answer.topics.append(_Ongoing(name=topic.name, partitions=results))
    return answer


APIS: dict[type[Request], Api] = {
    AlterPartitionReassignmentsRequest: Api(alter, _refuse_alter),
    ListPartitionReassignmentsRequest: Api(list_ongoing, _refuse_list),
}

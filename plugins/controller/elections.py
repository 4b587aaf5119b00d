"""Elections by request or timer (KIP-460): ElectLeaders, leader rebalance, automatic unclean election.

ElectLeaders takes type 0, the preferred leader, or 1, an unclean election, which does not look at the topic's
unclean.leader.election.enable. A request without a list means all partitions; partitions that need no election are then
left out of the answer, while their topics stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Partition
from kraftcore.partition_rules.elect_leaders import LeaderElections
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.plugins.controller.decision import (
    Api,
    Context,
    ControllerResult,
    Refusal,
    check_record_count,
    check_time,
)
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.error_text_budget import ErrorTexts
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftcore.protocol.schema import Request

_PREFERRED: Final = 0
_ELECTIONS: Final = {_PREFERRED: Election.PREFERRED, 1: Election.UNCLEAN}
_FAILURES: Final = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
_Topic = ElectLeadersResponse.ReplicaElectionResult


def elect_leaders(context: Context, request: ElectLeadersRequest, version: int) -> ControllerResult:
    """Elect leaders of the requested partitions that need an election, where one is possible."""
    if request.topic_partitions is not None and not request.topic_partitions:
        return ControllerResult(ElectLeadersResponse())  # Kafka checks nothing else of a request without topics
    check_time(request.timeout_ms)
    election = _ELECTIONS.get(request.election_type if version >= 1 else _PREFERRED)
    if election is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    updates = PartitionUpdates(context)
    answer = ElectLeadersResponse()
    image = context.image
    if request.topic_partitions is None:
        partitions = image.partitions
        needing = partitions.not_led_by_preferred() if election is Election.PREFERRED else partitions.without_leader()
        elections = LeaderElections(updates.rules, needing, election, _FAILURES[election])
        for known in image.topics.values():
            results = _Topic(topic=known.name)
            if known.id in elections:
                min_isr = updates.terms(known.id).min_isr
                results.partition_result = elections.hold(known.id, min_isr, updates.records)
            answer.replica_election_results.append(results)
    else:
        texts = ErrorTexts()
        for asked in request.topic_partitions:
            answer.replica_election_results.append(
                _of_topic(updates, context, election, asked.topic, asked.partitions, texts)
            )
    check_record_count(len(updates.records))
    return ControllerResult(answer, updates.records, is_atomic=False)


def _of_topic(
    updates: PartitionUpdates,
    context: Context,
    election: Election,
    name: str,
    partitions: Iterable[int],
    texts: ErrorTexts,
) -> _Topic:
    """The results of a topic's requested partitions."""
    results = _Topic(topic=name)
    topic = context.image.topics.by_name(name)
    for number in partitions:
        partition = None if topic is None else context.image.partitions.get(topic.id, number)
        text: str | None
        if topic is None:
            error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        elif partition is None:
            error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
        else:
            is_needed = _needs(election, partition)
            error = (
                _elect(updates, topic.id, number, partition, election) if is_needed else ErrorCode.ELECTION_NOT_NEEDED
            )
            text = error.message
        results.partition_result.append(_result(number, error, texts.take(text)))
    return results


def _elect(
    updates: PartitionUpdates, topic_id: Uuid, number: int, partition: Partition, election: Election
) -> ErrorCode:
    if updates.change(topic_id, number, partition, election=election) is not None:
        return ErrorCode.NONE
    return _FAILURES[election]


def _result(number: int, error: ErrorCode, text: str | None) -> _Topic.PartitionResult:
    return _Topic.PartitionResult(partition_id=number, error_code=error, error_message=text)


def _needs(election: Election, partition: Partition) -> bool:
    return not (partition.is_led_by_preferred if election is Election.PREFERRED else partition.has_leader)


def rebalance_leaders(context: Context) -> ControllerResult:
    """Elect preferred leaders that can lead again; the timer is that of auto.leader.rebalance.enable."""
    updates = PartitionUpdates(context)
    most = context.settings.max_elections
    for (topic_id, number), partition in context.image.partitions.not_led_by_preferred():
        updates.change(topic_id, number, partition, election=Election.PREFERRED)
        if len(updates.records) >= most:
            return ControllerResult(None, updates.records, is_atomic=False, is_more=True)
    return ControllerResult(None, updates.records, is_atomic=False)


def elect_unclean_leaders(context: Context) -> ControllerResult:
    """Elect leaders of offline partitions whose topics allow it; timer: unclean.leader.election.interval.ms."""
    updates = PartitionUpdates(context)
    most = context.settings.max_elections
    for (topic_id, number), partition in context.image.partitions.without_leader():
        if updates.terms(topic_id).election is Election.UNCLEAN:
            updates.change(topic_id, number, partition, election=Election.UNCLEAN)
        if len(updates.records) >= most:
            return ControllerResult(None, updates.records, is_atomic=False, is_more=True)
    return ControllerResult(None, updates.records, is_atomic=False)


def _refuse(request: ElectLeadersRequest, version: int, error: ErrorCode, message: str | None) -> ElectLeadersResponse:
    answer = ElectLeadersResponse(error_code=error if version >= 1 else ErrorCode.NONE)
    texts = ErrorTexts()
    for asked in request.topic_partitions or ():
        answer.replica_election_results.append(
            _Topic(
                topic=asked.topic,
                partition_result=[_result(number, error, texts.take(message)) for number in asked.partitions],
            )
        )
    return answer


APIS: dict[type[Request], Api] = {ElectLeadersRequest: Api(elect_leaders, _refuse)}

"""WriteTxnMarkers: a transaction coordinator, a broker of Kafka, ends transactions in partitions led by this broker.

Source: Kafka 4.3.1, KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-1228.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftcore.errors import KraftError, RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.pending import PendingPart, PendingResponse
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.api.transaction_gate import TransactionGate
from kraftcore.plugins.broker.groups.coordinator import GroupCoordinator
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS, Deadlines
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kraftcore.protocol.topics import GROUPS_TOPIC
from kraftcore.security.acl import Operation

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Result.WritableTxnMarkerTopicResult
_Answer = _Topic.WritableTxnMarkerPartitionResult


class WriteTxnMarkers:
    """Answers WriteTxnMarkers requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        groups: coordinates the groups whose offsets may be part of the transactions.
        gate: forgets the verifications of transactions that have ended.
        permits: the asker must be allowed to alter the cluster, or to act for it.
        deadlines: end the wait of each request.
        now_ms: the time, milliseconds since 1970.
        rules_of: gives a topic's rules for records.
    """

    def __init__(
        self,
        replicas: Replicas,
        groups: GroupCoordinator,
        gate: TransactionGate,
        permits: Permits,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        rules_of: Callable[[str], RecordRules],
    ) -> None:
        self._rules_of = rules_of
        self._replicas = replicas
        self._groups = groups
        self._gate = gate
        self._permits = permits
        self._deadlines = deadlines
        self._now_ms = now_ms

    @in_turns
    def respond(self, request: WriteTxnMarkersRequest, context: RequestContext) -> InTurns[None]:
        """Append the markers; answer when all are committed, or after 30 s."""
        is_allowed = self._permits.may_cluster(
            request, context, Operation.ALTER, is_logged=False
        ) or self._permits.may_cluster(request, context, Operation.CLUSTER_ACTION)
        response = WriteTxnMarkersResponse()
        pending = PendingResponse(response, context, self._deadlines, REQUEST_TIMEOUT_MS)
        # By producer, topic and partition: one answer for each, even if several markers of a producer name it.
        answers: dict[int, dict[str, dict[int, _Answer]]] = {}
        turn = Turn()
        for each in request.markers:
            marker = Marker(
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.transaction_result,
                each.transaction_version,
            )
            topics = answers.setdefault(each.producer_id, {})
            if turn.is_over():
                yield
            for topic in each.topics:
                partitions = topics.setdefault(topic.name, {})
                ended = replace(marker, has_append_time=self._rules_of(topic.name).has_append_time)
                if turn.is_over():
                    yield
                for number in topic.partition_indexes:
                    if turn.is_over():
                        yield
                    if number not in partitions:
                        partitions[number] = _Answer(partition_index=number)
                    part = pending.part(partitions[number])
                    if is_allowed:
                        self._end(TopicPartition(topic.name, number), ended, part)
                    else:
                        part.end(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        for producer_id, topics in answers.items():
            told = [_Topic(name=name, partitions=list(partitions.values())) for name, partitions in topics.items()]
            response.markers.append(_Result(producer_id=producer_id, topics=told))
        pending.complete()

    def _end(self, name: TopicPartition, marker: Marker, part: PendingPart) -> None:
        try:
            if name not in self._replicas.all:
                raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no replica of {name}")
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker for no producer")  # as Kafka
            partition = self._replicas.find(name)
            partition.check(-1)
            if name.topic == GROUPS_TOPIC:
                self._groups.end_transaction(name, marker, part)
            else:
                self._replicas.carry_out(name, partition.end_transaction(marker, self._now_ms(), part))
            self._gate.ended(name, marker)
        except KraftError as error:
            code = code_of(self._replicas, name, error)
            # Kafka's coordinators retry after this code; a code that they do not expect leaves the transaction open.
            part.end(code if isinstance(error, RefusedError) else ErrorCode.KAFKA_STORAGE_ERROR)

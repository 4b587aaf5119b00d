"""WriteTxnMarkers: a transaction coordinator, which is a broker of Kafka, ends transactions in partitions that we lead.

Source: Kafka 4.3.1, KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-1228.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.errors import KraftError, RefusedError
from kraftcore.metadata.internal_topics import GROUPS_TOPIC
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.pending import PendingPart, PendingResponse
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.transaction_gate import TransactionGate
from kraftcore.plugins.broker.deadlines import Deadlines
from kraftcore.plugins.broker.groups.coordinator import GroupCoordinator
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.turns import InTurns, Turn, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kraftcore.security.acl import Operation

_TIMEOUT_MS = 30_000  # request.timeout.ms of the brokers
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Result.WritableTxnMarkerTopicResult
_Answer = _Topic.WritableTxnMarkerPartitionResult


class WriteTxnMarkers:
    """Answers it.

    Args:
        replicas: our partitions.
        groups: to which offsets in transactions belong.
        gate: forgets what coordinators said of transactions that have ended.
        permits: the asker must be allowed to alter the cluster, or to act for it.
        deadlines: for those that wait too long.
        now_ms: the time.
    """

    def __init__(
        self,
        replicas: Replicas,
        groups: GroupCoordinator,
        gate: TransactionGate,
        permits: Permits,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._gate = gate
        self._permits = permits
        self._deadlines = deadlines
        self._now_ms = now_ms

    @in_turns
    def respond(self, request: WriteTxnMarkersRequest, context: RequestContext) -> InTurns[None]:
        """Append the markers; answered when all are committed, or after 30 s."""
        is_allowed = self._permits.may_cluster(
            request, context, Operation.ALTER, is_logged=False
        ) or self._permits.may_cluster(request, context, Operation.CLUSTER_ACTION)
        response = WriteTxnMarkersResponse()
        pending = PendingResponse(response, context, self._deadlines, _TIMEOUT_MS)
        results: dict[int, dict[str, _Topic]] = {}
        turn = Turn()
        for each in request.markers:
            marker = Marker(
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.transaction_result,
                each.transaction_version,
            )
            if each.producer_id not in results:
                results[each.producer_id] = {}
                response.markers.append(_Result(producer_id=each.producer_id))
            if turn.is_over():
                yield
            topics = results[each.producer_id]
            for topic in each.topics:
                if topic.name not in topics:
                    topics[topic.name] = _Topic(name=topic.name)
                if turn.is_over():
                    yield
                for number in topic.partition_indexes:
                    if turn.is_over():
                        yield
                    answer = _Answer(partition_index=number)
                    topics[topic.name].partitions.append(answer)
                    part = pending.part(answer)
                    if is_allowed:
                        self._end(TopicPartition(topic.name, number), marker, part)
                    else:
                        part.end(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        for result in response.markers:
            result.topics = list(results[result.producer_id].values())
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
            # Kafka's coordinators try again after this one; a code that they do not expect leaves the transaction open.
            part.end(code if isinstance(error, RefusedError) else ErrorCode.KAFKA_STORAGE_ERROR)

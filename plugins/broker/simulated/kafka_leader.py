"""What a leader of Kafka's does and kraftcore's does not: it takes batches and markers of transactions.

Scripted, on the partitions of production, so that kraftcore's brokers follow, lead, restart and serve logs with
transactions. The
coordinator is the producer itself (``clients``): it forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftcore.core.batch import RecordBatch, build_records_batch
from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_VERSION = (0).to_bytes(2, "big")
_Topic = ProduceResponse.TopicProduceResponse


class _Waiter:
    """Somebody who is answered when what he wrote is committed."""

    is_over = False

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done

    def end(self, error: ErrorCode) -> None:
        """Count the wait as over; see ``Waiter``."""
        self.is_over = True
        self._done(error)


class KafkaLeader:
    """Makes a simulated leader take transactional batches and the markers that end them, as a broker of Kafka does.

    Args:
        replicas: the broker's partitions.
        now_ms: the time, milliseconds since 1970.
        otherwise: takes the batches that belong to no transaction.
    """

    def __init__(
        self,
        replicas: Replicas,
        now_ms: Callable[[], int],
        otherwise: Callable[[ProduceRequest, RequestContext], None],
    ) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        self._otherwise = otherwise

    def produce(self, request: ProduceRequest, context: RequestContext) -> None:
        """Take a batch of a transaction: of one partition, with acks=all."""
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        batch = RecordBatch(bytes(data.records or b""))
        if not batch.is_transactional:
            self._otherwise(request, context)
            return
        told = _Topic.PartitionProduceResponse(index=data.index, base_offset=-1)
        response = ProduceResponse(responses=[_Topic(name=topic.name, partition_responses=[told])])

        def done(error: ErrorCode) -> None:
            told.error_code = error
            context.answer(response)

        name = TopicPartition(topic.name, data.index)
        try:
            self._replicas.check_announced(name)
            self._append(name, batch, told, done)
        except KraftError as error:
            done(code_of(self._replicas, name, error))

    def mark(self, request: WriteTxnMarkersRequest, context: RequestContext) -> None:
        """Write a marker to a partition."""
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        answer = WriteTxnMarkersResponse.WritableTxnMarkerResult
        told = answer.WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult(partition_index=number)
        topics = [answer.WritableTxnMarkerTopicResult(name=topic.name, partitions=[told])]
        response = WriteTxnMarkersResponse(markers=[answer(producer_id=marker.producer_id, topics=topics)])

        def done(error: ErrorCode) -> None:
            told.error_code = error
            context.answer(response)

        name = TopicPartition(topic.name, number)
        batch = build_records_batch(
            [
                (
                    _VERSION + int(marker.transaction_result).to_bytes(2, "big"),
                    _VERSION + marker.coordinator_epoch.to_bytes(4, "big"),
                )
            ],
            timestamp_ms=self._now_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
        )
        try:
            self._replicas.check_announced(name)
            self._append(name, RecordBatch(batch), None, done)
        except KraftError as error:
            done(code_of(self._replicas, name, error))

    def _append(self, name: TopicPartition, batch: RecordBatch, told: Any, done: Callable[[ErrorCode], None]) -> None:
        partition = self._replicas.find(name)
        partition.check(-1)
        leading: Any = partition.leading
        if len(leading.isr.committed) < partition.min_insync_replicas:
            raise refused(ErrorCode.NOT_ENOUGH_REPLICAS, f"{name} has too few replicas in sync")
        repeated = None if batch.is_control else partition.producers.check(batch)
        if batch.is_control and self._is_known(partition, batch):
            base = end = partition.log.log_end_offset
        elif repeated is None:
            data = bytearray(batch.raw)
            base = partition.log.append_as_leader(data, partition.leader_epoch, self._now_ms())
            partition.producers.replicated(memoryview(data))
            end = partition.log.log_end_offset
        else:
            base, end = repeated.first_offset, repeated.last_offset + 1
        if told is not None:
            told.base_offset = base
        leading.wait(end, _Waiter(done))
        effects = partition.check_lag(self._now_ms())
        effects.has_changed = True
        self._replicas.carry_out(name, effects)

    @staticmethod
    def _is_known(partition: Partition, marker: RecordBatch) -> bool:
        """Whether a marker came before. Each has an epoch of its own (KIP-890): it ends no later transaction."""
        state = partition.producers.all.get(marker.producer_id)
        if state is None or marker.producer_epoch > state.epoch:
            return False
        if marker.producer_epoch == state.epoch and state.transaction_start < 0:
            return True
        raise refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {marker.producer_epoch} is not above {state.epoch}")

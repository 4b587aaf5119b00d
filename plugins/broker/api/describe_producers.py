"""DescribeProducers: the producers with an id that wrote to a partition, as its log tells (KIP-664).

Source: Kafka 4.3.1, KafkaApis.handleDescribeProducersRequest, ReplicaManager.activeProducerState.
"""

from __future__ import annotations

from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.repeats import Repeats
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers.state import NO_SEQUENCE, ProducerState
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kraftcore.security.acl import Operation

_Topic = DescribeProducersResponse.TopicResponse
_Answer = _Topic.PartitionResponse


class DescribeProducers:
    """Answers DescribeProducers requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: knows the topics of the cluster.
        permits: the asker must be allowed to read a topic.
    """

    def __init__(self, replicas: Replicas, cache: MetadataCache, permits: Permits) -> None:
        self._replicas = replicas
        self._cache = cache
        self._permits = permits

    @in_turns
    def respond(self, request: DescribeProducersRequest, context: RequestContext) -> InTurns[DescribeProducersResponse]:
        """The producers of each partition; a partition that a request names too often is refused (`Repeats`)."""
        response, repeats, turn = DescribeProducersResponse(), Repeats(), Turn()
        for topic in request.topics:
            error, text = self._error(request, context, topic.name)
            told = _Topic(name=topic.name)
            for index in topic.partition_indexes:
                if turn.is_over():
                    yield
                if error is ErrorCode.NONE:
                    answer = self._producers(TopicPartition(topic.name, index), repeats)
                else:
                    answer = _Answer(error_code=error, error_message=text)
                answer.partition_index = index
                told.partitions.append(answer)
            response.topics.append(told)
            if turn.is_over():
                yield
        return response

    def _error(
        self, request: DescribeProducersRequest, context: RequestContext, topic: str
    ) -> tuple[ErrorCode, str | None]:
        wrong = what_is_wrong(topic)
        if wrong is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, wrong
        error = ErrorCode.NONE
        if not self._permits.may(request, context, Operation.READ, topic):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic not in self._cache.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error, error.message

    def _producers(self, name: TopicPartition, repeats: Repeats) -> _Answer:
        try:
            repeats.check(name)
            partition = self._replicas.announced(name)
            partition.check(-1, needs_leader=False)
        except KraftError as error:
            return _Answer(error_code=code_of(self._replicas, name, error))
        return _Answer(active_producers=[_told(each) for each in partition.producers.all.values()])


def _told(producer: ProducerState) -> _Answer.ProducerState:
    return _Answer.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )

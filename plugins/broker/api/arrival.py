"""The data of a Produce request on its way into the logs: its topics and partitions, and how far it is.

The batches of a request are read here, once, when it comes; the stages in ``produce`` use what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import NamedTuple

from kraftcore.core.batch import Compression, RecordBatch
from kraftcore.core.batch.layout import (
    CODEC_MASK,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    OVERHEAD_BYTES,
    TRANSACTIONAL,
)
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptBatchError, KraftError, RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.pending import PendingResponse
from kraftcore.plugins.broker.api.record_rules import ATTRIBUTES_LOW, RecordRules
from kraftcore.plugins.broker.api.transaction_gate import Verified
from kraftcore.plugins.broker.partition import PartitionEffects, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.schema import Records

_BY_ID = 13  # version of Produce from which topics are named by id (KIP-516)
_ZSTD_SINCE = 7  # version of Produce in which clients may send zstd (KIP-110)
_LEAST_LENGTH = 14  # of a batch behind its length field, in the oldest format
_NO_BYTES = memoryview(b"")
_Data = ProduceRequest.TopicProduceData.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse


class Stage(IntEnum):
    """Where a request is; ``produce`` says what is done in each stage."""

    ARRIVED = auto()
    LOOK = auto()
    PREPARE = auto()
    ADMIT = auto()
    APPEND = auto()
    ANSWER = auto()


class BatchRules(NamedTuple):
    """What a partition asks of a client's batch.

    Attributes:
        message_max_bytes: the most bytes of a batch, ``max.message.bytes`` of the topic.
        segment_bytes: the most bytes of a segment of the log, ``segment.bytes``.
        records: what the topic asks of the records.
        takes_transactions: whether the batch may be part of a transaction.
    """

    message_max_bytes: int
    segment_bytes: int
    records: RecordRules
    takes_transactions: bool


class Prepared(NamedTuple):
    """A batch as it is stored.

    Attributes:
        batch: its bytes.
        append_time_ms: the time of all its records where the leader's clock counts; else -1.
        weight: how many bytes of work it was, see ``LoopRoom``.
    """

    batch: bytearray
    append_time_ms: int
    weight: int


@dataclass(slots=True, eq=False)
class Topic:
    """A topic of a request.

    Attributes:
        answer: what the response says of the topic.
        name: its name; None: nobody knew the id when the request came, and the topic stays unknown for the request.
        id: its id, where the request names topics by id.
        refusal: what all partitions of the topic are refused for; None: nobody has asked yet.
    """

    answer: TopicAnswer
    name: str | None
    id: Uuid | None = None
    refusal: ErrorCode | None = None


@dataclass(slots=True, eq=False)
class Part:
    """A partition of a request, with the batch for it.

    Attributes:
        topic: the partition's.
        index: the partition's number.
        name: of the partition; None: its topic is unknown.
        records: the bytes of the one batch; empty where there is none that can be taken.
        refusal: why there is none that can be taken.
        header: the fields of the batch; None: there is no batch, or it is shorter than a header.
        rules: what the batch is prepared by; None: it will be refused anyway, or it is prepared where it is appended.
        outcome: what preparing the batch gave; None: it was not prepared yet.
    """

    topic: Topic
    index: int
    name: TopicPartition | None
    records: memoryview = _NO_BYTES
    refusal: RefusedError | None = None
    header: RecordBatch | None = None
    rules: BatchRules | None = None
    outcome: Prepared | KraftError | None = None

    def read(self, records: Records | None, version: int, *, is_transactional: bool) -> bool:
        """Read what the request has for the partition, and say whether the batch is compressed.

        Source: Kafka 4.3.1, KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ByteBufferLogInputStream.

        Args:
            records: bytes as they came; what is behind the first batch and no batch does not count.
            version: of the request.
            is_transactional: whether the request names a transactional id.

        Raises:
            RefusedError: CORRUPT_MESSAGE or TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the whole request is refused.
        """
        data = memoryview(records or b"")
        size = _next_batch(data)
        if size == 0 or data[MAGIC_POSITION] != MAGIC:
            self.refusal = refused(ErrorCode.INVALID_RECORD, "a partition without a record batch of version 2")
            return False
        attributes = data[ATTRIBUTES_LOW]
        codec = attributes & CODEC_MASK
        if attributes & TRANSACTIONAL and not is_transactional:
            raise refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without transactional id")
        try:
            if version < _ZSTD_SINCE and codec == Compression.ZSTD:
                self.refusal = refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in version {version} of Produce")
            elif len(data) > size and _next_batch(data[size:]):
                self.refusal = refused(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
            else:
                self.records = data[:size]
                self.header = RecordBatch(self.records, verify=False)
        except RefusedError as error:
            self.refusal = error
        except CorruptBatchError:
            self.header = None
        return codec > 0


@dataclass(slots=True, eq=False)
class Arrival:
    """A Produce request on its way into the logs.

    Attributes:
        request: as it came.
        context: who asks, and how to answer.
        response: the answer so far.
        pending: sends the response when all that it waits for is done.
        stage: where the request is.
        parts: the partitions, in the order of the request.
        next: how many of ``parts`` were appended or refused.
        size: bytes of records in the request.
        refusal: what the whole request is refused for.
        refusals: what the transaction coordinator keeps out.
        verified: what the transaction coordinator lets in.
        appended: appends of which followers and waiting requests were not told yet.
        has_failed: whether a partition was refused.
    """

    request: ProduceRequest
    context: RequestContext
    response: ProduceResponse
    pending: PendingResponse
    stage: Stage = Stage.ARRIVED
    parts: list[Part] = field(default_factory=list)
    next: int = 0
    size: int = 0
    refusal: ErrorCode = ErrorCode.NONE
    refusals: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    verified: Verified = field(default_factory=dict)
    appended: list[tuple[TopicPartition, PartitionEffects]] = field(default_factory=list)
    has_failed: bool = False

    def read(self, names: Mapping[Uuid, str]) -> bool:
        """Read the request, and say whether a batch is compressed. If all of it is refused the rest is not read.

        Args:
            names: of topics by id.
        """
        version, is_transactional = self.context.version, self.request.transactional_id is not None
        is_compressed = False
        for name, topic_id, batches in _topics(self.request):
            answer = TopicAnswer(name=name, topic_id=topic_id)
            self.response.responses.append(answer)
            topic = Topic(answer, name) if version < _BY_ID else Topic(answer, names.get(topic_id), topic_id)
            for data in batches:
                where = None if topic.name is None else TopicPartition(topic.name, data.index)
                part = Part(topic, data.index, where)
                self.parts.append(part)
                if self.refusal is ErrorCode.NONE:
                    try:
                        is_compressed |= part.read(data.records, version, is_transactional=is_transactional)
                    except RefusedError as error:
                        self.refusal = ErrorCode[error.error]
                    self.size += len(data.records or b"")
        return is_compressed


def _topics(request: ProduceRequest) -> Iterable[tuple[str, Uuid, Collection[_Data]]]:
    """Name, id and partitions of each topic; of a partition that is named twice the last batch counts, as in Kafka."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return [(topics[0].name, topics[0].topic_id, topics[0].partition_data)]
    found: dict[tuple[str, Uuid], dict[int, _Data]] = {}
    for topic in topics:
        found.setdefault((topic.name, topic.topic_id), {}).update((part.index, part) for part in topic.partition_data)
    return ((*key, parts.values()) for key, parts in found.items())


def _next_batch(data: memoryview) -> int:
    """Bytes of the batch that begins here; 0 if it is not all there.

    Raises:
        RefusedError: CORRUPT_MESSAGE.
    """
    if len(data) < OVERHEAD_BYTES:
        return 0
    size = int.from_bytes(data[LENGTH_POSITION:OVERHEAD_BYTES], "big", signed=True)
    if size < _LEAST_LENGTH:
        raise refused(ErrorCode.CORRUPT_MESSAGE, f"a record batch of length {size}")
    if len(data) <= MAGIC_POSITION:
        return 0
    if data[MAGIC_POSITION] > MAGIC:
        raise refused(ErrorCode.CORRUPT_MESSAGE, f"a record batch of version {data[MAGIC_POSITION]}")
    size += OVERHEAD_BYTES
    return size if len(data) >= size else 0

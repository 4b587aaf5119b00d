"""A Produce request on its way into the logs: its topics and partitions, and the stage that it has reached.

The batches of a request are read here, once, when the request comes; the stages in ``produce`` use these objects.
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
_LEAST_LENGTH = 14  # least bytes of a batch behind its length field, in the oldest format
_NO_BYTES = memoryview(b"")
_Data = ProduceRequest.TopicProduceData.PartitionProduceData
TopicAnswer = ProduceResponse.TopicProduceResponse


class Stage(IntEnum):
    """The stage of a request; ``produce`` says what is done in each."""

    ARRIVED = auto()
    LOOK = auto()
    PREPARE = auto()
    ADMIT = auto()
    APPEND = auto()
    ANSWER = auto()


class BatchRules(NamedTuple):
    """The rules of a partition for a client's batch.

    Attributes:
        message_max_bytes: the most bytes of a batch, ``max.message.bytes`` of the topic.
        segment_bytes: the most bytes of a segment of the log, ``segment.bytes``.
        records: the topic's rules for records.
        takes_transactions: whether the batch may be part of a transaction.
    """

    message_max_bytes: int
    segment_bytes: int
    records: RecordRules
    takes_transactions: bool


class Prepared(NamedTuple):
    """A batch as it is stored.

    Attributes:
        batch: the bytes of the batch.
        append_time_ms: the time of all records, milliseconds since 1970, where the leader's clock counts; else -1.
        weight: how many bytes of work the preparation took, see ``LoopRoom``.
    """

    batch: bytearray
    append_time_ms: int
    weight: int


@dataclass(slots=True, eq=False)
class Topic:
    """A topic of a request.

    Attributes:
        answer: the topic's part of the response.
        name: None: the broker did not know the topic's id when the request came, and the request stays refused.
        id: the topic's id, where the request names topics by id.
        refusal: the error of all partitions of the topic; None: not determined yet.
    """

    answer: TopicAnswer
    name: str | None
    id: Uuid | None = None
    refusal: ErrorCode | None = None


@dataclass(slots=True, eq=False)
class Part:
    """A partition of a request, with the batch for it.

    Attributes:
        topic: the partition's topic.
        index: the partition's number.
        name: topic and number; None: the topic is unknown.
        records: the bytes of the one batch; empty if ``refusal`` says why no batch can be appended.
        refusal: why no batch of the request can be appended.
        header: the fields of the batch; None: there is no batch, or the batch is shorter than a header.
        rules: the rules for the batch; None: the batch will be refused, or is prepared when it is appended.
        outcome: the prepared batch, or why the batch is refused; None: the batch was not prepared yet.
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
        """Read the partition's batch from the request, and return whether the batch is compressed.

        Source: Kafka 4.3.1, KafkaApis.handleProduceRequest, ProduceRequest.validateRecords, ByteBufferLogInputStream.

        Args:
            records: bytes as they came; bytes behind the first batch that begin no batch are ignored.
            version: the version of the request.
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
        request: the request as it came.
        context: who asks, and how to answer.
        response: the answer so far.
        pending: sends the response when all partitions are done.
        stage: the stage that the request has reached.
        parts: the partitions, in the order of the request.
        next: how many of ``parts`` were appended or refused.
        size: bytes of records in the request.
        refusal: the error of the whole request.
        refusals: the partitions that the transaction coordinator refused, each with its error.
        verified: the partitions that the transaction coordinator verified.
        appended: the appends that are not announced to followers and waiting requests yet.
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
        """Read the request, and return whether a batch is compressed. The rest of a refused request is not read.

        Args:
            names: topic names by id.
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
    """Name, id and partitions of each topic; the last batch counts for a partition named twice, as in Kafka."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return [(topics[0].name, topics[0].topic_id, topics[0].partition_data)]
    found: dict[tuple[str, Uuid], dict[int, _Data]] = {}
    for topic in topics:
        found.setdefault((topic.name, topic.topic_id), {}).update((part.index, part) for part in topic.partition_data)
    return ((*key, parts.values()) for key, parts in found.items())


def _next_batch(data: memoryview) -> int:
    """The number of bytes of the batch that ``data`` begins with; 0 if ``data`` holds only a part of the batch.

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

"""Produce: validated by compiled code, stamped in place, appended; answered when as many have it as the client wants.

acks=0 is never answered: what goes wrong breaks the connection, as in Kafka. acks=1 is answered when the batch is in
the leader's log, acks=all when everybody in sync has it, and both no sooner than a sync that ``flush.messages`` asks
for. One batch a partition, as Kafka wants it since record batches are version 2. Batches of transactions wait for their
coordinator, see ``transaction_gate``; without a gate they are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from kraftcore.core.batch import BatchTotals, Compression, RecordBatch, validate_batches
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptBatchError, KraftError, RefusedError
from kraftcore.metadata.internal_topics import INTERNAL_TOPICS
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.pending import PendingPart, PendingResponse
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.record_rules import ATTRIBUTES_LOW, CODEC_MASK, RecordRules, RecordsRefusedError
from kraftcore.plugins.broker.api.transaction_gate import Client, TransactionGate, Verified
from kraftcore.plugins.broker.deadlines import Deadlines
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.schema import Records
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

_logger = logging.getLogger("kraftcore.broker")
ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
_LEADER_SINCE = 10  # version from which refusals say who leads (KIP-951)
_ABORTABLE_SINCE, _ADDS_NOTHING_SINCE = 11, 12  # versions in which clients know more of transactions (KIP-890)
_BY_ID = 13  # version from which topics are named by id (KIP-516)
_ADMIN_CLIENT = "__admin_client"  # as which clients write internal topics, in Kafka as well
_LENGTH_POSITION, _LOG_OVERHEAD, _MAGIC_POSITION = 8, 12, 16
_MAGIC, _TRANSACTIONAL = 2, 0x10
_LEAST_LENGTH = 14  # of a batch behind its length, by the oldest format
_ZSTD_SINCE = 7  # version in which clients may write it (KIP-110)
_WITHOUT_LOG_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""What an append fails with and Kafka then tells no log start offset for (ReplicaManager.appendRecordsToLeader)."""
_NOTHING: Mapping[TopicPartition, Any] = MappingProxyType({})
_Topic = ProduceResponse.TopicProduceResponse
_Answer = _Topic.PartitionProduceResponse


class BatchLimits(NamedTuple):
    """How large a client's batch may be, in bytes.

    Attributes:
        message_max_bytes: ``max.message.bytes`` of the topic.
        segment_bytes: ``segment.bytes`` of the log.
    """

    message_max_bytes: int
    segment_bytes: int


class _UnsyncedPart(PendingPart):
    """A partition that waits until it is synced: the request's time begins when all of them are, as in Kafka."""

    __slots__ = ()

    def __init__(self, pending: PendingResponse, answer: _Answer) -> None:
        super().__init__(pending, answer)
        pending.untimed += 1

    def end(self, error: ErrorCode) -> None:
        """See ``Waiter``."""
        self._pending.untimed -= 1
        super().end(error)


class Produce:
    """Answers it.

    Args:
        replicas: our partitions.
        cache: knows topics by id.
        leaders: of partitions that are led elsewhere.
        deadlines: for those that wait too long.
        max_message_bytes: of a client's batch for a topic.
        now_ms: the time.
        permits: the asker must be allowed to write to a topic.
        rules_of: what a topic asks of its records.
        gate: asks coordinators of transactions; None: there are no transactions.
        wall_ms: the time that those of records are compared with; None: ``now_ms``.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        leaders: Leaders,
        deadlines: Deadlines,
        max_message_bytes: Callable[[str], int],
        now_ms: Callable[[], int],
        permits: Permits | None = None,
        rules_of: Callable[[str], RecordRules] = lambda topic: RecordRules(),
        gate: TransactionGate | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ms = now_ms if wall_ms is None else wall_ms
        self._gate = gate
        self._permits = permits or Permits()
        self._rules_of = rules_of
        self._replicas = replicas
        self._cache = cache
        self._leaders = leaders
        self._deadlines = deadlines
        self._max_message_bytes = max_message_bytes
        self._now_ms = now_ms

    def respond(self, request: ProduceRequest, context: RequestContext) -> None:
        """Append, and answer now or later."""
        refusal = _refusal(request)
        if refusal is ErrorCode.NONE and self._gate is not None and request.transactional_id is not None:
            unknown, batches = self._transactional(request, context)
            if batches:
                transactional_id = ResourceType.TRANSACTIONAL_ID, request.transactional_id
                if self._permits.asker(request, context)(Action(Operation.WRITE, *transactional_id)):
                    batches = self._writable(batches, request, context)
                    go_on = partial(self._go_on, request, context, unknown)
                    size = sum(
                        len(part.records or b"") for topic in request.topic_data for part in topic.partition_data
                    )
                    self._gate.admit(request.transactional_id, batches, _client(context.version), go_on, size)
                    return
                refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self._respond(request, context, refusal)

    def _go_on(
        self,
        request: ProduceRequest,
        context: RequestContext,
        unknown: frozenset[Uuid],
        refusals: Mapping[TopicPartition, ErrorCode],
        verified: Verified,
    ) -> None:
        """Append what the coordinator lets in; an error in it comes up in somebody else's call, and hurts the asker."""
        try:
            self._respond(request, context, ErrorCode.NONE, unknown, refusals, verified)
        except Exception:
            _logger.exception("%s cannot be answered", context.peer)
            context.close()

    def _transactional(
        self, request: ProduceRequest, context: RequestContext
    ) -> tuple[frozenset[Uuid], dict[TopicPartition, RecordBatch]]:
        """Topics that nobody knows yet, and the batches of transactions by partition, as far as they can be read."""
        unknown: set[Uuid] = set()
        found: dict[TopicPartition, RecordBatch] = {}
        for topic in request.topic_data:
            name = self._topic_name(topic, context)
            if name is None:
                unknown.add(topic.topic_id)
                continue
            for data in topic.partition_data:
                with suppress(RefusedError, CorruptBatchError):  # refused with the others of its kind
                    batch = RecordBatch(only_batch(data.records, context.version), verify=False)
                    if batch.is_transactional:
                        found[TopicPartition(name, data.index)] = batch
        return frozenset(unknown), found

    def _writable(
        self, batches: Mapping[TopicPartition, RecordBatch], request: ProduceRequest, context: RequestContext
    ) -> dict[TopicPartition, RecordBatch]:
        """Those that the asker may write: nothing else is added to a transaction."""
        names = {
            name
            for name in {each.topic for each in batches}
            if (self._permits.is_open or self._permits.may(request, context, Operation.WRITE, name, is_logged=False))
            and (name not in INTERNAL_TOPICS or context.client_id == _ADMIN_CLIENT)
        }
        return {name: batch for name, batch in batches.items() if name.topic in names}

    def _topic_name(self, topic: ProduceRequest.TopicProduceData, context: RequestContext) -> str | None:
        return self._cache.names.get(topic.topic_id) if context.version >= _BY_ID else topic.name

    def _respond(
        self,
        request: ProduceRequest,
        context: RequestContext,
        refusal: ErrorCode,
        unknown: frozenset[Uuid] = frozenset(),
        refusals: Mapping[TopicPartition, ErrorCode] = _NOTHING,
        verified: Verified = _NOTHING,
    ) -> None:
        response = ProduceResponse()
        pending = PendingResponse(response, context, self._deadlines, max(request.timeout_ms, 0))
        has_failed = False
        for topic in request.topic_data:
            told = _Topic(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(told)
            may_write = self._permits.is_open
            topic_name = None if topic.topic_id in unknown else self._topic_name(topic, context)
            for data in topic.partition_data:
                answer = _Answer(index=data.index, base_offset=-1)
                told.partition_responses.append(answer)
                if refusal is not ErrorCode.NONE:
                    _fail(answer, refusal)
                    has_failed = True
                    continue
                if topic_name is None:
                    _fail(answer, ErrorCode.UNKNOWN_TOPIC_ID)
                    has_failed = True
                    continue
                if not may_write and not self._permits.may(request, context, Operation.WRITE, topic_name):
                    _fail(answer, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    has_failed = True
                    continue
                may_write = True
                if topic_name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
                    _fail(answer, ErrorCode.INVALID_TOPIC_EXCEPTION)
                    has_failed = True
                    continue
                name = TopicPartition(topic_name, data.index)
                records = None
                try:
                    if name in refusals:
                        raise refused(refusals[name], "the partition is not in the producer's transaction")
                    self._replicas.check_announced(name)
                    batch = only_batch(data.records, context.version)
                    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                        raise refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}: it must be -1, 0 or 1")
                    records = batch
                    self._append(name, records, request, answer, pending, verified.get(name))
                except KraftError as error:
                    _fail(answer, code_of(self._replicas, name, error))
                    if records is not None and ErrorCode.of(answer.error_code) not in _WITHOUT_LOG_START:
                        answer.log_start_offset = self._log_start(name)
                    if isinstance(error, RecordsRefusedError):
                        answer.error_message = error.message
                        answer.record_errors = [
                            _Answer.BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
                            for place, text in error.records
                        ]
                    has_failed = True
                    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and context.version >= _LEADER_SINCE:
                        self._tell_leader(name, answer, response, context)
        if request.acks == ACKS_NONE:
            (context.close if has_failed else context.answer_nothing)()
            return
        pending.complete()

    def _log_start(self, name: TopicPartition) -> int:
        replica = self._replicas.all.get(name)
        return -1 if replica is None else replica.partition.log.log_start_offset

    def _tell_leader(
        self, name: TopicPartition, answer: _Answer, response: ProduceResponse, context: RequestContext
    ) -> None:
        leader = self._leaders.of(name, context.listener)
        answer.current_leader = _Answer.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        if leader.address is not None and all(each.node_id != leader.id for each in response.node_endpoints):
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(
                    node_id=leader.id, host=leader.address.host, port=leader.address.port, rack=leader.rack
                )
            )

    def _append(
        self,
        name: TopicPartition,
        records: memoryview,
        request: ProduceRequest,
        answer: _Answer,
        pending: PendingResponse,
        verified: tuple[int, int] | None,
    ) -> None:
        partition = self._replicas.find(name)
        partition.check(-1)
        limits = BatchLimits(self._max_message_bytes(name.topic), partition.log.config.segment_bytes)
        totals = check_batch(records, limits, takes_transactions=self._gate is not None)
        waits, wall_ms, rules = request.acks == ACKS_ALL, self._wall_ms(), self._rules_of(name.topic)
        received = bytearray(records)
        batch = rules.prepare(received, wall_ms, totals)
        if batch is not received:
            check_size(len(batch), limits)
        part = pending.part(answer) if waits else None
        try:
            base, effects = partition.append(batch, self._now_ms(), waiter=part, needs_isr=waits, verified=verified)
        except KraftError:
            if part is not None:
                part.end(ErrorCode.NONE)  # nobody else will
            raise
        if verified is not None and self._gate is not None:
            self._gate.appended(name, verified[0])
        if request.acks != ACKS_NONE and partition.owes_sync:
            partition.wait_synced(_UnsyncedPart(pending, answer))
        answer.base_offset = base
        if effects.repeated_ms is not None:
            answer.log_append_time_ms = effects.repeated_ms
        elif rules.has_append_time:
            answer.log_append_time_ms = wall_ms
        answer.log_start_offset = partition.log.log_start_offset
        self._replicas.carry_out(name, effects)


def check_size(size: int, limits: BatchLimits) -> None:
    """See that a batch of so many bytes may be appended.

    Raises:
        RefusedError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
    """
    if size > limits.message_max_bytes:
        raise refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes: max.message.bytes is {limits.message_max_bytes}"
        )
    if size > limits.segment_bytes:
        raise refused(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes: segment.bytes is {limits.segment_bytes}"
        )


def only_batch(records: Records | None, version: int) -> memoryview:
    """The one record batch of a partition of a request, without what is behind it and no batch.

    Source: Kafka 4.3.1, ProduceRequest.validateRecords and ByteBufferLogInputStream.

    Args:
        records: as they came.
        version: of the request.

    Raises:
        RefusedError: INVALID_RECORD, CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    data = memoryview(records or b"")
    size = _next_batch(data)
    if size == 0:
        raise refused(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    if data[_MAGIC_POSITION] != _MAGIC:
        raise refused(ErrorCode.INVALID_RECORD, f"record batches of version {data[_MAGIC_POSITION]}: only 2 is taken")
    if version < _ZSTD_SINCE and data[ATTRIBUTES_LOW] & CODEC_MASK == Compression.ZSTD:
        raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in version {version} of a Produce request")
    if _next_batch(data[size:]):
        raise refused(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    return data[:size]


def _next_batch(data: memoryview) -> int:
    """Size of the batch that begins here; 0 if it is not all there."""
    if len(data) < _LOG_OVERHEAD:
        return 0
    size = int.from_bytes(data[_LENGTH_POSITION:_LOG_OVERHEAD], "big", signed=True)
    if size < _LEAST_LENGTH:
        raise refused(ErrorCode.CORRUPT_MESSAGE, f"a record batch of length {size}")
    if len(data) <= _MAGIC_POSITION:
        return 0
    if data[_MAGIC_POSITION] > _MAGIC:
        raise refused(ErrorCode.CORRUPT_MESSAGE, f"a record batch of version {data[_MAGIC_POSITION]}")
    size += _LOG_OVERHEAD
    return size if len(data) >= size else 0


def check_batch(records: memoryview, limits: BatchLimits, *, takes_transactions: bool = False) -> BatchTotals:
    """See that a client's batch may be appended.

    Args:
        records: from `only_batch`.
        limits: of its size.
        takes_transactions: whether it may be one of a transaction.

    Returns:
        What it holds.

    Raises:
        RefusedError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
    """
    base_offset = int.from_bytes(records[:_LENGTH_POSITION], "big", signed=True)
    if base_offset != 0:
        raise refused(ErrorCode.INVALID_RECORD, f"a client's batch with base offset {base_offset}, not 0")
    check_size(len(records), limits)
    try:
        batch = RecordBatch(records, verify=False)
    except CorruptBatchError as error:  # shorter than a batch's header
        raise refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    try:
        totals = validate_batches(records)
    except CorruptBatchError as error:
        code = ErrorCode.INVALID_RECORD if batch.is_valid else ErrorCode.CORRUPT_MESSAGE
        raise refused(code, str(error)) from None
    if batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise refused(ErrorCode.INVALID_RECORD, "not one or more records without gaps")
    if batch.is_control:
        raise refused(ErrorCode.INVALID_RECORD, "clients do not write control records")
    if batch.is_transactional and not takes_transactions:
        raise refused(ErrorCode.INVALID_RECORD, "batches of transactions are not taken")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise refused(
            ErrorCode.INVALID_RECORD, f"sequence {batch.base_sequence} in epoch {batch.producer_epoch} of a producer"
        )
    return totals


def _refusal(request: ProduceRequest) -> ErrorCode:
    """What a whole request is refused for, by the first batches of its partitions (Kafka 4.3.1, KafkaApis)."""
    try:
        for topic in request.topic_data:
            for each in topic.partition_data:
                data = memoryview(each.records or b"")
                is_current = _next_batch(data) > 0 and data[_MAGIC_POSITION] == _MAGIC
                if is_current and data[ATTRIBUTES_LOW] & _TRANSACTIONAL and request.transactional_id is None:
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    except RefusedError as error:
        return ErrorCode[error.error]
    return ErrorCode.NONE


def _client(version: int) -> Client:
    if version >= _ADDS_NOTHING_SINCE:
        return Client.ADDS_NOTHING
    return Client.KNOWS_ABORTABLE if version >= _ABORTABLE_SINCE else Client.OLD


def _fail(answer: _Answer, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = answer.log_start_offset = -1

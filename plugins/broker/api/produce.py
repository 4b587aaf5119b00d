"""Produce: validated by compiled code, stamped in place, appended; answered when as many have it as the client wants.

acks=0 is never answered: what goes wrong breaks the connection, as in Kafka. acks=1 is answered when the batch is in
the leader's log, acks=all when everybody in sync has it, and both no sooner than a sync that ``flush.messages`` asks
for. One batch a partition, as Kafka wants it since record batches are version 2. Batches of transactions wait for their
coordinator, see ``transaction_gate``; without a gate they are refused.

What would hold the loop for long, as a small batch that decompresses to many MiB, is validated aside (``heavy``), and
the request comes in when that is done; what comes meanwhile for one of its partitions does so behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any

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
from kraftcore.errors import CorruptBatchError, KraftError, OversizedBatchError, RefusedError
from kraftcore.metadata.internal_topics import INTERNAL_TOPICS
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.pending import PendingPart, PendingResponse
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.preparing import (
    BatchLimits,
    Outcome,
    Unprepared,
    prepare,
    prepare_aside,
    prepare_here,
)
from kraftcore.plugins.broker.api.record_rules import ATTRIBUTES_LOW, RecordRules, RecordsRefusedError
from kraftcore.plugins.broker.api.transaction_gate import Client, TransactionGate, Verified
from kraftcore.plugins.broker.api.waiting_line import WaitingLine
from kraftcore.plugins.broker.client_quotas import ClientQuotas
from kraftcore.plugins.broker.deadlines import Deadlines
from kraftcore.plugins.broker.heavy import (
    BATCH_BYTES,
    COMPRESSING,
    DoAside,
    HeavySteps,
    LoopRoom,
    do_here,
    others_first,
    run_steps,
)
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import Effects, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.turns import Turn
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
_Data = ProduceRequest.TopicProduceData.PartitionProduceData
_Topic = ProduceResponse.TopicProduceResponse
_Answer = _Topic.PartitionProduceResponse


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


class _Arrival:
    """A request on its way into the logs.

    Attributes:
        request: it.
        context: of it.
        refusal: what all of it is refused for.
        outcomes: what preparing its batches gave, in order; None: a batch is prepared where it is appended.
        unknown: topics that nobody knew when it came: they stay so.
        refusals: what its coordinator keeps out.
        verified: what that lets in.
        appended: what followers and waiting requests were not told of yet.
    """

    __slots__ = ("appended", "context", "outcomes", "refusal", "refusals", "request", "unknown", "verified")

    def __init__(self, request: ProduceRequest, context: RequestContext, refusal: ErrorCode) -> None:
        self.request = request
        self.context = context
        self.refusal = refusal
        self.outcomes: Iterator[Outcome | None] = repeat(None)
        self.unknown: frozenset[Uuid] = frozenset()
        self.refusals: Mapping[TopicPartition, ErrorCode] = _NOTHING
        self.verified: Verified = _NOTHING
        self.appended: list[tuple[TopicPartition, Effects]] = []


class Produce:
    """Answers Produce requests.

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
        do_aside: does what would hold the loop for long.
        loop_bytes: that a batch may decompress to on the loop.
        quotas: hold clients back; None: nobody is.
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
        do_aside: DoAside = do_here,
        loop_bytes: int = BATCH_BYTES,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._quotas = quotas
        self._loop_bytes, self._short_bytes = loop_bytes, loop_bytes // COMPRESSING
        self._do_aside = do_aside
        self._line = WaitingLine(do_aside)
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
        if self._quotas is not None:
            context = self._quotas.of_producer(context)
        if not _has_one_partition(request):
            _keep_last(request)
        refusal, size, is_compressed = _look(request)
        arrival = _Arrival(request, context, refusal)
        if refusal is not ErrorCode.NONE or not (self._line or is_compressed or size > self._short_bytes):
            self._admit(arrival)
        elif self._line or request.transactional_id is not None or not _has_one_partition(request):
            self._prepare(arrival)
        else:
            try:
                self._append_all(arrival)
            except OversizedBatchError:  # nothing was appended
                self._prepare(arrival)

    def _prepare(self, arrival: _Arrival) -> None:
        """Prepare what is to be appended, here or aside, and go on then, behind whoever waits for these partitions."""
        context = arrival.context
        names: set[TopicPartition] = set()
        parts: list[Unprepared | None] = []
        unknown: set[Uuid] = set()
        size = 0
        for topic in arrival.request.topic_data:
            name = self._topic_name(topic, context)
            if name is None:
                unknown.add(topic.topic_id)
            may_write = name is not None and self._may_write(arrival, name)
            for data in topic.partition_data:
                size += len(data.records or b"")
                part = None
                if name is not None:
                    where = TopicPartition(name, data.index)
                    names.add(where)
                    part = self._unprepared(where, data, context) if may_write else None
                parts.append(part)
        wall_ms = self._wall_ms()
        outcomes = None if self._line.is_before(names) else prepare_here(parts, wall_ms, LoopRoom(self._loop_bytes))
        if outcomes is not None:
            arrival.outcomes = iter(outcomes)
            self._admit(arrival)
        elif self._line.has_room(size):
            context.wait()  # what is behind it on its connection may be about what it changes
            arrival.unknown = frozenset(unknown)
            found: list[Outcome] = []
            work = partial(prepare_aside, parts, wall_ms, found)
            self._line.wait(names, size, work, partial(self._prepared, arrival, found))
        else:
            context.close()  # all that its producer has sent comes again, in order

    def _unprepared(self, name: TopicPartition, data: _Data, context: RequestContext) -> Unprepared | None:
        """A partition's batch; None where it is refused anyway."""
        try:
            partition = self._replicas.find(name)
            partition.check(-1)
            return self._with_rules(name, partition, only_batch(data.records, context.version))
        except KraftError:
            return None

    def _with_rules(self, name: TopicPartition, partition: Partition, records: memoryview) -> Unprepared:
        limits = BatchLimits(self._max_message_bytes(name.topic), partition.log.config.segment_bytes)
        return Unprepared(records, limits, self._rules_of(name.topic), self._gate is not None, name)

    def _prepared(self, arrival: _Arrival, found: list[Outcome], error: Exception | None) -> None:
        """It was prepared aside; an error in what follows comes up in somebody else's call, and hurts the asker."""
        try:
            if error is not None:
                raise error
            arrival.outcomes = iter(found)
            self._admit(arrival)
        except Exception:
            _logger.exception("%s cannot be answered", arrival.context.peer)
            arrival.context.close()

    def _admit(self, arrival: _Arrival) -> None:
        """Have a request in, or wait for its coordinator."""
        request, context = arrival.request, arrival.context
        if arrival.refusal is ErrorCode.NONE and self._gate is not None and request.transactional_id is not None:
            unknown, batches = self._transactional(request, context)
            arrival.unknown |= unknown
            if batches:
                transactional_id = ResourceType.TRANSACTIONAL_ID, request.transactional_id
                if self._permits.asker(request, context)(Action(Operation.WRITE, *transactional_id)):
                    batches = self._writable(batches, arrival)
                    go_on = partial(self._admitted, arrival)
                    size = sum(
                        len(part.records or b"") for topic in request.topic_data for part in topic.partition_data
                    )
                    self._gate.admit(request.transactional_id, batches, _client(context.version), go_on, size)
                    return
                arrival.refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self._append_all(arrival)

    def _admitted(self, arrival: _Arrival, refusals: Mapping[TopicPartition, ErrorCode], verified: Verified) -> None:
        """Append what the coordinator lets in; an error in it comes up in somebody else's call, and hurts the asker."""
        arrival.refusals, arrival.verified = refusals, verified
        try:
            self._append_all(arrival)
        except Exception:
            _logger.exception("%s cannot be answered", arrival.context.peer)
            arrival.context.close()

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
        self, batches: Mapping[TopicPartition, RecordBatch], arrival: _Arrival
    ) -> dict[TopicPartition, RecordBatch]:
        """Those that the asker may write: nothing else is added to a transaction."""
        names = {name for name in {each.topic for each in batches} if self._may_write(arrival, name)}
        return {name: batch for name, batch in batches.items() if name.topic in names}

    def _may_write(self, arrival: _Arrival, name: str) -> bool:
        """Whether the asker may write a topic; nothing is logged."""
        request, context = arrival.request, arrival.context
        is_permitted = self._permits.is_open or self._permits.may(
            request, context, Operation.WRITE, name, is_logged=False
        )
        return is_permitted and (name not in INTERNAL_TOPICS or context.client_id == _ADMIN_CLIENT)

    def _topic_name(self, topic: ProduceRequest.TopicProduceData, context: RequestContext) -> str | None:
        return self._cache.names.get(topic.topic_id) if context.version >= _BY_ID else topic.name

    # --- appending ----------------------------------------------------------------------------------------------------

    def _append_all(self, arrival: _Arrival) -> None:
        """Append, in turns where a request names very many partitions."""
        steps = self._finishing(arrival)
        if next(steps, None) is None:
            return
        context = arrival.context
        context.wait()  # what is behind it on its connection comes after it

        def fail(error: Exception) -> None:
            _logger.error("%s cannot be answered", context.peer, exc_info=error)
            context.close()

        go_on = partial(run_steps, steps, self._do_aside, lambda _: None, fail)
        self._do_aside(others_first, lambda error: go_on())

    def _finishing(self, arrival: _Arrival) -> HeavySteps[None]:
        """What was appended is told, and what was verified given back, whatever ends the steps.

        Until all are taken a marker may void what was verified.
        """
        try:
            yield from self._in_turns(arrival)
        finally:
            self._tell(arrival)
            if self._gate is not None:
                self._gate.release(arrival.verified)

    def _tell(self, arrival: _Arrival) -> None:
        """Of all at once: a follower that waits gets the records of all partitions of a request in one answer."""
        told, arrival.appended = arrival.appended, []
        self._replicas.carry_out_all(told)

    def _in_turns(self, arrival: _Arrival) -> HeavySteps[None]:
        request, context, turn = arrival.request, arrival.context, Turn()
        response = ProduceResponse()
        pending = PendingResponse(response, context, self._deadlines, max(request.timeout_ms, 0))
        has_failed = False
        for topic in request.topic_data:
            told = _Topic(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(told)
            name = None if topic.topic_id in arrival.unknown else self._topic_name(topic, context)
            refusal = self._topic_refusal(arrival, name)
            for data in topic.partition_data:
                if turn.is_over():
                    self._tell(arrival)
                    yield others_first
                    if refusal is ErrorCode.NONE and self._topic_name(topic, context) is None:
                        # deleted; another one may have its name
                        name, refusal = None, ErrorCode.UNKNOWN_TOPIC_ID
                answer = _Answer(index=data.index, base_offset=-1)
                told.partition_responses.append(answer)
                outcome = next(arrival.outcomes)
                if name is None or refusal is not ErrorCode.NONE:
                    _fail(answer, refusal)
                else:
                    self._append_or_refuse(arrival, TopicPartition(name, data.index), data, outcome, answer, pending)
                    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and context.version >= _LEADER_SINCE:
                        self._tell_leader(TopicPartition(name, data.index), answer, response, context)
                has_failed |= answer.error_code != ErrorCode.NONE
        self._tell(arrival)
        if request.acks == ACKS_NONE:
            (context.close if has_failed else context.answer_nothing)()
            return
        pending.complete()

    def _topic_refusal(self, arrival: _Arrival, name: str | None) -> ErrorCode:
        """What all partitions of a topic are refused for."""
        if arrival.refusal is not ErrorCode.NONE:
            return arrival.refusal
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._permits.is_open and not self._permits.may(arrival.request, arrival.context, Operation.WRITE, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name in INTERNAL_TOPICS and arrival.context.client_id != _ADMIN_CLIENT:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE

    def _append_or_refuse(
        self,
        arrival: _Arrival,
        name: TopicPartition,
        data: _Data,
        outcome: Outcome | None,
        answer: _Answer,
        pending: PendingResponse,
    ) -> None:
        """Append a partition's batch; what may keep it out is its answer's error."""
        acks, records = arrival.request.acks, None
        try:
            if name in arrival.refusals:
                raise refused(arrival.refusals[name], "the partition is not in the producer's transaction")
            self._replicas.check_announced(name)
            batch = only_batch(data.records, arrival.context.version)
            if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                raise refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: it must be -1, 0 or 1")
            records = batch
            effects = self._append(arrival, name, records, outcome, answer, pending)
            arrival.appended.append((name, effects))
        except OversizedBatchError:
            raise
        except KraftError as error:
            self._tell_why(name, error, answer, is_read=records is not None)

    def _append(
        self,
        arrival: _Arrival,
        name: TopicPartition,
        records: memoryview,
        outcome: Outcome | None,
        answer: _Answer,
        pending: PendingResponse,
    ) -> Effects:
        acks, guard = arrival.request.acks, arrival.verified.get(name)
        partition = self._replicas.find(name)
        partition.check(-1)
        if guard is not None and guard.leader_epoch != partition.leader_epoch:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} was led in another epoch when it was verified")
        verified = None if guard is None or guard.is_void else guard.producer
        waits = acks == ACKS_ALL
        prepared = outcome
        if prepared is None:
            room = LoopRoom(self._loop_bytes)
            prepared = prepare(*self._with_rules(name, partition, records), self._wall_ms(), room)
        if isinstance(prepared, KraftError):
            raise prepared
        part = pending.part(answer) if waits else None
        try:
            base, effects = partition.append(
                prepared.batch, self._now_ms(), waiter=part, needs_isr=waits, verified=verified
            )
        except KraftError:
            if part is not None:
                part.end(ErrorCode.NONE)  # nobody else will
            raise
        if guard is not None and self._gate is not None:
            self._gate.appended(name, guard.producer[0])
        if acks != ACKS_NONE and partition.owes_sync:
            partition.wait_synced(_UnsyncedPart(pending, answer))
        answer.base_offset = base
        if effects.repeated_ms is not None:
            answer.log_append_time_ms = effects.repeated_ms
        else:
            answer.log_append_time_ms = prepared.append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        return effects

    def _tell_why(self, name: TopicPartition, error: KraftError, answer: _Answer, *, is_read: bool) -> None:
        """A partition's batch was not appended; its log start is told if the batch itself could be read."""
        _fail(answer, code_of(self._replicas, name, error))
        if is_read and ErrorCode.of(answer.error_code) not in _WITHOUT_LOG_START:
            answer.log_start_offset = self._log_start(name)
        if isinstance(error, RecordsRefusedError):
            answer.error_message = error.message
            answer.record_errors = [
                _Answer.BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
                for place, text in error.records
            ]

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
    if data[MAGIC_POSITION] != MAGIC:
        raise refused(ErrorCode.INVALID_RECORD, f"record batches of version {data[MAGIC_POSITION]}: only 2 is taken")
    if version < _ZSTD_SINCE and data[ATTRIBUTES_LOW] & CODEC_MASK == Compression.ZSTD:
        raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in version {version} of a Produce request")
    if _next_batch(data[size:]):
        raise refused(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    return data[:size]


def _next_batch(data: memoryview) -> int:
    """Size of the batch that begins here; 0 if it is not all there."""
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


def _look(request: ProduceRequest) -> tuple[ErrorCode, int, bool]:
    """What a whole request is refused for, how many bytes of records it has, and whether any are compressed.

    The first batches of its partitions count (Kafka 4.3.1, KafkaApis).
    """
    size, codecs = 0, 0
    try:
        for topic in request.topic_data:
            for each in topic.partition_data:
                data = memoryview(each.records or b"")
                size += len(data)
                if _next_batch(data) > 0 and data[MAGIC_POSITION] == MAGIC:
                    attributes = data[ATTRIBUTES_LOW]
                    codecs |= attributes & CODEC_MASK
                    if attributes & TRANSACTIONAL and request.transactional_id is None:
                        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, size, False
    except RefusedError as error:
        return ErrorCode[error.error], size, False
    return ErrorCode.NONE, size, codecs > 0


def _has_one_partition(request: ProduceRequest) -> bool:
    return len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1


def _keep_last(request: ProduceRequest) -> None:
    """Of what a request names more than once the last batch counts, and is answered once, as by Kafka."""
    topics: dict[tuple[str, Uuid], dict[int, _Data]] = {}
    named = 0
    for topic in request.topic_data:
        named += len(topic.partition_data)
        topics.setdefault((topic.name, topic.topic_id), {}).update((part.index, part) for part in topic.partition_data)
    if len(topics) < len(request.topic_data) or sum(map(len, topics.values())) < named:
        request.topic_data = [
            ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=list(parts.values()))
            for (name, topic_id), parts in topics.items()
        ]


def _client(version: int) -> Client:
    if version >= _ADDS_NOTHING_SINCE:
        return Client.ADDS_NOTHING
    return Client.KNOWS_ABORTABLE if version >= _ABORTABLE_SINCE else Client.OLD


def _fail(answer: _Answer, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = answer.log_start_offset = -1

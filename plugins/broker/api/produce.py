"""Produce: a client's batches are checked, stamped and appended; the answer waits for as many replicas as asked for.

A request goes through stages, by the table `_NEXT`, which ``Produce._go_on`` drives:

    look     ``Arrival.read`` reads the batch of each partition, once.
    prepare  A request that would hold the event loop for long, as a small batch that decompresses to many MiB does, is
             checked before it is appended; a thread does checks of more than some milliseconds (``heavy_steps``).
             Later requests for one of its partitions wait behind it (``WaitingLine``).
    admit    Batches of transactions wait until their coordinator has verified them (``transaction_gate``). Without a
             gate they are refused.
    append   Each partition's batch is appended, or refused. A light batch is checked here. A request that names very
             many partitions is appended in turns, between which other requests are served.
    answer   acks=1 is answered when the batches are in the leader's log, acks=all when the whole ISR has them, and both
             no sooner than a sync that ``flush.messages`` asks for. acks=0 is never answered: an error breaks the
             connection, as in Kafka.

A stage either returns an event at once, or has the request wait and returns None; the part that the request waits for
then calls ``Produce._resume``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import IntEnum, auto
from functools import partial

from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.arrival import Arrival, BatchRules, Part, Stage, Topic
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.pending import PendingPart, PendingResponse
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.preparing import prepare, prepare_aside, prepare_here
from kraftcore.plugins.broker.api.record_rules import RecordRules, RecordsRefusedError
from kraftcore.plugins.broker.api.transaction_gate import Client, TransactionGate, Verified
from kraftcore.plugins.broker.api.waiting_line import WaitingLine
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, PartitionEffects, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.quotas.clients import ClientQuotas
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work import turns
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.plugins.broker.work.heavy_steps import BATCH_BYTES, COMPRESSING, DoAside, LoopRoom, do_here, others_first
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.topics import INTERNAL_TOPICS
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

_logger = logging.getLogger("kraftcore.broker")
ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
_LEADER_SINCE = 10  # version from which refusals name the leader (KIP-951)
_ABORTABLE_SINCE, _ADDS_NOTHING_SINCE = 11, 12  # versions of the two kinds of `Client` (KIP-890)
_ADMIN_CLIENT = "__admin_client"  # the client id that may write internal topics, in Kafka as well
_WITHOUT_LOG_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors of an append that Kafka answers without a log start offset (ReplicaManager.appendRecordsToLeader)."""
_Answer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


class _Event(IntEnum):
    """The outcome of a stage."""

    CAME = auto()
    REFUSED = auto()
    """The whole request is refused."""
    LIGHT = auto()
    """The request is checked while it is appended."""
    HEAVY = auto()
    DONE = auto()
    TURN_IS_OVER = auto()


_NEXT: Mapping[Stage, Mapping[_Event, Stage]] = {
    Stage.ARRIVED: {_Event.CAME: Stage.LOOK},
    Stage.LOOK: {_Event.LIGHT: Stage.ADMIT, _Event.HEAVY: Stage.PREPARE, _Event.REFUSED: Stage.APPEND},
    Stage.PREPARE: {_Event.DONE: Stage.ADMIT},
    Stage.ADMIT: {_Event.DONE: Stage.APPEND},
    Stage.APPEND: {_Event.DONE: Stage.ANSWER, _Event.TURN_IS_OVER: Stage.APPEND},
}
"""The next stage, by the present one and its outcome."""


class _UnsyncedPart(PendingPart):
    """A partition that waits for a sync: the request's time begins after the last sync, as in Kafka."""

    __slots__ = ()

    def __init__(self, pending: PendingResponse, answer: _Answer) -> None:
        super().__init__(pending, answer)
        pending.untimed += 1

    def end(self, error: ErrorCode) -> None:
        """Begin the request's time if this was the last part that waited for a sync; see ``Waiter``."""
        self._pending.untimed -= 1
        super().end(error)


class Produce:
    """Answers Produce requests.

    Args:
        replicas: the partitions of this broker.
        cache: the partitions and brokers of the cluster.
        leaders: finds leaders of partitions that other brokers lead.
        deadlines: end the wait of each request.
        max_message_bytes: gives the most bytes of a client's batch for a topic.
        now_ms: the time, milliseconds since 1970.
        permits: know whether the client may write to a topic.
        rules_of: gives a topic's rules for records.
        gate: verifies transactions with their coordinators; None: batches of transactions are refused.
        wall_ms: the wall clock, with which times of records are compared; None: ``now_ms``.
        do_aside: has a thread do work that would hold the event loop for long.
        loop_bytes: the most bytes that a batch may decompress to on the event loop.
        quotas: throttle clients; None: there are no quotas.
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
        self._stages: Mapping[Stage, Callable[[Arrival], _Event | None]] = {
            Stage.LOOK: self._look,
            Stage.PREPARE: self._prepare,
            Stage.ADMIT: self._admit,
            Stage.APPEND: self._append,
            Stage.ANSWER: self._answer,
        }

    def respond(self, request: ProduceRequest, context: RequestContext) -> None:
        """Append the batches, and answer now or later."""
        if self._quotas is not None:
            context = self._quotas.of_producer(context)
        response = ProduceResponse()
        pending = PendingResponse(response, context, self._deadlines, max(request.timeout_ms, 0))
        self._go_on(Arrival(request, context, response, pending), _Event.CAME)

    def _go_on(self, arrival: Arrival, event: _Event | None) -> None:
        """Take a request from stage to stage, until it waits or is answered."""
        try:
            while event is not None:
                arrival.stage = stage = _NEXT[arrival.stage][event]
                event = self._stages[stage](arrival)
        except BaseException:
            self._settle(arrival)
            raise

    def _resume(self, arrival: Arrival, event: _Event, error: Exception | None = None) -> None:
        """Go on with a request that waited; an error breaks its client's connection and does not reach the caller."""
        try:
            if error is not None:
                raise error
            self._go_on(arrival, event)
        except Exception:
            _logger.exception("%s cannot be answered", arrival.context.asker.peer)
            arrival.context.close()

    # --- look ---------------------------------------------------------------------------------------------------------

    def _look(self, arrival: Arrival) -> _Event:
        is_compressed = arrival.read(self._cache.names)
        if arrival.refusal is not ErrorCode.NONE:
            return _Event.REFUSED
        if is_compressed or arrival.size > self._short_bytes or self._line:
            return _Event.HEAVY
        return _Event.LIGHT

    # --- prepare ------------------------------------------------------------------------------------------------------

    def _prepare(self, arrival: Arrival) -> _Event | None:
        """Prepare the batches here or in a thread, behind requests that wait for one of their partitions."""
        topic, may_write, names = None, False, []
        for part in arrival.parts:
            if part.name is None:
                continue
            if part.topic is not topic:
                topic, may_write = part.topic, self._may_write(arrival, part.name.topic)
            replica = self._replicas.all.get(part.name)
            if may_write and part.refusal is None and replica is not None and replica.partition.leading is not None:
                part.rules = self._rules(part.name, replica.partition)
            names.append(part.name)
        wall_ms = self._wall_ms()
        if not self._line.is_before(names) and prepare_here(arrival.parts, wall_ms, LoopRoom(self._loop_bytes)):
            return _Event.DONE
        if self._line.has_room(arrival.size):
            arrival.context.wait()  # later requests of its connection may depend on it
            work = partial(prepare_aside, arrival.parts, wall_ms)
            self._line.wait(names, arrival.size, work, partial(self._prepared, arrival))
        else:
            arrival.context.close()  # the producer then repeats its requests in order
        return None

    def _prepared(self, arrival: Arrival, error: Exception | None) -> None:
        """Go on after a thread has prepared the batches, or has raised an unexpected error."""
        self._resume(arrival, _Event.DONE, error)

    def _rules(self, name: TopicPartition, partition: Partition) -> BatchRules:
        segment_bytes, rules = partition.log.config.segment_bytes, self._rules_of(name.topic)
        return BatchRules(self._max_message_bytes(name.topic), segment_bytes, rules, self._gate is not None)

    # --- admit --------------------------------------------------------------------------------------------------------

    def _admit(self, arrival: Arrival) -> _Event | None:
        """Have batches of a transaction wait until its coordinator has verified them."""
        request, context = arrival.request, arrival.context
        if self._gate is None or request.transactional_id is None:
            return _Event.DONE
        batches = {
            part.name: part.header
            for part in arrival.parts
            if part.name is not None and part.header is not None and part.header.is_transactional
        }
        if not batches:
            return _Event.DONE
        action = Action(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if not self._permits.asker(request, context)(action):
            arrival.refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _Event.DONE
        topics = {topic for topic in {name.topic for name in batches} if self._may_write(arrival, topic)}
        batches = {name: batch for name, batch in batches.items() if name.topic in topics}  # no other is added
        then = partial(self._admitted, arrival)
        self._gate.admit(request.transactional_id, batches, _client(context.version), then, arrival.size)
        return None

    def _admitted(self, arrival: Arrival, refusals: Mapping[TopicPartition, ErrorCode], verified: Verified) -> None:
        arrival.refusals, arrival.verified = refusals, verified
        self._resume(arrival, _Event.DONE)

    def _may_write(self, arrival: Arrival, topic: str) -> bool:
        request, context = arrival.request, arrival.context
        if not self._permits.is_open and not self._permits.may(
            request, context, Operation.WRITE, topic, is_logged=False
        ):
            return False
        return topic not in INTERNAL_TOPICS or context.client_id == _ADMIN_CLIENT

    # --- append -------------------------------------------------------------------------------------------------------

    def _append(self, arrival: Arrival) -> _Event | None:
        """Append the batches, as many as a turn takes."""
        first, arrival.next = arrival.next, arrival.next + turns.ITEMS
        if first:
            topic = arrival.parts[first].topic
            if topic.refusal is ErrorCode.NONE and self._is_unknown(topic):  # deleted since it was read
                topic.refusal = ErrorCode.UNKNOWN_TOPIC_ID
        for part in arrival.parts[first : arrival.next]:
            topic = part.topic
            if topic.refusal is None:
                topic.refusal = self._topic_refusal(arrival, topic)
            answer = _Answer(index=part.index, base_offset=-1)
            topic.answer.partition_responses.append(answer)
            if part.name is None or topic.refusal is not ErrorCode.NONE:
                _fail(answer, topic.refusal)
            else:
                self._append_or_refuse(arrival, part, part.name, answer)
            arrival.has_failed |= answer.error_code != ErrorCode.NONE
        self._tell(arrival)
        if arrival.next >= len(arrival.parts):
            return _Event.DONE
        if not first:
            arrival.context.wait()  # later requests of its connection come after it
        self._do_aside(others_first, partial(self._resume, arrival, _Event.TURN_IS_OVER))
        return None

    def _topic_refusal(self, arrival: Arrival, topic: Topic) -> ErrorCode:
        """The error of all partitions of a topic, or NONE."""
        if arrival.refusal is not ErrorCode.NONE:
            return arrival.refusal
        request, context, name = arrival.request, arrival.context, topic.name
        if name is None or self._is_unknown(topic):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._permits.is_open and not self._permits.may(request, context, Operation.WRITE, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE

    def _is_unknown(self, topic: Topic) -> bool:
        return topic.id is not None and topic.id not in self._cache.names

    def _append_or_refuse(self, arrival: Arrival, part: Part, name: TopicPartition, answer: _Answer) -> None:
        """Append a partition's batch, or put the reason why not into its answer."""
        is_read = False
        try:
            if name in arrival.refusals:
                raise refused(arrival.refusals[name], "the partition is not in the producer's transaction")
            self._replicas.check_announced(name)
            if part.refusal is not None:
                raise part.refusal
            acks = arrival.request.acks
            if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                raise refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: it must be -1, 0 or 1")
            is_read = True
            arrival.appended.append((name, self._append_part(arrival, part, name, answer)))
        except KraftError as error:
            self._tell_why(name, error, answer, is_read=is_read)
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and arrival.context.version >= _LEADER_SINCE:
                self._tell_leader(name, answer, arrival)

    def _append_part(self, arrival: Arrival, part: Part, name: TopicPartition, answer: _Answer) -> PartitionEffects:
        acks, guard = arrival.request.acks, arrival.verified.get(name)
        partition = self._replicas.find(name)
        partition.check(-1)
        if guard is not None and guard.leader_epoch != partition.leader_epoch:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} was led in another epoch when it was verified")
        verified = None if guard is None or guard.is_void else guard.producer
        prepared = part.outcome
        if prepared is None:
            prepared = prepare(part.records, part.header, self._rules(name, partition), name, self._wall_ms())
        if isinstance(prepared, KraftError):
            raise prepared
        waits = acks == ACKS_ALL
        waiter = arrival.pending.part(answer) if waits else None
        try:
            base, effects = partition.append(
                prepared.batch, self._now_ms(), waiter=waiter, needs_isr=waits, verified=verified
            )
        except KraftError:
            if waiter is not None:
                waiter.end(ErrorCode.NONE)  # the partition did not take the waiter
            raise
        if guard is not None and self._gate is not None:
            self._gate.appended(name, guard.producer[0])
        if acks != ACKS_NONE and partition.owes_sync:
            partition.wait_synced(_UnsyncedPart(arrival.pending, answer))
        answer.base_offset = base
        if effects.repeated_ms is not None:
            answer.log_append_time_ms = effects.repeated_ms
        else:
            answer.log_append_time_ms = prepared.append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        return effects

    def _tell_why(self, name: TopicPartition, error: KraftError, answer: _Answer, *, is_read: bool) -> None:
        """Put the error of an append into its answer, with the log start offset if the batch could be read."""
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

    def _tell_leader(self, name: TopicPartition, answer: _Answer, arrival: Arrival) -> None:
        leader, response = self._leaders.of(name, arrival.context.asker.listener), arrival.response
        answer.current_leader = _Answer.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        if leader.address is not None and all(each.node_id != leader.id for each in response.node_endpoints):
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(
                    node_id=leader.id, host=leader.address.host, port=leader.address.port, rack=leader.rack
                )
            )

    def _tell(self, arrival: Arrival) -> None:
        """Announce all appends together, so that a waiting follower gets all partitions' records in one answer."""
        told, arrival.appended = arrival.appended, []
        self._replicas.carry_out_all(told)

    # --- answer -------------------------------------------------------------------------------------------------------

    def _answer(self, arrival: Arrival) -> None:
        if arrival.request.acks != ACKS_NONE:
            arrival.pending.complete()
        elif arrival.has_failed:
            arrival.context.close()
        else:
            arrival.context.answer_nothing()
        self._settle(arrival)

    def _settle(self, arrival: Arrival) -> None:
        """End the appending: release the verifications, which markers could void until now."""
        if arrival.appended:
            self._tell(arrival)
        if self._gate is not None:
            self._gate.release(arrival.verified)


def _client(version: int) -> Client:
    if version >= _ADDS_NOTHING_SINCE:
        return Client.ADDS_NOTHING
    return Client.KNOWS_ABORTABLE if version >= _ABORTABLE_SINCE else Client.OLD


def _fail(answer: _Answer, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = answer.log_start_offset = -1

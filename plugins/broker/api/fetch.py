"""Fetch: the answer has record batches as they are on disk, at once or when there are enough of them.

Consumers read up to the high watermark, from followers as well (KIP-392). Consumers with ``read_committed`` read up to
the last stable offset, and are told which transactions were aborted. Followers read up to the log end offset; the
offset that a follower asks for tells the leader its log end offset. A request with too little to read waits until there
is more, its time has passed, or the role or epoch of one of its partitions changes. If too many requests wait, the one
that has waited longest is answered. Within a session (``fetch_sessions``) requests and answers hold only changes.
Source: Kafka 3.9.1 and 4.3.1, KafkaApis, ReplicaManager, DelayedFetch; KIP-516, KIP-595.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import randrange
from typing import Any, TypeVar

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import ZERO_UUID
from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.fetch_sessions import (
    AskedPartition,
    FetchContext,
    FetchSession,
    FetchSessions,
    Reader,
)
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, TopicPartition, View
from kraftcore.plugins.broker.partition.state import NO_EPOCH, refused
from kraftcore.plugins.broker.quotas.clients import ClientQuotas
from kraftcore.plugins.broker.quotas.rates import QuotaWindow
from kraftcore.plugins.broker.quotas.replication import ReplicationQuota
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.deadlines import Deadline, Deadlines
from kraftcore.plugins.broker.work.turns import InTurns, Turn, at_once, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.security.acl import Operation

_REPLICA_STATE = 15
_FROM_FOLLOWERS = 11  # version from which consumers may read from followers
_LEADER_SINCE = 16  # version from which refusals name the leader (KIP-951)
_ASK_ELSEWHERE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
_STORAGE_ERROR_SINCE = 6  # older clients do not know KAFKA_STORAGE_ERROR
_READ_COMMITTED = 1
ANSWER_BYTES = 4 * 1024**2
"""The most bytes of records in an answer, unless its first batch is longer: other clients are served in between."""
WAITING_MAX = 500_000
"""The most partitions that waiting requests keep in memory; partitions of sessions are not counted."""
_OF_A_REQUEST, _LETTERS = 4, 256  # a request, and so many letters of its texts, count as partitions
_Topic = FetchResponse.FetchableTopicResponse
_Data = _Topic.PartitionData
_Key = TypeVar("_Key")


@dataclass(slots=True)
class _Result:
    """The partitions that were read for a request.

    Attributes:
        read: each partition that was read, in order, and the answer for it.
        size: bytes of records.
        is_urgent: the request is answered at once: a partition has an error, a diverging epoch or a nearer replica.
    """

    read: list[tuple[AskedPartition, _Data]]
    size: int = 0
    is_urgent: bool = False


class _HeldFetch:
    """A request until it is answered.

    Attributes:
        is_watching: whether the request is found by its partitions when one of them changes.
        has_changed: whether a partition changed before the request began to wait.
    """

    __slots__ = (
        "broker_epoch",
        "context",
        "deadline",
        "denied",
        "ends",
        "fetch_context",
        "has_changed",
        "is_over",
        "is_watching",
        "max_bytes",
        "may_rest",
        "min_bytes",
        "rack",
        "replica_id",
        "size",
        "sizes",
        "view",
        "weight",
    )

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        replica_id: int,
        fetch_context: FetchContext,
        max_bytes: int,
    ) -> None:
        self.rack = request.rack_id
        self.context = context
        self.fetch_context = fetch_context
        self.denied: set[TopicPartition] = set()
        self.replica_id = replica_id
        self.view = View.CONSUMER
        if replica_id >= 0:
            self.view = View.REPLICA
        elif request.isolation_level == _READ_COMMITTED:
            self.view = View.COMMITTED
        self.broker_epoch = request.replica_state.replica_epoch if context.version >= _REPLICA_STATE else -1
        letters = len(request.rack_id) + len(context.client_id or "")
        self.weight = _OF_A_REQUEST + len(fetch_context.named) + letters // _LETTERS
        self.deadline: Deadline | None = None
        self.is_over = self.is_watching = self.has_changed = False
        # A replica in the consumer's rack may catch up without a change of the partition here.
        self.may_rest = fetch_context.session is not None and (replica_id >= 0 or not request.rack_id)
        self.max_bytes = min(request.max_bytes, max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)  # an answer never has more
        # By partition, the bytes that can be read, and the offset up to which they were counted; and the sum of the
        # bytes. A partition at rest has 0 bytes, counted up to the fetch offset.
        self.sizes: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.size = 0

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0

    @property
    def names(self) -> set[TopicPartition]:
        """The partitions of the request whose topics are known."""
        return {each.name for each in self.fetch_context.asked if each.name is not None}


class Fetch:
    """Answers Fetch requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: the partitions and brokers of the cluster.
        leaders: finds leaders of partitions that other brokers lead.
        deadlines: end the wait of each request.
        permits: consumers must be allowed to read a topic, brokers to act for the cluster.
        max_bytes: the most bytes of records in an answer (``fetch.max.bytes``).
        now_ms: the time, milliseconds since 1970.
        session_slots: the most fetch sessions (``max.incremental.fetch.session.cache.slots``).
        randrange: draws the ids of sessions.
        is_rack_aware: whether consumers are sent to a replica in their rack (``replica.selector.class``).
        quotas: throttle consumers; None: there are no quotas.
        replication: throttles followers outside the ISR (KIP-73); None: there are no throttles.

    Attributes:
        sessions: the fetch sessions of clients and followers.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        leaders: Leaders,
        deadlines: Deadlines,
        permits: Permits,
        max_bytes: int,
        now_ms: Callable[[], int],
        *,
        session_slots: int,
        randrange: Callable[[int, int], int] = randrange,
        is_rack_aware: bool = False,
        quotas: ClientQuotas | None = None,
        replication: ReplicationQuota | None = None,
    ) -> None:
        self._quotas = quotas
        self._replication = ReplicationQuota(QuotaWindow(), now_ms) if replication is None else replication
        self._replicas = replicas
        self._cache = cache
        self._leaders = leaders
        self._deadlines = deadlines
        self.sessions = FetchSessions(
            session_slots, lambda topic_id: cache.names.get(topic_id), now_ms, randrange, self._session_ended
        )
        self._permits = permits
        self._is_rack_aware = is_rack_aware
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._waiting: dict[TopicPartition, dict[_HeldFetch, AskedPartition]] = {}  # of no session
        self._waiting_in: dict[FetchSession, dict[_HeldFetch, None]] = {}
        self._held: dict[_HeldFetch, None] = {}  # all requests that wait, in the order in which they came
        self._weight = 0
        replicas.watch(self._partitions_changed)

    @in_turns
    def respond(self, request: FetchRequest, context: RequestContext) -> InTurns[FetchResponse | None]:
        """Read the partitions; answer at once, or let the request wait."""
        turn = Turn()
        fetch_context = yield from self.sessions.context(request, context.version, turn)
        if fetch_context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=fetch_context.error)
        by_state = context.version >= _REPLICA_STATE
        replica_id = request.replica_state.replica_id if by_state else request.replica_id
        max_bytes = min(self._max_bytes, ANSWER_BYTES)
        if self._quotas is not None and replica_id < 0:
            max_bytes = self._quotas.fetch_max_bytes(context, max_bytes)
        waiting = _HeldFetch(request, context, replica_id, fetch_context, max_bytes)
        if fetch_context.session is not None:
            self._end_earlier(fetch_context.session)
        try:
            waiting.denied = yield from self._denied(waiting, request, turn)
            session = fetch_context.session
            if session is not None:
                reads_all = bool(waiting.denied)
                reader = Reader(waiting.view, replica_id, waiting.broker_epoch)
                session.begin_read(reader, reads_all=reads_all)
            found = yield from self._reading(waiting, turn)
            if waiting.is_replica:
                yield from self._note_progress(waiting, found, turn)
            if request.max_wait_ms <= 0 or not fetch_context.asked or self._is_enough(waiting, found):
                return self._answer(waiting, found)
            if waiting.has_changed or not self.sessions.is_current(fetch_context):
                return self._answer(waiting, found)
            self._hold(waiting, found, request.max_wait_ms)
            return None
        finally:
            if waiting not in self._held:
                self._unwatch(waiting)

    def _denied(self, waiting: _HeldFetch, request: FetchRequest, turn: Turn) -> InTurns[set[TopicPartition]]:
        permits, context = self._permits, waiting.context
        if permits.is_open:
            return set()
        if waiting.is_replica:
            return set() if permits.may_cluster(request, context, Operation.CLUSTER_ACTION) else waiting.names
        names, topics = waiting.names, set()
        for topic in {name.topic for name in names}:
            if not permits.may(request, context, Operation.READ, topic):
                topics.add(topic)
            if turn.is_over():
                yield
        return {name for name in names if name.topic in topics}

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, waiting: _HeldFetch) -> _Result:
        """Read the partitions of a request that waited, in one call."""
        return at_once(self._reading(waiting, Turn()))

    def _reading(self, waiting: _HeldFetch, turn: Turn) -> InTurns[_Result]:
        result = _Result([])
        left = waiting.max_bytes
        to_read = waiting.fetch_context.to_read()
        last = to_read[-1] if to_read else None
        is_exceeded = self._replication.is_set and waiting.is_replica and self._replication.is_exceeded
        for asked in to_read:
            if turn.is_over():
                self._watch(waiting)
                yield
            data = _nothing_of(asked)
            result.read.append((asked, data))
            refusal = self._refusal(waiting, asked)
            if asked.name is None or refusal is not ErrorCode.NONE:
                data.error_code = refusal
                result.is_urgent = True
                continue
            data.aborted_transactions = None  # only a refused partition has an empty list here
            try:
                room, at_least_one = left, result.size == 0
                if is_exceeded and self._throttles(waiting, asked.name):
                    room, at_least_one = 0, False
                self._read_partition(waiting, asked, asked.name, data, room, at_least_one=at_least_one)
                if data.diverging_epoch.end_offset >= 0 or data.preferred_read_replica >= 0:
                    result.is_urgent = True
            except KraftError as error:
                data.error_code = self._code_of(waiting, asked.name, error)
                data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
                data.aborted_transactions = None
                result.is_urgent = True
            else:
                if data.records:
                    result.size += len(data.records)
                    if asked is not last:
                        left = max(left - self._counted(waiting, asked, asked.name, len(data.records), left), 0)
                elif not waiting.is_replica:
                    self._note_rest(waiting, asked, data, self._replicas.find(asked.name))
        return result

    def _throttles(self, waiting: _HeldFetch, name: TopicPartition) -> bool:
        """Whether a follower is throttled in a partition: its replica is throttled and is not in the ISR."""
        replica = self._replicas.all.get(name)
        leading = None if replica is None else replica.partition.leading
        is_behind = leading is not None and waiting.replica_id not in leading.isr.committed
        return is_behind and self._replication.throttles(name)

    def _holds_back(self, waiting: _HeldFetch, name: TopicPartition) -> bool:
        """Whether the asker is a follower that gets no records of a partition now, for its quota is exceeded."""
        return waiting.is_replica and self._throttles(waiting, name) and self._replication.is_exceeded

    def _note_rest(self, waiting: _HeldFetch, asked: AskedPartition, data: _Data, partition: Partition) -> None:
        """Put a partition of which nothing was read to rest in its session, unless only the answer was full.

        A follower's partition rests only if the follower is in the ISR and all records are committed: else the
        follower's next request may change the high watermark.
        """
        session, offset = waiting.fetch_context.session, asked.fields.fetch_offset
        if session is None or not waiting.may_rest or asked.is_news(data):
            return
        now = partition.high_watermark, partition.log.log_start_offset
        if now != (data.high_watermark, data.log_start_offset):  # it has changed since the turn that read it
            return
        if waiting.is_replica:
            is_at_rest = partition.is_at_rest_for(waiting.replica_id)
        else:
            is_at_rest = partition.readable_end(waiting.view) == offset
        if is_at_rest:
            session.rest(asked)

    def _counted(self, waiting: _HeldFetch, asked: AskedPartition, name: TopicPartition, size: int, left: int) -> int:
        """Bytes that a partition uses of the answer's limit: its own limit if its segment has more records.

        Answers of Kafka's brokers end in the middle of a batch there (LogSegment.read), those of this broker with the
        last whole one.
        """
        limit = min(asked.fields.partition_max_bytes, left)
        if size >= limit:
            return size
        partition, offset = self._replicas.find(name), asked.fields.fetch_offset
        end = partition.readable_end(waiting.view)
        try:
            known = partition.log.bytes_in_memory(offset, end)
            if known is None:
                known = partition.log.segment_at(offset).span(offset, end)
        except KraftError:  # the read that gets there reports the error
            known = limit
        return max(size, min(known, limit))

    def _read_partition(
        self,
        waiting: _HeldFetch,
        asked: AskedPartition,
        name: TopicPartition,
        data: _Data,
        left: int,
        *,
        at_least_one: bool,
    ) -> None:
        fields = asked.fields
        partition = self._replicas.find(name) if waiting.is_replica else self._replicas.announced(name)
        self._check_id(asked, name)
        asked.role = _role(partition)
        may_follow = not waiting.is_replica and waiting.context.version >= _FROM_FOLLOWERS
        partition.check(max(fields.current_leader_epoch, NO_EPOCH), needs_leader=not may_follow)
        if waiting.is_replica:
            partition.check_replica(waiting.replica_id, has_epoch=fields.current_leader_epoch >= 0)
        elif waiting.view is View.COMMITTED:
            data.aborted_transactions = []
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = partition.log.log_start_offset
        if fields.last_fetched_epoch >= 0:
            diverging = partition.divergence(fields.last_fetched_epoch, fields.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = _Data.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
                return
        if may_follow and self._is_rack_aware and self._prefer(waiting, partition, fields.fetch_offset, data):
            return
        records = partition.read(
            fields.fetch_offset,
            max(min(fields.partition_max_bytes, left), 0),
            waiting.view,
            at_least_one=at_least_one,
        )
        data.records = records
        if waiting.view is View.COMMITTED:
            data.aborted_transactions = [
                _Data.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in partition.aborted_within(fields.fetch_offset, records)
            ]

    def _check_id(self, asked: AskedPartition, name: TopicPartition) -> None:
        log_id = self._replicas.topic_id(name)
        if asked.topic_id != ZERO_UUID and log_id is not None and log_id != asked.topic_id:
            raise refused(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} has topic id {log_id}")

    def _prefer(self, waiting: _HeldFetch, partition: Partition, offset: int, data: _Data) -> bool:
        """Whether the leader sends a consumer to a replica in its rack (KIP-392); a follower never does."""
        rack, listener = waiting.rack, waiting.context.asker.listener
        if not rack or partition.leading is None:
            return False
        here = {broker.id for broker, _ in self._cache.brokers_on(listener) if broker.rack == rack}
        found = partition.nearest_replica(here, offset)
        if found is None:
            return False
        data.preferred_read_replica = found
        return True

    def _refusal(self, waiting: _HeldFetch, asked: AskedPartition) -> ErrorCode:
        """The error of a partition that can be told without its replica; NONE if there is none."""
        name = asked.name
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if name in waiting.denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not self._cache.knows(*name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _code_of(self, waiting: _HeldFetch, name: TopicPartition, error: KraftError) -> ErrorCode:
        code = code_of(self._replicas, name, error)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and waiting.context.version < _STORAGE_ERROR_SINCE:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    def _note_progress(self, waiting: _HeldFetch, found: _Result, turn: Turn) -> InTurns[None]:
        """Note each follower's fetch offset as its log end offset; this comes after the read, as in Kafka."""
        now_ms = self._now_ms()
        for place, (asked, data) in enumerate(found.read):
            if asked.name is None or data.error_code != ErrorCode.NONE or data.diverging_epoch.end_offset >= 0:
                continue
            if turn.is_over():
                self._watch(waiting)
                yield
            fields = asked.fields
            try:
                partition = self._replicas.find(asked.name)
                if turn.is_later:  # the epoch or topic may be another since the read
                    self._check_id(asked, asked.name)
                    partition.check(max(fields.current_leader_epoch, NO_EPOCH))
                effects = partition.fetched(
                    waiting.replica_id, fields.fetch_offset, now_ms, waiting.broker_epoch, fields.log_start_offset
                )
            except KraftError as error:
                refused_data = _nothing_of(asked)
                refused_data.error_code = self._code_of(waiting, asked.name, error)
                found.read[place] = asked, refused_data
                found.is_urgent = True
            else:
                self._note_rest(waiting, asked, data, partition)
                self._replicas.carry_out(asked.name, effects)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _partitions_changed(self, names: Collection[TopicPartition]) -> None:
        """Look at the requests that wait for partitions with more records, or with another role or epoch.

        All partitions are noted before the first answer, so that an answer has the new records of each.
        """
        found: list[tuple[TopicPartition, AskedPartition, FetchSession]] = []
        for name in names:
            for asked, session in self.sessions.asking_for(name):
                found.append((name, asked, session))
                if session.move(asked) and session.reader is not None:
                    reader, replica = session.reader, self._replicas.all.get(name)
                    leading = None if replica is None else replica.partition.leading
                    if leading is not None:
                        leading.had_all(reader.replica_id, reader.broker_epoch, session.used_ms)
        for name, asked, session in found:
            for waiting in list(self._waiting_in.get(session, ())):
                self._look(waiting, asked, name)
        for name in names:
            for waiting, asked in list(self._waiting.get(name, {}).items()):
                self._look(waiting, asked, name)

    def _look(self, waiting: _HeldFetch, asked: AskedPartition, name: TopicPartition) -> None:
        """Answer a waiting request after a change of one of its partitions, if it has enough now."""
        if waiting not in self._held:
            waiting.has_changed = True  # it is still being read, or answered
        elif not self._has_too_little(waiting, asked, name):
            found = self._read(waiting)
            if self._is_enough(waiting, found):
                self._finish(waiting, found)
            else:
                self._note_sizes(waiting, found)

    def _watch(self, waiting: _HeldFetch) -> None:
        """Have `partitions_changed` find a request by its partitions or its session."""
        if waiting.is_watching:
            return
        waiting.is_watching = True
        session = waiting.fetch_context.session
        if session is not None:
            self._waiting_in.setdefault(session, {})[waiting] = None
            return
        for asked in waiting.fetch_context.named:
            if asked.name is not None:
                self._waiting.setdefault(asked.name, {})[waiting] = asked

    def _unwatch(self, waiting: _HeldFetch) -> None:
        if not waiting.is_watching:
            return
        waiting.is_watching = False
        session = waiting.fetch_context.session
        if session is not None:
            _drop(self._waiting_in, session, waiting)
            return
        for asked in waiting.fetch_context.named:
            if asked.name is not None:
                _drop(self._waiting, asked.name, waiting)

    def _hold(self, waiting: _HeldFetch, found: _Result, wait_ms: int) -> None:
        waiting.deadline = self._deadlines.after(wait_ms, lambda: self._complete(waiting))
        self._watch(waiting)
        self._note_sizes(waiting, found)
        self._held[waiting] = None
        self._weight += waiting.weight
        while self._weight > WAITING_MAX:
            self._complete(next(iter(self._held)))

    def _end_earlier(self, session: FetchSession) -> None:
        """Answer the waiting request of a session whose next request came, with no partitions."""
        for waiting in list(self._waiting_in.get(session, ())):
            if waiting in self._held:
                self._finish(waiting, _Result([]))

    def _session_ended(self, session: FetchSession) -> None:
        """Answer the waiting requests of a session that ended: changes do not reach them any more."""
        for waiting in list(self._waiting_in.get(session, ())):
            if waiting in self._held:  # else the request notices when it is read
                self._complete(waiting)

    def _note_sizes(self, waiting: _HeldFetch, found: _Result) -> None:
        if waiting.min_bytes <= 1:
            return  # any record is enough
        # The request was not enough, so all that can be read was read.
        waiting.size = found.size
        for asked, data in found.read:
            replica = None if asked.name is None else self._replicas.all.get(asked.name)
            if asked.name is not None and replica is not None:
                waiting.sizes[asked.name] = len(data.records or b"")
                end = replica.partition.readable_end(waiting.view)
                if self._replication.is_set and self._holds_back(waiting, asked.name):
                    end = 0  # its records count once the throttle allows them
                waiting.ends[asked.name] = max(end, asked.fields.fetch_offset)

    def _is_enough(self, waiting: _HeldFetch, found: _Result) -> bool:
        if found.is_urgent or found.size >= waiting.min_bytes:
            return True
        if found.size == 0:
            return False
        # A read ends at a segment's end, or at the limit: if there are more records, the request need not wait.
        for asked, data in found.read:
            if asked.name is not None:
                replica = self._replicas.all.get(asked.name)
                if replica is None:
                    return True  # deleted between two turns
                end = replica.partition.readable_end(waiting.view)
                read_up_to = asked.fields.fetch_offset
                if data.records:
                    *_, last = iter_batches(data.records, verify=False)
                    read_up_to = last.next_offset
                if read_up_to < end and not (self._replication.is_set and self._holds_back(waiting, asked.name)):
                    return True
        return False

    def _has_too_little(self, waiting: _HeldFetch, asked: AskedPartition, name: TopicPartition) -> bool:
        """Whether a partition's change is not enough for an answer, found without reading records."""
        replica = self._replicas.all.get(name)
        if replica is None:
            return False
        partition, fields = replica.partition, asked.fields
        if asked.role != _role(partition):
            return False
        if self._replication.is_set and self._holds_back(waiting, name):
            return True
        end = partition.readable_end(waiting.view)
        if waiting.min_bytes <= 1:
            return fields.fetch_offset == end
        counted = waiting.ends.get(name, fields.fetch_offset)
        log = partition.log
        if partition.is_changing:
            return False
        if not log.log_start_offset <= fields.fetch_offset <= log.log_end_offset:
            return False
        if end < counted:
            return not waiting.sizes.get(name)  # the fetch offset is not readable yet; else the log was cut
        try:
            added = log.bytes_in_memory(counted, end)
            if added is None:
                segment = log.segment_at(counted)
                if segment.next_offset < end:
                    return False
                added = segment.span(counted, end)
        except KraftError:  # the read reports the error
            return False
        waiting.size += added
        waiting.sizes[name] = size = waiting.sizes.get(name, 0) + added
        waiting.ends[name] = end
        return waiting.size < waiting.min_bytes and size <= fields.partition_max_bytes

    def _complete(self, waiting: _HeldFetch) -> None:
        self._finish(waiting, self._read(waiting))

    def _finish(self, waiting: _HeldFetch, found: _Result) -> None:
        if waiting.is_over:  # a partition went offline in the read, which answered this request
            return
        waiting.is_over = True
        if waiting in self._held:
            del self._held[waiting]
            self._weight -= waiting.weight
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        self._unwatch(waiting)
        waiting.context.answer(self._answer(waiting, found))

    def _answer(self, waiting: _HeldFetch, found: _Result) -> FetchResponse:
        fetch_context, version = waiting.fetch_context, waiting.context.version
        if self._quotas is not None and not waiting.is_replica:
            throttle_ms = self._quotas.fetch(waiting.context, found.size)
            if throttle_ms:
                error, session_id = self.sessions.skip(fetch_context)
                return FetchResponse(error_code=error, session_id=session_id, throttle_time_ms=throttle_ms)
        error, session_id, told = self.sessions.finish(
            fetch_context, found.read, version, is_of_follower=waiting.is_replica
        )
        if self._replication.is_set and waiting.is_replica:
            self._count(told)
        response = FetchResponse(error_code=error, session_id=session_id)
        nodes: dict[int, FetchResponse.NodeEndpoint] = {}
        tells_leader = version >= _LEADER_SINCE
        topic: _Topic | None = None
        for asked, data in told:
            if topic is None or (topic.topic, topic.topic_id) != (asked.topic, asked.topic_id):
                topic = _Topic(topic=asked.topic, topic_id=asked.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if tells_leader and data.error_code in _ASK_ELSEWHERE and asked.name is not None:
                leader = self._leaders.of(asked.name, waiting.context.asker.listener)
                data.current_leader = _Data.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
                if leader.address is not None and not waiting.is_replica:
                    nodes[leader.id] = FetchResponse.NodeEndpoint(
                        node_id=leader.id, host=leader.address.host, port=leader.address.port, rack=leader.rack
                    )
        response.node_endpoints = list(nodes.values())
        return response

    def _count(self, told: Sequence[tuple[AskedPartition, _Data]]) -> None:
        """Count the records of throttled partitions that a follower is sent, in the ISR or not."""
        quota = self._replication
        sizes = (
            len(data.records)
            for asked, data in told
            if data.records and asked.name is not None and quota.throttles(asked.name)
        )
        quota.record(sum(sizes))


def _nothing_of(asked: AskedPartition) -> _Data:
    return _Data(partition_index=asked.fields.partition, high_watermark=-1, records=b"")


def _drop(waiting: dict[_Key, dict[_HeldFetch, Any]], key: _Key, one: _HeldFetch) -> None:
    others = waiting.get(key)
    if others is not None:  # a request may name a partition by two ids, one of a deleted topic
        others.pop(one, None)
        if not others:
            del waiting[key]


def _role(partition: Partition) -> tuple[int, bool]:
    return partition.leader_epoch, partition.leading is not None

"""Fetch sessions (KIP-227): the broker keeps the partitions that a client fetches, and requests name only changes.

An answer within a session leaves out partitions without news. A partition is at rest if nothing could be read last time
and nothing has changed since; a request reads it only after a change, and twice a second. Sessions have random ids, and
their requests have consecutive epochs; a client that sends another epoch is refused, and begins a new session. The
number of sessions is bounded. A session gives way to a new one if it was not used for two minutes, if it is a
consumer's and the new one a follower's, or if it is older than two minutes and the new one has more partitions.
Source: Kafka 4.3.1, FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.plugins.broker.partition import TopicPartition, View
from kraftcore.plugins.broker.work.turns import InTurns, Turn
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse

NO_SESSION = 0
EVICTION_MS = 120_000
REST_MS = 500
"""Partitions at rest are read again so often, as answers may change without ``Fetch.partitions_changed``."""
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_EPOCH_MAX = _ID_MAX = 2**31 - 1
_BY_ID = 13  # version of Fetch from which topics are named by id

FetchPartition = FetchRequest.FetchTopic.FetchPartition
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
_Key: TypeAlias = tuple[str | Uuid, int]
_PLACE = attrgetter("place")


@dataclass(slots=True, eq=False)
class AskedPartition:
    """A partition that a client asks for.

    Attributes:
        topic: the topic's name in the request; empty if the request names topics by id.
        topic_id: the topic's id in the request; zero if the request names topics by name.
        name: topic and number; None if the broker does not know the topic's id.
        fields: the partition's part of the request.
        told_high_watermark: the high watermark last answered in the session; -1: none.
        told_log_start: the log start offset last answered in the session; -1: none.
        place: the partition's place in the order in which the session's partitions are read.
        role: the leader epoch, and whether this broker led, when the partition was read last.
    """

    topic: str
    topic_id: Uuid
    name: TopicPartition | None
    fields: FetchPartition
    told_high_watermark: int = -1
    told_log_start: int = -1
    place: int = 0
    role: tuple[int, bool] | None = None

    def is_news(self, data: PartitionData) -> bool:
        """Whether an answer about the partition has news for this session."""
        return bool(
            data.records
            or data.error_code != ErrorCode.NONE
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start
            or data.diverging_epoch.end_offset >= 0
            or data.preferred_read_replica >= 0
        )

    def told(self, data: PartitionData) -> None:
        """Note an answer; after an error or a diverging epoch the next answer tells the high watermark again."""
        has_failed = data.error_code != ErrorCode.NONE or data.diverging_epoch.end_offset >= 0
        self.told_high_watermark = -1 if has_failed else data.high_watermark
        self.told_log_start = data.log_start_offset


class Reader(NamedTuple):
    """The client that a request is read for.

    Attributes:
        view: up to where the client may read a log.
        replica_id: the follower's broker id; below 0: the client is a consumer.
        broker_epoch: the follower's broker epoch; -1: the request does not say.
    """

    view: View
    replica_id: int
    broker_epoch: int


@dataclass(slots=True, eq=False)
class FetchSession:
    """A fetch session of one client.

    Attributes:
        id: the session's id, > 0.
        is_of_follower: whether a follower fetches in the session.
        by_id: whether requests of the session name topics by id.
        created_ms: when the session began, milliseconds since 1970.
        partitions: the partitions of the session, those that were answered least recently first.
        moving: the partitions that are not at rest.
        is_in_order: whether ``moving`` has the order of ``partitions``.
        last_place: the place of the last of ``partitions``.
        epoch: the epoch of the session's next request.
        used_ms: when the last request came.
        reader: the client of the last request; None: no request has come since the session began.
        read_ms: when all partitions were read last, those at rest as well.
    """

    id: int
    is_of_follower: bool
    by_id: bool
    created_ms: int
    partitions: dict[_Key, AskedPartition] = field(default_factory=dict)
    moving: dict[AskedPartition, None] = field(default_factory=dict)
    is_in_order: bool = True
    last_place: int = 0
    epoch: int = 1
    used_ms: int = 0
    reader: Reader | None = None
    read_ms: int = 0

    def begin_read(self, reader: Reader, *, reads_all: bool) -> None:
        """Begin to read a request: all partitions, if that was not done for ``REST_MS`` or another reader asks."""
        if reads_all or reader != self.reader or not 0 <= self.used_ms - self.read_ms < REST_MS:
            self.reader = reader
            self.read_ms = self.used_ms
            self._move_only(self.partitions.values())

    def to_read(self) -> list[AskedPartition]:
        """The partitions that are not at rest, those that were answered least recently first."""
        if not self.is_in_order:
            self._move_only(sorted(self.moving, key=_PLACE))
        return list(self.moving)

    def _move_only(self, in_order: Iterable[AskedPartition]) -> None:
        self.moving = dict.fromkeys(in_order)
        self.is_in_order = True

    def add(self, asked: AskedPartition) -> AskedPartition:
        """Add a partition that is asked for, and return the session's own object of it."""
        known = self.partitions.setdefault(_key(asked), asked)
        if known is asked:
            asked.place = self._next_place()
        self.move(known)
        return known

    def move(self, asked: AskedPartition) -> bool:
        """Have a partition that changed read again; return whether the partition was at rest."""
        if asked in self.moving:
            return False
        self.moving[asked] = None
        self.is_in_order &= asked.place == self.last_place
        return True

    def _next_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def rest(self, asked: AskedPartition) -> None:
        """Put a partition to rest until it changes: it had nothing to read, and its offsets were told."""
        self.moving.pop(asked, None)

    def next_epoch(self) -> int:
        """Advance to the next request's epoch, and return that epoch."""
        self.epoch = _after(self.epoch)
        return self.epoch

    def answered(self, asked: Iterable[AskedPartition]) -> None:
        """Move partitions whose records were sent to the end of the order."""
        for each in asked:
            key = _key(each)
            if self.partitions.get(key) is each:
                del self.partitions[key]
                self.partitions[key] = each
                each.place = self._next_place()
                self.moving.pop(each, None)
                self.moving[each] = None


@dataclass(slots=True)
class FetchContext:
    """The partitions that a request asks for, with its session.

    Attributes:
        error: the error of the whole request, or NONE.
        named: the partitions that the request names.
        session: the request's session; None: the request belongs to none.
        epoch: the session's epoch as long as no later request has come.
        wants_session: whether the answer is to begin a session.
    """

    error: ErrorCode = ErrorCode.NONE
    named: list[AskedPartition] = field(default_factory=list)
    session: FetchSession | None = None
    epoch: int = _FINAL_EPOCH
    wants_session: bool = False

    @property
    def asked(self) -> Collection[AskedPartition]:
        """All partitions of the request or of its session."""
        return self.named if self.session is None else self.session.partitions.values()

    def to_read(self) -> list[AskedPartition]:
        """The partitions of ``asked`` that are not at rest now."""
        return self.named if self.session is None else self.session.to_read()


class FetchSessions:
    """The fetch sessions of a broker.

    Args:
        slots: the most sessions (``max.incremental.fetch.session.cache.slots``).
        topic_name: gives the topic's name for an id, or None.
        now_ms: the time, milliseconds since 1970.
        randrange: draws session ids.
        on_end: called with each session that ends, for whatever reason.
    """

    def __init__(
        self,
        slots: int,
        topic_name: Callable[[Uuid], str | None],
        now_ms: Callable[[], int],
        randrange: Callable[[int, int], int],
        on_end: Callable[[FetchSession], object] = lambda session: None,
    ) -> None:
        self._slots = slots
        self._topic_name = topic_name
        self._now_ms = now_ms
        self._randrange = randrange
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._by_name: dict[TopicPartition, dict[AskedPartition, FetchSession]] = {}
        self._on_end = on_end

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def is_current(self, context: FetchContext) -> bool:
        """Whether a request is the newest of its session, and the session lives; true without a session."""
        session = context.session
        return session is None or (self._sessions.get(session.id) is session and session.epoch == context.epoch)

    def clear(self) -> None:
        """End all sessions: each client begins another one with its next request."""
        for session_id in list(self._sessions):
            self._end(session_id)

    def asking_for(self, name: TopicPartition) -> list[tuple[AskedPartition, FetchSession]]:
        """The sessions that ask for a partition, each with its own object of the partition."""
        found = self._by_name.get(name)
        return [] if found is None else list(found.items())

    # --- partitions of sessions ---------------------------------------------------------------------------------------

    def _add(self, session: FetchSession, asked: AskedPartition) -> None:
        """Have a session ask for a partition with the fields of this request."""
        known = session.add(asked)
        if known.fields.current_leader_epoch != asked.fields.current_leader_epoch:
            known.told_high_watermark = -1  # a follower ignores what it was told in an earlier epoch
        known.fields = asked.fields
        if known is asked:
            self._note_name(session, asked)

    def _note_name(self, session: FetchSession, asked: AskedPartition) -> None:
        if asked.name is not None:
            self._by_name.setdefault(asked.name, {})[asked] = session

    def _forget(self, session: FetchSession, key: _Key) -> None:
        asked = session.partitions.pop(key, None)
        if asked is not None:
            session.moving.pop(asked, None)
            self._forget_name(asked)

    def _forget_name(self, asked: AskedPartition) -> None:
        if asked.name is not None:
            others = self._by_name[asked.name]
            del others[asked]
            if not others:
                del self._by_name[asked.name]

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            for each in session.partitions.values():
                self._forget_name(each)
            self._on_end(session)

    # --- requests -----------------------------------------------------------------------------------------------------

    def context(self, request: FetchRequest, version: int, turn: Turn) -> InTurns[FetchContext]:
        """The partitions that a request asks for, with those of its session."""
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._end(request.session_id)  # a request that begins a session, or ends its own, needs the old one no more
            wants_session = request.session_epoch == _INITIAL_EPOCH
            named = yield from self._named(request, version, turn)
            return FetchContext(named=named, wants_session=wants_session)
        named = yield from self._named(request, version, turn)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= _BY_ID):
            return FetchContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for each in named:
            self._add(session, each)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self._forget(session, (topic.topic_id if session.by_id else topic.topic, number))
        if not session.partitions:
            self._end(session.id)
            return FetchContext()
        session.used_ms = self._now_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)
        for each in session.moving:
            if each.name is None:
                each.name = self._name(each.topic, each.topic_id, each.fields.partition, by_id=True)
                self._note_name(session, each)
        return FetchContext(session=session, epoch=session.next_epoch())

    def _named(self, request: FetchRequest, version: int, turn: Turn) -> InTurns[list[AskedPartition]]:
        """The request's partitions; the last fields count for one named twice (Kafka: FetchRequest.fetchData)."""
        by_id = version >= _BY_ID
        found: dict[_Key, AskedPartition] = {}
        for topic in request.topics:
            topic_id = topic.topic_id if by_id else ZERO_UUID
            text = "" if by_id else topic.topic
            for fields in topic.partitions:
                name = self._name(text, topic_id, fields.partition, by_id=by_id)
                asked = AskedPartition(text, topic_id, name, fields)
                found[_key(asked)] = asked
                if turn.is_over():
                    yield
        return list(found.values())

    def _name(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> TopicPartition | None:
        known = self._topic_name(topic_id) if by_id else topic
        return None if known is None else TopicPartition(known, partition)

    # --- answers ------------------------------------------------------------------------------------------------------

    def finish(
        self,
        context: FetchContext,
        found: list[tuple[AskedPartition, PartitionData]],
        version: int,
        *,
        is_of_follower: bool,
    ) -> tuple[ErrorCode, int, list[tuple[AskedPartition, PartitionData]]]:
        """Note a request as answered, and select the partitions for its answer.

        Args:
            context: the request's partitions and session.
            found: each partition that was read, with its answer.
            version: the version of the request.
            is_of_follower: whether a follower asks.

        Returns:
            The error of the whole answer, the session's id or 0, and the partitions in the answer.
        """
        session = context.session
        if session is None:
            number = self._begin(found, version, is_of_follower) if context.wants_session else NO_SESSION
            return ErrorCode.NONE, number, found
        if session.epoch != context.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
        news = [(asked, data) for asked, data in found if asked.is_news(data)]
        for asked, data in news:
            asked.told(data)
        session.answered([asked for asked, data in news if data.records])
        return ErrorCode.NONE, session.id, news

    def skip(self, context: FetchContext) -> tuple[ErrorCode, int]:
        """The error and session id of an answer without partitions; nothing is noted as answered."""
        session = context.session
        if session is None:
            return ErrorCode.NONE, NO_SESSION
        is_stale = session.epoch != context.epoch
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH if is_stale else ErrorCode.NONE, session.id

    def _begin(self, found: list[tuple[AskedPartition, PartitionData]], version: int, is_of_follower: bool) -> int:
        now_ms = self._now_ms()
        if not self._make_room(is_of_follower, len(found), now_ms):
            return NO_SESSION
        number = self._randrange(1, _ID_MAX)
        while number in self._sessions:
            number = self._randrange(1, _ID_MAX)
        session = FetchSession(number, is_of_follower, version >= _BY_ID, now_ms, used_ms=now_ms)
        for asked, data in found:
            asked.told(data)
            self._add(session, asked)
        self._sessions[number] = session
        return number

    def _make_room(self, is_of_follower: bool, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms <= EVICTION_MS:
            may_go = [
                each
                for each in self._sessions.values()
                if now_ms - each.created_ms > EVICTION_MS or (is_of_follower and not each.is_of_follower)
            ]
            oldest = min(may_go, key=_worth, default=None)
            if oldest is None or (is_of_follower, size) <= _worth(oldest)[:2]:
                return False
        self._end(oldest.id)
        return True


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_of_follower, len(session.partitions), session.id


def _key(asked: AskedPartition) -> _Key:
    return (asked.topic if asked.topic_id == ZERO_UUID else asked.topic_id, asked.fields.partition)


def _after(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1

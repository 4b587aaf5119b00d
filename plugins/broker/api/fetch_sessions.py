"""Fetch sessions (KIP-227): what a client asks for again and again is kept here, and it names what changed.

An answer within a session leaves out partitions about which there is nothing new. Those at rest, where nothing could
be read last time and nothing has changed since, cost a request nothing: they are looked at when they change, and twice
a second. Sessions are numbered at random, and
their requests count up: whoever sends another number than the next one is told so, and begins anew. There is a bounded
number of them; one gives way to another if it was not used for two minutes, if a follower needs its place and it is a
consumer's, or if the other one has more partitions and it is older than two minutes. Source: Kafka 4.3.1, FetchSession.
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
"""A partition at rest is read again after so long: answers may change without ``Fetch.partitions_changed``."""
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_EPOCH_MAX = _ID_MAX = 2**31 - 1
_BY_ID = 13  # version of Fetch from which topics are named by id

FetchPartition = FetchRequest.FetchTopic.FetchPartition
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
_Key: TypeAlias = tuple[str | Uuid, int]
_PLACE = attrgetter("place")


@dataclass(slots=True, eq=False)
class AskedPartition:
    """A partition that is asked for.

    Attributes:
        topic: its topic's name in the request; empty where topics are named by id.
        topic_id: its topic's id in the request; zero where they are named.
        name: None when nobody knows the topic's id.
        fields: as asked.
        told_high_watermark: what was answered last in its session; -1: nothing.
        told_log_start: likewise.
        place: among the partitions of its session, which are read in this order.
        role: its leader epoch, and whether we lead, when it was read last.
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
        """Whether an answer says something that was not told in this session."""
        return bool(
            data.records
            or data.error_code != ErrorCode.NONE
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start
            or data.diverging_epoch.end_offset >= 0
            or data.preferred_read_replica >= 0
        )

    def told(self, data: PartitionData) -> None:
        """It is answered; after an error, or where logs diverge, the high watermark is told again when that is over."""
        has_failed = data.error_code != ErrorCode.NONE or data.diverging_epoch.end_offset >= 0
        self.told_high_watermark = -1 if has_failed else data.high_watermark
        self.told_log_start = data.log_start_offset


class Reader(NamedTuple):
    """Whom a request is read for.

    Attributes:
        view: what it can see of a log.
        replica_id: of the follower that asks; below 0: a consumer does.
        broker_epoch: of its incarnation; -1: it does not say.
    """

    view: View
    replica_id: int
    broker_epoch: int


@dataclass(slots=True, eq=False)
class FetchSession:
    """A session.

    Attributes:
        id: > 0.
        is_of_follower: a broker's.
        by_id: its topics are named by id.
        created_ms: when it began.
        partitions: all that it is about, those that were answered least recently first.
        moving: those of them that are not at rest.
        is_in_order: whether ``moving`` has the order of ``partitions``.
        last_place: that of the last of ``partitions``.
        epoch: the number of its next request.
        used_ms: when its last request came.
        reader: whom its last request was read for; None: there was none since it began.
        read_ms: when all its partitions were read last, those at rest as well.
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
        """A request is read now: of all partitions, if that was not done for a while, or somebody else asks."""
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
        """A partition is asked for; as what the session knows it."""
        known = self.partitions.setdefault(_key(asked), asked)
        if known is asked:
            asked.place = self._next_place()
        self.move(known)
        return known

    def move(self, asked: AskedPartition) -> bool:
        """A partition changed; whether it was at rest."""
        if asked in self.moving:
            return False
        self.moving[asked] = None
        self.is_in_order &= asked.place == self.last_place
        return True

    def _next_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def rest(self, asked: AskedPartition) -> None:
        """A partition is not read again until it changes: nothing of it could be read, and all is told."""
        self.moving.pop(asked, None)

    def next_epoch(self) -> int:
        """The request of this epoch is being answered; the next one has the number that is returned."""
        self.epoch = _after(self.epoch)
        return self.epoch

    def answered(self, asked: Iterable[AskedPartition]) -> None:
        """Partitions of which records were sent are asked last next time."""
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
    """What a request comes to.

    Attributes:
        error: of the whole request.
        named: the partitions that it names.
        session: that it belongs to; None: to none.
        epoch: of that session, while nothing else came in between.
        wants_session: the answer shall begin one.
    """

    error: ErrorCode = ErrorCode.NONE
    named: list[AskedPartition] = field(default_factory=list)
    session: FetchSession | None = None
    epoch: int = _FINAL_EPOCH
    wants_session: bool = False

    @property
    def asked(self) -> Collection[AskedPartition]:
        """All partitions that it is about."""
        return self.named if self.session is None else self.session.partitions.values()

    def to_read(self) -> list[AskedPartition]:
        """Those that are not at rest now."""
        return self.named if self.session is None else self.session.to_read()


class FetchSessions:
    """All of them.

    Args:
        slots: how many there may be (``max.incremental.fetch.session.cache.slots``).
        topic_name: of an id, or None.
        now_ms: the time.
        randrange: for their numbers.
        on_end: called with a session that is over, whatever ended it.
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
        """Whether a request is the newest of its session, and that is not over; true of one that belongs to none."""
        session = context.session
        return session is None or (self._sessions.get(session.id) is session and session.epoch == context.epoch)

    def clear(self) -> None:
        """End all of them: whoever comes again begins another one."""
        for session_id in list(self._sessions):
            self._end(session_id)

    def asking_for(self, name: TopicPartition) -> list[tuple[AskedPartition, FetchSession]]:
        """The sessions that are about a partition, and how they ask for it."""
        found = self._by_name.get(name)
        return [] if found is None else list(found.items())

    # --- partitions of sessions ---------------------------------------------------------------------------------------

    def _add(self, session: FetchSession, asked: AskedPartition) -> None:
        """A session is about a partition, as it is asked for now."""
        known = session.add(asked)
        if known.fields.current_leader_epoch != asked.fields.current_leader_epoch:
            known.told_high_watermark = -1  # a follower passes over what it was told in an earlier epoch
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
        """What a request asks for, with what its session knows."""
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._end(request.session_id)  # whoever begins anew, or ends it, needs it no more
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
        """Each partition once; of one that is named again the last counts (Kafka: FetchRequest.fetchData)."""
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
        """What is answered.

        Args:
            context: of the request.
            found: each partition of it that was read, with its answer.
            version: of the request.
            is_of_follower: whether a broker asks.

        Returns:
            The error of the whole answer, the session's id or 0, and the partitions that are told.
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
        """What is answered to a request that gets nothing for now: error and session's id, as of ``finish``."""
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

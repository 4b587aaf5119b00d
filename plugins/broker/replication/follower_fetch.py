"""A follower's side of replication, without sockets, tasks or clock: its Fetch requests, and applying the answers.

One Fetch names all partitions that a leader leads. It has the log end offset of each, and the leader epoch of the last
batch, so that the leader tells where logs diverge (KIP-595). An answer is applied only if the partition still follows
in the epoch of the request, and its log end offset is the same. Source: Kafka 3.9.1, AbstractFetcherThread.

A round is a generator. It yields `Ask`, and is sent the answer. It yields `EXCLUSIVE`, and is resumed when no other
task flushes or cuts a log; after that it yields functions for threads, and is resumed when one has returned or raised
(``disk_steps``). The exclusion lasts until it yields something else. ``fetch_tasks`` and the simulator run rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError, KraftError, StorageError
from kraftcore.plugins.broker.log_changes import cut, raise_log_start
from kraftcore.plugins.broker.partition import Partition, PartitionEffects, TopicPartition
from kraftcore.plugins.broker.quotas.replication import ReplicationQuota
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.leader_session import LeaderSession, Question, Wanted
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.schema import Request

_BY_NAME_MAX = 12  # version of Fetch; later ones name topics by id
_REPLICA_STATE = 15  # version of Fetch: the replica's id has another field
_EARLIEST, _LATEST = -2, -1
_VERSION_MAX = 2**15 - 1
_SESSION_OVER = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
}
_NOT_IN_STEP = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
"""Errors while the leader or the follower has not heard of an assignment yet."""
_SOON_MS = 10
_TRIES_TOLD = 6
"""Number of such errors in a row, which take more than half a second, after which the broker logs them."""
_SHIFT_MAX = 16
_Topic = FetchRequest.FetchTopic
_Data = FetchResponse.FetchableTopicResponse.PartitionData


class FetchSettings(NamedTuple):
    """How a follower fetches; Kafka's names with ``replica.fetch.`` in front.

    Attributes:
        wait_max_ms: how long a leader may wait for ``min_bytes``, milliseconds.
        min_bytes: the least bytes of records for which a leader answers at once.
        max_bytes: the most bytes of records of one partition.
        response_max_bytes: the most bytes of records of an answer.
        backoff_ms: the pause after an error of a partition or of the whole request, milliseconds.
    """

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


class Ask(NamedTuple):
    """A request to the leader, for which the round waits.

    Attributes:
        request: the request's body.
        min_version: the lowest version in which the request keeps its meaning.
        max_version: the highest such version.
    """

    request: Request
    min_version: int = 0
    max_version: int = _VERSION_MAX


EXCLUSIVE: Final = object()
"""A round yields this before it removes part of a log."""

_FOREVER: Final = float("inf")
LOOK_MS: Final = 500
"""How often all partitions are looked at: a log's start may move without an answer."""

_T = TypeVar("_T")
Steps: TypeAlias = Generator[Any, Any, _T]


class RoundEnd(NamedTuple):
    """How a round ended.

    Attributes:
        pausing: the partitions that are not asked for within ``FetchSettings.backoff_ms``.
        not_in_step: the partitions whose leader or follower has not heard of the assignment; asked for again sooner.
        wait_ms: the time until the next round, as no answer came or the leader throttles (KIP-219).
    """

    pausing: tuple[TopicPartition, ...] = ()
    not_in_step: tuple[TopicPartition, ...] = ()
    wait_ms: int = 0


class RequestedPartition(NamedTuple):
    """A partition of a request on its way.

    Attributes:
        name: of the partition.
        partition: itself.
        wanted: what is asked of it; a log that was cut and grew again may end at the same offset in another epoch.
    """

    name: TopicPartition
    partition: Partition
    wanted: Wanted

    @property
    def still_matters(self) -> bool:
        """Whether the answer for the partition may be applied."""
        log, wanted = self.partition.log, self.wanted
        return (
            self.partition.check_following(wanted.leader_epoch)
            and log.log_end_offset == wanted.offset
            and _epoch_of(log.last_epoch) == wanted.last_epoch
        )


@dataclass(slots=True)
class Source:
    """The partitions that are fetched from one leader. Times are the caller's, in milliseconds.

    Attributes:
        leader_id: the leader's broker id.
        names: the partitions.
        not_before: the partitions that pause, each with the end of its pause.
        tries: how often in a row each partition was in ``RoundEnd.not_in_step``.
        held_back: the partitions that pause because the follower's quota was exceeded.
        session: the fetch session with the leader (KIP-227).
        wait_max_ms: how long the leader may wait; None: as ``FetchSettings`` say.
        asked: the partitions of the request on its way, or of the next one: see ``Following.look``.
        stale: the partitions whose fetch offsets have to be looked at again.
        fresh: the partitions that were looked at for the request.
        nameless: the partitions of ``asked`` whose topics have no id.
        topics: topic names by id.
        looked_ms: when all partitions were looked at.
    """

    leader_id: int
    names: set[TopicPartition] = field(default_factory=set)
    not_before: dict[TopicPartition, float] = field(default_factory=dict)
    tries: dict[TopicPartition, int] = field(default_factory=dict)
    held_back: set[TopicPartition] = field(default_factory=set)
    session: LeaderSession = field(default_factory=LeaderSession)
    wait_max_ms: int | None = None
    asked: dict[TopicPartition, RequestedPartition] = field(default_factory=dict)
    stale: set[TopicPartition] = field(default_factory=set)
    fresh: list[TopicPartition] = field(default_factory=list)
    nameless: set[TopicPartition] = field(default_factory=set)
    topics: dict[Uuid, str] = field(default_factory=dict)
    looked_ms: float = -_FOREVER

    def take(self, names: set[TopicPartition]) -> None:
        """Fetch these partitions from now on, without pauses for a former assignment or quota."""
        for name in (*self.tries, *self.held_back):
            self.not_before.pop(name, None)
        self.tries.clear()
        self.held_back.clear()
        self.ask_only(names)

    def ask_only(self, names: set[TopicPartition]) -> None:
        """Fetch these partitions from now on; their pauses go on."""
        self.names = names
        self.looked_ms = -_FOREVER

    def hold_back(self, names: Iterable[TopicPartition], until_ms: float) -> None:
        """Have throttled partitions pause until a time, or until an assignment or quota changes."""
        self.held_back.update(names)
        self.not_before.update(dict.fromkeys(self.held_back, until_ms))

    def to_look_at(self, now_ms: float) -> list[TopicPartition]:
        """End the pauses that are due, and return the partitions to look at before the next request, in order."""
        over = [name for name, until_ms in self.not_before.items() if until_ms <= now_ms or name not in self.names]
        for name in over:
            del self.not_before[name]
        if self.held_back:
            self.held_back.intersection_update(self.not_before)
        if 0 <= now_ms - self.looked_ms < LOOK_MS:
            names = self.stale.union(over)
        else:
            self.looked_ms = now_ms
            self.topics.clear()
            names = self.names | self.asked.keys()
        self.stale = set()
        return sorted(names)

    @property
    def due_ms(self) -> float:
        """When the next pause ends; infinity: no partition pauses."""
        return min(self.not_before.values(), default=_FOREVER)

    def ended(self, end: RoundEnd, now_ms: float, backoff_ms: int) -> None:
        """Have partitions pause as the end of a round says."""
        for name in [name for name in self.tries if name in self.asked and name not in end.not_in_step]:
            del self.tries[name]
        self.not_before.update(dict.fromkeys(end.pausing, now_ms + backoff_ms))
        for name in end.not_in_step:
            tries = self.tries.get(name, 0)
            self.tries[name] = tries + 1
            self.not_before[name] = now_ms + min(_SOON_MS << min(tries, _SHIFT_MAX), backoff_ms)
        self.stale.update(end.pausing, end.not_in_step)


def is_caught_up(partition: Partition) -> bool:
    """Whether a follower has all records committed at its leader's last answer; False without an answer."""
    return 0 <= partition.leader_high_watermark <= partition.log.log_end_offset


class Following:
    """Makes the fetch requests of follower partitions, and carries out what leaders answer.

    Args:
        broker_id: the id of this broker.
        broker_epoch: gives the present broker epoch of this broker.
        replicas: the partitions of which this broker has a replica.
        settings: see ``FetchSettings``.
        complain: logs a line; its first argument names the subject.
        now_ms: the time, milliseconds since 1970.
        quota: limits the fetching of throttled partitions.

    Attributes:
        quota: as given.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        settings: FetchSettings,
        complain: Callable[[str, str], object],
        now_ms: Callable[[], int],
        quota: ReplicationQuota,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._settings = settings
        self._complain = complain
        self._now_ms = now_ms
        self.quota = quota
        self._fenced: dict[TopicPartition, tuple[Partition, int]] = {}  # by partition, with the refused leader epoch

    def wanted(self) -> dict[int, set[TopicPartition]]:
        """The following partitions, by their leader's broker id."""
        wanted: dict[int, set[TopicPartition]] = {}
        for name, replica in self._replicas.all.items():
            partition = replica.partition
            if partition.is_following and partition.leader_id is not None:
                wanted.setdefault(partition.leader_id, set()).add(name)
        return wanted

    # --- a round ------------------------------------------------------------------------------------------------------

    def look(self, source: Source, now_ms: float) -> bool:
        """Bring the partitions of a source's next request up to date; return whether there are any.

        Partitions that an answer changed are looked at; all are, twice a second and after a change of assignments.
        """
        self._look(source, source.to_look_at(now_ms))
        if self.quota.is_set:
            held = self.held_back(source.asked)
            if held:
                source.hold_back(held, now_ms + self.quota.wait_ms)
                for name in held:
                    self._leave_out(source, name)
        return bool(source.asked)

    def _look(self, source: Source, names: Iterable[TopicPartition]) -> None:
        source.fresh = []
        for name in names:
            replica = self._replicas.all.get(name)
            if (
                replica is None
                or not replica.partition.is_following
                or name not in source.names
                or name in source.not_before
                or self._is_fenced(name, replica.partition)
            ):
                self._leave_out(source, name)
                continue
            partition = replica.partition
            log, topic_id = partition.log, self._replicas.topic_id(name) if replica.has_id else None
            wanted = Wanted(
                topic_id, partition.leader_epoch, log.log_end_offset, _epoch_of(log.last_epoch), log.log_start_offset
            )
            source.asked[name] = RequestedPartition(name, partition, wanted)
            source.fresh.append(name)
            source.session.want(name, wanted)
            if topic_id is None:
                source.nameless.add(name)
            else:
                source.nameless.discard(name)
                source.topics[topic_id] = name.topic

    def _is_fenced(self, name: TopicPartition, partition: Partition) -> bool:
        """Whether the leader is in a newer epoch than this broker knows: then the partition is not asked for."""
        if name in self._fenced and self._fenced[name] != (partition, partition.leader_epoch):
            del self._fenced[name]
        return name in self._fenced

    def _leave_out(self, source: Source, name: TopicPartition) -> None:
        source.asked.pop(name, None)
        source.nameless.discard(name)
        source.session.want_no_more(name)

    def held_back(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that wait for the quota (KIP-73): throttled, outside the ISR, and the quota is exceeded."""
        quota = self.quota
        if not quota.is_exceeded:
            return []
        found = []
        for name in names:
            replica = self._replicas.all.get(name)
            if replica is not None and quota.throttles(name) and not is_caught_up(replica.partition):
                found.append(name)
        return found

    def round(self, source: Source) -> Steps[RoundEnd]:
        """Send one Fetch and apply its answer; see the module text. ``look`` has returned True."""
        pausing = yield from self._sync(source)
        if not source.asked:
            return RoundEnd(tuple(pausing))
        by_id = not source.nameless
        session = source.session
        request = self._request(session.ask(by_id=by_id), by_id=by_id)
        if source.wait_max_ms is not None:
            request.max_wait_ms = min(request.max_wait_ms, source.wait_max_ms)
        answer = yield Ask(request, _REPLICA_STATE) if by_id else Ask(request, max_version=_BY_NAME_MAX)
        if isinstance(answer, FetchResponse):
            error = ErrorCode.of(answer.error_code)
            session.answered(error, answer.session_id)
            if error in _SESSION_OVER and request.session_epoch > 0:
                return RoundEnd()  # the leader restarted, or ended the session: the next request begins another
        else:
            session.begin_anew()
        if not isinstance(answer, FetchResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else ErrorCode.of(answer.error_code).name
            self._complain(f"fetch {source.leader_id}", f"fetching from broker {source.leader_id} failed: {what}")
            return RoundEnd(wait_ms=self._settings.backoff_ms)
        not_in_step: list[TopicPartition] = []
        is_lost = False
        for topic in answer.responses:
            told = source.topics.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                one = source.asked.get(TopicPartition(told or "", data.partition_index))
                if one is None or (by_id and one.wanted.topic_id != topic.topic_id):
                    continue
                source.stale.add(one.name)
                if not one.still_matters:
                    is_lost = True
                elif not (yield from self._take(one, data, source.tries.get(one.name, 0))):
                    (not_in_step if data.error_code in _NOT_IN_STEP else pausing).append(one.name)
        if is_lost:
            session.begin_anew()  # the leader would not repeat high watermark and log start
        return RoundEnd(tuple(pausing), tuple(not_in_step), max(answer.throttle_time_ms, 0))

    def _sync(self, source: Source) -> Steps[list[TopicPartition]]:
        """Sync logs where ``flush.messages`` says so: the next Fetch tells the leader that the records are here.

        Returns:
            Those that could not be, which are not asked for.
        """
        unsynced, failed = _unsynced(source), list[TopicPartition]()
        if unsynced:
            yield EXCLUSIVE
        while unsynced:  # a second task may append meanwhile
            for name in unsynced:
                if self._replicas.is_broken(name):  # while another task had the disk
                    failed.append(name)
                    continue
                try:
                    yield source.asked[name].partition.log.flush
                except KraftError as error:
                    self._complain("sync", f"{name} cannot be synced: {error}")
                    self._replicas.cannot_write(name, error)
                    failed.append(name)
            self._look(source, list(source.asked))
            for name in failed:
                self._leave_out(source, name)
            unsynced = _unsynced(source)
        return failed

    def _request(self, question: Question, *, by_id: bool) -> FetchRequest:
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=question.session_id,
            session_epoch=question.epoch,
        )
        if by_id:
            request.replica_state = FetchRequest.ReplicaState(
                replica_id=self._broker_id, replica_epoch=self._broker_epoch()
            )
        else:
            request.replica_id = self._broker_id
        topics: dict[tuple[str, Uuid], FetchRequest.FetchTopic] = {}
        for name, wanted in question.asked.items():
            key = name.topic, wanted.topic_id or ZERO_UUID  # a log of a deleted topic may still be there
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = _Topic(topic=key[0], topic_id=key[1])
                request.topics.append(topic)
            topic.partitions.append(
                _Topic.FetchPartition(
                    partition=name.partition,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    last_fetched_epoch=wanted.last_epoch,
                    log_start_offset=wanted.log_start,
                    partition_max_bytes=settings.max_bytes,
                )
            )
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(
                topic=name.topic, topic_id=each.topic_id or ZERO_UUID, partitions=[name.partition]
            )
            for name, each in question.forgotten.items()
        ]
        return request

    # --- answers ------------------------------------------------------------------------------------------------------

    def _take(self, asked: RequestedPartition, data: _Data, tries: int) -> Steps[bool]:
        """Apply a partition's answer; False: the partition pauses before it is asked for again.

        Bytes of a leader that are refused are asked for again; a disk that failed, or a damaged log here, is not.
        """
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return (yield from self._handle_out_of_range(asked))
            if data.error_code != ErrorCode.NONE:
                code = ErrorCode.of(data.error_code)
                if code is ErrorCode.FENCED_LEADER_EPOCH and asked.partition.leader_epoch == asked.wanted.leader_epoch:
                    # as Kafka's AbstractFetcherThread.onPartitionFenced
                    self._fenced[asked.name] = asked.partition, asked.wanted.leader_epoch
                if code not in _NOT_IN_STEP or tries >= _TRIES_TOLD:  # expected after a creation
                    self._complain(f"partition {code.name}", f"{asked.name}: its leader answers {code.name}")
                return False
            if data.diverging_epoch.end_offset >= 0:
                diverging = OffsetAndEpoch(data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
                yield from self._change(asked, lambda: asked.partition.truncate(diverging, data.log_start_offset))
                return True
            partition, now_ms = asked.partition, self._now_ms()
            if partition.must_restart_at(data.log_start_offset):
                yield from self._change(asked, lambda: partition.restart_at(data.log_start_offset))
                return True
            records = b"" if data.records is None else memoryview(data.records)
            base = partition.begins_within(records)
            if base is not None:
                yield from self._change(asked, lambda: partition.restart_at(base))
                if partition.log.log_end_offset != base or not partition.check_following(asked.wanted.leader_epoch):
                    return True
            effects = partition.replicate(records, data.high_watermark, now_ms)
            self._replicas.carry_out(asked.name, effects)
            if self.quota.is_set and self.quota.throttles(asked.name):
                self.quota.record(len(records))
            if data.log_start_offset > partition.log.log_start_offset:
                yield from self._raise_log_start(asked, data.log_start_offset)
        except StorageError as error:
            self._replicas.failed(asked.name, error)
            return False
        except CorruptDataError as error:
            self._complain("bytes", f"{asked.name}: what its leader sent is refused: {error}")
            return False
        except KraftError as error:
            self._complain("refused", f"{asked.name} cannot be replicated: {error}")
            return False
        return True

    def _change(self, asked: RequestedPartition, action: Callable[[], PartitionEffects]) -> Steps[None]:
        """Remove part of a log while no flush is under way, if the partition still follows in the asked epoch."""
        yield EXCLUSIVE
        replica = self._replicas.all.get(asked.name)
        if replica is not None and asked.still_matters:
            try:
                effects = yield from cut(asked.partition, replica.hosted, action)
            except CorruptDataError as error:
                if self._replicas.all.get(asked.name) is replica:
                    self._replicas.damaged(asked.name, error)
            else:
                self._replicas.carry_out(asked.name, effects)

    def _raise_log_start(self, asked: RequestedPartition, log_start: int) -> Steps[None]:
        yield EXCLUSIVE
        if asked.partition.check_following(asked.wanted.leader_epoch):
            try:
                yield from raise_log_start(asked.partition, log_start, self._now_ms())
            except CorruptDataError as error:
                self._replicas.damaged(asked.name, error)

    def _handle_out_of_range(self, asked: RequestedPartition) -> Steps[bool]:
        """Bring a log into the leader's range: cut it at the leader's end, or start anew at the leader's start."""
        latest = yield from self._offset(asked, _LATEST)
        if latest is None:
            return False
        if latest.offset < asked.wanted.offset:
            diverging = OffsetAndEpoch(latest.offset, -1)
            yield from self._change(asked, lambda: asked.partition.truncate(diverging))
            return True
        earliest = yield from self._offset(asked, _EARLIEST)
        if earliest is None:
            return False
        if earliest.offset <= asked.wanted.offset:
            return True  # in range by now
        yield from self._change(asked, lambda: asked.partition.restart_at(earliest.offset))
        return True

    def _offset(self, asked: RequestedPartition, timestamp: int) -> Steps[OffsetAndEpoch | None]:
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=asked.name.partition, current_leader_epoch=asked.wanted.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[topic(name=asked.name.topic, partitions=[partition])]
        )
        answer = yield Ask(request)
        if not isinstance(answer, ListOffsetsResponse) or not answer.topics or not answer.topics[0].partitions:
            return None
        told = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE or told.offset < 0:
            return None
        return OffsetAndEpoch(told.offset, told.leader_epoch)


def _unsynced(source: Source) -> list[TopicPartition]:
    return [name for name in source.fresh if name in source.asked and source.asked[name].partition.owes_sync]


def _epoch_of(last_epoch: int | None) -> int:
    return -1 if last_epoch is None else last_epoch

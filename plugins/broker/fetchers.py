"""Followers' side of replication: one task for each leader, one Fetch for all partitions that it leads.

A partition's place in the next request is where its log ends, with the epoch of its last batch, so that the leader
tells where logs diverge (KIP-595). What an answer says is applied only if the partition still follows in the epoch it
was asked in. Source: Kafka 3.9.1, AbstractFetcherThread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.uuid import ZERO_UUID
from kraftcore.errors import CorruptDataError, KraftError, StorageError
from kraftcore.node.outbox import CONSENSUS, Outbox
from kraftcore.plugins.broker.leader_session import LeaderSession, Question, Wanted
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.schema import Request

_BY_NAME_MAX = 12  # of Fetch: later versions name topics by id alone
_REPLICA_STATE = 15  # of Fetch: the replica's id moved
_EARLIEST, _LATEST = -2, -1
_SESSION_OVER = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
}
_ANSWER_SLACK_MS = 30_000  # what a request may take beyond its waiting time (replica.socket.timeout.ms)

_logger = logging.getLogger("kraftcore.broker")
_Topic = FetchRequest.FetchTopic
_Data = FetchResponse.FetchableTopicResponse.PartitionData


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a follower fetches; Kafka's names with ``replica.fetch.`` in front.

    Attributes:
        wait_max_ms: how long a leader may wait for ``min_bytes``.
        min_bytes: so much is worth an answer.
        max_bytes: of one partition.
        response_max_bytes: of all partitions of an answer.
        backoff_ms: pause after an error, of a partition or of the whole request.
    """

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


@dataclass(slots=True)
class _Asked:
    """A partition of a request on its way.

    Attributes:
        name: of the partition.
        partition: itself.
        leader_epoch: it was asked in.
        offset: it was asked for.
    """

    name: TopicPartition
    partition: Partition
    leader_epoch: int
    offset: int

    @property
    def still_matters(self) -> bool:
        return self.partition.check_following(self.leader_epoch) and self.partition.log.log_end_offset == self.offset


@dataclass(slots=True)
class _Fetcher:
    """What is fetched from one leader."""

    leader_id: int
    names: set[TopicPartition] = field(default_factory=set)
    not_before: dict[TopicPartition, float] = field(default_factory=dict)
    wake: trio.Event = field(default_factory=trio.Event)
    session: LeaderSession = field(default_factory=LeaderSession)


class Fetchers:
    """See the module text.

    Args:
        broker_id: ours.
        broker_epoch: ours at the moment.
        replicas: our partitions.
        cache: knows where leaders listen.
        listener: name of the listener between brokers.
        outbox: sends.
        settings: see ``FetchSettings``.
        disk: held by whoever flushes or removes parts of logs.
        now_ms: the time.
        nursery: for the tasks.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        cache: MetadataCache,
        listener: str,
        outbox: Outbox,
        settings: FetchSettings,
        disk: trio.Lock,
        now_ms: Callable[[], int],
        nursery: trio.Nursery,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._cache = cache
        self._listener = listener
        self._outbox = outbox
        self._settings = settings
        self._disk = disk
        self._now_ms = now_ms
        self._nursery = nursery
        self._complain = Complaints(_logger.warning, trio.current_time)
        self._fetchers: dict[int, _Fetcher] = {}

    def refresh(self) -> None:
        """Assignments or addresses changed: every partition that follows is fetched from its leader, once."""
        wanted: dict[int, set[TopicPartition]] = {}
        for name, replica in self._replicas.all.items():
            partition = replica.partition
            if partition.is_following and partition.leader_id is not None:
                wanted.setdefault(partition.leader_id, set()).add(name)
        for leader_id, fetcher in self._fetchers.items():
            fetcher.names = wanted.pop(leader_id, set())
            fetcher.wake.set()
        for leader_id, names in wanted.items():
            fetcher = self._fetchers[leader_id] = _Fetcher(leader_id, names)
            self._nursery.start_soon(self._run, fetcher)

    async def _run(self, fetcher: _Fetcher) -> None:
        """Fetch as long as there is something to be fetched from this leader."""
        while fetcher.names:
            fetcher.wake = trio.Event()
            address = self._cache.address(fetcher.leader_id, self._listener)
            asked = self._due(fetcher)
            if address is None or not asked:
                due = min(fetcher.not_before.values(), default=float("inf")) if address is not None else float("inf")
                with trio.move_on_at(due):
                    await fetcher.wake.wait()
                continue
            await self._fetch(fetcher, address, asked)
        if self._fetchers.get(fetcher.leader_id) is fetcher:
            del self._fetchers[fetcher.leader_id]

    def _due(self, fetcher: _Fetcher) -> dict[TopicPartition, _Asked]:
        now = trio.current_time()
        fetcher.not_before = {
            name: time for name, time in fetcher.not_before.items() if time > now and name in fetcher.names
        }
        found = {}
        for name in sorted(fetcher.names - fetcher.not_before.keys()):
            replica = self._replicas.all.get(name)
            if replica is not None and replica.partition.is_following:
                partition = replica.partition
                found[name] = _Asked(name, partition, partition.leader_epoch, partition.log.log_end_offset)
        return found

    async def _fetch(self, fetcher: _Fetcher, address: Address, asked: dict[TopicPartition, _Asked]) -> None:
        by_id = all(self._replicas.all[name].has_id for name in asked)
        session = fetcher.session
        request = self._request(session.ask(self._wanted(asked, by_id=by_id)), by_id=by_id)
        answer = await self._ask(address, request, by_id=by_id)
        if isinstance(answer, FetchResponse):
            session.answered(ErrorCode.of(answer.error_code), answer.session_id)
        else:
            session.failed()
        is_over = isinstance(answer, FetchResponse) and ErrorCode.of(answer.error_code) in _SESSION_OVER
        if is_over and request.session_epoch > 0:
            return  # a leader that was restarted, or that needed its place: the next request begins another one
        if not isinstance(answer, FetchResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else ErrorCode.of(answer.error_code).name
            self._complain(f"fetch {fetcher.leader_id}", f"fetching from broker {fetcher.leader_id} failed: {what}")
            await trio.sleep(self._settings.backoff_ms / 1000)
            return
        names = {self._replicas.topic_id(name): name.topic for name in asked} if by_id else {}
        for topic in answer.responses:
            told = names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                one = asked.get(TopicPartition(told or "", data.partition_index))
                if one is not None and one.still_matters and not await self._take(address, one, data):
                    fetcher.not_before[one.name] = trio.current_time() + self._settings.backoff_ms / 1000
        if answer.throttle_time_ms > 0:  # the leader will not read from us for so long (KIP-219)
            await trio.sleep(answer.throttle_time_ms / 1000)

    async def _ask(self, address: Address, request: Request, *, by_id: bool) -> Any:
        """The answer, or a `Failure`. Requests of a fetcher wait for one another only."""
        answers: list[Any] = []
        came = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            came.set()

        timeout_ms = self._settings.wait_max_ms + _ANSWER_SLACK_MS
        is_fetch = isinstance(request, FetchRequest)
        self._outbox.send(
            address.host,
            address.port,
            request,
            timeout_ms,
            done,
            min_version=_REPLICA_STATE if is_fetch and by_id else 0,
            max_version=_BY_NAME_MAX if is_fetch and not by_id else 2**15 - 1,
            lane=CONSENSUS,
        )
        await came.wait()
        return answers[0]

    def _wanted(self, asked: Iterable[TopicPartition], *, by_id: bool) -> dict[TopicPartition, Wanted]:
        found = {}
        for name in asked:
            partition = self._replicas.all[name].partition
            log = partition.log
            topic_id = self._replicas.topic_id(name) if by_id else None
            last_epoch = -1 if log.last_epoch is None else log.last_epoch
            found[name] = Wanted(topic_id, partition.leader_epoch, log.log_end_offset, last_epoch, log.log_start_offset)
        return found

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
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for name, wanted in question.asked.items():
            topic = topics.get(name.topic)
            if topic is None:
                topic = topics[name.topic] = _Topic(topic=name.topic, topic_id=wanted.topic_id or ZERO_UUID)
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

    async def _take(self, address: Address, asked: _Asked, data: _Data) -> bool:
        """Apply a partition's answer; False: pause before it is asked for again."""
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return await self._find_place(address, asked)
            if data.error_code != ErrorCode.NONE:
                code = ErrorCode.of(data.error_code)
                self._complain(f"partition {code.name}", f"{asked.name}: its leader answers {code.name}")
                return False
            if data.diverging_epoch.end_offset >= 0:
                diverging = OffsetAndEpoch(data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
                await self._change(asked, lambda: asked.partition.truncate(diverging))
                return True
            partition, now_ms = asked.partition, self._now_ms()
            effects = partition.replicate(
                b"" if data.records is None else memoryview(data.records), data.high_watermark, now_ms
            )
            self._replicas.carry_out(asked.name, effects)
            if data.log_start_offset > partition.log.log_start_offset:
                await self._raise_log_start(asked, data.log_start_offset)
        except (StorageError, CorruptDataError) as error:
            self._failed(asked.name, error)
            return False
        except KraftError as error:
            self._complain("refused", f"{asked.name} cannot be replicated: {error}")
            return False
        return True

    async def _change(self, asked: _Asked, change: Callable[[], Any]) -> None:
        """Remove part of a log while no flush is under way, if it still follows in the epoch it was asked in."""
        async with self._disk:
            if asked.still_matters:
                self._replicas.carry_out(asked.name, change())

    async def _raise_log_start(self, asked: _Asked, log_start: int) -> None:
        async with self._disk:
            if asked.partition.check_following(asked.leader_epoch):
                asked.partition.delete_below(log_start, self._now_ms())

    async def _find_place(self, address: Address, asked: _Asked) -> bool:
        """Our log's end is not in the leader's log: cut what is beyond its end, or start anew where it begins."""
        latest = await self._offset(address, asked, _LATEST)
        if latest is None:
            return False
        if latest.offset < asked.offset:
            diverging = OffsetAndEpoch(latest.offset, -1)
            await self._change(asked, lambda: asked.partition.truncate(diverging))
            return True
        earliest = await self._offset(address, asked, _EARLIEST)
        if earliest is None:
            return False
        if earliest.offset <= asked.offset:
            return True  # it is in range by now
        await self._change(asked, lambda: asked.partition.restart_at(earliest.offset))
        return True

    async def _offset(self, address: Address, asked: _Asked, timestamp: int) -> OffsetAndEpoch | None:
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=asked.name.partition, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[topic(name=asked.name.topic, partitions=[partition])]
        )
        answer = await self._ask(address, request, by_id=False)
        if not isinstance(answer, ListOffsetsResponse) or not answer.topics or not answer.topics[0].partitions:
            return None
        told = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE or told.offset < 0:
            return None
        return OffsetAndEpoch(told.offset, told.leader_epoch)

    def _failed(self, name: TopicPartition, error: KraftError) -> None:
        """Bytes of a leader that are refused are asked for again; a disk that failed is not."""
        if isinstance(error, StorageError):
            self._replicas.failed(name, error)
        else:
            self._complain("bytes", f"{name}: what its leader sent is refused: {error}")

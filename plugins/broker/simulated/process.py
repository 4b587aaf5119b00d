"""One process of a broker: the parts that run in production, with virtual time in place of tasks.

What ``broker_parts`` does on trio happens here: requests are answered, rounds of fetching run, proposals are sent,
duties come round. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import InvariantError, KraftError, LocalError, StorageError
from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.delete_records import start_after
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.leadership_wait import LeadershipWait
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.kraft.directory_requests import AGAIN_MS, DirectoryRequests
from kraftcore.plugins.broker.kraft.image_cache import ImageCache
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.metadata.carrying_out import carry_out
from kraftcore.plugins.broker.metadata.local_changes import Catalogue, LocalChanges
from kraftcore.plugins.broker.partition import Assignment, IsrProposal, TopicPartition
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.quotas.rates import QuotaWindow
from kraftcore.plugins.broker.quotas.replication import ReplicationQuotas
from kraftcore.plugins.broker.replicas import HostedPartition, Replicas
from kraftcore.plugins.broker.replication.fetch_schedule import Fetching, FetchTask, Pause
from kraftcore.plugins.broker.replication.follower_fetch import Ask, FetchSettings, Following
from kraftcore.plugins.broker.replication.isr_requests import IsrRequest, IsrRequests
from kraftcore.plugins.broker.simulated.disk_turns import DiskTurns
from kraftcore.plugins.broker.simulated.kafka_leader import KafkaLeader
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.plugins.broker.work.disk_steps import failure_of, run_here
from kraftcore.plugins.broker.work.heavy_steps import Done
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kraftcore.protocol.schema import Request, Response
from kraftcore.protocol.topics import PartitionKey
from kraftcore.simulation.agenda import Agenda

_Handlers: TypeAlias = dict[type, Callable[[Any, RequestContext], Response | Awaitable[Response | None] | None]]
LISTENER: Final = "PLAINTEXT"
VERSIONS: Final[dict[type, int]] = {
    ProduceRequest: 11,
    FetchRequest: 17,
    ListOffsetsRequest: 9,
    OffsetForLeaderEpochRequest: 4,
    DeleteRecordsRequest: 2,
    WriteTxnMarkersRequest: 1,
}
"""What simulated brokers serve, and in which version they are asked."""
_HIGH_WATERMARKS_MS: Final = 2_000
_RECOVERY_POINTS_MS: Final = 6_000
_RETENTION_MS: Final = 3_000
_LAG_CHECKS: Final = 2  # in the time that a follower may lag
_ISR_AGAIN_MS: Final = 50
_SWITCH_MS: Final = 0.05  # from one task to another
LOOP_BYTES: Final = 2_000
"""That a batch may decompress to before it is looked at aside: small batches are heavy ones here."""
_SESSION_SLOTS: Final = 3  # so few that brokers and consumers take them from each other
_LOG_CONFIG: Final = LogConfig(
    segment_bytes=8_000,
    index_interval_bytes=512,
    file_delete_delay_ms=1000,
    tail_bytes=4_000,
    topic_id=None,
    producer_snapshots=False,
    allow_gaps=True,
    names_wait=True,
    all_control=False,
)


class Ports(Protocol):
    """What a process asks of the machine it runs on."""

    @property
    def agenda(self) -> Agenda:
        """Virtual time."""

    def now_ms(self) -> int:
        """What the machine's clock shows."""

    def flush_ms(self) -> float:
        """How long a flush takes this time."""

    def later(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something later, unless the process ends before."""

    def do_aside(self, work: Callable[[], object], done: Done) -> None:
        """See ``heavy.DoAside``: several pieces of work end in any order."""

    def ask_broker(
        self, number: int, request: Request, version: int, done: Callable[[Any], None], *, is_beside: bool
    ) -> None:
        """Send a request to another broker, or one beside that; ``done`` gets the answer, or a `Failure`."""

    def ask_controller(self, request: Request, done: Callable[[Any], None]) -> None:
        """Send a request to the active controller, likewise."""

    def proposed(self, name: TopicPartition, proposal: IsrProposal) -> None:
        """A leader decided to propose an ISR; it is sent soon, and again until it is answered."""

    def loaded(self) -> None:
        """The logs were opened."""

    def taken_up(self, request: Request) -> None:
        """A request that waited for a partition to be led is taken up: it counts as one that comes now."""


class Process:
    """One process of a simulated broker: the parts that run in production, with virtual time in place of tasks.

    Args:
        broker_id: whose.
        disk: of the machine.
        folders: of the log directories.
        settings: of every partition.
        retention: likewise.
        fetching: of the follower's side.
        ports: see `Ports`.
        rng: for ids.
        is_theirs: it takes transactions, as Kafka's.

    Attributes:
        dirs: its log directories.
        replicas: its partitions.
        cache: what it knows of the cluster.
        image: the metadata, as far as it read it.
        broker_epoch: of its registration; -1 before.
        has_begun: it has read its registration, and follows what the metadata says of its partitions.
        refresh: to be called when assignments or addresses changed.
        replication: what throttled replicas may copy.

    Raises:
        KraftError: the disk does not let it start.
    """

    def __init__(
        self,
        broker_id: int,
        disk: SimulatedDisk,
        folders: Sequence[str],
        settings: PartitionSettings,
        retention: Retention,
        fetching: FetchSettings,
        ports: Ports,
        rng: Random,
        *,
        is_theirs: bool = False,
    ) -> None:
        self._id = broker_id
        self._ports = ports
        self._lag_ms = settings.lag_time_max_ms
        self._retention = retention
        now_ms = ports.now_ms
        self.dirs = LogDirs(
            disk,
            folders,
            broker_id,
            lambda topic: _LOG_CONFIG,
            2000,
            now_ms(),
            rng.randbytes,
            kraft_cluster_id="simulated",
        )
        self.image = Image()
        self.cache = cache = ImageCache(broker_id)
        self._proposals: KeyedQueue[TopicPartition, IsrProposal] = KeyedQueue(self._proposed)
        self.replicas = replicas = Replicas(
            broker_id,
            self.dirs,
            cache,
            lambda topic: settings,
            compares_ids=True,
            proposals=self._proposals,
            tell_directory=self._tell_directory,
            on_error=_raise,
        )
        self.broker_epoch = -1
        self.has_begun = False
        self._catalogue = Catalogue(broker_id)
        self._deadlines = Deadlines(lambda: ports.agenda.now / 1e6, _raise, self._arm)
        self._armed = 0
        self._unobeyed = 0  # changes that were read, and did not take effect
        self._leadership_wait = LeadershipWait(
            replicas, cache, self._deadlines, lambda: self._unobeyed > 0, ports.taken_up
        )
        self.replication = ReplicationQuotas(broker_id, QuotaWindow(), QuotaWindow(), now_ms)
        leaders = Leaders(replicas, cache)
        permits = Permits()
        fetch = self._make_fetch(leaders, permits, rng)
        produce = self._make_produce(leaders, permits)
        self._handlers = self._make_handlers(fetch, produce, permits)
        if is_theirs:
            leader = KafkaLeader(replicas, now_ms, produce.respond)
            self._handlers |= {ProduceRequest: leader.produce, WriteTxnMarkersRequest: leader.mark}
        self._handlers = {kind: self._leadership_wait.held(kind, respond) for kind, respond in self._handlers.items()}
        epoch = self._epoch
        following = Following(broker_id, epoch, replicas, fetching, _unheard, now_ms, self.replication.follower)
        self.refresh = Fetching(following, fetching, self).refresh
        self._isr = IsrRequests(broker_id, epoch, replicas, self._proposals, _unheard, now_ms)
        self._directories = DirectoryRequests(broker_id, epoch, _unheard, lambda: self.image)
        self._tells_directories = False
        self._told_proposals: dict[TopicPartition, IsrProposal] = {}
        self._isr_is_busy = False
        self._disk = DiskTurns(ports.agenda, ports.later)
        self._begin_duties()

    def _make_fetch(self, leaders: Leaders, permits: Permits, rng: Random) -> Fetch:
        return Fetch(
            self.replicas,
            self.cache,
            leaders,
            self._deadlines,
            permits,
            1 << 20,
            self._ports.now_ms,
            session_slots=_SESSION_SLOTS,
            randrange=rng.randrange,
            replication=self.replication.leader,
        )

    def _make_produce(self, leaders: Leaders, permits: Permits) -> Produce:
        return Produce(
            self.replicas,
            self.cache,
            leaders,
            self._deadlines,
            _max_message_bytes,
            self._ports.now_ms,
            permits,
            do_aside=self._ports.do_aside,
            loop_bytes=LOOP_BYTES,
        )

    def _make_handlers(self, fetch: Fetch, produce: Produce, permits: Permits) -> _Handlers:
        replicas = self.replicas
        return {
            ProduceRequest: produce.respond,
            FetchRequest: fetch.respond,
            ListOffsetsRequest: ListOffsets(replicas, permits, self._ports.do_aside, LOOP_BYTES).respond,
            OffsetForLeaderEpochRequest: OffsetForLeaderEpoch(replicas, permits).respond,
            DeleteRecordsRequest: self._delete_records,
        }

    def _begin_duties(self) -> None:
        ports = self._ports
        for interval_ms, duty in (
            (_HIGH_WATERMARKS_MS, self._store_high_watermarks),
            (_RECOVERY_POINTS_MS, self._store_recovery_points),
            (self._lag_ms / _LAG_CHECKS, self._check_lag),
            (_RETENTION_MS, lambda: self._disk.take(self._retain)),
            (1000, lambda: self._in_directories(lambda each: each.remove_expired(ports.now_ms()))),
        ):
            ports.later(interval_ms, self._do, interval_ms, duty)

    def _epoch(self) -> int:
        return self.broker_epoch

    # --- metadata -----------------------------------------------------------------------------------------------------

    def read(self, batches: Sequence[tuple[int, Sequence[bytes | None]]]) -> None:
        """Read on in the metadata log: offset and values of each batch."""
        image = self.image
        image.mark(batches[0][0])
        for offset, values in batches:
            image.apply_values(values, offset)
        registered = image.brokers.get(self._id)
        changes: LocalChanges | None = None
        if self.has_begun:
            changes = self._catalogue.follow(image, image.delta())
        elif registered is not None and registered.epoch == self.broker_epoch:
            self.has_begun = True
            changes = self._catalogue.begin(image)
            now_ms = self._ports.now_ms()
            self.dirs.load(now_ms, changes.directories, self._catalogue.held)
            self._ports.loaded()
        image.forget_marks()
        self.cache.show(image)
        if changes is not None:
            self.replication.show(image, changes, self._catalogue.held)
            self._unobeyed += 1
            if any(name not in self.replicas.all for name in (*changes.leads, *changes.follows)):
                self._disk.keep_busy(self._ports.flush_ms())  # logs are made, which ends with a sync
            self._disk.take(self._obey, changes)

    def _obey(self, changes: LocalChanges) -> None:
        run_here(carry_out(changes, self.replicas, self.dirs, self._ports.now_ms, self._deleted, self._assigned))
        self.refresh()
        self._unobeyed -= 1
        self._leadership_wait.settled()
        self._tell_directories()

    # --- log directories ----------------------------------------------------------------------------------------------

    def _deleted(self, name: TopicPartition, topic_id: Uuid) -> None:
        self._directories.forget(PartitionKey(topic_id, name.partition))

    def _assigned(self, name: TopicPartition, assignment: Assignment) -> None:
        self._leadership_wait.led(name)
        if assignment.topic_id is not None:
            key = PartitionKey(assignment.topic_id, name.partition)
            self._directories.note(key, self.replicas.directory_id(name), assignment.directory)

    def _tell_directory(self, name: TopicPartition, topic_id: Uuid, directory_id: Uuid) -> bool:
        is_known = self._directories.tell(name, topic_id, directory_id)
        self._tell_directories()
        return is_known

    def _tell_directories(self) -> None:
        request = None if self._tells_directories else self._directories.take()
        if request is None:
            return
        self._tells_directories = True

        def done(answer: Any) -> None:
            self._directories.answered(request, answer)
            self._ports.later(AGAIN_MS, self._tell_more_directories)

        self._ports.ask_controller(request.message, done)

    def _tell_more_directories(self) -> None:
        self._tells_directories = False
        self._tell_directories()

    # --- requests -----------------------------------------------------------------------------------------------------

    def respond(self, request: Any, context: RequestContext) -> None:
        """Answer a request, now or later."""
        answer = self._handlers[type(request)](request, context)
        if isinstance(answer, Awaitable):
            raise InvariantError("a simulated request is answered in one turn")
        if answer is not None:
            context.answer(answer)

    def _delete_records(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        self._disk.take(self._delete_exclusively, request, context)

    def _delete_exclusively(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        """As production does while it holds the disk; here no waiting for followers follows."""
        (topic,) = request.topics
        (asked,) = topic.partitions
        kind = DeleteRecordsResponse.DeleteRecordsTopicResult
        answer = kind.DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
        name = TopicPartition(topic.name, asked.partition_index)
        try:
            self.replicas.check_announced(name)
            partition = self.replicas.find(name)
            partition.check(-1)
            self._raise_log_start(self.replicas.all[name], start_after(partition, asked.offset))
            answer.low_watermark = partition.log.log_start_offset
        except KraftError as error:
            answer.error_code = code_of(self.replicas, name, error)
        context.answer(DeleteRecordsResponse(topics=[kind(name=topic.name, partitions=[answer])]))

    def _arm(self) -> None:
        due = int(self._deadlines.due * 1e6)
        if not self._ports.agenda.now < self._armed <= due:
            self._armed = due
            self._ports.later((due - self._ports.agenda.now) / 1000 + 0.001, self._run_due)

    def _run_due(self) -> None:
        self._armed = 0
        self._deadlines.run_due()
        if self._deadlines.due != float("inf"):
            self._arm()

    # --- following ----------------------------------------------------------------------------------------------------

    def time_ms(self) -> float:
        """See ``fetching.Ports``."""
        return self._ports.agenda.now / 1000

    def address(self, leader_id: int) -> int | None:
        """See ``fetching.Ports``: brokers are reached by their number."""
        return None if self.cache.address(leader_id, LISTENER) is None else leader_id

    def ask(self, address: int, wanted: Ask, done: Callable[[Any], None], *, is_beside: bool) -> None:
        """See ``fetching.Ports``: no request waits for the answer to another one."""
        self._ports.ask_broker(address, wanted.request, VERSIONS[type(wanted.request)], done, is_beside=is_beside)

    def start(self, task: FetchTask) -> None:
        """See ``fetching.Ports``."""
        self._ports.later(_SWITCH_MS, self._run, task)

    def _run(self, task: FetchTask, *, is_exclusive: bool = False) -> None:
        """Run a task until it has to wait."""
        try:
            wanted = task.steps.send(None)
            while is_exclusive and callable(wanted):
                wanted = task.steps.send(failure_of(wanted))
        except StopIteration:
            return
        if isinstance(wanted, Pause):
            self._pause(task, wanted)
        else:
            self._disk.take(partial(self._run, task, is_exclusive=True))

    def _pause(self, task: FetchTask, wanted: Pause) -> None:
        is_over: list[bool] = []

        def resume() -> None:
            if not is_over:
                is_over.append(True)
                task.on_wake, task.is_woken = _nothing, False
                self._run(task)

        if task.is_woken:
            self._ports.later(_SWITCH_MS, resume)
            return
        task.on_wake = partial(self._ports.later, _SWITCH_MS, resume)
        if wanted.until_ms != float("inf"):
            self._ports.later(max(wanted.until_ms - self.time_ms(), 0.1), resume)

    # --- the ISR ------------------------------------------------------------------------------------------------------

    def _proposed(self) -> None:
        for name, proposal in self._proposals.items():
            if self._told_proposals.get(name) is not proposal:
                self._told_proposals[name] = proposal
                self._ports.proposed(name, proposal)
        if not self._isr_is_busy:
            self._isr_is_busy = True
            self._ports.later(0.05, self._send_isr)

    def _send_isr(self) -> None:
        request = self._isr.take()
        if request is None:
            self._isr_is_busy = False
            return

        def done(answer: Any) -> None:
            self._isr_answered(request, answer)

        self._ports.ask_controller(request.message, done)

    def _isr_answered(self, request: IsrRequest, answer: Any) -> None:
        self._isr.answered(request, answer)
        if self._proposals:
            self._ports.later(_ISR_AGAIN_MS, self._send_isr)
        else:
            self._isr_is_busy = False

    # --- duties -------------------------------------------------------------------------------------------------------

    def _do(self, interval_ms: float, duty: Callable[[], None]) -> None:
        if self.has_begun:  # as in production: before, it would store that there are no logs
            duty()
        self._ports.later(interval_ms, self._do, interval_ms, duty)

    def _in_directories(self, action: Callable[[Directory], None]) -> None:
        for directory in self.dirs.usable:
            try:
                action(directory)
            except StorageError as error:
                self.replicas.directory_failed(directory, error)

    def _store_high_watermarks(self) -> None:
        self.replicas.store_high_watermarks()
        self._in_directories(Directory.write_high_watermarks)

    def _store_recovery_points(self) -> None:
        self._disk.take(self._flush)

    def _flush(self) -> None:
        for hosted in self.dirs.logs:
            segments = hosted.log.segment_list() if not hosted.log.closed else []
            if len(segments) > 1 and not segments[-2].synced:
                try:
                    hosted.log.flush()
                    self._disk.keep_busy(self._ports.flush_ms())
                except StorageError as error:
                    self.replicas.directory_failed(hosted.directory, error)
                except LocalError:
                    """It failed before."""
        self._in_directories(Directory.write_recovery_points)

    def _retain(self) -> None:
        """What has served its time goes; ``broker_parts`` makes the same calls."""
        for replica in list(self.replicas.all.values()):
            now_ms = self._ports.now_ms()
            start = None if replica.hosted.log.closed else replica.partition.retained_start(now_ms, self._retention)
            if start is not None:
                self._raise_log_start(replica, start)

    def _raise_log_start(self, replica: HostedPartition, start: int) -> None:
        try:
            run_here(raise_log_start(replica.partition, start, self._ports.now_ms()))
        except StorageError as error:
            self.replicas.directory_failed(replica.hosted.directory, error)
        except LocalError:
            """It failed before."""

    def _check_lag(self) -> None:
        now_ms = self._ports.now_ms()
        for name, replica in list(self.replicas.all.items()):
            self.replicas.carry_out(name, replica.partition.check_lag(now_ms))


def _max_message_bytes(topic: str) -> int:
    """Of a client's batch, whatever its topic."""
    return 1 << 20


def _nothing() -> None:
    """Nobody pauses."""


def _unheard(kind: str, text: str) -> None:
    """What is logged for people."""


def _raise(error: Exception) -> None:
    raise error

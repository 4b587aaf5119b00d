"""One process of a broker: the parts that run in production, with virtual time in place of tasks.

What ``core`` does on trio happens here: requests are answered, rounds of fetching run, proposals are sent, duties come
round. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, Final, Protocol

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.errors import StorageError
from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.fetch_sessions import FetchSessions
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.catalogue import Catalogue, LocalChanges
from kraftcore.plugins.broker.deadlines import Deadlines
from kraftcore.plugins.broker.disk_steps import failure_of, run_here
from kraftcore.plugins.broker.following import Ask, FetchSettings, Following, RoundEnd, Source, Steps
from kraftcore.plugins.broker.isr_requests import IsrRequest, IsrRequests
from kraftcore.plugins.broker.kraft.image_cache import ImageCache
from kraftcore.plugins.broker.local_changes import carry_out
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.partition import IsrProposal, TopicPartition
from kraftcore.plugins.broker.partition.partition import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.schema import Request, Response
from kraftcore.simulation.agenda import Agenda

LISTENER: Final = "PLAINTEXT"
FOLDER: Final = "/logs"
VERSIONS: Final[dict[type, int]] = {
    ProduceRequest: 11,
    FetchRequest: 17,
    ListOffsetsRequest: 9,
    OffsetForLeaderEpochRequest: 4,
}
"""What simulated brokers serve, and in which version they are asked."""
_HIGH_WATERMARKS_MS: Final = 2_000
_RECOVERY_POINTS_MS: Final = 6_000
_LAG_CHECKS: Final = 2  # in the time that a follower may lag
_ISR_AGAIN_MS: Final = 50
_SESSION_SLOTS: Final = 3  # so few that brokers and consumers take them from each other


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

    def ask_broker(self, number: int, request: Request, version: int, done: Callable[[Any], None]) -> None:
        """Send a request to another broker; ``done`` gets the answer, or a `Failure`."""

    def ask_controller(self, request: AlterPartitionRequest, done: Callable[[Any], None]) -> None:
        """Send a request to the active controller, likewise."""

    def proposed(self, name: TopicPartition, proposal: IsrProposal) -> None:
        """A leader decided to propose an ISR; it is sent soon, and again until it is answered."""

    def lost(self, directory: Directory) -> None:
        """A log directory failed."""


class Process:
    """See the module text.

    Args:
        broker_id: whose.
        disk: of the machine.
        folders: of the log directories.
        settings: of every partition.
        fetching: of the follower's side.
        ports: see `Ports`.
        rng: for ids.

    Attributes:
        dirs: its log directories.
        replicas: its partitions.
        cache: what it knows of the cluster.
        image: the metadata, as far as it read it.
        broker_epoch: of its registration; -1 before.
        has_begun: it has read its registration, and follows what the metadata says of its partitions.

    Raises:
        KraftError: the disk does not let it start.
    """

    def __init__(
        self,
        broker_id: int,
        disk: SimulatedDisk,
        folders: Sequence[str],
        settings: PartitionSettings,
        fetching: FetchSettings,
        ports: Ports,
        rng: Random,
    ) -> None:
        self._id = broker_id
        self._ports = ports
        self._fetching = fetching
        self._lag_ms = settings.lag_time_max_ms
        now_ms = ports.now_ms
        config = LogConfig(
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
        self.dirs = LogDirs(disk, folders, broker_id, config, 2000, now_ms(), rng.randbytes)
        self.image = Image()
        self.cache = cache = ImageCache(broker_id)
        self.replicas = replicas = Replicas(broker_id, self.dirs, cache, lambda topic: settings)
        replicas.compares_ids = True
        self.broker_epoch = -1
        self.has_begun = False
        self._catalogue = Catalogue(broker_id)
        self._deadlines = Deadlines(lambda: ports.agenda.now / 1e6)
        self._deadlines.on_earlier = self._arm
        self._armed = 0
        leaders = Leaders(replicas, cache)
        permits = Permits()
        sessions = FetchSessions(_SESSION_SLOTS, lambda each: cache.names.get(each), now_ms, rng.randrange)
        fetch = Fetch(replicas, cache, leaders, self._deadlines, sessions, permits, 1 << 20, now_ms)
        produce = Produce(replicas, cache, leaders, self._deadlines, _max_message_bytes, now_ms, permits)
        self._handlers: dict[type, Callable[[Any, RequestContext], Response | None]] = {
            ProduceRequest: produce.respond,
            FetchRequest: fetch.respond,
            ListOffsetsRequest: ListOffsets(replicas, permits).respond,
            OffsetForLeaderEpochRequest: OffsetForLeaderEpoch(replicas, permits).respond,
        }
        epoch = self._epoch
        self._following = Following(broker_id, epoch, replicas, fetching, _unheard, now_ms)
        self._isr = IsrRequests(broker_id, epoch, replicas, _unheard, now_ms)
        self._sources: dict[int, Source] = {}
        self._asleep: dict[int, int] = {}  # leaders of whom nothing is being fetched now, with a number of that nap
        self._naps = 0
        self._proposed: dict[TopicPartition, IsrProposal] = {}
        self._isr_is_busy = False
        self._busy_until = 0  # a log is flushed until then
        replicas.on_moved = fetch.moved
        replicas.on_proposal = self._propose
        replicas.on_directory_failure = ports.lost
        for interval_ms, duty in (
            (_HIGH_WATERMARKS_MS, self._store_high_watermarks),
            (_RECOVERY_POINTS_MS, self._store_recovery_points),
            (self._lag_ms / _LAG_CHECKS, self._check_lag),
            (1000, lambda: self._in_directories(lambda each: each.remove_expired(now_ms()))),
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
            self.dirs.set_aside_strays(self._catalogue.held, self._ports.now_ms())
        image.forget_marks()
        self.cache.show(image)
        if changes is not None:
            self._exclusively(self._obey, changes)

    def _obey(self, changes: LocalChanges) -> None:
        run_here(carry_out(changes, self.replicas, self.dirs, self._ports.now_ms, _unseen, _unseen))
        self.refresh()

    # --- requests -----------------------------------------------------------------------------------------------------

    def respond(self, request: Any, context: RequestContext) -> None:
        """Answer a request, now or later."""
        answer = self._handlers[type(request)](request, context)
        if answer is not None:
            context.answer(answer)

    def _arm(self) -> None:
        due = int(self._deadlines.due * 1e6)
        if not self._ports.agenda.now < self._armed <= due:
            self._armed = due
            self._ports.later((due - self._ports.agenda.now) / 1000 + 0.001, self._come)

    def _come(self) -> None:
        self._armed = 0
        self._deadlines.come()
        if self._deadlines.due != float("inf"):
            self._arm()

    # --- following ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Assignments or addresses changed."""
        wanted = self._following.wanted()
        for leader_id, source in list(self._sources.items()):
            source.take(wanted.pop(leader_id, set()))
            if leader_id in self._asleep:
                self._fetch(source)
        for leader_id, names in wanted.items():
            source = self._sources[leader_id] = Source(leader_id, names)
            self._fetch(source)

    def _wake(self, source: Source, nap: int) -> None:
        if self._asleep.get(source.leader_id) == nap and self._sources.get(source.leader_id) is source:
            self._fetch(source)

    def _sleep(self, source: Source, until_ms: float) -> None:
        self._naps += 1
        self._asleep[source.leader_id] = self._naps
        if until_ms != float("inf"):
            self._ports.later(max(until_ms - self._time_ms(), 0.1), self._wake, source, self._naps)

    def _time_ms(self) -> float:
        return self._ports.agenda.now / 1000

    def _fetch(self, source: Source) -> None:
        self._asleep.pop(source.leader_id, None)
        if not source.names:
            del self._sources[source.leader_id]
            return
        address = self.cache.address(source.leader_id, LISTENER)
        asked = self._following.ask_for(source.due(self._time_ms()))
        if address is None or not asked:
            self._sleep(source, source.due_ms if address is not None else float("inf"))
            return
        self._step(source, asked, self._following.round(source, asked), None)

    def _step(self, source: Source, asked: Collection[TopicPartition], steps: Steps[Any], answer: Any) -> None:
        try:
            wanted = steps.send(answer)
            while callable(wanted):
                error = failure_of(wanted)
                wanted = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as end:
            self._end_round(source, asked, end.value)
            return
        if isinstance(wanted, Ask):
            version = VERSIONS[type(wanted.request)]

            def done(found: Any) -> None:
                self._step(source, asked, steps, found)

            self._ports.ask_broker(source.leader_id, wanted.request, version, done)
        else:
            self._exclusively(self._step, source, asked, steps, None)

    def _end_round(self, source: Source, asked: Collection[TopicPartition], end: RoundEnd) -> None:
        source.ended(asked, end, self._time_ms(), self._fetching.backoff_ms)
        if end.wait_ms:
            self._sleep(source, self._time_ms() + end.wait_ms)
        else:
            self._ports.later(0.05, self._fetch_on, source)

    def _fetch_on(self, source: Source) -> None:
        if self._sources.get(source.leader_id) is source and source.leader_id not in self._asleep:
            self._fetch(source)

    # --- the ISR ------------------------------------------------------------------------------------------------------

    def _propose(self, name: TopicPartition, proposal: IsrProposal) -> None:
        if self._proposed.get(name) is not proposal:
            self._proposed[name] = proposal
            self._ports.proposed(name, proposal)
        if self._isr.propose(name, proposal) and not self._isr_is_busy:
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
        if self._isr.has_more:
            self._ports.later(_ISR_AGAIN_MS, self._send_isr)
        else:
            self._isr_is_busy = False

    # --- duties -------------------------------------------------------------------------------------------------------

    def _do(self, interval_ms: float, duty: Callable[[], None]) -> None:
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
        self._exclusively(self._flush)

    def _flush(self) -> None:
        for hosted in self.dirs.logs:
            segments = hosted.log.segment_list() if not hosted.log.closed else []
            if len(segments) > 1 and not segments[-2].synced:
                try:
                    hosted.log.flush()
                    self._busy_until = self._ports.agenda.now + int(self._ports.flush_ms() * 1000)
                except StorageError as error:
                    self.replicas.directory_failed(hosted.directory, error)
        self._in_directories(Directory.write_recovery_points)

    def _check_lag(self) -> None:
        now_ms = self._ports.now_ms()
        for name, replica in list(self.replicas.all.items()):
            self.replicas.carry_out(name, replica.partition.check_lag(now_ms))

    def _exclusively(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something when no log is flushed."""
        wait_ms = (self._busy_until - self._ports.agenda.now) / 1000
        if wait_ms > 0:
            self._ports.later(wait_ms, self._exclusively, action, *arguments)
        else:
            action(*arguments)


def _max_message_bytes(topic: str) -> int:
    """Of a client's batch, whatever its topic."""
    return 1 << 20


def _unheard(kind: str, text: str) -> None:
    """What is logged for people."""


def _unseen(name: TopicPartition, of: object) -> None:
    """Which directory a partition is in: the controller is not told."""

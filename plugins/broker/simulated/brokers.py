"""A broker over all its processes: its disk, its clock, what it hears, and how it ends.

Its life under the controller (registration, heartbeats, shutdowns) is scripted as that of the controllers' workload;
what it does with partitions is production's (`Process`). It reads the metadata log late, in pieces, and as far as it is
committed; it begins with its partitions when it has read its own registration, as Kafka's brokers do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from kraftcore.core.disk.simulated import Fault, SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, KraftError, StorageError
from kraftcore.metadata import PartitionKey
from kraftcore.plugins.broker.partition import IsrProposal, TopicPartition
from kraftcore.plugins.broker.partition import View as ReaderView
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import HostedPartition
from kraftcore.plugins.broker.replication.follower_fetch import FetchSettings
from kraftcore.plugins.broker.simulated.cleaning import clean
from kraftcore.plugins.broker.simulated.process import Process
from kraftcore.plugins.broker.simulated.requests import Connection, Exchange, Noted, OffsetQuestion, Unexpected, Written
from kraftcore.plugins.broker.simulated.rules import PartitionRules
from kraftcore.plugins.broker.work.heavy_steps import Done, failure_of
from kraftcore.plugins.controller.simulated.brokers import Broker, View
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.simulation.agenda import Agenda
from kraftcore.simulation.checks import Violation
from kraftcore.simulation.world import World

_ANSWER_MS = 1500  # beyond the time that a leader may wait
_CONTROLLER_MS = 1000
_OWN_REQUESTS = 1 << 20  # correlation ids of requests to other brokers
_BESIDE = 1 << 28  # is in the correlation ids of those beside a held one, which have a connection of their own
_LATE = 0.7  # share of their answers that come late
_LATE_MS = 1500
_ACKS_ALL = -1
_LATEST = -1
_READ_COMMITTED = 1
_ASIDE_MS = 4_000  # what is done aside takes at most
_ASIDE_SHORT = 5  # most of it takes little: the power of a random number below 1
_AT_ONCE = 0.5  # share of what is done aside that is done first, and told late
_NEXT_MS = 0.05


class PartitionBroker(Broker):
    """A simulated broker over all its processes: its disk, its clock, how it starts and ends.

    Args:
        world: where it lives.
        number: its id, and its number in the network.
        controllers: has what is committed of the metadata.
        rules: watch its partitions.
        heartbeat_ms: between heartbeats.
        settings: of its partitions.
        fetching: of the follower's side.
        log: the committed metadata log: offset and values of each batch.
        loses_power: share of its crashes that take what was not synced.
        folders: its log directories.
        retention: of its logs.
        cleans: share of the ends of a process after which its logs are cleaned.
        is_theirs: it takes transactions, as Kafka's.

    Attributes:
        process: that runs, or None.
        lost_power: how often it lost power.
        lost_directories: how often a log directory failed while others went on.
        cleaned: how many batches of its logs were cleaned away, or some of their records.
        asked_beside: how many requests it sent beside one that a leader held.
        answered_late: how many answers to those came when a log had been cut and had grown to the same end again.
        done_aside: how often requests were looked at aside.
        moved_aside: how many batches of those found another leader epoch, or another topic of the name.
        held: how many requests waited behind one of their connection.
        held_for_making: how many waited for a partition that it was to lead, and did not lead yet.
    """

    def __init__(
        self,
        world: World,
        number: int,
        controllers: Rules,
        rules: PartitionRules,
        heartbeat_ms: float,
        settings: PartitionSettings,
        fetching: FetchSettings,
        log: list[tuple[int, tuple[bytes | None, ...]]],
        loses_power: float,
        folders: Sequence[str],
        retention: Retention,
        cleans: float,
        *,
        is_theirs: bool,
        on_proposal: Callable[[int, AlterPartitionRequest], None],
    ) -> None:
        super().__init__(world, number, controllers, heartbeat_ms)
        self.is_up = False
        self.process: Process | None = None
        self.lost_power = 0
        self.answered_late = self.asked_beside = self.lost_directories = self.cleaned = 0
        self.done_aside = self.moved_aside = self.held = self.held_for_making = 0
        self._on_proposal = on_proposal
        self._watch = rules
        self._settings = settings
        self._fetching = fetching
        self._log = log
        self._read_to = 0
        self._loses_power = loses_power
        self._folders = folders
        self._retention = retention
        self._cleans = cleans
        self._is_theirs = is_theirs
        self._disk = SimulatedDisk(self.rng)
        self._run = 0
        self._asked: dict[int, tuple[int, int, Callable[[Any], None]]] = {}
        self._asked_number = _OWN_REQUESTS
        self._skew_ms = 1_700_000_000_000 + self.rng.randrange(60_000)
        self._has_lost_power = False
        self._sync_faults: list[Fault] = []
        self._late: list[_LateAnswer] = []
        self._aside_rng = Random(f"aside-{world.seed}-{number}")
        self._noted: list[Noted] = []  # those whose connections wait
        self._held: dict[Connection, deque[tuple[int, bytes]]] = {}
        self._unexpected = Unexpected()

    @property
    def hosted(self) -> Mapping[TopicPartition, HostedPartition]:
        """See `Watched`."""
        return {} if self.process is None else self.process.replicas.all

    def directory_of(self, name: TopicPartition) -> Uuid | None:
        """Id of the log directory that holds a partition; None: it has none of it."""
        return None if self.process is None else self.process.replicas.directory_id(name)

    def is_offline(self, name: TopicPartition) -> bool:
        """See `Watched`."""
        return self.process is not None and self.process.replicas.is_broken(name)

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """See `Broker`."""
        if self.stays_down or self.is_up:
            return
        self._run += 1
        self._asked.clear()
        self._late.clear()
        self._noted.clear()
        self._held.clear()
        if self._has_lost_power:
            self._disk.clear_faults()  # what is left of its logs is to be seen
            self._sync_faults.clear()
        process = self._open()
        if process is None:
            self._disk = self._disk.crash("kept")
            self.world.agenda.after_ms(500, self.start)
            return
        self.process = process
        self._watch.started(self.number)
        self._read_to = 0
        super().start()
        self._last_epoch = process.dirs.previous_epoch
        self.later(self.rng.random() * 50, self._read_on)

    def loaded(self) -> None:
        """See `Ports`."""
        if self.process is None:
            return
        for directory in self.process.dirs.directories:
            for error in (directory.failure, *directory.broken.values()):
                if isinstance(error, CorruptDataError):
                    raise Violation("disk", f"broker {self.number} cannot use what it has: {error}") from error
        if self._has_lost_power:
            self._has_lost_power = False
            ends: dict[PartitionKey, int] = {}
            for hosted in self.process.dirs.logs:
                if hosted.topic_id is not None:
                    ends[PartitionKey(hosted.topic_id, hosted.name.partition)] = hosted.log.log_end_offset
            self._watch.lost_power(self.number, ends)

    def _open(self) -> Process | None:
        """A process; None: the disk fails."""
        settings, retention, fetching = self._settings, self._retention, self._fetching
        try:
            process = Process(
                self.number,
                self._disk,
                self._folders,
                settings,
                retention,
                fetching,
                self,
                self.rng,
                is_theirs=self._is_theirs,
            )
        except StorageError as error:
            self.world.note(None, "broker", f"{self.number} cannot start: {error}")
            return None
        except CorruptDataError as error:
            raise Violation("disk", f"broker {self.number} cannot start: {error}") from error
        return process

    def die(self) -> None:
        """The process ends without a word, or the machine loses its power."""
        if not self.is_up:
            return
        has_power = self.rng.random() >= self._loses_power
        self._stop(has_power=has_power)
        self.world.note(None, "broker", f"{self.number} {'dies' if has_power else 'loses power'}")
        self.ended()

    def _stop(self, *, has_power: bool) -> None:
        self.is_up = False
        self.refuses = has_power
        process, self.process = self.process, None
        self._run += 1
        # After a failed sync some of what was read is not on the disk.
        self._has_lost_power = self._has_lost_power or any(fault.hits for fault in self._sync_faults)
        self._sync_faults.clear()
        self._disk = self._disk.crash("kept" if has_power else "mixed")
        if not has_power:
            self._has_lost_power = True
            self.lost_power += 1
        elif process is not None and not self._has_lost_power and self.rng.random() < self._cleans:
            self._clean(process)

    def _clean(self, process: Process) -> None:
        """A process of Kafka's had the directories for minutes: it stored recovery points, and cleaned the logs."""
        if len(process.dirs.usable) < len(self._folders):
            return
        for name, replica in process.replicas.all.items():
            partition, topic_id = replica.partition, replica.hosted.topic_id
            if topic_id is None:
                continue
            key = PartitionKey(topic_id, name.partition)
            end, kept = partition.last_stable_offset, self._watch.last_numbered(self.number, key)
            left = clean(self._disk, replica.hosted, end, kept, self.rng)
            if left:
                self._watch.cleaned(self.number, key, left)
                self.cleaned += len(left)
                self.world.note(None, "broker", f"{self.number}: {len(left)} batches of {name} are cleaned")

    def end_cleanly(self) -> None:
        """See `Broker`."""
        process = self.process
        is_clean = process is not None
        if process is not None:
            try:
                process.replicas.store_high_watermarks()
                process.dirs.close(broker_epoch=self.epoch)
            except KraftError as error:
                self.world.note(None, "broker", f"{self.number} could not close its logs: {error}")
                is_clean = False
        self._stop(has_power=True)
        if is_clean:
            super().end_cleanly()
        else:
            self.ended()

    def fail_disk(self) -> None:
        """An operation in one of its log directories fails soon; the process ends of it when no other one is left."""
        operation = self.rng.choice(("any", "write", "sync", "rename", "truncate"))
        path = f"{self.rng.choice(self._folders)}/"
        fault = self._disk.inject(operation, after=self.rng.randrange(20), path=path)
        if operation in ("any", "sync"):
            self._sync_faults.append(fault)

    def heal(self, *, stays_down: bool) -> None:
        """See `Broker`; half the time somebody starts it again where a log directory failed."""
        self._disk.clear_faults()
        process = self.process
        is_whole = process is None or len(process.dirs.usable) == len(self._folders)
        if self.is_up and (stays_down or (not is_whole and self.rng.random() < 0.5)):
            self._stop(has_power=True)
        super().heal(stays_down=stays_down)

    # --- what a process asks of its machine ---------------------------------------------------------------------------

    @property
    def agenda(self) -> Agenda:
        """See `Ports`."""
        return self.world.agenda

    def now_ms(self) -> int:
        """See `Ports`."""
        return self._skew_ms + self.world.agenda.now // 1000

    def flush_ms(self) -> float:
        """See `Ports`."""
        options = self.world.options
        if options.slow_fsync_ms and not self.world.calm and self.rng.random() < 0.3:
            return self.rng.random() * options.slow_fsync_ms
        return options.flush_ms * self.rng.random()

    def later(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """See `Ports`."""
        self.world.agenda.after_ms(delay_ms, self._perform, self._run, action, *arguments)

    def _perform(self, run: int, action: Callable[..., None], *arguments: Any) -> None:
        process = self.process
        if run != self._run or process is None:
            return
        if self.paused_until > self.world.agenda.now:
            self.world.agenda.at(self.paused_until, self._perform, run, action, *arguments)
            return
        try:
            with self._unexpected:
                action(*arguments)
        except StorageError as error:
            self.world.note(None, "broker", f"{self.number}: disk failed: {error}")
            self._fall_down()
            return
        if run == self._run and not process.dirs.usable:
            self.world.note(None, "broker", f"{self.number}: no log directory is left")
            self._fall_down()
            return
        self._look_into()
        for late in self._late:
            if late.is_worst:
                self.answered_late += 1
                self.world.agenda.after_ms(0, self._perform, run, self._deliver, late)

    def _look_into(self) -> None:
        """The rules read the logs, and meet no failure that is meant for the process."""
        with self._disk.without_faults():
            self._watch.check(self)

    def _fall_down(self) -> None:
        self._disk.clear_faults()
        self._stop(has_power=True)
        self.ended()

    def ask_broker(
        self, number: int, request: Request, version: int, done: Callable[[Any], None], *, is_beside: bool
    ) -> None:
        """See `Ports`."""
        self.asked_beside += is_beside
        self._asked_number += 1
        correlation_id = self._asked_number + is_beside * _BESIDE
        self._asked[correlation_id] = (api_of(type(request))[0], version, done)
        frame = encode_request(request, version, correlation_id)
        self.world.network.request(self.number, number, self._run, correlation_id, frame, int(is_beside))
        self.later(self._fetching.wait_max_ms + _ANSWER_MS, self._give_up, correlation_id)

    def _give_up(self, correlation_id: int) -> None:
        found = self._asked.pop(correlation_id, None)
        if found is not None:
            found[2](Failure.TIMED_OUT)

    def do_aside(self, work: Callable[[], object], done: Done) -> None:
        """See `Ports`: what it works on may change before it begins, or after its end."""
        rng = self._aside_rng
        self.done_aside += 1
        if rng.random() < _AT_ONCE:
            error = failure_of(work)
            work = _nothing if error is None else partial(_raise, error)
        delay_ms = 5.0 if self.world.calm else rng.random() ** _ASIDE_SHORT * _ASIDE_MS
        self.later(delay_ms, self._end_aside, work, done)

    def _end_aside(self, work: Callable[[], object], done: Done) -> None:
        error = failure_of(work)
        for noted in self._noted:
            self._note_moved(noted)
        done(error)

    def _note_moved(self, noted: Noted) -> None:
        """A request that waited counts as one that arrives when it goes on, at the leader of that moment."""
        for name, written in noted.written.items():
            found = self._key(*name)
            if found is not None and found != (written.key, written.epoch):
                self.moved_aside += 1
                self._watch.written(found[0], written.records)
                noted.written[name] = Written(*found, written.records, self._replicas(name))

    def taken_up(self, request: Request) -> None:
        """See `Ports`."""
        self.held_for_making += 1
        for noted in self._noted:
            if noted.request is request:
                again = self._note(request)
                noted.written, noted.asked = again.written, again.asked

    def proposed(self, name: TopicPartition, proposal: IsrProposal) -> None:
        """See `Ports`."""
        found, replica = self._key(*name), self.hosted.get(name)
        leading = None if replica is None else replica.partition.leading
        if found is not None and leading is not None and self.process is not None:
            self._watch.proposed(self.number, found[0], proposal.isr, leading.isr.committed, self.process.image)

    def ask_controller(self, request: Request, done: Callable[[Any], None]) -> None:
        """See `Ports`."""
        if isinstance(request, AlterPartitionRequest):
            self.rules.proposes(request)
            self._on_proposal(self.number, request)
        answered: list[bool] = []

        def hear(run: int, answer: Any) -> None:
            if not answered:
                answered.append(True)
                self._perform(run, done, answer)

        self.send(request, partial(hear, self._run))
        self.later(_CONTROLLER_MS, hear, self._run, Failure.TIMED_OUT)

    # --- the network --------------------------------------------------------------------------------------------------

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """See `Client`."""
        if correlation_id < _OWN_REQUESTS:
            super().receive_response(incarnation, correlation_id, frame)
            return
        found = self._asked.pop(correlation_id, None) if incarnation == self._run else None
        if found is None:
            return
        api_key, version, done = found
        answer = decode_response(frame, api_key, version)[1]
        if correlation_id >= _BESIDE and not self.world.calm and self.rng.random() < _LATE:
            late = _LateAnswer(done, answer, self.hosted)
            self._late.append(late)
            self.later(max(self.rng.random(), self.rng.random()) * _LATE_MS, self._deliver, late)
        else:
            self._perform(self._run, done, answer)

    def _deliver(self, late: _LateAnswer) -> None:
        if late in self._late:
            self._late.remove(late)
            late.done(late.answer)

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """See `Client`."""
        if correlation_id < _OWN_REQUESTS:
            super().receive_failure(incarnation, correlation_id, failure)
        elif incarnation == self._run and correlation_id in self._asked:
            self._perform(self._run, self._asked.pop(correlation_id)[2], failure)

    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """Somebody asks it: a follower, a producer, a consumer."""
        connection = source, incarnation, int(correlation_id >= _BESIDE)
        self._perform(self._run, self._take, connection, correlation_id, frame)

    def _take(self, connection: Connection, correlation_id: int, frame: bytes) -> None:
        """Serve a request, or keep it for when those before it on its connection are answered."""
        if connection in self._held:
            self.held += 1
            self._held[connection].append((correlation_id, frame))
        else:
            self._serve(connection, correlation_id, frame)

    def _serve_next(self, connection: Connection) -> None:
        """Serve what a connection kept, one request after the other."""
        held = self._held[connection]
        if not held:
            del self._held[connection]
        elif not self._serve(connection, *held.popleft()):
            self.later(_NEXT_MS, self._serve_next, connection)

    def _serve(self, connection: Connection, correlation_id: int, frame: bytes) -> bool:
        """Answer a request, now or later; whether its connection waits for it."""
        process = self.process
        header, request = decode_request(frame)
        if process is None or request is None:
            return False
        noted = self._note(request)
        exchange = Exchange(self, self._run, connection, correlation_id, header.request_api_version, noted)
        process.respond(request, exchange)
        return noted.waits

    def answered(self, exchange: Exchange, response: Any) -> None:
        """Judge an answer, and send it."""
        if exchange.run == self._run:
            self._judge(exchange.noted, response)
            encoded = encode_response(response, exchange.version, exchange.correlation_id)
            source, incarnation, lane = exchange.connection
            self.world.network.respond(self.number, source, incarnation, exchange.correlation_id, encoded, lane)
            self.finished(exchange)

    def broken(self, exchange: Exchange) -> None:
        """Break the connection of a request that was not answered."""
        if exchange.run != self._run or exchange.noted.is_over:
            return
        held = self._held.get(exchange.connection, deque())
        source, incarnation, _ = exchange.connection
        for each in (exchange.correlation_id, *(number for number, _ in held)):
            self.world.network.fail(self.number, source, incarnation, each, Failure.RESET)
        held.clear()
        self.finished(exchange)

    def finished(self, exchange: Exchange) -> None:
        """A request is answered: go on with those that wait behind it on its connection."""
        if exchange.run == self._run:
            exchange.noted.is_over = True
            if exchange.noted.waits and exchange.noted in self._noted:
                self._noted.remove(exchange.noted)
                self.later(_NEXT_MS, self._serve_next, exchange.connection)

    def held_up(self, exchange: Exchange) -> None:
        """Keep requests that come on the connection of this one until it is answered."""
        exchange.noted.waits = True
        self._noted.append(exchange.noted)
        self._held.setdefault(exchange.connection, deque())

    # --- what is told to others ---------------------------------------------------------------------------------------

    def _key(self, topic: str, number: int) -> tuple[PartitionKey, int] | None:
        """Topic id and number, and the leader epoch, of a partition that is here."""
        replica = self.hosted.get(TopicPartition(topic, number))
        if replica is None or replica.hosted.topic_id is None:
            return None
        return PartitionKey(replica.hosted.topic_id, number), replica.partition.leader_epoch

    def _note(self, request: Any) -> Noted:
        """Where a producer's records go, in which leader epoch; how far a consumer can read that asks for offsets."""
        noted = Noted(request)
        if isinstance(request, ProduceRequest):
            for topic in request.topic_data:
                for data in topic.partition_data:
                    name, records = TopicPartition(topic.name, data.index), bytes(data.records or b"")
                    self._watch.came(self.number, name, records)
                    found = self._key(*name)
                    if found is not None:
                        self._watch.written(found[0], records)
                        noted.written[name] = Written(*found, records, self._replicas(name))
        elif isinstance(request, ListOffsetsRequest) and request.replica_id < 0:
            is_committed = request.isolation_level == _READ_COMMITTED
            view = ReaderView.COMMITTED if is_committed else ReaderView.CONSUMER
            for asked_topic in request.topics:
                for asked in asked_topic.partitions:
                    name = TopicPartition(asked_topic.name, asked.partition_index)
                    found = self._key(*name)
                    if found is not None:
                        end = self.hosted[name].partition.readable_end(view)
                        noted.asked[name] = OffsetQuestion(found[0], asked.timestamp, end)
        return noted

    def _judge(self, noted: Noted, response: Any) -> None:
        process, request = self.process, noted.request
        self._look_into()
        if process is None:
            return
        if isinstance(response, ProduceResponse) and request.acks == _ACKS_ALL:
            for topic in response.responses:
                for told in topic.partition_responses:
                    name = TopicPartition(topic.name, told.index)
                    found = noted.written.get(name)
                    if not told.error_code and found is not None:
                        self._judge_acknowledged(told, name, found)
        elif isinstance(response, FetchResponse) and request.replica_state.replica_id < 0:
            self._judge_read(process, response, is_committed=request.isolation_level == _READ_COMMITTED)
        elif isinstance(request, ListOffsetsRequest) and request.replica_id < 0:
            self._judge_ends(noted, response)

    def _replicas(self, name: TopicPartition) -> int:
        """How many replicas a partition has, as far as it is known here."""
        replica = self.hosted.get(name)
        leading = None if replica is None else replica.partition.leading
        return 1 if leading is None else len(leading.followers) + 1

    def _judge_acknowledged(self, told: Any, name: TopicPartition, written: Written) -> None:
        replicas = min(written.replicas, self._replicas(name))
        self._watch.told_committed(self.number, written.key, written.epoch, told.base_offset, written.records, replicas)

    def _judge_read(self, process: Process, response: FetchResponse, *, is_committed: bool) -> None:
        for sent in response.responses:
            name = process.cache.names.get(sent.topic_id, sent.topic)
            for data in sent.partitions:
                replica = self.hosted.get(TopicPartition(name, data.partition_index))
                if replica is not None and replica.hosted.topic_id == sent.topic_id and data.records:
                    key, records = PartitionKey(sent.topic_id, data.partition_index), bytes(data.records)
                    self._watch.read(self.number, key, replica.partition, records)
                    if is_committed:
                        aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
                        self._watch.read_committed(self.number, key, replica.partition, records, aborted)

    def _judge_ends(self, noted: Noted, response: Any) -> None:
        for topic in response.topics:
            for told in topic.partitions:
                name = TopicPartition(topic.name, told.partition_index)
                found, asked = self._key(*name), noted.asked.get(name)
                if told.error_code or found is None or asked is None or found[0] != asked.key:
                    continue
                if asked.timestamp == _LATEST and noted.request.isolation_level != _READ_COMMITTED:
                    self._watch.told_end(*found, told.offset)
                elif asked.timestamp >= 0:
                    told_time = (told.offset, told.timestamp)
                    partition = self.hosted[name].partition
                    self._watch.told_time(self.number, found[0], partition, asked.timestamp, asked.end, told_time)

    # --- a broker's life ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See `Broker`: it tells how far its process read the log, and which directories failed."""
        if self.process is not None:
            failed = [each.id for each in self.process.dirs.directories if each.failure is not None]
            known = len(self._offline)
            self._offline = sorted(each for each in failed if each is not None)
            if len(self._offline) > known:
                self.lost_directories += 1
                self.world.note(None, "broker", f"{self.number} lost {len(self._offline)} of its log directories")
        end = self._log[self._read_to - 1] if self._read_to else None
        offset = -1 if end is None else end[0] + len(end[1]) - 1
        self.views = [View(offset), *self.views[:3]]

    def _register(self) -> None:
        if self.process is not None:
            self.directories = sorted(each.id for each in self.process.dirs.usable if each.id is not None)
        super()._register()

    def lead(self) -> None:
        """See `Broker`: its process proposes."""

    def _read_on(self) -> None:
        """Read some of what is committed and not read yet."""
        process, log, rng = self.process, self._log, self.rng
        if process is None:
            return
        process.broker_epoch = max(process.broker_epoch, self.epoch)
        left = len(log) - self._read_to
        if left and not self._is_cut_off:
            count = left if self.world.calm or rng.random() < 0.7 else rng.randrange(1, left + 1)
            batches = log[self._read_to : self._read_to + count]
            self._read_to += count
            process.read(batches)
        delay_ms = 20 if self.world.calm or rng.random() < 0.8 else rng.random() * 1500
        self.later(5 + rng.random() * delay_ms, self._read_on)

    @property
    def _is_cut_off(self) -> bool:
        blocked = self.world.network.blocked
        return all((host.number, self.number) in blocked for host in self.world.hosts)


class _LateAnswer:
    """An answer to a request beside a held one, whose connection is slow.

    Args:
        done: takes it.
        answer: itself.
        hosted: the broker's partitions.
    """

    def __init__(
        self, done: Callable[[Any], None], answer: Any, hosted: Mapping[TopicPartition, HostedPartition]
    ) -> None:
        self.done = done
        self.answer = answer
        self._places = [(replica.partition.log, replica.partition.log.log_end_offset) for replica in hosted.values()]
        self._cut: set[Log] = set()

    @property
    def is_worst(self) -> bool:
        """Whether a log was cut since it came, and ends again where it did."""
        for log, end in self._places:
            if log.log_end_offset < end:
                self._cut.add(log)
            elif log in self._cut and log.log_end_offset == end:
                return True
        return False


def _nothing() -> None:
    """It was done before."""


def _raise(error: Exception) -> None:
    raise error

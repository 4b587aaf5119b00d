"""Batches that decompress to much more than they are: looked at aside, and taken in order; ListOffsets by time."""

from __future__ import annotations

import gzip
from random import Random
from types import SimpleNamespace

import own_partitions
import pytest
import trio
import trio.testing
from broker_rig import open_rig

from kraftcore.core.batch import Compression, build_batch, iter_batches
from kraftcore.core.batch.build import build_records_batch
from kraftcore.core.batch.record import Record
from kraftcore.core.crc32c import crc32c
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import StorageError
from kraftcore.node.registry import Asker
from kraftcore.plugins.broker.api import waiting_line
from kraftcore.plugins.broker.api.leaders import Leader
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work import heavy_steps, turns
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.plugins.broker.work.heavy_steps import BATCH_BYTES, failure_of
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState

NOW = 1_000_000
A, B, C = (TopicPartition(topic, 0) for topic in "abc")
CODECS = [codec for codec in Compression if codec]

NOTHING = (E.NONE, -1, -1)


def bomb(size=4 * BATCH_BYTES, codec=Compression.ZSTD, **fields):
    return build_batch([bytes(size)], timestamp_ms=NOW, compression=codec, **fields)


def small(**fields):
    return build_batch([b"v"], timestamp_ms=NOW, **fields)


class Rig:
    """Produce and ListOffsets of a broker that leads a-0, b-0 and c-0; what is to be done aside is kept.

    Attributes:
        aside: pairs of work and what is to be called when it is done.
        answers: by the request's number: errors of its partitions in order, "closed", or "nothing" for acks=0.
        waited: numbers of requests whose connections wait.
        rules: of all topics.
    """

    def __init__(self, *names, replicas=(1,)):
        self.aside, self.answers, self.rules, self.requests = [], {}, RecordRules(), 0
        self.waited = []
        config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True, max_batch_bytes=1 << 26)
        self.disk = SimulatedDisk(Random(1))
        self.dirs = LogDirs(self.disk, ["/d"], 1, lambda topic: config, 0, 0, Random(1).randbytes)
        cache = RequestCache()
        self.replicas = Replicas(1, self.dirs, cache, lambda topic: PartitionSettings())
        self.partitions = {}
        for name in names or (A, B, C):
            cache.topics[name.topic] = {0: UpdateMetadataPartitionState(partition_index=0, leader=1)}
            self.partitions[name] = own_partitions.add(self.replicas, name, None).partition
            self.partitions[name].become_leader(Assignment(1, 1, 1, replicas, replicas), NOW)
        self.deadlines = Deadlines(lambda: 0.0)
        leaders = SimpleNamespace(of=lambda name, listener: Leader(2, 5, None, ""))
        do_aside = lambda work, done: self.aside.append((work, done))  # noqa: E731
        self.produce = Produce(
            self.replicas,
            cache,
            leaders,
            self.deadlines,
            lambda topic: 1 << 25,
            lambda: NOW,
            rules_of=lambda topic: self.rules,
            do_aside=do_aside,
        )
        self.offsets = ListOffsets(self.replicas, Permits(), do_aside)

    def context(self, version):
        self.requests += 1
        number = self.requests

        def tell(answer):
            assert number not in self.answers
            self.answers[number] = answer

        return number, SimpleNamespace(
            version=version,
            client_id="c",
            asker=Asker("L", "peer"),
            answer=tell,
            close=lambda: tell("closed"),
            answer_nothing=lambda: tell("nothing"),
            wait=lambda: self.waited.append(number),
        )

    def send(self, *parts, acks=1):
        """A request of (partition, batch); its number."""
        kind = ProduceRequest.TopicProduceData
        topics = [
            kind(name=name.topic, partition_data=[kind.PartitionProduceData(index=0, records=bytes(batch))])
            for name, batch in parts
        ]
        number, context = self.context(10)
        self.produce.respond(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), context)
        return number

    def do(self, index=0):
        """Do what waits there, and say so."""
        work, done = self.aside.pop(index)
        done(failure_of(work))

    def errors(self, number):
        return [E.of(each.error_code) for each in self.parts(number)]

    def parts(self, number):
        return [each.partition_responses[0] for each in self.answers[number].responses]

    def base(self, number):
        return [each.base_offset for each in self.parts(number)]

    def lose(self, name):
        self.replicas.carry_out(name, self.partitions[name].become_follower(Assignment(2, 5, 5, (1, 2), (1, 2))))

    def find(self, name, timestamp):
        """A ListOffsets by time; its number."""
        kind = ListOffsetsRequest.ListOffsetsTopic
        asked = kind(
            name=name.topic,
            partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)],
        )
        number, context = self.context(7)
        self.offsets.respond(ListOffsetsRequest(replica_id=-1, topics=[asked]), context)
        return number

    def found(self, number):
        told = self.answers[number].topics[0].partitions[0]
        return E.of(told.error_code), told.offset, told.timestamp


@pytest.fixture
def rig():
    return Rig()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_and_light_is_taken_at_once(rig, codec):
    number = rig.send((A, build_batch([b"v" * 100] * 1000, timestamp_ms=NOW, compression=codec)))
    assert (rig.aside, rig.errors(number)) == ([], [E.NONE])


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_waits_and_so_does_what_comes_behind_it_in_its_partition(rig, codec):
    first, second = rig.send((A, bomb(codec=codec))), rig.send((A, small()))
    third = rig.send((B, small()))
    assert (list(rig.answers), rig.waited) == ([third], [first, second])
    rig.do(1)
    assert list(rig.answers) == [third]
    rig.do(0)
    assert [rig.base(each) for each in (first, second, third)] == [[0], [1], [0]]
    assert list(rig.answers) == [third, first, second]
    data = rig.partitions[A].log.read(0, 1 << 20, up_to=2, at_least_one=True)
    assert [batch.compression for batch in iter_batches(data)] == [codec, Compression.NONE]
    assert rig.errors(rig.send((A, small()))) == [E.NONE]
    assert not rig.aside


def test_order_holds_through_requests_of_several_partitions(rig):
    """Each is behind all that came before it in any of its partitions, whatever is done first."""
    wanted = [(A, B), (B, C), (C,), (A,), (A, C), (B,)]
    numbers = [
        rig.send(*((name, bomb() if number % 2 == 0 else small()) for name in names))
        for number, names in enumerate(wanted)
    ]
    while rig.aside:
        rig.do(-1)
    ends = dict.fromkeys((A, B, C), 0)
    for number, names in zip(numbers, wanted, strict=True):
        assert rig.base(number) == [ends[name] for name in names]
        for name in names:
            ends[name] += 1


def test_sequences_of_a_producer_hold(rig):
    fields = {"producer_id": 7, "producer_epoch": 0}
    batches = [bomb(**fields, base_sequence=0), small(**fields, base_sequence=1), bomb(**fields, base_sequence=2)]
    numbers = [rig.send((A, batch)) for batch in (*batches, batches[2], small(**fields, base_sequence=3))]
    while rig.aside:
        rig.do(-1)
    assert [rig.errors(each) for each in numbers] == [[E.NONE]] * 5
    assert [rig.base(each) for each in numbers] == [[0], [1], [2], [2], [3]]


def test_many_light_batches_of_one_request_are_heavy():
    names = [TopicPartition(f"t{number}", 0) for number in range(8)]
    rig = Rig(*names)
    number = rig.send(*((name, bomb(BATCH_BYTES - 100)) for name in names))
    assert len(rig.aside) == 1
    rig.do()
    assert rig.errors(number) == [E.NONE] * 8
    number = rig.send(*((name, bomb(BATCH_BYTES - 100)) for name in names[:3]))
    assert rig.errors(number) == [E.NONE] * 3


def test_a_batch_of_very_many_tiny_parts_is_heavy(rig):
    """Next to nothing comes out of it, and takes long for that."""
    light = build_batch([b"v"], timestamp_ms=NOW)
    members = b"".join(gzip.compress(light[place : place + 1]) for place in range(61, len(light)))
    batch = bytearray(light[:61] + members)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[22] = Compression.GZIP
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4)
    number = rig.send((A, batch))
    assert (len(rig.aside), rig.answers) == (1, {})
    rig.do()
    assert rig.errors(number) == [E.NONE]


def test_a_request_of_more_partitions_than_a_turn_has_is_heavy():
    names = [TopicPartition(f"t{number}", 0) for number in range(turns.ITEMS + 1)]
    rig = Rig(*names)
    batch = build_batch([b"v"], timestamp_ms=NOW, compression=Compression.LZ4)
    number = rig.send(*((name, batch) for name in names[:-1]))
    assert rig.errors(number) == [E.NONE] * turns.ITEMS
    number = rig.send(*((name, batch) for name in names))
    assert rig.aside[0][0] is not heavy_steps.others_first
    rig.do()
    assert (rig.aside[0][0], number in rig.answers) == (heavy_steps.others_first, False)  # appended in two turns
    rig.do()
    assert rig.errors(number) == [E.NONE] * len(names)


def test_compressing_for_a_topic_is_heavy_from_64_kib_on(rig):
    rig.rules = RecordRules(codec=Compression.GZIP)
    light, heavy = rig.send((A, small())), rig.send((A, build_batch([b"v" * 100_000], timestamp_ms=NOW)))
    assert (list(rig.answers), len(rig.aside)) == ([light], 1)
    rig.do()
    assert rig.errors(heavy) == [E.NONE]
    data = rig.partitions[A].log.read(0, 1 << 20, up_to=2, at_least_one=True)
    assert [batch.compression for batch in iter_batches(data)] == [Compression.GZIP] * 2


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(rig, codec):
    """As in Kafka, which has a map of them; the answer names it once."""
    two, three = (build_batch([b"v"] * count, timestamp_ms=NOW, compression=codec) for count in (2, 3))
    number = rig.send((A, two), (B, two), (A, three))
    assert rig.errors(number) == [E.NONE, E.NONE]
    assert rig.partitions[A].log.log_end_offset == 3


def test_acks_0_and_all():
    rig = Rig(replicas=(1, 2))
    nothing, every = rig.send((A, bomb()), acks=0), rig.send((A, small()), (B, bomb()), acks=-1)
    assert (rig.answers, rig.deadlines.due) == ({}, float("inf"))
    rig.do()
    assert rig.answers == {nothing: "nothing"}
    assert rig.deadlines.due == float("inf")
    rig.do()
    assert rig.answers == {nothing: "nothing"}
    assert rig.deadlines.due < float("inf")  # its time begins when it was appended
    for name, end in ((A, 2), (B, 1)):
        rig.replicas.carry_out(name, rig.partitions[name].fetched(2, end, NOW))
    assert (rig.errors(every), rig.base(every)) == ([E.NONE, E.NONE], [1, 0])
    bad = rig.send((A, bomb(129 * BATCH_BYTES)), acks=0)
    rig.do()
    assert rig.answers[bad] == "closed"


def test_an_append_time_is_told():
    rig = Rig()
    rig.rules = RecordRules(has_append_time=True)
    number = rig.send((A, bomb()))
    rig.do()
    assert rig.parts(number)[0].log_append_time_ms == NOW


def test_what_is_wrong_with_it_is_told_in_its_turn(rig):
    damaged = bomb()
    damaged[-1] ^= 1
    rig.rules = RecordRules(before_max_ms=1)
    late = build_batch([bytes(4 * BATCH_BYTES)], timestamp_ms=1, compression=Compression.GZIP)
    numbers = [rig.send((A, batch)) for batch in (bomb(), damaged, bomb(129 * BATCH_BYTES), late, small())]
    while rig.aside:
        rig.do()
    wanted = [E.NONE, E.CORRUPT_MESSAGE, E.INVALID_RECORD, E.INVALID_TIMESTAMP, E.NONE]
    assert [rig.errors(each) for each in numbers] == [[error] for error in wanted]
    assert rig.base(numbers[-1]) == [1]
    assert [each.batch_index for each in rig.parts(numbers[3])[0].record_errors] == [0]


@pytest.mark.parametrize("change", ["leader", "gone", "disk", "again"])
def test_what_happened_to_the_partition_meanwhile_counts(rig, change):
    wanted = {"leader": E.NOT_LEADER_OR_FOLLOWER, "disk": E.KAFKA_STORAGE_ERROR, "again": E.NONE}
    numbers = [rig.send((A, bomb()), (B, small()), acks=-1), rig.send((A, small()))]
    if change == "leader":
        rig.lose(A)
    elif change == "again":
        rig.lose(A)
        rig.partitions[A].become_leader(Assignment(1, 6, 6, (1,), (1,)), NOW)
    elif change == "gone":
        run_here(rig.replicas.delete([A], lambda: NOW))
        wanted["gone"] = E.NOT_LEADER_OR_FOLLOWER  # as the cluster still has it
    else:
        rig.replicas.failed(A, StorageError(5, "the disk", "/d"))
        wanted[A] = E.KAFKA_STORAGE_ERROR
    rig.do()
    rig.do()
    other = E.KAFKA_STORAGE_ERROR if change == "disk" else E.NONE
    assert [rig.errors(each) for each in numbers] == [[wanted[change], other], [wanted[change]]]


def test_what_comes_to_be_led_here_meanwhile_was_not_looked_at(rig):
    rig.lose(A)
    number = rig.send((A, bomb()), (B, bomb()))
    rig.partitions[A].become_leader(Assignment(1, 6, 6, (1,), (1,)), NOW)
    rig.do()
    assert rig.errors(number) == [E.NOT_LEADER_OR_FOLLOWER, E.NONE]
    assert rig.partitions[A].log.log_end_offset == 0


def test_no_more_than_so_many_wait(rig, monkeypatch):
    monkeypatch.setattr(waiting_line, "WAITING_MAX", 2)
    numbers = [rig.send((A, bomb())) for _ in range(3)]
    assert rig.answers == {numbers[2]: "closed"}
    rig.do()
    rig.do()
    assert [rig.base(each) for each in numbers[:2]] == [[0], [1]]
    monkeypatch.setattr(waiting_line, "WAITING_BYTES_MAX", 10)
    first, second = rig.send((A, bomb())), rig.send((A, small()))
    assert rig.answers[second] == "closed"
    rig.do()
    assert rig.errors(first) == [E.NONE]


def test_an_error_of_ours_breaks_one_connection_and_holds_up_nobody(rig, caplog):
    first, second = rig.send((A, bomb())), rig.send((A, small()))
    _, done = rig.aside.pop(0)
    done(ValueError("ours"))
    rig.do()
    assert rig.answers[first] == "closed"
    assert rig.base(second) == [0]
    assert "cannot be answered" in caplog.text


# ---- ListOffsets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_times_are_found_in_a_bomb(rig, codec):
    records = [Record(bytes(BATCH_BYTES), timestamp_ms=NOW + number) for number in range(3)]
    rig.send((A, build_records_batch(records, compression=codec)))
    rig.do()
    number = rig.find(A, NOW + 1)
    assert number not in rig.answers
    rig.do()
    assert rig.found(number) == (E.NONE, 1, NOW + 1)
    number = rig.find(A, NOW + 3)
    assert rig.found(number) == (E.NONE, -1, -1)
    assert rig.waited == [1, 2]


def test_leadership_that_is_lost_meanwhile_is_told(rig):
    rig.send((A, bomb()))
    rig.do()
    number = rig.find(A, NOW)
    rig.lose(A)
    rig.do()
    assert rig.found(number) == (E.NOT_LEADER_OR_FOLLOWER, -1, -1)


def timed(*times):
    records = [Record(bytes(BATCH_BYTES), timestamp_ms=NOW + each) for each in times]
    return build_records_batch(records, compression=Compression.ZSTD)


def filled(rig, *batches):
    for batch in batches:
        rig.send((A, batch))
        rig.do()


def delete_below(rig, offset):
    run_here(raise_log_start(rig.partitions[A], offset, NOW))


@pytest.mark.parametrize(
    ("start", "found"), [(1, (E.NONE, 1, NOW + 4)), (2, (E.NONE, 3, NOW + 3)), (4, (E.NONE, 4, NOW + 2)), (5, NOTHING)]
)
def test_records_that_are_deleted_meanwhile_are_not_found(rig, start, found):
    """By DeleteRecords, and in the middle of a batch, too."""
    filled(rig, timed(5, 4, 1), timed(3, 2))
    number = rig.find(A, NOW + 2)
    delete_below(rig, start)
    while number not in rig.answers:
        rig.do()
    assert rig.found(number) == found


def test_a_search_goes_on_where_the_log_begins_by_then(rig):
    """The batch that comes next is deleted while the one before is searched."""
    filled(rig, timed(5, 1), timed(4), timed(5))
    delete_below(rig, 1)
    number = rig.find(A, NOW + 5)
    delete_below(rig, 3)
    while number not in rig.answers:
        rig.do()
    assert rig.found(number) == (E.NONE, 3, NOW + 5)


def test_leadership_that_is_lost_is_told_though_the_log_was_cut_by_then(rig):
    filled(rig, timed(5, 1), timed(6))
    delete_below(rig, 1)
    number = rig.find(A, NOW + 5)
    rig.lose(A)
    rig.partitions[A].truncate(OffsetAndEpoch(2, 1))
    rig.do()
    assert rig.found(number) == (E.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_a_search_that_fails_is_told(rig):
    rig.send((A, bomb()))
    rig.do()
    numbers = [rig.find(A, NOW), rig.find(A, NOW)]
    _, done = rig.aside.pop(0)
    done(StorageError(5, "the disk", "/d"))
    _, done = rig.aside.pop(0)
    done(ValueError("ours"))
    assert rig.found(numbers[0])[0] is E.KAFKA_STORAGE_ERROR
    assert rig.answers[numbers[1]] == "closed"


# ---- a whole broker --------------------------------------------------------------------------------------------------


def test_others_are_answered_while_a_broker_is_bombed(tmp_path):
    """Bombs of 4 KB and 100 MiB: while they wait, others ask and write; then each is in the log, in order."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            await rig.assign(1, 0, [1], topic="u")
            records = bomb(100 << 20)
            assert len(records) < 8192
            told, pings, finished = [], [], trio.Event()

            async def write(number):
                answer = await rig.produce(
                    1, lane=100 + number, records=records if number % 2 == 0 else small(), acks=1
                )
                told.append((number, answer.error_code, answer.base_offset))
                if len(told) == 8:
                    finished.set()

            async def ping():
                while not finished.is_set():
                    assert (await rig.ask(1, ApiVersionsRequest(), 2)).error_code == 0
                    assert (await rig.produce(1, b"v", topic="u", acks=1)).error_code == 0
                    pings.append(len(told))
                    await trio.sleep(0.001)

            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(write, number)
                    await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(ping)
            assert told == [(number, 0, number) for number in range(8)]
            assert 0 in pings  # the first bomb was not through
            kind = ListOffsetsRequest.ListOffsetsTopic
            part = kind.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
            asked = ListOffsetsRequest(replica_id=-1, topics=[kind(name="t", partitions=[part])])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: rig.produce(1, lane=7, records=records, acks=1))
                await trio.testing.wait_all_tasks_blocked()
                answer = await rig.ask(1, asked, 7, lane=7)
            assert answer.topics[0].partitions[0].offset == 9  # as it came behind, on the same connection

    trio.run(main)

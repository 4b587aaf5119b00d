"""Partitions that move between the log directories of a broker (KIP-113), and what may come in between."""

from __future__ import annotations

from random import Random

import own_partitions
import pytest
import trio
from broker_rig import until
from gated_disk import GatedDisk

from kraftcore.core.batch import Record, build_batch, build_records_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import EpochEntry, OffsetAndEpoch
from kraftcore.errors import CorruptDataError, RefusedError, StorageError
from kraftcore.plugins.broker.groups import coordinator
from kraftcore.plugins.broker.groups.coordinator import GroupCoordinator
from kraftcore.plugins.broker.groups.loading import Loader
from kraftcore.plugins.broker.groups.records import offset_tombstone
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments
from kraftcore.plugins.broker.log_changes import cut, raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.checkpoint import decode_offsets
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.quotas.rates import LimitedRate, QuotaWindow
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

NAME = TopicPartition("t", 0)
VALUES = [b"%d" % number * 500 for number in range(300)]


async def move(rig, folder, topic="t", partition=0, broker=1):
    """The error code."""
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    wanted = kind(
        path=str(rig.folder / folder), topics=[kind.AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    )
    answer = await rig.ask(broker, AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    (result,) = answer.results
    assert (result.topic_name, [each.partition_index for each in result.partitions]) == (topic, [partition])
    return result.partitions[0].error_code


async def described(rig, broker=1):
    """(directory, whether it is a log to move to, size, lag) of the partition's logs."""
    answer = await rig.ask(broker, DescribeLogDirsRequest(topics=None), 4)
    return sorted(
        (result.log_dir.rpartition("/")[2], each.is_future_key, each.partition_size, each.offset_lag)
        for result in answer.results
        for topic in result.topics
        if topic.name == "t"
        for each in topic.partitions
    )


async def set_rate(rig, bytes_per_s, broker=""):
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = kind.AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second", config_operation=0, value=str(bytes_per_s)
    )
    change = kind(resource_type=4, resource_name=broker, configs=[entry])
    answer = await rig.ask_controller(IncrementalAlterConfigsRequest(resources=[change]), 1)
    assert answer.responses[0].error_code == 0, answer


async def begin(rig, brokers=(1,), **configs):
    """Topic t, led by broker 1, with its log in directory a; b is the other one."""
    await rig.controller()
    await rig.broker(1, directories=("a", "b"))
    for each in brokers[1:]:
        await rig.broker(each)
    await rig.create(list(brokers), **configs)
    await rig.led_by(1)
    await until(lambda: rig.row().directory_of(1) == directory(rig, place(rig)).id)
    if place(rig) != "a":
        assert await move(rig, "a") == 0
        await until(lambda: place(rig) == "a")


def place(rig, broker=1):
    hosted = rig.brokers[broker].parts.dirs.find(NAME)
    return None if hosted is None else hosted.directory.path.rpartition("/")[2]


def directory(rig, folder, broker=1):
    return rig.brokers[broker].parts.dirs.at(str(rig.folder / folder))


def folders(rig, folder):
    return [each.name for each in (rig.folder / folder).iterdir() if each.name.startswith("t-0")]


def test_a_leader_moves_while_it_is_written_to(play):
    @play
    async def main(rig):
        await begin(rig, (1, 2), segment_bytes=str(1 << 20))
        for value in VALUES[:100]:
            assert (await rig.produce(1, value)).error_code == 0
        assert await move(rig, "b") == 0
        for value in VALUES[100:]:
            assert (await rig.produce(1, value)).error_code == 0
        await until(lambda: place(rig) == "b")
        assert rig.row().directory_of(1) == directory(rig, "b").id
        assert folders(rig, "b") == ["t-0"]
        await until(lambda: not folders(rig, "a"))  # after the delay of every deletion
        assert (await rig.produce(1, b"behind")).error_code == 0
        assert await rig.values(1, max_bytes=1 << 24) == [*VALUES, b"behind"]
        await until(lambda: rig.partition(2).high_watermark == len(VALUES) + 1)
        assert rig.log_bytes(1, folder="b") == rig.log_bytes(2)
        ((where, is_future, size, lag),) = await described(rig)
        assert (where, is_future, lag) == ("b", False, 0)
        assert size == len(rig.log_bytes(2))
        assert await move(rig, "b") == 0  # where it is
        await rig.stop(1)
        await rig.broker(1, directories=("a", "b"))
        await until(lambda: rig.partition(1) is not None and rig.partition(1).high_watermark == len(VALUES) + 1)
        assert place(rig) == "b"
        assert rig.log_bytes(1, folder="b") == rig.log_bytes(2)


def test_a_move_is_held_back_told_and_goes_on_after_a_kill(play):
    @play
    async def main(rig):
        await begin(rig)
        await set_rate(rig, 1)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert (await rig.produce(1, *VALUES)).error_code == 0
        await until(lambda: rig.brokers[1].parts.replication.moves.limit == 1)
        assert await move(rig, "b") == 0
        (at, _, size, _), (future, is_future, copied, lag) = await described(rig)
        assert (at, future, is_future) == ("a", "b", True)
        assert copied < size
        assert lag in (len(VALUES), 2 * len(VALUES))  # a batch comes whole
        await until(lambda: rig.brokers[1].parts.dirs.future(NAME).log.log_end_offset == len(VALUES))
        (left,) = folders(rig, "b")
        await rig.kill(1)
        await rig.broker(1, directories=("a", "b"))
        await rig.led_by(1)
        assert place(rig) == "a"
        assert folders(rig, "b") == [left]
        future = rig.brokers[1].parts.dirs.future(NAME)
        assert future.log.log_end_offset >= len(VALUES)  # nothing that had come comes again
        await set_rate(rig, 1 << 30, "1")  # a broker's own goes before that of all
        await until(lambda: place(rig) == "b")
        assert await rig.values(1, max_bytes=1 << 24) == VALUES * 2


def test_a_move_ends_with_its_topic_or_when_another_place_is_wanted(play):
    @play
    async def main(rig):
        await begin(rig)
        await set_rate(rig, 1)
        await until(lambda: rig.brokers[1].parts.replication.moves.limit == 1)
        for value in VALUES[:3]:
            assert (await rig.produce(1, value)).error_code == 0
        assert await move(rig, "b") == 0
        assert await move(rig, "b") == 0
        assert len(folders(rig, "b")) == 1
        assert await move(rig, "a") == 0
        assert rig.brokers[1].parts.dirs.future(NAME) is None
        await until(lambda: not folders(rig, "b"))
        assert await move(rig, "b") == 0
        await rig.delete()
        await until(lambda: not folders(rig, "a") and not folders(rig, "b"))
        assert rig.brokers[1].parts.dirs.future(NAME) is None
        await rig.create([1])
        await rig.led_by(1)
        assert await rig.values(1) == []


def test_what_cannot_be_moved_is_refused(play):
    @play
    async def main(rig):
        await begin(rig)
        assert await move(rig, "c") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(rig, "b", topic="x" * 215) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await move(rig, "b", topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(rig, "b", partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Where it was wanted it is made, as the controller leaves that to the broker.
        for number, wanted in enumerate("bbbb"):
            assert await move(rig, wanted, topic=f"later{number}") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await rig.create([1], topic=f"later{number}")
            await rig.led_by(1, f"later{number}")
            assert rig.brokers[1].parts.dirs.find(TopicPartition(f"later{number}", 0)).directory is directory(rig, "b")
        failed = directory(rig, "b")
        rig.brokers[1].parts.replicas.directory_failed(failed, OSError(5, "broken"))
        assert await move(rig, "b") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await move(rig, "a", topic="later0") == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_that_fails_ends_moves_to_it(play):
    @play
    async def main(rig):
        await begin(rig, (1, 2))
        await set_rate(rig, 1)
        await until(lambda: rig.brokers[1].parts.replication.moves.limit == 1)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert await move(rig, "b") == 0
        parts = rig.brokers[1].parts
        parts.replicas.directory_failed(directory(rig, "b"), OSError(5, "broken"))
        await until(lambda: len(rig.image().brokers[1].directories) == 1)
        assert (await rig.produce(1, b"more")).error_code == 0
        assert place(rig) == "a"
        assert await described(rig) == [("a", False, len(rig.log_bytes(1, folder="a")), 0)]


def end_no_move(monkeypatch):
    """Brokers tell the controller of the directories that partitions move to, and never end a move."""
    tell = DirectoryAssignments.tell
    monkeypatch.setattr(DirectoryAssignments, "tell", lambda *told: tell(*told) and False)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_log_that_the_controller_has_elsewhere_than_it_was_left(play, monkeypatch, is_lost):
    """Killed when the controller knew the other directory: what had come there is all there is, or it goes on."""
    end_no_move(monkeypatch)

    @play
    async def main(rig):
        await begin(rig)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert await move(rig, "b") == 0
        b = directory(rig, "b").id
        await until(lambda: rig.row().directory_of(1) == b)
        await rig.kill(1)
        monkeypatch.undo()
        if is_lost:
            (rig.folder / "a" / "t-0").rename(rig.folder / "lost")
        await rig.broker(1, directories=("a", "b"))
        await rig.led_by(1)
        await until(lambda: place(rig) == "b" and rig.row().directory_of(1) == b)
        assert await rig.values(1, max_bytes=1 << 24) == VALUES
        assert folders(rig, "b") == ["t-0"]


def test_others_lead_what_was_in_a_directory_that_fails_when_the_controller_knows_the_other_one(play, monkeypatch):
    end_no_move(monkeypatch)

    @play
    async def main(rig):
        await begin(rig, (1, 2))
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert await move(rig, "b") == 0
        a, b = (directory(rig, folder).id for folder in "ab")
        await until(lambda: rig.row().directory_of(1) == b)
        rig.brokers[1].parts.replicas.directory_failed(directory(rig, "a"), OSError(5, "broken"))
        await rig.led_by(2)
        assert rig.row().directory_of(1) == a
        assert (await rig.produce(2, b"after")).error_code == 0


def test_of_two_logs_of_a_partition_that_counts_where_the_controller_has_it(play):
    @play
    async def main(rig):
        await begin(rig)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        parts = rig.brokers[1].parts
        parts.dirs.delete = nothing  # killed before the log that was left is deleted
        assert await move(rig, "b") == 0
        await until(lambda: place(rig) == "b")
        assert (await rig.produce(1, b"behind")).error_code == 0
        await rig.kill(1)
        assert folders(rig, "a") == folders(rig, "b") == ["t-0"]
        await rig.broker(1, directories=("a", "b"))
        await rig.led_by(1)
        assert place(rig) == "b"
        assert await rig.values(1, max_bytes=1 << 24) == [*VALUES, b"behind"]
        assert all(name.endswith("-stray") for name in folders(rig, "a"))


def nothing(logs, now_ms):
    """Steps that delete nothing."""
    yield from ()
    return {}


class Alone:
    """A follower's replica with two directories on a simulated disk, and whatever its leader may send."""

    def __init__(self, seed, disk=SimulatedDisk):
        self.rng = Random(seed)
        self.disk = disk(Random(seed))
        config = LogConfig(
            segment_bytes=700,
            topic_id=None,
            producer_snapshots=False,
            tail_bytes=500,
            allow_gaps=True,
            names_wait=True,
        )
        self.dirs = LogDirs(self.disk, ["/a", "/b"], 1, lambda topic: config, 0, 0, Random(seed).randbytes)
        settings = PartitionSettings(1, 100)
        self.replicas = Replicas(1, self.dirs, MetadataCache(), lambda topic: settings)
        self.moves = Moves(self.replicas, self.dirs, trio.Lock(), lambda: 0, LimitedRate(QuotaWindow(), lambda: 0), 300)
        self.epoch = 1
        self.follow()

    @property
    def partition(self):
        return self.replicas.all[NAME].partition

    def other(self, name):
        """The directory that a partition is not in."""
        return next(each.path for each in self.dirs.directories if each is not self.dirs.find(name).directory)

    def follow(self):
        own_partitions.assign(self.replicas, NAME, Assignment(2, self.epoch, self.epoch, (1, 2), (1, 2)))

    def change(self):
        """Something comes from the leader."""
        log, rng = self.partition.log, self.rng
        kind = rng.randrange(12)
        if kind == 0:
            self.epoch += 1
            self.follow()
        elif kind == 1 and log.log_end_offset > self.partition.high_watermark:
            end = rng.randint(self.partition.high_watermark, log.log_end_offset)
            self.epoch += 1
            self.follow()
            epoch = max(self.partition.log.epoch_at(max(end - 1, 0)) or 0, 0)
            self.partition.truncate(OffsetAndEpoch(end, epoch))
        elif kind == 2 and self.partition.high_watermark > log.log_start_offset:
            start = rng.randint(log.log_start_offset, self.partition.high_watermark)
            run_here(raise_log_start(self.partition, start, 0))
        elif kind == 3 and rng.random() < 0.1:
            self.partition.restart_at(log.log_end_offset + rng.randrange(20))
        else:
            count = rng.randint(1, 5)
            gap = rng.choice((0, 0, 0, 3))
            batch = build_batch(
                [rng.randbytes(rng.randrange(60)) for _ in range(count)],
                base_offset=log.log_end_offset + gap,
                leader_epoch=self.epoch,
                timestamp_ms=1,
                producer_id=rng.choice((-1, 7)),
                producer_epoch=self.epoch,
                base_sequence=0,
            )
            committed = rng.randint(self.partition.high_watermark, log.log_end_offset)
            self.partition.replicate(bytes(batch), committed, 0)


def held(log):
    """Start, end, newest epoch and whole batches of a log."""
    data, at = b"", log.log_start_offset
    while at < log.log_end_offset and (found := log.read(at, 1 << 20)):
        data += found
        *_, last = iter_batches(found)
        at = last.next_offset
    return log.log_start_offset, log.log_end_offset, log.last_epoch, data


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_whatever_a_leader_sends_meanwhile_the_copy_is_the_log(first):
    """Batches, gaps, cuts, new epochs, a start that is raised, a log that begins anew."""

    async def main(seed):
        alone = Alone(seed)
        for _ in range(alone.rng.randrange(30)):
            alone.change()
        for target in ("/b", "/a"):
            assert not await alone.moves.begin({NAME: target})
            while alone.dirs.find(NAME).directory.path != target:
                ((replica, future),) = alone.moves.under_way()
                before, epochs = held(replica.hosted.log), set(replica.hosted.log.epoch_entries())
                await alone.moves.step([(replica, future)])
                after = held(alone.dirs.find(NAME).log)
                assert after == before, seed
                # But for some without records, and where the first batch stands behind a gap.
                epochs |= {EpochEntry(each.leader_epoch, each.base_offset) for each in [*iter_batches(before[3])][:1]}
                assert set(alone.partition.log.epoch_entries()) <= epochs
                assert alone.partition.log is alone.dirs.find(NAME).log
                if alone.rng.random() < 0.6 and alone.dirs.find(NAME).directory.path != target:
                    alone.change()
            known = dict(alone.partition.producers.all)
            alone.partition.log.check_invariants()
            alone.partition.producers.load(0)  # from what is on the disk
            assert {each: state.epoch for each, state in known.items()} == {
                each: state.epoch for each, state in alone.partition.producers.all.items()
            }

    for seed in range(first, first + 50):
        trio.run(main, seed)


@pytest.mark.parametrize("start", [0, 3])
def test_a_log_that_starts_in_a_gap_moves(start):
    """As where Kafka's cleaner took the first records."""

    async def main():
        alone = Alone(1)
        for base in (5, 6, 9):
            batch = build_batch([b"v"], base_offset=base, leader_epoch=1, timestamp_ms=1)
            alone.partition.replicate(bytes(batch), 10, 0)
        run_here(raise_log_start(alone.partition, start, 0))
        before = held(alone.partition.log)
        assert before[:2] == (start, 10)
        assert not await alone.moves.begin({NAME: "/b"})
        for _ in range(5):
            for moved in alone.moves.under_way():
                await alone.moves.step([moved])
        assert alone.dirs.find(NAME).directory.path == "/b"
        assert held(alone.partition.log) == before

    trio.run(main)


def test_a_disk_that_fails_while_a_log_is_made_is_told_and_nothing_moves():
    async def main():
        alone = Alone(1)
        alone.disk.inject("open", path="/b")
        assert isinstance((await alone.moves.begin({NAME: "/b"}))[NAME], StorageError)
        assert alone.dirs.at("/b").failure is not None
        assert alone.dirs.find(NAME).directory.path == "/a"

    trio.run(main)


async def moving(alone):
    """A partition of 20 batches and its log in the other directory, which holds the same: what is left is its end."""
    fill(alone)
    assert not await alone.moves.begin({NAME: "/b"})
    ((replica, future),) = alone.moves.under_way()
    while future.log.log_end_offset < replica.hosted.log.log_end_offset:
        await alone.moves.step([(replica, future)])
    return replica, future


def fill(alone):
    log = alone.partition.log
    for _ in range(20):
        batch = build_batch([b"v" * 100], base_offset=log.log_end_offset, leader_epoch=1, timestamp_ms=1)
        alone.partition.replicate(bytes(batch), 0, 0)


def stored(alone):
    """Up to where logs are durable, as the copy's directory has it."""
    return decode_offsets(alone.disk.read_file("/b/recovery-point-offset-checkpoint"))


def test_no_step_of_a_move_waits_for_a_disk_on_the_loop():
    async def main():
        alone = Alone(1, GatedDisk)
        fill(alone)
        alone.disk.open_gate()
        alone.disk.close_gate("")  # whoever waits is noted
        moves, log = alone.moves, alone.partition.log
        assert not await moves.begin({NAME: "/b"})
        assert not await moves.begin({NAME: "/a"})  # it stays
        assert not await moves.begin({NAME: "/b"})
        ((replica, future),) = moves.under_way()
        while future.log.log_end_offset < log.log_end_offset:
            await moves.step([(replica, future)])
        alone.partition.high_watermark = 15
        await run_in_threads(raise_log_start(alone.partition, 15, 0))
        await moves.step([(replica, future)])
        assert future.log.log_start_offset == 15
        while alone.dirs.future(NAME) is not None:
            await moves.step([(replica, future)])
        assert alone.dirs.find(NAME) is future
        assert not await moves.begin({NAME: "/a"})
        await run_in_threads(alone.replicas.delete([NAME], lambda: 0))
        assert not any(each.futures or each.logs for each in alone.dirs.directories)
        assert alone.disk.on_loop == []

    trio.run(main)


def test_a_partition_is_served_while_the_name_of_its_new_log_is_synced():
    async def main():
        alone = Alone(1, GatedDisk)
        replica, future = await moving(alone)
        alone.epoch += 1
        leading = Assignment(1, alone.epoch, alone.epoch, (1,), (1,))
        own_partitions.assign(alone.replicas, NAME, leading)
        switch_to = alone.replicas.switch_to

        def close_gate(*arguments):
            alone.disk.close_gate("/b")
            return switch_to(*arguments)

        alone.replicas.switch_to = close_gate
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone.moves.step, [(replica, future)])
            try:
                await until(alone.disk.reached.is_set)
                assert alone.partition.append(build_batch([b"more"], timestamp_ms=1), 0)[0] == 20
                assert "t-0" in alone.disk.list_folder("/a")  # until the other name is durable
            finally:
                alone.disk.open_gate()
        assert alone.dirs.find(NAME) is future
        assert future.log.log_end_offset == 21
        assert "t-0" not in alone.disk.list_folder("/a")
        assert alone.disk.on_loop == []

    trio.run(main)


def test_a_disk_that_fails_while_the_name_of_the_new_log_is_synced_is_told():
    async def main():
        alone = Alone(1)
        replica, future = await moving(alone)
        before = replica.hosted
        sync_names = future.directory.sync_names

        def fail():
            alone.disk.inject("sync_folder", path="/b")
            sync_names()

        future.directory.sync_names = fail
        assert not await alone.moves.step([(replica, future)])
        assert future.directory.failure is not None
        assert before.directory.failure is None
        assert before.log.closed
        assert "t-0" in alone.disk.list_folder("/a")
        assert alone.dirs.is_broken(NAME)

    trio.run(main)


def test_a_copy_that_is_cut_is_stored_as_durable_no_further():
    async def main():
        alone = Alone(1)
        replica, future = await moving(alone)
        future.log.flush()
        future.directory.write_checkpoints()
        run_here(cut(alone.partition, replica.hosted, lambda: alone.partition.truncate(OffsetAndEpoch(12, 1))))
        assert stored(alone) == {NAME: 20}
        seen = []
        begin_cut = future.directory.begin_cut

        def note(hosted):
            begin_cut(hosted)
            seen.append((stored(alone), hosted.log.log_end_offset))

        future.directory.begin_cut = note
        await alone.moves.step([(replica, future)])
        assert seen == [({}, 20)]  # before the cut
        assert (future.log.log_end_offset, future.is_cut) == (12, False)

    trio.run(main)


def test_a_log_is_not_copied_while_a_thread_cuts_it():
    async def main():
        alone = Alone(1)
        fill(alone)
        assert not await alone.moves.begin({NAME: "/b"})
        ((replica, future),) = alone.moves.under_way()
        alone.partition.is_changing = True
        assert not await alone.moves.step([(replica, future)])
        assert future.log.log_end_offset == 0
        alone.partition.is_changing = False
        assert await alone.moves.step([(replica, future)])
        assert future.log.log_end_offset > 0

    trio.run(main)


def test_a_broker_that_stops_as_a_move_ends_leaves_one_log():
    async def main():
        alone = Alone(1)
        replica, future = await moving(alone)
        with trio.CancelScope() as scope:
            write = future.directory.write_checkpoints

            def stop():
                write()
                trio.from_thread.run_sync(scope.cancel)

            future.directory.write_checkpoints = stop
            await alone.moves.step([(replica, future)])
        assert scope.cancel_called
        assert alone.dirs.find(NAME) is future
        assert "t-0" in alone.disk.list_folder("/b")
        assert "t-0" not in alone.disk.list_folder("/a")

    trio.run(main)


def test_a_damaged_log_does_not_move_and_the_broker_goes_on(caplog):
    async def main():
        alone = Alone(1)
        fill(alone)
        log = alone.partition.log
        path = f"{log.folder}/{0:020d}.log"
        with alone.disk.open(path) as file:
            file.write_at(70, b"\xff" * 20)
        assert not await alone.moves.begin({NAME: "/b"})
        ((replica, future),) = alone.moves.under_way()
        assert not await alone.moves.step([(replica, future)])
        assert alone.dirs.future(NAME) is None
        assert alone.dirs.find(NAME) is replica.hosted
        assert all(each.failure is None for each in alone.dirs.directories)

    trio.run(main)
    assert "t-0 does not move to /b" in caplog.text


def test_a_log_that_cannot_be_synced_moves_no_further():
    """Its copy may be whole: it is not told to the controller, which has others lead."""

    async def main():
        alone = Alone(1)
        replica, future = await moving(alone)
        alone.replicas.cannot_write(NAME, CorruptDataError("a file is shorter than it was"))
        assert alone.moves.under_way() == []
        assert not await alone.moves.step([(replica, future)])
        assert alone.dirs.is_broken(NAME)
        assert "t-0" in alone.disk.list_folder("/a")
        assert NAME not in alone.replicas.moving_to

    trio.run(main)


def test_the_controller_is_told_of_no_directory_that_failed():
    async def main():
        alone = Alone(1)
        replica, future = await moving(alone)
        other, own = future.directory, replica.hosted.directory
        alone.replicas.moving_to[NAME] = other.id
        assert alone.replicas.directory_id(NAME) == other.id
        alone.replicas.directory_failed(other, StorageError(5, "broken", "/b"))
        assert alone.replicas.directory_id(NAME) == own.id

    trio.run(main)


def test_a_partition_is_deleted_whose_copy_cannot_be():
    async def main():
        alone = Alone(1)
        _, future = await moving(alone)
        alone.disk.inject("rename", times=-1, path="/b/")
        run_here(alone.replicas.delete([NAME], lambda: 0))
        assert future.directory.failure is not None
        assert alone.dirs.find(NAME) is None
        assert "t-0" not in alone.disk.list_folder("/a")

    trio.run(main)


def loaded(groups):
    """The partitions whose groups are."""
    try:
        return [name for name, _ in groups.shards()]
    except RefusedError:
        return []


def test_groups_whose_log_moves_while_it_is_read_are_loaded(monkeypatch):
    name = TopicPartition("__consumer_offsets", 0)

    async def main():
        alone = Alone(1)
        own_partitions.assign(alone.replicas, name, Assignment(1, 1, 1, (1,), (1,)))
        replica = alone.replicas.all[name]
        key, _ = offset_tombstone("g", TopicPartition("t", 0))
        for _ in range(20):
            replica.partition.append(build_records_batch([Record(None, key, timestamp_ms=1)], timestamp_ms=1), 0)
        assert not await alone.moves.begin({name: alone.other(name)})
        ((_, future),) = alone.moves.under_way()
        while future.log.log_end_offset < replica.partition.log.log_end_offset:
            await alone.moves.step([(replica, future)])
        groups = GroupCoordinator(
            alone.replicas, MetadataCache(), GroupSettings(), lambda: 10**6, None, trio.Lock(), lambda: 0
        )
        loaders = []

        class Moving(Loader):
            def __init__(self, *args):
                super().__init__(*args)
                loaders.append(self)

            def add(self, batch):
                super().add(batch)
                if self.records == len(loaders) == 1:
                    run_here(alone.dirs.delete([alone.replicas.switch_to(name, future, 0)], lambda: 0))

        monkeypatch.setattr(coordinator, "Loader", Moving)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(groups.run)
            alone.replicas.changed([name])
            await until(lambda: loaded(groups))
            nursery.cancel_scope.cancel()
        assert loaded(groups) == [name]
        assert len(loaders) == 2

    trio.run(main)

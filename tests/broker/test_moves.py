"""Partitions that move between the log directories of a broker (KIP-113), and what may come in between."""

from __future__ import annotations

from random import Random

import pytest
import trio
from broker_rig import until

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import StorageError
from kraftcore.plugins.broker.disk_steps import run_here
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.partition import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
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
    hosted = rig.brokers[broker].core.dirs.find(NAME)
    return None if hosted is None else hosted.directory.path.rpartition("/")[2]


def directory(rig, folder, broker=1):
    return rig.brokers[broker].core.dirs.at(str(rig.folder / folder))


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
        await until(lambda: rig.brokers[1].core.moves.rate() == 1)
        assert await move(rig, "b") == 0
        (at, _, size, _), (future, is_future, copied, lag) = await described(rig)
        assert (at, future, is_future) == ("a", "b", True)
        assert copied < size
        assert lag in (len(VALUES), 2 * len(VALUES))  # a batch comes whole
        await until(lambda: rig.brokers[1].core.dirs.future(NAME).log.log_end_offset == len(VALUES))
        (left,) = folders(rig, "b")
        await rig.kill(1)
        await rig.broker(1, directories=("a", "b"))
        await rig.led_by(1)
        assert place(rig) == "a"
        assert folders(rig, "b") == [left]
        future = rig.brokers[1].core.dirs.future(NAME)
        assert future.log.log_end_offset >= len(VALUES)  # nothing that had come comes again
        await set_rate(rig, 1 << 30, "1")  # a broker's own goes before that of all
        await until(lambda: place(rig) == "b")
        assert await rig.values(1, max_bytes=1 << 24) == VALUES * 2


def test_a_move_ends_with_its_topic_or_when_another_place_is_wanted(play):
    @play
    async def main(rig):
        await begin(rig)
        await set_rate(rig, 1)
        await until(lambda: rig.brokers[1].core.moves.rate() == 1)
        for value in VALUES[:3]:
            assert (await rig.produce(1, value)).error_code == 0
        assert await move(rig, "b") == 0
        assert await move(rig, "b") == 0
        assert len(folders(rig, "b")) == 1
        assert await move(rig, "a") == 0
        assert rig.brokers[1].core.dirs.future(NAME) is None
        await until(lambda: not folders(rig, "b"))
        assert await move(rig, "b") == 0
        await rig.delete()
        await until(lambda: not folders(rig, "a") and not folders(rig, "b"))
        assert rig.brokers[1].core.dirs.future(NAME) is None
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
            assert rig.brokers[1].core.dirs.find(TopicPartition(f"later{number}", 0)).directory is directory(rig, "b")
        failed = directory(rig, "b")
        rig.brokers[1].core.replicas.directory_failed(failed, OSError(5, "broken"))
        assert await move(rig, "b") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await move(rig, "a", topic="later0") == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_that_fails_ends_moves_to_it(play):
    @play
    async def main(rig):
        await begin(rig, (1, 2))
        await set_rate(rig, 1)
        await until(lambda: rig.brokers[1].core.moves.rate() == 1)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert (await rig.produce(1, *VALUES)).error_code == 0
        assert await move(rig, "b") == 0
        core = rig.brokers[1].core
        core.replicas.directory_failed(directory(rig, "b"), OSError(5, "broken"))
        await until(lambda: len(rig.image().brokers[1].directories) == 1)
        assert (await rig.produce(1, b"more")).error_code == 0
        assert place(rig) == "a"
        assert await described(rig) == [("a", False, len(rig.log_bytes(1, folder="a")), 0)]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_log_that_the_controller_has_elsewhere_than_it_was_left(play, is_lost):
    """Killed when the controller knew the other directory: what had come there is all there is, or it goes on."""

    @play
    async def main(rig):
        await begin(rig)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        core = rig.brokers[1].core
        announce = core.moves.is_announced
        core.moves.is_announced = lambda *told: announce(*told) and False  # it comes no further
        assert await move(rig, "b") == 0
        b = directory(rig, "b").id
        await until(lambda: rig.row().directory_of(1) == b)
        await rig.kill(1)
        if is_lost:
            (rig.folder / "a" / "t-0").rename(rig.folder / "lost")
        await rig.broker(1, directories=("a", "b"))
        await rig.led_by(1)
        await until(lambda: place(rig) == "b" and rig.row().directory_of(1) == b)
        assert await rig.values(1, max_bytes=1 << 24) == VALUES
        assert folders(rig, "b") == ["t-0"]


def test_of_two_logs_of_a_partition_that_counts_where_the_controller_has_it(play):
    @play
    async def main(rig):
        await begin(rig)
        assert (await rig.produce(1, *VALUES)).error_code == 0
        core = rig.brokers[1].core
        core.dirs.delete = lambda hosted, now_ms: iter(())  # killed before the log that was left is deleted
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


class Alone:
    """A follower's replica with two directories on a simulated disk, and whatever its leader may send."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.disk = SimulatedDisk(Random(seed))
        config = LogConfig(segment_bytes=700, topic_id=None, producer_snapshots=False, tail_bytes=500, allow_gaps=True)
        self.dirs = LogDirs(self.disk, ["/a", "/b"], 1, config, 0, 0, Random(seed).randbytes)
        settings = PartitionSettings(1, 100)
        self.replicas = Replicas(1, self.dirs, MetadataCache(), lambda topic: settings)
        self.moves = Moves(self.replicas, self.dirs, trio.Lock(), lambda: 0, lambda: 1 << 60, chunk_bytes=300)
        self.epoch = 1
        self.follow()

    @property
    def partition(self):
        return self.replicas.all[NAME].partition

    def follow(self):
        run_here(self.replicas.assign(NAME, Assignment(2, self.epoch, self.epoch, (1, 2), (1, 2)), lambda: 0))

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
            await alone.moves.begin(NAME, target)
            while alone.dirs.find(NAME).directory.path != target:
                ((replica, future),) = alone.moves.under_way()
                before, epochs = held(replica.hosted.log), set(replica.hosted.log.epoch_entries())
                await alone.moves.step(replica, future)
                after = held(alone.dirs.find(NAME).log)
                assert after == before, seed
                assert set(alone.partition.log.epoch_entries()) <= epochs  # but for some without records
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


def test_a_disk_that_fails_while_a_log_is_made_is_told_and_nothing_moves():
    async def main():
        alone = Alone(1)
        alone.disk.inject("open", path="/b")
        with pytest.raises(StorageError):
            await alone.moves.begin(NAME, "/b")
        assert alone.dirs.at("/b").failure is not None
        assert alone.dirs.find(NAME).directory.path == "/a"

    trio.run(main)

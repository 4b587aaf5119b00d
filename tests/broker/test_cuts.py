"""A follower's log that is cut below where it starts: by a leader whose log ends before that."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import own_partitions
import pytest
import trio
from broker_rig import open_rig, until

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import StorageError
from kraftcore.plugins.broker.log_changes import cut, raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest

T = TopicPartition("t", 0)
CONFIG = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True, names_wait=True, all_control=False)


def open_dirs(disk):
    return LogDirs(disk, ["/d"], 1, lambda topic: CONFIG, 0, 0, Random(1).randbytes)


class Follower:
    """Broker 1, which follows 2 in epoch 1: it has 0 to 4, each a batch, and 5 to 19 in one; all are committed."""

    def __init__(self):
        self.disk = SimulatedDisk(Random(1))
        self.dirs = open_dirs(self.disk)
        self.replicas = Replicas(1, self.dirs, MetadataCache(), lambda topic: PartitionSettings())
        self.follow(1)
        for base in range(5):
            self.replicate(base, 1)
        self.replicate(5, 1, 15)
        self.partition.replicate(b"", 20, 0)

    def follow(self, epoch):
        assignment = Assignment(2, epoch, epoch, (1, 2), (1, 2), topic_id=Uuid(b"5" * 16))
        own_partitions.assign(self.replicas, T, assignment)

    @property
    def partition(self):
        return self.replicas.all[T].partition

    @property
    def ends(self):
        return self.partition.log.log_start_offset, self.partition.log.log_end_offset

    def replicate(self, base, epoch, count=1):
        batch = build_batch([b"v"] * count, timestamp_ms=1, base_offset=base, leader_epoch=epoch)
        self.partition.replicate(bytes(batch), base, 0)

    def delete_below(self, offset):
        run_here(raise_log_start(self.partition, offset, 0))

    def store_start(self, offset):
        """Have the log start there, which is stored, and follow the leader of epoch 2; the directory."""
        self.delete_below(offset)
        [directory] = self.dirs.directories
        directory.write_checkpoints()
        self.follow(2)
        return directory

    def run_cut(self, truncate):
        run_here(cut(self.partition, self.replicas.all[T].hosted, truncate))

    def cut(self, offset, epoch, leader_start=-1):
        self.run_cut(lambda: self.partition.truncate(OffsetAndEpoch(offset, epoch), leader_start))


@pytest.mark.parametrize(
    ("end", "leader_start", "expected"), [((5, 1), -1, (5, 5)), ((3, -1), 0, (3, 3)), ((2, 1), 4, (4, 4))]
)
def test_it_begins_anew_where_it_was_cut(end, leader_start, expected):
    follower = Follower()
    follower.delete_below(10)
    follower.follow(2)
    follower.cut(*end, leader_start)
    assert follower.ends == expected
    assert follower.partition.high_watermark == expected[1]
    follower.replicate(expected[1], 2, 7)
    assert follower.ends == (expected[0], expected[1] + 7)
    follower.partition.check_invariants()


@pytest.mark.parametrize("mode", ["kept", "lost"])
def test_what_came_since_is_not_below_a_start_that_was_stored_before(mode):
    follower = Follower()
    follower.store_start(10)
    assert follower.disk.read_file("/d/log-start-offset-checkpoint").endswith(b"t 0 10\n")
    follower.cut(5, 1)
    for base in range(5, 15):
        follower.replicate(base, 2)
    follower.partition.log.flush()
    log = open_dirs(follower.disk.crash(mode)).find(T).log
    assert (log.log_start_offset, log.log_end_offset) == (5, 15)


@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_deleted_records_do_not_come_back_when_its_end_is_cut(moment):
    follower = Follower()
    directory, found = follower.store_start(3), []

    def truncate():
        directory.write_checkpoints()  # as other duties do at any time
        if moment == "before":
            found.append(follower.disk.crash("kept"))
        effects = follower.partition.truncate(OffsetAndEpoch(5, 1))
        if moment == "within":
            found.append(follower.disk.crash("lost"))
        return effects

    with suppress(StorageError):
        follower.run_cut(truncate)
    if moment == "after":
        found.append(follower.disk.crash("lost"))
    log = open_dirs(found[0]).find(T).log
    assert (log.log_start_offset, log.log_end_offset) == (3, 20 if moment == "before" else 5)


def test_who_dies_as_its_log_is_cut_below_its_start_keeps_what_comes_there():
    follower = Follower()
    follower.store_start(10)
    found = []

    def truncate():
        effects = follower.partition.truncate(OffsetAndEpoch(5, 1))
        found.append(follower.disk.crash("lost"))
        return effects

    with suppress(StorageError):
        follower.run_cut(truncate)
    disk = found[0]
    log = open_dirs(disk).find(T).log
    for base in range(5, 15):
        log.append_as_follower(
            bytes(build_batch([b"v"], timestamp_ms=1, base_offset=base, leader_epoch=2)), 0, max_epoch=2
        )
    log.flush()
    log = open_dirs(disk.crash("lost")).find(T).log
    assert (log.log_start_offset, log.log_end_offset) == (5, 15)


def test_a_follower_that_starts_behind_its_leaders_end_has_all_that_is_acknowledged(tmp_path):
    """Records were deleted on the leader alone; then who lacked them was elected uncleanly."""

    async def main():
        async with open_rig(tmp_path) as rig:
            log = lambda broker: rig.brokers[broker].replicas.all[T].partition.log  # noqa: E731
            for each in (1, 2):
                await rig.start(each)
            await rig.assign(1, 0, [1, 2])
            await rig.produce(1, *[b"old"] * 5)
            await until(lambda: log(2).log_end_offset == 5)
            await rig.stop(2)
            await rig.assign(1, 1, [1, 2], isr=[1])
            for _ in range(15):
                await rig.produce(1, b"lost")
            topic = DeleteRecordsRequest.DeleteRecordsTopic
            named = topic(name="t", partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=10)])
            await rig.ask(1, DeleteRecordsRequest(topics=[named], timeout_ms=5000), 2)
            assert log(1).log_start_offset == 10
            await rig.stop(1)
            await rig.start(2)
            await rig.assign(2, 2, [1, 2], isr=[2])
            values = [b"%d" % number for number in range(8)]
            for value in values[:2]:
                await rig.produce(2, value)
            await rig.start(1)
            await rig.assign(2, 3, [1, 2], isr=[2])
            for value in values[2:]:
                await rig.produce(2, value)
            await until(lambda: rig.brokers[2].replicas.all[T].partition.leading.isr.committed == (2, 1))
            await rig.stop(2)
            await rig.assign(1, 4, [1, 2], isr=[1])
            assert await rig.values(1, log(1).log_start_offset) == [*[b"old"] * 5, *values]

    trio.run(main)

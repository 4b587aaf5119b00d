"""Moves of partitions whose records are synced before they are acknowledged (``flush.messages``)."""

from __future__ import annotations

from random import Random

import own_partitions
import trio
from broker_rig import until

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.quotas.rates import LimitedRate, QuotaWindow
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.syncing import Syncing
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue

NAME = TopicPartition("t", 0)
TOPIC_ID = Uuid(b"5" * 16)


def opened(disk):
    """Two log directories on a disk."""
    config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True, names_wait=True)
    return LogDirs(disk, ["/a", "/b"], 1, lambda topic: config, 0, 0, Random(1).randbytes)


class Synced:
    """A partition that is led alone, of which every record is synced before it counts."""

    def __init__(self):
        self.disk = SimulatedDisk(Random(1))
        self.lock = trio.Lock()
        self.dirs = opened(self.disk)
        settings = PartitionSettings(flush_messages=1)
        unsynced = KeyedQueue()
        self.replicas = Replicas(1, self.dirs, MetadataCache(), lambda topic: settings, unsynced=unsynced)
        self.moves = Moves(self.replicas, self.dirs, self.lock, lambda: 0, LimitedRate(QuotaWindow(), lambda: 0))
        self.syncing = Syncing(self.replicas, unsynced, self.lock, lambda: 0)
        leading = Assignment(1, 0, 0, (1,), (1,), topic_id=TOPIC_ID)
        own_partitions.assign(self.replicas, NAME, leading)
        self.partition = self.replicas.all[NAME].partition

    def append(self):
        _, effects = self.partition.append(build_batch([b"v"], timestamp_ms=1), 0)
        self.replicas.carry_out(NAME, effects)

    async def moving(self):
        """Begin to move it to the other directory: the replica, and the log there."""
        hosted = self.replicas.all[NAME].hosted
        [other] = [each.path for each in self.dirs.directories if each is not hosted.directory]
        assert not await self.moves.begin({NAME: other})
        [(replica, future)] = self.moves.under_way()
        return replica, future

    async def waiting(self, count):
        """Until so many wait for the disk."""
        await until(lambda: self.lock.statistics().tasks_waiting == count)


def test_what_was_synced_in_the_log_before_a_move_is_synced_in_the_one_behind_it():
    """The last record comes when a sync and the end of the move wait for the disk, in this order."""

    async def main():
        synced = Synced()
        partition = synced.partition
        async with trio.open_nursery() as nursery:
            nursery.start_soon(synced.syncing.run)
            replica, future = await synced.moving()
            async with trio.open_nursery() as ending, synced.lock:
                synced.append()
                await synced.waiting(1)
                while future.log.log_end_offset < 1:
                    await synced.moves.step([(replica, future)])
                ending.start_soon(synced.moves.step, [(replica, future)])
                await synced.waiting(2)
                synced.append()
            assert synced.dirs.find(NAME) is future
            assert partition.high_watermark == 2
            assert future.log.flushed_offset == 2
            left = opened(synced.disk.crash("lost"))
            nursery.cancel_scope.cancel()
        assert left.find(NAME).log.log_end_offset == 2

    trio.run(main)

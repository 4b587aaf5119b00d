"""``flush.messages``: who is told that his records are there hears so after they were synced, which a thread does."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
import trio
from broker_rig import open_rig, until
from gated_disk import GatedDisk

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.errors import StorageError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode

T = TopicPartition("t", 0)
NEVER = dict.fromkeys(("recovery_checkpoint_ms", "high_watermark_checkpoint_ms", "log_start_checkpoint_ms"), 10**9)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("timeout_ms", [0, 30_000])
def test_a_produce_waits_for_the_sync_that_is_due(tmp_path, acks, timeout_ms):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            await rig.start(1, flush_messages=3, **NEVER)
            for topic in ("t", "u"):
                await rig.assign(1, 0, [1], topic=topic)
            log = rig.brokers[1].replicas.all[T].partition.log
            assert (await rig.produce(1, b"a", b"b")).error_code == 0
            assert log.flushed_offset == 0
            disk.close_gate("t-0")
            answers = []

            async def produce():
                answers.append(await rig.produce(1, b"c", acks=acks, timeout_ms=timeout_ms))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                try:
                    await until(disk.reached.is_set)
                    assert (await rig.produce(1, b"v", topic="u")).error_code == 0
                    assert await rig.values(1) == [b"a", b"b"]  # nobody reads what may be lost
                    assert (log.log_end_offset, answers) == (3, [])
                finally:
                    disk.open_gate()
            assert [(each.error_code, each.base_offset) for each in answers] == [(0, 2)]
            assert log.flushed_offset == 3
            assert await rig.values(1) == [b"a", b"b", b"c"]
            assert (await rig.produce(1, b"d")).error_code == 0
            assert log.flushed_offset == 3
            assert not disk.on_loop

    trio.run(main)


def test_a_follower_syncs_before_it_counts(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[2] = disk = GatedDisk(Random(1))
            await rig.start(1)
            await rig.start(2, flush_messages=1, flush_check_ms=2**63 - 1, **NEVER)
            await rig.assign(1, 0, [1, 2])
            leader, follower = (rig.brokers[each].replicas.all[T].partition for each in (1, 2))
            disk.close_gate("t-0")
            answers = []

            async def produce():
                answers.append(await rig.produce(1, b"v"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                try:
                    await until(disk.reached.is_set)
                    assert (follower.log.log_end_offset, leader.high_watermark, answers) == (1, 0, [])
                finally:
                    disk.open_gate()
            assert answers[0].error_code == 0
            assert follower.log.flushed_offset == 1
            assert not disk.on_loop

    trio.run(main)


@pytest.mark.parametrize("acks", [1, -1])
def test_what_was_acknowledged_survives_a_power_cut(tmp_path, acks):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = SimulatedDisk(Random(1))
            await rig.start(1, flush_messages=1, segment_bytes=1024, **NEVER)
            await rig.assign(1, 0, [1])
            values = [b"%d" % number for number in range(40)]
            for value in values:
                assert (await rig.produce(1, value, acks=acks)).error_code == 0
            rig.disks[1] = disk.crash("lost")
            await rig.stop(1)
            await rig.start(1)
            await rig.assign(1, 1, [1])
            found: list[bytes | None] = []
            while more := await rig.values(1, len(found)):  # an answer ends where a segment does
                found += more
            assert found == values

    trio.run(main)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_fails_is_told_and_the_directory_is_offline(tmp_path, acks):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = SimulatedDisk(Random(1))
            directories = tuple(f"{tmp_path}/{name}" for name in "ab")
            await rig.start(1, flush_messages=1, directories=directories, **NEVER)
            for topic in ("t", "u"):
                await rig.assign(1, 0, [1], topic=topic)
            disk.inject("sync", path="t-0")
            answer = await rig.produce(1, b"v", acks=acks)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await rig.produce(1, b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await rig.produce(1, b"v", topic="u")).error_code == 0

    trio.run(main)


def test_a_directory_that_failed_meanwhile_is_not_synced(tmp_path):
    """Its disk may hang by now, and others wait for their turn."""

    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            broker = await rig.start(1, flush_messages=1, directories=("/a", "/b"), **NEVER)
            for topic in ("t", "u"):
                await rig.assign(1, 0, [1], topic=topic)
            failing = broker.replicas.all[T].hosted.directory
            disk.close_gate("u-0")
            async with trio.open_nursery() as nursery:
                try:
                    nursery.start_soon(partial(rig.produce, 1, b"v", topic="u"))
                    await until(disk.reached.is_set)
                    nursery.start_soon(rig.produce, 1, b"v")
                    await until(lambda: broker.replicas.all[T].partition.log.log_end_offset)
                    broker.replicas.directory_failed(failing, StorageError(5, "the disk", failing.path))
                    touched = disk.inject("any", times=-1, path=f"{failing.path}/t-0")
                finally:
                    disk.open_gate()
            assert (await rig.produce(1, b"v", topic="u")).error_code == 0
            assert not touched.hits
            disk.clear_faults()

    trio.run(main)


def test_many_appends_share_a_sync(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            await rig.start(1, flush_messages=1, **NEVER)
            await rig.assign(1, 0, [1])
            log = rig.brokers[1].replicas.all[T].partition.log
            synced: list[str] = []

            def sync_latency_ms(path):
                synced.append(path)
                return disk.wait(path)

            disk.sync_latency_ms = sync_latency_ms
            disk.close_gate("t-0")
            ends = []

            async def produce(number):
                answer = await rig.produce(1, b"%d" % number, acks=1)
                assert answer.error_code == 0
                ends.append((answer.base_offset, log.flushed_offset))

            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(produce, number)
                try:
                    await until(lambda: log.log_end_offset == 20)
                finally:
                    disk.open_gate()
            assert all(offset < flushed for offset, flushed in ends)
            assert len([path for path in synced if path.endswith(".log")]) <= 2
            assert len(await rig.values(1)) == 20

    trio.run(main)

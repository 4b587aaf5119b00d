"""A disk that takes its time over one partition holds up neither the others nor, where it leads, that partition."""

from __future__ import annotations

from random import Random

import pytest
import trio
from broker_rig import open_rig, until
from gated_disk import GatedDisk

from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest

T = TopicPartition("t", 0)
ON_DEMAND = dict.fromkeys(
    (
        "recovery_checkpoint_ms",
        "high_watermark_checkpoint_ms",
        "log_start_checkpoint_ms",
        "replica_lag_time_max_ms",
        "delete_delay_ms",
    ),
    10**9,
)


async def delete_records(rig, offset, lane=None):
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    asked = kind(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await rig.ask(1, DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2, lane)
    assert answer.topics[0].partitions[0].error_code == 0


async def make_another(rig):
    await rig.assign(1, 0, [1], topic="new")


async def lose_leadership(rig):
    await rig.assign(2, 1, [1, 2], isr=[2])


CHANGES = {
    "a log is made": (make_another, "/d1/kraftcore-topic-ids"),
    "records are deleted": (lambda rig: delete_records(rig, 25), "t-0"),
    "all records are deleted": (lambda rig: delete_records(rig, -1), "t-0"),
    "a replica is deleted": (lambda rig: rig.delete(1), "/d1"),
    "a log is cut": (lose_leadership, "t-0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_others_are_served_while_a_disk_is_slow(tmp_path, name):
    change, path = CHANGES[name]

    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            for broker_id in (1, 2):
                await rig.start(broker_id, segment_bytes=1024, **ON_DEMAND)
            await rig.assign(1, 0, [1], topic="u")
            await rig.assign(1, 0, [1])
            for number in range(30):
                assert (await rig.produce(1, b"%d" % number)).error_code == 0
            disk.close_gate(path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(change, rig)
                try:
                    await until(disk.reached.is_set)
                    assert (await rig.produce(1, b"v", topic="u")).error_code == 0
                    assert await rig.values(1, topic="u") == [b"v"]
                    told = await rig.fetch(1, 29)
                    if name == "a log is cut":
                        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    elif name != "a replica is deleted":
                        assert (await rig.produce(1, b"more")).error_code == 0
                        assert (await rig.values(1, 30))[-1] == b"more"
                    assert not disk.on_loop
                finally:
                    disk.open_gate()
            if name == "a log is cut":
                assert (await rig.produce(2, b"other")).error_code == 0
                await until(lambda: rig.brokers[1].replicas.all[T].partition.log.log_end_offset == 1)
                assert disk.read_file(f"{tmp_path}/d1/t-0/{0:020d}.log") == rig.log_bytes(2)
            elif "records" in name:
                assert await rig.values(1, 30) == [b"more"]
                rig.brokers[1].replicas.all[T].partition.log.check_invariants()
            assert not disk.on_loop

    trio.run(main)


def test_a_replica_that_is_deleted_has_another_name_before_anything_is_synced(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            await rig.start(1, **ON_DEMAND)
            await rig.assign(1, 0, [1])
            await rig.produce(1, b"v")
            disk.close_gate("/d1")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.delete, 1)
                try:
                    await until(disk.reached.is_set)
                    names = disk.list_folder(f"{tmp_path}/d1")
                    assert [name for name in names if name.startswith("t-0.")]
                    assert "t-0" not in names
                finally:
                    disk.open_gate()

    trio.run(main)


def test_what_is_appended_waits_for_no_sync(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            for broker_id in (1, 2):
                await rig.start(broker_id, segment_bytes=1024, **ON_DEMAND)
            await rig.assign(2, 0, [1, 2])
            log = rig.brokers[1].replicas.all[T].partition.log
            disk.close_gate("t-0")
            for number in range(20):
                assert (await rig.produce(2, b"%d" % number, acks=-1)).error_code == 0
            for epoch in (1, 2):
                await rig.assign(epoch, epoch, [1, 2])
                for number in range(20):
                    assert (await rig.produce(epoch, b"%d" % number, acks=-1)).error_code == 0
            assert (log.log_end_offset, log.last_epoch) == (60, 2)
            assert disk.read_file(f"{log.folder}/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 20\n2 40\n"
            assert len(log.segment_list()) > 3
            assert not disk.on_loop
            disk.open_gate()

    trio.run(main)


def test_who_deletes_records_and_asks_at_once_where_the_log_begins_is_told(tmp_path):
    """On the same connection; on others nobody waits."""

    async def log_start(rig, lane, found):
        kind = ListOffsetsRequest.ListOffsetsTopic
        asked = kind(name="t", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-2)])
        answer = await rig.ask(1, ListOffsetsRequest(replica_id=-1, topics=[asked]), 5, lane)
        found.append(answer.topics[0].partitions[0].offset)

    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = GatedDisk(Random(1))
            await rig.start(1, segment_bytes=1024, **ON_DEMAND)
            await rig.assign(1, 0, [1])
            for number in range(30):
                assert (await rig.produce(1, b"%d" % number)).error_code == 0
            disk.close_gate("t-0")
            behind, beside = [], []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delete_records, rig, 25, 1000)
                try:
                    await until(disk.reached.is_set)
                    nursery.start_soon(log_start, rig, 1000, behind)
                    await log_start(rig, 2000, beside)
                    assert beside == [0]
                finally:
                    disk.open_gate()
            assert behind == [25]

    trio.run(main)

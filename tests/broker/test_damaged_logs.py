"""A log that is damaged, or cannot be opened: who is told, who goes on, who leads instead."""

from __future__ import annotations

import os
import struct
from dataclasses import replace

import kraft_rig
import pytest
import trio
from broker_rig import open_rig, until
from kraft_rig import open_kraft_rig

from kraftcore.core.uuid import LOST_DIRECTORY
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.kraft.lifecycle import Stage
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.topics import GROUPS_TOPIC

T = TopicPartition("t", 0)
_LARGE = b"x" * 200_000  # two of them are more than a log keeps in memory


def log_file(folder):
    return min(folder.glob("*.log"))


async def fetch(rig, offset):
    kind = FetchRequest.FetchTopic
    asked = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[kind(topic="t", partitions=[asked])])
    return (await rig.ask(1, request, 12)).responses[0].partitions[0]


def test_a_damaged_batch_is_an_error_for_its_readers_alone(tmp_path, caplog):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            for _ in range(3):
                assert (await rig.produce(1, _LARGE)).error_code == 0
            with log_file(tmp_path / "d1" / "t-0").open("r+b") as file:
                file.seek(8)
                file.write(struct.pack(">i", 3))  # the length of the first batch
            for _ in range(2):
                assert (await fetch(rig, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert (await fetch(rig, 2)).error_code == ErrorCode.NONE
            assert (await rig.produce(1, b"after")).base_offset == 3
            assert rig.brokers[1].replicas.all[T].partition.leading

    trio.run(main)
    assert caplog.text.count("holds a damaged batch") == 1


@pytest.mark.parametrize("flush_messages", ["1", str(2**63 - 1)])
def test_a_log_whose_files_are_cut_under_it_is_offline_at_its_next_sync_and_the_others_go_on(tmp_path, flush_messages):
    """What is appended next begins a segment; whoever is in sync leads."""
    large = b"x" * 300_000

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.begin(1, 2, segment_bytes=str(1 << 20), flush_messages=flush_messages)
            await rig.create([1], topic="other")
            await rig.led_by(1, "other")
            for _ in range(3):
                await rig.produce(1, large)
            os.truncate(log_file(rig.folder / "n1" / "t-0"), 500_000)
            with trio.fail_after(60):
                while rig.row().leader == 1:
                    told = (await rig.produce(1, large, acks=1, timeout_ms=1000)).error_code
                    assert told in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
                    await trio.sleep(0.01)
            assert rig.row().directory_of(1) == LOST_DIRECTORY
            await rig.led_by(2)
            assert (await rig.produce(2, b"after")).error_code == 0
            assert (await rig.produce(1, b"after", topic="other")).error_code == 0

    trio.run(main)


def test_groups_whose_log_cannot_be_synced_when_it_is_condensed_go_to_another_broker(tmp_path, monkeypatch):
    monkeypatch.setitem(kraft_rig.LIVELY, "recovery_checkpoint_ms", 600_000)  # no duty comes before it
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    part = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m" * 4000)
    request = OffsetCommitRequest(group_id="g", topics=[of(name="t", partitions=[part])])

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.begin(1, 2)
            await rig.create([1, 2], topic=GROUPS_TOPIC)
            await rig.led_by(1, GROUPS_TOPIC)

            async def commit(broker):
                with trio.fail_after(60):
                    while (await rig.ask(broker, request, 8)).topics[0].partitions[0].error_code != 0:
                        await trio.sleep(0.02)

            for _ in range(30):
                await commit(1)
            groups = rig.brokers[1].parts.groups
            groups.settings = replace(groups.settings, topic_segment_bytes=10_000)
            file = log_file(rig.folder / "n1" / f"{GROUPS_TOPIC}-0")
            os.truncate(file, file.stat().st_size - 50_000)
            with trio.fail_after(60):
                await groups.condense_large()
            await rig.led_by(2, GROUPS_TOPIC)
            assert rig.row(GROUPS_TOPIC).directory_of(1) == LOST_DIRECTORY
            await commit(2)

    trio.run(main)


def test_a_time_is_found_with_the_epoch_of_its_batch_where_the_checkpoint_has_forgotten_that(tmp_path):
    """As after a kill before the log's start was stored, which the epochs' checkpoint follows at once."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            assert (await rig.produce(1, b"a", b"b", b"c")).error_code == 0
            kind = DeleteRecordsRequest.DeleteRecordsTopic
            deleted = kind(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=2)])
            answer = await rig.ask(1, DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 2)
            assert answer.topics[0].partitions[0].low_watermark == 2
            await rig.stop(1)
            (tmp_path / "d1" / "log-start-offset-checkpoint").unlink()
            await rig.start(1)
            await rig.assign(1, 1, [1])
            asked = ListOffsetsRequest.ListOffsetsTopic(name="t")
            asked.partitions = [asked.ListOffsetsPartition(partition_index=0, timestamp=0)]
            found = (await rig.ask(1, ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)).topics[0].partitions[0]
            assert (found.offset, found.leader_epoch) == (0, 0)

    trio.run(main)


def test_the_controller_has_others_lead_what_a_broker_cannot_open(play, tmp_path, caplog):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.broker(2)
        await rig.create([1, 2])
        await rig.create([1, 2], topic="whole")
        await until(lambda: rig.partition(1) is not None and rig.partition(1).leading)
        assert (await rig.produce(1, b"a", b"b")).error_code == 0
        await rig.stop(1)
        file = log_file(tmp_path / "n1" / "t-0")
        data = file.read_bytes()
        file.write_bytes(data[:70] + b"\xff" + data[71:])
        await rig.broker(1)
        await until(lambda: rig.row().directory_of(1) == LOST_DIRECTORY)
        await until(lambda: set(rig.row("whole").isr) == {1, 2})
        assert (rig.row().leader, set(rig.row().isr)) == (2, {2})
        assert (await rig.produce(2, b"c", acks=1)).error_code == 0
        assert file.read_bytes() == data[:70] + b"\xff" + data[71:]
        # Mended, or gone: it is a replica as any other at the next start.
        await rig.stop(1)
        for each in (tmp_path / "n1" / "t-0").iterdir():
            each.unlink()
        await rig.broker(1)
        await until(lambda: set(rig.row().isr) == {1, 2})
        assert rig.row().directory_of(1) == rig.brokers[1].parts.dirs.directories[0].id
        assert rig.log_bytes(1) == rig.log_bytes(2)

    assert "t-0 is offline, its log in" in caplog.text


def test_a_topic_made_anew_does_not_have_the_damaged_log_of_the_one_before(play, tmp_path):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.create([1])
        await until(lambda: rig.partition(1) is not None and rig.partition(1).leading)
        assert (await rig.produce(1, b"old")).error_code == 0
        await rig.stop(1)
        file = log_file(tmp_path / "n1" / "t-0")
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        await rig.broker(1)
        await until(lambda: rig.row().directory_of(1) == LOST_DIRECTORY)
        assert rig.row().leader == -1
        await rig.delete()
        await rig.create([1])
        await until(lambda: rig.partition(1) is not None and rig.partition(1).leading)
        assert (await rig.produce(1, b"new")).base_offset == 0
        assert len(list((tmp_path / "n1").glob("t-0.*-stray"))) == 1


def damage(folder):
    file = log_file(folder)
    data = file.read_bytes()
    file.write_bytes(data[:70] + b"\xff" + data[71:])


@pytest.mark.parametrize("has_met_it", [False, True])
def test_a_damaged_log_is_deleted_when_its_replica_goes(tmp_path, has_met_it):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            assert (await rig.produce(1, b"a", b"b")).error_code == 0
            if has_met_it:  # while it runs
                rig.brokers[1].replicas.damaged(T, CorruptDataError("damaged"))
            else:
                await rig.stop(1)
                damage(tmp_path / "d1" / "t-0")
                await rig.start(1)
            assert rig.brokers[1].replicas.is_damaged(T)
            assert await rig.delete(1) == ErrorCode.NONE
            await until(lambda: not [each for each in (tmp_path / "d1").iterdir() if each.name.startswith("t-0")])
            await rig.assign(1, 1, [1], topic_id=rig.topic_ids["t"])
            assert (await rig.produce(1, b"new")).base_offset == 0

    trio.run(main)


def test_a_log_that_the_disk_does_not_give_takes_its_directory_offline(play, tmp_path, caplog):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1, directories=("a", "b"))
        await rig.broker(2)
        await rig.create(*[[1, 2]] * 4)
        await until(lambda: all(rig.partition(1, partition=number) is not None for number in range(4)))
        ids = {directory.id for directory in rig.brokers[1].parts.dirs.directories}
        await until(lambda: {rig.row(partition=number).directory_of(1) for number in range(4)} == ids)
        await until(lambda: all(len(rig.row(partition=number).isr) == 2 for number in range(4)))
        failed = rig.brokers[1].parts.dirs.directories[1]
        lost = sorted(name.partition for name in failed.logs)
        await rig.stop(1)
        place = tmp_path / "b" / f"t-{lost[0]}" / "partition.metadata"
        place.unlink()
        place.mkdir()
        await rig.broker(1, directories=("a", "b"))
        await until(lambda: len(rig.image().brokers[1].directories) == 1)
        others = set(range(4)) - set(lost)
        await until(lambda: all(set(rig.row(partition=number).isr) == {1, 2} for number in others))
        assert all(set(rig.row(partition=number).isr) == {2} for number in lost)
        assert rig.brokers[1].stage is Stage.RUNNING

    assert "is not used" in caplog.text

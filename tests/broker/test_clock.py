"""What becomes of records and offsets when the clock on the wall is set while a broker runs, or the machine sleeps."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from asking import produce_request, produced
from broker_rig import open_rig, until

from kraftcore.core.batch import build_batch
from kraftcore.node import clock
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest

HOUR_MS = 3_600_000


class Wall:
    """A clock that a test sets; what counts seconds goes on."""

    def __init__(self, monkeypatch):
        self.ahead_ms = 0
        told = SimpleNamespace(time=lambda: self.now_ms / 1000, time_ns=lambda: self.now_ms * 1_000_000)
        monkeypatch.setattr(clock, "time", told)

    @property
    def now_ms(self):
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def wall(monkeypatch):
    return Wall(monkeypatch)


def one_record(timestamp_ms, topic="t"):
    return produce_request(records=build_batch([b"a"], timestamp_ms=timestamp_ms), topic=topic, acks=1)


async def write(rig, timestamp_ms, topic="t"):
    return produced(await rig.ask(1, one_record(timestamp_ms, topic), 9))


def test_records_of_the_present_are_taken_when_the_clock_was_set_forth(tmp_path, wall):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            assert (await write(rig, wall.now_ms + 2 * HOUR_MS)).error_code == ErrorCode.INVALID_TIMESTAMP
            wall.ahead_ms = 2 * HOUR_MS
            assert (await write(rig, wall.now_ms)).error_code == 0
            wall.ahead_ms = -2 * HOUR_MS
            assert (await write(rig, wall.now_ms + 2 * HOUR_MS)).error_code == ErrorCode.INVALID_TIMESTAMP

    trio.run(main)


def test_records_of_the_present_stay_when_the_clock_was_set_back(tmp_path, wall):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, retention_ms=HOUR_MS, retention_check_ms=10)
            wall.ahead_ms = -24 * HOUR_MS
            for topic in ("new", "old"):
                await rig.assign(1, 0, [1], topic=topic)
            assert (await write(rig, wall.now_ms, "new")).error_code == 0
            assert (await write(rig, wall.now_ms - 2 * HOUR_MS, "old")).error_code == 0
            replicas = rig.brokers[1].replicas.all
            await until(lambda: replicas[TopicPartition("old", 0)].partition.log.log_start_offset == 1)
            assert replicas[TopicPartition("new", 0)].partition.log.log_start_offset == 0

    trio.run(main)


def test_a_producer_is_known_after_a_move_when_the_clock_was_set_back(tmp_path, wall):
    """By the clock that counts on it has been silent for more than a day: what it repeats would be appended again."""

    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1, directories=tuple(str(tmp_path / folder) for folder in "ab"))
            wall.ahead_ms = -25 * HOUR_MS
            await rig.assign(1, 0, [1])
            batch = build_batch([b"a"], timestamp_ms=wall.now_ms, producer_id=7, producer_epoch=0, base_sequence=0)

            async def send():
                told = produced(await rig.ask(1, produce_request(records=bytes(batch), acks=1), 9))
                return told.error_code, told.base_offset

            assert await send() == await send() == (0, 0)
            replica = broker.replicas.all[TopicPartition("t", 0)]
            kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
            topics = [kind.AlterReplicaLogDirTopic(name="t", partitions=[0])]
            for folder in "ab":  # one of which it is in
                await rig.ask(1, AlterReplicaLogDirsRequest(dirs=[kind(path=str(tmp_path / folder), topics=topics)]), 2)
                await until(lambda folder=folder: replica.hosted.directory.path == str(tmp_path / folder))
            assert await send() == (0, 0)
            assert replica.partition.log.log_end_offset == 1

    trio.run(main)


def test_offsets_age_by_the_clock_that_was_set_and_sessions_do_not(tmp_path, wall):
    settings = GroupSettings(initial_rebalance_delay_ms=0, retention_minutes=60, retention_check_interval_ms=10)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=settings)
            for name in ("__consumer_offsets", "t"):
                await rig.assign(1, 0, [1], topic=name)
            join = JoinGroupRequest(
                group_id="m",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                protocol_type="c",
                protocols=[protocol],
            )
            member = await rig.ask(1, join, 3)
            while member.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                member = await rig.ask(1, join, 3)
            told = await rig.ask(1, OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[part])]), 8)
            assert (member.error_code, told.topics[0].partitions[0].error_code) == (0, 0)

            async def is_kept():
                asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
                return (await rig.ask(1, OffsetFetchRequest(groups=[asked]), 8)).groups[0].topics

            assert await is_kept()
            wall.ahead_ms = 2 * HOUR_MS
            with trio.fail_after(60):
                while await is_kept():
                    await trio.sleep(0.01)
            beat = HeartbeatRequest(group_id="m", generation_id=1, member_id=member.member_id)
            assert (await rig.ask(1, beat, 3)).error_code == 0

    trio.run(main)


def test_a_mock_clock_is_its_own_wall_clock():
    async def main():
        told = clock.wall_clock()
        before = told()
        await trio.sleep(1000)
        assert told() - before == 1_000_000

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

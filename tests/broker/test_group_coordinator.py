"""A broker's group coordinator: all versions of its requests, changes of leader, unmodified clients."""

from __future__ import annotations

import threading
import weakref
from itertools import count, pairwise
from random import Random

import own_partitions
import pytest
import trio
from aiokafka import AIOKafkaConsumer
from broker_rig import CONTROLLER, open_rig, until
from group_rig import GroupRequest, subscription
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Assigned
from transport_rig import in_trio
from trio.testing import MockClock

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, RefusedError
from kraftcore.plugins.broker import BrokerConfig, open_broker
from kraftcore.plugins.broker.groups import coordinator
from kraftcore.plugins.broker.groups.effects import Caller
from kraftcore.plugins.broker.groups.loading import Loader
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.groups.topic import GroupsTopic
from kraftcore.plugins.broker.metadata.cache import LiveBroker
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.producers import Marker
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.create_topics import CreateTopicsResponse
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kraftcore.raft.quorum import Endpoint

OFFSETS = "__consumer_offsets"
GROUPS = 40
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0, commit_timeout_ms=60_000)


def join_request(member="", group="g", session_ms=30_000):
    of = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[of(name="range", metadata=subscription("t"))],
    )


def commit_request(offset, group="g", topic="t"):
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    part = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    return OffsetCommitRequest(group_id=group, topics=[of(name=topic, partitions=[part])])


async def commit(rig, broker, offset, group="g", topic="t", version=9):
    answer = await rig.ask(broker, commit_request(offset, group, topic), version)
    return E(answer.topics[0].partitions[0].error_code)


async def fetch(rig, broker, group="g", version=9):
    """Error, and the offset of t's partition 0."""
    if version < 8:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        told = await rig.ask(broker, OffsetFetchRequest(group_id=group, topics=topics), version)
    else:
        of = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [of.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[of(group_id=group, topics=topics)], require_stable=True)
        told = (await rig.ask(broker, asked, version)).groups[0]
    return E(told.error_code), told.topics[0].partitions[0].committed_offset if told.topics else None


async def find(rig, broker, key="g", kind=0, version=6):
    if version < 4:
        return await rig.ask(broker, FindCoordinatorRequest(key=key, key_type=kind), version)
    asked = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
    return (await rig.ask(broker, asked, version)).coordinators[0]


async def open_groups(rig, *replicas, leader=1, epoch=0):
    await rig.assign(leader, epoch, replicas, topic=OFFSETS)
    await rig.assign(leader, epoch, replicas, topic="t")

    async def loaded():
        with trio.fail_after(60):
            while (await fetch(rig, leader))[0] is E.COORDINATOR_LOAD_IN_PROGRESS:
                await trio.sleep(0.01)

    await loaded()


def test_every_request_in_every_version_is_answered(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1)
            for version in range(7):
                found = await find(rig, 1, version=version)
                assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "broker1", 9092)
            for version in range(10):
                group = f"joined {version}"
                joined = await rig.ask(1, join_request(group=group), version)
                if version >= 4:
                    assert joined.error_code == E.MEMBER_ID_REQUIRED
                    joined = await rig.ask(1, join_request(joined.member_id, group), version)
                assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
                assert joined.protocol_name == "range"
                member = joined.member_id
                given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"a")]
                sync = SyncGroupRequest(
                    group_id=group,
                    generation_id=1,
                    member_id=member,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=given,
                )
                assert (await rig.ask(1, sync, min(version, 5))).assignment == b"a"
                beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member)
                assert (await rig.ask(1, beat, min(version, 4))).error_code == 0
                described = await rig.ask(1, DescribeGroupsRequest(groups=[group]), min(version, 6))
                assert described.groups[0].members[0].member_assignment == b"a"
                listed = await rig.ask(1, ListGroupsRequest(), min(version, 5))
                assert group in {each.group_id for each in listed.groups}
                leave = LeaveGroupRequest(group_id=group)
                if version < 3:
                    leave.member_id = member
                else:
                    leave.members = [LeaveGroupRequest.MemberIdentity(member_id=member)]
                left = await rig.ask(1, leave, min(version, 5))
                assert [left.error_code, *(each.error_code for each in left.members)] in ([0], [0, 0])
                deleted = await rig.ask(1, DeleteGroupsRequest(groups_names=[group, "none"]), min(version, 2))
                assert [each.error_code for each in deleted.results] == [0, E.GROUP_ID_NOT_FOUND]
            for version in range(2, 10):
                assert await commit(rig, 1, version, version=version) is E.NONE
                assert await commit(rig, 1, version, topic="u", version=version) is E.UNKNOWN_TOPIC_OR_PARTITION
                for reading in range(1, 10):
                    assert await fetch(rig, 1, version=reading) == (E.NONE, version)
            of = OffsetDeleteRequest.OffsetDeleteRequestTopic
            parts = [of.OffsetDeleteRequestPartition(partition_index=0)]
            asked = OffsetDeleteRequest(group_id="g", topics=[of(name=name, partitions=parts) for name in ("t", "u")])
            gone = await rig.ask(1, asked, 0)
            assert {topic.name: topic.partitions[0].error_code for topic in gone.topics} == {
                "t": 0,
                "u": E.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert await fetch(rig, 1) == (E.NONE, -1)

    trio.run(main)


def test_what_cannot_be_is_refused(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            assert (await find(rig, 1)).error_code == E.COORDINATOR_NOT_AVAILABLE
            assert await commit(rig, 1, 1) is E.UNKNOWN_TOPIC_OR_PARTITION
            assert (await fetch(rig, 1))[0] is E.NOT_COORDINATOR
            assert (await rig.ask(1, ListGroupsRequest(), 5)).groups == []
            await open_groups(rig, 1)
            for kind, error in ((1, E.COORDINATOR_NOT_AVAILABLE), (2, E.INVALID_REQUEST), (9, E.INVALID_REQUEST)):
                for version in (1, 6):
                    found = await find(rig, 1, kind=kind, version=version)
                    assert (found.error_code, found.node_id, found.port) == (error, -1, -1)
            await rig.assign(1, 0, [1], topic="__transaction_state")
            assert (await find(rig, 1, kind=1)).node_id == 1
            for session_ms in (5999, 1_800_001):
                answer = await rig.ask(1, join_request(session_ms=session_ms), 9)
                assert answer.error_code == E.INVALID_SESSION_TIMEOUT
            for request, version in (
                (join_request(group=""), 9),
                (SyncGroupRequest(group_id=""), 4),
                (HeartbeatRequest(group_id=""), 4),
                (LeaveGroupRequest(group_id=""), 5),
                (OffsetDeleteRequest(group_id=""), 0),
            ):
                assert (await rig.ask(1, request, version)).error_code == E.INVALID_GROUP_ID
            deleted = await rig.ask(1, DeleteGroupsRequest(groups_names=[""]), 2)
            assert deleted.results[0].error_code == E.GROUP_ID_NOT_FOUND
            # Kafka lets an empty id have offsets.
            assert await commit(rig, 1, 3, group="") is E.NONE
            assert await fetch(rig, 1, group="") == (E.NONE, 3)
            no_protocol = SyncGroupRequest(group_id="g", protocol_type="consumer")
            assert (await rig.ask(1, no_protocol, 5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
            listed = await rig.ask(1, ListGroupsRequest(states_filter=["STABLE"]), 5)
            assert listed.groups == []
            listed = await rig.ask(1, ListGroupsRequest(states_filter=["empty"], types_filter=["classic"]), 5)
            assert [each.group_id for each in listed.groups] == [""]

    trio.run(main)


def test_each_partition_of_a_topic_that_is_named_twice_is_answered_for(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1)
            named = [("t", 0), ("u", 3), ("t", 1), ("u", 4), ("t", 2)]
            of = OffsetCommitRequest.OffsetCommitRequestTopic
            part = of.OffsetCommitRequestPartition
            topics = [of(name=name, partitions=[part(partition_index=number)]) for name, number in named]
            commit = OffsetCommitRequest(group_id="g", topics=topics)
            of = OffsetDeleteRequest.OffsetDeleteRequestTopic
            part = of.OffsetDeleteRequestPartition
            topics = [of(name=name, partitions=[part(partition_index=number)]) for name, number in [*named, ("t", 0)]]
            delete = OffsetDeleteRequest(group_id="g", topics=topics)
            for request, version in ((commit, 9), (delete, 0)):
                answer = await rig.ask(1, request, version)
                told = {
                    (topic.name, each.partition_index): each.error_code
                    for topic in answer.topics
                    for each in topic.partitions
                }
                assert told == {each: E.NONE if each == ("t", 0) else E.UNKNOWN_TOPIC_OR_PARTITION for each in named}

    trio.run(main)


def test_groups_go_on_at_the_next_leader(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id, groups=AT_ONCE)
            await open_groups(rig, 1, 2)
            assert await commit(rig, 1, 7) is E.NONE
            joined = await rig.ask(1, join_request((await rig.ask(1, join_request(), 9)).member_id), 9)
            waiting = []

            async def join_and_wait():
                first = await rig.ask(1, join_request(group="g"), 3)
                waiting.append(first)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(join_and_wait)
                described = DescribeGroupsRequest(groups=["g"])

                async def is_waiting():
                    return (await rig.ask(1, described, 6)).groups[0].group_state == "PreparingRebalance"

                with trio.fail_after(60):
                    while not await is_waiting():
                        await trio.sleep(0.01)
                await open_groups(rig, 1, 2, leader=2, epoch=1)
            assert waiting[0].error_code == E.NOT_COORDINATOR
            assert (await fetch(rig, 1))[0] is E.NOT_COORDINATOR
            assert (await find(rig, 1)).node_id == 2
            assert await fetch(rig, 2) == (E.NONE, 7)
            # Nobody had synced: the members were never stored.
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
            assert (await rig.ask(2, beat, 4)).error_code == E.UNKNOWN_MEMBER_ID
            assert await commit(rig, 2, 8) is E.NONE
            await rig.stop(1)
            await open_groups(rig, 2, leader=2, epoch=2)
            assert await fetch(rig, 2) == (E.NONE, 8)

    trio.run(main)


def test_commits_wait_for_those_in_sync_and_are_refused_with_too_few(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id, groups=GroupSettings(commit_timeout_ms=2000), min_insync_replicas=2)
            await open_groups(rig, 1, 2)
            assert await commit(rig, 1, 7) is E.NONE
            await rig.stop(2)
            # In the log, perhaps, but not committed, so not told.
            assert await commit(rig, 1, 8) is E.COORDINATOR_NOT_AVAILABLE
            await until(lambda: len(rig.isr_requests) > 0)
            assert await commit(rig, 1, 9) is E.COORDINATOR_NOT_AVAILABLE
            assert (await fetch(rig, 1, version=7))[1] == 7

    trio.run(main, strict_exception_groups=True)


def test_a_log_that_cannot_be_read_is_told_of_and_the_broker_stays_up(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1)
            assert await commit(rig, 1, 7) is E.NONE
            # A record of somebody else's: it is left out.
            rig.client_id = "__admin_client"
            assert (await rig.produce(1, b"rubbish", topic=OFFSETS)).error_code == 0
            await rig.stop(1)
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1, epoch=1)
            assert await fetch(rig, 1) == (E.NONE, 7)
            await rig.stop(1)
            await rig.start(1, groups=AT_ONCE)
            # Damage that comes up when it is read: it has no coordinator, as with Kafka; the broker goes on.
            (file,) = (tmp_path / "d1" / f"{OFFSETS}-0").glob("*.log")
            data = bytearray(file.read_bytes())
            data[70] ^= 0xFF
            file.write_bytes(data)
            await rig.assign(1, 2, [1], topic=OFFSETS)
            with trio.fail_after(60):
                while (await fetch(rig, 1))[0] is E.COORDINATOR_LOAD_IN_PROGRESS:
                    await trio.sleep(0.01)
            assert (await fetch(rig, 1))[0] is E.NOT_COORDINATOR
            assert (await rig.ask(1, ListGroupsRequest(), 5)).error_code == 0

    trio.run(main)


def loaded(groups):
    """The shards, once they are loaded."""
    try:
        yield from groups.shards()
    except RefusedError:
        return


async def condensed(rig, broker_id):
    """Condense; first offset and size of the log before and after, which then begins elsewhere."""
    log = rig.brokers[broker_id].replicas.all[TopicPartition(OFFSETS, 0)].partition.log
    before = log.log_start_offset, log.size_in_bytes
    with trio.fail_after(60):
        await rig.brokers[broker_id].groups.condense_large()
    return before, (log.log_start_offset, log.size_in_bytes)


def test_a_log_that_has_grown_is_condensed_and_everything_in_it_stays(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            settings = GroupSettings(initial_rebalance_delay_ms=0, topic_segment_bytes=10_000)
            for broker_id in (1, 2):
                await rig.start(broker_id, groups=settings)
            await open_groups(rig, 1, 2)
            member = (await rig.ask(1, join_request(group="live"), 9)).member_id
            joined = await rig.ask(1, join_request(member, "live"), 9)
            given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")]
            sync = SyncGroupRequest(
                group_id="live",
                generation_id=1,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=given,
            )
            assert (await rig.ask(1, sync, 5)).error_code == 0
            for number in range(100):
                assert await commit(rig, 1, number, group=f"g{number % 3}") is E.NONE
            assert await commit(rig, 1, 0, group="gone") is E.NONE
            assert (await rig.ask(1, DeleteGroupsRequest(groups_names=["gone"]), 2)).results[0].error_code == 0
            (start, size), (new_start, new_size) = await condensed(rig, 1)
            assert (start, new_start > 100, new_size < size // 10) == (0, True, True)
            assert await condensed(rig, 1) == ((new_start, new_size), (new_start, new_size))
            assert await commit(rig, 1, 100, group="g0") is E.NONE
            follower = rig.brokers[2].replicas.all[TopicPartition(OFFSETS, 0)].partition.log
            await until(lambda: follower.log_start_offset == new_start)
            await open_groups(rig, 1, 2, leader=2, epoch=1)
            for group, offset in (("g0", 100), ("g1", 97), ("g2", 98)):
                assert await fetch(rig, 2, group=group) == (E.NONE, offset)
            listed = await rig.ask(2, ListGroupsRequest(), 5)
            assert {each.group_id for each in listed.groups} == {"g0", "g1", "g2", "live"}
            beat = HeartbeatRequest(group_id="live", generation_id=1, member_id=joined.member_id)
            assert (await rig.ask(2, beat, 4)).error_code == 0

    trio.run(main)


def test_what_is_written_while_a_log_is_condensed_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "CHUNK_BYTES", 1)  # a pause after each record

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0, topic_segment_bytes=10_000))
            await open_groups(rig, 1)
            last = {}

            async def commit_next(number):
                assert await commit(rig, 1, number, group=f"g{number % GROUPS}") is E.NONE
                last[number % GROUPS] = number

            for number in range(4 * GROUPS):
                await commit_next(number)
            groups, (name, _) = rig.brokers[1].groups, next(rig.brokers[1].groups.shards())
            log = rig.brokers[1].replicas.all[name].partition.log
            ends = []

            async def look():
                while True:
                    ends.append(log.log_end_offset)
                    await trio.lowlevel.checkpoint()

            async def go_on():
                for number in count(4 * GROUPS):
                    await commit_next(number)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                nursery.start_soon(go_on)
                await groups.condense_large()
                nursery.cancel_scope.cancel()
            assert log.log_start_offset >= 4 * GROUPS
            # Others were let on between its records.
            assert max(after - before for before, after in pairwise(ends)) < GROUPS // 2
            await rig.stop(1)
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0))
            await open_groups(rig, 1, leader=1, epoch=1)
            await until(lambda: next(loaded(rig.brokers[1].groups), None))
            for number in range(GROUPS):
                found = await fetch(rig, 1, group=f"g{number}")
                # The last one may have been cut off before it was heard of.
                assert found in ((E.NONE, last[number]), (E.NONE, last[number] + GROUPS)), number

    trio.run(main)


def begin_transaction(groups, group, offset, producer=7):
    """Have an offset of t's partition 0 committed in a transaction that stays open."""
    of = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = of.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer,
        producer_epoch=0,
        topics=[of(name="t", partitions=[part])],
    )
    asked = GroupRequest()
    name, shard = groups.shard_of(group)
    groups.carry_out(name, shard, shard.commit_in_transaction(request, Caller(asked, 5), 0))
    assert [each.partitions[0].error_code for each in asked.response.topics] == [0]


class Ended:
    """Who waits for a marker."""

    is_over = False

    def __init__(self):
        self.error = None

    def end(self, error):
        self.error = error


def end_transaction(groups, group, is_commit, producer=7):
    waiter = Ended()
    groups.end_transaction(groups.partition_of(group), Marker(producer, 0, 0, is_commit), waiter)
    assert waiter.error is E.NONE


async def commit_all(rig, rounds=4):
    for number in range(rounds * GROUPS):
        assert await commit(rig, 1, number, group=f"g{number % GROUPS}") is E.NONE
    return {f"g{number}": (rounds - 1) * GROUPS + number for number in range(GROUPS)}


async def read_again(rig, expected):
    """Restart the broker: its log comes to these offsets."""
    await rig.stop(1)
    await rig.start(1, groups=AT_ONCE)
    await open_groups(rig, 1, leader=1, epoch=1)
    await until(lambda: next(loaded(rig.brokers[1].groups), None))
    assert {group: await fetch(rig, 1, group=group) for group in expected} == {
        group: (E.NONE, offset) for group, offset in expected.items()
    }


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("ends_meanwhile", [True, False])
def test_offsets_that_a_transaction_commits_while_a_log_is_condensed_count(
    tmp_path, monkeypatch, is_commit, ends_meanwhile
):
    monkeypatch.setattr(coordinator, "CHUNK_BYTES", 1)  # a pause after each record

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0, topic_segment_bytes=10_000))
            await open_groups(rig, 1)
            expected = await commit_all(rig)
            groups = rig.brokers[1].groups
            log = rig.brokers[1].replicas.all[TopicPartition(OFFSETS, 0)].partition.log
            end, last = log.log_end_offset, f"g{GROUPS - 1}"
            seen = []

            async def begin():
                while log.log_end_offset < end + 3:
                    await trio.lowlevel.checkpoint()
                begin_transaction(groups, last, 1000)
                seen.append(log.log_end_offset)

            needed_from = Loader.needed_from

            def end_after_a_pass(loader, offset):
                if ends_meanwhile and len(seen) == 1:
                    trio.from_thread.run_sync(end_transaction, groups, last, is_commit)
                    seen.append(log.log_end_offset)
                return needed_from(loader, offset)

            monkeypatch.setattr(Loader, "needed_from", end_after_a_pass)
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(begin)
                    await groups.condense_large()
            assert end < seen[0] < end + GROUPS  # others were to be written yet
            assert log.log_start_offset >= (end if ends_meanwhile else end - GROUPS)
            if not ends_meanwhile:
                end_transaction(groups, last, is_commit)
            await read_again(rig, {**expected, last: 1000} if is_commit else expected)

    trio.run(main)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_log_in_which_a_transaction_is_always_open_is_condensed(tmp_path, is_commit):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0, topic_segment_bytes=10_000))
            await open_groups(rig, 1)
            expected = await commit_all(rig)
            log = rig.brokers[1].replicas.all[TopicPartition(OFFSETS, 0)].partition.log
            log.roll(0)
            began = log.log_end_offset
            # Its group committed before, in another one, and this one is not over yet.
            begin_transaction(rig.brokers[1].groups, "steady", 1, producer=8)
            end_transaction(rig.brokers[1].groups, "steady", True, producer=8)
            begin_transaction(rig.brokers[1].groups, "steady", 2)
            log.flush()  # as is done from time to time
            (_, size), (start, new_size) = await condensed(rig, 1)
            assert (start, new_size < size // 2) == (began, True)
            assert log.flushed_offset == log.log_end_offset  # what is in place of what went
            end_transaction(rig.brokers[1].groups, "steady", is_commit)
            await read_again(rig, {**expected, "steady": 2 if is_commit else 1})

    trio.run(main)


def test_a_log_that_an_open_transaction_keeps_is_read_again_when_it_has_doubled(tmp_path, monkeypatch):
    read = []

    class Counted(Loader):
        def __init__(self, name):
            super().__init__(name)
            read.append(name)

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0, topic_segment_bytes=10_000))
            await open_groups(rig, 1)
            begin_transaction(rig.brokers[1].groups, "stuck", 1)
            expected = await commit_all(rig)
            log = rig.brokers[1].replicas.all[TopicPartition(OFFSETS, 0)].partition.log
            end = log.log_end_offset
            monkeypatch.setattr(coordinator, "Loader", Counted)
            for _ in range(2):
                assert len(set(await condensed(rig, 1))) == 1
            assert (len(read), log.log_end_offset) == (1, end)  # nothing was written in vain
            end_transaction(rig.brokers[1].groups, "stuck", True)
            expected = await commit_all(rig, 5)
            (_, size), (start, new_size) = await condensed(rig, 1)
            assert (len(read), start > end, new_size < size // 2) == (2, True, True)
            await read_again(rig, {**expected, "stuck": 1})

    trio.run(main)


def test_offsets_of_partitions_that_a_control_request_deletes_go(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1)
            await rig.assign(1, 0, [1], topic="u")
            for topic in "tu":
                assert await commit(rig, 1, 7, topic=topic) is E.NONE
            gone = UpdateMetadataPartitionState(partition_index=0, leader=-2, leader_epoch=0, isr=[1], replicas=[1])
            told = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=[gone])
            request = UpdateMetadataRequest(
                controller_id=CONTROLLER, controller_epoch=1, live_brokers=[], topic_states=[told]
            )
            assert (await rig.ask(1, request, 8)).error_code == 0
            with trio.fail_after(60):
                while (await fetch(rig, 1, version=7)) != (E.NONE, -1):
                    await trio.sleep(0.01)
            answer = await rig.ask(1, OffsetFetchRequest(group_id="g", topics=None), 7)
            assert [topic.name for topic in answer.topics] == ["u"]

    trio.run(main)


def test_what_is_wrong_with_a_group_is_told_in_every_version_of_offset_fetch(tmp_path):
    """Version 1 has no place for it but the partitions."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await rig.assign(1, 0, [1], topic="t")
            topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
            for version in range(1, 8):
                answer = await rig.ask(1, OffsetFetchRequest(group_id="g", topics=topics), version)
                if version == 1:
                    [told] = answer.topics
                    assert [(each.partition_index, each.committed_offset) for each in told.partitions] == [
                        (0, -1),
                        (3, -1),
                    ]
                    assert {each.error_code for each in told.partitions} == {E.NOT_COORDINATOR}
                else:
                    assert (answer.error_code, answer.topics) == (E.NOT_COORDINATOR, [])

    trio.run(main)


def test_offsets_of_topics_that_go_while_a_log_is_loaded_go(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0))
            await open_groups(rig, 1)
            assert await commit(rig, 1, 7, group="g") is E.NONE
            groups = rig.brokers[1].groups
            finish, deleted = Loader.finish, []

            def slowly(self, now_ms):
                trio.from_thread.run_sync(groups.topics_deleted, {rig.topic_ids["t"]: "t"})
                deleted.append(1)
                return finish(self, now_ms)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Loader, "finish", slowly)
                await rig.stop(1)
                await rig.start(1, groups=GroupSettings(initial_rebalance_delay_ms=0))
                groups = rig.brokers[1].groups
                await open_groups(rig, 1, leader=1, epoch=1)
                await until(lambda: deleted)
                with trio.fail_after(60):
                    while (found := await fetch(rig, 1, group="g")) != (E.NONE, -1):
                        assert found[0] in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR), found
                        await trio.sleep(0.01)

    trio.run(main)


# --- unmodified clients -----------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    """A function that runs another one beside a broker with a topic of four partitions."""
    config = BrokerConfig(
        node_id=1,
        listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 0),),
        directories=(str(tmp_path / "d"),),
        groups=GroupSettings(initial_rebalance_delay_ms=100),
    )

    def run(use):
        async def main():
            async with open_broker(config) as broker:
                port = broker.endpoints[0].port
                for topic in ("t", OFFSETS):
                    topic_id, broker.cache.topics[topic] = Uuid.random(), {}
                    for number in range(4):
                        assignment = Assignment(1, 0, 0, (1,), (1,), topic_id)
                        own_partitions.assign(broker.replicas, TopicPartition(topic, number), assignment)
                        broker.cache.topics[topic][number] = UpdateMetadataPartitionState(
                            partition_index=number, leader=1, leader_epoch=0, isr=[1], replicas=[1]
                        )
                broker.cache.brokers = {1: LiveBroker(1, None, {"PLAINTEXT": Address("127.0.0.1", port)})}
                await trio.to_thread.run_sync(use, f"127.0.0.1:{port}")

        trio.run(main)

    return run


def fill(servers):
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=False)
    sent = [producer.send("t", b"%d" % number, partition=number % 4) for number in range(40)]
    assert [each.get(60).offset for each in sent] == [number // 4 for number in range(40)]
    producer.close()


def test_two_members_of_kafka_python_share_the_partitions_and_a_third_takes_over(served):
    def use(servers):
        fill(servers)
        enough, found = threading.Event(), {}

        def member(name):
            consumer = KafkaConsumer(
                "t",
                bootstrap_servers=servers,
                group_id="shared",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                client_id=name,
            )
            values = found.setdefault(name, [])
            while not enough.is_set():
                for records in consumer.poll(100).values():
                    values += [record.value for record in records]
                if len(consumer.assignment()) == 2 and len(found) == 2 and sum(map(len, found.values())) >= 40:
                    break
            consumer.commit()
            consumer.close()

        threads = [threading.Thread(target=member, args=(name,), daemon=True) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        enough.set()
        assert {value for values in found.values() for value in values} == {b"%d" % number for number in range(40)}
        third = KafkaConsumer(bootstrap_servers=servers, group_id="shared")
        assert [third.committed(Assigned("t", number)) for number in range(4)] == [10] * 4
        third.close()

    served(use)


def test_members_of_aiokafka_leave_and_what_they_committed_stays(served):
    import asyncio

    async def take(servers, count):
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=servers, group_id="aio", auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            values = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(count)]
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    def use(servers):
        fill(servers)
        values = asyncio.run(take(servers, 15)) + asyncio.run(take(servers, 25))
        assert sorted(values, key=int) == [b"%d" % number for number in range(40)]

    served(use)


@in_trio
async def test_a_member_with_the_longest_client_id_is_one_like_others(tmp_path):
    """Its id is in the answers of the others and in what is stored."""
    async with open_rig(tmp_path) as rig:
        await rig.start(1, groups=AT_ONCE)
        await open_groups(rig, 1)
        rig.client_id = "x" * 32767
        joined = await rig.ask(1, join_request(), 3)
        assert (E(joined.error_code), joined.members[0].member_id) == (E.NONE, joined.member_id)
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert E((await rig.ask(1, request, 3)).error_code) is E.NONE


@in_trio
async def test_a_group_goes_with_all_of_its_offsets_however_small_batches_must_be(tmp_path):
    async with open_rig(tmp_path) as rig:
        broker = await rig.start(1, groups=AT_ONCE, message_max_bytes=10_000)
        await open_groups(rig, 1)
        numbers = range(300)
        broker.cache.topics["t"] = {
            number: UpdateMetadataPartitionState(partition_index=number, leader=1, isr=[1], replicas=[1])
            for number in numbers
        }
        of = OffsetCommitRequest.OffsetCommitRequestTopic
        for begin in range(0, len(numbers), 50):
            parts = [
                of.OffsetCommitRequestPartition(partition_index=number, committed_offset=7, committed_metadata="")
                for number in numbers[begin : begin + 50]
            ]
            told = await rig.ask(1, OffsetCommitRequest(group_id="g", topics=[of(name="t", partitions=parts)]), 8)
            assert {each.error_code for each in told.topics[0].partitions} == {E.NONE}
        told = await rig.ask(1, DeleteGroupsRequest(groups_names=["g"]), 2)
        assert E(told.results[0].error_code) is E.NONE
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        told = await rig.ask(1, OffsetFetchRequest(groups=[kind(group_id="g", topics=None)]), 8)
        assert told.groups[0].topics == []


def test_what_is_asked_again_and_again_is_told_four_times(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, groups=AT_ONCE)
            await open_groups(rig, 1)
            assert await commit(rig, 1, 7) is E.NONE
            kind = OffsetFetchRequest.OffsetFetchRequestGroup
            request = OffsetFetchRequest(groups=[kind(group_id=name, topics=None) for name in "gggggh"])
            told = await rig.ask(1, request, 8)
            assert [E(each.error_code) for each in told.groups] == [E.NONE] * 4 + [E.INVALID_REQUEST, E.NONE]
            assert [len(each.topics) for each in told.groups] == [1] * 4 + [0, 0]
            told = await rig.ask(1, DescribeGroupsRequest(groups=list("gggggh")), 5)
            assert [E(each.error_code) for each in told.groups] == [E.NONE] * 4 + [E.INVALID_REQUEST, E.NONE]

    trio.run(main)


@in_trio
async def test_groups_whose_log_cannot_be_made_are_not_waited_for_nor_coordinated(tmp_path):
    """It may be in a directory that failed: clients look for another coordinator."""
    async with open_rig(tmp_path) as rig:
        disk = rig.disks[1] = SimulatedDisk(Random(1))
        await rig.start(1, groups=AT_ONCE, directories=("/a", "/b"))
        await open_groups(rig, 1)
        await rig.stop(1)
        disk.inject("read", times=-1, path="/a/replication-offset-checkpoint")
        broker = await rig.start(1, groups=AT_ONCE, directories=("/a", "/b"))
        kind = LeaderAndIsrRequest.LeaderAndIsrTopicState
        states = [LeaderAndIsrPartitionState(leader=1, leader_epoch=1, isr=[1], replicas=[1])]
        told = kind(topic_name=OFFSETS, topic_id=rig.topic_ids[OFFSETS], partition_states=states)
        request = LeaderAndIsrRequest(controller_id=CONTROLLER, controller_epoch=1, topic_states=[told])
        answer = await rig.ask(1, request, 7)
        assert E(answer.topics[0].partition_errors[0].error_code) is E.KAFKA_STORAGE_ERROR
        took = []
        for _ in range(3):
            broker.groups.create_topic()
            begin = trio.current_time()
            assert await broker.groups.wait_topic(["g"])
            took.append(trio.current_time() - begin)
        assert min(took) < 1  # as long as it waits at most
        with pytest.raises(RefusedError, match="does not coordinate"):
            broker.groups.shard_of("g")


@in_trio
async def test_what_comes_while_groups_cannot_be_loaded_is_not_kept(tmp_path, monkeypatch):
    class Parts(set):
        """What a weak reference may refer to."""

    failing = threading.Event()

    def fail(loader, now_ms):
        failing.wait()
        raise CorruptDataError("a damaged batch")

    monkeypatch.setattr(Loader, "finish", fail)
    async with open_rig(tmp_path) as rig:
        groups = (await rig.start(1, groups=AT_ONCE)).groups
        await rig.assign(1, 0, [1], topic=OFFSETS)

        def come():
            parts = Parts({TopicPartition("t", 0)})
            groups.partitions_deleted(parts)
            return weakref.ref(parts)

        assert (await fetch(rig, 1))[0] is E.COORDINATOR_LOAD_IN_PROGRESS
        kept = come()
        assert kept() is not None  # it is done when they are loaded
        failing.set()
        with trio.fail_after(60):
            while (await fetch(rig, 1))[0] is E.COORDINATOR_LOAD_IN_PROGRESS:
                await trio.sleep(0.01)
        assert (await fetch(rig, 1))[0] is E.NOT_COORDINATOR
        assert kept() is None
        assert come()() is None


def unmade(request):
    kind = CreateTopicsResponse.CreatableTopicResult
    found = kind(name=request.topics[0].name, error_code=E.INVALID_REPLICATION_FACTOR, error_message="of 3")
    return CreateTopicsResponse(topics=[found])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (unmade, "could not be made: INVALID_REPLICATION_FACTOR: of 3"),
        (lambda request: Failure.TIMED_OUT, "could not be made: Failure.TIMED_OUT"),
        (None, "no controller can be asked"),
    ],
)
def test_clients_that_ask_again_and_again_fill_no_log_with_a_topic_that_cannot_be_made(answer, text, caplog):
    async def ask(request):
        return answer(request)

    async def main():
        topic = GroupsTopic(GroupSettings(), None if answer is None else ask)
        for _ in range(1000):
            assert not await topic.create()
            await trio.sleep(0.1)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    lines = [line for line in caplog.messages if text in line]
    assert lines[1] == f"{lines[0]} (and 100 more like it before)"
    assert len(lines) == len(caplog.messages) == 4  # an equal one after 10, 20 and 40 s

"""Consumer groups in a cluster of ours: the topic comes by itself, coordinators change, topics are deleted."""

from __future__ import annotations

import pytest
import trio
from broker_rig import until
from group_rig import subscription
from kraft_rig import CONTROLLER_ID, open_kraft_rig

from kraftcore.core.uuid import ZERO_UUID
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest

OFFSETS = "__consumer_offsets"
SETTINGS = GroupSettings(topic_partitions=3, topic_replication_factor=2, initial_rebalance_delay_ms=0)


@pytest.fixture
def play(tmp_path):
    def run(main):
        async def whole():
            async with open_kraft_rig(tmp_path) as rig:
                await main(rig)

        trio.run(whole)

    return run


async def coordinator(rig, node_id, group="g"):
    """Who coordinates a group; asks until somebody does."""
    with trio.fail_after(60):
        while True:
            asked = FindCoordinatorRequest(coordinator_keys=[group])
            found = (await rig.ask(node_id, asked, 6)).coordinators[0]
            if found.error_code == 0:
                return found.node_id
            assert found.error_code == E.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.01)


async def commit(rig, node_id, offset, topic_id, group="g"):
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    part = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[of(topic_id=topic_id, partitions=[part])])
    answer = await rig.ask(node_id, request, 10)
    assert answer.topics[0].topic_id == topic_id
    return E(answer.topics[0].partitions[0].error_code)


async def fetch(rig, node_id, topic_id, group="g"):
    """Error of the group, of the partition, and the offset; by id."""
    of = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [of.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[of(group_id=group, topics=topics)], require_stable=True)
    told = (await rig.ask(node_id, asked, 10)).groups[0]
    if told.error_code:
        return E(told.error_code), None, None
    part = told.topics[0].partitions[0]
    return E.NONE, E(part.error_code), part.committed_offset


async def fetched(rig, node_id, topic_id):
    """The same, when the coordinator has loaded."""
    with trio.fail_after(60):
        while (answer := await fetch(rig, node_id, topic_id))[0] in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR):
            await trio.sleep(0.01)
        return answer


def test_the_topic_is_made_when_somebody_looks_for_a_coordinator_and_groups_move_with_its_leader(play):
    @play
    async def main(rig):
        await rig.controller()
        for node_id in (1, 2):
            await rig.broker(node_id, groups=SETTINGS)
        await rig.create([1, 2])
        topic_id = rig.image().topics.by_name("t").id
        first = await coordinator(rig, 1)
        assert len(rig.image().partitions.of_topic(rig.image().topics.by_name(OFFSETS).id)) == 3
        configs = rig.image().configs.of(2, OFFSETS)
        assert (configs["cleanup.policy"], configs["compression.type"]) == ("compact", "producer")
        other = 3 - first
        assert await coordinator(rig, other) == first
        await fetched(rig, first, topic_id)
        assert await commit(rig, first, 7, topic_id) is E.NONE
        assert (await fetch(rig, other, topic_id))[0] is E.NOT_COORDINATOR
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        assert (await rig.ask(first, join, 9)).error_code == E.MEMBER_ID_REQUIRED
        await rig.kill(first)
        assert await fetched(rig, other, topic_id) == (E.NONE, E.NONE, 7)
        assert await coordinator(rig, other) == other
        await rig.broker(first, groups=SETTINGS)
        await until(lambda: set(rig.row(OFFSETS).isr) == {1, 2})
        assert await commit(rig, other, 8, topic_id) is E.NONE
        await rig.stop(other)
        assert await fetched(rig, first, topic_id) == (E.NONE, E.NONE, 8)


def test_offsets_of_a_deleted_topic_are_forgotten_also_if_it_comes_again(play):
    @play
    async def main(rig):
        await rig.start(CONTROLLER_ID, is_controller=True, groups=GroupSettings(topic_replication_factor=1))
        with trio.fail_after(60):
            await rig.brokers[CONTROLLER_ID].wait_running()
        await rig.create([CONTROLLER_ID])
        old = rig.image().topics.by_name("t").id
        await coordinator(rig, CONTROLLER_ID)
        await fetched(rig, CONTROLLER_ID, old)
        assert await commit(rig, CONTROLLER_ID, 7, old) is E.NONE
        assert await commit(rig, CONTROLLER_ID, 7, ZERO_UUID) is E.UNKNOWN_TOPIC_ID
        await rig.delete()
        _, shard = rig.brokers[CONTROLLER_ID].core.groups.shard_of("g")
        await until(lambda: not shard.offsets.committed)
        assert await fetch(rig, CONTROLLER_ID, old) == (E.NONE, E.UNKNOWN_TOPIC_ID, -1)
        await rig.create([CONTROLLER_ID])
        new = rig.image().topics.by_name("t").id
        await until(lambda: rig.partition(CONTROLLER_ID) is not None)
        assert await fetch(rig, CONTROLLER_ID, new) == (E.NONE, E.NONE, -1)


def test_nobody_makes_the_topic_with_other_settings_by_asking_for_its_metadata(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1, groups=SETTINGS)
        named = MetadataRequest.MetadataRequestTopic(name=OFFSETS)
        answer = await rig.ask(1, MetadataRequest(topics=[named], allow_auto_topic_creation=True), 12)
        assert answer.topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        # Two replicas cannot be had of one broker: it is told, and tried again with each question.
        for _ in range(3):
            found = (await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators[0]
            assert found.error_code == E.COORDINATOR_NOT_AVAILABLE
        await rig.broker(2, groups=SETTINGS)
        await coordinator(rig, 1)
        assert len(rig.row(OFFSETS).replicas) == 2

"""Consumer groups in a cluster of ours: the topic comes by itself, coordinators change, topics are deleted."""

from __future__ import annotations

import pytest
import trio
from broker_rig import until
from group_rig import subscription
from kraft_rig import CONTROLLER_ID

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import ZERO_UUID
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest

OFFSETS = "__consumer_offsets"
SETTINGS = GroupSettings(topic_partitions=3, topic_replication_factor=2, initial_rebalance_delay_ms=0)


AGAIN = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)


async def coordinator(rig, group="g"):
    """Who coordinates a group, as any broker says; asks until somebody does."""
    with trio.fail_after(60):
        while True:
            for node_id in list(rig.brokers):
                answer = await rig.ask(node_id, FindCoordinatorRequest(coordinator_keys=[group]), 6)
                if not isinstance(answer, Failure) and answer.coordinators[0].error_code == 0:
                    return answer.coordinators[0].node_id
            await trio.sleep(0.01)


async def at_coordinator(rig, request, version, error_of):
    """An answer of whoever coordinates; as clients do, asks again while leadership moves."""
    with trio.fail_after(60):
        while True:
            answer = await rig.ask(await coordinator(rig), request, version)
            if not isinstance(answer, Failure) and E(error_of(answer)) not in AGAIN:
                return answer
            await trio.sleep(0.01)


async def commit(rig, offset, topic_id):
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    part = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id="g", topics=[of(topic_id=topic_id, partitions=[part])])
    answer = await at_coordinator(rig, request, 10, lambda answer: answer.topics[0].partitions[0].error_code)
    assert answer.topics[0].topic_id == topic_id
    return E(answer.topics[0].partitions[0].error_code)


async def commit_by_name(rig, offset):
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    part = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id="g", topics=[of(name="t", partitions=[part])])
    answer = await at_coordinator(rig, request, 9, lambda answer: answer.topics[0].partitions[0].error_code)
    return E(answer.topics[0].partitions[0].error_code)


async def fetch(rig, topic_id):
    """Error and offset, by the topic's id."""
    of = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [of.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[of(group_id="g", topics=topics)], require_stable=True)
    answer = await at_coordinator(rig, request, 10, lambda answer: answer.groups[0].error_code)
    part = answer.groups[0].topics[0].partitions[0]
    return E(part.error_code), part.committed_offset


async def all_offsets(rig):
    """Topics of which the group has offsets."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = await at_coordinator(rig, request, 9, lambda answer: answer.groups[0].error_code)
    return [topic.name for topic in answer.groups[0].topics]


def test_the_topic_is_made_when_somebody_looks_for_a_coordinator_and_groups_move_with_its_leader(play):
    @play
    async def main(rig):
        await rig.controller()
        for node_id in (1, 2):
            await rig.broker(node_id, groups=SETTINGS)
        await rig.create([1, 2])
        topic_id = rig.image().topics.by_name("t").id
        await coordinator(rig)
        assert len(rig.image().partitions.of_topic(rig.image().topics.by_name(OFFSETS).id)) == 3
        configs = rig.image().configs.of(2, OFFSETS)
        assert (configs["cleanup.policy"], configs["compression.type"]) == ("compact", "producer")
        assert await commit(rig, 7, topic_id) is E.NONE
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        asked = await at_coordinator(rig, join, 9, lambda answer: answer.error_code)
        assert asked.error_code == E.MEMBER_ID_REQUIRED
        name = rig.brokers[1].parts.groups.partition_of("g")
        await until(lambda: set(rig.row(*name).isr) == {1, 2})
        first = rig.row(*name).leader
        await rig.kill(first)
        assert await fetch(rig, topic_id) == (E.NONE, 7)
        assert await coordinator(rig) == 3 - first
        await rig.broker(first, groups=SETTINGS)
        await until(lambda: set(rig.row(*name).isr) == {1, 2})
        assert await commit(rig, 8, topic_id) is E.NONE
        await rig.stop(3 - first)
        assert await fetch(rig, topic_id) == (E.NONE, 8)
        assert await coordinator(rig) == first


def test_offsets_of_a_deleted_topic_are_forgotten_also_if_it_comes_again(play):
    @play
    async def main(rig):
        await rig.start(CONTROLLER_ID, is_controller=True, groups=GroupSettings(topic_replication_factor=1))
        with trio.fail_after(60):
            await rig.brokers[CONTROLLER_ID].wait_running()
        await rig.create([CONTROLLER_ID])
        old = rig.image().topics.by_name("t").id
        assert await commit(rig, 7, old) is E.NONE
        assert await commit(rig, 7, ZERO_UUID) is E.UNKNOWN_TOPIC_ID
        await rig.delete()
        with trio.fail_after(60):
            while await all_offsets(rig):
                await trio.sleep(0.01)
        assert await fetch(rig, old) == (E.UNKNOWN_TOPIC_ID, -1)
        await rig.create([CONTROLLER_ID])
        new = rig.image().topics.by_name("t").id
        await until(lambda: rig.partition(CONTROLLER_ID) is not None)
        assert await fetch(rig, new) == (E.NONE, -1)


def test_who_is_first_to_ask_for_a_coordinator_is_told_of_one_that_serves(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1, groups=GroupSettings(topic_replication_factor=1, initial_rebalance_delay_ms=0))
        found = (await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g", "h"]), 6)).coordinators
        assert [(each.key, each.error_code, each.node_id) for each in found] == [("g", 0, 1), ("h", 0, 1)]
        joined = await rig.ask(1, JoinGroupRequest(group_id="h", session_timeout_ms=10_000, protocol_type="x"), 9)
        assert joined.error_code == E.INCONSISTENT_GROUP_PROTOCOL  # it names none: the group is looked at
        assert (await rig.ask(1, FindCoordinatorRequest(key="g"), 3)).node_id == 1


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
        await coordinator(rig)
        assert len(rig.row(OFFSETS).replicas) == 2


def test_whoever_commits_by_name_has_the_topics_id_stored(play):
    @play
    async def main(rig):
        await rig.start(CONTROLLER_ID, is_controller=True, groups=GroupSettings(topic_replication_factor=1))
        with trio.fail_after(60):
            await rig.brokers[CONTROLLER_ID].wait_running()
        await rig.create([CONTROLLER_ID])
        assert await commit_by_name(rig, 7) is E.NONE
        topic_id = rig.image().topics.by_name("t").id
        values = [
            value
            for number in range(rig.image().partitions.count(rig.image().topics.by_name(OFFSETS).id))
            for batch in iter_batches(rig.log_bytes(CONTROLLER_ID, f"{OFFSETS}-{number}"))
            for value in batch.values()
        ]
        assert [bytes(topic_id) in value for value in values if value] == [True]


@pytest.mark.parametrize(("most", "parts", "error"), [("100000", 4, E.NONE), ("5000", 2, E.UNKNOWN_SERVER_ERROR)])
def test_what_a_group_writes_at_once_may_be_as_large_as_is_set_for_the_topic(play, most, parts, error):
    """Kafka 4.3.1, CoordinatorRuntime: LogConfig.maxMessageSize of the partition."""

    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1, groups=SETTINGS, message_max_bytes=10_000)
        await rig.create(*[[1]] * 4)
        await rig.create([1], topic=OFFSETS, max_message_bytes=most)
        of = OffsetCommitRequest.OffsetCommitRequestTopic
        numbers = [
            of.OffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata="m" * 4000)
            for each in range(parts)
        ]
        request = OffsetCommitRequest(group_id="g", topics=[of(name="t", partitions=numbers)])
        answer = await at_coordinator(rig, request, 9, lambda answer: answer.topics[0].partitions[0].error_code)
        assert {E(each.error_code) for each in answer.topics[0].partitions} == {error}


def test_a_group_is_deleted_in_batches_as_small_as_is_set_since_it_was_loaded(play):
    @play
    async def main(rig):
        await rig.controller()
        broker = await rig.broker(1, groups=SETTINGS)
        await rig.create(*[[1]] * 20)
        await rig.create([1], topic=OFFSETS)
        of = OffsetCommitRequest.OffsetCommitRequestTopic
        numbers = [of.OffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in range(20)]
        request = OffsetCommitRequest(group_id="g", topics=[of(name="t", partitions=numbers)])
        await at_coordinator(rig, request, 9, lambda answer: answer.topics[0].partitions[0].error_code)
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        less = kind.AlterableConfig(name="max.message.bytes", config_operation=0, value="300")
        change = kind(resource_type=2, resource_name=OFFSETS, configs=[less])
        await rig.ask_controller(IncrementalAlterConfigsRequest(resources=[change]), 1)
        await until(lambda: broker.parts.max_message_bytes(OFFSETS) == 300)
        request = DeleteGroupsRequest(groups_names=["g"])
        answer = await at_coordinator(rig, request, 2, lambda answer: answer.results[0].error_code)
        assert E(answer.results[0].error_code) is E.NONE

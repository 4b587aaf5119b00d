"""Control requests beyond the replica suite: all versions, hostile names, what KRaft controllers do otherwise."""

from __future__ import annotations

from random import Random

import asking
import pytest
import trio
from broker_rig import CONTROLLER, open_rig, until

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest

T = TopicPartition("t", 0)


def told(leader=1, epoch=0, replicas=(1,), isr=None, topic="t", topic_id=None, version=7, partition_epoch=0, **more):
    """A LeaderAndIsr for one partition."""
    state = LeaderAndIsrPartitionState(
        partition_index=more.pop("partition", 0),
        leader=leader,
        leader_epoch=epoch,
        isr=list(replicas if isr is None else isr),
        replicas=list(replicas),
        partition_epoch=partition_epoch,
    )
    request = LeaderAndIsrRequest(controller_id=CONTROLLER, controller_epoch=1, **more)
    if version < 2:
        state.topic_name = topic
        request.ungrouped_partition_states = [state]
    else:
        kind = LeaderAndIsrRequest.LeaderAndIsrTopicState
        request.topic_states = [kind(topic_name=topic, topic_id=topic_id or ZERO_UUID, partition_states=[state])]
    return request


async def error_of(rig, request, version=7, broker_id=1):
    answer = await rig.ask(broker_id, request, version)
    assert answer.error_code == 0
    (one,) = answer.partition_errors if version < 5 else answer.topics[0].partition_errors
    return ErrorCode(one.error_code)


def test_every_version_of_leader_and_isr(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            for version in range(8):
                topic = f"v{version}"
                request = told(
                    topic=topic, epoch=version, topic_id=Uuid.random() if version >= 5 else None, version=version
                )
                assert await error_of(rig, request, version) is ErrorCode.NONE
                partition = broker.replicas.all[TopicPartition(topic, 0)].partition
                assert (partition.leading is not None, partition.leader_epoch) == (True, version)
                assert await error_of(rig, request, version) is ErrorCode.STALE_CONTROLLER_EPOCH

    trio.run(main)


@pytest.mark.parametrize("topic", ["../../out", "a/b", "", ".", "..", "a b", "t" * 250, "__cluster_metadata"])
def test_names_that_make_no_folder_are_refused(tmp_path, topic):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            before = sorted(tmp_path.rglob("*-0"))
            assert await error_of(rig, told(topic=topic)) is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert await error_of(rig, told(partition=-1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert sorted(tmp_path.rglob("*-0")) == before
            assert not (tmp_path.parent / "out-0").exists()

    trio.run(main)


def test_a_kraft_controller_changes_the_isr_within_an_epoch(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            topic_id = Uuid.random()
            first = told(replicas=(1, 2), isr=(1,), topic_id=topic_id)
            assert await error_of(rig, first) is ErrorCode.NONE
            again = told(replicas=(1, 2, 3), isr=(1, 2), topic_id=topic_id, partition_epoch=1)
            assert await error_of(rig, again) is ErrorCode.STALE_CONTROLLER_EPOCH
            again.is_kraft_controller = True
            assert await error_of(rig, again) is ErrorCode.NONE
            leading = broker.replicas.all[T].partition.leading
            assert (leading.isr.committed, set(leading.followers)) == ((1, 2), {2, 3})
            # What comes late, at an older partition epoch, changes nothing.
            first.is_kraft_controller = True
            assert await error_of(rig, first) is ErrorCode.NONE
            assert broker.replicas.all[T].partition.leading.isr.committed == (1, 2)

    trio.run(main)


def live_broker(number):
    kind = UpdateMetadataRequest.UpdateMetadataBroker
    return kind(id=number, endpoints=[kind.UpdateMetadataEndpoint(host="h", port=number, listener="L")])


def test_clients_of_a_kraft_controller_are_sent_to_a_broker(tmp_path):
    """Nobody but brokers could forward to it; whom to ask for another ISR stays known."""

    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            for is_kraft, live, shown in ((False, (1, 2), (3000,)), (True, (1, 2), (1, 2)), (True, (), (-1,))):
                request = UpdateMetadataRequest(
                    controller_id=3000,
                    controller_epoch=1,
                    is_kraft_controller=is_kraft,
                    live_brokers=[live_broker(number) for number in live],
                )
                assert (await rig.ask(1, request, 8)).error_code == 0
                for asked, version in ((MetadataRequest(topics=[]), 12), (DescribeClusterRequest(), 1)):
                    assert (await rig.ask(1, asked, version)).controller_id in shown
                assert broker.cache.announcer_id == 3000

    trio.run(main)


def test_a_partition_that_a_request_deletes_and_announces_again_is_not_deleted():
    """Kafka 3.9.1, ZkMetadataCache.updateMetadata."""
    topic, state = UpdateMetadataRequest.UpdateMetadataTopicState, UpdateMetadataPartitionState
    states = [
        topic(topic_name="t", partition_states=[state(leader=leader), state(partition_index=1, leader=-2)])
        for leader in (-2, 1)
    ]
    cache = RequestCache()
    assert cache.update(UpdateMetadataRequest(topic_states=states), 8) == {TopicPartition("t", 1)}
    assert list(cache.topics["t"]) == [0]


def test_a_log_that_may_be_in_a_failed_directory_is_made_anew_for_a_new_replica_alone(tmp_path):
    """Kafka 3.9.1: LogManager.getOrCreateLog."""

    async def main():
        async with open_rig(tmp_path) as rig:
            disk = rig.disks[1] = SimulatedDisk(Random(1))
            topic_id = Uuid.random()
            await rig.start(1, directories=("/a", "/b"))
            await rig.assign(1, 0, [1], topic_id=topic_id)
            assert (await rig.produce(1, b"v")).error_code == 0
            await rig.stop(1)
            disk.inject("read", times=-1, path="/a/replication-offset-checkpoint")
            broker = await rig.start(1, directories=("/a", "/b"))
            again = told(epoch=1, topic_id=topic_id)
            assert await error_of(rig, again) is ErrorCode.KAFKA_STORAGE_ERROR
            absent = told(leader=2, epoch=1, replicas=(1, 2), topic_id=topic_id)  # a leader that is not alive
            assert await error_of(rig, absent) is ErrorCode.KAFKA_STORAGE_ERROR
            assert T not in broker.replicas.all and not disk.exists("/b/t-0")
            assert broker.replicas.has_all_of("t")  # there is nothing to wait for
            for new in (told(topic="u", topic_id=Uuid.random()), told(leader=2, topic="v", replicas=(1, 2))):
                new.topic_states[0].partition_states[0].is_new = True
                assert await error_of(rig, new) is ErrorCode.NONE
            assert disk.exists("/b/u-0") and disk.exists("/b/v-0")
            await rig.stop(1)
            disk.clear_faults()
            broker = await rig.start(1, directories=("/a", "/b"))
            assert await error_of(rig, again) is ErrorCode.NONE
            assert broker.replicas.all[T].partition.log.log_end_offset == 1

    trio.run(main)


def test_a_partition_that_is_not_here_is_not_made_while_a_directory_is_offline_unless_it_is_new(tmp_path):
    """Kafka 3.9.1, LogManager.getOrCreateLog: whatever is known of what the directory held."""

    async def main():
        async with open_rig(tmp_path) as rig:
            disk = rig.disks[1] = SimulatedDisk(Random(1))
            await rig.start(1, directories=("/a", "/b"))
            await rig.assign(1, 0, [1], topic_id=Uuid.random())
            disk.inject("write", times=-1, path="/a/t-0/00000000000000000000.log")
            assert (await rig.produce(1, b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            asked = told(topic="u", epoch=1, topic_id=Uuid.random())
            assert await error_of(rig, asked) is ErrorCode.KAFKA_STORAGE_ERROR
            assert not disk.exists("/b/u-0")
            new = told(topic="v", topic_id=Uuid.random())
            new.topic_states[0].partition_states[0].is_new = True
            assert await error_of(rig, new) is ErrorCode.NONE

    trio.run(main)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        *((epoch, ErrorCode.NONE) for epoch in (-2, -1, 3, 4)),
        *((epoch, ErrorCode.FENCED_LEADER_EPOCH) for epoch in (-3, 2)),
    ],
)
def test_a_replica_stops_by_a_known_epoch_a_newer_one_or_a_sentinel(epoch, error, tmp_path):
    """Kafka 3.9.1, ReplicaManager.stopReplicas."""

    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            assert await error_of(rig, told(epoch=3, topic_id=Uuid.random())) is ErrorCode.NONE
            kind = StopReplicaRequest.StopReplicaTopicState
            state = kind.StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=True)
            topics = [kind(topic_name="t", partition_states=[state])]
            request = StopReplicaRequest(controller_id=CONTROLLER, controller_epoch=1, topic_states=topics)
            assert (await rig.ask(1, request, 4)).partition_errors[0].error_code == error
            assert (T in broker.replicas.all) is (error is not ErrorCode.NONE)

    trio.run(main)


def test_a_follower_whose_controller_forgot_the_id_asks_by_name(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 0, [1, 2])
            assert (await rig.produce(1, b"a")).error_code == 0
            assert await error_of(rig, told(replicas=(1, 2), version=4), 4, broker_id=2) is ErrorCode.NONE
            assert not rig.brokers[2].replicas.all[T].has_id
            assert (await rig.produce(1, b"b")).error_code == 0
            await until(lambda: rig.log_bytes(1) == rig.log_bytes(2))
            assert (tmp_path / "d2" / "t-0" / "partition.metadata").exists()
            # The leader keeps its id: nothing is to be changed there.
            assert await error_of(rig, told(replicas=(1, 2), version=4), 4) is ErrorCode.STALE_CONTROLLER_EPOCH

    trio.run(main)


def test_who_asks_the_wrong_broker_is_told_who_leads(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 4, [1, 2])
            kind = ProduceRequest.TopicProduceData
            data = kind(
                name="t",
                partition_data=[kind.PartitionProduceData(index=0, records=build_batch([b"v"], timestamp_ms=1))],
            )
            for version in (9, 10):
                answer = await rig.ask(2, ProduceRequest(acks=1, topic_data=[data]), version)
                one = answer.responses[0].partition_responses[0]
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                found = (one.current_leader.leader_id, one.current_leader.leader_epoch)
                nodes = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
                assert (found, nodes) == (((1, 4), [(1, "broker1", 9092)]) if version == 10 else ((-1, -1), []))
            for version, epoch, known in ((15, 3, False), (16, 3, True), (16, 9, False)):
                topic = FetchRequest.FetchTopic(topic_id=rig.topic_ids["t"])
                topic.partitions = [topic.FetchPartition(partition=0, current_leader_epoch=epoch)]
                answer = await rig.ask(2, FetchRequest(topics=[topic]), version)
                one = answer.responses[0].partitions[0]
                wanted = ErrorCode.FENCED_LEADER_EPOCH if epoch == 3 else ErrorCode.UNKNOWN_LEADER_EPOCH
                assert one.error_code == wanted
                assert one.current_leader.leader_id == (1 if known else -1)
                assert [each.node_id for each in answer.node_endpoints] == ([1] if known else [])

    trio.run(main)


def test_a_follower_gets_only_what_was_announced(tmp_path):
    """Kafka 3.9.1: KafkaApis.handleFetchRequest."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            topic_id = Uuid.random()
            assert await error_of(rig, told(replicas=(1, 2), topic_id=topic_id)) is ErrorCode.NONE
            for replica_id in (2, -1):
                assert (await rig.fetch(1, replica_id=replica_id)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert rig.brokers[1].replicas.all[T].partition.leading
            await rig.assign(1, 1, [1, 2], topic_id=topic_id)
            for replica_id in (2, -1):
                assert (await rig.fetch(1, replica_id=replica_id)).error_code == ErrorCode.NONE

    trio.run(main)


def test_those_who_do_not_know_of_storage_errors_are_told_to_look_for_another_leader(tmp_path):
    """Fetch before version 6 (Kafka 4.3.1, KafkaApis.maybeDownConvertStorageError)."""

    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            await rig.assign(1, 0, [1])
            broker.replicas.all[T].hosted.directory.take_offline(T, CorruptDataError("damaged"))
            for version in (4, 5, 6, 12):
                one = asking.fetched(await rig.ask(1, asking.fetch_request(), version))
                expected = ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 6 else ErrorCode.KAFKA_STORAGE_ERROR
                assert one.error_code == expected

    trio.run(main)


def test_times_that_list_offsets_does_not_know(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            for number in (5, 9, 7):
                await rig.produce(1, b"%d" % number)

            async def ask(version, *timestamps, replica_id=-1):
                kind = ListOffsetsRequest.ListOffsetsTopic
                asked = [kind.ListOffsetsPartition(partition_index=0, timestamp=each) for each in timestamps]
                request = ListOffsetsRequest(replica_id=replica_id, topics=[kind(name="t", partitions=asked)])
                found = (await rig.ask(1, request, version)).topics[0].partitions
                return [(ErrorCode(each.error_code), each.offset) for each in found]

            bad = (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert await ask(6, -3) == [bad]
            assert await ask(7, -3) == [(ErrorCode.NONE, 0)]
            assert await ask(8, -5) == [bad]
            assert await ask(9, -5) == [(ErrorCode.NONE, -1)]
            assert await ask(9, -6) == [bad]
            assert await ask(9, -1, -2) == [(ErrorCode.INVALID_REQUEST, -1)]
            assert await ask(9, -1, replica_id=-2) == [(ErrorCode.NONE, 3)]

    trio.run(main)

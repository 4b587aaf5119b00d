"""What clients ask of a broker under a KRaft controller: on this broker, from the metadata, or passed on."""

from __future__ import annotations

import trio
from broker_rig import until
from kraft_rig import open_kraft_rig

from kraftcore.core.batch import build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.controller.envelope import FORWARDABLE
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import api_of

TOPIC, BROKER = 2, 4


async def open_broker(rig, **settings):
    await rig.controller()
    return await rig.broker(1, **settings)


def by_text(entity):
    return str(sorted(entity.items()))


async def metadata(rig, *names, version=13, **more):
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return await rig.ask(1, MetadataRequest(topics=topics, **more), version)


def test_what_clients_ask_for_in_vain_is_said_once_with_what_to_set(tmp_path, caplog):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, groups=GroupSettings(topic_replication_factor=1))
            for _ in range(3):
                answer = await rig.ask(1, InitProducerIdRequest(transactional_id="x"), 5)
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            with trio.fail_after(60):
                answer = None
                while answer is None or answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                    await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]), 4)  # has the topic made
                    answer = await rig.ask(1, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), 0)
            await rig.ask(1, ConsumerGroupHeartbeatRequest(group_id="h", member_id="n"), 0)

    trio.run(main)
    said = [record.getMessage() for record in caplog.records if "said once" in record.getMessage()]
    assert len(said) == 2
    assert "set no transactional.id" in said[0]
    assert "group.protocol=classic" in said[1]


def test_producers_get_ids_that_nobody_else_has(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.broker(2)
            found = []
            for number in range(6):
                answer = await rig.ask(1 + number % 2, InitProducerIdRequest(transactional_id=None), 5)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                found.append(answer.producer_id)
            assert len(set(found)) == 6
            assert rig.image().producer_ids.next_id == 2000
            # More than a block: the next one is another.
            for _ in range(1000):
                answer = await rig.ask(1, InitProducerIdRequest(transactional_id=None), 5)
                found.append(answer.producer_id)
            assert len(set(found)) == 1006
            for name, error in (("", ErrorCode.INVALID_REQUEST), ("x", ErrorCode.UNSUPPORTED_VERSION)):
                with trio.fail_after(60):
                    answer = None
                    while answer is None or answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                        answer = await rig.ask(1, InitProducerIdRequest(transactional_id=name), 5)  # who coordinates?
                assert (answer.error_code, answer.producer_id) == (error, -1)

    trio.run(main)


def test_without_a_controller_there_are_no_ids_for_now(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.kill(900)
            answer = await rig.ask(1, InitProducerIdRequest(transactional_id=None), 5)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    trio.run(main)


def test_what_only_the_controller_decides_is_passed_on(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            kind = CreateTopicsRequest.CreatableTopic
            topics = [kind(name=name, num_partitions=2, replication_factor=1) for name in ("t", "bad name")]
            answer = await rig.ask(1, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
            assert [told.error_code for told in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert rig.row().leader == 1
            grown = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
            answer = await rig.ask(1, CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 3)
            assert answer.results[0].error_code == 0
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            config = resource.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
            changed = resource(resource_type=TOPIC, resource_name="t", configs=[config])
            answer = await rig.ask(1, IncrementalAlterConfigsRequest(resources=[changed]), 1)
            assert answer.responses[0].error_code == 0
            await until(lambda: rig.partition(1, "t", 2))
            answer = await metadata(rig, "t")
            assert [len(told.partitions) for told in answer.topics] == [3]
            asked = DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
            )
            answer = await rig.ask(1, DescribeQuorumRequest(topics=[asked]), 2)
            assert answer.topics[0].partitions[0].leader_id == 900
            state = DeleteTopicsRequest.DeleteTopicState(name="t")
            answer = await rig.ask(1, DeleteTopicsRequest(topics=[state], timeout_ms=30_000), 6)
            assert answer.responses[0].error_code == 0
            await until(lambda: not rig.partition(1, "t", 0))
            answer = await rig.ask(1, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            for kind in FORWARDABLE:
                key, low, high = api_of(kind)
                assert offered.get(key) == (None if kind is AllocateProducerIdsRequest else (low, high))

    trio.run(main)


def test_configs_are_described_from_the_metadata_and_the_brokers_own_file(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, static_configs={"log.retention.ms": "7000", "num.partitions": "4"})
            await rig.create([1], retention_ms="5000")
            await until(lambda: rig.partition(1))

            async def describe(kind, name):
                resource = DescribeConfigsRequest.DescribeConfigsResource
                asked = resource(resource_type=kind, resource_name=name, configuration_keys=None)
                answer = await rig.ask(1, DescribeConfigsRequest(resources=[asked]), 4)
                (told,) = answer.results
                return told.error_code, {each.name: each.value for each in told.configs}

            error, found = await describe(TOPIC, "t")
            assert (error, found["retention.ms"], found["cleanup.policy"]) == (0, "5000", "delete")
            error, found = await describe(BROKER, "1")
            assert (error, found["num.partitions"], found["log.retention.ms"]) == (0, "4", "7000")
            assert (await describe(BROKER, "2"))[0] == ErrorCode.INVALID_REQUEST
            assert (await describe(TOPIC, "u"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            kind = DescribeConfigsRequest.DescribeConfigsResource  # one of no known type refuses all
            both = [kind(resource_type=each, resource_name="t", configuration_keys=None) for each in (TOPIC, 3)]
            answer = await rig.ask(1, DescribeConfigsRequest(resources=both), 4)
            assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST] * 2

    trio.run(main)


def test_users_and_quotas_are_described_from_the_metadata(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)

            async def users(*names):
                kind = DescribeUserScramCredentialsRequest
                answer = await rig.ask(1, kind(users=[kind.UserName(name=name) for name in names]), 0)
                results = answer.results
                infos = [[(each.mechanism, each.iterations) for each in told.credential_infos] for told in results]
                return [(told.user, told.error_code) for told in results], infos

            assert await users() == ([], [])
            kind = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
            made = [
                kind(name=name, mechanism=mechanism, iterations=5000, salt=b"salt", salted_password=b"x" * size)
                for name, mechanism, size in (("alice", 1, 32), ("alice", 2, 64), ("bob", 1, 32))
            ]
            for upsertions in (made[:1], made[1:]):
                answer = await rig.ask(1, AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
                assert {told.error_code for told in answer.results} == {0}
            await until(lambda: len(rig.image(1).scram) == 3)
            both = [(1, 5000), (2, 5000)]
            assert await users() == ([("alice", 0), ("bob", 0)], [both, [(1, 5000)]])
            unknown, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
            assert await users("eve", "bob", "alice", "bob") == (
                [("eve", unknown), ("bob", twice), ("alice", 0)],
                [[], [], both],
            )

            entities = [{"user": "alice"}, {"user": None}, {"user": "alice", "client-id": "c"}, {"ip": "10.0.0.1"}]
            entry = AlterClientQuotasRequest.EntryData
            entries = [
                entry(
                    entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in each.items()],
                    ops=[
                        entry.OpData(
                            key="connection_creation_rate" if "ip" in each else "producer_byte_rate", value=1e6
                        )
                    ],
                )
                for each in entities
            ]
            answer = await rig.ask(1, AlterClientQuotasRequest(entries=entries), 1)
            assert [told.error_code for told in answer.entries] == [0] * 4
            await until(lambda: len(rig.image(1).quotas) == 4)

            async def quotas(*components, strict=False):
                kind = DescribeClientQuotasRequest.ComponentData
                asked = [kind(entity_type=each, match_type=match, match=name) for each, match, name in components]
                answer = await rig.ask(1, DescribeClientQuotasRequest(components=asked, strict=strict), 1)
                found = [{each.entity_type: each.entity_name for each in told.entity} for told in answer.entries or ()]
                return answer.error_code, sorted(found, key=by_text)

            def told(*numbers):
                return 0, sorted((entities[number] for number in numbers), key=by_text)

            assert await quotas() == told(0, 1, 2, 3)
            assert await quotas(("user", 0, "alice")) == told(0, 2)
            assert await quotas(("user", 0, "alice"), strict=True) == told(0)
            assert await quotas(("user", 1, None)) == told(1)
            assert await quotas(("user", 2, None)) == told(0, 1, 2)
            assert await quotas(("user", 2, None), ("client-id", 0, "c"), strict=True) == told(2)
            for bad in (("", 0, "x"),), (("user", 0, None),), (("user", 1, "x"),), (("user", 3, None),):
                assert await quotas(*bad) == (ErrorCode.INVALID_REQUEST, [])
            assert await quotas(("ip", 2, None), ("user", 2, None)) == (ErrorCode.INVALID_REQUEST, [])
            assert await quotas(("user", 2, None), ("user", 2, None)) == (ErrorCode.INVALID_REQUEST, [])
            assert await quotas(("planet", 2, None)) == (ErrorCode.UNSUPPORTED_VERSION, [])

    trio.run(main)


def test_partitions_are_described_in_pages(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            for name, count in (("a", 3), ("b", 2), ("c", 1)):
                await rig.create(*[[1]] * count, topic=name)
            await until(lambda: rig.partition(1, "c"))

            async def describe(*names, limit=2000, cursor=None):
                kind = DescribeTopicPartitionsRequest
                if cursor is not None:
                    cursor = kind.Cursor(topic_name=cursor[0], partition_index=cursor[1])
                topics = [kind.TopicRequest(name=name) for name in names]
                request = kind(topics=topics, response_partition_limit=limit, cursor=cursor)
                answer = await rig.ask(1, request, 0)
                end = answer.next_cursor
                told = [(each.name, [part.partition_index for part in each.partitions]) for each in answer.topics]
                return told, None if end is None else (end.topic_name, end.partition_index)

            whole = [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]
            assert await describe() == (whole, None)
            assert await describe(limit=2) == ([("a", [0, 1])], ("a", 2))
            assert await describe(limit=2, cursor=("a", 2)) == ([("a", [2]), ("b", [0])], ("b", 1))
            assert await describe(limit=3) == ([("a", [0, 1, 2])], ("b", 0))
            assert await describe(cursor=("b", 1)) == ([("b", [1]), ("c", [0])], None)
            assert await describe("c", "a", "c") == ([("a", [0, 1, 2]), ("c", [0])], None)
            assert await describe("nowhere", "a") == ([("a", [0, 1, 2]), ("nowhere", [])], None)
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("nowhere", "no/where", "a")]
            )
            answer = await rig.ask(1, request, 0)
            assert [(each.name, each.error_code) for each in answer.topics] == [
                ("a", 0),
                ("no/where", ErrorCode.INVALID_TOPIC_EXCEPTION),
                ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            bad = await describe("a", cursor=("a", -1))
            assert bad == ([("a", [])], None)
            (first, *_) = answer.topics[0].partitions
            assert (first.leader_id, first.isr_nodes, first.eligible_leader_replicas) == (1, [1], [])

    trio.run(main)


def test_topics_are_made_when_they_are_asked_for(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, num_partitions=2)
            answer = await metadata(rig, "u", allow_auto_topic_creation=False)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await metadata(rig, "not legal", "t")
            assert [told.error_code for told in answer.topics] == [
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            await until(lambda: rig.partition(1, "t", 1))
            answer = await metadata(rig, "t", version=1)
            assert [len(told.partitions) for told in answer.topics] == [2]
            assert rig.row("u") is None

    trio.run(main)


def test_no_topics_are_made_where_that_is_switched_off(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, auto_create_topics=False)
            for _ in range(3):
                answer = await metadata(rig, "t")
                assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await rig.create([1], topic="u")  # the controller has decided about all that came before
            assert rig.row("t") is None

    trio.run(main)


def test_records_are_written_to_a_topic_by_its_id(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.create([1])
            await until(lambda: rig.partition(1))
            kind = ProduceRequest.TopicProduceData

            async def produce(topic_id):
                part = kind.PartitionProduceData(index=0, records=build_batch([b"v"], timestamp_ms=1))
                data = kind(topic_id=topic_id, partition_data=[part])
                answer = await rig.ask(1, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 13)
                (told,) = answer.responses
                assert told.topic_id == topic_id
                return told.partition_responses[0].error_code

            topic_id = rig.image().topics.by_name("t").id
            assert await produce(topic_id) == 0
            assert await produce(Uuid.random()) == ErrorCode.UNKNOWN_TOPIC_ID
            assert await rig.values(1) == [b"v"]

    trio.run(main)


def test_offsets_of_tiers_that_are_not_there(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.create([1])
            await until(lambda: rig.partition(1))
            await rig.produce(1, b"a", b"b")
            kind = ListOffsetsRequest.ListOffsetsTopic
            found = []
            for timestamp in (-1, -2, -3, -4, -5, -6):
                part = kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                request = ListOffsetsRequest(replica_id=-1, topics=[kind(name="t", partitions=[part])])
                told = (await rig.ask(1, request, 11)).topics[0].partitions[0]
                found.append((told.error_code, told.offset))
            assert found == [(0, 2), (0, 0), (0, 0), (0, 0), (0, -1), (0, -1)]

    trio.run(main)


def test_brokers_that_are_fenced_are_described_to_whoever_wants_them(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.broker(2)
            await rig.kill(2)
            await until(lambda: rig.image(1).brokers[2].is_fenced)

            async def describe(**more):
                answer = await rig.ask(1, DescribeClusterRequest(**more), 2)
                return [(each.broker_id, each.is_fenced) for each in answer.brokers]

            await until(lambda: 2 not in rig.brokers[1].parts.cache.brokers)
            assert await describe() == [(1, False)]
            assert await describe(include_fenced_brokers=True) == [(1, False), (2, True)]

    trio.run(main)


def test_how_long_a_batch_may_be_is_set_topic_by_topic(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, message_max_bytes=2000)
            await rig.create([1], topic="short", max_message_bytes="500")
            await rig.create([1], topic="long", max_message_bytes="5000")
            await rig.create([1])
            found = {}
            for topic in ("short", "t", "long"):
                await rig.led_by(1, topic)
                found[topic] = [
                    (await rig.produce(1, b"v" * size, topic=topic)).error_code for size in (100, 1000, 3000, 6000)
                ]
            long = ErrorCode.MESSAGE_TOO_LARGE
            assert found == {"short": [0, long, long, long], "t": [0, 0, long, long], "long": [0, 0, 0, long]}
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            config = resource.AlterableConfig(name="max.message.bytes", config_operation=0, value="9000")
            changed = resource(resource_type=TOPIC, resource_name="short", configs=[config])
            await rig.ask(1, IncrementalAlterConfigsRequest(resources=[changed]), 1)
            await until(lambda: rig.brokers[1].parts.max_message_bytes("short") == 9000)
            assert (await rig.produce(1, b"v" * 6000, topic="short")).error_code == 0

    trio.run(main)


def test_logs_are_synced_as_often_as_is_set_for_their_topic(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig, flush_check_ms=10, flush_ms=10)
            await rig.create([1])
            await rig.create([1], topic="later", flush_ms=str(10**9))
            for topic in ("later", "t"):
                await rig.led_by(1, topic)
                assert (await rig.produce(1, b"v", topic=topic)).error_code == 0
            await until(lambda: rig.partition(1).log.flushed_offset == 1)
            assert rig.partition(1, "later").log.flushed_offset == 0

    trio.run(main)


def test_records_are_synced_before_they_are_acknowledged_where_a_topic_says_so(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.create([1], topic="later")
            await rig.create([1], flush_messages="2")
            for topic, flushed in (("later", (0, 0)), ("t", (0, 2))):
                await rig.led_by(1, topic)
                for number in range(2):
                    assert (await rig.produce(1, b"v", topic=topic)).error_code == 0
                    assert rig.partition(1, topic).log.flushed_offset == flushed[number]

    trio.run(main)


def produce_by_id(topic_id):
    kind = ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=0, records=bytes(build_batch([b"v"], timestamp_ms=1)))
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[kind(topic_id=topic_id, partition_data=[part])])


def test_nothing_is_written_to_the_log_of_a_topic_that_was_made_anew(tmp_path):
    """While its removal waits for a flush; by name as by id, and nothing of it is read."""

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            broker = await open_broker(rig)
            await rig.create([1])
            await rig.led_by(1)
            old = rig.image(1).topics.by_name("t").id
            assert (await rig.ask(1, produce_by_id(old), 13)).responses[0].partition_responses[0].error_code == 0
            async with broker.parts.disk:
                state = DeleteTopicsRequest.DeleteTopicState(name="t")
                answer = await rig.ask_controller(DeleteTopicsRequest(topics=[state], timeout_ms=30_000), 6)
                assert answer.responses[0].error_code == 0
                await rig.create([1])
                await until(lambda: broker.parts.cache.ids.get("t") not in (None, old))
                new = broker.parts.cache.ids["t"]
                answer = await rig.ask(1, produce_by_id(new), 13)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                topic = FetchRequest.FetchTopic(
                    topic_id=new, partitions=[FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0)]
                )
                answer = await rig.ask(1, FetchRequest(topics=[topic], max_wait_ms=0, min_bytes=1), 17)
                assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                named = ListOffsetsRequest.ListOffsetsTopic(name="t")
                named.partitions = [named.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                answer = await rig.ask(1, ListOffsetsRequest(replica_id=-1, topics=[named]), 7)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                named = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t")
                named.partitions = [named.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                answer = await rig.ask(1, OffsetForLeaderEpochRequest(replica_id=-1, topics=[named]), 4)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

            async def is_taken():
                answer = await rig.ask(1, produce_by_id(new), 13)
                return answer.responses[0].partition_responses[0]

            with trio.fail_after(60):
                while (told := await is_taken()).error_code != 0:
                    await trio.sleep(0.02)
            assert told.base_offset == 0

    trio.run(main)


def test_internal_topics_are_written_by_administrators_alone(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            await rig.create([1], topic="__consumer_offsets")
            await until(lambda: rig.partition(1, "__consumer_offsets"))
            request = produce_by_id(rig.image(1).topics.by_name("__consumer_offsets").id)
            answer = await rig.ask(1, request, 13)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert rig.partition(1, "__consumer_offsets").log.log_end_offset == 0
            answer = await rig.ask(1, request, 13, client_id="__admin_client")
            assert answer.responses[0].partition_responses[0].error_code == 0

    trio.run(main)


def test_names_that_no_topic_can_have_are_told_apart(tmp_path):
    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await open_broker(rig)
            answer = await metadata(rig, "a b", "nowhere", allow_auto_topic_creation=False)
            assert {told.name: told.error_code for told in answer.topics} == {
                "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }

    trio.run(main)

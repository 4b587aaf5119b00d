"""The admin client's calls about clusters against scripted nodes: what it repeats, and what it does not believe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing
from scripted_nodes import ScriptedNode, ScriptedTransport, Silence, make_cluster

from kraftcore import admin
from kraftcore.admin import (
    Acl,
    AdminClient,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartlyRefusedError,
    Replica,
    ScramMechanism,
    ScramUpsertion,
    Timing,
    TopicPartition,
)
from kraftcore.configdef.topics import ConfigSource
from kraftcore.core.uuid import Uuid
from kraftcore.errors import ClosedError, LocalError, RefusedError, RemoteProtocolError, UnreachableError
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraftcore.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kraftcore.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftcore.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.registry import ApiKey

QUICK = Timing(call_timeout_ms=5000, request_timeout_ms=1000)
Result = CreateTopicsResponse.CreatableTopicResult
Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
ACL = Acl(2, "t", 3, "User:a", "*", 3, 3)


def run(
    nodes: list[ScriptedNode], work: Callable[[AdminClient], Awaitable[None]], *, controllers: bool = False
) -> None:
    async def main() -> None:
        where = {"bootstrap_controllers" if controllers else "bootstrap_servers": [node.address for node in nodes]}
        async with admin.connect(**where, transport=ScriptedTransport(nodes), timing=QUICK) as client:
            await work(client)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.fixture
def broker() -> ScriptedNode:
    node = ScriptedNode(1, is_broker=True)
    make_cluster([node], controller_id=1, endpoint_type=1)
    return node


def asked(node: ScriptedNode, kind: type) -> list:
    return [each for each in node.asked if isinstance(each, kind)]


def test_each_item_has_its_result(broker: ScriptedNode) -> None:
    broker.scripts[CreateTopicsRequest] = lambda _: CreateTopicsResponse(
        topics=[
            Result(name="a", num_partitions=3, replication_factor=2),
            Result(name="b", error_code=36, error_message=None),
        ]
    )

    async def work(client: AdminClient) -> None:
        with pytest.raises(PartlyRefusedError, match="TOPIC_ALREADY_EXISTS") as refused:
            await client.create_topics([NewTopic("a"), NewTopic("b")])
        created, error = refused.value.results["a"], refused.value.results["b"]
        assert isinstance(created, admin.CreatedTopic)
        assert (created.partitions, created.replication_factor) == (3, 2)
        assert isinstance(error, RefusedError)
        assert error.message == ErrorCode.TOPIC_ALREADY_EXISTS.message
        with pytest.raises(RemoteProtocolError, match="does not say what became of c"):
            await client.create_topics([NewTopic("c")])
        with pytest.raises(LocalError, match="named twice"):
            await client.create_topics([NewTopic("c"), NewTopic("c")])

    run([broker], work)


@pytest.mark.parametrize("retry", [True, False])
def test_what_a_quota_holds_back_is_asked_for_again(broker: ScriptedNode, retry: bool) -> None:
    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        first = len(asked(broker, CreateTopicsRequest)) == 1
        results = [
            Result(name=each.name, error_code=89 if first and each.name == "b" else 0) for each in request.topics
        ]
        return CreateTopicsResponse(throttle_time_ms=700, topics=results)

    broker.scripts[CreateTopicsRequest] = create

    async def work(client: AdminClient) -> None:
        began = trio.current_time()
        if retry:
            assert [*await client.create_topics([NewTopic("a"), NewTopic("b")])] == ["a", "b"]
            assert trio.current_time() - began >= 0.7
        else:
            with pytest.raises(PartlyRefusedError, match="THROTTLING_QUOTA_EXCEEDED"):
                await client.create_topics([NewTopic("a"), NewTopic("b")], retry_throttled=False)

    run([broker], work)
    names = [[topic.name for topic in request.topics] for request in asked(broker, CreateTopicsRequest)]
    assert names == ([["a", "b"], ["b"]] if retry else [["a", "b"]])


def test_who_cannot_be_asked_has_made_nothing(broker: ScriptedNode) -> None:
    broker.is_up = False

    async def work(client: AdminClient) -> None:
        for call, name in (
            (partial(client.create_topics, [NewTopic("a")]), "createTopics"),
            (partial(client.delete_topics, ["a"]), "deleteTopics"),
            (partial(client.create_partitions, {"a": NewPartitions(2)}), "createPartitions"),
        ):
            began = trio.current_time()
            with pytest.raises(UnreachableError, match=f"Call: {name}") as error:
                await call()
            assert trio.current_time() - began == pytest.approx(5)
            assert "broker:9001: nobody listens there" in error.value.last_failure

    run([broker], work)


def test_what_a_quota_holds_back_until_the_end_is_refused(broker: ScriptedNode) -> None:
    broker.scripts[CreateTopicsRequest] = lambda request: CreateTopicsResponse(
        throttle_time_ms=700, topics=[Result(name=each.name, error_code=89) for each in request.topics]
    )

    async def work(client: AdminClient) -> None:
        began = trio.current_time()
        with pytest.raises(PartlyRefusedError, match="THROTTLING_QUOTA_EXCEEDED"):
            await client.create_topics([NewTopic("a")])
        assert trio.current_time() - began == pytest.approx(5)

    run([broker], work)
    assert len(asked(broker, CreateTopicsRequest)) == 8


def test_a_node_that_is_not_the_controller_is_not_believed(broker: ScriptedNode) -> None:
    answers = iter([41, 0])
    broker.scripts[CreateTopicsRequest] = lambda _: CreateTopicsResponse(
        topics=[Result(name="a", error_code=next(answers))]
    )

    async def work(client: AdminClient) -> None:
        assert "a" in await client.create_topics([NewTopic("a")])

    run([broker], work)


def part(number: int) -> Described.DescribeTopicPartitionsResponsePartition:
    return Described.DescribeTopicPartitionsResponsePartition(
        partition_index=number, leader_id=number - 1, replica_nodes=[1], isr_nodes=[1], eligible_leader_replicas=[]
    )


def test_topics_come_in_parts(broker: ScriptedNode) -> None:
    cursor = DescribeTopicPartitionsResponse.Cursor

    def describe(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        if request.cursor is None:
            return DescribeTopicPartitionsResponse(
                topics=[Described(name="a", partitions=[part(0)]), Described(name="b", partitions=[part(1)])],
                next_cursor=cursor(topic_name="b", partition_index=2),
            )
        assert [topic.name for topic in request.topics] == ["b"]
        return DescribeTopicPartitionsResponse(topics=[Described(name="b", partitions=[part(2)])])

    broker.scripts[DescribeTopicPartitionsRequest] = describe

    async def work(client: AdminClient) -> None:
        found = await client.describe_topics(["b", "a"])
        assert [*found] == ["b", "a"]
        assert [each.number for each in found["b"].partitions] == [1, 2]
        assert found["a"].partitions[0].leader_id is None
        assert found["a"].partitions[0].eligible_leaders == ()
        assert found["a"].partitions[0].last_known_eligible is None

    run([broker], work)


def test_a_cursor_that_does_not_advance_is_no_answer(broker: ScriptedNode) -> None:
    broker.scripts[DescribeTopicPartitionsRequest] = lambda _: DescribeTopicPartitionsResponse(
        next_cursor=DescribeTopicPartitionsResponse.Cursor(topic_name="a", partition_index=1)
    )

    async def work(client: AdminClient) -> None:
        with pytest.raises(RemoteProtocolError, match="does not advance"):
            await client.describe_topics(["a"])

    run([broker], work)


def test_older_brokers_tell_topics_by_metadata(broker: ScriptedNode) -> None:
    del broker.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    broker.scripts[MetadataRequest] = lambda _: MetadataResponse(topics=[topic(name="a", partitions=[partition])])

    async def work(client: AdminClient) -> None:
        (found,) = (await client.describe_topics(["a"])).values()
        assert (found.partitions[0].leader_id, found.partitions[0].eligible_leaders) == (1, None)

    run([broker], work)
    assert not asked(broker, MetadataRequest)[0].allow_auto_topic_creation


def test_controllers_know_no_topics() -> None:
    node = ScriptedNode(1)
    make_cluster([node], controller_id=1)

    async def work(client: AdminClient) -> None:
        for call in (
            client.list_topics(),
            client.describe_topics(["a"]),
            client.describe_topics_by_id([Uuid.random()]),
        ):
            with pytest.raises(RefusedError, match="UNSUPPORTED_ENDPOINT_TYPE"):
                await call

    run([node], work, controllers=True)
    assert not node.asked


def test_each_broker_is_asked_about_itself() -> None:
    nodes = [ScriptedNode(number, is_broker=True) for number in (1, 2)]
    make_cluster(nodes, controller_id=1, endpoint_type=1)
    entry = DescribeConfigsResponse.DescribeConfigsResult

    def describe(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        config = entry.DescribeConfigsResourceResult(name="k", value="v", config_source=99, config_type=99)
        return DescribeConfigsResponse(
            results=[
                entry(resource_type=each.resource_type, resource_name=each.resource_name, configs=[config])
                for each in request.resources
            ]
        )

    def alter(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        done = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(
            responses=[
                done(resource_type=each.resource_type, resource_name=each.resource_name) for each in request.resources
            ]
        )

    for node in nodes:
        node.scripts |= {DescribeConfigsRequest: describe, IncrementalAlterConfigsRequest: alter}
    resources = [ConfigResource(BROKER, "2"), ConfigResource(TOPIC, "t"), ConfigResource(BROKER, "1")]

    async def work(client: AdminClient) -> None:
        found = await client.describe_configs(resources)
        assert [*found] == resources
        assert (found[resources[0]][0].source, found[resources[0]][0].type) == (ConfigSource.UNKNOWN, None)
        change = [ConfigChange("k", ConfigOperation.SET, "v")]
        await client.alter_configs(dict.fromkeys(resources, change))
        for name in ("x", "-1", "9", "٣"):
            with pytest.raises(LocalError, match="not the id of a broker|is not among the brokers"):
                await client.describe_configs([ConfigResource(BROKER, name)])

    run(nodes, work)
    for node in nodes:
        for kind in (DescribeConfigsRequest, IncrementalAlterConfigsRequest):
            told = {each.resource_name for request in asked(node, kind) for each in request.resources}
            assert told - {"t"} == {str(node.id)}


def test_a_broker_that_came_back_elsewhere_is_asked_there() -> None:
    first, second = nodes = [ScriptedNode(number, is_broker=True) for number in (1, 2)]
    make_cluster(nodes, controller_id=1, endpoint_type=1)
    resource = ConfigResource(BROKER, "2")
    second.scripts[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse(
        results=[DescribeConfigsResponse.DescribeConfigsResult(resource_type=BROKER, resource_name="2")]
    )
    transport = ScriptedTransport(nodes)

    async def main() -> None:
        async with admin.connect(bootstrap_servers=[first.address], transport=transport, timing=QUICK) as client:
            assert await client.describe_configs([resource]) == {resource: ()}
            # While it is down it is not listed, and waited for.
            make_cluster([first], controller_id=1, endpoint_type=1)
            second.is_up = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(come_back)
                assert await client.describe_configs([resource]) == {resource: ()}
            assert trio.current_time() - began < QUICK.call_timeout_ms / 1000

    async def come_back() -> None:
        await trio.sleep(1)
        del transport.nodes[second.address]
        second.is_up, second.address = True, Address("broker", 7777)
        transport.nodes[second.address] = second
        make_cluster(nodes, controller_id=1, endpoint_type=1)

    clock = trio.testing.MockClock(autojump_threshold=0)
    began = clock.current_time()
    trio.run(main, clock=clock)


@pytest.mark.parametrize("listed", [True, False])
def test_a_broker_that_is_gone_keeps_no_other_from_being_changed(listed: bool) -> None:
    nodes = [ScriptedNode(number, is_broker=True) for number in (1, 2, 3)]
    make_cluster(nodes if listed else nodes[::2], controller_id=1, endpoint_type=1)
    nodes[1].is_up = False
    config = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    moved = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    for node in nodes:
        node.scripts |= {
            IncrementalAlterConfigsRequest: lambda request: IncrementalAlterConfigsResponse(
                responses=[config(resource_type=BROKER, resource_name=request.resources[0].resource_name)]
            ),
            AlterReplicaLogDirsRequest: lambda _: AlterReplicaLogDirsResponse(
                results=[
                    moved(
                        topic_name="t",
                        partitions=[moved.AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0)],
                    )
                ]
            ),
        }

    async def work(client: AdminClient) -> None:
        change = [ConfigChange("k", ConfigOperation.SET, "v")]
        with pytest.raises((UnreachableError, LocalError), match="Timed out|node 2 is not among"):
            await client.alter_configs({ConfigResource(BROKER, str(node.id)): change for node in nodes})
        with pytest.raises((UnreachableError, LocalError), match="Timed out|node 2 is not among"):
            await client.alter_replica_log_dirs({Replica("t", 0, node.id): "/d" for node in nodes})

    run(nodes, work)
    assert [len(asked(node, IncrementalAlterConfigsRequest)) for node in nodes] == [1, 0, 1]
    assert [len(asked(node, AlterReplicaLogDirsRequest)) for node in nodes] == [1, 0, 1]


def at_first(number: int) -> Described.DescribeTopicPartitionsResponsePartition:
    return Described.DescribeTopicPartitionsResponsePartition(partition_index=number, leader_id=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.delete_offsets("g", [TopicPartition("t", 1 << 31)]),
        lambda client: client.commit_offsets("g", {TopicPartition("t", 0): 1 << 63}),
        lambda client: client.list_offsets([TopicPartition("t", 0)], 1 << 63),
    ],
)
def test_what_no_request_can_say_is_refused_at_once(
    broker: ScriptedNode, call: Callable[[AdminClient], Awaitable[object]]
) -> None:
    broker.scripts |= {
        FindCoordinatorRequest: lambda _: FindCoordinatorResponse(
            coordinators=[FindCoordinatorResponse.Coordinator(key="g", node_id=1)]
        ),
        DescribeTopicPartitionsRequest: lambda _: DescribeTopicPartitionsResponse(
            topics=[Described(name="t", partitions=[at_first(0)])]
        ),
    }

    async def work(client: AdminClient) -> None:
        with pytest.raises(LocalError, match="does not fit"):
            await call(client)

    run([broker], work)


@pytest.mark.parametrize("silent", [FindCoordinatorRequest, OffsetCommitRequest])
def test_a_commit_without_an_answer_may_have_happened(broker: ScriptedNode, silent: type) -> None:
    broker.scripts |= {
        FindCoordinatorRequest: lambda _: FindCoordinatorResponse(
            coordinators=[FindCoordinatorResponse.Coordinator(key="g", node_id=1)]
        ),
        silent: lambda _: Silence,
    }

    async def work(client: AdminClient) -> None:
        with pytest.raises(UnreachableError) as caught:
            await client.commit_offsets("g", {TopicPartition("t", 0): 1})
        assert caught.value.outcome_unknown == (silent is OffsetCommitRequest)
        assert "no answer in time" in caught.value.last_failure

    run([broker], work)


def test_a_closed_client_refuses_at_once(broker: ScriptedNode) -> None:
    async def main() -> None:
        async with admin.connect(
            bootstrap_servers=[broker.address], transport=ScriptedTransport([broker]), timing=QUICK
        ) as client:
            await client.describe_cluster()
        for call in (client.describe_cluster, partial(client.describe_cluster_from, broker.address)):
            with pytest.raises(ClosedError, match="the admin client is closed"):
                await call()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Compared(TopicPartition):
    """Counts how often it is compared."""

    count = 0
    __hash__ = TopicPartition.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)


def test_offsets_of_many_partitions_are_found_without_comparing_each_with_each(broker: ScriptedNode) -> None:
    many = 500
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    broker.scripts |= {
        DescribeTopicPartitionsRequest: lambda _: DescribeTopicPartitionsResponse(
            topics=[Described(name="t", partitions=[at_first(number) for number in range(many)])]
        ),
        ListOffsetsRequest: lambda request: ListOffsetsResponse(
            topics=[
                topic(
                    name="t",
                    partitions=[
                        topic.ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=7)
                        for each in request.topics[0].partitions
                    ],
                )
            ]
        ),
    }

    async def work(client: AdminClient) -> None:
        found = await client.list_offsets([Compared("t", number) for number in range(many)])
        assert set(found.values()) == {7} and len(found) == many

    run([broker], work)
    assert Compared.count < 20 * many


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_leader_that_has_not_heard_of_a_partition_is_asked_again(broker: ScriptedNode, code: ErrorCode) -> None:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    answers = [(code, -1), (ErrorCode.NONE, 7)]
    broker.scripts[DescribeTopicPartitionsRequest] = lambda _: DescribeTopicPartitionsResponse(
        topics=[Described(name="t", partitions=[at_first(0)])]
    )

    def offsets(_: ListOffsetsRequest) -> ListOffsetsResponse:
        error, offset = answers.pop(0)
        part = topic.ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
        return ListOffsetsResponse(topics=[topic(name="t", partitions=[part])])

    broker.scripts[ListOffsetsRequest] = offsets

    async def work(client: AdminClient) -> None:
        assert await client.list_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 7}
        with pytest.raises(UnreachableError) as caught:
            await client.list_offsets([TopicPartition("t", 1)])
        assert "there is no such partition" in caught.value.last_failure

    run([broker], work)


def test_elections_tell_what_was_needed(broker: ScriptedNode) -> None:
    result = ElectLeadersResponse.ReplicaElectionResult
    broker.scripts[ElectLeadersRequest] = lambda _: ElectLeadersResponse(
        replica_election_results=[
            result(
                topic="t",
                partition_result=[
                    result.PartitionResult(partition_id=number, error_code=code)
                    for number, code in enumerate((0, 84, 80))
                ],
            )
        ]
    )

    async def work(client: AdminClient) -> None:
        wanted = [TopicPartition("t", number) for number in range(2)]
        found = await client.elect_leaders(admin.ElectionType.UNCLEAN, wanted)
        assert found == dict(zip(wanted, (True, False), strict=True))
        with pytest.raises(PartlyRefusedError, match="PREFERRED_LEADER_NOT_AVAILABLE") as refused:
            await client.elect_leaders(admin.ElectionType.PREFERRED)
        assert [*map(str, refused.value.results)] == ["t-0", "t-1", "t-2"]

    run([broker], work)


def test_another_number_of_results_is_no_answer(broker: ScriptedNode) -> None:
    broker.scripts[CreateAclsRequest] = lambda _: CreateAclsResponse()

    async def work(client: AdminClient) -> None:
        with pytest.raises(RemoteProtocolError, match="0 results for 1 items"):
            await client.create_acls([ACL, ACL])

    run([broker], work)


def test_directories_of_replicas(broker: ScriptedNode) -> None:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic

    def place(number: int, *, future: bool = False) -> topic.DescribeLogDirsPartition:
        return topic.DescribeLogDirsPartition(partition_index=number, is_future_key=future)

    broker.scripts[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse(
        results=[
            result(log_dir="/b", topics=[topic(name="t", partitions=[place(0, future=True)])]),
            result(log_dir="/a", topics=[topic(name="t", partitions=[place(0), place(7)])]),
            result(log_dir="/broken", error_code=56, topics=[topic(name="t", partitions=[place(1)])]),
        ]
    )

    async def work(client: AdminClient) -> None:
        found = await client.describe_replica_log_dirs([Replica("t", 0, 1), Replica("t", 1, 1)])
        assert found == {
            Replica("t", 0, 1): admin.ReplicaPlace("/a", "/b"),
            Replica("t", 1, 1): admin.ReplicaPlace(None, None),
        }

    run([broker], work)


def test_passwords_do_not_leave_the_client(broker: ScriptedNode) -> None:
    broker.scripts[AlterUserScramCredentialsRequest] = lambda _: AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(user="u")]
    )
    wanted = ScramUpsertion("u", ScramMechanism.SCRAM_SHA_512, b"secret")

    async def work(client: AdminClient) -> None:
        await client.alter_scram_credentials([wanted], [("u", ScramMechanism.SCRAM_SHA_256)])

    run([broker], work)
    (request,) = asked(broker, AlterUserScramCredentialsRequest)
    assert b"secret" not in bytes(request.upsertions[0].salted_password) + bytes(request.upsertions[0].salt)
    assert len(request.upsertions[0].salted_password) == 64
    assert "secret" not in repr(wanted)
    for iterations in (4095, 16385):
        with pytest.raises(LocalError, match="iterations"):
            ScramUpsertion("u", ScramMechanism.SCRAM_SHA_256, b"p", iterations)
    with pytest.raises(LocalError, match="Password must not be empty"):
        ScramUpsertion("u", ScramMechanism.SCRAM_SHA_256, b"")

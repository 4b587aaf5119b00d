"""The admin client against scripted nodes: whom it asks, what it repeats, what it makes of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing
from scripted_nodes import ScriptedNode, ScriptedTransport, make_cluster

from kraftcore import admin
from kraftcore.admin import AdminClient, Timing, UpgradeType
from kraftcore.core.uuid import Uuid
from kraftcore.errors import (
    LocalError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
    UnsupportedVersionError,
    WireError,
)
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.raft.quorum import Endpoint

DIRECTORY = Uuid(bytes(range(16)))
AT = [Endpoint("CONTROLLER", "h", 1)]
QUICK = Timing(call_timeout_ms=5000, request_timeout_ms=1000)


def run(
    nodes: list[ScriptedNode],
    work: Callable[[AdminClient], Awaitable[None]],
    *,
    bootstrap: list[ScriptedNode] | None = None,
    brokers: bool = False,
    topic: str = "__cluster_metadata",
) -> None:
    addresses = [node.address for node in bootstrap or nodes]
    where = {"bootstrap_servers": addresses} if brokers else {"bootstrap_controllers": addresses}

    async def main() -> None:
        async with admin.connect(**where, transport=ScriptedTransport(nodes), timing=QUICK, topic=topic) as client:
            await work(client)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def quorum_answer(
    leader_id: int = 1, *, error: int = 0, voters: tuple[ReplicaKey, ...] = (), topic: str = "__cluster_metadata"
) -> DescribeQuorumResponse:
    part = DescribeQuorumResponse.TopicData.PartitionData(
        error_code=error,
        leader_id=leader_id,
        leader_epoch=7,
        high_watermark=90,
        current_voters=[
            ReplicaState(
                replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=100, last_fetch_timestamp=5
            )
            for key in voters
        ],
    )
    return DescribeQuorumResponse(topics=[DescribeQuorumResponse.TopicData(topic_name=topic, partitions=[part])])


def kinds(node: ScriptedNode) -> list[type]:
    return [type(request) for request in node.asked]


@pytest.fixture
def nodes() -> list[ScriptedNode]:
    nodes = [ScriptedNode(number) for number in (1, 2, 3)]
    make_cluster(nodes, controller_id=2)
    for node in nodes:
        node.scripts[DescribeQuorumRequest] = lambda _: quorum_answer(error=6)
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=(ReplicaKey(2, DIRECTORY),))
    return nodes


def test_calls_go_to_the_active_controller(nodes: list[ScriptedNode]) -> None:
    async def work(client: AdminClient) -> None:
        for _ in range(2):
            found = await client.describe_quorum()
        assert (found.leader_id, found.leader_epoch, found.high_watermark, found.end_offset) == (2, 7, 90, 100)
        (voter,) = found.voters
        assert voter == found.leader == admin.ReplicaProgress(ReplicaKey(2, DIRECTORY), 100, 5, None)

    run(nodes, work, bootstrap=nodes[:1])
    assert kinds(nodes[0]) == [DescribeClusterRequest]  # once
    assert kinds(nodes[1]) == [DescribeQuorumRequest] * 2


def test_a_new_leader_is_found(nodes: list[ScriptedNode]) -> None:
    async def work(client: AdminClient) -> None:
        await client.describe_quorum()
        make_cluster(nodes, controller_id=3)
        nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(error=6)
        nodes[2].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(3)
        assert (await client.describe_quorum()).leader_id == 3
        nodes[2].is_up = False
        make_cluster(nodes, controller_id=1)
        nodes[0].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(1)
        assert (await client.describe_quorum()).leader_id == 1

    run(nodes, work)


def test_an_election_is_waited_for(nodes: list[ScriptedNode]) -> None:
    make_cluster(nodes, controller_id=-1)
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(error=6)

    async def elect() -> None:
        await trio.sleep(2)
        make_cluster(nodes, controller_id=3)
        nodes[2].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(3)

    async def work(client: AdminClient) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            assert (await client.describe_quorum()).leader_id == 3

    run(nodes, work)


def test_a_leader_that_never_registered_is_found_by_asking_around(nodes: list[ScriptedNode]) -> None:
    """Before metadata.version 3.7-IV0 controllers do not register, so DescribeCluster names none of them."""
    make_cluster(nodes, controller_id=2)
    for node in nodes:
        node.scripts[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
            endpoint_type=2, cluster_id="c", controller_id=2
        )

    async def work(client: AdminClient) -> None:
        assert (await client.describe_quorum()).leader_id == 2

    run(nodes, work)


def test_dead_nodes_cost_little(nodes: list[ScriptedNode]) -> None:
    nodes[0].scripts[ApiVersionsRequest] = lambda _: Failure.TIMED_OUT  # swallows everything
    nodes[2].is_up = False

    async def work(client: AdminClient) -> None:
        began = trio.current_time()
        await client.describe_quorum()
        assert trio.current_time() - began < 0.5

    run(nodes, work)


def test_nobody_answers(nodes: list[ScriptedNode]) -> None:
    for node in nodes:
        node.is_up = False

    async def work(client: AdminClient) -> None:
        began = trio.current_time()
        with pytest.raises(UnreachableError) as error:
            await client.remove_voter(1, DIRECTORY)
        assert trio.current_time() - began == pytest.approx(5)
        assert str(error.value) == "Timed out waiting for a node assignment. Call: removeRaftVoter"
        assert "controller:9001: nobody listens there" in error.value.last_failure
        assert not error.value.outcome_unknown

    run(nodes, work)


def test_a_change_without_an_answer_may_have_happened(nodes: list[ScriptedNode]) -> None:
    nodes[1].scripts[RemoveRaftVoterRequest] = lambda _: Failure.TIMED_OUT

    async def work(client: AdminClient) -> None:
        with pytest.raises(UnreachableError) as error:
            await client.remove_voter(1, DIRECTORY)
        assert error.value.outcome_unknown
        assert "controller:9002: no answer in time" in error.value.last_failure

    run(nodes, work)


@pytest.mark.parametrize("happened", [True, False])
def test_an_added_voter_whose_answer_got_lost(nodes: list[ScriptedNode], happened: bool) -> None:
    """The retry says DUPLICATE_VOTER: a success if the voter is ours, the truth if it is somebody else's."""
    answers = [Failure.RESET, AddRaftVoterResponse(error_code=126, error_message="it is one")]
    nodes[1].scripts[AddRaftVoterRequest] = lambda _: answers.pop(0)
    voter = ReplicaKey(4, DIRECTORY if happened else Uuid.random())
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=(voter,))

    async def work(client: AdminClient) -> None:
        if happened:
            await client.add_voter(4, DIRECTORY, AT)
        else:
            with pytest.raises(RefusedError, match="it is one"):
                await client.add_voter(4, DIRECTORY, AT)

    run(nodes, work)
    assert not answers


@pytest.mark.parametrize("happened", [True, False])
def test_a_removed_voter_whose_answer_got_lost(nodes: list[ScriptedNode], happened: bool) -> None:
    answers = [Failure.RESET, RemoveRaftVoterResponse(error_code=127, error_message="no such voter")]
    nodes[1].scripts[RemoveRaftVoterRequest] = lambda _: answers.pop(0)
    voters = () if happened else (ReplicaKey(4, DIRECTORY),)  # the last one cannot be removed
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=voters)

    async def work(client: AdminClient) -> None:
        if happened:
            await client.remove_voter(4, DIRECTORY)
        else:
            with pytest.raises(RefusedError, match="no such voter"):
                await client.remove_voter(4, DIRECTORY)

    run(nodes, work)
    assert not answers


NOT_LEADER, IN_FLIGHT = 6, 7
ADD = (AddRaftVoterRequest, AddRaftVoterResponse, 126, "add_voter", (4, DIRECTORY, AT))
REMOVE = (RemoveRaftVoterRequest, RemoveRaftVoterResponse, 127, "remove_voter", (4, DIRECTORY))


@pytest.mark.parametrize("change", [ADD, REMOVE], ids=["add", "remove"])
@pytest.mark.parametrize(
    "before",
    [[NOT_LEADER], [Failure.RESET, IN_FLIGHT], [Failure.TIMED_OUT, IN_FLIGHT, IN_FLIGHT], [NOT_LEADER, IN_FLIGHT]],
    ids=["leader lost", "reset", "no answer", "leader lost, not committed yet"],
)
def test_a_change_that_was_made_is_no_failure(nodes: list[ScriptedNode], change, before: list[object]) -> None:
    """Whatever came before: once nothing is in flight, the voters tell."""
    kind, answer, settled, name, arguments = change
    script = [*before, settled]

    def respond(_: object):
        found = script.pop(0)
        return found if isinstance(found, Failure) else answer(error_code=found, error_message="as scripted")

    nodes[1].scripts[kind] = respond
    voters = (ReplicaKey(4, DIRECTORY),) if change is ADD else ()
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=voters)
    run(nodes, lambda client: getattr(client, name)(*arguments))
    assert not script


@pytest.mark.parametrize("change", [ADD, REMOVE], ids=["add", "remove"])
@pytest.mark.parametrize("happened", [True, False])
def test_a_change_that_is_not_committed_in_time(nodes: list[ScriptedNode], change, happened: bool) -> None:
    """The leader gives up waiting; that the voters in force are changed says that it was appended."""
    kind, answer, settled, name, arguments = change
    script = [IN_FLIGHT, IN_FLIGHT, settled] if happened else [IN_FLIGHT]
    nodes[1].scripts[kind] = lambda _: answer(error_code=script.pop(0), error_message="as scripted")
    is_voter = happened is (change is ADD)
    voters = (ReplicaKey(4, DIRECTORY),) if is_voter else ()
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=voters)

    async def work(client: AdminClient) -> None:
        if happened:
            await getattr(client, name)(*arguments)
        else:
            with pytest.raises(RefusedError, match="REQUEST_TIMED_OUT: as scripted"):
                await getattr(client, name)(*arguments)

    run(nodes, work)
    assert not script


@pytest.mark.parametrize("change", [ADD, REMOVE], ids=["add", "remove"])
@pytest.mark.parametrize("first", [Failure.RESET, NOT_LEADER])
def test_a_change_of_which_nobody_learns_what_became(nodes: list[ScriptedNode], change, first: object) -> None:
    kind, answer, _, name, arguments = change
    script = [first]

    def respond(_: object):
        found = script.pop() if script else IN_FLIGHT
        return found if isinstance(found, Failure) else answer(error_code=found, error_message="as scripted")

    nodes[1].scripts[kind] = respond

    async def work(client: AdminClient) -> None:
        began = trio.current_time()
        with pytest.raises(UnreachableError) as error:
            await getattr(client, name)(*arguments)
        assert error.value.outcome_unknown
        assert trio.current_time() - began == pytest.approx(5, abs=1)

    run(nodes, work)


def test_a_change_whose_leader_goes_before_the_voters_are_known(nodes: list[ScriptedNode]) -> None:
    def late(_: object) -> AddRaftVoterResponse:
        for node in nodes:
            node.is_up = False
        return AddRaftVoterResponse(error_code=IN_FLIGHT, error_message="as scripted")

    nodes[1].scripts[AddRaftVoterRequest] = late

    async def work(client: AdminClient) -> None:
        with pytest.raises(UnreachableError) as error:
            await client.add_voter(4, DIRECTORY, AT)
        assert error.value.outcome_unknown

    run(nodes, work)


def test_what_a_leader_could_not_finish_may_have_happened(nodes: list[ScriptedNode]) -> None:
    parts = ProduceResponse.TopicProduceResponse
    late = parts.PartitionProduceResponse(index=0, error_code=7, base_offset=-1)
    nodes[1].versions[0] = (13, 13)
    nodes[1].scripts[ProduceRequest] = lambda _: ProduceResponse(responses=[parts(partition_responses=[late])])
    nodes[1].scripts[UpdateFeaturesRequest] = lambda _: UpdateFeaturesResponse(error_code=41)

    async def work(client: AdminClient) -> None:
        for call in (client.append([b"a"], client_id=1, sequence=0), client.update_features({"kraft.version": 1})):
            with pytest.raises(UnreachableError) as error:
                await call
            assert error.value.outcome_unknown

    run(nodes, work)


@pytest.mark.parametrize("code", [126, 7, 35, 104])
def test_refusals_are_not_repeated(nodes: list[ScriptedNode], code: int) -> None:
    nodes[1].scripts[AddRaftVoterRequest] = lambda _: AddRaftVoterResponse(error_code=code, error_message=None)

    async def work(client: AdminClient) -> None:
        with pytest.raises(RefusedError) as error:
            await client.add_voter(4, DIRECTORY, AT)
        assert error.value.error == ErrorCode.of(code).name
        assert error.value.message == ErrorCode.of(code).message

    run(nodes, work)
    assert kinds(nodes[1]).count(AddRaftVoterRequest) == 1


def test_what_is_sent_for_a_voter(nodes: list[ScriptedNode]) -> None:
    nodes[1].scripts[AddRaftVoterRequest] = lambda _: AddRaftVoterResponse()

    async def work(client: AdminClient) -> None:
        await client.add_voter(4, DIRECTORY, AT, cluster_id="c", ack_when_committed=False, timeout_ms=9)

    run(nodes, work)
    (sent,) = [request for request in nodes[1].asked if isinstance(request, AddRaftVoterRequest)]
    assert (sent.voter_id, sent.voter_directory_id, sent.cluster_id) == (4, DIRECTORY, "c")
    assert (sent.ack_when_committed, sent.timeout_ms) == (False, 9)
    assert [(each.name, each.host, each.port) for each in sent.listeners] == [("CONTROLLER", "h", 1)]


def test_older_nodes(nodes: list[ScriptedNode]) -> None:
    """ApiVersions v4 is answered in version 0 by whoever does not know it (KIP-511); then the common versions count."""
    leader = nodes[1]
    for node in nodes:
        node.versions[ApiKey.API_VERSIONS] = (0, 2)
    leader.versions[ApiKey.DESCRIBE_QUORUM] = (0, 1)
    leader.scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, voters=(ReplicaKey(2),))
    leader.versions[ApiKey.ADD_RAFT_VOTER] = (0, 0)
    del leader.versions[ApiKey.REMOVE_RAFT_VOTER]

    async def work(client: AdminClient) -> None:
        assert (await client.describe_quorum()).voters[0].key == ReplicaKey(2)  # v1 has no directory ids
        with pytest.raises(UnsupportedVersionError) as error:
            await client.add_voter(4, DIRECTORY, AT, ack_when_committed=False)
        text = "The node does not support ADD_RAFT_VOTER with version in range [1,1]. The supported range is [0,0]."
        assert str(error.value) == text
        with pytest.raises(UnsupportedVersionError, match="The node does not support REMOVE_RAFT_VOTER"):
            await client.remove_voter(4, DIRECTORY)

    run(nodes, work)


def test_an_upgraded_node_is_negotiated_with_again(nodes: list[ScriptedNode]) -> None:
    leader = nodes[1]
    leader.versions[ApiKey.DESCRIBE_QUORUM] = (0, 0)
    answer = quorum_answer(2, voters=(ReplicaKey(2),))
    leader.scripts[DescribeQuorumRequest] = lambda _: answer

    async def work(client: AdminClient) -> None:
        assert (await client.describe_quorum()).voters[0].last_fetch_ms is None  # v0 has no times
        leader.versions[ApiKey.DESCRIBE_QUORUM] = (0, 2)
        replies = [Failure.RESET]
        leader.scripts[DescribeQuorumRequest] = lambda _: replies.pop() if replies else answer
        assert (await client.describe_quorum()).voters[0].last_fetch_ms == 5

    run(nodes, work)


def test_features(nodes: list[ScriptedNode]) -> None:
    def versions(node: ScriptedNode, epoch: int) -> None:
        response = node.scripts[ApiVersionsRequest](ApiVersionsRequest())
        assert isinstance(response, ApiVersionsResponse)
        name = f"feature-of-{node.id}"
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=3),
            ApiVersionsResponse.SupportedFeatureKey(name="off", min_version=0, max_version=1),
        ]
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=2, max_version_level=2)
        ]
        response.finalized_features_epoch = epoch
        node.scripts[ApiVersionsRequest] = lambda _: response

    for node in nodes:
        versions(node, node.id - 2)

    async def work(client: AdminClient) -> None:
        found = await client.describe_features()
        assert found.features["feature-of-2"] == admin.FeatureStatus("feature-of-2", 0, 3, 2)
        assert (found.features["off"].finalized, found.epoch) == (0, 0)
        assert (await client.describe_features(node_id=1)).epoch is None
        with pytest.raises(LocalError, match=r"node 9 is not among the controllers \[1, 2, 3\]"):
            await client.describe_features(node_id=9)

    run(nodes, work)


def test_a_node_that_only_the_leader_knows_is_found(nodes: list[ScriptedNode]) -> None:
    everybody = [*nodes, ScriptedNode(4)]
    for each in nodes[1:]:
        each.scripts[DescribeClusterRequest] = lambda _: Failure.RESET
    make_cluster([everybody[3]], controller_id=2)
    describe_all = everybody[3].scripts[DescribeClusterRequest]
    known = nodes[0].scripts[DescribeClusterRequest](DescribeClusterRequest(endpoint_type=2))
    assert isinstance(known, DescribeClusterResponse)

    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        found = describe_all(request)
        assert isinstance(found, DescribeClusterResponse)
        found.brokers = [*known.brokers, *found.brokers]
        return found

    nodes[1].scripts[DescribeClusterRequest] = describe

    async def work(client: AdminClient) -> None:
        await client.describe_features(node_id=4)
        with pytest.raises(LocalError, match=r"node 9 is not among the controllers \[1, 2, 3, 4\]"):
            await client.describe_features(node_id=9)

    run(everybody, work, bootstrap=nodes[:1])


def test_feature_updates(nodes: list[ScriptedNode]) -> None:
    results = UpdateFeaturesResponse.UpdatableFeatureResult
    answers = {
        "good": UpdateFeaturesResponse(),
        "refused": UpdateFeaturesResponse(error_code=95, error_message="no"),
        "single": UpdateFeaturesResponse(
            results=[results(feature="a", error_code=0), results(feature="b", error_code=95, error_message="b: no")]
        ),
        "half": UpdateFeaturesResponse(results=[results(feature="a", error_code=0)]),
    }
    script: list[str] = []
    nodes[1].scripts[UpdateFeaturesRequest] = lambda _: answers[script[0]]

    async def work(client: AdminClient) -> None:
        script[:] = ["good"]
        await client.update_features({"a": 0}, upgrade_type=UpgradeType.UNSAFE_DOWNGRADE, validate_only=True)
        script[:] = ["refused"]
        with pytest.raises(admin.FeatureUpdateError, match="no") as error:
            await client.update_features({"a": 1, "b": 2})
        assert [each.message for each in error.value.results.values()] == ["no", "no"]

    run(nodes, work)
    first = next(request for request in nodes[1].asked if isinstance(request, UpdateFeaturesRequest))
    assert first.validate_only
    assert [(each.feature, each.max_version_level, each.upgrade_type) for each in first.feature_updates] == [
        ("a", 0, 3)
    ]

    async def older(client: AdminClient) -> None:
        script[:] = ["single"]
        with pytest.raises(admin.FeatureUpdateError, match="b: no") as error:
            await client.update_features({"a": 1, "b": 2})
        assert error.value.results["a"] is None
        assert error.value.error == "INVALID_UPDATE_VERSION"
        script[:] = ["half"]
        with pytest.raises(RemoteProtocolError, match="what became of b"):
            await client.update_features({"a": 1, "b": 2})

    nodes[1].versions[ApiKey.UPDATE_FEATURES] = (0, 1)
    run(nodes, older)


@pytest.mark.parametrize(
    ("levels", "kind", "text"),
    [
        ({}, UpgradeType.UPGRADE, "can not be null or empty"),
        ({" ": 1}, UpgradeType.UPGRADE, "can not be empty"),
        ({"a": 0}, UpgradeType.UPGRADE, "maxVersionLevel:0 is < 1"),
        ({"a": -1}, UpgradeType.SAFE_DOWNGRADE, "negative version level"),
        ({"a": 1 << 15}, UpgradeType.UPGRADE, "at most 32767"),
    ],
)
def test_impossible_levels_are_not_sent(
    nodes: list[ScriptedNode], levels: dict[str, int], kind: UpgradeType, text: str
) -> None:
    async def work(client: AdminClient) -> None:
        with pytest.raises(LocalError, match=text):
            await client.update_features(levels, upgrade_type=kind)

    run(nodes, work)
    assert not any(node.asked for node in nodes)


def test_through_brokers() -> None:
    """Any broker will do; the next one takes over; nothing but the cluster's brokers is asked for."""
    brokers = [ScriptedNode(number, is_broker=True) for number in (10, 11)]
    make_cluster(brokers, controller_id=10, endpoint_type=1)
    for broker in brokers:
        broker.scripts[DescribeQuorumRequest] = lambda _: quorum_answer(1)

    async def work(client: AdminClient) -> None:
        assert (await client.describe_quorum()).leader_id == 1
        for broker in brokers:
            broker.is_up = not any(isinstance(each, DescribeQuorumRequest) for each in broker.asked)
        assert (await client.describe_quorum()).leader_id == 1
        nodes = await client.list_endpoints(include_fenced=True)
        assert [(node.id, node.host, node.port) for node in nodes] == [(10, "broker", 9010), (11, "broker", 9011)]

    run(brokers, work, brokers=True)


def test_the_wrong_kind_of_node(nodes: list[ScriptedNode]) -> None:
    async def work(client: AdminClient) -> None:
        with pytest.raises(UnsupportedVersionError, match="The node does not support METADATA"):
            await client.describe_cluster()

    run(nodes, work, brokers=True)

    async def fenced(client: AdminClient) -> None:
        with pytest.raises(LocalError, match="Cannot request fenced brokers from controller endpoint"):
            await client.describe_cluster(include_fenced=True)

    run(nodes, fenced)


@pytest.mark.parametrize("topic", ["another", "__cluster_metadata"])
def test_the_topic_is_the_quorums(nodes: list[ScriptedNode], topic: str) -> None:
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: quorum_answer(2, topic="another")

    async def work(client: AdminClient) -> None:
        if topic == "another":
            await client.describe_quorum()
        else:
            with pytest.raises(RemoteProtocolError, match="not about __cluster_metadata"):
                await client.describe_quorum()

    run(nodes, work, topic=topic)


class Garbler(ScriptedTransport):
    """Answers with what is no answer."""

    def __init__(self, nodes: list[ScriptedNode], change: Callable[[bytes], bytes]) -> None:
        super().__init__(nodes)
        self.change = change

    def request(self, address: Address, parts: object, timeout_ms: int, answer: Callable[..., None]) -> None:
        def changed(frame: bytes | Failure) -> None:
            answer(frame if isinstance(frame, Failure) else self.change(frame))

        super().request(address, parts, timeout_ms, changed)


@pytest.mark.parametrize(
    "change", [lambda frame: frame[:-1], lambda frame: b"\xff" * 4 + frame[4:], lambda _: b"", lambda _: b"\0\0\0\1\0"]
)
def test_hostile_answers_raise_the_documented_error(
    nodes: list[ScriptedNode], change: Callable[[bytes], bytes]
) -> None:
    async def main() -> None:
        transport = Garbler(nodes, change)
        async with admin.connect(bootstrap_controllers=[nodes[0].address], transport=transport) as client:
            with pytest.raises(WireError):
                await client.describe_cluster()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "either bootstrap_controllers or bootstrap_servers"),
        ({"bootstrap_controllers": ["a:1"], "bootstrap_servers": ["b:1"]}, "either bootstrap_controllers"),
        ({"bootstrap_controllers": ["nonsense"]}, "'nonsense' is no"),
    ],
)
def test_bad_addresses(given: dict[str, list[str]], text: str) -> None:
    async def main() -> None:
        with pytest.raises(LocalError, match=text):
            async with admin.connect(**given):
                pass

    trio.run(main)


def test_timeouts_are_positive() -> None:
    for make in (partial(Timing, 0), partial(Timing, 1, -1)):
        with pytest.raises(LocalError, match="above 0 ms"):
            make()

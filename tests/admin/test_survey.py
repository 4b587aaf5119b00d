"""Who answers, in virtual time: surveys, and what calls make of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing
from scripted_nodes import ScriptedNode, ScriptedTransport, Silence, make_cluster

from kraftcore import admin
from kraftcore.admin import AdminClient, SurveyedError, Timing
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState

SLOW = Timing(call_timeout_ms=60_000, request_timeout_ms=30_000)
A_LOOK = Timing(call_timeout_ms=60_000, request_timeout_ms=30_000, waits_for_nodes=False)


def run(
    nodes: Sequence[ScriptedNode],
    work: Callable[[AdminClient], Awaitable[None]],
    *,
    timing: Timing = SLOW,
    brokers: bool = False,
) -> None:
    where = {"bootstrap_servers" if brokers else "bootstrap_controllers": [nodes[0].address]}

    async def main() -> None:
        async with admin.connect(**where, transport=ScriptedTransport(nodes), timing=timing) as client:
            await work(client)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def led_by(leader_id: int, voters: Sequence[int]) -> DescribeQuorumResponse:
    part = DescribeQuorumResponse.TopicData.PartitionData(
        leader_id=leader_id,
        leader_epoch=7,
        high_watermark=90,
        current_voters=[ReplicaState(replica_id=each, log_end_offset=90) for each in voters],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[part])]
    )


@pytest.fixture
def nodes() -> list[ScriptedNode]:
    nodes = [ScriptedNode(number) for number in (1, 2, 3, 4)]
    make_cluster(nodes, controller_id=2)
    nodes[1].scripts[DescribeQuorumRequest] = lambda _: led_by(2, [1, 2, 3])
    return nodes


def hang(node: ScriptedNode) -> None:
    node.scripts[ApiVersionsRequest] = lambda _: Silence


def test_a_survey_says_who_answers_since_when_others_do_not_and_what_is_lacking(nodes: list[ScriptedNode]) -> None:
    async def work(client: AdminClient) -> None:
        await client.describe_quorum()  # tells who votes: node 4 does not
        nodes[1].is_up = False
        hang(nodes[2])
        first = await client.survey()
        assert [(node.id, node.answers) for node in first.nodes] == [(1, True), (2, False), (3, False), (4, True)]
        assert [node.trouble for node in first.nodes] == ["", "nobody listens there", "no answer for 2 s", ""]
        assert (first.members, first.are_voters, first.answering, first.majority) == ((1, 2, 3), True, (1,), 2)
        assert first.is_hopeless
        assert first.finding == (
            "node 1 of the voters 1, 2, 3 answers; a majority of 2 is needed: no leader can be elected"
        )
        assert first.advice.startswith("start node 2 or 3 ")
        again = await client.survey()
        since = [node.unreachable_since_ms for node in first.nodes]
        assert [node.unreachable_since_ms for node in again.nodes] == since
        nodes[1].is_up = True
        well = await client.survey()
        assert (well.answering, well.leaders, well.is_hopeless) == ((1, 2), (2,), False)
        assert well.nodes[1].unreachable_since_ms is None
        assert well.finding.endswith("and node 2 leads")

    run(nodes, work)


def test_a_leader_that_hangs_is_left_when_another_leads(nodes: list[ScriptedNode]) -> None:
    hang(nodes[1])
    nodes[2].scripts[DescribeQuorumRequest] = lambda _: led_by(3, [1, 2, 3])

    async def work(client: AdminClient) -> None:
        async def elect() -> None:
            await trio.sleep(0.1)
            make_cluster(nodes, controller_id=3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            with trio.fail_after(SLOW.request_timeout_ms / 1000 / 2):
                assert (await client.describe_quorum()).leader_id == 3

    run(nodes, work)


def test_a_look_ends_when_a_majority_is_away_and_other_calls_wait(nodes: list[ScriptedNode]) -> None:
    for node in nodes[1:]:
        node.is_up = False

    async def look(client: AdminClient) -> None:
        with trio.fail_after(3), pytest.raises(SurveyedError, match="Nobody can answer now") as error:
            await client.describe_quorum()
        assert error.value.findings == error.value.survey.lines
        assert error.value.survey.advice.startswith("start 2 of the nodes 2, 3, 4 ")

    async def wait(client: AdminClient) -> None:
        began = trio.current_time()
        with pytest.raises(SurveyedError, match="Timed out waiting for a node assignment"):
            await client.remove_voter(1, Uuid(bytes(range(16))))
        assert trio.current_time() - began == pytest.approx(60)

    run(nodes, look, timing=A_LOOK)
    run(nodes, wait)


def test_a_broker_that_answers_while_the_controllers_do_not() -> None:
    brokers = [ScriptedNode(number, is_broker=True) for number in (11, 12)]
    make_cluster(brokers, controller_id=11, endpoint_type=1)
    brokers[0].scripts[DescribeQuorumRequest] = lambda _: Silence
    hang(brokers[1])

    async def work(client: AdminClient) -> None:
        with trio.fail_after(3), pytest.raises(SurveyedError) as error:
            await client.describe_quorum()
        survey = error.value.survey
        assert (survey.members, survey.answering, survey.majority) == ((11, 12), (11,), None)
        assert "it is the controllers that have not answered" in survey.finding
        assert survey.advice.startswith("start node 12; ask the controllers")

    run(brokers, work, timing=A_LOOK, brokers=True)


def test_a_node_of_the_wrong_kind_answers_and_is_of_no_help(nodes: list[ScriptedNode]) -> None:
    refused = DescribeClusterResponse(error_code=115, error_message="a broker", endpoint_type=2)
    nodes[0].scripts[DescribeClusterRequest] = lambda _: refused

    async def work(client: AdminClient) -> None:
        found = await client.survey()
        (node,) = found.nodes
        assert (node.answers, node.id, "a broker" in node.trouble) == (True, None, True)
        assert found.finding == "who answers is no node that can help here"
        assert "name controllers in --bootstrap-controller" in found.advice

    run(nodes, work)

"""A quorum of ours under our own admin client: what operators' tools ask of it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from nodes import CLUSTER_ID, Lab, Values, run
from noted_request import NotedRequest

from kraftcore import admin
from kraftcore.admin import UpgradeType
from kraftcore.core.uuid import Uuid
from kraftcore.errors import NodeStoppedError, RefusedError
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.registry import RequestHandler
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.registry import ApiKey
from kraftcore.raft.quorum import Endpoint

QUICK = {"election_timeout_ms": 100, "fetch_timeout_ms": 1000}
PREFIX = "The update failed for all features since the following feature had an error: Invalid update version "


@asynccontextmanager
async def client_of(lab, *numbers):
    async with (
        lab.network.transport("client") as transport,
        admin.connect(bootstrap_controllers=[f"n{each}:9093" for each in numbers], transport=transport) as client,
    ):
        yield client


def test_a_quorum_describes_itself():
    async def main():
        lab = Lab(**QUICK)
        async with lab.quorum() as nodes, client_of(lab, 3) as client:
            cluster = await client.describe_cluster()
            assert (cluster.cluster_id, cluster.controller_id) == (CLUSTER_ID, 1)
            assert [(each.id, each.host, each.port) for each in cluster.nodes] == [
                (number, f"n{number}", 9093) for number in (1, 2, 3)
            ]
            quorum = await client.describe_quorum()
            assert quorum.leader_id == 1
            assert {voter.key for voter in quorum.voters} == {node.key for node in nodes}
            assert quorum.endpoints[2] == (Endpoint("CONTROLLER", "n2", 9093),)
            features = await client.describe_features(node_id=2)
            assert features.features == {"kraft.version": admin.FeatureStatus("kraft.version", 0, 1, 1)}

    run(main)


def test_voters_come_and_go():
    async def main():
        lab = Lab(auto_join=False, **QUICK)
        async with lab.quorum() as nodes, lab.node(4) as new, client_of(lab, 2, 3) as client:
            await new.wait_leader()
            at = [Endpoint("CONTROLLER", "n4", 9093)]
            with trio.fail_after(10):
                while True:
                    try:
                        await client.add_voter(4, new.key.directory_id, at)
                        break
                    except RefusedError as error:
                        assert error.error == "REQUEST_TIMED_OUT"  # it has not caught up yet
                        await trio.sleep(0.05)
            with pytest.raises(RefusedError, match="is already part of the set of voters") as refused:
                await client.add_voter(4, new.key.directory_id, at)
            assert refused.value.error == "DUPLICATE_VOTER"
            with pytest.raises(RefusedError, match="VOTER_NOT_FOUND"):
                await client.remove_voter(2, Uuid.random())
            await client.remove_voter(2, nodes[1].key.directory_id)
            assert {voter.key.id for voter in (await client.describe_quorum()).voters} == {1, 3, 4}
            # The leader goes: the client finds the next one.
            await client.remove_voter(1, nodes[0].key.directory_id)
            assert (await client.describe_quorum()).leader_id in (3, 4)

    run(main)


REFUSED = [
    (
        {"kraft.version": 2},
        UpgradeType.UPGRADE,
        "2 for feature kraft.version. Local controller 1 only supports versions 0-1",
    ),
    (
        {"a.version": 1},
        UpgradeType.UPGRADE,
        "1 for feature a.version. Local controller 1 does not support this feature.",
    ),
    (
        {"kraft.version": 0},
        UpgradeType.SAFE_DOWNGRADE,
        "0 for feature kraft.version. Can't downgrade the version of this feature.",
    ),
    (
        {"kraft.version": 1, "a.version": 3},
        UpgradeType.UPGRADE,
        "3 for feature a.version. Local controller 1 does not support this feature.",
    ),
]


def test_refused_features():
    """The texts are Kafka's: tests/interop holds them against a real controller's. Node 1 leads all the time."""

    async def main():
        lab = Lab(election_timeout_ms=100, fetch_timeout_ms=20_000)
        async with lab.quorum(), client_of(lab, 2) as client:
            for levels, kind, text in REFUSED:
                with pytest.raises(admin.FeatureUpdateError) as error:
                    await client.update_features(levels, upgrade_type=kind)
                assert error.value.error == "INVALID_UPDATE_VERSION"
                assert {each.message for each in error.value.results.values()} == {PREFIX + text}
            await client.update_features({"kraft.version": 1}, upgrade_type=UpgradeType.SAFE_DOWNGRADE)  # as it is
            await client.update_features({"kraft.version": 1}, validate_only=True)

    run(main)


def test_an_update_without_an_upgrade_type():
    """Version 0 says only whether a downgrade is allowed."""

    async def main():
        lab = Lab(**QUICK)
        async with lab.quorum() as nodes:
            answers = []
            for level, allowed in ((1, False), (0, False), (0, True)):
                key = UpdateFeaturesRequest.FeatureUpdateKey
                update = key(feature="kraft.version", max_version_level=level, allow_downgrade=allowed)
                context = NotedRequest()
                plugin_node(nodes[0]).serve(UpdateFeaturesRequest(feature_updates=[update]), context)
                while not context.answers:
                    await trio.sleep(0.001)
                answers += context.answers
            assert [each.error_code for each in answers] == [0, 95, 95]
            assert [each.feature for each in answers[0].results] == ["kraft.version"]
            assert "without setting the upgrade type" in answers[1].error_message
            assert answers[2].error_message.endswith("Can't downgrade the version of this feature.")

    run(main)


def test_a_static_quorum_is_upgraded():
    async def main():
        lab = Lab(auto_join=False, create=None, voters="1@n1:9093,2@n2:9093", bootstrap_servers=(), **QUICK)
        lab.format_static(2)
        async with lab.node(1) as one, lab.node(2), client_of(lab, 1, 2) as client:
            await one.read_barrier()
            before = await client.describe_features()
            assert before.features["kraft.version"].finalized == 0
            assert all(not voter.key.has_directory for voter in (await client.describe_quorum()).voters)
            with pytest.raises(RefusedError, match="kraft.version feature is 0"):
                await client.remove_voter(1, Uuid.random())
            with trio.fail_after(10):
                while True:
                    try:
                        await client.update_features({"kraft.version": 1})
                        break
                    except admin.FeatureUpdateError as error:
                        assert "not all of the voters support it" in str(error)  # the other has not said so yet
                        await trio.sleep(0.05)
            assert (await client.describe_features()).features["kraft.version"].finalized == 1
            assert all(voter.key.has_directory for voter in (await client.describe_quorum()).voters)

    run(main)


@pytest.mark.parametrize(
    ("claimed", "reason"),
    [
        ({}, "Controller 9 does not support this feature."),
        ({"kraft.version": (0, 0)}, "Controller 9 does not support this feature."),
        ({"kraft.version": (2, 3)}, "Controller 9 only supports versions 2-3"),
        ({"kraft.version": (0, 1)}, None),
    ],
)
def test_observers_that_registered_must_support_a_level(claimed, reason):
    """KIP-853: kraft.version rises only if the observers can follow. The words are those of Kafka's QuorumFeatures."""

    async def main():
        lab = Lab(create=None, voters="1@n1:9093", auto_join=False, bootstrap_servers=(), **QUICK)
        lab.format_static(1)
        async with lab.node(1) as node, client_of(lab, 1) as client:
            await node.read_barrier()
            kind = ControllerRegistrationRequest
            request = kind(
                controller_id=9,
                features=[
                    kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in claimed.items()
                ],
            )
            assert (await plugin_node(node).ask("n1", 9093, request, 5_000)).error_code == 0
            for validate_only in (True, False):
                if reason is None:
                    await client.update_features({"kraft.version": 1}, validate_only=validate_only)
                    continue
                with pytest.raises(admin.FeatureUpdateError) as error:
                    await client.update_features({"kraft.version": 1}, validate_only=validate_only)
                assert error.value.message == f"{PREFIX}1 for feature kraft.version. {reason}"
            finalized = (await client.describe_features()).features["kraft.version"].finalized
            assert finalized == (1 if reason is None else 0)

    run(main)


def test_the_wrong_endpoint_type_is_refused_as_by_kafka():
    async def main():
        lab = Lab(**QUICK)
        async with lab.node(1) as node, lab.network.transport("client"):
            await node.wait_leader()
            for endpoint_type, error in ((1, "MISMATCHED_ENDPOINT_TYPE"), (7, "UNSUPPORTED_ENDPOINT_TYPE")):
                request = DescribeClusterRequest(endpoint_type=endpoint_type)
                response = await plugin_node(node).ask("n1", 9093, request, 1000)
                assert response.error_code == {"MISMATCHED_ENDPOINT_TYPE": 114, "UNSUPPORTED_ENDPOINT_TYPE": 115}[error]
                assert response.brokers == []

    run(main)


def test_controllers_are_listed_with_what_they_advertise_for_the_listener_that_was_asked():
    """As Kafka does: what is bound may mean nothing to the asker, and another listener may speak TLS."""

    async def main():
        lab = Lab(**QUICK)
        listeners = ["CONTROLLER://n1:9093", "OUTSIDE://n1:9095"]
        told = ["OUTSIDE://gate:19095"]
        async with lab.node(1, listeners=listeners, advertised_listeners=told) as node, lab.node(2) as other:
            await node.wait_leader()
            await other.wait_leader()
            found = {}
            for asker, port in ((node, 9093), (node, 9095), (other, 9093)):
                request = DescribeClusterRequest(endpoint_type=2)
                response = await plugin_node(other).ask(f"n{asker.key.id}", port, request, 1000)
                found[asker.key.id, port] = [(each.broker_id, each.host, each.port) for each in response.brokers]
            assert found[1, 9095] == [(1, "gate", 19095)]
            assert (1, "n1", 9093) in found[1, 9093] and (1, "n1", 9093) in found[2, 9093]
            assert (2, "n2", 9093) in found[2, 9093]

    run(main)


def test_an_observer_lists_what_it_advertises_for_itself():
    async def main():
        lab = Lab(auto_join=False, **QUICK)
        async with lab.node(1), lab.node(2, advertised_listeners=["CONTROLLER://gate:19093"]) as observer:
            await observer.wait_leader()
            response = await plugin_node(observer).ask("n2", 9093, DescribeClusterRequest(endpoint_type=2), 1000)
            found = [(each.broker_id, each.host, each.port) for each in response.brokers]
            assert found == [(1, "n1", 9093), (2, "gate", 19093)]

    run(main)


def test_a_plugin_may_know_better():
    """A metadata controller answers for its own cluster."""

    class Controller(Plugin):
        name = "controller"

        async def describe(self, request, context):
            return DescribeClusterResponse(cluster_id="of the plugin", endpoint_type=request.endpoint_type)

        @property
        def handlers(self):
            return (RequestHandler(DescribeClusterRequest, self.describe),)

    async def main():
        lab = Lab(**QUICK)
        async with lab.node(1, machine=Values, plugins=[Controller()]) as node, client_of(lab, 1) as client:
            await node.wait_leader()
            assert (await client.describe_cluster()).cluster_id == "of the plugin"

    run(main)


@pytest.mark.parametrize("participates", [False, True])
def test_a_handler_that_raises(participates):
    """An observer's costs the asker its connection, a participant's the node its life."""

    class Clumsy(Plugin):
        name = "clumsy"

        async def describe(self, request, context):
            raise ValueError("cannot describe that")

        @property
        def handlers(self):
            return (RequestHandler(DescribeClusterRequest, self.describe),)

    Clumsy.participates = participates

    async def main():
        lab = Lab(**QUICK)
        async with lab.quorum(2) as (one, _), lab.node(3, plugins=[Clumsy()]) as clumsy:
            for _ in range(2):
                assert await plugin_node(one).ask("n3", 9093, DescribeClusterRequest(), 5_000) is Failure.RESET
            assert not clumsy.stopped.is_set()

    if participates:
        with pytest.raises(NodeStoppedError, match="cannot describe that"):
            run(main)
    else:
        run(main)


def test_a_question_that_waits_does_not_hold_up_replication():
    """A forwarded proposal waits for a commit; behind its answer on one connection no Fetch could bring that about."""
    asked, answered = trio.Event(), trio.Event()

    class Slow(Plugin):
        name = "slow"

        async def describe(self, request, context):
            asked.set()
            await answered.wait()
            return DescribeClusterResponse(cluster_id=CLUSTER_ID)

        @property
        def handlers(self):
            return (RequestHandler(DescribeClusterRequest, self.describe),)

    async def main():
        lab = Lab(**QUICK)
        async with lab.quorum(2, plugins=[Slow()]) as (one, two), trio.open_nursery() as nursery:
            nursery.start_soon(plugin_node(two).ask, "n1", 9093, DescribeClusterRequest(), 20_000)
            await asked.wait()
            for number in range(3):
                assert (await one.append(b"record")).result == number + 1
            answered.set()

    run(main, limit_s=10)


def test_what_is_offered():
    async def main():
        lab = Lab(**QUICK)
        async with lab.node(1) as node:
            offered = {
                each.api_key
                for each in (await plugin_node(node).ask("n1", 9093, ApiVersionsRequest(), 60_000)).api_keys
            }
            assert {ApiKey.DESCRIBE_CLUSTER, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_QUORUM} <= offered
            assert {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER} <= offered

    run(main)

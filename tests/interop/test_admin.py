"""Our commands and admin client against a Kafka quorum: they print what Kafka's tools print for the same state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from kafka_lab import KafkaLab, ToolResult, wait_for
from kafka_tools import KafkaTools
from tool_pair import Ours, same

from kraftcore import admin
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RefusedError, UnreachableError, UnsupportedVersionError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint

VOTERS = [1, 2, 3]
OBSERVER = 4
BROKER = 10


@pytest.fixture(scope="module")
def lab(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLab]:
    """Three voters, a controller that only watches, and a broker."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        lab.start_quorum(VOTERS)
        for node in (lab.controller(OBSERVER), lab.broker(BROKER)):
            node.format(*(["--no-initial-controllers"] if node.name.startswith("controller") else [])).start()
        for node in lab.nodes.values():
            node.wait_listening()
        wait_for("everybody to have registered", lambda: _is_complete(lab))
        yield lab


def _is_complete(lab: KafkaLab) -> bool:
    async def ask() -> bool:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            quorum, cluster = await client.describe_quorum(), await client.describe_cluster()
        async with admin.connect(bootstrap_servers=[lab.nodes[BROKER].address]) as client:
            brokers = await client.list_endpoints()
        return len(quorum.observers) == 2 and len(cluster.nodes) == 4 and len(brokers) == 1

    return trio.run(ask)


@pytest.fixture(params=["controller", "server"])
def route(request: pytest.FixtureRequest, lab: KafkaLab) -> list[str]:
    if request.param == "controller":
        return ["--bootstrap-controller", lab.controllers]
    return ["--bootstrap-server", lab.nodes[BROKER].address]


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str]) -> Ours:
    return Ours(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "--status"],
        ["describe", "--replication"],
        ["describe", "--replication", "--human-readable"],
        ["describe"],
        ["describe", "--status", "--replication"],
        ["describe", "--status", "--human-readable"],
        ["remove-controller", "-i", "9", "-d", "VOTER"],
        ["remove-controller", "--controller-id", "1", "--controller-directory-id", "OBSERVER"],
        ["remove-controller", "-i", "-1", "-d", "VOTER"],
        ["remove-controller", "-i", "1", "-d", "VOTER", "--dry-run"],
        ["remove-controller", "-i", "-1", "-d", "VOTER", "--dry-run"],
        ["add-controller"],
        ["add-controller", "--dry-run"],
    ],
    ids=" ".join,
)
def test_quorum_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    ids = {"VOTER": lab.nodes[1].directory_id, "OBSERVER": lab.nodes[OBSERVER].directory_id}
    command = [*route, *(ids.get(each, each) for each in arguments)]
    same(lab.tool("quorum", *command), ours("quorum", *command))


def test_a_quorum_of_kafkas_is_well(ours: Ours, route: list[str]) -> None:
    """Its controllers append a record each half second: each look finds some that are not committed yet."""
    told = json.loads(ours("quorum", *route, "health", "--output", "json").out)
    assert told["healthy"] and told["reasons"] == told["warnings"] == []
    assert told["highWatermark"] > 0


@pytest.mark.parametrize(
    ("node", "flags"), [(OBSERVER, ["--dry-run"]), (1, []), (BROKER, []), (None, [])], ids=lambda value: str(value)
)
def test_add_controller_prints_the_same(
    lab: KafkaLab, ours: Ours, route: list[str], node: int | None, flags: list[str]
) -> None:
    config = lab.folder / "absent.properties" if node is None else lab.nodes[node].config
    command = [*route, "--command-config", config, "add-controller", *flags]
    same(lab.tool("quorum", *command), ours("quorum", *command))


@pytest.mark.parametrize(
    "text",
    [
        "process.roles=controller\n",
        "node.id=-4\nprocess.roles=controller\n",
        "node.id=4\nprocess.roles=controller\n",
        "node.id=4\nprocess.roles=controller\nlog.dirs=/nowhere\n",
        "node.id=4\nprocess.roles=controller\nlog.dirs=FOLDER,/other\n",
        "node.id=4\nprocess.roles=controller\nmetadata.log.dir=FOLDER\ncontroller.listener.names=A\nlisteners=B://:1\n",
        "node.id=4\nprocess.roles=broker,controller\nmetadata.log.dir=FOLDER\ncontroller.listener.names=A,b\n"
        "listeners=A://h:1,B://:2\nadvertised.listeners=A://[::1]:3\n",
    ],
)
def test_controller_files_are_read_the_same(lab: KafkaLab, ours: Ours, tmp_path: Path, text: str) -> None:
    config = tmp_path / "c.properties"
    config.write_text(text.replace("FOLDER", str(lab.nodes[OBSERVER].folder)))
    command = ["--bootstrap-controller", lab.controllers, "--command-config", config, "add-controller", "--dry-run"]
    same(lab.tool("quorum", *command), ours("quorum", *command))


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--node-id", "-3"],
        ["upgrade"],
        ["disable"],
        ["upgrade", "--feature", "kraft.version=2"],
        ["upgrade", "--feature", "kraft.version=1"],
        ["upgrade", "--feature", "kraft.version=0"],
        ["upgrade", "--feature", "foo.version=1"],
        ["upgrade", "--feature", "transaction.version=1", "--feature", "share.version=1", "--dry-run"],
        ["upgrade", "--feature", "foo"],
        ["upgrade", "--feature", "foo=x"],
        ["upgrade", "--feature", "foo=32768"],
        ["upgrade", "--feature", "foo=-1"],
        ["upgrade", "--feature", "share.version=1", "--feature", "share.version=2"],
        ["upgrade", "--release-version", "4.3", "--dry-run"],
        ["upgrade", "--release-version", "4.3", "--feature", "share.version=1"],
        ["upgrade", "--release-version", "9.9"],
        ["upgrade", "--metadata", "4.3", "--dry-run"],
        ["upgrade", "--metadata", "9.9"],
        ["upgrade", "--metadata", "4.3", "--feature", "metadata.version=30"],
        ["upgrade", "--metadata", "4.3", "--release-version", "4.3"],
        ["upgrade", "--feature", "metadata.version=99"],
        ["upgrade", "--feature", "=1"],
        ["upgrade", "--feature", "foo="],
        ["upgrade", "--feature", "share.version=1", "--feature", "foo.version=1"],
        ["downgrade"],
        ["downgrade", "--feature", "foo"],
        ["downgrade", "--feature", "foo.version=0"],
        ["downgrade", "--feature", "share.version=-1"],
        ["downgrade", "--feature", "share.version=2"],
        ["downgrade", "--feature", "kraft.version=0"],
        ["downgrade", "--feature", "kraft.version=0", "--unsafe"],
        ["downgrade", "--feature", "metadata.version=6", "--dry-run"],
        ["downgrade", "--metadata", "4.2", "--dry-run"],
        ["downgrade", "--release-version", "9.9"],
        ["downgrade", "--feature", "metadata.version=21"],
        ["downgrade", "--feature", "metadata.version=21", "--unsafe", "--dry-run"],
        ["downgrade", "--feature", "transaction.version=1", "--dry-run"],
        ["downgrade", "--release-version", "4.2", "--dry-run"],
        ["disable", "--feature", "kraft.version"],
        ["disable", "--feature", "metadata.version"],
        ["disable", "--feature", "foo.version"],
        ["disable", "--feature", " "],
        ["disable", "--feature", "share.version", "--feature", "share.version"],
        ["disable", "--feature", "share.version", "--dry-run"],
        ["disable", "--feature", "share.version", "--unsafe"],
        ["upgrade", "--feature", "share.version=1"],
    ],
    ids=" ".join,
)
def test_features_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    same(lab.tool("features", *route, *arguments), ours("features", *route, *arguments))


@pytest.mark.parametrize("node", [*VOTERS, OBSERVER, BROKER])
def test_features_of_one_node(lab: KafkaLab, ours: Ours, node: int) -> None:
    where = ["--bootstrap-controller", lab.controllers]
    if node == BROKER:
        where = ["--bootstrap-server", lab.nodes[BROKER].address]
    command = [*where, "describe", "--node-id", node]
    same(lab.tool("features", *command), ours("features", *command))


@pytest.mark.parametrize(
    "arguments", [["cluster-id"], ["list-endpoints"], ["list-endpoints", "--include-fenced-brokers"]]
)
def test_cluster_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    same(lab.tool("cluster", *arguments, *route), ours("cluster", *arguments, *route))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("quorum", ["describe", "--status"]),
        ("features", ["describe"]),
        ("cluster", ["cluster-id"]),
        ("cluster", ["list-endpoints"]),
    ],
)
@pytest.mark.parametrize("kind", ["controller", "server"])
def test_the_wrong_kind_of_node_is_said_the_same(
    lab: KafkaLab, ours: Ours, kind: str, tool: str, arguments: list[str]
) -> None:
    wrong = lab.nodes[BROKER].address if kind == "controller" else lab.nodes[1].address
    where = [f"--bootstrap-{kind}", wrong]
    command = [*arguments, *where] if tool == "cluster" else [*where, *arguments]
    same(lab.tool(tool, *command), ours(tool, *command))


@pytest.mark.parametrize("tool", ["quorum", "features", "cluster"])
def test_an_unreachable_quorum_is_said_the_same(lab: KafkaLab, ours: Ours, tmp_path: Path, tool: str) -> None:
    config = tmp_path / "quick.properties"
    config.write_text("default.api.timeout.ms=300\nrequest.timeout.ms=300\n")
    where = ["--bootstrap-controller", "127.0.0.1:1", "--command-config", config]
    command = ["list-endpoints", *where] if tool == "cluster" else [*where, "describe"]
    command += ["--status"] if tool == "quorum" else []
    mine = ours(tool, *command)
    same(lab.tool(tool, *command), mine)
    assert "127.0.0.1:1: nobody listens there" in mine.err


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("quorum", ["describe", "--status"]),
        ("quorum", ["--bootstrap-server", "a:1", "--bootstrap-controller", "b:1", "describe", "--status"]),
        ("quorum", ["--bootstrap-server", "a:1"]),
        ("quorum", ["--bootstrap-server", "a:1", "remove-controller", "-i", "x", "-d", "y"]),
        ("quorum", ["--bootstrap-server", "a:1", "remove-controller", "-i", "1"]),
        ("quorum", ["--bootstrap-server", "a:1", "describe", "--nothing"]),
        ("quorum", ["--bootstrap-server", "nonsense", "describe", "--status"]),
        ("features", ["describe"]),
        ("features", ["--bootstrap-server", "a:1", "nothing"]),
        ("features", ["--bootstrap-server", "a:1"]),
        ("features", ["--bootstrap-server", "a:1", "--bootstrap-controller", "b:1", "describe"]),
        ("features", ["--bootstrap-server", "a:1", "describe", "--node-id", "x"]),
        ("features", ["--bootstrap-server", "nonsense", "describe"]),
        ("cluster", []),
        ("cluster", ["cluster-id"]),
        ("cluster", ["cluster-id", "--bootstrap-server", "a:1", "--bootstrap-controller", "b:1"]),
    ],
)  # fmt: skip
def test_bad_flags_have_the_same_exit_status(lab: KafkaLab, ours: Ours, tool: str, arguments: list[str]) -> None:
    theirs, mine = lab.tool(tool, *arguments), ours(tool, *arguments)
    assert mine.status == theirs.status == 1
    assert mine.out == theirs.out == ""
    assert mine.err


def test_a_voter_comes_and_goes_by_either_tool(lab: KafkaLab, ours: Ours, route: list[str]) -> None:
    new = lab.nodes[OBSERVER]
    add = [*route, "--command-config", new.config, "add-controller"]
    remove = [*route, "remove-controller", "-i", OBSERVER, "-d", new.directory_id]
    status = [*route, "describe", "--status"]

    def voters() -> list[int]:
        return [each["id"] for each in json.loads(ours("quorum", *status, "--output", "json").out)["currentVoters"]]

    def settled(first: ToolResult) -> ToolResult:
        assert first.status == 0, first
        return first

    added = settled(ours("quorum", *add))
    assert sorted(voters()) == [*VOTERS, OBSERVER]
    same(lab.tool("quorum", *add), ours("quorum", *add))  # it is one already
    removed = settled(lab.tool("quorum", *remove))
    assert sorted(voters()) == VOTERS
    same(lab.tool("quorum", *remove), ours("quorum", *remove))  # it is none any more
    wait_for("the observer to fetch again", lambda: _is_complete(lab))
    same(settled(lab.tool("quorum", *add)), added)
    same(removed, settled(ours("quorum", *remove)))
    assert sorted(voters()) == VOTERS
    wait_for("the observer to fetch again", lambda: _is_complete(lab))


def test_the_client_gives_typed_answers_and_errors(lab: KafkaLab) -> None:
    async def ask() -> None:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            quorum = await client.describe_quorum()
            assert {voter.key for voter in quorum.voters} == {
                ReplicaKey(node_id, Uuid.from_string(lab.nodes[node_id].directory_id)) for node_id in VOTERS
            }
            assert quorum.endpoints[1] == (Endpoint("CONTROLLER", "127.0.0.1", lab.nodes[1].port),)
            assert quorum.leader is not None
            assert quorum.leader.key.id == quorum.leader_id == (await client.describe_cluster()).controller_id
            assert all(quorum.lag(voter) >= 0 for voter in quorum.voters)
            found = await client.describe_features()
            assert found.features["kraft.version"].finalized == 1
            stranger = quorum.voters[0].key
            with pytest.raises(RefusedError) as refused:
                await client.remove_voter(stranger.id, Uuid.random())
            assert refused.value.error == "VOTER_NOT_FOUND"
            with pytest.raises(RefusedError) as refused:
                await client.add_voter(9, Uuid.random(), [Endpoint("CONTROLLER", "h", 1)], cluster_id="another")
            assert refused.value.error == "INCONSISTENT_CLUSTER_ID"
            with pytest.raises(admin.FeatureUpdateError) as failed:
                await client.update_features({"kraft.version": 2, "share.version": 1}, validate_only=True)
            assert set(failed.value.results) == {"kraft.version", "share.version"}
        async with admin.connect(bootstrap_servers=lab.bootstrap) as client:
            with pytest.raises(UnsupportedVersionError, match="The node does not support METADATA"):
                await client.describe_quorum()

    trio.run(ask)


def test_the_client_follows_the_leader(lab: KafkaLab) -> None:
    """The leader is killed between two calls of one client; the next call finds the new one by itself."""

    async def ask() -> None:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            before = await client.describe_quorum()
            lab.nodes[before.leader_id].kill()
            after = await client.describe_quorum()
            assert after.leader_id != before.leader_id
            assert after.leader_epoch > before.leader_epoch
            quick = admin.Timing(call_timeout_ms=300)
            alone = [lab.nodes[before.leader_id].address]
            async with admin.connect(bootstrap_controllers=alone, timing=quick) as lost:
                with pytest.raises(UnreachableError, match="describeMetadataQuorum") as error:
                    await lost.describe_quorum()
                assert not error.value.outcome_unknown
            lab.nodes[before.leader_id].start()

    trio.run(ask)
    for node in lab.nodes.values():
        node.wait_listening()


def test_a_static_quorum_is_upgraded(kafka: KafkaTools, ours: Ours, tmp_path: Path) -> None:
    """kraft.version 0: no directory ids, no changes of voters; then level 1, by our command."""
    with KafkaLab(kafka, tmp_path) as lab:
        node = lab.controller(1)
        node.write(controller_quorum_voters=f"1@{node.address}", controller_quorum_bootstrap_servers=None)
        node.format("--feature", "kraft.version=0").start().wait_listening()
        where = ["--bootstrap-controller", node.address]
        status = [*where, "describe", "--status"]

        def registered() -> bool:
            return node.address.partition(":")[2] in ours("cluster", "list-endpoints", *where).out

        wait_for("the controller to have registered", registered)
        same(lab.tool("quorum", *status), ours("quorum", *status))
        (voter,) = json.loads(ours("quorum", *status, "--output", "json").out)["currentVoters"]
        assert "directoryId" not in voter
        remove = [*where, "remove-controller", "-i", "1", "-d", node.directory_id]
        refused = ours("quorum", *remove)
        same(lab.tool("quorum", *remove), refused)
        assert "UnsupportedVersionException" in refused.err
        assert ours("features", *where, "upgrade", "--feature", "kraft.version=1").status == 0
        same(lab.tool("features", *where, "describe"), ours("features", *where, "describe"))
        same(lab.tool("quorum", *status), ours("quorum", *status))
        (voter,) = json.loads(ours("quorum", *status, "--output", "json").out)["currentVoters"]
        assert voter["directoryId"] == node.directory_id

"""Kafka's tools against a quorum of kraftcore nodes: they work unchanged; ours print the same for the same state."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio
from kafka_lab import KafkaLab, KafkaNode, ToolResult, wait_for
from kafka_tools import KafkaTools
from tool_pair import Ours, same

from kraftcore import admin

VOTERS = [1, 2, 3]
OBSERVER = 4


@pytest.fixture(scope="module")
def lab(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLab]:
    """Three voters and an observer, all of them ours."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("tools")) as lab:
        lab.start_quorum(VOTERS, make=lab.kraftcore)
        lab.kraftcore(OBSERVER).format("--no-initial-controllers").start().wait_listening()
        wait_for("the observer to fetch", lambda: OBSERVER in observers(lab))
        yield lab


def describe(lab: KafkaLab) -> admin.QuorumDescription:
    async def ask() -> admin.QuorumDescription:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            return await client.describe_quorum()

    return trio.run(ask)


def observers(lab: KafkaLab) -> set[int]:
    return {each.key.id for each in describe(lab).observers}


def voters(lab: KafkaLab) -> set[int]:
    return {each.key.id for each in describe(lab).voters}


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str]) -> Ours:
    return Ours(capsys)


@pytest.fixture
def route(lab: KafkaLab) -> list[str]:
    return ["--bootstrap-controller", lab.controllers]


def succeeded(result: ToolResult) -> ToolResult:
    assert result.status == 0, result
    return result


def test_what_describe_prints(lab: KafkaLab, route: list[str]) -> None:
    """Not only the same as ours: the truth."""
    found = describe(lab)
    lines = dict(
        line.split(":", 1) for line in succeeded(lab.tool("quorum", *route, "describe", "--status")).out.splitlines()
    )
    assert lines["ClusterId"].split() == [lab.cluster_id]
    assert lines["LeaderId"].split() == [str(found.leader_id)]
    assert int(lines["LeaderEpoch"]) == found.leader_epoch
    told = {each["id"]: (each["directoryId"], each["endpoints"]) for each in json.loads(lines["CurrentVoters"])}
    assert told == {
        number: (lab.nodes[number].directory_id, [f"CONTROLLER://{lab.nodes[number].address}"]) for number in VOTERS
    }
    (watching,) = json.loads(lines["CurrentObservers"])
    assert (watching["id"], watching["directoryId"]) == (OBSERVER, lab.nodes[OBSERVER].directory_id)
    rows = [line.split() for line in lab.tool("quorum", *route, "describe", "--replication").out.splitlines()[1:]]
    roles = {int(row[0]): row[-1] for row in rows}
    assert roles == {
        number: "Leader" if number == found.leader_id else "Follower" if number in VOTERS else "Observer"
        for number in (*VOTERS, OBSERVER)
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "--status"],
        ["describe", "--replication"],
        ["describe", "--replication", "--human-readable"],
        ["describe"],
        ["describe", "--status", "--replication"],
        ["describe", "--status", "--human-readable"],
        ["add-controller"],
        ["remove-controller", "-i", "9", "-d", "VOTER"],
        ["remove-controller", "-i", "1", "-d", "OBSERVER"],
        ["remove-controller", "-i", "-1", "-d", "VOTER"],
        ["remove-controller", "-i", "1", "-d", "VOTER", "--dry-run"],
    ],
    ids=" ".join,
)
def test_quorum_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    ids = {"VOTER": lab.nodes[1].directory_id, "OBSERVER": lab.nodes[OBSERVER].directory_id}
    command = [*route, *(ids.get(each, each) for each in arguments)]
    same(lab.tool("quorum", *command), ours("quorum", *command))


@pytest.mark.parametrize(("node", "flags"), [(OBSERVER, ["--dry-run"]), (1, [])])
def test_add_controller_prints_the_same(
    lab: KafkaLab, ours: Ours, route: list[str], node: int, flags: list[str]
) -> None:
    command = [*route, "--command-config", lab.nodes[node].config, "add-controller", *flags]
    same(lab.tool("quorum", *command), ours("quorum", *command))


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--node-id", "2"],
        ["describe", "--node-id", "-3"],
        ["upgrade"],
        ["upgrade", "--release-version", "9.9"],
        ["upgrade", "--metadata", "4.3"],
        ["upgrade", "--feature", "foo=x"],
        ["downgrade"],
        ["downgrade", "--feature", "foo.version=0"],
        ["disable"],
        ["disable", "--feature", "foo.version"],
        ["disable", "--feature", "metadata.version", "--unsafe"],
        ["upgrade", "--feature", "kraft.version=2"],
        ["upgrade", "--feature", "kraft.version=1"],
        ["upgrade", "--feature", "kraft.version=1", "--dry-run"],
        ["upgrade", "--feature", "kraft.version=0"],
        ["upgrade", "--feature", "foo.version=1"],
        ["upgrade", "--feature", "metadata.version=21"],
        ["upgrade", "--feature", "kraft.version=1", "--feature", "share.version=1"],
        ["downgrade", "--feature", "kraft.version=0"],
        ["downgrade", "--feature", "kraft.version=0", "--unsafe"],
        ["downgrade", "--feature", "kraft.version=1"],
        ["disable", "--feature", "kraft.version"],
        ["disable", "--feature", "share.version", "--unsafe"],
    ],
    ids=" ".join,
)
def test_features_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    same(lab.tool("features", *route, *arguments), ours("features", *route, *arguments))


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=" ".join)
@pytest.mark.parametrize("verb", ["upgrade", "downgrade"])
def test_a_release_is_taken_the_same(lab: KafkaLab, ours: Ours, route: list[str], verb: str, flags: list[str]) -> None:
    """The servers are controllers, so every feature of the release is one of theirs."""
    command = [*route, verb, "--release-version", "4.3", *flags]
    theirs = succeeded(lab.tool("features", *command))
    assert f"metadata.version {'can be' if flags else 'was'} {verb}d to 30." in theirs.out
    same(theirs, ours("features", *command))


def test_features_of_an_observer_print_the_same(lab: KafkaLab, ours: Ours) -> None:
    """Of nodes that do not vote the leader knows, as long as the log is not cluster metadata."""
    leader = lab.nodes[describe(lab).leader_id]
    command = ["--bootstrap-controller", leader.address, "describe", "--node-id", OBSERVER]
    same(succeeded(lab.tool("features", *command)), ours("features", *command))


def test_fenced_brokers_are_refused_the_same(lab: KafkaLab, ours: Ours, route: list[str]) -> None:
    command = ["list-endpoints", "--include-fenced-brokers", *route]
    same(lab.tool("cluster", *command), ours("cluster", *command))


@pytest.mark.parametrize("arguments", [["cluster-id"], ["list-endpoints"]])
def test_cluster_prints_the_same(lab: KafkaLab, ours: Ours, route: list[str], arguments: list[str]) -> None:
    theirs = succeeded(lab.tool("cluster", *arguments, *route))
    same(theirs, ours("cluster", *arguments, *route))
    wanted = [lab.cluster_id] if arguments == ["cluster-id"] else [str(lab.nodes[each].port) for each in VOTERS]
    assert all(each in theirs.out for each in wanted)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("quorum", ["describe", "--status"]),
        ("features", ["describe"]),
        ("features", ["upgrade", "--feature", "kraft.version=1"]),
        ("cluster", ["cluster-id"]),
        ("cluster", ["list-endpoints"]),
    ],
)
def test_the_wrong_kind_of_node_is_said_the_same(lab: KafkaLab, ours: Ours, tool: str, arguments: list[str]) -> None:
    where = ["--bootstrap-server", lab.nodes[1].address]
    command = [*arguments, *where] if tool == "cluster" else [*where, *arguments]
    same(lab.tool(tool, *command), ours(tool, *command))


def test_a_voter_comes_and_goes_by_either_tool(lab: KafkaLab, ours: Ours, route: list[str]) -> None:
    new = lab.nodes[OBSERVER]
    add = [*route, "--command-config", new.config, "add-controller"]
    remove = [*route, "remove-controller", "-i", OBSERVER, "-d", new.directory_id]
    added = succeeded(lab.tool("quorum", *add))
    assert voters(lab) == {*VOTERS, OBSERVER}
    same(lab.tool("quorum", *add), ours("quorum", *add))  # it is one already
    removed = succeeded(ours("quorum", *remove))
    assert voters(lab) == {*VOTERS}
    same(lab.tool("quorum", *remove), ours("quorum", *remove))  # it is none any more
    wait_for("the observer to fetch again", lambda: OBSERVER in observers(lab))
    same(added, succeeded(ours("quorum", *add)))
    same(succeeded(lab.tool("quorum", *remove)), removed)


def test_the_leader_goes(lab: KafkaLab, ours: Ours, route: list[str]) -> None:
    """Kafka's tool removes the leader itself, finds the next one, and adds the node again."""
    leader: KafkaNode = lab.nodes[describe(lab).leader_id]
    number = int(str(leader.properties["node.id"]))
    succeeded(lab.tool("quorum", *route, "remove-controller", "-i", number, "-d", leader.directory_id))
    assert voters(lab) == {*VOTERS} - {number}
    wait_for("it to watch", lambda: number in observers(lab))
    succeeded(lab.tool("quorum", *route, "--command-config", leader.config, "add-controller"))
    assert voters(lab) == {*VOTERS}
    same(lab.tool("quorum", *route, "describe", "--status"), ours("quorum", *route, "describe", "--status"))

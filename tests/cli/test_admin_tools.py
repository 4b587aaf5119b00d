"""``kraftcore quorum``, ``features`` and ``cluster`` against scripted nodes: the states that a healthy quorum lacks.

What they print for a real one is held against Kafka's own tools in tests/interop.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kafka_lab import OURS
from scripted_nodes import ScriptedNode, ScriptedTransport, make_cluster

from kraftcore import admin
from kraftcore.cli import main
from kraftcore.cli.kafka_style import exception_name
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.transports.tcp import TlsFiles, TlsSettings

DIRECTORY = Uuid(bytes(range(16)))
WHERE = ["--bootstrap-controller", "controller:9001"]
DOUBT = (
    "node 1 (controller:9001) answers\nnode 1 of the controllers 1 answers, and node 1 leads\n"
    "Last failure: controller:9001: the connection was broken; whether it was carried out is unknown\n"
)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> ScriptedNode:
    node = ScriptedNode(1)
    make_cluster([node], controller_id=1)
    monkeypatch.setattr(admin, "TcpTransport", lambda **_: ScriptedTransport([node]))
    return node


def state(replica_id: int, end: int, fetch: int, caught_up: int, directory: Uuid = DIRECTORY) -> ReplicaState:
    return ReplicaState(
        replica_id=replica_id,
        replica_directory_id=directory,
        log_end_offset=end,
        last_fetch_timestamp=fetch,
        last_caught_up_timestamp=caught_up,
    )


def describe(
    node: ScriptedNode, *voters: ReplicaState, leader: int = 1, observers: list[ReplicaState] | None = None
) -> None:
    part = DescribeQuorumResponse.TopicData.PartitionData(
        leader_id=leader, leader_epoch=3, high_watermark=90, current_voters=list(voters), observers=observers or []
    )
    listener = DescribeQuorumResponse.Node.Listener(name="C", host="::1", port=9)
    node.scripts[DescribeQuorumRequest] = lambda _: DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[part])],
        nodes=[DescribeQuorumResponse.Node(node_id=2, listeners=[listener, listener])],
    )


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_status_while_little_is_known(node: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    describe(node, state(1, 100, 7000, 7000), state(2, -1, -1, -1, ZERO_UUID))
    assert run(capsys, "quorum", *WHERE, "describe", "--status") == (
        "ClusterId:              scripted\n"
        "LeaderId:               1\n"
        "LeaderEpoch:            3\n"
        "HighWatermark:          90\n"
        "MaxFollowerLag:         101\n"
        "MaxFollowerLagTimeMs:   -1\n"
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{DIRECTORY}"}}, '
        '{"id": 2, "endpoints": ["C://[::1]:9", "C://[::1]:9"]}]\n'
        "CurrentObservers:       []\n"
    )


@pytest.mark.parametrize(("offset", "caught_up", "lag_ms"), [(100, 5000, 0), (99, 5000, 2000), (99, -1, -1)])
def test_lag_of_the_slowest(
    node: ScriptedNode, capsys: pytest.CaptureFixture[str], offset: int, caught_up: int, lag_ms: int
) -> None:
    describe(node, state(1, 100, 7000, 7000), state(2, offset, 5000, caught_up))
    found = json.loads(run(capsys, "quorum", *WHERE, "describe", "--status", "--output", "json"))
    assert (found["maxFollowerLag"], found["maxFollowerLagTimeMs"]) == (100 - offset, lag_ms)


def test_a_leader_that_is_no_voter_any_more(node: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    describe(node, state(2, 98, 5000, 5000), leader=1, observers=[state(3, 100, 6000, 6000)])
    found = json.loads(run(capsys, "quorum", *WHERE, "describe", "--status", "--output", "json"))
    assert (found["leaderId"], found["maxFollowerLag"], found["maxFollowerLagTimeMs"]) == (1, 2, -1)
    lines = run(capsys, "quorum", *WHERE, "describe", "--replication").splitlines()
    assert [line.split("\t")[6].strip() for line in lines] == ["Status", "Follower", "Observer"]


def test_replication(node: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time() * 1000)
    describe(node, state(2, -1, -1, -1, ZERO_UUID), state(1, 100, now + 60_000, now - 5000))
    lines = run(capsys, "quorum", *WHERE, "describe", "--replication", "--human-readable").splitlines()
    assert lines[0].startswith("NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaught")
    assert lines[1].startswith(f"1     \t{DIRECTORY}\t100         \t0  \t0 ms ago          \t5")
    assert lines[2] == f"2     \t{ZERO_UUID}\t-1          \t101\t-1                \t-1                   \tFollower\t"
    found = [
        json.loads(line)
        for line in run(capsys, "quorum", *WHERE, "describe", "--replication", "--output", "json").splitlines()
    ]
    assert found[1] == {
        "nodeId": 2,
        "directoryId": str(ZERO_UUID),
        "logEndOffset": -1,
        "lag": 101,
        "lastFetchTimestamp": None,
        "lastCaughtUpTimestamp": None,
        "status": "Follower",
    }


def test_features_of_another_release(node: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    answer = node.scripts[ApiVersionsRequest](ApiVersionsRequest())
    assert isinstance(answer, ApiVersionsResponse)
    key = ApiVersionsResponse.SupportedFeatureKey
    answer.supported_features = [
        key(name="z.version", min_version=0, max_version=4),
        key(name="metadata.version", min_version=7, max_version=99),
    ]
    node.scripts[ApiVersionsRequest] = lambda _: answer
    first, second = run(capsys, "features", *WHERE, "describe").splitlines()
    assert " ".join(first.split()) == (
        "Feature: metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: UNKNOWN 99 "
        "FinalizedVersionLevel: UNKNOWN 0 Epoch: -"
    )
    assert second.startswith("Feature: z.version  ")
    lines = run(capsys, "features", *WHERE, "describe", "--output", "json").splitlines()
    assert json.loads(lines[1]) == {
        "feature": "z.version",
        "supportedMinVersion": 0,
        "supportedMaxVersion": 4,
        "finalizedVersionLevel": 0,
        "epoch": None,
    }


def test_endpoints_with_racks(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = ScriptedNode(1, is_broker=True)
    monkeypatch.setattr(admin, "TcpTransport", lambda **_: ScriptedTransport([broker]))
    entry = DescribeClusterResponse.DescribeClusterBroker
    broker.scripts[DescribeClusterRequest] = lambda request: DescribeClusterResponse(
        cluster_id="c",
        brokers=[
            entry(broker_id=11, host="localhost", port=2, rack="r", is_fenced=request.include_fenced_brokers),
            entry(broker_id=2, host="h", port=1),
        ],
    )  # fmt: skip
    where = ["-b", "broker:9001"]
    assert run(capsys, "cluster", *where, "list-endpoints") == (
        "ID         HOST      PORT       RACK STATE      ENDPOINT_TYPE  \n"
        "2          h         1          null unfenced   broker         \n"
        "11         localhost 2          r unfenced   broker         \n"
    )
    text = run(capsys, "cluster", "list-endpoints", "--include-fenced-brokers", *where, "--output", "json")
    assert [json.loads(line) for line in text.splitlines()][1] == {
        "id": 11, "host": "localhost", "port": 2, "rack": "r", "state": "fenced", "endpointType": "broker",
    }  # fmt: skip
    assert json.loads(run(capsys, "cluster", "cluster-id", *where, "--output", "json")) == {"clusterId": "c"}


def test_what_comes_from_elsewhere_does_not_steer_the_terminal(
    node: ScriptedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2J\x9b1m\u202e\U000e0041"
    describe_cluster = node.scripts[DescribeClusterRequest]
    entry = DescribeClusterResponse.DescribeClusterBroker

    def answer(request: DescribeClusterRequest) -> DescribeClusterResponse:
        found = describe_cluster(request)
        assert isinstance(found, DescribeClusterResponse)
        found.cluster_id = evil
        found.brokers = [*found.brokers, entry(broker_id=9, host=evil, port=1, rack=evil)]
        return found

    node.scripts[DescribeClusterRequest] = answer
    node.scripts[RemoveRaftVoterRequest] = lambda _: RemoveRaftVoterResponse(error_code=42, error_message=evil)
    for arguments in (["id"], ["list-endpoints"], ["id", "--output", "json"], ["list-endpoints", "--output", "json"]):
        text = run(capsys, "cluster", *WHERE, *arguments)
        assert "".join(text.split("\n")).isprintable()
        assert "\\u001b[2J\\u009b1m\\u202e\\udb40\\udc41" in text
    assert json.loads(run(capsys, "cluster", *WHERE, "id", "--output", "json")) == {"clusterId": evil}
    assert main(["quorum", *WHERE, "remove-controller", "-i", "1", "-d", str(DIRECTORY)]) == 1
    assert "InvalidRequestException: \\u001b[2J" in capsys.readouterr().err


def test_a_quorum_without_voters_is_no_answer(node: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    describe(node)
    assert main(["quorum", *WHERE, "describe", "--status"]) == 1
    assert "without voters" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["--5", "+-5", "five", "2147483648", "99999999999", ""])
def test_node_ids_that_are_none(
    node: ScriptedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    config = tmp_path / "c.properties"
    config.write_text(f"process.roles=controller\nnode.id={text}\n")
    assert main(["quorum", *WHERE, "--command-config", str(config), "add-controller"]) == 1
    assert f"node.id={text} is no number" in capsys.readouterr().err
    assert node.asked == []


def test_an_interrupt_ends_a_call_that_waits() -> None:
    """Ctrl-C arrives inside of a nursery, which wraps it in a group."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(30)
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*OURS, "quorum", "--bootstrap-controller", where, "describe", "--status"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_doubt_is_said(node: ScriptedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.scripts[RemoveRaftVoterRequest] = lambda _: Failure.RESET
    node.scripts[UpdateFeaturesRequest] = lambda _: Failure.RESET
    config = tmp_path / "quick.properties"
    config.write_text("default.api.timeout.ms=200\n")
    command = ["--command-config", str(config), *WHERE]
    assert main(["quorum", *command, "remove-controller", "-i", "1", "-d", str(DIRECTORY)]) == 1
    assert capsys.readouterr().err == (
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: "
        f"removeRaftVoter\n{DOUBT}"
    )
    assert main(["features", *command, "upgrade", "--feature", "a=1", "--output", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["error"] == "UnreachableError"
    assert "the connection was broken; whether it was carried out is unknown" in json.loads(out)["error"]["message"]
    assert err == "1 out of 1 operation(s) failed.\n"
    assert main(["features", *command, "upgrade", "--feature", "a=1"]) == 1
    assert capsys.readouterr().err == f"1 out of 1 operation(s) failed.\n{DOUBT}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default.api.timeout.ms=soon", "default.api.timeout.ms=soon is not a number of milliseconds above 0"),
        ("request.timeout.ms=0", "request.timeout.ms=0 is not a number of milliseconds above 0"),
        ("security.protocol=SASL", "security.protocol=SASL is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=A required password=b;",
            "sasl.jaas.config names A: PLAIN has org.apache.kafka.common.security.plain.PlainLoginModule",
        ),
        ("security.protocol=SSL\nssl.truststore.location=ca.jks", "ssl.truststore.type must be PEM"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=x", "algorithm must be https, or empty"),
    ],
)
def test_bad_settings(
    node: ScriptedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    config = tmp_path / "c.properties"
    config.write_text(text)
    assert main(["cluster", "-c", str(config), *WHERE, "id"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{config}: ")
    assert error.endswith(f"{message}\n")


def test_tls_settings_reach_the_transport(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[TlsSettings | None] = []

    def transport(*, tls: TlsSettings | None, **_: object) -> ScriptedTransport:
        given.append(tls)
        return ScriptedTransport([node])

    monkeypatch.setattr(admin, "TcpTransport", transport)
    config = tmp_path / "c.properties"
    config.write_text(
        "security.protocol=ssl\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        "ssl.keystore.type=pem\nssl.keystore.location=me.pem\nssl.key.password=secret\n"
    )
    run(capsys, "cluster", "id", "-c", str(config), *WHERE)
    run(capsys, "cluster", "id", *WHERE)
    with config.open("a") as file:
        file.write("ssl.endpoint.identification.algorithm=\n")
    run(capsys, "cluster", "id", "-c", str(config), *WHERE)
    found = TlsFiles(certificate="me.pem", ca="ca.pem", key_password="secret")
    assert given == [found, None, replace(found, check_host_name=False)]


@pytest.mark.parametrize(
    ("name", "java"),
    [
        ("VOTER_NOT_FOUND", "VoterNotFoundException"),
        ("REQUEST_TIMED_OUT", "TimeoutException"),
        ("INVALID_TOPIC_EXCEPTION", "InvalidTopicException"),
    ],
)
def test_names_of_kafkas_exceptions(name: str, java: str) -> None:
    assert exception_name(name) == java


@pytest.mark.parametrize("command", ["quorum", "features", "cluster"])
def test_every_sub_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    listing = run(capsys, command, "--help").partition("Commands:")[2].partition("Examples:")[0]
    names = [line.split()[0] for line in listing.splitlines() if line.strip()]
    assert len(names) >= 2
    for name in names:
        text = run(capsys, command, name, "--help")
        assert f"Usage: kraftcore {command} {name} " in text
        assert "--bootstrap-controller LIST" in text
        assert "--output [text|json]" in text

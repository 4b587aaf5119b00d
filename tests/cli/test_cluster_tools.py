"""``kraftcore topics``, ``reassign``, ``acls`` against a scripted broker: what Kafka's own does not answer or ask.

What they print for a real cluster is held against Kafka's own tools in tests/interop.
"""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
from scripted_nodes import ScriptedNode, ScriptedTransport, make_cluster

from kraftcore import admin
from kraftcore.admin import NodeAddress, Reassignment, TopicPartition
from kraftcore.cli import main
from kraftcore.cli.configs import read_changes
from kraftcore.cli.partition_files import format_plan, read_election, read_plan, read_topics
from kraftcore.cli.reassign_plan import moves, propose, throttled_replicas
from kraftcore.cli.topics import read_assignment, topic_pattern
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kraftcore.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraftcore.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kraftcore.protocol.messages.metadata import MetadataRequest, MetadataResponse

WHERE = ["--bootstrap-server", "broker:9001"]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ScriptedNode:
    node = ScriptedNode(1, is_broker=True)
    make_cluster([node], controller_id=1, endpoint_type=1)
    monkeypatch.setattr(admin, "TcpTransport", lambda **_: ScriptedTransport([node]))
    return node


def test_names_cannot_steer_the_terminal(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    topic = MetadataResponse.MetadataResponseTopic
    broker.scripts[MetadataRequest] = lambda _: MetadataResponse(topics=[topic(name="a\x1b[2J"), topic(name="b")])
    assert main(["topics", *WHERE, "--list"]) == 0
    assert capsys.readouterr().out == "a\\u001b[2J\nb\n"


def test_an_unreachable_cluster_is_said_with_the_reason(
    broker: ScriptedNode, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broker.scripts[MetadataRequest] = lambda _: Failure.RESET
    quick = tmp_path / "quick.properties"
    quick.write_text("default.api.timeout.ms=300\n")
    assert main(["topics", *WHERE, "--list", "--command-config", str(quick)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Error while executing topic command : Timed out waiting for a node assignment. Call: listTopics",
        "node 1 (broker:9001) answers",
        "node 1 of the brokers 1 answers; if the request goes on to a controller, it is the controllers that have not "
        "answered",
        "ask the controllers: kraftcore quorum --bootstrap-controller HOST:PORT describe --status",
        "Last failure: broker:9001: the connection was broken; whether it was carried out is unknown",
    ]


@pytest.mark.parametrize(("answer", "status", "removed"), [("y\n", 0, 1), ("Y\n", 0, 1), ("n\n", 0, 0), ("", 1, 0)])
def test_entries_are_removed_when_somebody_says_so(
    broker: ScriptedNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    status: int,
    removed: int,
) -> None:
    broker.scripts[DeleteAclsRequest] = lambda _: DeleteAclsResponse(
        filter_results=[DeleteAclsResponse.DeleteAclsFilterResult()]
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["acls", *WHERE, "--remove", "--topic", "t"]) == status
    out = capsys.readouterr().out
    assert out.startswith(
        "Are you sure you want to delete all ACLs for resource filter `ResourcePattern(resourceType=TOPIC, name=t, "
        "patternType=LITERAL)`? (y/n)\n"
    )
    assert ("--force" in out) == (answer == "")
    assert len([each for each in broker.asked if isinstance(each, DeleteAclsRequest)]) == removed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a valid JSON"),
        ("[" * 100_000, "not a valid JSON"),
        ("5", "Expected JSON object, received 5"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"version": true}', "Expected `Int` value, received true"),
        ('{"partitions": {}}', "Expected JSON array, received {}"),
        ('{"partitions": [{}]}', "No such field exists: `topic`"),
        ('{"partitions": [{"topic": 1}]}', "Expected `String` value, received 1"),
        ('{"partitions": [{"topic": "t", "partition": 4294967296}]}', "Expected `Int` value, received 4294967296"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}', "is different from size"),
    ],
)
def test_plans_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(LocalError, match=message.replace("{}", r"\{\}")):
        read_plan(text)


def test_plans_are_read_as_they_are_written() -> None:
    replicas = {TopicPartition("a", 1): (1, 2), TopicPartition("a", 0): (2,)}
    text = format_plan(replicas, {admin.Replica("a", 1, 2): "/d"})
    assert text.startswith('{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2],"log_dirs":["any"]}')
    plan = read_plan(text)
    assert dict(plan.partitions) == replicas
    assert plan.log_dirs == {admin.Replica("a", 1, 2): "/d"}
    assert read_topics('{"topics": [{"topic": "x"}]}') == ("x",)
    assert read_election('{"partitions": [{"topic": "x", "partition": 1}]}') == (TopicPartition("x", 1),)
    for bad in ("[", "{}", '{"partitions": [{"topic": "x", "partition": 1}, {"topic": "x", "partition": 1}]}'):
        with pytest.raises(LocalError, match="Replica election data"):
            read_election(bad)


def test_proposals_spread_leaders_and_racks() -> None:
    current = {TopicPartition("t", number): (9, 8) for number in range(12)}
    brokers = [NodeAddress(number, "h", 1, rack=f"r{number % 2}") for number in range(4)]
    proposed = propose(current, brokers, by_rack=True)
    assert proposed.keys() == current.keys()
    leaders = [replicas[0] % 2 for replicas in proposed.values()]
    assert leaders.count(0) == leaders.count(1) == 6  # racks take turns
    assert all({number % 2 for number in replicas} == {0, 1} for replicas in proposed.values())
    with pytest.raises(LocalError, match="Not all brokers have rack information"):
        propose(current, [*brokers, NodeAddress(5, "h", 1)], by_rack=True)
    assert propose(current, [*brokers, NodeAddress(5, "h", 1)], by_rack=False).keys() == current.keys()
    with pytest.raises(LocalError, match="cannot be reached because only 1 broker"):
        propose(current, brokers[:1], by_rack=True)


class Compared(str):
    """A topic's name that counts how often it is compared."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)


def test_many_topics_are_placed_without_comparing_each_with_each() -> None:
    topics = [Compared(f"t{number}") for number in range(500)]
    current = {TopicPartition(topic, number): (1,) for topic in topics for number in range(2)}
    Compared.count = 0
    propose(current, [NodeAddress(1, "h", 1)], by_rack=False)
    assert Compared.count < 50 * len(current)


def test_long_files_with_a_partition_twice_are_refused_soon(
    broker: ScriptedNode, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Within a fraction of a second; each partition compared with each is a quarter of a minute."""
    partitions = [{"topic": "t", "partition": number, "replicas": [1]} for number in [*range(20_000), 7]]
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"partitions": partitions}))
    began = time.monotonic()
    assert main(["reassign", *WHERE, "--execute", "--reassignment-json-file", str(path)]) == 1
    assert "contains duplicate topic partitions: t-7\n" in capsys.readouterr().out
    words = ["elect-leaders", *WHERE, "--election-type", "preferred", "--path-to-json-file", str(path)]
    assert main(words) == 1
    assert "contains duplicate partitions: [t-7]" in "".join(capsys.readouterr())
    assert time.monotonic() - began < 8


def test_throttles_name_who_sends_and_who_gets() -> None:
    moving = moves(
        {TopicPartition("a", 0): Reassignment((1, 2, 3), (3,), (1,))},
        {TopicPartition("a", 0): (4, 2), TopicPartition("b", 10): (2, 5)},
        {TopicPartition("a", 0): (1, 2, 3), TopicPartition("b", 10): (1, 2)},
    )
    assert throttled_replicas(moving) == {"a": ("0:1,0:2", "0:4"), "b": ("10:1,10:2", "10:5")}


def test_lists_are_read_as_kafka_reads_them() -> None:
    assert read_changes("a=1, b = [x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert read_assignment("1:2,2:3,") == {0: [1, 2], 1: [2, 3]}
    for text in ("a", "a=b=c", "a=[b=c]=d"):
        with pytest.raises(LocalError, match="Invalid entity config"):
            read_changes(text)
    for text in ("[", "a{99999999999}", "(" * 5000 + ")" * 5000):
        with pytest.raises(LocalError, match="is an invalid regex"):
            topic_pattern(text)


PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["/a","any"]}]}'


def scripted_topic(broker: ScriptedNode, replicas: list[int]) -> None:
    """One topic of one partition; replica 1 is in /a and moves to /b."""
    topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    part = topic.DescribeTopicPartitionsResponsePartition(replica_nodes=replicas, isr_nodes=replicas, leader_id=1)
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    kind = result.DescribeLogDirsTopic
    there = [kind(name="t", partitions=[kind.DescribeLogDirsPartition(partition_index=0)])]
    coming = [kind(name="t", partitions=[kind.DescribeLogDirsPartition(partition_index=0, is_future_key=True)])]
    broker.scripts |= {
        DescribeTopicPartitionsRequest: lambda _: DescribeTopicPartitionsResponse(
            topics=[topic(name="t", topic_id=Uuid(b"\1" * 16), partitions=[part])]
        ),
        DescribeLogDirsRequest: lambda _: DescribeLogDirsResponse(
            results=[result(log_dir="/a", topics=there), result(log_dir="/b", topics=coming)]
        ),
    }


def test_what_reassign_reads_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scripted_topic(broker, [1])
    moving = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    part = moving.OngoingPartitionReassignment(partition_index=3, replicas=[1, 2], adding_replicas=[2])
    broker.scripts[ListPartitionReassignmentsRequest] = lambda _: ListPartitionReassignmentsResponse(
        topics=[moving(name="u", partitions=[part])]
    )
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    plan.write_text(PLAN)

    def said(*arguments: str) -> dict[str, object]:
        assert main(["reassign", *WHERE, "--output", "json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    assert said("--list") == {
        "reassignments": [{"topic": "u", "partition": 3, "replicas": [1, 2], "adding": [2], "removing": []}]
    }
    generated = said("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1")
    assert generated["current"] == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/a"]}],
    }
    assert set(generated) == {"current", "proposed"}
    assert said("--verify", "--reassignment-json-file", str(plan)) == {
        "partitions": [{"topic": "t", "partition": 0, "state": "notActive", "replicas": [1], "wanted": [1, 2]}],
        "logDirs": [
            {
                "topic": "t",
                "partition": 0,
                "broker": 1,
                "state": "notActive",
                "logDir": "/a",
                "futureLogDir": "/b",
                "wanted": "/a",
            }
        ],
        "throttlesCleared": False,
    }
    assert main(["reassign", *WHERE, "--output", "json", "--cancel", "--reassignment-json-file", str(plan)]) == 1
    assert 'Option "[output]" can\'t be used with action "[cancel]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "content", "said"),
    [
        ("topics --list --command-config FILE", "security.protocol=NONE", "security.protocol=NONE is none of"),
        ("reassign --verify --reassignment-json-file FILE", '{"version": 2}', "Not supported version field value 2"),
        ("elect-leaders --election-type unclean --path-to-json-file FILE", "{}", 'missing "partitions" field'),
        (
            "configs --alter --topic t --add-config-file FILE",
            "a:=b\n\\u0021=c",
            "Invalid character found for config key",
        ),
        ("groups --reset-offsets --group g --dry-run --from-file FILE", "a,b", "a,b is no line of group"),
    ],
)
def test_files_may_be_pipes(
    broker: ScriptedNode, capsys: pytest.CaptureFixture[str], line: str, content: str, said: str
) -> None:
    """As a shell's ``<(...)`` makes them: they have no size."""
    end, other_end = os.pipe()
    os.write(other_end, content.encode())
    os.close(other_end)
    command, *words = line.replace("FILE", f"/dev/fd/{end}").split()
    try:
        main([command, *WHERE, *words])
    finally:
        os.close(end)
    assert said in "".join(capsys.readouterr())
    assert not broker.asked


def test_an_option_that_stands_twice_is_refused(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *WHERE, "--delete", "--topic", "a", "--topic", "b"]) == 1
    assert "Found multiple arguments for option topic, but you asked for only one" in capsys.readouterr().out
    assert not broker.asked


def test_an_empty_id_is_not_every_topic(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *WHERE, "--describe", "--topic-id", ""]) == 1
    assert "'' is not a uuid" in capsys.readouterr().out
    assert not broker.asked


def test_throttles_stay_while_a_replica_is_in_no_directory(
    broker: ScriptedNode, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    scripted_topic(broker, [1, 2])
    broker.scripts[ListPartitionReassignmentsRequest] = lambda _: ListPartitionReassignmentsResponse()
    broker.scripts[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse()
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN)
    assert main(["reassign", *WHERE, "--verify", "--reassignment-json-file", str(plan)]) == 0
    out = capsys.readouterr().out
    assert "Partition t-0 is not found in any live log dir on broker 1." in out
    assert "Clearing" not in out


def said_as_json(capsys: pytest.CaptureFixture[str], command: str, *arguments: str, status: int = 0) -> object:
    """The one object that a command prints."""
    assert main([command, *WHERE, *arguments, "--output", "json"]) == status
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_topics_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    known = MetadataResponse.MetadataResponseTopic
    topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    part = topic.DescribeTopicPartitionsResponsePartition
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    moving = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    parts = [
        part(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2], eligible_leader_replicas=[]),
        part(partition_index=1, leader_id=7, replica_nodes=[7, 1], isr_nodes=[7]),
    ]
    entries = [
        entry(name="retention.ms", value="5", config_source=1),
        entry(name="min.insync.replicas", value="1", config_source=5),
    ]
    moves = [moving.OngoingPartitionReassignment(partition_index=0, replicas=[1, 2], adding_replicas=[2])]
    broker.scripts |= {
        MetadataRequest: lambda _: MetadataResponse(topics=[known(name="t")]),
        DescribeTopicPartitionsRequest: lambda _: DescribeTopicPartitionsResponse(
            topics=[topic(name="t", topic_id=Uuid(b"\1" * 16), partitions=parts)]
        ),
        DescribeConfigsRequest: lambda _: DescribeConfigsResponse(
            results=[result(resource_type=2, resource_name="t", configs=entries)]
        ),
        ListPartitionReassignmentsRequest: lambda _: ListPartitionReassignmentsResponse(
            topics=[moving(name="t", partitions=moves)]
        ),
    }
    first: dict[str, object] = {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1, 2]}
    first |= {"adding": [2], "removing": [], "elr": [], "lastKnownElr": None}
    second: dict[str, object] = {"partition": 1, "leader": None, "replicas": [7, 1], "isr": [7]}
    second |= {"adding": [], "removing": [], "elr": None, "lastKnownElr": None}
    found: dict[str, object] = {"topic": "t", "topicId": "AQEBAQEBAQEBAQEBAQEBAQ", "partitionCount": 2}
    found |= {"replicationFactor": 1, "configs": {"retention.ms": "5"}}
    assert said_as_json(capsys, "topics", "--list") == {"topics": ["t"]}
    describe = ("topics", "--describe")
    assert said_as_json(capsys, *describe) == {"topics": [{**found, "partitions": [first, second]}]}
    only = {"topics": [{**found, "partitions": [second]}]}
    assert said_as_json(capsys, *describe, "--unavailable-partitions") == only
    assert said_as_json(capsys, *describe, "--topics-with-overrides") == {"topics": [{**found, "partitions": []}]}
    entries.pop(0)
    assert said_as_json(capsys, *describe, "--topics-with-overrides") == {"topics": []}
    assert main(["topics", *WHERE, "--delete", "--topic", "t", "--output", "json"]) == 1
    assert 'Option "[output]" can\'t be used with option "[delete]"' in capsys.readouterr().err


def test_configs_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    synonym = entry.DescribeConfigsSynonym(name="log.cleaner.threads", value="2", source=3)
    given = entry(name="log.cleaner.threads", value="2", config_source=3, synonyms=[synonym])
    secret = entry(name="ssl.key.password", value=None, is_sensitive=True, read_only=True, config_source=4)
    broker.scripts[DescribeConfigsRequest] = lambda request: DescribeConfigsResponse(
        results=[result(resource_type=4, resource_name=request.resources[0].resource_name, configs=[secret, given])]
    )
    told: dict[str, object] = {"name": "log.cleaner.threads", "value": "2", "sensitive": False, "readOnly": False}
    source = {"source": "DYNAMIC_DEFAULT_BROKER_CONFIG"}
    told |= {**source, "synonyms": [{"name": "log.cleaner.threads", "value": "2", **source}]}
    hidden: dict[str, object] = {"name": "ssl.key.password", "value": None, "sensitive": True, "readOnly": True}
    hidden |= {"source": "STATIC_BROKER_CONFIG", "synonyms": []}
    describe = ("configs", "--describe")
    assert said_as_json(capsys, *describe, "--entity-type", "brokers") == {
        "configs": [
            {"type": "brokers", "name": "1", "entries": []},
            {"type": "brokers", "name": None, "entries": [told]},
        ]
    }
    assert said_as_json(capsys, *describe, "--broker", "1", "--all") == {
        "configs": [{"type": "brokers", "name": "1", "entries": [told, hidden]}]
    }
    assert said_as_json(capsys, *describe, "--broker", "2") == {"configs": []}
    assert main(["configs", *WHERE, "--alter", "--broker", "1", "--add-config", "a=1", "--output", "json"]) == 1
    assert 'Option "[output]" can\'t be used with option "[alter]"' in capsys.readouterr().err


def test_quotas_and_credentials_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    entry = DescribeClientQuotasResponse.EntryData
    quota = entry(
        entity=[entry.EntityData(entity_type="user", entity_name=None)],
        values=[entry.ValueData(key="producer_byte_rate", value=5.0)],
    )
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    broker.scripts |= {
        DescribeClientQuotasRequest: lambda _: DescribeClientQuotasResponse(entries=[quota]),
        DescribeUserScramCredentialsRequest: lambda _: DescribeUserScramCredentialsResponse(
            results=[
                result(user="alice", credential_infos=[result.CredentialInfo(mechanism=2, iterations=8192)]),
                result(user="bob", error_code=91, error_message="nothing"),
                result(user="eve", error_code=92, error_message="twice"),
            ]
        ),
    }
    quotas = [{"entity": {"user": None}, "values": {"producer_byte_rate": 5.0}}]
    assert said_as_json(capsys, "configs", "--describe", "--entity-type", "users") == {
        "quotas": quotas,
        "credentials": [{"user": "alice", "mechanisms": {"SCRAM-SHA-512": 8192}}],
        "failed": [{"user": "eve", "error": "DUPLICATE_RESOURCE", "message": "twice"}],
    }
    assert said_as_json(capsys, "configs", "--describe", "--user-defaults") == {"quotas": quotas}


def test_acls_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    resource = DescribeAclsResponse.DescribeAclsResource
    acl = resource.AclDescription
    entries = [
        acl(principal="User:eve", host="*", operation=4, permission_type=2),
        acl(principal="User:alice", host="10.0.0.1", operation=99, permission_type=3),
    ]
    broker.scripts[DescribeAclsRequest] = lambda _: DescribeAclsResponse(
        resources=[resource(resource_type=2, resource_name="t", pattern_type=4, acls=entries)]
    )
    where = {"resourceType": "TOPIC", "name": "t", "patternType": "PREFIXED"}
    alice = {**where, "principal": "User:alice", "host": "10.0.0.1", "operation": "UNKNOWN", "permissionType": "ALLOW"}
    eve = {**where, "principal": "User:eve", "host": "*", "operation": "WRITE", "permissionType": "DENY"}
    assert said_as_json(capsys, "acls", "--list") == {"acls": [alice, eve]}
    assert said_as_json(capsys, "acls", "--list", "--principal", "User:eve") == {"acls": [eve]}
    assert said_as_json(capsys, "acls", "--list", "--principal", "User:bob") == {"acls": []}
    assert main(["acls", *WHERE, "--remove", "--topic", "t", "--force", "--output", "json"]) == 1
    assert 'Option "[output]" can\'t be used with option "[remove]"' in capsys.readouterr().err


def test_elections_as_json(broker: ScriptedNode, capsys: pytest.CaptureFixture[str]) -> None:
    result = ElectLeadersResponse.ReplicaElectionResult
    part = result.PartitionResult
    parts = [part(partition_id=0), part(partition_id=2, error_code=84, error_message="it leads")]
    broker.scripts[ElectLeadersRequest] = lambda _: ElectLeadersResponse(
        replica_election_results=[result(topic="t", partition_result=parts)]
    )
    arguments = ("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    wanted: dict[str, object] = {"electionType": "PREFERRED", "elected": [{"topic": "t", "partition": 0}]}
    wanted |= {"notNeeded": [{"topic": "t", "partition": 2}]}
    assert said_as_json(capsys, *arguments) == {**wanted, "failed": []}
    parts.append(part(partition_id=1, error_code=80, error_message="it is away"))
    failed = [{"topic": "t", "partition": 1, "error": "PREFERRED_LEADER_NOT_AVAILABLE", "message": "it is away"}]
    assert said_as_json(capsys, *arguments, status=1) == {**wanted, "failed": failed}

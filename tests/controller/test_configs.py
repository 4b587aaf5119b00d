"""Configurations, what no recording shows: authorization, forwarded requests, limits, what Kafka fails at."""

from __future__ import annotations

import pytest
from controller_stage import ControllerStage, FakeBroker

from kraftcore.configdef.types import show
from kraftcore.plugins.controller import configs, describe_configs
from kraftcore.plugins.controller.caller import Caller
from kraftcore.plugins.controller.decision import MAX_RECORDS, Context, Refusal
from kraftcore.plugins.controller.hash_order import in_hash_order
from kraftcore.plugins.controller.topic_configs import MAX_VALUE_BYTES, created_configs, validate_topic_configs
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Resource:
    alterable = [
        Resource.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    ]
    return Resource(resource_type=kind, resource_name=name, configs=alterable)


def request(*resources: Resource, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


@pytest.fixture
def stage() -> ControllerStage:
    """Broker 1, topic t."""
    stage = ControllerStage()
    stage.up(FakeBroker(1))
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert stage.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000)).answer.topics[0].error_code == 0
    return stage


def answers(step_or_decision) -> list[tuple[str, str | None]]:
    answer = step_or_decision.answer
    return [(ErrorCode.of(each.error_code).name, each.error_message) for each in answer.responses]


@pytest.mark.parametrize(
    "change",
    [
        ("cleanup.policy", APPEND, None),
        ("cleanup.policy", SUBTRACT, None),
        ("retention.ms", 9, "1"),
        ("retention.ms", -1, "1"),
    ],
)
def test_what_kafkas_controller_fails_at_is_refused(stage, change):
    """Kafka's controller resigns, too."""
    step = stage.ask(request(resource(TOPIC, "t", change), resource(TOPIC, "t2", ("a", SET, "b"))))
    assert answers(step) == [("UNKNOWN_SERVER_ERROR", None)] * 2
    assert step.records == []


def test_values_that_no_record_holds(stage):
    name = "follower.replication.throttled.replicas"
    long = ",".join(["1:1"] * (MAX_VALUE_BYTES // 4))
    assert answers(stage.ask(request(resource(TOPIC, "t", (name, SET, long))))) == [("NONE", None)]
    too_long = (
        "INVALID_CONFIG",
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
    )
    for kind, whose in ((TOPIC, "t"), (BROKER, "1")):
        key = name if kind == TOPIC else "log.cleanup.policy"
        stage.ask(request(resource(kind, whose, (key, SET, long))))
        step = stage.ask(request(resource(kind, whose, (key, APPEND, "2:22"))))
        assert answers(step) == [too_long]
        assert step.records == []
    context = stage.context()
    with pytest.raises(Refusal) as refused:
        validate_topic_configs(context, {name: "é" * MAX_VALUE_BYTES})
    assert (refused.value.code, refused.value.text) == (ErrorCode.INVALID_CONFIG, too_long[1])


def test_one_request_writes_so_many_records_at_most(stage):
    changes = [(f"key.{number}", SET, "1") for number in range(MAX_RECORDS)]
    assert len(configs.alter_incrementally(stage.context(), request(resource(BROKER, "1", *changes)), 1).records) == (
        MAX_RECORDS
    )
    step = stage.ask(request(resource(BROKER, "1", *changes, ("one.more", SET, "1"))))
    assert answers(step) == [("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")]
    assert step.records == []


@pytest.mark.parametrize(
    ("kind", "name", "needed", "error"),
    [
        (TOPIC, "t", (ResourceType.TOPIC, "t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (BROKER, "1", (ResourceType.CLUSTER, "kafka-cluster"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (METRICS, "s", (ResourceType.CLUSTER, "kafka-cluster"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (GROUP, "g", (ResourceType.GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (LOGGER, "0", (ResourceType.CLUSTER, "kafka-cluster"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_what_each_resource_needs(stage, kind, name, needed, error):
    asked: list[Action] = []

    def nothing(permission: Action) -> bool:
        asked.append(permission)
        return False

    context = stage.context()
    context.is_allowed = nothing
    key = {GROUP: "share.isolation.level", METRICS: "metrics"}.get(kind, "retention.ms")
    decision = configs.alter_incrementally(context, request(resource(kind, name, (key, SET, "x"))), 1)
    assert answers(decision) == [(error.name, error.message)]
    assert decision.records == []
    change = Operation.CLUSTER_ACTION if kind == LOGGER else Operation.ALTER_CONFIGS
    assert asked == [Action(change, *needed)]
    asked.clear()
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    described = describe_configs.describe(context, DescribeConfigsRequest(resources=[wanted]), 4).answer
    assert (described.results[0].error_code, described.results[0].configs) == (error, [])
    assert asked == [Action(Operation.DESCRIBE_CONFIGS, *needed)]


def test_cordoned_directories_of_a_broker(stage):
    """A broker that forwards has checked them; others may only take directories off the list."""

    def change(value: str | None, *, forwarded: bool = False) -> list[tuple[str, str | None]]:
        context: Context = stage.context()
        context.caller = Caller(is_forwarded=forwarded)
        decision = configs.alter_incrementally(
            context, request(resource(BROKER, "1", ("cordoned.log.dirs", SET, value))), 1
        )
        stage.carry_out(decision)
        return answers(decision)

    subset = (
        "INVALID_CONFIG",
        "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current "
        "configuration value.",
    )
    assert change("/a") == [subset]
    assert change("/a,/b , /c", forwarded=True) == [("NONE", None)]
    assert change("/c,/a") == [("NONE", None)]
    assert change("/b") == [subset]
    assert change(" ") == change(None) == [("NONE", None)]

    old = ControllerStage(MetadataVersion.V4_2_IV1)
    old.up(FakeBroker(1))
    step = old.ask(request(resource(BROKER, "1", ("cordoned.log.dirs", DELETE, None))))
    text = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    assert answers(step) == [("INVALID_CONFIG", text)]


def test_min_insync_replicas_is_one_for_all_brokers_with_eligible_leader_replicas(stage):
    own = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    removed = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    key = "min.insync.replicas"
    assert answers(stage.ask(request(resource(BROKER, "1", (key, SET, "2"))))) == [("INVALID_CONFIG", own)]
    assert answers(stage.ask(request(resource(BROKER, "", (key, DELETE, None))))) == [("INVALID_CONFIG", removed)]
    step = stage.ask(request(resource(BROKER, "", (key, SET, "2"))))
    assert [type(record).__name__ for record, _ in step.records] == ["ConfigRecord", "ClearElrRecord"]
    assert step.records[1][0].topic_name == ""

    without = ControllerStage(elr=0)
    without.up(FakeBroker(1))
    for name in ("1", ""):
        step = without.ask(request(resource(BROKER, name, (key, SET, "2"))))
        assert [type(record).__name__ for record, _ in step.records] == ["ConfigRecord"]


def test_validating_writes_nothing(stage):
    wanted = request(resource(TOPIC, "t", ("retention.ms", SET, "9")), validate_only=True)
    step = stage.ask(wanted)
    assert (answers(step), step.records) == ([("NONE", None)], [])
    legacy = AlterConfigsRequest.AlterConfigsResource
    change = legacy(resource_type=TOPIC, resource_name="t", configs=[legacy.AlterableConfig(name="a", value="b")])
    step = stage.ask(AlterConfigsRequest(resources=[change], validate_only=True))
    assert answers(step) == [("INVALID_CONFIG", "Unknown topic config name: a")]


def test_controllers_are_nodes_with_configurations(stage):
    """A static voter counts before it has registered."""
    wanted = request(resource(BROKER, "8", ("num.io.threads", SET, "2")))
    assert answers(stage.ask(wanted)) == [("BROKER_ID_NOT_REGISTERED", "No node with id 8 found.")]
    static = ControllerStage(static_voters=frozenset({8, 9}))
    assert answers(static.ask(wanted)) == [("NONE", None)]


def test_defaults_follow_what_is_configured():
    """What CreateTopics answers changes with the configuration of brokers, and of this server alone."""
    stage = ControllerStage(node_id=7, static_configs={"log.retention.hours": "1"})

    def found() -> dict[str, tuple[str | None, int]]:
        return {each.name: (each.value, each.config_source) for each in created_configs(stage.context(), {})}

    def put(broker: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=BROKER, resource_name=broker, name="log.retention.ms", value=value)
        stage.apply((record, 0))

    assert found()["retention.ms"] == ("3600000", 4)
    put("", "5")
    assert found()["retention.ms"] == ("5", 3)
    put("7", "6")
    put("8", "9")
    assert found()["retention.ms"] == ("6", 2)
    put("7", None)
    put("", None)
    assert found()["retention.ms"] == ("3600000", 4)
    own = created_configs(stage.context(), {"retention.ms": "8", "internal.segment.bytes": "9"})
    assert {each.name: (each.value, each.config_source) for each in own}["internal.segment.bytes"] == ("9", 1)
    assert [each.name for each in own] == sorted(each.name for each in own)
    assert len(own) == len(found()) + 1


def test_the_order_of_javas_hash_tables():
    """As a JVM printed the keys of a HashMap that had grown twice."""
    printed = """
    168 245 70 147 224 91 189 266 126 203 105 35 182 56 161 77 98 140 14 133 210 112 42 238 63 217 84 0 259 21 28 175
    252 49 154 231 7 196 273 119
    """
    names = [f"é{number}" for number in range(0, 280, 7)]
    assert in_hash_order([*names, *names]) == [f"é{number}" for number in printed.split()]


def test_one_resource_is_described_a_few_times_at_most(stage, monkeypatch):
    """Five bytes of a request ask for 300 keys of the server, under any spelling of its number."""
    shown = []
    monkeypatch.setattr(describe_configs, "show", lambda value: shown.append(value) or show(value))
    kind = DescribeConfigsRequest.DescribeConfigsResource

    def described(*names):
        shown.clear()
        asked = [
            kind(resource_type=BROKER, resource_name=name, configuration_keys=["log.dirs"] * 2 if name == "00" else [])
            for name in names
        ]
        return stage.ask(DescribeConfigsRequest(resources=asked, include_synonyms=True)).answer.results

    described("0")
    once = len(shown)
    names = ["0", "00", "+0", "-0", *["000"] * 200]
    results = described(*names)
    assert len(shown) == once > 0
    assert [each.resource_name for each in results] == names
    assert len(results[0].configs) > 200
    assert results[0].configs == results[2].configs == results[3].configs
    assert [each.name for each in results[1].configs] == ["log.dirs"]
    assert {(each.error_code, len(each.configs)) for each in results[4:]} == {(ErrorCode.INVALID_REQUEST, 0)}


@pytest.mark.parametrize(
    ("present", "operation", "operand", "wanted"),
    [
        ("a,b", APPEND, "c,a,c,d", "a,b,c,d"),
        ("a,b,a,c", SUBTRACT, "a", "b,a,c"),
        ("a,b,a,c,a", SUBTRACT, "a,x,a", "b,c,a"),
    ],
)
def test_lists_are_edited(stage, present, operation, operand, wanted):
    for change in (SET, present), (operation, operand):
        (record, _), *_ = stage.ask(request(resource(BROKER, "1", ("metric.reporters", *change)))).records
    assert record.value == wanted


def test_editing_a_list_takes_one_pass(stage):
    """Elements are compared by hash: so many would else be compared with each other."""
    compared = 0

    class Element(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    class Operand(str):
        __slots__ = ()

        def split(self, *more):
            return [Element(part) for part in str.split(self, *more)]

    many = ",".join(map(str, range(2_000)))
    decide = configs.APIS[IncrementalAlterConfigsRequest].decide
    stage.ask(request(resource(BROKER, "1", ("metric.reporters", SET, "x"))))
    added = decide(stage.context(), request(resource(BROKER, "1", ("metric.reporters", APPEND, Operand(many)))), 1)
    assert added.records[0][0].value == f"x,{many}"
    stage.ask(request(resource(BROKER, "1", ("metric.reporters", SET, many))))
    left = decide(stage.context(), request(resource(BROKER, "1", ("metric.reporters", SUBTRACT, Operand(many)))), 1)
    assert left.records[0][0].value == ""
    assert compared < 20_000

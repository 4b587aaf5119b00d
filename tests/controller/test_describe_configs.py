"""DescribeConfigs of many: what resources inherit is made once, and each is told what it would be told alone."""

from __future__ import annotations

import pytest
from controller_stage import ControllerStage, FakeBroker

from kraftcore.plugins.controller.describe_configs import INVENTED_MAX, describe, meaning
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OWN = {TOPIC: ("retention.ms", "5000"), GROUP: ("consumer.session.timeout.ms", "46000")}


@pytest.fixture(scope="module")
def stage():
    """Topics and groups a, b, c, of which b sets something itself."""
    stage = ControllerStage()
    stage.up(FakeBroker(1))
    kind = CreateTopicsRequest.CreatableTopic
    topics = [kind(name=name, num_partitions=1, replication_factor=1) for name in "abc"]
    assert stage.ask(CreateTopicsRequest(topics=topics)).error is None
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        kind(resource_type=each, resource_name="b", configs=[kind.AlterableConfig(name=key, value=value)])
        for each, (key, value) in OWN.items()
    ]
    assert stage.ask(IncrementalAlterConfigsRequest(resources=resources)).error is None
    return stage


def told(stage, kind, *names, **more):
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    answer = describe(stage.context(), DescribeConfigsRequest(resources=asked, **more), 4).answer
    assert not any(each.error_code for each in answer.results)
    return [each.configs for each in answer.results]


@pytest.mark.parametrize("unknown", [0, 1, 3, -1])
def test_a_type_that_nobody_knows_refuses_all_that_is_asked(stage, unknown):
    """As Kafka 4.3.1, whose ConfigHelper throws at the first such resource, whatever stands before it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=kind, resource_name="a", configuration_keys=None) for kind in (TOPIC, unknown)]
    results = stage.ask(DescribeConfigsRequest(resources=asked)).answer.results
    assert [(each.resource_type, each.resource_name) for each in results] == [(TOPIC, "a"), (unknown, "a")]
    for each in results:
        assert (each.error_code, each.configs) == (ErrorCode.INVALID_REQUEST, [])
        assert each.error_message == ErrorCode.INVALID_REQUEST.message


def test_groups_and_subscriptions_that_somebody_thinks_up_are_described_so_often(stage):
    """Else some megabytes of names would have gigabytes for an answer."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    names = [f"g{number}" for number in range(INVENTED_MAX)]
    asked = [resource(resource_type=GROUP, resource_name=name, configuration_keys=None) for name in [*names, "c", "b"]]
    asked.append(resource(resource_type=CLIENT_METRICS, resource_name="m", configuration_keys=None))
    answer = describe(stage.context(), DescribeConfigsRequest(resources=asked), 4).answer
    *good, group, known, subscription = answer.results
    assert {each.error_code for each in good} == {ErrorCode.NONE}
    assert known.error_code == ErrorCode.NONE  # something is set of it
    for each in (group, subscription):
        assert (each.error_code, each.configs) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("kind", [TOPIC, GROUP])
@pytest.mark.parametrize("with_synonyms", [False, True])
def test_what_is_inherited_is_made_once(stage, kind, with_synonyms):
    found = told(stage, kind, *"abc", include_synonyms=with_synonyms)
    for name, entries in zip("abc", found, strict=True):
        assert [entries] == told(stage, kind, name, include_synonyms=with_synonyms)
    key, value = OWN[kind]
    for first, second, third in zip(*found, strict=True):
        assert first is third
        assert (first is second) == (first.name != key)
    assert [each.value for each in found[1] if each.name == key] == [value]


def server(stage, changes=None):
    """What a server tells of itself, by key: value, whether it is a default, and where else it stands."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [kind.AlterableConfig(name=key, value=value) for key, value in (changes or {}).items()]
    if configs:
        resource = kind(resource_type=BROKER, resource_name="1", configs=configs)
        assert stage.ask(IncrementalAlterConfigsRequest(resources=[resource])).error is None
    (entries,) = told(stage, BROKER, "1", include_synonyms=True)
    return {entry.name: (entry.value, [(each.name, each.value) for each in entry.synonyms]) for entry in entries}


@pytest.mark.parametrize("given", ["node.id", "broker.id"])
def test_a_servers_two_ids_stand_for_each_other(given):
    stage = ControllerStage(node_id=1, static_configs={given: "1"})
    found = server(stage)
    assert found["node.id"] == ("1", [("node.id", "1")])
    assert found["broker.id"] == ("1", [("broker.id", "1"), ("broker.id", "-1")])


def test_quotas_and_listeners_have_no_defaults_of_their_own():
    stage = ControllerStage(node_id=1, static_configs={"node.id": "1"})
    stage.up(FakeBroker(1))
    changes = {"leader.replication.throttled.rate": "5", "listener.name.a.max.connections": "6"}
    found = server(stage, changes)
    assert found["leader.replication.throttled.rate"] == ("5", [("leader.replication.throttled.rate", "5")])
    name = "listener.name.a.max.connections"
    assert found[name] == ("6", [(name, "6"), ("max.connections", "2147483647")])


@pytest.mark.parametrize(
    ("kind", "name", "key", "text"),
    [
        (TOPIC, "b", "retention.ms", "Age in milliseconds above which segments are deleted; -1 keeps them for ever."),
        (GROUP, "a", "share.delivery.count.limit", "How often this share group delivers a record at most."),
        (CLIENT_METRICS, "m", "interval.ms", "Time in milliseconds between two pushes of a client's metrics."),
        (BROKER, None, "num.partitions", "How many partitions a topic gets that names no number."),
    ],
)
def test_what_a_key_means_is_told_to_those_who_ask(stage, kind, name, key, text):
    """KIP-133 with KIP-569: from version 3 on a client may ask for documentation."""
    name = name or str(stage.context().settings.node_id)
    (entries,) = told(stage, kind, name, include_documentation=True)
    assert {each.name: each.documentation for each in entries}[key] == text
    assert all(each.documentation for each in entries)
    (entries,) = told(stage, kind, name)
    assert {each.documentation for each in entries} == {None}


def test_a_listeners_own_key_means_what_the_key_means():
    """And one that nobody knows means nothing."""
    assert meaning(BROKER, "listener.name.a.ssl.keystore.location") == "File of the key store."
    assert meaning(BROKER, "stray.key") is meaning(TOPIC, "stray.key") is None

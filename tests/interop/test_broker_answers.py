"""What a broker of ours answers to administrators' requests, beside a broker of Kafka 4.3.1 in the same cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asked_brokers import ask, ask_in_a_row, described
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.list_transactions import ListTransactionsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import ApiKey

THEIRS, OURS = 10, 11
BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
OF_EACH = {"listeners", "advertised.listeners", "log.dirs", "offsets.topic.replication.factor"}
NOT_OFFERED = {
    "transactions": {"DESCRIBE_TRANSACTIONS"},
    "groups of KIP-848 and KIP-1071": {
        "CONSUMER_GROUP_DESCRIBE",
        "STREAMS_GROUP_HEARTBEAT",
        "STREAMS_GROUP_DESCRIBE",
    },
    "share groups": {
        "SHARE_GROUP_HEARTBEAT",
        "SHARE_GROUP_DESCRIBE",
        "SHARE_FETCH",
        "SHARE_ACKNOWLEDGE",
        "DESCRIBE_SHARE_GROUP_OFFSETS",
        "ALTER_SHARE_GROUP_OFFSETS",
        "DELETE_SHARE_GROUP_OFFSETS",
        "INITIALIZE_SHARE_GROUP_STATE",
        "READ_SHARE_GROUP_STATE",
        "WRITE_SHARE_GROUP_STATE",
        "DELETE_SHARE_GROUP_STATE",
        "READ_SHARE_GROUP_STATE_SUMMARY",
    },
    "SASL, on a listener without it": {"SASL_HANDSHAKE", "SASL_AUTHENTICATE"},
}


@pytest.fixture(scope="module")
def brokers(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaNode, KafkaNode]]:
    """Kafka's and ours, which know the same topic and settings."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        lab.start_quorum([1])
        theirs = lab.broker(THEIRS).format().start()
        ours = lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT").format().start()
        both = (theirs.wait_listening(), ours.wait_listening())
        topic = CreateTopicsRequest.CreatableTopic
        placed = [
            topic.CreatableReplicaAssignment(partition_index=number, broker_ids=[broker_id])
            for number, broker_id in enumerate((THEIRS, OURS))
        ]
        made = topic(name="t", num_partitions=-1, replication_factor=-1, assignments=placed)
        request = CreateTopicsRequest(topics=[made], timeout_ms=30_000)
        wait_for("a topic", lambda: _codes(ask(ours, request, 7)) <= {0, 36})
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        changed = [
            kind(
                resource_type=resource_type,
                resource_name=name,
                configs=[kind.AlterableConfig(name=key, config_operation=0, value=value)],
            )
            for resource_type, name, key, value in (
                (CLIENT_METRICS, "m", "interval.ms", "1000"),
                (GROUP, "g", "consumer.session.timeout.ms", "50000"),
            )
        ]
        answer = ask(theirs, IncrementalAlterConfigsRequest(resources=changed), 1)
        assert [each.error_code for each in answer.responses] == [0, 0]
        for broker in both:
            wait_for(
                "both to lead",
                lambda broker=broker: {each[0] for each in described(broker, "t").values()} == {THEIRS, OURS},
            )
        yield both


def _codes(answer: Any) -> set[int]:
    return {-1} if isinstance(answer, Failure) else {each.error_code for each in answer.topics}


def _offered(broker: KafkaNode) -> dict[str, tuple[int, int]]:
    answer = ask(broker, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return {ApiKey(each.api_key).name: (each.min_version, each.max_version) for each in answer.api_keys}


def test_requests_and_versions_are_kafkas_but_for_those_that_are_left_out(brokers: tuple[KafkaNode, KafkaNode]) -> None:
    theirs, ours = map(_offered, brokers)
    assert set(theirs) - set(ours) == set().union(*NOT_OFFERED.values())
    assert {name: versions for name, versions in ours.items() if theirs.get(name) != versions} == {}


@pytest.mark.parametrize("version", [0, 9, 13])
def test_bytes_behind_a_request_are_not_looked_at(brokers: tuple[KafkaNode, KafkaNode], version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    told = [ask(broker, request, version, behind=b"\1\2\3") for broker in brokers]
    assert [len(each.topics[0].partitions) for each in told] == [2, 2]


@pytest.mark.parametrize(
    ("types", "version"), [((), 0), ((), 1), ((2,), 1), ((4, 8), 1), ((16, 32), 1), ((2, 99), 1), ((1,), 1)]
)
def test_what_may_have_a_configuration(
    brokers: tuple[KafkaNode, KafkaNode], types: tuple[int, ...], version: int
) -> None:
    request = ListConfigResourcesRequest(resource_types=list(types))

    def told(broker: KafkaNode) -> tuple[int, set[tuple[int, str]]]:
        answer = ask(broker, request, version)
        return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}

    theirs, ours = wait_for("both to know all", lambda: _equal(*map(told, brokers)))
    assert theirs == ours


def _equal(theirs: Any, ours: Any) -> Any:
    return (theirs, ours) if theirs == ours else None


def test_producers_transactions_and_tokens(brokers: tuple[KafkaNode, KafkaNode]) -> None:
    kind = DescribeProducersRequest.TopicRequest
    asked = [kind(name=name, partition_indexes=[0, 1, 2]) for name in ("t", "u", "a b")]
    theirs, ours = (ask(broker, DescribeProducersRequest(topics=asked), 0) for broker in brokers)
    codes = [[[each.error_code for each in topic.partitions] for topic in told.topics] for told in (theirs, ours)]
    texts = [[{each.error_message for each in topic.partitions} for topic in told.topics] for told in (theirs, ours)]
    first, second = codes[0][0][0], codes[0][0][1]
    assert codes[1][0][:2] == [second, first], "each leads the other one"
    assert codes[0][1:] == codes[1][1:]
    assert texts[0] == texts[1]
    for states in ([], ["Ongoing", "Nothing"]):
        told = [ask(broker, ListTransactionsRequest(state_filters=states), 2) for broker in brokers]
        assert told[0] == told[1]
    told = [ask(broker, DescribeDelegationTokenRequest(owners=None), 3) for broker in brokers]
    assert told[0] == told[1]


def test_topics_are_told_once(brokers: tuple[KafkaNode, KafkaNode]) -> None:
    """Whichever way they are asked for; who asks for any by its id is told of no other."""
    kind = MetadataRequest.MetadataRequestTopic

    def told(broker: KafkaNode, version: int, *asked: MetadataRequest.MetadataRequestTopic) -> Any:
        answer = ask(broker, MetadataRequest(topics=list(asked), allow_auto_topic_creation=False), version)
        if isinstance(answer, Failure):
            return answer
        return sorted(
            (each.name or "", str(each.topic_id), each.error_code, len(each.partitions)) for each in answer.topics
        )

    known = ask(brokers[0], MetadataRequest(topics=[kind(name="t")]), 12).topics[0].topic_id
    by_name = [kind(name=name) for name in ("t", "none", "t", "a b", "none", "a b")]
    by_id = [kind(name=None, topic_id=each) for each in (known, Uuid(b"x" * 16), known, Uuid(b"x" * 16))]
    cases: list[tuple[int, list[MetadataRequest.MetadataRequestTopic]]] = [
        *((version, by_name) for version in (4, 9, 12, 13)),
        (12, by_id),
        (13, [*by_id, *by_name]),
        (12, [kind(name="none", topic_id=known)]),
        (12, [kind(name=None), kind(name=None)]),
        (12, [kind(name="t"), kind(name=None)]),
    ]
    found = [[told(broker, version, *asked) for version, asked in cases] for broker in brokers]
    assert found[0] == found[1]


PATTERNS = (
    "",
    "t.*",
    "(",
    "a(?=b)",
    r"(a)\1",
    r"\z",
    r"\Z",
    r"\p{Greek}x",
    r"\p{Nothing}",
    "a{2,1}",
    "a{1001}",
    "(?P<n>a)",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_transactional_ids(brokers: tuple[KafkaNode, KafkaNode], pattern: str) -> None:
    request = ListTransactionsRequest(state_filters=["Nothing"], transactional_id_pattern=pattern)
    theirs, ours = (ask(broker, request, 2) for broker in brokers)
    assert theirs == ours


def test_what_is_asked_behind_deleting_records_is_asked_of_what_is_left(brokers: tuple[KafkaNode, KafkaNode]) -> None:
    data, delete, find = (
        ProduceRequest.TopicProduceData,
        DeleteRecordsRequest.DeleteRecordsTopic,
        ListOffsetsRequest.ListOffsetsTopic,
    )
    for broker in brokers:
        leaders = {leader: number for number, (leader, _) in described(broker, "t").items()}
        number = leaders[int(str(broker.properties["node.id"]))]
        records = build_batch([b"v"] * 10, timestamp_ms=1)
        part = data.PartitionProduceData(index=number, records=records)
        write = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name="t", partition_data=[part])])
        produced = ask(broker, write, 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        wanted = [delete.DeleteRecordsPartition(partition_index=number, offset=7)]
        deletion = DeleteRecordsRequest(topics=[delete(name="t", partitions=wanted)], timeout_ms=30_000)
        asked = [find.ListOffsetsPartition(partition_index=number, timestamp=-2)]
        question = ListOffsetsRequest(replica_id=-1, topics=[find(name="t", partitions=asked)])
        deleted, found = ask_in_a_row(broker, (deletion, 2), (question, 5))
        assert deleted.topics[0].partitions[0].low_watermark == 7
        assert found.topics[0].partitions[0].offset == 7


SET, DELETE, APPEND, SUBTRACT = range(4)
CHANGES = [
    ("log.retention.ms", SET, "rubbish"),
    ("log.retention.ms", SET, "0"),
    ("log.retention.ms", SET, "-7"),
    ("log.roll.ms", SET, "0"),
    ("log.roll.jitter.ms", SET, "-1"),
    ("log.retention.ms", SET, "5"),
    ("log.retention.ms", DELETE, None),
    ("log.retention.hours", SET, "5"),
    ("min.insync.replicas", SET, "0"),
    ("broker.id", SET, "7"),
    ("broker.id", DELETE, None),
    ("unknown.key", SET, "7"),
    ("max.connections.per.ip.overrides", SET, "rubbish"),
    ("max.connections.per.ip.overrides", SET, "127.0.0.1:x"),
    ("max.connections.per.ip.overrides", SET, "127.0.0.1:5"),
    ("ssl.keystore.location", SET, "/none"),
    ("listener.name.plaintext.max.connections", SET, "x"),
    ("listener.name.plaintext.max.connections", SET, "500"),
    ("leader.replication.throttled.rate", SET, "-1"),
    ("log.retention.ms", APPEND, "5"),
    ("log.retention.ms", SUBTRACT, "5"),
    ("unknown.key", APPEND, "5"),
    ("listener.name.plaintext.ssl.cipher.suites", APPEND, "5"),
    ("leader.replication.throttled.rate", APPEND, "5"),
    ("metric.reporters", SUBTRACT, "5"),
    ("log.cleanup.policy", APPEND, "rubbish"),
    ("log.cleanup.policy", APPEND, "compact"),
    ("log.cleanup.policy", SUBTRACT, "rubbish"),
]


@pytest.mark.parametrize("of_one", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_broker_may_have_set(
    brokers: tuple[KafkaNode, KafkaNode], change: tuple[str, int, str | None], of_one: bool
) -> None:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    key, operation, value = change
    found = []
    for broker in brokers:
        name = str(broker.properties["node.id"]) if of_one else ""
        config = kind.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = kind(resource_type=BROKER, resource_name=name, configs=[config])
        answer = ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
        found.append([(each.error_code, each.error_message) for each in answer.responses])
    assert found[1] == found[0]


def test_what_a_broker_tells_of_itself(brokers: tuple[KafkaNode, KafkaNode]) -> None:
    """Also of what is set for it, of quotas and for a listener."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = {"leader.replication.throttled.rate": "5", "listener.name.plaintext.max.connections": "500"}
    found = []
    for broker in brokers:
        name = str(broker.properties["node.id"])
        configs = [kind.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in changes.items()]
        resource = kind(resource_type=BROKER, resource_name=name, configs=configs)
        assert ask(broker, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)

        def told(broker: KafkaNode = broker, request: DescribeConfigsRequest = request) -> Any:
            entries = ask(broker, request, 4).results[0].configs
            known = {each.name: (each.value, each.config_source, each.read_only, synonyms_of(each)) for each in entries}
            return known if set(changes) <= set(known) else None

        own = wait_for("what is set", told)
        for key in ("node.id", "broker.id"):
            own[key] = str(own[key]).replace(f"'{name}'", "'ID'")
        found.append({key: said for key, said in own.items() if key not in OF_EACH})
    assert found[1] == found[0]


def synonyms_of(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]

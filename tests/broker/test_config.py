"""A broker's properties: Kafka's names, and what is refused with its place."""

from __future__ import annotations

import pytest

from kraftcore.config.errors import ConfigError
from kraftcore.plugins.broker import BrokerConfig
from kraftcore.raft.quorum import Endpoint

FILE = """\
partition.control=requests
broker.id=7
listeners=BROKER://127.0.0.1:9092,CLIENT://:9192
listener.security.protocol.map=BROKER:PLAINTEXT,CLIENT:PLAINTEXT
inter.broker.listener.name=BROKER
log.dirs=/a, /b
min.insync.replicas=2
num.io.threads=4
"""


@pytest.fixture
def read(tmp_path):
    def read(text=FILE, **properties):
        path = tmp_path / "b.properties"
        path.write_text(text)
        return BrokerConfig.from_properties(str(path), {k.replace("_", "."): v for k, v in properties.items()})

    return read


def test_what_a_file_says(read):
    config = read(message_max_bytes="1000")
    assert (config.node_id, config.directories, config.broker_listener) == (7, ("/a", "/b"), "BROKER")
    assert config.listeners == (Endpoint("BROKER", "127.0.0.1", 9092), Endpoint("CLIENT", "", 9192))
    assert (config.min_insync_replicas, config.message_max_bytes, config.ignored) == (2, 1000, ("num.io.threads",))
    assert config.replica_lag_time_max_ms == 30_000
    assert read(log_dirs="/a/,/b//c, /a").directories == ("/a", "/b/c")


PROTOCOLS = """\
partition.control=requests
broker.id=7
listeners=CLIENT://127.0.0.1:9192,PLAINTEXT://127.0.0.1:9092
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT
log.dirs=/a
"""


@pytest.mark.parametrize(
    ("text", "properties", "name"),
    [
        (PROTOCOLS, {}, "PLAINTEXT"),
        (PROTOCOLS.replace("PLAINTEXT://", "OTHER://").replace("PLAINTEXT:", "OTHER:"), {}, "CLIENT"),
        (PROTOCOLS, {"security.inter.broker.protocol": "PLAINTEXT"}, "PLAINTEXT"),
        (PROTOCOLS, {"inter.broker.listener.name": "client"}, "CLIENT"),
    ],
)
def test_where_brokers_meet(read, text, properties, name):
    assert read(text, **properties).broker_listener == name


def test_what_clients_may_do_and_how_often_logs_are_synced(read):
    config = read()
    assert (config.is_rack_aware, config.auto_create_topics, config.flush_check_ms) == (False, True, config.flush_ms)
    more = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.create.topics.enable": "false",
        "log.flush.scheduler.interval.ms": "50",
    }
    config = read(**more)
    assert (config.is_rack_aware, config.auto_create_topics) == (True, False)
    assert (config.flush_check_ms, config.flush_ms) == (50, 50)
    assert read(**more, log_flush_interval_ms="70").flush_ms == 70
    never = 2**63 - 1  # Kafka's default, written out
    config = read(**dict.fromkeys(("log_flush_scheduler_interval_ms", "log_flush_interval_messages"), str(never)))
    assert (config.flush_check_ms, config.flush_ms, config.flush_messages) == (never, never, read().flush_messages)
    assert read(log_flush_interval_messages="1").flush_messages == 1


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"partition.control": "zookeeper"}, "partition.control is 'zookeeper': it must be requests"),
        ({"process.roles": "broker"}, "process.roles does not go with"),
        ({"node.id": "8"}, "node.id is 8, broker.id 7"),
        ({"broker.id": "x"}, "must be a whole number"),
        ({"listeners": "BROKER://h:1,BROKER://h:2"}, "two listeners have one name"),
        ({"listeners": "PLAINTEXT://h"}, "is no address"),
        ({"listeners": ""}, "listeners is missing"),
        ({"log.dirs": ""}, "log.dirs is missing"),
        ({"log.dirs": "/a,,/b"}, "log.dirs is '/a,,/b': an entry is empty"),
        ({"listener.security.protocol.map": "BROKER:SSL,CLIENT:PLAINTEXT"}, "listener BROKER has SSL"),
        ({"inter.broker.listener.name": "OTHER"}, "inter_broker_listener is OTHER"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "both name the listener between brokers: set one"),
        ({"advertised.listeners": "CLIENT://0.0.0.0:1"}, "give a listener's name and an address"),
        ({"min.insync.replicas": "0"}, "must be between 1 and"),
        ({"log.message.timestamp.type": "Yesterday"}, "Invalid value Yesterday .* CreateTime, LogAppendTime"),
        ({"log.cleanup.policy": "compact"}, "has delete alone"),
        ({"compression.type": "rar"}, "Invalid value rar"),
        ({"authorizer.class.name": "x"}, "asks no authorizer"),
        ({"replica.selector.class": "x"}, "has org.apache.kafka.common.replica.RackAwareReplicaSelector alone"),
        ({"auto.create.topics.enable": "perhaps"}, "auto.create.topics.enable"),
        ({"min.insync.replica": "2"}, "is no property of a broker"),
    ],
)
def test_what_is_refused(read, properties, words):
    with pytest.raises(ConfigError, match=words):
        read(**properties)


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_retention_of_no_time_is_refused_as_by_kafka(read, name):
    with pytest.raises(ConfigError, match=f"{name} is 0: it must be -1, for ever, or at least 1"):
        read(**{name: "0"})
    assert read(**{name: "-5"}).retention_ms == -1


def test_numbers_by_which_operators_say_never(read):
    names = ("log.retention.ms", "log.retention.bytes", "log.roll.ms", "replica.lag.time.max.ms")
    config = read(**dict.fromkeys(names, str(2**63 - 1)))
    assert {config.retention_ms, config.retention_bytes, config.segment_ms, config.replica_lag_time_max_ms} == {2**62}


def test_the_place_is_named(read):
    with pytest.raises(ConfigError, match=r"b\.properties:7: min\.insync\.replicas"):
        read(FILE.replace("replicas=2", "replicas=two"))


def test_a_broker_is_made_of_what_its_fields_say_and_shown_in_a_line():
    given = {"node_id": 1, "listeners": [Endpoint("B", "h", 9092)], "directories": ("/d",)}
    config = BrokerConfig(**given, static_configs={"sasl.jaas.config": "secret"}, num_partitions=3)
    assert config.listeners == (Endpoint("B", "h", 9092),)
    assert repr(config) == "BrokerConfig(node_id=1, listeners=['B://h:9092'], directories=['/d'], num_partitions=3)"
    for wrong, words in (
        ({"node_id": "1"}, "BrokerConfig.node_id is '1': it must be a whole number"),
        ({"directories": "/d"}, "it must be a list, with a text for each entry"),
        ({"auto_create_topics": 1}, "it must be true or false"),
        ({"static_configs": {"a": 1}}, "BrokerConfig.static_configs is a dict: it must be a dict, with a text by a"),
        ({"security": (None,)}, "it must be a tuple of a TlsConfig or None, an object or None"),
    ):
        with pytest.raises(ConfigError) as caught:
            BrokerConfig(**{**given, **wrong})
        assert words in str(caught.value)
        assert caught.value.settings == tuple(wrong)

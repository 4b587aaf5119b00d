"""A broker of Kafka and one of ours, to whom nobody speaks without a login or a certificate.

Brokers and clients log in with SCRAM over TLS; then the brokers, one after the other, go over to a listener on which
each shows the other a certificate (mTLS). Each allows only those who may, by entries that the controller keeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from asked_brokers import log_bytes
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_lab import HOST, KafkaLab, KafkaNode, KraftcoreNode, free_port, wait_for
from kafka_tools import KafkaTools
from pem_stores import Stores, make_stores
from project import ROOT

from kraftcore.core.batch import iter_batches

pytestmark = pytest.mark.deep

THEIRS, OURS = 10, 11
TOPIC, GROUP, EACH, PATIENCE_S = "t", "readers", 100, 120
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
MECHANISM = "SCRAM-SHA-512"
# Who comes to the controller, who to other brokers with a login, and who shows a certificate, are different people.
NODE, INNER, SHOWN, ADMIN, ALICE, BOB = "node", "inner", "shown", "admin", "alice", "bob"
QUICK = {
    "broker_heartbeat_interval_ms": 200,
    "replica_lag_time_max_ms": 5000,
    "log_initial_task_delay_ms": 200,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 2,
}


def login(user: str) -> str:
    return f'{MODULE} username="{user}" password="{user}-secret";'


def secured_properties(stores: Stores, **places: str) -> dict[str, object]:
    """What docs/broker.md says, with our files and ports."""
    page = (ROOT / "docs" / "broker.md").read_text()
    (block,) = re.findall(r"### With logins.*?```properties\n(.*?)```", page, re.DOTALL)
    lines = (line.partition("=") for line in block.splitlines() if not line.startswith("#"))
    found: dict[str, object] = {key: value for key, _, value in lines}
    assert found["listeners"] == "INNER://127.0.0.1:9092,MUTUAL://127.0.0.1:9192"
    return {**found, **stores.properties, **places}


class Secured:
    """A controller and two brokers."""

    def __init__(self, lab: KafkaLab, stores: Stores) -> None:
        self.lab = lab
        self.stores = stores
        self.brokers: list[KafkaNode] = []

    def start(self, controller: KafkaNode) -> None:
        lab = self.lab
        brokers_alone = ("listeners", "inter.broker.listener.name")
        given = secured_properties(self.stores).items()
        controller.properties |= {key: value for key, value in given if key not in brokers_alone}
        added = [f"{MECHANISM}=[name={user},password={user}-secret]" for user in (NODE, INNER, ADMIN, ALICE, BOB)]
        arguments = [part for each in added for part in ("--add-scram", each)]
        controller.write().format("--standalone", *arguments).start().wait_listening()
        lab.bootstrap = [controller.address]
        self.brokers = [
            lab.add(kind, number, "broker", "INNER", **QUICK)
            for kind, number in ((KafkaNode, THEIRS), (KraftcoreNode, OURS))
        ]
        for broker in self.brokers:
            where = f"INNER://{broker.address},MUTUAL://{HOST}:{free_port()}"
            broker.properties |= secured_properties(self.stores, **{"listeners": where, "advertised.listeners": where})
            broker.write().format().start()
        for broker in self.brokers:
            broker.wait_listening()

    def client(self, user: str) -> dict[str, object]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": ",".join(broker.address for broker in self.brokers),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
            "ssl.ca.location": self.stores.ca,
            "log_level": 0,
        }

    def tool(self, name: str, broker: KafkaNode, *arguments: object) -> int:
        """The exit status of one of Kafka's tools, run by the administrator."""
        config = self.lab.folder / "admin.properties"
        lines = {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, "sasl.jaas.config": login(ADMIN)}
        config.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **self.stores.trust}.items()))
        where = ("--bootstrap-server", broker.address, "--command-config", config)
        return self.lab.tool(name, *where, *arguments).status

    def allow(self, user: str, *arguments: object) -> None:
        """Add entries for a user."""
        entries = ("--add", "--allow-principal", f"User:{user}", *arguments)
        assert self.tool("acls", self.brokers[0], *entries) == 0

    def wait_in_sync(self) -> None:
        client = AdminClient(self.client(ADMIN))

        def is_in_sync() -> bool:
            found = client.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
            return len(found) == 2 and all(set(each.isrs) == {THEIRS, OURS} for each in found)

        wait_for("both to be in sync", is_in_sync, timeout_s=PATIENCE_S)

    def produce(self, user: str) -> list[KafkaError | None]:
        """What a user is told of records in both partitions, each led by another broker."""
        told: list[KafkaError | None] = []
        settings = {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": PATIENCE_S * 1000}
        producer = Producer({**self.client(user), **settings})
        for number in range(EACH):
            value = b"%d" % number
            producer.produce(TOPIC, value, partition=number % 2, on_delivery=lambda error, _: told.append(error))
        producer.flush(PATIENCE_S)
        return told

    def consumed(self, user: str, count: int) -> int:
        """How many records a user reads from the beginning."""
        consumer = Consumer({**self.client(user), "group.id": GROUP, "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(2)])
            read = consumer.consume(count, PATIENCE_S)
            assert not [each for each in read if each.error() is not None]
            return len(read)
        finally:
            consumer.close()

    def records(self) -> int:
        """How many both have, when their logs are equal byte for byte."""
        count = 0
        for number in range(2):
            wait_for(
                f"the logs of partition {number} to be equal",
                lambda number=number: len({log_bytes(each, f"{TOPIC}-{number}") for each in self.brokers}) == 1,
                timeout_s=PATIENCE_S,
            )
            log = log_bytes(self.brokers[0], f"{TOPIC}-{number}")
            count += sum(len(batch.values()) for batch in iter_batches(log))
        return count


@pytest.mark.parametrize("is_ours", [False, True], ids=["kafka", "kraftcore"])
def test_brokers_of_both_log_in_at_each_other_then_show_certificates(
    kafka: KafkaTools, tmp_path: Path, is_ours: bool
) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        secured = Secured(lab, make_stores(tmp_path, SHOWN))
        make: Callable[..., KafkaNode] = lab.kraftcore if is_ours else lab.controller
        replicating = ("--operation", "ClusterAction", "--cluster")
        secured.start(make(1, **({"kraftcore_offers_log": None} if is_ours else {})))
        theirs, ours = secured.brokers
        placed = ("--replica-assignment", f"{THEIRS}:{OURS},{OURS}:{THEIRS}", "--config", "min.insync.replicas=2")
        wait_for(
            "a topic on both",
            lambda: secured.tool("topics", ours, "--create", "--topic", TOPIC, *placed) == 0,
            timeout_s=PATIENCE_S,
        )
        secured.allow(INNER, *replicating)
        secured.allow(ALICE, "--producer", "--consumer", "--topic", TOPIC, "--group", GROUP)
        secured.wait_in_sync()
        assert isinstance(ours, KraftcoreNode)
        assert not ours.events("ignored")
        wait_for("Alice's entries", lambda: set(secured.produce(ALICE)) == {None}, timeout_s=PATIENCE_S)
        written = secured.records()
        assert {error and error.code() for error in secured.produce(BOB)} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        assert secured.consumed(ALICE, written) == written
        secured.allow(SHOWN, *replicating)
        for broker in secured.brokers:
            broker.stop()
            broker.write(inter_broker_listener_name="MUTUAL").start()
            secured.wait_in_sync()
        # Whoever logs in may replicate no more: the brokers are known by their certificates.
        forgotten = ("--remove", "--force", "--allow-principal", f"User:{INNER}", *replicating)
        assert secured.tool("acls", theirs, *forgotten) == 0
        assert set(secured.produce(ALICE)) == {None}
        assert secured.records() == written + EACH

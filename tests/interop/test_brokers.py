"""Unmodified Kafka brokers, clients and tools on kraftcore controllers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kafka_lab import KafkaLab, wait_for
from kafka_tools import KafkaTools

RECORDS = 20_000
PATIENCE_S = 240


def test_brokers_clients_and_a_group_while_the_active_controller_is_killed(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        plain = {"kraftcore_offers_log": None}
        controllers = {
            node.properties["node.id"]: node for node in lab.start_quorum([1, 2, 3], make=lab.kraftcore, **plain)
        }
        brokers = [lab.broker(number, default_replication_factor=3, min_insync_replicas=2) for number in (11, 12, 13)]
        for broker in brokers:
            broker.format().start()
        for broker in brokers:
            broker.wait_listening()
        at = ",".join(broker.address for broker in brokers)

        def topics(*arguments: object) -> str:
            done = lab.tool("topics", "--bootstrap-server", at, *arguments)
            assert done.status == 0, done
            return done.out

        def made() -> bool:
            create = ("--create", "--if-not-exists", "--topic", "work", "--partitions", 6, "--replication-factor", 3)
            return lab.tool("topics", "--bootstrap-server", at, *create).status == 0

        wait_for("three brokers to carry a topic", made)
        properties = ("bootstrap.servers=" + at, "acks=all", "enable.idempotence=true")
        perf = [*lab.java(), "org.apache.kafka.tools.ProducerPerformance", "--topic", "work", "--num-records", RECORDS]
        perf += ["--record-size", 100, "--throughput", 1500, "--producer-props", *properties]
        with (tmp_path / "perf.out").open("wb") as out:
            load = subprocess.Popen([*map(str, perf)], stdout=out, stderr=subprocess.STDOUT)
            try:
                for _ in range(2):
                    wait_for("records to flow", lambda: (tmp_path / "perf.out").stat().st_size > 0)
                    found = wait_for("a leader", lab.describe)
                    killed = controllers[found.leader_id]
                    killed.kill()
                    topics("--create", "--topic", f"after-{found.leader_id}-{found.leader_epoch}")
                    killed.start().wait_listening()
                assert load.wait(PATIENCE_S) == 0
            finally:
                load.kill()
                load.wait()
        assert f"{RECORDS} records sent" in (tmp_path / "perf.out").read_text()
        consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", "work")
        group = ("--group", "readers", "--from-beginning", "--max-messages", RECORDS, "--timeout-ms", 60_000)
        assert f"Processed a total of {RECORDS} messages" in lab.run_class(*consumer, *group, timeout_s=PATIENCE_S)
        wait_for("full ISRs", lambda: not topics("--describe", "--under-replicated-partitions").strip())
        topics("--delete", "--topic", "work")
        wait_for("the topic to go", lambda: "work" not in topics("--list").split())
        for node in (*controllers.values(), *brokers):
            assert node.process is not None
            assert node.process.poll() is None, node.last_words()

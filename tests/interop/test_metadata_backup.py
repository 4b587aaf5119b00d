"""A backup of Kafka's metadata: new controllers, Kafka's and ours, go on from it, with the brokers and without."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kafka_lab import OURS, KafkaLab, KafkaNode, new_uuid, wait_for
from kafka_tools import KafkaTools

BROKER = 10


def run(*arguments: object, status: int = 0) -> str:
    command = [*OURS, "metadata", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done
    return done.stdout


def differences(before: object, after: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("diff", before, after, "--output", "json", status=1).splitlines()]


def leaders(lab: KafkaLab, broker: KafkaNode) -> list[str]:
    done = lab.tool("topics", "--bootstrap-server", broker.address, "--describe", "--topic", "orders")
    return [part.split()[1] for part in done.out.split("\t") if part.startswith("Leader:")]


@pytest.mark.deep
def test_controllers_and_brokers_go_on_from_a_backup(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1])
        broker = lab.broker(BROKER).format().start().wait_listening()
        create = ["--create", "--topic", "orders", "--partitions", 3, "--replication-factor", 1]
        done = lab.tool("topics", "--bootstrap-server", broker.address, *create, "--config", "retention.ms=1000")
        assert done.status == 0, done
        backup = ["backup", "--bootstrap-controller", lab.controllers, "--directory", tmp_path / "backups"]
        found = json.loads(run(*backup, "--output", "json"))
        file = found["file"]
        assert found["clusterId"] == lab.cluster_id
        theirs = lab.nodes[1].folder  # of Kafka, in use
        at = f"{theirs}@{found['endOffset']}"
        assert "Nothing differs." in run("diff", at, file)
        told = run("diff", f"{theirs}@1", file, status=1)
        assert "topic orders is new" in told
        broker.stop()
        lab.nodes[1].stop()

        news = [lab.controller(2), lab.kraftcore(3)]
        voters = ",".join(f"{number}@{node.address}:{new_uuid()}" for number, node in enumerate(news, 2))
        lab.bootstrap = [node.address for node in news]
        for node in news:
            node.write(controller_quorum_bootstrap_servers=lab.controllers)
            run("restore", file, "--config", node.config, "--initial-controllers", voters)
            node.start()
        shutil.rmtree(broker.folder / "__cluster_metadata-0")
        broker.write(controller_quorum_bootstrap_servers=lab.controllers).start().wait_listening()
        wait_for("the partitions' leader", lambda: leaders(lab, broker) == [str(BROKER)] * 3)
        assert {each["kind"] for each in differences(file, lab.controllers)} <= {"broker", "controller", "partition"}
        for node in (broker, *news):
            node.stop()

        lab.cluster_id = new_uuid()
        alone = lab.controller(4)
        lab.bootstrap = [alone.address]
        given = ["--standalone", "--cluster-id", lab.cluster_id, "--without-brokers"]
        alone.write(controller_quorum_bootstrap_servers=lab.controllers)
        run("restore", file, "--config", alone.config, *given)
        alone.start().wait_listening()
        wait_for("a leader", lab.describe)
        found_now = differences(file, lab.controllers)
        assert [each["after"]["leader"] for each in found_now if each["kind"] == "partition"] == [-1] * 3
        assert [each["after"] for each in found_now if each["kind"] == "broker"] == [None]
        shutil.rmtree(broker.folder)
        again = lab.broker(BROKER).format().start().wait_listening()
        assert leaders(lab, again) == ["none"] * 3
        elect = ["--election-type", "unclean", "--all-topic-partitions"]
        wait_for(
            "an election",
            lambda: lab.tool("elect-leaders", "--bootstrap-server", again.address, *elect).status == 0,
        )
        wait_for("the new broker to lead", lambda: leaders(lab, again) == [str(BROKER)] * 3)

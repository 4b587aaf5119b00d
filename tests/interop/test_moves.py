"""Replicas that move between log directories, told to do so by Kafka's tools: a broker of Kafka and one of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from asked_brokers import ask
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

pytestmark = pytest.mark.deep

THEIRS, OURS = 11, 12
COUNT = 2000


def _alike(text: str, number: int) -> str:
    return re.sub(rf"\bt-{number}\b(?<!\wt-{number})", "t-N", text).replace(str(THEIRS), "ID").replace(str(OURS), "ID")


def test_kafkas_tools_move_replicas_on_both(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1])
        folders = {each: [tmp_path / f"{each}-{letter}" for letter in "ab"] for each in (THEIRS, OURS)}
        nodes: dict[int, KafkaNode] = {
            THEIRS: lab.broker(THEIRS),
            OURS: lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT"),
        }
        for node_id, node in nodes.items():
            node.write(log_dirs=",".join(map(str, folders[node_id]))).format().start()
        for node in nodes.values():
            node.wait_listening()
        at = nodes[THEIRS].address

        def tool(name: str, *arguments: object) -> str:
            found = lab.tool(name, "--bootstrap-server", at, *arguments)
            assert found.status == 0, found
            return found.out

        def made() -> bool:
            placed = ",".join(map(str, nodes))
            create = ("--create", "--if-not-exists", "--topic", "t", "--replica-assignment", placed)
            return lab.tool("topics", "--bootstrap-server", at, *create).status == 0

        wait_for("a topic", made)
        perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", COUNT)
        sizes = ("--record-size", 100, "--throughput", -1)
        lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}")

        def place(node_id: int) -> list[int]:
            """Folders of its replica, as the broker says: it is the last to know that a move is over."""
            answer = ask(nodes[node_id], DescribeLogDirsRequest(topics=None), 4)
            return [
                list(map(str, folders[node_id])).index(each.log_dir)
                for each in answer.results
                for topic in each.topics
                for partition in topic.partitions
                if topic.name == "t" and not partition.is_future_key
            ]

        told: dict[int, list[str]] = {}
        for number, node_id in enumerate(nodes):
            (before,) = place(node_id)
            wanted = folders[node_id][1 - before]
            row = {"topic": "t", "partition": number, "replicas": [node_id], "log_dirs": [str(wanted)]}
            file = tmp_path / f"{node_id}.json"
            file.write_text(json.dumps({"version": 1, "partitions": [row]}))
            executed = tool("reassign", "--execute", "--reassignment-json-file", file).splitlines()[-1]
            wait_for("the log to be there", lambda node_id=node_id, before=before: place(node_id) == [1 - before])
            verified = tool("reassign", "--verify", "--reassignment-json-file", file)
            told[node_id] = [_alike(text, number) for text in (executed, verified)]
            asked = ("--describe", "--broker-list", node_id, "--topic-list", "t")
            described = json.loads(tool("log-dirs", *asked).splitlines()[-1])
            (broker,) = described["brokers"]
            sizes_of = {each["logDir"]: each["partitions"] for each in broker["logDirs"]}
            (partition,) = sizes_of.pop(str(wanted))
            assert (partition["partition"], partition["isFuture"], partition["offsetLag"]) == (f"t-{number}", False, 0)
            assert partition["size"] > 0
            assert not any(sizes_of.values())
        assert told[THEIRS] == told[OURS]

        kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        codes = []
        for node_id, node in nodes.items():
            there = str(folders[node_id][0])
            other = int(node_id == THEIRS)
            cases = ((str(tmp_path / "c"), "t", 0), (there, "t", other), (there, "none", 0), (there, "x" * 215, 0))
            found = []
            for path, topic, number in cases:
                topics = [kind.AlterReplicaLogDirTopic(name=topic, partitions=[number])]
                answer = ask(node, AlterReplicaLogDirsRequest(dirs=[kind(path=path, topics=topics)]), 2)
                found.append([each.error_code for result in answer.results for each in result.partitions])
            codes.append(found)
        assert codes[0] == codes[1]


def test_a_move_goes_on_where_the_other_broker_left_it(kafka: KafkaTools, tmp_path: Path) -> None:
    """Kafka's broker is killed in mid-copy and ours goes on in its directories; then the other way round."""
    count = 20_000
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1], broker_session_timeout_ms=5000)
        folders = [tmp_path / f"b-{letter}" for letter in "ab"]
        properties = {
            "log_segment_bytes": 1024 * 1024,
            "replica_fetch_max_bytes": 5000,
            "log_dirs": ",".join(map(str, folders)),
        }
        theirs = lab.broker(THEIRS)
        theirs.write(**properties)
        ours = KraftcoreNode(lab, theirs.name, theirs.port, theirs.properties)
        lab.nodes[OURS] = ours
        ours.write(**properties)
        theirs.format().start().wait_listening()

        def tool(name: str, *arguments: object) -> str:
            found = lab.tool(name, "--bootstrap-server", theirs.address, *arguments)
            assert found.status == 0, found
            return found.out

        create = ("--create", "--topic", "t", "--partitions", 1)
        wait_for("a topic", lambda: lab.tool("topics", "--bootstrap-server", theirs.address, *create).status == 0)
        perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", count)
        sizes = ("--record-size", 100, "--throughput", -1)
        at = f"bootstrap.servers={theirs.address}"
        lab.run_class(*perf, *sizes, "--producer-props", at, "batch.size=2000")

        def place() -> list[int]:
            found = enumerate(folders)
            return [index for index, folder in found if (folder / "t-0").exists()]

        def copies() -> dict[str, int]:
            found = [each for folder in folders for each in folder.glob("t-0.*-future")]
            return {each.name: sum(file.stat().st_size for file in each.glob("*.log")) for each in found}

        for node, heir in ((theirs, ours), (ours, theirs)):
            (before,) = place()
            row = {"topic": "t", "partition": 0, "replicas": [THEIRS], "log_dirs": [str(folders[1 - before])]}
            file = tmp_path / "moves.json"
            file.write_text(json.dumps({"version": 1, "partitions": [row]}))
            throttled = ("--replica-alter-log-dirs-throttle", 200_000)
            tool("reassign", "--execute", "--reassignment-json-file", file, *throttled)
            wait_for("a part of the copy", lambda: sum(copies().values()) > 1_100_000)
            node.kill()
            assert place() == [before]
            ((name, size),) = copies().items()
            assert size < 90 * count, "it is in mid-copy"
            heir.start().wait_listening()
            wait_for("the copy to grow", lambda name=name, size=size: copies().get(name, 0) > size)
            assert list(copies()) == [name], "it goes on with what is there"
            limit = "replica.alter.log.dirs.io.max.bytes.per.second=100000000"
            tool("configs", "--alter", "--entity-type", "brokers", "--entity-name", THEIRS, "--add-config", limit)
            wait_for("the log to be there", lambda before=before: place() == [1 - before])
            consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", theirs.address)
            which = ("--topic", "t", "--partition", 0, "--offset", 0, "--max-messages", count, "--timeout-ms", 60_000)
            assert f"Processed a total of {count} messages" in lab.run_class(*consumer, *which)

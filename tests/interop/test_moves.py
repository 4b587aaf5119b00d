"""Replicas that move between log directories, told to do so by Kafka's tools: a broker of Kafka and one of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

from asked_brokers import ask
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

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
            create = ("--create", "--topic", "t", "--replica-assignment", placed)
            return lab.tool("topics", "--bootstrap-server", at, *create).status == 0

        wait_for("a topic", made)
        perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", COUNT)
        sizes = ("--record-size", 100, "--throughput", -1)
        lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}")

        def place(node_id: int) -> list[int]:
            found = enumerate(folders[node_id])
            return [index for index, folder in found for _ in folder.glob("t-?/partition.metadata")]

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

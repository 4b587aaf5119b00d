"""Gold against an independent replay of what Kafka's dump tool printed, at every offset, and against Kafka's tools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from golden import GOLDEN
from metadata_replay import State, printed_log, printed_records, replay
from project import ROOT
from pyspark.sql import SparkSession

from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.meanings import meaning
from kraftcore.plugins.spark.state import HISTORIES
from kraftcore.plugins.spark.tables import Tables
from kraftcore.plugins.spark.views import view_schema

# The node whose log is the longest of its cluster.
CLUSTERS = {"dynamic": "c4", "static": "c3"}


def cluster_id(scenario: str) -> str:
    text = (GOLDEN / scenario / "c1" / "meta.properties").read_text()
    found = re.search(r"^cluster\.id=(.*)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def gold(session: SparkSession, golden_tables: Path) -> dict[str, list[dict[str, Any]]]:
    tables = Tables(session, golden_tables)
    names = [*HISTORIES.values(), "gold_leadership", "gold_voter_sets", "gold_divergence", "gold_logs"]
    return {name: [row.asDict(recursive=True) for row in tables.read(name).collect()] for name in names}


def named(node: Path) -> str:
    return f"{node.parent.name}-{node.name}"


def at(rows: list[dict[str, Any]], cluster: str, offset: int) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if row["cluster_id"] == cluster
        and row["from_offset"] <= offset
        and (row["to_offset"] is None or offset < row["to_offset"])
    ]


def told(gold: dict[str, list[dict[str, Any]]], cluster: str, offset: int) -> State:
    """The state as gold tells it, in the shape of the replay."""

    def rows(name: str) -> list[dict[str, Any]]:
        return at(gold[HISTORIES[name]], cluster, offset)

    state = State()
    state.topics = {row["topic_id"]: row["topic"] for row in rows("topics")}
    state.partitions = {
        (row["topic_id"], row["partition"]): {
            "replicas": row["replicas"],
            "isr": row["isr"],
            "removing": row["removing_replicas"],
            "adding": row["adding_replicas"],
            "leader": row["leader"],
            "recovery": row["leader_recovery_state"],
            "leader_epoch": row["leader_epoch"],
            "partition_epoch": row["partition_epoch"],
            "elr": row["eligible_leader_replicas"],
            "last_known_elr": row["last_known_elr"],
        }
        for row in rows("partitions")
    }
    state.brokers = {
        row["broker_id"]: {
            "epoch": row["broker_epoch"],
            "incarnation": row["incarnation_id"],
            "fenced": row["fenced"],
            "shutdown": row["in_controlled_shutdown"],
            "rack": row["rack"],
            "log_dirs": row["log_dirs"],
        }
        for row in rows("brokers")
    }
    state.controllers = {row["controller_id"]: row["incarnation_id"] for row in rows("controllers")}
    state.configs = {(row["resource_type"], row["resource_name"], row["name"]): row["value"] for row in rows("configs")}
    state.features = {row["name"]: row["feature_level"] for row in rows("features")}
    state.quotas = {
        (tuple(sorted((one["entity_type"], one["entity_name"]) for one in row["entity"])), row["key"]): row["quota"]
        for row in rows("quotas")
    }
    state.scram = {(row["name"], row["mechanism"]): row["iterations"] for row in rows("scram_credentials")}
    blocks = [row["next_producer_id"] for row in rows("producer_ids")]
    state.producer_ids = blocks[0] if blocks else None
    leaders = [
        (row["epoch"], row["leader_id"])
        for row in gold["gold_leadership"]
        if row["cluster_id"] == cluster and row["epoch_start_offset"] <= offset
    ]
    state.leader = max(leaders, default=None)
    sets = [
        (row["offset"], row["voter_ids"])
        for row in gold["gold_voter_sets"]
        if row["cluster_id"] == cluster and row["offset"] <= offset
    ]
    state.voters = max(sets, default=(0, []))[1]
    return state


def whole_log(scenario: str) -> list[Any]:
    best: dict[int, Any] = {}
    for node in sorted((GOLDEN / scenario).glob("c?")):
        for record in printed_log(node):
            if record.offset not in best or best[record.offset].epoch < record.epoch:
                best[record.offset] = record
    return [best[offset] for offset in sorted(best)]


@pytest.mark.parametrize("scenario", sorted(CLUSTERS))
def test_the_state_is_right_at_every_offset(scenario, gold):
    cluster = cluster_id(scenario)
    states = replay(whole_log(scenario))
    assert len(states) == max(states) + 1
    for offset, state in states.items():
        assert told(gold, cluster, offset) == state, f"{scenario}, offset {offset}"


@pytest.mark.parametrize("node", [node for name in CLUSTERS for node in sorted((GOLDEN / name).glob("c?"))], ids=named)
def test_one_replica_alone_tells_the_same(node, gold):
    printed = printed_log(node)
    start = State()
    if printed[0].offset > 0:  # it began with a snapshot that it fetched
        (snapshot,) = (node / "dump").glob(f"{printed[0].offset:020}-*.checkpoint.txt")
        for record in printed_records(snapshot):
            start.apply(record)
    states = replay(printed, start)
    assert len(states) == len(printed)
    for offset, state in states.items():
        assert told(gold, named(node), offset) == state, f"offset {offset}"


@pytest.mark.parametrize(
    "path",
    sorted((GOLDEN / "dynamic").glob("c?/dump/*-*.checkpoint.txt")),
    ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_kafkas_snapshots_hold_the_same_state(path, gold):
    end = int(path.name[:20])
    if end == 0:  # what the node was formatted with
        ids = [row["voter_ids"] for row in gold["gold_voter_sets"] if row["offset"] == -1]
        assert [1] in ids
        return
    snapshot = State()
    for record in printed_records(path):
        snapshot.apply(record)
    found = told(gold, cluster_id("dynamic"), end - 1)
    snapshot.leader = found.leader  # a snapshot does not say
    assert found == snapshot


@pytest.mark.parametrize("scenario", sorted(CLUSTERS))
def test_kafkas_tools_said_the_same_about_the_quorum(scenario, gold):
    text = (GOLDEN / scenario / "tools.txt").read_text()
    answers = re.findall(
        r"^ClusterId: +(\S+)\nLeaderId: +(\d+)\nLeaderEpoch: +(\d+)\nHighWatermark: +(\d+)\n"
        r"(?:.*\n){2}CurrentVoters: +(.*)$",
        text,
        re.MULTILINE,
    )
    assert answers
    for cluster, leader_id, epoch, high_watermark, voters in answers:
        state = told(gold, cluster, int(high_watermark) - 1)
        assert state.leader == (int(epoch), int(leader_id))
        assert state.voters == sorted(one["id"] for one in json.loads(voters))


def test_kafkas_tools_said_the_same_about_topics(gold):
    text = (GOLDEN / "dynamic" / "tools.txt").read_text()
    lines = re.findall(
        r"^\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\tElr: (\S*)", text, re.MULTILINE
    )
    assert lines
    printed = {
        (topic, int(number)): (leader, replicas, isr, elr) for topic, number, leader, replicas, isr, elr in lines
    }
    ids = [row["from_offset"] for row in gold["gold_partition_history"]]
    matching = []
    for offset in sorted(set(ids)):
        rows = at(gold["gold_partition_history"], cluster_id("dynamic"), offset)
        here = {
            (row["topic"], row["partition"]): (
                str(row["leader"]),
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["isr"])),
                ",".join(map(str, row["eligible_leader_replicas"])),
            )
            for row in rows
        }
        if here.items() >= printed.items():
            matching.append(offset)
    assert matching


def test_formatted_directories_tell_their_voters(gold):
    cluster = cluster_id("formats")
    sets = [row for row in gold["gold_voter_sets"] if row["cluster_id"] == cluster]
    assert [(row["offset"], row["voter_ids"]) for row in sets] == [(-1, [1, 2, 3])]


def test_replicas_agree_and_no_byte_is_damaged(gold, session, golden_tables):
    assert gold["gold_divergence"] == []
    assert kraft.query(session, golden_tables, "SELECT * FROM errors").collect() == []


def test_of_one_replica_of_three_nothing_is_known_to_be_committed(gold, session, golden_tables):
    (log,) = (row for row in gold["gold_logs"] if row["cluster_id"] == "static-c2")
    assert log["committed_end"] is None
    assert {row["status"] for row in gold["gold_leadership"] if row["cluster_id"] == "static-c2"} == {"uncommitted"}
    rows = Tables(session, golden_tables).read("gold_batch_stats").where("cluster_id = 'static-c2'").collect()
    assert sum(row.records for row in rows) == log["records"] > 0
    assert sum(row.committed_records for row in rows) == 0


def test_the_reference_is_the_log_with_the_highest_epoch(gold):
    chosen = {row["cluster_id"]: row["node_id"] for row in gold["gold_logs"] if row["is_reference"]}
    assert {scenario: chosen[cluster_id(scenario)] for scenario in CLUSTERS} == {
        scenario: int(node[1:]) for scenario, node in CLUSTERS.items()
    }


def test_state_as_of_reads_the_same(session, golden_tables, gold):
    cluster = cluster_id("dynamic")
    found = kraft.state_as_of(session, golden_tables, cluster_id=cluster, offset=300)
    assert {(row.topic_id, row.partition, row.leader) for row in found["partitions"].collect()} == {
        (row["topic_id"], row["partition"], row["leader"]) for row in at(gold["gold_partition_history"], cluster, 300)
    }


def test_spark_describes_columns_by_their_meanings(session, golden_tables):
    def described(table):
        return {row.col_name: row.comment for row in kraft.query(session, golden_tables, f"DESCRIBE {table}").collect()}

    assert described("silver_topic") == {one.name: meaning(one) for one in view_schema("topic")}
    found = described("gold_leadership")
    assert found["leader_id"] == "its leader"
    assert None not in found.values()


def test_the_statements_of_the_page_have_answers(session, golden_tables):
    statements = re.findall("^    (SELECT .*)$", (ROOT / "docs" / "spark.md").read_text(), re.MULTILINE)
    assert len(statements) >= 2
    assert [one for one in statements if kraft.query(session, golden_tables, one).isEmpty()] == []

"""Gold of small logs made up for it, without Spark: secrets, logs with holes, ends that were overridden, odd values."""

from __future__ import annotations

import stat

import pytest
from bad_day import AUDIT_AGAIN, CLUSTER_ID, TOPICS, Log, begin, moment, partition, write_node, write_snapshot
from spark_parts import batches_of, counted_rows

from kraftcore.core.uuid import Uuid
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.protocol.control import kraft_version, leader_change
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord


def no_spark():
    pytest.fail("so little is done without Spark")


def started():
    log = Log()
    begin(log)
    return log


def tables_of(folder, logs):
    """Tables of some nodes' logs, and their rows that count."""
    for node_id, log in logs.items():
        write_node(folder / "in", node_id, bytes(log.data))
    kraft.run(no_spark, [folder / "in"], folder / "tables")
    return counted_rows(folder / "tables")


def config(name, value, *, of="orders"):
    return ConfigRecord(resource_type=2, resource_name=of, name=name, value=value)


SECRETS = (
    "listener.name.external.ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "listener.name.sasl.plain.sasl.jaas.config",
    "delegation.token.secret.key",
    "plugin.api-key",
)


def test_gold_has_a_mark_in_place_of_a_secret_that_equal_secrets_share(tmp_path):
    log = started()
    for number, name in enumerate(SECRETS):
        log.write(f"14:00:0{number}.000", ConfigRecord(resource_type=4, resource_name="1", name=name, value="Hush!"))
    log.write("14:00:10.000", ConfigRecord(resource_type=4, resource_name="2", name=SECRETS[0], value="Other!"))
    log.write("14:00:11.000", config("plugin.login", 'Module required user="a" password = "Hush!";'))
    for cluster_id in ("one", "two"):
        write_node(tmp_path / "in" / cluster_id, 1, bytes(log.data), cluster_id=cluster_id)
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "elsewhere")

    def configs(tables):
        return [row for row in counted_rows(tmp_path / tables)["gold_config_history"] if row["resource_type"] == 4]

    rows = configs("tables")
    marks = {row["value"] for row in rows if row["name"] in SECRETS and row["resource_name"] == "1"}
    (mark,) = marks
    assert mark.startswith("hidden:")
    assert {row["cluster_id"] for row in rows if row["value"] == mark} == {"one", "two"}
    (other,) = {row["value"] for row in rows if row["resource_name"] == "2"}
    assert other.startswith("hidden:")
    assert other != mark
    assert mark not in {row["value"] for row in configs("elsewhere")}, "a guess cannot be tried without the folder"
    assert "2" in {row["value"] for row in rows if row["name"] == "min.insync.replicas"}
    for name, found in counted_rows(tmp_path / "tables").items():
        if name.startswith("gold_"):
            assert "Hush!" not in repr(found), name


def test_a_folder_of_tables_is_for_its_owner_unless_it_was_opened(tmp_path):
    tables_of(tmp_path, {1: started()})
    assert stat.S_IMODE((tmp_path / "tables").stat().st_mode) == 0o700
    (tmp_path / "tables").chmod(0o750)
    tables_of(tmp_path, {1: started()})
    assert stat.S_IMODE((tmp_path / "tables").stat().st_mode) == 0o750


def test_a_config_that_kafka_does_not_know_is_a_secret(tmp_path, monkeypatch):
    log = started()
    shown = {
        (2, "retention.ms"), (2, "leader.replication.throttled.replicas"), (4, "log.cleaner.threads"),
        (4, "follower.replication.throttled.rate"), (4, "listener.name.external.max.connections"),
        (4, "listener.name.external.scram-sha-256.sasl.server.callback.handler.class"), (8, "org.apache.kafka"),
        (16, "interval.ms"), (32, "consumer.session.timeout.ms"),
    }  # fmt: skip
    hidden = {
        (2, "log.cleaner.threads"), (2, "my.passwd"), (4, "rsm.config.azure.connection.string"), (4, "retention.ms"),
        (4, "listener.name.external.basic.auth.user.info"), (4, "rsm.config.gcs.credentials.json"), (16, "bearer"),
        (32, "plugin.pwd"), (8, "its.password"),
    }  # fmt: skip
    for number, (kind, name) in enumerate(sorted(shown | hidden)):
        record = ConfigRecord(resource_type=kind, resource_name="of", name=name, value="Plain!")
        log.write(f"14:00:{number:02}.000", record)
    reads = []
    read = LocalFolder.read
    monkeypatch.setattr(LocalFolder, "read", lambda self, name: reads.append(name) or read(self, name))
    rows = tables_of(tmp_path, {1: log})["gold_config_history"]
    values = {(row["resource_type"], row["name"]): row["value"] for row in rows if row["resource_name"] == "of"}
    assert {key for key, value in values.items() if value == "Plain!"} == shown
    assert {key for key, value in values.items() if value.startswith("hidden:")} == hidden
    assert reads.count("_masking-key") <= 2, "not once a value"


def fails(*_):
    raise OverflowError("date value out of range")


def test_what_is_made_of_a_cluster_that_fails_does_not_stay(tmp_path, monkeypatch):
    log, tables = started(), tmp_path / "tables"
    write_node(tmp_path / "in", 1, bytes(log.data))
    monkeypatch.setattr(gold_registry, "SHARE_RECORDS", 10)
    monkeypatch.setitem(gold_registry.GOLD, "gold_logs", fails)
    for _ in range(3):
        assert set(kraft.run(no_spark, [tmp_path / "in"], tables).failed) == {CLUSTER_ID}
        assert not list(tables.glob("gold_*/**/*.parquet"))
    monkeypatch.undo()
    assert kraft.run(no_spark, [tmp_path / "in"], tables).clusters == (CLUSTER_ID,)


def test_the_end_that_a_dead_leader_did_not_commit_is_no_damage(tmp_path):
    dead, others = started(), started()
    dead.write("14:00:00.000", config("x", "1"))
    others.epoch = 2
    others.tick(moment("14:00:00.000"))
    others.control("14:00:05.000", leader_change(2, [1, 2, 3], [2, 3]))
    others.write("14:00:06.000", config("y", "1"))
    rows = tables_of(tmp_path, {1: dead, 2: others, 3: others})["gold_divergence"]
    assert {frozenset((row["node_id_a"], row["node_id_b"])) for row in rows} == {frozenset((1, 2)), frozenset((1, 3))}
    for row in rows:
        assert row["offset"] < row["committed_end"]
        assert row["is_overridden_end"]
        assert not row["is_below_committed"]

    write_snapshot(tmp_path / "in", 1, dead.end, TopicRecord(name="orders", topic_id=TOPICS["orders"]))
    rows = tables_of(tmp_path, {1: dead, 2: others, 3: others})["gold_divergence"]
    assert len(rows) == 2
    for row in rows:  # a snapshot holds what was committed: a later leader lost it
        assert row["is_below_committed"]
        assert not row["is_overridden_end"]

    damaged = started()
    damaged.write("14:00:00.000", config("x", "2"))  # of the same epoch: no leader wrote both
    rows = tables_of(tmp_path / "same", {1: dead, 2: damaged, 3: damaged})["gold_divergence"]
    assert [(row["is_overridden_end"], row["is_below_committed"]) for row in rows] == [(False, True)] * 2

    late = started()
    late.write("14:00:00.000", config("x", "1"))
    late.epoch = 2
    late.write("14:00:06.000", config("y", "2"))  # it has epoch 2, too, but other records of epoch 1 below it
    rows = tables_of(tmp_path / "late", {1: late, 2: others, 3: others})["gold_divergence"]
    assert {(row["is_overridden_end"], row["is_below_committed"]) for row in rows} == {(False, True)}


def test_a_topic_made_again_has_no_minimum_of_the_one_before_and_no_minimum_is_above_the_replicas(tmp_path):
    log, single = started(), Uuid(b"\7" * 16)
    log.write("14:00:00.000", config("min.insync.replicas", "2", of="audit"), cluster_default("1"))
    log.write("14:01:00.000", RemoveTopicRecord(topic_id=TOPICS["audit"]))
    again = TopicRecord(name="audit", topic_id=AUDIT_AGAIN), partition(AUDIT_AGAIN, 0, [101, 102], [101])
    log.write("14:02:00.000", *again)
    made = log.end - 1
    log.write("14:02:30.000", TopicRecord(name="single", topic_id=single), partition(single, 0, [101]))
    log.write("14:03:00.000", cluster_default("3"))
    raised = log.end - 1
    rows = tables_of(tmp_path, {1: log})["gold_partition_history"]

    def told(topic_id):
        found = [row for row in rows if row["topic_id"] == str(topic_id)]
        return [(row["from_offset"], row["to_offset"], row["min_isr"], row["is_under_min_isr"]) for row in found]

    assert told(AUDIT_AGAIN) == [(made, raised, 1, False), (raised, None, 2, True)]
    assert [one[2:] for one in told(single)] == [(1, False), (1, False)]
    ends = {row["to_offset"] for row in rows if row["topic_id"] == str(TOPICS["audit"])}
    assert None not in ends, "what was removed stays so, whatever is set later"


def cluster_default(value):
    return ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=value)


def test_what_a_snapshot_tells_came_about_before_it(tmp_path):
    log = Log()
    log.end = 500
    log.control("14:00:00.000", leader_change(1, [1], [1]))
    log.write("14:00:01.000", partition(TOPICS["orders"], 1, [101]))
    write_node(tmp_path / "in", 1, bytes(log.data), base_offset=500)
    orders = TopicRecord(name="orders", topic_id=TOPICS["orders"])
    write_snapshot(tmp_path / "in", 1, 500, orders, partition(TOPICS["orders"], 0, [101]))
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
    rows = counted_rows(tmp_path / "tables")["gold_partition_history"]
    assert {(row["partition"], row["from_offset"], row["change"]) for row in rows} == {
        (0, 499, "known from a snapshot"),
        (1, 501, "created"),
    }


def leaders_of(rows):
    names = ("epoch", "epoch_start_offset", "epoch_end_offset", "silent_ms", "failed_elections", "reason")
    return [tuple(row[name] for name in names) for row in sorted(rows["gold_leadership"], key=lambda row: row["epoch"])]


def test_across_a_hole_nothing_is_known_of_elections_and_pauses(tmp_path):
    first, later = started(), Log()
    later.end, later.epoch = 50_000, 40
    later.control("20:00:00.000", leader_change(3, [1, 2, 3], [1, 2]))
    later.write("20:00:01.000", config("y", "1"))
    later.epoch = 42
    later.control("20:00:02.000", leader_change(1, [1, 2, 3], [1, 2]))
    write_node(tmp_path / "in", 1, bytes(later.data), base_offset=50_000)
    rows = tables_of(tmp_path, {1: first})
    assert leaders_of(rows) == [
        (1, 0, first.end, None, None, "first leader known"),
        (40, 50_000, later.end - 1, None, None, "not known: the log has a hole"),
        (42, later.end - 1, None, 1000, 1, "the previous leader resigned"),
    ]
    assert max(row["pause_ms_max"] or 0 for row in rows["gold_batch_stats"]) < 60_000


def test_a_hole_within_an_epoch_hides_no_election(tmp_path):
    log = started()
    log.write("14:00:00.000", config("x", "1"))
    log.data[-1] ^= 1
    log.write("14:00:05.000", config("x", "2"))
    log.epoch = 3
    log.control("14:00:05.500", leader_change(2, [1, 2, 3], [1, 2]))
    rows = tables_of(tmp_path, {1: log})
    assert len(rows["errors"]) == 1
    assert leaders_of(rows) == [
        (1, 0, log.end - 1, None, None, "first leader known"),
        (3, log.end - 1, None, 500, 1, "the previous leader resigned"),
    ]
    same = tables_of(tmp_path / "same", {1: cut_behind(log, 1)})
    assert leaders_of(same) == [(1, 0, None, None, None, "first leader known")]


def cut_behind(log, epoch):
    """The log up to the end of an epoch."""
    found = Log()
    last = max(spot.position + spot.size for spot in batches_of(log.data) if spot.epoch == epoch)
    found.data = log.data[:last]
    return found


def test_an_epoch_whose_records_were_overridden_had_a_winner(tmp_path):
    dead, others = started(), started()
    for log in (dead, others):
        log.tick(moment("14:00:00.000"))
    dead.epoch = 2
    dead.control("14:00:01.000", leader_change(3, [1, 2, 3], [1, 3]))
    others.epoch = 4  # nobody won epoch 3
    others.control("14:00:05.000", leader_change(2, [1, 2, 3], [2, 3]))
    rows = tables_of(tmp_path, {1: dead, 2: others, 3: others})["gold_leadership"]
    found = {row["epoch"]: (row["status"], row["failed_elections"]) for row in rows}
    assert {epoch: failed for epoch, (_, failed) in found.items()} == {1: None, 2: None, 4: 1}
    assert found[2][0] == "truncated"


def test_what_the_quorum_writes_counts_within_an_aborted_transaction(tmp_path):
    log = started()
    log.write("14:00:00.000", BeginTransactionRecord(name="t"))
    log.write("14:00:01.000", FeatureLevelRecord(name="group.version", feature_level=1))
    log.control("14:00:02.000", kraft_version(2))
    log.write("14:00:03.000", AbortTransactionRecord(reason="r"))
    rows = tables_of(tmp_path, {1: log})["gold_feature_history"]
    held = {row["name"]: row["feature_level"] for row in rows if row["to_offset"] is None}
    assert held == {"metadata.version": 29, "kraft.version": 2}


def test_behind_a_hole_without_a_snapshot_the_state_is_not_complete(tmp_path):
    log = started()
    log.write("14:00:00.000", config("x", "1"))
    hole = log.end - 1
    log.data[-1] ^= 1
    log.write("14:01:00.000", config("x", "2"))
    write_node(tmp_path / "in", 1, bytes(log.data))

    def eras():
        kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
        rows = sorted(counted_rows(tmp_path / "tables")["gold_eras"], key=lambda row: row["era"])
        names = ("start_offset", "end_offset", "snapshot_end_offset", "is_complete", "is_last")
        return [tuple(row[name] for name in names) for row in rows]

    begins = (0, hole, None, True, False)
    assert eras() == [begins, (hole + 1, log.end, None, False, True)]
    write_snapshot(tmp_path / "in", 1, log.end, TopicRecord(name="orders", topic_id=TOPICS["orders"]))
    assert eras() == [begins, (hole + 1, log.end, log.end, True, True)]

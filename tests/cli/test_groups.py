"""``kraftcore groups`` alone: JSON, files, durations. Beside Kafka's tool: tests/interop/test_groups_tool.py."""

from __future__ import annotations

import datetime
import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kraftcore.cli import main
from kraftcore.cli.groups_change import duration_ms
from kraftcore.errors import LocalError


@pytest.fixture
def at(kafka_cluster):
    """Where a broker is that has a topic and two groups."""
    kafka = kafka_cluster(1)
    kafka.create_topic("t", partitions=2)
    servers = kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    for number in range(10):
        producer.produce("t", b"v", partition=number % 2)
    assert producer.flush(60) == 0
    for group, offset in (("g", 1), ("h", 2)):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
        [told] = consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        assert told.error is None
        consumer.close()
    return servers


def run(capsys, at, *words):
    capsys.readouterr()
    status = main(["groups", "--bootstrap-server", at, *words])
    return status, capsys.readouterr().out


def described(capsys, at, *words):
    status, out = run(capsys, at, *words, "--output", "json")
    assert status == 0
    return json.loads(out)["groups"]


def test_as_json(capsys, at):
    assert described(capsys, at, "--list") == [
        {"group": name, "type": "Classic", "state": "Empty"} for name in ("g", "h")
    ]
    consumer = Consumer({"bootstrap.servers": at, "group.id": "g", "client.id": "me", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    [group] = described(capsys, at, "--describe", "--group", "g")
    first, second = group["partitions"]
    assert group["state"] == "Stable"
    assert (first["currentOffset"], first["logEndOffset"], first["lag"], first["clientId"]) == (1, 5, 4, "me")
    assert (second["currentOffset"], second["logEndOffset"], second["lag"]) == (None, 5, None)
    [group] = described(capsys, at, "--describe", "--group", "g", "--members")
    assert [each["partitions"] for each in group["members"]] == [
        [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    ]
    [group] = described(capsys, at, "--describe", "--group", "g", "--state")
    assert (group["coordinator"], group["coordinatorId"], group["members"]) == (at, 1, 1)
    consumer.close()
    [group] = described(capsys, at, "--describe", "--group", "g")
    assert [(each["partition"], each["consumerId"]) for each in group["partitions"]] == [(0, None)]


def test_offsets_go_through_a_file(capsys, at, tmp_path):
    plan = tmp_path / "plan.csv"
    for scope, shown in ((["--group", "g"], "t,0,1\n"), (["--all-groups"], "g,t,0,1\nh,t,0,2\n")):
        back = ["--reset-offsets", *scope, "--from-file", str(plan)]
        words = ["--reset-offsets", *scope, "--all-topics", "--to-current", "--dry-run", "--export"]
        status, out = run(capsys, at, *words)
        assert (status, out.rstrip("\n") + "\n") == (0, shown)
        plan.write_text(out)
        assert run(capsys, at, "--reset-offsets", *scope, "--topic", "t", "--to-latest", "--execute")[0] == 0
        assert committed(capsys, at, "g") == [(0, 5), (1, 5)]
        assert run(capsys, at, *back, "--execute")[0] == 0
        assert committed(capsys, at, "g") == [(0, 1), (1, 5)]
        assert run(capsys, at, "--delete-offsets", "--group", "g", "--topic", "t:1")[0] == 0
    plan.write_text("g,t,0\n")
    status, out = run(capsys, at, *back, "--dry-run")
    assert (status, "is no line of group, topic, partition, offset" in out) == (0, True)
    assert run(capsys, at, "--delete", "--all-groups") == (
        0,
        "Deletion of requested consumer groups ('g', 'h') was successful.\n",
    )
    assert described(capsys, at, "--list") == []


def committed(capsys, at, group):
    [found] = described(capsys, at, "--describe", "--group", group)
    return [(each["partition"], each["currentOffset"]) for each in found["partitions"]]


def test_times_without_a_zone_are_utc(capsys, at, monkeypatch):
    """As for Kafka's tool, wherever one is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        now = datetime.datetime.now(datetime.UTC)
        for hours, offset in ((-1, 0), (1, 5)):
            text = (now + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.000")
            words = ["--reset-offsets", "--group", "g", "--topic", "t:0", "--to-datetime", text, "--export"]
            status, out = run(capsys, at, *words, "--dry-run")
            assert (status, out.split()[-1]) == (0, f"t,0,{offset}")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_wrong_usage_is_a_line_and_a_hint(capsys):
    for words, text in (
        (["--group", "a"], "Command must include exactly one action: --list, --describe, --delete, --reset-offsets"),
        (["--list", "--members"], "Option(s) [members] are unavailable given other options on the command line"),
        (["--describe"], "Option [describe] takes one of these options: [group], [all-groups]"),
        (["--list", "--state", "Odd"], "Invalid state list 'Odd'. Valid states are: PreparingRebalance, Stable"),
        (["--delete", "--group", "a", "--output", "json"], "can't be used with option"),
        (["--list", "--timeout", "0"], "--timeout 0: it must be between 1 and 2147483647"),
    ):
        assert main(["groups", "--bootstrap-server", "127.0.0.1:1", *words]) == 1
        told = capsys.readouterr().err
        assert text in told
        assert "Try 'kraftcore groups --help' for help." in told


@pytest.mark.parametrize("text", ["t,0,1\rt,1,1\r", "t" * 200_000 + ",0,1\n", "t,0\n", "t,x,1\n"])
def test_a_plan_that_cannot_be_read_is_told_in_a_line(capsys, tmp_path, text):
    plan = tmp_path / "plan.csv"
    plan.write_text(text)
    words = ["--reset-offsets", "--group", "g", "--from-file", str(plan), "--dry-run"]
    assert main(["groups", "--bootstrap-server", "127.0.0.1:1", *words]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"\nError: Executing consumer group command failed due to {plan}: ")
    assert "no CSV" in told or "is no line of" in told


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("pt1.5s", 1500),
        ("-PT1M", -60_000),
        ("P1DT-1H", 82_800_000),
        ("PT1.001S", 1001),
        ("-PT1.0019S", -1001),
    ],
)
def test_durations(text, ms):
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P1M"])
def test_what_is_no_duration(text):
    with pytest.raises(LocalError, match="Text cannot be parsed to a Duration"):
        duration_ms(text)

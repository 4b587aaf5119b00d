"""``kraftcore up``: bootstrap servers as a line, a client that writes, an end in order, and what goes on after it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as Admin
from confluent_kafka.admin import NewTopic
from forked import FORKS_WHEN_TOLD, outlives
from hangup import hung_up_by
from up_command import UP, Up, free_from


def test_it_serves_until_told_to_stop_and_goes_on_where_it_was(tmp_path):
    place = ("--brokers", 2, "--directory", tmp_path / "kafka", "--first-port", free_from(4))
    up = Up(*place, "--property", "min.insync.replicas=2")
    try:
        servers = up.started["bootstrapServers"]
        assert up.started["brokers"] == [1, 2]
        assert len(servers.split(",")) == 2
        assert (tmp_path / "kafka" / "broker-1" / "meta.properties").exists()
    finally:
        assert up.end() == (None, 0)
    assert "min.insync.replicas=2\n" in (tmp_path / "kafka" / "broker-2.properties").read_text()
    up = Up(*place)
    try:
        assert up.started["bootstrapServers"] == servers
    finally:
        assert up.end() == (None, 0)


def test_a_forked_child_that_outlives_it_keeps_nothing_of_it(tmp_path):
    place = ("--brokers", 1, "--directory", tmp_path / "kafka", "--first-port", free_from(1))
    with Up(*place, command=[*FORKS_WHEN_TOLD, "up"]) as up:
        up.process.send_signal(signal.SIGUSR2)
        child = up.event("forked")["pid"]
    with Up(*place) as up:
        assert outlives(child)
        assert up.end() == (None, 0)


@pytest.mark.parametrize("way", [(), ("--processes",)])
def test_a_terminal_that_is_closed_ends_it_in_order(way, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with hung_up_by(signal.SIG_DFL):  # whoever runs this may be under nohup
        up = Up("--brokers", 1, *way)
    with up:
        assert list(tmp_path.glob("*/broker-1"))
        up.process.send_signal(signal.SIGHUP)
        assert up.event("stopping")["signal"] == "SIGHUP"
        assert up.end(signal.SIGHUP) == (None, 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_temporary", [True, False])
def test_a_second_signal_ends_it_at_once_and_a_temporary_folder_goes(tmp_path, monkeypatch, is_temporary):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Up("--brokers", 1, *(() if is_temporary else ("--directory", tmp_path / "kept"))) as up:
        (folder,) = tmp_path.iterdir()
        for number in (signal.SIGTERM, signal.SIGINT):
            up.process.send_signal(number)
        assert up.process.wait(60) in (-signal.SIGTERM, -signal.SIGINT)
        assert folder.exists() is not is_temporary


@pytest.mark.parametrize("way", [(), ("--processes",)])
def test_under_nohup_it_goes_on(way):
    with hung_up_by(signal.SIG_IGN):
        up = Up("--brokers", 1, *way)
    with up:
        up.process.send_signal(signal.SIGHUP)
        up.process.send_signal(signal.SIGTERM)
        assert up.event("stopping")["signal"] == "SIGTERM"
        assert up.event("stopped")["error"] is None


def test_what_needs_processes_does_nothing_without_them():
    with Up("--brokers", 1) as up:
        up.process.send_signal(signal.SIGUSR1)
        assert "needs --processes" in up.event("log")["text"]
        assert up.end() == (None, 0)


def refused(*options):
    """Exit status and what stands on stderr; nothing ran, and nothing is left."""
    done = subprocess.run([*UP, *map(str, options)], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("way", [(), ("--processes",)])
def test_what_is_wrong_is_told_once_and_of_what_was_given(way, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for given, text in (
        ("no.such.property=1", "there is no property no.such.property"),
        ("num.partitions=abc", "Invalid value abc for configuration num.partitions: Not a number of type INT"),
        ("metadata.log.segment.bytes=-1", "metadata.log.segment.bytes is -1: it must be between"),
        ("advertised.listeners=FOO://x:1", "advertised.listeners: "),
    ):
        status, told = refused("--property", given, "--property", "min.insync.replicas=1", *way)
        assert (status, told.count("\n")) == (1, 1)
        assert told.startswith(text)
    for given in ("log.dirs=/x", "node.id=7"):
        status, told = refused("--property", given, *way)
        assert status == 2
        assert f"--property {given.partition('=')[0]}: kraftcore up sets it itself" in told
    status, told = refused("--first-port", 65535, "--brokers", 2, *way)
    assert status == 2
    assert "--first-port 65535 leaves no room for 2 brokers up to port 65535" in told
    status, told = refused("--property", "half", *way)
    assert status == 2
    assert "--property half: write KEY=VALUE" in told
    assert not list(tmp_path.iterdir())


def test_it_imports_what_it_needs_and_looks_for_no_garbage_meanwhile():
    program = (
        "import gc, sys; from kraftcore.cli import main; looks = [];"
        "begun = lambda: 'kraftcore.cli.up_run' in sys.modules;"
        "gc.callbacks.append(lambda phase, facts: looks.append(phase) if begun() else None);"
        "import kraftcore.cli.up, trio; trio.run = lambda *_: None; main(['up']);"
        "print('looks', len(looks), gc.isenabled(), gc.get_freeze_count() > 1000); print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "looks 0 True True" in done.stdout
    (loaded,) = (line.split() for line in done.stdout.splitlines() if line.startswith("loaded "))
    assert "kraftcore.testing.kafka_cluster" in loaded
    assert not {"kraftcore.admin", "kraftcore.config.login", "kraftcore.node.authentication"} & set(loaded)


def test_the_requests_by_http_that_its_page_shows_do_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "kafka-for-tests.md").read_text()
    lines = re.findall(r"^curl (.*)$", page, flags=re.MULTILINE)
    assert len(lines) == 16
    with Up("--brokers", 3, "--control", 0) as up:
        client = Admin({"bootstrap.servers": up.started["bootstrapServers"]})
        client.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        answers = []
        for line in lines:
            command = f"curl -s --fail-with-body {line.replace('http://localhost:8082', up.started['controlUrl'])}"
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (line, done.stdout)
            answers.append(json.loads(done.stdout) if done.stdout else None)
        overview, killed, started, ready, paused, resumed, _, moved, cut, healed, *faults = answers
        assert overview["bootstrapServers"] == up.started["bootstrapServers"]
        assert [each["state"] for each in (killed, started, paused, resumed)] == [
            *("stopped", "running"),
            *("paused", "running"),
        ]
        assert [each["state"] for each in ready] == ["running"] * 4
        assert (moved["leader"], cut, healed) == (3, {"groups": [[1], [2, 3, 101]]}, None)
        assert [each["id"] for each in faults[:5]] == [1, 2, 3, 1, 2]
        assert (faults[1]["delayMs"], faults[2]["close"]) == (500, "after")
        assert (faults[3]["times"], faults[4]["hasEnded"]) == (2, True)
        assert faults[5] is None
        at = up.started["controlUrl"].removeprefix("http://")
        done = subprocess.run([*UP, "--control", at], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, f"--control cannot listen on {at}" in done.stdout) == (1, True)
        assert up.end() == (None, 0)


@pytest.mark.parametrize("way", [(), ("--processes",)])
def test_users_log_in_by_tls_and_brokers_replicate_without(way, tmp_path):
    place = ("--brokers", 2, "--directory", tmp_path, *way)
    with Up(*place, "--user", "alice:a:b", "--user", "bob:secret", "--tls") as up:
        started = up.started
        assert (started["securityProtocol"], started["controlUrl"]) == ("SASL_SSL", None)
        client = {
            "bootstrap.servers": started["bootstrapServers"],
            "security.protocol": started["securityProtocol"],
            "ssl.ca.location": started["caFile"],
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "a:b",
        }
        admin = Admin(client)
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(60)
        told = []
        producer = Producer({**client, "acks": "all"})
        producer.produce("t", b"v", on_delivery=lambda error, message: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None]
        assert up.end() == (None, 0)
    status, told = refused(*place, "--user", "bob:secret", "--tls")
    text = "was made with other users, or other passwords: go on with the same ones, or take another directory"
    assert (status, text in told) == (1, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--user", "alice"), "--user alice: write NAME:PASSWORD"),
        (("--user", "alice:a", "--user", "alice:b"), "--user: a name is given twice"),
        (("--user", "a b:c"), "user 'a b': use letters, digits, and any of _ . $ -"),
        (("--user", "a b:c", "--processes"), "user 'a b': use letters, digits, and any of _ . $ -"),
        (("--control", "here"), "--control here: write PORT or HOST:PORT"),
        (("--control", "0", "--processes"), "--control: not with --processes"),
    ],
)
def test_options_that_cannot_be_are_refused(options, text):
    status, told = refused(*options)
    assert (status in (1, 2), text in told) == (True, True), told

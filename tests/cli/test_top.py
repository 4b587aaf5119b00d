"""``kraftcore top``: what it shows of quorums that run, that lost their majority, and of clusters in trouble."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kafka_lab import OURS
from server_quorum import server_quorum

from kraftcore.cli import main
from kraftcore.cli.drawing import styled
from kraftcore.cli.top_screen import WIDTH, ago, lines
from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.picture import Picture
from kraftcore.plugins.picture.groups import GroupLag
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord

NOW_MS = 1_700_000_100_000


def test_a_killed_majority_is_said_within_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server_quorum(tmp_path) as quorum:
        arguments = ["top", "--bootstrap-controller", ",".join(quorum.addresses)]
        leader = quorum.leader()
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["quorum"]["leaderId"] == leader and found["clusterId"] == quorum.cluster_id
        assert found["sentences"]["0"]["level"] == "good"
        assert sorted(each["id"] for each in found["replicas"].values()) == [1, 2, 3]
        assert found["log"]["takenIn"] >= found["log"]["highWatermark"] > 0
        assert any(each["type"] == "LEADER_CHANGE" for each in found["events"].values())
        other = next(number for number in (1, 2, 3) if number != leader)
        survivor = ({1, 2, 3} - {leader, other}).pop()
        quorum.kill(leader)
        quorum.kill(other)
        assert main(["top", "--bootstrap-controller", quorum.addresses[survivor - 1], "--once"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "No leader answers" in text
        assert "1 of 3" in text and f"controller {survivor} (" in text
        assert all(
            f"controller {gone} ({quorum.addresses[gone - 1]}) does not answer" in text for gone in (leader, other)
        )


def test_it_is_drawn_on_a_terminal_and_ends_by_a_signal(tmp_path: Path) -> None:
    for variables in ({"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        master, slave = pty.openpty()
        command = [*OURS, "top", "--bootstrap-controller", "127.0.0.1:1", "--interval", "0.1"]
        process = subprocess.Popen(command, stdout=slave, stderr=slave, env=os.environ | {"NO_COLOR": ""} | variables)
        os.close(slave)
        text = b""
        deadline = time.monotonic() + 30
        while text.count(b"nobody listens there") < 3 and time.monotonic() < deadline:
            text += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        os.close(master)
        assert text.count(b"nobody listens there") >= 3
        has_color, moves = (re.search(rb"\x1b\[[\d;]*m", text) is not None, b"\x1b[2K" in text)
        assert (has_color, moves) == ("NO_COLOR" not in variables, variables["TERM"] != "dumb")


def picture_in_trouble() -> Picture:
    picture = Picture()
    topic_id = Uuid(bytes([7]) * 16)
    records = [
        *(RegisterBrokerRecord(broker_id=each, broker_epoch=each, fenced=each == 2) for each in (1, 2)),
        TopicRecord(name="a-topic-with-a-name-that-is-long\x1b[2J", topic_id=topic_id),
        *(
            PartitionRecord(topic_id=topic_id, partition_id=at, replicas=[2], isr=[2], leader=-1, leader_epoch=0)
            for at in range(40)
        ),
    ]
    values = [encode_metadata_record(each, type(each).schema.decodable_versions[-1][1]) for each in records]
    for batch in iter_batches(build_batch(values, timestamp_ms=NOW_MS - 90_000)):
        picture.cluster.applied(batch)
    picture.groups = {"billing": GroupLag("billing", "Stable", 3, 1_234, "orders-2")}
    return picture


def test_what_is_in_trouble_comes_first_and_fits_the_terminal() -> None:
    frame = picture_in_trouble().frame(NOW_MS)
    shown = lines(frame, WIDTH, 100, NOW_MS)
    texts = [text for text, _ in shown]
    assert "40 of 40 partitions have no leader." in texts
    broker = next(text.split() for text in texts if text.startswith("     2"))
    assert broker[:3] == ["2", "fenced", "0"]
    partition = texts.index(next(text for text in texts if text.startswith("a-topic")))
    assert "none" in texts[partition] and texts[partition].endswith("90 s ago")
    assert texts[partition + 1] == "  start broker 2"
    assert "  and 30 partitions, at least, more" in texts
    assert any(text.split() == ["billing", "Stable", "1,234", "orders-2"] for text in texts)
    assert not any("\x1b" in text for text in texts), "what others name cannot steer the terminal"
    assert all(len(text) <= WIDTH for text in texts), [text for text in texts if len(text) > WIDTH]
    assert len(lines(frame, WIDTH, 24, NOW_MS)) <= 24


def test_colors_are_left_out_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled(("abc", {"fg": "red"}), 2) == "\x1b[31mab\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled(("abc", {"fg": "red"}), 2) == "ab"


def test_moments_in_words() -> None:
    told = [ago(then, NOW_MS) for then in (0, NOW_MS, NOW_MS - 12_000, NOW_MS - 660_000)]
    assert told == ["never", "now", "12 s ago", "11 min ago"]

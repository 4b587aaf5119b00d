"""``kraftcore demo``: the real command, its real processes, and a verdict that can be wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest
from click.testing import CliRunner

from kraftcore.cli import cli
from kraftcore.cli.demo.check import check_replica
from kraftcore.cli.demo.stream import Acknowledged
from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log

COMMAND = [sys.executable, "-P", "-m", "kraftcore", "demo"]
LIMIT_S = 120


def environment(tmp_path):
    return {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "110", "LINES": "40"}


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(pids):
    end = time.monotonic() + LIMIT_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, f"still alive: {[pid for pid in pids if is_alive(pid)]}"
        time.sleep(0.05)


@contextmanager
def running(tmp_path, *options):
    """The demo with JSON output; yields the process and its objects, one by one."""
    process = subprocess.Popen(
        [*COMMAND, "--output", "json", *options], stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    try:
        yield process, map(json.loads, process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def pids_when_up(objects):
    """The replicas' processes, once the quorum writes."""
    for found in objects:
        if found["event"] == "sample" and found["acknowledged"]:
            return [node["pid"] for node in found["nodes"] if node["pid"]]
    raise AssertionError("the demo ended before it wrote anything")


def test_nothing_is_lost(tmp_path):
    source = tmp_path / "input"
    lines = [b"line %d" % n for n in range(500)] + [b"\xff\x00 not text", b"", b"last, without an end"]
    source.write_bytes(b"\r\n".join(lines))
    kept = tmp_path / "kept"
    with running(tmp_path, "--pause", "0.4", "--input", str(source), "--directory", str(kept)) as (process, objects):
        found = list(objects)
        assert process.wait(LIMIT_S) == 0, found[-1:]
    result = found[-1]
    assert result["event"] == "result" and result["ok"] and result["problems"] == []
    acts = ["leader", "added", "killed", "failover", "restarted", "removed", "full-speed", "stopping"]
    assert [step["event"] for step in result["timeline"]] == acts
    by_act = {step["event"]: step for step in result["timeline"]}
    assert by_act["killed"]["node"] == by_act["leader"]["leader"] == by_act["restarted"]["node"]
    assert by_act["failover"]["leader"] != by_act["killed"]["node"] != by_act["removed"]["node"]
    assert 0 < by_act["failover"]["failover_ms"] == result["failover_ms"]
    whole = [each for each in result["replicas"] if not each["removed"]]
    assert len(whole) == 3 and len({each["sha256"] for each in whole}) == 1
    assert {each["records"] for each in whole} == {result["acknowledged"]}
    assert result["full_speed"]["records_per_s"] > 0
    assert result["paced"]["records_per_s"] > 0
    # Not on the demo's word: the records are in the file that it kept.
    with Log.open(OsFiles(), str(kept / "node-4" / "__cluster_metadata-0"), now_ms=1) as log:
        values = [
            value
            for batch in iter_batches(log.read(0, max_bytes=1 << 30))
            if not batch.is_control
            for value in batch.values()
        ]
    assert len(values) >= result["acknowledged"] >= 502
    assert set(values) == set(lines) - {b""}
    wait_gone({node["pid"] for each in found if each["event"] == "sample" for node in each["nodes"] if node["pid"]})


def test_live_view(tmp_path):
    """On a terminal it draws; the temporary directory goes."""
    shown = b""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*COMMAND, "--pause", "0.3"], environment(tmp_path))
    with suppress(OSError):  # how a terminal says that its other end is closed
        while data := os.read(terminal, 65536):
            shown += data
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown[-2000:].decode()
    text = shown.decode()
    assert text.startswith("\x1b[?25l") and text.count("\x1b[?25h") >= 1
    assert "\x1b[32m" in text and "voters it knows" in text and "commit latency p50" in text
    assert "none of" in text.rpartition("verdict")[2]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cleans_up(tmp_path, number, status):
    with running(tmp_path) as (process, objects):
        pids = pids_when_up(objects)
        assert len(pids) == 3 and all(map(is_alive, pids))
        process.send_signal(number)
        assert process.wait(LIMIT_S) == status
    assert not any(map(is_alive, pids))
    assert os.listdir(tmp_path) == []


def test_replicas_do_not_outlive_it(tmp_path):
    with running(tmp_path) as (process, objects):
        pids = pids_when_up(objects)
        process.kill()
        wait_gone(pids)


def test_a_replica_that_dies_is_named(tmp_path):
    with running(tmp_path) as (process, objects):
        os.kill(pids_when_up(objects)[1], signal.SIGKILL)
        assert process.wait(LIMIT_S) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "has no line that is not empty"),
        (b"\n\n", "has no line that is not empty"),
        (b"x" * 300_000, "300000 bytes: a record of the demo has at most 262144"),
    ],
)
def test_an_input_that_cannot_be_replicated(tmp_path, content, complaint):
    (tmp_path / "input").write_bytes(content)
    run = CliRunner().invoke(cli, ["demo", "--input", str(tmp_path / "input")])
    assert run.exit_code == 2 and complaint in run.output


def test_a_directory_in_use_is_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    run = CliRunner().invoke(cli, ["demo", "--directory", str(tmp_path)])
    assert run.exit_code == 2 and "is not empty" in run.output
    assert (tmp_path / "mine").read_text() == "precious"


# --- the verdict ------------------------------------------------------------------------------------------------------

LINES = [b"a", b"b", b"c", b"d"]
SENT = [(7, 0, [b"a", b"b"]), (8, 0, [b"c", b"d"]), (7, 2, [b"a"])]
ACKNOWLEDGED = [Acknowledged(0, 0, 2), Acknowledged(2, 2, 2), Acknowledged(4, 4, 1)]


def judge(tmp_path, sent, acknowledged=ACKNOWLEDGED):
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    with Log.open(OsFiles(), str(folder), now_ms=1) as log:
        for producer_id, sequence, values in sent:
            batch = build_batch(
                values, timestamp_ms=1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
            )
            log.append_as_leader(batch, 1, 1)
    return check_replica(1, str(tmp_path), acknowledged, LINES, (2, 5))


def test_a_whole_log_passes(tmp_path):
    found = judge(tmp_path, SENT)
    assert found.problems == () and found.records == found.end_offset == 5 and found.repeated == 0
    assert set(found.hashes) == {2, 5}


def test_a_batch_that_was_sent_again_counts_once(tmp_path):
    found = judge(tmp_path, [*SENT, SENT[1]])
    assert found.problems == () and found.records == 5 and found.repeated == 1


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (SENT[:2], None),  # a removed replica: all up to its end
        ([SENT[0], SENT[2]], "the batch at offset 2 is nothing that was acknowledged"),
        ([SENT[0], (8, 0, [b"c", b"x"]), SENT[2]], "the record at offset 3 is not the line that was sent"),
        ([*SENT, (9, 0, [b"a"])], "the batch at offset 5 is nothing that was acknowledged"),
    ],
)
def test_damage_is_found(tmp_path, sent, problem):
    found = judge(tmp_path, sent)
    assert found.problems[:1] == (() if problem is None else (problem,))


def test_a_hole_is_found(tmp_path):
    found = judge(tmp_path, [SENT[0]], [Acknowledged(0, 0, 1), Acknowledged(1, 1, 1)])
    assert found.problems == (
        "the batch at offset 0 is nothing that was acknowledged",
        "1 acknowledged records at offset 0 are missing",
        "1 acknowledged records at offset 1 are missing",
    )

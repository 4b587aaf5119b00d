"""``kraftcore up --processes``: nodes are killed, started again, stopped in order; none outlives the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from up_command import UP, Up, free_from

from kraftcore.cli.forking import Forker
from kraftcore.errors import InvariantError, LocalError

BY_PROCESSES = ("--processes", "--property", "min.insync.replicas=2")
COMMAND = UP[:-1]
PATIENCE_S = 60


def produce(servers, *values):
    """With acks=all, each by itself."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "retry.backoff.ms": 20})
    told = []
    for value in values:
        producer.produce("kept", value, partition=0, on_delivery=lambda error, message: told.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert told == [None] * len(values)


def consume(servers, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition("kept", 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, PATIENCE_S)
    consumer.close()
    return [message.value() for message in messages]


def is_there(pid):
    """Whether a process runs; one that has ended and that nobody asked about yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def wait_gone(pids):
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if is_there(pid)]:
        assert time.monotonic() < deadline, f"{left} are still there"
        time.sleep(0.01)


def test_a_killed_broker_is_told_and_started_again_and_all_is_kept(tmp_path):
    first = free_from(4)
    place = ("--directory", tmp_path / "kafka", "--first-port", first, *BY_PROCESSES)
    with Up(*place) as up:
        servers, pids = up.started["bootstrapServers"], up.started["pids"]
        assert servers == ",".join(f"127.0.0.1:{first + each}" for each in range(3))
        assert (up.started["brokers"], up.started["controllers"]) == ([1, 2, 3], [101])
        assert sorted(pids) == ["1", "101", "2", "3"]
        assert len({up.process.pid, *pids.values()}) == 5
        for pid in pids.values():
            assert os.getsid(pid) == pid  # a terminal's Ctrl-C is for the command alone
        produce(servers, b"a")
        os.kill(pids["2"], signal.SIGKILL)
        ended = up.event("ended")
        del ended["time"]
        assert ended == {
            "event": "ended",
            "node": 2,
            "pid": pids["2"],
            "signal": "SIGKILL",
            "status": None,
            "error": None,
        }
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first + 1), timeout=PATIENCE_S)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", first + 1))
        if sys.platform == "linux":
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", first + 1))
        produce(servers, b"b")
        up.process.send_signal(signal.SIGUSR1)
        running = up.event("running")
        assert running["node"] == 2
        assert running["pid"] not in pids.values()
        assert consume(f"127.0.0.1:{first + 1}", 2) == [b"a", b"b"]
        assert up.end(signal.SIGTERM) == (None, 0)
        wait_gone([running["pid"], *pids.values()])
    for broker in (1, 2, 3):  # in order: with a controller that let it go, logs closed
        assert (tmp_path / "kafka" / f"broker-{broker}" / ".kafka_cleanshutdown").exists()
    with Up(*place) as up:
        assert up.started["bootstrapServers"] == servers
        produce(servers, b"c")
        assert consume(servers, 3) == [b"a", b"b", b"c"]
        assert up.end() == (None, 0)


def test_a_node_can_be_started_by_hand_from_anywhere(tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(here)
    with Up("--directory", "./kafka", "--brokers", 2, "--processes") as up:
        assert up.started["directory"] == "./kafka"
        os.kill(up.started["pids"]["2"], signal.SIGKILL)
        up.event("ended")
        command = [*COMMAND, "server", "start", "../here/kafka/broker-2.properties", "--output", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=elsewhere) as server:
            try:
                told = map(json.loads, server.stdout)
                assert any(each["event"] == "broker" and each["stage"] == "Running" for each in told)
                server.terminate()
                assert server.wait(PATIENCE_S) == 0
            finally:
                server.kill()
        assert up.end() == (None, 0)


def test_no_process_outlives_the_command(tmp_path):
    with Up("--directory", tmp_path, "--brokers", 1, "--processes") as up:
        up.process.kill()
        up.process.wait()
        wait_gone(up.started["pids"].values())


def test_a_second_signal_ends_all_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Up("--brokers", 1, "--processes") as up:
        assert list(tmp_path.glob("*/broker-1"))
        for number in (signal.SIGTERM, signal.SIGINT):
            up.process.send_signal(number)
        assert up.process.wait(PATIENCE_S) in (-signal.SIGTERM, -signal.SIGINT)
        assert not any(map(is_there, up.started["pids"].values()))
        assert not list(tmp_path.iterdir())


def test_it_stops_though_nodes_are_frozen_and_no_controller_is_left():
    with Up("--brokers", 2, "--processes") as up:
        pids = up.started["pids"]
        os.kill(pids["1"], signal.SIGSTOP)
        os.kill(pids["101"], signal.SIGKILL)
        assert up.event("ended")["node"] == 101
        assert up.end() == (None, 0)
        assert not any(map(is_there, pids.values()))
    with Up("--brokers", 1, "--processes") as up:
        pids = up.started["pids"]
        os.kill(pids["1"], signal.SIGSTOP)
        assert up.end() == (None, 0)
        assert not any(map(is_there, pids.values()))


def test_it_goes_on_until_all_nodes_have_ended():
    with Up("--brokers", 1, "--processes") as up:
        pids = up.started["pids"]
        os.kill(pids["1"], signal.SIGTERM)
        ended = up.event("ended")
        assert (ended["node"], ended["signal"], ended["status"], ended["error"]) == (1, None, 0, None)
        os.kill(pids["101"], signal.SIGKILL)
        assert up.event("stopped")["error"] == "all nodes have ended"
        assert up.process.wait(PATIENCE_S) == 1


def test_controllers_are_where_they_were(tmp_path):
    for _ in range(2):
        with Up("--directory", tmp_path, "--brokers", 1, "--controllers", 3, "--processes") as up:
            files = [tmp_path / f"controller-{each}.properties" for each in up.started["controllers"]]
            texts = [file.read_text() for file in files]
            assert up.end() == (None, 0)
    assert [file.read_text() for file in files] == texts


def test_a_node_that_fails_while_it_is_stopped_is_told(tmp_path):
    with Up("--directory", tmp_path, "--brokers", 2, "--processes") as up:
        shutil.rmtree(tmp_path / "broker-1")
        up.process.send_signal(signal.SIGTERM)
        ended = up.event("ended")
        assert (ended["node"], ended["status"]) == (1, 1)
        assert "No such file or directory" in ended["error"]
        assert up.event("stopped")["error"] == f"node 1 ended: {ended['error']}"
        assert up.process.wait(PATIENCE_S) == 1


def run(*options):
    command = [*UP, "--output", "json", "--processes", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, done.stderr, [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_wrong_is_told(tmp_path):
    file = tmp_path / "file"
    file.touch()
    status, text, _ = run("--directory", file / "kafka")
    assert status == 1
    assert f"Not a directory: '{file}/kafka" in text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        status, text, _ = run("--first-port", port)
    assert status == 1
    assert f"node 1 cannot listen on 127.0.0.1:{port}" in text


def test_a_directory_stays_with_its_way_and_a_node_that_cannot_start_ends_it(tmp_path):
    with Up("--directory", tmp_path, "--brokers", 1, "--processes") as up:
        assert up.end() == (None, 0)
    command = [*UP, "--directory", str(tmp_path), "--brokers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert f"{tmp_path} was made with kraftcore up --processes" in done.stderr
    assert done.stdout == ""
    status, text, told = run("--directory", tmp_path, "--brokers", 2)
    assert (status, told) == (1, [])
    assert f"{tmp_path} holds a cluster of 1 brokers and 1 controllers, not of 2 and 1: go on with as many" in text
    meta = tmp_path / "broker-1" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    status, text, told = run("--directory", tmp_path, "--brokers", 1)
    assert status == 1
    assert "node 1 ended: " in text
    assert "node id is 7, expected 1" in text
    assert [each["event"] for each in told] == ["ended", "stopped"]
    assert (told[0]["node"], told[0]["status"]) == (1, 1)


def test_nodes_share_what_was_imported_and_nobody_forks_beside_threads():
    program = (
        "import sys; from kraftcore.cli import main, node_run; run_server = node_run.run_server\n"
        "def told(*arguments, **options):\n"
        "    print('plain words', 5, {}, sep='\\n', flush=True)\n"
        "    before = set(sys.modules)\n"
        "    error = run_server(*arguments, **options)\n"
        "    late = sorted(name for name in set(sys.modules) - before if name.startswith('kraftcore'))\n"
        "    print('late', late, file=sys.stderr)\n"
        "    return error\n"
        "node_run.run_server = told; sys.exit(main(['up', '--processes', '--brokers', '1']))"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            told = [process.stdout.readline() for _ in range(7)]
            printed = [(node, text) for node in (101, 1) for text in ('"plain words"', "5", "{}")]
            for (node, text), line in zip(printed, told, strict=False):
                assert f"node={node} level=INFO logger=stdout text={text}" in line
            assert " started bootstrapServers=127.0.0.1:" in told[6]
            threads = Path(f"/proc/{process.pid}/task")
            assert not threads.exists() or len(list(threads.iterdir())) == 1
            process.terminate()
            _, text = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert text.splitlines() == ["late []"] * 2
    assert process.returncode == 0


def test_a_process_with_threads_is_not_forked():
    forker, ending = Forker([], lambda: None), threading.Event()
    thread = threading.Thread(target=ending.wait)
    thread.start()
    try:
        with pytest.raises(InvariantError, match="has threads"):
            forker.fork(lambda: 0)
    finally:
        ending.set()
        thread.join()
        forker.close()


def test_what_is_printed_is_heard_though_a_shell_closed_input_and_output():
    program = (
        "import os, sys; from kraftcore.cli.forking import Forker\n"
        "forked = Forker([], lambda: None).fork(lambda: os.write(1, b'heard') - 5)\n"
        "status = os.waitpid(forked.pid, 0)[1]; sys.stderr.write(f'{status} {os.read(forked.output, 9)}')"
    )
    command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stderr == "0 b'heard'"


def test_a_system_without_room_for_processes_is_told(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests may have left some
    forker = Forker([], lambda: None)
    try:
        with pytest.raises(LocalError, match="allows no more processes"):
            forker.fork(lambda: 0)
    finally:
        forker.close()


def test_a_start_that_takes_too_long_is_given_up():
    program = (
        "import sys; from kraftcore.cli import main, up_processes; up_processes.START_TIMEOUT_S = 0;"
        "sys.exit(main(['up', '--processes', '--brokers', '1']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert "waited 0 s for nodes 101 to be ready" in done.stderr

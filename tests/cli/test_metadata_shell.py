"""``kraftcore metadata shell``: folders of metadata, of a directory and of a live quorum, now and earlier."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest
from kafka_lab import OURS
from server_quorum import note, server_quorum

from kraftcore.cli import main
from kraftcore.cli.metadata_shell import Shell
from kraftcore.cli.metadata_states import State
from kraftcore.core.uuid import Uuid
from kraftcore.metadata.configs import BROKER
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord

Capture = pytest.CaptureFixture[str]
ORDERS, BILLS = Uuid.random(), Uuid.random()


def topic(name: str, topic_id: Uuid) -> list[bytes]:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[Uuid.random(), Uuid.random()],
    )
    return [
        encode_metadata_record(TopicRecord(name=name, topic_id=topic_id), 0),
        encode_metadata_record(partition, 1),
    ]


def led_by_2() -> bytes:
    return encode_metadata_record(PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=2, isr=[2]), 1)


def secrets() -> list[bytes]:
    password = ConfigRecord(resource_type=BROKER, resource_name="", name="ssl.keystore.password", value="hunter2")
    alice = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"salt", stored_key=b"salt", server_key=b"salt", iterations=4096
    )
    return [encode_metadata_record(record, 0) for record in (password, alice)]


def shell(capture: Capture, *arguments: object) -> tuple[int, str, str]:
    capture.readouterr()
    status = main(["metadata", "shell", *map(str, arguments)])
    out, err = capture.readouterr()
    return status, out, err


def test_commands_on_a_directory(tmp_path: Path, capsys: Capture) -> None:
    with server_quorum(tmp_path) as quorum:
        quorum.append([*topic("orders", ORDERS), *secrets()], client_id=1)
        quorum.append([led_by_2()], client_id=2)
        place = tmp_path / f"d{quorum.leader()}"
        assert shell(capsys, place, "ls", "topics/byName")[:2] == (0, "orders/\n")
        assert shell(capsys, place, "cat", "topics/orders/0/isr")[1].split() == ["[", "2", "]"]
        assert json.loads(shell(capsys, place, "cat", f"/image/topics/byId/{ORDERS}/0")[1])["leader"] == 2
        status, out, _ = shell(capsys, place, "cat", "configs")
        assert (status, json.loads(out)["BROKER"]["ssl.keystore.password"]) == (0, "(not shown)")
        logged = shell(capsys, place, "log", "1000")[1]
        assert ("ssl.keystore.password" in logged, "hunter2" in logged, "c2FsdA" in logged) == (True, False, False)
        assert "topics/byName/orders/0/leader" in shell(capsys, place, "find")[1].splitlines()
        status, _, err = shell(capsys, place, "cd", "topics/nosuch")
        assert (status, err) == (1, "/image/topics/nosuch is not there\n")
        status, _, err = shell(capsys, place, "frobnicate")
        assert (status, 'There is no command frobnicate: "help" lists them.' in err) == (1, True)
        changed = json.loads(shell(capsys, place, "cat", "provenance")[1])["endOffset"]
        first = next(
            at for at in range(changed) if "orders" in shell(capsys, f"{place}@{at}", "ls", "topics/byName")[1]
        )
        assert json.loads(shell(capsys, f"{place}@{first + 1}", "cat", "topics/orders/0/leader")[1]) == 1


def test_a_live_quorum_now_and_earlier(tmp_path: Path) -> None:
    """What is committed while the shell runs is seen; ``at`` goes back, ``log`` shows the records about a topic."""
    with server_quorum(tmp_path) as quorum:
        quorum.append(topic("orders", ORDERS), client_id=1)
        command = [*OURS, "metadata", "shell", ",".join(quorum.addresses)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(line: str) -> list[str]:
            process.stdin.write(f"{line}\npwd\n")
            found = []
            while not (read := process.stdout.readline()).startswith("/image"):
                assert read, process.wait()
                found.append(read.rstrip("\n"))
            return found

        try:
            assert ask("ls topics/byName") == ["orders/"]
            end = json.loads("".join(ask("cat provenance")))["endOffset"]
            quorum.append([note("between"), led_by_2(), *topic("bills", BILLS)], client_id=2)
            deadline = time.monotonic() + 60
            while ask("ls topics/byName") != ["bills/", "orders/"]:
                assert time.monotonic() < deadline
            ask("cd topics/orders")
            assert ask("cat 0/leader") == ["2"]
            records = ask("log")
            assert [record.split()[3] for record in records] == [
                "TOPIC_RECORD",
                "PARTITION_RECORD",
                "PARTITION_CHANGE_RECORD",
            ]
            assert ask(f"at {end}") == [f"Everything below offset {end}."]
            assert ask("cat 0/leader") == ["1"]
            assert ask("ls ../byName") == ["orders/"]
            assert len(ask("log")) == 2
            ask("at now")
            assert ask("cat 0/leader") == ["2"]
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def test_a_terminal_completes_and_ctrl_d_leaves(tmp_path: Path) -> None:
    """As people use it: a prompt, the tab key, an earlier moment by the clock, Ctrl-D."""
    with server_quorum(tmp_path) as quorum:
        quorum.append(topic("orders", ORDERS), client_id=1)
        ours, theirs = pty.openpty()
        command = [*OURS, "metadata", "shell", ",".join(quorum.addresses)]
        environment = {**os.environ, "TERM": "dumb", "INPUTRC": os.devnull}
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        try:
            read_until(ours, b"/image> ")
            os.write(ours, b"cd top\tbyN\tord\t\n")
            read_until(ours, b"/image/topics/byName/orders> ")
            os.write(ours, b"at 2001-01-01 00:00\n")
            read_until(ours, b"does not go back to this moment")
            os.write(ours, b"at 25:61\n")
            read_until(ours, b"is no moment")
            os.write(ours, b"\x04")
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def read_until(terminal: int, wanted: bytes) -> None:
    """Read on until this was told, and the next prompt is there: what is typed earlier may be lost."""
    read = b""
    while not (wanted in read and read.endswith(b"> ")):
        assert select.select([terminal], [], [], 60)[0], read
        read += os.read(terminal, 4096)


def test_a_snapshot_has_no_log() -> None:
    alone = Shell(State("here"), None)
    alone.onecmd("at 1")
    assert alone.failed

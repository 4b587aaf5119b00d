"""``kraftcore observe`` as a process, on a node of ours that serves over TCP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangup import hung_up_by
from kafka_lab import OURS
from served_node import Served, serve

from kraftcore.cli import main
from kraftcore.cli.observe_run import as_text
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.storage.meta_properties import MetaProperties

TOPIC = Uuid(bytes(range(16)))
ELSEWHERE = Uuid(bytes(range(16, 32)))
CREATED = encode_metadata_record(TopicRecord(name="caf\N{LATIN SMALL LETTER E WITH ACUTE}", topic_id=TOPIC), 0)
REMOVED = encode_metadata_record(RemoveTopicRecord(topic_id=TOPIC), 0)
UNKNOWN = b"\x01\x7f\x00\x05\x06"  # a type that no release has
NEWER = b"\x01\x02\x09" + CREATED[3:] + b"\x01\x02\x03"  # a TopicRecord of version 9, with more behind it
TORN = CREATED[:6]


def command(served: Served, *arguments: object) -> list[str]:
    return [*OURS, "observe", "--bootstrap-controller", served.address, *map(str, arguments)]


def observed(served: Served, *arguments: object) -> list[str]:
    done = subprocess.run(command(served, *arguments), capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("node")) as found:
        found.append(CREATED, REMOVED, UNKNOWN, NEWER, TORN)
        yield found


def test_records_are_json_lines_as_dump_log_prints_them(served: Served, tmp_path: Path) -> None:
    lines = observed(served, "--once", "--output", "json", "--directory", tmp_path)
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    dumped = subprocess.run(
        [*OURS, "dump-log", "--cluster-metadata-decoder", "--output", "json", "--files", str(segment)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert lines == [line for line in dumped if json.loads(line)["kind"] == "record"]
    assert len(lines) >= 6
    created, removed, unknown, newer, torn = map(json.loads, lines[-5:])
    assert created["payload"] == {
        "type": "TOPIC_RECORD",
        "version": 0,
        "data": {"name": "caf\xe9", "topicId": str(TOPIC)},
    }
    assert removed["payload"]["type"] == "REMOVE_TOPIC_RECORD"
    assert "Unknown metadata id 127" in unknown["error"]
    assert "garbage" in newer["error"]
    assert "Failed to deserialize" in torn["error"]
    assert all(line.get("payload") or line["payloadBase64"] for line in (unknown, newer, torn))


def test_text_is_for_people(served: Served) -> None:
    *_, created, removed, unknown, newer, torn = observed(served, "--once")
    assert "TOPIC_RECORD" in created
    assert '"caf\xe9"' in created
    assert "REMOVE_TOPIC_RECORD" in removed
    assert all("UNKNOWN" in line for line in (unknown, newer, torn))
    assert all(each.isprintable() for each in (created, removed, unknown, newer, torn))


def test_an_applications_own_records_are_text_or_hex_and_no_errors(tmp_path: Path) -> None:
    with serve(tmp_path / "node") as served:
        served.append(b"+1", b"\x95\xa3set", b"\x01\x7f")
        as_text, as_json = (
            subprocess.run(
                command(served, "--once", "--output", form), capture_output=True, text=True, check=True, timeout=60
            )
            for form in ("text", "json")
        )
    assert [line.split()[3:] for line in as_text.stdout.splitlines()[-3:]] == [
        ["record", '"+1"'],
        ["record", "0x95a3736574"],
        ["record", r'"\u0001\u007f"'],
    ]
    first, *_, last = [json.loads(line) for line in as_json.stdout.splitlines()[-3:]]
    assert (first["payload"], last["payload"]) == ("+1", "\x01\x7f")
    for done in (as_text, as_json):
        assert "error" not in done.stdout
        assert done.stderr.count("\n") == 1
        assert "no cluster metadata" in done.stderr


@pytest.mark.parametrize("timestamp", [-1, 0, 253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_times_that_are_none_are_a_dash(timestamp: int) -> None:
    """Whoever wrote the record chose them."""
    assert as_text({"offset": 7, "timestamp": timestamp, "payload": "x"}).split()[:3] == ["7", "-", "record"]


def test_times_go_to_the_year_9999() -> None:
    assert "9999-12-31 23:59:59" in as_text({"offset": 7, "timestamp": 253_402_300_799_999, "payload": "x"})


def test_types_and_offsets_choose(served: Served) -> None:
    (line,) = observed(served, "--once", "--output", "json", "--type", "topicrecord")
    offset = json.loads(line)["offset"]
    assert len(observed(served, "--once", "--type", "TOPIC_RECORD,RemoveTopicRecord")) == 2
    assert len(observed(served, "--once", "--from-offset", offset)) == 5
    assert observed(served, "--once", "--from-end") == []
    assert observed(served, "--once", "--output", "none") == []
    assert "LEADER_CHANGE" in observed(served, "--once", "--type", "LEADER_CHANGE")[0]


def test_from_the_end_only_what_comes_is_printed_until_a_signal(served: Served, tmp_path: Path) -> None:
    process_command = command(served, "--from-end", "--output", "json", "--directory", tmp_path)
    with subprocess.Popen(process_command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not list(tmp_path.glob("*/*.log")) or next(tmp_path.glob("*/*.log")).stat().st_size == 0:
            assert process.poll() is None
        served.append(REMOVED, CREATED)
        line = json.loads(process.stdout.readline())
        assert "payload" in line
        process.terminate()
        assert process.wait(20) == 0
    meta = MetaProperties.decode((tmp_path / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id, meta.directory_id) == (served.cluster_id, -1, None)


def hanging(served: Served, *arguments: object) -> list[str]:
    """The command, on a disk that hangs when the mirror is closed."""
    program = (
        "import sys, trio; from kraftcore.cli import main; from kraftcore.observer import Observer;"
        "Observer.close = lambda self: trio.sleep_forever(); sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-P", "-c", program, *command(served, *arguments)[len(OURS) :]]


@pytest.mark.parametrize("is_temporary", [True, False])
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_ends_it_at_once_and_a_temporary_mirror_goes(
    served: Served, tmp_path: Path, first: signal.Signals, *, is_temporary: bool
) -> None:
    where = [] if is_temporary else ["--directory", tmp_path / "kept"]
    with hung_up_by(signal.SIG_DFL):
        process = subprocess.Popen(
            hanging(served, *where), stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
        )
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            (mirror,) = tmp_path.iterdir()
            process.send_signal(first)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == -signal.SIGTERM
            assert mirror.exists() is not is_temporary
        finally:
            process.kill()


def test_a_terminal_that_is_closed_ends_it_in_order(served: Served, tmp_path: Path) -> None:
    with hung_up_by(signal.SIG_DFL):
        process = subprocess.Popen(command(served), stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            assert process.wait(20) == 0
            assert not list(tmp_path.iterdir())
        finally:
            process.kill()


def test_an_empty_entry_among_the_controllers_is_none(served: Served) -> None:
    """Source: Kafka 4.3.1, ClientUtils.parseAndValidateAddresses."""
    twice = [*OURS, "observe", "--bootstrap-controller", f"{served.address},,", "--once", "--output", "none"]
    assert subprocess.run(twice, check=False).returncode == 0


def test_a_reader_that_goes_away_ends_it(served: Served) -> None:
    with subprocess.Popen(command(served), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        served.append(REMOVED)
        assert process.wait(20) == 141


def test_an_output_that_is_closed_is_one_line_or_is_not_needed(served: Served, tmp_path: Path) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"]
    said = subprocess.run([*shell, *command(served, "--once")], capture_output=True, text=True, check=False)
    text = "Error: the output is closed: redirect it to a file, or ask for --output none\n"
    assert (said.returncode, said.stderr) == (1, text)
    arguments = command(served, "--once", "--output", "none", "--directory", tmp_path)
    shell[2] += " 2>&-"
    assert subprocess.run([*shell, *arguments], check=False).returncode == 0
    assert list(tmp_path.glob("*/*.log"))


def test_other_logs_are_shown_as_text(tmp_path: Path) -> None:
    with serve(tmp_path / "node", topic="orders", topic_id=ELSEWHERE) as found:
        found.append(b"plain text", b"\xff\x00")
        where = ["--once", "--topic", "orders", "--topic-id", ELSEWHERE]
        *_, text, binary = map(json.loads, observed(found, *where, "--output", "json"))
        assert (text["payload"], binary["payloadBase64"]) == ("plain text", "/wA=")
        assert observed(found, *where)[-2].endswith('"plain text"')


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--from-end", "--from-offset", "3"], 2, "exclude each other"),
        (["--type", "TopicRecrd"], 2, "did you mean TopicRecord?"),
        (["--topic-id", "x"], 1, "x"),
        (["--directory", ""], 1, "would be the working directory"),
        (["--topic", "../x"], 1, "'../x' is no topic"),
        (["--topic", ""], 1, "'' is no topic"),
        (["--command-config", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_wrong_usage_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str) -> None:
    assert main(["observe", "--bootstrap-controller", "127.0.0.1:1", *arguments]) == status
    assert words in capsys.readouterr().err


def test_nobody_there_is_said_with_the_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    assert main(["observe", "--bootstrap-controller", "127.0.0.1:1", "--command-config", str(config)]) == 1
    assert "nobody listens there" in capsys.readouterr().err

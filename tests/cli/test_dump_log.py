"""``dump-log`` against what Kafka's own tool printed: golden logs, odd records, damage, indexes, wrong names."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from dump_cases import DATA, GOLDEN, Case, cases

from kraftcore.cli import main
from kraftcore.core.batch import build_batch, build_records_batch, iter_batches
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.json_form import to_json_dict
from kraftcore.protocol.metadata import decode_metadata_record

CASES = list(cases())
DUMPS = sorted(GOLDEN.glob("*/*/dump/*.txt"))
LOG = "00000000000000000000.log"


class Runner:
    """Runs the command in this process and catches what it prints."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._patch = patch

    def __call__(self, *arguments: str, folder: Path | None = None) -> tuple[int, str, str]:
        if folder is not None:
            self._patch.chdir(folder)
        status = main(["dump-log", *arguments])
        out, err = self._capture.readouterr()
        return status, out.decode(), err.decode()


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(capfdbinary, monkeypatch)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: "-".join([*path.parts[-4:-2], path.stem]))
def test_golden_files_print_what_kafka_printed(path: Path, run: Runner) -> None:
    folder = path.parents[1]
    name = path.name.removesuffix(".txt")
    source = name if (folder / name).exists() else f"__cluster_metadata-0/{name}"
    status, out, _ = run("--cluster-metadata-decoder", "--files", source, folder=folder)
    assert status == 0
    assert out == path.read_text()


def test_every_golden_log_and_checkpoint_is_compared() -> None:
    sources = [path for suffix in ("log", "checkpoint") for path in GOLDEN.glob(f"*/c*/**/*.{suffix}")]
    assert len(DUMPS) == len(sources) > 30


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_prints_what_kafka_printed(case: Case, run: Runner) -> None:
    status, out, err = case.expected()
    ours = run(*case.arguments, folder=case.working_folder)
    assert ours[1] == out
    assert ours[0] == status
    if status == 0:
        assert ours[2] == err
    else:  # Kafka prints a stack trace there
        assert ours[2].startswith("Error: ")
        assert ours[2].count("\n") == 1


def test_stored_outputs_belong_to_cases() -> None:
    assert {path.stem for path in (DATA / "expected").iterdir()} == {case.name for case in CASES}


def test_a_missing_file_is_named_with_the_reason(run: Runner, tmp_path: Path) -> None:
    status, out, err = run("--files", f"{tmp_path}/00000000000000000042.log")
    assert (status, err) == (1, f"Error: {tmp_path}/00000000000000000042.log: No such file or directory\n")
    assert out == f"Dumping {tmp_path}/00000000000000000042.log\nLog starting offset: 42\n"


def test_damage_is_named_with_its_place(run: Runner) -> None:
    folder = DATA / "input" / "damaged" / "length-negative"
    status, _, err = run("--files", LOG, folder=folder)
    assert (status, err) == (1, "Error: 00000000000000000000.log: batch length -5 is below 14 (byte 332)\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "Missing option '--files'"),
        (("--files", "x.log", "--files", "y.log"), "Found multiple arguments for option files"),
        (("--files", "x.log", "--max-bytes", "-1"), "--max-bytes"),
        (("--files", "x.log", "--output", "xml"), "--output"),
        (("--files", "x.log", "--offsets-decoder"), "No such option"),
    ],
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], reason: str, run: Runner) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert reason in err


# ---- JSON


def test_json_holds_the_same_as_the_typed_decoders(run: Runner) -> None:
    folder = GOLDEN / "dynamic" / "c1" / "__cluster_metadata-0"
    name = "00000000000000000204.log"
    status, out, err = run("--cluster-metadata-decoder", "--output", "json", "--files", name, folder=folder)
    assert (status, err) == (0, "")
    lines = iter(json_lines(out))
    assert next(lines) == {"kind": "file", "path": name, "type": "log", "baseOffset": 204}
    for batch in iter_batches((folder / name).read_bytes()):
        shown = next(lines)
        assert shown == {
            "kind": "batch",
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.count,
            "baseSequence": -1,
            "lastSequence": -1,
            "producerId": -1,
            "producerEpoch": -1,
            "partitionLeaderEpoch": batch.leader_epoch,
            "isTransactional": False,
            "isControl": batch.is_control,
            "deleteHorizonMs": None,
            "position": batch.position,
            "timestampType": "CreateTime",
            "maxTimestamp": batch.max_timestamp_ms,
            "size": batch.size,
            "magic": 2,
            "compression": "none",
            "crc": batch.crc,
            "isValid": True,
        }
        for record in batch:
            shown = next(lines)
            assert (shown["offset"], shown["timestamp"]) == (record.offset, record.timestamp_ms)
            assert (shown["keySize"], shown["valueSize"]) == (record.key_size, record.value_size)
            if batch.is_control:
                control = decode_control_record(record.key, record.value)
                assert control.body is not None
                assert shown["controlType"] == control.type.name  # type: ignore[attr-defined]
                assert shown["data"] == to_json_dict(control.body, control.version)
            else:
                assert record.value is not None
                message, version = decode_metadata_record(record.value)
                assert shown["payload"]["version"] == version
                assert shown["payload"]["data"] == to_json_dict(message, version)
                assert shown["payload"]["type"].replace("_", "").lower() == type(message).__name__.lower()
                assert shown["key"] is None
    assert list(lines) == [
        {"kind": "gap", "path": str(folder / name), "after": -1, "next": 204},
    ]


def test_json_of_keys_and_values_of_any_kind(run: Runner) -> None:
    folder = DATA / "input" / "rich"
    _, out, _ = run("--print-data-log", "--output", "json", "--files", LOG, folder=folder)
    shown = [line for line in json_lines(out) if line["kind"] == "record" and "controlType" not in line]
    records = [
        record for batch in iter_batches((folder / LOG).read_bytes()) if not batch.is_control for record in batch
    ]
    assert len(shown) == len(records) > 30
    for line, record in zip(shown, records, strict=True):
        for name, value in (("key", record.key), ("payload", record.value)):
            if f"{name}Base64" in line:
                assert base64.b64decode(line[f"{name}Base64"]) == value
                with pytest.raises(UnicodeDecodeError):
                    value.decode()  # type: ignore[union-attr]
            else:
                assert line[name] == (None if value is None else value.decode())
        assert line["sequence"] == record.sequence
    controls = [line for line in json_lines(out) if "controlType" in line]
    assert [line["controlType"] for line in controls] == ["COMMIT", "ABORT", 9, -1]
    assert [line.get("coordinatorEpoch") for line in controls] == [7, 8, None, None]
    batches = [line for line in json_lines(out) if line["kind"] == "batch"]
    assert {line["compression"] for line in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert [line["deleteHorizonMs"] for line in batches if line["deleteHorizonMs"]] == [1_700_000_002_000]


def test_json_of_values_that_are_no_metadata_records(run: Runner) -> None:
    folder = DATA / "input" / "odd"
    _, out, _ = run("--cluster-metadata-decoder", "--output", "json", "--files", LOG, folder=folder)
    _, text, _ = run("--cluster-metadata-decoder", "--files", LOG, folder=folder)
    records = [line for line in json_lines(out) if line["kind"] == "record"]
    printed = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(records) == len(printed)
    for record, line in zip(records, printed, strict=True):
        payload = line.partition("payload: ")[2]
        if "error" in record:
            assert payload == f"Error at {record['offset']}, skipping. {record['error']}"
        else:
            assert json.loads(payload) == record["payload"]


def test_json_ends_with_a_whole_object_before_damage(run: Runner, tmp_path: Path) -> None:
    good = build_records_batch([(b"k", b"v")], timestamp_ms=1)
    leader_change = b"\0\0\0\2"
    bad = build_records_batch([(leader_change, b"")], timestamp_ms=1, base_offset=1, control=True)  # without its body
    (tmp_path / LOG).write_bytes(good + bad)
    status, out, err = run("--output", "json", "--deep-iteration", "--files", LOG, folder=tmp_path)
    assert status == 1
    assert [line["kind"] for line in json_lines(out)] == ["file", "batch", "record", "batch"]
    assert out.endswith("}\n")
    assert err.startswith("Error: ")


def test_json_of_the_other_files(run: Runner) -> None:
    def kinds(name: str, *flags: str) -> list[dict[str, Any]]:
        status, out, err = run("--output", "json", *flags, "--files", str(DATA / "input" / name))
        assert (status, err) == (0, "")
        return json_lines(out)

    assert kinds(f"index/good/{LOG[:-4]}.index")[1:] == [
        {"kind": "indexEntry", "offset": 2 * n + 1, "position": 126 * n} for n in (2, 5, 8)
    ]
    assert kinds(f"index/good/{LOG[:-4]}.timeindex")[1:] == [
        {"kind": "timeIndexEntry", "timestamp": 1000 + 10 * n, "offset": 2 * n + 1} for n in (2, 5, 8)
    ]
    assert [line["kind"] for line in kinds(f"index/time-mismatch/{LOG[:-4]}.timeindex", "--verify-index-only")] == [
        "file",
        "timeIndexMismatch",
        "timeIndexMismatch",
        "timeIndexOrder",
        "timeIndexOrder",
    ]
    assert kinds(f"index/offset-mismatch/{LOG[:-4]}.timeindex", "--verify-index-only")[1]["logOffset"] == 5
    assert [line["logOffset"] for line in kinds(f"index/offset-mismatch/{LOG[:-4]}.index") if "logOffset" in line] == [
        3,
        5,
    ]
    assert kinds(f"index/empty/{LOG[:-4]}.index")[1]["result"] == "empty"
    producers = kinds("other/00000000000000000100.snapshot")[1:]
    assert [line["currentTxnFirstOffset"] for line in producers] == [None, 110, 0]
    assert [line["lastOffset"] for line in producers] == [100, 120, None]
    assert "CRC" in kinds("other/00000000000000000101.snapshot")[1]["reason"]
    assert [line["lastStableOffset"] for line in kinds("other/00000000000000000000.txnindex")[1:]] == [2, 12, 22]
    assert kinds("damaged/torn-record/" + LOG)[-1] == {"kind": "trailingBytes", "bytes": 65}


# ---- as a process


def command(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kraftcore", "dump-log", *arguments], stdout=subprocess.PIPE, **options
    )


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / LOG
    batch = bytes(build_batch([b"\x01\x14\0\0"] * 400, timestamp_ms=1))
    path.write_bytes(batch * 1200)  # 6 MB, 480,000 records, 60 MB of text
    return path


def test_a_reader_that_goes_away_ends_it_quietly(large_log: Path) -> None:
    with command("--cluster-metadata-decoder", "--files", str(large_log), stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Dumping ")
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_an_interrupt_ends_it_quietly(large_log: Path) -> None:
    with command("--cluster-metadata-decoder", "--files", str(large_log), stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1 << 20)
        process.send_signal(signal.SIGINT)
        reader = threading.Thread(target=process.stdout.read)
        reader.start()
        assert process.wait(20) == 130
        reader.join()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def peak_kib(path: Path) -> tuple[int, int]:
    """Peak memory of a run, and how much it printed."""
    with command("--cluster-metadata-decoder", "--files", str(path), stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        size = 0
        while piece := process.stdout.read(1 << 20):
            size += len(piece)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss, size


def test_memory_does_not_grow_with_the_file(large_log: Path, tmp_path: Path) -> None:
    small_log = tmp_path / LOG
    small_log.write_bytes(large_log.read_bytes()[: 2 << 20])
    small, _ = peak_kib(small_log)
    large, size = peak_kib(large_log)
    assert size > 50 << 20
    assert large < small + 2048


@pytest.mark.parametrize(("size_limit", "shown"), [(1, True), (1 << 20, False)])
def test_a_progress_bar_only_for_big_files_on_a_terminal(
    size_limit: int, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / LOG
    path.write_bytes(build_batch([b"x"] * 10, timestamp_ms=1))
    leader, follower = os.openpty()
    with os.fdopen(leader, "rb", buffering=0) as screen, os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr("kraftcore.cli.dump_log.PROGRESS_BYTES", size_limit)
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["dump-log", "--files", str(path)]) == 0
        print("end", file=terminal, flush=True)
        seen = b""
        while b"end" not in seen:
            seen += screen.read(10_000)
    assert (b"100%" in seen) == shown


# ---- hostile files


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_never_end_in_anything_but_the_documented_error(seed: int, tmp_path: Path, run: Runner) -> None:
    rng = random.Random(seed)
    source = rng.choice(["rich", "records", "odd"])
    data = bytearray((DATA / "input" / source / LOG).read_bytes())
    for number in range(30):
        damaged = data[:]
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path = tmp_path / f"{number}.log"
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        flags = rng.choice([["--cluster-metadata-decoder"], ["--print-data-log"], []])
        output = rng.choice(["json", "text"])
        status, out, err = run(*flags, "--output", output, "--files", str(path))
        assert status in (0, 1)
        assert status == 0 or (err.startswith("Error: ") and err.count("\n") == 1)
        if output == "json" and status == 0:
            assert json_lines(out)


def test_a_compressed_batch_that_explodes_is_refused(tmp_path: Path, run: Runner) -> None:
    path = tmp_path / LOG
    path.write_bytes(build_records_batch([(None, bytes(130 << 20))], compression=4))
    assert path.stat().st_size < 100_000
    status, out, err = run("--print-data-log", "--files", str(path))
    assert status == 1
    assert len(out) < 1000
    assert "decompress" in err

"""Cases for ``dump-log``: input files, arguments, and what Kafka 4.3.1's own tool printed for them.

Inputs and outputs are stored in ``tests/data/dump_log``. To make them anew (Java, and the jars of kafka-tools 4.3.1):

    python tests/support/dump_cases.py 'CLASSPATH'
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data" / "dump_log"
INPUT = DATA / "input"
GOLDEN = TESTS / "golden"
TOOL = "org.apache.kafka.tools.DumpLogSegments"
LOG = "00000000000000000000.log"
METADATA_LOG = GOLDEN / "dynamic" / "c1" / "__cluster_metadata-0" / "00000000000000000204.log"
DECODE = "--cluster-metadata-decoder"


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: also of the stored output.
        folder: where the tool runs, below ``tests``.
        arguments: of the tool.
    """

    name: str
    folder: str
    arguments: tuple[str, ...]

    @property
    def working_folder(self) -> Path:
        """Where the tool runs."""
        return TESTS / self.folder

    def expected(self) -> tuple[int, str, str]:
        """Kafka's exit status, stdout and stderr; stderr is empty where Kafka printed a stack trace."""
        status = json.loads((DATA / "status.json").read_text())[self.name]
        stored = DATA / "expected" / self.name
        errors = Path(f"{stored}.err").read_bytes().decode() if status == 0 else ""
        return status, Path(f"{stored}.out").read_bytes().decode(), self.place(errors)

    def place(self, text: str) -> str:
        """Absolute paths in stored text depend on where the tests are."""
        return text.replace("$FOLDER", str(self.working_folder))

    def run_kafka(self, classpath: str) -> tuple[int, str, str]:
        """Run Kafka's tool."""
        done = subprocess.run(
            ["java", "-cp", classpath, TOOL, *self.arguments],
            cwd=self.working_folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            check=False,
        )
        status = done.returncode
        return status, done.stdout.decode(), done.stderr.decode() if status == 0 else ""


def cases() -> Iterator[Case]:
    """All cases; their inputs are stored."""
    kept = "data/dump_log/input"
    modes = {
        "plain": (),
        "print": ("--print-data-log",),
        "deep": ("--deep-iteration",),
        "skip": ("--print-data-log", "--skip-record-metadata"),
        "skip-deep": ("--deep-iteration", "--skip-record-metadata"),
        "decode": (DECODE,),
        "decode-skip": (DECODE, "--skip-record-metadata"),
    }
    for source in ("rich", "records", "odd"):
        for mode, flags in modes.items():
            yield Case(f"{source}-{mode}", f"{kept}/{source}", (*flags, "--files", LOG))
    for size in (0, 1, 60, 72, 73, 90, 300, 5000):
        yield Case(f"max-bytes-{size}", f"{kept}/rich", ("--print-data-log", f"--max-bytes={size}", "--files", LOG))
    for path in sorted(INPUT.glob("damaged/*")):
        yield Case(f"damaged-{path.name}-deep", f"{kept}/damaged/{path.name}", (DECODE, "--files", LOG))
        yield Case(f"damaged-{path.name}-plain", f"{kept}/damaged/{path.name}", ("--files", LOG))
    golden = "golden/dynamic/c1"
    log = "__cluster_metadata-0/00000000000000000204"
    snapshot = "__cluster_metadata-0/00000000000000000237-0000000001.checkpoint"
    yield Case("golden-index", golden, ("--files", f"{log}.index"))
    yield Case("golden-timeindex", golden, ("--files", f"{log}.timeindex"))
    yield Case("golden-index-sanity", golden, ("--index-sanity-check", "--files", f"{log}.index,{log}.timeindex"))
    yield Case("golden-index-verify", golden, ("--verify-index-only", "--files", f"{log}.index,{log}.timeindex"))
    yield Case("golden-snapshot", golden, ("--files", f"{log}.snapshot"))
    yield Case("golden-several", golden, (DECODE, "--files", f"{snapshot},bootstrap.checkpoint,{log}.log,{log}.index"))
    yield Case("golden-slashes", golden, ("--files", f"./{log.replace('/', '//')}.log,"))
    yield Case("golden-small-messages", golden, ("--max-message-size", "80", "--files", f"{log}.index"))
    for name in ("missing.log", "x.log", "noext", "file.txt", "odd.checkpoint", f"{LOG},missing.log", "missing.index"):
        yield Case(f"name-{name.replace(',', '-')}", f"{kept}/names", ("--files", name))
    for path in sorted(INPUT.glob("index/*")):
        for suffix in ("index", "timeindex"):
            for mode, flags in {
                "": (),
                "-verify": ("--verify-index-only",),
                "-sanity": ("--index-sanity-check",),
            }.items():
                files = ("--files", LOG.replace("log", suffix))
                yield Case(f"{suffix}-{path.name}{mode}", f"{kept}/index/{path.name}", (*flags, *files))
    for path in sorted(INPUT.glob("other/*")):
        yield Case(f"other-{path.name}", f"{kept}/other", ("--files", path.name))


# ---- making the inputs


def _rich_batches() -> Iterator[bytes | bytearray]:
    from kraftcore.core.batch import Record, RecordBatch, build_batch, build_records_batch

    records = [
        Record(b"value", b"key", [("h1", b"x"), ("ünï", None), ("", b"")], timestamp_ms=1_700_000_000_000),
        Record(None, b"tombstone", timestamp_ms=1_700_000_000_500),
        Record("grüße 😀 \t tab".encode(), None, timestamp_ms=1_699_999_999_000),
        Record(b"\xff\xfe\xed\xa0\x80\xe2\x82(\xf0\x9f", b"\xc0\xaf\xf5", [(b"\xff", b"v")], timestamp_ms=1),
        Record(b"", b"", timestamp_ms=-1),
    ]
    offset = 0
    for codec in range(5):
        yield build_records_batch(records, base_offset=offset, leader_epoch=codec, compression=codec)
        offset += len(records)
    yield build_records_batch(
        records, base_offset=offset, leader_epoch=5, timestamp_type=1, timestamp_ms=1_700_000_001_000
    )
    offset += 10  # a gap
    yield build_batch(
        [b"a", b"b", b"c"], timestamp_ms=7, base_offset=offset, leader_epoch=6, producer_id=4000, producer_epoch=3,
        base_sequence=2**31 - 2, transactional=True,
    )  # fmt: skip
    offset += 3
    yield build_records_batch(records, base_offset=offset, leader_epoch=7, delete_horizon_ms=1_700_000_002_000)
    offset += 5
    whole = RecordBatch(build_batch([b"0", b"1", b"2", b"3"], timestamp_ms=8, base_offset=offset, leader_epoch=7))
    yield whole.rebuild([record for record in whole if record.offset % 2])  # compacted
    yield whole.rebuild([])
    offset += 4
    for number, value in ((1, b"\0\0\0\0\0\x07"), (0, b"\0\0\0\0\0\x08"), (9, b"?"), (-1, None)):
        yield build_records_batch(
            [(struct.pack(">hh", 0, number), value)], timestamp_ms=9, base_offset=offset, leader_epoch=8,
            producer_id=4000, producer_epoch=3, transactional=number in (0, 1), control=True,
        )  # fmt: skip
        offset += 1
    yield build_batch([b"back"], timestamp_ms=10, base_offset=3, leader_epoch=2)


def _random_value(field: Any, version: int, rng: random.Random, *, item: bool = False) -> Any:
    from kraftcore.core.uuid import Uuid

    def within(span: tuple[int, int | None] | None) -> bool:
        return span is not None and span[0] <= version and (span[1] is None or version <= span[1])

    if field.is_array and not item:
        if within(field.nullable) and rng.random() < 0.2:
            return None
        return [_random_value(field, version, rng, item=True) for _ in range(rng.randrange(4))]
    if within(field.nullable) and not field.is_array and rng.random() < 0.2:
        return None
    if field.struct_class is not None:
        return random_struct(field.struct_class, version, rng)
    bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
    if field.type_name in bits:
        limit = 1 << bits[field.type_name]
        return rng.choice([0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)])
    choices = {
        "uint16": [0, 65535, rng.randrange(65536)],
        "uint32": [0, 2**32 - 1],
        "bool": [False, True],
        "float64": [0.0, -0.0, 1.0, 1e7, 12345.678, 0.001, 1e-5, 1e21, 5e-324, 1.7976931348623157e308, float("inf"),
                    float("-inf"), float("nan"), rng.random() * 10 ** rng.randrange(-3, 12)],
        "string": ["", "plain", 'quote " back \\ slash /', "\x00\x01\b\t\n\f\r\x1f\x7f", "ünïcode 😀 \u2028", "<&'>"],
        "bytes": [b"", b"x", b"ab", b"abc", rng.randbytes(20)],
        "uuid": [Uuid(), Uuid(rng.randbytes(16))],
    }  # fmt: skip
    return rng.choice(choices[field.type_name])


def random_struct(cls: Any, version: int, rng: random.Random) -> Any:
    """A message of a class with random values in the fields of a version."""
    values = {}
    for field in cls.__layout__.fields:
        low, high = field.versions
        if low <= version and (high is None or version <= high) and (field.tagged is None or rng.random() < 0.6):
            values[field.name] = _random_value(field, version, rng)
    return cls(**values)


def _record_batches() -> Iterator[bytearray]:
    """Every metadata record in every version, with random contents; control records too."""
    from kraftcore.core.batch import build_batch, build_records_batch
    from kraftcore.protocol.control import encode_control_record
    from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage
    from kraftcore.protocol.data.voters_record import VotersRecord
    from kraftcore.protocol.metadata import encode_metadata_record
    from kraftcore.protocol.registry import MetadataRecordType, record_class

    rng = random.Random(4)
    offset = 0
    for number in MetadataRecordType:
        cls = record_class(number)
        low, high = cls.schema.versions or (0, 0)
        for version in range(low, high + 1):
            values = [encode_metadata_record(random_struct(cls, version, rng), version) for _ in range(6)]
            yield build_batch(values, timestamp_ms=1_700_000_000_000 + offset, base_offset=offset, leader_epoch=1)
            offset += len(values)
    bodies = [random_struct(cls, 0, rng) for cls in (LeaderChangeMessage, VotersRecord) for _ in range(4)]
    control = [encode_control_record(body) for body in bodies]
    stated = struct.pack(">h", 1)  # a body that says version 1 is read as version 0
    control += [(key, stated + value[2:]) for key, value in control]
    yield build_records_batch(control, timestamp_ms=5, base_offset=offset, leader_epoch=1, control=True)


def _odd_values() -> list[bytes | None]:
    """Values that are no metadata records, or only nearly."""
    topic = bytes.fromhex("01020004666f6f") + bytes(16) + b"\0"
    return [
        topic, b"", None, b"\0", b"\0\x02\0", b"\x02\x02\0", b"\xff\x7f\x02\0", b"\x01", b"\x01\x02", b"\x80",
        b"\x01\x80", b"\x01\x02\x80", b"\x01\x06\0", b"\x01\x63\0", b"\x01\xf0\xa2\x04\0", b"\x01\x02\xf0\xa2\x04",
        b"\xf0\xa2\x04", topic[:2] + b"\x09" + topic[3:], topic + b"x", topic + b"garbage", topic[:-1], topic[:8],
        bytes.fromhex("010200ffffffff7f"), b"\x01\x14\0\x01\x07\x02ab", b"plain text", "ü".encode(),
        b"\xff\xff\xff\xff\xff\xff", b"\x01\x05\x63" + bytes(40), b"\xff\xff\xff\xff\x0f\0\0",
    ]  # fmt: skip


def _damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    from kraftcore.core.batch import build_batch, iter_batches

    starts = [batch.position for batch in iter_batches(data)]
    short = data[: starts[8]]
    at = starts[4]

    def patched(offset: int, value: bytes) -> bytes:
        return short[: at + offset] + value + short[at + offset + len(value) :]

    yield "torn-header", short[: at + 30]
    yield "torn-prefix-16", short[: at + 16]
    yield "torn-prefix-17", short[: at + 17]
    yield "torn-prefix-18", short[: at + 18]
    yield "torn-record", short[: at + 65]
    yield "torn-last-byte", short[:-1]
    yield "empty", b""
    yield "tiny", b"x"
    yield "zero-tail-10", short + bytes(10)
    yield "zero-tail-100", short + bytes(100)
    yield "noise-tail", short + random.Random(7).randbytes(200)
    yield "flipped-value", patched(69, bytes([short[at + 69] ^ 0x55]))
    yield "flipped-crc", patched(17, bytes([short[at + 17] ^ 1]))
    yield "timestamp", patched(27, b"\x7f")
    yield "length-negative", patched(8, struct.pack(">i", -5))
    yield "length-13", patched(8, struct.pack(">i", 13))
    yield "length-large", patched(8, struct.pack(">i", 0x7FFFFFFF))
    yield "length-plus-1", patched(8, struct.pack(">i", struct.unpack_from(">i", short, at + 8)[0] + 1))
    yield "count-0", patched(57, struct.pack(">i", 0))
    yield "count-2", patched(57, struct.pack(">i", 2))
    yield "count-negative", patched(57, struct.pack(">i", -1))
    yield "codec-5", patched(21, struct.pack(">h", 5))
    yield "codec-gzip", patched(21, struct.pack(">h", 1))
    yield "control-bit", patched(21, struct.pack(">h", 0x20))
    yield "record-length", patched(61, b"\x7e")
    yield "last-offset-delta", patched(23, struct.pack(">i", 1000))
    many = bytearray(build_batch([b"\x01\x14\0\0"] * 5, timestamp_ms=1, base_offset=50))
    many[61 + 11 * 2 : 61 + 11 * 2 + 1] = b"\x09"
    yield "third-record", short + bytes(many)


def _index_folders(data: bytes) -> Iterator[tuple[str, bytes, bytes, bytes]]:
    from kraftcore.core.batch import build_batch

    log = b"".join(
        build_batch([b"x" * 50, b"y"], timestamp_ms=1000 + 10 * number, base_offset=2 * number) for number in range(10)
    )
    size = len(log) // 10
    offsets = [(2 * number + 1, size * number) for number in (2, 5, 8)]
    times = [(1000 + 10 * number, 2 * number + 1) for number in (2, 5, 8)]

    def index(entries: list[tuple[int, int]]) -> bytes:
        return b"".join(struct.pack(">ii", *entry) for entry in entries)

    def timeindex(entries: list[tuple[int, int]]) -> bytes:
        return b"".join(struct.pack(">qi", *entry) for entry in entries)

    yield "good", log, index(offsets), timeindex(times)
    yield "preallocated", log, index(offsets) + bytes(80), timeindex(times) + bytes(120)
    yield "only-zeros", log, bytes(64), bytes(60)
    yield "empty", log, b"", b""
    yield "odd-size", log, index(offsets) + b"abc", timeindex(times) + b"abcd"
    yield "offset-mismatch", log, index([(4, size * 2), (9, size), *offsets[1:]]), timeindex([(1020, 4), (1050, 99)])
    yield "time-mismatch", log, index(offsets), timeindex([(5, 5), (1050, 11), (1050, 17), (1010, 3)])
    yield "outside", log, index([(5, len(log) + 1)]), timeindex([(1020, 5), (1000, 1)])
    yield "at-the-end", log, index([(5, len(log))]), timeindex([(1020, 5)])
    yield "negative", log, index([*offsets, (-3, 0)]), timeindex([*times, (2000, -7)])
    yield "unaligned", log, index([(5, 3)]), timeindex([(1020, 5)])
    torn = log[: size * 8 + 20]
    yield "torn-log", torn, index(offsets), timeindex(times)


def _other_files() -> Iterator[tuple[str, bytes]]:
    from kraftcore.core.crc32c import crc32c

    entries = [
        (4000, 3, 9, 100, 4, 1_700_000_000_000, -1, -1),
        (4001, 0, 2, 120, 5, 5, 7, 110),
        (4002, 1, 0, -1, 0, 6, 8, 0),
    ]
    body = struct.pack(">i", len(entries)) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    good = struct.pack(">hI", 1, crc32c(body)) + body
    yield "00000000000000000100.snapshot", good
    yield "00000000000000000101.snapshot", good[:-1] + b"\xff"
    yield "00000000000000000102.snapshot", struct.pack(">h", 2) + good[2:]
    yield "00000000000000000103.snapshot", good[:7]
    yield "00000000000000000104.snapshot", b""
    yield "00000000000000000105.snapshot", good[:40]
    huge = struct.pack(">i", 1_000_000) + body[4:]
    yield "00000000000000000106.snapshot", struct.pack(">hI", 1, crc32c(huge)) + huge
    negative = struct.pack(">i", -1)
    yield "00000000000000000107.snapshot", struct.pack(">hI", 1, crc32c(negative)) + negative
    aborted = b"".join(struct.pack(">hqqqq", 0, 4000 + n, 10 * n, 10 * n + 5, 10 * n + 2) for n in range(3))
    yield "00000000000000000000.txnindex", aborted
    yield "00000000000000000001.txnindex", aborted[:-5]
    yield "00000000000000000002.txnindex", b""
    yield "00000000000000000003.txnindex", aborted + struct.pack(">hqqqq", 0x0100, 1, 2, 3, 4)


def make_inputs() -> None:
    """Write all input files."""
    from kraftcore.core.batch import build_records_batch

    def store(name: str, data: bytes) -> None:
        path = INPUT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    store(f"rich/{LOG}", b"".join(_rich_batches()))
    store(f"records/{LOG}", b"".join(_record_batches()))
    odd = [(None if number % 5 else b"key", value) for number, value in enumerate(_odd_values())]
    store(f"odd/{LOG}", build_records_batch(odd, timestamp_ms=77, base_offset=5, leader_epoch=1))
    data = METADATA_LOG.read_bytes()
    for name, content in _damaged(data):
        store(f"damaged/{name}/{LOG}", content)
    for name in (LOG, "x.log", "noext", "file.txt", "odd.checkpoint"):
        store(f"names/{name}", data[:72])
    for name, log, offsets, times in _index_folders(data):
        for suffix, content in (("log", log), ("index", offsets), ("timeindex", times)):
            store(f"index/{name}/{LOG.replace('log', suffix)}", content)
    for name, content in _other_files():
        store(f"other/{name}", content)


def main(classpath: str) -> None:
    """Make inputs and expected outputs anew."""
    shutil.rmtree(DATA, ignore_errors=True)
    make_inputs()
    (DATA / "expected").mkdir(parents=True)
    statuses = {}
    for case in cases():
        status, out, err = case.run_kafka(classpath)
        statuses[case.name] = status
        (DATA / "expected" / f"{case.name}.out").write_bytes(out.encode())
        if status == 0:
            stored = err.replace(str(case.working_folder), "$FOLDER")
            (DATA / "expected" / f"{case.name}.err").write_bytes(stored.encode())
        print(f"{case.name}: status {status}, {len(out)} characters", flush=True)
    (DATA / "status.json").write_text(json.dumps(statuses, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Kafka's tools and Kafka's own raft log read our folder; we read the one that Kafka's log wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kafka_tools import KafkaTools
from sample_batches import samples

from kraftcore.core.batch import Compression, build_batch, build_records_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.protocol import control
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

SEED = 20260103
NOW_MS = 1_700_000_000_000
PARTITION = "__cluster_metadata-0"
EPOCHS = (1, 2, 5)
CONFIG = LogConfig(segment_bytes=1 << 20)
SNAPSHOT = SnapshotId(41, 1)
NO_OP = bytes.fromhex("01140000")  # the metadata record NoOpRecord, version 0, in its frame


def control_batch(records: list[tuple[bytes, bytes]], epoch: int = 0, base_offset: int = 0) -> bytearray:
    return build_records_batch(records, timestamp_ms=NOW_MS, leader_epoch=epoch, base_offset=base_offset, control=True)


def text(epoch: int, number: int, index: int) -> bytes:
    return b"epoch %d, batch %d, record %d" % (epoch, number, index)


def fill(folder: Path) -> Log:
    """A log of three epochs and several segments: plain, compressed, keyed, headed and control batches."""
    log = Log.open(OsFiles(), str(folder), CONFIG, now_ms=NOW_MS)
    for epoch in EPOCHS:
        leader_change = control.leader_change(1, [1, 2, 3], [1, 2])
        log.append_as_leader(control_batch([leader_change]), epoch, NOW_MS)
        for number in range(200):
            values = [text(epoch, number, index) for index in range(1 + number % 7)]
            log.append_as_leader(build_batch(values, timestamp_ms=NOW_MS + number), epoch, NOW_MS)
        for codec in Compression:
            for sample in samples(SEED + epoch, 12, codec):
                log.append_as_leader(bytearray(sample.without_producer().encode()), epoch, NOW_MS)
    log.flush()
    return log


def write_snapshot(folder: Path) -> Path:
    store = SnapshotStore(OsFiles(), str(folder))
    voters = [control.voter(node, endpoints=[("CONTROLLER", "localhost", 9090 + node)]) for node in (1, 2, 3)]
    head = [control.snapshot_header(NOW_MS), control.kraft_version(1), control.kraft_voters(voters)]
    with store.create(SNAPSHOT) as writer:
        writer.append(control_batch(head, SNAPSHOT.epoch))
        for first in (3, 53):
            writer.append(
                build_batch([NO_OP] * 50, timestamp_ms=NOW_MS, leader_epoch=SNAPSHOT.epoch, base_offset=first)
            )
        writer.append(control_batch([control.snapshot_footer()], SNAPSHOT.epoch, 103))
        writer.freeze()
    return Path(store.path(SNAPSHOT))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that we wrote and closed; tests that let Kafka open it take a copy."""
    folder = tmp_path_factory.mktemp("ours") / PARTITION
    folder.mkdir()
    fill(folder).close()
    write_snapshot(folder)
    assert len(list(folder.glob("*.log"))) > 2
    return folder


@pytest.fixture
def copy(ours: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ours, tmp_path / PARTITION))


def batches_of(folder: Path) -> list[tuple[int, int, int, int, int]]:
    """Base offset, last offset, epoch, size and checksum of every batch in the segments."""
    found = []
    for path in sorted(folder.glob("*.log")):
        for batch in iter_batches(path.read_bytes()):
            found.append((batch.base_offset, batch.last_offset, batch.leader_epoch, batch.size, batch.crc))
    return found


DUMPED = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*isControl: (true|false) .*"
    r"position: (\d+) .*size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: (true|false)"
)


def test_dump_log_reads_every_segment(kafka: KafkaTools, ours: Path):
    paths = sorted(ours.glob("*.log"))
    output = kafka.dump_log("--files", ",".join(map(str, paths)), "--print-data-log")
    seen = [match.groups() for match in map(DUMPED.match, output.splitlines()) if match]
    expected = [
        (
            str(batch.base_offset),
            str(batch.last_offset),
            str(batch.count),
            str(batch.leader_epoch),
            str(batch.is_control).lower(),
            str(batch.position),
            str(batch.size),
            Compression(batch.compression).name.lower(),
            str(batch.crc),
            "true",
        )
        for path in paths
        for batch in iter_batches(path.read_bytes())
    ]
    assert seen == expected
    payloads = re.findall(r"payload: (epoch \d+, batch \d+, record \d+)$", output, re.MULTILINE)
    assert payloads == [text(e, n, i).decode() for e in EPOCHS for n in range(200) for i in range(1 + n % 7)]
    assert output.count("endTxnMarker") == 0
    assert output.count("LeaderChange") == len(EPOCHS)


def test_dump_log_finds_nothing_wrong_with_our_indexes(kafka: KafkaTools, ours: Path):
    paths = sorted([*ours.glob("*.index"), *ours.glob("*.timeindex")])
    files = ",".join(map(str, paths))
    sane = kafka.dump_log("--files", files, "--index-sanity-check")
    empty = [str(path) for path in paths if path.stat().st_size == 0]  # fewer than index_interval_bytes of batches
    passed = [line.removesuffix(" passed sanity check.") for line in sane.splitlines() if "passed" in line]
    assert sorted(passed + empty) == list(map(str, paths))
    assert len(passed) > len(empty)
    checked = kafka.dump_log("--files", files, "--verify-index-only")
    said = [line for line in checked.splitlines() if not line.startswith("Dumping ")]
    assert said == [f"{path} is empty." for path in empty]


def test_dump_log_reads_our_snapshot(kafka: KafkaTools, ours: Path):
    path = ours / SNAPSHOT.file_name
    output = kafka.dump_log("--files", path, "--cluster-metadata-decoder")
    assert f"Snapshot end offset: {SNAPSHOT.end_offset}, epoch: {SNAPSHOT.epoch}" in output
    assert output.count("isvalid: true") == 4
    assert "isvalid: false" not in output
    order = re.findall(r"SnapshotHeader|KRaftVersion |KRaftVoters|SnapshotFooter", output)
    assert order == ["SnapshotHeader", "KRaftVersion ", "KRaftVoters", "SnapshotFooter"]
    assert output.count('payload: {"type":"NO_OP_RECORD","version":0,"data":{}}') == 100


def described(kafka: KafkaTools, folder: Path) -> dict[str, list[list[str]]]:
    """What Kafka's raft log says about a folder, by the first word of each line."""
    result: dict[str, list[list[str]]] = {}
    for name, *fields in kafka.interop("describe-log", folder, EPOCHS[-1] + 1):
        result.setdefault(name, []).append(fields)
    return result


def test_kafkas_raft_log_opens_our_folder(kafka: KafkaTools, copy: Path):
    with Log.open(OsFiles(), str(copy), CONFIG, now_ms=NOW_MS) as log:
        start, end, last = log.log_start_offset, log.log_end_offset, log.last_epoch
        ends = [(epoch, *log.end_offset_for_epoch(epoch)) for epoch in range(1, EPOCHS[-1] + 1)]
    batches = batches_of(copy)
    found = described(kafka, copy)
    assert (found["start"], found["end"], found["last epoch"]) == ([[str(start)]], [[str(end)]], [[str(last)]])
    assert [tuple(map(int, fields)) for fields in found["epoch end"] if 0 < int(fields[0]) <= EPOCHS[-1]] == ends
    assert [tuple(map(int, fields)) for fields in found["batch"]] == batches
    assert found["latest snapshot"] == [[str(SNAPSHOT.end_offset), str(SNAPSHOT.epoch)]]
    assert [fields[3] for fields in found["snapshot batch"]] == ["true", "false", "false", "true"]
    # And back: Kafka rewrote indexes and checkpoints, we go on where it stopped.
    with Log.open(OsFiles(), str(copy), CONFIG, now_ms=NOW_MS) as log:
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (start, end, last)
        log.append_as_leader(build_batch([b"after Kafka"], timestamp_ms=NOW_MS), EPOCHS[-1] + 1, NOW_MS)
    assert described(kafka, copy)["end"] == [[str(end + 1)]]


def test_kafka_rebuilds_the_very_files_we_wrote(kafka: KafkaTools, copy: Path):
    names = ("*.index", "*.timeindex", "leader-epoch-checkpoint", "partition.metadata")
    paths = [path for name in names for path in sorted(copy.glob(name))]
    before = {path.name: path.read_bytes() for path in paths}
    assert any(before[path.name] for path in copy.glob("*.index"))
    for path in paths:
        if path.name != "partition.metadata":
            path.unlink()
    described(kafka, copy)
    assert {path.name: path.read_bytes() for path in paths} == before


def test_we_open_a_folder_that_kafkas_raft_log_wrote(kafka: KafkaTools, tmp_path: Path):
    folder = tmp_path / PARTITION
    folder.mkdir()
    epochs, batches, records = 3, 40, 5
    kafka.interop("fill-log", folder, epochs, batches, records, 10_240)
    assert len(list(folder.glob("*.log"))) > 1
    with Log.open(OsFiles(), str(folder), now_ms=NOW_MS) as log:
        total = epochs * batches * records
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (0, total, epochs)
        assert [tuple(entry) for entry in log.epoch_entries()] == [
            (epoch, (epoch - 1) * batches * records) for epoch in range(1, epochs + 1)
        ]
        offset, values = 0, []
        while offset < log.log_end_offset:
            for batch in iter_batches(log.read(offset, 1 << 16)):
                values += batch.values()
                offset = batch.next_offset
        assert values == [b"value of offset %d" % number for number in range(total)]
    store = SnapshotStore(OsFiles(), str(folder))
    assert store.ids == (SnapshotId(batches * records, 1),)
    reader = store.open(store.ids[0])
    content = list(iter_batches(reader.read_at(0, 1 << 20)))
    reader.close()
    assert [batch.is_control for batch in content] == [True, False, True]
    assert content[1].values() == [b"value of offset 0", b"value of offset 1"]

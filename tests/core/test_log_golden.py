"""Folders that Kafka wrote: fed the same batches, the log leaves the same bytes in every file."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from kraftcore.core.batch import iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.listing import LISTING_NAME

GOLDEN = Path(__file__).parents[1] / "golden"
# Node folder, and the offsets at which Kafka was stopped and started again.
NODES = {
    "dynamic/c1": [388],
    "dynamic/c2": [],
    "dynamic/c3": [],
    "dynamic/c4": [],
    "static/c1": [],
    "static/c2": [],
    "static/c3": [],
}
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")


def partition(node: str) -> Path:
    return GOLDEN / node / "__cluster_metadata-0"


def golden_files(node: str) -> dict[str, bytes]:
    """All files but those that other layers write."""
    return {
        path.name: path.read_bytes()
        for path in sorted(partition(node).iterdir())
        if path.suffix in SUFFIXES or path.name in ("leader-epoch-checkpoint", "partition.metadata")
    }


def golden_config(node: str) -> LogConfig:
    for line in (GOLDEN / node / "server.properties").read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "internal.metadata.log.segment.bytes":
            return LogConfig(segment_bytes=int(value))
    return LogConfig()


def golden_batches(node: str) -> list[bytes]:
    return [
        batch.to_bytes() for path in sorted(partition(node).glob("*.log")) for batch in iter_batches(path.read_bytes())
    ]


def first_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


@pytest.mark.parametrize("disk", ["os", "simulated"])
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("pieces", [1, 3])
def test_same_bytes_in_every_file(tmp_path, node, disk, pieces):
    files = OsFiles() if disk == "os" else SimulatedDisk(Random(1))
    folder = str(tmp_path / "__cluster_metadata-0")
    batches = golden_batches(node)
    log = Log.open(files, folder, golden_config(node), now_ms=0)
    if first_offset(batches[0]):
        log.truncate_fully_to(first_offset(batches[0]))  # Kafka installed a snapshot up to there
    while batches:
        count = pieces
        for stop in NODES[node]:
            if log.log_end_offset == stop:
                log.close()
                log = Log.open(files, folder, golden_config(node), now_ms=0)
            ends = [number for number, batch in enumerate(batches) if first_offset(batch) == stop]
            if ends and ends[0]:
                count = min(count, ends[0])
        log.append_as_follower(b"".join(batches[:count]), 0)
        del batches[:count]
    log.check_invariants()
    log.close()
    names = [name for name in files.list_folder(folder) if name != LISTING_NAME and not name.endswith(".deleted")]
    assert {name: files.read_file(f"{folder}/{name}") for name in names} == golden_files(node)


@pytest.mark.parametrize("node", NODES)
def test_opens_kafkas_folder_and_leaves_it_as_it_was(tmp_path, node):
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(partition(node), folder)
    config = golden_config(node)
    batches = golden_batches(node)
    files = OsFiles()
    with Log.open(files, str(folder), config, now_ms=0) as log:
        assert log.recovery_actions == []
        log.check_invariants()
        read = b""
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 5000)
            read += data
            offset = list(iter_batches(data))[-1].next_offset
        assert read == b"".join(batches)
    expected = golden_files(node)
    if node == "dynamic/c1":
        # Its restart moved an index entry; a rebuild, Kafka's too, puts it where a replica that ran on has it.
        expected["00000000000000000204.timeindex"] = golden_files("dynamic/c2")["00000000000000000204.timeindex"]
        expected["00000000000000000204.index"] = golden_files("dynamic/c2")["00000000000000000204.index"]
    # Kafka, too, drops producer snapshots that belong to no segment when it starts.
    for name, content in expected.items():
        if not name.endswith(".snapshot"):
            assert (folder / name).read_bytes() == content, name
    with Log.open(files, str(folder), config, now_ms=0) as again:
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        assert again.epoch_entries() == log.epoch_entries()


def test_snapshots_and_quorum_state_stay(tmp_path):
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(partition("dynamic/c1"), folder)
    (folder / "00000000000000000125-0000000001.checkpoint.deleted").write_bytes(b"x")
    (folder / "00000000000000000001.index").write_bytes(b"orphan")
    Log.open(OsFiles(), str(folder), golden_config("dynamic/c1"), now_ms=0).close()
    left = {path.name for path in folder.iterdir()}
    assert {path.name for path in partition("dynamic/c1").iterdir() if ".checkpoint" in path.name} <= left
    assert "quorum-state" in left
    assert "00000000000000000125-0000000001.checkpoint.deleted" in left
    assert "00000000000000000001.index" not in left

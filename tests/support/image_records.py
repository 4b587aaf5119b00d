"""Metadata images as the records of their snapshots, in one order, whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_tools import KafkaTools
from partition_files import batches

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.metadata import MetadataMachine
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.schema import MetadataRecord
from kraftcore.storage.snapshots import SUFFIX, parse_name


def latest(record: MetadataRecord) -> bytes:
    return encode_metadata_record(record, type(record).schema.decodable_versions[-1][1])


def canonical(values: list[bytes]) -> list[str]:
    """What Kafka takes out of hash tables in one order."""
    found = []
    for value in values:
        record: Any
        record, version = decode_metadata_record(value)
        for name in ("end_points", "features", "entity"):
            if hasattr(record, name):
                getattr(record, name).sort(key=repr)
        found.append(f"{record!r} version {version}")
    return sorted(found)


class Played:
    """What Kafka said to a script, write by write."""

    def __init__(self, lines: list[list[str]]) -> None:
        self.refused = [line[1] for line in lines if line[0] == "refused"]
        self.writes: list[tuple[str, list[bytes]]] = []
        lost, values = "", []
        for line in lines:
            if line[0] == "record":
                values.append(bytes.fromhex(line[1]))
            elif line[0] == "lost":
                lost = line[1]
            elif line[0] == "done":
                self.writes.append((lost, values))
                lost, values = "", []


def snapshots(folder: Path, end: int) -> list[Path]:
    """Finished snapshots of a metadata folder up to an offset, the newest last; not the one of formatting."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        name = parse_name(path.name)
        if name is not None and 0 < name.id.end_offset <= end:
            found.append((name.id, path))
    return [path for _, path in sorted(found)]


def end_of(snapshot: Path) -> int:
    name = parse_name(snapshot.name)
    assert name is not None
    return name.id.end_offset


def snapshot_values(path: Path) -> list[bytes]:
    return [
        bytes(value or b"")
        for batch in iter_batches(path.read_bytes())
        if not batch.is_control
        for value in batch.values()
    ]


def machine_at(folder: Path, end: int, snapshot: Path | None) -> MetadataMachine:
    """What a snapshot and the log behind it come to, below an offset.

    Raises:
        AssertionError: the log does not reach from one to the other, or holds what is no metadata.
    """
    machine = MetadataMachine()
    if snapshot is not None:
        machine.restore(snapshot_values(snapshot))
        machine.offset = end_of(snapshot)
    for data in batches(folder, end).values():
        batch = RecordBatch(data)
        if batch.base_offset < machine.offset:
            continue
        assert batch.base_offset == machine.offset, (
            f"{folder}: nothing between {machine.offset} and {batch.base_offset}"
        )
        if batch.is_control:
            machine.offset = batch.next_offset
        else:
            machine.apply(batch)
    assert machine.trouble is None, f"{folder}: {machine.trouble}"
    assert machine.offset == end, f"{folder} ends at {machine.offset}, not {end}"
    return machine


def records_of(machine: MetadataMachine) -> list[str]:
    return canonical(list(machine.image.freeze().values()))


def images_of_kafka(kafka: KafkaTools, folders: list[Path], end: int) -> list[list[str]]:
    """What Kafka's classes make of metadata folders, below an offset."""
    arguments = [str(argument) for folder in folders for argument in (folder, end)]
    played = Played(kafka.interop("images-of", *arguments))
    assert not any(lost for lost, _ in played.writes), played.writes
    return [canonical(values) for _, values in played.writes]

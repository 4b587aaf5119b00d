from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import build_batch, build_records_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import ClosedError, CorruptBatchError, CorruptDataError, LocalError, StorageError
from kraftcore.protocol.control import decode_control_record, encode_control_key, snapshot_header, voter
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.storage.bootstrap import (
    read_bootstrap_checkpoint,
    write_bootstrap_checkpoint,
    write_initial_voters,
)
from kraftcore.storage.snapshot_batches import SnapshotReader, SnapshotWriter, read_batches, verify_snapshot
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, SnapshotId, SnapshotStore, parse_name

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CHECKPOINTS = sorted(GOLDEN.rglob("*.checkpoint"))
SNAPSHOTS = [path for path in CHECKPOINTS if path.name != "bootstrap.checkpoint"]
VOTERS = (voter(1, Uuid(bytes(range(16))), [("CONTROLLER", "localhost", 9093)]), voter(2))


def label(path: Path) -> str:
    return "-".join([*path.relative_to(GOLDEN).parts[:2], path.name])


def new_store() -> SnapshotStore:
    return SnapshotStore(SimulatedDisk(random.Random(1)), "/log")


def content_of(store: SnapshotStore, snapshot_id: SnapshotId) -> bytes:
    with store.open(snapshot_id) as raw:
        return raw.read_at(0, raw.size)


def control_bodies(data: bytes) -> list[object]:
    return [
        decode_control_record(record.key, record.value).body
        for batch in iter_batches(data)
        if batch.is_control
        for record in batch
    ]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=label)
def test_a_snapshot_from_kafka_is_written_again_identically(path: Path) -> None:
    data = path.read_bytes()
    name = parse_name(path.name)
    assert name is not None
    batches = list(iter_batches(data))
    header, *others = control_bodies(data)
    assert isinstance(header, SnapshotHeaderRecord)
    level = [body.kraft_version for body in others if isinstance(body, KRaftVersionRecord)]
    voters = [body.voters for body in others if isinstance(body, VotersRecord)]
    store = new_store()
    with SnapshotWriter(
        store.create(name.id),
        now_ms=batches[0].base_timestamp_ms,
        last_contained_log_timestamp_ms=header.last_contained_log_timestamp,
        kraft_version=level[0] if level else 0,
        voters=voters[0] if voters else None,
    ) as writer:
        for batch in batches[1:-1]:
            writer.append(batch.values(), batch.base_timestamp_ms)  # type: ignore[arg-type]
        writer.freeze(batches[-1].base_timestamp_ms)
    assert content_of(store, name.id) == data
    with store.open(name.id) as raw:
        assert verify_snapshot(raw) == sum(batch.count for batch in batches[1:-1])


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("bootstrap.checkpoint")), ids=label)
def test_a_bootstrap_checkpoint_from_kafka_is_written_again_identically(path: Path, tmp_path: Path) -> None:
    values = read_bootstrap_checkpoint(OsFiles(), str(path.parent))
    assert values is not None
    assert len(values) >= 3
    times = iter([batch.base_timestamp_ms for batch in iter_batches(path.read_bytes())])
    write_bootstrap_checkpoint(OsFiles(), str(tmp_path), values, lambda: next(times))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_0_0_checkpoint_from_kafka_is_written_again_identically() -> None:
    (path,) = (GOLDEN / "formats" / "c1").rglob("00000000000000000000-0000000000.checkpoint")
    data = path.read_bytes()
    header, _, voters, _ = control_bodies(data)
    assert isinstance(header, SnapshotHeaderRecord)
    assert isinstance(voters, VotersRecord)
    assert len(voters.voters) == 3
    first, last = iter_batches(data)
    times = iter([header.last_contained_log_timestamp, first.base_timestamp_ms, last.base_timestamp_ms])
    store = new_store()
    write_initial_voters(store, voters.voters, lambda: next(times))
    assert content_of(store, BOOTSTRAP_SNAPSHOT_ID) == data


def test_there_is_golden_data() -> None:
    assert len(SNAPSHOTS) >= 15


def test_no_bootstrap_checkpoint(tmp_path: Path) -> None:
    assert read_bootstrap_checkpoint(OsFiles(), str(tmp_path)) is None
    write_bootstrap_checkpoint(OsFiles(), str(tmp_path), [], lambda: 5)
    assert read_bootstrap_checkpoint(OsFiles(), str(tmp_path)) == ()
    with pytest.raises(LocalError, match="at least one initial voter"):
        write_initial_voters(new_store(), [], lambda: 5)


@given(
    st.lists(st.binary(max_size=120), max_size=60),
    st.integers(200, 600),
    st.integers(0, 1),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_what_is_written_is_read(values: list[bytes], batch_bytes_max: int, level: int, cuts: list[int]) -> None:
    store = new_store()
    snapshot_id = SnapshotId(1000, 7)
    with SnapshotWriter(
        store.create(snapshot_id),
        now_ms=11,
        last_contained_log_timestamp_ms=10,
        kraft_version=level,
        voters=VOTERS if level else None,
        batch_bytes_max=batch_bytes_max,
    ) as writer:
        bounds = [0, *sorted(cuts), len(values)]
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            writer.append(values[start:end], 20 + number)
        writer.freeze(99)
    with SnapshotReader(store.open(snapshot_id)) as reader:
        assert (reader.kraft_version, reader.voters) == (level, VOTERS if level else None)
        assert reader.last_contained_log_timestamp_ms == 10
        batches = list(reader.batches())
        assert all(batch.size <= batch_bytes_max and batch.leader_epoch == 7 for batch in batches)
        assert list(reader.values()) == values
    everything = list(iter_batches(content_of(store, snapshot_id)))
    assert everything[0].base_offset == 0
    for before, after in itertools.pairwise(everything):
        assert after.base_offset == before.next_offset
    assert [everything[0].max_timestamp_ms, everything[-1].max_timestamp_ms] == [11, 99]


def test_large_batches_are_read_with_bounded_memory() -> None:
    store = new_store()
    snapshot_id = SnapshotId(10, 1)
    values = [bytes([number]) * 3_000_000 for number in range(6)]
    with SnapshotWriter(store.create(snapshot_id), now_ms=1) as writer:
        for value in values:
            writer.append([value], 1)
        writer.freeze(1)
    with SnapshotReader(store.open(snapshot_id)) as reader:
        assert [batch.count for batch in reader.batches()] == [2, 2, 2]
        assert list(reader.values()) == values


@pytest.mark.parametrize("while_freezing", [False, True])
def test_a_batch_that_could_not_be_written_ends_the_snapshot(while_freezing: bool) -> None:
    """Going on would freeze a snapshot that lacks records."""
    disk = SimulatedDisk(random.Random(1))
    store = SnapshotStore(disk, "/d")
    writer = SnapshotWriter(store.create(SnapshotId(5, 1)), now_ms=1, batch_bytes_max=200)
    writer.append([bytes(100)], 1)
    disk.inject("write")
    with pytest.raises(StorageError):
        _ = writer.freeze(1) if while_freezing else writer.append([bytes(100)], 1)
    with pytest.raises(ClosedError):
        writer.freeze(1)
    assert store.ids == ()
    assert disk.list_folder("/d") == []


def test_misuse_is_refused() -> None:
    store = new_store()
    with pytest.raises(LocalError, match=r"voter set only from kraft\.version 1"):
        SnapshotWriter(store.create(SnapshotId(1, 1)), now_ms=1, voters=VOTERS)
    used = store.create(SnapshotId(2, 1))
    used.append(b"x")
    with pytest.raises(LocalError, match="has 1 bytes already"):
        SnapshotWriter(used, now_ms=1)
    writer = SnapshotWriter(store.create(SnapshotId(3, 1)), now_ms=1, batch_bytes_max=100)
    with pytest.raises(LocalError, match="90 bytes does not fit a batch of 100"):
        writer.append([bytes(90)], 1)
    writer.freeze(1)
    with pytest.raises(ClosedError, match="frozen"):
        writer.append([b"x"], 1)


def snapshot_bytes() -> bytes:
    store = new_store()
    with SnapshotWriter(store.create(SnapshotId(3, 1)), now_ms=1, kraft_version=1, voters=VOTERS) as writer:
        writer.append([b"one", b"two", b"three" * 30], 2)
        writer.freeze(3)
    return content_of(store, SnapshotId(3, 1))


def read_all(data: bytes) -> list[bytes | None]:
    store = new_store()
    with store.create(SnapshotId(3, 1)) as writer:
        writer.append(data)
        with writer.read_back() as raw:
            verify_snapshot(raw)
        writer.freeze()
    with SnapshotReader(store.open(SnapshotId(3, 1))) as reader:
        return list(reader.values())


VALID = snapshot_bytes()


def test_the_valid_one_is_valid() -> None:
    assert read_all(VALID) == [b"one", b"two", b"three" * 30]


@pytest.mark.parametrize("size", range(len(VALID)))
def test_every_truncation_is_noticed(size: int) -> None:
    with pytest.raises(CorruptDataError):
        read_all(VALID[:size])


@given(st.integers(0, len(VALID) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_noticed_unless_it_is_outside_every_checksum(at: int, mask: int) -> None:
    damaged = bytearray(VALID)
    damaged[at] ^= mask
    try:
        values = read_all(bytes(damaged))
    except CorruptDataError:
        return
    starts = [batch.position for batch in iter_batches(VALID)]
    assert any(start <= at < start + 16 for start in starts)  # offset and epoch are not covered
    assert values == [b"one", b"two", b"three" * 30]


@given(st.binary(max_size=300))
def test_noise_raises_only_the_documented_error(noise: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_all(noise)


def test_a_hostile_length_is_not_read_for(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000003-0000000001.checkpoint"
    with path.open("wb") as file:
        file.write(VALID[:8] + (0x7FFFFFF0).to_bytes(4) + VALID[12:])
        file.truncate(1 << 30)
    with (
        OsFiles().open(str(path), read_only=True) as file,
        pytest.raises(CorruptBatchError, match=f"{path.name}.*byte 0"),
    ):
        next(read_batches(file))


def test_what_is_no_snapshot() -> None:
    data_batch = bytes(build_batch([b"x"], timestamp_ms=1))
    header = bytes(build_records_batch([snapshot_header(1)], timestamp_ms=1, control=True))
    unknown = bytes(build_records_batch([(encode_control_key(99), b"")], timestamp_ms=1, control=True))
    broken = bytes(build_records_batch([(encode_control_key(3), b"\0")], timestamp_ms=1, control=True))
    footer = VALID[list(iter_batches(VALID))[-1].position :]
    for content, reason in [
        (b"", "does not begin with a control batch"),
        (data_batch, "does not begin with a control batch"),
        (unknown, "does not begin with a SnapshotHeader"),
        (broken, "bad control record"),
        (header, "ends without a SnapshotFooter"),
        (VALID + data_batch, rf"holds a batch after the SnapshotFooter \(byte {len(VALID)}\)"),
    ]:
        with pytest.raises(CorruptDataError, match=reason):
            read_all(content)
    assert read_all(header + unknown + data_batch + footer) == [b"x"]

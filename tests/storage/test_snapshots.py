from __future__ import annotations

import errno
import random
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import CRASH_MODES, SimulatedDisk
from kraftcore.errors import ClosedError, LocalError, StorageError
from kraftcore.storage.snapshots import (
    BOOTSTRAP_SNAPSHOT_ID,
    DELETED_SUFFIX,
    PART_SUFFIX,
    SUFFIX,
    SnapshotId,
    SnapshotName,
    SnapshotStore,
    parse_name,
)

FOLDER = "/log"


def new_disk(seed: int = 0, *, record: bool = False) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed), record=record)
    disk.make_folder(FOLDER)
    return disk


def new_store(files: Files, folder: str = FOLDER) -> SnapshotStore:
    return SnapshotStore(files, folder, randbytes=random.Random(5).randbytes)


def write(store: SnapshotStore, snapshot_id: SnapshotId, content: bytes = b"content") -> None:
    with store.create(snapshot_id) as writer:
        writer.append(content)
        writer.freeze()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000784-0000000002.checkpoint", SnapshotName(SnapshotId(784, 2), SUFFIX)),
        ("00000000000000000784-0000000002.checkpoint.deleted", SnapshotName(SnapshotId(784, 2), DELETED_SUFFIX)),
        ("00000000000000000784-0000000002-99.checkpoint.part", SnapshotName(SnapshotId(784, 2), PART_SUFFIX)),
        ("09223372036854775807-2147483647.checkpoint", SnapshotName(SnapshotId(2**63 - 1, 2**31 - 1), SUFFIX)),
        ("09223372036854775808-0000000000.checkpoint", None),
        ("00000000000000000000-2147483648.checkpoint", None),
        ("784-2.checkpoint", None),
        ("00000000000000000784-0000000002-99.checkpoint", None),
        ("00000000000000000784-0000000002.checkpoint.part", None),
        ("00000000000000000784-0000000002.checkpoint.tmp", None),
        ("00000000000000000784.log", None),
        ("bootstrap.checkpoint", None),
        ("\u06600000000000000000784-0000000002.checkpoint", None),  # a digit, but not an ASCII one
    ],
)
def test_names(name: str, expected: SnapshotName | None) -> None:
    assert parse_name(name) == expected


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_every_id_has_a_name_that_reads_back(end_offset: int, epoch: int) -> None:
    snapshot_id = SnapshotId(end_offset, epoch)
    assert parse_name(snapshot_id.file_name) == SnapshotName(snapshot_id, SUFFIX)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=8))
def test_names_sort_as_ids(pairs: list[tuple[int, int]]) -> None:
    ids = [SnapshotId(*pair) for pair in pairs]
    assert [one.file_name for one in sorted(ids)] == sorted(one.file_name for one in ids)


def test_a_frozen_snapshot_is_read_only_and_listed_in_order(tmp_path: Path) -> None:
    store = SnapshotStore(OsFiles(), str(tmp_path / "log"))
    for end_offset, epoch in ((30, 2), (4, 1), (0, 0)):
        write(store, SnapshotId(end_offset, epoch), bytes(end_offset))
    assert store.ids == (BOOTSTRAP_SNAPSHOT_ID, SnapshotId(4, 1), SnapshotId(30, 2))
    assert (store.earliest, store.latest) == (BOOTSTRAP_SNAPSHOT_ID, SnapshotId(30, 2))
    assert SnapshotId(4, 1) in store
    assert store.size(SnapshotId(30, 2)) == 30
    path = Path(store.path(SnapshotId(30, 2)))
    assert path.name == "00000000000000000030-0000000002.checkpoint"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400  # as Kafka leaves it
    assert SnapshotStore(OsFiles(), str(tmp_path / "log")).ids == store.ids


def test_an_empty_store() -> None:
    store = new_store(new_disk())
    assert (store.ids, store.latest, store.earliest, store.unlink_due(0)) == ((), None, None, None)
    for action in (store.open, store.size, lambda one: store.delete(one, 0)):
        with pytest.raises(LocalError, match=r"no snapshot 00000000000000000007-0000000001\.checkpoint"):
            action(SnapshotId(7, 1))


def test_received_in_chunks_at_checked_positions() -> None:
    store = new_store(new_disk())
    content = random.Random(1).randbytes(1000)
    with store.create(SnapshotId(9, 1)) as writer:
        writer.append(content[:300], position=0)
        with pytest.raises(LocalError, match=r"position 0 of snapshot .* which has 300"):
            writer.append(content[:300], position=0)
        with pytest.raises(LocalError, match="position 400"):
            writer.append(content[400:], position=400)
        assert writer.size == 300
        writer.append(memoryview(content)[300:700], position=writer.size)  # resumes where it stopped
        writer.append(bytearray(content[700:]))
        with writer.read_back() as reader:
            assert reader.read_at(0, 2000) == content
        writer.freeze()
        with pytest.raises(ClosedError, match="frozen"):
            writer.append(b"more")
        with pytest.raises(ClosedError, match="frozen"):
            writer.freeze()
    with store.open(SnapshotId(9, 1)) as reader:
        assert reader.size == 1000
        chunks = [reader.read_at(position, 256) for position in range(0, 1000, 256)]
        assert b"".join(chunks) == content
        assert [len(chunk) for chunk in chunks] == [256, 256, 256, 232]
        assert reader.read_at(999, 0) == b""
        for position in (-1, 1000, 1 << 62):
            with pytest.raises(LocalError, match=f"position {position} is outside"):
                reader.read_at(position, 10)
        with pytest.raises(LocalError):
            reader.read_at(0, -1)


def test_an_unfinished_writer_leaves_nothing() -> None:
    disk = new_disk()
    store = new_store(disk)
    writer = store.create(SnapshotId(9, 1))
    writer.append(b"half")
    (name,) = disk.list_folder(FOLDER)
    assert parse_name(name) == SnapshotName(SnapshotId(9, 1), PART_SUFFIX)
    writer.close()
    writer.close()
    assert disk.list_folder(FOLDER) == []
    assert store.ids == ()
    with pytest.raises(ClosedError, match="closed"):
        writer.append(b"more")
    with pytest.raises(ClosedError, match="closed"):
        writer.freeze()


def test_two_writers_of_one_snapshot_the_first_wins() -> None:
    disk = new_disk()
    store = new_store(disk)
    first, second = store.create(SnapshotId(9, 1)), store.create(SnapshotId(9, 1))
    first.append(b"first")
    second.append(b"second")
    second.freeze()
    with pytest.raises(LocalError, match="someone else"):
        first.freeze()
    first.close()
    with store.open(SnapshotId(9, 1)) as reader:
        assert reader.read_at(0, 99) == b"second"
    assert disk.list_folder(FOLDER) == [SnapshotId(9, 1).file_name]
    with pytest.raises(LocalError, match="exists already"):
        store.create(SnapshotId(9, 1))


@pytest.mark.parametrize("snapshot_id", [SnapshotId(-1, 0), SnapshotId(0, -1), SnapshotId(1 << 63, 0)])
def test_ids_out_of_range_are_refused(snapshot_id: SnapshotId) -> None:
    with pytest.raises(LocalError, match="out of range"):
        new_store(new_disk()).create(snapshot_id)


def test_deleting_renames_at_once_and_unlinks_later() -> None:
    disk = new_disk()
    store = SnapshotStore(disk, FOLDER, delete_delay_ms=60)
    for end_offset in (5, 6, 7):
        write(store, SnapshotId(end_offset, 1))
    reader = store.open(SnapshotId(5, 1))
    assert store.delete_before(7, now_ms=1000) == (SnapshotId(5, 1), SnapshotId(6, 1))
    assert store.ids == (SnapshotId(7, 1),)
    assert sum(name.endswith(DELETED_SUFFIX) for name in disk.list_folder(FOLDER)) == 2
    assert reader.read_at(0, 99) == b"content"  # who has it open keeps it
    store.delete(SnapshotId(7, 1), now_ms=1050)
    assert store.unlink_due(1059) == 1060
    assert store.unlink_due(1060) == 1110
    assert [name[:20] for name in disk.list_folder(FOLDER)] == [f"{7:020d}"]
    assert store.unlink_due(1110) is None
    assert disk.list_folder(FOLDER) == []
    assert reader.read_at(0, 99) == b"content"


def test_start_removes_what_a_crash_left() -> None:
    disk = new_disk()
    kept = ["00000000000000000000.log", "bootstrap.checkpoint", "quorum-state"]
    leftovers = [
        "00000000000000000007-0000000001-123.checkpoint.part",
        "00000000000000000003-0000000001.checkpoint.deleted",
    ]
    for name in kept + leftovers:
        disk.replace_file(f"{FOLDER}/{name}", b"x")
    assert new_store(disk).ids == ()
    assert disk.list_folder(FOLDER) == sorted(kept)


@pytest.mark.parametrize("mode", CRASH_MODES)
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_leaves_no_snapshot_or_the_whole_one(mode: str, seed: int) -> None:
    disk = new_disk(seed, record=True)
    content = random.Random(seed).randbytes(5000)
    snapshot_id = SnapshotId(9, 1)
    write(new_store(disk), snapshot_id, content)
    durable = len(disk.trace)
    for count in range(durable + 1):
        restarted = SimulatedDisk.replay(disk.trace, random.Random(seed * 1000 + count), count=count).crash(mode)
        store = new_store(restarted)
        if snapshot_id in store:
            with store.open(snapshot_id) as reader:
                assert reader.read_at(0, 9999) == content
        else:
            assert count < durable
        assert [name for name in restarted.list_folder(FOLDER) if not name.endswith(SUFFIX)] == []


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_folder", "open"])
def test_disk_errors_are_reported_and_leave_no_half_snapshot(operation: str) -> None:
    disk = new_disk()
    store = new_store(disk)
    disk.inject(operation)
    with pytest.raises(StorageError):
        write(store, SnapshotId(9, 1))
    assert store.ids == ()
    restarted = new_store(disk.crash())
    assert restarted.ids in ((), (SnapshotId(9, 1),))


def test_a_folder_that_cannot_be_synced_is_told_as_such() -> None:
    disk = SimulatedDisk(random.Random(1))
    store = SnapshotStore(disk, "/d")
    with pytest.raises(StorageError) as failure, store.create(SnapshotId(5, 1)) as writer:
        writer.append(b"x")
        disk.inject("sync_folder")
        writer.freeze()
    assert failure.value.errno == errno.EIO


def test_a_failed_append_may_be_tried_again() -> None:
    disk = new_disk()
    store = new_store(disk)
    with store.create(SnapshotId(9, 1)) as writer:
        disk.inject("write")
        with pytest.raises(StorageError):
            writer.append(bytes(2000))
        assert writer.size == 0
        writer.append(b"short")
        writer.freeze()
    with store.open(SnapshotId(9, 1)) as reader:
        assert reader.read_at(0, 9999) == b"short"

"""When to write a snapshot, and what goes once there is one."""

from __future__ import annotations

import random

import pytest

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.errors import CorruptDataError
from kraftcore.raft import snapshot_schedule
from kraftcore.raft.snapshot_schedule import Cleaner, CleaningConfig, SnapshotSchedule
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

FOLDER = "/n/__cluster_metadata-0"


def make(batches, snapshots, times=None):
    disk = SimulatedDisk(random.Random(1))
    disk.make_folder(FOLDER)
    log = Log.open(disk, FOLDER, LogConfig(segment_bytes=300), now_ms=0)
    for number in range(batches):
        log.append_as_leader(build_batch([b"x" * 50], timestamp_ms=number), 1, number)
    log.flush()
    store = SnapshotStore(disk, FOLDER, randbytes=random.Random(2).randbytes)
    for offset in snapshots:
        with SnapshotWriter(
            store.create(SnapshotId(offset, 1)),
            now_ms=0,
            last_contained_log_timestamp_ms=(times or {}).get(offset, 0),
        ) as writer:
            writer.freeze(0)
    return log, store


def test_a_snapshot_is_due_by_bytes():
    schedule = SnapshotSchedule(CleaningConfig(snapshot_bytes=100, snapshot_interval_ms=0), 0)
    assert not schedule.is_due(10**9)
    schedule.applied(99)
    assert not schedule.is_due(10**9)
    schedule.applied(1)
    assert schedule.is_due(0)
    schedule.begun(0)
    assert not schedule.is_due(10**9)
    assert schedule.due_at() is None


def test_a_snapshot_is_due_by_time_only_if_there_is_something_new():
    schedule = SnapshotSchedule(CleaningConfig(snapshot_interval_ms=1000), 500)
    assert not schedule.is_due(5000)
    assert schedule.due_at() is None
    schedule.applied(1)
    assert schedule.due_at() == 1500
    assert not schedule.is_due(1499)
    assert schedule.is_due(1500)


def test_the_oldest_go_first_and_the_newest_stays():
    log, store = make(30, (5, 10, 20))
    cleaner = Cleaner(CleaningConfig(retention_bytes=1, retention_ms=-1), log, store)
    assert cleaner.clean(0) == 2
    assert store.ids == (SnapshotId(20, 1),)
    assert log.log_start_offset == 20
    assert cleaner.clean(0) == 0


def test_nothing_goes_while_there_is_room():
    log, store = make(30, (5, 10))
    size = log.size_in_bytes + sum(map(store.size, store.ids))
    assert Cleaner(CleaningConfig(retention_bytes=size, retention_ms=-1), log, store).clean(0) == 0
    assert Cleaner(CleaningConfig(retention_bytes=size - 1, retention_ms=-1), log, store).clean(0) == 1


def test_old_ones_go_by_the_time_of_what_they_contain():
    log, store = make(30, (5, 10, 20), {5: 1000, 10: 2000, 20: 3000})
    cleaner = Cleaner(CleaningConfig(retention_bytes=-1, retention_ms=500), log, store)
    assert cleaner.clean(1500) == 0
    assert cleaner.clean(1501) == 1
    assert cleaner.clean(10**9) == 1
    assert store.ids == (SnapshotId(20, 1),)


def test_a_log_is_not_cut_above_what_is_durable():
    log, store = make(10, (5,))
    log.append_as_leader(build_batch([b"y"], timestamp_ms=0), 1, 0)
    with SnapshotWriter(store.create(SnapshotId(11, 1)), now_ms=0) as writer:
        writer.freeze(0)
    cleaner = Cleaner(CleaningConfig(retention_bytes=1), log, store)
    assert cleaner.clean(0) == 0
    log.flush()
    assert cleaner.clean(0) == 1


def test_a_snapshot_without_a_header_cannot_be_judged(monkeypatch):
    log, store = make(3, [1, 2])
    monkeypatch.setattr(snapshot_schedule, "first_batch", lambda snapshots, snapshot_id: [])
    with pytest.raises(CorruptDataError, match="does not begin with a SnapshotHeader"):
        Cleaner(CleaningConfig(retention_bytes=-1, retention_ms=1), log, store).clean(1000)
    assert len(store.ids) == 2

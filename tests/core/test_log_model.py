"""The log against a naive model: random work on tiny segments and indexes, every answer compared."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from log_model import TINY, Work

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig

SEEDS = int(os.environ.get("KRAFTCORE_LOG_SEEDS", "30"))


def check_reads(work: Work) -> None:
    log, model, rng = work.log, work.model, work.rng
    for _ in range(6):
        offset = rng.randint(model.start, model.end)
        limit = rng.choice((0, 1, 70, 200, 1000, 10_000))
        up_to = rng.choice((None, rng.randint(model.start, model.end + 1)))
        at_least_one = rng.random() < 0.5
        data = log.read(offset, limit, up_to=up_to, at_least_one=at_least_one)
        wanted = model.read(offset, up_to, min(limit, TINY.segment_bytes), at_least_one)
        if log.tail_base_offset <= offset:
            assert data == wanted
        else:  # one segment at a time
            assert wanted.startswith(data)
            assert bool(data) == bool(wanted)
        if up_to is not None:
            known = log.bytes_in_memory(offset, up_to)
            assert known in (None, len(model.read(offset, up_to, 10**9, False)))
            assert known is not None or min(offset, up_to) < log.tail_base_offset
            if offset < min(up_to, model.end):
                segment = log.segment_at(offset)
                held = model.read(offset, min(up_to, segment.next_offset), 10**9, False)
                assert segment.span(offset, up_to) == len(held)
    epoch = rng.randint(0, model.epoch + 1)
    assert tuple(log.end_offset_for_epoch(epoch)) == model.end_offset_for(epoch)
    timestamp = rng.randint(900, work.now + 10)
    found = [
        max(batch.base, model.start)
        for batch in model.batches
        if batch.timestamp >= timestamp and batch.next > model.start
    ]
    assert log.offset_for_timestamp(timestamp) in ((found[0],) if found else (None,))


@pytest.mark.parametrize("tail_bytes", [0, 1500, 100_000])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_work_matches_the_model(seed, tail_bytes):
    config = LogConfig(
        segment_bytes=TINY.segment_bytes,
        index_interval_bytes=TINY.index_interval_bytes,
        index_bytes_max=TINY.index_bytes_max,
        segment_ms=TINY.segment_ms,
        tail_bytes=tail_bytes,
        file_delete_delay_ms=TINY.file_delete_delay_ms,
        preallocate_bytes=2048 * (seed % 3),
    )
    work = Work(seed, SimulatedDisk(Random(seed)), config)
    for number in range(120):
        work.step()
        check_reads(work)
        if number % 10 == 0:
            work.check()
    work.check()
    work.reopen()
    work.check()


def test_os_files_and_simulated_disk_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("log_model.FOLDER", str(tmp_path / "topic-0"))
    folders = []
    for files in (OsFiles(), SimulatedDisk(Random(1))):
        work = Work(77, files)
        for _ in range(200):
            work.step()
        work.reopen()
        work.check()
        work.log.close()
        names = [name for name in files.list_folder(str(tmp_path / "topic-0")) if name != "kraftcore-segments"]
        folders.append({name: files.read_file(str(tmp_path / "topic-0" / name)) for name in names})
    assert folders[0] == folders[1]


def test_a_clean_stop_is_trusted_and_reads_no_batch(tmp_path: Path):
    disk = SimulatedDisk(Random(1))
    work = Work(5, disk)
    for _ in range(60):
        work.step("append_as_leader")
    work.log.close()
    faults = [disk.inject("read", times=-1, path=suffix) for suffix in (".log", ".index", ".timeindex")]
    log = Log.open(disk, work.log.folder, TINY, now_ms=0)
    assert [fault.hits for fault in faults] == [0, 0, 0]
    assert log.log_end_offset == work.model.end

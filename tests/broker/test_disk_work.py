"""What waits for a disk is done by threads, in order, and its failures come back."""

from __future__ import annotations

import threading
from errno import ENOSPC
from random import Random

import pytest
import trio
from broker_rig import open_rig, until

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.errors import StorageError
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.logdirs import Wanted
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest

T = TopicPartition("t", 0)
PERIODS = (
    "recovery_checkpoint_ms",
    "high_watermark_checkpoint_ms",
    "log_start_checkpoint_ms",
    "replica_lag_time_max_ms",
    "delete_delay_ms",
)


def change(notes, *, fails=False):
    """Steps that note the thread each runs in."""

    def work(number):
        notes.append((number, threading.current_thread() is threading.main_thread()))
        if fails and number == 1:
            raise StorageError(5, "the disk", "/d")

    for number in range(3):
        try:
            yield lambda number=number: work(number)
        except StorageError:
            notes.append("caught")
        yield None
    return "done"


@pytest.mark.parametrize("fails", [False, True])
def test_steps_are_run_in_order_wherever(fails):
    here, elsewhere = [], []
    assert run_here(change(here, fails=fails)) == "done"
    assert trio.run(run_in_threads, change(elsewhere, fails=fails)) == "done"
    assert [note if note == "caught" else note[0] for note in here] == ([0, 1, "caught", 2] if fails else [0, 1, 2])
    assert all(note == "caught" or note[1] for note in here)
    assert [note if note == "caught" else (note[0], True) for note in elsewhere] == here
    assert not any(note[1] for note in elsewhere if note != "caught")


def test_what_has_begun_is_done_also_if_the_broker_stops():
    config = LogConfig(segment_bytes=300, topic_id=None, producer_snapshots=False, names_wait=True, allow_gaps=True)
    disk = SimulatedDisk(Random(1))
    dirs = LogDirs(disk, ["/a"], 1, lambda topic: config, 0, 0, Random(1).randbytes)
    log = run_here(dirs.create_all({T: Wanted()}, 0))[T].log
    for _ in range(9):
        log.append_as_leader(build_batch([b"v" * 100], timestamp_ms=1), 1, 1)
    log.flush()

    def steps():
        yield log.begin_delete_below(5, 0)

    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await run_in_threads(steps())

    trio.run(main)
    dirs.close()
    assert log.closed
    assert disk.exists("/a/.kafka_cleanshutdown")


async def delete_records(rig, offset=-1):
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    asked = kind(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await rig.ask(1, DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2)
    return answer.topics[0].partitions[0]


@pytest.fixture
def threaded(monkeypatch):
    """Names of what was handed to threads."""
    names, run_sync = [], trio.to_thread.run_sync

    async def note(function, *arguments, **more):
        names.append(getattr(function, "__name__", None) or function.func.__name__)
        return await run_sync(function, *arguments, **more)

    monkeypatch.setattr(trio.to_thread, "run_sync", note)
    return names


def test_records_and_replicas_are_deleted_by_threads(tmp_path, threaded):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id, recovery_checkpoint_ms=10**9)
            await rig.assign(1, 0, [1, 2])
            for number in range(4):
                assert (await rig.produce(1, b"%d" % number)).error_code == 0
            del threaded[:]
            told = await delete_records(rig, 2)
            assert (told.error_code, told.low_watermark) == (0, 2)
            # The leader's log, and the follower's when it heard of it.
            assert threaded.count("flush") >= 2
            assert await rig.values(1, 2) == [b"2", b"3"]
            partition = rig.brokers[1].replicas.all[T].partition
            assert await rig.delete(1) == 0
            assert "retire" in threaded
            assert partition.log.closed
            assert T not in rig.brokers[1].replicas.all
            await until(lambda: not list((tmp_path / "d1").glob("t-0*")))

    trio.run(main)


@pytest.mark.parametrize("way", ["records", "segments", "replica"])
def test_a_disk_that_fails_meanwhile_takes_its_directory_offline(tmp_path, way, caplog):
    async def main():
        async with open_rig(tmp_path) as rig:
            rig.disks[1] = disk = SimulatedDisk(Random(1))
            await rig.start(1, segment_bytes=1024, **dict.fromkeys(PERIODS, 10**9))
            await rig.assign(1, 0, [1])
            for _ in range(20):
                assert (await rig.produce(1, b"v")).error_code == 0
            if way != "replica":
                disk.inject("sync" if way == "records" else "rename", times=-1, code=ENOSPC, path="t-0")
                assert (await delete_records(rig)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            else:
                disk.inject("rename", times=-1, path="t-0")
                assert await rig.delete(1) == ErrorCode.KAFKA_STORAGE_ERROR

    trio.run(main)
    assert "its partitions are offline" in caplog.text

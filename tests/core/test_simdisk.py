"""The simulated disk: what survives a crash, what faults do, and that a seed tells all."""

from __future__ import annotations

import errno
from collections import Counter
from random import Random

import pytest

from kraftcore.core.disk.simulated import CRASH_MODES, SimulatedDisk
from kraftcore.errors import LocalError, StorageError

OLD = b"o" * 1024
NEW = b"n" * 2048


def disk_with(seed: int, *, sync_name: bool = True) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_folder("/d")
    with disk.open("/d/f", create=True) as file:
        file.write_at(0, OLD)
        file.sync()
    if sync_name:
        disk.sync_folder("/d")
    return disk


def outcomes(mode: str, change: object, count: int = 300) -> Counter[bytes | None]:
    found: Counter[bytes | None] = Counter()
    for seed in range(count):
        disk = disk_with(seed)
        assert callable(change)
        change(disk)
        after = disk.crash(mode)  # type: ignore[arg-type]
        found[after.read_file("/d/f") if after.exists("/d/f") else None] += 1
    return found


def append(disk: SimulatedDisk) -> None:
    disk.open("/d/f").write_at(len(OLD), NEW)


def test_lost_and_kept() -> None:
    assert outcomes("lost", append) == {OLD: 300}
    assert outcomes("kept", append) == {OLD + NEW: 300}


def test_synced_bytes_survive_every_mode() -> None:
    def synced(disk: SimulatedDisk) -> None:
        with disk.open("/d/f") as file:
            file.write_at(len(OLD), NEW)
            file.sync()

    for mode in CRASH_MODES:
        assert outcomes(mode, synced) == {OLD + NEW: 300}


def test_torn_writes_end_anywhere_in_zeros_or_garbage() -> None:
    found = outcomes("torn", append)
    assert all(data is not None and data.startswith(OLD) for data in found)
    tails = [(data or b"")[len(OLD) :] for data in found]
    assert any(0 < len(tail) < len(NEW) and NEW.startswith(tail) for tail in tails)
    assert any(len(tail) == len(NEW) and tail.endswith(b"\0") for tail in tails)
    assert any(len(tail) == len(NEW) and tail.strip(b"n\0") for tail in tails)
    assert any(len(tail) % 512 for tail in tails)


def test_reordered_writes_leave_holes() -> None:
    found = outcomes("reordered", append)
    assert all(data is not None and data.startswith(OLD) for data in found)
    assert any(b"\0n" in (data or b"") for data in found)

    def two(disk: SimulatedDisk) -> None:
        with disk.open("/d/f") as file:
            file.write_at(len(OLD), b"1" * 100)
            file.write_at(len(OLD) + 100, b"2" * 100)

    tails = {(data or b"")[len(OLD) :] for data in outcomes("reordered", two)}
    assert tails == {b"", b"1" * 100, b"1" * 100 + b"2" * 100, bytes(100) + b"2" * 100}


def test_truncations_may_be_lost_while_later_writes_survive() -> None:
    def replaced(disk: SimulatedDisk) -> None:
        with disk.open("/d/f") as file:
            file.truncate(10)
            file.write_at(10, b"x" * 10)

    found = set(outcomes("reordered", replaced))
    assert found == {OLD, OLD[:10], OLD[:10] + b"x" * 10, OLD[:10] + b"x" * 10 + OLD[20:]}


def test_names_need_their_own_sync() -> None:
    for mode, kept in (("lost", 0), ("kept", 1)):
        assert disk_with(1, sync_name=False).crash(mode).exists("/d/f") == kept  # type: ignore[arg-type]
    assert {disk_with(seed, sync_name=False).crash("mixed").exists("/d/f") for seed in range(30)} == {True, False}

    def renamed(disk: SimulatedDisk) -> None:
        disk.rename("/d/f", "/d/g")

    assert set(outcomes("mixed", renamed)) == {OLD, None}

    def gone(disk: SimulatedDisk) -> None:
        disk.unlink("/d/f")
        disk.sync_folder("/d")

    assert set(outcomes("mixed", gone)) == {None}


def test_a_folder_takes_its_contents_along() -> None:
    def disk_in_two(seed: int) -> SimulatedDisk:
        disk = SimulatedDisk(Random(seed))
        disk.make_folder("/d/a/deep")
        disk.replace_file("/d/a/deep/f", b"synced")
        disk.open("/d/a/g", create=True).close()
        disk.rename("/d/a", "/d/b")
        return disk

    disk = disk_in_two(1)
    assert disk.list_folder("/d") == ["b"]
    assert disk.list_folder("/d/b") == ["deep", "g"]
    assert disk.read_file("/d/b/deep/f") == b"synced"
    disk.make_folder("/d/a")
    assert disk.list_folder("/d/a") == []
    seen = set()
    for seed in range(60):
        after = disk_in_two(seed).crash("mixed")
        (name,) = after.list_folder("/d")
        assert after.read_file(f"/d/{name}/deep/f") == b"synced"
        seen.add((name, after.exists(f"/d/{name}/g")))
    assert {("a", False), ("b", False), ("b", True)} <= seen
    disk = disk_in_two(1)
    disk.sync_folder("/d")
    after = disk.crash("lost")
    assert after.list_folder("/d") == ["b"]
    assert after.list_folder("/d/b") == ["deep"]


def test_replace_file_is_all_or_nothing() -> None:
    disk = SimulatedDisk(Random(1), record=True)
    disk.make_folder("/d")
    disk.replace_file("/d/f", b"old")
    assert disk.trace is not None
    begun = len(disk.trace)
    disk.replace_file("/d/f", b"new content")
    seen = set()
    for count in range(begun, len(disk.trace) + 1):
        for seed in range(20):
            after = SimulatedDisk.replay(disk.trace, Random(seed), count=count).crash("mixed")
            seen.add((after.read_file("/d/f"), count == len(disk.trace)))
    assert seen == {(b"old", False), (b"new content", False), (b"new content", True)}


def test_a_crashed_disk_is_dead() -> None:
    disk = disk_with(1)
    file = disk.open("/d/f")
    lock = disk.lock("/d/.lock")
    after = disk.crash()
    assert disk.crashed
    assert not after.crashed
    for action in (lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x"), file.sync, lambda: disk.open("/d/f")):
        with pytest.raises(StorageError, match="crashed"):
            action()
    lock.release()
    after.lock("/d/.lock")
    with pytest.raises(LocalError, match="none of"):
        after.crash("sideways")  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_crash() -> None:
    def run() -> list[bytes | None]:
        return [data for seed in range(20) for data in outcomes("mixed", append, 1 + seed)]

    assert run() == run()


def test_capacity_counts_content_and_allows_a_part() -> None:
    disk = disk_with(1)
    disk.capacity = len(OLD) + 100
    assert disk.used_bytes == len(OLD)
    file = disk.open("/d/f")
    with pytest.raises(StorageError) as error:
        file.write_at(len(OLD), NEW)
    assert error.value.errno == errno.ENOSPC
    assert file.size() == len(OLD) + 100
    file.write_at(0, b"overwriting is free")
    disk.unlink("/d/f")
    assert disk.used_bytes == len(OLD) + 100  # still open
    file.close()
    assert disk.used_bytes == 0


def test_faults_strike_where_and_when_they_should() -> None:
    disk = disk_with(1)
    file = disk.open("/d/f")
    fault = disk.inject("write", after=1, times=2, code=errno.EIO, path="/f")
    file.write_at(0, b"a")
    for _ in range(2):
        with pytest.raises(StorageError):
            file.write_at(0, b"b")
    file.write_at(0, b"c")
    assert fault.hits == 2
    disk.inject("any", times=-1)
    for _ in range(3):
        with pytest.raises(StorageError):
            file.read_at(0, 1)
    disk.clear_faults()
    assert file.read_at(0, 1) == b"c"


def test_faults_neither_strike_nor_count_who_looks_on():
    disk = disk_with(1)
    file = disk.open("/d/f")
    fault = disk.inject("read", after=1)
    with disk.without_faults():
        for _ in range(3):
            file.read_at(0, 1)
    file.read_at(0, 1)
    with pytest.raises(StorageError):
        file.read_at(0, 1)
    assert fault.hits == 1


def test_a_failed_sync_forgets_while_readers_still_see() -> None:
    found = set()
    for seed in range(40):
        disk = disk_with(seed)
        file = disk.open("/d/f")
        file.write_at(len(OLD), b"new")
        disk.inject("sync")
        with pytest.raises(StorageError):
            file.sync()
        again = disk.open("/d/f")
        assert again.read_at(len(OLD), 3) == b"new"
        again.sync()  # reports success, as the kernel does
        found.add(disk.crash("kept").read_file("/d/f")[len(OLD) :])
        found.add(disk_with(seed).crash("lost").read_file("/d/f")[len(OLD) :])
    assert b"" in found


def test_slow_syncs_are_told_not_slept() -> None:
    disk = disk_with(1)
    disk.sync_latency_ms = lambda path: 250.0 if path == "/d/f" else 0.0
    file = disk.open("/d/f")
    file.sync()
    file.sync()
    assert disk.latency_ms == 500.0


def test_replay_rebuilds_every_state() -> None:
    disk = SimulatedDisk(Random(1), record=True)
    disk.make_folder("/d")
    file = disk.open("/d/f", create=True)
    file.write_at(0, b"abc")
    file.sync()
    disk.rename("/d/f", "/d/g")
    file.truncate(1)
    disk.sync_folder("/d")
    assert disk.trace is not None
    whole = SimulatedDisk.replay(disk.trace, Random(2))
    assert whole.list_folder("/d") == ["g"]
    assert whole.read_file("/d/g") == b"a"
    assert whole.crash("lost").read_file("/d/g") == b"abc"
    begin = SimulatedDisk.replay(disk.trace, Random(2), count=4)
    assert begin.read_file("/d/f") == b"abc"
    with pytest.raises(LocalError, match="no line of a trace"):
        SimulatedDisk.replay([("dance",)], Random(1))

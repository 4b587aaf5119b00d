"""The file layer: one contract, two implementations, and what only the real one can show."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from forked import WITH_THREADS, descriptors, in_child, inherited, what_was_open_before  # noqa: F401  # for every test

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.files import File, Files
from kraftcore.core.disk.lock_holder import holder_of
from kraftcore.core.disk.os_files import OsFiles, VolatileFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.errors import ClosedError, LocalError, LockedError, StorageError, WrongProcessError

Make = Callable[[], Files]


@pytest.fixture(params=["os", "volatile", "simulated"])
def files(request: pytest.FixtureRequest) -> Files:
    return {"os": OsFiles, "volatile": VolatileFiles}.get(request.param, lambda: SimulatedDisk(Random(1)))()


@pytest.fixture
def folder(files: Files, tmp_path: Path) -> str:
    path = str(tmp_path / "data" / "topic-0")
    files.make_folder(path)
    return path


def code_of(action: Callable[[], object]) -> int | None:
    with pytest.raises(StorageError) as error:
        action()
    assert isinstance(error.value, OSError)
    assert error.value.filename
    return error.value.errno


def test_reads_and_writes_at_positions(files: Files, folder: str) -> None:
    with files.open(f"{folder}/f", create=True) as file:
        assert file.size() == 0
        assert file.read_at(0, 10) == b""
        file.write_at(3, b"abc")
        file.write_at(3, memoryview(bytearray(b"xb")))
        assert file.size() == 6
        assert file.read_at(0, 100) == b"\0\0\0xbc"
        assert file.read_at(4, 1) == b"b"
        assert file.read_at(99, 1) == b""
        assert file.read_at(0, 2**62) == b"\0\0\0xbc"
        file.truncate(4)
        file.truncate(8)
        assert file.read_at(0, 100) == b"\0\0\0x\0\0\0\0"
        file.write_at(2, b"")
        file.sync()
        file.sync(whole=True)
        assert not file.closed
    assert file.closed
    file.close()
    big = os.urandom(300_000)
    with files.open(f"{folder}/big", create=True) as file:
        file.write_at(7, big)
        assert file.read_at(7, len(big)) == big


def test_refuses_nonsense_and_closed_files(files: Files, folder: str) -> None:
    file = files.open(f"{folder}/f", create=True)
    for action in (
        lambda: file.read_at(-1, 1),
        lambda: file.read_at(0, -1),
        lambda: file.write_at(-1, b"x"),
        lambda: file.truncate(-1),
    ):
        with pytest.raises(LocalError, match="at least 0"):
            action()
    file.close()
    for action in (
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.write_at(0, b""),
        file.size,
        file.sync,
        lambda: file.truncate(0),
    ):
        with pytest.raises(ClosedError, match="closed"):
            action()


def test_opening(files: Files, folder: str) -> None:
    path = f"{folder}/f"
    assert code_of(lambda: files.open(path)) == errno.ENOENT
    assert code_of(lambda: files.open(f"{folder}/no/f", create=True)) == errno.ENOENT
    files.open(path, create=True, exclusive=True).write_at(0, b"abc")
    assert code_of(lambda: files.open(path, create=True, exclusive=True)) == errno.EEXIST
    assert files.open(path, create=True).size() == 3
    with files.open(path, read_only=True) as file:
        assert file.read_at(0, 9) == b"abc"
        assert code_of(lambda: file.write_at(0, b"x")) == errno.EBADF
        assert code_of(lambda: file.truncate(0)) == errno.EINVAL
    assert files.open(path, truncate=True).size() == 0
    assert code_of(lambda: files.open(folder)) == errno.EISDIR


def test_names(files: Files, folder: str) -> None:
    for name in ("b", "a"):
        files.open(f"{folder}/{name}", create=True).write_at(0, name.encode())
    files.make_folder(f"{folder}/sub/sub")
    files.make_folder(f"{folder}/sub/sub")
    assert files.list_folder(folder) == ["a", "b", "sub"]
    assert files.exists(f"{folder}/sub/sub")
    files.rename(f"{folder}/a", f"{folder}/b")
    assert files.read_file(f"{folder}/b") == b"a"
    assert not files.exists(f"{folder}/a")
    assert code_of(lambda: files.rename(f"{folder}/a", f"{folder}/c")) == errno.ENOENT
    assert code_of(lambda: files.unlink(f"{folder}/a")) == errno.ENOENT
    files.unlink(f"{folder}/b")
    assert files.list_folder(folder) == ["sub"]
    files.sync_folder(folder)
    assert code_of(lambda: files.list_folder(f"{folder}/no")) == errno.ENOENT
    assert code_of(lambda: files.read_file(f"{folder}/no")) == errno.ENOENT
    assert code_of(lambda: files.stat(f"{folder}/no")) == errno.ENOENT


def test_only_an_empty_folder_is_removed(files: Files, folder: str) -> None:
    with files.open(f"{folder}/f", create=True):
        pass
    assert code_of(lambda: files.remove_folder(folder)) == errno.ENOTEMPTY
    assert code_of(lambda: files.remove_folder(f"{folder}/f")) == errno.ENOTDIR
    files.unlink(f"{folder}/f")
    files.remove_folder(folder)
    assert not files.exists(folder)
    assert code_of(lambda: files.remove_folder(folder)) == errno.ENOENT


def test_an_open_file_survives_its_name(files: Files, folder: str) -> None:
    file = files.open(f"{folder}/f", create=True)
    file.write_at(0, b"abc")
    files.rename(f"{folder}/f", f"{folder}/g")
    file.write_at(3, b"d")
    assert files.read_file(f"{folder}/g") == b"abcd"
    files.unlink(f"{folder}/g")
    assert file.read_at(0, 9) == b"abcd"


def test_stat_and_read_only(files: Files, folder: str) -> None:
    path = f"{folder}/f"
    file = files.open(path, create=True)
    before = files.stat(path)
    assert (before.size, before.read_only, before.is_folder) == (0, False, False)
    file.write_at(0, b"abc")
    assert files.stat(path).size == 3
    assert files.stat(path).mtime_ns >= before.mtime_ns
    files.set_read_only(path)
    assert files.stat(path).read_only
    assert files.stat(folder).is_folder
    assert files.stat(folder).size == 0


def test_replace_file(files: Files, folder: str) -> None:
    path = f"{folder}/f"
    for data in (b"one", b"", b"x" * 100_000):
        files.replace_file(path, data)
        assert files.read_file(path) == data
    assert files.list_folder(folder) == ["f"]


def test_locks(files: Files, folder: str) -> None:
    path = f"{folder}/.lock"
    with files.lock(path) as lock:
        assert lock.path == path
        with pytest.raises(LockedError, match="lock"):
            files.lock(path)
    assert not files.exists(path)
    lock.release()
    files.lock(path).release()


def test_a_failed_sync_closes_the_file_for_all_but_close() -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_folder("/d")
    file: File = disk.open("/d/f", create=True)
    file.write_at(0, b"abc")
    disk.inject("sync")
    with pytest.raises(StorageError, match="Input/output error"):
        file.sync()
    for action in (file.sync, lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x"), file.size):
        with pytest.raises(ClosedError, match="failed sync"):
            action()
    file.close()
    assert disk.open("/d/f").read_at(0, 9) == b"abc"


# ---- only the real one


def test_permissions_of_new_and_frozen_files(tmp_path: Path) -> None:
    files = OsFiles()
    for mode, frozen in ((0o600, 0o400), (0o644, 0o444)):
        path = tmp_path / oct(mode)
        files.open(str(path), create=True, mode=mode).close()
        assert path.stat().st_mode & 0o777 == mode
        files.set_read_only(str(path))
        assert path.stat().st_mode & 0o777 == frozen


LOCK_LIKE_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "a")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("held")
else:
    print("free", flush=True)
    sys.stdin.read()
"""


def test_the_lock_is_the_one_that_java_takes(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    files = OsFiles()
    lock = files.lock(path)
    open(path).close()  # closing another descriptor must not drop it
    command = [sys.executable, "-P", "-c", LOCK_LIKE_JAVA, path]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "held\n"
    lock.release()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "free\n"
        with pytest.raises(LockedError, match=f"process {other.pid} ") as caught:
            files.lock(path)
        assert caught.value.pid == other.pid
        other.communicate("")
    files.lock(path).release()


def test_who_holds_a_lock_is_not_told_where_the_system_does_not_say() -> None:
    assert holder_of(0, 0, 0) == (None, "another process")
    assert holder_of(0, 0, 2**22 + 1) == (2**22 + 1, f"process {2**22 + 1}")  # it has ended


@pytest.mark.filterwarnings(WITH_THREADS)
def test_a_forked_child_has_neither_files_nor_locks(tmp_path: Path) -> None:
    """They are closed, not given back: the parent has all of them as before."""
    files, folder, path = OsFiles(), str(tmp_path), str(tmp_path / "f")
    kept = [files.open(f"{path}{number}", create=True) for number in range(3)]
    kept[1].close()
    file = files.open(path, create=True)
    file.write_at(0, b"abc")

    def child() -> tuple[list[str], list[str]]:
        answers = []
        for action in (
            file.size,
            file.sync,
            lambda: file.read_at(0, 1),
            lambda: file.write_at(0, b"x"),
            lambda: lock.release(),
        ):
            with pytest.raises(WrongProcessError) as caught:
                action()
            answers.append(str(caught.value.pid))
        file.close()
        with lock, files.open(path) as again:  # leaving does nothing
            answers.append(again.read_at(0, 9).decode())
        return inherited(before, descriptors(), folder), answers

    with files.lock(f"{folder}/.lock") as lock, Log.open(files, f"{folder}/log", now_ms=1) as log:
        log.append_as_leader(build_batch([b"a"], timestamp_ms=1), 1, 1)
        before = descriptors()
        assert in_child(child) == ([], [str(os.getpid())] * 5 + ["abc"])
        for call in (lambda: log.append_as_leader(build_batch([b"b"], timestamp_ms=1), 2, 1), lambda: log.read(0, 1)):
            with pytest.raises(WrongProcessError, match=f"{folder}/log belongs to process {os.getpid()}"):
                in_child(call)
        in_child(lambda: log.__exit__(None, None, None))
        with pytest.raises(LockedError):
            OsFiles().lock(lock.path)
        assert log.append_as_leader(build_batch([b"b"], timestamp_ms=1), 1, 1) == 1
        log.flush()
    assert file.read_at(0, 9) == b"abc"
    for each in (file, *kept):
        each.close()
    assert not inherited(descriptors(), descriptors(), folder)


def test_strange_paths_are_storage_errors() -> None:
    files = OsFiles()
    for path in ("/dev/null/x", "a\0b", "x" * 5000, "/proc/self/mem/.."):
        with pytest.raises(StorageError):
            files.open(path, create=True)
    with pytest.raises(StorageError):
        files.make_folder("/proc/no/such")


def test_closing_waits_for_a_running_sync(tmp_path: Path) -> None:
    """Many short races: a descriptor that were closed under a sync would fail it, or hit another file."""
    import threading

    files = OsFiles()
    for _ in range(30):
        file = files.open(str(tmp_path / "f"), create=True, truncate=True)
        file.write_at(0, b"x" * 500_000)
        failures: list[BaseException] = []

        def sync(file: File = file, failures: list[BaseException] = failures) -> None:
            try:
                file.sync()
            except ClosedError:
                pass
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=sync)
        thread.start()
        file.close()
        thread.join()
        assert failures == []


def test_volatile_files_are_never_synced() -> None:
    """What cannot be synced shows it; another folder than an existing one likewise."""
    for files, missing in ((OsFiles(), pytest.raises(StorageError)), (VolatileFiles(), nullcontext())):
        with files.open("/dev/null") as file, missing:
            file.sync()
    with pytest.raises(StorageError):
        OsFiles().sync_folder("/missing")
    VolatileFiles().sync_folder("/missing")


def test_the_full_device(tmp_path: Path) -> None:
    with OsFiles().open("/dev/full") as file:
        assert code_of(lambda: file.write_at(0, b"x" * 10)) == errno.ENOSPC
        assert code_of(lambda: file.write_at(0, b"x" * 100_000)) == errno.ENOSPC

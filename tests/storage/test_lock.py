from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LockedError, StorageError
from kraftcore.storage.lock import lock_folders

HOLDER = """
import sys
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.storage.lock import lock_folders
locks = lock_folders(OsFiles(), sys.argv[1:])
print("held", flush=True)
sys.stdin.readline()
locks.release()
"""


def test_another_process_cannot_have_it_and_gets_all_or_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(folders[1])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said = (
            rf"cannot use {folders[1]}.*process {holder.pid} \(.+\) holds the lock: stop it, or use another directory"
        )
        with pytest.raises(LockedError, match=said) as caught:
            lock_folders(OsFiles(), map(str, folders))
        assert caught.value.pid == holder.pid
        assert not (folders[0] / ".lock").exists()
        holder.communicate("done\n", timeout=20)
    with lock_folders(OsFiles(), map(str, folders)) as locks:
        assert [Path(path).parent for path in locks.paths] == folders
    assert not any((folder / ".lock").exists() for folder in folders)


def test_once_per_process_and_free_again_after_release(tmp_path: Path) -> None:
    locks = lock_folders(OsFiles(), [str(tmp_path), str(tmp_path)])
    assert (tmp_path / ".lock").read_bytes() == b""
    with pytest.raises(LockedError, match=f"{tmp_path}.*this process holds the lock already") as caught:
        lock_folders(OsFiles(), [str(tmp_path)])
    assert caught.value.pid == os.getpid()
    locks.release()
    locks.release()
    lock_folders(OsFiles(), [str(tmp_path)]).release()


def test_a_killed_holder_does_not_block(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    assert (tmp_path / ".lock").exists()
    lock_folders(OsFiles(), [str(tmp_path)]).release()


def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        lock_folders(OsFiles(), [str(tmp_path / "none")])

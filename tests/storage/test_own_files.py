"""kraftcore's own small files: what is written is read, and damage is named."""

from __future__ import annotations

from random import Random

import pytest

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import CorruptDataError
from kraftcore.storage.checksummed_file import OwnFile
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.probation_mark import ProbationMark


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.make_folder("/d")
    return disk


def test_what_is_committed_is_read_as_it_was_written(disk):
    file = CommittedFile(disk, "/d")
    assert file.read() is None
    file.remove()
    for known in (OffsetAndEpoch(1, 0), OffsetAndEpoch(2**63 - 1, 2**31 - 1)):
        CommittedFile(disk, "/d").write(known)
        disk = disk.crash("lost")
        assert CommittedFile(disk, "/d").read() == known
    CommittedFile(disk, "/d").remove()
    assert CommittedFile(disk.crash("lost"), "/d").read() is None


def test_every_changed_byte_is_damage(disk):
    file = CommittedFile(disk, "/d")
    file.write(OffsetAndEpoch(1234, 5))
    data = disk.read_file(file.path)
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for other in [*changed, b"", data[:-1], data + b"\n"]:
        disk.replace_file(file.path, other)
        with pytest.raises(CorruptDataError, match="kraftcore-committed"):
            file.read()


@pytest.mark.parametrize("text", ["", "1", "1 2 3", "-1 2", "x 2"])
def test_what_is_no_offset_and_epoch_is_damage(disk, text):
    OwnFile(disk, "/d/kraftcore-committed").write(text)
    with pytest.raises(CorruptDataError, match="no offset and epoch"):
        CommittedFile(disk, "/d").read()


def test_a_mark_is_set_until_it_is_cleared_whatever_is_in_it(disk):
    mark = ProbationMark(disk, "/d")
    assert not mark.is_set()
    mark.clear()
    mark.set()
    disk = disk.crash("lost")
    mark = ProbationMark(disk, "/d")
    assert mark.is_set()
    disk.replace_file(mark.path, b"garbage")
    assert mark.is_set()
    mark.clear()
    assert not ProbationMark(disk.crash("lost"), "/d").is_set()

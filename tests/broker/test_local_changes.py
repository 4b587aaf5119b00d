"""What a broker does on its logs as the metadata says."""

from __future__ import annotations

import errno
import random

import own_partitions
import pytest

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RefusedError, StorageError
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.metadata.carrying_out import carry_out
from kraftcore.plugins.broker.metadata.local_changes import LocalChanges
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.protocol.error_codes import ErrorCode

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def test_a_directory_that_fails_while_an_earlier_topics_log_is_set_aside_is_offline(monkeypatch):
    rng = random.Random(1)
    config = LogConfig(topic_id=None, producer_snapshots=False)
    dirs = LogDirs(SimulatedDisk(rng), ["/d", "/e"], 1, lambda topic: config, 0, 0, rng.randbytes)
    failed, assigned = [], []
    settings = PartitionSettings()
    replicas = Replicas(1, dirs, RequestCache(), lambda topic: settings, on_directory_failure=failed.append)
    own_partitions.add(replicas, T, Uuid(b"1" * 16))

    def broken(self, name, randbytes):
        self.logs[name].log.close()
        yield None
        raise StorageError(errno.EIO, "the disk fails", f"{self.path}/{name}")

    monkeypatch.setattr(Directory, "set_aside", broken)
    new = Assignment(1, 1, 1, (1,), (1,), topic_id=Uuid(b"2" * 16))
    changes = LocalChanges(leads={T: new, U: new})
    run_here(carry_out(changes, replicas, dirs, lambda: 0, lambda *_: None, lambda name, _: assigned.append(name)))
    assert [each.path for each in failed] == ["/d"]
    assert assigned == [T, U]
    assert replicas.is_broken(T)
    assert replicas.all[U].partition.leading is not None


OLD, NEW = Uuid(b"1" * 16), Uuid(b"2" * 16)


class Two:
    """A broker's two log directories, of which the first fails."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk(random.Random(1))
        config = LogConfig(topic_id=None, producer_snapshots=False)
        cluster_id = "4L6g3nShT-eMCtK--X86sw"
        self.dirs = LogDirs(
            self.disk,
            ["/d", "/e"],
            1,
            lambda topic: config,
            0,
            0,
            random.Random(1).randbytes,
            kraft_cluster_id=cluster_id,
        )
        self.dirs.load(0)
        self.replicas = Replicas(1, self.dirs, RequestCache(), lambda topic: PartitionSettings())
        self.first, self.second = self.dirs.directories
        self.told: list[Uuid | None] = []

    def lead(self, directory: Directory, topic_id: Uuid, *, is_new: bool = False) -> None:
        assignment = Assignment(1, 0, 0, (1,), (1,), topic_id, directory.id, is_new=is_new)
        self.change(leads={T: assignment})

    def change(self, **changes) -> None:
        assigned = lambda name, _: self.told.append(self.replicas.directory_id(name))  # noqa: E731
        run_here(carry_out(LocalChanges(**changes), self.replicas, self.dirs, lambda: 0, lambda *_: None, assigned))

    def fail(self) -> None:
        self.replicas.directory_failed(self.first, StorageError(errno.EIO, "the disk fails", "/d/t-0"))

    @property
    def place(self) -> str | None:
        """The directory of the partition that is served."""
        replica = self.replicas.all.get(T)
        return None if replica is None or self.replicas.is_broken(T) else replica.hosted.directory.path


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_topic_made_anew_is_served_though_the_directory_of_the_deleted_one_failed(is_seen):
    """Whether the deletion was told, or a snapshot has the new topic alone."""
    two = Two()
    two.lead(two.first, OLD)
    two.fail()
    assert two.place is None
    if is_seen:
        two.change(deletes={T: OLD})
    two.lead(two.second, NEW)
    assert two.place == "/e"
    assert two.replicas.all[T].hosted.topic_id == NEW
    assert two.told == [two.first.id, two.second.id]
    assert two.disk.exists("/d/t-0")  # nothing is touched there


def test_a_topic_whose_directory_failed_stays_offline():
    two = Two()
    two.lead(two.first, OLD)
    two.fail()
    two.lead(two.second, OLD, is_new=True)
    assert two.place is None
    assert two.told == [two.first.id, two.first.id]


@pytest.mark.parametrize("leader", [1, 2])
def test_a_directory_that_fails_while_a_topic_gets_its_id_there_leads_and_follows_nothing(leader):
    two = Two()
    own_partitions.add(two.replicas, T, None)
    steps = two.replicas.assign(T, Assignment(leader, 0, 0, (1, 2), (1, 2), NEW), lambda: 0)
    next(steps)()  # a thread writes partition.metadata
    two.fail()  # by what was written to another log
    with pytest.raises(StorageError, match="failed meanwhile"):
        run_here(steps)
    assert two.place is None
    partition = two.replicas.all[T].partition
    assert (partition.leading, partition.is_following) == (None, False)


def test_a_log_that_is_not_made_for_it_may_be_in_a_directory_that_failed_is_a_storage_error():
    two = Two()
    two.first.failure = StorageError(errno.EIO, "the disk fails", "/d")

    def told():
        with pytest.raises(RefusedError) as found:
            two.replicas.find(T)
        return found.value.error

    assert told() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    two.lead(two.first, NEW)
    assert told() == ErrorCode.KAFKA_STORAGE_ERROR.name
    two.change(deletes={T: NEW})
    assert told() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    two.lead(two.first, NEW)
    two.lead(two.second, NEW, is_new=True)
    assert two.replicas.find(T).leading is not None


def test_a_topic_deleted_while_its_directory_fails_is_gone():
    two = Two()
    two.lead(two.first, OLD)

    two.disk.inject("rename", times=-1, path="/d/t-0")
    two.change(deletes={T: OLD})
    assert two.first.failure is not None
    assert not two.replicas.is_broken(T)
    two.lead(two.second, NEW)
    assert two.place == "/e"


@pytest.mark.parametrize(("is_new", "place"), [(True, "/e"), (False, None)])
def test_what_was_not_opened_in_a_directory_that_failed_is_not_a_new_topics(is_new, place):
    before = Two()
    before.lead(before.first, OLD)
    before.dirs.close(is_clean=False)
    two = Two(before.disk)
    two.first.logs.pop(T).log.close()
    two.first.broken[T] = two.first.failure = StorageError(errno.EIO, "the disk fails", "/d")
    two.lead(two.second, NEW, is_new=is_new)
    assert two.place == place

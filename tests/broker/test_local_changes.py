"""What a broker does on its logs as the metadata says."""

from __future__ import annotations

import errno
import random

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import StorageError
from kraftcore.plugins.broker.catalogue import LocalChanges
from kraftcore.plugins.broker.disk_steps import run_here
from kraftcore.plugins.broker.local_changes import carry_out
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.metadata_cache import RequestCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.partition import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def test_a_directory_that_fails_while_an_earlier_topics_log_is_set_aside_is_offline(monkeypatch):
    rng = random.Random(1)
    config = LogConfig(topic_id=None, producer_snapshots=False)
    dirs = LogDirs(SimulatedDisk(rng), ["/d", "/e"], 1, config, 0, 0, rng.randbytes)
    replicas = Replicas(1, dirs, RequestCache(), lambda topic: PartitionSettings())
    run_here(replicas.add(T, Uuid(b"1" * 16), lambda: 0))
    failed, assigned = [], []
    replicas.on_directory_failure = failed.append

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

"""Partitions that are made and deleted together: what is synced for all, and what a power cut leaves at any step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import CRASH_MODES, SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, StorageError
from kraftcore.plugins.broker.broker_parts import topic_settings
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.logdirs import HostedLog, LogDirs
from kraftcore.plugins.broker.logdirs.logdirs import Wanted
from kraftcore.plugins.broker.logdirs.names import is_deleted
from kraftcore.plugins.broker.logdirs.topic_ids import FILE_NAME, TopicIds
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.raft.quorum import Endpoint

CONFIG = topic_settings(BrokerConfig(node_id=1, listeners=(Endpoint("L", "h", 1),), directories=("/d1",))).log_config(
    "t"
)
OLD, NEW = Uuid(b"1" * 16), Uuid(b"2" * 16)
NAMES = [TopicPartition("t", number) for number in range(3)]
OTHERS = [TopicPartition("other", number) for number in range(2)]
IDS = f"/d1/{FILE_NAME}"


class NotingDisk(SimulatedDisk):
    """Notes the paths of files and folders that are synced, in order."""

    def __init__(self, rng):
        super().__init__(rng)
        self.synced = []
        self.sync_latency_ms = lambda path: self.synced.append(path) or 0

    def sync_folder(self, path):
        self.synced.append(path)
        super().sync_folder(path)


def open_dirs(files, held=None, *paths, **settings):
    paths = paths or ("/d1",)
    config = replace(CONFIG, **settings)
    dirs = LogDirs(
        files, paths, 1, lambda topic: config, 0, 0, Random(1).randbytes, kraft_cluster_id="4L6g3nShT-eMCtK--X86sw"
    )
    dirs.load(0, {}, held)
    return dirs


def make(dirs, topic_id, names=NAMES):
    made = run_here(dirs.create_all(dict.fromkeys(names, Wanted(topic_id, is_new=True)), 0))
    assert all(isinstance(each, HostedLog) for each in made.values()), made
    return [made[name] for name in names]


def append(hosted, value):
    hosted.log.append_as_leader(build_batch([value], timestamp_ms=1), 0, 0)


def values(log):
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        for batch in iter_batches(log.read(offset, 1 << 20)):
            found += [bytes(record.value) for record in batch]
            offset = batch.next_offset
    return found


# --- how much is synced


def test_partitions_that_are_made_together_take_two_syncs_and_have_their_topics_id():
    disk = NotingDisk(Random(1))
    dirs = open_dirs(disk)
    disk.synced.clear()
    made = make(dirs, OLD)
    assert disk.synced == [f"{IDS}.tmp", "/d1"]
    disk.synced.clear()
    make(dirs, NEW, OTHERS)
    assert disk.synced == [IDS, "/d1"]
    assert disk.list_folder("/d1/t-0") == ["partition.metadata"]
    append(made[0], b"v")
    assert disk.list_folder("/d1/t-0") == [f"{0:020d}.log", "leader-epoch-checkpoint", "partition.metadata"]
    for mode in CRASH_MODES:
        found = {each.name: each for each in open_dirs(disk.crash(mode)).logs}
        assert {name: each.topic_id for name, each in found.items()} == {
            **dict.fromkeys(NAMES, OLD),
            **dict.fromkeys(OTHERS, NEW),
        }


def test_partitions_that_are_deleted_together_take_one_sync_whatever_was_written_to_them():
    disk = NotingDisk(Random(1))
    dirs = open_dirs(disk)
    for hosted in make(dirs, OLD):
        append(hosted, b"v")
    disk.synced.clear()
    run_here(dirs.delete_all(NAMES, lambda: 0))
    assert disk.synced == ["/d1"]
    assert [is_deleted(name) for name in disk.list_folder("/d1") if name.startswith("t-")] == [True] * 3
    assert not dirs.logs
    dirs.directories[0].remove_expired(1)
    assert not [name for name in disk.list_folder("/d1") if name.startswith("t-")]


def test_directories_work_at_the_same_time_and_each_fails_alone():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, None, "/d1", "/d2")
    steps = dirs.create_all(dict.fromkeys(NAMES, Wanted(OLD, is_new=True)), 0)
    works = next(steps)
    assert len(works) == 2
    disk.inject("sync_folder", path="/d1")
    failures = [None, None]
    for number, work in enumerate(works):
        try:
            work()
        except KraftError as error:
            failures[number] = error
    with pytest.raises(StopIteration) as end:
        steps.send(failures)
    kinds = {name: type(found) for name, found in end.value.value.items()}
    assert kinds == {NAMES[0]: StorageError, NAMES[1]: HostedLog, NAMES[2]: StorageError}
    assert [each.path for each in dirs.directories if each.logs] == ["/d2"]


def test_a_clean_stop_leaves_to_others_what_was_not_synced_before():
    """Kafka, which may be the next to use the directory, does not know the file that says it in one place."""
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    append(make(dirs, OLD)[0], b"v")
    dirs.close()
    disk = disk.crash("lost")
    disk.unlink(IDS)
    assert {each.topic_id for each in open_dirs(disk).logs} == {OLD}


# --- the file


ENTRIES = st.dictionaries(
    st.builds(TopicPartition, st.text("abc._-", min_size=1, max_size=9), st.integers(0, 2**31 - 1)),
    st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
    max_size=5,
)


def reloaded(disk):
    found = TopicIds(disk, "/d1")
    found.load()
    return found


@given(st.lists(ENTRIES, max_size=4), st.data())
def test_what_is_added_is_found_again_up_to_where_the_file_is_whole(batches, data):
    disk = SimulatedDisk(Random(1))
    disk.make_folder("/d1")
    ids, sizes, expected = reloaded(disk), [0], [{}]
    for batch in batches:
        ids.add(batch)
        sizes.append(disk.stat(IDS).size if disk.exists(IDS) else 0)
        expected.append({**expected[-1], **batch})
    cut = data.draw(st.integers(0, sizes[-1]))
    if sizes[-1]:
        with disk.open(IDS) as file:
            file.truncate(cut)
            file.write_at(cut, data.draw(st.sampled_from([b"", b"\0" * 9, b"t 0 - 00000000\n"])))
    found, whole = reloaded(disk), max(number for number, size in enumerate(sizes) if size <= cut)
    assert all(name in found and found.get(name) == topic_id for name, topic_id in expected[whole].items())
    assert all(
        expected[-1].get(name, topic_id) == topic_id
        for name in expected[-1]
        for topic_id in [found.get(name)]
        if name in found
    )
    found.add({TopicPartition("later", 1): OLD})
    again = reloaded(disk)
    assert again.get(TopicPartition("later", 1)) == OLD
    assert all(again.get(name) == topic_id for name, topic_id in expected[whole].items())


def test_the_file_stays_small_however_many_were_deleted():
    disk = SimulatedDisk(Random(1))
    disk.make_folder("/d1")
    ids = reloaded(disk)
    for number in range(3000):
        ids.add({TopicPartition("t", number): OLD})
        ids.forget([TopicPartition("t", number)])
    assert len(disk.read_file(IDS).splitlines()) < 1100


# --- power cuts


def history(disk, moments):
    """What a broker does, and after each step: how far the disk was, what the metadata held before, and what had to
    be there for good: values by partition."""

    def note(held, durable):
        moments.append((len(disk.trace), held, durable))

    dirs = open_dirs(disk, segment_bytes=200)
    old, new = dict.fromkeys(NAMES, OLD), dict.fromkeys(NAMES, NEW)
    note({}, {})
    first = make(dirs, OLD)
    note(old, {})
    for number in range(6):
        append(first[0], b"old%d" % number)
    append(first[1], b"old")
    first[0].log.flush()
    note(old, {NAMES[0]: [b"old%d" % number for number in range(6)]})
    others = {**old, **dict.fromkeys(OTHERS, NEW)}
    made = make(dirs, NEW, OTHERS)
    note(others, moments[-1][2])
    append(made[0], b"new")
    made[0].log.flush()
    note(others, {**moments[-1][2], OTHERS[0]: [b"new"]})
    run_here(dirs.delete_all(NAMES, lambda: 0))
    left = {name: topic_id for name, topic_id in others.items() if topic_id == NEW}
    note(left, {OTHERS[0]: [b"new"]})
    again = make(dirs, NEW)
    both = {**left, **new}
    note(both, {OTHERS[0]: [b"new"]})
    for hosted in again:
        append(hosted, b"new")
    again[2].log.flush()
    note(both, {OTHERS[0]: [b"new"], NAMES[2]: [b"new"]})


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_no_partition_is_without_its_topics_id_and_no_deleted_one_comes_back_whenever_the_power_fails(mode):
    disk, moments = SimulatedDisk(Random(1), record=True), []
    history(disk, moments)
    rng = Random(7)
    for (start, _, before), (end, held, after) in pairwise(moments):
        for count in range(start, end + 1):
            survivor = SimulatedDisk.replay(disk.trace, rng, count=count).crash(mode)
            dirs = open_dirs(survivor, held, segment_bytes=200)
            assert [each.failure for each in dirs.directories] == [None]
            assert not dirs.directories[0].broken
            found = {each.name: each for each in dirs.logs}
            assert {name: each.topic_id for name, each in found.items()}.items() <= held.items()
            for name, each in found.items():
                expected = b"old" if held[name] == OLD else b"new"
                assert all(value.startswith(expected) for value in values(each.log))
                each.log.check_invariants()
            for name in before.keys() & after.keys() & held.keys():
                assert values(found[name].log)[: len(before[name])] == before[name]
            missing = [name for name in held if name not in found]
            for topic_id in (OLD, NEW):
                for hosted in make(dirs, topic_id, [name for name in missing if held[name] == topic_id]):
                    append(hosted, b"go on")
                    hosted.log.flush()
            assert {each.name: each.topic_id for each in dirs.logs} == held
            dirs.close(is_clean=False)
            again = {each.name: each for each in open_dirs(survivor.crash(mode), held).logs}
            assert {name: each.topic_id for name, each in again.items()}.items() <= held.items()
            assert all(values(again[name].log) == [b"go on"] for name in missing)

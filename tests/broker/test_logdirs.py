"""Log directories: Kafka's file formats, hostile files, whose a directory is."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, KraftError, LocalError, LockedError, StorageError
from kraftcore.plugins.broker.broker_parts import topic_settings
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.checkpoint import decode_offsets, encode_offsets
from kraftcore.plugins.broker.logdirs.directory import NewFuture
from kraftcore.plugins.broker.logdirs.logdirs import Wanted
from kraftcore.plugins.broker.logdirs.names import deleted_name, is_deleted, partition_of
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.metadata.carrying_out import carry_out
from kraftcore.plugins.broker.metadata.local_changes import LocalChanges
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.raft.quorum import Endpoint

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=30)
NAMES = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
T = TopicPartition("t", 0)


def open_dirs(disk, *paths, node_id=1, now_ms=0, delay_ms=100):
    config = LogConfig(topic_id=None, producer_snapshots=False, tail_bytes=1000)
    return LogDirs(disk, paths or ("/d1",), node_id, lambda topic: config, delay_ms, now_ms, Random(1).randbytes)


def create(dirs, name, topic_id=None, **more):
    (made,) = run_here(dirs.create_all({name: Wanted(topic_id, **more)}, 0)).values()
    if isinstance(made, KraftError):
        raise made
    return made


@given(st.dictionaries(NAMES, st.integers(0, 2**63 - 1), max_size=5))
def test_checkpoints_come_back(offsets):
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.dictionaries(NAMES, st.integers(0, 99), max_size=3), st.data())
def test_a_checkpoint_that_lost_its_end_is_never_taken_for_a_whole_one(offsets, data):
    whole = encode_offsets(offsets)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CorruptDataError):
        decode_offsets(cut)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint_or_refused(data):
    with contextlib.suppress(CorruptDataError):
        decode_offsets(data)


@given(NAMES)
def test_folder_names(name):
    assert partition_of(str(name)) == name
    gone = deleted_name(name, Random(1).randbytes)
    assert is_deleted(gone) and partition_of(gone) is None
    assert len(deleted_name(TopicPartition("t" * 249, 7), Random(1).randbytes)) == 255


@pytest.mark.parametrize("folder", ["t", "t-", "-1", "t-01", "t-1x", "t-99999999999", "t-0.0123-delete", "a b-1"])
def test_other_folders_are_no_partitions(folder):
    assert partition_of(folder) is None


def test_a_deleted_partition_stays_for_its_delay_even_over_a_restart():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    hosted = create(dirs, T, Uuid.random())
    hosted.log.append_as_leader(build_batch([b"v"], timestamp_ms=1), 0, 0)
    run_here(dirs.delete([hosted], lambda: 1000))
    assert dirs.find(T) is None
    (gone,) = [name for name in disk.list_folder("/d1") if name.startswith("t-0.")]
    dirs.close()
    dirs = open_dirs(disk, now_ms=2000)
    dirs.directories[0].remove_expired(2099)
    assert disk.exists(f"/d1/{gone}")
    dirs.directories[0].remove_expired(2100)
    assert not disk.exists(f"/d1/{gone}")
    dirs.close()


@pytest.mark.parametrize("removed", ["a file", "all files", "the folder"])
def test_a_deleted_partition_that_somebody_else_removes_does_not_fail_its_directory(removed):
    class Disk(SimulatedDisk):
        is_shared = True

        def list_folder(self, path):
            found = super().list_folder(path)
            if self.is_shared and is_deleted(path.rpartition("/")[2]):
                self.is_shared = False
                for name in found[: 1 if removed == "a file" else None]:
                    self.unlink(f"{path}/{name}")
                if removed == "the folder":
                    self.remove_folder(path)
            return found

    disk = Disk(Random(1))
    dirs = open_dirs(disk)
    run_here(dirs.delete([create(dirs, T)], lambda: 0))
    dirs.directories[0].remove_expired(100)
    assert not [name for name in disk.list_folder("/d1") if is_deleted(name)]
    dirs.close()


def test_a_folder_that_somebody_else_removes_at_a_start_does_not_fail_its_directory():
    class Disk(SimulatedDisk):
        def list_folder(self, path):
            return [*super().list_folder(path), "t-0.0123456789abcdef0123456789abcdef-stray"]

    dirs = open_dirs(Disk(Random(1)))
    assert dirs.usable == dirs.directories
    dirs.close()


def test_what_was_stored_is_found_again():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, "/d1", "/d2")
    topic_id = Uuid.random()
    first, second = create(dirs, T, topic_id), create(dirs, TopicPartition("t", 1))
    assert {first.directory.path, second.directory.path} == {"/d1", "/d2"}
    for number in range(4):
        first.log.append_as_leader(build_batch([b"v"], timestamp_ms=number), 0, 0)
    first.log.flush()
    first.log.delete_below(2, 0)
    first.high_watermark = 3
    dirs.close()
    assert disk.exists("/d1/.kafka_cleanshutdown")
    dirs = open_dirs(disk, "/d2", "/d1")
    assert not disk.exists("/d1/.kafka_cleanshutdown")
    again = dirs.find(T)
    assert (again.topic_id, again.high_watermark) == (topic_id, 3)
    assert (again.log.log_start_offset, again.log.log_end_offset) == (2, 4)
    assert dirs.find(TopicPartition("t", 1)).topic_id is None
    dirs.close()


def test_a_stop_is_not_clean_with_a_log_that_was_found_damaged():
    """What was appended to it may be gone at the next start: it must not pass for a replica that has lost nothing."""
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, "/d1", "/d2")
    for number in range(2):
        create(dirs, TopicPartition("t", number)).log.append_as_leader(build_batch([b"v"], timestamp_ms=1), 0, 0)
    dirs.directories[0].take_offline(T, CorruptDataError("a file is shorter than it was"))
    dirs.close()
    assert [disk.exists(f"{path}/.kafka_cleanshutdown") for path in ("/d1", "/d2")] == [False, True]


def test_damaged_checkpoints_count_as_empty():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    create(dirs, T).high_watermark = 0
    dirs.close()
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        disk.replace_file(f"/d1/{name}", b"rubbish")
    dirs = open_dirs(disk)
    assert dirs.find(T).high_watermark == 0
    dirs.close()


def test_empty_checkpoints_are_no_damage(caplog):
    """Kafka 4.3.1 makes each checkpoint empty when it opens a log or directory (CheckpointFile), for a kill to find."""
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    create(dirs, T)
    dirs.close()
    files = ["t-0/leader-epoch-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint"]
    for name in files:
        disk.replace_file(f"/d1/{name}", b"")
    dirs = open_dirs(disk)
    hosted = dirs.find(T)
    hosted.log.append_as_leader(build_batch([b"v"], timestamp_ms=1), 3, 0)
    dirs.close()
    assert not caplog.records
    disk.replace_file("/d1/t-0/leader-epoch-checkpoint", b"")  # of a log with records it is
    dirs = open_dirs(disk)
    assert [(each.epoch, each.start_offset) for each in dirs.find(T).log.epoch_entries()] == [(3, 0)]
    dirs.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_another_brokers_directory_is_refused_and_nothing_in_it_changes():
    disk = SimulatedDisk(Random(1))
    open_dirs(disk).close()
    before = disk.read_file("/d1/meta.properties")
    with pytest.raises(LocalError, match="belongs to broker 1, not 2"):
        open_dirs(disk, node_id=2)
    assert disk.read_file("/d1/meta.properties") == before
    open_dirs(disk).close()


def test_directories_of_two_clusters_do_not_go_together():
    disk = SimulatedDisk(Random(1))
    open_dirs(disk, "/d1").close()
    other = LogDirs(disk, ("/d2",), 1, lambda topic: LogConfig(topic_id=None), 0, 0, Random(2).randbytes)
    other.close()
    with pytest.raises(LocalError, match="belongs to cluster"):
        open_dirs(disk, "/d1", "/d2")


def test_a_partition_in_two_directories_is_refused():
    disk = SimulatedDisk(Random(1))
    for path in ("/d1", "/d2"):
        dirs = open_dirs(disk, path)
        create(dirs, T).log.append_as_leader(build_batch([b"a"], timestamp_ms=1), 0, 0)
        dirs.close()
    disk.unlink("/d2/meta.properties")  # of a cluster of its own
    with pytest.raises(LocalError, match="is in /d1 and in /d2"):
        open_dirs(disk, "/d1", "/d2")


def two_logs(disk, folders=("/d1", "/d2")):
    """A partition of one topic in two directories of a KRaft cluster, further in the second; their ids."""
    topic_id = Uuid.random()
    for count, path in enumerate(folders, 1):
        dirs = open_kraft(disk, path)
        dirs.load(0)
        hosted = create(dirs, T, topic_id)
        for _ in range(count):
            hosted.log.append_as_leader(build_batch([b"a"], timestamp_ms=1), 0, 0)
        dirs.close()
    dirs = open_kraft(disk, *folders)
    ids = [each.id for each in dirs.directories]
    dirs.close(is_clean=False)
    return ids


@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_log_of_a_topic_that_had_the_name_before_does_not_stop_a_start(is_assigned):
    """Its directory had failed when the topic was deleted, and made anew in the other one."""
    disk = SimulatedDisk(Random(1))
    topics = Uuid(b"5" * 16), Uuid(b"6" * 16)
    for path, topic_id in zip(("/d1", "/d2"), topics, strict=True):
        dirs = open_kraft(disk, path)
        dirs.load(0)
        create(dirs, T, topic_id).log.append_as_leader(build_batch([b"a"], timestamp_ms=1), 0, 0)
        dirs.close()
    dirs = open_kraft(disk, "/d1", "/d2")
    dirs.load(0, {T: dirs.directories[0].id} if is_assigned else {}, {T: topics[1]})
    assert (dirs.find(T).directory.path, dirs.find(T).topic_id) == ("/d2", topics[1])
    assert [name for name in disk.list_folder("/d1") if name.startswith("t-0.") and name.endswith("-stray")]
    dirs.close()


def open_kraft(disk, *paths):
    config = LogConfig(topic_id=None, producer_snapshots=False, tail_bytes=1000)
    cluster_id = "Uo4Rb1dRQ8uCNz1lUvLyQw"
    return LogDirs(
        disk, paths, 1, lambda topic: config, 100, 0, Random(len(paths)).randbytes, kraft_cluster_id=cluster_id
    )


def test_of_two_logs_of_a_topic_the_one_that_got_further_counts():
    disk = SimulatedDisk(Random(1))
    two_logs(disk)
    dirs = open_kraft(disk, "/d1", "/d2")
    dirs.load(0)
    assert dirs.find(T).directory.path == "/d2"
    assert [name for name in disk.list_folder("/d1") if name.startswith("t-0.") and name.endswith("-stray")]
    dirs.close()


@pytest.mark.parametrize("is_disk", [False, True])
def test_what_cannot_be_read_elsewhere_does_not_stop_a_start(is_disk):
    disk = SimulatedDisk(Random(1))
    first, _ = two_logs(disk)
    disk.replace_file("/d2/t-0/partition.metadata", b"rubbish")
    if is_disk:
        disk.inject("open", times=-1, path="/d2/t-0")
    dirs = open_kraft(disk, "/d1", "/d2")
    dirs.load(0, {T: first})
    assert dirs.find(T).directory.path == "/d1"
    assert not dirs.is_broken(T)
    dirs.close()


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_log_whose_making_failed_in_another_directory_does_not_stop_the_next_start(slash):
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, f"/d1{slash}", f"/d2{slash}")
    disk.inject("any", path="/d1/t-0/", after=6)
    replicas = Replicas(1, dirs, RequestCache(), lambda topic: PartitionSettings())
    changes = LocalChanges(leads={T: Assignment(1, 0, 0, (1,), (1,), Uuid(b"5" * 16))})
    run_here(carry_out(changes, replicas, dirs, lambda: 0, lambda *of: None, lambda *of: None))
    assert dirs.find(T).directory.path == "/d2" and disk.exists("/d1/t-0")
    replicas.find(T).append(build_batch([b"a"], timestamp_ms=1), 0)
    dirs.close()
    dirs = open_dirs(disk, "/d1", "/d2")
    (hosted,) = dirs.logs
    assert (hosted.directory.path, hosted.log.log_end_offset) == ("/d2", 1)
    assert [partition_of(name) for name in disk.list_folder("/d1") if name.startswith("t-0")] == [None]
    dirs.close()


@pytest.mark.parametrize("power_fails", [False, True])
def test_deleting_partitions_writes_each_checkpoint_once_whatever_their_number(power_fails):
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    names = [TopicPartition("t", number) for number in range(5)]
    topic_id, again_id = Uuid(b"5" * 16), Uuid(b"6" * 16)
    for name in names:
        hosted = create(dirs, name, topic_id)
        hosted.log.append_as_leader(build_batch([b"v"], timestamp_ms=1), 0, 0)
        hosted.log.flush()
        hosted.high_watermark = 1
    (directory,) = dirs.directories
    directory.write_checkpoints()
    replicas = Replicas(1, dirs, RequestCache(), lambda topic: PartitionSettings())
    changes = LocalChanges(deletes=dict.fromkeys(names, topic_id))

    def written(changes):
        """How often each checkpoint is written while changes are carried out."""
        found = []
        disk.sync_latency_ms = lambda path: found.append(path) or 0
        run_here(carry_out(changes, replicas, dirs, lambda: 0, lambda *of: None, lambda *of: None))
        disk.sync_latency_ms = None
        return [found.count(f"/d1/{file}.tmp") for file in CHECKPOINTS]

    if power_fails:  # before anything of it is stored
        for hosted in dirs.logs:
            run_here(dirs.delete([hosted], lambda: 0))
        disk = disk.crash()
        dirs = open_dirs(disk)
        replicas = Replicas(1, dirs, RequestCache(), lambda topic: PartitionSettings())
    else:
        assert written(changes) == [1, 0, 1]
        assert [decode_offsets(disk.read_file(f"/d1/{file}")) for file in CHECKPOINTS] == [{}, {}, {}]
    # Partitions of the same names begin anew, and find nothing of the deleted ones.
    made = LocalChanges(leads=dict.fromkeys(names, Assignment(1, 0, 0, (1,), (1,), again_id)))
    assert written(made) == ([1, 0, 1] if power_fails else [0, 0, 0])
    assert [decode_offsets(disk.read_file(f"/d1/{file}")) for file in CHECKPOINTS] == [{}, {}, {}]
    assert {hosted.high_watermark for hosted in dirs.logs} == {0}
    dirs.close()


def test_a_directory_is_one_however_it_is_written():
    dirs = open_dirs(SimulatedDisk(Random(1)), "/d1/", "/d1", "/d2//")
    assert [each.path for each in dirs.directories] == ["/d1", "/d2"]
    for path in ("/d1", "/d1/t-0", "/d1//t-0/partition.metadata"):
        assert dirs.holding(path) is dirs.directories[0]
    assert dirs.holding("/d10/t-0") is None
    dirs.close()


@pytest.mark.parametrize(
    ("operation", "path"),
    [("read", "/d1/replication-offset-checkpoint"), ("read", "/d1/log-start-offset-checkpoint"), ("list", "/d1")],
)
def test_a_log_that_may_be_in_a_directory_that_cannot_be_looked_into_is_not_made_elsewhere(operation, path):
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, "/d1", "/d2")
    create(dirs, T).log.append_as_leader(build_batch([b"v"], timestamp_ms=1), 0, 0)
    dirs.close()
    fault = disk.inject(operation, times=-1, path=path)
    dirs = open_dirs(disk, "/d1", "/d2")
    assert fault.hits and [each.path for each in dirs.usable] == ["/d2"]
    with pytest.raises(StorageError, match="t-0 may be in /d1, which is not online"):
        create(dirs, T)
    assert not disk.exists("/d2/t-0")
    assert create(dirs, TopicPartition("new", 0), is_new=True).directory.path == "/d2"
    dirs.close()
    disk.clear_faults()
    dirs = open_dirs(disk, "/d1", "/d2")
    assert dirs.find(T).log.log_end_offset == 1
    dirs.close()


def test_what_a_directory_held_that_failed_later_is_known():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, "/d1", "/d2")
    dirs.directories[0].failure = StorageError(5, "the disk", "/d1")
    assert create(dirs, T).directory.path == "/d2"
    dirs.close()


@pytest.mark.parametrize(
    ("operation", "path"), [("any", "/d1"), ("read", "/d1/meta.properties"), ("open", "/d1/.lock")]
)
def test_a_directory_that_the_disk_does_not_give_does_not_end_the_start(operation, path):
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk, "/d1", "/d2")
    cluster_id = dirs.cluster_id
    dirs.close()
    fault = disk.inject(operation, times=-1, path=path)
    dirs = open_dirs(disk, "/d1", "/d2", "/d3")
    assert fault.hits and ([each.path for each in dirs.usable], dirs.cluster_id) == (["/d2", "/d3"], cluster_id)
    dirs.close()
    disk.clear_faults()
    open_dirs(disk, "/d3", "/d1", "/d2").close()


def test_no_cluster_is_made_up_beside_a_directory_that_may_say_which_it_is():
    disk = SimulatedDisk(Random(1))
    open_dirs(disk, "/d1").close()
    disk.inject("read", times=-1, path="/d1/meta.properties")
    with pytest.raises(StorageError, match="/d1/meta.properties"):
        open_dirs(disk, "/d2", "/d1")
    assert not disk.exists("/d2/meta.properties")
    disk.clear_faults()
    open_dirs(disk, "/d2", "/d1").close()


def test_one_process_at_a_time(tmp_path):
    path = str(tmp_path / "d")
    dirs = open_dirs(OsFiles(), path)
    with pytest.raises(LockedError):
        open_dirs(OsFiles(), path)
    dirs.close()
    open_dirs(OsFiles(), path).close()


@pytest.mark.parametrize("later", [(), (b"e", 9)], ids=["in the newest segment", "in an older one"])
def test_a_compacted_log_is_opened_as_it_is(later):
    config = BrokerConfig(node_id=1, listeners=(Endpoint("A", "127.0.0.1", 1),), directories=("/d1",))
    config_of = topic_settings(config).log_config
    disk = SimulatedDisk(Random(1))
    log = "/d1/t-0/00000000000000000000.log"
    batches = [
        build_batch([value], timestamp_ms=1, base_offset=at, leader_epoch=0) for value, at in ((b"v", 0), (b"w", 3))
    ]
    with contextlib.closing(LogDirs(disk, ("/d1",), 1, config_of, 100, 0, Random(1).randbytes)) as dirs:
        create(dirs, T)
    disk.replace_file(log, b"".join(batches))
    if later:
        disk.replace_file(
            "/d1/t-0/00000000000000000009.log",
            build_batch([later[0]], timestamp_ms=1, base_offset=later[1], leader_epoch=0),
        )
    with contextlib.closing(LogDirs(disk, ("/d1",), 1, config_of, 100, 0, Random(1).randbytes)) as dirs:
        found = dirs.find(T)
        assert found.log.log_end_offset == (10 if later else 4)
        assert found.log.read(2, 1000) == batches[1]
        assert found.producers.end_offset == found.log.log_end_offset
        if later:
            assert next(iter_batches(found.log.read(4, 1000))).base_offset == 9
    assert disk.read_file(log) == b"".join(batches)


def numbered_batch(offset):
    return bytes(build_batch([b"v"], timestamp_ms=1, base_offset=offset, leader_epoch=0))


@pytest.mark.parametrize("told", ["a recovery point", "the cleaner", "the cleaner, long ago", "a swap", "nobody"])
def test_a_gap_that_kafkas_cleaner_left_outlives_two_kills(told):
    """It lies behind what our own listing knows of. Where nothing of Kafka's tells of it, it is taken for a tail that a
    power cut took: Kafka would go on with records missing."""
    disk = SimulatedDisk(Random(1))
    config = BrokerConfig(node_id=1, listeners=(Endpoint("L", "h", 1),), directories=("/d1",))

    def run():
        return LogDirs(disk, ("/d1",), 1, topic_settings(config).log_config, 100, 0, Random(1).randbytes)

    log = create(run(), T).log
    for offset in range(2):
        log.append_as_follower(numbered_batch(offset), 0)
    log.flush()
    disk = disk.crash("kept")
    if told == "the cleaner, long ago":  # of what was in the log before ours opened it
        disk.replace_file("/d1/cleaner-offset-checkpoint", encode_offsets({T: 9}))
        run()
        disk = disk.crash("kept")
    # Kafka's turn, which is killed, too: it appended to the segment, and cleaned what followed.
    segment = f"/d1/t-0/{0:020d}.log"
    with disk.open(segment) as file:
        file.write_at(file.size(), numbered_batch(2) + numbered_batch(3))
    if told == "a swap":
        disk.replace_file(f"{segment}.swap", disk.read_file(segment))
    for suffix, data in (("log", numbered_batch(8) + numbered_batch(9)), ("index", b""), ("timeindex", b"")):
        disk.replace_file(f"/d1/t-0/{6:020d}.{suffix}", data)
    points = {T: 9 if told == "a recovery point" else 3}
    disk.replace_file("/d1/recovery-point-offset-checkpoint", encode_offsets(points))
    if told == "the cleaner":
        disk.replace_file("/d1/cleaner-offset-checkpoint", encode_offsets({T: 6}))
    for expected in (10, 11, 12):
        log = run().find(T).log
        if told in ("the cleaner, long ago", "nobody"):
            assert log.log_end_offset == 4
            return
        assert log.log_end_offset == expected
        assert [batch.base_offset for batch in iter_batches(log.read(3, 1000))] == [3]
        assert next(iter_batches(log.read(4, 1000))).base_offset == 8
        log.append_as_follower(numbered_batch(expected), 0)
        disk = disk.crash("kept")


def test_a_log_of_kafkas_that_is_damaged_below_its_recovery_point_stays_so_at_every_start():
    """What checkpoints say of it is kept for the next start: else that would take the damage for a torn tail."""
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    create(dirs, TopicPartition("u", 0))
    dirs.close()
    spoilt = numbered_batch(0) + numbered_batch(1)[:-1] + b"?" + numbered_batch(2)
    disk.make_folder("/d1/t-0")
    disk.replace_file(f"/d1/t-0/{0:020d}.log", spoilt)
    for file in CHECKPOINTS:
        disk.replace_file(f"/d1/{file}", encode_offsets({T: 3}))
    for is_clean in (True, False, True):
        dirs = open_dirs(disk)
        (directory,) = dirs.directories
        assert set(directory.broken) == {T}
        directory.write_checkpoints()
        assert [decode_offsets(disk.read_file(f"/d1/{file}"))[T] for file in CHECKPOINTS] == [3, 3, 3]
        dirs.close(is_clean=is_clean)
        assert disk.read_file(f"/d1/t-0/{0:020d}.log") == spoilt
    dirs = open_dirs(disk)
    run_here(dirs.delete_all([T], lambda: 0))
    dirs.directories[0].forget_gone()
    assert [T in decode_offsets(disk.read_file(f"/d1/{file}")) for file in CHECKPOINTS] == [False] * 3
    dirs.close()


CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


@pytest.mark.parametrize("change", ["delete", "set aside"])
def test_what_was_stored_of_a_partition_goes_with_it(change):
    """A later partition of its name begins anew, also after a kill: nothing of it is cut, or committed, by mistake."""
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    hosted = create(dirs, T)
    for _ in range(10):
        hosted.log.append_as_leader(build_batch([b"old"], timestamp_ms=1), 0, 0)
    hosted.log.flush()
    hosted.log.delete_below(5, 0)
    hosted.high_watermark = 10
    read = lambda: [decode_offsets(disk.read_file(f"/d1/{each}")) for each in CHECKPOINTS]  # noqa: E731
    dirs.directories[0].write_checkpoints()
    assert read() == [{T: 10}, {T: 5}, {T: 10}]
    run_here(dirs.delete([hosted], lambda: 0) if change == "delete" else dirs.set_aside(dirs.directories[0], T))
    dirs.directories[0].forget_gone()
    assert read() == [{}, {}, {}]
    hosted = create(dirs, T)
    for _ in range(7):
        hosted.log.append_as_leader(build_batch([b"new"], timestamp_ms=1), 0, 0)
    hosted.log.flush()
    found = open_dirs(disk.crash("kept")).find(T)
    assert (found.log.log_start_offset, found.log.log_end_offset, found.high_watermark) == (0, 7, 0)
    found.log.close()


def test_what_an_earlier_run_stored_of_a_partition_is_no_later_ones():
    disk = SimulatedDisk(Random(1))
    dirs = open_dirs(disk)
    other, gone = TopicPartition("u", 0), TopicPartition("v", 0)
    create(dirs, other)
    dirs.close(is_clean=False)
    for each in CHECKPOINTS:
        disk.replace_file(f"/d1/{each}", encode_offsets({T: 3, other: 0, gone: 5}))
    dirs = open_dirs(disk)
    create(dirs, T)
    for each in CHECKPOINTS:
        assert decode_offsets(disk.read_file(f"/d1/{each}")) == {other: 0}
    dirs.close()


def test_a_thread_that_makes_a_log_changes_nothing_that_others_walk_meanwhile():
    """Where a move was under way, too, whose log counts when the one that it left is lost."""
    dirs = open_kraft(SimulatedDisk(Random(1)), "/d1", "/d2")
    directory, topic_id, other = dirs.directories[1], Uuid(b"1" * 16), TopicPartition("u", 0)
    new = NewFuture(T, dirs.future_folder(T), topic_id, 0)
    assert not run_here(dirs.create_futures({directory: [new]}, 0))
    for name in (T, other):
        steps, works = dirs.create_all({name: Wanted(topic_id, directory.id)}, 0), 0
        failures = None
        with contextlib.suppress(StopIteration):
            while True:
                work = steps.send(failures)
                known = dict(directory.logs), dict(directory.futures)
                for each in work if isinstance(work, list) else [work]:
                    each()
                    works += 1
                failures = [None] * len(work) if isinstance(work, list) else None
                assert (directory.logs, directory.futures) == known
        assert works
        assert dirs.find(name).directory is directory
    assert not directory.futures
    dirs.close()

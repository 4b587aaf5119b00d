"""Logs that a cleaner was at: offsets are missing between batches and within them, batches are empty."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kraftcore.core.batch import build_batch, build_records_batch, iter_batches
from kraftcore.core.batch.record import Record
from kraftcore.core.crc32c import crc32c
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.errors import CorruptBatchError, DamagedLogError

FOLDER = "/disk/t-0"
FAR = 2**31


def config(allow_gaps=True):
    return LogConfig(
        segment_bytes=900,
        index_interval_bytes=150,
        tail_bytes=1000,
        topic_id=None,
        producer_snapshots=False,
        allow_gaps=allow_gaps,
    )


def cleaned(base, deltas, last_delta, epoch, timestamp):
    """A batch from which records were taken: offsets base + deltas are left of base to base + last_delta."""
    whole = build_records_batch(
        [Record(b"k", b"v%d" % delta, timestamp_ms=timestamp) for delta in range(max(len(deltas), 1))],
        base_offset=base,
        leader_epoch=epoch,
        producer_id=7,
        producer_epoch=0,
        base_sequence=base % 2**31,
    )
    if not deltas:
        whole = whole[:61]
        whole[8:12] = (61 - 12).to_bytes(4)
        whole[57:61] = bytes(4)
    else:
        at, records = 61, bytearray(whole)
        for delta in deltas:  # delta of a record: length, attributes, timestamp and offset are one byte each here
            records[at + 3] = 2 * delta
            at += 1 + records[at] // 2
        whole = records
    whole[23:27] = last_delta.to_bytes(4)
    whole[17:21] = crc32c(whole[21:]).to_bytes(4)
    return bytes(whole)


class Model:
    def __init__(self):
        self.batches, self.start, self.end, self.epoch, self.now = [], 0, 0, 0, 1000

    def next_batch(self, rng):
        self.now += rng.randint(0, 20)
        base = self.end + rng.choice((0, 0, 1, 5, 40))
        if rng.random() < 0.02:
            base += FAR
        last = rng.choice((0, 0, 3, 30))
        deltas = [delta for delta in range(last + 1) if rng.random() < 0.5]
        if rng.random() < 0.1:
            self.epoch += rng.randint(1, 3)
        data = cleaned(base, deltas, last, self.epoch, self.now)
        self.batches.append((base, base + last, self.epoch, self.now, data))
        self.end = base + last + 1
        return data

    def from_offset(self, offset):
        return [batch for batch in self.batches if batch[1] >= offset]

    def cut(self, offset):
        kept = [batch for batch in self.batches if batch[1] < offset]
        gone = self.batches[len(kept) :]
        self.batches = kept
        self.end = min([offset, self.end, *(batch[0] for batch in gone[:1])])
        self.start = min(self.start, self.end)

    def reopened(self, log):
        """What lies below the first segment is gone; a log that was cut within a gap ends with its last batch."""
        first = log.segment_list()[0].base_offset
        self.start = first
        assert log.log_end_offset <= self.end
        if self.batches:
            assert log.log_end_offset >= self.batches[-1][1] + 1
        self.end = log.log_end_offset
        self.epoch = max(self.epoch, 0 if log.last_epoch is None else log.last_epoch)


def check(log, model, rng):
    log.check_invariants()
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    interesting = [model.start, model.end]
    for base, last, *_ in model.batches:
        interesting += [offset for offset in (base - 1, base, last, last + 1) if model.start <= offset <= model.end]
    for offset in rng.sample(interesting, min(12, len(interesting))):
        wanted = model.from_offset(offset)
        up_to = rng.choice((None, rng.choice(interesting)))
        if up_to is not None:
            while wanted and wanted[-1][1] >= up_to:
                wanted.pop()
        data = log.read(offset, rng.choice((1, 300, 5000)), up_to=up_to)
        assert b"".join(batch[4] for batch in wanted).startswith(data)
        assert bool(data) == bool(wanted)
        if up_to is not None:
            known = log.bytes_in_memory(offset, up_to)
            assert known in (None, sum(len(batch[4]) for batch in wanted))
            assert known is not None or min(offset, up_to) < log.tail_base_offset
    timestamp = rng.randint(990, model.now + 5)
    found = [batch for batch in model.from_offset(model.start) if batch[3] >= timestamp]
    assert log.offset_for_timestamp(timestamp) == (max(found[0][0], model.start) if found else None)
    known_from = min([model.end, *(entry.start_offset for entry in log.epoch_entries())])
    assert log.epoch_entries() or not [batch for batch in model.batches if batch[0] >= model.start]
    for base, _, epoch, *_ in rng.sample(model.batches, min(4, len(model.batches))):
        if base >= max(model.start, known_from):
            assert log.epoch_at(base) == epoch
            later = [batch[0] for batch in model.batches if batch[2] > epoch]
            end = log.end_offset_for_epoch(epoch)
            assert end.epoch == epoch
            assert (end.offset <= later[0]) if later else (end.offset == model.end)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_missing_the_rest_is_found(seed):
    """Appends as a follower, reads, cuts, deletions, stops and crashes, in any order."""
    rng = Random(seed)
    disk, model = SimulatedDisk(rng), Model()
    log = Log.open(disk, FOLDER, config(), now_ms=model.now)
    for _ in range(80):
        choice = rng.random()
        if choice < 0.75:
            data = b"".join([model.next_batch(rng) for _ in range(rng.choice((1, 1, 2, 9)))])
            info = log.append_as_follower(data, model.now)
            batches = list(iter_batches(data))
            assert (info.first_offset, info.size) == (batches[0].base_offset, len(data))
        elif choice < 0.83:
            offset = rng.randint(max(model.end - 200, model.start), model.end)
            model.cut(offset)
            assert log.truncate_to(offset) == model.end
        elif choice < 0.88:
            log.flush()
            offset = rng.randint(max(model.end - 3000, model.start), model.end)
            log.delete_below(offset, model.now)
            model.start = max(model.start, offset)
        elif choice < 0.94:
            log.close()
            log = Log.open(disk, FOLDER, config(), now_ms=model.now, was_clean=rng.random() < 0.5)
            assert log.recovery_actions == []
            model.reopened(log)
        else:
            flushed = log.flush() if rng.random() < 0.5 else log.flushed_offset
            durable = [batch for batch in model.batches if batch[1] < flushed]
            disk = disk.crash()
            log = Log.open(disk, FOLDER, config(), now_ms=model.now)
            first = log.segment_list()[0].base_offset
            left = b"".join(batch.to_bytes() for batch in iter_batches(everything(log)))
            wanted = b"".join(batch[4] for batch in model.batches if batch[1] >= first)
            # A prefix: nothing between is missing, nothing durable is.
            assert wanted.startswith(left)
            assert len(left) >= sum(len(batch[4]) for batch in durable if batch[1] >= first)
            kept = {batch.base_offset for batch in iter_batches(left)}
            model.batches = [batch for batch in model.batches if batch[1] < first or batch[0] in kept]
            model.end = max(log.log_end_offset, 0)
            model.start = first
            model.epoch = max([0, *(batch[2] for batch in model.batches)])
        check(log, model, rng)


def everything(log):
    found, offset = b"", log.log_start_offset
    while data := log.read(offset, 400):
        found += data
        *_, last = iter_batches(data)
        offset = last.next_offset
    return found


def test_a_log_without_gaps_refuses_them_from_its_leader():
    batches = [cleaned(0, [0], 0, 0, 5), cleaned(3, [0], 0, 0, 6), cleaned(2, [0], 0, 0, 7)]
    with Log.open(SimulatedDisk(Random(1)), FOLDER, config(allow_gaps=False), now_ms=1) as log:
        log.append_as_follower(batches[0], 1)
        with pytest.raises(CorruptBatchError, match="starts at offset 3, the log continues at 1"):
            log.append_as_follower(batches[1], 1)
        with pytest.raises(CorruptBatchError, match="0 records, but last offset delta 0"):
            log.append_as_follower(cleaned(1, [], 0, 0, 5), 1)
    with Log.open(SimulatedDisk(Random(1)), FOLDER, config(), now_ms=1) as log:
        log.append_as_follower(batches[0] + batches[1], 1)
        with pytest.raises(CorruptBatchError, match="starts at offset 2, the log continues at 4"):
            log.append_as_follower(batches[2], 1)
        log.append_as_follower(cleaned(9, [], 4, 0, 5), 1)
        assert log.log_end_offset == 14


def segment_files(disk, segments):
    disk.make_folder(FOLDER)
    for base, batches in segments.items():
        disk.replace_file(f"{FOLDER}/{base:020d}.log", b"".join(batches))


@pytest.mark.parametrize("was_clean", [False, True])
def test_a_gap_between_segments_is_a_cleaners_or_a_tail_that_was_lost(was_clean):
    """Only we wrote here since the listing: a segment then begins where the one before it ended."""
    disk = SimulatedDisk(Random(1))
    first, second, third = (cleaned(base, [0], 0, 0, 5) for base in (0, 1, 9))
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        log.append_as_follower(first, 1)
    segment_files(disk, {0: [first, second], 9: [third]})  # as Kafka leaves it: the listing tells that it was there
    with Log.open(disk, FOLDER, config(), now_ms=1, was_clean=was_clean) as log:
        assert everything(log) == first + second + third
    # A crash of ours took the end of a segment that no flush had reached, and the beginning of the next one is there.
    log = Log.open(disk, FOLDER, config(), now_ms=1)
    log.append_as_follower(cleaned(10, [0, 1], 1, 0, 5), 1)
    disk.sync_folder(FOLDER)
    disk.replace_file(f"{FOLDER}/{14:020d}.log", cleaned(14, [0], 0, 0, 5))
    log = Log.open(disk, FOLDER, config(), now_ms=1, was_clean=was_clean)
    assert log.log_end_offset == (15 if was_clean else 12)
    assert ("14: removed" in " ".join(log.recovery_actions)) is not was_clean


@pytest.mark.parametrize("names_wait", [False, True])
def test_a_tail_that_was_lost_after_a_clean_stop_is_no_cleaners_gap(names_wait):
    disk = SimulatedDisk(Random(1))
    settings = replace(config(), segment_bytes=200, names_wait=names_wait)
    with Log.open(disk, FOLDER, settings, now_ms=1) as log:
        log.append_as_leader(build_batch([b"stopped"], timestamp_ms=1), 0, 1)
    log = Log.open(disk, FOLDER, settings, now_ms=1)
    for _ in range(2):  # the second one begins another segment
        log.append_as_leader(build_batch([b"x" * 40], timestamp_ms=1), 0, 1)
    assert [segment.base_offset for segment in log.segment_list()] == [0, 2]
    first = f"{FOLDER}/{0:020d}.log"
    disk.replace_file(first, disk.read_file(first)[:-10])
    log = Log.open(disk, FOLDER, settings, now_ms=1)
    assert log.log_end_offset == 1
    assert "2: removed" in " ".join(log.recovery_actions)


@pytest.mark.parametrize("was_listed", [False, True])
def test_damage_below_the_recovery_point_is_no_torn_tail(was_listed):
    """Also in the last segment, of a folder that Kafka left: it had synced all that is below."""
    disk = SimulatedDisk(Random(1))
    batches = [cleaned(base, [0], 0, 0, 5) for base in range(5)]
    if was_listed:
        with Log.open(disk, FOLDER, config(), now_ms=1) as log:
            log.append_as_follower(batches[0], 1)
    spoilt = batches[3][:-1] + b"?"
    segment_files(disk, {0: batches[:2], 2: [batches[2], spoilt, batches[4]]})
    with pytest.raises(DamagedLogError) as caught:
        Log.open(disk, FOLDER, config(), now_ms=1, recovery_point=4)
    assert (caught.value.offset, caught.value.durable_offset) == (3, 4)
    assert disk.read_file(f"{FOLDER}/{2:020d}.log") == batches[2] + spoilt + batches[4]
    with Log.open(disk, FOLDER, config(), now_ms=1, recovery_point=3) as log:
        assert everything(log) == b"".join(batches[:3])
    segment_files(disk, {2: [batches[2], bytes(100)]})
    with Log.open(disk, FOLDER, config(), now_ms=1, recovery_point=3) as log:
        assert everything(log) == b"".join(batches[:3])


@pytest.mark.parametrize("rolls", [lambda log: log.roll(1), lambda log: log.delete_below(15, 1)])
def test_what_was_appended_behind_a_gap_that_a_cut_left_is_there_after_a_kill(rolls):
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, config(), now_ms=1)
    log.append_as_follower(cleaned(0, [0], 4, 0, 5), 1)
    log.roll(1)
    log.append_as_follower(cleaned(5, [0], 4, 0, 5) + cleaned(20, [0], 0, 0, 5), 1)
    log.flush()
    log.truncate_to(15)
    log.delete_below(5, 1)  # what is stored as durable ends with the last batch
    assert log.log_end_offset == 15
    rolls(log)
    log.append_as_leader(build_records_batch([Record(b"k", b"v", timestamp_ms=1)], timestamp_ms=1), 0, 1)
    log.check_invariants()
    found = Log.open(disk.crash("kept"), FOLDER, config(), now_ms=1)
    assert found.log_end_offset == 16
    assert [batch.base_offset for batch in iter_batches(found.read(15, 1000))] == [15]
    assert not found.recovery_actions


def test_a_log_cut_within_a_gap_and_deleted_up_to_there_ends_there_when_it_is_opened_again():
    disk = SimulatedDisk(Random(1))
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        for base in (0, 1, 2, 100):
            log.append_as_follower(cleaned(base, [0], 0, 0, 5), 1)
        assert log.truncate_to(50) == 50
        log.flush()
        log.delete_below(50, 1)
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_the_checkpoint_keeps_epochs_whose_first_batches_are_gone():
    disk = SimulatedDisk(Random(1))
    segment_files(disk, {0: [cleaned(0, [0], 0, 1, 5), cleaned(20, [0], 0, 3, 5)], 30: [cleaned(40, [0], 0, 4, 5)]})
    disk.replace_file(f"{FOLDER}/leader-epoch-checkpoint", b"0\n4\n1 0\n2 10\n3 15\n4 33\n")
    for _ in range(2):
        with Log.open(disk, FOLDER, config(), now_ms=1) as log:
            assert [tuple(entry) for entry in log.epoch_entries()] == [(1, 0), (2, 10), (3, 15), (4, 33)]
            assert tuple(log.end_offset_for_epoch(1)) == (10, 1)
    disk.replace_file(f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n1 0\n3 21\n")
    disk.unlink(f"{FOLDER}/kraftcore-segments")
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        assert [tuple(entry) for entry in log.epoch_entries()] == [(1, 0), (3, 20), (4, 40)]


@pytest.mark.parametrize("state", ["swapped", "old deleted", "half renamed", "not complete"])
def test_what_kafkas_cleaner_was_putting_in_place_is_put_there(state):
    disk = SimulatedDisk(Random(1))
    old = {base: [cleaned(base + each, [0], 0, 0, 5) for each in range(3)] for base in (0, 3, 6)}
    segment_files(disk, old)
    new = cleaned(1, [0], 0, 0, 5) + cleaned(5, [0], 0, 0, 5)
    name = f"{FOLDER}/{0:020d}"
    disk.replace_file(f"{name}.log.swap", new)
    disk.replace_file(f"{name}.index.swap", b"")
    if state == "old deleted":
        disk.unlink(f"{FOLDER}/{3:020d}.log")
    elif state == "half renamed":
        disk.unlink(f"{FOLDER}/{3:020d}.log")
        disk.rename(f"{name}.log.swap", f"{name}.log")
    elif state == "not complete":
        disk.replace_file(f"{FOLDER}/{0:020d}.timeindex.cleaned", b"")
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        last = b"".join(old[6])
        assert everything(log) == (
            b"".join(batch for batches in old.values() for batch in batches) if state == "not complete" else new + last
        )
    assert not [found for found in disk.list_folder(FOLDER) if found.endswith((".swap", ".cleaned"))]


def test_a_segment_that_was_split_keeps_the_half_that_was_renamed():
    disk = SimulatedDisk(Random(1))
    halves = [b"".join(cleaned(base + each, [0], 0, 0, 5) for each in range(3)) for base in (0, 3, 6)]
    segment_files(disk, {0: [halves[0]], 6: [halves[2]]})
    disk.replace_file(f"{FOLDER}/{0:020d}.index.swap", b"")
    disk.replace_file(f"{FOLDER}/{3:020d}.index.swap", b"")
    disk.replace_file(f"{FOLDER}/{3:020d}.log.swap", halves[1])
    with Log.open(disk, FOLDER, config(), now_ms=1) as log:
        assert everything(log) == b"".join(halves)


def test_later_segments_without_the_first_ones_are_a_tail_that_was_lost():
    """A new log whose first segment's name a power cut took: nothing had been flushed, and the log is empty again."""
    disk = SimulatedDisk(Random(1))
    settings = replace(config(), names_wait=True)
    segment_files(disk, {7: [cleaned(7, [0], 0, 0, 5)]})
    log = Log.open(disk, FOLDER, settings, now_ms=1, is_ours=True)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    log.close()
    segment_files(disk, {7: [cleaned(7, [0], 0, 0, 5)]})  # of somebody else: it starts where retention left it
    with Log.open(disk, FOLDER, settings, now_ms=1) as log:
        assert (log.log_start_offset, log.log_end_offset) == (7, 8)

"""Opens a log folder: trusts unchanged segments, reads all others again, and cuts a torn tail.

Order, and why a crash at any point is harmless:

1. Leftovers go: ``.deleted`` files, temporary files, indexes without a log, segments below the listing's start (a
   deletion that was under way).
2. Segments, oldest first. One that matches its line in the listing is trusted. Any other is read batch by batch and
   its indexes are rebuilt; where the intact batches end, the log ends.
3. That end is normal when nothing at or above it was durable by the listing, nor by a broker's recovery point: a torn
   tail. It is cut, later segments go. Below that, or (in a folder without a listing) when later segments exist, bytes
   that were durable are damaged: Kafka would cut there and silently lose what follows, or serve the records around the
   damage; here opening fails, unless ``repair`` asks for the cut. A log that ends with a whole batch, but below the
   durable offset, was truncated by another program (Kafka, as a follower) if ``quorum-state`` was written after the
   listing; else segments are missing.
4. Everything is synced, the leader epochs are brought in line with the batches, and a new listing is written.

A log whose names wait for a flush (``LogConfig.names_wait``) has no files before its first append, and no listing
before the flush of its second segment; ``is_ours`` says that no other program wrote it, so that none of it was durable.

Where gaps are allowed (``LogConfig.allow_gaps``), a segment may begin behind the end of the one before it: Kafka's
cleaner has removed records. Our own segments begin where the log ended, so a gap above the durable offset (by the
listing, or by a broker's or its cleaner's checkpoint) is a tail that a crash took, if no other program used the folder
since the listing: it is then cut like any torn tail. Segments by which Kafka's cleaner was about to replace others
(``.swap``) are put in place; a gap behind them is the cleaner's.
"""

from __future__ import annotations

import errno
import re
import struct
from typing import NamedTuple

from kraftcore.core.disk.files import Files
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import CHECKPOINT_NAME, UNSYNCED_NAME, LeaderEpochs
from kraftcore.core.log.listing import LISTING_NAME, Listing, SegmentEntry
from kraftcore.core.log.segment import Segment
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, DamagedLogError, LocalError, StorageError

METADATA_NAME = "partition.metadata"
QUORUM_STATE = "quorum-state"
DELETED_SUFFIX = ".deleted"
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.snapshot|\.txnindex)", re.ASCII)
_SWAPPED_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex)\.(cleaned|swap)", re.ASCII)
_SNAPSHOT_FILE = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint", re.ASCII)
_OFFSET_MAX = 2**63 - 1
_OVERHEAD = 12  # bytes of a batch before those that its length counts
_BATCH_PREFIX = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_LEAST_LENGTH = 49  # of a batch without records


class RecoveredLog(NamedTuple):
    """The result of ``recover_log``.

    Attributes:
        segments: oldest first, at least one; the last takes appends.
        epochs: leader epochs.
        listing: the content of the file on disk now.
        pristine: every segment was trusted, and the listing still covers the last one.
        actions: repairs and removals, one sentence each.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    listing: Listing
    pristine: bool
    actions: list[str]


def recover_log(
    files: Files,
    folder: str,
    config: LogConfig,
    now_ms: int,
    *,
    repair: bool,
    was_clean: bool = False,
    recovery_point: int = 0,
    is_fresh: bool = False,
    is_ours: bool = False,
) -> RecoveredLog:
    """Open a folder; see the module's text, and ``Log.open``.

    Raises:
        DamagedLogError: bytes that had been durable are damaged; nothing was cut.
        CorruptDataError: ``partition.metadata`` is damaged.
        StorageError: the disk failed.
        LocalError: the folder belongs to another topic.
    """
    recovery = _Recovery(files, folder, config, now_ms, repair, was_clean, recovery_point, is_ours)
    return recovery.begun() if is_fresh and config.names_wait else recovery.run()


class _Recovery:
    def __init__(
        self,
        files: Files,
        folder: str,
        config: LogConfig,
        now_ms: int,
        repair: bool,
        was_clean: bool,
        recovery_point: int,
        is_ours: bool,
    ) -> None:
        self.files = files
        self.folder = folder
        self.config = config
        self.now_ms = now_ms
        self.repair = repair
        self.was_clean = was_clean
        self.recovery_point = recovery_point
        self.is_ours = is_ours
        self.is_listed = False
        self.actions: list[str] = []
        self.segments: list[Segment] = []
        self.read_again: dict[int, list[tuple[int, int]]] = {}  # base offset -> epochs that begin there
        self.folder_changed = False
        self.swapped: set[int] = set()  # base offsets of the cleaner's segments that are put in place now

    def begun(self) -> RecoveredLog:
        """A log with nothing in it."""
        self.segments.append(self.unborn(0))
        return RecoveredLog(self.segments, LeaderEpochs(), Listing(), False, self.actions)

    def unborn(self, start: int) -> Segment:
        segment = Segment(self.files, self.folder, start, self.config, self.now_ms)
        segment.await_append()
        return segment

    def run(self) -> RecoveredLog:
        self.files.make_folder(self.folder)
        self.check_topic()
        stored = self.load_listing()
        names = self.remove_leftovers()
        if self.config.allow_gaps and self.finish_cleaning(names):
            names = self.remove_leftovers()
        if stored and self.is_superseded(names, stored):
            self.actions.append("all segments are missing; a snapshot holds all that had been stored durably")
            stored = None
        bases = self.find_segments(names, stored)
        self.open_segments(bases, stored)
        self.remove_strays(names)
        if self.config.names_wait and not self.is_listed and not self.segments:
            return self.begun()
        is_new = stored is None and not self.segments and not self.folder_changed
        if not self.segments:
            start = stored.start_offset if stored else 0
            segment = Segment(self.files, self.folder, start, self.config, self.now_ms)
            segment.create()
            if not is_new:
                self.folder_changed = True
                self.read_again[start] = []
            self.segments.append(segment)
        end = self.segments[-1].next_offset
        if stored and end < stored.durable_offset:
            if self.is_untouched():
                self.damage(end, False, stored, self.folder, -1, f"the log ends at offset {end}: segments are missing")
            self.actions.append(
                f"the log ends at offset {end}, though it was durable up to {stored.durable_offset}: whole batches are "
                f"gone, as after a truncation by another program"
            )
        for segment in self.segments:
            if segment.base_offset in self.read_again:
                segment.sync_recovered()
        if self.folder_changed:
            self.files.sync_folder(self.folder)
        epochs = self.load_epochs()
        pristine = self.is_listed and not self.actions and not self.read_again and not self.folder_changed
        active = self.segments[-1]
        if stored is None or not pristine:  # a new log's files are empty, their names durable with the listing's
            stored = Listing(self.segments[0].base_offset, active.next_offset)
            stored.segments = {segment.base_offset: segment.entry() for segment in self.segments[:-1]}
            self.files.replace_file(self.path(LISTING_NAME), stored.encode())
        active.unseal()
        return RecoveredLog(self.segments, epochs, stored, pristine, self.actions)

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            return self.files.read_file(self.path(name))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    # ---- small files

    def check_topic(self) -> None:
        if self.config.topic_id is None:
            return
        path = self.path(METADATA_NAME)
        data = self.read(METADATA_NAME)
        if data is None:
            self.files.replace_file(path, encode_metadata(self.config.topic_id))
            return
        found = decode_metadata(data, path)
        if found != self.config.topic_id:
            raise LocalError(
                f"{path}: the folder belongs to topic id {found}, not {self.config.topic_id}: "
                f"use its id, or another folder"
            )

    def load_listing(self) -> Listing | None:
        data = self.read(LISTING_NAME)
        if data is None:
            return Listing() if self.is_ours else None
        try:
            listing = Listing.decode(data, self.path(LISTING_NAME))
        except CorruptDataError as error:
            self.actions.append(f"{error}: all segments are read again")
            return None
        self.is_listed = True
        return listing

    def is_untouched(self) -> bool:
        """Whether, by its files, no program took part in the quorum with this folder after the listing was written."""
        try:
            state = self.files.stat(self.path(QUORUM_STATE))
            return state.mtime_ns <= self.files.stat(self.path(LISTING_NAME)).mtime_ns
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return False
            raise

    def remove_leftovers(self) -> list[str]:
        own = {name + ".tmp" for name in (LISTING_NAME, CHECKPOINT_NAME, METADATA_NAME)} | {UNSYNCED_NAME}
        names = []
        for name in self.files.list_folder(self.folder):
            if name in own or (name.endswith(DELETED_SUFFIX) and not name.endswith(".checkpoint" + DELETED_SUFFIX)):
                self.remove(name)
            else:
                names.append(name)
        return names

    def remove(self, name: str) -> None:
        self.files.unlink(self.path(name))
        self.folder_changed = True

    # ---- segments

    def finish_cleaning(self, names: list[str]) -> bool:
        """Put segments that Kafka's cleaner had finished in place, drop unfinished ones; whether there were any.

        Source: Kafka 4.3.1, LogLoader.load: segments from the first swapped one to the end of the last one go.
        """
        found = [match for name in names if (match := _SWAPPED_FILE.fullmatch(name))]
        cleaned = [match for match in found if match[3] == "cleaned"]
        # A segment that was being split: not all of its parts are there.
        incomplete = min((int(match[1]) for match in cleaned), default=_OFFSET_MAX)
        swapped = [match for match in found if match[3] == "swap" and int(match[1]) < incomplete]
        logs = [match for match in swapped if match[2] == ".log"]
        first = min((int(match[1]) for match in logs), default=0)
        end = max((self.end_of(match[0], int(match[1])) for match in logs), default=0)
        for match in found:
            if match not in swapped:
                self.remove(match[0])
        for name in names:
            match = _SEGMENT_FILE.fullmatch(name)
            if match and match[2] != ".snapshot" and first <= int(match[1]) < end:
                self.remove(name)
        for match in swapped:
            self.files.rename(self.path(match[0]), self.path(match[1] + match[2]))
            self.folder_changed = True
        self.swapped = {int(match[1]) for match in logs}
        if swapped:
            self.actions.append(f"segments from {first} to {end} that Kafka's cleaner had made are put in place")
            self.files.sync_folder(self.folder)
        return bool(found)

    def end_of(self, name: str, base: int) -> int:
        """Where the batches of a file end, by their headers."""
        with self.files.open(self.path(name), read_only=True) as file:
            size, position, end = file.size(), 0, base
            while position + _BATCH_PREFIX.size <= size:
                offset, length, delta = _BATCH_PREFIX.unpack(file.read_at(position, _BATCH_PREFIX.size))
                if length < _LEAST_LENGTH or offset < end or delta < 0:
                    break  # recovery reports the fault
                end = offset + delta + 1
                position += _OVERHEAD + length
        return end

    def is_cleaners_gap(self, end: int, next_base: int, stored: Listing | None) -> bool:
        """Whether a gap between a segment's end and the next one may be a cleaner's, and not that of a crash."""
        if not self.config.allow_gaps or next_base < end:
            return False
        if self.segments and self.segments[-1].base_offset in self.swapped:
            return True
        if stored is None or self.was_clean or end < max(stored.durable_offset, self.recovery_point):
            return True
        # True if another program wrote here since the listing.
        return not all(self.matches(base, entry) for base, entry in stored.segments.items())

    def is_superseded(self, names: list[str], stored: Listing) -> bool:
        """Whether there is no segment, and a snapshot holds all their records, as if they had been cleaned away."""
        if any((match := _SEGMENT_FILE.fullmatch(name)) and match[2] == ".log" for name in names):
            return False
        ends = (int(match[1]) for name in names if (match := _SNAPSHOT_FILE.fullmatch(name)))
        return max(ends, default=-1) >= max(stored.durable_offset, 1)

    def find_segments(self, names: list[str], stored: Listing | None) -> list[int]:
        bases = []
        for name in names:
            match = _SEGMENT_FILE.fullmatch(name)
            if match and match[2] == ".log" and int(match[1]) <= _OFFSET_MAX:
                if stored and int(match[1]) < stored.start_offset:
                    self.actions.append(f"{name}: its deletion was under way and is completed")
                    self.remove(name)
                else:
                    bases.append(int(match[1]))
        if not bases and stored and stored.durable_offset > stored.start_offset:
            self.damage(stored.start_offset, False, stored, self.folder, -1, "all segments are missing")
        return sorted(bases)

    def remove_strays(self, names: list[str]) -> None:
        """Remove indexes without a log, and producer snapshots but those of segments and the newest, as Kafka does."""
        bases = {segment.base_offset for segment in self.segments}
        newest = max(
            (int(match[1]) for name in names if (match := _SEGMENT_FILE.fullmatch(name)) and match[2] == ".snapshot"),
            default=-1,
        )
        for name in names:
            match = _SEGMENT_FILE.fullmatch(name)
            if not match or match[2] == ".log" or int(match[1]) in bases:
                continue
            kept = match[2] == ".snapshot" and int(match[1]) == newest and newest > max(bases, default=-1)
            if kept or not self.files.exists(self.path(name)):
                continue
            if match[2] == ".snapshot":
                self.files.unlink(self.path(name))  # if a power cut brings the file back, the next start removes it
            else:
                self.remove(name)

    def open_segments(self, bases: list[int], stored: Listing | None) -> None:
        # Where names wait, a power cut may have taken the first segments and left later ones.
        expected = stored.start_offset if stored is not None and self.config.names_wait else None
        epoch = -1
        for number, base in enumerate(bases):
            path = self.path(f"{base:020d}.log")
            more = number + 1 < len(bases)
            if expected is not None and base != expected and not self.is_cleaners_gap(expected, base, stored):
                self.damage(min(base, expected), True, stored, path, 0, f"starts at {base}, expected {expected}")
                self.drop(bases[number:])
                return
            segment = Segment(self.files, self.folder, base, self.config, self.now_ms)
            entry = stored.segments.get(base) if stored else None
            if entry is not None and entry.next_offset >= base and self.matches(base, entry):
                segment.restore(entry)
            else:
                size, reason, epochs = segment.recover(epoch, stored.durable_offset if stored else _OFFSET_MAX)
                self.read_again[base] = epochs
                if reason is not None and more and segment.ends_in_zeros():
                    # Written ahead, and not yet cut off for good when the next segment began. That one says whether
                    # batches are missing here.
                    self.actions.append(f"{path}: cut from {size} to {segment.size} bytes: zeros written ahead")
                    segment.cut_damage()
                elif reason is not None:
                    if segment.ends_in_zeros():
                        reason = "zeros written ahead"
                    self.damage(segment.next_offset, more, stored, path, segment.size, reason)
                    self.actions.append(f"{path}: cut from {size} to {segment.size} bytes: {reason}")
                    segment.cut_damage()
                    # Durable before the later segments go: the other way round a second crash could look like a loss.
                    segment.sync_recovered()
                    self.segments.append(segment)
                    self.drop(bases[number + 1 :])
                    return
                segment.sync_recovered()
            self.segments.append(segment)
            epoch = max(epoch, segment.last_epoch)
            expected = segment.next_offset

    def matches(self, base: int, entry: SegmentEntry) -> bool:
        facts = []
        for suffix in (".log", ".index", ".timeindex"):
            try:
                info = self.files.stat(self.path(f"{base:020d}{suffix}"))
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    return False
                raise
            facts += [info.size, info.mtime_ns]
        return facts == [*entry[2:8]]

    def damage(self, offset: int, more: bool, stored: Listing | None, path: str, position: int, reason: str) -> None:
        """Raise `DamagedLogError`, unless the damaged records were never known to be durable, or ``repair`` is set."""
        durable = max(stored.durable_offset if stored else 0, self.recovery_point)
        if offset >= durable and (stored is not None or not more):
            return
        if self.repair:
            self.actions.append(f"{path}: {reason}; the log is cut at offset {offset} on request")
            return
        raise DamagedLogError(
            f"{reason}; records from offset {offset} on had been stored durably and cannot be read: replace this node "
            f"as after a lost disk; if there is no quorum without it, restore a backup, or see what cutting the log "
            f"there would lose: kraftcore storage repair (docs/damage.md)",
            position=position,
            path=path,
            offset=offset,
            durable_offset=durable or None,
        )

    def drop(self, bases: list[int]) -> None:
        """Remove segments behind the end, newest first and one by one: a crash in between leaves no gap."""
        for base in reversed(bases):
            self.actions.append(f"{base:020d}: removed, it lies behind the log's end")
            for suffix in SEGMENT_SUFFIXES:
                if self.files.exists(self.path(f"{base:020d}{suffix}")):
                    self.remove(f"{base:020d}{suffix}")
            self.files.sync_folder(self.folder)

    # ---- leader epochs

    def load_epochs(self) -> LeaderEpochs:
        path = self.path(CHECKPOINT_NAME)
        data = self.read(CHECKPOINT_NAME)
        known = None
        try:
            known = LeaderEpochs.decode(data, path) if data else None
        except CorruptDataError as error:
            self.actions.append(f"{error}: rebuilt from the log")
        if known is not None and not self.agree(known):
            self.actions.append(f"{path}: contradicts the log, rebuilt from it")
            known = None
        if known is not None and self.config.allow_gaps and known.epoch_at(self.segments[-1].next_offset - 1) is None:
            known = None  # the checkpoint starts behind the log that a crash left
        epochs = self.collect(known)
        if known is not None and self.config.allow_gaps and self.agrees_with_batches(known):
            epochs = self.completed(known, epochs)
        epochs.truncate_end(self.segments[-1].next_offset)
        if data == b"" and epochs.latest is not None:  # Kafka makes it empty with the log
            self.actions.append(f"{path}: empty, rebuilt from the log")
        if data != epochs.encode() and not (data is None and epochs.latest is None):
            self.files.replace_file(path, epochs.encode())
        return epochs

    def agree(self, known: LeaderEpochs) -> bool:
        return all(
            self.has_last_epoch(segment, known)
            for segment in self.segments
            if segment.base_offset not in self.read_again and segment.size > 0
        )

    def has_last_epoch(self, segment: Segment, known: LeaderEpochs) -> bool:
        """Whether the checkpoint has the epoch of a segment's last batch at that batch's offset."""
        last = segment.next_offset - 1
        entries = known.entries()
        if self.config.allow_gaps and entries and last < entries[0].start_offset:
            return True  # the log starts in the gap behind this segment, whose epochs are forgotten
        return known.epoch_at(last) == segment.last_epoch

    def completed(self, known: LeaderEpochs, found: LeaderEpochs) -> LeaderEpochs:
        """The checkpoint, which also has the start of epochs whose first batches the cleaner removed.

        If the log begins before the checkpoint does, the batches' epochs are put before it.
        """
        entries = known.entries()
        first = entries[0].start_offset if entries else _OFFSET_MAX
        epochs = LeaderEpochs()
        for epoch, start in [entry for entry in found.entries() if entry.start_offset < first] + entries:
            if epochs.latest is None or epoch > epochs.latest:
                epochs.assign(epoch, start)
        epochs.truncate_start(self.segments[0].base_offset)
        return epochs

    def agrees_with_batches(self, known: LeaderEpochs) -> bool:
        """Whether each batch that was read again has the epoch that the checkpoint has for its offset."""
        for segment in self.segments:
            if segment.base_offset in self.read_again and segment.size:
                found = self.read_again[segment.base_offset]
                if not self.has_last_epoch(segment, known) or any(
                    known.epoch_at(start) not in (epoch, None) for epoch, start in found
                ):
                    return False
        return True

    def collect(self, known: LeaderEpochs | None) -> LeaderEpochs:
        """Gather epochs from the batches of segments that were read again, and for all others from the checkpoint."""
        epochs = LeaderEpochs()
        entries = known.entries() if known else []
        for segment in self.segments:
            base, end = segment.base_offset, segment.next_offset
            if base in self.read_again:
                found = self.read_again[base]
            elif known is None:
                found = segment.find_epochs(-1 if epochs.latest is None else epochs.latest)
                segment.detach()
            else:
                found = [(epoch, start) for epoch, start in entries if base <= start < end]
                before = known.epoch_at(base)
                if before is not None and segment.size:
                    found.insert(0, (before, base))
            for epoch, start in found:
                if epochs.latest is None or epoch > epochs.latest:
                    epochs.assign(epoch, start)
        return epochs


def encode_metadata(topic_id: Uuid) -> bytes:
    """The content of ``partition.metadata``."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def decode_metadata(data: bytes, path: str | None = None) -> Uuid:
    """The topic id in ``partition.metadata``.

    Raises:
        CorruptDataError: not such a file.
    """
    match = re.fullmatch(rb"version:\s+(\d{1,9})\r?\ntopic_id:\s+([A-Za-z0-9_-]{22})\s*", data)
    if match is None:
        raise CorruptDataError(
            "not a partition.metadata file: expected version and topic_id; without it the next start writes it anew",
            path=path,
        )
    return Uuid.from_string(match[2].decode())

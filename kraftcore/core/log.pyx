# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, autotestdict=False
"""The log: an ordered, durable sequence of record batches in a folder that Kafka opens too.

    offsets   log_start_offset          flushed_offset        log_end_offset
                    |  segment | segment | ... | active segment |
                                                  |--- tail ----|      recent batches, also in memory

Appends reach the page cache; ``flush`` makes them durable, and is the only thing that may run in a second thread while this
one goes on appending and reading. Everything that removes or replaces files wants no flush in flight.

After a failed write or sync the log takes no appends: what the page cache still shows may never reach the disk. Close it,
open it again, and what was durable is there. Reads then end where the last successful flush ended.

Differences from Kafka, on purpose: a clean stop is remembered (see ``kraftcore.core.listing``), so a start reads nothing
again; damage in what was durable is an error instead of a silent cut; names are made durable when a segment begins and
before anything that must not outlive them; a truncation is durable when it returns; offsets are contiguous, always.
"""

from bisect import bisect_right

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.files cimport File, Files
from kraftcore.core.batch cimport check_batch, corrupt_batch
from kraftcore.core.header cimport BATCH_OK, BATCH_SHORT, BatchFault, BatchHeader, read_header, stamp_header
from kraftcore.core.record cimport FaultPlace
from kraftcore.core.segment cimport Segment
from kraftcore.core.tail cimport Tail

from typing import NamedTuple

from kraftcore.core.epochs import CHECKPOINT_NAME, OffsetAndEpoch
from kraftcore.core.listing import LISTING_NAME, Listing
from kraftcore.core.log_config import LogConfig
from kraftcore.core.recovery import DELETED_SUFFIX, SEGMENT_SUFFIXES, recover_log
from kraftcore.errors import ClosedError, CorruptBatchError, InvariantError, LocalError, StorageError

cdef enum:
    READERS_MAX = 8              # sealed segments kept open for reading
    TAIL_CHUNK = 16384           # received batches enter the tail in pieces of about this size: short walks

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

# Producer state without producers: version 1, CRC-32C, count 0. Kafka writes one at roll and close.
PRODUCER_SNAPSHOT = bytes.fromhex("0001 48674bc7 00000000")


class AppendInfo(NamedTuple):
    """What an append as follower did.

    Attributes:
        first_offset: of the first batch appended; the log's end when there was none.
        last_offset: of the last record appended; ``first_offset`` - 1 when there was none.
        batches: how many were appended.
        size: their bytes. Less than what was given if that ended in a partial batch or in batches of a later epoch.
    """

    first_offset: int
    last_offset: int
    batches: int
    size: int


@cython.final
cdef class Log:
    """A log in one folder. Made by ``Log.open``.

    Attributes:
        folder: where it is.
        config: its ``LogConfig``.
        recovery_actions: what opening repaired or removed, one sentence each; empty after a clean stop.
        log_start_offset: the first offset that can be read.
        log_end_offset: one past the last record: what comes next.
        flushed_offset: everything below it is durable.
        closed: whether ``close`` was called.
    """

    def __init__(self):
        raise LocalError("open a log with Log.open(files, folder, config, now_ms=...)")

    @staticmethod
    def open(Files files not None, str folder not None, config=None, *, int64_t now_ms, bint repair=False):
        """Open the log in a folder, or make one. The caller holds the lock on the directory.

        After a clean stop nothing but the listing and the checkpoints is read. Otherwise the segments that changed since
        they were listed are verified batch by batch, a torn tail is cut and indexes are rebuilt.

        Args:
            files: ``OsFiles()`` or a ``SimulatedDisk``.
            folder: of the partition, for example ``/var/lib/kraft/__cluster_metadata-0``.
            config: a ``LogConfig``; None for the defaults.
            now_ms: current time.
            repair: cut the log where durable records are damaged, instead of failing.
        Raises:
            CorruptDataError: durable records are damaged, or ``partition.metadata`` is.
            LocalError: the folder belongs to another topic.
            StorageError: the disk failed.
        """
        cdef Log log = Log.__new__(Log)
        config = LogConfig() if config is None else config
        found = recover_log(files, folder, config, now_ms, repair=repair)
        log.files, log.folder, log.config = files, folder, config
        log.segment_bytes, log.segment_ms = config.segment_bytes, config.segment_ms
        log.max_batch_bytes = config.max_batch_bytes
        log.now_ms = now_ms
        log.segments = found.segments
        log.bases = [segment.base_offset for segment in found.segments]
        log.active = found.segments[len(found.segments) - 1]
        log.epochs, log.listing, log.pristine = found.epochs, found.listing, found.pristine
        log.recovery_actions = found.actions
        log.unsynced, log.readers, log.expiring = [], [], []
        log.log_start_offset = log.bases[0]
        log.log_end_offset = log.flushed_offset = log.active.next_offset
        log.listed = len(found.segments) - 1
        log.epoch = -1 if log.epochs.latest is None else log.epochs.latest
        log.tail = Tail(config.tail_bytes, log.log_end_offset)
        return log

    # ---- state checks, out of the hot path

    cdef int ready(self) except -1:
        if self.closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        if self.failure is not None:
            raise ClosedError(f"{self.folder}: the log refuses changes since {self.failure}: close and reopen it") from (
                self.failure
            )
        return 0

    cdef int settled(self) except -1:
        self.ready()
        if self.flushing:
            raise LocalError(f"{self.folder}: a flush is running: wait for it")
        return 0

    cdef int fail(self, error) except -1:
        if self.failure is None:
            self.failure = error
        return 0

    cdef int begin_writing(self) except -1:
        # From here on a crash must be noticed: the listing stops covering the active segment.
        if self.pristine:
            self._write_listing(self.segments[: len(self.segments) - 1])
            self.pristine = False
        return 0

    def _guarded(self, action, *arguments):
        # For rare changes of several steps: half done is not to be built upon.
        try:
            return action(*arguments)
        except BaseException as error:
            self.fail(error)
            raise

    # ---- append

    def append_as_leader(self, bytearray batch not None, int32_t leader_epoch, int64_t now_ms):
        """Append one batch of our own; its offsets and epoch are stamped in place.

        Args:
            batch: exactly one batch, as ``kraftcore.core.batch`` builds it. The log keeps it: never change it again. Its
                checksum is not verified (it does not cover what is stamped).
            leader_epoch: ours; not below the log's newest epoch.
            now_ms: current time.
        Returns:
            The offset of its first record.
        Raises:
            LocalError: not exactly one batch, too large, or a past epoch; ClosedError when the log refuses changes.
            StorageError: the write failed; nothing was appended, and nothing can be until the log is opened again.
        """
        cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(batch)
        cdef int64_t size = PyByteArray_GET_SIZE(batch), base = self.log_end_offset
        cdef BatchHeader header
        cdef BatchFault fault = read_header(p, size, &header)
        if (
            self.closed or self.failure is not None or fault != BATCH_OK or header.size != size or header.count < 1
            or header.count - 1 != header.last_offset_delta or leader_epoch < self.epoch or leader_epoch < 0
            or size > self.max_batch_bytes or size > self.segment_bytes or base > OFFSET_MAX - header.count
        ):
            self.ready()
            self._refuse_batch(fault, size, leader_epoch)
        self.now_ms = now_ms
        header.base_offset, header.last_offset = base, base + header.last_offset_delta
        header.leader_epoch = leader_epoch
        if self.pristine:
            self.begin_writing()
        if leader_epoch != self.epoch:
            self.start_epoch(leader_epoch, base)
        if not self.active.has_room(
            size, header.last_offset, header.max_timestamp, now_ms, self.segment_bytes, self.segment_ms
        ):
            self.roll_active()
        stamp_header(p, base, leader_epoch)
        try:
            self.active.write(p, size)
            self.active.note(&header)
        except BaseException as error:
            self._undo_write(error)
            raise
        self.log_end_offset = header.last_offset + 1
        self.tail.push(batch, 0, size, base, header.last_offset + 1, True)
        return base

    def _refuse_batch(self, int fault, int64_t size, leader_epoch):
        if 0 <= leader_epoch < self.epoch:
            raise LocalError(f"{self.folder}: leader epoch {leader_epoch} is over, the log is at {self.epoch}")
        if leader_epoch < 0:
            raise LocalError(f"{self.folder}: leader epoch {leader_epoch}: it must be at least 0")
        if fault == BATCH_OK and size > min(self.max_batch_bytes, self.segment_bytes):
            raise LocalError(
                f"{self.folder}: the batch has {size} bytes, more than max_batch_bytes {self.max_batch_bytes} or "
                f"segment_bytes {self.segment_bytes} allow"
            )
        raise LocalError(f"{self.folder}: {size} bytes that are not exactly one batch of one or more records")

    def _undo_write(self, error):
        # The batch may be there in part; the next start would cut it. Without it the folder is in order at once.
        self.fail(error)
        try:
            self.active.log.resize(self.active.size)
        except Exception:
            return  # the first error is the one to tell

    def append_as_follower(self, data not None, int64_t now_ms, *, max_epoch=None):
        """Append batches exactly as a leader sent them. All of them are verified before the first is taken over.

        Args:
            data: bytes-like: whole batches. A partial one at the end is ignored, as a Fetch response may end in one.
            now_ms: current time.
            max_epoch: batches of a later leader epoch, and all after them, are left out (KAFKA-18723); None: no limit.
        Returns:
            An ``AppendInfo``.
        Raises:
            CorruptBatchError: not a whole batch at the start, or damaged, not continuing the log, epochs that fall, larger
                than a segment. Nothing was appended.
            ClosedError: the log refuses changes.
            StorageError: a write failed; whole batches before it may have been appended. Nothing more can be until the
                log is opened again.
        """
        cdef bytes owner = data if PyBytes_CheckExact(data) else bytes(data)
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(owner)
        cdef int64_t available = PyBytes_GET_SIZE(owner), size = 0, batches = 0, base = self.log_end_offset
        cdef int64_t next_offset = base
        cdef int32_t epoch = self.epoch
        cdef int64_t epoch_limit = 0x7FFFFFFF if max_epoch is None else max_epoch
        cdef BatchHeader header
        cdef BatchFault fault = BATCH_OK
        cdef FaultPlace place
        self.ready()
        while size < available:
            fault = read_header(p + size, available - size, &header)
            if fault == BATCH_SHORT or (fault == BATCH_OK and header.leader_epoch > epoch_limit):
                break
            fault = check_batch(p + size, available - size, True, &header, &place)
            if fault != BATCH_OK:
                raise corrupt_batch(fault, p + size, available - size, size, &place)
            if (
                header.base_offset != next_offset or header.last_offset == OFFSET_MAX
                or header.leader_epoch < epoch or header.leader_epoch < 0 or header.count < 1
                or header.count - 1 != header.last_offset_delta or header.size > self.segment_bytes
            ):
                self.refuse_received(size, &header, next_offset, epoch)
            next_offset = header.last_offset + 1
            epoch = header.leader_epoch
            size += header.size
            batches += 1
        if batches == 0:
            if available and fault != BATCH_SHORT:
                return AppendInfo(base, base - 1, 0, 0)
            raise CorruptBatchError(f"{self.folder}: {available} bytes that do not hold one whole batch", position=0)
        self.now_ms = now_ms
        if self.pristine:
            self.begin_writing()
        self._append_verified(owner, size)
        return AppendInfo(base, next_offset - 1, batches, size)

    cdef int refuse_received(self, int64_t position, const BatchHeader *header, int64_t expected,
                             int32_t epoch) except -1:
        if header.base_offset != expected or header.last_offset == OFFSET_MAX:
            reason = f"the batch starts at offset {header.base_offset}, the log continues at {expected}"
        elif header.leader_epoch < epoch or header.leader_epoch < 0:
            reason = f"leader epoch {header.leader_epoch} after epoch {epoch}"
        elif header.size > self.segment_bytes:
            reason = f"{header.size} bytes are more than segment_bytes {self.segment_bytes} allow: raise it"
        else:
            reason = f"{header.count} records, but last offset delta {header.last_offset_delta}"
        raise CorruptBatchError(f"{self.folder}: received batch refused: {reason}", position=position)

    def _append_verified(self, bytes owner, int64_t size):
        # Runs of batches that share a segment, an epoch and a piece of the tail; one write each.
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(owner)
        cdef BatchHeader header
        cdef int64_t start = 0, end = 0, batches = 0, in_run = 0
        while end < size:
            read_header(p + end, size - end, &header)
            if header.leader_epoch != self.epoch:
                self.append_run(owner, p, start, end - start, batches)
                start, batches = end, 0
                self.start_epoch(header.leader_epoch, header.base_offset)
            if end - start >= TAIL_CHUNK or not self.active.has_room(
                end - start + header.size, header.last_offset, header.max_timestamp, self.now_ms, self.segment_bytes,
                self.segment_ms,
            ):
                self.append_run(owner, p, start, end - start, batches)
                start, batches = end, 0
                if not self.active.has_room(
                    header.size, header.last_offset, header.max_timestamp, self.now_ms, self.segment_bytes,
                    self.segment_ms,
                ):
                    self.roll_active()
            end += header.size
            batches += 1
        self.append_run(owner, p, start, end - start, batches)

    cdef int append_run(self, object owner, const uint8_t *p, int64_t start, int64_t size, int64_t batches) except -1:
        cdef BatchHeader header
        cdef int64_t at = start, base = self.log_end_offset
        if size == 0:
            return 0
        try:
            self.active.write(p + start, size)
            while at < start + size:
                read_header(p + at, start + size - at, &header)
                self.active.note(&header)
                at += header.size
                self.log_end_offset = header.last_offset + 1
        except BaseException as error:
            self._undo_write(error)
            raise
        self.tail.push(owner, start, size, base, self.log_end_offset, batches == 1)
        return 0

    cdef int start_epoch(self, int32_t epoch, int64_t offset) except -1:
        if self.epochs.assign(epoch, offset):
            self._write_epochs()
            self.epoch = epoch
        return 0

    def assign_epoch_start_offset(self, int32_t epoch, int64_t offset):
        """Note that ``epoch`` begins at ``offset``, before its first batch: what a new leader does at its log's end.

        Raises:
            LocalError: negative, below the newest epoch, or not at the log's end; ClosedError when the log refuses changes.
            StorageError: the checkpoint could not be written.
        """
        self.ready()
        if epoch < self.epoch or epoch < 0 or offset != self.log_end_offset:
            raise LocalError(
                f"{self.folder}: epoch {epoch} cannot start at {offset}: the log is at epoch {self.epoch} and ends at "
                f"{self.log_end_offset}"
            )
        if epoch != self.epoch:
            self.start_epoch(epoch, offset)

    def _write_epochs(self):
        self._guarded(self.files.replace_file, f"{self.folder}/{CHECKPOINT_NAME}", self.epochs.encode())

    # ---- segments

    cdef int roll_active(self) except -1:
        if self.active.size:
            self._guarded(self._roll)
        return 0

    def _roll(self):
        cdef Segment old = self.active, new = Segment(
            self.files, self.folder, self.log_end_offset, self.config, self.now_ms
        )
        old.seal()
        self._write_producer_snapshot(False)
        new.create()
        # A segment's name must never outlive that of the one before it, so names become durable one by one.
        self.files.sync_folder(self.folder)
        new.attach()
        self.unsynced.append(old)
        self.keep_reader(old)
        self.segments.append(new)
        self.bases.append(new.base_offset)
        self.active = new

    def roll(self, int64_t now_ms):
        """Begin a new segment; nothing happens while the active one is empty.

        Raises:
            ClosedError: the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.ready()
        self.now_ms = now_ms
        self.begin_writing()
        self.roll_active()

    def _write_producer_snapshot(self, bint durable):
        with self.files.open(f"{self.folder}/{self.log_end_offset:020d}.snapshot", create=True, truncate=True) as file:
            file.write_at(0, PRODUCER_SNAPSHOT)
            if durable:
                file.sync()

    cdef int keep_reader(self, Segment segment) except -1:
        # Bounds the open files; the active segment is not counted.
        cdef Segment oldest
        if segment in self.readers:
            self.readers.remove(segment)
        self.readers.append(segment)
        if len(self.readers) > READERS_MAX:
            oldest = self.readers.pop(0)
            if oldest.sealed and (oldest.synced or not self.flushing):
                oldest.detach()
        return 0

    cdef Segment segment_at(self, int64_t offset):
        cdef Segment segment
        if offset >= self.active.base_offset:
            return self.active
        segment = self.segments[bisect_right(self.bases, offset) - 1]
        if segment.log is None:
            self.keep_reader(segment)
        return segment

    def _write_listing(self, segments, start_offset=None, durable_offset=None):
        listing = Listing(
            self.bases[0] if start_offset is None else start_offset,
            self.flushed_offset if durable_offset is None else durable_offset,
        )
        known = self.listing.segments
        for segment in segments:
            if segment.synced:
                base = segment.base_offset
                listing.segments[base] = known[base] if base in known else segment.entry()
        self.files.replace_file(f"{self.folder}/{LISTING_NAME}", listing.encode())
        self.listing = listing

    # ---- read

    def read(self, int64_t offset, int64_t max_bytes, *, up_to=None, bint at_least_one=True):
        """Read whole batches, from memory where possible.

        One call does not go past the end of a segment on disk, so less than asked is no sign of the log's end.

        Args:
            offset: of the first record wanted; the first batch returned holds it.
            max_bytes: how much to return at most.
            up_to: only batches that lie wholly below this offset, for example the high watermark; None: all.
            at_least_one: the first batch even if it alone is larger than ``max_bytes``.
        Returns:
            Whole batches; ``b""`` at the end, at ``up_to``, or when none fits.
        Raises:
            LocalError: ``offset`` is below the log's start or above its end, or ``max_bytes`` negative.
            CorruptDataError: the stored batch is damaged.
            StorageError: the disk failed.
        """
        cdef int64_t bound = self.log_end_offset, limit
        cdef bytes data
        if self.closed or offset < self.log_start_offset or offset > bound or max_bytes < 0:
            self._refuse_read(offset, max_bytes)
        if self.sync_failed:
            bound = self.flushed_offset
        if up_to is not None:
            limit = up_to
            bound = min(bound, limit)
        if offset >= bound:
            return b""
        if offset >= self.tail.base_offset:
            data = self.tail.read(offset, max_bytes, bound, at_least_one)
            if data is not None:
                return data
        return self.segment_at(offset).read(offset, max_bytes, bound, at_least_one)

    def _refuse_read(self, offset, max_bytes):
        if self.closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        if max_bytes < 0:
            raise LocalError(f"{self.folder}: max_bytes is {max_bytes}: it must be at least 0")
        raise LocalError(
            f"{self.folder}: offset {offset} is out of range, the log holds {self.log_start_offset} to "
            f"{self.log_end_offset - 1}"
        )

    def offset_for_timestamp(self, int64_t timestamp):
        """Base offset of the first batch whose largest timestamp (ms) is at or above ``timestamp``; None: there is none."""
        cdef Segment segment
        if self.closed:
            self._refuse_read(0, 0)
        for segment in self.segments:
            if segment.max_timestamp >= timestamp and segment.next_offset > self.log_start_offset:
                if segment is not self.active and segment.log is None:
                    self.keep_reader(segment)
                found = segment.find_timestamp(timestamp)
                if found is not None:
                    return max(found, self.log_start_offset)
        return None

    # ---- epochs

    @property
    def last_epoch(self):
        """The newest leader epoch, or None while the log knows none (then the latest snapshot tells, or 0)."""
        return None if self.epoch < 0 else self.epoch

    def epoch_entries(self):
        """Where each leader epoch begins: ``EpochEntry``, oldest first."""
        return self.epochs.entries()

    def epoch_at(self, int64_t offset):
        """The leader epoch of the record at ``offset``; None when that is below the oldest epoch known."""
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, int32_t epoch):
        """Where the largest epoch at or below ``epoch`` ends: the question of KIP-595's log divergence.

        Returns:
            ``OffsetAndEpoch``: its exclusive end, and the epoch. Below the oldest epoch known: where that one starts, and
            ``epoch`` itself (the caller compares with its oldest snapshot). Above the newest: the log's end and the
            newest epoch, 0 when there is none.
        Raises:
            LocalError: a negative epoch.
        """
        if epoch < 0:
            raise LocalError(f"epoch {epoch}: it must be at least 0")
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return OffsetAndEpoch(self.log_end_offset, max(self.epoch, 0)) if found is None else found

    # ---- durability

    def flush(self):
        """Make everything appended so far durable. May run in another thread; one flush at a time.

        Returns:
            ``flushed_offset``.
        Raises:
            LocalError: a flush is running; ClosedError when the log refuses changes.
            StorageError: a sync failed: what was not durable before may be lost, and the log refuses changes from now on.
        """
        cdef int64_t target = self.log_end_offset
        cdef Segment active = self.active, segment
        self.settled()
        if target == self.flushed_offset and not self.unsynced:
            return self.flushed_offset
        self.flushing = True
        try:
            while self.unsynced:
                segment = self.unsynced[0]
                segment.sync()
                self.unsynced.remove(segment)
            if not active.sealed:
                active.flush()
            self.flushed_offset = target
            sealed = [segment for segment in self.segments if segment.synced]
            if len(sealed) != self.listed:
                self.listed = len(sealed)
                self._write_listing(sealed)
        except BaseException as error:
            self.sync_failed = True
            self.fail(error)
            raise
        finally:
            self.flushing = False
        return self.flushed_offset

    # ---- truncate and delete

    def truncate_to(self, int64_t offset):
        """Remove everything at and above ``offset``; durable when it returns. The caller keeps it above the high watermark.

        A batch that holds ``offset`` goes as a whole: the log then ends where it began.

        Returns:
            The log's new end. Unchanged when ``offset`` is at or above it, except that epochs without records are dropped.
        Raises:
            LocalError: below the log's start, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        if offset < self.log_start_offset:
            raise LocalError(f"{self.folder}: cannot truncate to {offset}, below the log's start {self.log_start_offset}")
        if offset < self.log_end_offset:
            self._guarded(self._truncate, offset)
        if self.epochs.truncate_end(self.log_end_offset):
            self._write_epochs()
            self.epoch = -1 if self.epochs.latest is None else self.epochs.latest
        return self.log_end_offset

    def _truncate(self, int64_t offset):
        cdef int64_t kept = bisect_right(self.bases, offset) - 1
        cdef Segment segment = self.segments[kept]
        self.pristine = False
        # First of all the listing forgets what is about to change: contents of the same size must not pass for the old.
        self._write_listing(self.segments[:kept], None, min(offset, self.listing.durable_offset))
        self.listed = len(self.listing.segments)
        self._drop_newest(kept + 1)
        if segment in self.readers:
            self.readers.remove(segment)
        if segment in self.unsynced:
            self.unsynced.remove(segment)
        self.active = segment
        self.log_end_offset = segment.truncate(offset)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.tail.cut(self.log_end_offset)

    def _drop_newest(self, int64_t kept):
        # One by one, newest first, each durable: whatever a crash leaves has no gap.
        while len(self.segments) > kept:
            self._retire(self.segments.pop())
            self.bases.pop()
            self.files.sync_folder(self.folder)

    def _retire(self, Segment segment):
        for group in (self.readers, self.unsynced):
            if segment in group:
                group.remove(segment)
        segment.drop()
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path + suffix
            if self.files.exists(path):
                self.files.rename(path, path + DELETED_SUFFIX)
                self.expiring.append((self.now_ms + self.config.file_delete_delay_ms, path + DELETED_SUFFIX))

    def truncate_fully_to(self, int64_t offset):
        """Remove everything and start anew at ``offset``: after a snapshot up to there was installed. Durable when it returns.

        Raises:
            LocalError: below the log's start, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        if offset < self.log_start_offset:
            raise LocalError(f"{self.folder}: cannot start at {offset}, below the log's start {self.log_start_offset}")
        self._guarded(self._truncate_fully, offset)
        self.epochs.clear()
        self._write_epochs()
        self.epoch = -1

    def _truncate_fully(self, int64_t offset):
        cdef Segment new
        self.pristine = False
        first = self.segments[0].base_offset
        self._write_listing([], None, min(first, self.listing.durable_offset))
        # A prefix of the old log at any time, until the listing makes the new start the rule.
        self._drop_newest(max(bisect_right(self.bases, offset - 1), 1))
        if first == offset:
            new = self.segments[0]
            for group in (self.readers, self.unsynced):
                if new in group:
                    group.remove(new)
            new.truncate(offset)
        else:
            self._write_listing([], offset, offset)
            for segment in self.segments:
                self._retire(segment)
            new = Segment(self.files, self.folder, offset, self.config, self.now_ms)
            new.create()
            self.files.sync_folder(self.folder)
            new.attach()
        self.segments, self.bases, self.active = [new], [offset], new
        self.listed = 0
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.tail.reset(offset)

    def delete_below(self, int64_t offset, int64_t now_ms):
        """Raise the log's start, and remove the segments that lie wholly below it: after a snapshot up to there exists.

        Files are renamed to ``.deleted`` now and unlinked by ``delete_expired`` later. After a restart the log starts at its
        first segment again, as in Kafka.

        Returns:
            How many segments went.
        Raises:
            LocalError: above what is flushed, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        self.now_ms = now_ms
        if offset > self.flushed_offset:
            raise LocalError(f"{self.folder}: cannot delete below {offset}: only {self.flushed_offset} is flushed")
        if offset <= self.log_start_offset:
            return 0
        before = len(self.segments)
        self._guarded(self._delete_below, offset)
        if self.epochs.truncate_start(offset):
            self._write_epochs()
        return before - len(self.segments)

    def _delete_below(self, int64_t offset):
        self.begin_writing()
        if offset == self.log_end_offset:
            if self.active.size:
                self._roll()
                self._sync_sealed()
        kept = bisect_right(self.bases, offset) - 1
        self.log_start_offset = offset
        if kept:
            # The listing goes first: whichever of the renames survive a crash, the next start completes them.
            self._write_listing(self.segments[kept : len(self.segments) - 1], self.bases[kept])
            for segment in self.segments[:kept]:
                self._retire(segment)
            del self.segments[:kept], self.bases[:kept]
            self.files.sync_folder(self.folder)
            self.listed = len(self.listing.segments)

    def _sync_sealed(self):
        cdef Segment segment
        for segment in self.unsynced:
            segment.sync()
        self.unsynced.clear()

    def delete_expired(self, int64_t now_ms):
        """Unlink the ``.deleted`` files whose delay is over.

        Returns:
            How many files went.
        Raises:
            StorageError: the disk failed; the file is tried again next time.
        """
        cdef int64_t count = 0
        if self.closed:
            self.ready()
        while self.expiring and self.expiring[0][0] <= now_ms:
            path = self.expiring[0][1]
            if self.files.exists(path):
                self.files.unlink(path)
            self.expiring.pop(0)
            count += 1
        return count

    # ---- end

    def close(self):
        """Flush, trim the indexes, remember that the stop was clean, release the files. Idempotent.

        After a failure it only releases the files; the next start recovers.

        Raises:
            LocalError: a flush is running.
            StorageError: the disk failed; the files are released all the same.
        """
        if self.closed:
            return
        if self.failure is None:
            self.settled()
        try:
            if self.failure is None and not self.pristine:
                self._guarded(self._close)
        finally:
            self.closed = True
            self.tail.reset(self.log_end_offset)
            for segment in self.segments:
                segment.detach()

    def _close(self):
        self.flush()
        self.active.seal()
        self.active.sync()
        self._write_producer_snapshot(True)
        self.files.sync_folder(self.folder)
        self._write_listing(self.segments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- look inside

    @property
    def size_in_bytes(self):
        """Bytes of all batches."""
        return sum([segment.size for segment in self.segments])

    @property
    def tail_base_offset(self):
        """The first offset that is served from memory."""
        return self.tail.base_offset

    def segment_list(self):
        """The ``Segment`` objects, oldest first, for a look inside; they belong to the log."""
        return list(self.segments)

    def check_invariants(self):
        """Verify what must always hold, reading every file. For tests.

        Raises:
            InvariantError: something does not hold.
        """
        cdef Segment segment
        cdef BatchHeader header
        problems = []
        expected = self.bases[0]
        for segment in self.segments:
            if segment.base_offset != expected:
                problems.append(f"segment {segment.base_offset} should start at {expected}")
            expected = segment.next_offset
            if segment.gone or segment.sealed != (segment is not self.active):
                problems.append(f"segment {segment.base_offset}: gone {segment.gone}, sealed {segment.sealed}")
            if self.files.stat(segment.path + ".log").size != segment.size and self.failure is None:
                problems.append(f"segment {segment.base_offset}: size differs from the file's")
            last = -1
            for offset, position in segment.index_entries():
                if offset <= last or segment.find(offset, &header) != position or header.last_offset != offset:
                    problems.append(f"segment {segment.base_offset}: index entry {offset} -> {position}")
                last = offset
            last_time = (-1, -1)
            for entry in segment.time_index_entries():
                if entry[0] <= last_time[0] or entry[1] <= last_time[1] or segment.find(entry[1], &header) < 0 or (
                    header.max_timestamp != entry[0]
                ):
                    problems.append(f"segment {segment.base_offset}: time index entry {entry}")
                last_time = entry
            if segment is not self.active:
                self.keep_reader(segment)
        if expected != self.log_end_offset:
            problems.append(f"the segments end at {expected}, the log at {self.log_end_offset}")
        if not self.bases[0] <= self.log_start_offset <= self.log_end_offset:
            problems.append(f"log start {self.log_start_offset}")
        if not self.flushed_offset <= self.log_end_offset:
            problems.append(f"flushed up to {self.flushed_offset}, beyond the end")
        if self.tail.next_offset != self.log_end_offset or self.tail.used_bytes > max(self.tail.bytes_max, 0):
            problems.append(f"the tail ends at {self.tail.next_offset} with {self.tail.used_bytes} bytes")
        if self.epoch != (-1 if self.epochs.latest is None else self.epochs.latest):
            problems.append(f"epoch {self.epoch}, checkpoint {self.epochs.latest}")
        if problems:
            raise InvariantError(f"{self.folder}: " + "; ".join(problems))

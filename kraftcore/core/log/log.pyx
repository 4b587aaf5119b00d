"""The log: an ordered, durable sequence of record batches in a folder that Kafka opens too.

    offsets   log_start_offset          flushed_offset        log_end_offset
                    |  segment | segment | ... | active segment |
                                                  |--- tail ----|      recent batches, also in memory

Appends reach the page cache; ``flush`` makes them durable, and is the only thing that may run in a second thread
while this one goes on appending and reading. Methods that remove or replace files must not run during a flush.

After a failed write or sync the log takes no appends: the content of the page cache may never reach the disk. Reads
then end where the last successful flush ended. Once closed and opened again, the log has what was durable.

Differences from Kafka, on purpose: a clean stop is remembered (see ``kraftcore.core.log.listing``), so a start reads
nothing again; damage in durable records is an error instead of a silent cut; names are made durable when a segment
begins and before anything that must not outlive them; a truncation is durable when it returns; offsets are
contiguous, unless ``LogConfig.allow_gaps`` says that a cleaner may have been at work.
"""

from functools import partial

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.disk.files cimport GIL_BYTES, Files
from kraftcore.core.batch.header cimport BATCH_OK, BatchFault, BatchHeader, read_header, stamp_header
from kraftcore.core.log.received cimport LogEnd, Received, unchanging, verify_received
from kraftcore.core.log.segment cimport Segment
from kraftcore.core.log.segments cimport Segments
from kraftcore.core.log.tail cimport Tail

from kraftcore.core.log.append_info import AppendInfo
from kraftcore.core.log.epochs import CHECKPOINT_NAME, OffsetAndEpoch, show_epochs
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.recovery import recover_log
from kraftcore.core.log.invariants import check_log
from kraftcore.core.log.refusals import refuse_batch, refuse_read
from kraftcore.errors import ClosedError, LocalError, StorageError
from kraftcore.ownership import close_in_children, forked_from, left_behind

cdef enum:
    TAIL_CHUNK = 16384           # received batches enter the tail in pieces of about this size: short walks
    RUN_BYTES = 131072           # without a tail they are written in such pieces; a segment's limits hold between two

__all__ = ["Log"]

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


@cython.final
cdef class Log:
    """A log in one folder. Made by ``Log.open``.

    Attributes:
        folder: path of its folder.
        config: its ``LogConfig``.
        recovery_actions: repairs and removals at opening, one sentence each; empty after a clean stop.
        log_start_offset: the first offset that can be read.
        log_end_offset: the offset of the next record.
        flushed_offset: everything below it is durable.
        closed: whether ``close`` was called.
    """

    def __cinit__(self):
        self.closed = True  # until an open succeeds

    def __init__(self):
        raise LocalError("open a log with Log.open(files, folder, config, now_ms=...)")

    @staticmethod
    def open(
        Files files not None, str folder not None, config=None, *, int64_t now_ms, bint repair=False,
        bint was_clean=False, int64_t recovery_point=0, bint is_fresh=False, bint is_ours=False,
    ):
        """Open the log in a folder, or make one. The caller holds the lock on the directory.

        After a clean stop nothing but the listing and the checkpoints is read. Otherwise the segments that changed
        since they were listed are verified batch by batch, a torn tail is cut and indexes are rebuilt.

        Args:
            files: ``OsFiles()`` or a ``SimulatedDisk``.
            folder: of the partition, for example ``/var/lib/kraft/__cluster_metadata-0``.
            config: a ``LogConfig``; None for the defaults.
            now_ms: current time.
            repair: cut the log where durable records are damaged, instead of failing.
            was_clean: the last program to use the folder, perhaps Kafka, stopped in order: everything in the folder is
                durable, gaps included (``LogConfig.allow_gaps``).
            recovery_point: an offset: the last program to use the folder stored that everything below was durable,
                gaps included.
            is_fresh: only ``partition.metadata`` is in the folder: if names wait for a flush, nothing is read.
            is_ours: if there is no listing, only kraftcore wrote here, and nothing is known to be durable.
        Raises:
            DamagedLogError: durable records are gone or damaged.
            CorruptDataError: ``partition.metadata`` is damaged.
            LocalError: the folder belongs to another topic.
            StorageError: the disk failed.
        """
        cdef Log log = Log.__new__(Log)
        config = LogConfig() if config is None else config
        found = recover_log(
            files, folder, config, now_ms, repair=repair, was_clean=was_clean, recovery_point=recovery_point,
            is_fresh=is_fresh, is_ours=is_ours,
        )
        log.files, log.folder, log.config = files, folder, config
        log.segments = Segments(files, folder, config, found)
        log.allow_gaps, log.names_wait = config.allow_gaps, config.names_wait
        log.configure(config)
        log.now_ms = now_ms
        log.epochs = found.epochs
        log.recovery_actions = found.actions
        log.log_start_offset = log.segments.bases[0]
        log.log_end_offset = log.flushed_offset = log.segments.active.next_offset
        log.epoch = -1 if log.epochs.latest is None else log.epochs.latest
        log.tail = Tail(config.tail_bytes, log.log_end_offset)
        log.closed = False
        close_in_children(log, Log._leave)
        return log

    def configure(self, config not None):
        """Change settings from now on (``LogConfig.altered``); settings of indexes from the next segment on."""
        if config is not self.config:
            self.config = self.config.altered(config)
        self.segments.config = self.config
        self.segment_bytes, self.segment_ms = config.segment_bytes, config.segment_ms
        self.max_batch_bytes = config.max_batch_bytes

    # ---- state

    def _leave(self):
        # In a forked child: operations on names, not on open files, would change the parent's files.
        self.closed, self.owner = True, forked_from()

    cdef int ready(self) except -1:
        if self.owner:
            raise left_behind(self.folder, self.owner)
        if self.closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        if self.failure is not None:
            text = f"{self.folder}: the log refuses changes since {self.failure}: close and reopen it"
            raise ClosedError(text) from self.failure
        return 0

    cdef int settled(self) except -1:
        self.ready()
        if self.segments.flushing:
            raise LocalError(f"{self.folder}: a flush is running, or a removal: wait for it")
        return 0

    cdef int fail(self, error) except -1:
        if self.failure is None:
            self.failure = error
        self.segments.freeze()
        return 0

    def _guarded(self, action, *arguments):
        # For rare changes of several steps: after a failure halfway the log takes no more changes.
        try:
            return action(*arguments)
        except BaseException as error:
            self.fail(error)
            raise

    def _removing(self, action, *arguments):
        self.segments.flushing = True  # a flush that began now would count the old end as flushed
        try:
            return self._guarded(action, *arguments)
        finally:
            self.segments.flushing = False

    cdef int begin_writing(self) except -1:
        self._guarded(self.segments.begin_writing, self.flushed_offset)
        return 0

    cdef int start_epoch(self, int32_t epoch, int64_t offset) except -1:
        if self.epochs.assign(epoch, offset):
            self.epochs_pending = self.epochs_unseen = self.names_wait
            if not self.names_wait:
                self._guarded(self._replace_epochs)
            self.epoch = epoch
        return 0

    cdef int show_new_epoch(self) except -1:
        # Before the first batch of an epoch: until then a start would drop it.
        self.epochs_unseen = False
        self._guarded(show_epochs, self.files, self.folder, self.epochs)
        return 0

    def _replace_epochs(self):
        self.epochs_pending = self.epochs_unseen = False  # an append may begin another epoch meanwhile
        self.files.replace_file(f"{self.folder}/{CHECKPOINT_NAME}", self.epochs.encode())

    cdef bint must_roll(self, int64_t size, const BatchHeader *header) except -1:
        # Whether so many bytes, of which this is the last batch, belong into a new segment.
        return self.segments.active.must_roll(size, header.last_offset, header.max_timestamp, self.now_ms,
                                              self.segment_bytes, self.segment_ms)

    cdef int roll_active(self, int64_t base_offset, int64_t last_offset) except -1:
        # A gap at the end is put into the next segment, if it is not too wide: else it would look like a lost tail.
        cdef int64_t start = self.segments.active.next_offset
        if last_offset - start > 0x7FFFFFFF:
            start = base_offset
        if start > self.segments.active.base_offset:
            self._guarded(self.segments.roll, start, self.now_ms)
        return 0

    # ---- append

    def append_as_leader(self, bytearray batch not None, int32_t leader_epoch, int64_t now_ms):
        """Append one batch of our own; its offsets and epoch are stamped in place.

        Args:
            batch: exactly one batch, as ``build_batch`` makes it. The log keeps it: never change it again.
                Its checksum is not verified (it does not cover the stamped fields).
            leader_epoch: this leader's epoch, not below the log's newest epoch.
            now_ms: current time.
        Returns: The offset of its first record. Raises:
            LocalError: not exactly one batch, too large, or a past epoch; ClosedError when the log refuses changes.
            StorageError: the write failed; nothing was appended, and no append works until the log is opened again.
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
            limits = (self.max_batch_bytes, self.segment_bytes) if fault == BATCH_OK else None
            refuse_batch(self.folder, size, leader_epoch, self.epoch, limits)
        self.now_ms = now_ms
        header.base_offset, header.last_offset = base, base + header.last_offset_delta
        header.leader_epoch = leader_epoch
        if self.segments.pristine:
            self.begin_writing()
        if leader_epoch != self.epoch:
            self.start_epoch(leader_epoch, base)
        if self.epochs_unseen:
            self.show_new_epoch()
        if self.must_roll(size, &header):
            self.roll_active(base, header.last_offset)
        # Other threads ran while files were changed, and run during a long write: the buffer must be what it was.
        p = <uint8_t *>PyByteArray_AS_STRING(batch)
        if PyByteArray_GET_SIZE(batch) != size:
            raise LocalError(f"{self.folder}: the batch was resized by another thread while it was appended")
        held = PyMemoryView_FromObject(batch) if size >= GIL_BYTES else None
        stamp_header(p, base, leader_epoch)
        try:
            self.segments.active.write(p, size)
            self.segments.active.note(&header)
        except BaseException as error:
            self._undo_write(error)
            raise
        del held
        self.log_end_offset = header.last_offset + 1
        self.tail.push(batch, 0, size, base, header.last_offset + 1, True)
        return base

    def _undo_write(self, error):
        # Part of the batch may be in the file; the next start would cut it. Cut now, the folder is in order at once.
        try:
            if self.segments.active.attached:
                self.segments.active.log.resize(self.segments.active.size)
        except StorageError:
            pass  # the first error is raised
        finally:
            self.fail(error)
            # Batches of the run that were appended are on disk, but not in the tail.
            if self.tail.next_offset != self.log_end_offset:
                self.tail.reset(self.log_end_offset)

    def append_as_follower(self, data not None, int64_t now_ms, *, max_epoch=None):
        """Append batches exactly as a leader sent them. All of them are verified before the first is appended.

        Args:
            data: bytes-like: whole batches. A partial batch at the end is ignored: a Fetch response may end in one.
            now_ms: current time.
            max_epoch: batches of a later leader epoch, and all after them, are left out (KAFKA-18723); None: no limit.
        Returns: An ``AppendInfo``. Raises:
            CorruptBatchError: not a whole batch at the start, or damaged, not continuing the log (beginning below its
                end, where gaps are allowed), epochs that fall, larger than a segment. Nothing was appended.
            ClosedError: the log refuses changes.
            StorageError: a write failed; whole batches before it may have been appended. No append works until the log
                is opened again.
        """
        cdef const uint8_t *p
        cdef int64_t available
        cdef object owner = unchanging(data, &p, &available)
        cdef LogEnd end
        cdef Received found
        self.ready()
        end.next_offset, end.epoch, end.segment_bytes = self.log_end_offset, self.epoch, self.segment_bytes
        end.epoch_limit, end.allow_gaps = 0x7FFFFFFF if max_epoch is None else max_epoch, self.allow_gaps
        verify_received(self.folder, p, available, &end, &found)
        if found.batches:
            self.now_ms = now_ms
            if self.segments.pristine:
                self.begin_writing()
            self.append_verified(owner, p, found.size)
        return AppendInfo(found.first_offset, found.next_offset - 1, found.batches, found.size)

    cdef int append_verified(self, object owner, const uint8_t *p, int64_t size) except -1:
        # Runs of batches that share a segment, an epoch and a piece of the tail; one write each. `p` is in `owner`.
        cdef BatchHeader header
        cdef int64_t start = 0, end = 0, batches = 0, chunk = TAIL_CHUNK if self.tail.bytes_max else RUN_BYTES
        while end < size:
            read_header(p + end, size - end, &header)
            if header.leader_epoch != self.epoch:
                self.append_run(owner, p, start, end - start, batches)
                start, batches = end, 0
                self.start_epoch(header.leader_epoch, header.base_offset)
            if end - start >= chunk or self.must_roll(end - start + header.size, &header):
                self.append_run(owner, p, start, end - start, batches)
                start, batches = end, 0
                if self.must_roll(header.size, &header):
                    self.roll_active(header.base_offset, header.last_offset)
            end += header.size
            batches += 1
        self.append_run(owner, p, start, end - start, batches)
        return 0

    cdef int append_run(self, object owner, const uint8_t *p, int64_t start, int64_t size, int64_t batches) except -1:
        cdef BatchHeader header
        cdef int64_t at = start, base = self.log_end_offset
        if size == 0:
            return 0
        if self.epochs_unseen:
            self.show_new_epoch()
        try:
            self.segments.active.write(p + start, size)
            while at < start + size:
                read_header(p + at, start + size - at, &header)
                self.segments.active.note(&header)
                at += header.size
                self.log_end_offset = header.last_offset + 1
        except BaseException as error:
            self._undo_write(error)
            raise
        if not self.tail.takes(size):
            self.tail.reset(self.log_end_offset)
            return 0
        if not PyBytes_CheckExact(owner) or PyBytes_GET_SIZE(owner) > self.tail.bytes_max // 4:
            # Copied: the data may change, or a piece of it would keep all of it in memory.
            owner, start = PyBytes_FromStringAndSize(<const char *>p + start, size), 0
        self.tail.push(owner, start, size, base, self.log_end_offset, batches == 1)
        return 0

    # ---- read

    def keep_tail(self, int64_t bytes_max):
        """From now on keep ``bytes_max`` of the log's end in memory, ``config.tail_bytes`` at first; 0: none.

        A log without readers, such as a follower's, needs no tail, and appends to it are cheaper.
        """
        if bytes_max < 0:
            raise LocalError(f"{self.folder}: {bytes_max} bytes in memory")
        self.tail.bound(bytes_max)

    def read(self, int64_t offset, int64_t max_bytes, *, up_to=None, bint at_least_one=True):
        """Read whole batches, from memory where possible.

        One call does not go past the end of a segment on disk, so fewer bytes than asked are no sign of the log's end.
        Nor does it return more than a segment may hold: a follower of Kafka 4.3.1 with segments of the same size
        appends all of an answer to one segment, and stops if it does not fit (UnifiedLog.append).

        Args:
            offset: of the first record wanted; the first batch returned holds it, or, where it is missing, follows it.
            max_bytes: most bytes to return; more than ``segment_bytes`` counts as ``segment_bytes``.
            up_to: only batches that lie wholly below this offset, for example the high watermark; None: all.
            at_least_one: return the first batch even if it alone is larger than ``max_bytes``.
        Returns: Whole batches; ``b""`` at the end, at ``up_to``, or when none fits. Raises:
            LocalError: ``offset`` is below the log's start or above its end, or ``max_bytes`` negative.
            CorruptDataError: the stored batch is damaged.
            StorageError: the disk failed.
        """
        cdef int64_t bound = self.log_end_offset
        cdef bytes data
        if self.closed or offset < self.log_start_offset or offset > bound or max_bytes < 0:
            self._refuse_read(offset, max_bytes)
        if self.sync_failed:
            bound = self.flushed_offset
        if up_to is not None:
            bound = min(bound, <int64_t>up_to)
        if offset >= bound:
            return b""
        max_bytes = min(max_bytes, self.segment_bytes)
        if offset >= self.tail.base_offset:
            data = self.tail.read(offset, max_bytes, bound, at_least_one)
            if data is not None:
                return data
        return self.segments.at(offset).read(offset, max_bytes, bound, at_least_one)

    def bytes_in_memory(self, int64_t offset, int64_t up_to):
        """How many bytes ``read`` would return from ``offset`` up to ``up_to`` without a limit. Nothing is read. None
        when not all of them are in memory: only ``read`` can tell.
        """
        cdef int64_t start, end
        if self.closed or self.sync_failed or offset < self.log_start_offset:
            return None
        start, end = self.tail.position_of(offset), self.tail.position_of(up_to)
        return None if start < 0 or end < 0 else max(end - start, 0)

    def _refuse_read(self, offset, max_bytes):
        if self.closed:
            self.ready()
        refuse_read(self.folder, offset, max_bytes, (self.log_start_offset, self.log_end_offset - 1))

    def offset_for_timestamp(self, int64_t timestamp):
        """Base offset of the first batch whose largest timestamp (ms) is at or above ``timestamp``, or None."""
        cdef Segment segment
        if self.closed:
            self._refuse_read(0, 0)
        for segment in self.segments.all:
            if segment.max_timestamp >= timestamp and segment.next_offset > self.log_start_offset:
                if segment is not self.segments.active and segment.log is None:
                    self.segments.keep_reader(segment)
                found = segment.find_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return max(found, self.log_start_offset)
        return None

    # ---- epochs

    @property
    def last_epoch(self):
        """The newest leader epoch, or None while the log has none (then that of the latest snapshot is, or 0)."""
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
            ``OffsetAndEpoch``: its exclusive end, and the epoch. Below the oldest epoch known: where the oldest starts,
            and ``epoch`` itself (the caller compares with its oldest snapshot). Above the newest: the log's end and
            the newest epoch, 0 when there is none. Raises:
            LocalError: a negative epoch.
        """
        if epoch < 0:
            raise LocalError(f"epoch {epoch}: it must be at least 0")
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return OffsetAndEpoch(self.log_end_offset, max(self.epoch, 0)) if found is None else found

    def assign_epoch_start_offset(self, int32_t epoch, int64_t offset):
        """Note that ``epoch`` begins at ``offset``, before its first batch: what a new leader does at its log's end.

        Raises:
            LocalError: negative, below the newest epoch, or not at the log's end; ClosedError when the log refuses
            changes.
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

    # ---- durability

    def roll(self, int64_t now_ms):
        """Begin a new segment, unless the active one is empty; raises as ``flush`` does."""
        self.ready()
        self.now_ms = now_ms
        self.begin_writing()
        self.roll_active(self.log_end_offset, self.log_end_offset)

    def write_out(self):
        """Have the system begin to write appended bytes, if they are many: waits for nothing, makes nothing durable. A
        ``flush`` a moment later has less to wait for, and raises what failed here. Only a hint, and only on Linux.
        """
        if not self.closed and self.failure is None:
            self.segments.active.write_out()

    def flush(self):
        """Make everything appended so far durable. May run in another thread; one flush at a time.

        Returns: ``flushed_offset``. Raises:
            LocalError: a flush or a removal is running; ClosedError when the log refuses changes.
            StorageError: a sync failed: records that were not durable before may be lost, and the log refuses changes
            from now on.
        """
        cdef int64_t target = self.log_end_offset
        cdef Segments segments = self.segments
        cdef Segment active
        self.settled()
        active = segments.active
        if active.unborn:
            return self.flushed_offset
        if target == self.flushed_offset and not (segments.unsynced or segments.names_pending or self.epochs_pending):
            return self.flushed_offset
        segments.flushing = True
        try:
            segments.sync_names()
            segments.sync_sealed()
            if self.failure is not None:
                self.ready()  # raises if an append failed meanwhile: the segment is frozen, and not synced
            if active.sealed:
                active.sync()  # the other thread is rolling, and has not listed this segment as unsynced yet
            else:
                active.flush()
            if self.epochs_pending:
                self._replace_epochs()
            self.flushed_offset = target
            segments.list_synced(target)
        except BaseException as error:
            self.sync_failed = True
            self.fail(error)
            raise
        finally:
            segments.flushing = False
        return self.flushed_offset

    # ---- truncate and delete

    def truncate_to(self, int64_t offset):
        """Remove everything at and above ``offset``, which the caller keeps above the high watermark; durably.

        A batch that holds ``offset`` goes as a whole: the log then ends where it began. Within a gap the log ends at
        ``offset`` until it is opened again: then where its last batch ends.

        Returns: The log's new end. Unchanged when ``offset`` is at or above it, except that epochs without records
            are dropped. Raises:
            LocalError: below the log's start, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        if offset < self.log_start_offset:
            raise LocalError(
                f"{self.folder}: cannot truncate to {offset}, below the log's start {self.log_start_offset}"
            )
        if offset < self.log_end_offset:
            self.log_end_offset = self._removing(self.segments.truncate, offset, self.now_ms)
            self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)  # it may lie within a batch
            self.tail.cut(self.log_end_offset)
        if self.epochs.truncate_end(self.log_end_offset):
            if self.epochs.latest is None and self.log_end_offset > self.log_start_offset:
                # The checkpoint began above what is left (it does after a restart): the last batch tells its epoch.
                filled = [segment.last_epoch for segment in self.segments.all if segment.size]
                if filled:
                    self.epochs.assign(filled[len(filled) - 1], self.log_start_offset)
            self._guarded(self._replace_epochs)
            self.epoch = -1 if self.epochs.latest is None else self.epochs.latest
        return self.log_end_offset

    def truncate_fully_to(self, int64_t offset, *, bint below_start=False):
        """Remove everything and start anew at ``offset``, as after a snapshot up to there; durable when it returns.

        Args:
            offset: the log's new start.
            below_start: allow an offset below the present start, for a caller that knows that the next batch, or the
                leader's log, is there.
        Raises:
            LocalError: below the log's start, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        if offset < self.log_start_offset and not below_start:
            raise LocalError(f"{self.folder}: cannot start at {offset}, below the log's start {self.log_start_offset}")
        self._removing(self.segments.start_at, offset, self.now_ms)
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.tail.reset(offset)
        self.epochs.clear()
        self._guarded(self._replace_epochs)
        self.epoch = -1

    def delete_below(self, int64_t offset, int64_t now_ms):
        """Raise the log's start to ``offset``, up to which a snapshot exists, and remove the segments wholly below it.
        Files are renamed to ``.deleted`` now and unlinked by ``delete_expired`` later. After a restart the log starts
        at its first segment again, as in Kafka.

        Returns: How many segments went. Raises:
            LocalError: above what is flushed, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        remove = self.begin_delete_below(offset, now_ms)
        return 0 if remove is None else remove()

    def begin_delete_below(self, int64_t offset, int64_t now_ms):
        """The first half of ``delete_below``: readers see the new start at once, no file is gone yet.

        Returns: A function for the other half, to be called once, by any thread: reads may go on meanwhile, and appends
            where ``LogConfig.names_wait``; flushes and removals are refused until then. It returns and raises as
            ``delete_below``. None: the log starts there already. Raises: As ``delete_below``.
        """
        self.settled()
        self.now_ms = now_ms
        if offset > self.flushed_offset:
            raise LocalError(f"{self.folder}: cannot delete below {offset}: only {self.flushed_offset} is flushed")
        if offset <= self.log_start_offset:
            return None
        taken = self._guarded(self.segments.take_below, offset, self.flushed_offset, now_ms)
        self.log_start_offset = offset
        self.epochs_pending |= self.epochs.truncate_start(offset)
        self.segments.flushing = True
        return partial(self._finish_delete, taken, self.flushed_offset, now_ms)

    def _finish_delete(self, taken, durable_offset, now_ms):
        self._removing(self.segments.remove, taken, durable_offset, now_ms)
        if self.epochs_pending:
            self._guarded(self._replace_epochs)
        return len(taken)

    def delete_expired(self, int64_t now_ms):
        """Unlink the ``.deleted`` files whose delay is over; returns how many. StorageError: tried again next time."""
        if self.closed:
            self.ready()
        return self.segments.unlink_expired(now_ms)

    # ---- end

    def move_folder(self, str target not None):
        """Rename the log's folder; nothing is closed. Raises LocalError, ClosedError, StorageError as ``flush``."""
        self.settled()
        self._guarded(self.files.rename, self.folder, target)
        self.folder = self.segments.moved_to(target)

    def close(self):
        """Flush, trim the indexes, remember that the stop was clean, release the files. Idempotent.

        After a failure it only releases the files; the next start recovers. Raises: LocalError: a flush is running;
        StorageError: the disk failed; the files are released all the same.
        """
        if self.closed:
            return
        if self.failure is None:
            self.settled()
        try:
            if self.failure is None and not (self.segments.pristine or self.segments.active.unborn):
                self.flush()
                self._guarded(self.segments.finish, self.log_end_offset)
        finally:
            self.closed = True
            self.tail.reset(self.log_end_offset)
            self.segments.release()

    def abandon(self):
        """Release the files and write nothing, as of a disk that failed; the next start recovers. Idempotent."""
        if not self.closed:
            self.closed = True
            self.tail.reset(self.log_end_offset)
            self.segments.abandon()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- look inside

    @property
    def size_in_bytes(self):
        """Bytes of all batches."""
        if self.segments is None:
            self.ready()
        return sum([segment.size for segment in self.segments.all])

    @property
    def tail_base_offset(self):
        """The first offset in the tail, which is read from memory."""
        if self.tail is None:
            self.ready()
        return self.tail.base_offset

    def segment_list(self):
        """The ``Segment`` objects, oldest first, for a look inside; they belong to the log."""
        if self.segments is None:
            self.ready()
        return list(self.segments.all)

    def segment_at(self, int64_t offset):
        """The ``Segment`` that holds an offset, or the batch behind it; it belongs to the log."""
        return self.segments.at(offset)

    def control_offsets(self):
        """Offsets of the control batches: leader changes, voter sets and so on. Reads nothing from disk. Of each
        segment only the first one, where ``LogConfig.all_control`` is False.

        Returns: The base offset of each control batch that begins at or above ``log_start_offset``, ascending. Raises:
            ClosedError: the log is closed.
        """
        cdef int64_t end = self.flushed_offset if self.sync_failed else self.log_end_offset
        if self.closed:
            self.ready()
        return [offset for segment in self.segments.all for offset in segment.control_offsets
                if self.log_start_offset <= offset < end]

    def check_invariants(self):
        """Verify the log's invariants, reading every file; raises InvariantError. For tests."""
        if self.closed:
            self.ready()
        end, problems = self.segments.check(self.failure is None)
        tail = (self.tail.next_offset, self.tail.used_bytes, max(self.tail.bytes_max, 0))
        epochs = (self.epoch, -1 if self.epochs.latest is None else self.epochs.latest)
        offsets = (self.segments.bases[0], self.log_start_offset, self.flushed_offset, self.log_end_offset)
        check_log(self.folder, problems, end, offsets, tail, epochs, allow_gaps=self.allow_gaps)

"""The segments of a log on disk: rolling, flushing, truncating, deleting, and what a crash must find after each.

The rules of durability, in one place:

* A segment's name is durable before anything is appended to the next one, so what survives has no gap.
* The listing forgets a segment before its bytes change, and drops the segments below a new start before their files go.
* Truncation removes newest first, one segment at a time, and syncs before it returns.
* A sealed segment is synced, indexes and times included, before it is listed.
"""

from bisect import bisect_right

from libc.stdint cimport int32_t, int64_t

from kraftcore.core.header cimport BatchHeader
from kraftcore.core.segment cimport Segment

from kraftcore.core.epochs import CHECKPOINT_NAME
from kraftcore.core.listing import LISTING_NAME, Listing
from kraftcore.core.recovery import DELETED_SUFFIX, SEGMENT_SUFFIXES
from kraftcore.errors import ClosedError, LocalError

cdef enum:
    READERS_MAX = 8              # sealed segments kept open for reading

__all__ = ["PRODUCER_SNAPSHOT", "LogFolder"]

# Producer state without producers: version 1, CRC-32C, count 0. Kafka writes one at roll and close.
PRODUCER_SNAPSHOT = bytes.fromhex("0001 48674bc7 00000000")


cdef class LogFolder:
    """What ``kraftcore.core.log.Log`` does to its folder; opened and filled there.

    Attributes:
        folder: where it is.
        config: its ``LogConfig``.
        recovery_actions: what opening repaired or removed, one sentence each; empty after a clean stop.
        log_start_offset: the first offset that can be read.
        log_end_offset: one past the last record: what comes next.
        flushed_offset: everything below it is durable.
        closed: whether ``close`` was called.
    """

    def __cinit__(self):
        self.closed = True  # until an open succeeds

    # ---- state checks, out of the hot path

    cdef int ready(self) except -1:
        if self.closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        if self.failure is not None:
            text = f"{self.folder}: the log refuses changes since {self.failure}: close and reopen it"
            raise ClosedError(text) from self.failure
        return 0

    cdef int settled(self) except -1:
        self.ready()
        if self.flushing:
            raise LocalError(f"{self.folder}: a flush is running, or a removal: wait for it")
        return 0

    cdef int fail(self, error) except -1:
        cdef Segment segment
        if self.failure is None:
            self.failure = error
        for segment in (self.active, *self.unsynced):
            segment.freeze()
        return 0

    cdef int begin_writing(self) except -1:
        # From here on a crash must be noticed: the listing stops covering the active segment.
        if self.pristine:
            self._guarded(self._write_listing, self.segments[: len(self.segments) - 1])
            self.pristine = False
        return 0

    def _guarded(self, action, *arguments):
        # For rare changes of several steps: half done is not to be built upon.
        try:
            return action(*arguments)
        except BaseException as error:
            self.fail(error)
            raise

    def _removing(self, action, *arguments):
        # A flush that began now would take the old end for flushed.
        self.flushing = True
        try:
            return self._guarded(action, *arguments)
        finally:
            self.flushing = False

    # ---- segments

    cdef int start_epoch(self, int32_t epoch, int64_t offset) except -1:
        if self.epochs.assign(epoch, offset):
            self._write_epochs()
            self.epoch = epoch
        return 0

    def _write_epochs(self):
        self._guarded(self.files.replace_file, f"{self.folder}/{CHECKPOINT_NAME}", self.epochs.encode())

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
        while len(self.readers) > READERS_MAX and not self.flushing:
            oldest = self.readers.pop(0)
            oldest.detach()
        return 0

    cdef Segment segment_at(self, int64_t offset):
        cdef Segment segment
        if offset >= self.active.base_offset:
            return self.active
        segment = self.segments[bisect_right(self.bases, offset) - 1]
        if segment.log is None or len(self.readers) > READERS_MAX:
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

    # ---- durability

    def write_out(self):
        """Have the system begin to write what was appended, if that is much: waits for nothing, makes nothing durable.

        A ``flush`` a moment later has less to wait for. Only a hint, and only on Linux; what fails, that flush tells.
        """
        if not self.closed and self.failure is None:
            self.active.write_out()

    def flush(self):
        """Make everything appended so far durable. May run in another thread; one flush at a time.

        Returns:
            ``flushed_offset``.
        Raises:
            LocalError: a flush or a removal is running; ClosedError when the log refuses changes.
            StorageError: a sync failed: what was not durable before may be lost, and the log refuses changes from now
            on.
        """
        cdef int64_t target = self.log_end_offset
        cdef Segment active = self.active, segment
        self.settled()
        if target == self.flushed_offset and not self.unsynced:
            return self.flushed_offset
        self.flushing = True
        try:
            # Not what is sealed meanwhile: a writer that rolls faster than the disk syncs would never let this end.
            for segment in list(self.unsynced):
                segment.sync()
                self.unsynced.remove(segment)
                if segment not in self.readers:
                    self.readers.append(segment)  # its files are closed by the thread that reads
            if self.failure is not None:
                self.ready()  # an append failed meanwhile: the segment is frozen, what it holds was not synced
            if active.sealed:
                active.sync()  # a roll is under way in the other thread, which has not listed it as unsynced yet
            else:
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
        """Remove everything at and above ``offset``; durable when it returns.

        The caller keeps it above the high watermark.

        A batch that holds ``offset`` goes as a whole: the log then ends where it began.

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
            self._removing(self._truncate, offset)
        if self.epochs.truncate_end(self.log_end_offset):
            if self.epochs.latest is None and self.log_end_offset > self.log_start_offset:
                # The checkpoint began above what is left (it does after a restart): the last batch tells its epoch.
                self.epochs.assign(self._last_batch_epoch(), self.log_start_offset)
            self._write_epochs()
            self.epoch = -1 if self.epochs.latest is None else self.epochs.latest
        return self.log_end_offset

    def _last_batch_epoch(self):
        cdef Segment segment = self.active
        if segment.size == 0:
            segment = self.segments[len(self.segments) - 2]
        return segment.last_epoch

    def _truncate(self, int64_t offset):
        cdef int64_t kept = bisect_right(self.bases, offset) - 1
        cdef Segment segment = self.segments[kept]
        cdef BatchHeader header
        if segment.find(offset, &header) >= 0:
            offset = header.base_offset  # its batch goes as a whole
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
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)  # it may lie within a batch
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
        """Remove everything and start anew at ``offset``, after a snapshot up to there was installed.

        Durable when it returns.

        Raises:
            LocalError: below the log's start, or a flush is running; ClosedError when the log refuses changes.
            StorageError: the disk failed; the log refuses changes from now on.
        """
        self.settled()
        if offset < self.log_start_offset:
            raise LocalError(f"{self.folder}: cannot start at {offset}, below the log's start {self.log_start_offset}")
        self._removing(self._truncate_fully, offset)
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

        Files are renamed to ``.deleted`` now and unlinked by ``delete_expired`` later. After a restart the log starts
        at its first segment again, as in Kafka.

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
        count = self._removing(self._delete_below, offset)
        if self.epochs.truncate_start(offset):
            self._write_epochs()
        return count

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
        return kept

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

"""The segments of a log on disk: finds, rolls, lists, truncates and deletes them, so that a crash never leaves a gap.

``Segment.must_roll`` of ``segment.pyx`` decides when a segment is rolled.

The rules of durability, in one place:

* A segment's name is durable before anything is appended to the next one, so what survives has no gap; or, where
  ``LogConfig.names_wait`` says so, before anything in it counts as flushed.
* The listing forgets a segment before its bytes change, and drops the segments below a new start before their files go.
  Appends do not change earlier bytes: where names wait, appends since a clean stop show in the active segment's size,
  and the listing forgets that segment before another one begins.
* Truncation removes newest first, one segment at a time, and syncs before it returns.
* A sealed segment is synced, indexes and times included, before it is listed.

Committed and flushed offsets, epochs and the state after a failure belong to the log, which owns these segments, and
decides what to do after a failed call.
"""

from bisect import bisect_right
from errno import ENOENT

cimport cython
from libc.stdint cimport int64_t

from kraftcore.core.batch.header cimport BatchHeader
from kraftcore.core.log.segment cimport Segment

from kraftcore.core.log.listing import LISTING_NAME, Listing
from kraftcore.core.log.recovery import DELETED_SUFFIX, SEGMENT_SUFFIXES
from kraftcore.errors import ClosedError, StorageError

cdef enum:
    READERS_MAX = 8              # sealed segments kept open for reading

__all__ = ["PRODUCER_SNAPSHOT", "Segments"]

# Producer state without producers: version 1, CRC-32C, count 0. Kafka writes one at roll and close.
PRODUCER_SNAPSHOT = bytes.fromhex("0001 48674bc7 00000000")


@cython.final
cdef class Segments:
    """The segments that recovery found in a log's folder.

    Every method may raise ``StorageError``; its work is then half done, and the log must take no more changes.

    Args:
        files: where the folder is.
        folder: of the log.
        config: its ``LogConfig``.
        found: a ``RecoveredLog``.
    """

    def __init__(self, files, folder, config, found):
        self.files, self.folder, self.config = files, folder, config
        self.all = found.segments
        self.bases = [segment.base_offset for segment in found.segments]
        self.active = found.segments[len(found.segments) - 1]
        self.listing, self.pristine = found.listing, found.pristine
        self.listed = len(found.segments) - 1
        self.unsynced, self.readers, self.expiring = [], [], []
        self.names_pending = self.active.unborn

    # ---- finding

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

    cdef Segment at(self, int64_t offset):
        # The segment that holds an offset, or the batch behind it.
        cdef Segment segment
        if offset >= self.active.base_offset:
            return self.active
        cdef int64_t number = bisect_right(self.bases, offset) - 1
        segment = self.all[number]
        while offset >= segment.next_offset or segment.size == 0:  # offsets up to the next segment are missing
            number += 1
            if number >= len(self.all):
                raise ClosedError(f"{self.folder}: another thread is cutting the log")
            segment = self.all[number]
            if segment is self.active:
                return segment
        if segment.log is None or len(self.readers) > READERS_MAX:
            self.keep_reader(segment)
        return segment

    # ---- growing

    def begin_writing(self, int64_t durable_offset):
        """Stop listing the active segment, so that a start after a crash reads it again.

        Where names wait, the listing is written at the next roll only, for a segment that is longer than listed is read
        again: otherwise each of a broker's thousands of logs would wait for the disk at its first append.
        """
        if self.pristine:
            self.pristine = False
            if self.config.names_wait:
                self.listing.segments.pop(self.active.base_offset, None)
                self.overlisted = True
            else:
                self._write_listing(self.all[: len(self.all) - 1], None, durable_offset)

    def roll(self, int64_t next_offset, int64_t now_ms):
        """Seal the active segment and begin another at ``next_offset``."""
        cdef Segment old = self.active, new = Segment(self.files, self.folder, next_offset, self.config, now_ms)
        if self.overlisted:
            self._write_listing(self.all[: len(self.all) - 1], None, self.listing.durable_offset)
        old.seal()
        if self.config.producer_snapshots:
            self._write_producer_snapshot(next_offset, False)
        new.create()
        if self.config.names_wait:
            self.names_pending = True
        else:
            # A segment's name must never outlive that of the one before it, so names become durable one by one.
            self.files.sync_folder(self.folder)
        new.attach()
        self.unsynced.append(old)
        self.keep_reader(old)
        self.all.append(new)
        self.bases.append(new.base_offset)
        self.active = new

    def _write_producer_snapshot(self, int64_t end_offset, bint durable):
        with self.files.open(f"{self.folder}/{end_offset:020d}.snapshot", create=True, truncate=True) as file:
            file.write_at(0, PRODUCER_SNAPSHOT)
            if durable:
                file.sync()

    def _write_listing(self, segments, start_offset, int64_t durable_offset):
        if self.config.allow_gaps:
            # A log that was cut within a gap ends behind its last batch, which is not known after a restart.
            durable_offset = min(durable_offset, self.active.next_offset)
        listing = Listing(self.bases[0] if start_offset is None else start_offset, durable_offset)
        known = self.listing.segments
        for segment in segments:
            if segment.synced:
                base = segment.base_offset
                listing.segments[base] = known[base] if base in known else segment.entry()
        self.files.replace_file(f"{self.folder}/{LISTING_NAME}", listing.encode())
        self.listing = listing
        self.overlisted = False

    # ---- durability

    def sync_names(self):
        """Make the names of all present segments durable."""
        if self.names_pending:
            self.names_pending = False  # before the sync: a roll meanwhile may come too late for it
            self.files.sync_folder(self.folder)

    def sync_sealed(self):
        """Sync the segments that were sealed before the call.

        Those sealed meanwhile are left out: a writer that rolls faster than the disk syncs would never let this end.
        """
        cdef Segment segment
        for segment in list(self.unsynced):
            segment.sync()
            self.unsynced.remove(segment)
            if segment not in self.readers:
                self.readers.append(segment)  # its files are closed by the thread that reads

    def list_synced(self, int64_t durable_offset):
        """Write the listing if there are segments that it could cover and does not."""
        sealed = [segment for segment in self.all if segment.synced]
        if len(sealed) != self.listed:
            self.listed = len(sealed)
            self._write_listing(sealed, None, durable_offset)

    # ---- truncating and deleting

    def truncate(self, int64_t offset, int64_t now_ms):
        """Remove everything at and above ``offset``, the batch that holds it as a whole; durable when it returns.

        Returns:
            The log's next offset.
        """
        cdef int64_t kept = bisect_right(self.bases, offset) - 1
        cdef Segment segment = self.all[kept]
        cdef BatchHeader header
        if segment.find(offset, &header) >= 0:
            offset = min(offset, header.base_offset)  # the batch goes as a whole
        self.pristine = False
        # First the listing forgets the segments that change: new content of the same size must not be trusted.
        self._write_listing(self.all[:kept], None, min(offset, self.listing.durable_offset))
        self.listed = len(self.listing.segments)
        self._drop_newest(kept + 1, now_ms)
        self._forget(segment)
        self.active = segment
        segment.truncate(offset)
        return offset

    def start_at(self, int64_t offset, int64_t now_ms):
        """Remove everything and begin anew with an empty segment at ``offset``; durable when it returns."""
        cdef Segment new
        self.pristine = False
        first = self.bases[0]
        if first == offset and self.active.unborn:
            return
        self._write_listing([], None, min(first, self.listing.durable_offset))
        # A prefix of the old log at any time, until the listing makes the new start the rule.
        self._drop_newest(max(bisect_right(self.bases, offset - 1), 1), now_ms)
        if first == offset:
            new = self.all[0]
            self._forget(new)
            new.truncate(offset)
        else:
            self._write_listing([], offset, offset)
            for segment in self.all:
                self._retire(segment, now_ms)
            self.files.sync_folder(self.folder)  # so that segments above the new start do not come back
            new = Segment(self.files, self.folder, offset, self.config, now_ms)
            new.create()
            self.files.sync_folder(self.folder)
            new.attach()
        self.all, self.bases, self.active = [new], [offset], new
        self.listed = 0

    def take_below(self, int64_t offset, int64_t durable_offset, int64_t now_ms):
        """Stop counting the segments that lie wholly below ``offset``; ``remove`` removes their files.

        Returns:
            The segments, oldest first.
        """
        self.begin_writing(durable_offset)
        if offset >= self.active.next_offset and self.active.size:
            self.roll(offset, now_ms)  # at ``offset``, so that the log starts here when it is opened again
        kept = bisect_right(self.bases, offset) - 1
        taken = self.all[:kept]
        del self.all[:kept], self.bases[:kept]
        for segment in taken:
            self._forget(segment)
        return taken

    def remove(self, list taken, int64_t durable_offset, int64_t now_ms):
        """Remove the files of segments that ``take_below`` took; others may append and read meanwhile."""
        cdef Segment segment
        if not taken:
            return
        self.sync_names()
        for segment in taken:
            if segment.sealed:
                segment.sync()  # ended by the roll of ``take_below``
        # The listing goes first: whichever of the renames survive a crash, the next start completes them.
        self._write_listing(self.all[: len(self.all) - 1], None, durable_offset)
        for segment in taken:
            self._retire(segment, now_ms)
        self.files.sync_folder(self.folder)
        self.listed = len(self.listing.segments)

    def _drop_newest(self, int64_t kept, int64_t now_ms):
        # One by one, newest first, each durable: whatever a crash leaves has no gap.
        while len(self.all) > kept:
            self._retire(self.all.pop(), now_ms)
            self.bases.pop()
            self.files.sync_folder(self.folder)

    def _forget(self, Segment segment):
        for group in (self.readers, self.unsynced):
            if segment in group:
                group.remove(segment)

    def _retire(self, Segment segment, int64_t now_ms):
        self._forget(segment)
        segment.drop()
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path + suffix
            if self.files.exists(path):
                self.files.rename(path, path + DELETED_SUFFIX)
                self.expiring.append((now_ms + self.config.file_delete_delay_ms, path + DELETED_SUFFIX))

    def unlink_expired(self, int64_t now_ms):
        """Unlink the ``.deleted`` files whose delay is over; returns how many."""
        cdef int64_t count = 0
        while self.expiring and self.expiring[0][0] <= now_ms:
            path = self.expiring[0][1]
            try:
                self.files.unlink(path)
            except StorageError as error:
                if error.errno != ENOENT:  # else the folder was renamed or removed meanwhile, by another thread
                    raise
            self.expiring.pop(0)
            count += 1
        return count

    def moved_to(self, str folder not None):
        """Rename the folder; returns its new name."""
        cdef Segment segment
        for segment in self.all:
            segment.moved_to(folder)
        self.expiring = [(due_ms, folder + path[len(self.folder):]) for due_ms, path in self.expiring]
        self.folder = folder
        return folder

    # ---- end

    def finish(self, int64_t end_offset):
        """End in order, after a flush: trim the indexes, and list all segments, the active one included."""
        self.active.seal()
        self.active.sync()
        if self.config.producer_snapshots:
            self._write_producer_snapshot(end_offset, True)
        self.files.sync_folder(self.folder)
        self._write_listing(self.all, None, end_offset)

    def freeze(self):
        """Take no more changes, after a failed write or sync."""
        cdef Segment segment
        for segment in (self.active, *self.unsynced):
            segment.freeze()

    def release(self):
        """Close all files."""
        cdef Segment segment
        for segment in self.all:
            segment.detach()

    def abandon(self):
        """Close all files, whatever the disk says."""
        cdef Segment segment
        for segment in self.all:
            try:
                segment.detach()
            except StorageError:
                pass  # the disk's failure is known

    # ---- look inside

    def check(self, bint sizes):
        """Read every file and compare it with what is known of it.

        Args:
            sizes: whether the files must have the sizes known; not so after a failed write.
        Returns:
            Where the segments end, and a sentence for each thing that does not hold.
        """
        cdef Segment segment
        cdef BatchHeader header
        cdef list problems = []
        expected = self.bases[0]
        for segment in self.all:
            if segment.base_offset < expected or (segment.base_offset > expected and not self.config.allow_gaps):
                problems.append(f"segment {segment.base_offset} should start at {expected}")
            expected = segment.next_offset
            if segment.gone or segment.sealed != (segment is not self.active):
                problems.append(f"segment {segment.base_offset}: gone {segment.gone}, sealed {segment.sealed}")
            if segment.unborn:
                if segment.size or segment is not self.active:
                    problems.append(f"segment {segment.base_offset} has no files")
                continue
            if sizes and self.files.stat(segment.path + ".log").size != max(segment.size, segment.file_end):
                problems.append(f"segment {segment.base_offset}: size differs from the file's")
            last = -1
            for offset, position in segment.index_entries():
                if offset <= last or segment.find(offset, &header) != position or header.last_offset != offset:
                    problems.append(f"segment {segment.base_offset}: index entry {offset} -> {position}")
                last = offset
            if segment.control_offsets != segment.find_control()[: None if self.config.all_control else 1]:
                problems.append(f"segment {segment.base_offset}: control batches {segment.control_offsets}")
            last_time = (-1, -1)
            for entry in segment.time_index_entries():
                if entry[0] <= last_time[0] or entry[1] <= last_time[1] or segment.find(entry[1], &header) < 0 or (
                    header.max_timestamp != entry[0]
                ):
                    problems.append(f"segment {segment.base_offset}: time index entry {entry}")
                last_time = entry
            if segment is not self.active:
                self.keep_reader(segment)
        return expected, problems

"""One segment of a log: a file of batches and its two sparse indexes.

Index rules, Kafka's (LogSegment): a batch gets an entry when more than ``index_interval_bytes`` were appended since
the last entry; the offset entry names the batch's last offset and its position, the time entry the largest timestamp
so far and the last offset of the batch that had it, and only if the timestamp grew. Sealing (roll, close) adds a
final time entry.

Nothing read from an index is trusted: the batch it points to must be one, at an offset that fits. If not, the search
starts over from the segment's first byte. Batches read from disk have their checksum verified before anybody sees
them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EDQUOT, ENOSPC
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kraftcore.core.disk.files cimport File, Files
from kraftcore.core.batch.header cimport (
    BATCH_HEADER_SIZE, BATCH_OK, BATCH_SHORT, CONTROL, BatchFault, BatchHeader, crc_matches, read_header,
)
from kraftcore.core.log.index cimport OFFSET_ENTRY, TIME_ENTRY, Index, IndexEntry

from kraftcore.core.log.listing import SegmentEntry
from kraftcore.errors import ClosedError, CorruptDataError, InvariantError, StorageError

cdef enum:
    SCAN_BYTES = 1 << 20         # how much a scan reads at a time
    UNKNOWN_TIMESTAMP = -2
    AHEAD_BYTES_MAX = 1 << 20
    EARLY_BYTES = 32 << 10       # writing less out early costs as much as it saves
    SMALL = 16                   # zeros are written ahead only for appends of up to 1/16 of their size

cdef uint8_t ZEROS[AHEAD_BYTES_MAX]


@cython.final
cdef class Segment:
    """One segment.

    Attributes:
        path: of its files, without the suffix.
        base_offset: of its first batch, and its name.
        next_offset: one past its last record.
        size: bytes of batches.
        file_end: where the zeros written ahead end, 0 when there are none.
        max_timestamp: largest of its batches, ms; -1 when it has none.
        max_timestamp_offset: last offset of the first batch that had it.
        last_epoch: leader epoch of its last batch; -1 when it is empty.
        control_offsets: base offsets of its control batches, ascending; the first alone where ``LogConfig.all_control``
            is False.
        sealed: no more appends.
        synced: sealed, and durable with its indexes.
        gone: deleted or truncated away.
        unborn: its files are not there yet: the first append makes them.
        suspect_index: a search by its offset index failed, so the index is not used any more.
    """

    def __cinit__(self, Files files not None, str folder not None, int64_t base_offset, config, int64_t now_ms):
        self.files = files
        self.path = f"{folder}/{base_offset:020d}"
        self.base_offset = self.next_offset = base_offset
        self.max_timestamp, self.max_timestamp_offset = -1, base_offset
        self.last_epoch = -1
        self.control_offsets = []
        self.first_timestamp = UNKNOWN_TIMESTAMP
        self.created_ms = now_ms
        self.interval_bytes = config.index_interval_bytes
        self.ahead_bytes = config.preallocate_bytes
        self.allow_gaps = config.allow_gaps
        self.all_control = config.all_control
        self.offsets = Index(self.path + ".index", OFFSET_ENTRY, base_offset, config.index_bytes_max)
        self.times = Index(self.path + ".timeindex", TIME_ENTRY, base_offset, config.index_bytes_max)

    # ---- life

    def moved_to(self, str folder not None):
        """Note that the folder was renamed; open files stay open."""
        self.path = f"{folder}/{self.base_offset:020d}"
        self.offsets.path, self.times.path = self.path + ".index", self.path + ".timeindex"

    def create(self):
        """Make its three files, empty, replacing files of these names. Durable after a folder sync."""
        for suffix in (".index", ".timeindex", ".log"):
            self.files.open(self.path + suffix, create=True, truncate=True).close()

    def await_append(self):
        """Leave making the files to the first append, in place of ``create``: none of their names may be in use."""
        self.unborn = True

    def restore(self, entry):
        """Set its attributes from the listing, instead of reading the files.

        Args:
            entry: a ``SegmentEntry`` whose sizes and times match the files.
        """
        self.size = entry.size
        self.next_offset = entry.next_offset
        self.max_timestamp, self.max_timestamp_offset = entry.max_timestamp, entry.max_timestamp_offset
        self.last_epoch = entry.last_epoch
        self.control_offsets = list(entry.control_offsets if self.all_control else entry.control_offsets[:1])
        self.offsets.entries = self.offsets.written = entry.index_size // OFFSET_ENTRY
        self.times.entries = self.times.written = entry.time_index_size // TIME_ENTRY
        self.sealed = self.synced = True

    cdef int attach(self) except -1:
        if self.log is None:
            self.offsets.attach(self.files, self.sealed)
            self.times.attach(self.files, self.sealed)
            self.log = self.files.open(self.path + ".log", create=self.unborn, read_only=self.sealed)
            self.unborn = False
        return 0

    cdef File opened(self):
        # The log file, to be held while it is used: another thread may close it meanwhile.
        cdef File log = self.log
        if log is None:
            raise ClosedError(f"{self.path}.log: the file was closed by another thread")
        return log

    def detach(self):
        """Close its files; they are opened again when needed. Unsaved index entries are lost."""
        cdef File log = self.log
        self.log = None
        self.offsets.detach()
        self.times.detach()
        if log is not None:
            log.close()

    @property
    def attached(self):
        """Whether its files are open."""
        return self.log is not None

    def seal(self):
        """End appends: final time entry, index entries written. Not synced yet."""
        cdef Index index
        if not self.sealed:
            self.attach()
            self.note_time()
            self.trim()
            for index in (self.offsets, self.times):
                index.write_out()
                index.opened()  # it is there from now on, be it empty
            self.sealed = True

    def sync(self):
        """Make a sealed segment durable, indexes and modification times included."""
        cdef File file
        if not self.synced:
            self.attach()
            for file in (self.log, self.offsets.opened(), self.times.opened()):
                file.flush(True)
            self.synced = True

    def flush(self):
        """Make the batches of the active segment durable. Its indexes are rebuilt after a crash."""
        cdef File log
        self.attach()
        log = self.opened()  # a failing append in the other thread may close it meanwhile
        self.written_out = self.size
        log.flush(False)

    def unseal(self):
        """Let it take appends again. The distance to the next index entry starts anew, as after Kafka's restart."""
        self.detach()
        self.sealed = self.synced = False
        self.since_entry = 0

    def freeze(self):
        """After a failure: no more changes; reads open the files again, for a file refuses them after a failed sync."""
        self.sealed = True
        try:
            self.detach()
        except StorageError:
            pass  # the error that led here is raised

    def drop(self):
        """Close its files for good."""
        self.gone = True
        self.detach()

    # ---- append

    cdef bint must_roll(self, int64_t size, int64_t last_offset, int64_t max_timestamp, int64_t now_ms,
                        int64_t segment_bytes, int64_t segment_ms) except -1:
        # Whether this batch begins a new segment; the rule is that of Kafka's LogSegment.shouldRoll.
        cdef int64_t waited
        if self.size > segment_bytes - size or last_offset - self.base_offset > 0x7FFFFFFF:
            return True
        if self.offsets.entries >= self.offsets.capacity or self.times.entries >= self.times.capacity - 1:
            return True
        if self.size:
            if self.first_timestamp == UNKNOWN_TIMESTAMP:
                self.read_first_timestamp()
            if self.first_timestamp >= 0:
                waited = max_timestamp - self.first_timestamp
            else:
                waited = now_ms - self.created_ms
            if waited > segment_ms:
                return True
        return False

    cdef int read_first_timestamp(self) except -1:
        cdef BatchHeader header
        self.first_timestamp = header.max_timestamp if self.find(self.base_offset, &header) >= 0 else -1
        return 0

    cdef int write(self, const uint8_t *p, int64_t size) except -1:
        # Writes whole, validated batches; the caller calls `note` for each of them afterwards.
        cdef File log
        if self.log is None:
            self.attach()
        log = self.opened()  # a failing flush in the other thread may close it meanwhile
        if self.size + size > self.file_end and size <= self.ahead_bytes // SMALL:
            self.write_ahead(log)
        log.pwrite(p, size, self.size)
        return 0

    cdef int write_ahead(self, File log) except -1:
        # Zeros, not just reserved blocks: only overwriting spares the file system a change of its own at each sync.
        cdef int64_t start = max(self.size, self.file_end), end = start + self.ahead_bytes
        end = min(end - end % self.ahead_bytes, <int64_t>SEGMENT_BYTES_MAX)
        try:
            log.pwrite(ZEROS, end - start, start)
        except StorageError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            # The append itself may still find room.
            self.ahead_bytes = end = 0
            log.resize(self.size)
        self.file_end = end
        return 0

    cdef int trim(self) except -1:
        cdef File log
        if self.file_end > self.size:
            log = self.opened()
            log.resize(self.size)
        self.file_end = 0
        return 0

    cdef int write_out(self) except -1:
        cdef File log = self.log
        if log is not None and self.size - self.written_out >= EARLY_BYTES:
            self.written_out = self.size
            log.write_out()
        return 0

    cdef int note(self, const BatchHeader *header) except -1:
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if self.since_entry > self.interval_bytes:
            self.offsets.add(header.last_offset, self.size)
            self.note_time()
            self.since_entry = 0
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        if header.attributes & CONTROL and (self.all_control or not self.control_offsets):
            self.control_offsets.append(header.base_offset)
        self.size += header.size
        self.since_entry += header.size
        self.next_offset = header.last_offset + 1
        self.last_epoch = header.leader_epoch
        return 0

    cdef int note_time(self) except -1:
        cdef IndexEntry last
        last.key = -1
        if self.times.entries:
            self.times.get(self.times.entries - 1, &last)
        if self.max_timestamp > last.key:
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
        return 0

    # ---- search and read

    cdef int64_t find(self, int64_t offset, BatchHeader *header) except -2:
        # Position and header of the batch that holds `offset`, or, where that is missing, of the next batch; -1 when
        # `offset` lies behind the last batch.
        cdef int64_t slot, position = 0, found
        cdef IndexEntry entry
        if offset >= self.next_offset or self.size == 0:
            return -1
        self.attach()
        if not self.suspect_index:
            slot = self.offsets.floor_slot(offset, False)
            if slot >= 0:
                self.offsets.get(slot, &entry)
                position = entry.value
            if position > 0:
                found = self.walk(position, entry.key, offset, header) if position < self.size else -2
                if found >= 0:
                    return found
                self.suspect_index = True
        found = self.walk(0, -1, offset, header)
        if found < 0:
            raise CorruptDataError(
                f"no batch holds offset {offset}, though offsets {self.base_offset} to {self.next_offset - 1} were "
                f"stored here: the file is damaged, recover the log from a replica",
                position=max(-found - 2, 0), path=self.path + ".log",
            )
        return found

    cdef int64_t walk(
        self, int64_t position, int64_t entry_offset, int64_t offset, BatchHeader *header
    ) except? -1:
        # Walks header by header from a batch's start; -2 - position where there is no batch, or one that cannot be
        # there. The first batch ends at `entry_offset`, unless that is -1.
        cdef Look look
        cdef int64_t expected = self.base_offset
        look.start, look.got = 0, 0
        while position < self.size:
            if not self.look_at(&look, position, header):
                return -2 - position
            if header.base_offset < expected or header.last_offset >= self.next_offset:
                return -2 - position
            if header.last_offset != entry_offset and entry_offset >= 0:
                return -2 - position
            if header.base_offset > offset and not self.allow_gaps:
                return -2 - position
            if header.last_offset >= offset:
                return position
            expected, entry_offset = header.last_offset + 1, -1
            position += header.size
        return -2 - position

    cdef bint look_at(self, Look *look, int64_t position, BatchHeader *header) except -1:
        # Reads the header at `position`, a page at a time; whether a batch is there.
        cdef File log
        if position < look.start or position + BATCH_HEADER_SIZE > look.start + look.got:
            look.start = position
            log = self.opened()
            look.got = log.pread(look.bytes, min(<int64_t>LOOK_BYTES, self.size - position), position)
            if look.got < BATCH_HEADER_SIZE:
                return False
        return read_header(look.bytes + (position - look.start), self.size - position, header) == BATCH_OK

    cdef bytes read(self, int64_t offset, int64_t max_bytes, int64_t up_to, bint at_least_one):
        # Whole, verified batches, of which the first holds `offset`; b"" when there are none.
        cdef BatchHeader header
        cdef int64_t position = self.find(offset, &header), budget, end = 0
        cdef bytes data
        cdef const uint8_t *p
        cdef File log
        if position < 0 or header.last_offset >= up_to:
            return b""
        budget = min(max_bytes, self.size - position)
        if header.size > budget:
            if not at_least_one:
                return b""
            budget = header.size
        data = PyBytes_FromStringAndSize(NULL, budget)
        p = <const uint8_t *>PyBytes_AS_STRING(data)
        log = self.opened()
        budget = log.pread(<uint8_t *>p, budget, position)
        while True:
            if read_header(p + end, budget - end, &header) != BATCH_OK or not crc_matches(p + end, &header):
                break
            if header.last_offset >= up_to:
                break
            end += header.size
        if end == 0:
            raise CorruptDataError(
                f"the batch with offset {offset} is damaged (checksum or header): recover the log from a replica",
                position=position, path=self.path + ".log",
            )
        return data if end == len(data) else data[:end]

    def span(self, int64_t offset, int64_t up_to):
        """How many bytes lie from the batch that holds ``offset``, or follows it, to that of ``up_to``, or to its end.

        Raises CorruptDataError, StorageError: a header on the way cannot be read.
        """
        cdef BatchHeader header
        cdef int64_t start = self.find(offset, &header), end = self.find(up_to, &header)
        return 0 if start < 0 else (self.size if end < 0 else end) - start

    def find_timestamp(self, int64_t timestamp, int64_t from_offset):
        """Base offset of its first batch whose largest timestamp is at or above ``timestamp``; None when there is none.

        Batches that end below ``from_offset`` are passed over.
        """
        cdef BatchHeader header
        cdef IndexEntry entry
        cdef Look look
        cdef int64_t slot, position, offset = max(self.base_offset, from_offset)
        if timestamp > self.max_timestamp:
            return None
        self.attach()
        slot = self.times.floor_slot(timestamp - 1, False)
        if slot >= 0:
            self.times.get(slot, &entry)
            if offset <= entry.value < self.next_offset and self.find(entry.value, &header) >= 0 and (
                header.max_timestamp == entry.key
            ):
                # No batch up to this one has a larger timestamp than the entry's, which is too small.
                offset = entry.value
        position = self.find(offset, &header)
        look.start, look.got = 0, 0
        while 0 <= position < self.size and self.look_at(&look, position, &header):
            if header.max_timestamp >= timestamp:
                return header.base_offset
            position += header.size
        return None

    # ---- truncate and recover

    def truncate(self, int64_t offset):
        """Cut the batch that holds ``offset`` and all that follow; the segment takes appends again.

        Durable when it returns.
        """
        cdef BatchHeader header
        cdef int64_t position
        cdef File log
        if self.log is not None and not self.sealed:
            self.offsets.write_out()
            self.times.write_out()
        self.unseal()
        position = self.find(offset, &header)
        if position >= 0:
            offset = header.base_offset  # of the batch that goes
            self.control_offsets = [control for control in self.control_offsets if control < offset]
            self.offsets.cut_from(offset)
            self.times.cut_from(offset)
            log = self.opened()
            log.resize(position)
            self.file_end = 0
            log.flush(True)
            self.size, self.next_offset = position, offset if position else self.base_offset
            self.find_end()
        if self.size == 0:
            self.first_timestamp = UNKNOWN_TIMESTAMP
        self.since_entry = 0
        self.written_out = min(self.written_out, self.size)

    cdef int find_end(self) except -1:
        # Sets the attributes of its last batch, and its largest timestamp: the last time entry has the largest one up
        # to the batch it names; later batches are read, up to damage, which a reader will be told of.
        cdef BatchHeader header
        cdef IndexEntry entry
        cdef Look look
        cdef int64_t offset = self.base_offset, largest = -1, largest_offset = self.base_offset, position
        cdef int64_t next_offset = self.base_offset
        self.last_epoch = -1
        if self.times.entries:
            self.times.get(self.times.entries - 1, &entry)
            largest, largest_offset = entry.key, entry.value
            if self.base_offset <= entry.value < self.next_offset:
                offset = entry.value
        try:
            position = self.find(offset, &header)
        except CorruptDataError:
            position = 0
        look.start, look.got = 0, 0
        while 0 <= position < self.size and self.look_at(&look, position, &header):
            if header.max_timestamp > largest:
                largest, largest_offset = header.max_timestamp, header.last_offset
            self.last_epoch = header.leader_epoch
            next_offset = header.last_offset + 1
            position += header.size
        self.max_timestamp, self.max_timestamp_offset = largest, largest_offset
        if not 0 <= position < self.size:  # else a header is damaged, and `next_offset` stays
            self.next_offset = next_offset
        return 0

    def recover(self, int32_t epoch, int64_t durable_offset):
        """Read all its batches, verify them, and rebuild its indexes from them.

        Stops at the first byte that does not begin a whole, intact batch which continues the one before it. The bytes
        from there on stay in the file until ``cut_damage``.

        Args:
            epoch: leader epoch of the batch before this segment, or -1.
            durable_offset: intact batches from here on are written again: after a sync that failed the page cache may
                show bytes that the disk lacks and that no later sync would write.
        Returns:
            (bytes in the file, reason why the batches end before that or None, [(epoch, first offset)] of the epochs
            that begin here).
        """
        cdef int64_t file_size
        cdef list epochs = []
        self.detach()
        for suffix in (".index", ".timeindex"):
            self.files.open(self.path + suffix, create=True, truncate=True).close()
        self.sealed = self.synced = False
        self.attach()
        self.offsets.entries = self.offsets.written = 0
        self.times.entries = self.times.written = 0
        self.size, self.next_offset, self.since_entry, self.file_end = 0, self.base_offset, 0, 0
        self.max_timestamp, self.max_timestamp_offset, self.last_epoch = -1, self.base_offset, -1
        self.control_offsets = []
        self.first_timestamp = UNKNOWN_TIMESTAMP
        self.suspect_index = False
        file_size = self.log.length()
        reason = self.scan(min(file_size, <int64_t>SEGMENT_BYTES_MAX), epoch, durable_offset, epochs)
        if reason is None and self.size < file_size:
            reason = "the file is larger than a segment can be"
        self.since_entry = 0
        return file_size, reason, epochs

    cdef object scan(self, int64_t file_size, int32_t epoch, int64_t durable_offset, list epochs):
        cdef int64_t room = max(min(<int64_t>SCAN_BYTES, file_size), 1), start, got, at, known
        cdef uint8_t *buffer = <uint8_t *>PyMem_Malloc(room)
        cdef uint8_t *larger
        cdef BatchHeader header
        cdef BatchFault fault
        cdef object reason = None
        if buffer == NULL:
            raise MemoryError
        try:
            while self.size < file_size and reason is None:
                start = self.size
                got = self.log.pread(buffer, min(room, file_size - start), start)
                at = known = 0
                while at < got:
                    fault = read_header(buffer + at, file_size - start - at, &header)
                    if fault == BATCH_OK and header.size > got - at:
                        break  # the rest of the batch is in the next read
                    if fault == BATCH_SHORT and got - at < BATCH_HEADER_SIZE < file_size - start - at:
                        break
                    reason = self.objection(fault, buffer + at, &header, epoch)
                    if reason is not None:
                        break
                    if header.leader_epoch > epoch:
                        epoch = header.leader_epoch
                        epochs.append((epoch, header.base_offset))
                    self.note_recovered(&header)
                    at += header.size
                    if header.base_offset < durable_offset:
                        known = at
                if known < at:
                    self.log.pwrite(buffer + known, at - known, start + known)
                if at == 0 and reason is None:
                    if got < min(room, file_size - start):
                        reason = "the file became shorter"
                    elif header.size <= room:
                        raise InvariantError(f"{self.path}.log: the scan stands still at byte {start}")
                    else:
                        larger = <uint8_t *>PyMem_Malloc(header.size)
                        if larger == NULL:
                            raise MemoryError
                        PyMem_Free(buffer)
                        buffer, room = larger, header.size
        finally:
            PyMem_Free(buffer)
        return reason

    cdef object objection(self, BatchFault fault, const uint8_t *p, const BatchHeader *header, int32_t epoch):
        if fault == BATCH_SHORT:
            return "the file ends within a batch"
        if fault != BATCH_OK:
            return "no valid batch header"
        if header.base_offset < self.next_offset or (header.base_offset > self.next_offset and not self.allow_gaps):
            return f"the batch starts at offset {header.base_offset}, expected {self.next_offset}"
        if header.last_offset - self.base_offset > 0x7FFFFFFF or header.last_offset == INT64_MAX:
            return f"offset {header.last_offset} is too far from the segment's first"
        if header.leader_epoch < epoch:
            return f"the leader epoch falls from {epoch} to {header.leader_epoch}"
        if not crc_matches(p, header):
            return "the batch's checksum differs"
        return None

    cdef int note_recovered(self, const BatchHeader *header) except -1:
        # A foreign segment may have more batches than our index limit allows: its index then ends early, which is
        # legal.
        if self.since_entry > self.interval_bytes and (
            self.offsets.entries >= self.offsets.capacity or self.times.entries >= self.times.capacity - 1
        ):
            self.since_entry = 0
        return self.note(header)

    def ends_in_zeros(self):
        """Whether only zeros follow the batches that ``recover`` found, as ``preallocate`` writes them."""
        cdef int64_t position = self.size, got, at
        cdef uint8_t page[LOOK_BYTES]
        while True:
            got = self.log.pread(page, LOOK_BYTES, position)
            for at in range(got):
                if page[at]:
                    return False
            position += got
            if got < LOOK_BYTES:
                return position > self.size

    def cut_damage(self):
        """Shorten the file to the batches that ``recover`` found intact."""
        self.attach()
        self.log.resize(self.size)

    def sync_recovered(self):
        """Write the final time entry, make everything durable, and close the files, as sealing and syncing do."""
        self.seal()
        self.sync()
        self.detach()

    def find_epochs(self, int32_t epoch):
        """Read the headers of its batches.

        Args:
            epoch: leader epoch of the batch before this segment, or -1.
        Returns:
            [(epoch, first offset)] of the epochs that begin here.
        Raises:
            CorruptDataError: a batch header is damaged.
        """
        cdef BatchHeader header
        cdef Look look
        cdef int64_t position = 0
        cdef list epochs = []
        self.attach()
        look.start, look.got = 0, 0
        while position < self.size:
            if not self.look_at(&look, position, &header):
                raise CorruptDataError("no valid batch header", position=position, path=self.path + ".log")
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                epochs.append((epoch, header.base_offset))
            position += header.size
        return epochs

    def find_control(self):
        """Base offsets of its control batches, read from the headers in the file."""
        cdef BatchHeader header
        cdef Look look
        cdef int64_t position = 0
        cdef list found = []
        self.attach()
        look.start, look.got = 0, 0
        while position < self.size and self.look_at(&look, position, &header):
            if header.attributes & CONTROL:
                found.append(header.base_offset)
            position += header.size
        return found

    def entry(self):
        """Its line in the listing, from the files as they are now."""
        log, offsets, times = [self.files.stat(self.path + suffix) for suffix in (".log", ".index", ".timeindex")]
        if log.size != self.size:
            raise CorruptDataError(f"has {log.size} bytes, {self.size} were written", path=self.path + ".log")
        return SegmentEntry(
            self.base_offset, self.next_offset, log.size, log.mtime_ns, offsets.size, offsets.mtime_ns,
            times.size, times.mtime_ns, self.max_timestamp, self.max_timestamp_offset, self.last_epoch,
            tuple(self.control_offsets),
        )

    # ---- look inside

    def index_entries(self):
        """All entries of its offset index: (offset, position)."""
        return self.list_entries(self.offsets)

    def time_index_entries(self):
        """All entries of its time index: (timestamp, offset)."""
        return self.list_entries(self.times)

    cdef list list_entries(self, Index index):
        cdef IndexEntry entry
        cdef int64_t slot
        cdef list result = []
        self.attach()
        for slot in range(index.entries):
            index.get(slot, &entry)
            result.append((entry.key, entry.value))
        return result

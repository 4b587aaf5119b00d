"""PartitionRecord and PartitionChangeRecord between bytes and rows, without objects."""

# Bytes are hostile: no read at or beyond `end`, nothing allocated by a claimed count before it is compared with the
# bytes that are left. The reader returns False for any fault; the general codec then raises the error.

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kraftcore.core.bytes cimport load_int32, read_uvarint32, size_uvarint32, store_int32, write_uvarint32
from kraftcore.core.uuid cimport Uuid, store_uuid
from kraftcore.metadata.rows cimport Row, Rows

cdef enum:
    FRAME_VERSION = 1
    LAST_VERSION = 2
    UUID = 16
    FIXED_MAX = 96  # bytes of a PartitionRecord besides the elements of its lists


cdef bint is_partition_record(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Whether the bytes begin as a PartitionRecord or PartitionChangeRecord of a known version."""
    return (
        end - p > 3
        and p[0] == FRAME_VERSION
        and (p[1] == PARTITION_RECORD or p[1] == PARTITION_CHANGE_RECORD)
        and p[2] <= LAST_VERSION
    )


cdef const uint8_t *read_list(
    const uint8_t *p, const uint8_t *end, size_t unit, bint nullable, RecordList *values
) noexcept nogil:
    cdef uint32_t length
    p = read_uvarint32(p, end, &length)
    if p == NULL:
        return NULL
    if length == 0:
        values.count = ABSENT
        return p if nullable else NULL
    length -= 1
    if length > <size_t>(end - p) // unit:
        return NULL
    values.count = <int32_t>length
    values.data = p
    return p + length * unit


cdef bint read_partition_fields(const uint8_t *p, const uint8_t *end, PartitionFields *fields) noexcept nogil:
    """Read a record that `is_partition_record` recognised; False if it is damaged."""
    cdef int version = p[2]
    cdef bint is_change = p[1] == PARTITION_CHANGE_RECORD
    p += 3
    memset(fields, 0, sizeof(PartitionFields))
    fields.is_change = is_change
    fields.replicas.count = fields.isr.count = fields.removing.count = fields.adding.count = ABSENT
    fields.elr.count = fields.last_known_elr.count = fields.directories.count = ABSENT
    if end - p < 4 + UUID:
        return False
    fields.partition_id = load_int32(p)
    fields.topic_id = p + 4
    p += 4 + UUID
    if is_change:
        fields.leader = NO_LEADER_CHANGE
        fields.recovery_state = -1
        return read_change_tags(p, end, version, fields)
    p = read_list(p, end, 4, False, &fields.replicas)
    if p != NULL:
        p = read_list(p, end, 4, False, &fields.isr)
    if p != NULL:
        p = read_list(p, end, 4, False, &fields.removing)
    if p != NULL:
        p = read_list(p, end, 4, False, &fields.adding)
    if p == NULL or end - p < 12:
        return False
    fields.leader = load_int32(p)
    fields.leader_epoch = load_int32(p + 4)
    fields.partition_epoch = load_int32(p + 8)
    p += 12
    if version >= 1:
        p = read_list(p, end, UUID, False, &fields.directories)
        if p == NULL:
            return False
    return read_partition_tags(p, end, version, fields)


cdef struct Tag:
    uint32_t number
    const uint8_t *stop


cdef const uint8_t *read_tag(const uint8_t *p, const uint8_t *end, bint first, Tag *tag) noexcept nogil:
    # Number and extent of the next tagged field; tags ascend.
    cdef uint32_t number, size
    p = read_uvarint32(p, end, &number)
    if p != NULL:
        p = read_uvarint32(p, end, &size)
    if p == NULL or size > <size_t>(end - p) or not (first or number > tag.number):
        return NULL
    tag.number = number
    tag.stop = p + size
    return p


cdef bint read_partition_tags(
    const uint8_t *p, const uint8_t *end, int version, PartitionFields *fields
) noexcept nogil:
    cdef uint32_t count, i
    cdef Tag tag
    p = read_uvarint32(p, end, &count)
    if p == NULL:
        return False
    for i in range(count):
        p = read_tag(p, end, i == 0, &tag)
        if p == NULL:
            return False
        if tag.number == 0:
            if tag.stop - p != 1:
                return False
            fields.recovery_state = <int8_t>p[0]
        elif tag.number == 1 and version >= 2:
            if read_list(p, tag.stop, 4, True, &fields.elr) != tag.stop:
                return False
        elif tag.number == 2 and version >= 2:
            if read_list(p, tag.stop, 4, True, &fields.last_known_elr) != tag.stop:
                return False
        p = tag.stop
    return p == end


cdef bint read_change_tags(const uint8_t *p, const uint8_t *end, int version, PartitionFields *fields) noexcept nogil:
    cdef uint32_t count, i
    cdef Tag tag
    cdef RecordList *values
    cdef size_t unit
    p = read_uvarint32(p, end, &count)
    if p == NULL:
        return False
    for i in range(count):
        p = read_tag(p, end, i == 0, &tag)
        if p == NULL:
            return False
        values = NULL
        unit = 4
        if tag.number == 0:
            values = &fields.isr
        elif tag.number == 1:
            if tag.stop - p != 4:
                return False
            fields.leader = load_int32(p)
        elif tag.number == 2:
            values = &fields.replicas
        elif tag.number == 3:
            values = &fields.removing
        elif tag.number == 4:
            values = &fields.adding
        elif tag.number == 5:
            if tag.stop - p != 1:
                return False
            fields.recovery_state = <int8_t>p[0]
        elif tag.number == 6 and version >= 2:
            values = &fields.elr
        elif tag.number == 7 and version >= 2:
            values = &fields.last_known_elr
        elif tag.number == 8 and version >= 1:
            values = &fields.directories
            unit = UUID
        if values != NULL and read_list(p, tag.stop, unit, True, values) != tag.stop:
            return False
        p = tag.stop
    return p == end


@cython.final
@cython.auto_pickle(False)
cdef class PartitionCodec:
    """Fills rows from records, and records from rows.

    Args:
        rows: whose vectors the rows name.
    """

    def __cinit__(self, Rows rows not None):
        self.rows = rows

    def __dealloc__(self):
        free(self.scratch)

    cdef int reserve(self, size_t size) except -1:
        # Never leaves the scratch space NULL, even for 0 bytes.
        cdef void *moved
        cdef size_t room = size * 2 if size > FIXED_MAX else FIXED_MAX
        if size > self.room or self.scratch == NULL:
            moved = realloc(self.scratch, room)
            if moved == NULL:
                raise MemoryError
            self.scratch = <uint8_t *>moved
            self.room = room
        return 0

    cdef int fill(self, const PartitionFields *fields, const Row *before, Row *row) except -1:
        # A row with references of its own, from a record and, for a change, from what was before.
        # Its values must have passed `directories_fit` and the check of the recovery state.
        if before == NULL:
            memset(row, 0, sizeof(Row))
            row.leader_epoch = fields.leader_epoch
            row.partition_epoch = fields.partition_epoch
            row.leader = fields.leader
            row.recovery_state = fields.recovery_state
        else:
            row[0] = before[0]
            row.partition_epoch += 1
            if fields.leader != NO_LEADER_CHANGE:
                row.leader = fields.leader
                row.leader_epoch += 1
            if fields.recovery_state >= 0:
                row.recovery_state = fields.recovery_state
        self.rows.take(row)
        self.replace_ints(&row.replicas, &fields.replicas)
        self.replace_ints(&row.isr, &fields.isr)
        self.replace_ints(&row.elr, &fields.elr)
        self.replace_ints(&row.last_known_elr, &fields.last_known_elr)
        self.replace_ints(&row.removing, &fields.removing)
        self.replace_ints(&row.adding, &fields.adding)
        self.replace_directories(fields, row)
        return 0

    cdef int replace_ints(self, uint32_t *number, const RecordList *values) except -1:
        cdef int32_t *native
        cdef int32_t i
        cdef uint32_t made
        if values.count == ABSENT:
            return 0
        self.reserve(<size_t>values.count * sizeof(int32_t))
        native = <int32_t *>self.scratch
        for i in range(values.count):
            native[i] = load_int32(values.data + 4 * i)
        made = self.rows.brokers.intern(self.scratch, <uint32_t>values.count)
        self.rows.brokers.release(number[0])
        number[0] = made
        return 0

    cdef int replace_directories(self, const PartitionFields *fields, Row *row) except -1:
        # A list of only zero ids ("migrating"), of any length, means unknown directories: one for each replica then.
        cdef uint32_t made, count = self.rows.brokers.count(row.replicas)
        if fields.directories.count != ABSENT and not is_zero(
            fields.directories.data, <size_t>fields.directories.count * UUID
        ):
            made = self.rows.directories.intern(fields.directories.data, count)
        elif fields.directories.count == ABSENT and self.tells_directories(row.directories):
            return 0
        else:
            self.reserve(<size_t>count * UUID)
            memset(self.scratch, 0, <size_t>count * UUID)
            made = self.rows.directories.intern(self.scratch, count)
        self.rows.directories.release(row.directories)
        row.directories = made
        return 0

    cdef bint directories_fit(self, const PartitionFields *fields, const Row *before) noexcept:
        # Whether there are as many directories as replicas, or no known directory.
        cdef int64_t replicas, directories
        if fields.directories.count != ABSENT:
            if is_zero(fields.directories.data, <size_t>fields.directories.count * UUID):
                return True
            directories = fields.directories.count
        elif before == NULL or not self.tells_directories(before.directories):
            return True
        else:
            directories = self.rows.directories.count(before.directories)
        if fields.replicas.count != ABSENT:
            replicas = fields.replicas.count
        else:
            replicas = 0 if before == NULL else self.rows.brokers.count(before.replicas)
        return directories == replicas

    cdef bint tells_directories(self, uint32_t directories) noexcept:
        # Whether any of the ids is not "migrating".
        return not is_zero(
            self.rows.directories.data(directories), <size_t>self.rows.directories.count(directories) * UUID
        )

    cdef bytes encode(self, const Row *row, Uuid topic_id, int32_t partition_id, int version):
        # A PartitionRecord with its frame. Versions 0 and 1 leave the ELR out, 0 the directories.
        cdef size_t size = FIXED_MAX + UUID * <size_t>self.rows.directories.count(row.directories)
        cdef uint8_t *p
        cdef int tags
        for number in (row.replicas, row.isr, row.removing, row.adding, row.elr, row.last_known_elr):
            size += 4 * <size_t>self.rows.brokers.count(number)
        self.reserve(size)
        p = self.scratch
        p[0] = FRAME_VERSION
        p[1] = PARTITION_RECORD
        p[2] = <uint8_t>version
        store_int32(p + 3, partition_id)
        store_uuid(p + 7, topic_id)
        p = self.write_ints(p + 7 + UUID, row.replicas)
        p = self.write_ints(p, row.isr)
        p = self.write_ints(p, row.removing)
        p = self.write_ints(p, row.adding)
        store_int32(p, row.leader)
        store_int32(p + 4, row.leader_epoch)
        store_int32(p + 8, row.partition_epoch)
        p += 12
        if version >= 1:
            size = self.rows.directories.count(row.directories)
            p = write_uvarint32(p, <uint32_t>size + 1)
            memcpy(p, self.rows.directories.data(row.directories), size * UUID)
            p += size * UUID
        tags = row.recovery_state != 0
        if version >= 2:
            tags += (row.elr != 0) + (row.last_known_elr != 0)
        p[0] = <uint8_t>tags
        p += 1
        if row.recovery_state:
            p[0], p[1], p[2] = 0, 1, <uint8_t>row.recovery_state
            p += 3
        if version >= 2:
            p = self.write_tagged_ints(p, 1, row.elr)
            p = self.write_tagged_ints(p, 2, row.last_known_elr)
        return PyBytes_FromStringAndSize(<char *>self.scratch, p - self.scratch)

    cdef uint8_t *write_ints(self, uint8_t *p, uint32_t number) noexcept:
        cdef const int32_t *values = self.rows.brokers.ints(number)
        cdef uint32_t i, count = self.rows.brokers.count(number)
        p = write_uvarint32(p, count + 1)
        for i in range(count):
            store_int32(p, values[i])
            p += 4
        return p

    cdef uint8_t *write_tagged_ints(self, uint8_t *p, uint32_t tag, uint32_t number) noexcept:
        # Writes nothing for an empty list, as Kafka leaves the field at null then.
        cdef uint32_t count = self.rows.brokers.count(number)
        if count == 0:
            return p
        p[0] = <uint8_t>tag
        p = write_uvarint32(p + 1, size_uvarint32(count + 1) + 4 * count)
        return self.write_ints(p, number)


cdef bint is_zero(const uint8_t *p, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size):
        if p[i]:
            return False
    return True

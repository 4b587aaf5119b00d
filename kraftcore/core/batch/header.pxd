# The header of a record batch, magic 2, for compiled callers (batch, columns, log).
#
#   offset size field                   offset size field
#        0    8 baseOffset                  27    8 baseTimestamp, ms
#        8    4 batchLength (size - 12)     35    8 maxTimestamp, ms
#       12    4 partitionLeaderEpoch        43    8 producerId
#       16    1 magic = 2                   51    2 producerEpoch
#       17    4 crc (of bytes 21..end)      53    4 baseSequence
#       21    2 attributes                  57    4 recordsCount
#       23    4 lastOffsetDelta             61      records
#
# Offset, length, epoch and magic lie outside the checksum: stamping the first 16 bytes needs no new CRC.
# Source: Kafka 4.3.1, DefaultRecordBatch.

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, int8_t, uint8_t, uint32_t

from kraftcore.core.bytes cimport (
    load_int16, load_int32, load_int64, load_uint32, store_int16, store_int32, store_int64, store_uint32,
)
from kraftcore.core.crc32c cimport crc32c_update

cdef extern from "crc32c_kernel.h":
    bint crc32c_kernel_usable() noexcept nogil
    uint32_t crc32c_kernel_update(uint32_t value, const uint8_t *data, size_t size) noexcept nogil

cdef enum:
    BATCH_OVERHEAD = 12        # baseOffset and batchLength: what comes before the bytes that batchLength counts
    BATCH_HEADER_SIZE = 61
    MAGIC_V2 = 2
    EPOCH_POSITION = 12
    CRC_POSITION = 17
    ATTRIBUTES_POSITION = 21   # the checksum covers from here
    COMPRESSION_MASK = 0x07
    TIMESTAMP_LOG_APPEND = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    CODEC_MAX = 4
    SIZE_MAX = 0x7FFFFFFF      # of a batch, a record, a key, a value
    LONG_WORK = 1 << 18        # bytes from which releasing the GIL pays

cdef enum BatchFault:
    # Why bytes are no batch; batch.corrupt_batch() has the words for each.
    BATCH_OK = 0
    BATCH_SHORT            # fewer bytes than the header or than batchLength says: torn, or more to come
    BATCH_LENGTH           # batchLength below the header's own size
    BATCH_MAGIC
    BATCH_CRC
    BATCH_COUNT            # recordsCount negative, or more than lastOffsetDelta or the bytes allow
    BATCH_OFFSET           # baseOffset or lastOffsetDelta negative, or their sum overflows
    BATCH_CODEC            # compression code 5, 6 or 7
    BATCH_COMPRESSED       # the compressed records cannot be decompressed
    RECORD_LENGTH          # record longer than what is left, or too short for its fields
    RECORD_VARINT          # varint without an end
    RECORD_OFFSET          # offset delta not above the one before, or above lastOffsetDelta
    RECORD_KEY             # key length below -1 or beyond the record
    RECORD_VALUE
    RECORD_HEADERS         # header count or a header's lengths do not fit the record
    RECORD_TRAILING        # bytes inside the record after its last field
    BATCH_TRAILING         # bytes after the last record

cdef struct BatchHeader:
    int64_t base_offset
    int64_t last_offset
    int32_t size               # whole batch in bytes: batchLength + 12
    int32_t leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef inline BatchFault read_header(const uint8_t *p, int64_t available, BatchHeader *header) noexcept nogil:
    # Reads and bounds-checks the header; the checksum is the caller's next step. `header` is set on every fault
    # except BATCH_SHORT with fewer than 61 bytes, so that errors can quote it. BATCH_SHORT is told apart from damage:
    # the length and magic are checked first.
    cdef int32_t length
    if available < BATCH_HEADER_SIZE:
        return BATCH_SHORT
    length = load_int32(p + 8)
    header.base_offset = load_int64(p)
    header.leader_epoch = load_int32(p + EPOCH_POSITION)
    header.crc = load_uint32(p + CRC_POSITION)
    header.attributes = load_int16(p + ATTRIBUTES_POSITION)
    header.last_offset_delta = load_int32(p + 23)
    header.base_timestamp = load_int64(p + 27)
    header.max_timestamp = load_int64(p + 35)
    header.producer_id = load_int64(p + 43)
    header.producer_epoch = load_int16(p + 51)
    header.base_sequence = load_int32(p + 53)
    header.count = load_int32(p + 57)
    header.last_offset = header.base_offset
    header.size = 0
    if length < BATCH_HEADER_SIZE - BATCH_OVERHEAD or length > 0x7FFFFFFF - BATCH_OVERHEAD:
        return BATCH_LENGTH
    header.size = length + BATCH_OVERHEAD
    if p[16] != MAGIC_V2:
        return BATCH_MAGIC
    if header.size > available:
        return BATCH_SHORT
    if header.base_offset < 0 or header.last_offset_delta < 0 or (
        header.base_offset > INT64_MAX - header.last_offset_delta
    ):
        return BATCH_OFFSET
    header.last_offset = header.base_offset + header.last_offset_delta
    if header.count < 0:
        return BATCH_COUNT
    return BATCH_OK


cdef inline uint32_t batch_crc(const uint8_t *p, int32_t size) noexcept nogil:
    if crc32c_kernel_usable():
        return crc32c_kernel_update(0, p + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION)
    return crc32c_update(0, p + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION)


cdef inline bint crc_matches(const uint8_t *p, const BatchHeader *header) noexcept nogil:
    return batch_crc(p, header.size) == header.crc


cdef inline void write_header(uint8_t *p, const BatchHeader *header) noexcept nogil:
    # Writes all 61 bytes; the checksum comes from the bytes that follow, so write the records first.
    # `header.last_offset` and `header.crc` are ignored.
    store_int64(p, header.base_offset)
    store_int32(p + 8, header.size - BATCH_OVERHEAD)
    store_int32(p + EPOCH_POSITION, header.leader_epoch)
    p[16] = MAGIC_V2
    store_int16(p + ATTRIBUTES_POSITION, header.attributes)
    store_int32(p + 23, header.last_offset_delta)
    store_int64(p + 27, header.base_timestamp)
    store_int64(p + 35, header.max_timestamp)
    store_int64(p + 43, header.producer_id)
    store_int16(p + 51, header.producer_epoch)
    store_int32(p + 53, header.base_sequence)
    store_int32(p + 57, header.count)
    store_uint32(p + CRC_POSITION, batch_crc(p, header.size))


cdef inline void stamp_header(uint8_t *p, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    # What a leader does on append: both fields lie outside the checksum.
    store_int64(p, base_offset)
    store_int32(p + EPOCH_POSITION, leader_epoch)

# Encoding of records for compiled callers; RecordBatch.rebuild is one.

from libc.stdint cimport int64_t

from kraftcore.core.batch.header cimport BatchHeader

cdef enum Numbering:
    IN_SEQUENCE                # offsets by order, times and last offset of the header from the records
    KEEP_OFFSETS               # Record objects with their own offsets; the header's fields stay

# A batch of `records` (Record objects or tuples), compressed as header.attributes say. Completes `header`. `default_ms`
# is the time of tuples without one, and that of the append.
cdef bytearray encode_records(
    list records, BatchHeader *header, Numbering numbering, object level, int64_t default_ms
)

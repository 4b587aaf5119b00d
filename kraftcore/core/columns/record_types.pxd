# The type of one record, for whoever has it at hand.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kraftcore.core.bytes cimport load_int16, read_uvarint32

cdef enum:
    FRAME = 1
    BAD = -1


cdef inline int64_t code_of(
    bint is_control, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size, int32_t *version
) noexcept nogil:
    # As RecordTypes says of `code` and `version`; sizes below 0 are nulls.
    cdef const uint8_t *p = value
    cdef const uint8_t *end = value + (value_size if value_size > 0 else 0)
    cdef uint32_t frame, kind, number
    version[0] = BAD
    if is_control:
        if key_size < 4:
            return BAD
        if end - p >= 2:
            version[0] = load_int16(p)
        return (<int64_t>1 << 40) + load_int16(key + 2)  # CONTROL_BASE
    p = read_uvarint32(p, end, &frame)
    if p == NULL or frame != FRAME:
        return BAD
    p = read_uvarint32(p, end, &kind)
    if p == NULL:
        return BAD
    p = read_uvarint32(p, end, &number)
    if p == NULL or number > 0x7FFF:
        return BAD
    version[0] = <int32_t>number
    return kind

# Leaf helpers of every codec: big-endian loads and stores, varints. Bodies live here so that they inline everywhere.
#
# Rules: no Python objects, no exceptions, no reads at or beyond `end`. Readers return the new position, or NULL when
# the bytes end too early or the varint is over-long; the caller turns NULL into an error that names the place.
# Kafka has zig-zag varints inside records ("varint", "varlong") and plain unsigned ones in messages ("uvarint").

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define kraft_be16(x) (x)
    #define kraft_be32(x) (x)
    #define kraft_be64(x) (x)
    #else
    #define kraft_be16(x) __builtin_bswap16(x)
    #define kraft_be32(x) __builtin_bswap32(x)
    #define kraft_be64(x) __builtin_bswap64(x)
    #endif
    """
    uint16_t kraft_be16(uint16_t x) noexcept nogil
    uint32_t kraft_be32(uint32_t x) noexcept nogil
    uint64_t kraft_be64(uint64_t x) noexcept nogil


cdef inline int16_t load_int16(const uint8_t *p) noexcept nogil:
    cdef uint16_t word
    memcpy(&word, p, 2)
    return <int16_t>kraft_be16(word)


cdef inline uint32_t load_uint32(const uint8_t *p) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, p, 4)
    return kraft_be32(word)


cdef inline int32_t load_int32(const uint8_t *p) noexcept nogil:
    return <int32_t>load_uint32(p)


cdef inline int64_t load_int64(const uint8_t *p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return <int64_t>kraft_be64(word)


cdef inline void store_int16(uint8_t *p, int16_t value) noexcept nogil:
    cdef uint16_t word = kraft_be16(<uint16_t>value)
    memcpy(p, &word, 2)


cdef inline void store_uint32(uint8_t *p, uint32_t value) noexcept nogil:
    cdef uint32_t word = kraft_be32(value)
    memcpy(p, &word, 4)


cdef inline void store_int32(uint8_t *p, int32_t value) noexcept nogil:
    store_uint32(p, <uint32_t>value)


cdef inline void store_int64(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t word = kraft_be64(<uint64_t>value)
    memcpy(p, &word, 8)


cdef inline const uint8_t *read_uvarint32(const uint8_t *p, const uint8_t *end, uint32_t *value) noexcept nogil:
    # At most 5 bytes; the fifth may hold 4 bits. One and two bytes, nearly all there are, go without the loop.
    cdef uint32_t byte, result
    cdef int shift = 14
    if p >= end:
        return NULL
    byte = p[0]
    if byte < 0x80:
        value[0] = byte
        return p + 1
    result = byte & 0x7F
    p += 1
    if p >= end:
        return NULL
    byte = p[0]
    if byte < 0x80:
        value[0] = result | (byte << 7)
        return p + 1
    result |= (byte & 0x7F) << 7
    p += 1
    while p < end:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0F:
            return NULL
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = result
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *read_uvarint64(const uint8_t *p, const uint8_t *end, uint64_t *value) noexcept nogil:
    # At most 10 bytes; the tenth may hold 1 bit.
    cdef uint64_t byte, result
    cdef int shift = 7
    if p >= end:
        return NULL
    byte = p[0]
    if byte < 0x80:
        value[0] = byte
        return p + 1
    result = byte & 0x7F
    p += 1
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = result
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef uint32_t raw
    p = read_uvarint32(p, end, &raw)
    if p != NULL:
        value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline const uint8_t *read_varlong(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint64_t raw
    p = read_uvarint64(p, end, &raw)
    if p != NULL:
        value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline uint8_t *write_uvarint32(uint8_t *p, uint32_t value) noexcept nogil:
    # The caller has room for 5 bytes.
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t *write_uvarint64(uint8_t *p, uint64_t value) noexcept nogil:
    # The caller has room for 10 bytes.
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint32_t zigzag32(int32_t value) noexcept nogil:
    return (<uint32_t>value << 1) ^ <uint32_t>(value >> 31)


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline uint8_t *write_varint(uint8_t *p, int32_t value) noexcept nogil:
    return write_uvarint32(p, zigzag32(value))


cdef inline uint8_t *write_varlong(uint8_t *p, int64_t value) noexcept nogil:
    return write_uvarint64(p, zigzag64(value))


cdef inline int size_uvarint32(uint32_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        size += 1
        value >>= 7
    return size


cdef inline int size_uvarint64(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        size += 1
        value >>= 7
    return size

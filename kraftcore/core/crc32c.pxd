# CRC-32C for compiled callers: `from kraftcore.core.crc32c cimport crc32c_update`.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c_update(uint32_t value, const uint8_t *data, size_t size) noexcept nogil

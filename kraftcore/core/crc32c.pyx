"""CRC-32C (Castagnoli), the checksum of record batches and producer-state files.

Two routes to one result: the kernel of ``crc32c_kernel.h`` where the processor has the instructions, else the crc32c
package. The package also checks the kernel once at import.
"""

from libc.stdint cimport uint8_t, uint32_t

from crc32c import crc32c as _package_crc32c

__all__ = ["crc32c"]

cdef extern from "crc32c_kernel.h":
    int crc32c_kernel_usable() noexcept nogil
    uint32_t crc32c_kernel_update(uint32_t value, const uint8_t *data, size_t size) noexcept nogil


cdef uint32_t crc32c_update(uint32_t value, const uint8_t *data, size_t size) noexcept nogil:
    """Extend ``value`` (0 to start) by ``size`` bytes."""
    if crc32c_kernel_usable():
        return crc32c_kernel_update(value, data, size)
    with gil:
        return _package_crc32c((<const uint8_t[:size]>data) if size else b"", value)


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    """CRC-32C of a bytes-like object.

    Args:
        data: any contiguous buffer of bytes.
        value: the checksum of what came before, to continue it.
    Returns:
        The checksum, 0 <= result < 2**32.
    """
    cdef uint32_t result
    cdef size_t size = data.shape[0]
    if size == 0:
        return value
    if size < 4096:
        return crc32c_update(value, &data[0], size)
    with nogil:
        result = crc32c_update(value, &data[0], size)
    return result


def _self_check():
    pattern = bytes(range(256)) * 31
    for size in (0, 1, 7, 143, 144, 767, 768, 6143, 6144, len(pattern)):
        if crc32c(pattern[:size], 7) != _package_crc32c(pattern[:size], 7):
            raise ImportError(f"CRC-32C kernel disagrees with the crc32c package at {size} bytes: please report this")


_self_check()

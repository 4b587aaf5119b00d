"""CRC-32C (Castagnoli), the checksum of record batches and producer-state files.

Two routes to one result: the kernel of ``crc32c_kernel.h`` where the processor has the instructions, else the crc32c
package, which is imported only then. The kernel is checked at import against checksums that the package gave.
"""

import importlib

from libc.stdint cimport uint8_t, uint32_t

__all__ = ["crc32c"]

cdef extern from "crc32c_kernel.h":
    int crc32c_kernel_usable() noexcept nogil
    uint32_t crc32c_kernel_update(uint32_t value, const uint8_t *data, size_t size) noexcept nogil


cdef object _package_crc32c = None
if not crc32c_kernel_usable():
    _package_crc32c = importlib.import_module("crc32c").crc32c


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
        value: the checksum of the bytes before ``data``, to continue it.
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


# By number of bytes: the crc32c package's checksum of that many bytes of 0, 1, ... 255 repeated, continuing from 7.
_KNOWN = {
    0: 7,
    1: 2260154298,
    7: 3200015813,
    143: 1520069516,
    144: 1098332878,
    767: 3317377661,
    768: 829793268,
    6143: 1215915303,
    6144: 188715856,
    7936: 812405463,
}


def _self_check():
    pattern = bytes(range(256)) * 31
    for size, checksum in _KNOWN.items():
        if crc32c(pattern[:size], 7) != checksum:
            raise ImportError(f"CRC-32C is wrong of {size} bytes: please report this")


_self_check()

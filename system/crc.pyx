"""CRC-32 of large data: the value of `zlib.crc32`, as fast as memory where the CPU has the instructions."""

from zlib import crc32 as by_tables

from libc.stdint cimport uint32_t


cdef extern from "crc.h" nogil:
    const size_t CRC_LEAST
    int crc_is_fast()
    uint32_t crc_update(uint32_t crc, const unsigned char *p, size_t n)


def crc32(const unsigned char[::1] data not None):
    """Return the CRC-32 of bytes, without holding the interpreter's lock."""
    cdef size_t whole = data.shape[0] // 16 * 16
    cdef uint32_t crc = 0xFFFFFFFF
    if whole < CRC_LEAST or not crc_is_fast():
        return by_tables(data)
    with nogil:
        crc = crc_update(crc, &data[0], whole)
    return by_tables(data[whole:], crc ^ 0xFFFFFFFF)

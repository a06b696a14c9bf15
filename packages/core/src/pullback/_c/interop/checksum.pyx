# build: small
"""CRC-32 of zip files, by the processor's carry-less products or its own instruction.

Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
Instruction", Intel, 2009. A folded constant is x^n mod P in reflected order, for the distance n of
what it moves.
"""

import zlib

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <immintrin.h>
    #define PB_CRC __attribute__((target("pclmul,sse4.1")))
    static int pb_crc_available(void) {
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }
    PB_CRC static inline __m128i pb_crc_fold(__m128i sum, __m128i by, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(sum, by, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, by, 0x11);
        return _mm_xor_si128(next, _mm_xor_si128(low, high));
    }
    /* `length` is a multiple of 16, and 64 at least. */
    PB_CRC static uint32_t pb_crc(const uint8_t *data, size_t length, uint32_t crc) {
        const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
        const __m128i by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
        const __m128i by64 = _mm_set_epi64x(0, 0x163cd6124);
        const __m128i quotient = _mm_set_epi64x(0x1f7011641, 0x1db710641);
        const __m128i words = _mm_set_epi32(0, -1, 0, -1);
        const __m128i *next = (const __m128i *)data;
        __m128i sums[4], one, two;
        int k;
        for (k = 0; k < 4; ++k)
            sums[k] = _mm_loadu_si128(next++);
        sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
        for (length -= 64; length >= 64; length -= 64)
            for (k = 0; k < 4; ++k)
                sums[k] = pb_crc_fold(sums[k], by512, _mm_loadu_si128(next++));
        one = sums[0];
        for (k = 1; k < 4; ++k)
            one = pb_crc_fold(one, by128, sums[k]);
        for (; length; length -= 16)
            one = pb_crc_fold(one, by128, _mm_loadu_si128(next++));
        two = _mm_clmulepi64_si128(one, by128, 0x10);
        one = _mm_xor_si128(_mm_srli_si128(one, 8), two);
        two = _mm_srli_si128(one, 4);
        one = _mm_clmulepi64_si128(_mm_and_si128(one, words), by64, 0x00);
        one = _mm_xor_si128(one, two);
        two = _mm_clmulepi64_si128(_mm_and_si128(one, words), quotient, 0x10);
        two = _mm_clmulepi64_si128(_mm_and_si128(two, words), quotient, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(one, two), 1);
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static int pb_crc_available(void) { return 1; }
    static uint32_t pb_crc(const uint8_t *data, size_t length, uint32_t crc) {
        uint64_t word;
        for (; length; length -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = __crc32d(crc, word);
        }
        return crc;
    }
    #else
    static int pb_crc_available(void) { return 0; }
    static uint32_t pb_crc(const uint8_t *data, size_t length, uint32_t crc) {
        (void)data; (void)length; return crc;
    }
    #endif
    """
    bint crc_available "pb_crc_available"() noexcept
    uint32_t crc_of "pb_crc"(const uint8_t *data, size_t length, uint32_t crc) noexcept nogil

cdef bint available = crc_available()


def crc32(data, uint32_t value=0):
    """Return the checksum of bytes, continued from that of what is before: as ``zlib.crc32``."""
    cdef Py_buffer view
    cdef size_t length
    cdef uint32_t crc = ~value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        length = <size_t>view.len & ~<size_t>15
        if not available or length < 64:
            return zlib.crc32(data, value)
        with nogil:
            crc = crc_of(<const uint8_t *>view.buf, length, crc)
        if length == <size_t>view.len:
            return <uint32_t>~crc
        return zlib.crc32(memoryview(data).cast("B")[length:], <uint32_t>~crc)
    finally:
        PyBuffer_Release(&view)

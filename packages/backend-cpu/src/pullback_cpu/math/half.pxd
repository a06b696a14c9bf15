# float16 and bfloat16 as bit patterns. Selections instead of branches, so that loops vectorise.
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    HALF_BLOCK = 256  # elements that are converted together

# The processor's own conversions of float16, which GCC has no vector loops for, many at a time.
# They give what the functions below do, and there are none (F16_BLOCKS is 0) without F16C.
cdef extern from *:
    """
    typedef struct { _Alignas(64) float numbers[256]; } pb_half_block;
    #if defined(__F16C__)
    #include <immintrin.h>
    #define PB_F16_BLOCKS 1
    static inline void pb_widen_f16(const uint16_t *source, float *target, int64_t n) {
        int64_t i = 0;
    #if defined(__AVX512F__)
        for (; i + 16 <= n; i += 16)
            _mm512_storeu_ps(target + i,
                             _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(source + i))));
    #else
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(target + i,
                             _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(source + i))));
    #endif
        for (; i < n; i++)
            target[i] = _cvtsh_ss(source[i]);
    }
    static inline float pb_widen_one_f16(uint16_t x) {
        return _cvtsh_ss(x);
    }
    static inline uint16_t pb_narrow_one_f16(float x) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        return x == x ? _cvtss_sh(x, 0) : (uint16_t)(0x7E00 | (bits >> 16 & 0x8000));
    }
    static inline void pb_narrow_f16(const float *source, uint16_t *target, int64_t n) {
        int64_t i = 0, k;
    #if defined(__AVX512F__)
        for (; i + 16 <= n; i += 16) {
            __m512 x = _mm512_loadu_ps(source + i);
            _mm256_storeu_si256((__m256i *)(target + i), _mm512_cvtps_ph(x, 0));
            if (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q))
                for (k = i; k < i + 16; k++)
                    target[k] = pb_narrow_one_f16(source[k]);
        }
    #else
        for (; i + 8 <= n; i += 8) {
            __m256 x = _mm256_loadu_ps(source + i);
            _mm_storeu_si128((__m128i *)(target + i), _mm256_cvtps_ph(x, 0));
            if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)))
                for (k = i; k < i + 8; k++)
                    target[k] = pb_narrow_one_f16(source[k]);
        }
    #endif
        for (; i < n; i++)
            target[i] = pb_narrow_one_f16(source[i]);
    }
    #else
    #define PB_F16_BLOCKS 0
    #define pb_widen_f16(source, target, n)
    #define pb_narrow_f16(source, target, n)
    #define pb_widen_one_f16(x) ((float)(x))
    #define pb_narrow_one_f16(x) ((uint16_t)(x))
    #endif
    """
    int F16_BLOCKS "PB_F16_BLOCKS"
    ctypedef struct half_block "pb_half_block":  # whole cache lines
        float numbers[256]
    void widen_f16 "pb_widen_f16"(const uint16_t *source, float *target, int64_t n) noexcept nogil
    void narrow_f16 "pb_narrow_f16"(const float *source, uint16_t *target, int64_t n) noexcept nogil
    float widen_one_f16 "pb_widen_one_f16"(uint16_t stored) noexcept nogil
    uint16_t narrow_one_f16 "pb_narrow_one_f16"(float value) noexcept nogil


cdef inline float float_of_bits(uint32_t bits) noexcept nogil:
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef inline uint32_t bits_of_float(float value) noexcept nogil:
    cdef uint32_t bits
    memcpy(&bits, &value, 4)
    return bits


cdef inline float bf16_to_f32(uint16_t stored) noexcept nogil:
    return float_of_bits(<uint32_t>stored << 16)


cdef inline uint16_t f32_to_bf16(float value) noexcept nogil:
    cdef uint32_t bits = bits_of_float(value)
    cdef uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return <uint16_t>(0x7FC0 if (bits & 0x7FFFFFFF) > 0x7F800000 else rounded)


cdef inline float f16_to_f32(uint16_t stored) noexcept nogil:
    cdef uint32_t magnitude = (<uint32_t>stored & 0x7FFF) << 13
    cdef uint32_t exponent = magnitude & 0x0F800000
    # The exponent bias grows from 15 to 127; infinities and NaN go up to the top exponent.
    cdef uint32_t normal = magnitude + (224u << 23 if exponent == 0x0F800000 else 112u << 23)
    # Subnormal: let a subtraction find the leading bit.
    cdef float tiny = float_of_bits(magnitude + (113u << 23)) - float_of_bits(113u << 23)
    cdef uint32_t bits = bits_of_float(tiny) if exponent == 0 else normal
    return float_of_bits(bits | (<uint32_t>stored & 0x8000) << 16)


cdef inline uint16_t f32_to_f16(float value) noexcept nogil:
    cdef uint32_t bits = bits_of_float(value)
    cdef uint32_t magnitude = bits & 0x7FFFFFFF
    # Adding one half lets the processor round a subnormal; its bits then are the low ones.
    cdef uint32_t tiny = bits_of_float(float_of_bits(magnitude) + 0.5) - 0x3F000000
    cdef uint32_t normal = (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    cdef uint32_t special = 0x7E00 if magnitude > 0x7F800000 else 0x7C00
    cdef uint32_t result = tiny if magnitude < (113u << 23) else normal
    result = special if magnitude >= (143u << 23) else result
    return <uint16_t>(result | (bits >> 16) & 0x8000)


# Many elements between memory, with a step, and a buffer.
cdef inline void load_f16(
        float *buffer, const uint16_t *a, int64_t step, int64_t n) noexcept nogil:
    cdef int64_t i
    if F16_BLOCKS and step == 1:
        widen_f16(a, buffer, n)
    elif F16_BLOCKS:
        for i in range(n):
            buffer[i] = widen_one_f16(a[i * step])
    else:
        for i in range(n):
            buffer[i] = f16_to_f32(a[i * step])


cdef inline void store_f16(
        uint16_t *o, int64_t step, const float *buffer, int64_t n) noexcept nogil:
    cdef int64_t i
    if F16_BLOCKS and step == 1:
        narrow_f16(buffer, o, n)
    elif F16_BLOCKS:
        for i in range(n):
            o[i * step] = narrow_one_f16(buffer[i])
    else:
        for i in range(n):
            o[i * step] = f32_to_f16(buffer[i])


cdef inline void load_bf16(
        float *buffer, const uint16_t *a, int64_t step, int64_t n) noexcept nogil:
    cdef int64_t i
    if step == 1:
        for i in range(n):
            buffer[i] = bf16_to_f32(a[i])
    else:
        for i in range(n):
            buffer[i] = bf16_to_f32(a[i * step])


cdef inline void store_bf16(
        uint16_t *o, int64_t step, const float *buffer, int64_t n) noexcept nogil:
    cdef int64_t i
    if step == 1:
        for i in range(n):
            o[i] = f32_to_bf16(buffer[i])
    else:
        for i in range(n):
            o[i * step] = f32_to_bf16(buffer[i])

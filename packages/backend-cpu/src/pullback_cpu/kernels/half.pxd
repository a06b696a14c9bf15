# float16 and bfloat16 as bit patterns. Selections instead of branches, so that loops vectorise.
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy


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

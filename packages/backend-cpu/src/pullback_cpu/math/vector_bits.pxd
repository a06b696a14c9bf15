# Helpers of the vector functions: bits, polynomials, exact products, rounding.
#
# Functions in files vector_*.pxd have no branches, so that a loop over contiguous memory becomes
# vector instructions. Float constants are typed locals: a bare literal would be a double.
# Coefficients come from tools/minimax.py, under the name that stands beside them.
from libc.math cimport copysign, copysignf, fabs, fabsf
from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef extern from *:
    """
    #if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    #define PB_FUSED 1
    static inline float pb_fma_f32(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
    #else
    #define PB_FUSED 0
    /* A product of two floats is exact in double. */
    static inline float pb_fma_f32(float x, float y, float z) { return (float)((double)x * y + z); }
    #endif
    /* x y + z as is fastest; spelled, so that every loop rounds alike. */
    #if PB_FUSED
    #define pb_add_product_f32 pb_fma_f32
    #define pb_add_product_f64 pb_fma_f64
    #else
    #define pb_add_product_f32(x, y, z) ((x) * (y) + (z))
    #define pb_add_product_f64(x, y, z) ((x) * (y) + (z))
    #endif
    /* x y + z: with one rounding, or without such an instruction nearly so where x y and z cancel;
       there Veltkamp's and Dekker's halves give what x y loses. */
    static inline double pb_fma_f64(double x, double y, double z)
    {
    #if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
        return __builtin_fma(x, y, z);
    #else
        double product = x * y, big_x = 134217729.0 * x, big_y = 134217729.0 * y;
        double high_x = big_x - (big_x - x), high_y = big_y - (big_y - y);
        double low_x = x - high_x, low_y = y - high_y;
        double rest = ((product - high_x * high_y) - low_x * high_y) - high_x * low_y;
        return (product + z) + (low_x * low_y - rest);
    #endif
    }
    #if defined(__SSE4_1__) || !defined(__x86_64__)
    static inline float pb_rint_f32(float x) { return __builtin_rintf(x); }
    static inline double pb_rint_f64(double x) { return __builtin_rint(x); }
    #else
    /* Adding 2**23 to a smaller number drops its fraction. */
    static inline float pb_rint_f32(float x)
    {
        float size = __builtin_fabsf(x), whole = (size + 0x1p23f) - 0x1p23f;
        return __builtin_copysignf(size < 0x1p23f ? whole : size, x);
    }
    static inline double pb_rint_f64(double x)
    {
        double size = __builtin_fabs(x), whole = (size + 0x1p52) - 0x1p52;
        return __builtin_copysign(size < 0x1p52 ? whole : size, x);
    }
    #endif
    """
    float fma_f32 "pb_fma_f32"(float x, float y, float z) noexcept nogil
    double fma_f64 "pb_fma_f64"(double x, double y, double z) noexcept nogil
    float add_product_f32 "pb_add_product_f32"(float x, float y, float z) noexcept nogil
    double add_product_f64 "pb_add_product_f64"(double x, double y, double z) noexcept nogil
    float rint_f32 "pb_rint_f32"(float x) noexcept nogil
    double rint_f64 "pb_rint_f64"(double x) noexcept nogil
    const bint FUSED "PB_FUSED"     # the processor has fma: what is not taken is not compiled
    const float INF32 "__builtin_inff()"
    const float NAN32 "__builtin_nanf(\"\")"
    const double INF64 "__builtin_inf()"
    const double NAN64 "__builtin_nan(\"\")"


cdef inline double double_of_bits(uint64_t bits) noexcept nogil:
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline uint64_t bits_of_double(double value) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return bits


# -- rounding to whole numbers --------------------------------------------------------------------

cdef inline float floor_f32(float x) noexcept nogil:
    cdef float whole = rint_f32(x), one = 1, zero = 0
    return copysignf(whole - (one if whole > x else zero), x)


cdef inline double floor_f64(double x) noexcept nogil:
    cdef double whole = rint_f64(x)
    return copysign(whole - (1. if whole > x else 0.), x)


cdef inline float ceil_f32(float x) noexcept nogil:
    return -floor_f32(-x)


cdef inline double ceil_f64(double x) noexcept nogil:
    return -floor_f64(-x)


cdef inline float trunc_f32(float x) noexcept nogil:
    return copysignf(floor_f32(fabsf(x)), x)


cdef inline double trunc_f64(double x) noexcept nogil:
    return copysign(floor_f64(fabs(x)), x)


# -- polynomials, lowest coefficient first --------------------------------------------------------

cdef inline float poly2_f32(float x, float c0, float c1) noexcept nogil:
    return c1 * x + c0


cdef inline float poly3_f32(float x, float c0, float c1, float c2) noexcept nogil:
    return (c2 * x + c1) * x + c0


cdef inline float poly4_f32(float x, float c0, float c1, float c2, float c3) noexcept nogil:
    return ((c3 * x + c2) * x + c1) * x + c0


cdef inline float poly5_f32(
        float x, float c0, float c1, float c2, float c3, float c4) noexcept nogil:
    return ((poly2_f32(x, c3, c4) * x + c2) * x + c1) * x + c0


cdef inline float poly6_f32(
        float x, float c0, float c1, float c2, float c3, float c4, float c5) noexcept nogil:
    return ((poly3_f32(x, c3, c4, c5) * x + c2) * x + c1) * x + c0


cdef inline float poly7_f32(
        float x, float c0, float c1, float c2, float c3, float c4, float c5,
        float c6) noexcept nogil:
    return ((poly4_f32(x, c3, c4, c5, c6) * x + c2) * x + c1) * x + c0


cdef inline float poly8_f32(
        float x, float c0, float c1, float c2, float c3, float c4, float c5, float c6,
        float c7) noexcept nogil:
    return ((poly5_f32(x, c3, c4, c5, c6, c7) * x + c2) * x + c1) * x + c0


cdef inline float poly9_f32(
        float x, float c0, float c1, float c2, float c3, float c4, float c5, float c6, float c7,
        float c8) noexcept nogil:
    return ((poly6_f32(x, c3, c4, c5, c6, c7, c8) * x + c2) * x + c1) * x + c0


cdef inline float poly10_f32(
        float x, float c0, float c1, float c2, float c3, float c4, float c5, float c6, float c7,
        float c8, float c9) noexcept nogil:
    return ((poly7_f32(x, c3, c4, c5, c6, c7, c8, c9) * x + c2) * x + c1) * x + c0


cdef inline double poly2_f64(double x, double c0, double c1) noexcept nogil:
    return c1 * x + c0


cdef inline double poly3_f64(double x, double c0, double c1, double c2) noexcept nogil:
    return (c2 * x + c1) * x + c0


cdef inline double poly4_f64(double x, double c0, double c1, double c2, double c3) noexcept nogil:
    return ((c3 * x + c2) * x + c1) * x + c0


cdef inline double poly5_f64(
        double x, double c0, double c1, double c2, double c3, double c4) noexcept nogil:
    return ((poly2_f64(x, c3, c4) * x + c2) * x + c1) * x + c0


cdef inline double poly6_f64(
        double x, double c0, double c1, double c2, double c3, double c4,
        double c5) noexcept nogil:
    return ((poly3_f64(x, c3, c4, c5) * x + c2) * x + c1) * x + c0


cdef inline double poly7_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5,
        double c6) noexcept nogil:
    return ((poly4_f64(x, c3, c4, c5, c6) * x + c2) * x + c1) * x + c0


cdef inline double poly8_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7) noexcept nogil:
    return ((poly5_f64(x, c3, c4, c5, c6, c7) * x + c2) * x + c1) * x + c0


cdef inline double poly9_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7, double c8) noexcept nogil:
    return ((poly6_f64(x, c3, c4, c5, c6, c7, c8) * x + c2) * x + c1) * x + c0


cdef inline double poly10_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7, double c8, double c9) noexcept nogil:
    return ((poly7_f64(x, c3, c4, c5, c6, c7, c8, c9) * x + c2) * x + c1) * x + c0


cdef inline double poly11_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7, double c8, double c9, double c10) noexcept nogil:
    return ((poly8_f64(x, c3, c4, c5, c6, c7, c8, c9, c10) * x + c2) * x + c1) * x + c0


cdef inline double poly12_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7, double c8, double c9, double c10, double c11) noexcept nogil:
    return ((poly9_f64(x, c3, c4, c5, c6, c7, c8, c9, c10, c11) * x + c2) * x + c1) * x + c0


cdef inline double poly14_f64(
        double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6,
        double c7, double c8, double c9, double c10, double c11, double c12,
        double c13) noexcept nogil:
    cdef double rest = poly11_f64(x, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13)
    return ((rest * x + c2) * x + c1) * x + c0

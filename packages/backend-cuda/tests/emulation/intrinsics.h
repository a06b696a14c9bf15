// CUDA's functions on bits, integers and floating-point numbers that C++ lacks.
#ifndef PULLBACK_EMULATION_INTRINSICS_H
#define PULLBACK_EMULATION_INTRINSICS_H

namespace emulation {
template <typename To, typename From> static inline To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "types of the same size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}
// As the hardware converts: what is out of range becomes the nearest integer, NaN becomes 0 (or
// the smallest integer, where the result has 64 bits).
template <typename To> static inline To rounded(double value) {
    if (value != value)
        return sizeof(To) == 8 ? static_cast<To>(1ull << 63) : 0;
    const bool is_signed = static_cast<To>(-1) < 0;
    const double top = ldexp(1.0, static_cast<int>(8 * sizeof(To)) - is_signed);
    if (value >= top)
        return static_cast<To>(is_signed ? ~0ull >> (65 - 8 * sizeof(To)) : ~0ull);
    if (value < (is_signed ? -top : 0.0))
        return is_signed ? static_cast<To>(1ull << (8 * sizeof(To) - 1)) : 0;
    return static_cast<To>(value);
}
// A number that the compiler knows nothing of: it is no product that a sum could be fused with.
template <typename T> static inline T apart(T value) {
#if defined(__x86_64__)
    asm("" : "+x"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#endif
    return value;
}
} // namespace emulation

// Bits and integers.
static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
static inline int __clz(int value) {
    return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
static inline int __clzll(long long value) {
    return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline int __ffsll(long long value) { return __builtin_ffsll(value); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return static_cast<int>(static_cast<long long>(a) * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
static inline unsigned long long __brevll(unsigned long long value) {
    unsigned long long result = 0;
    for (int i = 0; i < 64; i++)
        result |= (value >> i & 1) << (63 - i);
    return result;
}
static inline unsigned __brev(unsigned value) {
    return static_cast<unsigned>(__brevll(value) >> 32);
}
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned choice = selector >> 4 * i & 15;
        unsigned byte = static_cast<unsigned>(bytes >> 8 * (choice & 7)) & 255;
        if (choice & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

// The same bits as another type.
static inline int __float_as_int(float value) { return emulation::same_bits<int>(value); }
static inline unsigned __float_as_uint(float value) {
    return emulation::same_bits<unsigned>(value);
}
static inline float __int_as_float(int value) { return emulation::same_bits<float>(value); }
static inline float __uint_as_float(unsigned value) { return emulation::same_bits<float>(value); }
static inline long long __double_as_longlong(double value) {
    return emulation::same_bits<long long>(value);
}
static inline double __longlong_as_double(long long value) {
    return emulation::same_bits<double>(value);
}
static inline int __double2hiint(double value) {
    return static_cast<int>(__double_as_longlong(value) >> 32);
}
static inline int __double2loint(double value) {
    return static_cast<int>(__double_as_longlong(value));
}
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double(static_cast<long long>(
        static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
        static_cast<unsigned>(low)));
}

// Conversions to integers, rounded to nearest, to zero, up and down.
#define EMULATED_CONVERSION(From, from, To, to)                                                    \
    static inline To __##from##2##to##_rn(From v) { return emulation::rounded<To>(rint(v)); }      \
    static inline To __##from##2##to##_rz(From v) { return emulation::rounded<To>(trunc(v)); }     \
    static inline To __##from##2##to##_ru(From v) { return emulation::rounded<To>(ceil(v)); }      \
    static inline To __##from##2##to##_rd(From v) { return emulation::rounded<To>(floor(v)); }
EMULATED_CONVERSION(float, float, int, int)
EMULATED_CONVERSION(float, float, unsigned, uint)
EMULATED_CONVERSION(float, float, long long, ll)
EMULATED_CONVERSION(float, float, unsigned long long, ull)
EMULATED_CONVERSION(double, double, int, int)
EMULATED_CONVERSION(double, double, unsigned, uint)
EMULATED_CONVERSION(double, double, long long, ll)
EMULATED_CONVERSION(double, double, unsigned long long, ull)
#undef EMULATED_CONVERSION
static inline float __int2float_rn(int value) { return static_cast<float>(value); }
static inline float __uint2float_rn(unsigned value) { return static_cast<float>(value); }
static inline float __ll2float_rn(long long value) { return static_cast<float>(value); }
static inline float __ull2float_rn(unsigned long long value) { return static_cast<float>(value); }
static inline double __ll2double_rn(long long value) { return static_cast<double>(value); }
static inline double __ull2double_rn(unsigned long long v) { return static_cast<double>(v); }
static inline float __double2float_rn(double value) { return static_cast<float>(value); }

// Arithmetic that is never contracted into a multiplication with addition.
static inline float __fadd_rn(float a, float b) { return emulation::apart(a) + emulation::apart(b); }
static inline float __fsub_rn(float a, float b) { return emulation::apart(a) - emulation::apart(b); }
static inline float __fmul_rn(float a, float b) { return emulation::apart(a * b); }
static inline float __fdiv_rn(float a, float b) { return emulation::apart(a / b); }
static inline float __frcp_rn(float a) { return emulation::apart(1 / a); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return emulation::apart(a) + emulation::apart(b); }
static inline double __dsub_rn(double a, double b) { return emulation::apart(a) - emulation::apart(b); }
static inline double __dmul_rn(double a, double b) { return emulation::apart(a * b); }
static inline double __ddiv_rn(double a, double b) { return emulation::apart(a / b); }
static inline double __drcp_rn(double a) { return emulation::apart(1 / a); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Mathematics that C lacks, and the fast forms.
static inline float rsqrtf(float a) { return 1 / sqrtf(a); }
static inline double rsqrt(double a) { return 1 / sqrt(a); }
static inline float rsqrt(float a) { return rsqrtf(a); }
static inline float __frsqrt_rn(float a) { return static_cast<float>(1 / sqrt(double(a))); }
// Macros, since the C library declares these names.
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float a) { return a > 0 ? a < 1 ? a : 1 : 0; }

// Smaller and larger, for the pairs of types that CUDA has: NaN gives way to a number.
#define EMULATED_EXTREMES(A, B, Result)                                                            \
    static inline Result min(A a, B b) {                                                           \
        return static_cast<Result>(a) < static_cast<Result>(b) ? static_cast<Result>(a)            \
                                                               : static_cast<Result>(b);           \
    }                                                                                              \
    static inline Result max(A a, B b) {                                                           \
        return static_cast<Result>(a) > static_cast<Result>(b) ? static_cast<Result>(a)            \
                                                               : static_cast<Result>(b);           \
    }
EMULATED_EXTREMES(int, int, int)
EMULATED_EXTREMES(unsigned, unsigned, unsigned)
EMULATED_EXTREMES(int, unsigned, unsigned)
EMULATED_EXTREMES(unsigned, int, unsigned)
EMULATED_EXTREMES(long, long, long)
EMULATED_EXTREMES(unsigned long, unsigned long, unsigned long)
EMULATED_EXTREMES(long, unsigned long, unsigned long)
EMULATED_EXTREMES(unsigned long, long, unsigned long)
EMULATED_EXTREMES(long long, long long, long long)
EMULATED_EXTREMES(unsigned long long, unsigned long long, unsigned long long)
EMULATED_EXTREMES(long long, unsigned long long, unsigned long long)
EMULATED_EXTREMES(unsigned long long, long long, unsigned long long)
#undef EMULATED_EXTREMES
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }

// Loads and stores with a hint for the caches.
template <typename T> static inline T __ldg(const T *from) { return *from; }
template <typename T> static inline T __ldcg(const T *from) { return *from; }
template <typename T> static inline T __ldca(const T *from) { return *from; }
template <typename T> static inline T __ldcs(const T *from) { return *from; }
template <typename T> static inline T __ldlu(const T *from) { return *from; }
template <typename T> static inline T __ldcv(const T *from) { return *from; }
template <typename T> static inline void __stwb(T *to, T value) { *to = value; }
template <typename T> static inline void __stcg(T *to, T value) { *to = value; }
template <typename T> static inline void __stcs(T *to, T value) { *to = value; }
template <typename T> static inline void __stwt(T *to, T value) { *to = value; }

#define __builtin_assume(condition) ((void)0)
static inline long long clock64() { return 0; }
[[noreturn]] static inline void __trap() { emulation::fail("__trap"); }

#endif

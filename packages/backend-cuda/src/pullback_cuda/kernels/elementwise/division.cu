// Elementwise kernels of two inputs: divisions with a rest, powers and shifts of integers.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

// ---- integers. Everything wraps around; nothing here traps. ------------------------------------

template <class I>
struct unsigned_of;
template <>
struct unsigned_of<int32_t> {
    typedef uint32_t type;
};
template <>
struct unsigned_of<int64_t> {
    typedef uint64_t type;
};

// A division by zero is reported to the host; the element does not matter then.
template <class I>
DEVICE bool divides(const elementwise_arguments &args, I y) {
    if (y == 0)
        report(args.failure, FAILURE_ZERO_DIVISOR, PB_E_RUNTIME, 0, 0);
    return y != 0;
}

template <class I>
OUT_OF_LINE I rest_of(I x, I y) {
    return y == -1 ? 0 : x % y;
}

template <class I>
DEVICE I fmod_of(const elementwise_arguments &args, I x, I y) {
    return divides(args, y) ? rest_of(x, y) : 0;
}

template <class I>
DEVICE I remainder_of(const elementwise_arguments &args, I x, I y) {
    I rest = fmod_of(args, x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

template <class I>
OUT_OF_LINE I quotient_of(I x, I y) {
    typedef typename unsigned_of<I>::type U;
    if (y == -1)
        return (I)((U)0 - (U)x);
    I quotient = x / y;
    return quotient - (quotient * y != x && (x < 0) != (y < 0));
}

template <class I>
DEVICE I floor_divide_of(const elementwise_arguments &args, I x, I y) {
    return divides(args, y) ? quotient_of(x, y) : 0;
}

template <class I>
OUT_OF_LINE I gcd_of(I x, I y) {
    // Euclid's algorithm, unsigned so that the smallest integer has an absolute value.
    typedef typename unsigned_of<I>::type U;
    U a = x < 0 ? (U)0 - (U)x : (U)x, b = y < 0 ? (U)0 - (U)y : (U)y;
    while (b) {
        U rest = a % b;
        a = b;
        b = rest;
    }
    return (I)a;
}

template <class I>
OUT_OF_LINE I power_of(I base, I exponent) {
    typedef typename unsigned_of<I>::type U;
    U result = 1, square = (U)base;
    if (exponent < 0) {
        if (base == 1)
            return 1;
        return base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    }
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result *= square;
        square *= square;
    }
    return (I)result;
}

// `option` is how many bits the type has. A shift by all of them or more leaves the sign.
template <class I>
DEVICE I left_shift_of(const elementwise_arguments &args, I x, I count) {
    typedef typename unsigned_of<I>::type U;
    return (U)count >= (U)args.option ? 0 : (I)((U)x << count);
}

template <class I>
DEVICE I right_shift_of(const elementwise_arguments &args, I x, I count) {
    typedef typename unsigned_of<I>::type U;
    return x >> ((U)count >= (U)args.option ? (I)(8 * sizeof(I) - 1) : count);
}

#define INTEGERS(name, value) \
    BINARY(name##_int, ints, value) \
    BINARY(name##_long, longs, value)

INTEGERS(floor_divide, floor_divide_of(args, x, y))
INTEGERS(fmod, fmod_of(args, x, y))
INTEGERS(remainder, remainder_of(args, x, y))
INTEGERS(gcd, gcd_of(x, y))
INTEGERS(pow, power_of(x, y))
INTEGERS(lshift, left_shift_of(args, x, y))
INTEGERS(rshift, right_shift_of(args, x, y))

// ---- real numbers ------------------------------------------------------------------------------

DEVICE float rest_of(float x, float y) { return fmodf(x, y); }
DEVICE double rest_of(double x, double y) { return fmod(x, y); }

template <class R>
OUT_OF_LINE R real_remainder(R x, R y) {
    R rest = rest_of(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

template <class R>
OUT_OF_LINE R real_floor_divide(R x, R y) {
    // From the remainder, so that it agrees with it where x / y rounds up to a whole number.
    if (y == 0)
        return x / y;
    R rest = rest_of(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign((R)0, x / y);
    R whole = floor(quotient);
    return quotient - whole > (R)0.5 ? whole + 1 : whole;
}

OUT_OF_LINE float real_fmod(float x, float y) { return fmodf(x, y); }
OUT_OF_LINE double real_fmod(double x, double y) { return fmod(x, y); }

#define FLOATING(name, value) \
    BINARY(name##_float, floats, value) \
    BINARY(name##_double, doubles, value)

FLOATING(floor_divide, real_floor_divide(x, y))
FLOATING(fmod, real_fmod(x, y))
FLOATING(remainder, real_remainder(x, y))

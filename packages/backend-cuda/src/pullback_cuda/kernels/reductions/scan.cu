// cumsum, cumprod and logcumsumexp. Floating-point numbers are added and multiplied in double.
#include "kernels/common/dtypes.cuh"
#include "kernels/reductions/scan.cuh"

// Base of operators that write no indices.
struct without_indices {
    static constexpr bool HAS_INDICES = false;
};

// The type that elements are widened to. Integers wrap around, signed or not.
template <class T>
struct wide_type {
    typedef double type;
};
template <>
struct wide_type<uint8_t> {
    typedef uint32_t type;
};
template <>
struct wide_type<uint16_t> {
    typedef uint32_t type;
};
template <>
struct wide_type<uint32_t> {
    typedef uint32_t type;
};
template <>
struct wide_type<uint64_t> {
    typedef uint64_t type;
};
template <class R>
struct wide_type<complex<R>> {
    typedef complex<double> type;
};

template <class T>
DEVICE typename wide_type<T>::type widened(T element) {
    return widen(element);
}
template <class R>
DEVICE complex<double> widened(complex<R> element) {
    return widen_complex(element);
}

// From there to an element again.
template <class T>
DEVICE T narrowed(double value) {
    return convert<T>(value);
}
template <class T>
DEVICE T narrowed(complex<double> value) {
    return convert<T>(value);
}
template <class T>
DEVICE T narrowed(uint32_t value) {
    return (T)value;
}
template <class T>
DEVICE T narrowed(uint64_t value) {
    return (T)value;
}

// ---- sums and products -------------------------------------------------------------------------

template <class T>
struct cumulative_sum : without_indices {
    typedef T stored;
    typedef typename wide_type<T>::type accumulator;
    static DEVICE accumulator identity() { return accumulator{}; }
    static DEVICE accumulator read(T element, int64_t, const pb_scan &) { return widened(element); }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) { return x + y; }
    static DEVICE T result(const accumulator &sum, const pb_scan &) { return narrowed<T>(sum); }
};

// The sum of a range of doubles may overflow though no cumulative sum does: so the sum of the
// scaled numbers is kept too, and used there.
template <class T>
struct guarded {
    T value;
    T scaled;
};

DEVICE double pick(const guarded<double> &sum) {
    return sum.value - sum.value == 0 ? sum.value : sum.scaled * 0x1p64;
}
DEVICE complex<double> pick(const guarded<complex<double>> &sum) {
    return {pick(guarded<double>{sum.value.real, sum.scaled.real}),
            pick(guarded<double>{sum.value.imag, sum.scaled.imag})};
}

template <class T>
struct guarded_sum : without_indices {
    typedef T stored;
    typedef guarded<T> accumulator;
    static DEVICE accumulator identity() { return {T{}, T{}}; }
    static DEVICE accumulator read(T element, int64_t, const pb_scan &) {
        return {element, element * 0x1p-64};
    }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) {
        return {x.value + y.value, x.scaled + y.scaled};
    }
    static DEVICE T result(const accumulator &sum, const pb_scan &) { return pick(sum); }
};
template <>
struct cumulative_sum<double> : guarded_sum<double> {};
template <>
struct cumulative_sum<complex<double>> : guarded_sum<complex<double>> {};

template <class T>
struct direct_product : without_indices {
    typedef T stored;
    typedef typename wide_type<T>::type accumulator;
    static DEVICE accumulator identity() { return accumulator{1}; }
    static DEVICE accumulator read(T element, int64_t, const pb_scan &) { return widened(element); }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) { return x * y; }
    static DEVICE T result(const accumulator &product, const pb_scan &) {
        return narrowed<T>(product);
    }
};

// The product of a range may overflow though the product before it is 0 already and stays 0. So a
// product also records whether a number is infinite or NaN, or 0.
struct product_of_range {
    double value;
    int32_t has_nonfinite;
    int32_t has_zero;
};

template <class T>
struct cumulative_product : without_indices {
    typedef T stored;
    typedef product_of_range accumulator;
    static DEVICE accumulator identity() { return {1, 0, 0}; }
    static DEVICE accumulator read(T element, int64_t, const pb_scan &) {
        double x = widen(element);
        return {x, x - x != 0, x == 0};
    }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) {
        accumulator found = {x.value * y.value, x.has_nonfinite | y.has_nonfinite,
                             x.has_zero | y.has_zero};
        if (found.value != found.value && !found.has_nonfinite && (x.value == 0 || !y.has_zero))
            found.value = x.value * copysign(1.0, y.value);
        return found;
    }
    static DEVICE T result(const accumulator &product, const pb_scan &) {
        return convert<T>(product.value);
    }
};

// ---- logarithms of sums of exponentials --------------------------------------------------------

DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }
DEVICE float logarithm_of(double x, float) { return logf((float)x); }
DEVICE double logarithm_of(double x, double) { return log(x); }

// The sum of exp(x - peak), where the peak is the largest x. NaN stays in the sum.
template <class R>
struct exponentials {
    double sum;
    R peak;
};

template <class T>
struct cumulative_logsumexp : without_indices {
    typedef T stored;
    typedef typename traits<T>::compute value;
    typedef exponentials<value> accumulator;
    static DEVICE accumulator identity() { return {0, traits<value>::lowest()}; }
    static DEVICE accumulator read(T element, int64_t, const pb_scan &) {
        return {1, widen(element)};
    }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) {
        if (x.peak == y.peak) // infinities too
            return {x.sum + y.sum, x.peak};
        if (y.peak <= x.peak)
            return {x.sum + y.sum * exponential(y.peak - x.peak), x.peak};
        return {x.sum * exponential(x.peak - y.peak) + y.sum, y.peak};
    }
    static DEVICE T result(const accumulator &found, const pb_scan &) {
        return narrow<T>(found.peak + logarithm_of(found.sum, found.peak));
    }
};

// ---- kernels -----------------------------------------------------------------------------------

#define SCANS(name, Op) \
    BUSY_KERNEL(name, pb_scan, 3) { scan<Op>(args); }

#define CUMULATIVE_DIRECT(name, T) \
    SCANS(cumsum_##name, cumulative_sum<T>) \
    SCANS(cumprod_##name, direct_product<T>)
CUMULATIVE_DIRECT(1, uint8_t)
CUMULATIVE_DIRECT(2, uint16_t)
CUMULATIVE_DIRECT(4, uint32_t)
CUMULATIVE_DIRECT(8, uint64_t)
FOR_COMPLEX(CUMULATIVE_DIRECT)

#define CUMULATIVE(name, T) \
    SCANS(cumsum_##name, cumulative_sum<T>) \
    SCANS(cumprod_##name, cumulative_product<T>) \
    SCANS(logcumsumexp_##name, cumulative_logsumexp<T>)
FOR_FLOATING(CUMULATIVE)

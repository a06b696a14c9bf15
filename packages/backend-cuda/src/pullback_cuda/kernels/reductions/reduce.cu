// Sums, products, counts, and moments.
//
// Four elements give one partial result in their own precision; partial results and the results of
// threads are added in double.
#include "kernels/common/dtypes.cuh"
#include "kernels/reductions/moments.cuh"
#include "kernels/common/reduction_driver.cuh"

// Base of operators whose locals are their accumulators.
template <class Accumulator>
struct plain {
    typedef Accumulator local;
    typedef Accumulator accumulator;
    static DEVICE accumulator close(const local &found, uint32_t, int64_t, int64_t) {
        return found;
    }
};

// ---- sums --------------------------------------------------------------------------------------

// The types in which elements of T are added.
template <class T>
struct sum_types {
    typedef typename traits<T>::compute value;
    typedef double wide;
};
template <>
struct sum_types<int64_t> {
    typedef uint64_t value; // wraps around
    typedef uint64_t wide;
};
template <class R>
struct sum_types<complex<R>> {
    typedef complex<R> value;
    typedef complex<double> wide;
};

template <class R>
DEVICE R as_sum(R value) {
    return value;
}
DEVICE double as_sum(float value) { return value; }
DEVICE complex<double> as_sum(complex<float> value) { return widen_complex(value); }

template <class T>
struct sum_of : plain<typename sum_types<T>::wide> {
    typedef T stored;
    typedef typename sum_types<T>::value value;
    typedef typename sum_types<T>::wide wide;
    static DEVICE wide start() { return wide{}; }
    static DEVICE wide identity() { return wide{}; }
    static DEVICE wide merge(wide x, wide y) { return x + y; }
    static DEVICE value read(T element, const pb_reduction &) { return widen(element); }
    template <int N>
    static DEVICE void take(wide &sum, const value (&values)[N], uint32_t) {
        sum = sum + as_sum(add_in_pairs(values));
    }
    static DEVICE void finish(const pb_reduction &args, wide sum, int64_t offset) {
        static_cast<T *>(args.out)[offset] = convert<T>(sum);
    }
};
template <>
DEVICE void sum_of<int64_t>::finish(const pb_reduction &args, uint64_t sum, int64_t offset) {
    static_cast<uint64_t *>(args.out)[offset] = sum;
}

// The sum of the elements that are not NaN, or of the squares of all.
template <class T>
struct special_sum_of : sum_of<T> {
    typedef typename sum_of<T>::value value;
    static DEVICE value read(T element, const pb_reduction &args) {
        value x = widen(element);
        return args.squares ? x * x : x == x ? x : (value)0;
    }
};

// ---- products ----------------------------------------------------------------------------------

template <class T>
struct product_types {
    typedef typename traits<T>::compute value;
};
template <>
struct product_types<int64_t> {
    typedef uint64_t value;
};

template <class T>
struct product_of : plain<typename product_types<T>::value> {
    typedef T stored;
    typedef typename product_types<T>::value value;
    static DEVICE value start() {
        if constexpr (traits<T>::is_complex)
            return value{1, 0};
        else
            return 1;
    }
    static DEVICE value identity() { return start(); }
    static DEVICE value merge(value x, value y) { return x * y; }
    static DEVICE value read(T element, const pb_reduction &) { return widen(element); }
    template <int N>
    static DEVICE void take(value &product, const value (&values)[N], uint32_t) {
#pragma unroll
        for (int i = 0; i < N; i++)
            product = product * values[i];
    }
    static DEVICE void finish(const pb_reduction &args, value product, int64_t offset) {
        if constexpr (traits<T>::is_integer)
            static_cast<value *>(args.out)[offset] = product;
        else
            store(static_cast<T *>(args.out) + offset, product);
    }
};

// ---- elements that are not 0 -------------------------------------------------------------------

// Elements by their size: of floating-point numbers without the sign bit.
// A thread has less than 2^31 of them.
template <class Bits>
struct nonzeros_of {
    typedef Bits stored;
    typedef uint32_t value;
    typedef uint32_t local;
    typedef int64_t accumulator;
    static DEVICE local start() { return 0; }
    static DEVICE accumulator identity() { return 0; }
    static DEVICE accumulator merge(accumulator x, accumulator y) { return x + y; }
    static DEVICE value read(Bits element, const pb_reduction &args) {
        return (element & (Bits)args.mask) != 0;
    }
    template <int N>
    static DEVICE void take(local &count, const value (&values)[N], uint32_t) {
        count += add_in_pairs(values);
    }
    static DEVICE accumulator close(local count, uint32_t, int64_t, int64_t) { return count; }
    static DEVICE void finish(const pb_reduction &args, accumulator count, int64_t offset) {
        if (args.truth == TRUTH_COUNT)
            static_cast<int64_t *>(args.out)[offset] = count;
        else
            static_cast<bool *>(args.out)[offset] =
                args.truth == TRUTH_ANY ? count != 0 : count == args.total;
    }
};

struct alignas(16) two_words {
    uint64_t of[2];
};
template <>
DEVICE uint32_t nonzeros_of<two_words>::read(two_words element, const pb_reduction &args) {
    return ((element.of[0] | element.of[1]) & args.mask) != 0;
}

// ---- mean and squared differences from it ------------------------------------------------------

// The means of parts less the first of these, the pivot, so that their squares keep their digits.
struct moments_of_parts {
    double pivot;
    double shifted;         // the sum of these differences, times the elements of their parts
    double shifted_squares; // likewise of their squares
    double squares;         // differences within parts
    double sum;
};

template <class T>
struct moments_of {
    typedef T stored;
    typedef T value;
    typedef moments_of_parts local;
    typedef moments accumulator;
    static DEVICE local start() { return {0, 0, 0, 0, 0}; }
    static DEVICE accumulator identity() { return {0, 0, 0}; }
    static DEVICE accumulator merge(const accumulator &x, const accumulator &y) {
        return merge_moments(x, y);
    }
    static DEVICE value read(T element, const pb_reduction &) { return element; }
    template <int N>
    static DEVICE void take(local &s, const value (&values)[N], uint32_t number) {
        // Differences from a rounded mean, corrected by their sum.
        T sum = add_in_pairs(values), mean = sum / N, off[N], off_squares[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            off[i] = values[i] - mean;
            off_squares[i] = off[i] * off[i];
        }
        double off_sum = add_in_pairs(off);
        if (number == 0)
            s.pivot = mean;
        double gap = (mean - s.pivot) + off_sum / N;
        s.shifted += gap * N;
        s.shifted_squares += gap * gap * N;
        s.squares += add_in_pairs(off_squares) - off_sum * off_sum / N;
        double exact = (double)mean * N + off_sum;
        s.sum += exact == exact ? exact : sum; // an infinite sum stays infinite
    }
    static DEVICE accumulator close(const local &s, uint32_t count, int64_t, int64_t) {
        if (count == 0)
            return identity();
        return {(double)count, s.sum,
                s.squares + (s.shifted_squares - s.shifted * s.shifted / count)};
    }
    static DEVICE void finish(const pb_reduction &args, const accumulator &s, int64_t offset) {
        static_cast<T *>(args.out)[offset] = (T)(s.sum / s.count);
        static_cast<T *>(args.second)[offset] = (T)s.squares;
    }
};

// ---- kernels -----------------------------------------------------------------------------------

#define REDUCES(name, Op) \
    BUSY_KERNEL(name, pb_reduction, 3) { reduce<Op>(args); }

#define SUMS(name, T) \
    REDUCES(sum_##name, sum_of<T>) \
    REDUCES(prod_##name, product_of<T>)
SUMS(i64, int64_t)
FOR_FLOATING(SUMS)
FOR_COMPLEX(SUMS)

#define SPECIAL_SUMS(name, T) REDUCES(special_sum_##name, special_sum_of<T>)
FOR_FLOATING(SPECIAL_SUMS)

REDUCES(moments_f32, moments_of<float>)
REDUCES(moments_f64, moments_of<double>)

REDUCES(nonzeros_1, nonzeros_of<uint8_t>)
REDUCES(nonzeros_2, nonzeros_of<uint16_t>)
REDUCES(nonzeros_4, nonzeros_of<uint32_t>)
REDUCES(nonzeros_8, nonzeros_of<uint64_t>)
REDUCES(nonzeros_16, nonzeros_of<two_words>)

// softmax, log_softmax, logsumexp and their derivatives, line by line. Half-precision numbers are
// computed with in float; sums are kept in double.
#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/register_tile.cuh"
#include "kernels/common/group.cuh"
#include "kernels/nn/softmax.h"

DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }

// ---- forward -----------------------------------------------------------------------------------

// The sum of exp(x - peak), where the peak is the largest x; one that is infinite counts as 0.
template <class R>
struct exponentials {
    double sum;
    R peak;
};

template <class R>
DEVICE R shift_of(R peak) {
    return peak - peak == 0 ? peak : 0;
}

// The factor that turns a sum for one peak into one for another peak, which is not smaller.
template <class R>
DEVICE R factor_of(R peak, R larger) {
    return peak == larger ? 1 : exponential(peak - larger);
}

template <class T>
struct forward_lines {
    typedef T stored;
    typedef typename traits<T>::compute value;
    typedef exponentials<value> found;
    static constexpr int INPUTS = 1;
    static constexpr int ITEMS = register_tile<T>::items;
    static DEVICE value nothing() { return traits<T>::lowest(); }
    static DEVICE found start() { return {0, nothing()}; }
    static DEVICE void take(found &s, const value (&items)[INPUTS][ITEMS], int) {
        value peak = s.peak, powers[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            peak = items[0][i] > peak ? items[0][i] : peak;
        const value shift = shift_of(peak);
        // Peaks are counted, so that small powers keep their digits, which are those of the
        // logarithm where the sum is hardly more than 1.
        int peaks = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const bool is_peak = items[0][i] == peak;
            peaks += is_peak;
            powers[i] = is_peak ? 0 : exponential(items[0][i] - shift);
        }
        s.sum = s.sum * factor_of(s.peak, peak) + add_in_pairs(powers);
        if (peak == shift)
            s.sum += peaks;
        else if (peaks != 0 && peak > 0)
            s.sum += INFINITY;
        s.peak = peak;
    }
    static DEVICE found merge(const found &x, const found &y) {
        const value peak = y.peak > x.peak ? y.peak : x.peak;
        return {x.sum * factor_of(x.peak, peak) + y.sum * factor_of(y.peak, peak), peak};
    }
    static DEVICE found join(const thread_groups &threads, const found &own) {
        const value peak = group_reduce(threads, own.peak, larger_of());
        const double sum = own.sum * factor_of(own.peak, peak);
        return {group_reduce(threads, sum, sum_of_both()), peak};
    }
    static DEVICE bool gives_one(const pb_softmax &args, const found &s, T *out) {
        if (args.result != RESULT_LOGSUMEXP)
            return false;
        *out = narrow<T>((value)(shift_of(s.peak) + log(s.sum)));
        return true;
    }
    // The value that writing needs: NaN for a line with +infinity.
    static DEVICE value prepare(const found &s, int result) {
        const double sum = s.peak > 0 && shift_of(s.peak) != s.peak ? NAN : s.sum;
        return (value)(result == RESULT_SOFTMAX ? 1 / sum : log(sum));
    }
    static DEVICE void write(const found &s, value prepared, int result,
                             value (&items)[INPUTS][ITEMS]) {
        if (result == RESULT_SOFTMAX) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                items[0][i] = exponential(items[0][i] - s.peak) * prepared;
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                items[0][i] = items[0][i] - s.peak - prepared;
        }
    }
};

// ---- backward ----------------------------------------------------------------------------------

// Inputs: the gradient, and the result of the forward pass.
template <class T>
struct backward_lines {
    typedef T stored;
    typedef typename traits<T>::compute value;
    typedef double found;
    static constexpr int INPUTS = 2;
    static constexpr int ITEMS = register_tile<T>::items;
    static DEVICE value nothing() { return 0; }
    static DEVICE found start() { return 0; }
    static DEVICE void take(found &sum, const value (&items)[INPUTS][ITEMS], int result) {
        value terms[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            terms[i] = result == RESULT_SOFTMAX ? items[0][i] * items[1][i] : items[0][i];
        sum += add_in_pairs(terms);
    }
    static DEVICE found merge(found x, found y) { return x + y; }
    static DEVICE found join(const thread_groups &threads, found own) {
        return group_reduce(threads, own, sum_of_both());
    }
    static DEVICE bool gives_one(const pb_softmax &, found, T *) { return false; }
    static DEVICE value prepare(found sum, int) { return (value)sum; }
    static DEVICE void write(found, value sum, int result, value (&items)[INPUTS][ITEMS]) {
        if (result == RESULT_SOFTMAX) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                items[0][i] = items[1][i] * (items[0][i] - sum);
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                items[0][i] = exponential(items[1][i]) * -sum + items[0][i];
        }
    }
};

// ---- lines -------------------------------------------------------------------------------------

template <class Op>
DEVICE void load_inputs(const pb_softmax &args, const offsets<3> &at, int64_t first,
                        line_part &part, typename Op::value (&items)[Op::INPUTS][Op::ITEMS]) {
#pragma unroll
    for (int k = 0; k < Op::INPUTS; k++) {
        part.stride = args.strides[k + 1];
        load_tile<Op::ITEMS>(static_cast<const typename Op::stored *>(args.data[k + 1]) +
                                 at.of[k + 1] + first * part.stride,
                             part, items[k], Op::nothing());
    }
}

template <class Op>
DEVICE void run_lines(const pb_softmax &args) {
    typedef typename Op::stored stored;
    typedef typename Op::value value;
    typedef typename Op::found found;
    const thread_groups threads = {args.thread_bits, args.group_bits, args.strided != 0};
    const int64_t line = ((int64_t)blockIdx.x << args.group_bits) + threads.group();
    const bool exists = line < args.lines;
    const offsets<3> at = locate<3>(args.line, args.ndim, exists ? (uint32_t)line : 0);
    const int64_t start = blockIdx.y * args.chunk, step = (int64_t)Op::ITEMS << args.thread_bits;
    int64_t end = blockIdx.y + 1 == gridDim.y ? args.length : start + args.chunk;
    end = exists ? end : start; // a thread without a line has no elements
    line_part part = {threads.rank(), 1 << args.thread_bits, 0, 0, args.vectorized != 0};
    found *partial = static_cast<found *>(args.partial) + line;
    const bool finds = args.phase != LINES_WRITE;
    found s = Op::start();
    if (!finds) {
#pragma unroll 1
        for (int64_t chunk = part.rank; exists && chunk < args.chunks; chunk += part.group_size)
            s = Op::merge(s, partial[chunk * args.lines]);
    }
    value items[Op::INPUTS][Op::ITEMS], prepared = 0;
    // The first pass over the elements finds what writing needs, the second writes.
#pragma unroll 1
    for (int pass = finds ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) {
            s = Op::join(threads, s);
            if (!exists)
                return;
            if (args.phase == LINES_FIND) {
                if (part.rank == 0)
                    partial[blockIdx.y * args.lines] = s;
                return;
            }
            stored one;
            if (Op::gives_one(args, s, &one)) {
                if (part.rank == 0)
                    static_cast<stored *>(args.data[0])[at.of[0]] = one;
                return;
            }
            prepared = Op::prepare(s, args.result);
        }
#pragma unroll 1
        for (int64_t first = start; first < end; first += step) {
            part.left = (int)(end - first < INT32_MAX ? end - first : INT32_MAX);
            if (pass == 0 || !finds || end - start > step)
                load_inputs<Op>(args, at, first, part, items);
            if (pass == 0) {
                Op::take(s, items, args.result);
                continue;
            }
            Op::write(s, prepared, args.result, items);
            part.stride = args.strides[0];
            store_tile<Op::ITEMS>(static_cast<stored *>(args.data[0]) + at.of[0] +
                                      first * part.stride,
                                  part, items[0]);
        }
    }
}

// ---- kernels -----------------------------------------------------------------------------------

#define SOFTMAX(name, T) \
    BUSY_KERNEL(softmax_##name, pb_softmax, sizeof(T) < 8 ? 4 : 3) { \
        run_lines<forward_lines<T>>(args); \
    } \
    BUSY_KERNEL(softmax_backward_##name, pb_softmax, sizeof(T) < 8 ? 3 : 2) { \
        run_lines<backward_lines<T>>(args); \
    }
FOR_FLOATING(SOFTMAX)

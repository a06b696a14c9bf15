// Max pooling with indices, average pooling, and the backward pass of average pooling, which sums
// for each element its shares of the windows that contain it.
#include "kernels/common/dtypes.cuh"
#include "kernels/strides/indexer.cuh"
#include "kernels/nn/pooling.h"

#define WHOLE_WARP 0xffffffffu

// The elements of a window, or the windows of an element, by dim.
struct window_range {
    int64_t first[WINDOW_RANK], last[WINDOW_RANK];
};

DEVICE int64_t above(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The elements of a window inside the dim, perhaps none.
DEVICE void range_of(const window_side &side, int64_t number, int64_t &first, int64_t &last) {
    if (side.kernel == 0) {
        first = number * side.size / side.count;
        last = above((number + 1) * side.size, side.count);
    } else {
        first = number * side.stride - side.padding;
        last = first + (side.kernel - 1) * side.dilation + 1;
        last = last < side.size ? last : side.size;
        if (first < 0)
            first += above(-first, side.dilation) * side.dilation;
    }
    if (first >= last)
        first = last = 0;
}

// The windows, with dilation 1, that contain an element.
DEVICE void windows_of(const window_side &side, int64_t index, int64_t &first, int64_t &last) {
    if (side.kernel == 0) {
        first = index * side.count / side.size;
        last = above((index + 1) * side.count, side.size);
    } else {
        const int64_t end = index + side.padding, begin = end - side.kernel + 1;
        first = begin > 0 ? above(begin, side.stride) : 0;
        last = end / side.stride + 1;
    }
    last = last < side.count ? last : side.count;
}

// How many elements a window counts along one dim.
DEVICE double share_of(const pooling_arguments &args, int k, int64_t number) {
    const window_side &side = args.sides[k];
    int64_t first, last;
    if (args.padded && side.kernel) {
        first = number * side.stride - side.padding;
        last = first + side.kernel;
        last = last < side.size + side.padding ? last : side.size + side.padding;
    } else {
        range_of(side, number, first, last);
    }
    return (double)(last - first);
}

// The divisor of a window, given the elements that it counts along the first two dims.
template <class T>
DEVICE T divisor_of(const pooling_arguments &args, double share, int64_t number) {
    return (T)(args.divisor != 0 ? args.divisor : share * share_of(args, 2, number));
}

// Find the plane and the coordinates of an element or a window.
DEVICE int64_t find_coordinates(const pooling_arguments &args, int64_t number,
                                int64_t (&at)[WINDOW_RANK]) {
    int64_t rest = number;
#pragma unroll
    for (int k = WINDOW_RANK - 1; k >= 0; k--) {
        const int64_t next = quotient(rest, args.where.dims[k + 1], args.where.narrow);
        at[k] = rest - next * args.where.dims[k + 1].size;
        rest = next;
    }
    return rest;
}

// Call `take(index)` for the elements of a window inside the plane: all of them, or those of
// this thread where a warp shares them.
template <class Take>
DEVICE void walk_window(const pooling_arguments &args, const window_range &range, bool all,
                        Take take) {
    const window_side *const s = args.sides;
    if (all) {
        for (int64_t i = range.first[0]; i < range.last[0]; i += s[0].dilation)
            for (int64_t j = range.first[1]; j < range.last[1]; j += s[1].dilation) {
                const int64_t line = (i * s[1].size + j) * s[2].size;
                for (int64_t k = range.first[2]; k < range.last[2]; k += s[2].dilation)
                    take(line + k);
            }
        return;
    }
    int64_t count[WINDOW_RANK];
#pragma unroll
    for (int k = 0; k < WINDOW_RANK; k++)
        count[k] = above(range.last[k] - range.first[k], s[k].dilation);
    for (int64_t i = threadIdx.x % 32; i < count[0] * count[1] * count[2]; i += 32) {
        const int64_t line = i / count[2], row = line / count[1];
        const int64_t x = range.first[0] + row * s[0].dilation;
        const int64_t y = range.first[1] + (line - row * count[1]) * s[1].dilation;
        take((x * s[1].size + y) * s[2].size + range.first[2] +
             (i - line * count[2]) * s[2].dilation);
    }
}

// ---- the largest element -----------------------------------------------------------------------

template <class T>
struct largest {
    T value;
    int64_t index; // -1: there is none yet

    // Whether another element, which does not come before this one, replaces it.
    DEVICE bool yields_to(T other) const { return other > value || other != other; }
};

template <class T>
DEVICE void find_largest(const pooling_arguments &args) {
    const T *const source = static_cast<const T *>(args.source);
    const int threads = args.large ? 32 : 1;
    for (int64_t number = thread_number() / threads; number < args.where.total;
         number += thread_count() / threads) {
        int64_t at[WINDOW_RANK];
        window_range range;
        const T *const plane = source + find_coordinates(args, number, at) * args.plane;
#pragma unroll
        for (int k = 0; k < WINDOW_RANK; k++)
            range_of(args.sides[k], at[k], range.first[k], range.last[k]);
        largest<T> best = {(T)-INFINITY, -1};
        walk_window(args, range, !args.large, [&](int64_t index) {
            const T value = plane[index];
            if (best.yields_to(value))
                best = {value, index};
        });
        for (int step = args.large ? 16 : 0; step > 0; step /= 2) {
            const largest<T> other = {
                __shfl_xor_sync(WHOLE_WARP, best.value, step),
                (int64_t)__shfl_xor_sync(WHOLE_WARP, (long long)best.index, step)};
            const bool is_later = other.index > best.index;
            if (other.index >= 0 && (is_later ? best.index < 0 || best.yields_to(other.value)
                                              : !other.yields_to(best.value)))
                best = other;
        }
        if (args.large && threadIdx.x % 32 != 0)
            continue;
        static_cast<T *>(args.out)[number] = best.value;
        args.indices[number] =
            best.index >= 0
                ? best.index
                : (range.first[0] * args.sides[1].size + range.first[1]) * args.sides[2].size +
                      range.first[2];
    }
}

// ---- average pooling, forward and backward -----------------------------------------------------

template <class T>
DEVICE void find_mean(const pooling_arguments &args) {
    const T *const source = static_cast<const T *>(args.source);
    const int threads = args.large ? 32 : 1;
    for (int64_t number = thread_number() / threads; number < args.where.total;
         number += thread_count() / threads) {
        int64_t at[WINDOW_RANK];
        window_range range;
        const T *const plane = source + find_coordinates(args, number, at) * args.plane;
#pragma unroll
        for (int k = 0; k < WINDOW_RANK; k++)
            range_of(args.sides[k], at[k], range.first[k], range.last[k]);
        T total = 0;
        walk_window(args, range, !args.large, [&](int64_t index) { total += plane[index]; });
        for (int step = args.large ? 16 : 0; step > 0; step /= 2)
            total += __shfl_xor_sync(WHOLE_WARP, total, step);
        const double share = share_of(args, 0, at[0]) * share_of(args, 1, at[1]);
        if (!args.large || threadIdx.x % 32 == 0)
            static_cast<T *>(args.out)[number] = total / divisor_of<T>(args, share, at[2]);
    }
}

template <class T>
DEVICE void spread_mean(const pooling_arguments &args) {
    const T *const source = static_cast<const T *>(args.source);
    for (int64_t number = thread_number(); number < args.where.total; number += thread_count()) {
        int64_t at[WINDOW_RANK];
        window_range range;
        const T *const windows = source + find_coordinates(args, number, at) * args.windows;
#pragma unroll
        for (int k = 0; k < WINDOW_RANK; k++)
            windows_of(args.sides[k], at[k], range.first[k], range.last[k]);
        T total = 0;
        for (int64_t i = range.first[0]; i < range.last[0]; i++)
            for (int64_t j = range.first[1]; j < range.last[1]; j++) {
                const double share = share_of(args, 0, i) * share_of(args, 1, j);
                const T *const line = windows + (i * args.sides[1].count + j) * args.sides[2].count;
                for (int64_t k = range.first[2]; k < range.last[2]; k++)
                    total += line[k] / divisor_of<T>(args, share, k);
            }
        static_cast<T *>(args.out)[number] = total;
    }
}

#define POOLING(name, T) \
    KERNEL(max_pool_##name, pooling_arguments) { find_largest<T>(args); } \
    KERNEL(avg_pool_##name, pooling_arguments) { find_mean<T>(args); } \
    KERNEL(avg_pool_backward_##name, pooling_arguments) { spread_mean<T>(args); }
POOLING(f32, float)
POOLING(f64, double)

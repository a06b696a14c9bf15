// Interpolation along a dim, as weighted sums of taps; and backward: for each element, the sum
// over the taps that point to it, in the order of taps and positions.
#include "kernels/common/dtypes.cuh"
#include "kernels/indexing/indexed.cuh"
#include "kernels/nn/interpolate.h"
#include "kernels/strides/row_indexer.cuh"

// The coordinates of an output element.
struct out_position {
    int64_t outer, along, inner;

    DEVICE out_position(const indexer_dims &where, int64_t number) {
        const int64_t line = quotient(number, where.dims[2], where.narrow);
        inner = number - line * where.dims[2].size;
        outer = quotient(line, where.dims[1], where.narrow);
        along = line - outer * where.dims[1].size;
    }
};

template <class T>
DEVICE void sum_taps(const interpolate_arguments &args) {
    const T *const source = static_cast<const T *>(args.source);
    const T *const weights = static_cast<const T *>(args.weights);
    for (int64_t number = thread_number(); number < args.where.total; number += thread_count()) {
        const out_position at(args.where, number);
        T total = 0;
        for (int64_t tap = 0; tap < args.taps; tap++) {
            const int64_t which = tap * args.positions + at.along, index = args.indices[which];
            if (index < 0 || index >= args.size) {
                report_index(args.failure, index, args.dim, args.size);
                continue;
            }
            const T value = source[(at.outer * args.size + index) * args.inner + at.inner];
            const T part = weights == nullptr ? value : value * weights[which];
            total = tap == 0 ? part : total + part;
        }
        static_cast<T *>(args.out)[number] = total;
    }
}

template <class T>
DEVICE T part_of(const interpolate_arguments &args, const out_position &at, int64_t which) {
    const T *const source = static_cast<const T *>(args.source);
    const int64_t position = which % args.positions;
    const T value = source[(at.outer * args.positions + position) * args.inner + at.inner];
    return args.weights == nullptr ? value : value * static_cast<const T *>(args.weights)[which];
}

template <class T>
DEVICE void spread_taps(const interpolate_arguments &args) {
    for (int64_t number = thread_number(); number < args.where.total; number += thread_count()) {
        const out_position at(args.where, number);
        T total = 0;
        if (args.keys != nullptr) {
            const int64_t end = load_number(args.starts, at.along + 1, args.wide);
            for (int64_t i = load_number(args.starts, at.along, args.wide); i < end; i++)
                total += part_of<T>(args, at, load_number(args.order, i, args.wide));
        } else {
            for (int64_t which = 0; which < args.taps * args.positions; which++) {
                const int64_t index = args.indices[which];
                if (index == at.along)
                    total += part_of<T>(args, at, which);
                else if (index < 0 || index >= args.size)
                    report_index(args.failure, index, args.dim, args.size);
            }
        }
        static_cast<T *>(args.out)[number] = total;
    }
}

#define INTERPOLATE(name, T) \
    KERNEL(interpolate_##name, interpolate_arguments) { sum_taps<T>(args); } \
    KERNEL(interpolate_backward_##name, interpolate_arguments) { spread_taps<T>(args); }
INTERPOLATE(f32, float)
INTERPOLATE(f64, double)

DEVICE void store_number(void *data, int64_t at, bool wide, int64_t number) {
    if (wide)
        static_cast<int64_t *>(data)[at] = number;
    else
        static_cast<uint32_t *>(data)[at] = (uint32_t)number;
}

// Keys to sort: the indices; what is out of range goes to the end.
KERNEL(interpolate_keys, interpolate_arguments) {
    for (int64_t i = thread_number(); i < args.taps * args.positions; i += thread_count()) {
        int64_t index = args.indices[i];
        if (index < 0 || index >= args.size) {
            report_index(args.failure, index, args.dim, args.size);
            index = args.size;
        }
        store_number(args.keys, i, args.wide, index);
    }
}

// From sorted keys, where those of each element begin. Each thread writes the starts of the
// elements after the key before its own, up to its own.
KERNEL(interpolate_starts, interpolate_arguments) {
    const int64_t count = args.taps * args.positions;
    for (int64_t i = thread_number(); i <= count; i += thread_count()) {
        const int64_t key = i < count ? load_number(args.keys, i, args.wide) : args.size;
        int64_t element = i > 0 ? load_number(args.keys, i - 1, args.wide) + 1 : 0;
        for (; element <= key; element++)
            store_number(args.starts, element, args.wide, i);
    }
}

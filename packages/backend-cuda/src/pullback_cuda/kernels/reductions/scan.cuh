// The loop of all cumulative ops; scan.h says how threads share lines.
//
// An operator has these types and functions, all static:
//
//     stored                an element in memory
//     accumulator           the partial result, of whole words
//     identity()
//     read(stored, index, args)
//                           the accumulator of an element
//     join(first, second)   of two neighbouring ranges
//     result(accumulator, args)
//                           what is stored
//     HAS_INDICES, index(accumulator)
//                           whether there is a second output, of indices
#ifndef PULLBACK_CUDA_SCAN_CUH
#define PULLBACK_CUDA_SCAN_CUH

#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/reductions/scan.h"

// Elements of a thread, and how many of them one load or store moves.
template <class T>
struct scanned {
    static constexpr int items = sizeof(T) <= 4 ? 8 : sizeof(T) == 8 ? 4 : 2;
    static constexpr int vector_size =
        vector_width<T>::size < items ? vector_width<T>::size : items;
};

template <class Accumulator>
struct group_scan {
    Accumulator before; // of the threads before this one
    Accumulator whole;  // of all threads
};

// Scan the accumulators of a group. Every thread of the block must call this.
template <class Op>
DEVICE group_scan<typename Op::accumulator> scan_group(const pb_scan &args,
                                                       const typename Op::accumulator &own) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int width = args.thread_bits < 5 ? 1 << args.thread_bits : 32;
    const int lane = threadIdx.x & (width - 1), warp = threadIdx.x >> 5;
    accumulator up_to = own;
#pragma unroll 1
    for (int distance = 1; distance < width; distance <<= 1) {
        accumulator earlier = shuffle_up(up_to, distance, width);
        if (lane >= distance)
            up_to = Op::join(earlier, up_to);
    }
    group_scan<accumulator> found;
    found.before = shuffle_up(up_to, 1, width);
    if (lane == 0)
        found.before = Op::identity();
    found.whole = shuffle_from(up_to, width - 1, width);
    if (args.thread_bits <= 5)
        return found;
    // The warps of a group are neighbours.
    const int warps = 1 << (args.thread_bits - 5), first = warp & ~(warps - 1);
    if (lane == 31)
        shared[warp] = up_to;
    __syncthreads();
    accumulator whole = Op::identity(), before = whole;
#pragma unroll 1
    for (int k = 0; k < warps; k++) {
        if (first + k == warp)
            before = whole;
        whole = Op::join(whole, shared[first + k]);
    }
    __syncthreads();
    found.before = Op::join(before, found.before);
    found.whole = whole;
    return found;
}

// Replace the accumulator of each chunk of a line by that of all chunks before it.
template <class Op>
DEVICE void scan_totals(const pb_scan &args) {
    typedef typename Op::accumulator accumulator;
    const uint32_t group_size = 1u << args.thread_bits, rank = threadIdx.x & (group_size - 1);
    const int64_t line =
        ((int64_t)blockIdx.x << args.group_bits) + (threadIdx.x >> args.thread_bits);
    accumulator *partial = static_cast<accumulator *>(args.partial) + line;
    accumulator carry = Op::identity();
#pragma unroll 1
    for (int64_t first = 0; first < args.chunks; first += group_size) {
        const bool exists = line < args.lines && first + rank < args.chunks;
        accumulator *entry = partial + (first + rank) * args.lines;
        accumulator own = Op::identity();
        if (exists)
            own = *entry;
        group_scan<accumulator> found = scan_group<Op>(args, own);
        if (exists)
            *entry = Op::join(carry, found.before);
        carry = Op::join(carry, found.whole);
    }
}

// Read the elements of a thread; those from `last` on do not count.
template <class Op>
DEVICE void read_items(const pb_scan &args, const typename Op::stored *in, int64_t first,
                       int64_t last,
                       typename Op::accumulator (&items)[scanned<typename Op::stored>::items]) {
    typedef typename Op::stored stored;
    constexpr int ITEMS = scanned<stored>::items, WIDTH = scanned<stored>::vector_size;
    stored elements[ITEMS];
    if (args.vectorized && first + ITEMS <= last) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += WIDTH) {
            vector<stored, WIDTH> loaded = load_vector<WIDTH>(in + first + i);
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                elements[i + j] = loaded.of[j];
        }
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (first + i < last)
                elements[i] = in[(first + i) * args.strides[0]];
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        items[i] = first + i < last ? Op::read(elements[i], first + i, args) : Op::identity();
}

template <class Op>
DEVICE void
write_items(const pb_scan &args, const offsets<3> &at, int64_t first, int64_t last,
            const typename Op::accumulator &before,
            const typename Op::accumulator (&items)[scanned<typename Op::stored>::items]) {
    typedef typename Op::stored stored;
    constexpr int ITEMS = scanned<stored>::items, WIDTH = scanned<stored>::vector_size;
    stored *out = static_cast<stored *>(args.out) + at.of[1];
    vector<stored, WIDTH> results[ITEMS / WIDTH];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        typename Op::accumulator found = Op::join(before, items[i]);
        results[i / WIDTH].of[i % WIDTH] = Op::result(found, args);
        if constexpr (Op::HAS_INDICES) {
            if (first + i < last)
                static_cast<int64_t *>(args.indices)[at.of[2] + (first + i) * args.strides[2]] =
                    Op::index(found);
        }
    }
    if (args.vectorized && first + ITEMS <= last) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += WIDTH)
            store_vector(out + first + i, results[i / WIDTH]);
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (first + i < last)
                out[(first + i) * args.strides[1]] = results[i / WIDTH].of[i % WIDTH];
        }
    }
}

template <class Op>
DEVICE void scan(const pb_scan &args) {
    typedef typename Op::stored stored;
    typedef typename Op::accumulator accumulator;
    constexpr int ITEMS = scanned<stored>::items;
    if (args.phase == SCAN_OF_TOTALS) {
        scan_totals<Op>(args);
        return;
    }
    const uint32_t group_size = 1u << args.thread_bits, rank = threadIdx.x & (group_size - 1);
    const int64_t line =
        ((int64_t)blockIdx.x << args.group_bits) + (threadIdx.x >> args.thread_bits);
    const bool exists = line < args.lines;
    const int64_t chunk = blockIdx.y, start = chunk * args.chunk;
    const int64_t end = chunk + 1 == args.chunks ? args.length : start + args.chunk;
    const int64_t last = exists ? end : 0; // a thread without a line has no elements
    const offsets<3> at = locate<3>(args.line, args.ndim, exists ? (uint32_t)line : 0);
    const stored *in = static_cast<const stored *>(args.in) + at.of[0];
    accumulator *partial = static_cast<accumulator *>(args.partial) + chunk * args.lines + line;
    accumulator carry = Op::identity();
    if (args.phase == SCAN_CHUNKS && exists)
        carry = *partial;
#pragma unroll 1
    for (int64_t first = start; first < end; first += ITEMS * group_size) {
        accumulator items[ITEMS];
        read_items<Op>(args, in, first + rank * ITEMS, last, items);
#pragma unroll
        for (int i = 1; i < ITEMS; i++)
            items[i] = Op::join(items[i - 1], items[i]);
        group_scan<accumulator> found = {Op::identity(), items[ITEMS - 1]};
        if (group_size > 1)
            found = scan_group<Op>(args, items[ITEMS - 1]);
        if (args.phase != SCAN_FINDS_TOTALS)
            write_items<Op>(args, at, first + rank * ITEMS, last, Op::join(carry, found.before),
                            items);
        carry = Op::join(carry, found.whole);
    }
    if (args.phase == SCAN_FINDS_TOTALS && exists && rank == 0)
        *partial = carry;
}

#endif

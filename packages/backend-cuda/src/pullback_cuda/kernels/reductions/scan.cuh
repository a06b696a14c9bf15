// Running results along lines, whatever is joined; scan.h says how threads share lines.
//
// An operator has these types and functions, all static:
//
//     stored                an element in memory
//     accumulator           what is joined, of whole words
//     identity()
//     read(stored, index, args)
//                           the accumulator of an element
//     join(first, second)   of two neighbouring ranges
//     result(accumulator, args)
//                           what is stored
//     HAS_PLACES, place(accumulator)
//                           whether there is a second output, of indices
#ifndef PULLBACK_CUDA_SCAN_CUH
#define PULLBACK_CUDA_SCAN_CUH

#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/reductions/scan.h"

// Elements of a thread, and how many of them are moved at once.
template <class T>
struct scanned {
    static constexpr int items = sizeof(T) <= 4 ? 8 : sizeof(T) == 8 ? 4 : 2;
    static constexpr int pack = packing<T>::size < items ? packing<T>::size : items;
};

template <class Accumulator>
struct joined_before {
    Accumulator before; // of the lanes before this one
    Accumulator whole;  // of all lanes
};

// Join the accumulators of a line's lanes. Every thread of the block takes part.
template <class Op>
DEVICE joined_before<typename Op::accumulator> join_lanes(const pb_scan &args,
                                                          const typename Op::accumulator &own) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int width = args.lanes < 5 ? 1 << args.lanes : 32;
    const int lane = threadIdx.x & (width - 1), warp = threadIdx.x >> 5;
    accumulator up_to = own;
#pragma unroll 1
    for (int distance = 1; distance < width; distance <<= 1) {
        accumulator earlier = shuffle_up(up_to, distance, width);
        if (lane >= distance)
            up_to = Op::join(earlier, up_to);
    }
    joined_before<accumulator> found;
    found.before = shuffle_up(up_to, 1, width);
    if (lane == 0)
        found.before = Op::identity();
    found.whole = shuffle_from(up_to, width - 1, width);
    if (args.lanes <= 5)
        return found;
    // The warps of a line lie side by side.
    const int warps = 1 << (args.lanes - 5), first = warp & ~(warps - 1);
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

// Replace the accumulators of a line's chunks by those of all chunks before each.
template <class Op>
DEVICE void scan_totals(const pb_scan &args) {
    typedef typename Op::accumulator accumulator;
    const uint32_t lanes = 1u << args.lanes, lane = threadIdx.x & (lanes - 1);
    const int64_t line = ((int64_t)blockIdx.x << args.slots) + (threadIdx.x >> args.lanes);
    accumulator *partial = static_cast<accumulator *>(args.partial) + line;
    accumulator carry = Op::identity();
#pragma unroll 1
    for (int64_t first = 0; first < args.chunks; first += lanes) {
        const bool exists = line < args.lines && first + lane < args.chunks;
        accumulator *place = partial + (first + lane) * args.lines;
        accumulator own = Op::identity();
        if (exists)
            own = *place;
        joined_before<accumulator> found = join_lanes<Op>(args, own);
        if (exists)
            *place = Op::join(carry, found.before);
        carry = Op::join(carry, found.whole);
    }
}

// Read the elements of a thread; those from `last` on are of no account.
template <class Op>
DEVICE void read_items(const pb_scan &args, const typename Op::stored *in, int64_t first,
                       int64_t last,
                       typename Op::accumulator (&items)[scanned<typename Op::stored>::items]) {
    typedef typename Op::stored stored;
    constexpr int ITEMS = scanned<stored>::items, PACK = scanned<stored>::pack;
    stored elements[ITEMS];
    if (args.packed && first + ITEMS <= last) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += PACK) {
            pack<stored, PACK> loaded = load_pack<PACK>(in + first + i);
#pragma unroll
            for (int j = 0; j < PACK; j++)
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
    constexpr int ITEMS = scanned<stored>::items, PACK = scanned<stored>::pack;
    stored *out = static_cast<stored *>(args.out) + at.of[1];
    pack<stored, PACK> results[ITEMS / PACK];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        typename Op::accumulator found = Op::join(before, items[i]);
        results[i / PACK].of[i % PACK] = Op::result(found, args);
        if constexpr (Op::HAS_PLACES) {
            if (first + i < last)
                static_cast<int64_t *>(args.places)[at.of[2] + (first + i) * args.strides[2]] =
                    Op::place(found);
        }
    }
    if (args.packed && first + ITEMS <= last) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += PACK)
            store_pack(out + first + i, results[i / PACK]);
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (first + i < last)
                out[(first + i) * args.strides[1]] = results[i / PACK].of[i % PACK];
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
    const uint32_t lanes = 1u << args.lanes, lane = threadIdx.x & (lanes - 1);
    const int64_t line = ((int64_t)blockIdx.x << args.slots) + (threadIdx.x >> args.lanes);
    const bool exists = line < args.lines;
    const int64_t chunk = blockIdx.y, start = chunk * args.chunk;
    const int64_t end = chunk + 1 == args.chunks ? args.length : start + args.chunk;
    const int64_t last = exists ? end : 0; // a thread without a line has no elements
    const offsets<3> at = locate<3>(args.line, args.axes, exists ? (uint32_t)line : 0);
    const stored *in = static_cast<const stored *>(args.in) + at.of[0];
    accumulator *partial = static_cast<accumulator *>(args.partial) + chunk * args.lines + line;
    accumulator carry = Op::identity();
    if (args.phase == SCAN_CHUNKS && exists)
        carry = *partial;
#pragma unroll 1
    for (int64_t first = start; first < end; first += ITEMS * lanes) {
        accumulator items[ITEMS];
        read_items<Op>(args, in, first + lane * ITEMS, last, items);
#pragma unroll
        for (int i = 1; i < ITEMS; i++)
            items[i] = Op::join(items[i - 1], items[i]);
        joined_before<accumulator> found = {Op::identity(), items[ITEMS - 1]};
        if (lanes > 1)
            found = join_lanes<Op>(args, items[ITEMS - 1]);
        if (args.phase != SCAN_FINDS_TOTALS)
            write_items<Op>(args, at, first + lane * ITEMS, last, Op::join(carry, found.before),
                            items);
        carry = Op::join(carry, found.whole);
    }
    if (args.phase == SCAN_FINDS_TOTALS && exists && lane == 0)
        *partial = carry;
}

#endif

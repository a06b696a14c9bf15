// How the elements of a reduction reach their accumulators, whatever is reduced; reduction_driver.h says
// how threads share them. Nothing depends on the order in which threads run.
//
// An operator has these types and functions, all static:
//
//     stored, value         an element in memory, and as it is computed with
//     local                 what a thread keeps while it takes in elements
//     accumulator           what is merged, of whole words
//     start()               a local of no elements
//     read(stored, args)    the value of an element
//     take<N>(local, values, number)
//                           take in N values; `number` of these came before
//     close(local, count, first, apart)
//                           the accumulator; the thread's elements, `count` of them, have numbers
//                           `first`, `first + apart`, .. among those of the output
//     identity(), merge(accumulator, accumulator)
//     finish(args, accumulator, offset)
//                           write an output
#ifndef PULLBACK_CUDA_REDUCTION_CUH
#define PULLBACK_CUDA_REDUCTION_CUH

#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/group.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/common/reduction_driver.h"

// ---- a lane's elements --------------------------------------------------------------------------

// Elements of a pack. Packs of two would gain nothing: enough bytes are on their way without them.
template <class Op>
struct packed_elements {
    static constexpr int count =
        sizeof(typename Op::stored) <= 4 ? packing<typename Op::stored>::size : 1;
};

// Take in COUNT packs, as many positions apart as there are lanes, from `position` on.
template <class Op, int PACK, int COUNT>
DEVICE void take_packs(const pb_reduction &args, const typename Op::stored *in, uint32_t position,
                       uint32_t number, typename Op::local (&locals)[PACK]) {
    pack<typename Op::stored, PACK> packs[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        packs[k] = load_pack<PACK>(
            in + locate<1>(args.reduced, args.reduced_axes, position + (k << args.lanes)).of[0]);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        typename Op::value values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = Op::read(packs[k].of[j], args);
        Op::template take<COUNT>(locals[j], values, number);
    }
}

// Take in what a lane is given of the positions from `first` to before `last`, and of the `tail`
// elements after them; each element of a pack has an accumulator.
template <class Op, int PACK>
DEVICE void take_chunk(const pb_reduction &args, const typename Op::stored *in, int64_t first,
                       int64_t last, int lane, int tail, typename Op::accumulator (&found)[PACK]) {
    constexpr int COUNT = 4;
    const uint32_t lanes = 1u << args.lanes;
    const bool joins = args.loads == LOADS_PACKS_OF_REDUCED;
    const int64_t step = joins ? PACK : 1;
    typename Op::local locals[PACK];
#pragma unroll
    for (int j = 0; j < PACK; j++)
        locals[j] = Op::start();
    // The positions of one axis may be too many to be numbered.
    const bool is_line = args.reduced_axes == 1;
    const typename Op::stored *begin = is_line ? in + first * args.reduced[0].strides[0] : in;
    const uint32_t end = (uint32_t)(is_line ? last - first : last);
    uint32_t position = (uint32_t)(is_line ? 0 : first) + lane, number = 0;
#pragma unroll 1
    for (; position + (COUNT - 1) * lanes < end; position += COUNT * lanes, number += COUNT)
        take_packs<Op, PACK, COUNT>(args, begin, position, number, locals);
#pragma unroll 1
    for (; position < end; position += lanes, number++)
        take_packs<Op, PACK, 1>(args, begin, position, number, locals);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        found[j] =
            Op::close(locals[j], number,
                      args.first_number + (first + lane) * step + (joins ? j : 0), step * lanes);
    if constexpr (PACK > 1) {
#pragma unroll 1
        for (int k = lane; k < tail; k += lanes) {
            typename Op::local single = Op::start();
            typename Op::value values[1] = {Op::read(in[last * PACK + k], args)};
            Op::template take<1>(single, values, 0);
            found[0] =
                Op::merge(found[0], Op::close(single, 1, args.first_number + last * PACK + k, 1));
        }
    }
}

// Merge what the launches before left for an output.
template <class Op>
DEVICE typename Op::accumulator take_partial(const pb_reduction &args, uint32_t unit, int lane) {
    typename Op::accumulator found = Op::identity();
    const typename Op::accumulator *partial =
        static_cast<const typename Op::accumulator *>(args.partial) + unit;
#pragma unroll 4
    for (uint32_t chunk = lane; chunk < args.length; chunk += 1u << args.lanes)
        found = Op::merge(found, partial[chunk * args.units]);
    return found;
}

// ---- the lanes of a unit ------------------------------------------------------------------------

// Merge what lanes side by side found; the first of them gets the result.
template <class Op>
DEVICE void merge_neighbours(const pb_reduction &args, typename Op::accumulator &found) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int warp = threadIdx.x >> 5;
#pragma unroll 1
    for (int distance = (args.lanes < 5 ? 1 << args.lanes : 32) >> 1; distance; distance >>= 1)
        found = Op::merge(found, shuffle_xor(found, distance));
    if (args.lanes <= 5)
        return;
    if ((threadIdx.x & 31) == 0)
        shared[warp] = found;
    __syncthreads();
    if ((threadIdx.x & ((1 << args.lanes) - 1)) == 0) {
#pragma unroll 1
        for (int k = 1; k < 1 << (args.lanes - 5); k++)
            found = Op::merge(found, shared[warp + k]);
    }
    __syncthreads();
}

// Merge what lanes apart found; those of the first lane get the result. The accumulators of all
// outputs of a lane, `width` of them, lie side by side in shared memory.
template <class Op>
DEVICE void merge_shared(const pb_reduction &args, int width) {
    DYNAMIC_SHARED(typename Op::accumulator, shared);
#pragma unroll 1
    for (int rest = width << args.lanes >> 1; rest >= width; rest >>= 1) {
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < rest; i += blockDim.x)
            shared[i] = Op::merge(shared[i], shared[i + rest]);
    }
}

// ---- all units ----------------------------------------------------------------------------------

// Get what a lane found of the outputs of a unit into shared memory, or of one output into `found`.
template <class Op>
DEVICE void take(const pb_reduction &args, uint32_t unit, int lane,
                 typename Op::accumulator &found) {
    typedef typename Op::accumulator accumulator;
    typedef typename Op::stored stored;
    constexpr int PACK = packed_elements<Op>::count;
    DYNAMIC_SHARED(accumulator, shared);
    const bool is_last = blockIdx.y + 1 == gridDim.y;
    const int64_t first = blockIdx.y * args.chunk;
    const int64_t last = is_last ? args.length : first + args.chunk;
    const stored *in =
        static_cast<const stored *>(args.in) + locate<1>(args.kept, args.kept_axes, unit).of[0];
    if (PACK == 1 || args.loads == LOADS_ELEMENTS) {
        accumulator one[1];
        take_chunk<Op, 1>(args, in, first, last, lane, 0, one);
        found = one[0];
        return;
    }
    if constexpr (PACK > 1) {
        accumulator all[PACK];
        take_chunk<Op, PACK>(args, in, first, last, lane, is_last ? args.tail : 0, all);
        if (args.loads == LOADS_PACKS_OF_KEPT) {
#pragma unroll
            for (int j = 0; j < PACK; j++)
                shared[threadIdx.x * PACK + j] = all[j];
        } else {
            found = all[0];
#pragma unroll
            for (int j = 1; j < PACK; j++)
                found = Op::merge(found, all[j]);
        }
    }
}

template <class Op>
DEVICE void reduce(const pb_reduction &args) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int thread = threadIdx.x;
    const int lane = args.strided ? thread >> args.slots : thread & ((1 << args.lanes) - 1);
    const int slot = args.strided ? thread & ((1 << args.slots) - 1) : thread >> args.lanes;
    const uint32_t units = (uint32_t)args.units;
    // Outputs of a unit, as powers of two: of elements that are taken in, and of those given.
    const int packed = args.merges ? 0 : args.packed;
    for (uint32_t group = blockIdx.x << args.slots; group < units;
         group += gridDim.x << args.slots) {
        accumulator found = Op::identity();
        if (group + slot >= units) {
#pragma unroll 1
            for (int j = 0; args.strided && j < 1 << packed; j++)
                shared[(thread << packed) + j] = found;
        } else if (args.merges) {
            found = take_partial<Op>(args, group + slot, lane);
        } else {
            take<Op>(args, group + slot, lane, found);
        }
        if (!args.strided) {
            merge_neighbours<Op>(args, found);
            if (lane == 0)
                shared[slot] = found;
        } else {
            if (packed == 0)
                shared[thread] = found;
            merge_shared<Op>(args, 1 << (args.slots + packed));
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t i = thread; i < 1u << (args.slots + packed); i += blockDim.x) {
            uint32_t unit = group + (i >> packed), place = i & ((1u << packed) - 1);
            if (unit >= units)
                break;
            if (args.partial != nullptr && !args.merges) {
                static_cast<accumulator *>(
                    args.partial)[(((args.first_chunk + blockIdx.y) * units + unit) << packed) +
                                  place] = shared[i];
                continue;
            }
            if (args.merges) {
                place = unit & ((1u << args.packed) - 1);
                unit >>= args.packed;
            }
            Op::finish(args, shared[i],
                       locate<2>(args.kept, args.kept_axes, unit).of[1] + place * args.apart);
        }
        __syncthreads();
    }
}

#endif

// The loop of all reductions; reduction_driver.h says how threads share the elements. No result
// depends on the order in which threads run.
//
// An operator has these types and functions, all static:
//
//     stored, value         an element in memory, and as it is computed with
//     local                 the state of a thread while it reads elements
//     accumulator           what is merged, of whole words
//     start()               a local of no elements
//     read(stored, args)    the value of an element
//     take<N>(local, values, number)
//                           add N values; `number` values were added before
//     close(local, count, first, apart)
//                           the accumulator; the thread's elements, `count` of them, have numbers
//                           `first`, `first + apart`, .. among those of the output
//     identity(), merge(accumulator, accumulator)
//     finish(args, accumulator, offset)
//                           write an output
#ifndef PULLBACK_CUDA_REDUCTION_DRIVER_CUH
#define PULLBACK_CUDA_REDUCTION_DRIVER_CUH

#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/group.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/common/reduction_driver.h"

// ---- the elements of a thread ------------------------------------------------------------------

// Elements of a vector. Vectors of two would gain nothing: enough loads are in flight without them.
template <class Op>
struct vector_elements {
    static constexpr int count =
        sizeof(typename Op::stored) <= 4 ? vector_width<typename Op::stored>::size : 1;
};

// Add COUNT vectors from `position` on, as many positions apart as the group has threads.
template <class Op, int WIDTH, int COUNT>
DEVICE void take_vectors(const pb_reduction &args, const typename Op::stored *in, uint32_t position,
                         uint32_t number, typename Op::local (&locals)[WIDTH]) {
    vector<typename Op::stored, WIDTH> vectors[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        vectors[k] = load_vector<WIDTH>(
            in +
            locate<1>(args.reduced, args.reduced_ndim, position + (k << args.thread_bits)).of[0]);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        typename Op::value values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = Op::read(vectors[k].of[j], args);
        Op::template take<COUNT>(locals[j], values, number);
    }
}

// Add this thread's share of the positions from `first` to before `last`, and of the `tail`
// elements after them; each element of a vector has an accumulator.
template <class Op, int WIDTH>
DEVICE void take_chunk(const pb_reduction &args, const typename Op::stored *in, int64_t first,
                       int64_t last, int rank, int tail, typename Op::accumulator (&found)[WIDTH]) {
    constexpr int COUNT = 4;
    const uint32_t group_size = 1u << args.thread_bits;
    const bool joins = args.loads == LOADS_VECTORS_OF_REDUCED;
    const int64_t step = joins ? WIDTH : 1;
    typename Op::local locals[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        locals[j] = Op::start();
    // The positions of one dim may be too many to be numbered.
    const bool is_line = args.reduced_ndim == 1;
    const typename Op::stored *begin = is_line ? in + first * args.reduced[0].strides[0] : in;
    const uint32_t end = (uint32_t)(is_line ? last - first : last);
    uint32_t position = (uint32_t)(is_line ? 0 : first) + rank, number = 0;
#pragma unroll 1
    for (; position + (COUNT - 1) * group_size < end;
         position += COUNT * group_size, number += COUNT)
        take_vectors<Op, WIDTH, COUNT>(args, begin, position, number, locals);
#pragma unroll 1
    for (; position < end; position += group_size, number++)
        take_vectors<Op, WIDTH, 1>(args, begin, position, number, locals);
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        found[j] = Op::close(locals[j], number,
                             args.first_number + (first + rank) * step + (joins ? j : 0),
                             step * group_size);
    if constexpr (WIDTH > 1) {
#pragma unroll 1
        for (int k = rank; k < tail; k += group_size) {
            typename Op::local single = Op::start();
            typename Op::value values[1] = {Op::read(in[last * WIDTH + k], args)};
            Op::template take<1>(single, values, 0);
            found[0] =
                Op::merge(found[0], Op::close(single, 1, args.first_number + last * WIDTH + k, 1));
        }
    }
}

// Merge the partial results of an output, which earlier launches wrote.
template <class Op>
DEVICE typename Op::accumulator take_partial(const pb_reduction &args, uint32_t unit, int rank) {
    typename Op::accumulator found = Op::identity();
    const typename Op::accumulator *partial =
        static_cast<const typename Op::accumulator *>(args.partial) + unit;
#pragma unroll 4
    for (uint32_t chunk = rank; chunk < args.length; chunk += 1u << args.thread_bits)
        found = Op::merge(found, partial[chunk * args.units]);
    return found;
}

// ---- the group of a unit -----------------------------------------------------------------------

// Merge the accumulators of a group of neighbouring threads; its first thread gets the result.
template <class Op>
DEVICE void merge_neighbours(const pb_reduction &args, typename Op::accumulator &found) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int warp = threadIdx.x >> 5;
#pragma unroll 1
    for (int distance = (args.thread_bits < 5 ? 1 << args.thread_bits : 32) >> 1; distance;
         distance >>= 1)
        found = Op::merge(found, shuffle_xor(found, distance));
    if (args.thread_bits <= 5)
        return;
    if ((threadIdx.x & 31) == 0)
        shared[warp] = found;
    __syncthreads();
    if ((threadIdx.x & ((1 << args.thread_bits) - 1)) == 0) {
#pragma unroll 1
        for (int k = 1; k < 1 << (args.thread_bits - 5); k++)
            found = Op::merge(found, shared[warp + k]);
    }
    __syncthreads();
}

// Merge the accumulators of strided groups; the threads of rank 0 get the results. In shared memory
// the accumulators of all threads of a rank, `width` of them, are contiguous.
template <class Op>
DEVICE void merge_shared(const pb_reduction &args, int width) {
    DYNAMIC_SHARED(typename Op::accumulator, shared);
#pragma unroll 1
    for (int rest = width << args.thread_bits >> 1; rest >= width; rest >>= 1) {
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < rest; i += blockDim.x)
            shared[i] = Op::merge(shared[i], shared[i + rest]);
    }
}

// ---- all units ---------------------------------------------------------------------------------

// Reduce this thread's share of a unit: into shared memory for several outputs, else into `found`.
template <class Op>
DEVICE void take(const pb_reduction &args, uint32_t unit, int rank,
                 typename Op::accumulator &found) {
    typedef typename Op::accumulator accumulator;
    typedef typename Op::stored stored;
    constexpr int WIDTH = vector_elements<Op>::count;
    DYNAMIC_SHARED(accumulator, shared);
    const bool is_last = blockIdx.y + 1 == gridDim.y;
    const int64_t first = blockIdx.y * args.chunk;
    const int64_t last = is_last ? args.length : first + args.chunk;
    const stored *in =
        static_cast<const stored *>(args.in) + locate<1>(args.kept, args.kept_ndim, unit).of[0];
    if (WIDTH == 1 || args.loads == LOADS_ELEMENTS) {
        accumulator one[1];
        take_chunk<Op, 1>(args, in, first, last, rank, 0, one);
        found = one[0];
        return;
    }
    if constexpr (WIDTH > 1) {
        accumulator all[WIDTH];
        take_chunk<Op, WIDTH>(args, in, first, last, rank, is_last ? args.tail : 0, all);
        if (args.loads == LOADS_VECTORS_OF_KEPT) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                shared[threadIdx.x * WIDTH + j] = all[j];
        } else {
            found = all[0];
#pragma unroll
            for (int j = 1; j < WIDTH; j++)
                found = Op::merge(found, all[j]);
        }
    }
}

template <class Op>
DEVICE void reduce(const pb_reduction &args) {
    typedef typename Op::accumulator accumulator;
    DYNAMIC_SHARED(accumulator, shared);
    const int thread = threadIdx.x;
    const int rank =
        args.strided ? thread >> args.group_bits : thread & ((1 << args.thread_bits) - 1);
    const int group =
        args.strided ? thread & ((1 << args.group_bits) - 1) : thread >> args.thread_bits;
    const uint32_t units = (uint32_t)args.units;
    // The outputs of a unit, as a power of two; partial results are merged one output a unit.
    const int unit_bits = args.merges ? 0 : args.unit_bits;
    for (uint32_t first_unit = blockIdx.x << args.group_bits; first_unit < units;
         first_unit += gridDim.x << args.group_bits) {
        accumulator found = Op::identity();
        if (first_unit + group >= units) {
#pragma unroll 1
            for (int j = 0; args.strided && j < 1 << unit_bits; j++)
                shared[(thread << unit_bits) + j] = found;
        } else if (args.merges) {
            found = take_partial<Op>(args, first_unit + group, rank);
        } else {
            take<Op>(args, first_unit + group, rank, found);
        }
        if (!args.strided) {
            merge_neighbours<Op>(args, found);
            if (rank == 0)
                shared[group] = found;
        } else {
            if (unit_bits == 0)
                shared[thread] = found;
            merge_shared<Op>(args, 1 << (args.group_bits + unit_bits));
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t i = thread; i < 1u << (args.group_bits + unit_bits); i += blockDim.x) {
            uint32_t unit = first_unit + (i >> unit_bits), index = i & ((1u << unit_bits) - 1);
            if (unit >= units)
                break;
            if (args.partial != nullptr && !args.merges) {
                static_cast<accumulator *>(
                    args.partial)[(((args.first_chunk + blockIdx.y) * units + unit) << unit_bits) +
                                  index] = shared[i];
                continue;
            }
            if (args.merges) {
                index = unit & ((1u << args.unit_bits) - 1);
                unit >>= args.unit_bits;
            }
            Op::finish(args, shared[i],
                       locate<2>(args.kept, args.kept_ndim, unit).of[1] + index * args.apart);
        }
        __syncthreads();
    }
}

#endif

// Coordinates of the elements that are not zero, in row-major order: each block counts those of its
// elements, and then writes them after those of the blocks before it.
#include "kernels/indexing/nonzero.h"
#include "kernels/strides/indexer.cuh"

#define WHOLE_WARP 0xffffffffu
#define BLOCK 256
#define WARPS (BLOCK / 32)
#define ITEMS (NONZERO_TILE / BLOCK) // elements of a thread

template <class Word>
DEVICE bool is_set(Word word, const uint64_t *matters) {
    return (word & matters[0]) != 0;
}

DEVICE bool is_set(word_16 word, const uint64_t *matters) {
    return ((word.low & matters[0]) | (word.high & matters[1])) != 0;
}

// Find which of some elements, 32 apart, are not zero. All are loaded before the first is tested.
template <class Word>
DEVICE void load_set(const nonzero_arguments &args, const int64_t *offsets, int64_t left,
                     bool *flags) {
    Word words[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        words[j] = Word{};
        if (32 * j < left)
            words[j] = static_cast<const Word *>(args.input)[offsets[j]];
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++)
        flags[j] = is_set(words[j], args.matters);
}

// The lanes whose element is not zero, for some elements of each lane: item j of this lane is
// element `first + 32 * j + lane`. Returns how many there are in the warp.
DEVICE int find_set(const nonzero_arguments &args, int64_t first, int64_t last,
                    uint32_t (&set)[ITEMS]) {
    const int lane = threadIdx.x % 32;
    int64_t offsets[ITEMS];
    int count = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++)
        offsets[j] = first + 32 * j + lane;
    if (!args.contiguous) {
        int64_t rest[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            rest[j] = offsets[j] < last ? offsets[j] : 0;
            offsets[j] = 0;
        }
        for (int d = args.ndim - 1; d >= 0; d--) {
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                const int64_t next = quotient(rest[j], args.dims[d], args.narrow);
                offsets[j] += (rest[j] - next * args.dims[d].size) * args.input_steps[d];
                rest[j] = next;
            }
        }
    }
    bool flags[ITEMS];
    const int64_t left = last - first - lane;
    if (args.bytes == 1)
        load_set<uint8_t>(args, offsets, left, flags);
    else if (args.bytes == 2)
        load_set<uint16_t>(args, offsets, left, flags);
    else if (args.bytes == 4)
        load_set<uint32_t>(args, offsets, left, flags);
    else if (args.bytes == 8)
        load_set<uint64_t>(args, offsets, left, flags);
    else
        load_set<word_16>(args, offsets, left, flags);
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        set[j] = __ballot_sync(WHOLE_WARP, flags[j]);
        count += __popc(set[j]);
    }
    return count;
}

// The sum of a number over the block's warps, each of which gives one.
DEVICE int64_t sum_of_warps(int64_t number, int64_t *shared) {
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = number;
    __syncthreads();
    int64_t total = 0;
    for (int i = 0; i < WARPS; i++)
        total += shared[i];
    __syncthreads();
    return total;
}

KERNEL(nonzero_count, nonzero_arguments) {
    __shared__ int64_t shared[WARPS];
    const int64_t begin = blockIdx.x * args.chunk;
    const int64_t end = begin + args.chunk < args.total ? begin + args.chunk : args.total;
    int64_t count = 0;
    for (int64_t base = begin; base < end; base += NONZERO_TILE) {
        uint32_t set[ITEMS];
        count += find_set(args, base + threadIdx.x / 32 * (32 * ITEMS), end, set);
    }
    count = sum_of_warps(count, shared);
    if (threadIdx.x == 0)
        args.counts[blockIdx.x] = count;
}

DEVICE void write_coordinates(const nonzero_arguments &args, int64_t row, int64_t number) {
    if (row >= args.rows)
        return;
    int64_t *const out = args.out + row * args.out_steps[0];
    for (int d = args.ndim - 1; d >= 0; d--) {
        const int64_t next = quotient(number, args.dims[d], args.narrow);
        out[d * args.out_steps[1]] = number - next * args.dims[d].size;
        number = next;
    }
}

// The elements may have changed since they were counted for the size of the output.
DEVICE void check_rows(const nonzero_arguments &args, int64_t found) {
    if (found == args.rows)
        return;
    if (threadIdx.x == 0)
        report(args.failure, FAILURE_COUNT, PB_E_RUNTIME, found, args.rows);
    for (int64_t row = found + threadIdx.x; row < args.rows; row += BLOCK)
        write_coordinates(args, row, 0);
}

KERNEL(nonzero_write, nonzero_arguments) {
    __shared__ int64_t shared[WARPS];
    __shared__ int counts[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t begin = blockIdx.x * args.chunk;
    const int64_t end = begin + args.chunk < args.total ? begin + args.chunk : args.total;
    int64_t row = 0;
    for (int64_t block = threadIdx.x; block < blockIdx.x; block += BLOCK)
        row += args.counts[block];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        row += __shfl_xor_sync(WHOLE_WARP, row, step);
    row = sum_of_warps(row, shared);
    for (int64_t base = begin; base < end; base += NONZERO_TILE) {
        uint32_t set[ITEMS];
        const int64_t first = base + warp * (32 * ITEMS);
        const int count = find_set(args, first, end, set);
        if (lane == 0)
            counts[warp] = count;
        __syncthreads();
        int64_t next = row;
        for (int i = 0; i < WARPS; i++) {
            next += i < warp ? counts[i] : 0;
            row += counts[i];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (set[j] >> lane & 1)
                write_coordinates(args, next + __popc(set[j] & ((1u << lane) - 1)),
                                  first + 32 * j + lane);
            next += __popc(set[j]);
        }
    }
    if (blockIdx.x == gridDim.x - 1)
        check_rows(args, row);
}

// The first few elements of long rows: the last of their keys is found digit by digit, the highest
// first, by counting the keys that share the digits before. Then all that come before it are
// collected, and as many that equal it as are still wanted, the first ones.
#include "kernels/strides/indexer.cuh"
#include "kernels/sorting/topk.h"
#include "kernels/sorting/sort_keys.cuh"

#define WHOLE_WARP 0xffffffffu
#define BLOCK 256
#define WARPS (BLOCK / 32)
#define ITEMS (SELECT_TILE / BLOCK) // elements of a thread

// The elements of this block: of a row, from one of them on up to another.
template <class Key>
struct select_block {
    const select_arguments &args;
    const key_maker<Key> maker;
    int64_t row, number, first, last, input;

    DEVICE select_block(const select_arguments &given) : args(given), maker(given.how) {
        row = blockIdx.x / args.blocks;
        number = blockIdx.x - row * args.blocks;
        first = number * args.chunk;
        last = first + args.chunk < args.n ? first + args.chunk : args.n;
        input = offset_of(args.rows, args.first_row + row, args.input_rows);
    }

    // Load the keys of some positions, each `step` after the one before.
    DEVICE void load(int64_t position, int step, Key (&keys)[ITEMS]) const {
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            keys[j] =
                position + j * step < last
                    ? load_bits<Key>(args.input, input + (position + j * step) * args.input_step,
                                     args.how.bytes)
                    : 0;
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            keys[j] = maker.key_of(keys[j]);
    }
};

// Count the digits of those keys whose higher digits are the limit's.
template <class Key>
DEVICE void count_digits(const select_arguments &args) {
    __shared__ uint32_t counts[SELECT_DIGITS];
    const select_block<Key> block(args);
    const int shift = 8 * args.digit;
    const bool is_highest = args.digit == args.how.bytes - 1;
    const Key limit = is_highest ? 0 : (Key)args.limits[block.row];
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t base = block.first; base < block.last; base += SELECT_TILE) {
        Key keys[ITEMS];
        block.load(base + threadIdx.x, BLOCK, keys);
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const bool counts_here = base + threadIdx.x + j * BLOCK < block.last &&
                                     (is_highest || (keys[j] ^ limit) >> shift >> 8 == 0);
            const uint32_t digit = counts_here ? (uint32_t)(keys[j] >> shift) & 255 : SELECT_DIGITS;
            // Atomic additions to one counter would wait for each other.
            if (__all_sync(WHOLE_WARP, digit == __shfl_sync(WHOLE_WARP, digit, 0))) {
                if (counts_here && threadIdx.x % 32 == 0)
                    atomicAdd(counts + digit, 32u);
            } else if (counts_here) {
                atomicAdd(counts + digit, 1u);
            }
        }
    }
    __syncthreads();
    if (counts[threadIdx.x] != 0)
        atomicAdd(reinterpret_cast<unsigned long long *>(args.histogram) +
                      block.row * SELECT_DIGITS + threadIdx.x,
                  (unsigned long long)counts[threadIdx.x]);
}

KERNEL(select_count_4, select_arguments) { count_digits<uint32_t>(args); }
KERNEL(select_count_8, select_arguments) { count_digits<uint64_t>(args); }

// A block for each row: find the digit of the limit.
KERNEL(select_digit, select_arguments) {
    __shared__ uint64_t sums[SELECT_DIGITS];
    const int64_t row = blockIdx.x;
    const bool is_highest = args.digit == args.how.bytes - 1;
    const uint64_t wanted = (uint64_t)(is_highest ? args.count : args.left[row]);
    const uint64_t limit = is_highest ? 0 : args.limits[row];
    uint64_t *const histogram = args.histogram + row * SELECT_DIGITS;
    const uint64_t count = histogram[threadIdx.x];
    uint64_t total = count;
    histogram[threadIdx.x] = 0;
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int step = 1; step < SELECT_DIGITS; step *= 2) {
        const uint64_t before = (int)threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        total += before;
        sums[threadIdx.x] = total;
        __syncthreads();
    }
    if (total - count < wanted && wanted <= total) {
        args.limits[row] = limit | (uint64_t)threadIdx.x << (8 * args.digit);
        args.left[row] = (int64_t)(wanted - (total - count));
    }
}

// How many of some keys of each lane are below the limit, and how many at it, in the warp; and
// which lanes have them.
template <class Key>
DEVICE void find_wanted(const Key (&keys)[ITEMS], Key limit, int64_t left, uint32_t (&below)[ITEMS],
                        uint32_t (&at)[ITEMS], int &count_below, int &count_at) {
    count_below = count_at = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const bool is_there = 32 * j < left;
        below[j] = __ballot_sync(WHOLE_WARP, is_there && keys[j] < limit);
        at[j] = __ballot_sync(WHOLE_WARP, is_there && keys[j] == limit);
        count_below += __popc(below[j]);
        count_at += __popc(at[j]);
    }
}

template <class Key>
DEVICE void tally(const select_arguments &args) {
    __shared__ int64_t sums[2][WARPS];
    const select_block<Key> block(args);
    const Key limit = (Key)args.limits[block.row];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t total_below = 0, total_at = 0;
    for (int64_t base = block.first; base < block.last; base += SELECT_TILE) {
        const int64_t position = base + warp * (32 * ITEMS) + lane;
        Key keys[ITEMS];
        uint32_t below[ITEMS], at[ITEMS];
        int count_below, count_at;
        block.load(position, 32, keys);
        find_wanted(keys, limit, block.last - position, below, at, count_below, count_at);
        total_below += count_below;
        total_at += count_at;
    }
    if (lane == 0) {
        sums[0][warp] = total_below;
        sums[1][warp] = total_at;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        int64_t total = 0;
        for (int i = 0; i < WARPS; i++)
            total += sums[threadIdx.x][i];
        args.tallies[2 * (int64_t)blockIdx.x + threadIdx.x] = total;
    }
}

KERNEL(select_tally_4, select_arguments) { tally<uint32_t>(args); }
KERNEL(select_tally_8, select_arguments) { tally<uint64_t>(args); }

template <class Key>
DEVICE void collect(const select_arguments &args) {
    __shared__ int64_t before[2];
    __shared__ int counts[2][WARPS];
    const select_block<Key> block(args);
    const Key limit = (Key)args.limits[block.row];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t lower = (1u << lane) - 1;
    Key *const wanted = static_cast<Key *>(args.keys) + block.row * args.count;
    int64_t *const positions = args.positions + block.row * args.count;
    // A warp for each of the two: what the blocks of the row before this one have.
    if (warp < 2) {
        int64_t total = 0;
        for (int64_t i = lane; i < block.number; i += 32)
            total += args.tallies[2 * ((int64_t)blockIdx.x - block.number + i) + warp];
        for (int step = 16; step > 0; step /= 2)
            total += (int64_t)__shfl_xor_sync(WHOLE_WARP, (long long)total, step);
        if (lane == 0)
            before[warp] = total + (warp == 1 ? args.count - args.left[block.row] : 0);
    }
    __syncthreads();
    int64_t next_below = before[0], next_at = before[1];
    for (int64_t base = block.first; base < block.last; base += SELECT_TILE) {
        const int64_t position = base + warp * (32 * ITEMS) + lane;
        Key keys[ITEMS];
        uint32_t below[ITEMS], at[ITEMS];
        int count_below, count_at;
        block.load(position, 32, keys);
        find_wanted(keys, limit, block.last - position, below, at, count_below, count_at);
        if (lane == 0) {
            counts[0][warp] = count_below;
            counts[1][warp] = count_at;
        }
        __syncthreads();
        int64_t here_below = next_below, here_at = next_at;
        for (int i = 0; i < WARPS; i++) {
            here_below += i < warp ? counts[0][i] : 0;
            here_at += i < warp ? counts[1][i] : 0;
            next_below += counts[0][i];
            next_at += counts[1][i];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            int64_t target = args.count;
            if (below[j] >> lane & 1)
                target = here_below + __popc(below[j] & lower);
            else if (at[j] >> lane & 1)
                target = here_at + __popc(at[j] & lower);
            if (target < args.count) {
                wanted[target] = keys[j];
                positions[target] = position + 32 * j;
            }
            here_below += __popc(below[j]);
            here_at += __popc(at[j]);
        }
    }
}

KERNEL(select_collect_4, select_arguments) { collect<uint32_t>(args); }
KERNEL(select_collect_8, select_arguments) { collect<uint64_t>(args); }

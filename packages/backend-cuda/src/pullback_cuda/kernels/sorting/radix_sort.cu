// Passes of the radix sort of long rows: each block counts the digits of its keys, then the counts
// of all blocks are scanned, then each block moves its keys, tile by tile.
#include "kernels/sorting/radix_sort.cuh"

// The keys of this block: of a row, from one of them on up to another.
struct radix_block {
    int64_t row, number, first, last;

    DEVICE radix_block(const radix_arguments &args) {
        row = blockIdx.x / args.blocks;
        number = blockIdx.x - row * args.blocks;
        first = number * args.chunk;
        last = first + args.chunk < args.n ? first + args.chunk : args.n;
    }
};

template <class Key>
DEVICE void count_digits(const radix_arguments &args) {
    __shared__ uint32_t counts[RADIX_WARPS][RADIX_DIGITS];
    const radix_state state(args.differ, args.digit);
    if (!state.is_active)
        return;
    const radix_block block(args);
    const Key *const keys =
        static_cast<const Key *>(args.keys[state.passes_before & 1]) + block.row * args.n;
    uint32_t *const mine = counts[threadIdx.x / 32];
    for (int i = 0; i < RADIX_WARPS; i++)
        counts[i][threadIdx.x] = 0;
    __syncthreads();
    constexpr int AT_ONCE = 4;
    for (int64_t base = block.first; base < block.last; base += AT_ONCE * RADIX_DIGITS) {
        Key some[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int64_t position = base + j * RADIX_DIGITS + threadIdx.x;
            some[j] = position < block.last ? keys[position] : 0;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const bool is_there = base + j * RADIX_DIGITS + threadIdx.x < block.last;
            const uint32_t value = is_there ? digit_of(some[j], args.digit) : RADIX_DIGITS;
            // Atomic additions to one counter would wait for each other.
            if (__all_sync(WHOLE_WARP, value == __shfl_sync(WHOLE_WARP, value, 0))) {
                if (threadIdx.x % 32 == 0 && is_there)
                    mine[value] += 32;
            } else if (is_there) {
                atomicAdd(mine + value, 1u);
            }
            __syncwarp();
        }
    }
    __syncthreads();
    uint32_t total = 0;
    for (int i = 0; i < RADIX_WARPS; i++)
        total += counts[i][threadIdx.x];
    args.counts[(block.row * RADIX_DIGITS + threadIdx.x) * args.blocks + block.number] = total;
}

KERNEL(radix_count_4, radix_arguments) { count_digits<uint32_t>(args); }
KERNEL(radix_count_8, radix_arguments) { count_digits<uint64_t>(args); }

// A block for each row and digit.
KERNEL(radix_sum, radix_arguments) {
    __shared__ uint64_t sums[RADIX_WARPS];
    const radix_state state(args.differ, args.digit);
    if (!state.is_active)
        return;
    const uint32_t *const counts = args.counts + blockIdx.x * args.blocks;
    uint64_t *const starts = args.starts + blockIdx.x * args.blocks;
    __shared__ uint64_t all;
    uint64_t base = 0;
    for (int64_t first = 0; first < args.blocks; first += RADIX_DIGITS) {
        const int64_t position = first + threadIdx.x;
        const uint64_t count = position < args.blocks ? counts[position] : 0;
        const uint64_t before = sum_before(count, sums);
        if (position < args.blocks)
            starts[position] = base + before;
        if (threadIdx.x == RADIX_DIGITS - 1)
            all = before + count;
        __syncthreads();
        base += all;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        args.totals[blockIdx.x] = base;
}

template <class Key, class Order, int ITEMS>
DEVICE void move_keys(const radix_arguments &args) {
    constexpr int TILE = ITEMS * RADIX_DIGITS;
    __shared__ radix_counters counters;
    __shared__ uint64_t next[RADIX_DIGITS]; // where the next key with a digit goes
    __shared__ uint64_t sums[RADIX_WARPS];
    __shared__ Key keys_there[TILE];
    Order *const order_there = reinterpret_cast<Order *>(keys_there);
    static_assert(sizeof(Order) <= sizeof(Key), "the order must fit where the keys were");
    const radix_state state(args.differ, args.digit);
    if (!state.is_active)
        return;
    const radix_block block(args);
    const int source = state.passes_before & 1;
    const int64_t row = block.row * args.n;
    const Key *const keys_from = static_cast<const Key *>(args.keys[source]) + row;
    const Order *const order_from = static_cast<const Order *>(args.order[source]) + row;
    Key *const keys_to = static_cast<Key *>(args.keys[1 - source]) + row;
    Order *const order_to = static_cast<Order *>(args.order[1 - source]) + row;
    const int64_t digit_row = block.row * RADIX_DIGITS + threadIdx.x;
    const uint64_t before = sum_before(args.totals[digit_row], sums);
    next[threadIdx.x] = before + args.starts[digit_row * args.blocks + block.number];
    const int in_tile = threadIdx.x / 32 * (32 * ITEMS) + threadIdx.x % 32;
    for (int64_t base = block.first; base < block.last; base += TILE) {
        const int count = (int)(block.last - base < TILE ? block.last - base : TILE);
        Key keys[ITEMS];
        uint32_t ranks[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            // Keys beyond the end are sorted to the end.
            keys[j] = in_tile + 32 * j < count ? keys_from[base + in_tile + 32 * j] : ~(Key)0;
        rank_tile(keys, args.digit, counters, ranks);
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            keys_there[ranks[j]] = keys[j];
        __syncthreads();
        int64_t target[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int position = threadIdx.x + RADIX_DIGITS * j;
            const Key key = keys_there[position];
            const uint32_t value = digit_of(key, args.digit);
            target[j] = (int64_t)(next[value] + position - counters.starts[value]);
            if (position < count)
                keys_to[target[j]] = key;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t position = base + in_tile + 32 * j;
            order_there[ranks[j]] = state.passes_before == 0 || in_tile + 32 * j >= count
                                        ? (Order)position
                                        : order_from[position];
        }
        next[threadIdx.x] += counters.totals[threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            if ((int)threadIdx.x + RADIX_DIGITS * j < count)
                order_to[target[j]] = order_there[threadIdx.x + RADIX_DIGITS * j];
        __syncthreads();
    }
}

// The bytes of a key, and those of a position.
KERNEL(radix_move_4_4, radix_arguments) {
    move_keys<uint32_t, uint32_t, RADIX_TILE_4 / RADIX_DIGITS>(args);
}
KERNEL(radix_move_8_4, radix_arguments) {
    move_keys<uint64_t, uint32_t, RADIX_TILE_8 / RADIX_DIGITS>(args);
}
KERNEL(radix_move_8_8, radix_arguments) {
    move_keys<uint64_t, uint64_t, RADIX_TILE_8 / RADIX_DIGITS>(args);
}

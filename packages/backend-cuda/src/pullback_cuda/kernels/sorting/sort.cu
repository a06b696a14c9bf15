// Stable sorts of rows, with the original positions of elements.
//
// Keys and positions are sorted together. Elements are computed from their keys; those that share a
// key with a different element are read again.
#include "kernels/strides/indexer.cuh"
#include "kernels/sorting/radix_sort.cuh"
#include "kernels/sorting/sort.h"
#include "kernels/sorting/sort_keys.cuh"

// ---- rows that fit into a block ----------------------------------------------------------------

// The offsets of a row, and writes of its results.
template <class Key>
struct sorted_row {
    const sort_rows_arguments &args;
    const key_maker<Key> maker;
    int64_t input, values, indices;

    DEVICE sorted_row(const sort_rows_arguments &given)
        : args(given), maker(given.how), input(0), values(0), indices(0) {}

    DEVICE void go_to(int64_t row) {
        int64_t at_input = 0, at_values = 0, at_indices = 0;
        unravel_index(args.rows, row, [&](int d, int64_t at) {
            at_input += at * args.input_rows[d];
            at_values += at * args.values_rows[d];
            at_indices += at * args.indices_rows[d];
        });
        input = at_input;
        values = at_values;
        indices = at_indices;
    }

    DEVICE Key bits_at(int64_t position) const {
        return load_bits<Key>(args.input, input + position * args.input_step, args.how.bytes);
    }

    DEVICE void write(int64_t rank, Key key, int64_t position) const {
        if (rank >= args.count)
            return;
        if (args.values != nullptr)
            store_bits(args.values, values + rank * args.values_step, args.how.bytes,
                       maker.is_shared(key) ? bits_at(position) : maker.bits_of(key));
        if (args.index_bytes == 8)
            static_cast<int64_t *>(args.indices)[indices + rank * args.indices_step] = position;
        else
            static_cast<uint32_t *>(args.indices)[indices + rank * args.indices_step] =
                (uint32_t)position;
    }
};

// Short rows: each element's rank is the number of those that come before it.
template <class Key>
DEVICE void rank_rows(const sort_rows_arguments &args) {
    __shared__ Key keys[SORT_SMALL];
    sorted_row<Key> row(args);
    const int group = args.group, at_once = blockDim.x / group;
    const int mine = threadIdx.x / group, position = threadIdx.x % group, n = (int)args.n;
    for (int64_t first = (int64_t)blockIdx.x * at_once; first < args.rows.total;
         first += (int64_t)gridDim.x * at_once) {
        const bool is_there = first + mine < args.rows.total && position < n;
        Key key = 0;
        if (is_there) {
            row.go_to(first + mine);
            key = row.maker.key_of(row.bits_at(position));
        }
        keys[threadIdx.x] = key;
        __syncthreads();
        const Key *const others = keys + mine * group;
        int rank = 0;
        for (int i = 0; i < n; i++)
            rank += others[i] < key || (others[i] == key && i < position);
        if (is_there)
            row.write(rank, key, position);
        __syncthreads();
    }
}

KERNEL(sort_small_4, sort_rows_arguments) { rank_rows<uint32_t>(args); }
KERNEL(sort_small_8, sort_rows_arguments) { rank_rows<uint64_t>(args); }

// Shared memory of a block that sorts a tile.
template <class Key, int ITEMS>
union shared_tile {
    radix_counters counters;
    struct {
        Key keys[ITEMS * RADIX_DIGITS];
        uint16_t positions[ITEMS * RADIX_DIGITS];
    } sorted;
};

// Rows of up to ITEMS elements for each thread of a block.
template <class Key, int ITEMS>
DEVICE void sort_rows(const sort_rows_arguments &args) {
    __shared__ shared_tile<Key, ITEMS> shared;
    __shared__ uint32_t differ[2];
    sorted_row<Key> row(args);
    const int in_tile = threadIdx.x / 32 * (32 * ITEMS) + threadIdx.x % 32, n = (int)args.n;
    for (int64_t number = blockIdx.x; number < args.rows.total; number += gridDim.x) {
        Key keys[ITEMS];
        uint16_t positions[ITEMS];
        row.go_to(number);
        const Key first = row.maker.key_of(row.bits_at(0));
        uint64_t bits = 0;
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int position = in_tile + 32 * j;
            positions[j] = (uint16_t)position;
            // Keys beyond the end are sorted to the end.
            keys[j] = ~(Key)0;
            if (position < n) {
                keys[j] = row.maker.key_of(row.bits_at(position));
                bits |= keys[j] ^ first;
            }
        }
        if (threadIdx.x < 2)
            differ[threadIdx.x] = 0;
        __syncthreads();
        if ((uint32_t)bits != 0)
            atomicOr(differ, (uint32_t)bits);
        if (sizeof(Key) == 8 && bits >> 32 != 0)
            atomicOr(differ + 1, (uint32_t)(bits >> 32));
        __syncthreads();
        for (int digit = 0; digit < (int)sizeof(Key); digit++) {
            uint32_t ranks[ITEMS];
            if (!radix_state(differ, digit).is_active)
                continue;
            rank_tile(keys, digit, shared.counters, ranks);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                shared.sorted.keys[ranks[j]] = keys[j];
                shared.sorted.positions[ranks[j]] = positions[j];
            }
            __syncthreads();
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                keys[j] = shared.sorted.keys[in_tile + 32 * j];
                positions[j] = shared.sorted.positions[in_tile + 32 * j];
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
            if (in_tile + 32 * j < n)
                row.write(in_tile + 32 * j, keys[j], positions[j]);
        __syncthreads();
    }
}

KERNEL(sort_medium_4, sort_rows_arguments) {
    sort_rows<uint32_t, SORT_MEDIUM / RADIX_DIGITS>(args);
}
KERNEL(sort_medium_8, sort_rows_arguments) {
    sort_rows<uint64_t, SORT_MEDIUM / RADIX_DIGITS>(args);
}
KERNEL(sort_large_4, sort_rows_arguments) { sort_rows<uint32_t, SORT_LARGE / RADIX_DIGITS>(args); }
KERNEL(sort_large_8, sort_rows_arguments) { sort_rows<uint64_t, SORT_LARGE / RADIX_DIGITS>(args); }

// ---- long rows: before and after the passes of radix_sort.cu -----------------------------------

template <class Key>
DEVICE void make_keys(const sort_long_arguments &args) {
    Key *const keys = static_cast<Key *>(args.keys[0]);
    const key_maker<Key> maker(args.how);
    const Key first = maker.key_of(load_bits<Key>(args.input, 0, args.how.bytes));
    uint64_t bits = 0;
    for (int64_t number = thread_number(); number < args.total; number += thread_count()) {
        const int64_t position = offset_of(args.where, args.first + number, args.input_steps);
        const Key key = maker.key_of(load_bits<Key>(args.input, position, args.how.bytes));
        keys[number] = key;
        bits |= key ^ first;
    }
    if ((uint32_t)bits & ~*static_cast<volatile uint32_t *>(args.differ))
        atomicOr(args.differ, (uint32_t)bits);
    if (sizeof(Key) == 8 &&
        ((uint32_t)(bits >> 32) & ~*static_cast<volatile uint32_t *>(args.differ + 1)))
        atomicOr(args.differ + 1, (uint32_t)(bits >> 32));
}

KERNEL(sort_begin_4, sort_long_arguments) { make_keys<uint32_t>(args); }
KERNEL(sort_begin_8, sort_long_arguments) { make_keys<uint64_t>(args); }

template <class Key>
DEVICE void write_rows(const sort_long_arguments &args) {
    const key_maker<Key> maker(args.how);
    const int passes = radix_state(args.differ, (int)sizeof(Key)).passes_before;
    const Key *const keys = static_cast<const Key *>(args.keys[passes & 1]);
    const void *const order = args.order[passes & 1];
    for (int64_t number = thread_number(); number < args.total; number += thread_count()) {
        const int64_t row = quotient(number, args.row, args.narrow);
        const int64_t rank = number - row * args.count, from = row * args.n + rank;
        int64_t input = 0, values = 0, indices = 0, position = rank;
        unravel_index(args.where, args.first + number, [&](int d, int64_t at) {
            input += at * args.input_steps[d];
            values += at * args.values_steps[d];
            indices += at * args.indices_steps[d];
        });
        if (passes > 0 && args.wide)
            position = static_cast<const int64_t *>(order)[from];
        else if (passes > 0)
            position = static_cast<const uint32_t *>(order)[from];
        if (args.positions != nullptr) {
            position = args.positions[row * args.n + position];
            // Nothing outside is touched, even if elements changed while they were counted.
            position = (uint64_t)position < (uint64_t)args.length ? position : 0;
        }
        static_cast<int64_t *>(args.indices)[indices] = position;
        if (args.values == nullptr)
            continue;
        const Key key = keys[from];
        Key bits = maker.bits_of(key);
        if (maker.is_shared(key))
            bits = load_bits<Key>(args.input, input + position * args.input_step, args.how.bytes);
        store_bits(args.values, values, args.how.bytes, bits);
    }
}

KERNEL(sort_finish_4, sort_long_arguments) { write_rows<uint32_t>(args); }
KERNEL(sort_finish_8, sort_long_arguments) { write_rows<uint64_t>(args); }

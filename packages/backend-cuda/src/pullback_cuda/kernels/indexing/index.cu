// Writes at index arrays: the key of each position, and writes of rows to the positions of keys.
//
// Of several positions that share a key the last one writes. Without a sort it is found as the
// largest position of each key, independently of the order of threads.
#include "kernels/indexing/indexed.cuh"
#include "kernels/strides/row_indexer.cuh"

DEVICE void raise_winner(uint32_t *winner, int64_t position) {
    atomicMax(winner, (uint32_t)position + 1);
}

DEVICE void raise_winner(uint64_t *winner, int64_t position) {
    atomicMax(reinterpret_cast<unsigned long long *>(winner), (unsigned long long)position + 1);
}

template <class Key, int COUNT>
DEVICE void make_some_keys(const keys_arguments &args) {
    Key *const keys = static_cast<Key *>(args.keys);
    Key *const winner = static_cast<Key *>(args.winner);
    const int64_t total = args.where.total, step = thread_count();
    for (int64_t first = thread_number(); first < total; first += POSITIONS_AT_ONCE * step) {
        looked_up<COUNT> found[POSITIONS_AT_ONCE];
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++) {
            found[j].is_there = first + j * step < total;
            if (found[j].is_there)
                look_up(args.where, args.far_steps, args.by, first + j * step, found[j],
                        [](int, int64_t) {});
        }
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            load_indices(args.by, found[j]);
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++) {
            const int64_t number = first + j * step;
            if (number >= total)
                break;
            add_indices(args.by, found[j]);
            Key key = (Key)args.nowhere;
            if (found[j].is_there)
                key = (Key)(found[j].far + args.base);
            if (args.adds)
                key = keys[number] == (Key)args.nowhere || !found[j].is_there ? (Key)args.nowhere
                                                                              : keys[number] + key;
            keys[number] = key;
            if (winner != nullptr && found[j].is_there)
                raise_winner(winner + key, number);
        }
    }
}

template <class Key>
DEVICE void make_keys(const keys_arguments &args) {
    if (args.by.count == 1)
        make_some_keys<Key, 1>(args);
    else
        make_some_keys<Key, INDEX_ARRAYS>(args);
}

KERNEL(keys_4, keys_arguments) { make_keys<uint32_t>(args); }
KERNEL(keys_8, keys_arguments) { make_keys<uint64_t>(args); }

KERNEL(clear, clear_arguments) {
    uint32_t *const data = static_cast<uint32_t *>(args.data);
    for (int64_t i = thread_number(); i < args.count; i += thread_count())
        data[i] = 0;
}

// ---- rows --------------------------------------------------------------------------------------

// An element of a row to write: its offsets; absent elements are not written.
struct found_element {
    int64_t key, near, far;
    bool is_there;
};

// Find some elements of rows, each `step` after the one before.
DEVICE void find_elements(const put_arguments &args, int64_t first, int64_t step,
                          found_element *found) {
    const int64_t total = args.count * args.row.total;
    int64_t turn[POSITIONS_AT_ONCE], element[POSITIONS_AT_ONCE];
#pragma unroll
    for (int j = 0; j < POSITIONS_AT_ONCE; j++) {
        split_number(args, first + j * step, turn[j], element[j]);
        found[j].is_there = first + j * step < total;
        found[j].key = args.nowhere;
        if (found[j].is_there)
            found[j].key = load_number(args.keys, turn[j], args.wide);
    }
#pragma unroll
    for (int j = 0; j < POSITIONS_AT_ONCE; j++) {
        found[j].is_there = found[j].key != args.nowhere;
        if (found[j].is_there && args.winner != nullptr)
            found[j].is_there = load_number(args.winner, found[j].key, args.wide) == turn[j] + 1;
        if (found[j].is_there) {
            row_offsets(args, element[j], found[j].near, found[j].far);
            found[j].near += near_offset(args, position_of(args, turn[j]));
            found[j].far += found[j].key * args.scale + args.base;
        }
    }
}

template <class Word>
DEVICE void put(const put_arguments &args) {
    const Word *const near_data = static_cast<const Word *>(args.near_data);
    Word *const far_data = static_cast<Word *>(args.far_data);
    const int64_t total = args.count * args.row.total, step = thread_count();
    for (int64_t first = thread_number(); first < total; first += POSITIONS_AT_ONCE * step) {
        found_element found[POSITIONS_AT_ONCE];
        Word value[POSITIONS_AT_ONCE];
        find_elements(args, first, step, found);
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            if (found[j].is_there)
                value[j] = near_data[found[j].near];
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            if (found[j].is_there)
                far_data[found[j].far] = value[j];
    }
}

// Sums of integers do not depend on the order.
template <class Integer>
DEVICE void add(const put_arguments &args) {
    const Integer *const near_data = static_cast<const Integer *>(args.near_data);
    Integer *const far_data = static_cast<Integer *>(args.far_data);
    const int64_t total = args.count * args.row.total, step = thread_count();
    for (int64_t first = thread_number(); first < total; first += POSITIONS_AT_ONCE * step) {
        found_element found[POSITIONS_AT_ONCE];
        find_elements(args, first, step, found);
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            if (found[j].is_there)
                atomicAdd(far_data + found[j].far, near_data[found[j].near]);
    }
}

#define PUT(BYTES) \
    KERNEL(put_##BYTES, put_arguments) { put<word_of<BYTES>::type>(args); }
PUT(1)
PUT(2)
PUT(4)
PUT(8)
PUT(16)

KERNEL(add_4, put_arguments) { add<unsigned int>(args); }
KERNEL(add_8, put_arguments) { add<unsigned long long>(args); }

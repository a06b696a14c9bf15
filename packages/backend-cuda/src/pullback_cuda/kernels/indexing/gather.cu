// Gathers elements at index arrays, along one dim or the first few. Only their size matters.
#include "kernels/indexing/indexed.cuh"

template <class Word, int COUNT>
DEVICE void take_some(const take_arguments &args) {
    const Word *const far_data = static_cast<const Word *>(args.far_data);
    Word *const near_data = static_cast<Word *>(args.near_data);
    const int64_t total = args.where.total, step = thread_count();
    for (int64_t first = thread_number(); first < total; first += POSITIONS_AT_ONCE * step) {
        looked_up<COUNT> found[POSITIONS_AT_ONCE];
        int64_t near_at[POSITIONS_AT_ONCE];
        Word value[POSITIONS_AT_ONCE];
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++) {
            int64_t number = first + j * step, offset = 0;
            found[j].is_there = number < total;
            if (found[j].is_there)
                look_up(args.where, args.far_steps, args.by, number, found[j],
                        [&](int d, int64_t at) { offset += at * args.near_steps[d]; });
            near_at[j] = offset;
        }
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            load_indices(args.by, found[j]);
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            add_indices(args.by, found[j]);
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            if (found[j].is_there)
                value[j] = far_data[found[j].far];
#pragma unroll
        for (int j = 0; j < POSITIONS_AT_ONCE; j++)
            if (found[j].is_there)
                near_data[near_at[j]] = value[j];
    }
}

template <class Word>
DEVICE void take(const take_arguments &args) {
    if (args.by.count == 1)
        take_some<Word, 1>(args);
    else
        take_some<Word, INDEX_ARRAYS>(args);
}

#define TAKE(BYTES) \
    KERNEL(take_##BYTES, take_arguments) { take<word_of<BYTES>::type>(args); }
TAKE(1)
TAKE(2)
TAKE(4)
TAKE(8)
TAKE(16)

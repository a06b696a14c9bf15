// The same elements in another order, or cut to a triangle. Only the size of an element matters.
#include "kernels/shape/rearrange.h"
#include "kernels/strides/indexer.cuh"

#define AT_ONCE 4 // elements of a thread whose loads overlap

template <class Word>
DEVICE void copy_strided(const flip_arguments &args) {
    const Word *const input = static_cast<const Word *>(args.input);
    Word *const out = static_cast<Word *>(args.out);
    const int64_t total = args.where.total, step = thread_count();
    for (int64_t first = thread_number(); first < total; first += AT_ONCE * step) {
        int64_t from[AT_ONCE], to[AT_ONCE];
        Word value[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int64_t input_at = 0, out_at = 0;
            if (first + j * step < total)
                unravel_index(args.where, first + j * step, [&](int d, int64_t at) {
                    input_at += at * args.input_steps[d];
                    out_at += at * args.out_steps[d];
                });
            from[j] = input_at;
            to[j] = out_at;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j * step < total)
                value[j] = input[from[j]];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j * step < total)
                out[to[j]] = value[j];
    }
}

// Some elements of a row, which are loaded and stored together.
template <class Word, int COUNT>
struct alignas(sizeof(Word) * COUNT) words {
    Word at[COUNT];
};

template <class Word, int COUNT>
DEVICE void cut_triangle(const triangle_arguments &args) {
    typedef words<Word, COUNT> Vector;
    const Word *const input = static_cast<const Word *>(args.input);
    Word *const out = static_cast<Word *>(args.out);
    for (int64_t number = thread_number(); number < args.total; number += thread_count()) {
        const int64_t line = quotient(number, args.columns, args.narrow);
        const int64_t column = (number - line * args.columns.size) * COUNT;
        const int64_t row = line - quotient(line, args.rows, args.narrow) * args.rows.size;
        int64_t from = column * args.input_step, to = column * args.out_step;
        unravel_index(args.where, line, [&](int d, int64_t at) {
            from += at * args.input_steps[d];
            to += at * args.out_steps[d];
        });
        // The columns that stay begin or end at the diagonal; `border` is the first one after it.
        const int64_t border = row + args.diagonal + (args.upper ? 0 : 1) - column;
        Vector vector = {};
        if (args.upper ? border < COUNT : border > 0)
            vector = *reinterpret_cast<const Vector *>(input + from);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (args.upper ? i < border : i >= border)
                vector.at[i] = Word{};
        *reinterpret_cast<Vector *>(out + to) = vector;
    }
}

template <class Word>
DEVICE void cut(const triangle_arguments &args) {
    if (sizeof(Word) < 16 && args.vector > 1)
        cut_triangle<Word, 16 / sizeof(Word)>(args);
    else
        cut_triangle<Word, 1>(args);
}

#define MOVES(BYTES) \
    KERNEL(flip_##BYTES, flip_arguments) { copy_strided<word_of<BYTES>::type>(args); } \
    KERNEL(triangle_##BYTES, triangle_arguments) { cut<word_of<BYTES>::type>(args); }
MOVES(1)
MOVES(2)
MOVES(4)
MOVES(8)
MOVES(16)

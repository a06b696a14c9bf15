/* Transposition of a matrix in blocks that fit into vector registers.
 *
 * A block of N vectors of N elements is transposed by log2 N perfect shuffles: each interleaves
 * vector i with vector i + N/2, which rotates the bits of an element's index, those of the row
 * before those of the column, by one. So every cache line is read once and written once.
 *
 * Into large memory, whole lines may be written past the caches: then they need not be read first,
 * which took three quarters of the time. All rows of a block's columns come one after the other. */
#ifndef PULLBACK_CPU_TRANSPOSE_H
#define PULLBACK_CPU_TRANSPOSE_H
#include <stdint.h>
#include <string.h>

/* For elements of a size that no vectors are defined for, and for what blocks leave over:
 * out[i, j] = in[j, i] for rows from `first` to `last`. Steps count elements. */
#define PB_DEFINE_PLAIN(size, type) \
    static void pb_transpose_rows_##size(type *out, int64_t out_step, const type *in, \
                                         int64_t in_step, int64_t first, int64_t last, \
                                         int64_t from, int64_t columns) { \
        for (int64_t i = first; i < last; ++i) \
            for (int64_t j = from; j < columns; ++j) \
                out[i * out_step + j] = in[j * in_step + i]; \
    }

#define PB_DEFINE_UNBLOCKED(size, type) \
    static void pb_transpose_##size(char *out, int64_t out_step, const char *in, int64_t in_step, \
                                    int64_t rows, int64_t columns, int streams) { \
        pb_transpose_rows_##size((type *)out, out_step, (const type *)in, in_step, 0, rows, 0, \
                                 columns); \
    }

typedef struct {
    uint64_t word[2];
} pb_words; /* complex128 */
PB_DEFINE_PLAIN(1, uint8_t)
PB_DEFINE_PLAIN(2, uint16_t)
PB_DEFINE_PLAIN(4, uint32_t)
PB_DEFINE_PLAIN(8, uint64_t)
PB_DEFINE_PLAIN(16, pb_words)
PB_DEFINE_UNBLOCKED(1, uint8_t)
PB_DEFINE_UNBLOCKED(16, pb_words)

#if defined(__GNUC__) && !defined(__clang__)
#if defined(__AVX512F__)
#include <immintrin.h>
#define PB_LINE 64 /* bytes of a vector that is a cache line */
#define PB_STREAM(out, vector) \
    do { \
        __m512i line; \
        memcpy(&line, &vector, sizeof(vector)); \
        _mm512_stream_si512((__m512i *)(out), line); \
    } while (0)
#define PB_STREAMS_END() _mm_sfence()
#else
#define PB_LINE 0
#define PB_STREAM(out, vector) memcpy(out, &vector, sizeof(vector))
#define PB_STREAMS_END() ((void)0)
#endif
/* Indices that interleave halves of two vectors: 0, N, 1, N + 1 ... and N/2, N + N/2 ... */
#define PB_LOW4 0, 4, 1, 5
#define PB_HIGH4 2, 6, 3, 7
#define PB_LOW8 0, 8, 1, 9, 2, 10, 3, 11
#define PB_HIGH8 4, 12, 5, 13, 6, 14, 7, 15
#define PB_LOW16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define PB_HIGH16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

#define PB_DEFINE_TRANSPOSE(size, type, N, stages) \
    typedef type pb_block_##size __attribute__((vector_size(N * size))); \
    static inline __attribute__((always_inline)) void pb_transpose_block_##size( \
        type *out, int64_t out_step, const type *in, int64_t in_step, const int streams) { \
        const pb_block_##size low = {PB_LOW##N}, high = {PB_HIGH##N}; \
        pb_block_##size r[N], t[N]; \
        for (int i = 0; i < N; ++i) \
            memcpy(&r[i], in + i * in_step, sizeof(r[i])); \
        for (int stage = 0; stage < stages; ++stage) { \
            for (int i = 0; i < N / 2; ++i) { \
                t[2 * i] = __builtin_shuffle(r[i], r[i + N / 2], low); \
                t[2 * i + 1] = __builtin_shuffle(r[i], r[i + N / 2], high); \
            } \
            for (int i = 0; i < N; ++i) \
                r[i] = t[i]; \
        } \
        for (int i = 0; i < N; ++i) \
            if (streams) \
                PB_STREAM(out + i * out_step, r[i]); \
            else \
                memcpy(out + i * out_step, &r[i], sizeof(r[i])); \
    } \
    static void pb_transpose_##size(char *out_data, int64_t out_step, const char *in_data, \
                                    int64_t in_step, int64_t rows, int64_t columns, int streams) { \
        type *out = (type *)out_data; \
        const type *in = (const type *)in_data; \
        int64_t whole_rows = rows - rows % N, whole_columns = columns - columns % N; \
        streams = streams && N * size == PB_LINE && \
                  (((uintptr_t)out_data | (uintptr_t)(out_step * size)) & (PB_LINE - 1)) == 0; \
        if (streams) { \
            for (int64_t j = 0; j < whole_columns; j += N) \
                for (int64_t i = 0; i < whole_rows; i += N) \
                    pb_transpose_block_##size(out + i * out_step + j, out_step, \
                                              in + j * in_step + i, in_step, 1); \
            PB_STREAMS_END(); \
        } \
        for (int64_t i = 0; i < whole_rows; i += N) { \
            for (int64_t j = 0; j < whole_columns && !streams; j += N) \
                pb_transpose_block_##size(out + i * out_step + j, out_step, in + j * in_step + i, \
                                          in_step, 0); \
            pb_transpose_rows_##size(out, out_step, in, in_step, i, i + N, whole_columns, \
                                     columns); \
        } \
        pb_transpose_rows_##size(out, out_step, in, in_step, whole_rows, rows, 0, columns); \
    }
#if defined(__AVX512F__)
PB_DEFINE_TRANSPOSE(4, uint32_t, 16, 4)
PB_DEFINE_TRANSPOSE(8, uint64_t, 8, 3)
#elif defined(__AVX2__)
PB_DEFINE_TRANSPOSE(4, uint32_t, 8, 3)
PB_DEFINE_TRANSPOSE(8, uint64_t, 4, 2)
#else
PB_DEFINE_TRANSPOSE(4, uint32_t, 4, 2)
PB_DEFINE_TRANSPOSE(8, uint64_t, 4, 2)
#endif
#if defined(__AVX2__)
PB_DEFINE_TRANSPOSE(2, uint16_t, 16, 4)
#else
PB_DEFINE_TRANSPOSE(2, uint16_t, 8, 3)
#endif
#else
PB_DEFINE_UNBLOCKED(2, uint16_t)
PB_DEFINE_UNBLOCKED(4, uint32_t)
PB_DEFINE_UNBLOCKED(8, uint64_t)
#endif
#endif

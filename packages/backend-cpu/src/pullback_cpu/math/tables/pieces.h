/* Functions by pieces: a polynomial for each of many short intervals, in double.

   Adding `shift` to a number from `start` to `end` gives one whose exponent and first bits tell the
   interval: there are 2**bits of them in each octave. The variable of a polynomial is the distance
   to the interval's middle, which is exact. The first row after the `count` intervals is of the
   numbers beyond the end, in 1 / x or 1 / x**2; `middles` are those of the rows from there on. */
#ifndef PULLBACK_CPU_PIECES_H
#define PULLBACK_CPU_PIECES_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__) && !defined(__AVX512F__)
#include <immintrin.h>
#endif

#define PB_PIECE_TERMS 15

typedef struct {
    double start, end, shift;
    int64_t bits, count;
    double middles[4];
    const double (*rows)[PB_PIECE_TERMS];
} pb_pieces;

/* The polynomial of a row. */
static inline double pb_row(const pb_pieces *table, int64_t row, double u) {
    const double *c = table->rows[row];
    double value = c[PB_PIECE_TERMS - 1];
#pragma GCC unroll 16
    for (int k = PB_PIECE_TERMS - 2; k >= 0; k--)
        value = value * u + c[k];
    return value;
}

/* x y - z, spelled so that every loop rounds alike. */
static inline double pb_product_less(double x, double y, double z) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fma(x, y, -z);
#else
    return x * y - z;
#endif
}

/* A row of other numbers, `which` of those after the intervals, for the variable x y. */
static inline double pb_other_row(const pb_pieces *table, int which, double x, double y) {
    return pb_row(table, table->count + which, pb_product_less(x, y, table->middles[which]));
}

/* The intervals of sizes |x| and the variables of their polynomials; of any number below start. n is a
   multiple of 8. */
static __attribute__((noinline, unused)) void pb_locate(const pb_pieces *table, int squared,
                                                        const double *a, int64_t n, int64_t *rows,
                                                        double *u) {
    double shift = table->shift, start = table->start, end = table->end, base = start + shift;
    double middle = table->middles[0];
    n &= -8;
    int64_t count = table->count, down = 52 - table->bits, half = (int64_t)1 << (down - 1), first;
    memcpy(&first, &base, 8);
    first >>= down;
    for (int64_t i = 0; i < n; i++) {
        double x = __builtin_fabs(a[i]), y, centre, v = 1 / x;
        int64_t bits;
        int inside = x < end;
        x = x < start ? start : x;
        y = (inside ? x : start) + shift;
        memcpy(&bits, &y, 8);
        rows[i] = inside ? (bits >> down) - first : count;
        bits = (bits & (-2 * half)) | half;
        memcpy(&centre, &bits, 8);
        u[i] = inside ? x - (centre - shift) : pb_product_less(v, squared ? v : 1, middle);
    }
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* Two doubles of one row, and under them two of another. */
static inline __attribute__((always_inline)) __m256d pb_two_rows(const double *c, const double *d) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(c)), _mm_loadu_pd(d), 1);
}

/* Take the polynomials of four rows on by two or one of their columns. Rows are loaded and transposed
   where the compiler would gather each column, which takes twice the time. */
static inline __attribute__((always_inline)) __m256d
pb_two_columns(const double *c0, const double *c1, const double *c2, const double *c3, int first,
               int both, __m256d u, __m256d value) {
    __m256d even = pb_two_rows(c0 + first, c2 + first), odd = pb_two_rows(c1 + first, c3 + first);
    if (both)
        value = _mm256_fmadd_pd(value, u, _mm256_unpackhi_pd(even, odd));
    return _mm256_fmadd_pd(value, u, _mm256_unpacklo_pd(even, odd));
}
#endif

/* n is a multiple of 8. */
static __attribute__((noinline, unused)) void
pb_evaluate(const pb_pieces *table, const int64_t *rows, const double *u, double *o, int64_t n) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        const double *c0 = table->rows[rows[i]], *c1 = table->rows[rows[i + 1]];
        const double *c2 = table->rows[rows[i + 2]], *c3 = table->rows[rows[i + 3]];
        __m256d variable = _mm256_loadu_pd(u + i), value = _mm256_setzero_pd();
#pragma GCC unroll 8
        for (int k = PB_PIECE_TERMS - 2; k > 0; k -= 2)
            value = pb_two_columns(c0, c1, c2, c3, k, 1, variable, value);
        value = pb_two_columns(c0, c1, c2, c3, 0, 0, variable, value);
        _mm256_storeu_pd(o + i, value);
    }
#else
    for (int64_t i = 0; i < n; i++)
        o[i] = pb_row(table, rows[i], u[i]);
#endif
}

#endif

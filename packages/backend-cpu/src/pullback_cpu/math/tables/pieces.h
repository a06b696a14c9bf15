/* Functions by pieces: a polynomial for each of many short intervals, in double.

   Adding `shift` to a number from `start` to `end` gives one whose exponent and first bits tell the
   interval: there are 2**bits of them in each octave. The variable of a polynomial is the distance
   to the interval's middle, which is exact. The first row after the `count` intervals is of the
   numbers beyond the end, in 1 / x or 1 / x**2; `middles` are those of the rows from there on. */
#ifndef PULLBACK_CPU_PIECES_H
#define PULLBACK_CPU_PIECES_H

#include <stdint.h>
#include <string.h>

#define PB_PIECE_TERMS 15

typedef struct {
    double start, end, shift;
    int64_t bits, count;
    double middles[4];
    const double (*rows)[PB_PIECE_TERMS];
} pb_pieces;

/* The polynomial of a row. */
static inline double pb_row(const pb_pieces *table, int64_t row, double u)
{
    const double *c = table->rows[row];
    double value = c[PB_PIECE_TERMS - 1];
#pragma GCC unroll 16
    for (int k = PB_PIECE_TERMS - 2; k >= 0; k--)
        value = value * u + c[k];
    return value;
}

/* x y - z, spelled so that every loop rounds alike. */
static inline double pb_product_less(double x, double y, double z)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fma(x, y, -z);
#else
    return x * y - z;
#endif
}

/* A row of other numbers, `which` of those after the intervals, for the variable x y. */
static inline double pb_other_row(const pb_pieces *table, int which, double x, double y)
{
    return pb_row(table, table->count + which, pb_product_less(x, y, table->middles[which]));
}

/* The intervals of sizes |x| and the variables of their polynomials; of any number below start. n is a
   multiple of 8. */
static __attribute__((noinline, unused)) void pb_locate(
    const pb_pieces *table, int squared, const double *a, int64_t n, int64_t *rows, double *u)
{
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

static __attribute__((noinline, unused)) void pb_evaluate(
    const pb_pieces *table, const int64_t *rows, const double *u, double *o, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        o[i] = pb_row(table, rows[i], u[i]);
}

#endif

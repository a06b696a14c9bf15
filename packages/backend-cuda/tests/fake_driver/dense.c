/* Loading, storing and rounding; the arithmetic is in dense_scalar.h and
 * dense_factor.h, once for each scalar. */
#include "dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCALAR double
#define NAME(name) real_##name
#define CONJUGATE(x) (x)
#define SQUARE(x) ((x) * (x))
#define SIZE_OF(x) fabs(x)
#define REAL_OF(x) (x)
#include "dense_scalar.h"
#include "dense_factor.h"
#undef SCALAR
#undef NAME
#undef CONJUGATE
#undef SQUARE
#undef SIZE_OF
#undef REAL_OF

#define SCALAR complex_double
#define NAME(name) complex_##name
#define CONJUGATE(x) conj(x)
#define SQUARE(x) (creal(x) * creal(x) + cimag(x) * cimag(x))
#define SIZE_OF(x) cabs(x)
#define REAL_OF(x) creal(x)
#include "dense_scalar.h"
#include "dense_factor.h"

void dense_substitute(int type, int op, int64_t n, int64_t count, const void *a,
                      const int64_t *pivots, void *b) {
    if (dense_is_complex(type)) complex_substitute(op, n, count, a, pivots, b);
    else real_substitute(op, n, count, a, pivots, b);
}

/* -- types ------------------------------------------------------------------------------------- */

size_t dense_size(int type) {
    switch (type) {
        case R_16F: case R_16BF: return 2;
        case R_32F: return 4;
        case R_64F: case C_32F: return 8;
        case C_64F: return 16;
        default: return 0;
    }
}

int dense_is_complex(int type) { return type == C_32F || type == C_64F; }

static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                 : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

/* To nearest, ties to even, straight from double. */
static uint16_t half_bits(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(size)) return sign | 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    int exponent;
    frexp(size, &exponent);
    if (size == 0 || exponent < -13) return sign | (uint16_t)nearbyint(ldexp(size, 24));
    double mantissa = nearbyint(ldexp(size, 11 - exponent)); /* 1024 to 2048 */
    return sign | (uint16_t)(((exponent + 14) << 10) + ((int)mantissa - 1024));
}

static double brain_value(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Through float, whose rounding is made odd so that the second one cannot go wrong. */
static uint16_t brain_bits(double value) {
    if (isnan(value)) return 0x7fc0;
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if (isfinite(near) && (double)near != value) {
        if (fabs((double)near) > fabs(value)) bits--;
        bits |= 1;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double real_at(int type, const void *numbers, int64_t i) {
    switch (type) {
        case R_16F: return half_value(((const uint16_t *)numbers)[i]);
        case R_16BF: return brain_value(((const uint16_t *)numbers)[i]);
        case R_32F: return ((const float *)numbers)[i];
        default: return ((const double *)numbers)[i];
    }
}

static complex_double complex_at(int type, const void *numbers, int64_t i) {
    if (type == C_32F) return ((const float complex *)numbers)[i];
    return ((const complex_double *)numbers)[i];
}

complex_double dense_number(int type, const void *number) {
    return dense_is_complex(type) ? complex_at(type, number, 0) : real_at(type, number, 0);
}

void *dense_load(int type, const void *matrix, int64_t ld, int op, int64_t rows, int64_t columns) {
    int64_t row_step = op == OP_N ? 1 : ld, column_step = op == OP_N ? ld : 1;
    size_t count = (size_t)(rows * columns) + 1;
    if (!dense_is_complex(type)) {
        double *packed = malloc(count * sizeof *packed);
        if (!packed) abort();
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++)
                packed[j * rows + i] = real_at(type, matrix, i * row_step + j * column_step);
        return packed;
    }
    complex_double *packed = malloc(count * sizeof *packed);
    if (!packed) abort();
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) {
            complex_double value = complex_at(type, matrix, i * row_step + j * column_step);
            packed[j * rows + i] = op == OP_C ? conj(value) : value;
        }
    return packed;
}

static void store_number(int type, void *matrix, int64_t i, const void *packed, int64_t from) {
    const double *real = packed;
    const complex_double *whole = packed;
    switch (type) {
        case R_16F: ((uint16_t *)matrix)[i] = half_bits(real[from]); break;
        case R_16BF: ((uint16_t *)matrix)[i] = brain_bits(real[from]); break;
        case R_32F: ((float *)matrix)[i] = (float)real[from]; break;
        case R_64F: ((double *)matrix)[i] = real[from]; break;
        case C_32F: ((float complex *)matrix)[i] = (float complex)whole[from]; break;
        case C_64F: ((complex_double *)matrix)[i] = whole[from]; break;
    }
}

void dense_store(int type, void *matrix, int64_t ld, const void *packed, int64_t rows,
                 int64_t columns) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            store_number(type, matrix, j * ld + i, packed, j * rows + i);
}

void dense_round(double *numbers, int64_t count, int bits) {
    for (int64_t i = 0; i < count; i++) {
        int exponent;
        double mantissa = frexp(numbers[i], &exponent);
        if (isfinite(mantissa))
            numbers[i] = ldexp(nearbyint(ldexp(mantissa, bits + 1)), exponent - bits - 1);
    }
}

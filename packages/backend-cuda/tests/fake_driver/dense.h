/* Dense matrices for the fake cuBLAS and cuSOLVER.
 *
 * Everything is computed in double: operands are loaded into packed matrices, column after column,
 * of doubles or of complex doubles, and results are rounded to the caller's type when stored.
 */
#ifndef FAKE_DENSE_H
#define FAKE_DENSE_H

#include <complex.h>
#include <stddef.h>
#include <stdint.h>

typedef double complex complex_double;

/* cudaDataType */
enum {
    R_32F = 0,
    R_64F = 1,
    R_16F = 2,
    C_32F = 4,
    C_64F = 5,
    R_16BF = 14,
};

enum { OP_N = 0, OP_T = 1, OP_C = 2 };

/* Bytes of an element; 0 for a type that is not known here. */
size_t dense_size(int type);
int dense_is_complex(int type);

/* op(matrix), whose result has this many rows and columns, packed: (complex) doubles. */
void *dense_load(int type, const void *matrix, int64_t ld, int op, int64_t rows, int64_t columns);
void dense_store(int type, void *matrix, int64_t ld, const void *packed, int64_t rows,
                 int64_t columns);
complex_double dense_number(int type, const void *number);
/* Rounds doubles as a faster kind of multiplication does: to so many bits of mantissa. */
void dense_round(double *numbers, int64_t count, int bits);

/* c += a b for packed matrices m x k, k x n and m x n. */
void real_multiply(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c);
void complex_multiply(int64_t m, int64_t n, int64_t k, const complex_double *a,
                      const complex_double *b, complex_double *c);

/* In place, with rows exchanged (pivots count from 1) or not if `pivots` is NULL. Returns 0, or the
 * number of the first pivot that is 0, counted from 1. */
int real_eliminate(int64_t m, int64_t n, double *a, int64_t *pivots);
int complex_eliminate(int64_t m, int64_t n, complex_double *a, int64_t *pivots);

/* b := inverse of the triangle of a (n x n) times b (n x count). */
void real_triangle(int64_t n, int64_t count, const double *a, double *b, int is_upper, int is_unit);
void complex_triangle(int64_t n, int64_t count, const complex_double *a, complex_double *b,
                      int is_upper, int is_unit);

/* Solves op(a) x = b for what eliminate() made of a packed matrix; x replaces b (n x count). */
void dense_substitute(int type, int op, int64_t n, int64_t count, const void *a,
                      const int64_t *pivots, void *b);

/* The singular values of a (m x n), descending, and u (m x u_columns) and v (n x v_columns) with
 * a = u diag(s) v^H, each with at least min(m, n) columns. Returns 0, or 1 if there is no result:
 * then all are NaN. */
int real_svd(int64_t m, int64_t n, const double *a, double *s, double *u, int64_t u_columns,
             double *v, int64_t v_columns);
int complex_svd(int64_t m, int64_t n, const complex_double *a, double *s, complex_double *u,
                int64_t u_columns, complex_double *v, int64_t v_columns);

/* The lower triangle of a (n x n) becomes its Cholesky factor. Returns 0, or the number of the first
 * pivot that is not positive, counted from 1. */
int real_cholesky(int64_t n, double *a);
int complex_cholesky(int64_t n, complex_double *a);

/* a (m x n) becomes R and, below it, the vectors of reflections, as LAPACK's geqrf. */
void real_qr(int64_t m, int64_t n, double *a, double *tau);
void complex_qr(int64_t m, int64_t n, complex_double *a, complex_double *tau);

/* a (m x n) becomes the first columns of the product of `count` reflections that it holds. */
void real_reflections(int64_t m, int64_t n, int64_t count, double *a, const double *tau);
void complex_reflections(int64_t m, int64_t n, int64_t count, complex_double *a,
                         const complex_double *tau);

/* Eigenvalues, ascending, and eigenvectors by the lower triangle of a, which is destroyed. Returns 0
 * or, for elements that are not finite, another number. */
int real_hermitian(int64_t n, double *a, double *w, double *v);
int complex_hermitian(int64_t n, complex_double *a, double *w, complex_double *v);

/* Eigenvalues and eigenvectors of length 1, in LAPACK's order: of a real matrix, a value with a
 * positive imaginary part comes before its conjugate, and v has the real and then the imaginary
 * parts of the first one's vector. Returns 0, or another number if there is no result. */
int real_eigen(int64_t n, const double *a, complex_double *w, double *v);
int complex_eigen(int64_t n, complex_double *a, complex_double *w, complex_double *v);

#endif

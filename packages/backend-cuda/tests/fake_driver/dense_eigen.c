/* Eigenvalues and eigenvectors of any square matrix: the QR algorithm with shifts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dense.h"

#define AT(a, i, j) (a)[(j) * n + (i)]

/* Turns rows p and q of the columns from `first` on, or columns p and q up to the row `last`. */
static void turn_rows(int64_t n, complex_double *a, int64_t p, int64_t first, double cosine,
                      complex_double sine) {
    for (int64_t j = first; j < n; j++) {
        complex_double x = AT(a, p, j), y = AT(a, p + 1, j);
        AT(a, p, j) = cosine * x + sine * y;
        AT(a, p + 1, j) = cosine * y - conj(sine) * x;
    }
}

static void turn_columns(int64_t n, complex_double *a, int64_t p, int64_t last, double cosine,
                         complex_double sine) {
    for (int64_t i = 0; i < last; i++) {
        complex_double x = AT(a, i, p), y = AT(a, i, p + 1);
        AT(a, i, p) = cosine * x + conj(sine) * y;
        AT(a, i, p + 1) = cosine * y - sine * x;
    }
}

/* The rotation that makes (x, y) become (r, 0). */
static double rotation(complex_double x, complex_double y, complex_double *sine) {
    double first = cabs(x), size = hypot(first, cabs(y));
    if (size == 0) return *sine = 0, 1;
    if (first == 0) return *sine = conj(y) / size, 0;
    *sine = x / first * conj(y) / size;
    return first / size;
}

/* Zeros below the second diagonal, from the left column on and from the bottom up. */
static void to_hessenberg(int64_t n, complex_double *a, complex_double *z) {
    for (int64_t j = 0; j + 2 < n; j++)
        for (int64_t i = n - 2; i > j; i--) {
            complex_double sine;
            double cosine = rotation(AT(a, i, j), AT(a, i + 1, j), &sine);
            turn_rows(n, a, i, 0, cosine, sine);
            turn_columns(n, a, i, n, cosine, sine);
            turn_columns(n, z, i, n, cosine, sine);
            AT(a, i + 1, j) = 0;
        }
}

/* The eigenvalue of the last two rows and columns up to `end` that is nearest to the corner. */
static complex_double shift_of(int64_t n, const complex_double *a, int64_t end) {
    complex_double corner = AT(a, end, end), half = (AT(a, end - 1, end - 1) - corner) / 2;
    complex_double product = AT(a, end, end - 1) * AT(a, end - 1, end);
    complex_double root = csqrt(half * half + product);
    complex_double larger = cabs(half + root) > cabs(half - root) ? half + root : half - root;
    return larger == 0 ? corner : corner - product / larger;
}

/* a becomes upper triangular, z the unitary matrix with a_before z = z a_after. */
static int to_triangle(int64_t n, complex_double *a, complex_double *z, double scale) {
    double *cosines = malloc(((size_t)n + 1) * sizeof *cosines);
    complex_double *sines = malloc(((size_t)n + 1) * sizeof *sines);
    if (!cosines || !sines) abort();
    int64_t end = n - 1, steps = 0;
    while (end > 0 && steps++ < 60 * n) {
        int64_t start = end;
        while (start > 0 && cabs(AT(a, start, start - 1)) > 1e-16 * scale) start--;
        if (start > 0) AT(a, start, start - 1) = 0;
        if (start == end) {
            end--;
            continue;
        }
        complex_double shift = shift_of(n, a, end);
        if (steps % 11 == 10) shift += cabs(AT(a, end, end - 1));
        for (int64_t i = start; i <= end; i++) AT(a, i, i) -= shift;
        for (int64_t i = start; i < end; i++) {
            cosines[i] = rotation(AT(a, i, i), AT(a, i + 1, i), &sines[i]);
            turn_rows(n, a, i, i, cosines[i], sines[i]);
        }
        for (int64_t i = start; i < end; i++) {
            turn_columns(n, a, i, i + 2, cosines[i], sines[i]);
            turn_columns(n, z, i, n, cosines[i], sines[i]);
        }
        for (int64_t i = start; i <= end; i++) AT(a, i, i) += shift;
    }
    free(cosines);
    free(sines);
    return end > 0 ? (int)end + 1 : 0;
}

/* Length 1, and the largest component is real. */
static void normalize(int64_t n, complex_double *v) {
    double length = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        length += creal(v[i]) * creal(v[i]) + cimag(v[i]) * cimag(v[i]);
        if (cabs(v[i]) > cabs(v[largest])) largest = i;
    }
    complex_double turn = conj(v[largest]) / cabs(v[largest]) / sqrt(length);
    for (int64_t i = 0; i < n; i++) v[i] *= turn;
    v[largest] = creal(v[largest]);
}

int complex_eigen(int64_t n, complex_double *a, complex_double *w, complex_double *v) {
    double scale = 0, all = 0;
    complex_double *z = calloc((size_t)(n * n) + 1, sizeof *z);
    complex_double *x = malloc(((size_t)n + 1) * sizeof *x);
    if (!z || !x) abort();
    for (int64_t i = 0; i < n * n; i++) scale = fmax(scale, cabs(a[i])), all += cabs(a[i]);
    for (int64_t i = 0; i < n; i++) AT(z, i, i) = 1;
    to_hessenberg(n, a, z);
    int failed = isfinite(all) ? to_triangle(n, a, z, scale) : (int)n;
    for (int64_t k = 0; !failed && k < n; k++) {
        w[k] = AT(a, k, k);
        x[k] = 1;
        for (int64_t i = k; i-- > 0;) {
            complex_double sum = 0, gap = AT(a, i, i) - w[k];
            for (int64_t j = i + 1; j <= k; j++) sum -= AT(a, i, j) * x[j];
            x[i] = sum / (cabs(gap) < 1e-16 * scale ? 1e-16 * scale : gap);
            double size = cabs(x[i]);
            for (int64_t j = i; size > 1e100 && j <= k; j++) x[j] /= size;
        }
        for (int64_t i = 0; i < n; i++) {
            AT(v, i, k) = 0;
            for (int64_t j = 0; j <= k; j++) AT(v, i, k) += AT(z, i, j) * x[j];
        }
        normalize(n, v + k * n);
    }
    free(z);
    free(x);
    return failed;
}

int real_eigen(int64_t n, const double *a, complex_double *w, double *v) {
    size_t count = (size_t)(n * n) + 1;
    complex_double *wide = malloc(count * sizeof *wide), *vectors = malloc(count * sizeof *vectors);
    complex_double *values = malloc(((size_t)n + 1) * sizeof *values);
    if (!wide || !vectors || !values) abort();
    double scale = 0;
    for (int64_t i = 0; i < n * n; i++) wide[i] = a[i], scale = fmax(scale, fabs(a[i]));
    int failed = complex_eigen(n, wide, values, vectors);
    int64_t at = 0;
    for (int64_t k = 0; !failed && k < n; k++) {
        const complex_double *vector = vectors + k * n;
        int is_real = fabs(cimag(values[k])) <= 1e-11 * scale;
        if (!is_real && cimag(values[k]) < 0) continue; /* its partner stands for it */
        if (at + (is_real ? 1 : 2) > n) {
            failed = (int)k + 1;
            break;
        }
        w[at] = is_real ? creal(values[k]) : values[k];
        for (int64_t i = 0; i < n; i++) AT(v, i, at) = creal(vector[i]);
        at++;
        if (is_real) continue;
        w[at] = conj(values[k]);
        for (int64_t i = 0; i < n; i++) AT(v, i, at) = cimag(vector[i]);
        at++;
    }
    if (!failed && at < n) failed = (int)at + 1;
    free(wide);
    free(vectors);
    free(values);
    return failed;
}

/* Eigenvalues and eigenvectors of a small real matrix, for which a call of LAPACK takes longer than
 * the arithmetic: balancing, reduction to Hessenberg form, QR steps with two shifts, and vectors by
 * substitution. Matrices are stored row by row, with a row and column more that are zero, so that
 * the last reflection of a QR step, which is of two rows, may be done as if it were of three.
 *
 * Sources: G. Golub and C. Van Loan, "Matrix computations", 4th edition, sections 7.4 to 7.6;
 * the routines hqr2 of EISPACK, and dlanv2 and dtrevc of LAPACK. */
#ifndef PULLBACK_CPU_SMALL_SCHUR_H
#define PULLBACK_CPU_SMALL_SCHUR_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
/* Code for size, in which vectors are written as such: that is as fast. */
#define PB_COMPACT static __attribute__((cold))
#define PB_SCHUR_ROWS 16
#define PB_WIDTH (PB_SCHUR_ROWS + 2)
#define PB_SCHUR_EPSILON 0x1p-52
#define PB_LARGER(x, y) ((x) > (y) ? (x) : (y))
#define PB_SMALLER(x, y) ((x) < (y) ? (x) : (y))

/* Two elements of a row, or a complex number. */
typedef double pb_pair __attribute__((vector_size(16), may_alias));
typedef double pb_row[PB_WIDTH] __attribute__((aligned(16)));

typedef struct {
    int64_t n, low, high; /* rows low to high are what is left to the QR steps */
    int64_t has_vectors;
    double power, rest; /* h has been multiplied by them */
    int64_t
        swapped[PB_SCHUR_ROWS]; /* the row that a row below low or above high was swapped with */
    double scales[PB_WIDTH];
    double re[PB_SCHUR_ROWS], im[PB_SCHUR_ROWS];
    pb_row h[PB_WIDTH];
    pb_row turned[PB_WIDTH]; /* the transpose of the orthogonal matrix */
} pb_schur;

/* Swap rows and columns i and j. */
PB_COMPACT void pb_schur_swap(pb_schur *of, int64_t i, int64_t j) {
    double kept;
    of->swapped[j] = i;
    for (int64_t k = 0; k < of->n && i != j; k++) {
        kept = of->h[i][k], of->h[i][k] = of->h[j][k], of->h[j][k] = kept;
    }
    for (int64_t k = 0; k < of->n && i != j; k++) {
        kept = of->h[k][i], of->h[k][i] = of->h[k][j], of->h[k][j] = kept;
    }
}

/* Is the row (or column) zero, but for its diagonal element, in what is left? */
PB_COMPACT int pb_schur_alone(const pb_schur *of, int64_t i, int64_t column) {
    for (int64_t j = of->low; j <= of->high; j++)
        if (j != i && (column ? of->h[j][i] : of->h[i][j]) != 0)
            return 0;
    return 1;
}

/* Lengths with the diagonal, as LAPACK: others may scale what then loses digits; see R. James,
 * J. Langou and B. Lowery, "On matrix balancing and eigenvector computation", 2014. */
PB_COMPACT void pb_schur_balance(pb_schur *of) {
    int64_t i, j, again;
    for (int64_t column = 0; column < 2; column++)
        for (i = of->high; i >= of->low && of->low < of->high; i--)
            if (pb_schur_alone(of, i, column)) {
                pb_schur_swap(of, i, column ? of->low++ : of->high--);
                i = of->high + 1;
            }
    do {
        again = 0;
        for (i = of->low; i <= of->high; i++) {
            double across = 0, along = 0, sum, power = 1;
            for (j = of->low; j <= of->high; j++) {
                across += of->h[i][j] * of->h[i][j], along += of->h[j][i] * of->h[j][i];
            }
            across = sqrt(across), along = sqrt(along);
            sum = across + along;
            if (!(across > 0 && along > 0))
                continue;
            for (; along < across / 2; along *= 4)
                power *= 2;
            for (; along >= across * 2; along /= 4)
                power /= 2;
            if ((across + along) / power >= 0.95 * sum)
                continue;
            again = 1;
            of->scales[i] *= power;
            for (j = 0; j < of->n; j++)
                of->h[i][j] /= power;
            for (j = 0; j < of->n; j++)
                of->h[j][i] *= power;
        }
    } while (again);
}

/* Reflect rows of m: m -= tau v (v' m), from a column on, which is even. */
PB_COMPACT void pb_schur_reflect(pb_row *m, const double *v, double tau, int64_t first,
                                 int64_t last, int64_t from, int64_t to) {
    for (int64_t j = from; j < to; j += 2) {
        pb_pair sum = {0, 0};
        for (int64_t i = first; i <= last; i++)
            sum += v[i] * *(pb_pair *)(m[i] + j);
        sum *= tau;
        for (int64_t i = first; i <= last; i++)
            *(pb_pair *)(m[i] + j) -= v[i] * sum;
    }
}

PB_COMPACT void pb_schur_reduce(pb_schur *of) {
    for (int64_t k = of->low; k < of->high - 1; k++) {
        double first = of->h[k + 1][k], below = 0, beta, tau;
        pb_row v = {0};
        for (int64_t i = k + 2; i <= of->high; i++)
            below += of->h[i][k] * of->h[i][k];
        if (below == 0)
            continue;
        beta = -copysign(sqrt(first * first + below), first);
        tau = (beta - first) / beta;
        v[k + 1] = 1;
        for (int64_t i = k + 2; i <= of->high; i++)
            v[i] = of->h[i][k] / (first - beta);
        pb_schur_reflect(of->h, v, tau, k + 1, of->high, k & -2, of->n);
        for (int64_t i = k + 2; i <= of->high; i++)
            of->h[i][k] = 0;
        of->h[k + 1][k] = beta;
        for (int64_t i = 0; i <= of->high; i++) {
            pb_pair sum = {0, 0};
            for (int64_t j = (k + 1) & -2; j <= of->high; j += 2)
                sum += *(pb_pair *)(of->h[i] + j) * *(pb_pair *)(v + j);
            sum = (pb_pair){0, 0} + tau * (sum[0] + sum[1]);
            for (int64_t j = (k + 1) & -2; j <= of->high; j += 2)
                *(pb_pair *)(of->h[i] + j) -= sum * *(pb_pair *)(v + j);
        }
        if (of->has_vectors)
            pb_schur_reflect(of->turned, v, tau, k + 1, of->high, 0, of->n);
    }
}

PB_COMPACT void pb_schur_rotate(pb_row *rows, double cosine, double sine, int64_t n) {
    for (int64_t j = 0; j < n; j += 2) {
        pb_pair *x = (pb_pair *)(rows[0] + j), *y = (pb_pair *)(rows[1] + j), kept = *x;
        *x = cosine * kept + sine * *y;
        *y = cosine * *y - sine * kept;
    }
}

/* Bring the block of rows k and k + 1 into standard form: triangular, or with equal diagonal
 * elements where its eigenvalues are complex. */
PB_COMPACT void pb_schur_split(pb_schur *of, int64_t k) {
    double a = of->h[k][k], b = of->h[k][k + 1], c = of->h[k + 1][k], d = of->h[k + 1][k + 1];
    double p = (a - d) / 2, large = PB_LARGER(fabs(b), fabs(c)), scale = PB_LARGER(fabs(p), large),
           kept;
    double small = copysign(1, b) * copysign(1, c) * PB_SMALLER(fabs(b), fabs(c)), cosine = 1,
           sine = 0;
    double z = p / scale * p + large / scale * small;
    if (b == 0) {
        cosine = 0, sine = 1;
        kept = a, a = d, d = kept, b = -c, c = 0;
    } else if (z >= 4 * PB_SCHUR_EPSILON) {
        z = p + copysign(sqrt(scale) * sqrt(z), p);
        a = d + z, d -= large / z * small;
        kept = hypot(c, z);
        cosine = z / kept, sine = c / kept, b -= c, c = 0;
    } else if (p != 0 || (b < 0) == (c < 0)) {
        double sigma = b + c, tau = hypot(sigma, 2 * p), aa, bb, cc, dd;
        cosine = sqrt((1 + fabs(sigma) / tau) / 2);
        sine = -p / (tau * cosine) * copysign(1, sigma);
        aa = a * cosine + b * sine, bb = -a * sine + b * cosine;
        cc = c * cosine + d * sine, dd = -c * sine + d * cosine;
        a = aa * cosine + cc * sine, b = bb * cosine + dd * sine;
        c = -aa * sine + cc * cosine, d = -bb * sine + dd * cosine;
        a = d = (a + d) / 2;
        if (c != 0 && b == 0) {
            b = -c, c = 0;
            kept = cosine, cosine = -sine, sine = kept;
        } else if (c != 0 && (b < 0) == (c < 0)) {
            double root_b = sqrt(fabs(b)), root_c = sqrt(fabs(c));
            p = copysign(root_b * root_c, c);
            tau = 1 / sqrt(fabs(b + c));
            a += p, d -= p, b -= c, c = 0;
            kept = cosine * root_b * tau - sine * root_c * tau;
            sine = cosine * root_c * tau + sine * root_b * tau;
            cosine = kept;
        }
    }
    of->re[k] = a, of->re[k + 1] = d;
    of->im[k] = c == 0 ? 0 : sqrt(fabs(b)) * sqrt(fabs(c)), of->im[k + 1] = -of->im[k];
    if (!of->has_vectors)
        return;
    pb_schur_rotate(of->h + k, cosine, sine, of->n);
    pb_schur_rotate(of->turned + k, cosine, sine, of->n);
    for (int64_t i = 0; i < k; i++) {
        kept = cosine * of->h[i][k] + sine * of->h[i][k + 1];
        of->h[i][k + 1] = cosine * of->h[i][k + 1] - sine * of->h[i][k];
        of->h[i][k] = kept;
    }
    of->h[k][k] = a, of->h[k][k + 1] = b, of->h[k + 1][k] = c, of->h[k + 1][k + 1] = d;
}

/* Reflect three rows by (1, second, third), from a column on, which is even. */
PB_COMPACT void pb_schur_turn(pb_row *rows, double second, double third, double factor,
                              int64_t from, int64_t to) {
    for (int64_t j = from; j < to; j += 2) {
        pb_pair *x = (pb_pair *)(rows[0] + j), *y = (pb_pair *)(rows[1] + j);
        pb_pair *z = (pb_pair *)(rows[2] + j), sum = (*x + second * *y + third * *z) * factor;
        *x -= sum, *y -= sum * second, *z -= sum * third;
    }
}

/* A QR step on rows first to last, with two shifts: the eigenvalues of a block with the diagonal
 * x, y whose other elements have the product w. */
PB_COMPACT void pb_schur_step(pb_schur *of, int64_t first, int64_t last, double x, double y,
                              double w) {
    pb_row *h = of->h;
    int64_t m, top = of->has_vectors ? 0 : first, end = of->has_vectors ? of->n : last + 1;
    double p, q, r;
    for (m = last - 2;; m--) { /* two small elements below the diagonal may start the step later */
        double z = h[m][m], size;
        p = ((x - z) * (y - z) - w) / h[m + 1][m] + h[m][m + 1];
        q = h[m + 1][m + 1] - z - (x - z) - (y - z);
        r = h[m + 2][m + 1];
        size = fabs(p) + fabs(q) + fabs(r);
        p /= size, q /= size, r /= size;
        if (m == first || fabs(h[m][m - 1]) * (fabs(q) + fabs(r)) <=
                              PB_SCHUR_EPSILON * fabs(p) *
                                  (fabs(h[m - 1][m - 1]) + fabs(z) + fabs(h[m + 1][m + 1])))
            break;
    }
    for (int64_t k = m; k < last; k++) {
        double size, factor, second, third, before, unit = 1;
        int64_t stop = k + 3 < last ? k + 3 : last;
        if (k > m)
            p = h[k][k - 1], q = h[k + 1][k - 1], r = k + 1 < last ? h[k + 2][k - 1] : 0;
        size = fabs(p) + fabs(q) + fabs(r);
        if (size == 0)
            continue;
        if (size < 0x1p-400)
            unit = 0x1p-600, p /= unit, q /= unit, r /= unit;
        size = copysign(sqrt(p * p + q * q + r * r), p);
        factor = (p + size) / size, second = 1 / (p + size);
        third = r * second, second = q * second;
        before = k > first ? h[k][k - 1] : 0;
        pb_schur_turn(h + k, second, third, factor, k & -2, end);
        if (k > m) {
            h[k][k - 1] = -size * unit;
            h[k + 1][k - 1] = 0;
            if (k + 1 < last)
                h[k + 2][k - 1] = 0;
        } else if (k > first) {
            h[k][k - 1] = before * (1 - factor); /* what is below has no weight */
            h[k + 1][k - 1] = 0, h[k + 2][k - 1] = 0;
        }
        for (int64_t i = top; i <= stop; i++) {
            double sum = (h[i][k] + second * h[i][k + 1] + third * h[i][k + 2]) * factor;
            h[i][k] -= sum, h[i][k + 1] -= sum * second, h[i][k + 2] -= sum * third;
        }
        if (of->has_vectors)
            pb_schur_turn(of->turned + k, second, third, factor, 0, of->n);
    }
}

/* Is the element left of the diagonal in row i negligible? By the criterion of M. Ahues and
 * F. Tisseur, "A new deflation criterion for the QR algorithm", 1997. */
PB_COMPACT int pb_schur_is_small(const pb_schur *of, int64_t i) {
    const pb_row *h = (const pb_row *)of->h;
    double below = fabs(h[i][i - 1]), above = fabs(h[i - 1][i]);
    double own = fabs(h[i][i]), gap = fabs(h[i - 1][i - 1] - h[i][i]);
    double size = own + fabs(h[i - 1][i - 1]), ratio;
    if (size == 0)
        size = (i > of->low + 1 ? fabs(h[i - 1][i - 2]) : 0) + fabs(h[i + 1][i]);
    if (below <= 0x1p-900)
        return 1;
    if (below > PB_SCHUR_EPSILON * size)
        return 0;
    ratio = PB_LARGER(own, gap);
    size = ratio + PB_LARGER(below, above);
    above = below * (above / size),
    ratio = PB_SCHUR_EPSILON * PB_SMALLER(own, gap) * (ratio / size);
    return above <= PB_LARGER(ratio, 0x1p-900);
}

/* Find all eigenvalues; false if that takes too many steps. */
PB_COMPACT int pb_schur_values(pb_schur *of) {
    pb_row *h = of->h;
    int64_t last = of->high, first, steps = 0;
    for (int64_t i = 0; i < of->n; i++)
        of->re[i] = h[i][i], of->im[i] = 0;
    while (last >= of->low) {
        for (first = last; first > of->low && !pb_schur_is_small(of, first);)
            first--;
        if (first > of->low)
            h[first][first - 1] = 0;
        if (first >= last - 1) {
            if (first == last)
                of->re[last] = h[last][last];
            else
                pb_schur_split(of, first);
            last = first - 1, steps = 0;
        } else if (steps++ == 60) {
            return 0;
        } else {
            double x = h[last][last], y = h[last - 1][last - 1];
            double w = h[last][last - 1] * h[last - 1][last], half = (y - x) / 2, root;
            root = half * half + w;
            if (steps % 10 == 0) { /* other shifts, where these go in a circle */
                root = fabs(h[last][last - 1]) + fabs(h[last - 1][last - 2]);
                x = y = x + 0.75 * root, w = -0.4375 * root * root;
            } else if (root > 0) { /* twice the closer one of real shifts: they keep their order */
                x = y = x - w / (half + copysign(sqrt(root), half)), w = 0;
            }
            pb_schur_step(of, first, last, x, y, w);
        }
    }
    return 1;
}

/* x - y z of complex numbers. */
PB_COMPACT pb_pair pb_schur_less(pb_pair x, pb_pair y, pb_pair z) {
    pb_pair across = {-y[1] * z[1], y[1] * z[0]};
    return x - (y[0] * z + across);
}

/* x / y of complex numbers; y is taken for `least` where it is smaller. */
PB_COMPACT pb_pair pb_schur_over(pb_pair x, pb_pair y, double least) {
    double size = y[0] * y[0] + y[1] * y[1];
    pb_pair across = {x[1] * y[1], -x[0] * y[1]};
    if (size < least * least)
        return x / least;
    return (x * y[0] + across) / size;
}

/* Solve (T - w) x = 0 for x[0] to x[k]; w is the eigenvalue of row k, or of rows k and k + 1. */
PB_COMPACT void pb_schur_substitute(const pb_schur *of, int64_t k, pb_pair *x) {
    const pb_row *t = (const pb_row *)of->h;
    int64_t pair = of->im[k] != 0, top = k + pair;
    double re = of->re[k], im = of->im[k], least = PB_SCHUR_EPSILON * (fabs(re) + fabs(im));
    least = PB_LARGER(least, 0x1p-200);
    x[k] = (pb_pair){1, 0};
    if (pair && fabs(t[k][k + 1]) >= fabs(t[k + 1][k])) {
        x[k + 1] = (pb_pair){0, im / t[k][k + 1]};
    } else if (pair) {
        x[k] = (pb_pair){-im / t[k + 1][k], 0};
        x[k + 1] = (pb_pair){0, 1};
    }
    for (int64_t j = k - 1; j >= 0; j--) {
        pb_pair sums[2] = {{0, 0}, {0, 0}}, own = {t[j][j] - re, -im}, ratio, size;
        int64_t twin = j > 0 && t[j][j - 1] != 0;
        for (int64_t row = 0; row <= twin; row++)
            for (int64_t i = j + 1; i <= top; i++)
                sums[row] -= t[j - row][i] * x[i];
        if (twin) { /* [[own, up], [down, own]] times x[j - 1], x[j] is sums[1], sums[0] */
            pb_pair up = {t[j - 1][j], 0}, down = {t[j][j - 1], 0};
            int64_t swapped = fabs(down[0]) > fabs(own[0]) + fabs(own[1]);
            /* Of the rows the first has the larger element in the first column. */
            pb_pair a = swapped ? down : own, b = swapped ? own : up;
            pb_pair c = swapped ? own : down, d = swapped ? up : own;
            ratio = pb_schur_over(c, a, least);
            x[j] = pb_schur_over(pb_schur_less(sums[swapped], ratio, sums[!swapped]),
                                 pb_schur_less(d, ratio, b), least);
            x[j - 1] = pb_schur_over(pb_schur_less(sums[!swapped], b, x[j]), a, least);
            j--;
        } else {
            x[j] = pb_schur_over(sums[0], own, least);
        }
        size = x[j] * x[j] + x[j + twin] * x[j + twin];
        if (size[0] + size[1] > 0x1p400)
            for (int64_t i = j; i <= top; i++)
                x[i] *= 0x1p-200;
    }
}

/* Write the eigenvector of row k, of length 1, in two columns; the largest element of a complex one
 * is real. */
PB_COMPACT void pb_schur_vector(const pb_schur *of, int64_t k, double *re, double *im) {
    pb_pair x[PB_WIDTH], v[PB_WIDTH], sums = {0, 0};
    int64_t n = of->n, at = 0;
    double largest = 0, longest = 0;
    pb_schur_substitute(of, k, x);
    for (int64_t i = 0; i < n; i++) {
        pb_pair sum = {0, 0};
        for (int64_t j = 0; j <= k + (of->im[k] != 0); j++)
            sum += of->turned[j][i] * x[j];
        v[i] = sum * of->scales[i];
        largest = PB_LARGER(largest, fabs(v[i][0]));
        largest = PB_LARGER(largest, fabs(v[i][1]));
    }
    for (int64_t step = 0; step < n; step++) { /* in the reverse of the order of swaps */
        int64_t i = step < of->low ? of->low - 1 - step : step;
        if (i < of->low || i > of->high) {
            pb_pair kept = v[i];
            v[i] = v[of->swapped[i]], v[of->swapped[i]] = kept;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        pb_pair squares;
        v[i] /= largest;
        squares = v[i] * v[i], sums += squares;
        if (squares[0] + squares[1] > longest)
            at = i, longest = squares[0] + squares[1];
    }
    largest = copysign(1 / sqrt((sums[0] + sums[1]) * longest), -v[at][0]);
    sums = (pb_pair){v[at][0], -v[at][1]} * largest;
    for (int64_t i = 0; i < n; i++) {
        x[i] = pb_schur_less((pb_pair){0, 0}, v[i], sums);
        re[i] = x[i][0], im[i] = i == at ? 0 : x[i][1];
    }
}

/* Find the eigenvalues of h, and eigenvectors: of a pair the first row has the real parts and the
 * second the imaginary ones. Returns 0, or 1 where they are not found. */
PB_COMPACT int pb_schur_find(pb_schur *of, pb_row *vectors) {
    double largest = 0;
    int64_t n = of->n;
    int exponent;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            largest = PB_LARGER(largest, fabs(of->h[i][j]));
    frexp(largest, &exponent);
    of->power = ldexp(1, -exponent / 2), of->rest = ldexp(1, -exponent - -exponent / 2);
    for (int64_t i = 0; i <= n; i++) {
        of->scales[i] = 1;
        for (int64_t j = 0; j < n + 2; j++) {
            of->h[i][j] = i < n && j < n ? of->h[i][j] * of->power * of->rest : 0;
            of->turned[i][j] = i == j;
        }
    }
    of->high = n - 1;
    pb_schur_balance(of);
    pb_schur_reduce(of);
    if (!pb_schur_values(of))
        return 1;
    for (int64_t k = 0; of->has_vectors && k < n; k += 1 + (of->im[k] != 0))
        pb_schur_vector(of, k, vectors[k], vectors[k + 1]);
    return 0;
}

/* The same of a finite matrix that is stored column by column, as LAPACK; without vectors if
 * `vectors` is NULL. Pairs whose imaginary part is too small for the type are not found. */
#define PB_SCHUR_OF(name, number) \
    PB_COMPACT int name(const number *a, int n, number *values, number *vectors) { \
        pb_schur of; \
        pb_row found[PB_WIDTH]; \
        of.n = n, of.low = 0, of.has_vectors = vectors != NULL; \
        for (int64_t j = 0; j < n; j++) \
            for (int64_t i = 0; i < n; i++) \
                of.h[i][j] = a[j * n + i]; \
        if (pb_schur_find(&of, found)) \
            return 1; \
        for (int64_t k = 0; k < n; k++) { \
            values[k] = (number)(of.re[k] / of.power / of.rest); \
            values[n + k] = (number)(of.im[k] / of.power / of.rest); \
            if (of.im[k] != 0 && values[n + k] == 0) \
                return 1; \
            for (int64_t i = 0; vectors && i < n; i++) \
                vectors[k * n + i] = (number)found[k][i]; \
        } \
        return 0; \
    }
PB_SCHUR_OF(pb_schur_f32, float)
PB_SCHUR_OF(pb_schur_f64, double)
#else
#define PB_SCHUR_ROWS 0
#define pb_schur_f32(...) 1
#define pb_schur_f64(...) 1
#endif
#endif

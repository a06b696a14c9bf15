/* Included by dense.c once for each SCALAR: products, elimination, triangles, singular values. */

void NAME(multiply)(int64_t m, int64_t n, int64_t k, const SCALAR *a, const SCALAR *b, SCALAR *c) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t l = 0; l < k; l++) {
            SCALAR factor = b[j * k + l];
            const SCALAR *from = a + l * m;
            SCALAR *to = c + j * m;
            for (int64_t i = 0; i < m; i++) to[i] += factor * from[i];
        }
}

int NAME(eliminate)(int64_t m, int64_t n, SCALAR *a, int64_t *pivots) {
    int first = 0;
    for (int64_t step = 0; step < m && step < n; step++) {
        int64_t best = step;
        for (int64_t i = step + 1; pivots && i < m; i++)
            if (SIZE_OF(a[step * m + i]) > SIZE_OF(a[step * m + best])) best = i;
        if (pivots) pivots[step] = best + 1;
        for (int64_t j = 0; best != step && j < n; j++) {
            SCALAR kept = a[j * m + step];
            a[j * m + step] = a[j * m + best];
            a[j * m + best] = kept;
        }
        SCALAR pivot = a[step * m + step];
        if (pivot == 0) {
            if (!first) first = (int)step + 1;
            continue;
        }
        for (int64_t i = step + 1; i < m; i++) a[step * m + i] /= pivot;
        for (int64_t j = step + 1; j < n; j++) {
            SCALAR factor = a[j * m + step];
            for (int64_t i = step + 1; i < m; i++) a[j * m + i] -= a[step * m + i] * factor;
        }
    }
    return first;
}

void NAME(triangle)(int64_t n, int64_t count, const SCALAR *a, SCALAR *b, int is_upper,
                    int is_unit) {
    for (int64_t j = 0; j < count; j++) {
        SCALAR *x = b + j * n;
        for (int64_t step = 0; step < n; step++) {
            int64_t i = is_upper ? n - 1 - step : step;
            if (!is_unit) x[i] /= a[i * n + i];
            for (int64_t row = is_upper ? 0 : i + 1; row < (is_upper ? i : n); row++)
                x[row] -= a[i * n + row] * x[i];
        }
    }
}

static void NAME(exchange)(int64_t n, int64_t count, const int64_t *pivots, SCALAR *b, int back) {
    for (int64_t step = 0; step < n; step++) {
        int64_t row = back ? n - 1 - step : step, other = pivots[row] - 1;
        /* Pivots come from memory of the caller. */
        if (other < 0 || other >= n || other == row) continue;
        for (int64_t j = 0; j < count; j++) {
            SCALAR kept = b[j * n + row];
            b[j * n + row] = b[j * n + other];
            b[j * n + other] = kept;
        }
    }
}

static void NAME(substitute)(int op, int64_t n, int64_t count, const SCALAR *a,
                             const int64_t *pivots, SCALAR *b) {
    if (op == OP_N) {
        NAME(exchange)(n, count, pivots, b, 0);
        NAME(triangle)(n, count, a, b, 0, 1);
        NAME(triangle)(n, count, a, b, 1, 0);
        return;
    }
    SCALAR *turned = malloc(((size_t)(n * n) + 1) * sizeof *turned);
    if (!turned) abort();
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++)
            turned[i * n + j] = op == OP_C ? CONJUGATE(a[j * n + i]) : a[j * n + i];
    NAME(triangle)(n, count, turned, b, 0, 0);
    NAME(triangle)(n, count, turned, b, 1, 1);
    NAME(exchange)(n, count, pivots, b, 1);
    free(turned);
}

/* -- singular values: rotations of columns until all are orthogonal (one-sided Jacobi) --------- */

/* Makes two columns orthogonal, and turns the same two of v; returns whether there was need. */
static int NAME(rotate)(int64_t m, SCALAR *p, SCALAR *q, int64_t n, SCALAR *vp, SCALAR *vq) {
    double alpha = 0, beta = 0;
    SCALAR gamma = 0;
    for (int64_t i = 0; i < m; i++) {
        alpha += SQUARE(p[i]);
        beta += SQUARE(q[i]);
        gamma += CONJUGATE(p[i]) * q[i];
    }
    double size = SIZE_OF(gamma);
    if (size == 0 || size <= 1e-15 * (1 + (double)m / 64) * sqrt(alpha) * sqrt(beta)) return 0;
    SCALAR phase = CONJUGATE(gamma) / size;
    double zeta = (beta - alpha) / (2 * size);
    double tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
    for (int64_t i = 0; i < m; i++) {
        SCALAR first = p[i], second = q[i] * phase;
        p[i] = cosine * first - sine * second;
        q[i] = sine * first + cosine * second;
    }
    for (int64_t i = 0; i < n; i++) {
        SCALAR first = vp[i], second = vq[i] * phase;
        vp[i] = cosine * first - sine * second;
        vq[i] = sine * first + cosine * second;
    }
    return 1;
}

/* Fills column `at` of an m-row matrix with a unit vector orthogonal to those before it. */
static void NAME(complete)(int64_t m, SCALAR *u, int64_t at) {
    SCALAR *column = u + at * m;
    for (int64_t start = 0; start < m; start++) {
        for (int64_t i = 0; i < m; i++) column[i] = i == start;
        double norm = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < at; j++) {
                SCALAR part = 0;
                for (int64_t i = 0; i < m; i++) part += CONJUGATE(u[j * m + i]) * column[i];
                for (int64_t i = 0; i < m; i++) column[i] -= part * u[j * m + i];
            }
            norm = 0;
            for (int64_t i = 0; i < m; i++) norm += SQUARE(column[i]);
            norm = sqrt(norm);
            if (norm < 0.5 / sqrt((double)m)) break;
        }
        if (norm < 0.5 / sqrt((double)m)) continue;
        for (int64_t i = 0; i < m; i++) column[i] /= norm;
        return;
    }
}

/* For m >= n: w (m x n) becomes the first columns of u, v is n x n. */
static void NAME(svd_tall)(int64_t m, int64_t n, SCALAR *w, double *s, SCALAR *u,
                           int64_t u_columns, SCALAR *v) {
    SCALAR *turned = calloc((size_t)(n * n) + 1, sizeof *turned);
    if (!turned) abort();
    for (int64_t i = 0; i < n; i++) turned[i * n + i] = 1;
    int turns = 1;
    for (int sweep = 0; sweep < 60 && turns; sweep++) {
        turns = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                turns += NAME(rotate)(m, w + p * m, w + q * m, n, turned + p * n, turned + q * n);
    }
    double *norms = malloc(((size_t)n + 1) * sizeof *norms);
    if (!norms) abort();
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < m; i++) sum += SQUARE(w[j * m + i]);
        norms[j] = sqrt(sum);
    }
    for (int64_t place = 0; place < n; place++) {
        int64_t best = 0;
        for (int64_t j = 1; j < n; j++)
            if (norms[j] > norms[best]) best = j;
        s[place] = norms[best];
        for (int64_t i = 0; i < n; i++) v[place * n + i] = turned[best * n + i];
        if (norms[best] > 1e-150)
            for (int64_t i = 0; i < m; i++) u[place * m + i] = w[best * m + i] / norms[best];
        else
            NAME(complete)(m, u, place);
        norms[best] = -1;
    }
    for (int64_t j = n; j < u_columns; j++) NAME(complete)(m, u, j);
    free(norms);
    free(turned);
}

int NAME(svd)(int64_t m, int64_t n, const SCALAR *a, double *s, SCALAR *u, int64_t u_columns,
              SCALAR *v, int64_t v_columns) {
    int64_t least = m < n ? m : n, most = m < n ? n : m;
    double largest = 0;
    int finite = 1;
    for (int64_t i = 0; i < m * n; i++) {
        double size = SIZE_OF(a[i]);
        finite &= isfinite(size) != 0;
        if (size > largest) largest = size;
    }
    if (!finite) {
        for (int64_t i = 0; i < least; i++) s[i] = NAN;
        for (int64_t i = 0; i < m * u_columns; i++) u[i] = NAN;
        for (int64_t i = 0; i < n * v_columns; i++) v[i] = NAN;
        return 1;
    }
    double scale = largest > 0 ? largest : 1;
    SCALAR *w = malloc(((size_t)(m * n) + 1) * sizeof *w);
    SCALAR *square = malloc(((size_t)(least * least) + 1) * sizeof *square);
    if (!w || !square) abort();
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            if (m >= n) w[j * m + i] = a[j * m + i] / scale;
            else w[i * n + j] = CONJUGATE(a[j * m + i]) / scale;
        }
    /* A wide matrix is the tall one's conjugate transpose, with u and v exchanged. */
    SCALAR *tall = m >= n ? u : v, *small = m >= n ? v : u;
    int64_t tall_columns = m >= n ? u_columns : v_columns;
    NAME(svd_tall)(most, least, w, s, tall, tall_columns, square);
    memcpy(small, square, (size_t)(least * least) * sizeof *square);
    for (int64_t i = 0; i < least; i++) s[i] *= scale;
    free(square);
    free(w);
    return 0;
}

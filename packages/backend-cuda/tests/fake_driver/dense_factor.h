/* Included by dense.c once for each SCALAR: Cholesky factors, reflections, Hermitian eigenvalues. */

/* A NaN is no reason to stop here: whether the real library stops there is not said. */
int NAME(cholesky)(int64_t n, SCALAR *a) {
    for (int64_t k = 0; k < n; k++) {
        double pivot = REAL_OF(a[k * n + k]);
        if (pivot <= 0) return (int)k + 1;
        pivot = sqrt(pivot);
        a[k * n + k] = pivot;
        for (int64_t i = k + 1; i < n; i++) a[k * n + i] /= pivot;
        for (int64_t j = k + 1; j < n; j++)
            for (int64_t i = j; i < n; i++) a[j * n + i] -= a[k * n + i] * CONJUGATE(a[k * n + j]);
    }
    return 0;
}

/* x -= tau v (v^H x), where v has a 1 before the elements below the first. */
static void NAME(reflect)(int64_t m, SCALAR tau, const SCALAR *v, SCALAR *x) {
    SCALAR along = x[0];
    for (int64_t i = 1; i < m; i++) along += CONJUGATE(v[i]) * x[i];
    x[0] -= tau * along;
    for (int64_t i = 1; i < m; i++) x[i] -= tau * along * v[i];
}

void NAME(qr)(int64_t m, int64_t n, SCALAR *a, SCALAR *tau) {
    for (int64_t k = 0; k < m && k < n; k++) {
        SCALAR *v = a + k * m + k, first = *v;
        double below = 0, size = SQUARE(first);
        for (int64_t i = 1; i < m - k; i++) below += SQUARE(v[i]);
        tau[k] = 0;
        if (below == 0 && size == REAL_OF(first) * REAL_OF(first)) continue;
        double pivot = -copysign(sqrt(size + below), REAL_OF(first));
        tau[k] = (pivot - first) / pivot;
        for (int64_t i = 1; i < m - k; i++) v[i] /= first - pivot;
        *v = pivot;
        for (int64_t j = k + 1; j < n; j++)
            NAME(reflect)(m - k, CONJUGATE(tau[k]), v, a + j * m + k);
    }
}

void NAME(reflections)(int64_t m, int64_t n, int64_t count, SCALAR *a, const SCALAR *tau) {
    SCALAR *vectors = malloc(((size_t)(m * count) + 1) * sizeof *vectors);
    if (!vectors) abort();
    memcpy(vectors, a, (size_t)(m * count) * sizeof *vectors);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) a[j * m + i] = i == j;
        for (int64_t k = count; k-- > 0;)
            NAME(reflect)(m - k, tau[k], vectors + k * m + k, a + j * m + k);
    }
    free(vectors);
}

/* Exchanges or turns two columns of a (by columns), or two rows (by rows). */
static void NAME(turn)(int64_t n, SCALAR *a, int64_t p, int64_t q, int64_t column, int64_t row,
                       double cosine, double sine, SCALAR phase) {
    for (int64_t i = 0; i < n; i++) {
        SCALAR first = a[p * column + i * row], second = a[q * column + i * row] * phase;
        a[p * column + i * row] = cosine * first - sine * second;
        a[q * column + i * row] = sine * first + cosine * second;
    }
}

/* Turns pairs of rows and columns until all elements beside the diagonal are small (Jacobi). */
int NAME(hermitian)(int64_t n, SCALAR *a, double *w, SCALAR *v) {
    double all = 0;
    for (int64_t j = 0; j < n; j++) {
        a[j * n + j] = REAL_OF(a[j * n + j]);
        for (int64_t i = 0; i < n; i++) {
            if (i > j) a[i * n + j] = CONJUGATE(a[j * n + i]);
            v[j * n + i] = i == j;
        }
    }
    for (int64_t i = 0; i < n * n; i++) all += SQUARE(a[i]);
    if (!isfinite(all)) return (int)n;
    int turns = 1;
    for (int sweep = 0; sweep < 60 && turns; sweep++) {
        turns = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                SCALAR beside = a[q * n + p];
                double size = SIZE_OF(beside);
                if (size <= 1e-17 * sqrt(all) || size == 0) continue;
                turns++;
                SCALAR phase = CONJUGATE(beside) / size;
                double zeta = (REAL_OF(a[q * n + q]) - REAL_OF(a[p * n + p])) / (2 * size);
                double tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                double cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
                NAME(turn)(n, a, p, q, n, 1, cosine, sine, phase);
                NAME(turn)(n, a, p, q, 1, n, cosine, sine, CONJUGATE(phase));
                NAME(turn)(n, v, p, q, n, 1, cosine, sine, phase);
            }
    }
    for (int64_t i = 0; i < n; i++) w[i] = REAL_OF(a[i * n + i]);
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (w[j] < w[least]) least = j;
        double kept = w[i];
        w[i] = w[least], w[least] = kept;
        for (int64_t k = 0; k < n; k++) {
            SCALAR element = v[i * n + k];
            v[i * n + k] = v[least * n + k], v[least * n + k] = element;
        }
    }
    return 0;
}

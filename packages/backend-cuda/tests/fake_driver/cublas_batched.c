/* The fake cuBLAS: triangular systems, and elimination and reflection of many small matrices. */
#include <stdlib.h>
#include <string.h>

#include "cublas.h"
#include "dense.h"

enum { LEFT = 0, RIGHT = 1, UPPER = 1 };

/* -- triangular systems ------------------------------------------------------------------------ */

struct triangular {
    CUcontext context;
    int side, is_upper, op, is_unit, type, is_array;
    int64_t m, n, lda, ldb, count;
    const void *alpha;
    complex_double alpha_value;
    const void *a;
    void *b;
};

/* X op(A) = B is op(A)^T X^T = B^T, so one way to solve is enough. */
static void solve_one(const struct triangular *of, const void *a, void *b, complex_double alpha) {
    int is_left = of->side == LEFT, is_complex = dense_is_complex(of->type);
    int64_t size = is_left ? of->m : of->n, others = is_left ? of->n : of->m;
    void *matrix = dense_load(of->type, a, of->lda, of->op, size, size);
    void *x = dense_load(of->type, b, of->ldb, is_left ? OP_N : OP_T, size, others);
    int is_upper = of->is_upper ^ (of->op != OP_N);
    if (!is_left) {
        void *turned = dense_load(is_complex ? C_64F : R_64F, matrix, size, OP_T, size, size);
        free(matrix);
        matrix = turned;
        is_upper = !is_upper;
    }
    if (is_complex) {
        complex_double *values = x;
        for (int64_t i = 0; i < size * others; i++) values[i] *= alpha;
        complex_triangle(size, others, matrix, x, is_upper, of->is_unit);
    } else {
        double *values = x;
        for (int64_t i = 0; i < size * others; i++) values[i] *= creal(alpha);
        real_triangle(size, others, matrix, x, is_upper, of->is_unit);
    }
    if (!is_left) {
        void *turned = dense_load(is_complex ? C_64F : R_64F, x, size, OP_T, others, size);
        free(x);
        x = turned;
    }
    dense_store(of->type, b, of->ldb, x, of->m, of->n);
    free(matrix);
    free(x);
}

static void solve(void *data) {
    const struct triangular *of = data;
    complex_double alpha = of->alpha ? dense_number(of->type, of->alpha) : of->alpha_value;
    int64_t size = of->side == LEFT ? of->m : of->n;
    for (int64_t i = 0; i < of->count; i++) {
        const void *a = of->is_array ? ((const void *const *)of->a)[i] : of->a;
        void *b = of->is_array ? ((void *const *)of->b)[i] : of->b;
        size_t bytes = dense_size(of->type);
        if (!library_range(a, bytes, size, size, of->lda, 0, 1) ||
            !library_range(b, bytes, of->m, of->n, of->ldb, 0, 1)) {
            library_bad_access(of->context);
            return;
        }
        solve_one(of, a, b, alpha);
    }
}

static cublasStatus_t triangular(const char *name, cublasHandle_t handle, struct triangular of,
                                 const void *alpha) {
    int64_t size = of.side == LEFT ? of.m : of.n;
    REQUIRE(of.side >= LEFT && of.side <= RIGHT, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of.is_upper >= 0 && of.is_upper <= UPPER, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of.op >= OP_N && of.op <= OP_C, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of.m >= 0 && of.n >= 0 && of.count >= 0 && alpha, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of.lda >= (size > 1 ? size : 1), CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of.ldb >= (of.m > 1 ? of.m : 1), CUBLAS_STATUS_INVALID_VALUE);
    if (!of.m || !of.n || !of.count) return CUBLAS_STATUS_SUCCESS;
    size_t bytes = dense_size(of.type);
    if (of.is_array) {
        REQUIRE(library_range(of.a, sizeof(void *), of.count, 1, of.count, 0, 1) &&
                    library_range(of.b, sizeof(void *), of.count, 1, of.count, 0, 1),
                CUBLAS_STATUS_EXECUTION_FAILED);
    } else {
        REQUIRE(library_range(of.a, bytes, size, size, of.lda, 0, 1) &&
                    library_range(of.b, bytes, of.m, of.n, of.ldb, 0, 1),
                CUBLAS_STATUS_EXECUTION_FAILED);
    }
    of.context = handle->context;
    if (handle->device_scalars) {
        REQUIRE(library_range(alpha, bytes, 1, 1, 1, 0, 1), CUBLAS_STATUS_EXECUTION_FAILED);
        of.alpha = alpha;
    } else {
        of.alpha_value = dense_number(of.type, alpha);
    }
    return fake_enqueue(name, handle->stream, solve, &of, sizeof of)
               ? CUBLAS_STATUS_EXECUTION_FAILED
               : CUBLAS_STATUS_SUCCESS;
}

#define TRIANGULAR(letter, data_type, suffix, INT)                                              \
    API cublasStatus_t cublas##letter##trsm_v2##suffix(                                         \
        cublasHandle_t handle, int side, int fill, int op, int unit, INT m, INT n,              \
        const void *alpha, const void *a, INT lda, void *b, INT ldb) {                          \
        ENTER_COMPUTE(handle);                                                                  \
        struct triangular of = {.side = side, .is_upper = fill, .op = op, .is_unit = unit,      \
                                .type = data_type, .m = m, .n = n, .lda = lda, .ldb = ldb,      \
                                .count = 1, .a = a, .b = b};                                    \
        return triangular(__func__, handle, of, alpha);                                         \
    }                                                                                           \
    API cublasStatus_t cublas##letter##trsmBatched##suffix(                                     \
        cublasHandle_t handle, int side, int fill, int op, int unit, INT m, INT n,              \
        const void *alpha, const void *a, INT lda, const void *b, INT ldb, INT count) {         \
        ENTER_COMPUTE(handle);                                                                  \
        struct triangular of = {.side = side, .is_upper = fill, .op = op, .is_unit = unit,      \
                                .type = data_type, .m = m, .n = n, .lda = lda, .ldb = ldb,      \
                                .count = count, .is_array = 1, .a = a, .b = (void *)b};         \
        return triangular(__func__, handle, of, alpha);                                         \
    }

/* -- elimination ------------------------------------------------------------------------------- */

struct elimination {
    CUcontext context;
    int type, op;
    int64_t n, columns, lda, ldb, count;
    void *const *a;
    void *const *b;
    int *pivots, *info;
};

static void eliminate(void *data) {
    const struct elimination *of = data;
    int64_t n = of->n, *pivots = malloc(((size_t)n + 1) * sizeof *pivots);
    if (!pivots) abort();
    for (int64_t i = 0; i < of->count; i++) {
        if (!library_range(of->a[i], dense_size(of->type), n, n, of->lda, 0, 1)) {
            library_bad_access(of->context);
            break;
        }
        void *a = dense_load(of->type, of->a[i], of->lda, OP_N, n, n);
        int64_t *exchanged = of->pivots ? pivots : NULL;
        of->info[i] = dense_is_complex(of->type) ? complex_eliminate(n, n, a, exchanged)
                                                 : real_eliminate(n, n, a, exchanged);
        dense_store(of->type, of->a[i], of->lda, a, n, n);
        for (int64_t j = 0; of->pivots && j < n; j++) of->pivots[i * n + j] = (int)pivots[j];
        free(a);
    }
    free(pivots);
}

static void substitute(void *data) {
    const struct elimination *of = data;
    int64_t n = of->n;
    for (int64_t i = 0; i < of->count; i++) {
        size_t bytes = dense_size(of->type);
        if (!library_range(of->a[i], bytes, n, n, of->lda, 0, 1) ||
            !library_range(of->b[i], bytes, n, of->columns, of->ldb, 0, 1)) {
            library_bad_access(of->context);
            return;
        }
        int64_t *pivots = malloc(((size_t)n + 1) * sizeof *pivots);
        if (!pivots) abort();
        for (int64_t j = 0; j < n; j++) pivots[j] = of->pivots ? of->pivots[i * n + j] : j + 1;
        void *a = dense_load(of->type, of->a[i], of->lda, OP_N, n, n);
        void *b = dense_load(of->type, of->b[i], of->ldb, OP_N, n, of->columns);
        dense_substitute(of->type, of->op, n, of->columns, a, pivots, b);
        dense_store(of->type, of->b[i], of->ldb, b, n, of->columns);
        free(a);
        free(b);
        free(pivots);
    }
}

static int arrays_fit(const struct elimination *of) {
    return library_range(of->a, sizeof(void *), of->count, 1, of->count, 0, 1) &&
           (!of->b || library_range(of->b, sizeof(void *), of->count, 1, of->count, 0, 1)) &&
           (!of->pivots || library_range(of->pivots, sizeof(int), of->n, of->count, of->n, 0, 1)) &&
           (of->b || library_range(of->info, sizeof(int), of->count, 1, of->count, 0, 1));
}

#define ELIMINATION(letter, data_type)                                                          \
    API cublasStatus_t cublas##letter##getrfBatched(cublasHandle_t handle, int n,               \
                                                    void *const *a, int lda, int *pivots,       \
                                                    int *info, int count) {                     \
        ENTER_COMPUTE(handle);                                                                  \
        REQUIRE(n >= 0 && count >= 0 && lda >= (n > 1 ? n : 1), CUBLAS_STATUS_INVALID_VALUE);   \
        if (!n || !count) return CUBLAS_STATUS_SUCCESS;                                         \
        struct elimination of = {.context = handle->context, .type = data_type, .n = n,         \
                                 .lda = lda, .count = count, .a = a, .pivots = pivots,          \
                                 .info = info};                                                 \
        REQUIRE(arrays_fit(&of), CUBLAS_STATUS_EXECUTION_FAILED);                               \
        return QUEUE(handle, eliminate, of);                                                    \
    }                                                                                           \
    API cublasStatus_t cublas##letter##getrsBatched(                                            \
        cublasHandle_t handle, int op, int n, int columns, void *const *a, int lda,             \
        const int *pivots, void *const *b, int ldb, int *info, int count) {                     \
        ENTER_COMPUTE(handle);                                                                  \
        REQUIRE(info, CUBLAS_STATUS_INVALID_VALUE);                                             \
        /* This one is host memory: the number of the first argument that is wrong. */          \
        *info = op < OP_N || op > OP_C       ? -1                                               \
                : n < 0                      ? -2                                               \
                : columns < 0                ? -3                                               \
                : lda < (n > 1 ? n : 1)      ? -5                                               \
                : ldb < (n > 1 ? n : 1)      ? -8                                               \
                : count < 0                  ? -10                                              \
                                             : 0;                                               \
        REQUIRE(!*info, CUBLAS_STATUS_INVALID_VALUE);                                           \
        if (!n || !columns || !count) return CUBLAS_STATUS_SUCCESS;                             \
        struct elimination of = {.context = handle->context, .type = data_type, .op = op,       \
                                 .n = n, .columns = columns, .lda = lda, .ldb = ldb,            \
                                 .count = count, .a = a, .b = b, .pivots = (int *)pivots};      \
        REQUIRE(b && arrays_fit(&of), CUBLAS_STATUS_EXECUTION_FAILED);                          \
        return QUEUE(handle, substitute, of);                                                   \
    }

/* -- reflections ------------------------------------------------------------------------------- */

struct reflection {
    CUcontext context;
    int type;
    int64_t m, n, lda, count;
    void *const *a;
    void *const *tau;
};

static void reflect(void *data) {
    const struct reflection *of = data;
    int64_t least = of->m < of->n ? of->m : of->n;
    for (int64_t i = 0; i < of->count; i++) {
        size_t bytes = dense_size(of->type);
        if (!library_range(of->a[i], bytes, of->m, of->n, of->lda, 0, 1) ||
            !library_range(of->tau[i], bytes, least, 1, least, 0, 1)) {
            library_bad_access(of->context);
            return;
        }
        void *a = dense_load(of->type, of->a[i], of->lda, OP_N, of->m, of->n);
        void *tau = calloc((size_t)least + 1, sizeof(complex_double));
        if (!tau) abort();
        if (dense_is_complex(of->type)) complex_qr(of->m, of->n, a, tau);
        else real_qr(of->m, of->n, a, tau);
        dense_store(of->type, of->a[i], of->lda, a, of->m, of->n);
        dense_store(of->type, of->tau[i], least, tau, least, 1);
        free(a);
        free(tau);
    }
}

#define REFLECTION(letter, data_type)                                                           \
    API cublasStatus_t cublas##letter##geqrfBatched(cublasHandle_t handle, int m, int n,        \
                                                    void *const *a, int lda, void *const *tau,  \
                                                    int *info, int count) {                     \
        ENTER_COMPUTE(handle);                                                                  \
        REQUIRE(info, CUBLAS_STATUS_INVALID_VALUE);                                             \
        /* Host memory: the number of the first argument that is wrong. */                      \
        *info = m < 0 ? -1 : n < 0 ? -2 : lda < (m > 1 ? m : 1) ? -4 : count < 0 ? -7 : 0;      \
        REQUIRE(!*info, CUBLAS_STATUS_INVALID_VALUE);                                           \
        if (!m || !n || !count) return CUBLAS_STATUS_SUCCESS;                                   \
        REQUIRE(library_range(a, sizeof(void *), count, 1, count, 0, 1) &&                      \
                    library_range(tau, sizeof(void *), count, 1, count, 0, 1),                  \
                CUBLAS_STATUS_EXECUTION_FAILED);                                                \
        struct reflection of = {.context = handle->context, .type = data_type, .m = m, .n = n,  \
                                .lda = lda, .count = count, .a = a, .tau = tau};                \
        return QUEUE(handle, reflect, of);                                                      \
    }

#define ALL(letter, type)                    \
    TRIANGULAR(letter, type, , int)          \
    TRIANGULAR(letter, type, _64, int64_t)   \
    ELIMINATION(letter, type)                \
    REFLECTION(letter, type)

ALL(S, R_32F)
ALL(D, R_64F)
ALL(C, C_32F)
ALL(Z, C_64F)

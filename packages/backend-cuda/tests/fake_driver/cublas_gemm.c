/* The fake cuBLAS: C = alpha op(A) op(B) + beta C, for one matrix or many. */
#include <stdlib.h>

#include "cublas.h"
#include "dense.h"

/* cublasComputeType_t */
enum {
    COMPUTE_16F = 64,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32F_FAST_16F = 74,
    COMPUTE_32F_FAST_16BF = 75,
    COMPUTE_32F_FAST_TF32 = 77,
    COMPUTE_32F_EMULATED_16BFX9 = 78,
};
enum { TF32_MATH = 3 };

struct operand {
    const void *data; /* of the first matrix, or the array of pointers to all */
    int type;
    int64_t ld, stride;
};

struct product {
    CUcontext context;
    int op_a, op_b;
    int64_t m, n, k, count;
    struct operand a, b, c;
    const void *alpha, *beta; /* on the device, or NULL */
    complex_double alpha_value, beta_value;
    int scale_type;
    int is_array; /* of pointers */
    int mantissa; /* bits that the inputs are rounded to, or 0 */
};

/* -- the work ---------------------------------------------------------------------------------- */

static void scale_add(double *into, const void *product, const void *old, int64_t count,
                      int is_complex, complex_double alpha, complex_double beta) {
    int keep = beta != 0; /* what C held does not matter otherwise, NaN neither */
    for (int64_t i = 0; i < count; i++) {
        if (is_complex) {
            complex_double value = alpha * ((const complex_double *)product)[i];
            if (keep) value += beta * ((const complex_double *)old)[i];
            ((complex_double *)into)[i] = value;
        } else {
            double value = creal(alpha) * ((const double *)product)[i];
            into[i] = keep ? value + creal(beta) * ((const double *)old)[i] : value;
        }
    }
}

static void multiply_one(const struct product *of, const void *a, const void *b, void *c,
                         complex_double alpha, complex_double beta) {
    int is_complex = dense_is_complex(of->c.type);
    int64_t m = of->m, n = of->n, k = alpha == 0 ? 0 : of->k;
    size_t width = is_complex ? sizeof(complex_double) : sizeof(double);
    void *left = dense_load(of->a.type, a, of->a.ld, of->op_a, m, k);
    void *right = dense_load(of->b.type, b, of->b.ld, of->op_b, k, n);
    void *old = dense_load(of->c.type, c, of->c.ld, OP_N, m, beta != 0 ? n : 0);
    void *sum = calloc((size_t)(m * n), width);
    if (!sum) abort();
    if (of->mantissa) {
        dense_round(left, m * k * (is_complex ? 2 : 1), of->mantissa);
        dense_round(right, k * n * (is_complex ? 2 : 1), of->mantissa);
    }
    if (is_complex) complex_multiply(m, n, k, left, right, sum);
    else real_multiply(m, n, k, left, right, sum);
    scale_add(sum, sum, old, m * n, is_complex, alpha, beta);
    dense_store(of->c.type, c, of->c.ld, sum, m, n);
    free(left);
    free(right);
    free(old);
    free(sum);
}

static const void *matrix_of(const struct product *of, const struct operand *from, int64_t i) {
    if (of->is_array) return ((const void *const *)from->data)[i];
    return (const char *)from->data + i * from->stride * (int64_t)dense_size(from->type);
}

static void run(void *data) {
    const struct product *of = data;
    complex_double alpha = of->alpha ? dense_number(of->scale_type, of->alpha) : of->alpha_value;
    complex_double beta = of->beta ? dense_number(of->scale_type, of->beta) : of->beta_value;
    for (int64_t i = 0; i < of->count; i++) {
        const void *a = matrix_of(of, &of->a, i), *b = matrix_of(of, &of->b, i);
        const void *c = matrix_of(of, &of->c, i);
        int64_t a_rows = of->op_a == OP_N ? of->m : of->k;
        int64_t b_rows = of->op_b == OP_N ? of->k : of->n;
        if (of->is_array &&
            !(library_range(a, dense_size(of->a.type), a_rows, of->m + of->k - a_rows, of->a.ld, 0,
                            1) &&
              library_range(b, dense_size(of->b.type), b_rows, of->k + of->n - b_rows, of->b.ld, 0,
                            1) &&
              library_range(c, dense_size(of->c.type), of->m, of->n, of->c.ld, 0, 1))) {
            library_bad_access(of->context);
            return;
        }
        multiply_one(of, a, b, (void *)c, alpha, beta);
    }
}

/* -- checks ------------------------------------------------------------------------------------ */

/* What alpha and beta are, and which types of matrices a kind of computation takes. */
static int scale_type_of(const struct product *of, int compute) {
    int a = of->a.type, b = of->b.type, c = of->c.type;
    if (a != b) return -1;
    switch (compute & ~1) {
        case COMPUTE_16F: return a == R_16F && c == R_16F ? R_16F : -1;
        case COMPUTE_64F:
            if (a == R_64F && c == R_64F) return R_64F;
            return a == C_64F && c == C_64F ? C_64F : -1;
    }
    int is_fast = compute >= COMPUTE_32F_FAST_16F && compute <= COMPUTE_32F_EMULATED_16BFX9;
    if ((compute & ~1) != COMPUTE_32F && !is_fast) return -1;
    if (c == C_32F && a == C_32F) return C_32F;
    if (c == R_32F && a == R_32F) return R_32F;
    if (is_fast) return -1;
    if ((a == R_16F || a == R_16BF) && (c == a || c == R_32F)) return R_32F;
    return -1;
}

static int mantissa_of(const struct product *of, int compute, int math) {
    int is_single = of->a.type == R_32F || of->a.type == C_32F;
    if (!is_single) return 0;
    if (compute == COMPUTE_32F_FAST_16BF) return 7;
    if (compute == COMPUTE_32F_FAST_16F || compute == COMPUTE_32F_FAST_TF32) return 10;
    return compute == COMPUTE_32F && math == TF32_MATH ? 10 : 0;
}

static cublasStatus_t check(cublasHandle_t handle, struct product *of, int compute,
                            const void *alpha, const void *beta) {
    REQUIRE(of->op_a >= OP_N && of->op_a <= OP_C, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of->op_b >= OP_N && of->op_b <= OP_C, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of->m >= 0 && of->n >= 0 && of->k >= 0 && of->count >= 0, CUBLAS_STATUS_INVALID_VALUE);
    int64_t a_rows = of->op_a == OP_N ? of->m : of->k, a_columns = of->m + of->k - a_rows;
    int64_t b_rows = of->op_b == OP_N ? of->k : of->n, b_columns = of->k + of->n - b_rows;
    REQUIRE(of->a.ld >= (a_rows > 1 ? a_rows : 1), CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of->b.ld >= (b_rows > 1 ? b_rows : 1), CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(of->c.ld >= (of->m > 1 ? of->m : 1), CUBLAS_STATUS_INVALID_VALUE);
    of->scale_type = scale_type_of(of, compute);
    REQUIRE(of->scale_type >= 0, CUBLAS_STATUS_NOT_SUPPORTED);
    of->mantissa = mantissa_of(of, compute, handle->math);
    REQUIRE(alpha && beta, CUBLAS_STATUS_INVALID_VALUE);
    of->context = handle->context;
    if (handle->device_scalars) {
        size_t size = dense_size(of->scale_type);
        REQUIRE(library_range(alpha, size, 1, 1, 1, 0, 1), CUBLAS_STATUS_EXECUTION_FAILED);
        REQUIRE(library_range(beta, size, 1, 1, 1, 0, 1), CUBLAS_STATUS_EXECUTION_FAILED);
        of->alpha = alpha;
        of->beta = beta;
    } else {
        of->alpha_value = dense_number(of->scale_type, alpha);
        of->beta_value = dense_number(of->scale_type, beta);
    }
    if (!of->m || !of->n || !of->count) return CUBLAS_STATUS_SUCCESS;
    if (of->is_array) {
        const struct operand *all[] = {&of->a, &of->b, &of->c};
        for (int i = 0; i < 3; i++)
            REQUIRE(library_range(all[i]->data, sizeof(void *), of->count, 1, of->count, 0, 1),
                    CUBLAS_STATUS_EXECUTION_FAILED);
        return CUBLAS_STATUS_SUCCESS;
    }
    /* Results on top of each other have no defined order. */
    REQUIRE(of->count == 1 || of->c.stride, CUBLAS_STATUS_INVALID_VALUE);
    REQUIRE(library_range(of->a.data, dense_size(of->a.type), a_rows, a_columns, of->a.ld,
                          of->a.stride, of->count) &&
                library_range(of->b.data, dense_size(of->b.type), b_rows, b_columns, of->b.ld,
                              of->b.stride, of->count) &&
                library_range(of->c.data, dense_size(of->c.type), of->m, of->n, of->c.ld,
                              of->c.stride, of->count),
            CUBLAS_STATUS_EXECUTION_FAILED);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product(const char *name, cublasHandle_t handle, struct product of,
                              int compute, const void *alpha, const void *beta) {
    cublasStatus_t status = check(handle, &of, compute, alpha, beta);
    if (status || !of.m || !of.n || !of.count) return status;
    return fake_enqueue(name, handle->stream, run, &of, sizeof of) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                   : CUBLAS_STATUS_SUCCESS;
}

/* -- the entry points: INT is int, or int64_t in those whose names end in _64 ------------------ */

#define ANY(suffix, INT)                                                                        \
    API cublasStatus_t cublasGemmEx##suffix(                                                    \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, int a_type, INT lda, const void *b, int b_type, INT ldb,                 \
        const void *beta, void *c, int c_type, INT ldc, int compute, int algorithm) {           \
        ENTER_COMPUTE(handle);                                                                  \
        (void)algorithm;                                                                        \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k, .count = 1,    \
                             .a = {a, a_type, lda, 0}, .b = {b, b_type, ldb, 0},                \
                             .c = {c, c_type, ldc, 0}};                                         \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }                                                                                           \
    API cublasStatus_t cublasGemmStridedBatchedEx##suffix(                                      \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, int a_type, INT lda, long long a_stride, const void *b, int b_type,      \
        INT ldb, long long b_stride, const void *beta, void *c, int c_type, INT ldc,            \
        long long c_stride, INT count, int compute, int algorithm) {                            \
        ENTER_COMPUTE(handle);                                                                  \
        (void)algorithm;                                                                        \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k,                \
                             .count = count, .a = {a, a_type, lda, a_stride},                   \
                             .b = {b, b_type, ldb, b_stride}, .c = {c, c_type, ldc, c_stride}}; \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }                                                                                           \
    API cublasStatus_t cublasGemmBatchedEx##suffix(                                             \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, int a_type, INT lda, const void *b, int b_type, INT ldb,                 \
        const void *beta, const void *c, int c_type, INT ldc, INT count, int compute,           \
        int algorithm) {                                                                        \
        ENTER_COMPUTE(handle);                                                                  \
        (void)algorithm;                                                                        \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k,                \
                             .count = count, .a = {a, a_type, lda, 0}, .b = {b, b_type, ldb, 0},\
                             .c = {c, c_type, ldc, 0}, .is_array = 1};                          \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }

#define TYPED(letter, type, compute, suffix, INT)                                               \
    API cublasStatus_t cublas##letter##gemm_v2##suffix(                                         \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, INT lda, const void *b, INT ldb, const void *beta, void *c, INT ldc) {   \
        ENTER_COMPUTE(handle);                                                                  \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k, .count = 1,    \
                             .a = {a, type, lda, 0}, .b = {b, type, ldb, 0},                    \
                             .c = {c, type, ldc, 0}};                                           \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }                                                                                           \
    API cublasStatus_t cublas##letter##gemmStridedBatched##suffix(                              \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, INT lda, long long a_stride, const void *b, INT ldb, long long b_stride, \
        const void *beta, void *c, INT ldc, long long c_stride, INT count) {                    \
        ENTER_COMPUTE(handle);                                                                  \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k,                \
                             .count = count, .a = {a, type, lda, a_stride},                     \
                             .b = {b, type, ldb, b_stride}, .c = {c, type, ldc, c_stride}};     \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }                                                                                           \
    API cublasStatus_t cublas##letter##gemmBatched##suffix(                                     \
        cublasHandle_t handle, int op_a, int op_b, INT m, INT n, INT k, const void *alpha,      \
        const void *a, INT lda, const void *b, INT ldb, const void *beta, const void *c,        \
        INT ldc, INT count) {                                                                   \
        ENTER_COMPUTE(handle);                                                                  \
        struct product of = {.op_a = op_a, .op_b = op_b, .m = m, .n = n, .k = k,                \
                             .count = count, .a = {a, type, lda, 0}, .b = {b, type, ldb, 0},    \
                             .c = {c, type, ldc, 0}, .is_array = 1};                            \
        return product(__func__, handle, of, compute, alpha, beta);                             \
    }

#define BOTH(suffix, INT)                            \
    ANY(suffix, INT)                                 \
    TYPED(S, R_32F, COMPUTE_32F, suffix, INT)        \
    TYPED(D, R_64F, COMPUTE_64F, suffix, INT)        \
    TYPED(C, C_32F, COMPUTE_32F, suffix, INT)        \
    TYPED(Z, C_64F, COMPUTE_64F, suffix, INT)

BOTH(, int)
BOTH(_64, int64_t)

/* The fake cuSOLVER: Cholesky factors, reflections, eigenvalues.
 *
 * The batched Cholesky decomposition destroys the triangle that it does not return, as the real one
 * may; a decomposition into eigenvalues alone destroys its matrix. Destroyed memory holds 0xCD. */
#include <stdlib.h>
#include <string.h>

#include "cusolver.h"

enum { HOST_BYTES = 64, MOST_AT_ONCE = 32000 };

enum routine { CHOLESKY, REFLECT, MULTIPLY, HERMITIAN, GENERAL };

struct problem {
    enum routine routine;
    CUcontext context;
    int type;
    int64_t m, n, lda, count; /* count: of matrices, or of reflections */
    void *a;
    int is_array;
    int value_type, with_vectors;
    void *values, *vectors; /* values: eigenvalues or the factors of reflections */
    int64_t ldv;
    int *info;
    workspace work;
};

static int real_type_of(int type) {
    return type == C_32F ? R_32F : type == C_64F ? R_64F : type;
}

static int complex_type_of(int type) {
    return type == R_32F ? C_32F : type == R_64F ? C_64F : type;
}

static void *new_numbers(int64_t count) {
    void *numbers = calloc((size_t)count + 1, sizeof(complex_double));
    if (!numbers) abort();
    return numbers;
}

static void spoil(const struct problem *of, void *a) {
    for (int64_t j = 0; j < of->n; j++)
        memset((char *)a + j * of->lda * (int64_t)dense_size(of->type), 0xCD,
               (size_t)of->m * dense_size(of->type));
}

/* -- the work ---------------------------------------------------------------------------------- */

static void run_cholesky(const struct problem *of, void *place, int *info) {
    int64_t n = of->n;
    size_t width = dense_size(of->type);
    void *a = dense_load(of->type, place, of->lda, OP_N, n, n);
    *info = dense_is_complex(of->type) ? complex_cholesky(n, a) : real_cholesky(n, a);
    void *kept = new_numbers(n * of->lda);
    for (int64_t j = 0; j < n; j++)
        memcpy((char *)kept + j * n * (int64_t)width,
               (char *)place + j * of->lda * (int64_t)width, (size_t)j * width);
    dense_store(of->type, place, of->lda, a, n, n);
    for (int64_t j = 0; j < n; j++) { /* the elements above the diagonal */
        char *column = (char *)place + j * of->lda * (int64_t)width;
        if (of->is_array) memset(column, 0xCD, (size_t)j * width);
        else memcpy(column, (char *)kept + j * n * (int64_t)width, (size_t)j * width);
    }
    free(a);
    free(kept);
}

static void run_reflect(const struct problem *of) {
    int64_t least = of->m < of->n ? of->m : of->n;
    void *a = dense_load(of->type, of->a, of->lda, OP_N, of->m, of->n), *tau = new_numbers(least);
    if (dense_is_complex(of->type)) complex_qr(of->m, of->n, a, tau);
    else real_qr(of->m, of->n, a, tau);
    dense_store(of->type, of->a, of->lda, a, of->m, of->n);
    dense_store(of->type, of->values, least, tau, least, 1);
    *of->info = 0;
    free(a);
    free(tau);
}

static void run_multiply(const struct problem *of) {
    void *a = dense_load(of->type, of->a, of->lda, OP_N, of->m, of->n);
    void *tau = dense_load(of->type, of->values, of->count, OP_N, of->count, 1);
    if (dense_is_complex(of->type)) complex_reflections(of->m, of->n, of->count, a, tau);
    else real_reflections(of->m, of->n, of->count, a, tau);
    dense_store(of->type, of->a, of->lda, a, of->m, of->n);
    *of->info = 0;
    free(a);
    free(tau);
}

static void run_hermitian(const struct problem *of, int64_t i) {
    int64_t n = of->n;
    int real = real_type_of(of->type);
    char *place = (char *)of->a + i * of->lda * n * (int64_t)dense_size(of->type);
    void *a = dense_load(of->type, place, of->lda, OP_N, n, n), *v = new_numbers(n * n);
    double *w = new_numbers(n);
    of->info[i] = dense_is_complex(of->type) ? complex_hermitian(n, a, w, v)
                                             : real_hermitian(n, a, w, v);
    dense_store(real, (char *)of->values + i * n * (int64_t)dense_size(real), n, w, n, 1);
    if (of->with_vectors) dense_store(of->type, place, of->lda, v, n, n);
    else spoil(of, place);
    free(a);
    free(v);
    free(w);
}

static void run_general(const struct problem *of) {
    int64_t n = of->n;
    void *a = dense_load(of->type, of->a, of->lda, OP_N, n, n), *v = new_numbers(n * n);
    complex_double *w = new_numbers(n);
    *of->info = dense_is_complex(of->type) ? complex_eigen(n, a, w, v) : real_eigen(n, a, w, v);
    spoil(of, of->a);
    if (of->value_type == of->type && !dense_is_complex(of->type)) {
        double *parts = new_numbers(n);
        for (int64_t i = 0; i < n; i++) parts[i] = creal(w[i]), parts[n + i] = cimag(w[i]);
        dense_store(of->type, of->values, 2 * n, parts, 2 * n, 1);
        free(parts);
    } else {
        dense_store(complex_type_of(of->type), of->values, n, w, n, 1);
    }
    if (of->with_vectors) dense_store(of->type, of->vectors, of->ldv, v, n, n);
    free(a);
    free(v);
    free(w);
}

static void run(void *data) {
    const struct problem *of = data;
    workspace_spoil(of->work);
    switch (of->routine) {
        case CHOLESKY:
            for (int64_t i = 0; i < of->count; i++) {
                void *a = of->is_array ? ((void *const *)of->a)[i] : of->a;
                if (!library_range(a, dense_size(of->type), of->n, of->n, of->lda, 0, 1)) {
                    library_bad_access(of->context);
                    return;
                }
                run_cholesky(of, a, of->info + i);
            }
            break;
        case REFLECT: run_reflect(of); break;
        case MULTIPLY: run_multiply(of); break;
        case HERMITIAN:
            for (int64_t i = 0; i < of->count; i++) run_hermitian(of, i);
            break;
        case GENERAL: run_general(of); break;
    }
}

static size_t needs(int64_t m, int64_t n, int type) {
    return (size_t)((m + 1) * (n + 1)) * dense_size(type);
}

/* Checks sizes and memory that all routines have, and hands the work to the stream. */
static cusolverStatus_t begin(const char *name, cusolverDnHandle_t handle, struct problem *of,
                              workspace given, size_t needed) {
    size_t element = dense_size(of->type);
    int64_t matrices = of->routine == HERMITIAN ? of->count : 1;
    int64_t codes = of->routine == CHOLESKY ? of->count : matrices;
    REQUIRE(of->m >= 0 && of->n >= 0 && of->lda >= (of->m > 1 ? of->m : 1), BAD);
    if (needed) {
        cusolverStatus_t status = workspace_check(given, needed);
        if (status) return status;
    }
    of->work = (workspace){given.memory, needed};
    of->context = handle->context;
    REQUIRE((of->is_array ? library_range(of->a, sizeof(void *), of->count, 1, of->count, 0, 1)
                          : library_range(of->a, element, of->m, of->n, of->lda, of->lda * of->n,
                                          matrices)) &&
                library_range(of->info, sizeof(int), codes, 1, codes, 0, 1),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    return fake_enqueue(name, handle->stream, run, of, sizeof *of)
               ? CUSOLVER_STATUS_EXECUTION_FAILED
               : CUSOLVER_STATUS_SUCCESS;
}

/* -- Cholesky factors: of lower triangles only ------------------------------------------------- */

API cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, void *parameters,
                                                 int uplo, int64_t n, int type, const void *a,
                                                 int64_t lda, int compute, size_t *on_device,
                                                 size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters, (void)a;
    REQUIRE(on_device && on_host && n >= 0 && lda >= (n > 1 ? n : 1), BAD);
    REQUIRE(uplo == 0 && solver_type(type, compute), BAD);
    *on_device = needs(n, n, type);
    *on_host = 0;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, void *parameters, int uplo,
                                      int64_t n, int type, void *a, int64_t lda, int compute,
                                      void *on_device, size_t device_size, void *on_host,
                                      size_t host_size, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters, (void)on_host, (void)host_size;
    REQUIRE(n >= 0 && uplo == 0 && solver_type(type, compute), BAD);
    struct problem of = {.routine = CHOLESKY, .type = type, .m = n, .n = n, .lda = lda,
                         .count = 1, .a = a, .info = info};
    return begin(__func__, handle, &of, (workspace){on_device, device_size}, needs(n, n, type));
}

#define CHOLESKY_OF_BATCHES(letter, data_type)                                                  \
    API cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t handle, int uplo,  \
                                                          int n, void *a[], int lda, int *info, \
                                                          int count) {                          \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(uplo == 0 && n >= 0 && count >= 0, BAD);                                        \
        struct problem of = {.routine = CHOLESKY, .type = data_type, .m = n, .n = n,            \
                             .lda = lda, .count = count, .a = a, .is_array = 1, .info = info};  \
        return begin(__func__, handle, &of, (workspace){0}, 0);                                 \
    }

CHOLESKY_OF_BATCHES(S, R_32F)
CHOLESKY_OF_BATCHES(D, R_64F)
CHOLESKY_OF_BATCHES(C, C_32F)
CHOLESKY_OF_BATCHES(Z, C_64F)

/* -- reflections ------------------------------------------------------------------------------- */

API cusolverStatus_t cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, void *parameters,
                                                 int64_t m, int64_t n, int type, const void *a,
                                                 int64_t lda, int tau_type, const void *tau,
                                                 int compute, size_t *on_device, size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters, (void)a, (void)tau;
    REQUIRE(on_device && on_host && m >= 0 && n >= 0 && lda >= (m > 1 ? m : 1), BAD);
    REQUIRE(solver_type(type, compute) && tau_type == type, BAD);
    *on_device = needs(m, n, type);
    *on_host = 0;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgeqrf(cusolverDnHandle_t handle, void *parameters, int64_t m,
                                      int64_t n, int type, void *a, int64_t lda, int tau_type,
                                      void *tau, int compute, void *on_device, size_t device_size,
                                      void *on_host, size_t host_size, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters, (void)on_host, (void)host_size;
    int64_t least = m < n ? m : n;
    REQUIRE(m >= 0 && n >= 0 && solver_type(type, compute) && tau_type == type, BAD);
    REQUIRE(library_range(tau, dense_size(type), least, 1, least, 0, 1),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    struct problem of = {.routine = REFLECT, .type = type, .m = m, .n = n, .lda = lda, .count = 1,
                         .a = a, .values = tau, .info = info};
    return begin(__func__, handle, &of, (workspace){on_device, device_size}, needs(m, n, type));
}

#define COLUMNS_OF_PRODUCT(name, data_type)                                                     \
    API cusolverStatus_t cusolverDn##name##_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                       int k, const void *a, int lda,           \
                                                       const void *tau, int *size) {            \
        ENTER_SOLVER(handle);                                                                   \
        (void)a, (void)tau;                                                                     \
        REQUIRE(size && n >= 0 && m >= n && k >= 0 && k <= n && lda >= (m > 1 ? m : 1), BAD);   \
        *size = (m + 1) * (n + 1);                                                              \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##name(cusolverDnHandle_t handle, int m, int n, int k,       \
                                          void *a, int lda, const void *tau, void *work,        \
                                          int size, int *info) {                                \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(n >= 0 && m >= n && k >= 0 && k <= n && size >= 0, BAD);                        \
        REQUIRE(library_range(tau, dense_size(data_type), k, 1, k, 0, 1),                       \
                CUSOLVER_STATUS_EXECUTION_FAILED);                                              \
        struct problem of = {.routine = MULTIPLY, .type = data_type, .m = m, .n = n,            \
                             .lda = lda, .count = k, .a = a, .values = (void *)tau,             \
                             .info = info};                                                     \
        workspace given = {work, (size_t)size * dense_size(data_type)};                         \
        return begin(__func__, handle, &of, given, needs(m, n, data_type));                     \
    }

COLUMNS_OF_PRODUCT(Sorgqr, R_32F)
COLUMNS_OF_PRODUCT(Dorgqr, R_64F)
COLUMNS_OF_PRODUCT(Cungqr, C_32F)
COLUMNS_OF_PRODUCT(Zungqr, C_64F)

/* -- eigenvalues ------------------------------------------------------------------------------- */

static cusolverStatus_t check_hermitian(int vectors, int uplo, int64_t n, int type, int64_t lda,
                                        int value_type, int compute, int64_t count) {
    REQUIRE((vectors == 0 || vectors == 1) && uplo == 0, BAD);
    REQUIRE(n >= 0 && lda >= (n > 1 ? n : 1) && count > 0 && count <= MOST_AT_ONCE, BAD);
    REQUIRE(solver_type(type, compute) && value_type == real_type_of(type), BAD);
    return CUSOLVER_STATUS_SUCCESS;
}

#define HERMITIAN(name, COUNT, matrices)                                                         \
    API cusolverStatus_t cusolverDn##name##_bufferSize(                                         \
        cusolverDnHandle_t handle, void *parameters, int vectors, int uplo, int64_t n,          \
        int type, const void *a, int64_t lda, int value_type, const void *w, int compute,       \
        size_t *on_device, size_t *on_host COUNT) {                                             \
        ENTER_SOLVER(handle);                                                                   \
        (void)parameters, (void)a, (void)w;                                                     \
        REQUIRE(on_device && on_host, BAD);                                                     \
        *on_device = needs(n, n, type) * (size_t)(matrices);                                       \
        *on_host = HOST_BYTES;                                                                  \
        return check_hermitian(vectors, uplo, n, type, lda, value_type, compute, matrices);     \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##name(                                                      \
        cusolverDnHandle_t handle, void *parameters, int vectors, int uplo, int64_t n,          \
        int type, void *a, int64_t lda, int value_type, void *w, int compute, void *on_device,  \
        size_t device_size, void *on_host, size_t host_size, int *info COUNT) {                 \
        ENTER_SOLVING(handle);                                                                  \
        (void)parameters;                                                                       \
        cusolverStatus_t status =                                                               \
            check_hermitian(vectors, uplo, n, type, lda, value_type, compute, matrices);        \
        if (status) return status;                                                              \
        REQUIRE(on_host && host_size >= HOST_BYTES, BAD);                                       \
        memset(on_host, 0xCD, HOST_BYTES);                                                      \
        REQUIRE(library_range(w, dense_size(value_type), n, 1, n, n, matrices),                  \
                CUSOLVER_STATUS_EXECUTION_FAILED);                                              \
        struct problem of = {.routine = HERMITIAN, .type = type, .m = n, .n = n, .lda = lda,    \
                             .count = matrices, .a = a, .with_vectors = vectors, .values = w,      \
                             .info = info};                                                     \
        return begin(__func__, handle, &of, (workspace){on_device, device_size},                \
                     needs(n, n, type) * (size_t)(matrices));                                      \
    }

#define NO_COUNT
#define A_COUNT , int64_t count
HERMITIAN(Xsyevd, NO_COUNT, 1)
HERMITIAN(XsyevBatched, A_COUNT, count)

/* Left vectors are not served, by the real one neither. */
static cusolverStatus_t check_general(int left, int right, int64_t n, int type, int64_t lda,
                                      int value_type, int left_type, int right_type, int64_t ldvr,
                                      int compute) {
    REQUIRE(left == 0 && (right == 0 || right == 1), BAD);
    REQUIRE(n >= 0 && lda >= (n > 1 ? n : 1) && ldvr >= (right && n > 1 ? n : 1), BAD);
    REQUIRE(solver_type(type, compute) && left_type == type && right_type == type, BAD);
    REQUIRE(value_type == type || value_type == complex_type_of(type), BAD);
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgeev_bufferSize(
    cusolverDnHandle_t handle, void *parameters, int left, int right, int64_t n, int type,
    const void *a, int64_t lda, int value_type, const void *w, int left_type, const void *vl,
    int64_t ldvl, int right_type, const void *vr, int64_t ldvr, int compute, size_t *on_device,
    size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters, (void)a, (void)w, (void)vl, (void)ldvl, (void)vr;
    REQUIRE(on_device && on_host, BAD);
    *on_device = needs(n, n, type);
    *on_host = HOST_BYTES;
    return check_general(left, right, n, type, lda, value_type, left_type, right_type, ldvr,
                         compute);
}

API cusolverStatus_t cusolverDnXgeev(
    cusolverDnHandle_t handle, void *parameters, int left, int right, int64_t n, int type, void *a,
    int64_t lda, int value_type, void *w, int left_type, void *vl, int64_t ldvl, int right_type,
    void *vr, int64_t ldvr, int compute, void *on_device, size_t device_size, void *on_host,
    size_t host_size, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters, (void)vl, (void)ldvl;
    cusolverStatus_t status = check_general(left, right, n, type, lda, value_type, left_type,
                                            right_type, ldvr, compute);
    if (status) return status;
    REQUIRE(on_host && host_size >= HOST_BYTES, BAD);
    memset(on_host, 0xCD, HOST_BYTES);
    int64_t values = value_type == type && !dense_is_complex(type) ? 2 * n : n;
    REQUIRE(library_range(w, dense_size(value_type), values, 1, values, 0, 1) &&
                (!right || library_range(vr, dense_size(type), n, n, ldvr, 0, 1)),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    struct problem of = {.routine = GENERAL, .type = type, .m = n, .n = n, .lda = lda, .count = 1,
                         .a = a, .value_type = value_type, .with_vectors = right, .values = w,
                         .vectors = vr, .ldv = ldvr, .info = info};
    return begin(__func__, handle, &of, (workspace){on_device, device_size}, needs(n, n, type));
}

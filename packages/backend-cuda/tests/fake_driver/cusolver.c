/* The fake cuSOLVER: handles, and linear systems by elimination. */
#include "cusolver.h"

#include <stdlib.h>
#include <string.h>

/* -- handles ----------------------------------------------------------------------------------- */

API cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
    static fake_site site;
    int entered = fake_enter_library(&site, __func__);
    if (entered) return entered;
    REQUIRE(handle, BAD);
    *handle = library_handle_new();
    return *handle ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_NOT_INITIALIZED;
}

API cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    ENTER_SOLVER(handle);
    handle->live = 0;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, CUstream stream) {
    ENTER_SOLVER(handle);
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnGetStream(cusolverDnHandle_t handle, CUstream *stream) {
    ENTER_SOLVER(handle);
    REQUIRE(stream, BAD);
    *stream = handle->stream;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnSetDeterministicMode(cusolverDnHandle_t handle, int mode) {
    ENTER_SOLVER(handle);
    REQUIRE(mode == 1 || mode == 2, BAD);
    handle->deterministic = mode;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnGetDeterministicMode(cusolverDnHandle_t handle, int *mode) {
    ENTER_SOLVER(handle);
    REQUIRE(mode, BAD);
    *mode = handle->deterministic ? handle->deterministic : 1;
    return CUSOLVER_STATUS_SUCCESS;
}

/* Parameters of 64-bit calls choose algorithms, and there is one of each here. */
API cusolverStatus_t cusolverDnCreateParams(void **parameters) {
    REQUIRE(parameters, BAD);
    *parameters = calloc(1, 16);
    return *parameters ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_EXECUTION_FAILED;
}

API cusolverStatus_t cusolverDnDestroyParams(void *parameters) {
    REQUIRE(parameters, BAD);
    free(parameters);
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnSetAdvOptions(void *parameters, int function, int algorithm) {
    REQUIRE(parameters && function == 0 && algorithm >= 0 && algorithm < 3, BAD);
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverGetProperty(int which, int *value) {
    REQUIRE(value && which >= 0 && which < 3, BAD);
    *value = which ? 0 : 12;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverGetVersion(int *version) {
    REQUIRE(version, BAD);
    *version = 12000;
    return CUSOLVER_STATUS_SUCCESS;
}

/* -- workspaces and types ---------------------------------------------------------------------- */

cusolverStatus_t workspace_check(workspace given, size_t needed) {
    REQUIRE(given.size >= needed, BAD);
    REQUIRE(fake_check_range((CUdeviceptr)(uintptr_t)given.memory, needed),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    return CUSOLVER_STATUS_SUCCESS;
}

void workspace_spoil(workspace given) {
    if (given.memory && given.size) memset(given.memory, 0xCD, given.size);
}

int solver_type(int type, int compute) {
    return type == compute && dense_size(type) >= 4;
}

/* -- elimination ------------------------------------------------------------------------------- */

struct elimination {
    int type, op;
    int64_t m, n, lda, count, ldb;
    void *a, *b;
    void *pivots; /* int or, in 64-bit calls, int64_t */
    int is_wide;
    int *info;
    workspace work;
};

static size_t eliminate_needs(int64_t m, int64_t n) {
    return (size_t)(m > 0 && n > 0 ? m * n : 1);
}

static void eliminate(void *data) {
    const struct elimination *of = data;
    int64_t steps = of->m < of->n ? of->m : of->n;
    int64_t *pivots = malloc(((size_t)steps + 1) * sizeof *pivots);
    if (!pivots) abort();
    workspace_spoil(of->work);
    void *a = dense_load(of->type, of->a, of->lda, OP_N, of->m, of->n);
    int64_t *exchanged = of->pivots ? pivots : NULL;
    *of->info = dense_is_complex(of->type) ? complex_eliminate(of->m, of->n, a, exchanged)
                                           : real_eliminate(of->m, of->n, a, exchanged);
    dense_store(of->type, of->a, of->lda, a, of->m, of->n);
    for (int64_t i = 0; of->pivots && i < steps; i++) {
        if (of->is_wide) ((int64_t *)of->pivots)[i] = pivots[i];
        else ((int *)of->pivots)[i] = (int)pivots[i];
    }
    free(a);
    free(pivots);
}

static cusolverStatus_t factor(const char *name, cusolverDnHandle_t handle,
                               struct elimination *of) {
    size_t element = dense_size(of->type);
    int64_t steps = of->m < of->n ? of->m : of->n;
    REQUIRE(of->m >= 0 && of->n >= 0 && of->lda >= (of->m > 1 ? of->m : 1), BAD);
    size_t pivot = of->is_wide ? sizeof(int64_t) : sizeof(int);
    REQUIRE(library_range(of->a, element, of->m, of->n, of->lda, 0, 1) &&
                library_range(of->info, sizeof(int), 1, 1, 1, 0, 1) &&
                (!of->pivots || library_range(of->pivots, pivot, steps, 1, steps, 0, 1)),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    return fake_enqueue(name, handle->stream, eliminate, of, sizeof *of)
               ? CUSOLVER_STATUS_EXECUTION_FAILED
               : CUSOLVER_STATUS_SUCCESS;
}

static void substitute(void *data) {
    const struct elimination *of = data;
    int64_t *pivots = malloc(((size_t)of->n + 1) * sizeof *pivots);
    if (!pivots) abort();
    for (int64_t i = 0; i < of->n; i++)
        pivots[i] = !of->pivots   ? i + 1
                    : of->is_wide ? ((int64_t *)of->pivots)[i]
                                  : ((int *)of->pivots)[i];
    void *a = dense_load(of->type, of->a, of->lda, OP_N, of->n, of->n);
    void *b = dense_load(of->type, of->b, of->ldb, OP_N, of->n, of->count);
    dense_substitute(of->type, of->op, of->n, of->count, a, pivots, b);
    dense_store(of->type, of->b, of->ldb, b, of->n, of->count);
    *of->info = 0;
    free(a);
    free(b);
    free(pivots);
}

static cusolverStatus_t solve(const char *name, cusolverDnHandle_t handle,
                              struct elimination *of) {
    size_t element = dense_size(of->type);
    int64_t least = of->n > 1 ? of->n : 1;
    REQUIRE(of->op >= OP_N && of->op <= OP_C && of->n >= 0 && of->count >= 0, BAD);
    REQUIRE(of->lda >= least && of->ldb >= least, BAD);
    size_t pivot = of->is_wide ? sizeof(int64_t) : sizeof(int);
    REQUIRE(library_range(of->a, element, of->n, of->n, of->lda, 0, 1) &&
                library_range(of->b, element, of->n, of->count, of->ldb, 0, 1) &&
                library_range(of->info, sizeof(int), 1, 1, 1, 0, 1) &&
                (!of->pivots || library_range(of->pivots, pivot, of->n, 1, least, 0, 1)),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    return fake_enqueue(name, handle->stream, substitute, of, sizeof *of)
               ? CUSOLVER_STATUS_EXECUTION_FAILED
               : CUSOLVER_STATUS_SUCCESS;
}

#define ELIMINATION(letter, data_type)                                                          \
    API cusolverStatus_t cusolverDn##letter##getrf_bufferSize(                                  \
        cusolverDnHandle_t handle, int m, int n, void *a, int lda, int *size) {                 \
        ENTER_SOLVER(handle);                                                                   \
        (void)a;                                                                                \
        REQUIRE(size && m >= 0 && n >= 0 && lda >= (m > 1 ? m : 1), BAD);                       \
        *size = (int)eliminate_needs(m, n);                                                     \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##getrf(cusolverDnHandle_t handle, int m, int n,     \
                                                   void *a, int lda, void *work, int *pivots,   \
                                                   int *info) {                                 \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(m >= 0 && n >= 0, BAD);                                                         \
        workspace given = {work, eliminate_needs(m, n) * dense_size(data_type)};                \
        cusolverStatus_t status = workspace_check(given, given.size);                           \
        if (status) return status;                                                              \
        struct elimination of = {.type = data_type, .m = m, .n = n, .lda = lda, .a = a,         \
                                 .pivots = pivots, .info = info, .work = given};                \
        return factor(__func__, handle, &of);                                                   \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##getrs(                                             \
        cusolverDnHandle_t handle, int op, int n, int count, const void *a, int lda,            \
        const int *pivots, void *b, int ldb, int *info) {                                       \
        ENTER_SOLVING(handle);                                                                  \
        struct elimination of = {.type = data_type, .op = op, .n = n, .lda = lda,               \
                                 .count = count, .ldb = ldb, .a = (void *)a, .b = b,            \
                                 .pivots = (void *)pivots, .info = info};                       \
        return solve(__func__, handle, &of);                                                    \
    }

ELIMINATION(S, R_32F)
ELIMINATION(D, R_64F)
ELIMINATION(C, C_32F)
ELIMINATION(Z, C_64F)

API cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, void *parameters,
                                                 int64_t m, int64_t n, int type, const void *a,
                                                 int64_t lda, int compute, size_t *on_device,
                                                 size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters;
    (void)a;
    REQUIRE(on_device && on_host && m >= 0 && n >= 0 && lda >= (m > 1 ? m : 1), BAD);
    REQUIRE(solver_type(type, compute), BAD);
    *on_device = eliminate_needs(m, n) * dense_size(type);
    *on_host = 0;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, void *parameters, int64_t m,
                                      int64_t n, int type, void *a, int64_t lda, int64_t *pivots,
                                      int compute, void *on_device, size_t device_size,
                                      void *on_host, size_t host_size, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters;
    (void)on_host;
    (void)host_size;
    REQUIRE(m >= 0 && n >= 0 && solver_type(type, compute), BAD);
    workspace given = {on_device, device_size};
    cusolverStatus_t status = workspace_check(given, eliminate_needs(m, n) * dense_size(type));
    if (status) return status;
    given.size = eliminate_needs(m, n) * dense_size(type);
    struct elimination of = {.type = type, .m = m, .n = n, .lda = lda, .a = a, .pivots = pivots,
                             .is_wide = 1, .info = info, .work = given};
    return factor(__func__, handle, &of);
}

API cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, void *parameters, int op,
                                      int64_t n, int64_t count, int a_type, const void *a,
                                      int64_t lda, const int64_t *pivots, int b_type, void *b,
                                      int64_t ldb, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters;
    REQUIRE(solver_type(a_type, b_type), BAD);
    struct elimination of = {.type = a_type, .op = op, .n = n, .lda = lda, .count = count,
                             .ldb = ldb, .a = (void *)a, .b = b, .pivots = (void *)pivots,
                             .is_wide = 1, .info = info};
    return solve(__func__, handle, &of);
}

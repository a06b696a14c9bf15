/* The fake cuSOLVER: singular values, behind each of the ways in which they can be asked for.
 *
 * The ways differ as the real ones do: gesvd wants m >= n and returns V^H, the others return V;
 * gesvdjBatched takes at most 32 rows and columns and returns square U and V; all but
 * gesvdaStridedBatched destroy their input, which then holds 0xCD here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cusolver.h"

typedef struct {
    int magic;
    double tolerance;
    int sweeps, sort;
} gesvdj_info;

enum { INFO_MAGIC = 0x6a64, BATCHED_MOST = 32, HOST_BYTES = 64 };

struct svd {
    int type, is_vh, keeps_input;
    int64_t m, n, count;
    void *a, *s, *u, *v;
    int64_t lda, ldu, ldv;
    int64_t a_stride, s_stride, u_stride, v_stride;
    int64_t u_columns, v_columns; /* 0: not asked for */
    int64_t values; /* how many singular values are stored */
    int *info;
    workspace work;
};

static int real_type_of(int type) {
    return type == C_32F ? R_32F : type == C_64F ? R_64F : type;
}

/* -- the work ---------------------------------------------------------------------------------- */

static char *at(void *data, int64_t i, int64_t stride, int type) {
    return (char *)data + i * stride * (int64_t)dense_size(type);
}

static void *new_numbers(int64_t count, size_t width) {
    void *numbers = calloc((size_t)count + 1, width);
    if (!numbers) abort();
    return numbers;
}

static void run_one(const struct svd *of, int64_t i) {
    int is_complex = dense_is_complex(of->type);
    size_t width = is_complex ? sizeof(complex_double) : sizeof(double);
    int64_t m = of->m, n = of->n, least = m < n ? m : n;
    int64_t u_columns = of->u_columns > least ? of->u_columns : least;
    int64_t v_columns = of->v_columns > least ? of->v_columns : least;
    char *place = at(of->a, i, of->a_stride, of->type);
    void *a = dense_load(of->type, place, of->lda, OP_N, m, n);
    double *s = new_numbers(least, sizeof *s);
    void *u = new_numbers(m * u_columns, width), *v = new_numbers(n * v_columns, width);
    int failed = is_complex ? complex_svd(m, n, a, s, u, u_columns, v, v_columns)
                            : real_svd(m, n, a, s, u, u_columns, v, v_columns);
    if (!of->keeps_input)
        for (int64_t j = 0; j < n; j++)
            memset(at(place, j, of->lda, of->type), 0xCD, (size_t)m * dense_size(of->type));
    int64_t stored = of->values;
    dense_store(real_type_of(of->type), at(of->s, i, of->s_stride, real_type_of(of->type)), stored,
                s, stored, 1);
    if (of->u_columns)
        dense_store(of->type, at(of->u, i, of->u_stride, of->type), of->ldu, u, m, of->u_columns);
    char *right = at(of->v, i, of->v_stride, of->type);
    if (of->v_columns && of->is_vh) {
        int wide = is_complex ? C_64F : R_64F;
        void *turned = dense_load(wide, v, n, OP_C, of->v_columns, n);
        dense_store(of->type, right, of->ldv, turned, of->v_columns, n);
        free(turned);
    } else if (of->v_columns) {
        dense_store(of->type, right, of->ldv, v, n, of->v_columns);
    }
    of->info[i] = failed ? (int)least + 1 : 0;
    free(a);
    free(s);
    free(u);
    free(v);
}

static void run(void *data) {
    const struct svd *of = data;
    workspace_spoil(of->work);
    for (int64_t i = 0; i < of->count; i++) run_one(of, i);
}

static cusolverStatus_t svd(const char *name, cusolverDnHandle_t handle, const struct svd *of) {
    size_t element = dense_size(of->type), real = dense_size(real_type_of(of->type));
    int64_t v_rows = of->is_vh ? of->v_columns : of->n;
    int64_t v_columns = of->is_vh ? of->n : of->v_columns;
    REQUIRE(of->m >= 0 && of->n >= 0 && of->count >= 0, BAD);
    REQUIRE(of->lda >= (of->m > 1 ? of->m : 1), BAD);
    REQUIRE(!of->u_columns || of->ldu >= (of->m > 1 ? of->m : 1), BAD);
    REQUIRE(!of->v_columns || of->ldv >= (v_rows > 1 ? v_rows : 1), BAD);
    if (!of->m || !of->n || !of->count) return CUSOLVER_STATUS_SUCCESS;
    REQUIRE(library_range(of->a, element, of->m, of->n, of->lda, of->a_stride, of->count) &&
                library_range(of->s, real, of->values, 1, of->values, of->s_stride, of->count) &&
                (!of->u_columns || library_range(of->u, element, of->m, of->u_columns, of->ldu,
                                                 of->u_stride, of->count)) &&
                (!of->v_columns || library_range(of->v, element, v_rows, v_columns, of->ldv,
                                                 of->v_stride, of->count)) &&
                library_range(of->info, sizeof(int), of->count, 1, of->count, 0, 1),
            CUSOLVER_STATUS_EXECUTION_FAILED);
    return fake_enqueue(name, handle->stream, run, of, sizeof *of)
               ? CUSOLVER_STATUS_EXECUTION_FAILED
               : CUSOLVER_STATUS_SUCCESS;
}

static int64_t least_of(int64_t m, int64_t n) { return m < n ? m : n; }

static size_t svd_needs(int64_t m, int64_t n, int64_t count) {
    return (size_t)((m + n + 1) * (m + n + 1) * (count > 0 ? count : 1));
}

/* -- gesvdj ------------------------------------------------------------------------------------ */

API cusolverStatus_t cusolverDnCreateGesvdjInfo(gesvdj_info **info) {
    REQUIRE(info, BAD);
    *info = calloc(1, sizeof **info);
    if (!*info) abort();
    **info = (gesvdj_info){INFO_MAGIC, 0, 100, 1};
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnDestroyGesvdjInfo(gesvdj_info *info) {
    REQUIRE(info && info->magic == INFO_MAGIC, BAD);
    info->magic = 0;
    free(info);
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvdjSetTolerance(gesvdj_info *info, double tolerance) {
    REQUIRE(info && info->magic == INFO_MAGIC, BAD);
    info->tolerance = tolerance;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvdjSetMaxSweeps(gesvdj_info *info, int sweeps) {
    REQUIRE(info && info->magic == INFO_MAGIC && sweeps > 0, BAD);
    info->sweeps = sweeps;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvdjSetSortEig(gesvdj_info *info, int sort) {
    REQUIRE(info && info->magic == INFO_MAGIC, BAD);
    info->sort = sort;
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t gesvdj(const char *name, cusolverDnHandle_t handle, struct svd *of,
                               int vectors, int econ, workspace given, const gesvdj_info *info) {
    REQUIRE(info && info->magic == INFO_MAGIC && (vectors == 0 || vectors == 1), BAD);
    REQUIRE(of->m >= 0 && of->n >= 0 && of->count >= 0, BAD);
    size_t needed = svd_needs(of->m, of->n, of->count) * dense_size(of->type);
    cusolverStatus_t status = workspace_check(given, needed);
    if (status) return status;
    of->work = (workspace){given.memory, needed};
    int64_t least = least_of(of->m, of->n);
    of->values = least;
    of->u_columns = vectors ? (econ ? least : of->m) : 0;
    of->v_columns = vectors ? (econ ? least : of->n) : 0;
    return svd(name, handle, of);
}

#define GESVDJ(letter, data_type)                                                               \
    API cusolverStatus_t cusolverDn##letter##gesvdj_bufferSize(                                 \
        cusolverDnHandle_t handle, int vectors, int econ, int m, int n, const void *a, int lda, \
        const void *s, const void *u, int ldu, const void *v, int ldv, int *size,               \
        gesvdj_info *info) {                                                                    \
        ENTER_SOLVER(handle);                                                                   \
        (void)a, (void)s, (void)u, (void)v, (void)ldu, (void)ldv, (void)vectors, (void)econ;    \
        REQUIRE(size && info && m >= 0 && n >= 0 && lda >= (m > 1 ? m : 1), BAD);               \
        *size = (int)svd_needs(m, n, 1);                                                        \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##gesvdj(                                            \
        cusolverDnHandle_t handle, int vectors, int econ, int m, int n, void *a, int lda,       \
        void *s, void *u, int ldu, void *v, int ldv, void *work, int size, int *info,           \
        gesvdj_info *parameters) {                                                              \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(size >= 0, BAD);                                                                \
        struct svd of = {.type = data_type, .m = m, .n = n, .count = 1, .a = a, .s = s, .u = u, \
                         .v = v, .lda = lda, .ldu = ldu, .ldv = ldv, .info = info};             \
        workspace given = {work, (size_t)size * dense_size(data_type)};                         \
        return gesvdj(__func__, handle, &of, vectors, econ, given, parameters);                 \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##gesvdjBatched_bufferSize(                          \
        cusolverDnHandle_t handle, int vectors, int m, int n, const void *a, int lda,           \
        const void *s, const void *u, int ldu, const void *v, int ldv, int *size,               \
        gesvdj_info *info, int count) {                                                         \
        ENTER_SOLVER(handle);                                                                   \
        (void)a, (void)s, (void)u, (void)v, (void)ldu, (void)ldv, (void)vectors;                \
        REQUIRE(size && info && m >= 0 && n >= 0 && count >= 0, BAD);                           \
        REQUIRE(m <= BATCHED_MOST && n <= BATCHED_MOST && lda >= (m > 1 ? m : 1), BAD);         \
        *size = (int)svd_needs(m, n, count);                                                    \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##gesvdjBatched(                                     \
        cusolverDnHandle_t handle, int vectors, int m, int n, void *a, int lda, void *s,        \
        void *u, int ldu, void *v, int ldv, void *work, int size, int *info,                    \
        gesvdj_info *parameters, int count) {                                                   \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(size >= 0 && m <= BATCHED_MOST && n <= BATCHED_MOST, BAD);                      \
        struct svd of = {.type = data_type, .m = m, .n = n, .count = count, .a = a, .s = s,     \
                         .u = u, .v = v, .lda = lda, .ldu = ldu, .ldv = ldv,                    \
                         .a_stride = (int64_t)lda * n, .s_stride = least_of(m, n),              \
                         .u_stride = (int64_t)ldu * m, .v_stride = (int64_t)ldv * n,            \
                         .info = info};                                                         \
        workspace given = {work, (size_t)size * dense_size(data_type)};                         \
        return gesvdj(__func__, handle, &of, vectors, 0, given, parameters);                    \
    }

GESVDJ(S, R_32F)
GESVDJ(D, R_64F)
GESVDJ(C, C_32F)
GESVDJ(Z, C_64F)

/* -- gesvd ------------------------------------------------------------------------------------- */

/* How many columns of U, or rows of V^H, a letter asks for; -1 for one that is not served. */
static int64_t columns_of(signed char job, int64_t all, int64_t least) {
    switch (job) {
        case 'A': return all;
        case 'S': return least;
        case 'N': return 0;
        default: return -1;
    }
}

static cusolverStatus_t gesvd(const char *name, cusolverDnHandle_t handle, struct svd *of,
                              signed char job_u, signed char job_v, workspace given) {
    REQUIRE(of->n >= 0 && of->m >= of->n, BAD); /* wide matrices: transpose them before */
    of->values = of->n;
    of->u_columns = columns_of(job_u, of->m, of->n);
    of->v_columns = columns_of(job_v, of->n, of->n);
    REQUIRE(of->u_columns >= 0 && of->v_columns >= 0, BAD);
    of->is_vh = 1;
    of->count = 1;
    size_t needed = svd_needs(of->m, of->n, 1) * dense_size(of->type);
    cusolverStatus_t status = workspace_check(given, needed);
    if (status) return status;
    of->work = (workspace){given.memory, needed};
    return svd(name, handle, of);
}

#define GESVD(letter, data_type)                                                                \
    API cusolverStatus_t cusolverDn##letter##gesvd_bufferSize(cusolverDnHandle_t handle, int m, \
                                                              int n, int *size) {               \
        ENTER_SOLVER(handle);                                                                   \
        REQUIRE(size && n >= 0 && m >= n, BAD);                                                 \
        *size = (int)svd_needs(m, n, 1);                                                        \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##gesvd(                                             \
        cusolverDnHandle_t handle, signed char job_u, signed char job_v, int m, int n, void *a, \
        int lda, void *s, void *u, int ldu, void *vh, int ldvh, void *work, int size,           \
        void *real_work, int *info) {                                                           \
        ENTER_SOLVING(handle);                                                                  \
        (void)real_work; /* may be NULL */                                                      \
        REQUIRE(size >= 0, BAD);                                                                \
        struct svd of = {.type = data_type, .m = m, .n = n, .a = a, .s = s, .u = u, .v = vh,    \
                         .lda = lda, .ldu = ldu, .ldv = ldvh, .info = info};                    \
        workspace given = {work, (size_t)size * dense_size(data_type)};                         \
        return gesvd(__func__, handle, &of, job_u, job_v, given);                               \
    }

GESVD(S, R_32F)
GESVD(D, R_64F)
GESVD(C, C_32F)
GESVD(Z, C_64F)

/* -- 64-bit calls ------------------------------------------------------------------------------ */

static int types_fit(int a, int s, int u, int v, int compute) {
    return solver_type(a, compute) && s == real_type_of(a) && u == a && v == a;
}

API cusolverStatus_t cusolverDnXgesvd_bufferSize(
    cusolverDnHandle_t handle, void *parameters, signed char job_u, signed char job_v, int64_t m,
    int64_t n, int type, const void *a, int64_t lda, int s_type, const void *s, int u_type,
    const void *u, int64_t ldu, int v_type, const void *vh, int64_t ldvh, int compute,
    size_t *on_device, size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters, (void)job_u, (void)job_v, (void)a, (void)s, (void)u, (void)vh, (void)ldu;
    (void)ldvh;
    REQUIRE(on_device && on_host && n >= 0 && m >= n && lda >= (m > 1 ? m : 1), BAD);
    REQUIRE(types_fit(type, s_type, u_type, v_type, compute), BAD);
    *on_device = svd_needs(m, n, 1) * dense_size(type);
    *on_host = HOST_BYTES;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvd(
    cusolverDnHandle_t handle, void *parameters, signed char job_u, signed char job_v, int64_t m,
    int64_t n, int type, void *a, int64_t lda, int s_type, void *s, int u_type, void *u,
    int64_t ldu, int v_type, void *vh, int64_t ldvh, int compute, void *on_device,
    size_t device_size, void *on_host, size_t host_size, int *info) {
    ENTER_SOLVING(handle);
    (void)parameters;
    REQUIRE(types_fit(type, s_type, u_type, v_type, compute), BAD);
    REQUIRE(on_host && host_size >= HOST_BYTES, BAD);
    memset(on_host, 0xCD, HOST_BYTES);
    struct svd of = {.type = type, .m = m, .n = n, .a = a, .s = s, .u = u, .v = vh, .lda = lda,
                     .ldu = ldu, .ldv = ldvh, .info = info};
    return gesvd(__func__, handle, &of, job_u, job_v, (workspace){on_device, device_size});
}

API cusolverStatus_t cusolverDnXgesvdp_bufferSize(
    cusolverDnHandle_t handle, void *parameters, int vectors, int econ, int64_t m, int64_t n,
    int type, const void *a, int64_t lda, int s_type, const void *s, int u_type, const void *u,
    int64_t ldu, int v_type, const void *v, int64_t ldv, int compute, size_t *on_device,
    size_t *on_host) {
    ENTER_SOLVER(handle);
    (void)parameters, (void)vectors, (void)econ, (void)a, (void)s, (void)u, (void)v, (void)ldu;
    (void)ldv;
    REQUIRE(on_device && on_host && n >= 0 && m >= 0 && lda >= (m > 1 ? m : 1), BAD);
    REQUIRE(types_fit(type, s_type, u_type, v_type, compute), BAD);
    *on_device = svd_needs(m, n, 1) * dense_size(type);
    *on_host = HOST_BYTES;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvdp(
    cusolverDnHandle_t handle, void *parameters, int vectors, int econ, int64_t m, int64_t n,
    int type, void *a, int64_t lda, int s_type, void *s, int u_type, void *u, int64_t ldu,
    int v_type, void *v, int64_t ldv, int compute, void *on_device, size_t device_size,
    void *on_host, size_t host_size, int *info, double *error) {
    ENTER_SOLVING(handle);
    (void)parameters;
    REQUIRE(types_fit(type, s_type, u_type, v_type, compute), BAD);
    REQUIRE(on_host && host_size >= HOST_BYTES && error, BAD);
    memset(on_host, 0xCD, HOST_BYTES);
    *error = 0;
    gesvdj_info any = {INFO_MAGIC, 0, 100, 1};
    struct svd of = {.type = type, .m = m, .n = n, .count = 1, .a = a, .s = s, .u = u, .v = v,
                     .lda = lda, .ldu = ldu, .ldv = ldv, .info = info};
    workspace given = {on_device, device_size};
    return gesvdj(__func__, handle, &of, vectors, econ, given, &any);
}

/* -- gesvdaStridedBatched ---------------------------------------------------------------------- */

#define GESVDA(letter, data_type)                                                               \
    API cusolverStatus_t cusolverDn##letter##gesvdaStridedBatched_bufferSize(                   \
        cusolverDnHandle_t handle, int vectors, int rank, int m, int n, const void *a, int lda, \
        long long a_stride, const void *s, long long s_stride, const void *u, int ldu,          \
        long long u_stride, const void *v, int ldv, long long v_stride, int *size, int count) { \
        ENTER_SOLVER(handle);                                                                   \
        (void)vectors, (void)a, (void)s, (void)u, (void)v, (void)lda, (void)ldu, (void)ldv;     \
        (void)a_stride, (void)s_stride, (void)u_stride, (void)v_stride;                         \
        REQUIRE(size && n >= 0 && m >= n && count >= 0 && rank >= 0 && rank <= n, BAD);         \
        *size = (int)svd_needs(m, n, count);                                                    \
        return CUSOLVER_STATUS_SUCCESS;                                                         \
    }                                                                                           \
    API cusolverStatus_t cusolverDn##letter##gesvdaStridedBatched(                              \
        cusolverDnHandle_t handle, int vectors, int rank, int m, int n, const void *a, int lda, \
        long long a_stride, void *s, long long s_stride, void *u, int ldu, long long u_stride,  \
        void *v, int ldv, long long v_stride, void *work, int size, int *info,                  \
        double *residuals, int count) {                                                         \
        ENTER_SOLVING(handle);                                                                  \
        REQUIRE(n >= 0 && m >= n && count >= 0 && rank >= 0 && rank <= n && size >= 0, BAD);    \
        size_t needed = svd_needs(m, n, count) * dense_size(data_type);                         \
        workspace given = {work, (size_t)size * dense_size(data_type)};                         \
        cusolverStatus_t status = workspace_check(given, needed);                               \
        if (status) return status;                                                              \
        for (int i = 0; residuals && i < count; i++) residuals[i] = 0;                          \
        struct svd of = {.type = data_type, .keeps_input = 1, .m = m, .n = n, .count = count,   \
                         .a = (void *)a, .s = s, .u = u, .v = v, .lda = lda, .ldu = ldu,        \
                         .ldv = ldv, .a_stride = a_stride, .s_stride = s_stride,                \
                         .u_stride = u_stride, .v_stride = v_stride,                            \
                         .u_columns = vectors ? rank : 0, .v_columns = vectors ? rank : 0,      \
                         .values = rank, .info = info, .work = {work, needed}};                 \
        return svd(__func__, handle, &of);                                                      \
    }

GESVDA(S, R_32F)
GESVDA(D, R_64F)
GESVDA(C, C_32F)
GESVDA(Z, C_64F)

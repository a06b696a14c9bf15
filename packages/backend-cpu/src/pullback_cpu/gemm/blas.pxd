# Matrix products of SciPy's BLAS, solvers and decompositions of its LAPACK, for float, double and
# their complex numbers, in this order.
from cpython.exc cimport PyErr_SetObject
from cpython.pycapsule cimport PyCapsule_GetPointer

from pullback.abi cimport PB_E_PYTHON, PB_OK

ctypedef void (*gemm_routine)(
    char *transa, char *transb, int *m, int *n, int *k, void *alpha, void *a, int *lda, void *b,
    int *ldb, void *beta, void *c, int *ldc) noexcept nogil
ctypedef void (*gemv_routine)(
    char *trans, int *m, int *n, void *alpha, void *a, int *lda, void *x, int *incx, void *beta,
    void *y, int *incy) noexcept nogil
ctypedef void (*gesv_routine)(
    int *n, int *nrhs, void *a, int *lda, int *ipiv, void *b, int *ldb, int *info) noexcept nogil
ctypedef void (*gesdd_routine)(
    char *jobz, int *m, int *n, void *a, int *lda, void *s, void *u, int *ldu, void *vt, int *ldvt,
    void *work, int *lwork, int *iwork, int *info) noexcept nogil
ctypedef void (*complex_gesdd_routine)(
    char *jobz, int *m, int *n, void *a, int *lda, void *s, void *u, int *ldu, void *vt, int *ldvt,
    void *work, int *lwork, void *rwork, int *iwork, int *info) noexcept nogil

ctypedef void (*trsm_routine)(
    char *side, char *uplo, char *transa, char *diag, int *m, int *n, void *alpha, void *a,
    int *lda, void *b, int *ldb) noexcept nogil
ctypedef void (*potrf_routine)(
    char *uplo, int *n, void *a, int *lda, int *info) noexcept nogil
ctypedef void (*getrf_routine)(
    int *m, int *n, void *a, int *lda, int *ipiv, int *info) noexcept nogil
ctypedef void (*geqrf_routine)(
    int *m, int *n, void *a, int *lda, void *tau, void *work, int *lwork, int *info) noexcept nogil
ctypedef void (*orgqr_routine)(
    int *m, int *n, int *k, void *a, int *lda, void *tau, void *work, int *lwork,
    int *info) noexcept nogil
ctypedef void (*syevd_routine)(
    char *jobz, char *uplo, int *n, void *a, int *lda, void *w, void *work, int *lwork, int *iwork,
    int *liwork, int *info) noexcept nogil
ctypedef void (*heevd_routine)(
    char *jobz, char *uplo, int *n, void *a, int *lda, void *w, void *work, int *lwork,
    void *rwork, int *lrwork, int *iwork, int *liwork, int *info) noexcept nogil
ctypedef void (*geev_routine)(
    char *jobvl, char *jobvr, int *n, void *a, int *lda, void *wr, void *wi, void *vl, int *ldvl,
    void *vr, int *ldvr, void *work, int *lwork, int *info) noexcept nogil
ctypedef void (*complex_geev_routine)(
    char *jobvl, char *jobvr, int *n, void *a, int *lda, void *w, void *vl, int *ldvl, void *vr,
    int *ldvr, void *work, int *lwork, void *rwork, int *info) noexcept nogil
ctypedef void (*sytrf_routine)(
    char *uplo, int *n, void *a, int *lda, int *ipiv, void *work, int *lwork,
    int *info) noexcept nogil
ctypedef void (*sytrs_routine)(
    char *uplo, int *n, int *nrhs, void *a, int *lda, int *ipiv, void *b, int *ldb,
    int *info) noexcept nogil


cdef extern from "gemm/blas_threads.h":
    ctypedef struct pb_blas_threads:
        int (*get)() noexcept nogil
        void (*set)(int count) noexcept nogil
    void pb_blas_threads_find(pb_blas_threads *threads, const char *library)
    int pb_blas_threads_hold(pb_blas_threads *threads, int is_worth_it) noexcept nogil
    void pb_blas_threads_release(pb_blas_threads *threads, int held) noexcept nogil
    void pb_blas_threads_set(pb_blas_threads *threads, int count) noexcept nogil


ctypedef struct blas_table:
    gemm_routine gemm[4]
    gemv_routine gemv[4]
    gesv_routine gesv[4]
    gesdd_routine gesdd[2]
    complex_gesdd_routine complex_gesdd[2]
    trsm_routine trsm[4]
    potrf_routine potrf[4]
    getrf_routine getrf[4]
    geqrf_routine geqrf[4]
    orgqr_routine orgqr[4]
    syevd_routine syevd[2]
    heevd_routine heevd[2]
    geev_routine geev[2]
    complex_geev_routine complex_geev[2]
    sytrf_routine sytrf[4]
    sytrf_routine hetrf[2]
    sytrs_routine sytrs[4]
    sytrs_routine hetrs[2]
    pb_blas_threads threads


cdef inline int load_blas(blas_table **table) noexcept with gil:
    """Find the routines; on failure a Python exception is set."""
    try:
        from pullback_cpu.runtime.blas_loader import load_routines
        table[0] = <blas_table *>PyCapsule_GetPointer(load_routines(), b"pb_blas")
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    return PB_OK

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

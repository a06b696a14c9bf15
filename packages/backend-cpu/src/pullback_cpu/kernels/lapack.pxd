# Solvers of SciPy's LAPACK for float, double and their complex numbers, in this order.
ctypedef void (*gesv_routine)(
    int *n, int *nrhs, void *a, int *lda, int *ipiv, void *b, int *ldb, int *info) noexcept nogil

cdef extern from "blas_threads.h":
    ctypedef struct pb_blas_threads:
        pass
    void pb_blas_threads_find(pb_blas_threads *threads, const char *library)
    int pb_blas_threads_hold(pb_blas_threads *threads, int is_worth_it) noexcept nogil
    void pb_blas_threads_release(pb_blas_threads *threads, int before) noexcept nogil


ctypedef struct lapack_table:
    gesv_routine gesv[4]
    pb_blas_threads threads

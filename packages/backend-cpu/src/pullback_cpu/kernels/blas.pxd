# Matrix products of SciPy's BLAS for float, double and their complex numbers, in this order.
ctypedef void (*gemm_routine)(
    char *transa, char *transb, int *m, int *n, int *k, void *alpha, void *a, int *lda, void *b,
    int *ldb, void *beta, void *c, int *ldc) noexcept nogil
ctypedef void (*gemv_routine)(
    char *trans, int *m, int *n, void *alpha, void *a, int *lda, void *x, int *incx, void *beta,
    void *y, int *incy) noexcept nogil


cdef extern from "blas_threads.h":
    ctypedef struct pb_blas_threads:
        int (*get)() noexcept nogil
        void (*set)(int count) noexcept nogil
    void pb_blas_threads_find(pb_blas_threads *threads, const char *library)
    int pb_gemm_hold(pb_blas_threads *threads, double m, double n, double k) noexcept nogil
    int pb_gemv_hold(pb_blas_threads *threads, double m, double n) noexcept nogil
    void pb_blas_threads_release(pb_blas_threads *threads, int before) noexcept nogil


ctypedef struct blas_table:
    gemm_routine gemm[4]
    gemv_routine gemv[4]
    pb_blas_threads threads

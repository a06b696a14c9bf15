# Routines of SciPy's BLAS and LAPACK. Importing this module loads them, so it is imported late.
import sys

from cpython.pycapsule cimport PyCapsule_New
from scipy.linalg cimport cython_blas, cython_lapack

from pullback_cpu.gemm.blas cimport *

cdef blas_table routines
routines.gemm[0] = <gemm_routine>cython_blas.sgemm
routines.gemm[1] = <gemm_routine>cython_blas.dgemm
routines.gemm[2] = <gemm_routine>cython_blas.cgemm
routines.gemm[3] = <gemm_routine>cython_blas.zgemm
routines.gemv[0] = <gemv_routine>cython_blas.sgemv
routines.gemv[1] = <gemv_routine>cython_blas.dgemv
routines.gemv[2] = <gemv_routine>cython_blas.cgemv
routines.gemv[3] = <gemv_routine>cython_blas.zgemv
routines.gesv[0] = <gesv_routine>cython_lapack.sgesv
routines.gesv[1] = <gesv_routine>cython_lapack.dgesv
routines.gesv[2] = <gesv_routine>cython_lapack.cgesv
routines.gesv[3] = <gesv_routine>cython_lapack.zgesv
routines.gesdd[0] = <gesdd_routine>cython_lapack.sgesdd
routines.gesdd[1] = <gesdd_routine>cython_lapack.dgesdd
routines.complex_gesdd[0] = <complex_gesdd_routine>cython_lapack.cgesdd
routines.complex_gesdd[1] = <complex_gesdd_routine>cython_lapack.zgesdd
library = getattr(sys.modules.get("scipy.linalg.cython_blas"), "__file__", None) or ""
pb_blas_threads_find(&routines.threads,
                     library.encode(sys.getfilesystemencoding(), "surrogateescape"))


def thread_count():
    """Return how many threads BLAS may use, or None if it does not say."""
    return routines.threads.get() if routines.threads.get != NULL else None


def set_thread_count(int count):
    """Let BLAS use at most so many threads, if it has a function for that."""
    pb_blas_threads_set(&routines.threads, count)


ROUTINES = PyCapsule_New(&routines, b"pb_blas", NULL)

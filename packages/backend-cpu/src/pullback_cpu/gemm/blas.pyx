# build: small
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
routines.trsm[0] = <trsm_routine>cython_blas.strsm
routines.trsm[1] = <trsm_routine>cython_blas.dtrsm
routines.trsm[2] = <trsm_routine>cython_blas.ctrsm
routines.trsm[3] = <trsm_routine>cython_blas.ztrsm
routines.potrf[0] = <potrf_routine>cython_lapack.spotrf
routines.potrf[1] = <potrf_routine>cython_lapack.dpotrf
routines.potrf[2] = <potrf_routine>cython_lapack.cpotrf
routines.potrf[3] = <potrf_routine>cython_lapack.zpotrf
routines.getrf[0] = <getrf_routine>cython_lapack.sgetrf
routines.getrf[1] = <getrf_routine>cython_lapack.dgetrf
routines.getrf[2] = <getrf_routine>cython_lapack.cgetrf
routines.getrf[3] = <getrf_routine>cython_lapack.zgetrf
routines.geqrf[0] = <geqrf_routine>cython_lapack.sgeqrf
routines.geqrf[1] = <geqrf_routine>cython_lapack.dgeqrf
routines.geqrf[2] = <geqrf_routine>cython_lapack.cgeqrf
routines.geqrf[3] = <geqrf_routine>cython_lapack.zgeqrf
routines.orgqr[0] = <orgqr_routine>cython_lapack.sorgqr
routines.orgqr[1] = <orgqr_routine>cython_lapack.dorgqr
routines.orgqr[2] = <orgqr_routine>cython_lapack.cungqr
routines.orgqr[3] = <orgqr_routine>cython_lapack.zungqr
routines.sytrf[0] = <sytrf_routine>cython_lapack.ssytrf
routines.sytrf[1] = <sytrf_routine>cython_lapack.dsytrf
routines.sytrf[2] = <sytrf_routine>cython_lapack.csytrf
routines.sytrf[3] = <sytrf_routine>cython_lapack.zsytrf
routines.sytrs[0] = <sytrs_routine>cython_lapack.ssytrs
routines.sytrs[1] = <sytrs_routine>cython_lapack.dsytrs
routines.sytrs[2] = <sytrs_routine>cython_lapack.csytrs
routines.sytrs[3] = <sytrs_routine>cython_lapack.zsytrs
routines.syevd[0] = <syevd_routine>cython_lapack.ssyevd
routines.syevd[1] = <syevd_routine>cython_lapack.dsyevd
routines.geev[0] = <geev_routine>cython_lapack.sgeev
routines.geev[1] = <geev_routine>cython_lapack.dgeev
routines.heevd[0] = <heevd_routine>cython_lapack.cheevd
routines.heevd[1] = <heevd_routine>cython_lapack.zheevd
routines.complex_geev[0] = <complex_geev_routine>cython_lapack.cgeev
routines.complex_geev[1] = <complex_geev_routine>cython_lapack.zgeev
routines.hetrf[0] = <sytrf_routine>cython_lapack.chetrf
routines.hetrf[1] = <sytrf_routine>cython_lapack.zhetrf
routines.hetrs[0] = <sytrs_routine>cython_lapack.chetrs
routines.hetrs[1] = <sytrs_routine>cython_lapack.zhetrs
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

# Matrix products of SciPy's BLAS. Importing this module loads SciPy, so it is imported late.
from cpython.pycapsule cimport PyCapsule_New
from scipy.linalg cimport cython_blas

from pullback_cpu.kernels.blas cimport *

cdef blas_table routines
routines.gemm[0] = <gemm_routine>cython_blas.sgemm
routines.gemm[1] = <gemm_routine>cython_blas.dgemm
routines.gemm[2] = <gemm_routine>cython_blas.cgemm
routines.gemm[3] = <gemm_routine>cython_blas.zgemm
routines.gemv[0] = <gemv_routine>cython_blas.sgemv
routines.gemv[1] = <gemv_routine>cython_blas.dgemv
routines.gemv[2] = <gemv_routine>cython_blas.cgemv
routines.gemv[3] = <gemv_routine>cython_blas.zgemv

ROUTINES = PyCapsule_New(&routines, b"pb_blas", NULL)

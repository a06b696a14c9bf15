# Solvers of SciPy's LAPACK. Importing this module loads SciPy, so it is imported late.
import sys

from cpython.pycapsule cimport PyCapsule_New
from scipy.linalg cimport cython_lapack

from pullback_cpu.kernels.lapack cimport *

cdef lapack_table routines
routines.gesv[0] = <gesv_routine>cython_lapack.sgesv
routines.gesv[1] = <gesv_routine>cython_lapack.dgesv
routines.gesv[2] = <gesv_routine>cython_lapack.cgesv
routines.gesv[3] = <gesv_routine>cython_lapack.zgesv
library = getattr(sys.modules.get("scipy.linalg.cython_lapack"), "__file__", None) or ""
cdef bytes library_name = library.encode(sys.getfilesystemencoding(), "surrogateescape")
pb_blas_threads_find(&routines.threads, library_name)

ROUTINES = PyCapsule_New(&routines, b"pb_lapack", NULL)

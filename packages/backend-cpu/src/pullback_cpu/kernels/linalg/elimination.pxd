# Systems of linear equations without LAPACK.
from pullback_cpu.kernels.common.kernel cimport PB_NUM_DTYPES, pb_array

# Solves a batch of systems; returns PB_OK, or PB_E_MEMORY.
ctypedef int (*solve_loop)(
    const pb_array *a, const pb_array *b, const pb_array *x, const pb_array *info) noexcept nogil


# One a dtype; NULL where LAPACK is faster.
ctypedef struct solve_table:
    solve_loop solve[PB_NUM_DTYPES]

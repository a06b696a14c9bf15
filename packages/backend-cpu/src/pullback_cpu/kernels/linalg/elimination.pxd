# Systems of linear equations without LAPACK.
from pullback_cpu.kernels.common.kernel cimport PB_NUM_DTYPES, pb_array

# Solves a batch of systems; returns PB_OK, or PB_E_MEMORY.
ctypedef int (*solve_loop)(
    const pb_array *a, const pb_array *b, const pb_array *x, const pb_array *info) noexcept nogil


# Decomposes a batch of matrices: the result, the pivots, counted from 1, and infos.
ctypedef int (*lu_loop)(
    const pb_array *a, const pb_array *out, const pb_array *pivots,
    const pb_array *info) noexcept nogil

# Solves a batch of triangular systems.
ctypedef int (*triangular_loop)(
    const pb_array *a, const pb_array *b, const pb_array *x, bint upper,
    bint has_ones) noexcept nogil


# One a dtype; NULL where LAPACK is faster.
ctypedef struct solve_table:
    solve_loop solve[PB_NUM_DTYPES]
    lu_loop lu[PB_NUM_DTYPES]
    triangular_loop triangular[PB_NUM_DTYPES]

# Decompositions of batches of small matrices.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport PB_NUM_DTYPES, pb_array

cdef enum:
    SMALL_ROWS = 16     # and columns, at most

# Decomposes a batch: LU with pivots, counted from 1; Cholesky; eigenvalues of symmetric matrices
# with vectors, if there is room for any; or singular values. An info of -1 leaves eigenvalues or
# singular values of a matrix to LAPACK.
ctypedef void (*batch_loop)(
    const pb_array *a, const pb_array *out, const pb_array *second,
    const pb_array *info) noexcept nogil

# One a dtype; NULL where there is none.
ctypedef struct batch_table:
    batch_loop lu[PB_NUM_DTYPES]
    batch_loop cholesky[PB_NUM_DTYPES]
    batch_loop eigh[PB_NUM_DTYPES]
    batch_loop svdvals[PB_NUM_DTYPES]
    int64_t lanes[PB_NUM_DTYPES]    # a batch of fewer matrices is not worth it


cdef inline bint is_small_batch(const batch_table *batches, const pb_array *a) noexcept nogil:
    """True for enough matrices of a few rows to decompose several at once."""
    return batches.lanes[a.dtype] > 0 and a.shape[0] >= batches.lanes[a.dtype] and (
        max(a.shape[1], a.shape[2]) <= SMALL_ROWS)

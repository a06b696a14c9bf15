# Decompositions of batches of small matrices.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport PB_NUM_DTYPES, pb_array

cdef enum:
    SMALL_ROWS = 16     # and columns, at most

# Decomposes a batch: LU with pivots, counted from 1, or Cholesky without; with infos.
ctypedef void (*batch_loop)(
    const pb_array *a, const pb_array *out, const pb_array *pivots,
    const pb_array *info) noexcept nogil

# One a dtype; NULL where there is none.
ctypedef struct batch_table:
    batch_loop lu[PB_NUM_DTYPES]
    batch_loop cholesky[PB_NUM_DTYPES]
    int64_t lanes[PB_NUM_DTYPES]    # a batch of fewer matrices is not worth it

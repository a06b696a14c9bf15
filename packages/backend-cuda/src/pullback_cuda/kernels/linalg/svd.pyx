"""Singular value decompositions, by cuSOLVER.

It wants at least as many rows as columns. Of a wider matrix the transpose is decomposed, whose
factors are the transposes of those that are wanted, in the other order.
"""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_C64, PB_F32, PB_F64, PB_OK, pb_array, pb_call
from pullback_cuda.runtime.contexts cimport current_number
from pullback_cuda.runtime.allocator cimport block_take
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.launch cimport new_kernel, workspace_alloc, workspace_free
from pullback_cuda.kernels.linalg.matrices cimport (
    LIBRARY_DTYPES, fill_matrices, library_dtype, pack, rounded, run_in_context)

from pullback_cuda.runtime import cusolver


# What is decomposed, and its workspace.
ctypedef struct decomposition:
    int64_t batch, rows, columns, left, right   # left and right: vectors on each side
    int64_t size, real_size
    bint turned
    char *start
    size_t nbytes
    char *matrices
    char *values
    char *lefts
    char *rights
    char *info


cdef void divide_memory(decomposition *of) noexcept nogil:
    """Divide the workspace into its parts; also compute its size, before it is allocated."""
    of.matrices = of.start
    of.values = of.matrices + rounded(of.batch * of.rows * of.columns * of.size)
    of.lefts = of.values + rounded(of.batch * of.columns * of.real_size)
    of.rights = of.lefts + rounded(of.batch * of.rows * of.left * of.size)
    of.info = of.rights + rounded(of.batch * of.columns * of.right * of.size)
    of.nbytes = of.info + rounded(of.batch * sizeof(int32_t)) - of.start


cdef int run(pb_call *call, void *data) except -1:
    """Decompose the matrices one by one."""
    cdef decomposition *of = <decomposition *>data
    cdef int64_t i
    cdef str dtype = library_dtype(call.in_[0].dtype)
    cdef bint full = of.left == of.rows and of.rows > of.columns
    where = (call.device, current_number(call.device))
    sizes = cusolver.workspace_of_svd(
        where, dtype, full, of.rows, of.columns, <size_t>of.matrices, <size_t>of.values,
        <size_t>of.lefts, <size_t>of.rights)
    cdef size_t nbytes = max(sizes[0], 1)
    cdef void *workspace = block_take(call.device, nbytes)
    try:
        for i in range(of.batch):
            cusolver.svd_one(
                where, dtype, full, of.rows, of.columns,
                <size_t>(of.matrices + i * of.rows * of.columns * of.size),
                <size_t>(of.values + i * of.columns * of.real_size),
                <size_t>(of.lefts + i * of.rows * of.left * of.size),
                <size_t>(of.rights + i * of.columns * of.right * of.size),
                <size_t>(of.info + i * sizeof(int32_t)), <size_t>workspace, sizes)
    finally:
        workspace_free(call, workspace, nbytes)
    return 0


cdef int write_out(pb_call *call, decomposition *of) noexcept nogil:
    """Write the factors, turned back if need be; NaN where there are none."""
    cdef pb_array *u = call.out[0]
    cdef pb_array *s = call.out[1]
    cdef pb_array *vh = call.out[2]
    cdef pb_array *info = call.out[3]
    cdef int real_dtype = PB_F32 if of.real_size == 4 else PB_F64
    cdef int32_t *failed = <int32_t *>of.info
    # Left factor: rows x left, right factor: right x columns, both column by column.
    cdef int64_t *direct_u = [of.rows * of.left, 1, of.rows]
    cdef int64_t *direct_vh = [of.right * of.columns, 1, of.right]
    cdef int64_t *turned_u = [of.right * of.columns, of.right, 1]
    cdef int64_t *turned_vh = [of.rows * of.left, of.rows, 1]
    cdef int64_t *row_shape = [of.batch, 1, of.columns]
    cdef int64_t *row_dense = [of.columns, of.columns, 1]
    cdef int64_t *row_strides = [s.strides[0], 0, s.strides[1]]
    cdef int64_t *info_shape = [1, 1, of.batch]
    cdef int64_t *info_dense = [0, 0, 1]
    cdef int64_t *info_strides = [0, 0, info.strides[0]]
    cdef int code
    if of.turned:
        code = pack(call, u.dtype, u.data, u.strides, of.rights, turned_u, u.shape, failed)
        if code == PB_OK:
            code = pack(call, vh.dtype, vh.data, vh.strides, of.lefts, turned_vh, vh.shape, failed)
    else:
        code = pack(call, u.dtype, u.data, u.strides, of.lefts, direct_u, u.shape, failed)
        if code == PB_OK:
            code = pack(call, vh.dtype, vh.data, vh.strides, of.rights, direct_vh, vh.shape, failed)
    if code == PB_OK:
        code = pack(call, real_dtype, s.data, row_strides, of.values, row_dense, row_shape, failed)
    if code == PB_OK:
        # Bytes are bytes: int32 travels as float32 does.
        code = pack(call, PB_F32, info.data, info_strides, of.info, info_dense, info_shape, NULL)
    return code


cdef int kernel_svd(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef decomposition of
    cdef int64_t strides[3]
    cdef int code
    of.batch = a.shape[0]
    if of.batch == 0:
        return PB_OK
    of.turned = a.shape[1] < a.shape[2]
    of.rows = max(a.shape[1], a.shape[2])
    of.columns = min(a.shape[1], a.shape[2])
    of.left = call.out[2].shape[1] if of.turned else call.out[0].shape[2]
    of.right = call.out[0].shape[2] if of.turned else call.out[2].shape[1]
    of.size = item_sizes[a.dtype]
    of.real_size = of.size // 2 if a.dtype >= PB_C64 else of.size
    of.start = NULL
    divide_memory(&of)
    code = workspace_alloc(call, of.nbytes, <void **>&of.start)
    if code != PB_OK:
        return code
    divide_memory(&of)
    strides[0] = of.rows * of.columns
    strides[1] = of.rows if of.turned else 1
    strides[2] = 1 if of.turned else of.rows
    code = pack(call, a.dtype, of.matrices, strides, a.data, a.strides, a.shape, NULL)
    if code == PB_OK and of.columns == 0:
        code = write_identity(call, &of)
    elif code == PB_OK:
        with gil:
            code = run_in_context(call, run, &of)
    if code == PB_OK:
        code = write_out(call, &of)
    workspace_free(call, of.start, of.nbytes)
    return code


cdef int write_identity(pb_call *call, decomposition *of) noexcept nogil:
    """Of a matrix without elements all vectors of the longer side may be any: unit vectors."""
    cdef int64_t *every = [1, 1, of.batch * of.rows * of.left]
    cdef int64_t *diagonal = [of.batch, 1, min(of.rows, of.left)]
    cdef int64_t *steps = [of.rows * of.left, 0, of.rows + 1]
    cdef int64_t *dense = [0, 0, 1]
    cdef int64_t *info_shape = [1, 1, of.batch]
    cdef int dtype = call.in_[0].dtype
    cdef int code = fill_matrices(call, dtype, of.lefts, dense, every, 0)
    if code == PB_OK:
        code = fill_matrices(call, PB_F32, of.info, dense, info_shape, 0)
    if code == PB_OK:
        code = fill_matrices(call, dtype, of.lefts, steps, diagonal, 1)
    return code


KERNELS = {"svd": new_kernel(LIBRARY_DTYPES, kernel_svd)}

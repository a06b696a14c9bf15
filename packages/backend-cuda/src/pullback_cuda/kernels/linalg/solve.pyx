"""Systems of linear equations, by LU decomposition with partial pivoting."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_F32, PB_OK, pb_array, pb_call
from pullback_cuda.runtime.contexts cimport current_number
from pullback_cuda.runtime.allocator cimport block_take
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.launch cimport new_kernel, workspace_alloc, workspace_free
from pullback_cuda.kernels.linalg.matrices cimport (
    LIBRARY_DTYPES, fill_matrices, library_dtype, list_addresses, pack, rounded, run_in_context)

from pullback_cuda.runtime import cusolver


# Systems of equations, and their workspace.
ctypedef struct systems:
    int64_t batch, rows, columns, size
    char *start
    size_t nbytes
    char *matrices
    char *rights
    char *pivots
    char *lists
    char *info


cdef void divide_memory(systems *of) noexcept nogil:
    """Divide the workspace into its parts; also compute its size, before it is allocated."""
    of.matrices = of.start
    of.rights = of.matrices + rounded(of.batch * of.rows * of.rows * of.size)
    of.pivots = of.rights + rounded(of.batch * of.rows * of.columns * of.size)
    of.lists = of.pivots + rounded(of.batch * of.rows * pivot_bytes)
    of.info = of.lists + rounded(2 * of.batch * sizeof(void *))
    of.nbytes = of.info + rounded((of.batch + 1) * sizeof(int32_t)) - of.start

cdef int pivot_bytes = cusolver.PIVOT


cdef int run(pb_call *call, void *data) except -1:
    """Factor and solve, in the workspace."""
    cdef systems *of = <systems *>data
    cdef int64_t i
    cdef str dtype = library_dtype(call.in_[0].dtype)
    where = (call.device, current_number(call.device))
    if cusolver.in_one_call(of.rows, of.batch):
        cusolver.solve_at_once(
            where, dtype, of.rows, of.columns, of.batch, <size_t>of.matrices, <size_t>of.rights,
            <size_t>of.pivots, <size_t>of.lists, <size_t>of.info)
        return 0
    sizes = cusolver.workspace_of_solve(where, dtype, of.rows, <size_t>of.matrices)
    cdef size_t nbytes = max(sizes[0], 1)
    cdef void *workspace = block_take(call.device, nbytes)
    try:
        for i in range(of.batch):
            cusolver.solve_one(
                where, dtype, of.rows, of.columns,
                <size_t>(of.matrices + i * of.rows * of.rows * of.size),
                <size_t>(of.rights + i * of.rows * of.columns * of.size),
                <size_t>(of.pivots + i * of.rows * pivot_bytes),
                <size_t>(of.info + i * sizeof(int32_t)), <size_t>workspace, sizes)
    finally:
        workspace_free(call, workspace, nbytes)
    return 0


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *info = call.out[1]
    cdef int64_t *info_dense = [0, 0, 1]
    cdef int64_t *info_strides = [0, 0, info.strides[0]]
    cdef int64_t info_shape[3]
    cdef int64_t dense[3]
    cdef int64_t dense_right[3]
    cdef systems of
    cdef int code
    of.batch, of.rows, of.columns = a.shape[0], b.shape[1], b.shape[2]
    of.size = item_sizes[a.dtype]
    info_shape[0], info_shape[1], info_shape[2] = 1, 1, of.batch
    dense[0], dense[1], dense[2] = of.rows * of.rows, 1, of.rows
    dense_right[0], dense_right[1], dense_right[2] = of.rows * of.columns, 1, of.rows
    if of.batch == 0:
        return PB_OK
    if of.rows == 0:
        # Four bytes that are 0 are the float 0 too.
        return fill_matrices(call, PB_F32, info.data, info_strides, info_shape, 0)
    of.start = NULL
    divide_memory(&of)
    code = workspace_alloc(call, of.nbytes, <void **>&of.start)
    if code != PB_OK:
        return code
    divide_memory(&of)
    code = pack(call, a.dtype, of.matrices, dense, a.data, a.strides, a.shape, NULL)
    if code == PB_OK:
        code = pack(call, b.dtype, of.rights, dense_right, b.data, b.strides, b.shape, NULL)
    if code == PB_OK:
        code = list_addresses(call, <void **>of.lists, of.matrices,
                              of.rows * of.rows * of.size, of.batch)
    if code == PB_OK:
        code = list_addresses(call, <void **>of.lists + of.batch, of.rights,
                              of.rows * of.columns * of.size, of.batch)
    if code == PB_OK:
        with gil:
            code = run_in_context(call, run, &of)
    if code == PB_OK:
        code = pack(call, b.dtype, call.out[0].data, call.out[0].strides, of.rights, dense_right,
                    b.shape, <int32_t *>of.info)
    if code == PB_OK:
        code = pack(call, PB_F32, info.data, info_strides, of.info, info_dense, info_shape, NULL)
    workspace_free(call, of.start, of.nbytes)
    return code


KERNELS = {"solve": new_kernel(LIBRARY_DTYPES, kernel_solve)}

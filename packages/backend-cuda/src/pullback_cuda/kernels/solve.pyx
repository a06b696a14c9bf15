"""Systems of linear equations, by LU decomposition with partial pivoting."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport (
    PB_C64, PB_C128, PB_E_MEMORY, PB_E_RUNTIME, PB_F32, PB_F64, PB_OK, pb_array, pb_call)
from pullback_cuda._devices cimport (
    current_number, device_ready, enter_context, leave_context, pb_cuda_device)
from pullback_cuda.kernels.launch cimport fail_with, new_kernel, scratch_give, scratch_take
from pullback_cuda.kernels.matrices cimport (
    element_size, fill_matrices, list_addresses, pack)

from pullback_cuda import linear_algebra

cdef dict dtype_names = {<int>PB_F32: "float32", <int>PB_F64: "float64", <int>PB_C64: "complex64",
                         <int>PB_C128: "complex128"}


# All the memory that a call needs for a while, in one piece.
ctypedef struct solve_memory:
    char *start
    size_t nbytes
    char *matrices
    char *rights
    char *pivots
    char *lists
    char *info


cdef inline size_t rounded(size_t nbytes) noexcept nogil:
    return (nbytes + 255) & ~<size_t>255


cdef void place(solve_memory *memory, int64_t rows, int64_t columns, int64_t batch,
                int64_t size) noexcept nogil:
    """Divide the memory into its parts; before it is there, find out its size."""
    memory.matrices = memory.start
    memory.rights = memory.matrices + rounded(batch * rows * rows * size)
    memory.pivots = memory.rights + rounded(batch * rows * columns * size)
    memory.lists = memory.pivots + rounded(batch * rows * linear_algebra_pivot)
    memory.info = memory.lists + rounded(2 * batch * sizeof(void *))
    memory.nbytes = memory.info + rounded((batch + 1) * sizeof(int32_t)) - memory.start

cdef int linear_algebra_pivot = linear_algebra.PIVOT


cdef int run(pb_call *call, solve_memory *memory, int64_t rows, int64_t columns,
             int64_t batch) except -1:
    """Factor and solve, with the matrices in place."""
    cdef int64_t size = element_size(call.in_[0].dtype), i
    cdef str dtype = dtype_names[call.in_[0].dtype]
    where = (call.device, current_number(call.device))
    if linear_algebra.in_one_call(rows, batch):
        linear_algebra.solve_at_once(
            where, dtype, rows, columns, batch, <size_t>memory.matrices, <size_t>memory.rights,
            <size_t>memory.pivots, <size_t>memory.lists, <size_t>memory.info)
        return 0
    sizes = linear_algebra.workspace_of_solve(where, dtype, rows, <size_t>memory.matrices)
    cdef size_t nbytes = max(sizes[0], 1)
    cdef void *scratch = scratch_take(call, nbytes)
    if scratch == NULL:
        raise MemoryError(call.message.decode())
    try:
        for i in range(batch):
            linear_algebra.solve_one(
                where, dtype, rows, columns, <size_t>(memory.matrices + i * rows * rows * size),
                <size_t>(memory.rights + i * rows * columns * size),
                <size_t>(memory.pivots + i * rows * linear_algebra_pivot),
                <size_t>(memory.info + i * sizeof(int32_t)), <size_t>scratch, sizes)
    finally:
        scratch_give(call, scratch, nbytes)
    return 0


cdef int run_in_context(pb_call *call, solve_memory *memory, int64_t rows, int64_t columns,
                        int64_t batch) noexcept:
    cdef pb_cuda_device *device
    cdef void *before
    try:
        device = device_ready(call.device)
        before = enter_context(device)
        try:
            run(call, memory, rows, columns, batch)
        finally:
            leave_context(device, before)
    except MemoryError as error:
        return fail_with(call, PB_E_MEMORY, error)
    except BaseException as error:
        return fail_with(call, PB_E_RUNTIME, error)
    return PB_OK


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *info = call.out[1]
    cdef int64_t batch = a.shape[0], rows = b.shape[1], columns = b.shape[2]
    cdef int64_t *dense = [rows * rows, 1, rows]
    cdef int64_t *dense_right = [rows * columns, 1, rows]
    cdef int64_t *info_shape = [1, 1, batch]
    cdef int64_t *info_dense = [0, 0, 1]
    cdef int64_t *info_strides = [0, 0, info.strides[0]]
    cdef solve_memory memory
    cdef int code
    if batch == 0:
        return PB_OK
    if rows == 0:
        # Four bytes that are 0 are the float 0 too.
        return fill_matrices(call, PB_F32, info.data, info_strides, info_shape, 0)
    memory.start = NULL
    place(&memory, rows, columns, batch, element_size(a.dtype))
    memory.start = <char *>scratch_take(call, memory.nbytes)
    if memory.start == NULL:
        return PB_E_MEMORY
    place(&memory, rows, columns, batch, element_size(a.dtype))
    code = pack(call, a.dtype, memory.matrices, dense, a.data, a.strides, a.shape, NULL)
    if code == PB_OK:
        code = pack(call, b.dtype, memory.rights, dense_right, b.data, b.strides, b.shape, NULL)
    if code == PB_OK:
        code = list_addresses(call, <void **>memory.lists, memory.matrices,
                              rows * rows * element_size(a.dtype), batch)
    if code == PB_OK:
        code = list_addresses(call, <void **>memory.lists + batch, memory.rights,
                              rows * columns * element_size(a.dtype), batch)
    if code == PB_OK:
        with gil:
            code = run_in_context(call, &memory, rows, columns, batch)
    if code == PB_OK:
        code = pack(call, b.dtype, call.out[0].data, call.out[0].strides, memory.rights,
                    dense_right, b.shape, <int32_t *>memory.info)
    if code == PB_OK:
        code = pack(call, PB_F32, info.data, info_strides, memory.info, info_dense, info_shape,
                    NULL)
    scratch_give(call, memory.start, memory.nbytes)
    return code


cdef unsigned int SOLVED = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

KERNELS = {"solve": new_kernel(SOLVED, kernel_solve)}

"""Matrices as cuBLAS reads them, and the kernels that copy others into such a layout."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_C64, PB_C128, PB_F16, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.runtime.contexts cimport (
    device_ready, enter_context, leave_context, pb_cuda_device)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, pb_cuda_kernel, sm_count
from pullback_cuda.runtime.failures cimport fail_with

from pullback_cuda.kernels.common.names import DTYPES

cdef dict library_names = {<int>PB_F32: "float32", <int>PB_F64: "float64",
                           <int>PB_C64: "complex64", <int>PB_C128: "complex128"}
LIBRARY_DTYPES = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)
cdef pb_cuda_kernel *packers[PB_NUM_DTYPES]
cdef pb_cuda_kernel *lister = kernel_named("matmul", "addresses")


def _find():
    for code, name in enumerate(DTYPES[PB_F16:], PB_F16):
        packers[code] = kernel_named("matmul", f"pack_{name}")


_find()


cdef str library_dtype(int dtype):
    """Return the name under which cusolver.py knows a dtype."""
    return library_names[dtype]


cdef int run_in_context(pb_call *call, library_work work, void *data) noexcept:
    """Do a library's work in the context of the call's device; return the code of a failure."""
    cdef pb_cuda_device *device
    cdef void *before
    try:
        device = device_ready(call.device)
        before = enter_context(device)
        try:
            work(call, data)
        finally:
            leave_context(device, before)
    except BaseException as error:
        return fail_with(call.message, error)
    return PB_OK


cdef bint view_matrix(const pb_array *array, matrix_view *view) noexcept nogil:
    """Describe (batch, rows, columns) in memory if cuBLAS can read it in place."""
    cdef int64_t rows = array.shape[1], columns = array.shape[2]
    cdef int64_t down = array.strides[1], across = array.strides[2]
    view.data = array.data
    view.workspace = NULL
    view.batch_stride = array.strides[0]
    if array.strides[0] < 0:
        return False
    if (columns == 1 or across == 1) and (rows == 1 or down >= max(columns, 1)):
        view.transposed = False
        view.leading = max(down, columns, 1) if rows > 1 else max(columns, 1)
        return True
    if (rows == 1 or down == 1) and (columns == 1 or across >= max(rows, 1)):
        view.transposed = True
        view.leading = max(across, rows, 1) if columns > 1 else max(rows, 1)
        return True
    return False


cdef int pack(pb_call *call, int dtype, void *to, const int64_t *to_strides, const void *source,
              const int64_t *from_strides, const int64_t *shape, const int32_t *info,
              bint lower=False) noexcept nogil:
    """Copy matrices into another memory layout, or the lower triangles with zeros above."""
    cdef pack_arguments args
    args.lower = lower
    memcpy(args.from_strides, from_strides, sizeof(args.from_strides))
    return launch_pack(call, dtype, &args, to, to_strides, source, shape, info)


cdef int fill_matrices(pb_call *call, int dtype, void *to, const int64_t *to_strides,
                       const int64_t *shape, float number) noexcept nogil:
    """Write a number into every element of matrices."""
    cdef pack_arguments args
    args.fill, args.lower = number, False
    return launch_pack(call, dtype, &args, to, to_strides, NULL, shape, NULL)


cdef int launch_pack(pb_call *call, int dtype, pack_arguments *args, void *to,
                     const int64_t *to_strides, const void *source, const int64_t *shape,
                     const int32_t *info) noexcept nogil:
    cdef int64_t tiles = shape[0] * ((shape[1] + 15) // 16) * ((shape[2] + 15) // 16)
    if tiles == 0:
        return 0
    args.to = to
    args.from_ = source
    args.info = info
    memcpy(args.shape, shape, sizeof(args.shape))
    memcpy(args.to_strides, to_strides, sizeof(args.to_strides))
    return launch(call, packers[dtype], args, sizeof(args[0]), min(tiles, 16 * sm_count(call)),
                  256, 0)


cdef int list_addresses(pb_call *call, void **to, void *first, int64_t step,
                        int64_t count) noexcept nogil:
    """Write the addresses of the matrices of a batch."""
    cdef addresses_arguments args
    args.to = to
    args.first = <char *>first
    args.step = step
    args.count = count
    return launch(call, lister, &args, sizeof(args), min((count + 255) // 256, 1024), 256, 0)

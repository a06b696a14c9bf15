"""Products of batches of matrices: by cuBLAS, of integers by a kernel of our own."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_C128, PB_F16, PB_F32, PB_F64, PB_I64, PB_MASK_ALL, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.runtime.contexts cimport MAX_DEVICES, MAX_STREAMS, current_number
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.kernels.linalg.matrices cimport (
    fill_matrices, matrix_view, pack, product_arguments, run_in_context, view_matrix)

from pullback.backend import get_float32_matmul_precision
from pullback_cuda.kernels.common.names import DTYPES
from pullback_cuda.runtime.libraries import blas_handle, product_function

# cuBLAS's numbers for operations, element types and ways to compute.
cdef enum:
    PLAIN = 0
    TRANSPOSED = 1
    COMPUTE_32F = 68
    COMPUTE_64F = 70
    COMPUTE_32F_FAST_TF32 = 77
    DEFAULT_ALGORITHM = -1

ctypedef int (*product_routine)(
    void *handle, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, long long a_stride, const void *b, int b_type,
    int64_t ldb, long long b_stride, const void *beta, void *c, int c_type, int64_t ldc,
    long long c_stride, int64_t batch, int compute, int algorithm) noexcept nogil

cdef product_routine routine = NULL
cdef void *handles[MAX_DEVICES][MAX_STREAMS]
cdef int *library_types = [0, 0, 0, 0, 0, 0, 2, 14, 0, 1, 4, 5]
cdef pb_cuda_kernel *integer_kernels[PB_NUM_DTYPES]
# A pair of numbers of each kind: real and imaginary part of 1 and of 0.
cdef float *one_single = [1, 0]
cdef float *zero_single = [0, 0]
cdef double *one_double = [1, 0]
cdef double *zero_double = [0, 0]


def _find():
    for code, name in enumerate(DTYPES[:PB_F16]):
        integer_kernels[code] = kernel_named("matmul", f"bmm_{name}")


_find()


cdef int integer_product(pb_call *call) noexcept nogil:
    cdef product_arguments args
    cdef pb_array *out = call.out[0]
    cdef int64_t tiles = (out.shape[0] * ((out.shape[1] + 15) // 16)
                          * ((out.shape[2] + 15) // 16))
    cdef int d
    args.out = out.data
    args.left = call.in_[0].data
    args.right = call.in_[1].data
    args.batch = out.shape[0]
    args.rows = out.shape[1]
    args.columns = out.shape[2]
    args.inner = call.in_[0].shape[2]
    for d in range(3):
        args.out_strides[d] = out.strides[d]
        args.left_strides[d] = call.in_[0].strides[d]
        args.right_strides[d] = call.in_[1].strides[d]
    return launch(call, integer_kernels[out.dtype], &args, sizeof(args),
                  min(tiles, 64 * sm_count(call)), 256, 0)


cdef int find_routine(pb_call *call, void **handle) except -1:
    """Look cuBLAS up, and its handle for the current stream."""
    global routine
    cdef int stream = current_number(call.device)
    if handles[call.device][stream] == NULL:
        capsule = product_function()
        routine = <product_routine>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
        handles[call.device][stream] = <void *><size_t>blas_handle(call.device, stream)
    handle[0] = handles[call.device][stream]
    return 0


cdef int as_view(pb_call *call, pb_array *array, matrix_view *view, bint fill) noexcept nogil:
    """Describe a matrix to cuBLAS; one with another layout is copied, now or after the product."""
    cdef int64_t strides[3]
    cdef int code
    if view_matrix(array, view):
        return PB_OK
    strides[0] = array.shape[1] * array.shape[2]
    strides[1] = array.shape[2]
    strides[2] = 1
    view.nbytes = array.shape[0] * strides[0] * item_sizes[array.dtype]
    code = workspace_alloc(call, view.nbytes, <void **>&view.workspace)
    if code != PB_OK:
        return code
    view.data = view.workspace
    view.batch_stride = strides[0]
    view.leading = array.shape[2]
    view.transposed = False
    if not fill:
        return PB_OK
    return pack(call, array.dtype, view.data, strides, array.data, array.strides, array.shape, NULL)


cdef int multiply(pb_call *call, void *data) except -1:
    """Call cuBLAS, which reads every matrix column by column: as its transpose.

    ``data``: views of the output and of both operands.
    """
    cdef matrix_view *out = <matrix_view *>data
    # For a row-major output the transpose is computed, from the exchanged operands.
    cdef bint swapped = not out.transposed
    cdef matrix_view *first = out + (2 if swapped else 1)
    cdef matrix_view *second = out + (1 if swapped else 2)
    cdef pb_array *array = call.out[0]
    cdef int64_t rows = array.shape[1], columns = array.shape[2], inner = call.in_[0].shape[2]
    cdef int kind = library_types[array.dtype]
    cdef bint double = array.dtype == PB_F64 or array.dtype == PB_C128
    cdef int compute = COMPUTE_64F if double else COMPUTE_32F
    cdef int code
    cdef void *handle
    cdef void *one = <void *>one_double if double else <void *>one_single
    cdef void *zero = <void *>zero_double if double else <void *>zero_single
    find_routine(call, &handle)
    if array.dtype == PB_F32 and get_float32_matmul_precision() != "highest":
        compute = COMPUTE_32F_FAST_TF32
    code = routine(
        handle, PLAIN if first.transposed != swapped else TRANSPOSED,
        PLAIN if second.transposed != swapped else TRANSPOSED,
        columns if swapped else rows, rows if swapped else columns, inner, one,
        first.data, kind, first.leading, first.batch_stride,
        second.data, kind, second.leading, second.batch_stride, zero,
        out.data, kind, out.leading, out.batch_stride, array.shape[0], compute, DEFAULT_ALGORITHM)
    if code != 0:
        raise RuntimeError(f"cuda:{call.device}: cuBLAS failed with status {code}")
    return 0


cdef int product(pb_call *call) noexcept nogil:
    cdef matrix_view views[3]
    cdef int64_t strides[3]
    cdef pb_array *out = call.out[0]
    cdef int code, i
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return PB_OK
    if out.dtype <= PB_I64:
        return integer_product(call)
    if call.in_[0].shape[2] == 0:
        return fill_matrices(call, out.dtype, out.data, out.strides, out.shape, 0)
    for i in range(3):
        views[i].workspace = NULL
    code = as_view(call, out, &views[0], False)
    for i in range(2):
        if code == PB_OK:
            code = as_view(call, call.in_[i], &views[i + 1], True)
    if code == PB_OK:
        with gil:
            code = run_in_context(call, multiply, &views[0])
    if code == PB_OK and views[0].workspace != NULL:
        strides[0] = views[0].batch_stride
        strides[1] = views[0].leading
        strides[2] = 1
        code = pack(call, out.dtype, out.data, out.strides, views[0].data, strides, out.shape, NULL)
    for i in range(3):
        if views[i].workspace != NULL:
            workspace_free(call, views[i].workspace, views[i].nbytes)
    return code


KERNELS = {"bmm": new_kernel(PB_MASK_ALL, product)}

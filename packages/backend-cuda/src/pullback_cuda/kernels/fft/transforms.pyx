"""Fourier transforms by cuFFT.

It wants dense arrays whose last dims are transformed, so operands are copied into workspace with
their dims in that order, and results out of it, divided on the way. It transforms real numbers
forward and back to real ones only; the other directions are those of the conjugates.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_C64, PB_C128, PB_F32, PB_F64, PB_KERNEL_CAPSULE, PB_MAX_NDIM, PB_OK,
    pb_array, pb_call, pb_kernel)
from pullback_cuda.runtime.contexts cimport current_number
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.launch cimport new_kernel, workspace_alloc, workspace_free
from pullback_cuda.kernels.linalg.matrices cimport rounded, run_in_context

from pullback.backend import PRIMITIVE_IDS
from pullback_cuda.kernels.elementwise.elementwise import KERNELS as elementwise_kernels
from pullback_cuda.kernels.shape.copy import KERNELS as copy_kernels
from pullback_cuda.runtime import cufft

ctypedef enum transform:
    COMPLEX_TO_COMPLEX
    REAL_TO_COMPLEX
    COMPLEX_TO_REAL

# An array with its own sizes and strides.
ctypedef struct view:
    pb_array array
    int64_t shape[PB_MAX_NDIM]
    int64_t strides[PB_MAX_NDIM]

# What cuFFT gets.
ctypedef struct prepared:
    transform kind
    bint is_double
    bint forward
    int rank
    int64_t batch
    int64_t sizes[PB_MAX_NDIM]
    void *source
    void *target

# A kernel of another module, and the number of its primitive.
ctypedef struct step:
    pb_kernel kernel
    int primitive

cdef tuple KINDS = ("c2c", "r2c", "c2r")
cdef step copies, conjugates, products


cdef int find_step(str primitive, dict kernels, step *found) except -1:
    found.kernel = <pb_kernel>PyCapsule_GetPointer(kernels[primitive][1], PB_KERNEL_CAPSULE)
    found.primitive = PRIMITIVE_IDS[primitive]
    return 0


find_step("copy", copy_kernels, &copies)
find_step("conj", elementwise_kernels, &conjugates)
find_step("mul", elementwise_kernels, &products)


cdef int run_step(pb_call *outer, step *what, pb_array *out, pb_array *first,
                  pb_array *second) noexcept nogil:
    """Run another kernel as part of a call."""
    cdef pb_call call = outer[0]
    cdef pb_array *outs[1]
    cdef pb_array *ins[2]
    outs[0] = out
    ins[0] = first
    ins[1] = second
    call.primitive = what.primitive
    call.out = outs
    call.in_ = ins
    call.nout = 1
    call.nin = 1 if second == NULL else 2
    call.nparam = 0
    return what.kernel(&call)


cdef void order_dims(pb_call *call, int *order) noexcept nogil:
    """List the dims of a call: first those that stay, then the transformed ones."""
    cdef int ndim = call.in_[0].ndim, count = 0, d, i
    cdef bint is_transformed
    for d in range(ndim):
        is_transformed = False
        for i in range(call.param[0].count):
            is_transformed = is_transformed or call.param[0].ints[i] == d
        if not is_transformed:
            order[count] = d
            count += 1
    for i in range(call.param[0].count):
        order[count + i] = <int>call.param[0].ints[i]


cdef void permute(const pb_array *array, const int *order, view *found) noexcept nogil:
    cdef int d
    found.array = array[0]
    found.array.shape = found.shape
    found.array.strides = found.strides
    for d in range(array.ndim):
        found.shape[d] = array.shape[order[d]]
        found.strides[d] = array.strides[order[d]]


cdef size_t make_dense(const view *like, int dtype, view *found) noexcept nogil:
    """Describe a dense array of the shape of another; return its size in bytes."""
    cdef int64_t count = 1
    cdef int d
    found.array = like.array
    found.array.flags = 0
    found.array.dtype = dtype
    found.array.offset = 0
    found.array.shape = found.shape
    found.array.strides = found.strides
    for d in range(like.array.ndim - 1, -1, -1):
        found.shape[d] = like.shape[d]
        found.strides[d] = count
        count *= like.shape[d]
    return rounded(count * item_sizes[dtype])


cdef int run_library(pb_call *call, void *data) except -1:
    cdef prepared *of = <prepared *>data
    cdef int i
    cufft.transform(
        (call.device, current_number(call.device)), KINDS[of.kind], bool(of.is_double), of.batch,
        tuple([of.sizes[i] for i in range(of.rank)]), <size_t>of.source, <size_t>of.target,
        bool(of.forward))
    return 0


cdef int write_out(pb_call *call, view *result, view *target, double scale) noexcept nogil:
    """Copy a result to its place, multiplied."""
    cdef view factor
    cdef double wide[2]
    cdef float narrow[2]
    cdef int d
    if scale == 1:
        return run_step(call, &copies, &target.array, &result.array, NULL)
    wide[0], wide[1] = scale, 0
    narrow[0], narrow[1] = <float>scale, 0
    factor.array = result.array
    factor.array.flags = PB_ARRAY_HOST
    factor.array.shape = factor.shape
    factor.array.strides = factor.strides
    factor.array.ndim = result.array.ndim
    for d in range(result.array.ndim):
        factor.shape[d] = result.shape[d]
        factor.strides[d] = 0
    factor.array.data = (
        <void *>wide if result.array.dtype == PB_C128 or result.array.dtype == PB_F64
        else <void *>narrow)
    factor.array.base = factor.array.data
    return run_step(call, &products, &target.array, &result.array, &factor.array)


cdef int run_prepared(pb_call *call, prepared *of, view *source, view *target, view *first,
                      view *second, double scale) noexcept nogil:
    cdef bint turned = of.kind != COMPLEX_TO_COMPLEX and (
        of.forward == (of.kind == COMPLEX_TO_REAL))
    cdef view *result = first if of.kind == COMPLEX_TO_COMPLEX else second
    cdef step *move = &conjugates if turned and of.kind == COMPLEX_TO_REAL else &copies
    cdef int code = run_step(call, move, &first.array, &source.array, NULL)
    of.source, of.target = first.array.data, result.array.data
    if of.kind != COMPLEX_TO_COMPLEX:
        of.forward = of.kind == REAL_TO_COMPLEX
    if code == PB_OK:
        with gil:
            code = run_in_context(call, run_library, of)
    if code == PB_OK and turned and of.kind == REAL_TO_COMPLEX:
        code = run_step(call, &conjugates, &second.array, &second.array, NULL)
    if code == PB_OK:
        code = write_out(call, result, target, scale)
    return code


cdef int run(pb_call *call, transform kind) noexcept nogil:
    cdef int order[PB_MAX_NDIM]
    cdef view source, target, first, second
    cdef prepared of
    cdef int ndim = call.in_[0].ndim, i, code
    cdef int64_t points = 1, last = call.param[0].ints[call.param[0].count - 1]
    cdef int normalization = <int>call.param[1].i
    cdef double scale
    cdef size_t nbytes
    cdef void *workspace = NULL
    order_dims(call, order)
    permute(call.in_[0], order, &source)
    permute(call.out[0], order, &target)
    of.is_double = call.in_[0].dtype == PB_F64 or call.in_[0].dtype == PB_C128
    of.forward = call.param[2].i != 0
    of.rank = call.param[0].count
    if kind == REAL_TO_COMPLEX and call.in_[0].shape[last] == call.out[0].shape[last]:
        kind = COMPLEX_TO_COMPLEX       # all frequencies
    of.kind = kind
    of.batch = 1
    for i in range(ndim - of.rank):
        of.batch *= source.shape[i]
    for i in range(of.rank):
        of.sizes[i] = (target if kind == COMPLEX_TO_REAL else source).shape[ndim - of.rank + i]
        points *= of.sizes[i]
    scale = 1 if normalization == 0 else 1 / (sqrt(points) if normalization == 1 else points)
    cdef int complex_dtype = PB_C128 if of.is_double else PB_C64
    nbytes = make_dense(
        &source, call.in_[0].dtype if kind == REAL_TO_COMPLEX else complex_dtype, &first)
    cdef size_t start = nbytes
    if kind != COMPLEX_TO_COMPLEX:
        nbytes += make_dense(&target, call.out[0].dtype, &second)
    code = workspace_alloc(call, nbytes, &workspace)
    if code != PB_OK:
        return code
    first.array.data = first.array.base = workspace
    second.array.data = second.array.base = <char *>workspace + start
    code = run_prepared(call, &of, &source, &target, &first, &second, scale)
    workspace_free(call, workspace, nbytes)
    return code


cdef int kernel_c2c(pb_call *call) noexcept nogil:
    return run(call, COMPLEX_TO_COMPLEX)


cdef int kernel_r2c(pb_call *call) noexcept nogil:
    return run(call, REAL_TO_COMPLEX)


cdef int kernel_c2r(pb_call *call) noexcept nogil:
    return run(call, COMPLEX_TO_REAL)


KERNELS = {
    "fft_c2c": new_kernel(1 << <int>PB_C64 | 1 << <int>PB_C128, kernel_c2c),
    "fft_r2c": new_kernel(1 << <int>PB_F32 | 1 << <int>PB_F64, kernel_r2c),
    "fft_c2r": new_kernel(1 << <int>PB_C64 | 1 << <int>PB_C128, kernel_c2r),
}

"""Interpolation along a dim, as weighted sums of taps, forward and backward."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, THREADS, blocks_for, make_divider, indexer_dims)
from pullback_cuda.kernels.sorting.sort cimport key_sort, sort_numbers
from pullback_cuda.runtime.failures cimport fail, failure_check, failure_record


cdef extern from "kernels/nn/interpolate.h":
    ctypedef struct interpolate_arguments:
        void *out
        const void *source
        const int64_t *indices
        const void *weights
        void *keys
        const void *order
        void *starts
        void *failure
        int64_t taps
        int64_t positions
        int64_t size
        int64_t inner
        int32_t dim
        int32_t wide
        indexer_dims where

cdef enum:
    FEW = 32                # taps and positions that every element searches
    MOST_32 = 0xFFFFFFFE

# Each for f32 and f64.
cdef pb_cuda_kernel *forwards[2]
cdef pb_cuda_kernel *backwards[2]
for _double, _name in enumerate(("f32", "f64")):
    forwards[_double] = kernel_named("interpolate", f"interpolate_{_name}")
    backwards[_double] = kernel_named("interpolate", f"interpolate_backward_{_name}")
cdef pb_cuda_kernel *key_maker = kernel_named("interpolate", "interpolate_keys")
cdef pb_cuda_kernel *start_finder = kernel_named("interpolate", "interpolate_starts")


cdef int read_call(pb_call *call, pb_array *sampled, interpolate_arguments *args) noexcept nogil:
    """Describe a call, of which ``sampled`` is the array that the indices are for."""
    cdef pb_array *indices = call.in_[1]
    cdef pb_array *out = call.out[0]
    cdef int64_t outer = 1
    cdef int d, dim = <int>call.param[0].i
    if indices.ndim != 2 or not 0 <= dim < sampled.ndim:
        return fail(call, PB_E_VALUE, b"the indices do not fit the array")
    if call.in_[0].dtype != PB_F32 and call.in_[0].dtype != PB_F64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.out = out.data
    args.source = call.in_[0].data
    args.indices = <const int64_t *>indices.data
    args.weights = call.in_[2].data if call.nin > 2 else NULL
    args.keys = args.starts = NULL
    args.order = NULL
    args.failure = failure_record(call)
    args.taps = indices.shape[0]
    args.positions = indices.shape[1]
    args.size = sampled.shape[dim]
    args.dim = dim
    args.wide = False
    args.inner = 1
    for d in range(sampled.ndim):
        if d < dim:
            outer *= sampled.shape[d]
        elif d > dim:
            args.inner *= sampled.shape[d]
    args.where.ndim = 3
    args.where.total = count_elements(out)
    args.where.narrow = args.where.total < <int64_t>NARROW
    make_divider(&args.where.dims[0], outer)
    make_divider(&args.where.dims[1], out.shape[dim])
    make_divider(&args.where.dims[2], args.inner)
    return PB_OK


cdef int launch_sum(pb_call *call, pb_cuda_kernel **kernels,
                    const interpolate_arguments *args) noexcept nogil:
    return launch(call, kernels[call.in_[0].dtype == PB_F64], args, sizeof(args[0]), blocks_for(
        call, args.where.total, THREADS), THREADS, 0)


cdef int kernel_interpolate(pb_call *call) noexcept nogil:
    cdef interpolate_arguments args
    cdef int code = read_call(call, call.in_[0], &args)
    if code == PB_OK and args.where.total > 0:
        code = launch_sum(call, forwards, &args)
    return failure_check(call) if code == PB_OK else code


cdef int spread_sorted(pb_call *call, interpolate_arguments *args) noexcept nogil:
    """Sort the taps by the element that they point to; then each element finds its own."""
    cdef key_sort task
    cdef int64_t count = args.taps * args.positions, each, word, nbytes
    cdef char *memory
    cdef int code, k
    args.wide = args.size > <int64_t>MOST_32 or count > <int64_t>MOST_32
    word = 8 if args.wide else 4
    each = (count * word + 255) & -256
    nbytes = 4 * each + (args.size + 1) * word
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    for k in range(2):
        task.keys[k] = memory + k * each
        task.order[k] = memory + (2 + k) * each
    task.wide = args.wide
    task.count = count
    task.most = args.size
    args.starts = memory + 4 * each
    args.keys = task.keys[0]
    code = launch(call, key_maker, args, sizeof(args[0]), blocks_for(
        call, count, THREADS), THREADS, 0)
    if code == PB_OK:
        code = sort_numbers(call, &task)
    args.keys = task.keys[task.result]
    args.order = task.order[task.result]
    if code == PB_OK:
        code = launch(call, start_finder, args, sizeof(args[0]), blocks_for(
            call, count + 1, THREADS), THREADS, 0)
    if code == PB_OK:
        code = launch_sum(call, backwards, args)
    workspace_free(call, memory, nbytes)
    return code


cdef int kernel_interpolate_backward(pb_call *call) noexcept nogil:
    cdef interpolate_arguments args
    cdef int code = read_call(call, call.out[0], &args)
    if code != PB_OK or args.where.total == 0:
        return code
    if count_elements(call.in_[0]) == 0:
        args.taps = 0       # sums of nothing
    if args.taps * args.positions <= FEW:
        code = launch_sum(call, backwards, &args)
    else:
        code = spread_sorted(call, &args)
    return failure_check(call) if code == PB_OK else code


KERNELS = {
    "interpolate": new_kernel(0x300, kernel_interpolate),
    "interpolate_backward": new_kernel(0x300, kernel_interpolate_backward),
}

"""Max and average pooling over the last one to three dims."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport (
    PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_OK, pb_array, pb_call, pb_param)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, THREADS, blocks_for, make_divider, indexer_dims)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/nn/pooling.h":
    enum:
        WINDOW_RANK
        WINDOW_LARGE
    ctypedef struct window_side:
        int64_t size
        int64_t count
        int64_t kernel
        int64_t stride
        int64_t padding
        int64_t dilation
    ctypedef struct pooling_arguments:
        void *out
        int64_t *indices
        const void *source
        window_side sides[WINDOW_RANK]
        int64_t plane
        int64_t windows
        double divisor
        int32_t padded
        int32_t large
        indexer_dims where

cdef int64_t LARGEST_SIDE = <int64_t>1 << 40     # more would overflow when it is counted with

# Each for f32 and f64.
cdef pb_cuda_kernel *largest[2]
cdef pb_cuda_kernel *means[2]
cdef pb_cuda_kernel *backwards[2]
for _double, _name in enumerate(("f32", "f64")):
    largest[_double] = kernel_named("pooling", f"max_pool_{_name}")
    means[_double] = kernel_named("pooling", f"avg_pool_{_name}")
    backwards[_double] = kernel_named("pooling", f"avg_pool_backward_{_name}")


cdef bint read_windows(const pb_param *sizes, pb_array *whole, pb_array *pooled,
                       pooling_arguments *args, int64_t *planes) noexcept nogil:
    """Read the window sizes; false if they do not fit the dims."""
    cdef int rank = sizes.count // 4, k, d
    cdef window_side *side
    if sizes.count != 4 * rank or not 1 <= rank <= WINDOW_RANK or rank > whole.ndim:
        return False
    args.plane = args.windows = planes[0] = 1
    for k in range(WINDOW_RANK):
        side = &args.sides[k]
        d = k - (WINDOW_RANK - rank)
        if d < 0:
            side.size = side.count = side.kernel = side.stride = side.dilation = 1
            side.padding = 0
            continue
        side.size = whole.shape[whole.ndim - WINDOW_RANK + k]
        side.count = pooled.shape[whole.ndim - WINDOW_RANK + k]
        side.kernel = sizes.ints[d]
        side.stride = sizes.ints[rank + d]
        side.padding = sizes.ints[2 * rank + d]
        side.dilation = sizes.ints[3 * rank + d]
        if (not 0 <= side.kernel < LARGEST_SIDE or not 1 <= side.stride < LARGEST_SIDE
                or not 0 <= side.padding < LARGEST_SIDE
                or not 1 <= side.dilation < LARGEST_SIDE):
            return False
        args.plane *= side.size
        args.windows *= side.count
    for d in range(whole.ndim - rank):
        planes[0] *= whole.shape[d]
    return True


cdef int64_t largest_window(const pooling_arguments *args) noexcept nogil:
    """Return at most how many elements a window has."""
    cdef const window_side *side
    cdef int64_t elements = 1
    cdef int k
    for k in range(WINDOW_RANK):
        side = &args.sides[k]
        elements *= (min(side.kernel, side.size) if side.kernel
                     else side.size // max(side.count, <int64_t>1) + 2)
    return elements


cdef int run(pb_call *call, pb_cuda_kernel **kernels, pb_array *whole, pb_array *pooled,
             bint spreads) noexcept nogil:
    """Launch a kernel for all elements of the output."""
    cdef pooling_arguments args
    cdef int64_t planes
    cdef int k, dtype = call.in_[0].dtype
    if not read_windows(call.param, whole, pooled, &args, &planes):
        return fail(call, PB_E_VALUE, b"the windows do not fit the dims")
    if dtype != PB_F32 and dtype != PB_F64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.out = call.out[0].data
    args.indices = <int64_t *>call.out[1].data if call.nout > 1 else NULL
    args.source = call.in_[0].data
    args.padded = call.nparam > 1 and call.param[1].i != 0
    args.divisor = <double>call.param[2].i if call.nparam > 2 else 0
    args.where.total = planes * (args.plane if spreads else args.windows)
    if args.where.total == 0:
        return PB_OK
    args.where.ndim = WINDOW_RANK + 1
    args.where.narrow = args.where.total < <int64_t>NARROW
    make_divider(&args.where.dims[0], planes)
    for k in range(WINDOW_RANK):
        if call.nparam > 1:
            args.sides[k].dilation = 1
        make_divider(&args.where.dims[k + 1],
                     args.sides[k].size if spreads else args.sides[k].count)
    args.large = not spreads and largest_window(&args) >= WINDOW_LARGE
    return launch(call, kernels[dtype == PB_F64], &args, sizeof(args), blocks_for(
        call, args.where.total, THREADS // 32 if args.large else THREADS), THREADS, 0)


cdef int kernel_max_pool(pb_call *call) noexcept nogil:
    return run(call, largest, call.in_[0], call.out[0], False)


cdef int kernel_avg_pool(pb_call *call) noexcept nogil:
    return run(call, means, call.in_[0], call.out[0], False)


cdef int kernel_avg_pool_backward(pb_call *call) noexcept nogil:
    return run(call, backwards, call.out[0], call.in_[0], True)


KERNELS = {
    "max_pool": new_kernel(0x300, kernel_max_pool),
    "avg_pool": new_kernel(0x300, kernel_avg_pool),
    "avg_pool_backward": new_kernel(0x300, kernel_avg_pool_backward),
}

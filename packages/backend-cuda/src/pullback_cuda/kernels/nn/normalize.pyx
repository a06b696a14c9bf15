"""Standardized elements, scaled and shifted, and the derivative of that.

Arrays are seen as in primitives.py: (samples, groups, channels of a group, elements of a channel).
A row is what a sample has of a group.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport bits_for, count_elements
from pullback_cuda.kernels.strides.coalesced_dims cimport (
    BLOCK, FULL, MOST_NUMBERED, WARP, is_aligned, pb_axis, write_axis)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, processors, scratch_give, scratch_take)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/nn/normalize.h":
    enum:
        ROWS_WHOLE
        ROWS_FIND
        ROWS_WRITE
        ROWS_GIVEN
    ctypedef struct pb_normal:
        const void *source
        const void *grad
        const void *mean
        const void *scale
        const void *weight
        const void *bias
        void *out
        void *means
        void *variances
        void *partial
        const void *shares
        int64_t rows
        int64_t length
        int64_t chunk
        int64_t chunks
        pb_axis groups
        pb_axis inner
        int64_t mean_stride
        int64_t weight_strides[2]
        int64_t bias_strides[2]
        double eps
        int32_t phase
        int32_t packed
        int32_t packed_weight
        int32_t lanes
        int32_t slots
    ctypedef struct pb_normal_sums:
        const void *source
        const void *grad
        const void *mean
        const void *scale
        const void *weight
        void *weight_out
        void *bias_out
        void *partial
        void *shares
        int64_t columns
        int64_t length
        int64_t chunk
        int64_t chunks
        int64_t samples
        pb_axis channels
        pb_axis inner
        int64_t mean_stride
        int64_t weight_strides[2]
        int32_t lanes
        int32_t slots
        int32_t strided

cdef enum:
    CHUNKS = 1024        # of a row or column, at most
    FEW = 8              # elements of a row that a thread should have
    CONTRIBUTION = 24    # bytes of what is known of a chunk
    PAIR = 16            # bytes of two sums

cdef pb_cuda_kernel *standardizes[PB_NUM_DTYPES]
cdef pb_cuda_kernel *slopes[PB_NUM_DTYPES]
cdef pb_cuda_kernel *columns[PB_NUM_DTYPES]
cdef pb_cuda_kernel *joins[PB_NUM_DTYPES]
cdef pb_cuda_kernel *shares[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F32, "f32"), (PB_F64, "f64")):
        standardizes[code] = kernel_named("normalize", f"standardize_{name}")
        slopes[code] = kernel_named("normalize", f"normal_slope_{name}")
        columns[code] = kernel_named("normalize", f"normal_columns_{name}")
        joins[code] = kernel_named("normalize", f"normal_join_{name}")
        shares[code] = kernel_named("normalize", f"normal_shares_{name}")


_find()


# ---- rows ----------------------------------------------------------------------------------------

cdef bint channels_are_packed(const pb_normal *args, int64_t pack) noexcept nogil:
    """True where weights and biases lie as the elements of a row do."""
    cdef bint has_weight = args.weight != NULL, has_bias = args.bias != NULL
    if args.inner.size != 1 or not args.packed:
        return False
    if has_weight and (args.weight_strides[1] != 1 or args.weight_strides[0] % pack
                       or not is_aligned(args.weight)):
        return False
    return not has_bias or (args.bias_strides[1] == 1 and args.bias_strides[0] % pack == 0
                            and is_aligned(args.bias))


cdef int64_t choose_lanes(pb_call *call, pb_normal *args, int64_t pack) noexcept nogil:
    """Share rows among threads and cut them into chunks; return the number of chunks."""
    cdef int64_t busy = <int64_t>processors(call) * FULL
    cdef int64_t chunks = 1, step
    args.lanes = min(bits_for((args.length + FEW - 1) // FEW), BLOCK)
    if args.rows << WARP >= busy and args.length <= 4 * pack << WARP:
        args.lanes = min(args.lanes, WARP)
    args.slots = max(min(bits_for(args.rows), BLOCK - args.lanes), WARP - args.lanes, 0)
    step = pack << args.lanes
    if args.rows << args.lanes < busy // 2:
        chunks = max(min(busy // (args.rows << args.lanes), args.length // (FEW << args.lanes),
                         <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = ((args.length + chunks - 1) // chunks + step - 1) // step * step
    return (args.length + args.chunk - 1) // args.chunk


cdef int start_rows(pb_call *call, pb_cuda_kernel *kernel, pb_normal *args,
                    int phase) noexcept nogil:
    cdef int64_t groups = (args.rows + (1 << args.slots) - 1) >> args.slots
    cdef int threads = 1 << (args.lanes + args.slots)
    args.phase = phase
    return launch_grid(call, kernel, args, sizeof(pb_normal), groups, <int>args.chunks, 1, threads,
                       threads * PAIR)


cdef int run_rows(pb_call *call, pb_cuda_kernel *kernel, pb_normal *args,
                  bint given) noexcept nogil:
    """Write rows, each by what is found of it, or given."""
    cdef int64_t pack = 4 if call.in_[0].dtype == PB_F32 else 2
    cdef size_t nbytes
    cdef int code
    args.packed = (args.length % pack == 0 and is_aligned(args.source) and is_aligned(args.out)
                   and is_aligned(args.grad))
    args.packed_weight = channels_are_packed(args, pack)
    args.chunks = choose_lanes(call, args, pack)
    if given or args.chunks == 1:
        return start_rows(call, kernel, args, ROWS_GIVEN if given else ROWS_WHOLE)
    nbytes = args.rows * args.chunks * CONTRIBUTION
    code = scratch_take(call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = start_rows(call, kernel, args, ROWS_FIND)
    if code == PB_OK:
        code = start_rows(call, kernel, args, ROWS_WRITE)
    scratch_give(call, args.partial, nbytes)
    return code


cdef void describe(pb_normal *args, const pb_array *source, const pb_array *mean,
                   const pb_array *scale, const pb_array *weight) noexcept nogil:
    cdef int k
    memset(args, 0, sizeof(pb_normal))
    args.source = source.data
    args.mean = mean.data
    args.scale = scale.data
    args.weight = weight.data
    args.rows = source.shape[0] * source.shape[1]
    args.length = source.shape[2] * source.shape[3]
    args.mean_stride = 0 if mean.shape[0] == 1 else source.shape[1]
    write_axis(&args.groups, source.shape[1])
    write_axis(&args.inner, source.shape[3])
    for k in range(2):
        args.weight_strides[k] = weight.strides[k]


cdef int kernel_normalize(pb_call *call) noexcept nogil:
    cdef pb_normal args
    cdef pb_cuda_kernel *kernel = standardizes[call.in_[0].dtype]
    cdef int k
    if kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    describe(&args, call.in_[0], call.in_[1], call.in_[2], call.in_[3])
    args.bias = call.in_[4].data
    for k in range(2):
        args.bias_strides[k] = call.in_[4].strides[k]
    args.out = call.out[0].data
    if args.rows * args.length == 0:
        return PB_OK
    return run_rows(call, kernel, &args, True)


cdef int kernel_standardize(pb_call *call) noexcept nogil:
    cdef pb_normal args
    cdef pb_cuda_kernel *kernel = standardizes[call.in_[0].dtype]
    cdef int64_t groups = call.param[0].i, channels = call.param[1].i, inner = call.param[2].i
    cdef int64_t given = call.param[4].i, count = count_elements(call.out[0])
    if kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    if count == 0:
        return PB_OK
    memset(&args, 0, sizeof(args))
    args.source = call.in_[0].data
    args.out = call.out[0].data
    args.means = call.out[1].data
    args.variances = call.out[2].data
    args.length = channels * inner
    if (args.length < 1 or groups < 1 or count % args.length
            or count_elements(call.out[1]) != count // args.length):
        return fail(call, PB_E_VALUE, b"the rows do not fit the elements")
    args.rows = count // args.length
    args.eps = call.param[3].d
    write_axis(&args.groups, groups)
    write_axis(&args.inner, inner)
    if given & 1:
        args.weight = call.in_[1].data
        args.weight_strides[0] = channels
        args.weight_strides[1] = 1
    if given & 2:
        args.bias = call.in_[call.nin - 1].data
        args.bias_strides[0] = channels
        args.bias_strides[1] = 1
    return run_rows(call, kernel, &args, False)


# ---- backward ------------------------------------------------------------------------------------

cdef int64_t choose_column_lanes(pb_call *call, pb_normal_sums *args) noexcept nogil:
    """Share columns among threads and cut them into chunks; return the number of chunks."""
    cdef int64_t busy = <int64_t>processors(call) * FULL
    cdef int64_t chunks = 1, step
    args.strided = args.inner.size == 1 and args.columns > 1
    args.slots = min(bits_for(args.columns), WARP) if args.strided else 0
    args.lanes = 0
    while (args.lanes + args.slots < BLOCK and args.length >> args.lanes >= 8
            and (args.lanes < WARP or args.columns << args.lanes < busy)):
        args.lanes += 1
    args.slots = max(min(bits_for(args.columns), BLOCK - args.lanes), WARP - args.lanes, 0)
    step = <int64_t>4 << args.lanes
    if args.columns << args.lanes < busy // 2:
        chunks = max(min(busy // (args.columns << args.lanes), args.length // (4 * step),
                         <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = max(((args.length + chunks - 1) // chunks + step - 1) // step * step, step)
    return max((args.length + args.chunk - 1) // args.chunk, 1)


cdef int start_columns(pb_call *call, pb_cuda_kernel *kernel, pb_normal_sums *args,
                       int64_t count, int64_t chunks) noexcept nogil:
    cdef int threads = 1 << (args.lanes + args.slots)
    return launch_grid(call, kernel, args, sizeof(pb_normal_sums),
                       (count + (1 << args.slots) - 1) >> args.slots, <int>chunks, 1, threads,
                       threads * PAIR)


cdef int sum_columns(pb_call *call, pb_normal_sums *args, int64_t groups) noexcept nogil:
    """Write the slopes of weight and bias, and find the shares of groups where these are asked."""
    cdef int dtype = call.in_[0].dtype
    cdef int code = start_columns(call, columns[dtype], args, args.columns, args.chunks)
    if code == PB_OK:
        args.strided = args.columns > 1
        args.slots = min(bits_for(args.columns), WARP) if args.strided else 0
        args.lanes = min(bits_for(args.chunks), BLOCK - args.slots)
        args.slots = max(min(bits_for(args.columns), BLOCK - args.lanes), WARP - args.lanes, 0)
        code = start_columns(call, joins[dtype], args, args.columns, 1)
    if code == PB_OK and args.shares != NULL:
        args.columns = groups
        args.lanes = min(bits_for(args.channels.size), BLOCK)
        args.slots = max(min(bits_for(groups), BLOCK - args.lanes), WARP - args.lanes, 0)
        code = start_columns(call, shares[dtype], args, groups, 1)
    return code


cdef int kernel_normalize_backward(pb_call *call) noexcept nogil:
    cdef pb_normal rows
    cdef pb_normal_sums sums
    cdef pb_array *source = call.in_[1]
    cdef int64_t groups = source.shape[1], width = source.shape[1] * source.shape[2]
    cdef size_t nbytes
    cdef int k, code
    cdef bint is_shared
    if slopes[call.in_[0].dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    describe(&rows, source, call.in_[2], call.in_[3], call.in_[4])
    rows.grad = call.in_[0].data
    rows.out = call.out[0].data
    if width == 0:
        return PB_OK
    memset(&sums, 0, sizeof(sums))
    sums.source = rows.source
    sums.grad = rows.grad
    sums.mean = rows.mean
    sums.scale = rows.scale
    sums.weight = rows.weight
    sums.weight_out = call.out[1].data
    sums.bias_out = call.out[2].data
    sums.columns = width
    sums.samples = source.shape[0]
    sums.length = source.shape[0] * source.shape[3]
    sums.mean_stride = rows.mean_stride
    for k in range(2):
        sums.weight_strides[k] = rows.weight_strides[k]
    write_axis(&sums.channels, source.shape[2])
    write_axis(&sums.inner, source.shape[3])
    sums.chunks = choose_column_lanes(call, &sums)
    is_shared = rows.mean_stride == 0
    # Sums of the chunks of columns, then the shares of groups.
    nbytes = (sums.chunks * width + groups) * PAIR
    code = scratch_take(call, nbytes, <void **>&sums.partial)
    if code != PB_OK:
        return code
    if is_shared and sums.length:
        sums.shares = <char *>sums.partial + sums.chunks * width * PAIR
    rows.shares = sums.shares
    code = sum_columns(call, &sums, groups)
    if code == PB_OK and rows.rows * rows.length:
        code = run_rows(call, slopes[call.in_[0].dtype], &rows, is_shared)
    scratch_give(call, sums.partial, nbytes)
    return code


KERNELS = {
    "standardize": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_standardize),
    "normalize": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_normalize),
    "normalize_backward": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_normalize_backward),
}

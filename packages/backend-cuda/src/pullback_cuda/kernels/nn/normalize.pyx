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
    BLOCK, FULL, MOST_NUMBERED, WARP, choose_group_bits, describe_dim, is_aligned, pb_dim)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc,
    workspace_free)
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
        pb_dim groups
        pb_dim inner
        int64_t mean_stride
        int64_t weight_strides[2]
        int64_t bias_strides[2]
        double eps
        int32_t phase
        int32_t vectorized
        int32_t vectorized_weight
        int32_t thread_bits
        int32_t group_bits
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
        pb_dim channels
        pb_dim inner
        int64_t mean_stride
        int64_t weight_strides[2]
        int32_t thread_bits
        int32_t group_bits
        int32_t strided

cdef enum:
    CHUNKS = 1024        # of a row or column, at most
    FEW = 8              # elements of a row that a thread should have
    CONTRIBUTION = 24    # bytes of the partial result of a chunk
    PAIR = 16            # bytes of two sums

cdef pb_cuda_kernel *standardizes[PB_NUM_DTYPES]
cdef pb_cuda_kernel *backwards[PB_NUM_DTYPES]
cdef pb_cuda_kernel *columns[PB_NUM_DTYPES]
cdef pb_cuda_kernel *joins[PB_NUM_DTYPES]
cdef pb_cuda_kernel *shares[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F32, "f32"), (PB_F64, "f64")):
        standardizes[code] = kernel_named("normalize", f"standardize_{name}")
        backwards[code] = kernel_named("normalize", f"standardize_backward_{name}")
        columns[code] = kernel_named("normalize", f"normal_columns_{name}")
        joins[code] = kernel_named("normalize", f"normal_join_{name}")
        shares[code] = kernel_named("normalize", f"normal_shares_{name}")


_find()


# ---- rows ----------------------------------------------------------------------------------------

cdef bint can_vectorize_channels(const pb_normal *args, int64_t vector_size) noexcept nogil:
    """True where weights and biases are contiguous as the elements of a row are."""
    cdef bint has_weight = args.weight != NULL, has_bias = args.bias != NULL
    if args.inner.size != 1 or not args.vectorized:
        return False
    if has_weight and (args.weight_strides[1] != 1 or args.weight_strides[0] % vector_size
                       or not is_aligned(args.weight)):
        return False
    return not has_bias or (args.bias_strides[1] == 1 and args.bias_strides[0] % vector_size == 0
                            and is_aligned(args.bias))


cdef int64_t choose_groups(pb_call *call, pb_normal *args, int64_t vector_size) noexcept nogil:
    """Divide threads into groups and rows into chunks; return the number of chunks."""
    cdef int64_t busy = <int64_t>sm_count(call) * FULL
    cdef int64_t chunks = 1, step
    args.thread_bits = min(bits_for((args.length + FEW - 1) // FEW), BLOCK)
    if args.rows << WARP >= busy and args.length <= 4 * vector_size << WARP:
        args.thread_bits = min(args.thread_bits, WARP)
    args.group_bits = choose_group_bits(args.rows, args.thread_bits, BLOCK)
    step = vector_size << args.thread_bits
    if args.rows << args.thread_bits < busy // 2:
        chunks = max(min(busy // (args.rows << args.thread_bits),
                         args.length // (FEW << args.thread_bits), <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = ((args.length + chunks - 1) // chunks + step - 1) // step * step
    return (args.length + args.chunk - 1) // args.chunk


cdef int start_rows(pb_call *call, pb_cuda_kernel *kernel, pb_normal *args,
                    int phase) noexcept nogil:
    cdef int64_t groups = (args.rows + (1 << args.group_bits) - 1) >> args.group_bits
    cdef int threads = 1 << (args.thread_bits + args.group_bits)
    args.phase = phase
    return launch_grid(call, kernel, args, sizeof(pb_normal), groups, <int>args.chunks, 1, threads,
                       threads * PAIR)


cdef int run_rows(pb_call *call, pb_cuda_kernel *kernel, pb_normal *args,
                  bint given) noexcept nogil:
    """Write rows, with statistics found here or given."""
    cdef int64_t vector_size = 4 if call.in_[0].dtype == PB_F32 else 2
    cdef size_t nbytes
    cdef int code
    args.vectorized = (args.length % vector_size == 0 and is_aligned(args.source)
                       and is_aligned(args.out) and is_aligned(args.grad))
    args.vectorized_weight = can_vectorize_channels(args, vector_size)
    args.chunks = choose_groups(call, args, vector_size)
    if given or args.chunks == 1:
        return start_rows(call, kernel, args, ROWS_GIVEN if given else ROWS_WHOLE)
    nbytes = args.rows * args.chunks * CONTRIBUTION
    code = workspace_alloc(call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = start_rows(call, kernel, args, ROWS_FIND)
    if code == PB_OK:
        code = start_rows(call, kernel, args, ROWS_WRITE)
    workspace_free(call, args.partial, nbytes)
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
    describe_dim(&args.groups, source.shape[1])
    describe_dim(&args.inner, source.shape[3])
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
    describe_dim(&args.groups, groups)
    describe_dim(&args.inner, inner)
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

cdef int64_t choose_column_groups(pb_call *call, pb_normal_sums *args) noexcept nogil:
    """Divide threads into groups and columns into chunks; return the number of chunks."""
    cdef int64_t busy = <int64_t>sm_count(call) * FULL
    cdef int64_t chunks = 1, step
    args.strided = args.inner.size == 1 and args.columns > 1
    args.group_bits = min(bits_for(args.columns), WARP) if args.strided else 0
    args.thread_bits = 0
    while (args.thread_bits + args.group_bits < BLOCK and args.length >> args.thread_bits >= 8
            and (args.thread_bits < WARP or args.columns << args.thread_bits < busy)):
        args.thread_bits += 1
    args.group_bits = choose_group_bits(args.columns, args.thread_bits, BLOCK)
    step = <int64_t>4 << args.thread_bits
    if args.columns << args.thread_bits < busy // 2:
        chunks = max(min(busy // (args.columns << args.thread_bits), args.length // (4 * step),
                         <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = max(((args.length + chunks - 1) // chunks + step - 1) // step * step, step)
    return max((args.length + args.chunk - 1) // args.chunk, 1)


cdef int start_columns(pb_call *call, pb_cuda_kernel *kernel, pb_normal_sums *args,
                       int64_t count, int64_t chunks) noexcept nogil:
    cdef int threads = 1 << (args.thread_bits + args.group_bits)
    return launch_grid(call, kernel, args, sizeof(pb_normal_sums),
                       (count + (1 << args.group_bits) - 1) >> args.group_bits, <int>chunks, 1,
                       threads, threads * PAIR)


cdef int sum_columns(pb_call *call, pb_normal_sums *args, int64_t groups) noexcept nogil:
    """Write the gradients of weight and bias, and the shares of groups if requested."""
    cdef int dtype = call.in_[0].dtype
    cdef int code = start_columns(call, columns[dtype], args, args.columns, args.chunks)
    if code == PB_OK:
        args.strided = args.columns > 1
        args.group_bits = min(bits_for(args.columns), WARP) if args.strided else 0
        args.thread_bits = min(bits_for(args.chunks), BLOCK - args.group_bits)
        args.group_bits = choose_group_bits(args.columns, args.thread_bits, BLOCK)
        code = start_columns(call, joins[dtype], args, args.columns, 1)
    if code == PB_OK and args.shares != NULL:
        args.columns = groups
        args.thread_bits = min(bits_for(args.channels.size), BLOCK)
        args.group_bits = choose_group_bits(groups, args.thread_bits, BLOCK)
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
    if backwards[call.in_[0].dtype] == NULL:
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
    describe_dim(&sums.channels, source.shape[2])
    describe_dim(&sums.inner, source.shape[3])
    sums.chunks = choose_column_groups(call, &sums)
    is_shared = rows.mean_stride == 0
    # Sums of the chunks of columns, then the means of groups.
    nbytes = (sums.chunks * width + groups) * PAIR
    code = workspace_alloc(call, nbytes, <void **>&sums.partial)
    if code != PB_OK:
        return code
    if is_shared and sums.length:
        sums.shares = <char *>sums.partial + sums.chunks * width * PAIR
    rows.shares = sums.shares
    code = sum_columns(call, &sums, groups)
    if code == PB_OK and rows.rows * rows.length:
        code = run_rows(call, backwards[call.in_[0].dtype], &rows, is_shared)
    workspace_free(call, sums.partial, nbytes)
    return code


cdef int kernel_normalize_backward_input(pb_call *call) noexcept nogil:
    cdef pb_normal rows
    if backwards[call.in_[0].dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    describe(&rows, call.in_[1], call.in_[2], call.in_[3], call.in_[4])
    rows.grad = call.in_[0].data
    rows.out = call.out[0].data
    if rows.rows * rows.length == 0:
        return PB_OK
    return run_rows(call, backwards[call.in_[0].dtype], &rows, False)


KERNELS = {
    "standardize": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_standardize),
    "normalize": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_normalize),
    "normalize_backward": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_normalize_backward),
    "normalize_backward_input": new_kernel(
        1 << PB_F32 | 1 << PB_F64, kernel_normalize_backward_input),
}

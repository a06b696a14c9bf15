"""softmax, log_softmax, logsumexp and their derivatives, line by line along a dim."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_BF16, PB_E_DTYPE, PB_F16, PB_F32, PB_F64, PB_MASK_FLOATING, PB_NUM_DTYPES, PB_OK, pb_array,
    pb_call)
from pullback_cuda.kernels.common.arrays cimport bits_for, item_sizes
from pullback_cuda.kernels.strides.coalesced_dims cimport (
    BLOCK, FULL, MOST_NUMBERED, WARP, append_dim, choose_group_bits, coalesce_dims,
    count_positions, describe_dims, dim_list, is_aligned, is_nearer, pb_dim, sort_dims, start_dims)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc,
    workspace_free)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/nn/softmax.h":
    enum:
        SOFTMAX_DIMS
        LINES_WHOLE
        LINES_FIND
        LINES_WRITE
        RESULT_SOFTMAX
        RESULT_LOG_SOFTMAX
        RESULT_LOGSUMEXP
    ctypedef struct pb_softmax:
        void *data[3]
        void *partial
        int64_t lines
        int64_t length
        int64_t chunk
        int64_t chunks
        int64_t strides[3]
        int32_t phase
        int32_t result
        int32_t vectorized
        int32_t thread_bits
        int32_t group_bits
        int32_t strided
        int32_t ndim
        pb_dim line[SOFTMAX_DIMS]

cdef enum:
    CHUNKS = 1024        # of a line, at most
    FEW = 8              # elements of a line that a thread should have
    CONTRIBUTION = 16    # bytes of the partial result of a chunk

cdef pb_cuda_kernel *forward[PB_NUM_DTYPES]
cdef pb_cuda_kernel *backward[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F16, "f16"), (PB_BF16, "bf16"), (PB_F32, "f32"), (PB_F64, "f64")):
        forward[code] = kernel_named("softmax", f"softmax_{name}")
        backward[code] = kernel_named("softmax", f"softmax_backward_{name}")


_find()


# The lines of a call; operands are the output and two inputs, of which the second may be the first.
ctypedef struct line_work:
    pb_call *call
    pb_cuda_kernel *kernel
    dim_list lines
    pb_softmax args
    int item_size


cdef bint can_vectorize(line_work *work) noexcept nogil:
    """True where the lines of every operand are contiguous, in whole vectors."""
    cdef int64_t vector_size = 16 // work.item_size
    cdef int d, k, first = 1 if work.args.result == RESULT_LOGSUMEXP else 0
    if work.args.length % vector_size:
        return False
    for k in range(first, 3):
        if work.args.strides[k] != 1 or not is_aligned(work.args.data[k]):
            return False
        for d in range(work.lines.count):
            if work.lines.strides[d][k] % vector_size:
                return False
    return True


cdef int64_t choose_groups(line_work *work) noexcept nogil:
    """Divide threads into groups and lines into chunks; return the number of chunks."""
    cdef pb_softmax *args = &work.args
    cdef int64_t busy = <int64_t>sm_count(work.call) * FULL
    cdef int64_t held = 8 if work.item_size == 8 else 16     # elements in registers of a thread
    cdef int64_t chunks = 1, step
    args.strided = work.lines.count > 0 and is_nearer(
        work.lines.strides[0][1], args.strides[1])
    if args.strided:
        args.thread_bits = 0
        while args.thread_bits < WARP and args.length >> args.thread_bits > FEW and (
                args.lines << args.thread_bits < busy
                or (args.length >> args.thread_bits > held and args.thread_bits < BLOCK - WARP)):
            args.thread_bits += 1
    else:
        args.thread_bits = min(bits_for((args.length + FEW - 1) // FEW), BLOCK)
        if args.lines << WARP >= busy and args.length <= held << WARP:
            args.thread_bits = min(args.thread_bits, WARP)
    args.group_bits = choose_group_bits(args.lines, args.thread_bits, BLOCK)
    step = <int64_t>(16 // work.item_size) << args.thread_bits
    if args.lines << args.thread_bits < busy // 2:
        chunks = max(min(busy // (args.lines << args.thread_bits),
                         args.length // (FEW << args.thread_bits), <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = max(((args.length + chunks - 1) // chunks + step - 1) // step * step, step)
    return max((args.length + args.chunk - 1) // args.chunk, 1)


cdef int start_kernel(line_work *work, int phase, int64_t chunks) noexcept nogil:
    cdef pb_softmax *args = &work.args
    cdef int64_t groups = (args.lines + (1 << args.group_bits) - 1) >> args.group_bits
    cdef int threads = 1 << (args.thread_bits + args.group_bits)
    args.phase = phase
    return launch_grid(work.call, work.kernel, args, sizeof(pb_softmax), groups, <int>chunks, 1,
                       threads, threads * sizeof(double))


cdef int run_some(line_work *work) noexcept nogil:
    """Compute lines in one launch, or two."""
    cdef pb_softmax *args = &work.args
    cdef size_t nbytes
    cdef int code
    args.lines = count_positions(&work.lines)
    args.ndim = describe_dims(&work.lines, args.line)
    args.vectorized = can_vectorize(work)
    args.chunks = choose_groups(work)
    if args.chunks == 1:
        return start_kernel(work, LINES_WHOLE, 1)
    nbytes = args.lines * args.chunks * CONTRIBUTION
    code = workspace_alloc(work.call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = start_kernel(work, LINES_FIND, args.chunks)
    if code == PB_OK:
        code = start_kernel(
            work, LINES_WRITE, 1 if args.result == RESULT_LOGSUMEXP else args.chunks)
    workspace_free(work.call, args.partial, nbytes)
    return code


cdef int run_all(line_work *work) noexcept nogil:
    """Compute all lines, in several launches where there are too many lines or dims for one."""
    cdef dim_list *lines = &work.lines
    cdef int outer = lines.count - 1, code = PB_OK, k
    cdef int64_t first = 0, size, part
    cdef char *data[3]
    if outer < SOFTMAX_DIMS and count_positions(lines) <= MOST_NUMBERED:
        return run_some(work)
    # Parts of the outermost dim: single positions where there are too many dims.
    size = lines.size[outer]
    part = 1 if outer >= SOFTMAX_DIMS else max(
        MOST_NUMBERED // (count_positions(lines) // size), <int64_t>1)
    for k in range(3):
        data[k] = <char *>work.args.data[k]
    while first < size and code == PB_OK:
        lines.size[outer] = min(part, size - first)
        lines.count = outer if lines.size[outer] == 1 else outer + 1
        for k in range(3):
            work.args.data[k] = data[k] + first * lines.strides[outer][k] * work.item_size
        code = run_all(work)
        first += part
    lines.count = outer + 1
    lines.size[outer] = size
    return code


cdef int run_lines(pb_call *call, pb_cuda_kernel **kernels, int result) noexcept nogil:
    cdef pb_array *arrays[3]
    cdef line_work work
    cdef int d, k, dim = <int>call.param[0].i
    arrays[0] = call.out[0]
    arrays[1] = call.in_[0]
    arrays[2] = call.in_[call.nin - 1]
    work.call = call
    work.kernel = kernels[arrays[1].dtype]
    if work.kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    work.item_size = item_sizes[arrays[1].dtype]
    memset(&work.args, 0, sizeof(pb_softmax))
    work.args.result = result
    work.args.length = 1
    for k in range(3):
        work.args.data[k] = arrays[k].data
        work.args.strides[k] = 1
    start_dims(&work.lines, 3)
    for d in range(arrays[1].ndim - 1, -1, -1):
        if arrays[0].shape[d] == 0:
            return PB_OK
        if d != dim:
            append_dim(&work.lines, arrays[1].shape[d], arrays[0].strides[d], arrays[1].strides[d],
                       arrays[2].strides[d])
        elif arrays[1].shape[d] != 1:
            work.args.length = arrays[1].shape[d]
            for k in range(3):
                work.args.strides[k] = arrays[k].strides[d]
    sort_dims(&work.lines, 1)
    coalesce_dims(&work.lines)
    return run_all(&work)


cdef int kernel_softmax(pb_call *call) noexcept nogil:
    return run_lines(call, forward, RESULT_SOFTMAX)


cdef int kernel_log_softmax(pb_call *call) noexcept nogil:
    return run_lines(call, forward, RESULT_LOG_SOFTMAX)


cdef int kernel_logsumexp(pb_call *call) noexcept nogil:
    return run_lines(call, forward, RESULT_LOGSUMEXP)


cdef int kernel_softmax_backward(pb_call *call) noexcept nogil:
    return run_lines(call, backward, RESULT_SOFTMAX)


cdef int kernel_log_softmax_backward(pb_call *call) noexcept nogil:
    return run_lines(call, backward, RESULT_LOG_SOFTMAX)


KERNELS = {
    "softmax": new_kernel(PB_MASK_FLOATING, kernel_softmax),
    "log_softmax": new_kernel(PB_MASK_FLOATING, kernel_log_softmax),
    "logsumexp": new_kernel(PB_MASK_FLOATING, kernel_logsumexp),
    "softmax_backward": new_kernel(PB_MASK_FLOATING, kernel_softmax_backward),
    "log_softmax_backward": new_kernel(PB_MASK_FLOATING, kernel_log_softmax_backward),
}

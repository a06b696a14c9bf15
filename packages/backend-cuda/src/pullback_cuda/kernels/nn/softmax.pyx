"""softmax, log_softmax, logsumexp and their derivatives, by lines of elements along a dim."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_BF16, PB_E_DTYPE, PB_F16, PB_F32, PB_F64, PB_MASK_FLOATING, PB_NUM_DTYPES, PB_OK, pb_array,
    pb_call)
from pullback_cuda.kernels.common.arrays cimport bits_for, item_sizes
from pullback_cuda.kernels.strides.coalesced_dims cimport (
    BLOCK, FULL, MOST_NUMBERED, WARP, add_axis, axis_list, is_aligned, is_nearer, merge_axes,
    pb_axis, positions, sort_axes, start_axes, write_axes)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, processors, scratch_give, scratch_take)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/nn/softmax.h":
    enum:
        SOFTMAX_AXES
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
        int32_t packed
        int32_t lanes
        int32_t slots
        int32_t strided
        int32_t axes
        pb_axis line[SOFTMAX_AXES]

cdef enum:
    CHUNKS = 1024        # of a line, at most
    FEW = 8              # elements of a line that a thread should have
    CONTRIBUTION = 16    # bytes of what is known of a chunk

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
    axis_list lines
    pb_softmax args
    int item_size


cdef bint moves_packs(line_work *work) noexcept nogil:
    """True where the elements of lines are neighbours, in whole packs, wherever they are moved."""
    cdef int64_t pack = 16 // work.item_size
    cdef int d, k, first = 1 if work.args.result == RESULT_LOGSUMEXP else 0
    if work.args.length % pack:
        return False
    for k in range(first, 3):
        if work.args.strides[k] != 1 or not is_aligned(work.args.data[k]):
            return False
        for d in range(work.lines.count):
            if work.lines.strides[d][k] % pack:
                return False
    return True


cdef int64_t choose_lanes(line_work *work) noexcept nogil:
    """Share lines among threads and cut them into chunks; return the number of chunks."""
    cdef pb_softmax *args = &work.args
    cdef int64_t busy = <int64_t>processors(work.call) * FULL
    cdef int64_t held = 8 if work.item_size == 8 else 16     # elements in registers of a thread
    cdef int64_t chunks = 1, step
    args.strided = work.lines.count > 0 and is_nearer(
        work.lines.strides[0][1], args.strides[1])
    if args.strided:
        args.lanes = 0
        while args.lanes < WARP and args.length >> args.lanes > FEW and (
                args.lines << args.lanes < busy
                or (args.length >> args.lanes > held and args.lanes < BLOCK - WARP)):
            args.lanes += 1
    else:
        args.lanes = min(bits_for((args.length + FEW - 1) // FEW), BLOCK)
        if args.lines << WARP >= busy and args.length <= held << WARP:
            args.lanes = min(args.lanes, WARP)
    args.slots = max(min(bits_for(args.lines), BLOCK - args.lanes), WARP - args.lanes, 0)
    step = <int64_t>(16 // work.item_size) << args.lanes
    if args.lines << args.lanes < busy // 2:
        chunks = max(min(busy // (args.lines << args.lanes), args.length // (FEW << args.lanes),
                         <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = max(((args.length + chunks - 1) // chunks + step - 1) // step * step, step)
    return max((args.length + args.chunk - 1) // args.chunk, 1)


cdef int start_kernel(line_work *work, int phase, int64_t chunks) noexcept nogil:
    cdef pb_softmax *args = &work.args
    cdef int64_t groups = (args.lines + (1 << args.slots) - 1) >> args.slots
    cdef int threads = 1 << (args.lanes + args.slots)
    args.phase = phase
    return launch_grid(work.call, work.kernel, args, sizeof(pb_softmax), groups, <int>chunks, 1,
                       threads, threads * sizeof(double))


cdef int run_some(line_work *work) noexcept nogil:
    """Do few enough lines for one launch, or two."""
    cdef pb_softmax *args = &work.args
    cdef size_t nbytes
    cdef int code
    args.lines = positions(&work.lines)
    args.axes = write_axes(&work.lines, args.line)
    args.packed = moves_packs(work)
    args.chunks = choose_lanes(work)
    if args.chunks == 1:
        return start_kernel(work, LINES_WHOLE, 1)
    nbytes = args.lines * args.chunks * CONTRIBUTION
    code = scratch_take(work.call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = start_kernel(work, LINES_FIND, args.chunks)
    if code == PB_OK:
        code = start_kernel(
            work, LINES_WRITE, 1 if args.result == RESULT_LOGSUMEXP else args.chunks)
    scratch_give(work.call, args.partial, nbytes)
    return code


cdef int run_all(line_work *work) noexcept nogil:
    """Do all lines, launch by launch where there are too many lines or axes for one."""
    cdef axis_list *lines = &work.lines
    cdef int outer = lines.count - 1, code = PB_OK, k
    cdef int64_t first = 0, size, part
    cdef char *data[3]
    if outer < SOFTMAX_AXES and positions(lines) <= MOST_NUMBERED:
        return run_some(work)
    # Parts of the outermost axis: single positions where there are too many axes.
    size = lines.size[outer]
    part = 1 if outer >= SOFTMAX_AXES else max(
        MOST_NUMBERED // (positions(lines) // size), <int64_t>1)
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
    start_axes(&work.lines, 3)
    for d in range(arrays[1].ndim - 1, -1, -1):
        if arrays[0].shape[d] == 0:
            return PB_OK
        if d != dim:
            add_axis(&work.lines, arrays[1].shape[d], arrays[0].strides[d], arrays[1].strides[d],
                     arrays[2].strides[d])
        elif arrays[1].shape[d] != 1:
            work.args.length = arrays[1].shape[d]
            for k in range(3):
                work.args.strides[k] = arrays[k].strides[d]
    sort_axes(&work.lines, 1)
    merge_axes(&work.lines)
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

"""Cumulative ops along a dim: cumsum, cumprod, logcumsumexp, cummax, cummin.

A line is scanned by one thread where neighbouring elements belong to different lines, else by a
group of neighbouring threads. Where there are too few lines for all multiprocessors, they are split
into chunks, which takes three launches.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_BOOL, PB_C64, PB_C128, PB_E_DTYPE, PB_F16, PB_F64, PB_I8, PB_I64, PB_MASK_ALL,
    PB_MASK_COMPLEX, PB_MASK_FLOATING, PB_NUM_DTYPES, PB_OK, PB_U8, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport bits_for, item_sizes
from pullback_cuda.kernels.strides.coalesced_dims cimport (
    BLOCK, FULL, MOST_NUMBERED, WARP, append_dim, choose_group_bits, coalesce_dims,
    count_positions, describe_dims, dim_list, is_aligned, is_nearer, pb_dim, sort_dims, start_dims)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc,
    workspace_free)
from pullback_cuda.runtime.failures cimport fail

from pullback_cuda.kernels.common.names import DTYPES


cdef extern from "kernels/reductions/scan.h":
    enum:
        SCAN_DIMS
        SCAN_LINES
        SCAN_FINDS_TOTALS
        SCAN_OF_TOTALS
        SCAN_CHUNKS
    ctypedef struct pb_scan:
        const void *in_ "in"
        void *out
        void *indices
        void *partial
        int64_t lines
        int64_t length
        int64_t chunk
        int64_t chunks
        int64_t strides[3]
        uint64_t mask
        int32_t phase
        int32_t vectorized
        int32_t thread_bits
        int32_t group_bits
        int32_t ndim
        pb_dim line[SCAN_DIMS]

cdef enum:
    CHUNKS = 4096   # of a line, at most


# The operation on one dtype.
ctypedef struct operation:
    pb_cuda_kernel *kernel
    int size        # bytes of an accumulator
    uint64_t mask


# The scan of a call. Operands of the lines are the input, the output and the indices.
ctypedef struct scan:
    pb_call *call
    const operation *op
    dim_list lines
    pb_scan args
    int item_size


# ---- launches ------------------------------------------------------------------------------------

cdef int items_of(int item_size) noexcept nogil:
    """Return how many elements a thread scans in one step, as in scan.cuh."""
    return 8 if item_size <= 4 else 4 if item_size == 8 else 2


cdef bint can_vectorize(scan *work) noexcept nogil:
    """True where lines are contiguous and begin at whole vectors."""
    cdef int64_t vector_size = min(16 // work.item_size, items_of(work.item_size))
    cdef int d, k
    if work.args.strides[0] != 1 or work.args.strides[1] != 1:
        return False
    if not is_aligned(work.args.in_) or not is_aligned(work.args.out):
        return False
    for d in range(work.lines.count):
        for k in range(2):
            if work.lines.strides[d][k] % vector_size:
                return False
    return True


cdef int64_t choose_groups(scan *work) noexcept nogil:
    """Divide threads into groups and lines into chunks; return the number of chunks."""
    cdef pb_scan *args = &work.args
    cdef int64_t busy = <int64_t>sm_count(work.call) * FULL
    cdef int64_t needed = (args.length + items_of(work.item_size) - 1) // items_of(work.item_size)
    cdef int64_t step, chunks
    args.thread_bits = 0
    if work.lines.count == 0 or not is_nearer(work.lines.strides[0][0], args.strides[0]):
        args.thread_bits = min(bits_for(needed), BLOCK)
        if needed <= 256 and args.lines << WARP >= busy:
            args.thread_bits = min(args.thread_bits, WARP)
    args.group_bits = choose_group_bits(args.lines, args.thread_bits, BLOCK)
    step = <int64_t>items_of(work.item_size) << args.thread_bits
    chunks = 1
    if args.lines << args.thread_bits < busy // 2:
        chunks = max(min(busy // (args.lines << args.thread_bits), args.length // (8 * step),
                         <int64_t>CHUNKS), 1)
    args.chunk = max(((args.length + chunks - 1) // chunks + step - 1) // step * step, step)
    return (args.length + args.chunk - 1) // args.chunk


cdef int start_kernel(scan *work, int phase, int64_t chunks) noexcept nogil:
    cdef pb_scan *args = &work.args
    cdef int64_t groups = (args.lines + (1 << args.group_bits) - 1) >> args.group_bits
    args.phase = phase
    return launch_grid(work.call, work.op.kernel, args, sizeof(pb_scan), groups, <int>chunks, 1,
                       1 << (args.thread_bits + args.group_bits), 8 * work.op.size)


cdef int scan_some(scan *work) noexcept nogil:
    """Scan lines in one launch, or three."""
    cdef pb_scan *args = &work.args
    cdef size_t nbytes
    cdef int32_t thread_bits, group_bits
    cdef int code
    args.lines = count_positions(&work.lines)
    args.ndim = describe_dims(&work.lines, args.line)
    args.vectorized = can_vectorize(work)
    args.chunks = choose_groups(work)
    if args.chunks == 1:
        return start_kernel(work, SCAN_LINES, 1)
    nbytes = args.lines * args.chunks * work.op.size
    code = workspace_alloc(work.call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    thread_bits = args.thread_bits
    group_bits = args.group_bits
    code = start_kernel(work, SCAN_FINDS_TOTALS, args.chunks)
    if code == PB_OK:
        args.thread_bits = max(min(bits_for(args.chunks), BLOCK), WARP)
        args.group_bits = 0
        code = start_kernel(work, SCAN_OF_TOTALS, 1)
    if code == PB_OK:
        args.thread_bits = thread_bits
        args.group_bits = group_bits
        code = start_kernel(work, SCAN_CHUNKS, args.chunks)
    workspace_free(work.call, args.partial, nbytes)
    return code


cdef int scan_all(scan *work, char *data, char *out, char *indices) noexcept nogil:
    """Scan, in several launches where there are too many lines or dims for one."""
    cdef dim_list *lines = &work.lines
    cdef int outer = lines.count - 1, code = PB_OK
    cdef int64_t first = 0, size, part
    work.args.in_ = data
    work.args.out = out
    work.args.indices = indices
    if outer < SCAN_DIMS and count_positions(lines) <= MOST_NUMBERED:
        return scan_some(work)
    # Parts of the outermost dim: single positions where there are too many dims.
    size = lines.size[outer]
    part = 1 if outer >= SCAN_DIMS else max(
        MOST_NUMBERED // (count_positions(lines) // size), <int64_t>1)
    while first < size and code == PB_OK:
        lines.size[outer] = min(part, size - first)
        lines.count = outer if lines.size[outer] == 1 else outer + 1
        code = scan_all(work, data + first * lines.strides[outer][0] * work.item_size,
                        out + first * lines.strides[outer][1] * work.item_size,
                        indices + first * lines.strides[outer][2] * <int64_t>sizeof(int64_t))
        first += part
    lines.count = outer + 1
    lines.size[outer] = size
    return code


# ---- calls ---------------------------------------------------------------------------------------

cdef int run_scan(pb_call *call, const operation *op) noexcept nogil:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef pb_array *indices = call.out[call.nout - 1]  # the output again where there is no second
    cdef scan work
    cdef int d, dim = <int>call.param[0].i
    if op.kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    memset(&work.args, 0, sizeof(pb_scan))
    work.call = call
    work.op = op
    work.item_size = item_sizes[source.dtype]
    work.args.mask = op.mask
    work.args.length = 1
    start_dims(&work.lines, 3)
    for d in range(source.ndim - 1, -1, -1):
        if source.shape[d] == 0:
            return PB_OK
        if d == dim:
            work.args.length = source.shape[d]
            work.args.strides[0] = source.strides[d]
            work.args.strides[1] = out.strides[d]
            work.args.strides[2] = indices.strides[d]
        else:
            append_dim(&work.lines, source.shape[d], source.strides[d], out.strides[d],
                       indices.strides[d])
    if work.args.length == 1:
        work.args.strides[0] = work.args.strides[1] = work.args.strides[2] = 1
    sort_dims(&work.lines, 0)
    coalesce_dims(&work.lines)
    return scan_all(&work, <char *>source.data, <char *>out.data, <char *>indices.data)


# ---- operations ----------------------------------------------------------------------------------

cdef enum:
    CUMSUM
    CUMPROD
    LOGCUMSUMEXP
    CUMMAX
    CUMMIN
    OPERATIONS

cdef operation operations[OPERATIONS][PB_NUM_DTYPES]


cdef operation *set_operation(int which, int code, str family, str kernel, int size) except NULL:
    cdef operation *op = &operations[which][code]
    op.kernel = kernel_named(family, kernel)
    op.size = size
    return op


def _set_operations():
    cdef int code, size, which
    cdef uint64_t turned
    cdef operation *op
    for code in range(<int>len(DTYPES)):
        size = item_sizes[code]
        name = DTYPES[code]
        if PB_U8 <= code <= PB_I64:     # signed or not
            set_operation(CUMSUM, code, "scan", f"cumsum_{size}", max(size, 4))
            set_operation(CUMPROD, code, "scan", f"cumprod_{size}", max(size, 4))
        elif code >= PB_F16:
            set_operation(CUMSUM, code, "scan", f"cumsum_{name}",
                          32 if code == PB_C128 else 16 if code in (PB_F64, PB_C64) else 8)
            set_operation(CUMPROD, code, "scan", f"cumprod_{name}", 16)
        if PB_F16 <= code <= PB_F64:
            set_operation(LOGCUMSUMEXP, code, "scan", f"logcumsumexp_{name}", 16)
        if code >= PB_C64:
            continue
        # As in reduce.pyx: inverting these bits reverses the order. Signed bytes are compared as
        # unsigned.
        turned = <uint64_t>-1
        if code == PB_BOOL:
            turned = 1
        elif code >= PB_F16:
            turned = <uint64_t>1 << (8 * size - 1)
        kind = "u8" if size == 1 else name
        for which in range(CUMMAX, CUMMIN + 1):
            op = set_operation(
                which, code, "cummax", f"cummax_{kind}", 16)
            op.mask = (0x80 if code == PB_I8 else 0) ^ (turned if which == CUMMIN else 0)


_set_operations()


cdef int kernel_cumsum(pb_call *call) noexcept nogil:
    return run_scan(call, &operations[CUMSUM][call.in_[0].dtype])


cdef int kernel_cumprod(pb_call *call) noexcept nogil:
    return run_scan(call, &operations[CUMPROD][call.in_[0].dtype])


cdef int kernel_logcumsumexp(pb_call *call) noexcept nogil:
    return run_scan(call, &operations[LOGCUMSUMEXP][call.in_[0].dtype])


cdef int kernel_cummax(pb_call *call) noexcept nogil:
    return run_scan(call, &operations[CUMMAX][call.in_[0].dtype])


cdef int kernel_cummin(pb_call *call) noexcept nogil:
    return run_scan(call, &operations[CUMMIN][call.in_[0].dtype])


KERNELS = {
    "cumsum": new_kernel(PB_MASK_ALL & ~(1 << PB_BOOL), kernel_cumsum),
    "cumprod": new_kernel(PB_MASK_ALL & ~(1 << PB_BOOL), kernel_cumprod),
    "logcumsumexp": new_kernel(PB_MASK_FLOATING, kernel_logcumsumexp),
    "cummax": new_kernel(PB_MASK_ALL & ~PB_MASK_COMPLEX, kernel_cummax),
    "cummin": new_kernel(PB_MASK_ALL & ~PB_MASK_COMPLEX, kernel_cummin),
}

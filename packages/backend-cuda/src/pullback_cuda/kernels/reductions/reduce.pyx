"""Reductions: sums, products, counts, largest and smallest elements, moments.

Dims are kept or reduced. A group of threads reduces an output: neighbouring threads where the
elements of an output are neighbours; where neighbours belong to different outputs, so do
neighbouring threads. Where there are too few outputs for all multiprocessors, elements are split
into chunks, whose accumulators a second launch merges.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_BOOL, PB_C64, PB_C128, PB_E_DTYPE, PB_E_VALUE, PB_F16, PB_F32, PB_F64, PB_I8, PB_I64,
    PB_MASK_ALL, PB_MASK_COMPLEX, PB_MASK_FLOATING, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport bits_for, item_sizes
from pullback_cuda.kernels.strides.coalesced_dims cimport (
    BLOCK, FULL, MOST_NUMBERED, WARP, append_dim, choose_group_bits, coalesce_dims,
    count_positions, describe_dims, dim_list, is_aligned, is_nearer, pb_dim, sort_dims, start_dims)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch_grid, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc,
    workspace_free)
from pullback_cuda.runtime.failures cimport fail

from pullback_cuda.kernels.common.names import DTYPES


cdef extern from "kernels/common/reduction_driver.h":
    enum:
        REDUCTION_DIMS
        LOADS_ELEMENTS
        LOADS_VECTORS_OF_REDUCED
        LOADS_VECTORS_OF_KEPT
        TRUTH_COUNT
        TRUTH_ANY
        TRUTH_ALL
    ctypedef struct pb_reduction:
        const void *in_ "in"
        void *out
        void *second
        void *partial
        int64_t units
        int64_t length
        int64_t chunk
        int64_t first_chunk
        int64_t first_number
        int64_t total
        int64_t apart
        uint64_t mask
        int32_t truth
        int32_t squares
        int32_t merges
        int32_t loads
        int32_t tail
        int32_t unit_bits
        int32_t thread_bits
        int32_t group_bits
        int32_t strided
        int32_t kept_ndim
        int32_t reduced_ndim
        pb_dim kept[REDUCTION_DIMS]
        pb_dim reduced[REDUCTION_DIMS]

cdef enum:
    SHARED = 48 * 1024  # bytes of shared memory that a block may have
    CHUNKS = 65535      # of one launch


# The operation on one dtype.
ctypedef struct operation:
    pb_cuda_kernel *kernel
    int size          # bytes of an accumulator
    uint64_t mask
    int truth
    bint squares
    bint is_ordered   # the elements of an output are numbered in the order of the dimensions


# The reduction of a call. Operands of `kept` are the input and the output, of `reduced` the input,
# of `outer` too: reduced dims beyond those of one launch.
ctypedef struct reduction:
    pb_call *call
    const operation *op
    dim_list kept
    dim_list reduced
    dim_list outer
    char *data
    char *out
    int64_t second     # bytes from an output to the second one
    int in_size
    int out_size


# ---- launches ------------------------------------------------------------------------------------

cdef void choose_loads(reduction *work, pb_reduction *args) noexcept nogil:
    """Choose which elements neighbouring threads read, and whether as vectors."""
    cdef dim_list *kept = &work.kept
    cdef dim_list *reduced = &work.reduced
    cdef dim_list *inner
    cdef int64_t vector_size = 16 // work.in_size
    cdef int64_t first
    cdef bint strided = kept.count > 0 and (
        reduced.count == 0
        or is_nearer(kept.strides[0][0], reduced.strides[0][0]))
    args.strided = strided
    args.loads = LOADS_ELEMENTS
    args.unit_bits = args.tail = 0
    args.apart = 0
    inner = kept if strided else reduced
    if (work.in_size > 4 or inner.count == 0 or inner.strides[0][0] != 1
            or not is_aligned(work.data)
            or not stays_aligned(kept, 1 if strided else 0, vector_size)
            or not stays_aligned(reduced, 0 if strided else 1, vector_size)
            or not stays_aligned(&work.outer, 0, vector_size)):
        return
    first = inner.size[0]
    if first < vector_size or (
            first % vector_size and (strided or reduced.count + work.outer.count > 1)):
        return
    if strided:
        args.loads = LOADS_VECTORS_OF_KEPT
        args.unit_bits = bits_for(vector_size)
        args.apart = kept.strides[0][1]
        kept.strides[0][1] *= vector_size
    else:
        args.loads = LOADS_VECTORS_OF_REDUCED
        args.tail = <int32_t>(first % vector_size)
    inner.size[0] = first // vector_size
    inner.strides[0][0] = vector_size


cdef bint stays_aligned(const dim_list *dims, int first, int64_t vector_size) noexcept nogil:
    """True if vectors stay aligned in the dims from ``first`` on."""
    cdef int d
    for d in range(first, dims.count):
        if dims.strides[d][0] % vector_size:
            return False
    return True


cdef void choose_groups(pb_reduction *args, int most, int64_t threads) noexcept nogil:
    """Divide threads into groups: at most 2^most threads a block, `threads` on the device."""
    cdef int thread_bits = 0, group_bits
    if args.strided:
        # First as many neighbours as a warp; then more threads a group while threads are idle.
        group_bits = min(bits_for(args.units), WARP)
        while (thread_bits + group_bits < most and args.units << thread_bits < threads
                and args.length >> thread_bits >= 4):
            thread_bits += 1
    else:
        while thread_bits < WARP and args.length >> thread_bits >= 4:
            thread_bits += 1
        if args.length >= 2048:
            thread_bits = most
        while (thread_bits < most and args.units << thread_bits < threads
                and args.length >> thread_bits >= 4):
            thread_bits += 1
        group_bits = 0
    group_bits = choose_group_bits(args.units, thread_bits, most)
    args.thread_bits = thread_bits
    args.group_bits = group_bits


cdef int64_t choose_chunks(pb_reduction *args, int64_t blocks) noexcept nogil:
    """Split long units where there are fewer than so many blocks; return the number of chunks."""
    cdef int64_t groups = (args.units + (1 << args.group_bits) - 1) >> args.group_bits
    cdef int64_t chunks = 1, step = <int64_t>4 << args.thread_bits
    if groups < blocks // 2:
        chunks = max(min(blocks // groups, args.length // (4 * step), <int64_t>CHUNKS), 1)
    chunks = max(chunks, (args.length + MOST_NUMBERED - 1) // MOST_NUMBERED)
    args.chunk = (args.length + chunks - 1) // chunks
    args.chunk = max((args.chunk + step - 1) // step * step, step)
    return max((args.length + args.chunk - 1) // args.chunk, 1)


cdef int start_kernel(reduction *work, pb_reduction *args, int64_t chunks) noexcept nogil:
    cdef int64_t groups = (args.units + (1 << args.group_bits) - 1) >> args.group_bits
    cdef int threads = 1 << (args.thread_bits + args.group_bits)
    cdef size_t held = <size_t>threads * work.op.size
    if args.strided and not args.merges:
        held <<= args.unit_bits
    return launch_grid(work.call, work.op.kernel, args, sizeof(pb_reduction), groups, <int>chunks,
                       1, threads, held)


cdef int reduce_some(reduction *work) noexcept nogil:
    """Reduce to outputs that one or two launches can compute."""
    cdef pb_reduction args
    cdef int64_t busy = <int64_t>sm_count(work.call) * FULL
    cdef int64_t chunks, outputs, part, count = count_positions(&work.outer)
    cdef int64_t inner = count_positions(&work.reduced)
    cdef size_t nbytes
    cdef int most = BLOCK, code = PB_OK
    memset(&args, 0, sizeof(args))
    args.total = count * inner
    args.mask = work.op.mask
    args.truth = work.op.truth
    args.squares = work.op.squares
    args.out = work.out
    args.second = work.out + work.second
    outputs = count_positions(&work.kept)
    choose_loads(work, &args)
    args.units = outputs >> args.unit_bits
    args.length = count_positions(&work.reduced)
    args.kept_ndim = describe_dims(&work.kept, args.kept)
    args.reduced_ndim = describe_dims(&work.reduced, args.reduced)
    while args.strided and (work.op.size << (most + args.unit_bits)) > SHARED:
        most -= 1
    choose_groups(&args, most, busy)
    chunks = choose_chunks(&args, busy >> BLOCK)
    if count * chunks == 1:
        args.in_ = work.data
        return start_kernel(work, &args, 1)
    nbytes = count * chunks * outputs * work.op.size
    code = workspace_alloc(work.call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    for part in range(count):
        args.in_ = work.data + outer_offset(&work.outer, part) * work.in_size
        args.first_chunk = part * chunks
        args.first_number = part * inner
        code = start_kernel(work, &args, chunks)
        if code != PB_OK:
            break
    if code == PB_OK:
        args.merges = 1
        args.strided = 1
        args.units = outputs
        args.length = count * chunks
        choose_groups(&args, BLOCK, busy)
        code = start_kernel(work, &args, 1)
    workspace_free(work.call, args.partial, nbytes)
    return code


cdef int64_t outer_offset(const dim_list *dims, int64_t number) noexcept nogil:
    cdef int64_t offset = 0
    cdef int d
    for d in range(dims.count):
        offset += number % dims.size[d] * dims.strides[d][0]
        number //= dims.size[d]
    return offset


cdef int reduce_all(reduction *work) noexcept nogil:
    """Reduce, in several launches where there are too many outputs or dims for one."""
    cdef dim_list *kept = &work.kept
    cdef int outer = kept.count - 1, code
    cdef int64_t first, size, part
    cdef dim_list all_kept, all_reduced
    cdef char *data = work.data
    cdef char *out = work.out
    if outer < REDUCTION_DIMS and count_positions(kept) <= MOST_NUMBERED:
        all_kept = kept[0]
        all_reduced = work.reduced
        code = reduce_some(work)
        kept[0] = all_kept
        work.reduced = all_reduced
        return code
    # Parts of the outermost dim: single positions where there are too many dims.
    size = kept.size[outer]
    part = 1 if outer >= REDUCTION_DIMS else max(
        MOST_NUMBERED // (count_positions(kept) // size), <int64_t>1)
    first = 0
    code = PB_OK
    while first < size and code == PB_OK:
        kept.size[outer] = min(part, size - first)
        kept.count = outer if kept.size[outer] == 1 else outer + 1
        work.data = data + first * kept.strides[outer][0] * work.in_size
        work.out = out + first * kept.strides[outer][1] * work.out_size
        code = reduce_all(work)
        first += part
    kept.count = outer + 1
    kept.size[outer] = size
    work.data = data
    work.out = out
    return code


# ---- calls ---------------------------------------------------------------------------------------

cdef int run_reduction(pb_call *call, const operation *op) noexcept nogil:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef reduction work
    cdef int d
    cdef bint is_empty = False
    if op.kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    work.call = call
    work.op = op
    work.data = <char *>source.data
    work.out = <char *>out.data
    work.second = <char *>call.out[1].data - work.out if call.nout > 1 else 0
    work.in_size = item_sizes[source.dtype]
    work.out_size = item_sizes[out.dtype]
    start_dims(&work.kept, 2)
    start_dims(&work.reduced, 1)
    start_dims(&work.outer, 1)
    for d in range(source.ndim - 1, -1, -1):
        if out.shape[d] == 0:
            return PB_OK
        if source.shape[d] == 0:
            is_empty = True
        if out.shape[d] == 1:
            append_dim(&work.reduced, source.shape[d], source.strides[d], 0, 0)
        else:
            append_dim(&work.kept, out.shape[d], source.strides[d], out.strides[d], 0)
    sort_dims(&work.kept, 0)
    coalesce_dims(&work.kept)
    if is_empty:
        if op.is_ordered:
            return fail(call, PB_E_VALUE, b"an empty range has no extreme element")
        work.reduced.count = 1
        work.reduced.size[0] = work.reduced.strides[0][0] = 0
        return reduce_all(&work)
    if not op.is_ordered:
        sort_dims(&work.reduced, 0)
    coalesce_dims(&work.reduced)
    while work.reduced.count > REDUCTION_DIMS or (
            work.reduced.count > 1 and count_positions(&work.reduced) > MOST_NUMBERED):
        work.reduced.count -= 1
        d = work.reduced.count
        # In front of the others, which are further out.
        prepend_dim(&work.outer, work.reduced.size[d], work.reduced.strides[d][0])
    return reduce_all(&work)


cdef void prepend_dim(dim_list *dims, int64_t size, int64_t stride) noexcept nogil:
    """Add a dim as the innermost one."""
    cdef int d
    for d in range(dims.count, 0, -1):
        dims.size[d] = dims.size[d - 1]
        dims.strides[d][0] = dims.strides[d - 1][0]
    dims.size[0] = size
    dims.strides[0][0] = stride
    dims.count += 1


# ---- operations ----------------------------------------------------------------------------------

cdef enum:
    SUM
    PROD
    NANSUM
    SUM_SQUARES
    MOMENTS
    COUNT_NONZERO
    ANY
    ALL
    AMAX
    AMIN
    ARGMAX
    ARGMIN
    OPERATIONS

cdef operation operations[OPERATIONS][PB_NUM_DTYPES]


cdef operation *set_operation(int which, int code, str family, str kernel, int size) except NULL:
    cdef operation *op = &operations[which][code]
    op.kernel = kernel_named(family, kernel)
    op.size = size
    return op


def _set_sums():
    cdef int code, size
    for code in range(PB_I64, <int>len(DTYPES)):
        size = item_sizes[code]
        name = DTYPES[code]
        set_operation(SUM, code, "reduce", f"sum_{name}", 16 if code >= PB_C64 else 8)
        set_operation(PROD, code, "reduce", f"prod_{name}", max(size, 4))
        if PB_F16 <= code <= PB_F64:
            set_operation(NANSUM, code, "reduce", f"special_sum_{name}", 8)
        if PB_F32 <= code <= PB_F64:
            set_operation(SUM_SQUARES, code, "reduce", f"special_sum_{name}", 8).squares = True
            set_operation(MOMENTS, code, "reduce", f"moments_{name}", 24)


def _set_counts():
    cdef int code, size, which
    cdef operation *op
    cdef uint64_t mask
    for code in range(<int>len(DTYPES)):
        size = item_sizes[code]
        # The signs of floating-point numbers do not count: there are zeros of both.
        mask = <uint64_t>-1
        if PB_F16 <= code <= PB_F64:
            mask = (<uint64_t>1 << (8 * size - 1)) - 1
        elif code == PB_C64:
            mask = 0x7FFFFFFF7FFFFFFFu
        elif code == PB_C128:
            mask = 0x7FFFFFFFFFFFFFFFu
        for which in range(COUNT_NONZERO, ALL + 1):
            op = set_operation(which, code, "reduce", f"nonzeros_{size}", 8)
            op.mask = mask
            op.truth = (TRUTH_COUNT if which == COUNT_NONZERO else
                        TRUTH_ANY if which == ANY else TRUTH_ALL)


def _set_minmax():
    cdef int code, size, which
    cdef operation *op
    cdef uint64_t turned
    for code in range(PB_C64):
        size = item_sizes[code]
        kind = "u8" if size == 1 else DTYPES[code]
        # Inverting all bits reverses the order of integers, inverting the sign bit that of
        # floating-point numbers, and inverting the only bit that of bool.
        turned = <uint64_t>-1
        if code == PB_BOOL:
            turned = 1
        elif code >= PB_F16:
            turned = <uint64_t>1 << (8 * size - 1)
        for which in range(AMAX, ARGMIN + 1):
            if which <= AMIN:
                op = set_operation(which, code, "argminmax", f"minmax_{kind}", max(size, 4))
            else:
                op = set_operation(which, code, "argminmax", f"argminmax_{kind}", 16)
                op.is_ordered = True
            # Signed bytes are compared as unsigned ones.
            op.mask = 0x80 if code == PB_I8 else 0
            if which == AMIN or which == ARGMIN:
                op.mask ^= turned


_set_sums()
_set_counts()
_set_minmax()


cdef int kernel_sum(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[SUM][call.in_[0].dtype])


cdef int kernel_prod(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[PROD][call.in_[0].dtype])


cdef int kernel_nansum(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[NANSUM][call.in_[0].dtype])


cdef int kernel_sum_squares(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[SUM_SQUARES][call.in_[0].dtype])


cdef int kernel_moments(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[MOMENTS][call.in_[0].dtype])


cdef int kernel_count_nonzero(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[COUNT_NONZERO][call.in_[0].dtype])


cdef int kernel_any(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[ANY][call.in_[0].dtype])


cdef int kernel_all(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[ALL][call.in_[0].dtype])


cdef int kernel_amax(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[AMAX][call.in_[0].dtype])


cdef int kernel_amin(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[AMIN][call.in_[0].dtype])


cdef int kernel_argmax(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[ARGMAX][call.in_[0].dtype])


cdef int kernel_argmin(pb_call *call) noexcept nogil:
    return run_reduction(call, &operations[ARGMIN][call.in_[0].dtype])


cdef int SUMMED = 1 << PB_I64 | PB_MASK_FLOATING | PB_MASK_COMPLEX
cdef int WIDE = 1 << PB_F32 | 1 << PB_F64
cdef int ORDERED = PB_MASK_ALL & ~PB_MASK_COMPLEX

KERNELS = {
    "sum": new_kernel(SUMMED, kernel_sum),
    "prod": new_kernel(SUMMED, kernel_prod),
    "nansum": new_kernel(PB_MASK_FLOATING, kernel_nansum),
    "sum_squares": new_kernel(WIDE, kernel_sum_squares),
    "moments": new_kernel(WIDE, kernel_moments),
    "count_nonzero": new_kernel(PB_MASK_ALL, kernel_count_nonzero),
    "any": new_kernel(PB_MASK_ALL, kernel_any),
    "all": new_kernel(PB_MASK_ALL, kernel_all),
    "amax": new_kernel(ORDERED, kernel_amax),
    "amin": new_kernel(ORDERED, kernel_amin),
    "argmax": new_kernel(ORDERED, kernel_argmax),
    "argmin": new_kernel(ORDERED, kernel_argmin),
}

# The driver of reductions: it brings elements to their accumulators.
#
# Dimensions are those that stay and those that are reduced. Either one accumulator takes in a
# run of elements at a time, or, where the elements of different outputs are closer together, a
# row of accumulators takes in rows of elements. Threads share the outputs; where these are few, the
# elements are cut into blocks, whose bounds do not depend on the threads.
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.kernels.common.strided_loop cimport *
from pullback_cpu.kernels.common.reduction_driver cimport *
from pullback_cpu.runtime.threads cimport SPAN, parallel_for, stopping, thread_count

cdef enum:
    SHORT = 8
    LONG = 65536  # elements from which on threads share a call
    FEW = 32  # outputs below which the elements are cut into blocks
    BLOCKS = 64  # at most


# Operands of both loops: 0 is the output, 1 the input. There is a dimension of each kind.
ctypedef struct reduction:
    const reducer *steps
    strided_loop kept
    strided_loop reduced
    int64_t in_size
    int64_t out_size
    int64_t apart     # bytes from an output to a second one, whose strides are the same
    bint is_empty
    bint as_rows
    int64_t chunk     # outputs of the first kept dimension that are made together
    int64_t chunks    # of those in the first kept dimension
    int64_t block     # indices of the last reduced dimension that are reduced together
    char *blocks      # accumulators of the blocks
    char *data[LOOP_OPERANDS]


cdef int run_reduction(pb_call *call, const reducer *steps) noexcept nogil:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef reduction work
    cdef double accumulator[WORDS]
    if unlikely(steps.fold == NULL):
        return fail_dtype(call)
    work.apart = <char *>call.out[1].data - <char *>out.data if call.nout > 1 else 0
    if source.ndim == 1 and out.shape[0] == 1 and source.shape[0] < LONG:
        steps.start(<char *>accumulator, 1)
        if source.shape[0]:
            steps.fold(<const char *>source.data, source.shape[0], source.strides[0],
                       <char *>accumulator)
        steps.finish(<const char *>accumulator, 1, <char *>out.data, 1, work.apart)
        return PB_OK
    work.steps = steps
    if not split_dimensions(&work, source, out):
        return PB_OK
    if work.is_empty:
        fill_identity(&work)
        return PB_OK
    work.as_rows = prefers_rows(&work)
    share_work(&work)
    return PB_OK


cdef bint split_dimensions(reduction *work, pb_array *source, pb_array *out) noexcept nogil:
    """Sort the dimensions into kept and reduced ones; false if the output has no element."""
    cdef int d
    init_dims(&work.kept, 2)
    init_dims(&work.reduced, 2)
    work.data[0] = <char *>out.data
    work.data[1] = <char *>source.data
    work.in_size = item_size(source.dtype)
    work.out_size = item_size(out.dtype)
    work.is_empty = False
    for d in range(source.ndim - 1, -1, -1):
        if out.shape[d] == 0:
            return False
        if source.shape[d] == 0:
            work.is_empty = True
        if out.shape[d] == 1:
            add_dimension(&work.reduced, source.shape[d], 0, step_of(source, d), 0, 0)
        else:
            add_dimension(&work.kept, out.shape[d], step_of(out, d), step_of(source, d), 0, 0)
    keep_one(&work.reduced, work.in_size)
    keep_one(&work.kept, work.in_size)
    sort_dimensions(&work.kept, 1)
    merge_dimensions(&work.kept)
    sort_dimensions(&work.reduced, 1)
    merge_dimensions(&work.reduced)
    return True


cdef void keep_one(strided_loop *dims, int64_t step) noexcept nogil:
    """Give a dims without a dimension one of length 1."""
    if dims.ndim == 0:
        dims.shape[0] = 1
        dims.steps[0][0] = 0
        dims.steps[0][1] = step
        dims.ndim = 1


cdef bint prefers_rows(reduction *work) noexcept nogil:
    cdef strided_loop *kept = &work.kept
    cdef strided_loop *reduced = &work.reduced
    if kept.shape[0] < SHORT:
        return False
    if reduced.ndim == 1 and reduced.shape[0] <= SHORT:
        return True
    return magnitude(kept.steps[0][1]) < magnitude(reduced.steps[0][1])


cdef void fill_identity(reduction *work) noexcept nogil:
    cdef double accumulator[WORDS]
    cdef int64_t position[PB_MAX_NDIM]
    cdef int64_t done = 0
    work.steps.start(<char *>accumulator, 1)
    start_position(&work.kept, position)
    while True:
        work.steps.finish(<const char *>accumulator, 1, work.data[0], 1, work.apart)
        done += 1
        if done & (SPAN - 1) == 0 and stopping():
            return
        if not advance(&work.kept, 0, position, work.data):
            return


cdef int64_t count_positions(strided_loop *dims) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(dims.ndim):
        count *= dims.shape[d]
    return count


cdef void share_work(reduction *work) noexcept nogil:
    cdef int64_t outputs = count_positions(&work.kept)
    cdef int64_t inputs = count_positions(&work.reduced)
    cdef int64_t units
    work.chunk = min(<int64_t>ACCUMULATORS, work.kept.shape[0])
    if outputs * inputs < LONG:
        reduce_outputs(work, 0, set_chunk(work, work.chunk))
    elif outputs < FEW and inputs >= 2 * LONG and reduce_blocks(work, outputs, inputs):
        return
    else:
        # As many chunks as there are threads need a few times over.
        units = outputs // (8 * thread_count())
        work.chunk = max(min(work.chunk, units // 64 * 64), min(work.chunk, <int64_t>64))
        units = set_chunk(work, work.chunk)
        parallel_for(units, LONG // 2 // (work.chunk * inputs) + 1, reduce_outputs, work)


cdef int64_t set_chunk(reduction *work, int64_t chunk) noexcept nogil:
    """Set how many outputs are made together; return the number of such groups."""
    work.chunks = (work.kept.shape[0] + chunk - 1) // chunk
    return count_positions(&work.kept) // work.kept.shape[0] * work.chunks


cdef void reduce_outputs(void *context, int64_t first, int64_t last) noexcept nogil:
    """Make the chunks of outputs from ``first`` up to ``last``."""
    cdef reduction *work = <reduction *>context
    cdef strided_loop *kept = &work.kept
    cdef double accumulators[ACCUMULATORS * WORDS]
    cdef int64_t unit, start, n
    cdef char *data[LOOP_OPERANDS]
    for unit in range(first, last):
        start = unit % work.chunks * work.chunk
        n = min(work.chunk, kept.shape[0] - start)
        data[0] = work.data[0] + start * kept.steps[0][0]
        data[1] = work.data[1] + start * kept.steps[0][1]
        move_to(kept, 1, unit // work.chunks, data)
        work.steps.start(<char *>accumulators, n)
        accumulate(work, &work.reduced, data[1], n, <char *>accumulators)
        work.steps.finish(<const char *>accumulators, n, data[0],
                          kept.steps[0][0] // work.out_size, work.apart)


cdef void accumulate(
        reduction *work, strided_loop *reduced, char *data, int64_t n,
        char *accumulators) noexcept nogil:
    """Take in all elements of ``n`` neighbouring outputs."""
    cdef const reducer *steps = work.steps
    cdef int64_t position[PB_MAX_NDIM]
    cdef char *pointers[LOOP_OPERANDS]
    cdef int64_t k, length = reduced.shape[0], kept_step = work.kept.steps[0][1], done = 0
    cdef int64_t stride = reduced.steps[0][1] // work.in_size
    start_position(reduced, position)
    pointers[0] = NULL
    pointers[1] = data
    while True:
        if work.as_rows:
            fold_some_rows(work, pointers[1], n, length, stride, accumulators)
            done += n * length
        else:
            for k in range(n):
                fold_halves(steps, pointers[1] + k * kept_step, length, stride, work.in_size,
                            accumulators + k * steps.size)
                done += length
                if done >= SPAN:
                    done = 0
                    if stopping():
                        return
        if reduced.ndim == 1 or not advance(reduced, 1, position, pointers):
            return
        if done >= SPAN:
            done = 0
            if stopping():
                return


cdef void fold_some_rows(
        reduction *work, char *data, int64_t n, int64_t length, int64_t stride,
        char *accumulators) noexcept nogil:
    """Take in rows, as many at a time as take a moment; a multiple of eight gives the same bits."""
    cdef int64_t some = (SPAN // n + 7) & -8, first = 0
    while first < length and not (first and stopping()):
        work.steps.fold_rows(
            data + first * stride * work.in_size, n, work.kept.steps[0][1] // work.in_size,
            min(some, length - first), stride, accumulators)
        first += some


cdef void fold_halves(
        const reducer *steps, const char *data, int64_t length, int64_t stride, int64_t in_size,
        char *accumulator) noexcept nogil:
    """Split a run again and again, as sums of float64 do, until its parts take a moment each."""
    cdef double half[WORDS]
    cdef int64_t middle
    if length <= 2 * SPAN:
        steps.fold(data, length, stride, accumulator)
        return
    middle = (length // 2 + 1023) // 1024 * 1024
    fold_halves(steps, data, middle, stride, in_size, accumulator)
    if stopping():
        return
    steps.start(<char *>half, 1)
    fold_halves(steps, data + middle * stride * in_size, length - middle, stride, in_size,
                <char *>half)
    steps.merge(accumulator, <char *>half, 1)


# -- few outputs of many elements -----------------------------------------------------------------

cdef bint reduce_blocks(reduction *work, int64_t outputs, int64_t inputs) noexcept nogil:
    """Reduce blocks of the last reduced dimension, then these in pairs; false if it is short."""
    cdef double blocks[BLOCKS * FEW * WORDS]
    cdef int64_t length = work.reduced.shape[work.reduced.ndim - 1]
    cdef int64_t count, k, apart = 1, width = outputs * work.steps.size
    cdef int64_t position[PB_MAX_NDIM]
    cdef char *row = <char *>blocks
    if length < BLOCKS:
        return False
    work.block = max((length + BLOCKS - 1) // BLOCKS, LONG * length // (inputs * outputs))
    count = (length + work.block - 1) // work.block
    work.blocks = <char *>blocks
    parallel_for(count, 1, reduce_some_blocks, work)
    while apart < count:
        for k from 0 <= k < count - apart by 2 * apart:
            work.steps.merge(row + k * width, row + (k + apart) * width, outputs)
        apart *= 2
    start_position(&work.kept, position)
    while True:
        work.steps.finish(row, work.kept.shape[0], work.data[0],
                          work.kept.steps[0][0] // work.out_size, work.apart)
        row += work.kept.shape[0] * work.steps.size
        if not advance(&work.kept, 1, position, work.data):
            return True


cdef void reduce_some_blocks(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef reduction *work = <reduction *>context
    cdef strided_loop reduced = work.reduced
    cdef int64_t position[PB_MAX_NDIM]
    cdef char *data[LOOP_OPERANDS]
    cdef int64_t outputs = count_positions(&work.kept), n = work.kept.shape[0]
    cdef int64_t block, length
    cdef int outer = reduced.ndim - 1
    cdef char *row
    length = reduced.shape[outer]
    start_position(&work.kept, position)
    for block in range(first, last):
        row = work.blocks + block * outputs * work.steps.size
        work.steps.start(row, outputs)
        reduced.shape[outer] = min(work.block, length - block * work.block)
        data[0] = work.data[0]
        data[1] = work.data[1] + block * work.block * reduced.steps[outer][1]
        while True:
            accumulate(work, &reduced, data[1], n, row)
            row += n * work.steps.size
            if not advance(&work.kept, 1, position, data):
                break

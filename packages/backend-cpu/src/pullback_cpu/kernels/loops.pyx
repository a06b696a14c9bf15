# Elementwise calls whose operands need more than one loop.
#
# Dimensions are put in the order of the output's strides and merged where every operand allows
# it. If an input runs across the output's rows (it is transposed), rows are cut into tiles: the
# cache lines of that input then serve several rows before they leave the cache. Threads share rows,
# or, where there are few, parts of all rows.
from pullback_cpu.kernels.common cimport item_shift
from pullback_cpu.kernels.loops cimport *
from pullback_cpu.kernels.nest cimport *
from pullback_cpu.threads cimport parallel_for, thread_count

cdef enum:
    CACHE_LINE = 64  # bytes
    TILE = 128  # elements of a row
    GRAIN = 32768  # elements that are worth a thread's while


# One call: where the operands begin and the bits by which a step in elements becomes bytes.
ctypedef struct operand_list:
    char *data[NEST_OPERANDS]
    int shift[NEST_OPERANDS]


# What the threads that share a call need to know. Whoever meets an error writes it down.
ctypedef struct shared_call:
    inner_loop loop
    operand_list *operands
    nested_loop *nest       # NULL: one loop
    const int64_t *strides  # of one loop
    int count               # of the operands of one loop
    bint tiled
    int error


# -- one loop -------------------------------------------------------------------------------------

cdef void run_part(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef shared_call *work = <shared_call *>context
    cdef char *data[NEST_OPERANDS]
    cdef int k, error
    for k in range(work.count):
        data[k] = work.operands.data[k] + (
            (first * work.strides[k]) << work.operands.shift[k])
    error = work.loop(data, work.strides, last - first)
    if error:
        work.error = error


cdef int run_long(
        pb_call *call, inner_loop loop, int nin, char **data, const int64_t *strides,
        int64_t n) noexcept nogil:
    """Run one loop that is worth several threads."""
    cdef operand_list operands
    cdef shared_call work
    cdef int k
    if thread_count() == 1:
        return loop(data, strides, n)
    for k in range(nin + 1):
        operands.data[k] = data[k]
        operands.shift[k] = item_shift[(call.in_[k - 1] if k else call.out[0]).dtype]
    work.loop = loop
    work.operands = &operands
    work.nest = NULL
    work.strides = strides
    work.count = nin + 1
    work.error = PB_OK
    parallel_for(n, GRAIN, run_part, &work)
    return work.error


# -- loops over several dimensions ----------------------------------------------------------------

cdef int run_nested(pb_call *call, inner_loop loop, int nin) noexcept nogil:
    cdef nested_loop nest
    cdef operand_list operands
    cdef shared_call work
    cdef int64_t rows = 1
    cdef int d
    if not fill_nest(&nest, &operands, call, nin):
        return PB_OK
    sort_dimensions(&nest, 0)
    merge_dimensions(&nest)
    work.loop = loop
    work.operands = &operands
    work.nest = &nest
    work.tiled = find_transposed(&nest)
    work.error = PB_OK
    for d in range(1, nest.ndim):
        rows *= nest.shape[d]
    if rows * nest.shape[0] < LONG or thread_count() == 1:
        run_rows(&work, 0, rows)
    elif rows >= 16 * thread_count():
        parallel_for(rows, GRAIN // nest.shape[0] + 1, run_rows, &work)
    else:
        parallel_for(nest.shape[0], max(GRAIN // rows // TILE, 1) * TILE, run_columns, &work)
    return work.error


cdef void run_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    """Run the inner loop over some of the rows."""
    cdef shared_call *work = <shared_call *>context
    cdef int64_t length = work.nest.shape[0], start = 0
    if not work.tiled:
        walk_nest(work, 0, length, first, last - first)
        return
    while start < length:
        walk_nest(work, start, min(<int64_t>TILE, length - start), first, last - first)
        start += TILE


cdef void run_columns(void *context, int64_t first, int64_t last) noexcept nogil:
    """Run the inner loop over a part of every row."""
    cdef shared_call *work = <shared_call *>context
    cdef int64_t step = TILE if work.tiled else last - first
    while first < last:
        walk_nest(work, first, min(step, last - first), 0, -1)
        first += step


cdef bint fill_nest(
        nested_loop *nest, operand_list *operands, pb_call *call, int nin) noexcept nogil:
    """Describe the call's loops; false if there is no element."""
    cdef pb_array *array = call.out[0]
    cdef pb_array *arrays[NEST_OPERANDS]
    cdef int64_t steps[NEST_OPERANDS]
    cdef int d, k
    start_nest(nest, nin + 1)
    for k in range(nin + 1):
        arrays[k] = call.in_[k - 1] if k else array
        operands.data[k] = <char *>arrays[k].data
        operands.shift[k] = item_shift[arrays[k].dtype]
    for d in range(array.ndim - 1, -1, -1):
        if array.shape[d] == 0:
            return False
        for k in range(NEST_OPERANDS):
            steps[k] = step_of(arrays[k], d) if k <= nin else 0
        add_dimension(nest, array.shape[d], steps[0], steps[1], steps[2], steps[3])
    if nest.ndim == 0:
        nest.ndim = 1
        nest.shape[0] = 1
        for k in range(nin + 1):
            nest.steps[0][k] = <int64_t>1 << operands.shift[k]
    return True


cdef bint find_transposed(nested_loop *nest) noexcept nogil:
    """Say whether tiles pay off, and put the transposed input's fast dimension next."""
    cdef int d, k, best
    if nest.ndim < 2 or nest.shape[0] <= TILE:
        return False
    for k in range(1, nest.operands):
        if magnitude(nest.steps[0][k]) < CACHE_LINE:
            continue
        best = 0
        for d in range(1, nest.ndim):
            if nest.steps[d][k] and magnitude(nest.steps[d][k]) < magnitude(nest.steps[best][k]):
                best = d
        if best and magnitude(nest.steps[best][k]) < CACHE_LINE:
            swap_dimensions(nest, 1, best)
            return True
    return False


cdef void walk_nest(
        shared_call *work, int64_t start, int64_t n, int64_t row, int64_t rows) noexcept nogil:
    """Run the inner loop over elements ``start`` to ``start + n`` of rows from ``row`` on.

    A negative number of rows stands for all that follow.
    """
    cdef nested_loop *nest = work.nest
    cdef int64_t position[PB_MAX_NDIM]
    cdef int64_t strides[NEST_OPERANDS]
    cdef char *data[NEST_OPERANDS]
    cdef int d, k, error
    start_position(nest, position)
    for k in range(nest.operands):
        data[k] = work.operands.data[k] + start * nest.steps[0][k]
        strides[k] = nest.steps[0][k] >> work.operands.shift[k]
    for d in range(1, nest.ndim):
        if row == 0:
            break
        position[d] = row % nest.shape[d]
        row //= nest.shape[d]
        for k in range(nest.operands):
            data[k] += position[d] * nest.steps[d][k]
    while True:
        error = work.loop(data, strides, n)
        if error:
            work.error = error
            return
        rows -= 1
        if rows == 0 or not advance(nest, 1, position, data):
            return

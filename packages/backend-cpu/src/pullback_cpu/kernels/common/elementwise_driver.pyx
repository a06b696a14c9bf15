# Elementwise calls that are large, or whose operands need more than one loop.
#
# Dimensions are put in the order of the output's strides and merged where every operand allows it.
# Rows of strided operands pass through buffers, so that the inner loops get contiguous elements
# and run on whole vectors. If an input runs across the output's rows (it is transposed), rows are
# cut into strips, and blocks of that input are transposed into a buffer. Threads share what there
# is much of: rows, strips, or parts of all rows.
from cpython.pycapsule cimport PyCapsule_GetPointer

from pullback_cpu.kernels.common.kernel cimport item_shift
from pullback_cpu.kernels.common.elementwise_driver cimport *
from pullback_cpu.kernels.common.strided_loop cimport *
from pullback_cpu.kernels.common.strided cimport strided_table
from pullback_cpu.runtime.threads cimport SPAN, parallel_for, stopping, thread_count

from pullback_cpu.runtime.isa import load_for_isa

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define pb_prefetch(address) __builtin_prefetch(address)
    #else
    #define pb_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "pb_prefetch"(const void *address) noexcept nogil

cdef enum:
    CACHE_LINE = 64     # bytes
    STRIP = 128         # elements of a row
    BLOCK = 16          # rows and columns from which a transposition pays
    BUFFER = 16384      # bytes of an operand's part of a strip
    CHUNK = 256         # elements of a strided row that are buffered at a time
    BUFFERED = 1 << 12  # elements of it between two polls for an interrupt
    WIDEST = 16         # bytes of an element
    WORTH_BUFFER = 64   # elements of a row
    LONG_ROW = 4096     # elements of a row that is no pause for the processor
    LONG = 65536        # elements from which on several threads share a call
    GRAIN = 32768       # elements per thread, at least
    LARGE = 1 << 23     # bytes of an output that does not fit into a cache
    PAGE = 4096         # bytes
    TOUCHED = PAGE << 12        # bytes of pages that may all be new

cdef const strided_table *strided = <const strided_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.kernels.common.strided").TABLE, b"pb_strided")


# One call, shared by its threads. A thread that finds an error stores it here.
ctypedef struct elementwise:
    inner_loop loop
    bint moves                       # the loop only moves elements; any stride is good for it
    strided_loop dims
    char *data[LOOP_OPERANDS]        # where the operands begin
    int shift[LOOP_OPERANDS]         # by how many bits a step in elements is less than in bytes
    int64_t strides[LOOP_OPERANDS]   # along a row, in elements
    bint buffered[LOOP_OPERANDS]     # a row of this operand passes through a buffer
    bint buffers                     # any does
    bint crosses[LOOP_OPERANDS]      # this operand is transposed
    int64_t rows                     # or, of a tiled call, strips
    bint large                       # a tiled call's output is
    int64_t span                     # elements of a row between two polls
    int error


cdef int run_line(
        pb_call *call, inner_loop loop, int nin, bint moves, char **data,
        const int64_t *strides, int64_t n) noexcept nogil:
    """Run one loop that is not short."""
    cdef elementwise work
    cdef int k
    init_dims(&work.dims, nin + 1)
    for k in range(nin + 1):
        work.data[k] = data[k]
        work.shift[k] = item_shift[(call.in_[k - 1] if k else call.out[0]).dtype]
        work.dims.steps[0][k] = strides[k] << work.shift[k]
    work.dims.ndim = 1
    work.dims.shape[0] = n
    start_work(&work, loop, moves)
    if n < LONG:
        run_columns(&work, 0, n)
    else:
        parallel_for(n, GRAIN, run_columns, &work)
    return work.error


cdef int run_strided(pb_call *call, inner_loop loop, int nin, bint moves) noexcept nogil:
    """Run a call of several dimensions."""
    cdef elementwise work
    cdef strided_loop *dims = &work.dims
    cdef int64_t elements
    cdef int d
    if not fill_dims(&work, call, nin):
        return PB_OK
    sort_dimensions(dims, 0)
    merge_dimensions(dims)
    if find_transposed(&work):
        start_work(&work, loop, moves)
        run_tiled(&work)
        return work.error
    start_work(&work, loop, moves)
    work.rows = 1
    for d in range(1, dims.ndim):
        work.rows *= dims.shape[d]
    elements = work.rows * dims.shape[0]
    if elements < LONG:
        run_rows(&work, 0, work.rows)
    elif work.rows >= 16 * thread_count():
        parallel_for(work.rows, GRAIN // dims.shape[0] + 1, run_rows, &work)
    else:
        parallel_for(dims.shape[0], max(GRAIN // work.rows, CHUNK), run_columns, &work)
    return work.error


cdef void start_work(elementwise *work, inner_loop loop, bint moves) noexcept nogil:
    """Settle what is the same for every row."""
    cdef strided_loop *dims = &work.dims
    cdef int k
    work.loop = loop
    work.moves = moves
    work.error = PB_OK
    work.buffers = False
    work.span = SPAN
    for k in range(dims.operands):
        if magnitude(dims.steps[0][k]) > TOUCHED // SPAN:
            work.span = min(
                work.span, TOUCHED // min(magnitude(dims.steps[0][k]), <int64_t>PAGE))
        work.strides[k] = dims.steps[0][k] >> work.shift[k]
        work.buffered[k] = (
            not moves and dims.shape[0] >= WORTH_BUFFER and not 0 <= work.strides[k] <= 1)
        work.buffers = work.buffers or work.buffered[k]


cdef bint fill_dims(elementwise *work, pb_call *call, int nin) noexcept nogil:
    """Describe the call's loops; false if there is no element."""
    cdef strided_loop *dims = &work.dims
    cdef pb_array *array = call.out[0]
    cdef pb_array *arrays[LOOP_OPERANDS]
    cdef int64_t steps[LOOP_OPERANDS]
    cdef int d, k
    init_dims(dims, nin + 1)
    for k in range(nin + 1):
        arrays[k] = call.in_[k - 1] if k else array
        work.data[k] = <char *>arrays[k].data
        work.shift[k] = item_shift[arrays[k].dtype]
    for d in range(array.ndim - 1, -1, -1):
        if array.shape[d] == 0:
            return False
        for k in range(LOOP_OPERANDS):
            steps[k] = step_of(arrays[k], d) if k <= nin else 0
        add_dimension(dims, array.shape[d], steps[0], steps[1], steps[2], steps[3])
    if dims.ndim == 0:
        dims.ndim = 1
        dims.shape[0] = 1
        for k in range(nin + 1):
            dims.steps[0][k] = <int64_t>1 << work.shift[k]
    return True


# -- rows -----------------------------------------------------------------------------------------

cdef int run_row(elementwise *work, char **data, int64_t n) noexcept nogil:
    """Run the inner loop over ``n`` elements, strided ones by way of buffers."""
    cdef char buffers[LOOP_OPERANDS][CHUNK * WIDEST]
    cdef char *pointers[LOOP_OPERANDS]
    cdef int64_t strides[LOOP_OPERANDS]
    cdef int64_t start = 0, m
    cdef int k, error
    if not work.buffers:
        if n <= 2 * work.span:
            return work.loop(data, work.strides, n)
        return run_long_row(work, data, n)
    for k in range(work.dims.operands):
        strides[k] = 1 if work.buffered[k] else work.strides[k]
    while start < n:
        m = min(<int64_t>CHUNK, n - start)
        for k in range(work.dims.operands):
            pointers[k] = data[k] + start * work.dims.steps[0][k]
            if work.buffered[k]:
                if k:
                    strided.copy[work.shift[k]](buffers[k], 1, pointers[k], work.strides[k], m)
                pointers[k] = buffers[k]
        error = work.loop(pointers, strides, m)
        if error:
            return error
        if work.buffered[0]:
            strided.copy[work.shift[0]](
                data[0] + start * work.dims.steps[0][0], work.strides[0], buffers[0], 1, m)
        start += m
        if start % BUFFERED == 0 and stopping():
            break
    return PB_OK


cdef int run_long_row(elementwise *work, char **data, int64_t n) noexcept nogil:
    """Run the inner loop over ``n`` elements, some at a time."""
    cdef char *pointers[LOOP_OPERANDS]
    cdef int64_t start = 0
    cdef int k, error = PB_OK
    while start < n and error == PB_OK and not stopping():
        for k in range(work.dims.operands):
            pointers[k] = data[k] + start * work.dims.steps[0][k]
        error = work.loop(pointers, work.strides, min(work.span, n - start))
        start += work.span
    return error


cdef void run_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    """Run the inner loop over some of the rows."""
    walk_rows(<elementwise *>context, 0, (<elementwise *>context).dims.shape[0], first,
              last - first)


cdef void run_columns(void *context, int64_t first, int64_t last) noexcept nogil:
    """Run the inner loop over a part of every row."""
    walk_rows(<elementwise *>context, first, last - first, 0, -1)


cdef void walk_rows(
        elementwise *work, int64_t start, int64_t n, int64_t row, int64_t rows) noexcept nogil:
    """Run the inner loop over elements ``start`` to ``start + n`` of rows from ``row`` on.

    A negative number of rows stands for all that follow.
    """
    cdef strided_loop *dims = &work.dims
    cdef int64_t position[PB_MAX_NDIM]
    cdef char *data[LOOP_OPERANDS]
    cdef bint prefetches = dims.ndim > 1 and SHORT <= n <= LONG_ROW
    cdef int k, line, error
    for k in range(dims.operands):
        data[k] = work.data[k] + start * dims.steps[0][k]
    go_to(dims, 1, row, position, data)
    while True:
        if prefetches:      # a processor looks ahead within a loop, not beyond its end
            for k in range(dims.operands):
                for line in range(4):
                    prefetch(data[k] + dims.steps[1][k] + line * CACHE_LINE)
        error = run_row(work, data, n)
        if error:
            work.error = error
            return
        rows -= 1
        if rows == 0 or not advance(dims, 1, position, data):
            return


# -- strips of transposed operands ----------------------------------------------------------------

cdef bint find_transposed(elementwise *work) noexcept nogil:
    """Say whether an input is transposed, and put its fast dimension next."""
    cdef strided_loop *dims = &work.dims
    cdef bint found = False
    cdef int d, k, best
    if dims.ndim < 2 or dims.shape[0] < BLOCK:
        return False
    for k in range(1, dims.operands):
        work.crosses[k] = False
        if magnitude(dims.steps[0][k]) < CACHE_LINE:
            continue
        best = 0
        for d in range(1, dims.ndim):
            if dims.steps[d][k] and magnitude(dims.steps[d][k]) < magnitude(dims.steps[best][k]):
                best = d
        if (best and magnitude(dims.steps[best][k]) < CACHE_LINE and dims.shape[best] >= BLOCK
                and (best == 1 or not found)):
            swap_dimensions(dims, 1, best)
            work.crosses[k] = found = True
    return found


cdef void run_tiled(elementwise *work) noexcept nogil:
    """Run a call in strips of rows, all along the transposed inputs' fast dimension."""
    cdef strided_loop *dims = &work.dims
    cdef int64_t planes = 1
    cdef int d
    for d in range(2, dims.ndim):
        planes *= dims.shape[d]
    work.large = planes * dims.shape[0] * dims.shape[1] >= LARGE >> work.shift[0]
    work.rows = (dims.shape[0] + STRIP - 1) // STRIP
    parallel_for(planes * work.rows, GRAIN // (STRIP * dims.shape[1]) + 1, run_strips, work)


cdef void run_strips(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef elementwise *work = <elementwise *>context
    cdef strided_loop *dims = &work.dims
    cdef int64_t position[PB_MAX_NDIM]
    cdef char *data[LOOP_OPERANDS]
    cdef int64_t index, start
    cdef int k
    for index in range(first, last):
        start = index % work.rows * STRIP
        for k in range(dims.operands):
            data[k] = work.data[k] + start * dims.steps[0][k]
        go_to(dims, 2, index // work.rows, position, data)
        run_strip(work, data, min(<int64_t>STRIP, dims.shape[0] - start))


cdef void run_strip(elementwise *work, char **data, int64_t n) noexcept nogil:
    """Run the inner loop over ``n`` elements of all rows, some rows at a time."""
    cdef char buffers[LOOP_OPERANDS][BUFFER]
    cdef strided_loop *dims = &work.dims
    cdef char *row[LOOP_OPERANDS]
    cdef int64_t strides[LOOP_OPERANDS]
    cdef int64_t together = BUFFER // STRIP, first = 0, rows, i
    cdef int k, error
    if work.moves and work.strides[0] == 1 and work.crosses[1] and is_fast(work, 1):
        while first < dims.shape[1] and not (first and stopping()):
            rows = min(<int64_t>SPAN // STRIP, dims.shape[1] - first)
            strided.transpose[work.shift[0]](
                data[0] + first * dims.steps[1][0], dims.steps[1][0] >> work.shift[0],
                data[1] + first * dims.steps[1][1], work.strides[1], rows, n, work.large)
            first += rows
        return
    for k in range(dims.operands):
        strides[k] = work.strides[k]
        if k and work.crosses[k]:
            together = min(together, <int64_t>BUFFER // STRIP >> work.shift[k])
            strides[k] = 1
    while first < dims.shape[1] and not (first and stopping()):
        rows = min(together, dims.shape[1] - first)
        for k in range(1, dims.operands):
            if work.crosses[k]:
                fill_block(work, k, data[k] + first * dims.steps[1][k], buffers[k], rows, n)
        for i in range(rows):
            for k in range(dims.operands):
                row[k] = data[k] + (first + i) * dims.steps[1][k]
                if k and work.crosses[k]:
                    row[k] = buffers[k] + (i * n << work.shift[k])
            error = work.loop(row, strides, n)
            if error:
                work.error = error
                return
        first += rows


cdef inline bint is_fast(elementwise *work, int k) noexcept nogil:
    """Say whether an operand's elements are contiguous from row to row."""
    return work.dims.steps[1][k] == <int64_t>1 << work.shift[k]


cdef void fill_block(
        elementwise *work, int k, const char *data, char *buffer, int64_t rows,
        int64_t n) noexcept nogil:
    """Copy a transposed operand's elements of some rows into a buffer, row by row."""
    cdef int64_t i
    if is_fast(work, k):
        strided.transpose[work.shift[k]](buffer, n, data, work.strides[k], rows, n, False)
        return
    for i in range(rows):
        strided.copy[work.shift[k]](
            buffer + (i * n << work.shift[k]), 1, data + i * work.dims.steps[1][k],
            work.strides[k], n)

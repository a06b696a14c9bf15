# Batched matrix products. Those with vectors and of complex numbers go to BLAS, and all large ones
# where our own do not keep up. It is looked up when the first one comes, because loading it takes
# longer than everything else in this package.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport INT_MAX

from pullback_cpu.gemm.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.gemm.matmul_loops cimport is_dot, matrix, multiply_table, product
from pullback_cpu.runtime.threads cimport SPAN, parallel_body, parallel_for, stopping, thread_count

from pullback_cpu.runtime.isa import load_for_isa

cdef extern from "runtime/workspace.h" nogil:
    void *pb_workspace_alloc(size_t bytes)
    void pb_workspace_free(void *data)

cdef enum:
    SMALL = 256       # multiplications that cost less than a call of BLAS
    NARROW = 8        # columns that are less than a tile has
    LONG = 1 << 18    # and per thread, at least
    WIDE = 1 << 16    # elements of a matrix, times a vector, per thread, at least
    EVEN = 16         # rows that BLAS takes together
    CONVERTED = 1 << 15   # elements converted per thread, at least
    BLOCK = 512           # rows and columns, at least, of a part of a long product
    LARGE = 1 << 23       # bytes of a result that does not fit into a cache
    MOMENT_OF_GEMM = 1 << 29    # real multiplications between two polls for an interrupt
    MOMENT_OF_GEMV = 1 << 22    # elements of a matrix

cdef blas_table *blas = NULL
cdef multiply_table *loops = <multiply_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.gemm.matmul_loops").LOOPS, b"pb_multiply_loops")

# Factors of a and c, as each BLAS type reads them.
cdef float ONE_FLOAT[2]
cdef double ONE_DOUBLE[2]
cdef double ZERO[2]
ONE_FLOAT[0] = ONE_DOUBLE[0] = 1


# Indices of the copies of operands that a call may keep.
cdef enum:
    COPY_A
    COPY_B
    COPY_C
    WIDE_A
    WIDE_B
    WIDE_C
    NUM_COPIES


# The buffers of one thread of a call.
ctypedef struct workspace:
    int dtype    # of the factors; float32 for 16-bit numbers
    int routine  # its number in the table of BLAS routines
    bint conj_a, conj_b  # this factor is the conjugate of the values in memory
    char *copies[NUM_COPIES]  # owned, may be NULL


# -- copies of matrices ---------------------------------------------------------------------------

ctypedef fused item:
    uint32_t
    uint64_t
    c128


cdef void copy_items(
        const item *source, matrix layout, int64_t rows, int64_t columns, item *target,
        matrix target_layout) noexcept nogil:
    cdef int64_t i, j, done = 0
    for i in range(rows):
        done += columns
        if done >= SPAN:
            done = 0
            if stopping():
                return
        for j in range(columns):
            target[i * target_layout.row + j * target_layout.column] = (
                source[i * layout.row + j * layout.column])


cdef void copy_matrix(
        matrix source, int64_t rows, int64_t columns, matrix target, int dtype) noexcept nogil:
    if item_size(dtype) == 4:
        copy_items(<const uint32_t *>source.data, source, rows, columns, <uint32_t *>target.data,
                   target)
    elif item_size(dtype) == 8:
        copy_items(<const uint64_t *>source.data, source, rows, columns, <uint64_t *>target.data,
                   target)
    else:
        copy_items(<const c128 *>source.data, source, rows, columns, <c128 *>target.data, target)


ctypedef fused floating:
    float
    double


# A matrix, and where its conjugate goes, perhaps into the same memory.
ctypedef struct conjugation:
    matrix source
    matrix target
    int64_t columns
    int dtype


cdef void conjugate_row(
        const floating *source, int64_t source_step, floating *target, int64_t target_step,
        int64_t columns) noexcept nogil:
    cdef int64_t j
    if source_step == 1 and target_step == 1:       # which compilers vectorize
        for j in range(columns):
            target[2 * j] = source[2 * j]
            target[2 * j + 1] = -source[2 * j + 1]
        return
    for j in range(columns):
        target[2 * j * target_step] = source[2 * j * source_step]
        target[2 * j * target_step + 1] = -source[2 * j * source_step + 1]


cdef void conjugate_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef conjugation *task = <conjugation *>context
    cdef int64_t i, p, q
    for i in range(first, last):
        p, q = 2 * i * task.source.row, 2 * i * task.target.row
        if task.dtype == <int>PB_C64:
            conjugate_row(<const float *>task.source.data + p, task.source.column,
                          <float *>task.target.data + q, task.target.column, task.columns)
        else:
            conjugate_row(<const double *>task.source.data + p, task.source.column,
                          <double *>task.target.data + q, task.target.column, task.columns)


cdef void conjugate_into(
        matrix source, int64_t rows, int64_t columns, matrix target, int dtype) noexcept nogil:
    cdef conjugation task
    task.source, task.target, task.columns, task.dtype = source, target, columns, dtype
    parallel_for(rows, CONVERTED // (columns + 1) + 1, conjugate_rows, &task)


# -- layouts --------------------------------------------------------------------------------------

cdef inline bint is_by_rows(const matrix *layout, int64_t rows, int64_t columns) noexcept nogil:
    return ((layout.column == 1 or columns == 1)
            and (rows == 1 or columns <= layout.row <= INT_MAX))


cdef inline int row_step(const matrix *layout, int64_t rows, int64_t columns) noexcept nogil:
    return <int>(columns if rows == 1 else layout.row)


cdef inline matrix transpose(matrix layout) noexcept nogil:
    layout.row, layout.column = layout.column, layout.row
    return layout


cdef int new_matrix(
        workspace *space, int which, int64_t rows, int64_t columns, matrix *made) noexcept nogil:
    """Describe a buffer for a copy; it is made once for all products of a thread."""
    if space.copies[which] == NULL:
        space.copies[which] = <char *>pb_workspace_alloc(rows * columns * item_size(space.dtype))
    made.data = space.copies[which]
    made.row = columns
    made.column = 1
    return PB_OK if made.data != NULL else PB_E_MEMORY


cdef int fit_operand(
        workspace *space, int which, matrix *layout, int64_t rows, int64_t columns, bint conj,
        char *trans, int *step) noexcept nogil:
    """Describe a factor to BLAS, for which every matrix is the transpose of ours.

    It conjugates only what it transposes: other conjugates are copied.
    """
    cdef matrix turned = transpose(layout[0])
    cdef matrix compact
    if not conj and is_by_rows(layout, rows, columns):
        trans[0] = b'N'
        step[0] = row_step(layout, rows, columns)
        return PB_OK
    if is_by_rows(&turned, columns, rows):
        trans[0] = b'C' if conj else b'T'
        step[0] = row_step(&turned, columns, rows)
        return PB_OK
    if new_matrix(space, which, rows, columns, &compact) != PB_OK:
        return PB_E_MEMORY
    if conj:
        conjugate_into(layout[0], rows, columns, compact, space.dtype)
    else:
        copy_matrix(layout[0], rows, columns, compact, space.dtype)
    layout[0] = compact
    trans[0] = b'N'
    step[0] = <int>columns
    return PB_OK


cdef inline void *one_of(int routine) noexcept nogil:
    return <void *>ONE_DOUBLE if routine & 1 else <void *>ONE_FLOAT


# -- products -------------------------------------------------------------------------------------

cdef int multiply_large(workspace *space, product task) noexcept nogil:
    """Compute c in tiles or by BLAS. For both its rows are contiguous, if need be a copy's."""
    cdef matrix target = task.c
    cdef matrix turned = transpose(task.c)
    cdef bint copies_out, conj_a = space.conj_a, conj_b = space.conj_b
    cdef int error
    if task.m == 1 or not is_by_rows(&task.c, task.m, task.n):
        if task.m == 1 or is_by_rows(&turned, task.n, task.m):
            # The transposed product; so a single row becomes a single column.
            task.m, task.n = task.n, task.m
            task.a, task.b = transpose(task.b), transpose(task.a)
            conj_a, conj_b = conj_b, conj_a
            task.c = turned
    copies_out = not is_by_rows(&task.c, task.m, task.n)
    if copies_out:
        target = task.c
        if new_matrix(space, COPY_C, task.m, task.n, &task.c) != PB_OK:
            return PB_E_MEMORY
        task.streams = False
    if uses_tiles(&task, space.dtype):       # which complex numbers have none of
        error = loops.tiled[space.dtype](&task)
    elif can_use_gemv(&task):
        error = call_gemv(space, &task, conj_a, conj_b)
    else:
        error = call_gemm(space, &task, conj_a, conj_b)
    if error == PB_OK and copies_out:
        copy_matrix(task.c, task.m, task.n, target, space.dtype)
    return error


cdef inline bint can_use_gemv(const product *task) noexcept nogil:
    return (task.n == 1 and (task.k == 1 or 0 < task.b.row <= INT_MAX)
            and (task.m == 1 or 0 < task.c.row <= INT_MAX))


# A product as BLAS takes it, and how its rows or columns are shared.
ctypedef struct blas_call:
    product *task
    int routine
    int64_t size                # of an element in bytes
    char a_trans, b_trans
    int a_step, b_step, c_step
    bint by_columns


cdef void gemv_block(
        blas_call *call, int64_t row, int64_t rows, int64_t start, int64_t count) noexcept nogil:
    """Multiply ``count`` columns of some rows with their elements of the vector, and add."""
    cdef product *task = call.task
    cdef bint turned = call.a_trans == b'N'     # to BLAS, a matrix by rows is one by columns
    cdef int m = <int>rows, k = <int>count
    cdef char trans = b'T' if turned else b'N'
    blas.gemv[call.routine](
        &trans, &k if turned else &m, &m if turned else &k, one_of(call.routine),
        task.a.data + (row * task.a.row + start * task.a.column) * call.size, &call.a_step,
        task.b.data + start * call.b_step * call.size, &call.b_step,
        one_of(call.routine) if start else <void *>ZERO,
        task.c.data + row * call.c_step * call.size, &call.c_step)


cdef void gemv_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef blas_call *call = <blas_call *>context
    cdef product *task = call.task
    cdef int64_t most = min(task.k, <int64_t>MOMENT_OF_GEMV), rows, start, i
    # Some versions of BLAS add to what was there, even if it is multiplied by zero and NaN.
    for i in range(first, last):
        memset(task.c.data + i * call.c_step * call.size, 0, call.size)
    while first < last:
        rows = min((MOMENT_OF_GEMV // most // EVEN + 1) * EVEN, last - first)
        for start from 0 <= start < task.k by most:
            gemv_block(call, first, rows, start, min(most, task.k - start))
            if (first + rows < last or start + most < task.k) and stopping():
                return
        first += rows


cdef void gemm_block(
        blas_call *call, int64_t row, int64_t rows, int64_t column, int64_t columns,
        int64_t start, int64_t count) noexcept nogil:
    """Add the products of ``count`` columns of a and rows of b to a part of the result."""
    cdef product *task = call.task
    cdef int m = <int>rows, n = <int>columns, k = <int>count
    blas.gemm[call.routine](
        &call.b_trans, &call.a_trans, &n, &m, &k, one_of(call.routine),
        task.b.data + (start * task.b.row + column * task.b.column) * call.size, &call.b_step,
        task.a.data + (row * task.a.row + start * task.a.column) * call.size, &call.a_step,
        one_of(call.routine) if start else <void *>ZERO,
        task.c.data + (row * call.c_step + column) * call.size, &call.c_step)


cdef void gemm_part(void *context, int64_t first, int64_t last) noexcept nogil:
    """Compute some rows or columns, in blocks that take a moment each."""
    cdef blas_call *call = <blas_call *>context
    cdef product *task = call.task
    cdef int64_t row = 0, rows = task.m, column = 0, columns = task.n
    cdef int64_t moment = MOMENT_OF_GEMM // (4 if call.routine >= 2 else 1)
    cdef int64_t height, width, depth, i, j, l
    if call.by_columns:
        column, columns = first, last - first
    else:
        row, rows = first, last - first
    height, width, depth = rows, columns, task.k
    if <double>rows * columns * depth > moment:
        height, width = min(height, <int64_t>BLOCK), min(width, <int64_t>BLOCK)
        depth = max(moment // (height * width), <int64_t>BLOCK)
        if <double>height * columns * depth <= moment:
            width = columns
    for i from 0 <= i < rows by height:
        for j from 0 <= j < columns by width:
            for l from 0 <= l < task.k by depth:
                if (i or j or l) and stopping():
                    return
                gemm_block(call, row + i, min(height, rows - i), column + j,
                           min(width, columns - j), l, min(depth, task.k - l))


cdef void share(
        blas_call *call, int64_t n, int64_t grain, parallel_body body) noexcept nogil:
    """Let our threads call BLAS for parts of a product."""
    cdef int held = pb_blas_threads_hold(&blas.threads, True)
    parallel_for(n, n if blas.threads.set == NULL else grain, body, call)
    pb_blas_threads_release(&blas.threads, held)


cdef blas_call new_call(workspace *space, product *task) noexcept nogil:
    cdef blas_call call
    call.task = task
    call.routine = space.routine
    call.size = item_size(space.dtype)
    return call


cdef int call_gemv(workspace *space, product *task, bint conj_a, bint conj_b) noexcept nogil:
    """Multiply with a vector; a conjugated matrix is conj(a conj(b)), which copies only vectors."""
    cdef blas_call call = new_call(space, task)
    cdef matrix compact
    cdef int error = fit_operand(
        space, COPY_A, &task.a, task.m, task.k, False, &call.a_trans, &call.a_step)
    if error == PB_OK and conj_a != conj_b:
        error = new_matrix(space, COPY_B, task.k, 1, &compact)
        if error == PB_OK:
            conjugate_into(task.b, task.k, 1, compact, space.dtype)
            task.b = compact
    if error:
        return error
    call.b_step = <int>task.b.row if task.k > 1 else 1
    call.c_step = <int>task.c.row if task.m > 1 else 1
    share(&call, task.m, (WIDE // task.k // EVEN + 1) * EVEN, gemv_rows)
    if conj_a:
        conjugate_into(task.c, task.m, 1, task.c, space.dtype)
    return PB_OK


cdef int call_gemm(workspace *space, product *task, bint conj_a, bint conj_b) noexcept nogil:
    cdef blas_call call = new_call(space, task)
    cdef int64_t length, grain
    cdef int error = fit_operand(
        space, COPY_A, &task.a, task.m, task.k, conj_a, &call.a_trans, &call.a_step)
    if not error:
        error = fit_operand(
            space, COPY_B, &task.b, task.k, task.n, conj_b, &call.b_trans, &call.b_step)
    if error:
        return error
    call.c_step = row_step(&task.c, task.m, task.n)
    call.by_columns = task.n > task.m
    length = task.n if call.by_columns else task.m
    grain = max((length - 1) // thread_count() + 1, <int64_t>(LONG / (work_of(task) / length)) + 1)
    share(&call, length, (grain - 1) // EVEN * EVEN + EVEN, gemm_part)
    return PB_OK


# 16-bit numbers of a matrix, and the same in float32, without gaps.
ctypedef struct conversion:
    int dtype
    matrix stored
    int64_t columns
    float *wide


cdef void widen_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef conversion *task = <conversion *>context
    cdef matrix rows = task.stored
    rows.data += first * rows.row * item_size(task.dtype)
    loops.widen[task.dtype](&rows, last - first, task.columns, task.wide + first * task.columns)


cdef void narrow_rows(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef conversion *task = <conversion *>context
    cdef matrix rows = task.stored
    rows.data += first * rows.row * item_size(task.dtype)
    loops.narrow[task.dtype](task.wide + first * task.columns, last - first, task.columns, &rows)


cdef int widen_factor(
        workspace *space, int dtype, int which, matrix *factor, int64_t rows,
        int64_t columns) noexcept nogil:
    """Replace a matrix of 16-bit numbers by one of float32, in the same order."""
    cdef matrix wide
    cdef conversion task
    cdef bint turns = factor.row == 1 and factor.column != 1
    if new_matrix(space, which, rows, columns, &wide) != PB_OK:
        return PB_E_MEMORY
    task.dtype, task.stored, task.columns = dtype, factor[0], columns
    task.wide = <float *>wide.data
    if turns:
        task.stored, task.columns = transpose(factor[0]), rows
        wide.row, wide.column = 1, rows
    parallel_for(columns if turns else rows, CONVERTED // task.columns + 1, widen_rows, &task)
    factor[0] = wide
    return PB_OK


cdef int multiply_halves(workspace *space, int dtype, product task) noexcept nogil:
    cdef conversion result
    cdef int error = widen_factor(space, dtype, WIDE_A, &task.a, task.m, task.k)
    if error == PB_OK:
        error = widen_factor(space, dtype, WIDE_B, &task.b, task.k, task.n)
    result.dtype, result.stored, result.columns = dtype, task.c, task.n
    if error == PB_OK:
        error = new_matrix(space, WIDE_C, task.m, task.n, &task.c)
        task.streams = False
    if error == PB_OK:
        result.wide = <float *>task.c.data
        error = multiply_large(space, task)
    if error == PB_OK:
        parallel_for(task.m, CONVERTED // task.n + 1, narrow_rows, &result)
    return error


# -- the call -------------------------------------------------------------------------------------

# The products of a call, and the first one's operands.
ctypedef struct batch_of:
    pb_array *a
    pb_array *b
    pb_array *c
    product first
    int error


cdef inline matrix matrix_of(const pb_array *array) noexcept nogil:
    cdef matrix layout
    layout.data = <char *>array.data
    layout.row = array.strides[1]
    layout.column = array.strides[2]
    return layout


cdef void fill_zero(const product *task, int64_t size) noexcept nogil:
    cdef int64_t i, j
    for i in range(task.m):
        for j in range(task.n):
            memset(task.c.data + (i * task.c.row + j * task.c.column) * size, 0, size)


cdef inline double work_of(const product *task) noexcept nogil:
    return (<double>task.m) * task.n * task.k


cdef inline bint is_large(const product *task, int dtype) noexcept nogil:
    cdef double most = SMALL if task.n > NARROW else 4 * SMALL
    if work_of(task) <= most or max(task.m, task.n, task.k) > INT_MAX:
        return False
    if (dtype == <int>PB_F32 or dtype == <int>PB_F64) and is_dot(task):
        return False
    return dtype >= <int>PB_F16 or uses_tiles(task, dtype)


cdef inline bint uses_bfloat16(int dtype) noexcept nogil:
    return dtype == <int>PB_BF16 and loops.has_bfloat16()


cdef inline bint uses_tiles(const product *task, int dtype) noexcept nogil:
    return loops.tiled[dtype] != NULL and task.m > 1 and task.n > 1


cdef int multiply_conjugates(workspace *space, int dtype, product task) noexcept nogil:
    """Compute a small product some factors of which are conjugates, from copies."""
    cdef matrix compact
    cdef int error = PB_OK
    if space.conj_a:
        error = new_matrix(space, COPY_A, task.m, task.k, &compact)
        if error == PB_OK:
            conjugate_into(task.a, task.m, task.k, compact, dtype)
            task.a = compact
    if space.conj_b and error == PB_OK:
        error = new_matrix(space, COPY_B, task.k, task.n, &compact)
        if error == PB_OK:
            conjugate_into(task.b, task.k, task.n, compact, dtype)
            task.b = compact
    return loops.small[dtype](&task) if error == PB_OK else error


cdef inline int multiply_one(workspace *space, int dtype, const product *task) noexcept nogil:
    if task.k == 0:
        fill_zero(task, item_size(dtype))
        return PB_OK
    if not is_large(task, dtype):
        if space.conj_a or space.conj_b:
            return multiply_conjugates(space, dtype, task[0])
        return loops.small[dtype](task)
    if uses_bfloat16(dtype):
        return loops.bfloat16(task)
    if dtype != space.dtype:
        return multiply_halves(space, dtype, task[0])
    return multiply_large(space, task[0])


cdef void multiply_batches(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef batch_of *batch = <batch_of *>context
    cdef int64_t size = item_size(batch.c.dtype), number
    cdef double done = 0
    cdef int which, error
    cdef product task = batch.first
    cdef workspace space
    space.dtype = (<int>PB_F32 if batch.c.dtype == <int>PB_F16 or batch.c.dtype == <int>PB_BF16
                   else batch.c.dtype)
    space.routine = space.dtype - <int>PB_F32
    space.conj_a = batch.a.flags & PB_ARRAY_CONJ != 0
    space.conj_b = batch.b.flags & PB_ARRAY_CONJ != 0
    for which in range(NUM_COPIES):
        space.copies[which] = NULL
    for number in range(first, last):
        done += work_of(&task)
        if done > MOMENT_OF_GEMV:
            done = 0
            if stopping():
                break
        task.a.data = batch.first.a.data + number * batch.a.strides[0] * size
        task.b.data = batch.first.b.data + number * batch.b.strides[0] * size
        task.c.data = batch.first.c.data + number * batch.c.strides[0] * size
        error = multiply_one(&space, batch.c.dtype, &task)
        if error:
            batch.error = error
            break
    for which in range(NUM_COPIES):
        if space.copies[which] != NULL:
            pb_workspace_free(space.copies[which])


cdef int multiply_together(batch_of *batch, int64_t batches) noexcept nogil:
    """Share products that are too small to be shared each by itself."""
    cdef int64_t grain = <int64_t>(LONG / work_of(&batch.first)) + 1
    cdef int held = 0
    batch.first.shares = False
    if blas != NULL:
        held = pb_blas_threads_hold(&blas.threads, True)
    parallel_for(batches, grain, multiply_batches, batch)
    if blas != NULL:
        pb_blas_threads_release(&blas.threads, held)
    return batch.error


cdef int kernel_bmm(pb_call *call) noexcept nogil:
    cdef batch_of batch
    cdef product *task = &batch.first
    cdef int64_t batches
    cdef int error, dtype
    batch.error = PB_OK
    batch.a = call.in_[0]
    batch.b = call.in_[1]
    batch.c = call.out[0]
    batches = batch.c.shape[0]
    dtype = batch.c.dtype
    task.m = batch.a.shape[1]
    task.k = batch.a.shape[2]
    task.n = batch.b.shape[2]
    if batches == 0 or task.m == 0 or task.n == 0:
        return PB_OK
    task.a = matrix_of(batch.a)
    task.b = matrix_of(batch.b)
    task.c = matrix_of(batch.c)
    task.shares = True
    task.streams = count_elements(batch.c) * item_size(dtype) >= LARGE
    if (batches > 1 and batch.b.strides[0] == 0
            and batch.a.strides[0] == task.m * batch.a.strides[1]
            and batch.c.strides[0] == task.m * batch.c.strides[1]):
        # One b for all: the rows of all batches are those of one matrix.
        task.m *= batches
        batches = 1
    if (unlikely(blas == NULL) and dtype >= <int>PB_F16 and is_large(task, dtype)
            and not uses_bfloat16(dtype) and not uses_tiles(task, max(dtype, <int>PB_F32))):
        error = load_blas(&blas)
        if error:
            return error
    if batches > 1 and LONG < work_of(task) * batches and work_of(task) < 16 * LONG:
        error = multiply_together(&batch, batches)
    else:
        multiply_batches(&batch, 0, batches)
        error = batch.error
    return fail_memory(call) if error == <int>PB_E_MEMORY else error


KERNELS = {"bmm": new_kernel(PB_MASK_ALL, kernel_bmm)}
TAKES_CONJ = {"bmm"}

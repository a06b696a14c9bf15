# Batched matrix products. Large ones of floating-point numbers go to BLAS; it is looked up when
# the first one comes, because loading it takes longer than everything else in this package.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport INT_MAX
from libc.stdlib cimport free, malloc

from pullback_cpu.kernels.blas cimport (
    blas_table, load_blas, pb_blas_threads_release, pb_gemm_hold, pb_gemv_hold)
from pullback_cpu.kernels.common cimport *
from pullback_cpu.kernels.half cimport *
from pullback_cpu.kernels.matmul_loops cimport matrix, multiply_loop, product

from pullback_cpu.kernels.levels import load_kernels

cdef enum:
    SMALL = 256  # multiplications that cost less than a call of BLAS

cdef blas_table *blas = NULL
cdef multiply_loop *multiply_loops = <multiply_loop *>PyCapsule_GetPointer(
    load_kernels("matmul_loops").LOOPS, b"pb_multiply_loops")

# Factors of a and c, as each BLAS type reads them.
cdef float ONE_FLOAT[2]
cdef double ONE_DOUBLE[2]
cdef double ZERO[2]
ONE_FLOAT[0] = ONE_DOUBLE[0] = 1


# What one call needs besides its operands.
ctypedef struct workspace:
    int dtype       # of the operands
    int dtype_used  # by BLAS: float32 for half types
    int routine     # its number in the table of BLAS routines
    char *copies[3]  # of a, b and c; owned, may be NULL


# -- copies of matrices ---------------------------------------------------------------------------

ctypedef fused element:
    float
    double
    c64
    c128


cdef void copy_elements(
        const element *source, matrix layout, int64_t rows, int64_t columns, element *target,
        matrix target_layout) noexcept nogil:
    cdef int64_t i, j
    for i in range(rows):
        for j in range(columns):
            target[i * target_layout.row + j * target_layout.column] = (
                source[i * layout.row + j * layout.column])


cdef void widen_elements(
        matrix source, int64_t rows, int64_t columns, float *target, int dtype) noexcept nogil:
    cdef const uint16_t *data = <const uint16_t *>source.data
    cdef int64_t i, j
    for i in range(rows):
        for j in range(columns):
            if dtype == <int>PB_F16:
                target[i * columns + j] = f16_to_f32(data[i * source.row + j * source.column])
            else:
                target[i * columns + j] = bf16_to_f32(data[i * source.row + j * source.column])


cdef void narrow_elements(
        const float *source, int64_t rows, int64_t columns, matrix target,
        int dtype) noexcept nogil:
    cdef uint16_t *data = <uint16_t *>target.data
    cdef int64_t i, j
    for i in range(rows):
        for j in range(columns):
            data[i * target.row + j * target.column] = (
                f32_to_f16(source[i * columns + j]) if dtype == <int>PB_F16
                else f32_to_bf16(source[i * columns + j]))


cdef void copy_matrix(
        matrix source, int64_t rows, int64_t columns, matrix target, int dtype) noexcept nogil:
    if dtype == <int>PB_F32:
        copy_elements(<const float *>source.data, source, rows, columns, <float *>target.data,
                      target)
    elif dtype == <int>PB_F64:
        copy_elements(<const double *>source.data, source, rows, columns, <double *>target.data,
                      target)
    elif dtype == <int>PB_C64:
        copy_elements(<const c64 *>source.data, source, rows, columns, <c64 *>target.data, target)
    else:
        copy_elements(<const c128 *>source.data, source, rows, columns, <c128 *>target.data,
                      target)


# -- layouts --------------------------------------------------------------------------------------

cdef inline bint is_by_rows(const matrix *layout, int64_t rows, int64_t columns) noexcept nogil:
    return ((layout.column == 1 or columns == 1)
            and (rows == 1 or columns <= layout.row <= INT_MAX))


cdef inline int row_step(const matrix *layout, int64_t rows, int64_t columns) noexcept nogil:
    return <int>(columns if rows == 1 else layout.row)


cdef inline matrix transpose(matrix layout) noexcept nogil:
    layout.row, layout.column = layout.column, layout.row
    return layout


cdef char *get_buffer(workspace *space, int which, int64_t elements) noexcept nogil:
    """Return the buffer for a copy of one operand; it is made once for all products of a call."""
    if space.copies[which] == NULL:
        space.copies[which] = <char *>malloc(elements * item_size(space.dtype_used))
    return space.copies[which]


cdef int fit_operand(
        workspace *space, int which, matrix *layout, int64_t rows, int64_t columns,
        char *trans, int *step) noexcept nogil:
    """Describe a factor to BLAS, for which every matrix is the transpose of ours."""
    cdef matrix turned = transpose(layout[0])
    cdef matrix compact
    if space.dtype == space.dtype_used:
        if is_by_rows(layout, rows, columns):
            trans[0] = b'N'
            step[0] = row_step(layout, rows, columns)
            return PB_OK
        if is_by_rows(&turned, columns, rows):
            trans[0] = b'T'
            step[0] = row_step(&turned, columns, rows)
            return PB_OK
    compact.data = get_buffer(space, which, rows * columns)
    compact.row = columns
    compact.column = 1
    if compact.data == NULL:
        return PB_E_MEMORY
    if space.dtype == space.dtype_used:
        copy_matrix(layout[0], rows, columns, compact, space.dtype)
    else:
        widen_elements(layout[0], rows, columns, <float *>compact.data, space.dtype)
    layout[0] = compact
    trans[0] = b'N'
    step[0] = <int>columns
    return PB_OK


cdef inline void *one_of(int routine) noexcept nogil:
    return <void *>ONE_DOUBLE if routine & 1 else <void *>ONE_FLOAT


# -- products -------------------------------------------------------------------------------------

cdef int multiply_by_blas(workspace *space, product task) noexcept nogil:
    """Compute c, whose rows or columns must be contiguous unless there is a buffer for it."""
    cdef matrix target = task.c
    cdef matrix turned = transpose(task.c)
    cdef bint copies_out = False
    cdef int error
    if task.m == 1 or not is_by_rows(&task.c, task.m, task.n):
        if task.m == 1 or is_by_rows(&turned, task.n, task.m):
            # The transposed product; so a single row becomes a single column.
            task.m, task.n = task.n, task.m
            task.a, task.b = transpose(task.b), transpose(task.a)
            task.c = turned
    if space.dtype != space.dtype_used or not is_by_rows(&task.c, task.m, task.n):
        copies_out = True
        target = task.c
        task.c.data = get_buffer(space, 2, task.m * task.n)
        task.c.row = task.n
        task.c.column = 1
        if task.c.data == NULL:
            return PB_E_MEMORY
    error = call_gemv(space, &task) if can_use_gemv(space, &task) else call_gemm(space, &task)
    if error or not copies_out:
        return error
    if space.dtype == space.dtype_used:
        copy_matrix(task.c, task.m, task.n, target, space.dtype)
    else:
        narrow_elements(<const float *>task.c.data, task.m, task.n, target, space.dtype)
    return PB_OK


cdef inline bint can_use_gemv(workspace *space, const product *task) noexcept nogil:
    return (task.n == 1 and space.dtype == space.dtype_used
            and (task.k == 1 or 0 < task.b.row <= INT_MAX)
            and (task.m == 1 or 0 < task.c.row <= INT_MAX))


cdef int call_gemv(workspace *space, product *task) noexcept nogil:
    cdef int rows, columns, step, error, before
    cdef int b_step = <int>task.b.row if task.k > 1 else 1
    cdef int c_step = <int>task.c.row if task.m > 1 else 1
    cdef int64_t i, size = item_size(space.dtype)
    cdef char trans
    error = fit_operand(space, 0, &task.a, task.m, task.k, &trans, &step)
    if error:
        return error
    # Some versions of BLAS add to what was there, even if it is multiplied by zero and NaN.
    for i in range(task.m):
        memset(task.c.data + i * c_step * size, 0, size)
    rows = <int>(task.k if trans == b'N' else task.m)
    columns = <int>(task.m if trans == b'N' else task.k)
    trans = b'T' if trans == b'N' else b'N'
    before = pb_gemv_hold(&blas.threads, rows, columns)
    blas.gemv[space.routine](
        &trans, &rows, &columns, one_of(space.routine), task.a.data, &step, task.b.data, &b_step,
        ZERO, task.c.data, &c_step)
    pb_blas_threads_release(&blas.threads, before)
    return PB_OK


cdef int call_gemm(workspace *space, product *task) noexcept nogil:
    cdef int m = <int>task.m, n = <int>task.n, k = <int>task.k, a_step, b_step, c_step, error
    cdef int before
    cdef char a_trans, b_trans
    error = fit_operand(space, 0, &task.a, task.m, task.k, &a_trans, &a_step)
    if not error:
        error = fit_operand(space, 1, &task.b, task.k, task.n, &b_trans, &b_step)
    if error:
        return error
    c_step = row_step(&task.c, task.m, task.n)
    before = pb_gemm_hold(&blas.threads, m, n, k)
    blas.gemm[space.routine](
        &b_trans, &a_trans, &n, &m, &k, one_of(space.routine), task.b.data, &b_step, task.a.data,
        &a_step, ZERO, task.c.data, &c_step)
    pb_blas_threads_release(&blas.threads, before)
    return PB_OK


# -- the call -------------------------------------------------------------------------------------

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


cdef inline bint is_for_blas(const product *task, int dtype) noexcept nogil:
    if dtype < <int>PB_F16 or max(task.m, task.n, task.k) > INT_MAX:
        return False
    return (<double>task.m) * task.n * task.k > SMALL


cdef inline void start_workspace(workspace *space, int dtype) noexcept nogil:
    space.dtype = dtype
    space.dtype_used = max(dtype, <int>PB_F32)
    space.routine = space.dtype_used - <int>PB_F32
    space.copies[0] = space.copies[1] = space.copies[2] = NULL


cdef inline void end_workspace(workspace *space) noexcept nogil:
    cdef int which
    for which in range(3):
        if space.copies[which] != NULL:
            free(space.copies[which])


cdef int multiply_batch(workspace *space, const product *task) noexcept nogil:
    cdef int error
    if task.k == 0:
        fill_zero(task, item_size(space.dtype))
        return PB_OK
    if not is_for_blas(task, space.dtype):
        return multiply_loops[space.dtype](task)
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    return multiply_by_blas(space, task[0])


cdef int kernel_bmm(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *c = call.out[0]
    cdef int64_t size = item_size(c.dtype), _batch, batches = c.shape[0]
    cdef product task
    cdef workspace space
    cdef int error = PB_OK
    task.m = a.shape[1]
    task.k = a.shape[2]
    task.n = b.shape[2]
    if batches == 0 or task.m == 0 or task.n == 0:
        return PB_OK
    task.a = matrix_of(a)
    task.b = matrix_of(b)
    task.c = matrix_of(c)
    if (batches > 1 and b.strides[0] == 0 and a.strides[0] == task.m * a.strides[1]
            and c.strides[0] == task.m * c.strides[1]):
        # One b for all: the rows of all batches are those of one matrix.
        task.m *= batches
        batches = 1
    start_workspace(&space, c.dtype)
    for _batch in range(batches):
        error = multiply_batch(&space, &task)
        if error:
            break
        task.a.data += a.strides[0] * size
        task.b.data += b.strides[0] * size
        task.c.data += c.strides[0] * size
    end_workspace(&space)
    return fail_memory(call) if error == <int>PB_E_MEMORY else error


KERNELS = {"bmm": new_kernel(PB_MASK_ALL, kernel_bmm)}

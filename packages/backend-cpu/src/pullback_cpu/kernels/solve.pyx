# Systems of linear equations. Where our own elimination does not keep up, and for complex numbers,
# by LAPACK's LU decomposition with partial pivoting. Like BLAS, LAPACK is looked up when the first
# such system comes.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport INT_MAX
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

from pullback_cpu.kernels.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common cimport *
from pullback_cpu.kernels.elimination cimport solve_table

from pullback_cpu.kernels.levels import load_kernels

cdef enum:
    MIDDLING = 256  # rows up to which more than one thread gains little; see blas_threads.h

cdef blas_table *blas = NULL
cdef solve_table *loops = <solve_table *>PyCapsule_GetPointer(
    load_kernels("elimination").LOOPS, b"pb_solve_loops")


ctypedef fused element:
    float
    double
    c64
    c128


cdef void copy_in(const element *source, const pb_array *array, element *columns) noexcept nogil:
    """Write a matrix column by column, as LAPACK reads it."""
    cdef int64_t i, j
    for j in range(array.shape[2]):
        for i in range(array.shape[1]):
            columns[j * array.shape[1] + i] = (
                source[i * array.strides[1] + j * array.strides[2]])


cdef void copy_out(
        const element *columns, const pb_array *array, element *target, bint solved) noexcept nogil:
    """Write the solution; that of a singular system is NaN."""
    cdef int64_t i, j
    for i in range(array.shape[1]):
        for j in range(array.shape[2]):
            target[i * array.strides[1] + j * array.strides[2]] = (
                columns[j * array.shape[1] + i] if solved else <element>NAN)


cdef int solve_one(
        pb_call *call, int64_t batch, element *matrix, element *right, int *pivots) noexcept nogil:
    """Solve one system; returns which pivot is zero, counted from 1, or 0."""
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *x = call.out[0]
    cdef int n = <int>b.shape[1], columns = <int>b.shape[2], found = 0
    cdef int routine = a.dtype - <int>PB_F32
    copy_in(<const element *>a.data + batch * a.strides[0], a, matrix)
    copy_in(<const element *>b.data + batch * b.strides[0], b, right)
    blas.gesv[routine](&n, &columns, matrix, &n, pivots, right, &n, &found)
    copy_out(right, x, <element *>x.data + batch * x.strides[0], found == 0)
    return found


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *info = call.out[1]
    cdef int64_t n = b.shape[1], size = item_size(a.dtype), batch
    cdef int found, error, held
    cdef char *matrix
    cdef char *right
    cdef int *pivots
    if n > INT_MAX or b.shape[2] > INT_MAX:
        return fail(call, PB_E_RUNTIME, b"solve: a matrix is too large for LAPACK")
    if n == 0:
        for batch in range(a.shape[0]):
            (<int32_t *>info.data)[batch * info.strides[0]] = 0
    if a.shape[0] == 0 or n == 0:
        return PB_OK
    if loops.solve[a.dtype] != NULL:
        error = loops.solve[a.dtype](a, b, call.out[0], info)
        return fail_memory(call) if error else PB_OK
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    matrix = <char *>malloc(n * n * size)
    right = <char *>malloc(max(n * b.shape[2], <int64_t>1) * size)
    pivots = <int *>malloc(n * sizeof(int))
    if matrix == NULL or right == NULL or pivots == NULL:
        error = fail_memory(call)
    else:
        error = PB_OK
        held = pb_blas_threads_hold(&blas.threads, n <= MIDDLING)
        for batch in range(a.shape[0]):
            if a.dtype == <int>PB_F32:
                found = solve_one(call, batch, <float *>matrix, <float *>right, pivots)
            elif a.dtype == <int>PB_F64:
                found = solve_one(call, batch, <double *>matrix, <double *>right, pivots)
            elif a.dtype == <int>PB_C64:
                found = solve_one(call, batch, <c64 *>matrix, <c64 *>right, pivots)
            else:
                found = solve_one(call, batch, <c128 *>matrix, <c128 *>right, pivots)
            (<int32_t *>info.data)[batch * info.strides[0]] = found
        pb_blas_threads_release(&blas.threads, held)
    free(matrix)
    free(right)
    free(pivots)
    return error


cdef uint32_t SOLVED = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

KERNELS = {"solve": new_kernel(SOLVED, kernel_solve)}

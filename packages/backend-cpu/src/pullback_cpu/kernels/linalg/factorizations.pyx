# Cholesky, LU and LDL decompositions and triangular systems, by LAPACK; of small matrices by loops
# of our own, as a call of LAPACK takes longer than the numbers of an 8 x 8 matrix.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport INT_MAX
from libc.math cimport sqrt

from pullback_cpu.gemm.blas cimport blas_table
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.kernels.linalg.elements cimport *
from pullback_cpu.kernels.linalg.elimination cimport solve_table
from pullback_cpu.kernels.linalg.lapack_batch cimport *
from pullback_cpu.kernels.linalg.small_batches cimport batch_table, is_small_batch

from pullback_cpu.runtime.isa import load_for_isa

cdef extern from "runtime/detached_call.h" nogil:
    bint prepare_detached "pb_detached_prepare"()

cdef enum:
    TINY = 16   # rows up to which our own loops are used

cdef blas_table *blas = NULL
cdef solve_table *loops = <solve_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.kernels.linalg.elimination").LOOPS, b"pb_solve_loops")
cdef batch_table *batches = <batch_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.kernels.linalg.small_batches").LOOPS, b"pb_batch_loops")


# -- Cholesky --------------------------------------------------------------------------------------


cdef int small_cholesky(element *a, int64_t n) noexcept nogil:
    """Decompose by columns; returns the order of the first minor that is not positive, or 0."""
    cdef int64_t i, j, k
    cdef double pivot
    cdef element factor
    for k in range(n):
        pivot = real_of(a[k * n + k])
        if not pivot > 0:
            return <int>(k + 1)
        a[k * n + k] = made_real(sqrt(pivot), a[0])
        factor = made_real(1 / sqrt(pivot), a[0])
        for i in range(k + 1, n):
            a[k * n + i] = a[k * n + i] * factor
        for j in range(k + 1, n):
            factor = conjugate(a[k * n + j])
            for i in range(j, n):
                a[j * n + i] = less_product(a[j * n + i], a[k * n + i], factor)
    return 0


cdef void clear_upper(element *a, int64_t n) noexcept nogil:
    cdef int64_t j
    for j in range(1, n):
        memset(a + j * n, 0, j * sizeof(element))


cdef int first_nan(const element *a, int64_t n) noexcept nogil:
    """Return the number of the first diagonal element that is NaN, or 0."""
    cdef int64_t i
    for i in range(n):
        if real_of(a[i * n + i]) != real_of(a[i * n + i]):
            return <int>(i + 1)
    return 0


cdef void cholesky_as(problem *of, element *a) noexcept nogil:
    cdef char uplo = b"L"
    clear_upper(a, of.rows)
    if of.rows <= TINY:
        of.info = small_cholesky(a, of.rows)
        return
    blas.potrf[of.routine](&uplo, &of.rows, a, &of.rows, &of.info)
    if of.info == 0:
        of.info = first_nan(a, of.rows)


cdef void run_cholesky(problem *of) noexcept nogil:
    if of.routine == 0:
        cholesky_as(of, <float *>of.parts[0])
    elif of.routine == 1:
        cholesky_as(of, <double *>of.parts[0])
    elif of.routine == 2:
        cholesky_as(of, <c64 *>of.parts[0])
    else:
        cholesky_as(of, <c128 *>of.parts[0])


cdef int kernel_cholesky(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t n = a.shape[1]
    cdef int code = start(&of, &blas, call, run_cholesky)
    if code != PB_OK:
        return max(code, 0)
    if is_small_batch(batches, a):
        batches.cholesky[a.dtype](a, call.out[0], NULL, call.out[1])
        return PB_OK
    add_part(&of, a, call.out[0], n, n, item_size(a.dtype))
    of.info = call.out[1]
    return finish(&of, n * n * n // 3, False)


# -- triangular systems ----------------------------------------------------------------------------


cdef void small_triangular(const element *a, int64_t n, bint by_rows, element *b, int64_t columns,
                           bint upper, bint has_ones) noexcept nogil:
    """Solve by rows of b, each of which is contiguous."""
    cdef int64_t i, j, k, step, row = n if by_rows else 1, column = 1 if by_rows else n
    cdef element factor
    for step in range(n):
        k = n - 1 - step if upper else step
        if not has_ones:
            for j in range(columns):
                b[k * columns + j] = quotient(b[k * columns + j], a[k * (n + 1)])
        for i in range(0 if upper else k + 1, k if upper else n):
            factor = a[i * row + k * column]
            for j in range(columns):
                b[i * columns + j] = less_product(
                    b[i * columns + j], factor, b[k * columns + j])


cdef void triangular_as(problem *of, element *a) noexcept nogil:
    cdef char side = b"L", trans = b"N"
    cdef char uplo = b"U" if of.flag else b"L", diag = b"U" if of.unit else b"N"
    cdef element one = made_real(1, a[0])
    if of.rows <= TINY:
        small_triangular(a, of.rows, of.by_rows, <element *>of.parts[1], of.columns, of.flag,
                         of.unit)
    else:
        blas.trsm[of.routine](
            &side, &uplo, &trans, &diag, &of.rows, &of.columns, &one, a, &of.rows, of.parts[1],
            &of.rows)


cdef void run_triangular(problem *of) noexcept nogil:
    if of.routine == 0:
        triangular_as(of, <float *>of.parts[0])
    elif of.routine == 1:
        triangular_as(of, <double *>of.parts[0])
    elif of.routine == 2:
        triangular_as(of, <c64 *>of.parts[0])
    else:
        triangular_as(of, <c128 *>of.parts[0])


cdef int kernel_triangular(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef int64_t n = a.shape[1]
    cdef int code = start(&of, &blas, call, run_triangular)
    if code != PB_OK:
        return max(code, 0)
    if b.shape[2] == 0:
        return PB_OK
    if b.shape[2] > INT_MAX // n:
        return fail(call, PB_E_RUNTIME, b"a matrix is too large for LAPACK")
    if n > TINY and loops.triangular[a.dtype] != NULL:
        code = loops.triangular[a.dtype](
            a, b, call.out[0], call.param[0].i != 0, call.param[1].i != 0)
        return fail_memory(call) if code else PB_OK
    of.model.columns = <int>b.shape[2]
    of.model.flag, of.model.unit = <int>call.param[0].i, <int>call.param[1].i
    add_part(&of, a, NULL, n, n, item_size(a.dtype))
    add_part(&of, b, call.out[0], n, b.shape[2], item_size(a.dtype))
    if n <= TINY:
        of.model.by_rows = of.parts[0].turned = a.strides[2] == 1
        of.parts[1].turned = True
    return finish(&of, n * n * b.shape[2] // 2, False)


# -- LU --------------------------------------------------------------------------------------------


cdef int small_lu(element *a, int64_t rows, int64_t columns, int32_t *pivots) noexcept nogil:
    cdef int64_t i, j, k, pivot
    cdef int zero = 0
    cdef double largest, size
    cdef element factor
    for k in range(min(rows, columns)):
        pivot, largest = k, size_of(a[k * rows + k])
        for i in range(k + 1, rows):
            size = size_of(a[k * rows + i])
            if size > largest or (size != size and largest == largest):
                pivot, largest = i, size
        pivots[k] = <int32_t>(pivot + 1)
        if largest == 0:
            if zero == 0:
                zero = <int>(k + 1)
            continue
        if pivot != k:
            for j in range(columns):
                a[j * rows + k], a[j * rows + pivot] = a[j * rows + pivot], a[j * rows + k]
        for i in range(k + 1, rows):
            a[k * rows + i] = quotient(a[k * rows + i], a[k * rows + k])
        for j in range(k + 1, columns):
            factor = a[j * rows + k]
            for i in range(k + 1, rows):
                a[j * rows + i] = less_product(a[j * rows + i], a[k * rows + i], factor)
    return zero


cdef void run_lu(problem *of) noexcept nogil:
    cdef int32_t *pivots = <int32_t *>of.parts[1]
    if max(of.rows, of.columns) > TINY:
        blas.getrf[of.routine](
            &of.rows, &of.columns, of.parts[0], &of.rows, <int *>pivots, &of.info)
    elif of.routine == 0:
        of.info = small_lu(<float *>of.parts[0], of.rows, of.columns, pivots)
    elif of.routine == 1:
        of.info = small_lu(<double *>of.parts[0], of.rows, of.columns, pivots)
    elif of.routine == 2:
        of.info = small_lu(<c64 *>of.parts[0], of.rows, of.columns, pivots)
    else:
        of.info = small_lu(<c128 *>of.parts[0], of.rows, of.columns, pivots)


cdef int kernel_lu(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t small = min(a.shape[1], a.shape[2])
    cdef int code = start(&of, &blas, call, run_lu)
    if code != PB_OK:
        return max(code, 0)
    if is_small_batch(batches, a):
        batches.lu[a.dtype](a, call.out[0], call.out[1], call.out[2])
        return PB_OK
    if max(a.shape[1], a.shape[2]) > TINY and loops.lu[a.dtype] != NULL:
        code = loops.lu[a.dtype](a, call.out[0], call.out[1], call.out[2])
        return fail_memory(call) if code else PB_OK
    add_part(&of, a, call.out[0], a.shape[1], a.shape[2], item_size(a.dtype))
    add_part(&of, NULL, call.out[1], small, 1, sizeof(int32_t))
    of.info = call.out[2]
    return finish(&of, a.shape[1] * a.shape[2] * small, False)


cdef int kernel_permutation(pb_call *call) noexcept nogil:
    cdef pb_array *swaps = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef const int32_t *swap
    cdef int64_t *row
    cdef int64_t batch, i, other, kept, rows = out.shape[1]
    for batch in range(out.shape[0]):
        row = <int64_t *>out.data + batch * out.strides[0]
        swap = <const int32_t *>swaps.data + batch * swaps.strides[0]
        for i in range(rows):
            row[i * out.strides[1]] = i
        for i in range(swaps.shape[1]):
            other = swap[i * swaps.strides[1]] - 1
            if other < 0 or other >= rows or i >= rows:
                return fail_index(call, other, 1, rows)
            kept = row[i * out.strides[1]]
            row[i * out.strides[1]] = row[other * out.strides[1]]
            row[other * out.strides[1]] = kept
    return PB_OK


# -- LDL -------------------------------------------------------------------------------------------


cdef void run_ldl(problem *of) noexcept nogil:
    cdef char uplo = b"L"
    cdef int *pivots = <int *>of.parts[1]
    cdef int64_t j, n = of.rows, size = item_size(of.routine + <int>PB_F32)
    if of.lwork >= 0:
        for j in range(1, n):
            memset(of.parts[0] + j * n * size, 0, j * size)
    if of.flag and of.routine >= 2:
        blas.hetrf[of.routine - 2](
            &uplo, &of.rows, of.parts[0], &of.rows, pivots, of.work, &of.lwork, &of.info)
    else:
        blas.sytrf[of.routine](
            &uplo, &of.rows, of.parts[0], &of.rows, pivots, of.work, &of.lwork, &of.info)


cdef int kernel_ldl(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t n = a.shape[1]
    cdef int code = start(&of, &blas, call, run_ldl)
    if code != PB_OK:
        return max(code, 0)
    of.model.flag = <int>call.param[0].i
    add_part(&of, a, call.out[0], n, n, item_size(a.dtype))
    add_part(&of, NULL, call.out[1], n, 1, sizeof(int32_t))
    of.info = call.out[2]
    return finish(&of, n * n * n // 3, True)


cdef void run_ldl_solve(problem *of) noexcept nogil:
    cdef char uplo = b"L"
    cdef int *pivots = <int *>of.parts[1]
    if of.flag and of.routine >= 2:
        blas.hetrs[of.routine - 2](
            &uplo, &of.rows, &of.columns, of.parts[0], &of.rows, pivots, of.parts[2], &of.rows,
            &of.info)
    else:
        blas.sytrs[of.routine](
            &uplo, &of.rows, &of.columns, of.parts[0], &of.rows, pivots, of.parts[2], &of.rows,
            &of.info)


cdef int kernel_ldl_solve(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *pivots = call.in_[1]
    cdef pb_array *b = call.in_[2]
    cdef int64_t n = a.shape[1], batch, i, pivot
    cdef int code = start(&of, &blas, call, run_ldl_solve)
    if code != PB_OK:
        return max(code, 0)
    if b.shape[2] == 0:
        return PB_OK
    if b.shape[2] > INT_MAX // n:
        return fail(call, PB_E_RUNTIME, b"a matrix is too large for LAPACK")
    for batch in range(pivots.shape[0]):    # LAPACK does not look whether they are rows
        for i in range(n):
            pivot = (<const int32_t *>pivots.data)[
                batch * pivots.strides[0] + i * pivots.strides[1]]
            pivot = -pivot if pivot < 0 else pivot
            if pivot < 1 or pivot > n:
                return fail_index(call, pivot - 1, 1, n)
    of.model.columns = <int>b.shape[2]
    of.model.flag = <int>call.param[0].i
    add_part(&of, a, NULL, n, n, item_size(a.dtype))
    add_part(&of, pivots, NULL, n, 1, sizeof(int32_t))
    add_part(&of, b, call.out[0], n, b.shape[2], item_size(a.dtype))
    return finish(&of, n * n * b.shape[2], False)


cdef uint32_t MASK = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

if not prepare_detached():
    raise MemoryError("no memory to prepare for the end of the process")
KERNELS = {
    "cholesky_factor": new_kernel(MASK, kernel_cholesky),
    "triangular": new_kernel(MASK, kernel_triangular),
    "lu_factor": new_kernel(MASK, kernel_lu),
    "permutation_of_swaps": new_kernel(1 << <int>PB_I32, kernel_permutation),
    "ldl_factor": new_kernel(MASK, kernel_ldl),
    "ldl_solve": new_kernel(MASK, kernel_ldl_solve),
}

# build: small
# Systems of linear equations. Where our own elimination does not keep up, and for complex numbers,
# by LAPACK's LU decomposition with partial pivoting. Like BLAS, LAPACK is looked up when the first
# such system comes.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.limits cimport INT_MAX
from libc.math cimport NAN, fabs
from libc.stdlib cimport free, malloc

from pullback_cpu.gemm.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.math.scalar_math cimport div_c64, div_c128, mul_c64, mul_c128
from pullback_cpu.kernels.linalg.elimination cimport solve_table
from pullback_cpu.runtime.threads cimport SPAN, stopping

from pullback_cpu.runtime.isa import load_for_isa

cdef extern from "runtime/huge_pages.h" nogil:
    void advise_huge "pb_advise_huge"(void *data, size_t nbytes) noexcept

cdef extern from "runtime/detached_call.h" nogil:
    bint prepare_detached "pb_detached_prepare"()
    int run_detached "pb_run_detached"(
        void (*work)(void *context) noexcept, void (*release)(void *context) noexcept,
        void *context, bint (*stopping)() noexcept)

cdef enum:
    MIDDLING = 256  # rows up to which more than one thread gains little; see blas_threads.h
    LONG = 1 << 26  # multiplications from which on LAPACK runs on a thread that can be left behind

cdef blas_table *blas = NULL
cdef solve_table *loops = <solve_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.kernels.linalg.elimination").LOOPS, b"pb_solve_loops")


ctypedef fused element:
    float
    double
    c64
    c128


cdef void copy_in(const element *source, const pb_array *array, element *columns) noexcept nogil:
    """Write a matrix column by column, as LAPACK reads it."""
    cdef int64_t i, j, done = 0
    for j in range(array.shape[2]):
        done += array.shape[1]
        if done >= SPAN:
            done = 0
            if stopping():
                return
        for i in range(array.shape[1]):
            columns[j * array.shape[1] + i] = (
                source[i * array.strides[1] + j * array.strides[2]])


cdef void copy_out(
        const element *columns, const pb_array *array, element *target, bint solved) noexcept nogil:
    """Write the solution; that of a singular system is NaN."""
    cdef int64_t i, j, done = 0
    for i in range(array.shape[1]):
        done += array.shape[2]
        if done >= SPAN:
            done = 0
            if stopping():
                return
        for j in range(array.shape[2]):
            target[i * array.strides[1] + j * array.strides[2]] = (
                columns[j * array.shape[1] + i] if solved else <element>NAN)


cdef bint all_finite(const element *elements, int64_t n) noexcept nogil:
    cdef int64_t i
    cdef element lost = 0
    for i in range(n):
        lost = lost + (elements[i] - elements[i])
    return lost == 0


cdef inline double size_of(element x) noexcept nogil:
    """Return what the largest pivot is chosen by, as in LAPACK."""
    if element is c64 or element is c128:
        return fabs(x.real) + fabs(x.imag)
    else:
        return fabs(x)


cdef inline element quotient(element x, element y) noexcept nogil:
    if element is c64:
        return div_c64(x, y)
    elif element is c128:
        return div_c128(x, y)
    else:
        return x / y


cdef inline element less_product(element x, element y, element z) noexcept nogil:
    """Return x - y z."""
    if element is c64:
        return x - mul_c64(y, z)
    elif element is c128:
        return x - mul_c128(y, z)
    else:
        return x - y * z


cdef int eliminate(element *a, int64_t n, element *b, int64_t columns) noexcept nogil:
    """Replace b by the solution of a x = b, both by columns; NaN is the largest pivot."""
    cdef int64_t i, j, k, pivot, done = 0
    cdef double largest, size
    cdef element factor
    for k in range(n):
        pivot, largest = k, size_of(a[k * n + k])
        for i in range(k + 1, n):
            size = size_of(a[k * n + i])
            if size > largest or (size != size and largest == largest):
                pivot, largest = i, size
        if largest == 0:
            return <int>(k + 1)
        if pivot != k:
            for j in range(n):
                a[j * n + k], a[j * n + pivot] = a[j * n + pivot], a[j * n + k]
            for j in range(columns):
                b[j * n + k], b[j * n + pivot] = b[j * n + pivot], b[j * n + k]
        for i in range(k + 1, n):
            done += n + columns
            if done >= SPAN:
                done = 0
                if stopping():
                    return 0
            factor = quotient(a[k * n + i], a[k * n + k])
            for j in range(k + 1, n):
                a[j * n + i] = less_product(a[j * n + i], factor, a[j * n + k])
            for j in range(columns):
                b[j * n + i] = less_product(b[j * n + i], factor, b[j * n + k])
    for j in range(columns):
        if n * n >= SPAN and stopping():
            return 0
        for k in range(n - 1, -1, -1):
            for i in range(k + 1, n):
                b[j * n + k] = less_product(b[j * n + k], a[i * n + k], b[j * n + i])
            b[j * n + k] = quotient(b[j * n + k], a[k * n + k])
    return 0


# The operands of one LAPACK call; it owns all of their memory.
cdef struct system:
    int routine         # in the order of BLAS's types
    int n
    int columns         # of right
    int found           # which pivot is zero, counted from 1, or 0
    char *matrix
    char *right
    int *pivots


cdef void run_lapack(void *context) noexcept nogil:
    cdef system *of = <system *>context
    blas.gesv[of.routine](
        &of.n, &of.columns, of.matrix, &of.n, of.pivots, of.right, &of.n, &of.found)


cdef void release(void *context) noexcept nogil:
    cdef system *of = <system *>context
    free(of.matrix)
    free(of.right)
    free(of.pivots)
    free(of)


cdef system *new_system(pb_call *call) noexcept nogil:
    """Return a system of the size of a call's, or NULL."""
    cdef pb_array *b = call.in_[1]
    cdef int64_t size = item_size(b.dtype), n = b.shape[1]
    cdef system *of = <system *>malloc(sizeof(system))
    if of == NULL:
        return NULL
    of.routine = b.dtype - <int>PB_F32
    of.n, of.columns, of.found = <int>n, <int>b.shape[2], 0
    of.matrix = <char *>malloc(n * n * size)
    of.right = <char *>malloc(max(n * b.shape[2], <int64_t>1) * size)
    of.pivots = <int *>malloc(n * sizeof(int))
    if of.matrix == NULL or of.right == NULL or of.pivots == NULL:
        release(of)
        return NULL
    advise_huge(of.matrix, n * n * size)
    advise_huge(of.right, n * b.shape[2] * size)
    return of


cdef bint solve_one(pb_call *call, system *of, int64_t batch, element *kind) noexcept nogil:
    """Solve one system. True if the call shall end: then LAPACK's thread has the memory.

    OpenBLAS goes on with numbers where a pivot is NaN, as if it had eliminated: then we eliminate.
    """
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *x = call.out[0]
    copy_in(<const element *>a.data + batch * a.strides[0], a, <element *>of.matrix)
    copy_in(<const element *>b.data + batch * b.strides[0], b, <element *>of.right)
    if <int64_t>of.n * of.n * (of.n + of.columns) < LONG:
        run_lapack(of)
    elif run_detached(run_lapack, release, of, stopping):
        return True
    if not all_finite(<element *>of.matrix, <int64_t>of.n * of.n):
        copy_in(<const element *>a.data + batch * a.strides[0], a, <element *>of.matrix)
        copy_in(<const element *>b.data + batch * b.strides[0], b, <element *>of.right)
        of.found = eliminate(<element *>of.matrix, of.n, <element *>of.right, of.columns)
    copy_out(<element *>of.right, x, <element *>x.data + batch * x.strides[0], of.found == 0)
    return False


cdef int solve_by_lapack(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *info = call.out[1]
    cdef int64_t batch = 0
    cdef int error, held
    cdef bint left = False
    cdef system *of
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    of = new_system(call)
    if of == NULL:
        return fail_memory(call)
    held = pb_blas_threads_hold(&blas.threads, of.n <= MIDDLING)
    while batch < a.shape[0] and not (batch and stopping()):
        if a.dtype == <int>PB_F32:
            left = solve_one(call, of, batch, <float *>NULL)
        elif a.dtype == <int>PB_F64:
            left = solve_one(call, of, batch, <double *>NULL)
        elif a.dtype == <int>PB_C64:
            left = solve_one(call, of, batch, <c64 *>NULL)
        else:
            left = solve_one(call, of, batch, <c128 *>NULL)
        if left:
            break
        (<int32_t *>info.data)[batch * info.strides[0]] = of.found
        batch += 1
    pb_blas_threads_release(&blas.threads, held)
    if not left:
        release(of)
    return PB_OK


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *info = call.out[1]
    cdef int64_t n = b.shape[1], batch
    if n > INT_MAX or b.shape[2] > INT_MAX:
        return fail(call, PB_E_RUNTIME, b"solve: a matrix is too large for LAPACK")
    if n == 0:
        for batch in range(a.shape[0]):
            (<int32_t *>info.data)[batch * info.strides[0]] = 0
    if a.shape[0] == 0 or n == 0:
        return PB_OK
    if loops.solve[a.dtype] != NULL:
        return fail_memory(call) if loops.solve[a.dtype](a, b, call.out[0], info) else PB_OK
    return solve_by_lapack(call)


cdef uint32_t SOLVED = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

if not prepare_detached():
    raise MemoryError("no memory to prepare for the end of the process")
KERNELS = {"solve": new_kernel(SOLVED, kernel_solve)}

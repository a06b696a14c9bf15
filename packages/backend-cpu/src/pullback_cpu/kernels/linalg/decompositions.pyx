# Decompositions of matrices, and triangular systems, by LAPACK; small ones by loops of our own, as
# a call of LAPACK takes longer than the numbers of an 8 x 8 matrix. Each problem of a batch is
# copied into memory that is stored column by column. Threads share a batch of small problems.
from libc.limits cimport INT_MAX
from libc.math cimport NAN, fabs, sqrt
from libc.stdlib cimport calloc, free, malloc

from pullback_cpu.gemm.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.math.scalar_math cimport div_c64, div_c128, mul_c64, mul_c128
from pullback_cpu.runtime.threads cimport parallel_for, stopping

cdef extern from "runtime/huge_pages.h" nogil:
    void advise_huge "pb_advise_huge"(void *data, size_t nbytes) noexcept

cdef extern from "runtime/detached_call.h" nogil:
    bint prepare_detached "pb_detached_prepare"()
    int run_detached "pb_run_detached"(
        void (*work)(void *context) noexcept, void (*release)(void *context) noexcept,
        void *context, bint (*stopping)() noexcept)

cdef enum:
    PARTS = 5         # operands, results and further memory of a problem, at most
    TINY = 16         # rows up to which our own loops are used
    MIDDLING = 256    # rows up to which more than one thread of BLAS gains little
    GRAIN = 1 << 16   # multiplications that a thread takes at a time, at least
    LONG = 1 << 24    # multiplications from which on LAPACK runs on a thread that can be left

cdef blas_table *blas = NULL


ctypedef fused element:
    float
    double
    c64
    c128

ctypedef fused unit:
    float
    double
    c128


# A matrix of each problem: what it is read from and written to, if anything.
cdef struct part:
    const pb_array *source
    const pb_array *target
    int64_t rows
    int64_t columns
    int64_t size        # of an element
    int64_t offset      # in a problem's memory


# One problem, with all of the memory that LAPACK reads and writes.
cdef struct problem:
    int routine         # in the order of BLAS's types
    int info
    int rows
    int columns
    int flag            # upper, Hermitian or with vectors
    int unit
    int lwork
    int lrwork
    int liwork
    char *parts[PARTS]
    char *work
    char *rwork
    int *iwork

ctypedef void (*problem_routine)(problem *of) noexcept nogil


# A batch of problems.
cdef struct task:
    problem_routine run
    pb_call *call
    const pb_array *info    # or NULL
    problem model           # of sizes; without memory
    part parts[PARTS]
    int count
    int64_t bytes           # of all parts
    bint failed             # there was no memory


cdef void copy_in(const unit *source, const pb_array *array, unit *columns) noexcept nogil:
    cdef int64_t rows = array.shape[1], count = array.shape[2] if array.ndim > 2 else 1
    cdef int64_t step = array.strides[1], stride = array.strides[2] if array.ndim > 2 else 0
    cdef int64_t i, j, first
    for first from 0 <= first < count by 16:
        for i in range(rows):
            for j in range(first, min(count, first + 16)):
                columns[j * rows + i] = source[i * step + j * stride]


cdef void copy_out(const unit *columns, const pb_array *array, unit *target) noexcept nogil:
    cdef int64_t rows = array.shape[1], count = array.shape[2] if array.ndim > 2 else 1
    cdef int64_t step = array.strides[1], stride = array.strides[2] if array.ndim > 2 else 0
    cdef int64_t i, j, first
    for first from 0 <= first < count by 16:
        for i in range(rows):
            for j in range(first, min(count, first + 16)):
                target[i * step + j * stride] = columns[j * rows + i]


cdef void copy_part(const part *of, int64_t batch, char *memory, bint back) noexcept nogil:
    """Copy a matrix into a problem's memory, or back."""
    cdef const pb_array *array = of.target if back else of.source
    cdef char *data
    cdef int64_t j
    if array == NULL:
        return
    data = <char *>array.data + batch * array.strides[0] * of.size
    if array.strides[1] == 1 or of.rows == 1:
        if array.ndim == 2:
            memcpy(data if back else memory, memory if back else data, of.rows * of.size)
            return
        for j in range(of.columns):
            memcpy(
                data + j * array.strides[2] * of.size if back else memory + j * of.rows * of.size,
                memory + j * of.rows * of.size if back else data + j * array.strides[2] * of.size,
                of.rows * of.size)
    elif back:
        if of.size == 4:
            copy_out(<const float *>memory, array, <float *>data)
        elif of.size == 8:
            copy_out(<const double *>memory, array, <double *>data)
        else:
            copy_out(<const c128 *>memory, array, <c128 *>data)
    elif of.size == 4:
        copy_in(<const float *>data, array, <float *>memory)
    elif of.size == 8:
        copy_in(<const double *>data, array, <double *>memory)
    else:
        copy_in(<const c128 *>data, array, <c128 *>memory)


cdef void release(void *context) noexcept nogil:
    free(context)


cdef problem *new_problem(const task *of) noexcept nogil:
    """Return a problem with memory for its parts and LAPACK's workspace, or NULL."""
    cdef int64_t size = 8 if of.model.routine % 2 == 0 else 16      # of an element, at most
    cdef int64_t head = (sizeof(problem) + 63) // 64 * 64
    cdef int64_t work = (of.model.lwork * size + 63) // 64 * 64
    cdef int64_t rwork = (of.model.lrwork * <int64_t>8 + 63) // 64 * 64
    cdef int64_t total = head + of.bytes + work + rwork + of.model.liwork * <int64_t>sizeof(int)
    cdef char *memory = <char *>malloc(total)
    cdef problem *made = <problem *>memory
    cdef int i
    if memory == NULL:
        return NULL
    advise_huge(memory, total)
    made[0] = of.model
    for i in range(of.count):
        made.parts[i] = memory + head + of.parts[i].offset
    made.work = memory + head + of.bytes
    made.rwork = made.work + work
    made.iwork = <int *>(made.rwork + rwork)
    return made


cdef void read_in(const task *of, problem *at, int64_t batch) noexcept nogil:
    cdef int i
    at.info = 0
    for i in range(of.count):
        copy_part(&of.parts[i], batch, at.parts[i], False)


cdef void write_out(const task *of, const problem *at, int64_t batch) noexcept nogil:
    cdef int i
    for i in range(of.count):
        copy_part(&of.parts[i], batch, at.parts[i], True)
    if of.info != NULL:
        (<int32_t *>of.info.data)[batch * of.info.strides[0]] = at.info


cdef void run_some(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef task *of = <task *>context
    cdef problem *at = new_problem(of)
    cdef int64_t batch
    if at == NULL:
        of.failed = True
        return
    for batch in range(first, last):
        read_in(of, at, batch)
        of.run(at)
        write_out(of, at, batch)
        if batch % 64 == 63 and stopping():
            break
    free(at)


cdef void add_part(task *of, const pb_array *source, const pb_array *target, int64_t rows,
                   int64_t columns, int64_t size) noexcept nogil:
    cdef part *made = &of.parts[of.count]
    of.count += 1
    made.source, made.target = source, target
    made.rows, made.columns, made.size = rows, columns, size
    made.offset = of.bytes
    of.bytes += (rows * columns * size + 63) // 64 * 64


cdef struct detached_problem:
    problem *at
    problem_routine run


cdef void run_alone(void *context) noexcept nogil:
    cdef detached_problem *of = <detached_problem *>context
    of.run(of.at)


cdef void release_alone(void *context) noexcept nogil:
    free((<detached_problem *>context).at)
    free(context)


cdef int run_one_by_one(task *of, int64_t count) noexcept nogil:
    """Run long problems, each on a thread that is left behind where the call shall end."""
    cdef detached_problem *context = <detached_problem *>malloc(sizeof(detached_problem))
    cdef int64_t batch
    if context == NULL:
        return fail_memory(of.call)
    context.run = of.run
    context.at = new_problem(of)
    if context.at == NULL:
        free(context)
        return fail_memory(of.call)
    for batch in range(count):
        read_in(of, context.at, batch)
        if run_detached(run_alone, release_alone, context, stopping):
            return PB_OK
        write_out(of, context.at, batch)
        if stopping():
            break
    release_alone(context)
    return PB_OK


cdef int ask_for_workspace(task *of) noexcept nogil:
    """Let LAPACK say how much memory it wants for itself."""
    cdef problem at = of.model
    cdef double work[2]
    cdef double rwork[2]
    cdef int iwork[2]
    work[0] = rwork[0] = iwork[0] = 0
    at.lwork = at.lrwork = at.liwork = -1
    at.work, at.rwork, at.iwork = <char *>work, <char *>rwork, iwork
    of.run(&at)
    if at.routine % 2 == 0:
        of.model.lwork = <int>(<float *>work)[0]
        of.model.lrwork = max(of.model.lrwork, <int>(<float *>rwork)[0])
    else:
        of.model.lwork = <int>work[0]
        of.model.lrwork = max(of.model.lrwork, <int>rwork[0])
    of.model.lwork += of.model.lwork // 1024 + 1    # a large count is rounded in float
    of.model.lrwork += of.model.lrwork // 1024 + 1
    of.model.liwork = iwork[0] + 1
    return PB_OK


cdef int start(task *of, pb_call *call, problem_routine run) noexcept nogil:
    """Begin a task with the sizes of the first operand. -1: there is nothing to do."""
    cdef pb_array *a = call.in_[0]
    cdef int error
    memset(of, 0, sizeof(task))
    of.call, of.run = call, run
    if a.shape[1] > INT_MAX or a.shape[2] > INT_MAX or a.shape[1] * a.shape[2] > INT_MAX // 2:
        return fail(call, PB_E_RUNTIME, b"a matrix is too large for LAPACK")
    if a.shape[0] == 0 or a.shape[1] == 0 or a.shape[2] == 0:
        return -1
    of.model.routine = a.dtype - <int>PB_F32
    of.model.rows, of.model.columns = <int>a.shape[1], <int>a.shape[2]
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    return PB_OK


cdef int finish(task *of, int64_t work, bint asks) noexcept nogil:
    """Run a task; ``work`` is the number of multiplications of one problem."""
    cdef int64_t count = of.call.in_[0].shape[0]
    cdef int held, error = PB_OK
    if asks:
        ask_for_workspace(of)
    held = pb_blas_threads_hold(
        &blas.threads, min(of.model.rows, of.model.columns) <= MIDDLING)
    if work >= LONG:
        error = run_one_by_one(of, count)
    else:
        parallel_for(count, GRAIN // max(work, <int64_t>1) + 1, run_some, of)
        if of.failed:
            error = fail_memory(of.call)
    pb_blas_threads_release(&blas.threads, held)
    return error


# -- arithmetic of our own loops -------------------------------------------------------------------


cdef inline double size_of(element x) noexcept nogil:
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


cdef inline element conjugate(element x) noexcept nogil:
    if element is c64:
        return make_c64(x.real, -x.imag)
    elif element is c128:
        return make_c128(x.real, -x.imag)
    else:
        return x


cdef inline element made_real(double x, element kind) noexcept nogil:
    if element is c64:
        return make_c64(<float>x, 0)
    elif element is c128:
        return make_c128(x, 0)
    else:
        return <element>x


cdef inline double real_of(element x) noexcept nogil:
    if element is c64 or element is c128:
        return x.real
    else:
        return x


cdef bint all_finite(const char *elements, int routine, int64_t n) noexcept nogil:
    cdef int64_t i
    cdef float lost_float = 0
    cdef double lost = 0
    n *= 1 + (routine >= 2)
    if routine % 2 == 0:
        for i in range(n):
            lost_float += (<const float *>elements)[i] - (<const float *>elements)[i]
        return lost_float == 0
    for i in range(n):
        lost += (<const double *>elements)[i] - (<const double *>elements)[i]
    return lost == 0


cdef void fill_nan(char *elements, int routine, int64_t n) noexcept nogil:
    cdef int64_t i
    n *= 1 + (routine >= 2)
    for i in range(n):
        if routine % 2 == 0:
            (<float *>elements)[i] = <float>NAN
        else:
            (<double *>elements)[i] = NAN


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
    cdef int code = start(&of, call, run_cholesky)
    if code != PB_OK:
        return max(code, 0)
    add_part(&of, a, call.out[0], n, n, item_size(a.dtype))
    of.info = call.out[1]
    return finish(&of, n * n * n // 3, False)


# -- triangular systems ----------------------------------------------------------------------------


cdef void small_triangular(const element *a, int64_t n, element *b, int64_t columns, bint upper,
                           bint has_ones) noexcept nogil:
    cdef int64_t i, j, k, step
    cdef element x
    for j in range(columns):
        for step in range(n):
            k = n - 1 - step if upper else step
            x = b[j * n + k]
            if not has_ones:
                x = quotient(x, a[k * n + k])
                b[j * n + k] = x
            for i in range(0 if upper else k + 1, k if upper else n):
                b[j * n + i] = less_product(b[j * n + i], a[k * n + i], x)


cdef void triangular_as(problem *of, element *a) noexcept nogil:
    cdef char side = b"L", trans = b"N"
    cdef char uplo = b"U" if of.flag else b"L", diag = b"U" if of.unit else b"N"
    cdef element one = made_real(1, a[0])
    if of.rows <= TINY:
        small_triangular(a, of.rows, <element *>of.parts[1], of.columns, of.flag, of.unit)
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
    cdef int code = start(&of, call, run_triangular)
    if code != PB_OK:
        return max(code, 0)
    if b.shape[2] == 0:
        return PB_OK
    if b.shape[2] > INT_MAX // n:
        return fail(call, PB_E_RUNTIME, b"a matrix is too large for LAPACK")
    of.model.columns = <int>b.shape[2]
    of.model.flag, of.model.unit = <int>call.param[0].i, <int>call.param[1].i
    add_part(&of, a, NULL, n, n, item_size(a.dtype))
    add_part(&of, b, call.out[0], n, b.shape[2], item_size(a.dtype))
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
    cdef int code = start(&of, call, run_lu)
    if code != PB_OK:
        return max(code, 0)
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


# -- QR --------------------------------------------------------------------------------------------


cdef void run_qr(problem *of) noexcept nogil:
    blas.geqrf[of.routine](
        &of.rows, &of.columns, of.parts[0], &of.rows, of.parts[1], of.work, &of.lwork, &of.info)


cdef int kernel_qr(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t small = min(a.shape[1], a.shape[2])
    cdef int code = start(&of, call, run_qr)
    if code != PB_OK:
        return max(code, 0)
    add_part(&of, a, call.out[0], a.shape[1], a.shape[2], item_size(a.dtype))
    add_part(&of, NULL, call.out[1], small, 1, item_size(a.dtype))
    return finish(&of, 2 * a.shape[1] * a.shape[2] * small, True)


# -- eigenvalues -----------------------------------------------------------------------------------


cdef void run_eigh(problem *of) noexcept nogil:
    cdef char job = b"V" if of.flag else b"N", uplo = b"L"
    cdef int64_t n = of.rows
    if of.lwork >= 0 and not all_finite(of.parts[0], of.routine, n * n):
        fill_nan(of.parts[0], of.routine, n * n)
        fill_nan(of.parts[1], of.routine % 2, n)
        return
    if of.routine < 2:
        blas.syevd[of.routine](
            &job, &uplo, &of.rows, of.parts[0], &of.rows, of.parts[1], of.work, &of.lwork,
            of.iwork, &of.liwork, &of.info)
    else:
        blas.heevd[of.routine - 2](
            &job, &uplo, &of.rows, of.parts[0], &of.rows, of.parts[1], of.work, &of.lwork,
            of.rwork, &of.lrwork, of.iwork, &of.liwork, &of.info)
    if of.info:
        fill_nan(of.parts[0], of.routine, n * n)
        fill_nan(of.parts[1], of.routine % 2, n)


cdef int kernel_eigh(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *vectors = call.out[1]
    cdef int64_t n = a.shape[1]
    cdef int code = start(&of, call, run_eigh)
    if code != PB_OK:
        return max(code, 0)
    of.model.flag = vectors.shape[1] != 0
    add_part(&of, a, vectors if of.model.flag else NULL, n, n, item_size(a.dtype))
    add_part(&of, NULL, call.out[0], n, 1, item_size(call.out[0].dtype))
    of.info = call.out[2]
    return finish(&of, (9 if of.model.flag else 2) * n * n * n, True)


cdef void widen_vectors(
        int64_t n, const element *imaginary, const element *found, element *out) noexcept nogil:
    """Write complex vectors; LAPACK gives the parts of a conjugate pair one after the other."""
    cdef int64_t i, j = 0
    while j < n:
        if imaginary[j] == 0 or j == n - 1:
            for i in range(n):
                out[2 * (j * n + i)], out[2 * (j * n + i) + 1] = found[j * n + i], 0
            j += 1
            continue
        for i in range(n):
            out[2 * (j * n + i)] = out[2 * ((j + 1) * n + i)] = found[j * n + i]
            out[2 * (j * n + i) + 1] = found[(j + 1) * n + i]
            out[2 * ((j + 1) * n + i) + 1] = -found[(j + 1) * n + i]
        j += 2


cdef void widen_values(
        int64_t n, const element *parts, element *out) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        out[2 * i], out[2 * i + 1] = parts[i], parts[n + i]


cdef void run_eig(problem *of) noexcept nogil:
    """Parts: the matrix, values, vectors; of real matrices further real vectors and parts."""
    cdef char no = b"N", job = b"V" if of.flag else b"N"
    cdef int64_t n = of.rows, size = 4 if of.routine % 2 == 0 else 8
    if of.lwork >= 0 and not all_finite(of.parts[0], of.routine, n * n):
        of.info = -1
    elif of.routine >= 2:
        blas.complex_geev[of.routine - 2](
            &no, &job, &of.rows, of.parts[0], &of.rows, of.parts[1], of.parts[2], &of.rows,
            of.parts[2], &of.rows, of.work, &of.lwork, of.rwork, &of.info)
    else:
        blas.geev[of.routine](
            &no, &job, &of.rows, of.parts[0], &of.rows, of.parts[4], of.parts[4] + n * size,
            of.parts[3], &of.rows, of.parts[3], &of.rows, of.work, &of.lwork, &of.info)
    if of.lwork < 0:
        return
    if of.info:
        fill_nan(of.parts[1], of.routine % 2 + 2, n)
        if of.flag:
            fill_nan(of.parts[2], of.routine % 2 + 2, n * n)
    elif of.routine == 0:
        widen_values(n, <const float *>of.parts[4], <float *>of.parts[1])
        if of.flag:
            widen_vectors(n, <const float *>of.parts[4] + n, <const float *>of.parts[3],
                          <float *>of.parts[2])
    elif of.routine == 1:
        widen_values(n, <const double *>of.parts[4], <double *>of.parts[1])
        if of.flag:
            widen_vectors(n, <const double *>of.parts[4] + n, <const double *>of.parts[3],
                          <double *>of.parts[2])


cdef int kernel_eig(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *vectors = call.out[1]
    cdef int64_t n = a.shape[1], size = item_size(a.dtype), wide = item_size(call.out[0].dtype)
    cdef int code = start(&of, call, run_eig)
    if code != PB_OK:
        return max(code, 0)
    of.model.flag = vectors.shape[1] != 0
    add_part(&of, a, NULL, n, n, size)
    add_part(&of, NULL, call.out[0], n, 1, wide)
    add_part(&of, NULL, vectors if of.model.flag else NULL, n, n if of.model.flag else 1, wide)
    if of.model.routine < 2:
        add_part(&of, NULL, NULL, n, n if of.model.flag else 1, size)
        add_part(&of, NULL, NULL, n, 2, size)
    of.model.lrwork = <int>(2 * n)
    of.info = call.out[2]
    return finish(&of, 25 * n * n * n, True)


# -- LDL -------------------------------------------------------------------------------------------


cdef void run_ldl(problem *of) noexcept nogil:
    cdef char uplo = b"L"
    cdef int *pivots = <int *>of.parts[1]
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
    cdef int code = start(&of, call, run_ldl)
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
    cdef int code = start(&of, call, run_ldl_solve)
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
    "qr_factor": new_kernel(MASK, kernel_qr),
    "eigh": new_kernel(MASK, kernel_eigh),
    "eig": new_kernel(MASK, kernel_eig),
    "ldl_factor": new_kernel(MASK, kernel_ldl),
    "ldl_solve": new_kernel(MASK, kernel_ldl_solve),
}

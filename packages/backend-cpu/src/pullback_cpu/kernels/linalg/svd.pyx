# build: small
# Singular value decompositions by LAPACK's divide and conquer. Like BLAS, LAPACK is looked up when
# the first matrix comes.
from libc.limits cimport INT_MAX
from libc.math cimport NAN
from libc.stdlib cimport calloc, free, malloc

from pullback_cpu.gemm.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.runtime.threads cimport SPAN, stopping

cdef extern from "runtime/huge_pages.h" nogil:
    void advise_huge "pb_advise_huge"(void *data, size_t nbytes) noexcept

cdef extern from "runtime/detached_call.h" nogil:
    bint prepare_detached "pb_detached_prepare"()
    int run_detached "pb_run_detached"(
        void (*work)(void *context) noexcept, void (*release)(void *context) noexcept,
        void *context, bint (*stopping)() noexcept)

cdef enum:
    MIDDLING = 256  # rows up to which more than one thread gains little; see blas_threads.h
    LONG = 1 << 22  # multiplications from which on LAPACK runs on a thread that can be left behind

cdef enum content:
    ALL_FINITE
    HAS_INFINITY     # the factors are NaN, as torch's singular values are
    HAS_NAN           # there are no factors

cdef blas_table *blas = NULL


ctypedef fused element:
    float
    double
    c64
    c128

ctypedef fused part:
    float
    double


# LAPACK reads and writes column by column: it gets the transpose of a matrix, and its factors are
# those of the matrix, transposed and in the other order. `workspace` has room for all of it.
cdef struct decomposition:
    int routine                         # in the order of BLAS's types
    int info                            # LAPACK's result code
    int rows
    int columns
    int count                           # of singular values
    int left                            # columns of u
    int right                           # rows of vh
    int64_t size                        # of an element
    int lwork
    char *matrix
    char *values
    char *u
    char *vh
    char *work
    char *rwork
    int *iwork
    char *workspace


cdef void copy_in(const element *source, const pb_array *array, element *rows) noexcept nogil:
    cdef int64_t _i, j, step = array.strides[2], done = 0
    for _i in range(array.shape[1]):
        done += array.shape[2]
        if done >= SPAN:
            done = 0
            if stopping():
                return
        if step == 1:
            memcpy(rows, source, array.shape[2] * sizeof(element))
        else:
            for j in range(array.shape[2]):
                rows[j] = source[j * step]
        rows += array.shape[2]
        source += array.strides[1]


cdef content find_content(const part *parts, int64_t n) noexcept nogil:
    """Look for elements that LAPACK must not get: with an infinite one it may not end."""
    cdef part lost = 0
    cdef int64_t start, i
    for start from 0 <= start < n by SPAN:
        if start and stopping():
            return ALL_FINITE
        for i in range(start, min(n, start + SPAN)):
            lost += parts[i] - parts[i]
    if lost == 0:
        return ALL_FINITE
    for start from 0 <= start < n by SPAN:
        if start and stopping():
            return HAS_NAN
        for i in range(start, min(n, start + SPAN)):
            if parts[i] != parts[i]:
                return HAS_NAN
    return HAS_INFINITY


cdef void copy_out(
        const element *rows, const pb_array *array, element *target, bint found) noexcept nogil:
    """Write a factor; NaN where there is none."""
    cdef int64_t _i, j, step = array.strides[2], done = 0
    for _i in range(array.shape[1]):
        done += array.shape[2]
        if done >= SPAN:
            done = 0
            if stopping():
                return
        if found and step == 1:
            memcpy(target, rows, array.shape[2] * sizeof(element))
        else:
            for j in range(array.shape[2]):
                target[j * step] = rows[j] if found else <element>NAN
        rows += array.shape[2]
        target += array.strides[1]


cdef void copy_values(const char *values, const pb_array *array, int64_t batch,
                      bint found) noexcept nogil:
    cdef int64_t i, offset
    for i in range(array.shape[1]):
        offset = batch * array.strides[0] + i * array.strides[1]
        if array.dtype == <int>PB_F32:
            (<float *>array.data)[offset] = (<const float *>values)[i] if found else <float>NAN
        else:
            (<double *>array.data)[offset] = (<const double *>values)[i] if found else NAN


cdef void decompose(void *context) noexcept nogil:
    """Run LAPACK on what `matrix` holds, which is lost."""
    cdef decomposition *of = <decomposition *>context
    cdef char job = b"S" if of.left == of.count and of.right == of.count else b"A"
    cdef int leading = max(of.rows, 1), lvh = max(of.right, 1)
    of.info = 0
    if of.routine < 2:
        blas.gesdd[of.routine](
            &job, &of.rows, &of.columns, of.matrix, &leading, of.values, of.u, &leading, of.vh,
            &lvh, of.work, &of.lwork, of.iwork, &of.info)
    else:
        blas.complex_gesdd[of.routine - 2](
            &job, &of.rows, &of.columns, of.matrix, &leading, of.values, of.u, &leading, of.vh,
            &lvh, of.work, &of.lwork, of.rwork, of.iwork, &of.info)


cdef void release(void *context) noexcept nogil:
    free((<decomposition *>context).workspace)
    free(context)


cdef bint allocate(decomposition *of) noexcept nogil:
    """Ask LAPACK how much memory it wants, and get it; False when there is none."""
    cdef int64_t small = of.count, large = max(of.rows, of.columns)
    cdef int64_t rwork = max(5 * small * small + 5 * small,
                             2 * large * small + 2 * small * small + small)
    cdef int64_t count = (<int64_t>of.rows * of.columns + <int64_t>of.rows * of.left
                          + <int64_t>of.right * of.columns + of.count)
    cdef int64_t room
    cdef double wanted[2]
    of.lwork = -1
    of.work = <char *>wanted
    of.iwork = NULL
    wanted[0] = 0
    decompose(of)
    of.lwork = <int>(<float *>wanted)[0] if of.routine % 2 == 0 else <int>wanted[0]
    of.lwork += of.lwork // 1024 + 1    # a large count is rounded in float
    room = ((count + of.lwork) * of.size + (rwork * of.size if of.routine >= 2 else 0)
            + 8 * (small + 1) * sizeof(int))
    of.workspace = <char *>malloc(room)
    if of.workspace == NULL or of.info != 0:
        return False
    advise_huge(of.workspace, room)
    of.matrix = of.workspace
    of.u = of.matrix + <int64_t>of.rows * of.columns * of.size
    of.vh = of.u + <int64_t>of.rows * of.left * of.size
    of.values = of.vh + <int64_t>of.right * of.columns * of.size
    of.work = of.values + of.count * of.size
    of.rwork = of.work + of.lwork * of.size
    of.iwork = <int *>(of.rwork + (rwork * of.size if of.routine >= 2 else 0))
    return True


cdef bint decompose_one(
        pb_call *call, decomposition *of, int64_t batch, element *kind) noexcept nogil:
    """Decompose one matrix; the info is LAPACK's, or 1 for NaN.

    True if the call shall end: then LAPACK's thread has the memory.
    """
    cdef pb_array *a = call.in_[0]
    cdef pb_array *u = call.out[0]
    cdef pb_array *vh = call.out[2]
    cdef int64_t count = <int64_t>of.rows * of.columns
    cdef bint found
    cdef content elements
    copy_in(<const element *>a.data + batch * a.strides[0], a, <element *>of.matrix)
    if element is float or element is c64:
        elements = find_content(<const float *>of.matrix, count * sizeof(element) // sizeof(float))
    else:
        elements = find_content(
            <const double *>of.matrix, count * sizeof(element) // sizeof(double))
    of.info = elements == HAS_NAN
    if elements == ALL_FINITE:
        if count * of.count < LONG:
            decompose(of)
        elif run_detached(decompose, release, of, stopping):
            return True
    found = of.info == 0 and elements == ALL_FINITE
    copy_out(<element *>of.vh, u, <element *>u.data + batch * u.strides[0], found)
    copy_values(of.values, call.out[1], batch, found)
    copy_out(<element *>of.u, vh, <element *>vh.data + batch * vh.strides[0], found)
    return False


cdef int kernel_svd(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *infos = call.out[3]
    cdef decomposition *of
    cdef int64_t batch
    cdef int error, held
    cdef bint left = False
    if a.shape[1] > INT_MAX or a.shape[2] > INT_MAX:
        return fail(call, PB_E_RUNTIME, b"svd: a matrix is too large for LAPACK")
    if a.shape[0] == 0:
        return PB_OK
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    of = <decomposition *>calloc(1, sizeof(decomposition))
    if of == NULL:
        return fail_memory(call)
    of.routine = a.dtype - <int>PB_F32
    of.rows, of.columns = <int>a.shape[2], <int>a.shape[1]
    of.count = min(of.rows, of.columns)
    of.left, of.right = <int>call.out[2].shape[1], <int>call.out[0].shape[2]
    of.size = item_size(a.dtype)
    held = pb_blas_threads_hold(&blas.threads, of.count <= MIDDLING)
    error = PB_OK if allocate(of) else fail_memory(call)
    batch = 0
    while error == PB_OK and batch < a.shape[0] and not (batch and stopping()):
        if a.dtype == <int>PB_F32:
            left = decompose_one(call, of, batch, <float *>NULL)
        elif a.dtype == <int>PB_F64:
            left = decompose_one(call, of, batch, <double *>NULL)
        elif a.dtype == <int>PB_C64:
            left = decompose_one(call, of, batch, <c64 *>NULL)
        else:
            left = decompose_one(call, of, batch, <c128 *>NULL)
        if left:
            break
        (<int32_t *>infos.data)[batch * infos.strides[0]] = of.info
        batch += 1
    pb_blas_threads_release(&blas.threads, held)
    if not left:
        release(of)
    return error


cdef uint32_t DECOMPOSED = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

if not prepare_detached():
    raise MemoryError("no memory to prepare for the end of the process")
KERNELS = {"svd": new_kernel(DECOMPOSED, kernel_svd)}

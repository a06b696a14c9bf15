# Singular value decompositions by LAPACK's divide and conquer. Like BLAS, LAPACK is looked up when
# the first matrix comes.
from libc.limits cimport INT_MAX
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

from pullback_cpu.kernels.blas cimport (
    blas_table, load_blas, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common cimport *

cdef enum:
    MIDDLING = 256  # rows up to which more than one thread gains little; see blas_threads.h

cdef enum met:
    NUMBERS
    AN_INFINITY     # the factors are NaN, as torch's singular values are
    A_NAN           # there are no factors

cdef blas_table *blas = NULL


ctypedef fused element:
    float
    double
    c64
    c128

ctypedef fused part:
    float
    double


# Column by column, as LAPACK reads and writes; `scratch` has room for all of it.
cdef struct decomposition:
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
    char *scratch


cdef void copy_in(const element *source, const pb_array *array, element *columns) noexcept nogil:
    cdef int64_t i, j
    for j in range(array.shape[2]):
        for i in range(array.shape[1]):
            columns[j * array.shape[1] + i] = (
                source[i * array.strides[1] + j * array.strides[2]])


cdef met look_at(const part *parts, int64_t n) noexcept nogil:
    """Say what LAPACK must not get: it may not end where an element is infinite."""
    cdef part lost = 0
    cdef int64_t i
    for i in range(n):
        lost += parts[i] - parts[i]
    if lost == 0:
        return NUMBERS
    for i in range(n):
        if parts[i] != parts[i]:
            return A_NAN
    return AN_INFINITY


cdef void copy_out(
        const element *columns, const pb_array *array, element *target, bint found) noexcept nogil:
    """Write a factor; NaN where there is none."""
    cdef int64_t i, j
    for i in range(array.shape[1]):
        for j in range(array.shape[2]):
            target[i * array.strides[1] + j * array.strides[2]] = (
                columns[j * array.shape[1] + i] if found else <element>NAN)


cdef void copy_values(const char *values, const pb_array *array, int64_t batch,
                      bint found) noexcept nogil:
    cdef int64_t i, place
    for i in range(array.shape[1]):
        place = batch * array.strides[0] + i * array.strides[1]
        if array.dtype == <int>PB_F32:
            (<float *>array.data)[place] = (<const float *>values)[i] if found else <float>NAN
        else:
            (<double *>array.data)[place] = (<const double *>values)[i] if found else NAN


cdef int decompose(decomposition *of, int routine) noexcept nogil:
    """Run LAPACK on what `matrix` holds, which is lost; returns its info."""
    cdef char job = b"S" if of.left == of.count and of.right == of.count else b"A"
    cdef int leading = max(of.rows, 1), lvh = max(of.right, 1), info = 0
    if routine < 2:
        blas.gesdd[routine](&job, &of.rows, &of.columns, of.matrix, &leading, of.values, of.u,
                            &leading, of.vh, &lvh, of.work, &of.lwork, of.iwork, &info)
    else:
        blas.complex_gesdd[routine - 2](
            &job, &of.rows, &of.columns, of.matrix, &leading, of.values, of.u, &leading, of.vh,
            &lvh, of.work, &of.lwork, of.rwork, of.iwork, &info)
    return info


cdef int allocate(decomposition *of, int routine) noexcept nogil:
    """Ask LAPACK how much memory it wants, and get it; False when there is none."""
    cdef int64_t small = of.count, large = max(of.rows, of.columns)
    cdef int64_t rwork = max(5 * small * small + 5 * small,
                             2 * large * small + 2 * small * small + small)
    cdef int64_t count = (<int64_t>of.rows * of.columns + <int64_t>of.rows * of.left
                          + <int64_t>of.right * of.columns + of.count)
    cdef double wanted[2]
    cdef int info
    of.lwork = -1
    of.work = <char *>wanted
    of.iwork = NULL
    wanted[0] = 0
    info = decompose(of, routine)
    of.lwork = <int>(<float *>wanted)[0] if routine % 2 == 0 else <int>wanted[0]
    of.lwork += of.lwork // 1024 + 1    # a large count is rounded in float
    of.scratch = <char *>malloc(
        (count + of.lwork) * of.size + (rwork * of.size if routine >= 2 else 0)
        + 8 * (small + 1) * sizeof(int))
    if of.scratch == NULL or info != 0:
        return False
    of.matrix = of.scratch
    of.u = of.matrix + <int64_t>of.rows * of.columns * of.size
    of.vh = of.u + <int64_t>of.rows * of.left * of.size
    of.values = of.vh + <int64_t>of.right * of.columns * of.size
    of.work = of.values + of.count * of.size
    of.rwork = of.work + of.lwork * of.size
    of.iwork = <int *>(of.rwork + (rwork * of.size if routine >= 2 else 0))
    return True


cdef int decompose_one(
        pb_call *call, decomposition *of, int64_t batch, element *kind) noexcept nogil:
    """Decompose one matrix; returns LAPACK's info, or 1 for NaN."""
    cdef pb_array *a = call.in_[0]
    cdef pb_array *u = call.out[0]
    cdef pb_array *vh = call.out[2]
    cdef int64_t count = <int64_t>of.rows * of.columns
    cdef int info
    cdef bint found
    cdef met elements
    copy_in(<const element *>a.data + batch * a.strides[0], a, <element *>of.matrix)
    if element is float or element is c64:
        elements = look_at(<const float *>of.matrix, count * sizeof(element) // sizeof(float))
    else:
        elements = look_at(<const double *>of.matrix, count * sizeof(element) // sizeof(double))
    info = decompose(of, a.dtype - <int>PB_F32) if elements == NUMBERS else elements == A_NAN
    found = info == 0 and elements == NUMBERS
    copy_out(<element *>of.u, u, <element *>u.data + batch * u.strides[0], found)
    copy_values(of.values, call.out[1], batch, found)
    copy_out(<element *>of.vh, vh, <element *>vh.data + batch * vh.strides[0], found)
    return info


cdef int kernel_svd(pb_call *call) noexcept nogil:
    cdef pb_array *a = call.in_[0]
    cdef pb_array *infos = call.out[3]
    cdef decomposition of
    cdef int64_t batch
    cdef int info, error, held
    if a.shape[1] > INT_MAX or a.shape[2] > INT_MAX:
        return fail(call, PB_E_RUNTIME, b"svd: a matrix is too large for LAPACK")
    if a.shape[0] == 0:
        return PB_OK
    if unlikely(blas == NULL):
        error = load_blas(&blas)
        if error:
            return error
    of.rows, of.columns = <int>a.shape[1], <int>a.shape[2]
    of.count = min(of.rows, of.columns)
    of.left, of.right = <int>call.out[0].shape[2], <int>call.out[2].shape[1]
    of.size = item_size(a.dtype)
    of.matrix = of.values = of.u = of.vh = of.rwork = of.scratch = NULL
    held = pb_blas_threads_hold(&blas.threads, of.count <= MIDDLING)
    if not allocate(&of, a.dtype - <int>PB_F32):
        error = fail_memory(call)
    else:
        error = PB_OK
        for batch in range(a.shape[0]):
            if a.dtype == <int>PB_F32:
                info = decompose_one(call, &of, batch, <float *>NULL)
            elif a.dtype == <int>PB_F64:
                info = decompose_one(call, &of, batch, <double *>NULL)
            elif a.dtype == <int>PB_C64:
                info = decompose_one(call, &of, batch, <c64 *>NULL)
            else:
                info = decompose_one(call, &of, batch, <c128 *>NULL)
            (<int32_t *>infos.data)[batch * infos.strides[0]] = info
    pb_blas_threads_release(&blas.threads, held)
    free(of.scratch)
    return error


cdef uint32_t DECOMPOSED = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

KERNELS = {"svd": new_kernel(DECOMPOSED, kernel_svd)}

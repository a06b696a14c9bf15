# QR decompositions, singular values, eigenvalues and eigenvectors, by LAPACK; of small matrices by
# loops of our own.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport copysign, sqrt

from pullback_cpu.gemm.blas cimport blas_table
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.kernels.linalg.elements cimport *
from pullback_cpu.kernels.linalg.lapack_batch cimport *
from pullback_cpu.kernels.linalg.small_batches cimport batch_table, is_small_batch

from pullback_cpu.runtime.isa import load_for_isa

cdef extern from "runtime/detached_call.h" nogil:
    bint prepare_detached "pb_detached_prepare"()

cdef extern from "kernels/linalg/small_schur.h" nogil:
    int PB_SCHUR_ROWS
    int pb_schur_f32(const float *a, int n, float *values, float *vectors)
    int pb_schur_f64(const double *a, int n, double *values, double *vectors)

cdef enum:
    TINY = 16   # rows up to which our own loops are used

cdef blas_table *blas = NULL
cdef batch_table *batches = <batch_table *>PyCapsule_GetPointer(
    load_for_isa("pullback_cpu.kernels.linalg.small_batches").LOOPS, b"pb_batch_loops")


ctypedef fused real:
    float
    double


# -- QR --------------------------------------------------------------------------------------------


cdef bint small_qr(element *a, int64_t rows, int64_t columns, element *taus) noexcept nogil:
    """Reflect column by column, as LAPACK; false for numbers whose squares have no place."""
    cdef int64_t i, j, k
    cdef double below, beta, largest = 0
    cdef element tau, along, scale
    for i in range(rows * columns):
        beta = size_of(a[i])
        if not beta <= largest:
            largest = beta
    if largest != 0 and not 1e-140 < largest < 1e140:
        return False
    for k in range(min(rows, columns)):
        taus[k] = made_real(0, a[0])
        below = 0
        for i in range(k + 1, rows):
            along = a[k * rows + i]
            below += real_of(along) * real_of(along) + imag_of(along) * imag_of(along)
        scale = a[k * rows + k]
        if below == 0 and imag_of(scale) == 0:
            continue
        beta = real_of(scale) * real_of(scale) + imag_of(scale) * imag_of(scale)
        beta = -copysign(sqrt(beta + below), real_of(scale))
        tau = made_complex((beta - real_of(scale)) / beta, -imag_of(scale) / beta, a[0])
        taus[k] = tau
        scale = quotient(made_real(1, a[0]), scale - made_real(beta, a[0]))
        a[k * rows + k] = made_real(beta, a[0])
        for i in range(k + 1, rows):
            a[k * rows + i] = product(a[k * rows + i], scale)
        for j in range(k + 1, columns):
            along = a[j * rows + k]
            for i in range(k + 1, rows):
                along = along + product(conjugate(a[k * rows + i]), a[j * rows + i])
            along = product(conjugate(tau), along)
            a[j * rows + k] = a[j * rows + k] - along
            for i in range(k + 1, rows):
                a[j * rows + i] = less_product(a[j * rows + i], a[k * rows + i], along)
    return True


cdef void small_reflections(element *a, int64_t rows, int64_t columns, int64_t count,
                            const element *taus) noexcept nogil:
    """Replace the vectors by the first columns of their product, the last reflection first."""
    cdef int64_t i, j, k
    cdef element along
    for j in range(count, columns):
        for i in range(rows):
            a[j * rows + i] = made_real(i == j, a[0])
    for k in range(count - 1, -1, -1):
        for j in range(k + 1, columns):
            along = a[j * rows + k]
            for i in range(k + 1, rows):
                along = along + product(conjugate(a[k * rows + i]), a[j * rows + i])
            along = product(taus[k], along)
            a[j * rows + k] = a[j * rows + k] - along
            for i in range(k + 1, rows):
                a[j * rows + i] = less_product(a[j * rows + i], a[k * rows + i], along)
        for i in range(rows):
            if i < k:
                a[k * rows + i] = made_real(0, a[0])
            elif i == k:
                a[k * rows + i] = made_real(1, a[0]) - taus[k]
            else:
                a[k * rows + i] = less_product(made_real(0, a[0]), taus[k], a[k * rows + i])


cdef bint is_small_qr(problem *of) noexcept nogil:
    """Decompose a small matrix; false if that is left to LAPACK."""
    if of.lwork < 0 or max(of.rows, of.columns) > TINY:
        return False
    if of.routine == 0:
        return small_qr(<float *>of.parts[0], of.rows, of.columns, <float *>of.parts[1])
    if of.routine == 1:
        return small_qr(<double *>of.parts[0], of.rows, of.columns, <double *>of.parts[1])
    if of.routine == 2:
        return small_qr(<c64 *>of.parts[0], of.rows, of.columns, <c64 *>of.parts[1])
    return small_qr(<c128 *>of.parts[0], of.rows, of.columns, <c128 *>of.parts[1])


cdef void run_qr(problem *of) noexcept nogil:
    if is_small_qr(of):
        return
    blas.geqrf[of.routine](
        &of.rows, &of.columns, of.parts[0], &of.rows, of.parts[1], of.work, &of.lwork, &of.info)


cdef int kernel_qr(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t small = min(a.shape[1], a.shape[2])
    cdef int code = start(&of, &blas, call, run_qr)
    if code != PB_OK:
        return max(code, 0)
    add_part(&of, a, call.out[0], a.shape[1], a.shape[2], item_size(a.dtype))
    add_part(&of, NULL, call.out[1], small, 1, item_size(a.dtype))
    return finish(&of, 2 * a.shape[1] * a.shape[2] * small, True, MIDDLING_QR)


cdef void run_reflections(problem *of) noexcept nogil:
    if of.lwork >= 0 and of.rows <= TINY:
        if of.routine == 0:
            small_reflections(<float *>of.parts[0], of.rows, of.columns, of.flag,
                              <float *>of.parts[1])
        elif of.routine == 1:
            small_reflections(<double *>of.parts[0], of.rows, of.columns, of.flag,
                              <double *>of.parts[1])
        elif of.routine == 2:
            small_reflections(<c64 *>of.parts[0], of.rows, of.columns, of.flag,
                              <c64 *>of.parts[1])
        else:
            small_reflections(<c128 *>of.parts[0], of.rows, of.columns, of.flag,
                              <c128 *>of.parts[1])
        return
    blas.orgqr[of.routine](
        &of.rows, &of.columns, &of.flag, of.parts[0], &of.rows, of.parts[1], of.work, &of.lwork,
        &of.info)


cdef int kernel_reflections(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *vectors = call.in_[0]
    cdef pb_array *tau = call.in_[1]
    cdef pb_array *out = call.out[0]
    cdef int code = start(&of, &blas, call, run_reflections)
    if code != PB_OK:
        return max(code, 0)
    if out.shape[1] < out.shape[2] or tau.shape[1] > min(vectors.shape[2], out.shape[2]):
        return fail(call, PB_E_RUNTIME, b"reflections: shapes do not fit")
    of.model.columns, of.model.flag = <int>out.shape[2], <int>tau.shape[1]
    add_part(&of, vectors, out, out.shape[1], out.shape[2], item_size(out.dtype))
    of.parts[0].read = vectors.shape[2]
    add_part(&of, tau, NULL, tau.shape[1], 1, item_size(out.dtype))
    return finish(&of, 4 * out.shape[1] * out.shape[2] * tau.shape[1], True, MIDDLING_QR)


# -- singular values ------------------------------------------------------------------------------


cdef void run_svdvals(problem *of) noexcept nogil:
    cdef char job = b"N"
    cdef int one = 1, small = min(of.rows, of.columns)
    if of.lwork >= 0 and not all_finite(of.parts[0], of.routine, <int64_t>of.rows * of.columns):
        of.info = has_nan(of.parts[0], of.routine, <int64_t>of.rows * of.columns)
        fill_nan(of.parts[1], of.routine % 2, small)
        return
    if of.routine < 2:
        blas.gesdd[of.routine](
            &job, &of.rows, &of.columns, of.parts[0], &of.rows, of.parts[1], of.parts[0], &one,
            of.parts[0], &one, of.work, &of.lwork, of.iwork, &of.info)
    else:
        blas.complex_gesdd[of.routine - 2](
            &job, &of.rows, &of.columns, of.parts[0], &of.rows, of.parts[1], of.parts[0], &one,
            of.parts[0], &one, of.work, &of.lwork, of.rwork, of.iwork, &of.info)
    if of.info:
        fill_nan(of.parts[1], of.routine % 2, small)


cdef bint has_nan(const char *elements, int routine, int64_t n) noexcept nogil:
    cdef int64_t i
    n *= 1 + (routine >= 2)
    for i in range(n):
        if routine % 2 == 0:
            if (<const float *>elements)[i] != (<const float *>elements)[i]:
                return True
        elif (<const double *>elements)[i] != (<const double *>elements)[i]:
            return True
    return False


cdef int kernel_svdvals(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef int64_t small = min(a.shape[1], a.shape[2])
    cdef int code = start(&of, &blas, call, run_svdvals)
    if code != PB_OK:
        return max(code, 0)
    add_part(&of, a, NULL, a.shape[1], a.shape[2], item_size(a.dtype))
    add_part(&of, NULL, call.out[0], small, 1, item_size(call.out[0].dtype))
    of.info = call.out[1]
    if batches.svdvals[a.dtype] != NULL and is_small_batch(batches, a):
        batches.svdvals[a.dtype](a, call.out[0], NULL, call.out[1])
        if all_done(&of):
            return PB_OK
    of.model.lrwork = of.model.liwork = <int>(8 * small + 1)
    return finish(&of, 4 * a.shape[1] * a.shape[2] * small, True)


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
    cdef int code = start(&of, &blas, call, run_eigh)
    if code != PB_OK:
        return max(code, 0)
    of.model.flag = vectors.shape[1] != 0
    add_part(&of, a, vectors if of.model.flag else NULL, n, n, item_size(a.dtype))
    add_part(&of, NULL, call.out[0], n, 1, item_size(call.out[0].dtype))
    of.info = call.out[2]
    if batches.eigh[a.dtype] != NULL and is_small_batch(batches, a):
        batches.eigh[a.dtype](a, call.out[0], vectors, call.out[2])
        if all_done(&of):
            return PB_OK
    return finish(&of, (9 if of.model.flag else 2) * n * n * n, True)


cdef void widen_vectors(
        int64_t n, const real *imaginary, const real *found, real *out) noexcept nogil:
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


cdef void widen_values(int64_t n, const real *parts, real *out) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        out[2 * i], out[2 * i + 1] = parts[i], parts[n + i]


cdef bint is_small_eig(problem *of) noexcept nogil:
    """Find eigenvalues of a small real matrix; false if that is left to LAPACK."""
    if of.lwork < 0 or of.rows > PB_SCHUR_ROWS or of.routine >= 2:
        return False
    if of.routine == 0:
        return not pb_schur_f32(
            <float *>of.parts[0], of.rows, <float *>of.parts[4],
            <float *>of.parts[3] if of.flag else NULL)
    return not pb_schur_f64(
        <double *>of.parts[0], of.rows, <double *>of.parts[4],
        <double *>of.parts[3] if of.flag else NULL)


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
    elif not is_small_eig(of):
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
    cdef int code = start(&of, &blas, call, run_eig)
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


cdef uint32_t MASK = (
    1 << <int>PB_F32 | 1 << <int>PB_F64 | 1 << <int>PB_C64 | 1 << <int>PB_C128)

if not prepare_detached():
    raise MemoryError("no memory to prepare for the end of the process")
KERNELS = {
    "qr_factor": new_kernel(MASK, kernel_qr),
    "reflections": new_kernel(MASK, kernel_reflections),
    "svdvals": new_kernel(MASK, kernel_svdvals),
    "eigh": new_kernel(MASK, kernel_eigh),
    "eig": new_kernel(MASK, kernel_eig),
}

"""Linear algebra by cuBLAS and cuSOLVER, on prepared memory.

Each function gets a ``Batch`` of kernels/linalg/batches.pyx: matrices column by column, contiguous,
at addresses of the device. It is called with the device's context current, gives its work to the
stream of ``batch.where``, and lets the library write a code for each matrix.
"""

from __future__ import annotations

import ctypes
import functools

from pullback_cuda.runtime import libraries

# Numbers of cuBLAS and cuSOLVER: not transposed; from the left; triangles; without vectors.
PLAIN = LEFT = LOWER = NO_VECTORS = 0
UPPER = VECTORS = 1
LIBRARY_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
REAL_TYPES = {"float32": 0, "float64": 1, "complex64": 0, "complex128": 1}
COMPLEX_TYPES = {"float32": 4, "float64": 5, "complex64": 4, "complex128": 5}
ITEM_SIZES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
# The number 1, with a zero after it for complex dtypes.
ONE_SINGLE, ONE_DOUBLE = (ctypes.c_float * 2)(1, 0), (ctypes.c_double * 2)(1, 0)
ONES = {"float32": ONE_SINGLE, "float64": ONE_DOUBLE,
        "complex64": ONE_SINGLE, "complex128": ONE_DOUBLE}  # fmt: skip


def _blas():
    return libraries.load("cublas", "cuBLAS", "linear algebra")


def _solver():
    return libraries.load("cusolverDn", "cuSOLVER", "linear algebra")


@functools.lru_cache
def _solver_parameters(device: int, stream: int) -> int:
    return _solver().create_params()


def _common(batch):
    """Return what 64-bit calls of cuSOLVER begin with."""
    return libraries.solver_handle(*batch.where), _solver_parameters(*batch.where)


def _address(buffer) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _each(batch, sizes, run):
    """Run a routine for each matrix, with the memory that it asks for."""
    on_device, on_host = sizes(*batch.at(0))
    host = bytearray(max(on_host, 1))
    memory = batch.workspace(on_device), on_device, _address(host), on_host
    for number in range(batch.count):
        run(*batch.at(number), *memory, batch.code(number))


# -- triangular factors and systems ----------------------------------------------------------------


def factor_cholesky(batch):
    """Replace the lower triangles by their Cholesky factors; the upper ones are destroyed."""
    solver, kind, (n, _) = _solver(), LIBRARY_TYPES[batch.dtype], batch.shape(0)
    if batch.at_once:
        factor = getattr(solver, f"{LETTERS[batch.dtype]}potrf_batched")
        factor(libraries.solver_handle(*batch.where), LOWER, n, batch.list(0), n, batch.code(0),
               batch.count)  # fmt: skip
        return
    start = *_common(batch), LOWER, n, kind
    _each(
        batch,
        lambda a: solver.xpotrf_buffer_size(*start, a, n, kind),
        lambda a, *memory: solver.xpotrf(*start, a, n, kind, *memory),
    )


def triangular(batch):
    """Solve systems by the triangles of the first part; the second one has the right sides."""
    blas, letter, (upper, unit) = _blas(), LETTERS[batch.dtype], batch.options
    n, columns = batch.shape(1)
    start = (libraries.blas_handle(*batch.where), LEFT, UPPER if upper else LOWER, PLAIN, unit, n,
             columns, _address(ONES[batch.dtype]))  # fmt: skip
    if batch.at_once:
        solve = getattr(blas, f"{letter}trsm_batched")
        solve(*start, batch.list(0), n, batch.list(1), n, batch.count)
        return
    solve = getattr(blas, f"{letter}trsm_64")
    for number in range(batch.count):
        a, b = batch.at(number)
        solve(*start, a, n, b, n)


def factor_lu(batch):
    """Eliminate with partial pivoting; pivots, the last part, are int32 if at once, or int64."""
    solver, kind, (rows, columns) = _solver(), LIBRARY_TYPES[batch.dtype], batch.shape(0)
    if batch.at_once:
        factor = getattr(_blas(), f"{LETTERS[batch.dtype]}getrf_batched")
        factor(libraries.blas_handle(*batch.where), rows, batch.list(0), rows, batch.at(0)[-1],
               batch.code(0), batch.count)  # fmt: skip
        return
    start = *_common(batch), rows, columns, kind
    _each(
        batch,
        lambda a, *_: solver.xgetrf_buffer_size(*start, a, rows, kind),
        # After the parts come four words of memory and the code.
        lambda a, *rest: solver.xgetrf(*start, a, rows, rest[-6], kind, *rest[-5:]),
    )


def solve(batch):
    """Solve systems whose right sides are in the second part; the third one has pivots."""
    factor_lu(batch)
    n, columns = batch.shape(1)
    if columns == 0:
        return
    if batch.at_once:
        status = bytearray(4)
        substitute = getattr(_blas(), f"{LETTERS[batch.dtype]}getrs_batched")
        substitute(libraries.blas_handle(*batch.where), PLAIN, n, columns, batch.list(0), n,
                   batch.at(0)[2], batch.list(1), n, _address(status), batch.count)  # fmt: skip
        return
    solver, kind, start = _solver(), LIBRARY_TYPES[batch.dtype], _common(batch)
    for number in range(batch.count):
        a, b, pivots = batch.at(number)
        # Its code says nothing new, and goes behind the last one.
        solver.xgetrs(*start, PLAIN, n, columns, kind, a, n, pivots, kind, b, n,
                      batch.code(batch.count))  # fmt: skip


# -- orthogonal factors ----------------------------------------------------------------------------


def factor_qr(batch):
    """Replace matrices by R and the vectors of reflections; the second part gets their factors."""
    solver, kind, (rows, columns) = _solver(), LIBRARY_TYPES[batch.dtype], batch.shape(0)
    if batch.at_once:
        status = bytearray(4)
        factor = getattr(_blas(), f"{LETTERS[batch.dtype]}geqrf_batched")
        factor(libraries.blas_handle(*batch.where), rows, columns, batch.list(0), rows,
               batch.list(1), _address(status), batch.count)  # fmt: skip
        return
    start = *_common(batch), rows, columns, kind
    _each(
        batch,
        lambda a, tau: solver.xgeqrf_buffer_size(*start, a, rows, kind, tau, kind),
        lambda a, tau, *memory: solver.xgeqrf(*start, a, rows, kind, tau, kind, *memory),
    )


def reflections(batch):
    """Replace the vectors of reflections by the columns of their product."""
    solver, (rows, columns), (count, _) = _solver(), batch.shape(0), batch.shape(1)
    letter, size = LETTERS[batch.dtype], ITEM_SIZES[batch.dtype]
    name = f"{letter}orgqr" if letter in "sd" else f"{letter}ungqr"
    run, needs = getattr(solver, name), getattr(solver, f"{name}_buffer_size")
    start = libraries.solver_handle(*batch.where), rows, columns, count
    _each(
        batch,
        lambda a, tau: (size * needs(*start, a, rows, tau), 0),
        lambda a, tau, work, nbytes, _host, _none, code: run(
            *start, a, rows, tau, work, nbytes // size, code
        ),
    )


# -- singular values and eigenvalues ---------------------------------------------------------------


def svd(batch):
    """Decompose matrices that have at least as many rows as columns.

    Parts: the matrix, values, and vectors of both sides, unless only values are wanted.
    """
    solver, dtype, (rows, columns) = _solver(), batch.dtype, batch.shape(0)
    with_vectors, full = batch.options
    kind, job = LIBRARY_TYPES[dtype], ord("A" if full else "S") if with_vectors else ord("N")
    start = *_common(batch), job, job, rows, columns, kind

    def described(a, values, left=0, right=0):
        return (*start, a, rows, REAL_TYPES[dtype], values, kind, left or a, rows, kind, right or a,
                columns, kind)  # fmt: skip

    parts = 4 if with_vectors else 2
    _each(
        batch,
        lambda *parts: solver.xgesvd_buffer_size(*described(*parts)),
        lambda *rest: solver.xgesvd(*described(*rest[:parts]), *rest[parts:]),
    )


def eigh(batch):
    """Find eigenvalues of Hermitian matrices, by the lower triangles; vectors replace these."""
    solver, dtype, (n, _) = _solver(), batch.dtype, batch.shape(0)
    kind, real = LIBRARY_TYPES[dtype], REAL_TYPES[dtype]
    start = *_common(batch), VECTORS if batch.options[0] else NO_VECTORS, LOWER, n, kind
    if batch.count == 1:
        _each(
            batch,
            lambda a, w: solver.xsyevd_buffer_size(*start, a, n, real, w, kind),
            lambda a, w, *memory: solver.xsyevd(*start, a, n, real, w, kind, *memory),
        )
        return
    # cuSOLVER refuses some 32,000 matrices in a call, and more than 2^31 elements.
    most = max(1, min(1 << 14, (1 << 31) // (n * n) - 1))
    a, w = batch.at(0)
    size = min(most, batch.count)
    on_device, on_host = solver.xsyev_batched_buffer_size(*start, a, n, real, w, kind, size)
    host = bytearray(max(on_host, 1))
    memory = batch.workspace(on_device), on_device, _address(host), on_host
    for first in range(0, batch.count, most):
        a, w = batch.at(first)
        solver.xsyev_batched(*start, a, n, real, w, kind, *memory, batch.code(first),
                             min(most, batch.count - first))  # fmt: skip


def eig(batch):
    """Find eigenvalues, the second part, which is complex, and vectors, the third one.

    Vectors of real matrices are real: of a conjugate pair the real and the imaginary parts.
    """
    solver, dtype, (n, _) = _solver(), batch.dtype, batch.shape(0)
    kind, with_vectors = LIBRARY_TYPES[dtype], batch.options[0]
    start = *_common(batch), NO_VECTORS, VECTORS if with_vectors else NO_VECTORS, n, kind

    def described(a, w, v=0, *_):
        return (*start, a, n, COMPLEX_TYPES[dtype], w, kind, v or a, n, kind, v or a, n, kind)

    parts = len(batch.at(0))
    _each(
        batch,
        lambda *parts: solver.xgeev_buffer_size(*described(*parts)),
        lambda *rest: solver.xgeev(*described(*rest[:parts]), *rest[parts:]),
    )

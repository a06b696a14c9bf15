"""Systems of equations by cuBLAS and cuSOLVER, singular values by cuSOLVER, on prepared memory.

Matrices are column-major and contiguous; addresses are of the device. Every function is
called with the device's context current, and gives its work to a stream's handle.
"""

from __future__ import annotations

import functools

from pullback_cuda.runtime import libraries

# From here on cuSOLVER's blocked factorisation, matrix by matrix, beats cuBLAS's batched one.
LARGE = 192
PLAIN = 0  # cuBLAS's number for: not transposed
LIBRARY_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
REAL_TYPES = {"float32": 0, "float64": 1, "complex64": 0, "complex128": 1}
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
POINTER = 8
PIVOT = 8


@functools.lru_cache
def _solver_parameters(device: int, stream: int) -> int:
    solver = libraries.load("cusolverDn", "cuSOLVER", "linear algebra")
    return solver.create_params()


def in_one_call(rows: int, batch: int) -> bool:
    """Return whether all systems of a batch are solved in one call."""
    return batch > 1 and rows < LARGE


def solve_at_once(where, dtype, rows, columns, batch, matrices, rights, pivots, lists, info):
    """Solve a batch of systems in two calls; ``lists`` has the addresses of all matrices.

    ``where`` is (device, stream); ``info`` gets, for each matrix, which pivot is 0.
    """
    blas = libraries.load("cublas", "cuBLAS", "solving equations")
    handle = libraries.blas_handle(*where)
    letter = LETTERS[dtype]
    factor = getattr(blas, f"{letter}getrf_batched")
    factor(handle, rows, lists, rows, pivots, info, batch)
    if columns == 0:
        return
    code = bytearray(4)
    solve = getattr(blas, f"{letter}getrs_batched")
    solve(handle, PLAIN, rows, columns, lists, rows, pivots, lists + POINTER * batch, rows,
          _address(code), batch)  # fmt: skip


def workspace_of_solve(where, dtype, rows, matrix) -> tuple[int, int]:
    """Return how many bytes of the device and of the host a factorisation needs."""
    solver = libraries.load("cusolverDn", "cuSOLVER", "solving equations")
    kind = LIBRARY_TYPES[dtype]
    return solver.xgetrf_buffer_size(
        libraries.solver_handle(*where), _solver_parameters(*where), rows, rows, kind, matrix, rows,
        kind)  # fmt: skip


def solve_one(where, dtype, rows, columns, matrix, right, pivots, info, workspace, sizes):
    """Solve one system; ``info`` gets which pivot is 0."""
    solver = libraries.load("cusolverDn", "cuSOLVER", "solving equations")
    handle, parameters = libraries.solver_handle(*where), _solver_parameters(*where)
    kind = LIBRARY_TYPES[dtype]
    host = bytearray(max(sizes[1], 1))
    solver.xgetrf(handle, parameters, rows, rows, kind, matrix, rows, pivots, kind, workspace,
                  sizes[0], _address(host), sizes[1], info)  # fmt: skip
    if columns:
        solver.xgetrs(handle, parameters, PLAIN, rows, columns, kind, matrix, rows, pivots, kind,
                      right, rows, info + 4)  # fmt: skip


def _svd_arguments(dtype, full, rows, columns, matrix, values, left, right):
    job = ord("A" if full else "S")
    kind, real = LIBRARY_TYPES[dtype], REAL_TYPES[dtype]
    return (job, job, rows, columns, kind, matrix, rows, real, values, kind, left, rows, kind,
            right, columns, kind)  # fmt: skip


def workspace_of_svd(where, dtype, full, rows, columns, matrix, values, left, right):
    """Return how many bytes of the device and of the host a decomposition needs."""
    solver = libraries.load("cusolverDn", "cuSOLVER", "singular values")
    arguments = _svd_arguments(dtype, full, rows, columns, matrix, values, left, right)
    return solver.xgesvd_buffer_size(
        libraries.solver_handle(*where), _solver_parameters(*where), *arguments
    )


def svd_one(where, dtype, full, rows, columns, matrix, values, left, right, info, workspace, sizes):
    """Decompose one matrix that has at least as many rows as columns."""
    solver = libraries.load("cusolverDn", "cuSOLVER", "singular values")
    arguments = _svd_arguments(dtype, full, rows, columns, matrix, values, left, right)
    host = bytearray(max(sizes[1], 1))
    solver.xgesvd(
        libraries.solver_handle(*where), _solver_parameters(*where), *arguments, workspace,
        sizes[0], _address(host), sizes[1], info)  # fmt: skip


def _address(buffer: bytearray) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))

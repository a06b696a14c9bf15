"""Decompositions of the fake cuBLAS and cuSOLVER, proved through nvmath's bindings."""

import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
try:
    from fake_driver import check_libraries, fixtures
    from fake_driver.check_libraries import LETTERS, TYPES, download, near, numbers, upload
    from fake_driver.fixtures import from_device
finally:
    del sys.path[0]

clean, context, control, cuda = fixtures.clean, fixtures.context, fixtures.control, fixtures.cuda
blas, solver = check_libraries.blas, check_libraries.solver
pytestmark = pytest.mark.usefixtures("clean")


def adjoint(matrix):
    return matrix.conj().swapaxes(-1, -2)


def list_of(cuda, memory, step, count):
    table = cuda.mem_alloc(8 * count)
    cuda.memcpy_htod(table, np.array([int(memory) + i * step for i in range(count)], "u8"))
    return table


def wide_call(cuda, solver, name, start, end):
    """Call a 64-bit routine with the memory that it asks for; return its code."""
    start = (solver.handle, solver.parameters, *start)
    device, host = getattr(solver.cusolver, f"{name}_buffer_size")(*start, *end)
    work, host_work, count = cuda.mem_alloc(device), np.zeros(max(host, 1), "u1"), 1
    count = end[0] if name == "xsyev_batched" else 1
    codes = cuda.mem_alloc(4 * count)
    getattr(solver.cusolver, name)(
        *start, int(work), device, host_work.ctypes.data, host, int(codes), *end)  # fmt: skip
    return from_device(cuda, codes, count, "i4").tolist()


@pytest.mark.parametrize("code", LETTERS)
def test_cholesky_factors(solver, cuda, code):
    n, letter, kind = 5, LETTERS[code], TYPES[code]
    a = numbers(code, 3, n, n)
    a = a @ adjoint(a) + np.eye(n, dtype=code)
    a[2, 3, 3] = -1
    for matrix, expected in ((a[0], 0), (a[2], 4)):
        memory = upload(cuda, matrix)
        assert wide_call(cuda, solver, "xpotrf", (0, n, kind, int(memory), n, kind), ()) == [
            expected
        ]
        found = download(cuda, memory, (n, n), code)
        assert (np.triu(found, 1) == np.triu(matrix, 1)).all()
        if not expected:
            near(np.tril(found), np.linalg.cholesky(matrix), code)
    memory, codes = upload(cuda, a), cuda.mem_alloc(12)
    table = list_of(cuda, memory, a[0].nbytes, 3)
    batched = getattr(solver.cusolver, f"{letter}potrf_batched")
    batched(solver.handle, 0, n, int(table), n, int(codes), 3)
    assert from_device(cuda, codes, 3, "i4").tolist() == [0, 0, 4]
    found = download(cuda, memory, a.shape, code)
    near(np.tril(found[:2]), np.linalg.cholesky(a[:2]), code)
    assert (found[0, 0, 1:].copy().view("u1") == 0xCD).all()
    with pytest.raises(solver.Error, match="INVALID_VALUE"):
        batched(solver.handle, 1, n, int(table), n, int(codes), 3)


@pytest.mark.parametrize("code", LETTERS)
@pytest.mark.parametrize(("m", "n"), [(5, 5), (6, 3), (3, 6), (4, 1)])
def test_reflections(blas, solver, cuda, code, m, n):
    a, least, letter, kind = numbers(code, 2, m, n), min(m, n), LETTERS[code], TYPES[code]
    memory, tau = upload(cuda, a), cuda.mem_alloc(2 * least * a.itemsize)
    tables = [list_of(cuda, start, step * a.itemsize, 2)
              for start, step in ((memory, m * n), (tau, least))]  # fmt: skip
    status = np.ones(1, "i4")
    getattr(blas.cublas, f"{letter}geqrf_batched")(
        blas.handle, m, n, int(tables[0]), m, int(tables[1]), status.ctypes.data, 2
    )
    assert status[0] == 0
    batched = download(cuda, memory, a.shape, code)
    memory, tau, codes = upload(cuda, a[0]), cuda.mem_alloc(least * a.itemsize), cuda.mem_alloc(4)
    assert wide_call(
        cuda, solver, "xgeqrf", (m, n, kind, int(memory), m, kind, int(tau), kind), ()
    ) == [0]
    packed = download(cuda, memory, (m, n), code)
    assert (packed == batched[0]).all()
    right = np.triu(packed)[:least]
    assert not np.diagonal(right).imag.any()
    name = f"{letter}orgqr" if code in "fd" else f"{letter}ungqr"
    for columns in {least, m}:
        vectors = np.zeros((m, columns), code)
        vectors[:, :least] = packed[:, :least]
        memory = upload(cuda, vectors)
        start = (solver.handle, m, columns, least, int(memory), m, int(tau))
        size = getattr(solver.cusolver, f"{name}_buffer_size")(*start)
        work = cuda.mem_alloc(size * a.itemsize)
        getattr(solver.cusolver, name)(*start, int(work), size, int(codes))
        q = download(cuda, memory, (m, columns), code)
        near(adjoint(q) @ q, np.eye(columns), code)
        near(q[:, :least] @ right, a[0], code)


@pytest.mark.parametrize("code", LETTERS)
@pytest.mark.parametrize("n", [1, 2, 7, 20])
@pytest.mark.parametrize("vectors", [0, 1])
def test_eigenvalues_of_hermitian_matrices(solver, cuda, code, n, vectors):
    kind, batch = TYPES[code], 3
    a = numbers(code, batch, n, n)
    a[1] = np.eye(n)
    a = a + adjoint(a)
    lower = np.tril(a) + 7 * np.triu(np.ones((n, n)), 1).astype(code)  # not read
    for count in (1, batch):
        memory, w = upload(cuda, lower[:count]), cuda.mem_alloc(count * n * 8)
        name, end = ("xsyevd", ()) if count == 1 else ("xsyev_batched", (count,))
        start = vectors, 0, n, kind, int(memory), n, kind % 4, int(w), kind
        assert wide_call(cuda, solver, name, start, end) == [0] * count
        values = from_device(cuda, w, (count, n), code.lower())
        near(values, np.linalg.eigvalsh(a[:count]), code.lower())
        found = download(cuda, memory, (count, n, n), code)
        if vectors:
            near(found * values[:, None], a[:count] @ found, code)
            near(adjoint(found) @ found, np.broadcast_to(np.eye(n), found.shape), code)
        else:
            assert (found.copy().view("u1") == 0xCD).all()
    with pytest.raises(solver.Error, match="INVALID_VALUE"):
        wide_call(cuda, solver, "xsyev_batched", start, (32001,))


def unpacked(values, vectors):
    """Complex vectors, one by one as LAPACK's documentation describes them."""
    wide, j = vectors.astype("D"), 0
    while j < len(values):
        if values[j].imag:
            wide[:, j] = vectors[:, j] + 1j * vectors[:, j + 1]
            wide[:, j + 1] = wide[:, j].conj()
            j += 1
        j += 1
    return wide


@pytest.mark.parametrize("code", LETTERS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 25])
def test_eigenvalues_of_any_matrix(solver, cuda, code, n):
    kind, wide = TYPES[code], "F" if code in "fF" else "D"
    scale = 100 if code in "fF" else 1e4
    w, v = cuda.mem_alloc(16 * n), cuda.mem_alloc(16 * n * n)

    def run(memory, job, value_kind, left=0):
        start = (left, job, n, kind, int(memory), n, value_kind, int(w), kind, int(memory), n,
                 kind, int(v), n, kind)  # fmt: skip
        return wide_call(cuda, solver, "xgeev", start, ())

    for a in (numbers(code, n, n), np.eye(n, dtype=code), np.diag(np.ones(n - 1), 1).astype(code),
              np.roll(np.eye(n), 1, 0).astype(code)):  # fmt: skip
        defective = n > 1 and np.count_nonzero(a) == n - 1
        memory = upload(cuda, a)
        assert run(memory, 1, TYPES[wide]) == [0]
        values, vectors = from_device(cuda, w, n, wide), download(cuda, v, (n, n), code)
        assert (from_device(cuda, memory, a.nbytes, "u1") == 0xCD).all()
        if code in "fd":
            vectors = unpacked(values, vectors)
            pairs = values[values.imag != 0].reshape(-1, 2)
            assert (pairs[:, 0].imag > 0).all() and (pairs[:, 0] == pairs[:, 1].conj()).all()
        near(a @ vectors, vectors * values, wide, scale)
        near(np.linalg.norm(vectors, axis=0), np.ones(n), code.lower(), scale)
        near(values.sum(), np.trace(a), wide, scale)
        if not defective:
            assert np.linalg.cond(vectors) < 1e4
        if code in "fd":  # the other form of values: real parts, then imaginary ones
            memory = upload(cuda, a)
            assert run(memory, 0, kind) == [0]
            parts = from_device(cuda, w, (2, n), code)
            assert (parts[0] + 1j * parts[1] == values).all()
    with pytest.raises(solver.Error, match="INVALID_VALUE"):
        run(memory, 1, kind, left=1)
    assert run(upload(cuda, np.full((n, n), np.nan, code)), 1, TYPES[wide]) != [0]

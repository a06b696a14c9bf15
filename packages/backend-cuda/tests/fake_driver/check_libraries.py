"""The fake cuBLAS, cuSOLVER and cuFFT, proved through nvmath's bindings against NumPy."""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
try:
    from fake_driver import fixtures
    from fake_driver.fixtures import from_device
finally:
    del sys.path[0]

clean, context, control, cuda = fixtures.clean, fixtures.context, fixtures.control, fixtures.cuda
pytestmark = pytest.mark.usefixtures("clean")

TYPES = {"e": 2, "f": 0, "d": 1, "F": 4, "D": 5}
LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
ROOM = {"e": 4e-3, "f": 2e-5, "d": 1e-12, "F": 2e-5, "D": 1e-12}
ONES = {code: np.ones(1, "f" if code == "e" else code) for code in TYPES}
ZEROS = {code: np.zeros(1, "f" if code == "e" else code) for code in TYPES}
N, T, C = range(3)


@pytest.fixture
def blas(cuda, context):
    pytest.importorskip("nvmath.bindings")
    from nvmath.bindings import cublas

    handle, stream = cublas.create(), cuda.Stream(1)
    cublas.set_stream(handle, stream.handle)
    yield SimpleNamespace(cublas=cublas, handle=handle, stream=stream)
    cublas.destroy(handle)


@pytest.fixture
def solver(cuda, context):
    pytest.importorskip("nvmath.bindings")
    from nvmath.bindings import cusolverDn
    from nvmath.bindings.cusolver import cuSOLVERError

    handle, stream = cusolverDn.create(), cuda.Stream(1)
    cusolverDn.set_stream(handle, stream.handle)
    info, parameters = cusolverDn.create_gesvdj_info(), cusolverDn.create_params()
    yield SimpleNamespace(cusolver=cusolverDn, handle=handle, stream=stream, info=info,
                          parameters=parameters, Error=cuSOLVERError)  # fmt: skip
    cusolverDn.destroy_gesvdj_info(info)
    cusolverDn.destroy_params(parameters)
    cusolverDn.destroy(handle)


def numbers(code, *shape, seed=0):
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if code in "FD":
        values = values + 1j * random.standard_normal(shape)
    return values.astype(code)


def upload(cuda, array):
    """Copy matrices to the device, the last two dims column after column."""
    memory = cuda.mem_alloc(max(array.nbytes, 1))
    if array.nbytes:
        cuda.memcpy_htod(memory, np.ascontiguousarray(array.swapaxes(-1, -2)))
    return memory


def download(cuda, memory, shape, code):
    return from_device(cuda, memory, (*shape[:-2], shape[-1], shape[-2]), code).swapaxes(-1, -2)


def applied(matrix, op):
    if op == N:
        return matrix
    turned = matrix.swapaxes(-1, -2)
    return turned.conj() if op == C else turned


def near(got, wanted, code, scale=10.0):
    np.testing.assert_allclose(got, wanted, rtol=scale * ROOM[code], atol=scale * ROOM[code])


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", TYPES)
def test_products_of_batches(blas, cuda, control, code):
    batch, m, n, k, spare = 3, 5, 4, 7, 2
    compute = 70 if code in "dD" else 68
    alpha, beta = ONES[code] * 1.5, ONES[code] * 0.5
    for op_a, op_b in itertools.product((N, T, C), repeat=2):
        a = numbers(code, batch, *((m, k) if op_a == N else (k, m)))
        b = numbers(code, batch, *((k, n) if op_b == N else (n, k)), seed=1)
        c = numbers(code, batch, m + spare, n, seed=2)
        memory = [upload(cuda, array) for array in (a, b, c)]
        blas.cublas.gemm_strided_batched_ex(
            blas.handle, op_a, op_b, m, n, k, alpha.ctypes.data,
            int(memory[0]), TYPES[code], a.shape[1], a[0].size,
            int(memory[1]), TYPES[code], b.shape[1], b[0].size, beta.ctypes.data,
            int(memory[2]), TYPES[code], m + spare, c[0].size, batch, compute, -1,
        )  # fmt: skip
        wide = "D" if code in "FD" else "d"
        product = applied(a.astype(wide), op_a) @ applied(b.astype(wide), op_b)
        got = download(cuda, memory[2], c.shape, code)
        near(got[:, :m], 1.5 * product + 0.5 * c[:, :m].astype(wide), code)
        assert (got[:, m:] == c[:, m:]).all()
    assert control.launches()[-1].name == "cublasGemmStridedBatchedEx"
    assert control.calls("cublasGemmStridedBatchedEx") == 9


@pytest.mark.parametrize("code", LETTERS)
def test_products_in_every_way(blas, cuda, code):
    cublas, m, n, k = blas.cublas, 3, 4, 5
    a, b = numbers(code, 2, m, k), numbers(code, 2, k, n, seed=1)
    memory = upload(cuda, a), upload(cuda, b)
    target = cuda.mem_alloc(2 * m * n * a.itemsize)
    addresses = np.array([[int(start) + i * size * a.itemsize for i in range(2)]
                          for start, size in zip((*memory, target), (m * k, k * n, m * n),
                                                 strict=True)], "u8")  # fmt: skip
    tables = cuda.mem_alloc(addresses.nbytes)
    cuda.memcpy_htod(tables, addresses)
    compute, kind = (70 if code in "dD" else 68), TYPES[code]
    one, zero = ONES[code].ctypes.data, ZEROS[code].ctypes.data
    in_a, in_b, out = *map(int, memory), int(target)
    lists = [int(tables) + 16 * i for i in range(3)]
    table = (
        (1, "{}gemm", (m, n, k, one, in_a, m, in_b, k, zero, out, m)),
        (1, "gemm_ex", (m, n, k, one, in_a, kind, m, in_b, kind, k, zero, out, kind, m,
                        compute, -1)),
        (2, "{}gemm_strided_batched", (m, n, k, one, in_a, m, m * k, in_b, k, k * n, zero, out, m,
                                       m * n, 2)),
        (2, "{}gemm_batched", (m, n, k, one, lists[0], m, lists[1], k, zero, lists[2], m, 2)),
        (2, "gemm_batched_ex", (m, n, k, one, lists[0], kind, m, lists[1], kind, k, zero, lists[2],
                                kind, m, 2, compute, -1)),
    )  # fmt: skip
    for ending, (count, name, arguments) in itertools.product(("", "_64"), table):
        cuda.memset_d8(target, 0xFF, 2 * m * n * a.itemsize)  # NaN: beta is 0
        getattr(cublas, name.format(LETTERS[code]) + ending)(blas.handle, N, N, *arguments)
        got = download(cuda, target, (2, m, n), code)
        near(got[:count], (a @ b)[:count], code)
        assert count == 2 or np.isnan(got[1]).all()


def test_halves_are_rounded_to_nearest(blas, cuda):
    random = np.random.default_rng(0)
    values = np.concatenate([
        random.uniform(-70000, 70000, 300), random.uniform(-1e-4, 1e-4, 300),
        [65519.9, 65520, -65536, 6e-8, 2.9e-8, 0.0, np.inf, -np.inf, 1 + 2**-11, 1 + 3 * 2**-11],
    ]).astype("f")  # fmt: skip
    one, target = upload(cuda, np.ones((1, 1), "e")), cuda.mem_alloc(2)
    brain = cuda.mem_alloc(4)
    cuda.memset_d16(brain, 0x3F80, 1)
    for value in values:
        for kind, source in ((2, one), (14, brain)):
            blas.cublas.gemm_ex(
                blas.handle, N, N, 1, 1, 1, np.array([value]).ctypes.data, int(source), kind, 1,
                int(source), kind, 1, ZEROS["f"].ctypes.data, int(target), kind, 1, 68, -1,
            )  # fmt: skip
            got = from_device(cuda, target, 1, "u2")[0]
            if kind == 2:
                with np.errstate(over="ignore"):
                    assert got == value.astype("e").view("u2"), value
            else:
                bits = int(value.view("u4"))
                assert got == (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, value


@pytest.mark.parametrize("compute, mode, bits", [(68, 0, 24), (77, 0, 11), (68, 3, 11), (75, 0, 8)])
def test_fast_products_round_their_operands(blas, cuda, compute, mode, bits):
    blas.cublas.set_math_mode(blas.handle, mode)
    assert blas.cublas.get_math_mode(blas.handle) == mode
    value = np.array([[1 + 2.0 ** -(bits - 1) + 2.0**-bits / 2]], "f")  # halves the last step
    source, target = upload(cuda, value), cuda.mem_alloc(4)
    unit = upload(cuda, np.ones((1, 1), "f"))
    blas.cublas.gemm_ex(
        blas.handle, N, N, 1, 1, 1, ONES["f"].ctypes.data, int(source), 0, 1, int(unit), 0, 1,
        ZEROS["f"].ctypes.data, int(target), 0, 1, compute, -1,
    )  # fmt: skip
    exact = float(value[0, 0]) if bits == 24 else 1 + 2.0 ** -(bits - 1)
    assert from_device(cuda, target, 1, "f")[0] == exact


def test_factors_in_device_memory(blas, cuda):
    cublas = blas.cublas
    factors = upload(cuda, np.array([[3.0], [2.0]], "f"))
    a, c = upload(cuda, np.full((1, 1), 5, "f")), upload(cuda, np.full((1, 1), 7, "f"))
    cublas.set_pointer_mode(blas.handle, 1)
    alpha, beta = int(factors), int(factors) + 4
    cublas.sgemm(blas.handle, N, N, 1, 1, 1, alpha, int(a), 1, int(a), 1, beta, int(c), 1)
    assert from_device(cuda, c, 1, "f")[0] == 3 * 25 + 2 * 7
    cublas.sgemm(blas.handle, N, N, 1, 1, 0, alpha, 0, 1, 0, 1, beta, int(c), 1)  # no products
    assert from_device(cuda, c, 1, "f")[0] == 2 * 89


def test_products_that_cannot_be(blas, cuda, control):
    cublas, memory, one = blas.cublas, cuda.mem_alloc(64), ONES["f"].ctypes.data

    def fails(match, m=2, n=2, k=2, lda=2, ldb=2, ldc=2, op_a=N, op_b=N, a=int(memory),
              stride=4, count=2, kind=0, compute=68):  # fmt: skip
        with pytest.raises(cublas.cuBLASError, match=match):
            cublas.gemm_strided_batched_ex(
                blas.handle, op_a, op_b, m, n, k, one, a, kind, lda, 4, int(memory), kind, ldb, 4,
                one, int(memory), kind, ldc, stride, count, compute, -1,
            )  # fmt: skip

    fails("INVALID_VALUE", lda=1)
    fails("INVALID_VALUE", op_a=T, k=3, lda=2)
    fails("INVALID_VALUE", ldb=1)
    fails("INVALID_VALUE", op_b=C, n=3, ldb=2)
    fails("INVALID_VALUE", ldc=1)
    fails("INVALID_VALUE", m=-1)
    fails("INVALID_VALUE", op_a=3)
    fails("INVALID_VALUE", stride=0)
    fails("EXECUTION_FAILED", a=int(memory) + 36)  # beyond the end
    fails("EXECUTION_FAILED", a=int(memory) + 2)  # not aligned
    fails("EXECUTION_FAILED", count=5)
    fails("NOT_SUPPORTED", compute=70)
    fails("NOT_SUPPORTED", kind=3)
    assert control.counter("launches") == 0
    control.fail("cublasGemmStridedBatchedEx", 13)
    fails("EXECUTION_FAILED")


def test_handles(blas, cuda, context):
    cublas = blas.cublas
    assert cublas.get_version(blas.handle) == 130000
    assert cublas.get_stream(blas.handle) == blas.stream.handle
    workspace = cuda.mem_alloc(1024)
    cublas.set_workspace(blas.handle, int(workspace), 1024)
    with pytest.raises(cublas.cuBLASError, match="INVALID_VALUE"):
        cublas.set_workspace(blas.handle, int(workspace), 1025)
    memory, one = cuda.mem_alloc(4), ONES["f"].ctypes.data
    arguments = (N, N, 1, 1, 1, one, int(memory), 1, int(memory), 1, one, int(memory), 1)
    other = cuda.Device(0).retain_primary_context()
    other.push()
    with pytest.raises(cublas.cuBLASError, match="EXECUTION_FAILED"):  # another context
        cublas.sgemm(blas.handle, *arguments)
    foreign = cublas.create()
    cublas.destroy(foreign)
    with pytest.raises(cublas.cuBLASError, match="NOT_INITIALIZED"):
        cublas.destroy(foreign)
    other.detach()
    cuda.Context.pop()
    with pytest.raises(cublas.cuBLASError, match="NOT_INITIALIZED"):  # no context
        cublas.create()
    context.push()


# -- triangles and elimination ---------------------------------------------------------------------


@pytest.mark.parametrize("code", LETTERS)
def test_triangular_systems(blas, cuda, code):
    m, n = 4, 3
    for side, upper, op, unit in itertools.product(range(2), range(2), (N, T, C), range(2)):
        size = n if side else m
        a = numbers(code, size, size) + 3 * np.eye(size, dtype=code)
        b = numbers(code, m, n, seed=1)
        in_a, in_b = upload(cuda, a), upload(cuda, b)
        solve = getattr(blas.cublas, f"{LETTERS[code]}trsm")
        alpha = ONES[code] * 2
        solve(blas.handle, side, upper, op, unit, m, n, alpha.ctypes.data, int(in_a), size,
              int(in_b), m)  # fmt: skip
        triangle = np.triu(a) if upper else np.tril(a)
        if unit:
            np.fill_diagonal(triangle, 1)
        x = download(cuda, in_b, (m, n), code)
        matrix = applied(triangle, op)
        near(x @ matrix if side else matrix @ x, 2 * b, code, 100)


@pytest.mark.parametrize("code", LETTERS)
def test_elimination_of_batches(blas, cuda, control, code):
    batch, n, columns = 3, 5, 2
    a, b = numbers(code, batch, n, n), numbers(code, batch, n, columns, seed=1)
    a[2, :, 3] = a[2, 3, :] = 0
    letter, in_a, in_b = LETTERS[code], upload(cuda, a), upload(cuda, b)
    tables = cuda.mem_alloc(16 * batch)
    cuda.memcpy_htod(tables, np.array(
        [int(in_a) + i * a[0].nbytes for i in range(batch)]
        + [int(in_b) + i * b[0].nbytes for i in range(batch)], "u8"))  # fmt: skip
    pivots, info = cuda.mem_alloc(4 * n * batch), cuda.mem_alloc(4 * batch)
    getattr(blas.cublas, f"{letter}getrf_batched")(
        blas.handle, n, int(tables), n, int(pivots), int(info), batch)  # fmt: skip
    failed = from_device(cuda, info, batch, "i4")
    assert failed[:2].tolist() == [0, 0] and failed[2] > 0
    for op in (N, T, C):
        in_b = upload(cuda, b)
        cuda.memcpy_htod(int(tables) + 8 * batch, np.array(
            [int(in_b) + i * b[0].nbytes for i in range(batch)], "u8"))  # fmt: skip
        status = np.ones(1, "i4")
        getattr(blas.cublas, f"{letter}getrs_batched")(
            blas.handle, op, n, columns, int(tables), n, int(pivots), int(tables) + 8 * batch, n,
            status.ctypes.data, 2)  # fmt: skip
        assert status[0] == 0
        x = download(cuda, in_b, (batch, n, columns), code)
        near(applied(a[:2], op) @ x[:2], b[:2], code, 100)
    # A list of addresses that are none: found when the work runs, and everything fails after it.
    cuda.memset_d8(tables, 0, 16 * batch)
    getattr(blas.cublas, f"{letter}getrf_batched")(
        blas.handle, n, int(tables), n, int(pivots), int(info), batch)  # fmt: skip
    with pytest.raises(cuda.Error, match="illegal memory access"):
        cuda.Context.synchronize()
    control.mend_device(1)


@pytest.mark.parametrize("code", LETTERS)
def test_linear_systems(solver, cuda, code):
    cusolver, n, columns = solver.cusolver, 6, 3
    a, b = numbers(code, n, n), numbers(code, n, columns, seed=1)
    letter, kind, info = LETTERS[code], TYPES[code], cuda.mem_alloc(4)
    in_a = upload(cuda, a)
    size = getattr(cusolver, f"{letter}getrf_buffer_size")(solver.handle, n, n, int(in_a), n)
    work, pivots = cuda.mem_alloc(size * a.itemsize), cuda.mem_alloc(4 * n)
    getattr(cusolver, f"{letter}getrf")(
        solver.handle, n, n, int(in_a), n, int(work), int(pivots), int(info))  # fmt: skip
    wide_a = upload(cuda, a)
    device, host = cusolver.xgetrf_buffer_size(
        solver.handle, solver.parameters, n, n, kind, int(wide_a), n, kind)  # fmt: skip
    work, wide_pivots = cuda.mem_alloc(device), cuda.mem_alloc(8 * n)
    cusolver.xgetrf(
        solver.handle, solver.parameters, n, n, kind, int(wide_a), n, int(wide_pivots), kind,
        int(work), device, 0, host, int(info))  # fmt: skip
    assert (from_device(cuda, pivots, n, "i4") == from_device(cuda, wide_pivots, n, "i8")).all()
    for op in (N, T, C):
        in_b = upload(cuda, b)
        getattr(cusolver, f"{letter}getrs")(
            solver.handle, op, n, columns, int(in_a), n, int(pivots), int(in_b), n, int(info)
        )
        near(applied(a, op) @ download(cuda, in_b, (n, columns), code), b, code, 100)
        in_b = upload(cuda, b)
        cusolver.xgetrs(
            solver.handle, solver.parameters, op, n, columns, kind, int(wide_a), n,
            int(wide_pivots), kind, int(in_b), n, int(info))  # fmt: skip
        near(applied(a, op) @ download(cuda, in_b, (n, columns), code), b, code, 100)
    singular = upload(cuda, np.ones((n, n), code))
    getattr(cusolver, f"{letter}getrf")(
        solver.handle, n, n, int(singular), n, int(work), int(pivots), int(info))  # fmt: skip
    assert from_device(cuda, info, 1, "i4")[0] == 2
    with pytest.raises(solver.Error, match="INVALID_VALUE"):
        cusolver.xgetrf(
            solver.handle, solver.parameters, n, n, kind, int(wide_a), n, int(wide_pivots), kind,
            int(work), device - 1, 0, host, int(info))  # fmt: skip


# -- singular values -------------------------------------------------------------------------------


def check_svd(a, s, u, vh, code):
    least = min(a.shape[-2:])
    real = code.lower()
    near(s, np.linalg.svd(a, compute_uv=False), real)
    near((u[..., :least] * s[..., None, :]) @ vh[..., :least, :], a, code)
    for columns in (u, vh.swapaxes(-1, -2)):
        unit = columns.conj().swapaxes(-1, -2) @ columns
        near(unit, np.broadcast_to(np.eye(unit.shape[-1]), unit.shape), code)


def matrices(code):
    """Matrices of all shapes, the last with equal, with zero and with tiny singular values."""
    for m, n in itertools.product((1, 3, 8), repeat=2):
        yield numbers(code, m, n)
    yield np.ones((6, 4), code)
    yield np.zeros((3, 5), code)
    yield np.eye(4, dtype=code)
    yield numbers(code, 7, 1) * numbers(code, 1, 5, seed=1) + ROOM[code] * numbers(code, 7, 5)


@pytest.mark.parametrize("code", LETTERS)
@pytest.mark.parametrize("econ", [0, 1])
@pytest.mark.parametrize("call", ["gesvdj", "gesvdp"])
def test_singular_values_of_any_matrix(solver, cuda, code, econ, call):
    cusolver, letter, kind = solver.cusolver, LETTERS[code], TYPES[code]
    real = code.lower()
    for a in matrices(code):
        m, n = a.shape
        least = min(m, n)
        u_columns, v_columns = (least, least) if econ else (m, n)
        in_a, info = upload(cuda, a), cuda.mem_alloc(4)
        s, u, v = (cuda.mem_alloc(16 * size * size) for size in (least, m, n))
        where = (int(in_a), m, int(s), int(u), m, int(v), n)
        if call == "gesvdj":
            size = getattr(cusolver, f"{letter}gesvdj_buffer_size")(
                solver.handle, 1, econ, m, n, *where, solver.info)  # fmt: skip
            work = cuda.mem_alloc(size * a.itemsize)
            getattr(cusolver, f"{letter}gesvdj")(
                solver.handle, 1, econ, m, n, *where, int(work), size, int(info), solver.info
            )
        else:
            typed = (kind, int(in_a), m, kind % 4, int(s), kind, int(u), m, kind, int(v), n, kind)
            device, host = cusolver.xgesvdp_buffer_size(
                solver.handle, solver.parameters, 1, econ, m, n, *typed)  # fmt: skip
            work, host_work = cuda.mem_alloc(device), np.empty(host, "u1")
            cusolver.xgesvdp(
                solver.handle, solver.parameters, 1, econ, m, n, *typed, int(work), device,
                host_work.ctypes.data, host, int(info))  # fmt: skip
        assert from_device(cuda, info, 1, "i4")[0] == 0
        columns = download(cuda, v, (n, v_columns), code)
        check_svd(a, from_device(cuda, s, least, real), download(cuda, u, (m, u_columns), code),
                  columns.conj().T, code)  # fmt: skip
        assert (from_device(cuda, in_a, a.nbytes, "u1") == 0xCD).all()


@pytest.mark.parametrize("code", LETTERS)
@pytest.mark.parametrize("job", ["A", "S"])
@pytest.mark.parametrize("wide", [False, True])
def test_singular_values_of_tall_matrices(solver, cuda, code, job, wide):
    cusolver, letter, kind, flag = solver.cusolver, LETTERS[code], TYPES[code], ord(job)
    for a in matrices(code):
        m, n = a.shape
        if m < n:
            with pytest.raises(solver.Error, match="INVALID_VALUE"):
                getattr(cusolver, f"{letter}gesvd_buffer_size")(solver.handle, m, n)
            continue
        in_a, info, u_columns = upload(cuda, a), cuda.mem_alloc(4), m if job == "A" else n
        s, u, v = (cuda.mem_alloc(16 * size * size) for size in (n, m, n))
        if wide:
            typed = (kind, int(in_a), m, kind % 4, int(s), kind, int(u), m, kind, int(v), n, kind)
            device, host = cusolver.xgesvd_buffer_size(
                solver.handle, solver.parameters, flag, flag, m, n, *typed)  # fmt: skip
            work, host_work = cuda.mem_alloc(device), np.empty(host, "u1")
            cusolver.xgesvd(
                solver.handle, solver.parameters, flag, flag, m, n, *typed, int(work), device,
                host_work.ctypes.data, host, int(info))  # fmt: skip
        else:
            size = getattr(cusolver, f"{letter}gesvd_buffer_size")(solver.handle, m, n)
            work = cuda.mem_alloc(size * a.itemsize)
            getattr(cusolver, f"{letter}gesvd")(
                solver.handle, flag, flag, m, n, int(in_a), m, int(s), int(u), m, int(v), n,
                int(work), size, 0, int(info))  # fmt: skip
        check_svd(
            a,
            from_device(cuda, s, n, code.lower()),
            download(cuda, u, (m, u_columns), code),
            download(cuda, v, (n, n), code),
            code,
        )


@pytest.mark.parametrize("code", LETTERS)
def test_singular_values_of_batches(solver, cuda, code):
    cusolver, letter, batch = solver.cusolver, LETTERS[code], 3
    for m, n in ((4, 3), (3, 4), (1, 5)):
        a, least = numbers(code, batch, m, n), min(m, n)
        in_a, info = upload(cuda, a), cuda.mem_alloc(4 * batch)
        s, u, v = (cuda.mem_alloc(16 * batch * size * size) for size in (least, m, n))
        where = (int(in_a), m, int(s), int(u), m, int(v), n)
        size = getattr(cusolver, f"{letter}gesvdj_batched_buffer_size")(
            solver.handle, 1, m, n, *where, solver.info, batch)  # fmt: skip
        work = cuda.mem_alloc(size * a.itemsize)
        getattr(cusolver, f"{letter}gesvdj_batched")(
            solver.handle, 1, m, n, *where, int(work), size, int(info), solver.info, batch
        )
        vh = download(cuda, v, (batch, n, n), code).conj().swapaxes(-1, -2)
        check_svd(a, from_device(cuda, s, (batch, least), code.lower()),
                  download(cuda, u, (batch, m, m), code), vh, code)  # fmt: skip
        if m < n:
            continue
        in_a = upload(cuda, a)
        strided = (int(in_a), m, m * n, int(s), n, int(u), m, m * n, int(v), n, n * n)
        size = getattr(cusolver, f"{letter}gesvda_strided_batched_buffer_size")(
            solver.handle, 1, n, m, n, *strided, batch)  # fmt: skip
        work, residuals = cuda.mem_alloc(size * a.itemsize), np.ones(batch)
        getattr(cusolver, f"{letter}gesvda_strided_batched")(
            solver.handle, 1, n, m, n, *strided, int(work), size, int(info),
            residuals.ctypes.data, batch)  # fmt: skip
        vh = download(cuda, v, (batch, n, n), code).conj().swapaxes(-1, -2)
        check_svd(a, from_device(cuda, s, (batch, n), code.lower()),
                  download(cuda, u, (batch, m, n), code), vh, code)  # fmt: skip
        assert (download(cuda, in_a, a.shape, code) == a).all()
    with pytest.raises(solver.Error, match="INVALID_VALUE"):
        getattr(cusolver, f"{letter}gesvdj_batched_buffer_size")(
            solver.handle, 1, 33, 2, int(in_a), 33, int(s), int(u), 33, int(v), 2, solver.info, 1
        )


def test_no_singular_values(solver, cuda):
    a = numbers("f", 3, 3)
    a[1, 1] = np.nan
    in_a, info, s = upload(cuda, a), cuda.mem_alloc(4), cuda.mem_alloc(12)
    work = cuda.mem_alloc(4 * 49)
    solver.cusolver.sgesvdj(
        solver.handle, 0, 0, 3, 3, int(in_a), 3, int(s), 0, 3, 0, 3, int(work), 49, int(info),
        solver.info)  # fmt: skip
    assert from_device(cuda, info, 1, "i4")[0] == 4
    assert np.isnan(from_device(cuda, s, 3)).all()


# -- the order of work -----------------------------------------------------------------------------


def test_library_calls_wait_in_their_stream(blas, solver, cuda, control):
    cublas, one, zero = blas.cublas, ONES["f"].ctypes.data, ZEROS["f"].ctypes.data
    source, target = upload(cuda, np.full((1, 1), 3, "f")), upload(cuda, np.zeros((1, 1), "f"))
    pivots, info, work = (cuda.mem_alloc(4) for _ in range(3))
    event = cuda.Event()

    def run(wait):
        cuda.memset_d32(target, 0, 1)
        cuda.Context.synchronize()
        cublas.sgemm(blas.handle, N, N, 1, 1, 1, one, int(source), 1, int(source), 1, zero,
                     int(target), 1)  # fmt: skip
        event.record(blas.stream)
        if wait:
            solver.stream.wait_for_event(event)
        solver.cusolver.sgetrf(
            solver.handle, 1, 1, int(target), 1, int(work), int(pivots), int(info))  # fmt: skip
        solver.stream.synchronize()
        return from_device(cuda, info, 1, "i4")[0]

    assert run(wait=True) == 0
    with control.deferred():
        assert run(wait=False) == 1  # the matrix was still 0
        assert run(wait=True) == 0


@pytest.mark.parametrize(("code", "kinds"), [("F", (0x29, 0x2A, 0x2C)), ("D", (0x69, 0x6A, 0x6C))])
def test_fourier_transforms_of_a_batch(cuda, context, code, kinds):
    pytest.importorskip("nvmath.bindings")
    from nvmath.bindings import cufft

    real, stream = code.lower(), cuda.Stream(1)
    names = ("c2c", "r2c", "c2r") if code == "F" else ("z2z", "d2z", "z2d")
    z, x = numbers(code, 2, 4, 5), numbers(real, 2, 4, 5)
    half = np.fft.rfft2(x).astype(code)
    for name, kind, source, expected, direction in (
        (names[0], kinds[0], z, np.fft.fft2(z), (-1,)),
        (names[0], kinds[0], z, np.fft.ifft2(z) * 20, (1,)),
        (names[1], kinds[1], x, half, ()),
        (names[2], kinds[2], half, x * 20, ()),
    ):
        plan = cufft.create()
        sizes = [list(part.shape[1:]) for part in (source, expected)]
        cufft.make_plan_many64(
            plan, 2, [4, 5], sizes[0], 1, int(np.prod(sizes[0])), sizes[1], 1,
            int(np.prod(sizes[1])), kind, 2)  # fmt: skip
        cufft.set_stream(plan, stream.handle)
        given, found = cuda.mem_alloc(source.nbytes), np.empty(expected.shape, expected.dtype)
        found = found.astype(code if found.dtype.kind == "c" else real)
        made = cuda.mem_alloc(found.nbytes)
        cuda.memcpy_htod(given, np.ascontiguousarray(source))
        getattr(cufft, f"exec_{name}")(plan, int(given), int(made), *direction)
        stream.synchronize()
        cuda.memcpy_dtoh(found, made)
        np.testing.assert_allclose(found, expected, atol=40 * ROOM[code])
        cufft.destroy(plan)
        with pytest.raises(cufft.cuFFTError):
            cufft.set_stream(plan, stream.handle)

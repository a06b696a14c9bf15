"""Batched matrix products."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import COMPLEX, DTYPES, FLOATING, INTEGRAL, run_kernel
from layouts import LAYOUTS, empty_like, error_of_sums, round_to, sample, widen

from pullback_cpu.runtime.isa import ISA


def product_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the reference in the operands' dtype."""
    if a.dtype.kind == "b":
        return (a.astype(int) @ b.astype(int)) > 0
    if a.dtype.kind in "iu":
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(a.dtype)
    return round_to(widen(a) @ widen(b), a.dtype)


def check_bmm(a: np.ndarray, b: np.ndarray, layout: str = "contiguous", out=None) -> None:
    if out is None:
        out = empty_like(np.empty((a.shape[0], a.shape[1], b.shape[2])), a.dtype, layout)
    run_kernel("bmm", out, [a, b])
    expected = product_of(a, b)
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(out, expected)
        return
    sizes = np.abs(widen(a)) @ np.abs(widen(b))
    error = np.abs(widen(out) - widen(expected))
    assert (error <= error_of_sums(a.dtype, a.shape[2], sizes)).all()


SIZES = [
    (1, 1, 1),
    (4, 16, 16),
    (3, 5, 2),
    (17, 33, 9),
    (1, 40, 50),
    (40, 50, 1),
    (1, 300, 1),
    (2, 70, 21),
    (64, 64, 64),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bmm(dtype, size, layout):
    m, k, n = size
    a, b = sample(dtype, (2, m, k), seed=1), sample(dtype, (2, k, n), seed=2)
    lay_out = LAYOUTS[layout]
    for first, second in itertools.product((a, lay_out(a)), (b, lay_out(b))):
        check_bmm(first, second)
    check_bmm(a, b, layout)


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "bf16", "i32"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bmm_of_transposes(dtype, size):
    m, k, n = size
    a = sample(dtype, (3, k, m), seed=1).transpose(0, 2, 1)
    b = sample(dtype, (3, n, k), seed=2).transpose(0, 2, 1)
    check_bmm(a, b)
    check_bmm(a, b, out=np.zeros((3, n, m), DTYPES[dtype]).transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX, "i64"])
def test_bmm_of_nothing(dtype):
    for b, m, k, n in ((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0), (2, 3, 0, 5), (2, 3, 0, 1)):
        check_bmm(np.ones((b, m, k), DTYPES[dtype]), np.ones((b, k, n), DTYPES[dtype]))


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "f16", "i32"])
@pytest.mark.parametrize("k", [2, 15, 16, 17, 63, 64, 65, 129, 1000, 5000])
def test_product_of_two_vectors(dtype, k):
    a, b = sample(dtype, (2, 1, k), seed=1), sample(dtype, (2, k, 1), seed=2)
    check_bmm(a, b)
    check_bmm(a[..., ::-1], b)


@pytest.mark.parametrize("dtype", ["f32", "c128", "f16", "i16"])
@pytest.mark.parametrize("size", [(4, 5, 6), (20, 30, 40), (1, 60, 70), (60, 70, 1)], ids=str)
def test_bmm_broadcast_operands(dtype, size):
    m, k, n = size
    a, b = sample(dtype, (5, m, k), seed=1), sample(dtype, (5, k, n), seed=2)
    check_bmm(a, np.broadcast_to(b[:1], b.shape))
    check_bmm(np.broadcast_to(a[:1], a.shape), b)
    check_bmm(np.broadcast_to(a[:, :1, :1], a.shape), np.broadcast_to(b[:, :1], b.shape))
    check_bmm(a, np.broadcast_to(b[:, :, :1], b.shape))


@given(
    st.sampled_from(["f32", "f64", "c64", "i8"]),
    *(st.integers(1, 24) for _ in range(3)),
    *(st.sampled_from(list(LAYOUTS)) for _ in range(3)),
    st.permutations(range(3)),
)
@settings(max_examples=200, deadline=None)
def test_bmm_any_layout(dtype, m, k, n, first, second, third, order):
    """Operands whose dimensions have any order in memory."""
    back = np.argsort(order)
    a, b = sample(dtype, (3, m, k), seed=1), sample(dtype, (3, k, n), seed=2)
    a = LAYOUTS[first](a.transpose(order)).transpose(back)
    b = LAYOUTS[second](b.transpose(order)).transpose(back)
    check_bmm(a, b, third)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "bf16"])
@pytest.mark.parametrize(
    "size", [(300, 300, 300), (30, 9000, 70), (29, 520, 65), (3, 300, 700), (28, 700, 127)], ids=str
)
def test_bmm_of_several_slabs(dtype, size):
    m, k, n = size
    a, b = sample(dtype, (1, m, k), seed=1), sample(dtype, (1, k, n), seed=2)
    check_bmm(a, b)
    check_bmm(a.transpose(0, 2, 1).copy().transpose(0, 2, 1), b)
    check_bmm(a, b.transpose(0, 2, 1).copy().transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("turned", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize(
    ("batches", "m", "k", "n"),
    [
        (260, 96, 20, 96),
        (260, 98, 33, 91),
        (2000, 3, 8, 384),
        (1, 70001, 12, 48),
        (40, 512, 5, 112),
    ],
)
def test_bmm_into_more_than_a_cache(batches, m, k, n, turned, dtype):
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-9, 10, s).astype(DTYPES[dtype]) for s in ((batches, m, k), (batches, k, n))
    )
    expected = (a.astype(np.float64) @ b).astype(a.dtype)
    assert expected.nbytes >= 1 << 23
    if turned:
        b = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    for start in (0, 1, 16):  # where the first row begins in a line of 64 bytes
        width = n + 16 + start
        memory = np.full(batches * m * width + 80, -1, a.dtype)
        first = -(memory.ctypes.data // memory.itemsize) % (64 // memory.itemsize)
        whole = memory[first : first + batches * m * width].reshape(batches, m, width)
        out = whole[:, :, start : start + n]
        run_kernel("bmm", out, [a, b])
        np.testing.assert_array_equal(out, expected)
        assert (whole[:, :, :start] == -1).all()
        assert (whole[:, :, start + n :] == -1).all()
    out = np.empty_like(expected)
    run_kernel("bmm", out, [a, b])
    np.testing.assert_array_equal(out, expected)


def test_bmm_overwrites_nan():
    for m, k, n in ((3, 0, 4), (40, 50, 1), (1, 50, 60), (40, 50, 60), (2, 3, 4)):
        out = np.full((1, m, n), np.nan)
        run_kernel("bmm", out, [np.ones((1, m, k)), np.ones((1, k, n))])
        assert (out == k).all()


def test_bmm_propagates_nan_and_infinity():
    a = np.ones((1, 20, 20), np.float32)
    a[0, 3, 4] = np.nan
    a[0, 5, 6] = np.inf
    out = np.zeros_like(a)
    run_kernel("bmm", out, [a, np.ones_like(a)])
    assert np.isnan(out[0, 3]).all()
    assert np.isinf(out[0, 5]).all()
    assert (out[0, [0, 1, 2, 4]] == 20).all()


def test_small_integers_wrap_around():
    a = np.full((1, 2, 2), 100, np.int8)
    out = np.zeros_like(a)
    run_kernel("bmm", out, [a, a])
    assert (out == 32).all()  # 20000 in eight bits
    for dtype in INTEGRAL:
        check_bmm(sample(dtype, (1, 9, 300)), sample(dtype, (1, 300, 7)))


def run_python(code: str) -> str:
    """Run code in a fresh interpreter that finds the same packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LARGE_PRODUCT = """
import sys
import numpy as np
from kernel_calls import run_kernel
a = np.ones((1, 32, 32), np.complex64)
out = np.zeros_like(a)
run_kernel("bmm", out, [a, a])
assert (out == 32).all()
"""


def test_loading_blas_does_not_import_scipy_linalg():
    code = LARGE_PRODUCT + "print([n for n in sys.modules if n.startswith('scipy.linalg')])"
    assert run_python(code).strip() == "[]"


def test_products_of_integers_load_no_blas():
    code = "import os; os.environ['PULLBACK_CPU_LEVEL'] = 'baseline'\n"
    code += LARGE_PRODUCT.replace("complex64", "int32") + "print('scipy' in sys.modules)"
    assert run_python(code).strip() == "False"


def test_scipy_linalg_works_after_blas_was_loaded_and_before():
    use = "import scipy.linalg, scipy.linalg.cython_blas\nscipy.linalg.cython_blas.__pyx_capi__\n"
    run_python(LARGE_PRODUCT + use + "scipy.linalg.cholesky(np.eye(3))")
    run_python(use + LARGE_PRODUCT + use)


def test_missing_blas_is_an_import_error():
    code = """
import sys
sys.modules["scipy"] = None
import numpy as np
from kernel_calls import run_kernel, Prepared
from pullback.testing.kernel_calls import E_PYTHON
a = np.ones((1, 32, 32), np.complex64)
try:
    Prepared("bmm", [a.copy()], [a, a]).run()
except ImportError as error:
    print("refused")
"""
    assert run_python(code).strip() == "refused"


MIDDLING = """
import time
import numpy as np
from kernel_calls import Prepared
{more}
rng = np.random.default_rng(0)
def prepare(m, k, n):
    a, b = rng.random((1, m, k), np.float32), rng.random((1, k, n), np.float32)
    return Prepared("bmm", [np.zeros((1, m, n), np.float32)], [a, b])
calls = [prepare(100, 120, 110), prepare(300, 250, 1)]
for call in calls:
    call.run()
from pullback_cpu.gemm import blas
before = blas.thread_count()
"""


def test_middling_products_leave_the_thread_count_as_it_was():
    """They take one thread: several would wait for each other where other processes are busy."""
    code = """
for call in calls:
    call.run()
assert blas.thread_count() == before
"""
    run_python(MIDDLING.format(more="") + code)


def test_thread_count_survives_concurrent_products():
    code = """
def work(seed):
    mine = [prepare(100, 120, 110), prepare(300, 250, 1), prepare(140, 140, 140)]
    for _ in range(300):
        for call in mine:
            call.run()
pool = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
for thread in pool:
    thread.start()
for thread in pool:
    thread.join()
assert blas.thread_count() == before
"""
    run_python(MIDDLING.format(more="import threading") + code)


COPIES = """
import resource, sys
import pullback as pb
{operands}
pb.set_num_threads(1)
grown = []
for _ in range(2):
    for product in (lambda: {plain}, lambda: {conjugated}):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pb.reset_peak_memory_stats()
        held = pb.memory_stats()["allocated_bytes.all.current"]
        out = product()
        peak = pb.memory_stats()["allocated_bytes.all.peak"] - held
        grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
# The plain product came first: BLAS has its buffers.
print(max(grown[1:]), peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory in KiB")
@pytest.mark.parametrize(
    ("shapes", "plain", "conjugated"),
    [
        (((200_000, 16), (200_000, 16)), "a.mT @ b", "a.mH @ b"),
        (((16, 200_000), (16, 200_000)), "a @ b.mT", "a @ b.mH"),
        (((200_000, 16), (200_000,)), "a.mT @ b", "a.mH @ b"),
        (((1, 200_000, 16), (1, 200_000, 16)), "a.mT @ b", "a.mH @ b"),
    ],
)
def test_products_with_adjoints_copy_no_matrix(shapes, plain, conjugated):
    """A matrix has 51 MB: neither the core nor the kernel may take as much."""
    operands = "\n".join(
        f"{name} = pb.ones({shape}, dtype=pb.complex128) * (1 + 2j)"
        for name, shape in zip("ab", shapes)
    )
    code = COPIES.format(operands=operands, plain=plain, conjugated=conjugated)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    resident, allocated = map(int, done.stdout.split())
    assert resident < 12_000 and allocated < 100_000


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (3, 4, 5),
        (40, 30, 20),
        (40, 300, 1),
        (1, 300, 40),
        (1, 300, 1),
        (2, 1, 2),
        (0, 3, 2),
        (3, 0, 2),
    ],
)
def test_conjugated_operands(dtype, m, k, n):
    """Every layout of a and b, with and without PB_ARRAY_CONJ."""
    import pullback as pb

    rng = np.random.default_rng(m * k + n)

    def numbers(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    a, b = (numbers(3, *shape).astype(DTYPES[dtype]) for shape in ((m, k), (k, n)))
    layouts = [
        lambda x: x,
        lambda x: pb.from_numpy(np.ascontiguousarray(x.mT.numpy())).mT,
        lambda x: pb.stack([x, x], -1)[..., 0],
        lambda x: x[:1].expand(x.shape),
    ]
    kinds = [(lambda x: x, lambda x: x), (lambda x: x.conj(), np.conj)]
    for lay_a, lay_b, (turn_a, reference_a), (turn_b, reference_b) in itertools.product(
        layouts, layouts, kinds, kinds
    ):
        left, right = lay_a(pb.from_numpy(a)), lay_b(pb.from_numpy(b))
        found = pb.bmm(turn_a(left), turn_b(right)).numpy()
        expected = reference_a(left.numpy()) @ reference_b(right.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("transposed", [False, True])
def test_second_factors_that_just_fit_on_the_stack(dtype, transposed):
    """Columns are copied to the stack in whole vectors: 8192 elements are room for so many."""
    kind = np.dtype("f4" if dtype == "f32" else "f8")
    for n in (9, 15, 17, 31, 33, 47, 49, 63, 65, 97, 129, 257):
        for k in {8192 // (n + more) - less for more in (0, 7, 15, 31, 63) for less in (-1, 0, 1)}:
            for m in (1, 3, 5, 17, 40):
                a = np.ones((1, m, k), kind)
                b = np.ones((1, n, k) if transposed else (1, k, n), kind)
                out = np.zeros((1, m, n), kind)
                run_kernel("bmm", out, [a, b.transpose(0, 2, 1) if transposed else b])
                assert (out == k).all()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("k", [16, 17, 70, 513, 1100])
@pytest.mark.parametrize("n", [7, 66, 300])
def test_few_rows_and_contiguous_columns(dtype, k, n):
    """As in linear layers: sums are those of columns that are not contiguous, bit for bit.

    (Without AVX2 BLAS makes those of floats, in an order of its own.)
    """
    wide = sample(dtype, (1, n, 2 * k), seed=3)
    near = np.ascontiguousarray(wide[:, :, ::2])
    for m in (2, 3, 5, 8, 9, 16, 17, 24, 31, 32, 33):
        a = sample(dtype, (1, m, k), seed=m)
        check_bmm(a, near.transpose(0, 2, 1))
        both = np.zeros((2, 1, m, n), a.dtype)
        run_kernel("bmm", both[0], [a, near.transpose(0, 2, 1)])
        run_kernel("bmm", both[1], [a, wide[:, :, ::2].transpose(0, 2, 1)])
        if ISA == "baseline":
            check_bmm(a, wide[:, :, ::2].transpose(0, 2, 1))
        else:
            np.testing.assert_array_equal(both[0], both[1])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_few_rows_of_which_others_follow(dtype):
    """Nothing beside the operands is read into sums, nothing beside the result is written."""
    a = np.full((1, 13, 44), np.nan, DTYPES[dtype])
    a[:, :11, :40] = sample(dtype, (1, 11, 40), seed=1)
    b = np.full((1, 70, 43), np.nan, DTYPES[dtype])
    b[:, :65, :40] = sample(dtype, (1, 65, 40), seed=2)
    out = np.full((1, 12, 70), 7, DTYPES[dtype])
    check_bmm(a[:, :11, :40], b[:, :65, :40].transpose(0, 2, 1), out=out[:, :11, :65])
    assert (out[:, 11:] == 7).all() and (out[:, :, 65:] == 7).all()

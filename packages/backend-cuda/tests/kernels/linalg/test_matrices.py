"""Matrix products in every layout, systems of equations, singular values."""

import itertools

import numpy as np
import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")

FLOATING = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 1e-4,
    "float64": 1e-12,
    "complex64": 1e-4,
    "complex128": 1e-12,
}


def numbers(*shape, dtype="float32"):
    made = pb.randn(*shape, dtype=pb.float64)
    if dtype.startswith("complex"):
        made = pb.complex(made, pb.randn(*shape, dtype=pb.float64))
    return made.to(getattr(pb, dtype))


def close(found, expected, dtype):
    difference = (found.cpu().to(pb.complex128) - expected.to(pb.complex128)).abs()
    return difference.numel() == 0 or difference.max().item() <= TOLERANCE[dtype] * 10


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 4), (16, 16, 16), (17, 1, 33), (1, 40, 1)])
def test_products_in_every_dtype(dtype, shape):
    m, k, n = shape
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype)
    assert close(
        a.cuda() @ b.cuda(), a.double() @ b.double() if not a.is_complex() else a @ b, dtype
    )


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "gaps": lambda x: pb.stack([x, x], -1).flatten(-2)[..., ::2],
    "steps": lambda x: x.repeat_interleave(2, -2)[..., ::2, :],
    "batch-last": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_products_in_every_layout(left, right):
    a, b = numbers(3, 4, 6), numbers(3, 6, 5)
    expected = a @ b
    found = LAYOUTS[left](a.cuda()) @ LAYOUTS[right](b.cuda())
    assert close(found, expected, "float32")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_into_every_layout(layout):
    a, b = numbers(3, 4, 6).cuda(), numbers(3, 6, 5).cuda()
    out = LAYOUTS[layout](pb.zeros(3, 4, 5, device="cuda"))
    stride = out.stride()
    pb.bmm(a, b, out=out)
    assert out.stride() == stride
    assert close(out, a.cpu() @ b.cpu(), "float32")


def test_broadcast_batches_and_empty_ones():
    a, b = numbers(2, 1, 4, 3), numbers(5, 3, 2)
    assert close(a.cuda() @ b.cuda(), a @ b, "float32")
    assert (pb.ones(2, 0, device="cuda") @ pb.ones(0, 3, device="cuda")).tolist() == [[0.0] * 3] * 2
    assert (pb.ones(0, 3, device="cuda") @ pb.ones(3, 2, device="cuda")).shape == (0, 2)
    assert pb.bmm(pb.ones(0, 2, 3, device="cuda"), pb.ones(0, 3, 2, device="cuda")).shape == (
        0,
        2,
        2,
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_products_of_integers_wrap_around(dtype):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 100, shape).astype(dtype) for shape in ((2, 35, 20), (2, 20, 17)))
    found = pb.from_numpy(a).cuda() @ pb.from_numpy(b).cuda()
    assert np.array_equal(found.cpu().numpy(), a @ b)
    turned = pb.from_numpy(a).cuda().transpose(1, 2)
    assert np.array_equal((turned @ pb.from_numpy(a).cuda()).cpu().numpy(), a.swapaxes(1, 2) @ a)


def test_precision_of_float32_products_is_chosen(fake_cuda):
    a, b = numbers(8, 64).cuda(), numbers(64, 8).cuda()
    exact = (a.cpu().double() @ b.cpu().double()).float()
    assert ((a @ b).cpu() - exact).abs().max().item() < 1e-5
    pb.set_float32_matmul_precision("high")
    try:
        rough = ((a @ b).cpu() - exact).abs().max().item()
    finally:
        pb.set_float32_matmul_precision("highest")
    assert 1e-5 < rough < 0.1


def test_failing_library_is_named(fake_cuda):
    a = numbers(4, 4).cuda()
    a @ a
    fake_cuda.fail("cublasGemmStridedBatchedEx_64", 13, times=1)
    with pytest.raises(RuntimeError, match="cuda:0: cuBLAS failed with status 13"):
        a @ a
    assert close(a @ a, a.cpu() @ a.cpu(), "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    ("batch", "rows", "columns"),
    [
        ((), 4, 3),
        ((5,), 3, 1),
        ((2, 3), 6, 2),
        ((), 200, 4),
        ((2,), 200, 1),
        ((), 0, 2),
        ((3,), 4, 0),
    ],
)
def test_systems_of_equations(dtype, batch, rows, columns):
    a = numbers(*batch, rows, rows, dtype=dtype) + 4 * rows * pb.eye(rows, dtype=getattr(pb, dtype))
    b = numbers(*batch, rows, columns, dtype=dtype)
    found = pb.linalg.solve(a.cuda(), b.cuda())
    assert found.shape == b.shape
    assert close(found, pb.linalg.solve(a, b), dtype)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_singular_systems_say_which(batch):
    a = pb.eye(4).expand(*batch, 4, 4).clone()
    a[..., 2, 2] = 0
    with pytest.raises(pb.linalg.LinAlgError, match=r"singular|zero"):
        pb.linalg.solve(a.cuda(), pb.ones(*batch, 4, 1, device="cuda"))
    _, info = pb.linalg.solve_ex(a.cuda(), pb.ones(*batch, 4, 1, device="cuda"))
    assert (info == 3).all().item()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 5, 3), (2, 3, 5), (1, 1), (2, 1, 7)])
@pytest.mark.parametrize("full", [True, False])
def test_singular_values(dtype, shape, full):
    a = numbers(*shape, dtype=dtype)
    u, s, vh = pb.linalg.svd(a.cuda(), full_matrices=full)
    expected = pb.linalg.svd(a, full_matrices=full)
    assert (u.shape, s.shape, vh.shape) == tuple(part.shape for part in expected)
    assert close(s, expected[1], dtype)
    k = min(shape[-2:])
    made = (u[..., :k] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :k, :]
    assert close(made, a, dtype)
    unit = pb.eye(u.shape[-1], dtype=a.dtype).expand(*shape[:-2], -1, -1)
    assert close(u.mH @ u, unit, dtype)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4), (0, 4, 4)])
@pytest.mark.parametrize("full", [True, False])
def test_singular_values_of_nothing(shape, full):
    a = pb.zeros(*shape)
    u, s, vh = pb.linalg.svd(a.cuda(), full_matrices=full)
    expected = pb.linalg.svd(a, full_matrices=full)
    for found, known in zip((u, s, vh), expected, strict=True):
        assert found.shape == known.shape
        assert close(found, known, "float32")


def test_not_a_number_is_no_crash():
    a = pb.full((3, 3), float("nan"), device="cuda")
    assert pb.isnan(a @ a).all().item()
    solution = pb.linalg.solve_ex(a, pb.ones(3, 1, device="cuda"))[0]
    assert solution.shape == (3, 1)

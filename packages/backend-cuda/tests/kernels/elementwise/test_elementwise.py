"""Elementwise ops, copies and new numbers on the device ``cuda``, against the device ``cpu``."""

import itertools
import math

import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")

INTEGRAL = [pb.uint8, pb.int8, pb.int16, pb.int32, pb.int64]
FLOATING = [pb.float16, pb.bfloat16, pb.float32, pb.float64]
COMPLEX = [pb.complex64, pb.complex128]
ALL = [pb.bool, *INTEGRAL, *FLOATING, *COMPLEX]


@pytest.fixture
def limit_launches(cuda):
    """A function that cuts calls into small launches, until the test ends."""
    from pullback_cuda.kernels.common.elementwise_driver import limit_launches

    yield limit_launches
    limit_launches()


def make(dtype, *shape, seed=0):
    """Return numbers on the host whose sums and products every dtype can hold."""
    pb.manual_seed(seed)
    numbers = pb.randint(0, 9, shape)
    return numbers.to(dtype) + 1j if dtype in COMPLEX else numbers.to(dtype)


def assert_same(function, *tensors):
    """Check that a function gives the same on both devices."""
    wanted = function(*tensors)
    found = function(*(tensor.to("cuda") for tensor in tensors))
    assert found.device.type == "cuda"
    assert found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    assert found.cpu().tolist() == wanted.tolist()


LAYOUTS = {
    "row": lambda a: (a, a[0]),
    "column": lambda a: (a, a[:, :1]),
    "transposed": lambda a: (a, a.t().contiguous().t()),
    "both transposed": lambda a: (a.t(), a.contiguous().t()),
    "sliced": lambda a: (a[:, ::2], a[:, 1::2]),
    "shifted": lambda a: (a[:, 1:], a[:, :-1]),
    "outer": lambda a: (a[:, None, :3], a[None, :, :3]),
    "one": lambda a: (a, a[0, 0]),
    "zero dims": lambda a: (a[0, 0], a[1, 1]),
    "empty": lambda a: (a[:0], a[:0]),
    "expanded": lambda a: (a[:1].expand(7, 40), a[:7]),
}


@pytest.mark.parametrize("dtype", [pb.uint8, pb.int64, pb.float16, pb.float32, pb.complex128])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    x, y = LAYOUTS[layout](make(dtype, 40, 40))
    assert_same(pb.add, x, y)
    assert_same(pb.mul, y, x)
    if dtype not in COMPLEX:
        assert_same(lambda x, y: pb.where(x < y, x, y), x, y)


@pytest.mark.parametrize("dtype", ALL)
def test_host_scalars(dtype):
    for n in (0, 1, 5, 1000):
        x = make(dtype, n)
        number = 3 + 2j if dtype in COMPLEX else 2.5 if dtype in FLOATING else 3
        assert_same(lambda x, number=number: x + number, x)
        assert_same(lambda x, number=number: x == number, x)
        assert_same(lambda x: pb.full_like(x, 1), x)
        if dtype != pb.bool:
            assert_same(lambda x, number=number: number - x, x)
            assert_same(lambda x, number=number: x.clone().mul_(number), x)


def test_more_dims_than_a_launch_has():
    x = make(pb.float32, *[2] * 15)
    y = x.permute(*range(14, -1, -1)).contiguous()
    assert_same(lambda x, y: x + y.permute(*range(14, -1, -1)), x, y)
    order = [i // 2 if i % 2 else 14 - i // 2 for i in range(15)]
    assert_same(lambda x, y: x * y.permute(*order), x, y)


@pytest.mark.parametrize(("elements", "reach"), [(100, 1 << 30), (1 << 20, 700), (5000, 40000)])
def test_calls_in_several_launches(limit_launches, elements, reach):
    limit_launches(elements, reach)
    x, y = make(pb.float32, 9000), make(pb.int64, 30, 60, 8)
    assert_same(lambda x: x + x, x)
    assert_same(lambda x: (x[1:] * 2).to(pb.int64), x)
    assert_same(lambda y: y.transpose(0, 2) - y.transpose(0, 2)[:1], y)
    assert_same(lambda y: y[::29, :, ::7] + y[0, :1, :2], y)
    for shape in ((9000,), (30, 60, 5)):
        pb.manual_seed(5)
        wanted = pb.rand(*shape)
        pb.manual_seed(5)
        found = pb.empty(*shape[::-1], device="cuda").permute(*range(len(shape))[::-1])
        assert found.uniform_().cpu().tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", INTEGRAL)
@pytest.mark.parametrize("name", ["floor_divide", "fmod", "remainder"])
def test_integer_division_by_zero(dtype, name):
    x = make(dtype, 300).to("cuda")
    function = getattr(pb, name)
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError$"):
        function(x, 0)
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError$"):
        function(x, pb.zeros(300, dtype=dtype, device="cuda")).cpu()
    assert function(x[:0], 0).shape == (0,)
    assert_same(lambda x: function(x, 3), x.cpu())  # the failure is raised once


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5])
def test_powers_to_a_number(dtype, exponent):
    x = pb.tensor([0.0, -0.0, 1.0, -1.0, 4.0, 0.25, math.inf, -math.inf], dtype=dtype)
    wanted = pb.pow(x, exponent)
    found = pb.pow(x.to("cuda"), exponent).cpu()
    assert str(found.tolist()) == str(wanted.tolist())
    assert math.isnan(pb.pow(pb.tensor([math.nan], dtype=dtype).to("cuda"), 2).item())


@pytest.mark.parametrize("dtype", [pb.bool, *INTEGRAL])
def test_what_is_the_same_for_all_integers(dtype):
    x = make(dtype, 300)
    for function in (pb.isnan, pb.isfinite, pb.logical_not, pb.sign):
        assert_same(function, x)
    if dtype != pb.bool:
        for function in (pb.ceil, pb.floor, pb.round, pb.trunc):
            assert_same(function, x)


@pytest.mark.parametrize("dtype", [pb.bool, *INTEGRAL, pb.float16, pb.float32])
def test_exchanged_comparisons(dtype):
    x, y = make(dtype, 300, seed=1), make(dtype, 300, seed=2)
    for function in (pb.gt, pb.ge, pb.lt, pb.le, pb.eq, pb.ne):
        assert_same(function, x, y)
        assert_same(lambda x, function=function: function(x, 1), x)


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ALL, ALL)])
def test_copies(source, target):
    x = make(source, 24, 20)
    assert_same(lambda x: x.to(target), x)
    assert_same(lambda x: x.t().to(target), x)
    assert_same(lambda x: x[:, ::3].to(target), x)
    assert_same(lambda x: pb.zeros(20, 24, dtype=target, device=x.device).copy_(x.t()), x)
    assert_same(lambda x: pb.zeros(5, 24, 20, dtype=target, device=x.device).copy_(x), x)
    assert_same(lambda x: x.t().contiguous(), x)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(1, 1), (33, 40), (64, 64), (200, 3), (3, 200), (70, 65)])
def test_transposed_copies(dtype, shape):
    x = make(dtype, *shape)
    assert_same(lambda x: x.t().contiguous(), x)
    y = make(dtype, 3, *shape, 2)
    assert_same(lambda y: y.permute(0, 2, 1, 3).contiguous(), y)
    assert_same(lambda y: y.permute(3, 2, 0, 1).contiguous(), y)
    assert_same(lambda y: y.permute(3, 1, 2, 0).contiguous(), y)
    assert_same(lambda y: y[:, 1:, ::2].permute(3, 2, 1, 0).contiguous(), y)


# ---- new numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*INTEGRAL, *FLOATING])
def test_equal_steps(dtype):
    for arguments in ((0, 100), (7, 100, 3), (0, 5), (0, 0), (3, 4)):
        on_host = pb.arange(*arguments, dtype=dtype)
        assert pb.arange(*arguments, dtype=dtype, device="cuda").cpu().tolist() == on_host.tolist()
    if dtype in FLOATING:
        on_host = pb.arange(-1.3, 7.7, 0.0013, dtype=dtype)
        found = pb.arange(-1.3, 7.7, 0.0013, dtype=dtype, device="cuda")
        assert found.cpu().tolist() == on_host.tolist()
        for n in (0, 1, 2, 5000, 5001):
            on_host = pb.linspace(-1.3, 7.7, n, dtype=dtype)
            found = pb.linspace(-1.3, 7.7, n, dtype=dtype, device="cuda")
            assert found.cpu().tolist() == on_host.tolist()


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX])
@pytest.mark.parametrize("function", [pb.rand, pb.randn])
def test_random_numbers_are_those_of_the_host(dtype, function):
    for shape in ((), (0,), (1,), (5,), (3000,), (37, 53)):
        pb.manual_seed(11)
        wanted = [function(shape, dtype=dtype) for _ in range(2)]
        pb.manual_seed(11)
        found = [function(shape, dtype=dtype, device="cuda") for _ in range(2)]
        for x, y in zip(found, wanted, strict=True):
            assert x.cpu().tolist() == y.tolist()


@pytest.mark.parametrize("dtype", [pb.bool, *INTEGRAL, *FLOATING])
@pytest.mark.parametrize("limits", [(0, 2), (0, 100), (3, 4)])
def test_random_integers_are_those_of_the_host(dtype, limits):
    if dtype == pb.bool:
        limits = (0, 2)
    for shape in ((), (0,), (1,), (5,), (3000,), (37, 53)):
        pb.manual_seed(12)
        wanted = pb.randint(*limits, shape, dtype=dtype)
        pb.manual_seed(12)
        found = pb.randint(*limits, shape, dtype=dtype, device="cuda")
        assert found.cpu().tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX])
def test_random_numbers_in_logical_order(dtype):
    for view in (lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[::2, ::3], lambda x: x[0]):
        pb.manual_seed(13)
        wanted = view(pb.zeros(31, 47, dtype=dtype)).normal_()
        pb.manual_seed(13)
        found = view(pb.zeros(31, 47, dtype=dtype, device="cuda")).normal_()
        assert found.cpu().tolist() == wanted.tolist()


def test_permutations_are_those_of_the_host():
    pb.manual_seed(14)
    wanted = pb.randperm(1000)
    pb.manual_seed(14)
    assert pb.randperm(1000, device="cuda").cpu().tolist() == wanted.tolist()


def test_wide_random_integers():
    pb.manual_seed(15)
    wanted = pb.randint(-(2**62), 2**62, (999,))
    pb.manual_seed(15)
    found = pb.randint(-(2**62), 2**62, (999,), device="cuda")
    assert found.cpu().tolist() == wanted.tolist()


def test_no_kernel_is_left_out():
    from pullback.ops.table.primitives import LIBRARY, PRIMITIVES
    from pullback.ops.table.special_primitives import SHIFTED
    from pullback_cpu.kernels import KERNELS as HOST
    from pullback_cuda.kernels import KERNELS

    for name, primitive in PRIMITIVES.items():
        if primitive.family in ("unary", "binary", "ternary", "create", "random"):
            if name == "permutation" or name in LIBRARY or name in SHIFTED:
                continue
            assert KERNELS[name][0] == HOST[name][0], name

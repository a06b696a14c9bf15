"""Results that are written into a given tensor, and sums with a factor, in one pass."""

import numpy as np
import pytest

import pullback as pb


def numbers(*shape, dtype=pb.float32):
    return pb.arange(1, 1 + int(np.prod(shape)), dtype=pb.float64).reshape(shape).to(dtype)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "pow", "atan2"])
def test_result_goes_into_the_memory_of_out(name):
    x, y = numbers(2, 3), numbers(2, 3) / 2
    out = pb.empty(2, 3)
    address, version = out.data_ptr(), out._version
    assert getattr(pb, name)(x, y, out=out) is out
    assert out.data_ptr() == address
    assert out._version == version + 1
    assert out.tolist() == getattr(pb, name)(x, y).tolist()


@pytest.mark.parametrize("layout", ["same", "shifted", "turned", "view"])
def test_out_that_shares_memory_with_an_operand(layout):
    base = numbers(5, 4)
    x = base[:4]
    out = {"same": x, "shifted": base[1:], "turned": x.T, "view": base.view(20)[:16].view(4, 4)}[
        layout
    ]
    expected = (x * 3).tolist()
    if layout in ("shifted", "turned"):
        with pytest.raises(RuntimeError, match="single memory location"):
            pb.mul(x, 3, out=out)
        return
    pb.mul(x, 3, out=out)
    assert out.tolist() == expected


def test_out_of_another_shape_dtype_or_device_takes_the_result():
    x = numbers(2, 3)
    row = numbers(3)
    out = pb.empty(2, 3)
    assert pb.add(row, row, out=pb.empty(0)).tolist() == [2, 4, 6]
    assert pb.add(x, row, out=out).tolist() == (x + row).tolist()
    assert pb.add(x, 1, out=pb.empty(2, 3, dtype=pb.float64)).dtype == pb.float64
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.add(x, 0.5, out=pb.empty(2, 3, dtype=pb.int64))
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.add(x.int(), 0.5, out=pb.empty(2, 3, dtype=pb.int32))


def test_out_is_not_for_recorded_operands_nor_for_shared_elements():
    x = numbers(3).requires_grad_()
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        pb.add(x, 1, out=pb.empty(3))
    with pytest.raises(RuntimeError, match="single memory location"):
        pb.add(numbers(3), numbers(3), out=pb.empty(1).expand(3))
    with pb.no_grad():
        assert pb.add(x, 1, out=pb.empty(3)).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "dtype",
    [pb.float16, pb.bfloat16, pb.float32, pb.float64, pb.int32, pb.complex64],
    ids=lambda dtype: dtype.name,
)
@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((0, 3), (3,))],
    ids=str,
)
def test_sum_with_a_factor(dtype, shapes):
    x, y = (numbers(*shape, dtype=dtype) for shape in shapes)
    assert pb.add(x, y, alpha=3).tolist() == (x + y * 3).tolist()
    assert pb.sub(x, y, alpha=3).tolist() == (x - y * 3).tolist()
    assert pb.rsub(x, y, alpha=3).tolist() == (y - x * 3).tolist()
    assert pb.add(x, y, alpha=3).dtype == dtype


@pytest.mark.parametrize("alpha", [True, np.float32(2), np.uint8(2), 2, -2.0, pb.tensor(2)])
def test_factors_of_other_number_types(alpha):
    x, y = numbers(3), numbers(3)
    if alpha is True:
        with pytest.raises(RuntimeError, match="Boolean alpha"):
            pb.add(x, y, alpha=alpha)
        return
    assert pb.sub(x, y, alpha=alpha).tolist() == (x - y * float(alpha)).tolist()
    assert pb.addcmul(x, y, y, value=alpha).tolist() == (x + y * y * float(alpha)).tolist()


@pytest.mark.parametrize(
    "alpha", ["2", None, [2], pb.ones(1), pb.tensor(2.0, requires_grad=True)], ids=str
)
def test_what_is_no_factor(alpha):
    with pytest.raises(TypeError, match="'alpha' must be Number, not"):
        pb.add(numbers(3), numbers(3), alpha=alpha)


def test_sum_with_a_factor_in_place_and_into_out():
    x, y = numbers(3), numbers(3)
    assert x.add_(y, alpha=-0.5) is x
    assert x.tolist() == [0.5, 1, 1.5]
    x.sub_(x, alpha=2)
    assert x.tolist() == [-0.5, -1, -1.5]
    assert pb.add(x, y, alpha=2, out=pb.empty(3)).tolist() == [1.5, 3, 4.5]
    assert x.T.add_(numbers(1), alpha=1).tolist() == [0.5, 0, -0.5]


def test_derivatives_of_a_sum_with_a_factor():
    x, y = (numbers(2, 2, dtype=pb.float64).requires_grad_() for _ in range(2))
    assert pb.autograd.gradcheck(
        lambda x, y: pb.add(x, y, alpha=0.3) * pb.sub(x, y, alpha=2), (x, y)
    )
    assert pb.autograd.gradcheck(lambda x, y: (x * 1).addcmul_(x, y, value=0.3), (x, y))


def test_terms_are_added_in_place():
    x, y, z = numbers(3), numbers(3), numbers(3)
    address = x.data_ptr()
    assert x.addcmul_(y, z, value=2).tolist() == [3, 10, 21]
    assert x.addcdiv_(y, z, value=-1).tolist() == [2, 9, 20]
    assert x.data_ptr() == address
    assert x.addcmul_(x, x).tolist() == [6, 90, 420]
    with pytest.raises(RuntimeError, match="single memory location"):
        pb.addcmul(numbers(4)[:3], y, z, out=(whole := numbers(4))[:3]).addcmul_(whole[1:], y)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        numbers(1).addcmul_(y, z)
    with pytest.raises(RuntimeError, match="overflow"):
        x.addcmul_(y, z, value=1j)


@pytest.mark.parametrize(
    ("dtype", "factor"), [(pb.float32, 1e300), (pb.int8, 300), (pb.int32, 2**40)], ids=str
)
def test_factors_that_do_not_fit(dtype, factor):
    x = numbers(3, dtype=dtype)
    with pytest.raises(RuntimeError, match="without overflow"):
        pb.add(x, x, alpha=factor)
    with pytest.raises(RuntimeError, match="without overflow"):
        pb.addcmul(x, x, x, value=factor)
    assert pb.add(numbers(3), numbers(3), alpha=float("inf")).tolist() == [float("inf")] * 3


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: pb.var_mean(x, dim=0)[0], id="var_mean"),
        pytest.param(lambda x: pb.erfinv(x / 9), id="erfinv"),
        pytest.param(lambda x: pb.div(x, x * 2, rounding_mode="floor"), id="div-rounded"),
        pytest.param(lambda x: pb.linalg.vector_norm(x, 1), id="norm-1"),
        pytest.param(lambda x: pb.cdist(x.unsqueeze(0), x.unsqueeze(0) + 1, p=1), id="cdist-1"),
        pytest.param(
            lambda x: x.scatter_reduce(0, pb.tensor([0]), x[:1], "prod"), id="scatter_reduce-prod"
        ),
    ],
)
def test_a_result_that_no_formula_reads_may_be_written(function):
    x = pb.tensor([1.0, 3.0], requires_grad=True)
    (expected,) = pb.autograd.grad(function(x).sum() * 2, x)
    y = function(x)
    y.mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == expected.tolist()


def test_a_result_that_a_formula_reads_may_not_be_written():
    x = pb.tensor([1.0, 3.0], requires_grad=True)
    for function in (
        pb.exp,
        lambda x: pb.std_mean(x)[0],
        lambda x: pb.linalg.vector_norm(x, 3),
        lambda x: x.scatter_reduce(0, pb.tensor([0]), x[:1], "amax"),
    ):
        y = function(x)
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

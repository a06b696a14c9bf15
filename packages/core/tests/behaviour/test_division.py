"""``div`` with a rounding mode: values at special points, dtypes, forms, nodes and errors."""

import math

import numpy as np
import pytest

import pullback as pb

INF, NAN = math.inf, math.nan
X = [5.0, -5.0, 0.0, -0.0, INF, NAN, 1.0, -1.0]
Y = [2.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0, INF]
QUOTIENTS = {
    None: [2.5, -2.5, NAN, -0.0, INF, NAN, INF, -0.0],
    "trunc": [2.0, -2.0, NAN, -0.0, INF, NAN, INF, -0.0],
    "floor": [2.0, -3.0, NAN, -0.0, NAN, NAN, INF, -1.0],
}
MODES = list(QUOTIENTS)


def same(actual, expected):
    """Compare elements, the signs of zeros included; NaN equals NaN."""
    actual, expected = np.array(actual.tolist()), np.array(expected)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(
        np.signbit(actual)[~np.isnan(actual)], np.signbit(expected)[~np.isnan(expected)]
    )


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.float16, pb.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_special_quotients(mode, dtype):
    x, y = pb.tensor(X, dtype=dtype), pb.tensor(Y, dtype=dtype)
    out = pb.div(x, y, rounding_mode=mode)
    assert out.dtype == dtype
    same(out.double(), QUOTIENTS[mode])


@pytest.mark.parametrize("mode", MODES)
def test_every_form_gives_the_same(mode):
    x, y = pb.tensor(X), pb.tensor(Y)
    expected = QUOTIENTS[mode]
    same(x.div(y, rounding_mode=mode), expected)
    same(pb.divide(x, y, rounding_mode=mode), expected)
    same(pb.div(input=x, other=y, rounding_mode=mode), expected)
    out = pb.empty(len(X))
    assert pb.div(x, y, rounding_mode=mode, out=out) is out
    same(out, expected)
    target = x.clone()
    assert target.div_(y, rounding_mode=mode) is target and target._version == 1
    same(target, expected)
    same(x.clone().divide_(y, rounding_mode=mode), expected)


def test_a_quotient_beside_a_whole_number():
    x = pb.tensor([0.3, 1.0, -1.0])
    assert pb.div(x, 0.1, rounding_mode="floor").tolist() == [3.0, 9.0, -10.0]
    assert pb.div(x, 0.1, rounding_mode="trunc").tolist() == [3.0, 10.0, -10.0]


@pytest.mark.parametrize("dtype", [pb.int8, pb.int16, pb.int32, pb.int64])
def test_integers_stay_integers(dtype):
    x = pb.tensor([7, -7, 7, -7, 6], dtype=dtype)
    y = pb.tensor([2, 2, -2, -2, 3], dtype=dtype)
    for mode, expected in (("trunc", [3, -3, -3, 3, 2]), ("floor", [3, -4, -4, 3, 2])):
        out = pb.div(x, y, rounding_mode=mode)
        assert out.dtype == dtype and out.tolist() == expected
        assert x.clone().div_(y, rounding_mode=mode).tolist() == expected
    assert pb.div(x, y, rounding_mode=None).dtype == pb.float32
    assert pb.div(x, 2.0, rounding_mode="trunc").dtype == pb.float32
    assert pb.div(7, y, rounding_mode="trunc").tolist() == [3, 3, -3, -3, 2]


def test_the_largest_integers_are_exact():
    x = pb.tensor([2**62 + 1, -(2**62) - 1, 2**63 - 1])
    assert pb.div(x, 2, rounding_mode="trunc").tolist() == [2**61, -(2**61), 2**62 - 1]
    assert pb.div(x, 2, rounding_mode="floor").tolist() == [2**61, -(2**61) - 1, 2**62 - 1]


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_an_integer_by_zero_is_refused(mode):
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pb.div(pb.tensor([1, 2]), pb.tensor([1, 0]), rounding_mode=mode)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pb.tensor([1, 2]).div_(0, rounding_mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_and_nodes(mode):
    x, y = (pb.tensor([5.0, -5.0], dtype=pb.float64, requires_grad=True) for _ in range(2))
    out = pb.div(x, y * 0.4, rounding_mode=mode)
    assert out.grad_fn.name() == "DivBackward2"
    gx, gy = pb.autograd.grad(out.sum(), (x, y), create_graph=True)
    if mode is None:
        assert gx.tolist() == pytest.approx([0.5, -0.5])
        assert gy.tolist() == pytest.approx([-0.5, 0.5])
    else:
        assert gx.tolist() == [0.0, 0.0] and gy.tolist() == [0.0, 0.0]
    assert pb.div(x, 2).grad_fn.name() == "DivBackward0"


def test_a_rounded_quotient_in_place_has_no_derivative():
    x = pb.tensor([5.0, 7.0], requires_grad=True)
    y = x * 1
    y.div_(2, rounding_mode="floor")
    assert y.grad_fn.name() == "DivBackward2"
    (y + x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_under_vmap():
    x, y = pb.tensor([[5.0, -5.0], [7.0, -7.0]]), pb.tensor([2.0, 4.0])
    for mode in MODES:
        out = pb.func.vmap(lambda a, b, mode=mode: pb.div(a, b, rounding_mode=mode))(x, y)
        assert out.tolist() == pb.div(x, y.unsqueeze(1), rounding_mode=mode).tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: pb.div(x, x, rounding_mode="round"),
            RuntimeError,
            "rounding_mode to be one of None, 'trunc', or 'floor' but found 'round'",
        ),
        (lambda x: pb.div(x, x, rounding_mode=1), TypeError, "rounding_mode"),
        (lambda x: pb.div(x, x, "floor"), TypeError, r"div\(\) takes 2 positional"),
        (
            lambda x: pb.div(x, rounding_mode="floor"),
            TypeError,
            r'div\(\) missing 1 required positional arguments: "other"',
        ),
        (lambda x: pb.div(x, None, rounding_mode="floor"), TypeError, r"div\(\): argument 'other'"),
        (lambda x: x.div_(None, rounding_mode="floor"), TypeError, r"div_\(\): argument 'other'"),
        (lambda x: pb.div(x, x, rounding="floor"), TypeError, "keyword argument 'rounding'"),
        (
            lambda x: pb.div(x.bool(), x.bool(), rounding_mode="trunc"),
            NotImplementedError,
            "\"div_trunc_cpu\" not implemented for 'Bool'",
        ),
        (lambda x: pb.div(x, 1j, rounding_mode="floor"), NotImplementedError, "'ComplexFloat'"),
        (lambda x: pb.tensor([1]).div_(2.0, rounding_mode="floor"), RuntimeError, "can't be cast"),
        (lambda x: pb.tensor([1]).div_(2, rounding_mode=None), RuntimeError, "can't be cast"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(pb.ones(2))


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_second_derivatives_of_remainders_of_subnormal_numbers(name):
    x = pb.tensor([2e-310], dtype=pb.float64, requires_grad=True)
    y = pb.tensor([3e-310], dtype=pb.float64, requires_grad=True)
    first = pb.autograd.grad(getattr(pb, name)(x, y), (x, y), create_graph=True)
    assert [g.item() for g in first] == [1, 0]
    assert [g.item() for g in pb.autograd.grad(first[1], (x, y))] == [0, 0]

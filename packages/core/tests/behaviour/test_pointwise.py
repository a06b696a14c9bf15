"""Elementwise ops: special values, dtypes, errors and forms that the table's samples leave out."""

import math

import numpy as np
import pytest

import pullback as pb

F = pb.nn.functional
INF, NAN = math.inf, math.nan
FLOATS = (pb.float16, pb.bfloat16, pb.float32, pb.float64)


def values_of(tensor):
    return tensor.detach().double().tolist()


def gradient(function, *inputs):
    """Return the gradients of the sum of a function's result."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    out = function(*leaves)
    return pb.autograd.grad(out.sum(), leaves, allow_unused=True)


def same(actual, expected):
    np.testing.assert_array_equal(np.array(values_of(actual)), np.array(expected))


# ---- bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_signbit_sees_the_sign_of_zero_and_nan(dtype):
    x = pb.tensor([0.0, -0.0, 1.0, -INF, NAN], dtype=dtype)
    assert pb.signbit(x).tolist() == [False, True, False, True, False]
    if dtype != pb.bfloat16:  # whose NaN is always the same one
        x = pb.tensor([-0.0, -NAN, -INF, NAN], dtype=dtype)
        assert pb.signbit(x).tolist() == [True, True, True, False]


def test_signbit_of_integers_and_complex():
    assert pb.signbit(pb.tensor([-1, 0, 1])).tolist() == [True, False, False]
    assert pb.signbit(pb.tensor([True])).tolist() == [False]
    with pytest.raises(NotImplementedError, match="signbit is not implemented for complex"):
        pb.signbit(pb.tensor([1j]))


def test_copysign_of_zeros_and_numbers():
    x = pb.tensor([1.0, -2.0, 0.0])
    assert pb.signbit(x.copysign(-0.0)).tolist() == [True, True, True]
    same(pb.copysign(pb.tensor([1, -2]), 1), [1.0, 2.0])
    assert pb.copysign(pb.tensor([1, 2]), -1).dtype == pb.float32
    assert type(x.requires_grad_().copysign(1).grad_fn).__name__ == "CopysignBackward1"
    assert type(x.copysign(x).grad_fn).__name__ == "CopysignBackward0"


def test_copysign_has_gradient_zero_at_zero():
    x, sign = pb.tensor([0.0, 2.0, -2.0]), pb.tensor([-1.0, -1.0, -1.0])
    by_self, by_sign = gradient(pb.copysign, x, sign)
    same(by_self, [0.0, -1.0, 1.0])
    same(by_sign, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nextafter_agrees_with_numpy(dtype):
    info = np.finfo(dtype)
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        info.max,
        -info.max,
        info.tiny,
        info.smallest_subnormal,
        INF,
        -INF,
        NAN,
        2.5,
    ]
    x = np.array(values, dtype)
    first, second = np.meshgrid(x, x)
    with np.errstate(all="ignore"):
        expected = np.nextafter(first, second)
    actual = pb.nextafter(pb.tensor(first), pb.tensor(second)).numpy()
    np.testing.assert_array_equal(actual, expected)
    moved = first != second  # of equal zeros NumPy's float16 gives the first
    np.testing.assert_array_equal(np.signbit(actual)[moved], np.signbit(expected)[moved])


def test_nextafter_of_bfloat16():
    x = pb.tensor([1.0, 0.0, -1.0], dtype=pb.bfloat16)
    same(
        pb.nextafter(x, pb.tensor([2.0, -1.0, 0.0], dtype=pb.bfloat16)),
        [1 + 2**-7, -(2.0**-133), -1 + 2**-8],
    )
    with pytest.raises(NotImplementedError, match="nextafter"):
        pb.nextafter(pb.tensor([1]), pb.tensor([2]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp_puts_together_what_it_takes_apart(dtype):
    limits = pb.finfo(dtype)
    numbers = [1.0, -3.0, 0.75, limits.max, limits.min, limits.tiny, limits.tiny * 2**-3, 100.0]
    x = pb.tensor(numbers, dtype=dtype)
    mantissa, exponent = pb.frexp(x)
    assert mantissa.dtype == dtype
    assert exponent.dtype == pb.int32
    parts = list(zip(values_of(mantissa), exponent.tolist()))
    assert parts == [math.frexp(value) for value in values_of(x)]


def test_frexp_of_special_values_and_others():
    found = pb.frexp(pb.tensor([0.0, -0.0, INF, -INF, NAN]))
    same(found.mantissa, [0.0, -0.0, INF, -INF, NAN])
    assert found.exponent.tolist() == [0] * 5
    assert pb.signbit(found.mantissa).tolist() == [False, True, False, True, False]
    with pytest.raises(RuntimeError, match="floating-point"):
        pb.frexp(pb.tensor([1]))


# ---- two operands --------------------------------------------------------------------------------


def test_fmax_and_fmin_prefer_numbers():
    x, y = pb.tensor([NAN, 1.0, NAN, 2.0]), pb.tensor([1.0, NAN, NAN, 2.0])
    same(pb.fmax(x, y), [1.0, 1.0, NAN, 2.0])
    same(pb.fmin(x, y), [1.0, 1.0, NAN, 2.0])
    by_x, by_y = gradient(pb.fmax, x, y)
    same(by_x, [0.0, 1.0, 1.0, 1.0])
    same(by_y, [1.0, 0.0, 0.0, 0.0])
    with pytest.raises(TypeError, match="other"):
        pb.fmax(x, 1)


@pytest.mark.parametrize(("name", "arguments"), [("heaviside", 2), ("floor_divide", 2)])
def test_ops_without_derivative_record_a_node_that_refuses(name, arguments):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    out = getattr(pb, name)(x, pb.tensor([2.0, 3.0]))
    assert out.requires_grad
    assert type(out.grad_fn).__name__ == "NotImplemented"
    with pytest.raises(RuntimeError, match=f"derivative for {name} is not implemented"):
        out.sum().backward()


def test_heaviside_wants_one_real_dtype():
    with pytest.raises(RuntimeError, match="different dtypes"):
        pb.heaviside(pb.ones(1), pb.ones(1, dtype=pb.float64))
    with pytest.raises(RuntimeError, match="complex"):
        pb.heaviside(pb.tensor([1j]), pb.tensor([1j]))
    same(pb.heaviside(pb.tensor([NAN, 0.0, -1.0, 2.0]), pb.tensor(0.5)), [0.0, 0.5, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [pb.int8, pb.int16, pb.int32, pb.int64])
def test_gcd_of_the_smallest_integer(dtype):
    smallest = pb.tensor([pb.iinfo(dtype).min], dtype=dtype)
    zero = pb.zeros(1, dtype=dtype)
    assert pb.gcd(smallest, smallest).item() == pb.iinfo(dtype).min  # its size does not fit
    assert pb.gcd(smallest, zero + 6).item() == 2
    assert pb.lcm(smallest, zero).item() == 0


def test_gcd_and_lcm_of_signs_and_zeros():
    x, y = pb.tensor([-4, 0, 6, 0]), pb.tensor([6, 0, 0, 5])
    assert pb.gcd(x, y).tolist() == [2, 0, 6, 5]
    assert pb.lcm(x, y).tolist() == [12, 0, 0, 0]
    assert pb.lcm(pb.tensor([100], dtype=pb.int8), pb.tensor([99], dtype=pb.int8)).item() == -84
    with pytest.raises(NotImplementedError, match="gcd"):
        pb.gcd(pb.tensor([1.0]), pb.tensor([1.0]))
    with pytest.raises(NotImplementedError, match="lcm"):
        pb.lcm(pb.tensor([True]), pb.tensor([True]))


def test_hypot_does_not_overflow():
    big = pb.tensor([3e200], dtype=pb.float64)
    assert pb.hypot(big, big / 3 * 4).item() == pytest.approx(5e200)
    assert pb.hypot(pb.tensor([INF]), pb.tensor([NAN])).item() == INF
    by_x, by_y = gradient(pb.hypot, pb.zeros(1), pb.zeros(1))
    assert math.isnan(by_x.item())
    assert math.isnan(by_y.item())


def test_float_power_is_double():
    assert pb.float_power(pb.tensor([2]), 2).dtype == pb.float64
    assert pb.float_power(2, pb.tensor([2.0])).dtype == pb.float64
    assert pb.float_power(pb.tensor([2.0]), 1j).dtype == pb.complex128
    x = pb.tensor([2.0])
    with pytest.raises(RuntimeError, match=r"float_power_ has dtype float32 .* dtype float64"):
        x.float_power_(2)
    assert x.double().float_power_(2).item() == 4.0
    with pytest.raises(TypeError, match="float_power"):
        pb.float_power(2, 3)


def test_ldexp_of_large_integer_exponents():
    same(pb.ldexp(pb.tensor([1.0], dtype=pb.float64), pb.tensor([200])), [2.0**200])
    same(pb.ldexp(pb.tensor([0.0, 1.0], dtype=pb.float16), pb.tensor([40, -20])), [0.0, 2.0**-20])
    assert pb.ldexp(pb.tensor([1]), pb.tensor([2])).dtype == pb.float32
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.tensor([1]).ldexp_(pb.tensor([1]))


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_derivatives_of_logaddexp_do_not_overflow(name, dtype):
    if name == "logaddexp2" and dtype.is_complex:
        pytest.skip("it takes real numbers")
    x = pb.tensor([1e5, -1e5, 800.0], dtype=dtype, requires_grad=True)
    y = pb.zeros(3, dtype=dtype)
    (first,) = pb.autograd.grad(getattr(pb, name)(x, y), x, pb.ones_like(y), create_graph=True)
    (second,) = pb.autograd.grad(first, x, pb.ones_like(y))
    assert first.tolist() == [1, 0, 1]
    assert second.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("name", "base"), [("logaddexp", math.e), ("logaddexp2", 2.0)])
def test_logaddexp_at_infinities(name, base):
    function = getattr(pb, name)
    x = pb.tensor([INF, -INF, INF, 1000.0, -INF])
    y = pb.tensor([INF, -INF, -INF, 1000.0, 3.0])
    same(function(x, y)[[0, 1, 2, 4]], [INF, -INF, INF, 3.0])
    assert function(x, y)[3].item() == pytest.approx(1000 + math.log(2, base))
    by_x, by_y = gradient(function, x, y)
    same(by_x, [NAN, NAN, 1.0, 0.5, 0.0])
    same(by_y, [NAN, NAN, 0.0, 0.5, 1.0])


def test_xlogy_at_zero():
    x, y = pb.tensor([0.0, 0.0, 0.0, 1.0]), pb.tensor([0.0, -1.0, NAN, 0.0])
    same(pb.xlogy(x, y), [0.0, 0.0, NAN, -INF])
    by_x, _ = gradient(pb.xlogy, x, y)
    same(by_x, [0.0, 0.0, NAN, -INF])
    same(pb.xlogy(0, pb.tensor([0.0, NAN])), [0.0, NAN])
    same(pb.xlogy(pb.tensor([0, 2]), 1), [0.0, 0.0])
    nodes = [pb.xlogy(x.requires_grad_(), y), pb.xlogy(2, x), pb.xlogy(x, 2)]
    assert [type(out.grad_fn).__name__ for out in nodes] == [
        "XlogyBackward0",
        "XlogyBackward1",
        "XlogyBackward2",
    ]


# ---- clamp ---------------------------------------------------------------------------------------


def test_clamp_gradient_at_bounds_and_nan():
    x = pb.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, NAN])
    same(gradient(lambda x: x.clamp(0, 1), x)[0], [0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    low, high = pb.tensor([0.0] * 6), pb.tensor([1.0] * 6)
    by_x, by_low, by_high = gradient(pb.clamp, x, low, high)
    same(by_x, [0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    same(by_low, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    same(by_high, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0])


def test_clamp_with_crossed_bounds_gives_max():
    x = pb.tensor([0.0, 2.0, 4.0])
    same(x.clamp(3, 1), [1.0, 1.0, 1.0])
    by_x, by_low, by_high = gradient(pb.clamp, x, pb.tensor([3.0] * 3), pb.tensor([1.0] * 3))
    same(by_x, [0.0, 0.0, 0.0])
    same(by_low, [0.0, 0.0, 0.0])
    same(by_high, [1.0, 1.0, 1.0])


def test_clamp_nodes_and_dtypes():
    x = pb.tensor([1.0], requires_grad=True)
    assert type(x.clamp(0, 1).grad_fn).__name__ == "ClampBackward1"
    assert type(x.clamp(pb.zeros(1)).grad_fn).__name__ == "ClampBackward0"
    assert type(x.clamp_min(0).grad_fn).__name__ == "ClampMinBackward0"
    assert type(x.clamp_max(pb.zeros(1)).grad_fn).__name__ == "ClampMaxBackward1"
    assert pb.tensor([1]).clamp(0.5).dtype == pb.float32
    assert pb.tensor([True]).clamp(0, 1).dtype == pb.int64
    same(pb.tensor([1.0]).clamp(NAN), [NAN])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), RuntimeError, "At least one of 'min' or 'max'"),
        (("a",), TypeError, "clamp"),
    ],
)
def test_clamp_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        pb.ones(2).clamp(*arguments)


def test_clamp_refuses_dtypes_and_bounds():
    with pytest.raises(NotImplementedError, match="complex"):
        pb.tensor([1j]).clamp(0)
    with pytest.raises(NotImplementedError, match="for 'Bool'"):
        pb.tensor([True]).clamp(False, True)
    with pytest.raises(RuntimeError, match="int8 without overflow"):
        pb.tensor([1], dtype=pb.int8).clamp(max=300)
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.tensor([1]).clamp_(0.5)
    with pytest.raises(TypeError, match="clamp_min"):
        pb.ones(1).clamp_min(None)


# ---- three operands ------------------------------------------------------------------------------


def test_addcmul_of_integers_cuts_the_factor():
    i = pb.tensor([1, 2])
    assert pb.addcmul(i, i, i, value=2).tolist() == [3, 10]
    assert pb.addcmul(i, i, i, value=0.5).tolist() == [1, 2]
    same(pb.addcmul(pb.ones(2), i, i, value=0.5), [1.5, 3.0])
    assert pb.addcmul(i, i, i.double()).dtype == pb.float64


def test_addcmul_and_addcdiv_refuse():
    x, i = pb.ones(2), pb.tensor([1, 2])
    with pytest.raises(RuntimeError, match="Integer division with addcdiv is no longer supported"):
        pb.addcdiv(x, i, i)
    with pytest.raises(RuntimeError, match="without overflow"):
        pb.addcmul(x, x, x, value=1j)
    for value in (math.inf, 2**70, 300):
        with pytest.raises(RuntimeError, match="without overflow"):
            pb.addcmul(*[pb.tensor([1, 2], dtype=pb.int8)] * 3, value=value)
    with pytest.raises(TypeError, match="value"):
        pb.addcmul(x, x, x, value="2")
    with pytest.raises(TypeError, match="tensor2"):
        pb.addcmul(x, x, 2.0)
    with pytest.raises(NotImplementedError, match="for 'Bool'"):
        pb.addcmul(*[pb.tensor([True])] * 3)
    with pytest.raises(RuntimeError, match="shape"):
        pb.ones(2).addcmul_(pb.ones(2, 2), x)


def test_addcmul_multiplies_the_value_first():
    zeros, large, part = pb.zeros(3), pb.full((3,), 2e38), pb.full((3,), 0.25)
    assert pb.addcmul(zeros, large, 1 / part, value=0.25).equal(large)
    assert pb.addcdiv(zeros, large, part, value=0.25).equal(large)


@pytest.mark.parametrize("dtype", [pb.complex64, pb.complex128])
def test_addcdiv_of_complex_zeros_is_infinite(dtype):
    one, zero = pb.ones(1, dtype=dtype), pb.zeros(1, dtype=dtype)
    found = pb.addcdiv(one, one + 2j, zero, value=2).item()
    assert (found.real, found.imag) == (math.inf, math.inf)


def test_lerp_reaches_both_ends():
    start, end = pb.tensor([1e8, 0.1]), pb.tensor([1.0, 0.3])
    assert pb.lerp(start, end, 0.0).tolist() == start.tolist()
    assert pb.lerp(start, end, 1.0).tolist() == end.tolist()
    assert pb.lerp(start, end, pb.tensor([1.0, 0.0])).tolist() == [1.0, start[1].item()]


@pytest.mark.parametrize(
    ("end", "weight", "message"),
    [
        (pb.ones(2, dtype=pb.float64), 0.5, "float32 for `end` but got dtype float64"),
        (pb.ones(2), pb.ones(2, dtype=pb.float64), "float32 for `weight` but got dtype float64"),
        (pb.ones(2), pb.tensor([1, 2]), "float32 for `weight` but got dtype int64"),
        (pb.ones(2), 1j, "without overflow"),
    ],
)
def test_lerp_wants_one_dtype(end, weight, message):
    with pytest.raises(RuntimeError, match=message):
        pb.lerp(pb.ones(2), end, weight)


def test_lerp_nodes_and_integers():
    x = pb.ones(2, requires_grad=True)
    assert type(pb.lerp(x, x, 0.5).grad_fn).__name__ == "LerpBackward0"
    assert type(pb.lerp(x, x, pb.ones(2)).grad_fn).__name__ == "LerpBackward1"
    with pytest.raises(NotImplementedError, match="lerp"):
        pb.lerp(pb.tensor([1]), pb.tensor([1]), 0.5)
    with pytest.raises(TypeError, match="weight"):
        pb.lerp(x, x, "a")


# ---- one operand ---------------------------------------------------------------------------------


def test_nan_to_num_uses_the_limits_of_the_dtype():
    for dtype in FLOATS:
        limits = pb.finfo(dtype)
        found = pb.tensor([NAN, INF, -INF, 2.0], dtype=dtype).nan_to_num()
        same(found, [0.0, limits.max, limits.min, 2.0])
    i = pb.tensor([1])
    assert pb.nan_to_num(i) is not i
    x = pb.tensor([NAN, INF, -INF, 2.0])
    same(gradient(pb.nan_to_num, x)[0], [0.0, 0.0, 0.0, 1.0])
    with pytest.raises(TypeError, match="'posinf' must be float"):
        pb.nan_to_num(x, posinf="a")


def test_nan_to_num_of_complex_replaces_each_part():
    z = pb.tensor([complex(NAN, INF), complex(1, -INF)]).nan_to_num(5.0, 6.0, 7.0)
    assert z.tolist() == [5 + 6j, 1 + 7j]


def test_positive_is_the_very_tensor():
    x = pb.ones(2)
    assert pb.positive(x) is x
    with pytest.raises(RuntimeError, match="bool"):
        pb.positive(pb.tensor([True]))


def test_square_of_bools_counts():
    assert pb.square(pb.tensor([True, False])).tolist() == [1, 0]
    assert pb.square(pb.tensor([True])).dtype == pb.int64
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.tensor([True]).square_()


def test_exp2_of_complex():
    z = pb.exp2(pb.tensor([1j], dtype=pb.complex128)).item()
    assert abs(z - 2**1j) < 1e-15


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "isposinf", "isneginf"])
def test_ops_of_real_numbers_refuse_complex(name):
    with pytest.raises(RuntimeError, match=name):
        getattr(pb, name)(pb.tensor([1j]))


def test_questions_about_infinities():
    x = pb.tensor([INF, -INF, NAN, 1.0])
    assert x.isinf().tolist() == [True, True, False, False]
    assert x.isposinf().tolist() == [True, False, False, False]
    assert x.isneginf().tolist() == [False, True, False, False]
    assert pb.tensor([1, 2]).isinf().tolist() == [False, False]
    assert pb.tensor([complex(NAN, INF)]).isinf().tolist() == [True]
    assert pb.isreal(pb.tensor([NAN])).tolist() == [True]
    assert pb.isreal(pb.tensor([1 + 0j, 1j])).tolist() == [True, False]


def test_is_nonzero():
    assert pb.is_nonzero(pb.tensor([[2.0]])) is True
    assert pb.tensor(False).is_nonzero() is False
    for wrong in (pb.ones(2), pb.ones(0)):
        with pytest.raises(RuntimeError, match="ambiguous"):
            pb.is_nonzero(wrong)
    with pytest.raises(TypeError, match="Tensor"):
        pb.is_nonzero(1)


# ---- special functions ---------------------------------------------------------------------------


def test_special_functions_at_poles():
    x = pb.tensor([0.0, -0.0, -1.0, INF, -INF, NAN], dtype=pb.float64)
    same(pb.lgamma(x), [INF, INF, INF, INF, INF, NAN])
    same(pb.digamma(x), [-INF, INF, NAN, INF, NAN, NAN])
    same(pb.erfinv(pb.tensor([1.0, -1.0, 1.5, NAN])), [INF, -INF, NAN, NAN])
    assert pb.signbit(pb.erfinv(pb.tensor([-0.0]))).item()
    same(pb.polygamma(2, x[:3]), [-INF, -INF, -INF])


def test_special_functions_are_precise():
    special = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(0)
    ends = 1 - 10.0 ** -rng.uniform(0, 15, 500)
    near = np.concatenate([rng.uniform(-20, 20, 500), rng.uniform(0.01, 3, 500)])
    for name, values, expected in (
        ("erfinv", np.concatenate([ends, -ends]), special.erfinv),
        ("erfc", near, special.erfc),
        ("i0", near, special.i0),
        ("lgamma", near[near > 2.2], special.gammaln),
        ("digamma", near[near > 1.6], special.psi),
    ):
        found = getattr(pb, name)(pb.tensor(values)).numpy()
        np.testing.assert_allclose(found, expected(values), rtol=1e-13)


def test_special_functions_next_to_a_pole():
    special = pytest.importorskip("scipy.special")
    x = pb.tensor([-1e-30, -1e-10, -1e-300, 1e-30], dtype=pb.float64)
    expected = special.psi(x.numpy())
    np.testing.assert_allclose(pb.digamma(x).numpy(), expected, rtol=1e-12)
    assert pb.digamma(pb.tensor([-1e-30])).item() == pytest.approx(1e30)
    near = 1 - 2.0**-30
    found = pb.digamma(pb.tensor([-near], dtype=pb.float64)).item()
    assert found == pytest.approx(-(2.0**30), rel=1e-8)
    assert pb.polygamma(1, x[:2]).tolist() == pytest.approx([1e60, 1e20])
    assert pb.polygamma(2, x[:2]).tolist() == pytest.approx([2e90, 2e30])


def test_polygamma_far_below_zero():
    special = pytest.importorskip("scipy.special")
    x = np.array([-0.5, -7.25, -100.75, -1000.5])
    for n in (1, 2, 3):
        found = pb.polygamma(n, pb.tensor(x)).numpy()
        np.testing.assert_allclose(found, special.polygamma(n, x), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: pb.polygamma(-1, x), RuntimeError, "negative n"),
        (lambda x: pb.polygamma(1.5, x), TypeError, "argument 'n' .* must be int"),
        (lambda x: x.polygamma(x), TypeError, "argument 'n' .* must be int"),
        (lambda x: pb.mvlgamma(x, 0), RuntimeError, "p has to be greater than or equal to 1"),
        (lambda x: pb.mvlgamma(x, 2.5), TypeError, "argument 'p' .* must be int"),
        (lambda x: pb.mvlgamma(x > 0, 1), RuntimeError, "boolean"),
        pytest.param(
            lambda x: pb.mvlgamma(x * 1e9, 2**30),
            RuntimeError,
            "p must be at most",
            marks=pytest.mark.beyond_torch,
        ),
        (lambda x: pb.logit(x, eps="a"), TypeError, "'eps' must be float"),
        (lambda x: pb.lgamma(x.to(pb.complex64)), NotImplementedError, "lgamma"),
    ],
)
def test_special_functions_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call(pb.ones(2))


def test_polygamma_has_three_forms():
    x = pb.tensor([0.5, 2.0])
    expected = pb.polygamma(1, x).tolist()
    assert x.polygamma(1).tolist() == expected
    assert x.polygamma_(1) is x
    assert x.tolist() == expected
    with pytest.raises(RuntimeError, match="can't be cast"):
        pb.tensor([1]).polygamma_(1)


def test_logit_clamps():
    x = pb.tensor([0.0, 0.3, 1.0, NAN], dtype=pb.float64)
    found = x.logit(0.25)
    same(found[3:], [NAN])
    assert found[0].item() == pytest.approx(math.log(1 / 3))
    same(gradient(lambda x: x.logit(0.25), x)[0][[0, 2]], [0.0, 0.0])
    assert math.isnan(gradient(pb.logit, pb.tensor([2.0]))[0].item())
    same(gradient(pb.logit, pb.tensor([-0.0, 0.0, 1.0]))[0], [INF, INF, INF])


# ---- complex -------------------------------------------------------------------------------------


def test_complex_keeps_infinities_apart():
    z = pb.complex(pb.tensor([INF, 1.0]), pb.tensor([1.0, INF]))
    assert z.tolist() == [complex(INF, 1), complex(1, INF)]
    assert pb.complex(pb.ones(2, 1), pb.ones(3)).shape == (2, 3)
    assert pb.complex(pb.ones(1, dtype=pb.float64), pb.ones(1, dtype=pb.float64)).dtype == (
        pb.complex128
    )


@pytest.mark.parametrize("name", ["complex", "polar"])
def test_complex_wants_two_floats_of_one_dtype(name):
    function = getattr(pb, name)
    with pytest.raises(RuntimeError, match=r"Expected both inputs to be .* but got Long"):
        function(pb.tensor([1]), pb.tensor([1]))
    with pytest.raises(RuntimeError, match="scalar type Float but got scalar type Double"):
        function(pb.ones(1), pb.ones(1, dtype=pb.float64))
    with pytest.raises(TypeError):
        function(pb.ones(1), 1.0)
    assert not hasattr(pb.Tensor, name)


def test_angle_of_reals_and_zero():
    same(pb.angle(pb.tensor([-0.0, -2.0, 3.0, NAN])), [0.0, np.float32(math.pi), 0.0, NAN])
    assert pb.angle(pb.tensor([-1])).dtype == pb.float32
    assert pb.angle(pb.tensor([-1.0], dtype=pb.float64)).item() == math.pi
    same(gradient(pb.angle, pb.tensor([-2.0, 3.0]))[0], [0.0, 0.0])
    z = pb.tensor([0j, 1 + 0j], requires_grad=True)
    pb.angle(z).sum().backward()
    assert z.grad.tolist() == [0j, 1j]


def test_conj_physical_of_reals_is_the_very_tensor():
    x = pb.ones(2)
    assert pb.conj_physical(x) is x
    z = pb.tensor([1 + 2j])
    assert z.conj_physical_() is z
    assert z.tolist() == [1 - 2j]


def test_sgn_of_complex_zero_has_no_derivative():
    z = pb.tensor([0j, 3 + 4j], dtype=pb.complex128, requires_grad=True)
    found = pb.sgn(z)
    (found * (1 + 2j)).real.sum().backward()
    assert found[0].item() == 0 == z.grad[0].item()
    assert z.grad[1].item() == pytest.approx(0.32 - 0.24j)


# ---- powers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (pb.uint8, "uint8_t"),
        (pb.int8, "int8_t"),
        (pb.int16, "int16_t"),
        (pb.int32, "int"),
        (pb.int64, "int64_t"),
        (pb.float16, "c10::Half"),
        (pb.bfloat16, "c10::BFloat16"),
    ],
)
def test_exponents_must_fit_the_dtype(dtype, name):
    x = pb.tensor([2, 3], dtype=dtype)
    largest = pb.iinfo(dtype).max + 1 if not dtype.is_floating_point else 1e300
    for call in (lambda: x**largest, lambda: x.pow_(largest), lambda: x[0] ** largest):
        with pytest.raises(RuntimeError, match=f"to type {name} without overflow"):
            call()
    assert (x**2).tolist() == [4, 9]


def test_powers_of_bools_by_bools():
    x = pb.tensor([True, False])
    assert (x**True).tolist() == [True, False]
    assert (x**False).tolist() == [True, True]
    assert (x**2).dtype == pb.int64
    assert pb.pow(x, True, out=pb.zeros(2)).tolist() == [1.0, 0.0]
    assert x.pow_(True) is x
    assert x.tolist() == [True, False]
    assert x.pow_(False).tolist() == [True, True]
    assert x.dtype == (x**False).dtype == pb.bool
    with pytest.raises(NotImplementedError, match="Bool"):
        x**x


# ---- comparisons of wholes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["isclose", "allclose", "equal"])
def test_comparisons_want_two_tensors(name):
    function = getattr(pb, name)
    with pytest.raises(
        TypeError,
        match=rf"{name}\(\): argument 'other' \(position 2\) must be "
        "Tensor, not int",
    ):
        function(pb.ones(2), 1)
    with pytest.raises(TypeError, match=r"argument 'input' \(position 1\) must be Tensor, not int"):
        function(1, pb.ones(2))
    if name != "equal":
        with pytest.raises(TypeError, match=r"argument 'rtol' \(position 3\) must be float"):
            function(pb.ones(2), pb.ones(2), "a")


def test_logical_functions_write_to_out():
    x, y = pb.tensor([2.0, 0.0]), pb.tensor([1.0, 1.0])
    for name, expected in (("and", [1, 0]), ("or", [1, 1]), ("xor", [0, 1])):
        for dtype in (pb.bool, pb.float32, pb.uint8):
            out = pb.zeros(2, dtype=dtype)
            assert getattr(pb, f"logical_{name}")(x, y, out=out) is out
            assert out.tolist() == expected
    with pytest.raises(TypeError, match="must be Tensor, not bool"):
        pb.logical_and(x, True)

"""Derivatives where a function has a kink, a tie or a pole."""

import math

import pytest

import pullback as pb

F = pb.nn.functional


def derivative(function, *values, dtype=pb.float64):
    x = pb.tensor(list(values), dtype=dtype, requires_grad=True)
    (g,) = pb.autograd.grad(function(x).sum(), x)
    return g.tolist()


@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [
        pytest.param(lambda x: x.abs(), 0.0, 0.0, id="abs"),
        pytest.param(lambda x: x.abs(), -0.0, 0.0, id="abs-negative-zero"),
        pytest.param(lambda x: x.relu(), 0.0, 0.0, id="relu"),
        pytest.param(F.relu, 0.0, 0.0, id="functional-relu"),
        pytest.param(lambda x: x.sqrt(), 0.0, math.inf, id="sqrt"),
        pytest.param(lambda x: x**0.5, 0.0, math.inf, id="half-power"),
        pytest.param(lambda x: x**0, 0.0, 0.0, id="power-0"),
        pytest.param(lambda x: x**1, 0.0, 1.0, id="power-1"),
        pytest.param(lambda x: x**2, 0.0, 0.0, id="power-2"),
        pytest.param(lambda x: x.log(), 0.0, math.inf, id="log"),
        pytest.param(lambda x: 1 / x, 0.0, -math.inf, id="reciprocal"),
    ],
)
def test_value_at_the_kink(function, point, expected):
    assert derivative(function, point) == [expected]


def test_relu_and_abs_pass_nan_on():
    (g,) = derivative(lambda x: x.abs(), math.nan)
    assert math.isnan(g) or g == 0.0
    x = pb.tensor([math.nan], requires_grad=True)
    assert math.isnan(x.relu().item())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x.amax(), [0.0, 0.5, 0.5], id="amax"),
        pytest.param(lambda x: x.amax(0), [0.0, 0.5, 0.5], id="amax-dim"),
        pytest.param(lambda x: x.amax(0, keepdim=True), [0.0, 0.5, 0.5], id="amax-keepdim"),
    ],
)
def test_ties_share_the_gradient(function, expected):
    assert derivative(function, 1.0, 3.0, 3.0) == expected


def test_ties_in_rows_share_row_by_row():
    x = pb.tensor([[2.0, 2.0], [1.0, 5.0]], requires_grad=True)
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_zero_to_tensor_power():
    base = pb.tensor([0.0, 0.0, 0.0], requires_grad=True)
    exponent = pb.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (base**exponent).sum().backward()
    assert base.grad.tolist() == [0.0, 1.0, 0.0]
    assert exponent.grad.tolist() == [0.0, 0.0, 0.0]


def test_scalar_zero_to_tensor_power():
    exponent = pb.tensor([0.0, 2.0], requires_grad=True)
    (0.0**exponent).sum().backward()
    assert exponent.grad.tolist()[1] == 0.0


def test_where_does_not_mask_the_branch_not_taken():
    x = pb.tensor([0.0, 4.0], requires_grad=True)
    pb.where(x > 0, x.sqrt(), pb.zeros(2)).sum().backward()
    assert math.isnan(x.grad.tolist()[0])
    assert x.grad.tolist()[1] == 0.25


def test_where_sends_each_element_to_one_branch():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    y = pb.tensor([3.0, 4.0], requires_grad=True)
    pb.where(pb.tensor([True, False]), x, y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0, 0.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [
        pytest.param(lambda x: x.sigmoid(), 800.0, 0.0, id="sigmoid-large"),
        pytest.param(lambda x: x.sigmoid(), -800.0, 0.0, id="sigmoid-small"),
        pytest.param(lambda x: x.tanh(), 800.0, 0.0, id="tanh-large"),
        pytest.param(lambda x: x.exp(), -800.0, 0.0, id="exp-small"),
        pytest.param(lambda x: x.exp(), 800.0, math.inf, id="exp-large"),
    ],
)
def test_saturated_functions_do_not_give_nan(function, point, expected):
    assert derivative(function, point) == [expected]


def test_softmax_of_huge_values_does_not_overflow():
    x = pb.tensor([1e4, 0.0, -1e4], requires_grad=True)
    y = x.softmax(0)
    assert y.tolist() == [1.0, 0.0, 0.0]
    y[0].backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("function", [lambda x: x.abs(), lambda x: x * x.abs()])
def test_complex_abs_at_zero(function):
    z = pb.tensor([0j], requires_grad=True)
    function(z).backward(pb.ones(1, dtype=function(z).dtype))
    assert z.grad.tolist() == [0j]


def test_mean_of_nothing_is_nan_with_empty_gradient():
    x = pb.zeros(0, requires_grad=True)
    y = x.mean()
    assert math.isnan(y.item())
    y.backward()
    assert x.grad.shape == (0,)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(pb.relu, id="relu"),
        pytest.param(lambda x: pb.relu_(x * 1), id="relu_"),
        pytest.param(F.relu6, id="relu6"),
        pytest.param(F.leaky_relu, id="leaky_relu"),
        pytest.param(F.hardtanh, id="hardtanh"),
        pytest.param(F.hardshrink, id="hardshrink"),
        pytest.param(F.softshrink, id="softshrink"),
        pytest.param(lambda x: F.threshold(x, 0.5, 2.0), id="threshold"),
        pytest.param(lambda x: F.prelu(x, pb.tensor([0.5], dtype=x.dtype)), id="prelu"),
    ],
)
def test_second_derivatives_of_piecewise_linear_functions_are_zero(function):
    x = pb.tensor([-2.0, 0.0, 1.0, math.inf], dtype=pb.float64, requires_grad=True)
    (first,) = pb.autograd.grad(function(x).sum(), x, create_graph=True)
    assert first.requires_grad
    (second,) = pb.autograd.grad(first.sum(), x)
    assert second.tolist() == [0.0] * 4


def test_the_derivative_of_relu_needs_no_graph_by_itself():
    x = pb.tensor([-1.0, 2.0], requires_grad=True)
    (g,) = pb.autograd.grad(pb.relu(x).sum(), x)
    assert not g.requires_grad
    (g,) = pb.autograd.grad((pb.relu(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0]


def test_both_derivatives_of_a_norm_at_zero_are_zero():
    x = pb.zeros(3, dtype=pb.float64, requires_grad=True)
    (first,) = pb.autograd.grad(pb.linalg.vector_norm(x), x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    assert first.tolist() == second.tolist() == [0, 0, 0]


def test_elements_beside_an_infinite_one_have_the_gradient_zero():
    beside = derivative(lambda x: x.logcumsumexp(0), 1.0, math.inf, 2.0, 3.0)
    assert beside[0] == 1
    assert beside[2:] == [0, 0]


@pytest.mark.parametrize(
    ("function", "points", "expected"),
    [
        pytest.param(F.elu, [0.0, -1.0, 1.0], [0.0, math.exp(-1), 0.0], id="elu"),
        pytest.param(F.celu, [0.0, -1.0, 1.0], [0.0, math.exp(-1), 0.0], id="celu"),
        pytest.param(lambda x: F.selu(x) / 1.7580993408473766, [0.0], [0.0], id="selu"),
        pytest.param(
            lambda x: F.huber_loss(x, x.detach() * 0, reduction="none"),
            [1.0, -1.0, 0.5],
            [0.0, 0.0, 1.0],
            id="huber-at-delta",
        ),
        pytest.param(
            lambda x: F.binary_cross_entropy(x, x.detach(), reduction="none"),
            [0.0, 1.0],
            [0.0, 0.0],
            id="binary-cross-entropy",
        ),
        pytest.param(
            pb.sinc, [0.0, 0.5], [-(math.pi**2) / 3, 16 / math.pi - 2 * math.pi], id="sinc"
        ),
    ],
)
def test_second_derivative_at_the_kink(function, points, expected):
    x = pb.tensor(points, dtype=pb.float64, requires_grad=True)
    (g,) = pb.autograd.grad(function(x).sum(), x, create_graph=True)
    (h,) = pb.autograd.grad(g.sum(), x)
    assert h.tolist() == pytest.approx(expected, abs=1e-12)


def test_mixed_derivative_of_a_power_with_the_exponent_0():
    x = pb.tensor([2.0, 0.0], dtype=pb.float64, requires_grad=True)
    e = pb.zeros_like(x, requires_grad=True)
    (g,) = pb.autograd.grad((x**e).sum(), x, create_graph=True)
    assert g.tolist() == [0.0, 0.0]
    (mixed,) = pb.autograd.grad(g.sum(), e)
    assert mixed.tolist() == [0.5, 0.0]


def test_a_gradient_that_is_nan_reaches_only_the_chosen_element():
    for name, expected in (("median", [0, 0, 1]), ("max", [0, 1, 0]), ("min", [1, 0, 0])):
        x = pb.tensor([1.0, 3.0, 2.0], requires_grad=True)
        (getattr(x, name)() * math.nan).backward()
        assert x.grad.isnan().long().tolist() == expected, name


def test_polar_of_size_0_has_a_direction():
    size, angle = (pb.tensor([v], dtype=pb.float64, requires_grad=True) for v in (0.0, 2.0))
    pb.view_as_real(pb.polar(size, angle)).select(-1, 0).sum().backward()
    assert size.grad.tolist() == [math.cos(2.0)]
    assert angle.grad.tolist() == [0.0]


def test_power_of_a_negative_base_to_a_complex_exponent():
    e = pb.tensor([1.3 + 0.2j], dtype=pb.complex128, requires_grad=True)
    (g,) = pb.autograd.grad(((-2.0) ** e).abs().sum(), e)
    (h,) = pb.autograd.grad((pb.tensor(-2.0, dtype=pb.float64) ** e).abs().sum(), e)
    assert g.tolist() == pytest.approx([0.9105194 - 4.1268017j], rel=1e-6)
    assert h.tolist() == pytest.approx(g.tolist())


def test_zero_to_a_complex_power_has_derivative_0():
    for zero in (0, pb.tensor(0.0)):
        c = pb.tensor([1 + 1j, 0.5 - 1j], requires_grad=True)
        (zero**c).abs().sum().backward()
        assert c.grad.tolist() == [0, 0]


def test_lp_pool_of_order_1_is_linear():
    x = pb.tensor([[[0.0, 0.0, 1.0, -1.0]]], requires_grad=True)
    F.lp_pool1d(x, 1, 2).sum().backward()
    assert x.grad.tolist() == [[[1.0] * 4]]


def test_cosine_similarity_below_eps_divides_by_eps():
    x = pb.tensor([0.5, 1.0], dtype=pb.float64, requires_grad=True)
    F.cosine_similarity(x, pb.tensor([1.0, 2.0], dtype=pb.float64), 0, eps=10.0).backward()
    assert x.grad.tolist() == pytest.approx([0.01, 0.02])


def test_glu_of_the_largest_numbers():
    x = pb.tensor([1.7e308, 1.7e308], dtype=pb.float64, requires_grad=True)
    (F.glu(x) * 1.05).backward()
    assert x.grad.tolist() == [1.05, 0.0]


@pytest.mark.parametrize("scale", [1e-170, 1e90, 1e140])
def test_derivatives_of_angle_do_not_square_the_number(scale):
    """That of atan2(y, x) is (-y, x) / r^2, that of its first part (2xy, y^2 - x^2) / r^4."""
    z = (pb.tensor([3 + 4j], dtype=pb.complex128) * scale).requires_grad_()
    (first,) = pb.autograd.grad(pb.angle(z).sum(), z, create_graph=True)
    assert (first * scale).tolist() == pytest.approx([-4 / 25 + 3j / 25], rel=1e-14)
    if scale > 1:
        (second,) = pb.autograd.grad(first.real.sum() * scale, z)
        assert (second * scale).tolist() == pytest.approx([24 / 625 + 7j / 625], rel=1e-14)

"""Activation functions: values and gradients at kinks, in-place forms, and what they refuse."""

import math

import pytest

import pullback as pb

F = pb.nn.functional
INF, NAN = math.inf, math.nan
WITH_INPLACE = (
    "elu",
    "celu",
    "selu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "relu6",
    "leaky_relu",
    "rrelu",
    "silu",
    "mish",
)


def derivatives(function, *numbers):
    x = pb.tensor(numbers, dtype=pb.float64, requires_grad=True)
    function(x).sum().backward()
    return [round(value, 6) for value in x.grad.tolist()]


@pytest.mark.parametrize(
    ("name", "arguments", "points", "expected"),
    [
        ("elu", (2.0,), (0.0, -0.0), [2.0, 2.0]),
        ("celu", (2.0,), (0.0, -0.0), [1.0, 1.0]),
        ("selu", (), (0.0,), [1.758099]),
        ("leaky_relu", (0.1,), (0.0, -1.0), [0.1, 0.1]),
        ("hardtanh", (), (-1.0, 0.0, 1.0), [0.0, 1.0, 0.0]),
        ("relu6", (), (0.0, 3.0, 6.0), [0.0, 1.0, 0.0]),
        ("hardsigmoid", (), (-3.0, 0.0, 3.0), [0.0, 0.166667, 0.0]),
        ("hardswish", (), (-3.0, 3.0), [0.0, 1.0]),
        ("hardshrink", (), (-0.5, 0.5, 0.6), [0.0, 0.0, 1.0]),
        ("softshrink", (), (-0.5, 0.5, 0.6), [0.0, 0.0, 1.0]),
        ("threshold", (1.0, 7.0), (1.0, 1.5), [0.0, 1.0]),
        ("softplus", (1.0, 2.0), (2.0, 3.0), [0.880797, 1.0]),
    ],
)
def test_gradient_at_kinks(name, arguments, points, expected):
    assert derivatives(lambda x: getattr(F, name)(x, *arguments), *points) == expected


@pytest.mark.parametrize(
    "name", ["elu", "celu", "hardtanh", "relu6", "hardswish", "hardshrink", "softshrink"]
)
def test_gradient_at_nan_is_one(name):
    assert derivatives(getattr(F, name), NAN) == [1.0]


@pytest.mark.parametrize(
    "name",
    [
        *WITH_INPLACE,
        "gelu",
        "softplus",
        "softsign",
        "hardshrink",
        "softshrink",
        "tanhshrink",
        "logsigmoid",
    ],
)
def test_nan_stays(name):
    assert math.isnan(getattr(F, name)(pb.tensor(NAN)).item())


@pytest.mark.parametrize("name", ["elu", "celu", "selu", "mish", "softplus", "logsigmoid"])
def test_second_derivative_is_finite_far_out(name):
    x = pb.tensor([-2000.0, 2000.0], dtype=pb.float64, requires_grad=True)
    (first,) = pb.autograd.grad(getattr(F, name)(x).sum(), x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    assert pb.isfinite(first).all()
    assert pb.isfinite(second).all()


@pytest.mark.parametrize("name", WITH_INPLACE)
def test_inplace_changes_the_input(name):
    x = pb.tensor([1.0, -2.0])
    expected = getattr(F, name)(x)
    assert x.tolist() == [1.0, -2.0]
    work = x.clone()
    assert getattr(F, name)(work, inplace=True) is work
    assert work.tolist() == expected.tolist()
    leaf = pb.tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(F, name)(leaf, inplace=True)


def test_inplace_with_a_negative_slope_has_its_derivative():
    x = pb.tensor([1.0, -2.0], requires_grad=True)
    F.leaky_relu(x.clone(), -0.5, True).sum().backward()
    assert x.grad.tolist() == [1.0, -0.5]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.gelu(x, approximate="foo"), RuntimeError, "none or tanh"),
        (lambda x: F.gelu(x, approximate=None), TypeError, "must be str"),
        (lambda x: F.gelu(x, "tanh"), TypeError, "positional"),
        (lambda x: F.celu(x, 0), RuntimeError, "alpha cannot be 0"),
        (lambda x: F.elu(x, "a"), TypeError, "'alpha' .*must be Number"),
        (lambda x: F.elu(x, 1j), RuntimeError, "without overflow"),
        (lambda x: F.softshrink(x, -1), RuntimeError, "lambda must be in range"),
        (lambda x: F.hardtanh(x, 1, -1), ValueError, "min_val cannot be greater"),
        (lambda x: F.hardtanh(x > 0), RuntimeError, "Bool inputs"),
        (lambda x: F.hardtanh(x.to(pb.uint8)), RuntimeError, "unsigned type with negative"),
        (lambda x: F.hardtanh(x.to(pb.complex64)), NotImplementedError, "complex"),
        (lambda x: F.rrelu(x, 0.3, 0.1), RuntimeError, "Lower bound"),
        (lambda x: F.threshold(x, "a", 1), TypeError, "'threshold' .*must be Number"),
        (lambda x: F.softplus(x.long()), NotImplementedError, "softplus"),
        (lambda x: F.softsign(x > 0), NotImplementedError, "for 'Bool'"),
        (lambda x: F.glu(x[0]), RuntimeError, "scalars"),
        (lambda x: F.glu(pb.ones(3)), RuntimeError, "must be even, but dimension 0 is size 3"),
        (lambda x: F.glu(x, 1), IndexError, "Dimension out of range"),
        (lambda x: F.prelu(x, 0.5), TypeError, "weight"),
        (
            lambda x: F.prelu(x, pb.ones(2)),
            RuntimeError,
            "parameter numbers = 2 and channel size = 1",
        ),
        (lambda x: F.prelu(x, pb.ones(1, 1)), RuntimeError, "scalar or 1D tensor"),
        (lambda x: F.prelu(x, pb.ones(1).double()), RuntimeError, "Type promoting not supported"),
        (lambda x: F.prelu(x[0], pb.ones(2)), RuntimeError, "zero-dim"),
        (lambda x: F.gumbel_softmax(x.long()), NotImplementedError, "gumbel_softmax"),
        (lambda x: F.gumbel_softmax(x, dim=3), IndexError, "Dimension out of range"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(pb.ones(2))


def test_where_the_names_are():
    for name in ("celu", "selu", "rrelu", "threshold", "prelu", "hardshrink"):
        assert getattr(pb, name) is getattr(F, name)
    for name in ("celu_", "selu_", "rrelu_", "threshold_", "elu_", "hardtanh_", "leaky_relu_"):
        assert callable(getattr(F, name))
    for name in ("elu", "gelu", "silu", "mish", "hardtanh", "softplus"):
        assert not hasattr(pb, name)
        assert not hasattr(pb.Tensor, name)
    assert pb.ones(1).hardshrink(2).item() == 0
    assert pb.tensor([-1.0]).prelu(pb.tensor([0.5])).item() == -0.5


def test_threshold_and_hardtanh_of_integers():
    i = pb.tensor([-5, 1, 5])
    assert F.threshold(i, 1.5, 7.5).tolist() == [7, 7, 5]
    assert F.hardtanh(i, -2.5, 2.5).tolist() == [-2, 1, 2]
    assert F.relu6(pb.tensor([1, 8], dtype=pb.uint8)).tolist() == [1, 6]


def test_prelu_has_one_weight_for_each_channel():
    x = -pb.ones(2, 3, 2)
    weight = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = F.prelu(x, weight)
    assert out[0].tolist() == [[-1, -1], [-2, -2], [-3, -3]]
    out.sum().backward()
    assert weight.grad.tolist() == [-4.0, -4.0, -4.0]


def test_rrelu_draws_its_slopes():
    x = -pb.ones(1000)
    drawn = -F.rrelu(x, 0.2, 0.6, training=True)
    assert 0.2 <= drawn.min().item() <= 0.21
    assert 0.59 <= drawn.max().item() <= 0.6
    assert F.rrelu(x, 0.2, 0.6)[0].item() == pytest.approx(-0.4)
    leaf = x.clone().requires_grad_()
    out = F.rrelu(leaf, 0.2, 0.6, training=True)
    out.sum().backward()
    assert leaf.grad.tolist() == (-out).tolist()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_without_dim_warns_and_takes_one(name):
    function = getattr(F, name)
    for rank, dim in ((0, 0), (1, 0), (2, 1), (3, 0), (4, 1)):
        x = pb.arange(1.0, 2.0**rank + 1).reshape((2,) * rank)
        with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name} ") as caught:
            out = function(x)
        assert out.tolist() == function(x, dim).tolist()
        assert caught[0].filename == __file__
    assert function(x, 0, 5).tolist() == function(x, 0).tolist()
    assert function(pb.tensor([1, 2]), 0, dtype=pb.float64).dtype == pb.float64


def test_softmax_outside_nn_functional_needs_a_dim():
    x = pb.ones(2)
    for call in (lambda: pb.softmax(x), lambda: x.softmax(), lambda: x.log_softmax()):
        with pytest.raises(TypeError, match=r'softmax\(\) missing 1 required .*"dim"'):
            call()
    with pytest.raises(TypeError, match=r"softmax\(\): argument 'dim' \(position 2\) must be int"):
        pb.softmax(x, None)
    assert pb.softmax(x, 0, pb.float64).dtype == pb.float64


def test_gumbel_softmax_chooses_by_probability():
    pb.manual_seed(0)
    logits = pb.log(pb.tensor([0.5, 0.3, 0.2])).expand(4000, 3)
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(hard.sum(1).tolist()) == {1.0}
    assert hard.mean(0).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.04)
    soft = F.gumbel_softmax(logits, tau=0.5)
    assert soft.sum(1).tolist() == pytest.approx([1.0] * 4000, abs=1e-5)
    with pytest.warns(UserWarning, match="eps"):
        F.gumbel_softmax(logits, eps=1.0)


def test_hard_gumbel_softmax_has_the_soft_gradient():
    logits, scale = pb.randn(4, 3, dtype=pb.float64), pb.randn(4, 3, dtype=pb.float64)
    found = []
    for hard in (False, True):
        pb.manual_seed(3)
        leaf = logits.clone().requires_grad_()
        (F.gumbel_softmax(leaf, hard=hard) * scale).sum().backward()
        found.append(leaf.grad.tolist())
    assert found[0] == found[1]


def test_half_precision_is_rounded_once():
    x = pb.randn(200)
    for dtype in (pb.float16, pb.bfloat16):
        narrow = x.to(dtype)
        for name in ("elu", "gelu", "mish", "silu", "softplus", "hardswish", "logsigmoid"):
            function = getattr(F, name)
            assert (function(narrow) == function(narrow.float()).to(dtype)).all(), name


def test_gelu_of_negative_numbers_keeps_its_digits():
    x = pb.tensor([-3.0, -5.0, -8.0])
    exact = [v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()]
    assert F.gelu(x).tolist() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize(
    ("dtype", "far"), [(pb.float16, 300), (pb.float32, 1e20), (pb.float64, 50)]
)
def test_second_derivative_of_gelu_far_out_is_zero(approximate, dtype, far):
    x = pb.tensor([far, -far, 30.0, -30.0], dtype=dtype, requires_grad=True)
    (first,) = pb.autograd.grad(F.gelu(x, approximate=approximate).sum(), x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    assert first.tolist() == pytest.approx([1, 0, 1, 0], abs=1e-100)
    assert second.abs().max().item() < 1e-100


def test_relu_of_nn_functional_may_overwrite():
    for arguments in ((True,), ()):
        x = pb.tensor([-1.0, 2.0])
        options = {} if arguments else {"inplace": True}
        assert F.relu(x, *arguments, **options) is x
        assert x.tolist() == [0.0, 2.0]
    assert F.relu(x, inplace=False) is not x
    with pytest.raises(TypeError, match="inplace"):
        pb.relu(x, inplace=True)

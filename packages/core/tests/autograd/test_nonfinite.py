"""NaN and infinity: what anomaly detection checks, and derivatives of elements not selected."""

import math
import threading
import warnings
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.autograd import set_detect_anomaly


def leaf(*values):
    return pb.tensor(values, dtype=pb.float64, requires_grad=True)


# ---- results of ops ------------------------------------------------------------------------------

MAKERS = [
    (lambda x: x / x, "div"),
    (lambda x: x.log() * x, "mul"),
    (lambda x: (x - 1).sqrt(), "sqrt"),
    (lambda x: x.log().softmax(0) * x.log(), "mul"),
    (lambda x: pb.stack([x, x / x]).sum(), "div"),
    (lambda x: x.clone().div_(x), "div_"),
    (lambda x: pb.vmap(lambda y: y / y)(x), "div"),
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("function", "name"), MAKERS)
def test_first_op_with_nan_is_named(function, name, requires_grad):
    x = pb.tensor([0.0, 2.0], requires_grad=requires_grad)
    with set_detect_anomaly(True, check_forward=True):
        with pytest.raises(RuntimeError, match=rf"^{name}\(\) made nan in 1 of 2 elements"):
            function(x)
    function(x)


def test_operands_are_described():
    x = pb.tensor([[0.0, 2.0], [float("inf"), -4.0]])
    with set_detect_anomaly(True, check_forward=True):
        with pytest.raises(RuntimeError) as caught:
            x * 0.0
    assert str(caught.value).splitlines() == [
        "mul() made nan in 1 of 4 elements of its result, the first at index (1, 0).",
        "  operand 0: float32 [2, 2], from -4 to 2, 0 at 1 of 4, infinite at 1 of 4",
        "  operand 1: 0.0",
    ]


def test_nan_that_is_there_before_is_no_anomaly():
    x = pb.tensor([1.0, float("nan")])
    with set_detect_anomaly(True, check_forward=True):
        (x + 1).exp().sum()
        pb.ones(2).masked_fill(pb.tensor([True, False]), float("nan"))
        pb.full((2,), float("nan"))


def test_infinity_is_checked_where_it_is_asked_for():
    x = pb.tensor([0.0, 2.0])
    with set_detect_anomaly(True, check_forward=True):
        x.log()
    with set_detect_anomaly(True, check_forward=True, check_inf=True):
        with pytest.raises(RuntimeError, match=r"^log\(\) made inf in 1 of 2"):
            x.log()
        (x + float("inf")).exp()


def test_results_are_not_checked_outside():
    with set_detect_anomaly(True):
        pb.zeros(2) / 0
    with set_detect_anomaly(True, check_forward=True):
        with set_detect_anomaly(False):
            pb.zeros(2) / 0
        with set_detect_anomaly(True), pytest.raises(RuntimeError, match=r"^div\(\) made nan"):
            set_detect_anomaly(True, check_forward=True).__enter__()
            pb.zeros(2) / 0


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(3, -1),
    "part of one": lambda x: x[1:, 1:],
}


@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from("float16 bfloat16 float32 float64 complex64 complex128".split()),
    layout=st.sampled_from(sorted(LAYOUTS)),
    shape=st.sampled_from([(2, 3), (7, 5), (70, 60)]),
    value=st.sampled_from([float("nan"), float("inf"), -float("inf"), 6e4, 0.0]),
    imaginary=st.booleans(),
    data=st.data(),
)
def test_an_element_anywhere_is_found(dtype, layout, shape, value, imaginary, data):
    x = pb.ones(shape, dtype=getattr(pb, dtype))
    at = data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))
    if imaginary and x.is_complex():
        pb.view_as_real(x)[(*at, 1)] = value
    else:
        x[at] = value
    x = LAYOUTS[layout](x)
    finite = np.isfinite(x.to(pb.complex128).numpy()).all()
    with set_detect_anomaly(True, check_inf=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with nullcontext() if finite else pytest.raises(RuntimeError, match="'GivesItselfBackward"):
            GivesItself.apply(x.requires_grad_()).backward()


class GivesItself(pb.autograd.Function):
    """Its gradient is the operand, whatever that holds, in its layout."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return pb.zeros(())

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0].detach()


def test_results_of_all_threads_are_checked():
    found = []

    def run():
        try:
            pb.zeros(2) / 0
        except RuntimeError as error:
            found.append(str(error))

    with set_detect_anomaly(True, check_forward=True):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(found) == 1


def test_nan_of_a_compiled_function_is_found():
    function = pb.compile(lambda x: (x.log() * 0).sum())
    x = pb.tensor([0.0, 2.0])
    function(x), function(x)
    with set_detect_anomaly(True, check_forward=True):
        with pytest.raises(RuntimeError, match=r"^mul\(\) made nan"):
            function(x)


# ---- gradients -----------------------------------------------------------------------------------


def test_infinite_gradient_is_found():
    with set_detect_anomaly(True, check_inf=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned inf values in its 0th"):
            leaf(0.0, 2.0).sqrt().sum().backward()
    leaf(0.0, 2.0).sqrt().sum().backward()


def test_zero_times_infinity_is_explained():
    x = leaf(0.0, 2.0)
    with set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match=r"0 \* inf is nan. Pass nan_safe=True to `where`"):
            pb.where(x > 0, x.log(), 0.0).sum().backward()
        with pytest.raises(RuntimeError) as caught:
            (x.log() * float("nan")).sum().backward()
    assert "nan_safe" not in str(caught.value)


def test_a_sample_finds_it_in_the_end():
    with set_detect_anomaly(True, check_forward=True, sample=0.05):
        with pytest.raises(RuntimeError, match=r"made nan"):
            for _ in range(2000):
                (pb.zeros(2) / 0).exp()
    with set_detect_anomaly(True, sample=0.05), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="returned nan values"):
            for _ in range(2000):
                (leaf(1.0) * float("nan")).backward()


def test_a_sample_records_few_tracebacks():
    x = leaf(1.0)
    with set_detect_anomaly(True, sample=0.01):
        noted = sum("traceback_" in (x * 2).grad_fn.metadata for _ in range(2000))
    assert 2 <= noted <= 80


@pytest.mark.parametrize(
    "mode", [pb.autograd.detect_anomaly, lambda **k: set_detect_anomaly(True, **k)]
)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"sample": 0}, ValueError, "sample must be above 0 and at most 1, got 0"),
        ({"sample": 1.5}, ValueError, "sample must be above 0 and at most 1, got 1.5"),
        ({"sample": float("nan")}, ValueError, "sample must be above 0"),
        ({"sample": "all"}, TypeError, "argument 'sample' must be float, not str"),
        ({"check_inf": 1}, TypeError, "check_inf"),
        ({"check_forward": None}, TypeError, "check_forward"),
    ],
)
def test_wrong_arguments(mode, arguments, error, words):
    before = pb._c.base.state.anomaly_settings()
    with pytest.raises(error, match=words):
        mode(**arguments)
    assert pb._c.base.state.anomaly_settings() == before


# ---- where(nan_safe=True) ------------------------------------------------------------------------

PARTS = {  # name: (function, its derivatives by hand), all singular at 0
    "log": (lambda x: x.log(), [lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3]),
    "sqrt": (
        lambda x: x.sqrt(),
        [lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5, lambda x: 0.375 * x**-2.5],
    ),
    "reciprocal": (
        lambda x: 1 / x,
        [lambda x: -(x**-2.0), lambda x: 2 * x**-3.0, lambda x: -6 * x**-4.0],
    ),
    "x log x": (
        lambda x: x * (3 * x).log(),
        [lambda x: np.log(3 * x) + 1, lambda x: 1 / x, lambda x: -1 / x**2],
    ),
}


@pytest.mark.parametrize("name", PARTS)
@given(st.lists(st.sampled_from([0.0, -1.0, 0.5, 2.0, 3.0]), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_elements_that_are_not_selected_have_gradients_of_zero(name, values):
    function, derivatives = PARTS[name]
    x = leaf(*values)
    y = pb.where(x > 0, function(x), 0.0, nan_safe=True)
    for derivative in derivatives:
        (y,) = pb.autograd.grad(y.sum(), x, create_graph=True)
        expected = [derivative(v) if v > 0 else 0 for v in values]
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12)


def test_other_branch_and_method():
    x = leaf(0.0, 2.0)
    pb.where(x <= 0, 1.0, x.log(), nan_safe=True).sum().backward()
    assert x.grad.tolist() == [0, 0.5]
    x.grad = None
    x.log().where(x > 0, 0.0, nan_safe=True).sum().backward()
    assert x.grad.tolist() == [0, 0.5]


def test_nan_of_selected_elements_stays():
    x = leaf(0.0, -1.0, 2.0)
    pb.where(x < 1, x.sqrt(), 0.0, nan_safe=True).sum().backward()
    assert x.grad[0].isinf() and x.grad[1].isnan() and x.grad[2] == 0


def test_transforms_are_nan_safe():
    def function(x):
        return pb.where(x > 0, x.log(), 0.0, nan_safe=True)

    x = pb.tensor([0.0, 2.0])
    assert pb.vmap(pb.func.grad(function))(x).tolist() == [0, 0.5]
    assert pb.func.grad(lambda x: function(x).sum())(x).tolist() == [0, 0.5]
    assert pb.func.hessian(lambda x: function(x).sum())(x).tolist() == [[0, 0], [0, -0.25]]
    assert pb.func.jvp(function, (x,), (pb.ones(2),))[1].tolist() == [0, 0.5]

    def slope(x):
        return pb.func.jvp(function, (x,), (pb.ones(2),))[1]

    assert pb.func.jvp(slope, (x,), (pb.ones(2),))[1].tolist() == [0, -0.25]
    assert pb.func.grad(lambda x: slope(x).sum())(x).tolist() == [0, -0.25]
    assert pb.func.jacrev(pb.func.jacfwd(function))(x)[1, 1].tolist() == [0, -0.25]
    compiled = pb.compile(pb.func.grad(lambda x: function(x).sum()))
    for _ in range(3):
        assert compiled(x).tolist() == [0, 0.5]


VIEWS = {
    "unsqueeze": lambda x: x[:, None],
    "view and squeeze": lambda x: x.view(4, 1).squeeze(1),
    "transposed": lambda x: x.view(1, 4).t(),
    "permuted": lambda x: x.view(2, 2, 1).permute(2, 1, 0),
    "expanded": lambda x: x.expand(3, 4),
    "flipped twice": lambda x: x.view(2, 2).mT.mT,
    "real part": lambda x: pb.complex(x, x * 0).real,
    "part": lambda x: x[1:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_between_are_passed_through(name):
    x = leaf(0.0, 2.0, 0.0, 4.0)
    view = VIEWS[name]
    y = view(2 * x.log())
    pb.where(view(x) > 0, y, 0.0, nan_safe=True).sum().backward()
    positions = view(pb.arange(4.0)).flatten().long()
    times = positions.bincount(minlength=4)
    assert x.grad.tolist() == (times * pb.tensor([0, 1, 0, 0.5])).tolist()


def test_other_results_keep_their_gradients():
    x = leaf(0.0, 2.0)
    y = x.log()
    plain = pb.where(x > 0, y, 0.0).sum()
    safe = pb.where(x > 0, y, 0.0, nan_safe=True).sum()
    for root, first in ((plain, float("nan")), (safe, 0), (plain, float("nan")), (safe, 0)):
        (grad,) = pb.autograd.grad(root, x, retain_graph=True)
        np.testing.assert_array_equal(grad, [first, 0.5])


def test_failed_pass_ends_the_protection():
    x = leaf(0.0, 2.0)
    y = x.log()
    safe = pb.where(x > 0, y, 0.0, nan_safe=True)

    def fail(grad):
        raise ValueError("stop")

    y.register_hook(fail)
    with pytest.raises(ValueError, match="stop"):
        safe.sum().backward(retain_graph=True)
    (grad,) = pb.autograd.grad(pb.where(x > 0, y.detach() + x.log(), 0.0).sum(), x)
    assert grad[0].isnan()
    assert safe.grad_fn.metadata["nan_safe"].running == set()


def test_each_of_many_in_a_row_protects_its_own_ops():
    x = leaf(0.0, 2.0)
    y = x
    for _ in range(300):
        y = pb.where(x > 0, (y * 1.0).sqrt().square(), 0.0, nan_safe=True)
    y.sum().backward()
    np.testing.assert_allclose(x.grad, [0, 1])
    node = y.grad_fn.next_functions[0][0]
    assert len(node.metadata["behind_nan_safe"]) == 1


def test_protection_keeps_no_graph_alive():
    x = leaf(0.0, 2.0)
    alive = weakref.ref(pb.where(x > 0, x.log(), 0.0, nan_safe=True).grad_fn)
    assert alive() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: pb.where(x > 0, nan_safe=True), r"where\(\) missing 2 required"),
        (lambda x: pb.where(x > 0, x, 0, nan_safe=1), r"where\(\): argument 'nan_safe' must be b"),
        (lambda x: pb.where(x > 0, x, "a", nan_safe=True), r"where\(\): argument 'other' \(posi"),
        (lambda x: x.where(x > 0, 0, nan_safe="a"), r"where\(\): argument 'nan_safe' must be bool"),
        (lambda x: pb.round(x, decimals="a"), r"round\(\): argument 'decimals' must be int, not s"),
        (lambda x: x.round_(decimals="a"), r"round_\(\): argument 'decimals' must be int, not str"),
    ],
)
def test_errors_name_the_public_function(call, message):
    with pytest.raises(TypeError, match="^" + message):
        call(pb.ones(2))


# ---- operands that are results -------------------------------------------------------------------

UNCHANGED = {
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(pb.float32),
    "type_as": lambda x: x.type_as(x),
    "dropout of a model that is evaluated": lambda x: pb.nn.functional.dropout(x, training=False),
    "real": lambda x: x.real,
    "atleast_1d": pb.atleast_1d,
    "resolve_conj": lambda x: x.resolve_conj(),
    "squeeze_": lambda x: x.squeeze_(),
    "to_sparse": lambda x: x.to_sparse().to_dense(),
    "einsum": lambda x: pb.einsum("i->i", x),
    "mul_": lambda x: x.mul_(2),
    "out": lambda x: pb.mul(x, 2, out=x),
}
MADE = {
    "log_": lambda x: x.log_(),
    "out": lambda x: pb.log(x, out=x),
    "out of two": lambda x: pb.div(x, x * 0, out=pb.ones(3)),
    "view": lambda x: x[:2].log_(),
    "div_": lambda x: x.div_(pb.zeros(3)),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_nan_that_an_operand_has_is_not_blamed_on_the_op_that_returns_it(name):
    x = pb.tensor([1.0, math.nan, 0.0])
    with set_detect_anomaly(True, check_forward=True):
        UNCHANGED[name](x)


@pytest.mark.parametrize("name", MADE)
def test_operands_are_shown_as_they_were_before_a_write(name):
    x = pb.tensor([-1.0, -1.0, 0.0])
    checks = set_detect_anomaly(True, check_forward=True, check_inf=True)
    with pytest.raises(RuntimeError) as found, checks:
        MADE[name](x)
    assert "made nan" in str(found.value) or "made inf" in str(found.value)
    assert "from -1 to" in str(found.value) and "NaN" not in str(found.value)

"""``compare_backends`` names the op and the node that are wrong, on a device made to be wrong."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.backend.array_library import ArrayLibrary
from pullback.backend.masks import FLOATING
from pullback.testing import compare_backends
from pullback.testing.comparison.measure import Tolerances, Value, difference

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
DEVICES = ("ref", "wrong")
GENERATED = settings(max_examples=40, deadline=None, derandomize=True)


def larger(function, factor):
    """Return a function of NumPy's whose results are too large."""
    return lambda x: function(x) * np.asarray(factor, x.dtype)


@pytest.fixture(scope="module", autouse=True)
def wrong_device():
    """Load a device on which exp is off by a thousandth, and cos by half."""
    from library_device import load

    library = ArrayLibrary("numpy")

    def register(table):
        library.register(table)
        table.add("exp", FLOATING, library.kernel(larger(np.exp, 1.001)))
        table.add("cos", FLOATING, library.kernel(larger(np.cos, 1.5)))

    load("wrong", library, register)


@pytest.fixture
def x():
    return pb.tensor([[0.5, -1.0, 2.0], [0.25, 1.5, -0.5]], requires_grad=True)


def assert_shows(result, words):
    """Check that the program runs up to its last statement, and fails there."""
    program = result.reproducer()
    assert words in program
    with pytest.raises(AssertionError, match="not close"):
        exec(program, {})


# ---- which op, which node ------------------------------------------------------------------------


def test_the_wrong_op_is_named(x):
    def program(x, more):
        doubled = x * 2
        wrong = doubled.exp()
        return wrong.log() + more["a"][0]

    result = compare_backends(program, x, {"a": (pb.ones(3),)}, devices=DEVICES)
    found = result.forward
    assert not result.equal
    assert (found.kind, found.name, found.number, found.with_equal_inputs) == ("op", "exp", 1, True)
    assert found.arguments == "exp(self=float32[2, 3])"
    assert found.line.endswith(": wrong = doubled.exp()")
    assert found.index == (0, 2) and found.actual == pytest.approx(1.001 * found.expected)
    assert found.max_relative_error == pytest.approx(0.001, rel=1e-3)
    assert found.ulps > 1000
    assert str(result).startswith("different on wrong: exp differs with equal inputs, at ")
    assert json.loads(json.dumps(result.to_dict()))["forward"]["name"] == "exp"
    assert_shows(result, "pb.exp(t0)")


def test_the_wrong_node_is_named_though_forward_agrees(x):
    def program(x):
        return (x.t() * 3).sin().sum()

    result = compare_backends(program, x, devices=DEVICES)
    found = result.backward
    assert result.forward is None
    assert (found.kind, found.name, found.with_equal_inputs) == ("node", "SinBackward0", True)
    assert found.line.endswith(": return (x.t() * 3).sin().sum()")
    assert found.max_relative_error == pytest.approx(0.5, rel=1e-3)
    assert "sin(self=float32[3, 2] with strides (1, 3))" in str(result)
    assert_shows(result, ".as_strided((3, 2), (1, 3))")


def test_an_error_that_is_carried_in_is_told_from_its_cause(x):
    def square(x):
        return x.exp() * x.exp()

    result = compare_backends(square, x, devices=DEVICES, rtol=0.0015, atol=0)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("mul", False)
    assert "carried in" in result.verdict()
    with pytest.raises(RuntimeError, match="differs with equal inputs, but different on wrong"):
        result.reproducer()

    result = compare_backends(lambda x: square(x).cos(), x, devices=DEVICES, rtol=0.0015, atol=0)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("cos", True)


STEPS = {"sin": pb.sin, "neg": pb.neg, "exp": pb.exp, "mul_": lambda x: x.clone().mul_(0.5)}


@GENERATED
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=6))
def test_the_first_wrong_op_of_any_program(names):
    def program(x):
        for name in names:
            x = STEPS[name](x)
        return x

    x = pb.tensor([0.5, -0.25])
    ops = [op for name in names for op in (["clone", name] if name == "mul_" else [name])]
    result = compare_backends(program, x, devices=DEVICES)
    assert result.equal == ("exp" not in names)
    if not result.equal:
        assert (result.forward.name, result.forward.number) == ("exp", ops.index("exp"))


def test_views_and_writes_get_equal_inputs_too(x):
    def program(x):
        y = x.clone()
        y[0].mul_(2)
        wrong = y.exp().clone()
        wrong[:, 1:].add_(1)
        pair = pb.stack([y, wrong.abs_()]).sort(-1)
        return pair.values.cos(), pair.indices

    result = compare_backends(program, x, devices=DEVICES)
    assert result.forward.name == "exp"
    right = compare_backends(program, x, devices=("ref", "ref"))
    assert right.equal and right.nodes > 5


# ---- modules, dtypes, compiled functions ---------------------------------------------------------


def network():
    layers = pb.nn.Linear(3, 4), pb.nn.Dropout(0.5), pb.nn.Tanh(), pb.nn.BatchNorm1d(4)
    return pb.nn.Sequential(*layers)


def test_modules_are_copied_to_each_device(x):
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for function, inputs in (
        (module, (x,)),
        (lambda m, x: m(x), (module, x)),
        (module.forward, (x,)),
    ):
        assert compare_backends(function, *inputs, devices=DEVICES).equal
    after = module.state_dict()
    assert all(bool((before[name] == after[name]).all()) for name in before)


@pytest.mark.parametrize("dtypes", [(pb.float32, pb.float64), (pb.float64, pb.float32)])
def test_two_dtypes_get_the_same_numbers(x, dtypes):
    assert compare_backends(network(), x, devices="ref", dtypes=dtypes).equal
    result = compare_backends(network(), x, devices="ref", dtypes=dtypes, rtol=0, atol=1e-12)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("addmm", True)
    assert result.forward.ulps < 4
    assert_shows(result, "dtype=dtype")


def test_a_compiled_function_that_replays_other_numbers(x):
    numbers = iter(range(100))

    def program(x):
        return (x.exp() * next(numbers)).sum()

    result = compare_backends(program, x, devices="ref", compiled=True)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("mul", False)
    assert result.sides == ("ref", "ref compiled")
    assert compare_backends(network(), x, devices="ref", compiled=True).equal


def test_a_function_that_runs_backward_itself(x):
    def step(x):
        loss = x.sin().sum()
        loss.backward()
        return loss.detach()

    result = compare_backends(step, x, devices=DEVICES)
    assert result.forward is not None or result.backward.name == "inputs[0]"
    assert x.grad is None
    assert compare_backends(step, x, devices=("ref", "ref")).equal


# ---- what stays as it is -------------------------------------------------------------------------


def test_nothing_of_the_callers_changes(x):
    x.grad = pb.full((2, 3), 7.0)
    generator = pb.Generator().manual_seed(3)

    def program(x, generator):
        pb.set_grad_enabled(False)
        noise = pb.rand(2, 3, generator=generator) + random.random() + np.random.random()
        with pb.enable_grad():
            return x.mul_(1) if not x.is_leaf else x * noise * pb.rand(3)

    def state():
        modes = pb.is_grad_enabled(), pb.get_default_dtype(), pb.get_default_device()
        return (
            *(pb.get_rng_state().tolist(), generator.get_state().tolist(), random.getstate()),
            *(np.random.get_state()[1].tolist(), modes, x.tolist(), x.grad.tolist(), x._version),
        )

    before = state()
    result = compare_backends(program, x, generator, devices=DEVICES)
    assert result.equal and result.nodes
    assert state() == before


def test_random_numbers_that_no_op_made_are_an_argument():
    def program(x):
        return x * pb.full((2,), float(pb.get_default_device().type == "wrong"))

    found = compare_backends(program, pb.ones(2), devices=DEVICES).forward
    assert (found.kind, found.name, found.with_equal_inputs) == ("argument", "mul", None)


def test_memory_that_nobody_wrote_is_equal():
    def program(x):
        y = pb.empty(3)
        y[:2] = x
        return pb.empty_like(y), y

    assert compare_backends(program, pb.ones(2), devices=DEVICES).equal


def test_numbers_that_are_others_are_no_error_of_the_op(x):
    def program(x):
        return x + pb.finfo(x.dtype).eps

    dtypes = pb.float32, pb.float64
    found = compare_backends(program, x, devices="ref", dtypes=dtypes, rtol=0, atol=1e-9).forward
    assert (found.name, found.with_equal_inputs) == ("add", None)
    assert found.detail.startswith("ref in float64 calls add(self=float64[2, 3], other=2.22")


def test_a_derivative_that_is_not_implemented_leaves_backward_out(x):
    result = compare_backends(lambda x: x.unique(), x, devices=DEVICES)
    assert result.equal and result.nodes == 0
    assert "note: backward is not compared: derivative for unique is not" in str(result)


def test_an_exception_behind_a_difference_is_a_note(x):
    def program(x, last):
        if x.exp().max().item() > last:
            raise ValueError("too large")
        return x

    result = compare_backends(program, x, 7.39, devices=DEVICES)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("exp", True)
    assert result.notes == ("later wrong raised ValueError: too large",)
    with pytest.raises(ValueError, match="too large"):  # of the reference
        compare_backends(program, x, 0.0, devices=DEVICES)


def test_functions_that_return_another_number_of_tensors():
    def program(x):
        return [x] * (1 + (x.device.type == "wrong"))

    found = compare_backends(program, pb.ones(2), devices=DEVICES).forward
    assert found.detail == "wrong returns 2 tensors instead of 1"


def test_functions_that_run_other_ops():
    def program(x):
        return x.neg() if x.device.type == "ref" else x.abs()

    found = compare_backends(program, pb.ones(2), devices=DEVICES).forward
    assert (found.kind, found.name) == ("output", "0")
    assert "'abs'" in found.detail


# ---- programs ------------------------------------------------------------------------------------


def test_large_inputs_are_drawn_or_saved():
    x = pb.rand(40, 5)
    assert_shows(compare_backends(pb.exp, x, devices=DEVICES), "np.random.default_rng([0, 1])")
    which = pb.arange(200) % 40

    def program(x, which):
        return pb.exp(x)[which]

    assert_shows(compare_backends(program, x, which, devices=DEVICES), "pb.exp(t0)")
    large = pb.full((100,), 80.0, requires_grad=True)  # normal numbers do not show this one
    result = compare_backends(pb.exp, large, devices=DEVICES, rtol=0, atol=1e20)
    assert_shows(result, "pb.load(io.BytesIO(base64.b85decode(")


def test_numbers_that_python_has_no_literal_for():
    x = pb.tensor([float("nan"), float("inf"), 1.0])
    assert_shows(compare_backends(pb.exp, x, devices=DEVICES), "[nan, inf, 1.0]")
    x = pb.tensor([complex(1, float("nan")), 1j, complex(float("-inf"), 2)])

    def wrong_part(x):
        return x, x.abs()[1].exp() * x

    dtypes = pb.float32, pb.float64
    found = compare_backends(wrong_part, x, devices="ref", dtypes=dtypes, rtol=0, atol=1e-12)
    assert_shows(found, "pb.exp(t0)")
    found = compare_backends(pb.sin, x, devices="ref", dtypes=dtypes, rtol=0, atol=1e-12)
    assert_shows(found, "[complex('(1+nanj)'), 1j, complex('(-inf+2j)')]")


# ---- measures and errors -------------------------------------------------------------------------


@GENERATED
@given(st.floats(1, 1e6), st.integers(1, 8), st.sampled_from(["float32", "float64", "bfloat16"]))
def test_ulps_count_numbers_between(start, steps, name):
    dtype = getattr(pb, name)
    first = pb.tensor(start, dtype=dtype)
    last = first
    for _ in range(steps):
        last = last.nextafter(pb.tensor(float("inf"), dtype=dtype))
    found = difference(
        *(Value(t.numpy(force=True), dtype) for t in (last, first)), Tolerances(0, 0)
    )
    exponents = [math.frexp(t.item())[1] for t in (first, last)]
    assert found.ulps == pytest.approx(steps) or exponents[0] < exponents[1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(fn=3), TypeError, "'fn' must be callable"),
        (dict(devices="ref"), ValueError, "'devices' must be two devices, got 'ref'"),
        (dict(dtypes=(pb.float32,)), ValueError, "'dtypes' must be two floating-point dtypes"),
        (dict(dtypes=(pb.int8, pb.float32)), ValueError, "two floating-point dtypes"),
        (dict(dtypes=(pb.half, pb.float32), compiled=True), ValueError, "got both"),
        (dict(devices=("ref", "nonsense")), RuntimeError, "nonsense"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    given = {"fn": pb.exp, "devices": ("ref", "ref"), **arguments}
    with pytest.raises(error, match=message):
        compare_backends(given.pop("fn"), pb.ones(2), **given)

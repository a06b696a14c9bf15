"""What ``compare_backends`` does not compare, refuses, and leaves as it is."""

import io

import numpy as np
import pytest
from planted_device import (
    DEVICES,
    ByNumPy,
    Exp,
    Opaque,
    is_wrong,
    load_planted,
    plain,
    planted,
    x,
)

import pullback as pb
from pullback.autograd import function as custom_functions
from pullback.testing import compare_backends
from pullback.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")


@pytest.fixture(autouse=True)
def device():
    load_planted()
    planted.clear()
    yield
    planted.clear()


# ---- what is not compared ------------------------------------------------------------------------


def test_notes_name_what_is_not_compared():
    result = compare_backends(lambda a, b: (a, Opaque()), plain(), Opaque(), devices=DEVICES)
    assert result.equal
    assert result.notes == (
        "inputs[1] (a Opaque) was neither copied nor compared: both sides got the same",
        "output 1 (a Opaque) was not compared",
    )
    result = compare_backends(lambda *given: None, {1}, None, "a", pb.float32, devices=DEVICES)
    assert result.notes == ()


@pytest.mark.parametrize(
    ("program", "part"),
    [
        (lambda a: a + a if is_wrong(a) else a * 2, "as number 0 ref runs mul and planted add;"),
        (lambda a: a if is_wrong(a) else a.clone(), "ref runs clone and planted nothing;"),
        (lambda a: a.clone() if is_wrong(a) else a, "ref runs nothing and planted clone;"),
    ],
)
def test_other_ops_with_equal_results_are_a_note(program, part):
    planted["program"] = "other ops"
    result = compare_backends(program, plain(), devices=DEVICES)
    assert result.equal and part in result.notes[0]


def test_an_op_of_one_side_that_copies_to_a_device_is_no_other_op():
    def program(a):
        on_ref = Exp.apply(a.neg().to("ref").sin())
        return Exp.apply(on_ref.to(a.device)).cpu()

    for devices in (DEVICES, DEVICES[::-1]):
        result = compare_backends(program, plain(), devices=devices)
        assert (result.equal, result.notes) == (True, ())


def test_what_has_not_run_is_refused():
    def generator(a):
        yield a

    async def coroutine(a):
        return a

    for program in (generator, coroutine):
        with pytest.raises(TypeError, match="argument 'fn' must return its results"):
            compare_backends(program, plain(), devices=DEVICES)
    with pytest.raises(TypeError, match="returned a generator, whose code has not run"):
        compare_backends(lambda a: (part for part in a), plain(), devices=DEVICES)


def test_numbers_of_coarse_dtypes_have_their_tolerance():
    def program(a):
        total = a.sum()
        return total.item() * (1.0005 if is_wrong(a) else 1), np.float64(total.item())

    planted["program"] = "a little larger"
    half = pb.rand(50, dtype=pb.half)
    assert compare_backends(program, half, devices=DEVICES).equal
    assert not compare_backends(program, half.float(), devices=DEVICES).equal


def test_no_tolerance_makes_bools_equal():
    planted["program"] = "another bool"
    result = compare_backends(lambda a: a > 9 * is_wrong(a), plain(), devices=DEVICES, atol=2)
    assert not result.equal


def test_dtypes_differ_where_two_are_asked_for():
    dtypes = pb.float32, pb.float64
    for function in (lambda a: a * 2, lambda a: (a * 2).numpy(force=True), lambda a: a.float() / 3):
        result = compare_backends(function, plain(), devices="ref", dtypes=dtypes)
        assert (result.equal, result.notes) == (True, ())


# ---- tensors without elements, or with few -------------------------------------------------------


def test_meta_and_sparse_tensors_on_the_way():
    def program(a, module, sparse):
        shapes = pb.ones(10**6, 10**6, device="meta", requires_grad=True)
        rows = module(pb.tensor([1, 1, 0], device=a.device))
        return a.exp(), shapes + 1, sparse.to_dense() * 2, a.detach().to_sparse(), rows.exp().sum()

    inputs = x(), pb.nn.Embedding(3, 2, sparse=True), pb.eye(3).to_sparse()
    result = compare_backends(program, *inputs, devices=DEVICES)
    assert result.equal and result.nodes > 3, result
    planted["exp"] = "larger"
    result = compare_backends(program, *inputs, devices=DEVICES)
    assert (result.forward.name, result.forward.with_equal_inputs) == ("exp", True)
    assert result.backward.with_equal_inputs is False
    with pytest.raises(ValueError, match="tensors of 'meta' have no elements"):
        compare_backends(program, *inputs, devices=("cpu", "meta"))


def test_a_sparse_gradient_is_compared():
    module = pb.nn.Embedding(3, 2, sparse=True)

    def program(module, numbers):
        rows = module(numbers)
        return rows * (3 if is_wrong(rows) else 2)

    planted["program"] = "another number"
    result = compare_backends(program, module, pb.tensor([1, 1]), devices=DEVICES)
    assert (result.forward.name, result.backward.name) == ("mul", "MulBackward0")


# ---- gradients of tensors that are not copied ----------------------------------------------------


def backward_inside(w):
    def program(a):
        (a * w).sum().backward()
        return w.grad.clone()

    return program


@pytest.mark.parametrize("before", [None, 7.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda w: lambda a: a * w,
        lambda w: lambda a: Exp.apply(w) * a,
        lambda w: lambda a: checkpoint(lambda v: v * w, a, use_reentrant=True),
        lambda w: lambda a: checkpoint(lambda v: v * w, a, use_reentrant=False),
        lambda w: lambda a: w,
        backward_inside,
    ],
)
def test_gradients_of_other_tensors_stay(make, before):
    w = pb.ones(3, requires_grad=True, device="ref")
    w.grad = grad = None if before is None else pb.full((3,), before, device="ref")
    a = pb.ones(3, requires_grad=True)
    for options in ({"devices": ("ref", "ref")}, {"devices": "ref", "compiled": True}):
        if options.get("compiled") and make is backward_inside:
            continue
        assert compare_backends(make(w), a, **options).equal
        assert w.grad is grad and a.grad is None
        assert before is None or w.grad.tolist() == [before] * 3


def test_gradients_of_other_tensors_stay_behind_an_exception():
    w = pb.ones(3, requires_grad=True)
    w.grad = pb.full((3,), 7.0)
    module = pb.nn.Embedding(3, 2, sparse=True)
    module(pb.tensor([1])).sum().backward()
    sparse = module.weight.grad

    def program(a):
        ((a * w).sum() + module(pb.tensor([0, 1])).sum()).backward()
        raise KeyError("behind backward")

    with pytest.raises(KeyError):
        compare_backends(program, pb.ones(3), devices=[str(pb.get_default_device())] * 2)
    assert w.grad.tolist() == [7.0] * 3
    assert module.weight.grad is sparse
    assert sparse.to_dense().tolist() == [[0, 0], [1, 1], [0, 0]]


# ---- exceptions, programs, and what is replaced meanwhile ----------------------------------------


class RaisingBackward(pb.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()

    @staticmethod
    def backward(ctx, gradient):
        if is_wrong(gradient):
            raise ValueError("no gradient")
        return gradient


@pytest.mark.parametrize(
    ("bug", "program"),
    [("exp", lambda a: a.exp()), ("program", lambda a: RaisingBackward.apply(a))],
)
def test_an_exception_names_the_side(bug, program):
    planted[bug] = "raises"
    with pytest.raises(ValueError) as caught:
        compare_backends(program, x(), devices=DEVICES)
    text = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "planted raised this, ref ran without" in text


def test_an_exception_of_backward_behind_a_difference_is_a_note():
    planted.update(program="raises", exp="larger")
    result = compare_backends(lambda a: RaisingBackward.apply(a).exp(), x(), devices=DEVICES)
    assert result.forward.name == "exp"
    assert result.notes == ("later planted raised ValueError: no gradient",)


def test_a_program_that_shows_nothing_says_so():
    planted["exp"] = "larger"
    result = compare_backends(lambda a: a.exp(), x(), devices=DEVICES)
    assert "Unverified" not in result.reproducer()
    before = pb.get_rng_state().tolist()
    planted.clear()
    assert "\n\nUnverified: it ran once" in result.reproducer()
    assert pb.get_rng_state().tolist() == before


def test_no_program_shows_a_custom_function_alone():
    planted["program"] = "without ops"
    result = compare_backends(lambda a: ByNumPy.apply(a).sum(), x(), devices=DEVICES)
    with pytest.raises(RuntimeError, match="no program is written for a custom Function"):
        result.reproducer()


def test_functions_run_as_before_afterwards():
    def program(a):
        inner.append(dict(vars(custom_functions.forward_runner)))
        compare_backends(Exp.apply, pb.ones(2), devices=("ref", "ref"))
        raise KeyError

    inner = []
    with pytest.raises(KeyError):
        compare_backends(program, plain(), devices=DEVICES)
    assert inner[0] and not vars(custom_functions.forward_runner)


def test_a_function_that_catches_what_a_custom_function_raises():
    class Raises(pb.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            a.neg()
            raise KeyError

    def program(a):
        try:
            Raises.apply(a)
        except KeyError:
            return a.exp()

    result = compare_backends(program, x(), devices=DEVICES)
    assert (result.equal, result.ops, result.notes) == (True, 2, ())
    planted["exp"] = "larger"
    assert compare_backends(program, x(), devices=DEVICES).forward.number == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"devices": None}, TypeError, "argument 'devices' must be two devices, got None"),
        ({"dtypes": pb.float32}, TypeError, "'dtypes' must be two floating-point dtypes, got pull"),
        ({"dtypes": (pb.half, pb.float32), "rtol": "a"}, TypeError, "'rtol' must be a number"),
        ({"dtypes": (pb.half, pb.float32), "atol": -1}, ValueError, "'atol' must not be negative"),
        ({"devices": (), "compiled": True}, ValueError, "'devices' must be a device, got none"),
    ],
)
def test_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        compare_backends(pb.exp, plain(), **{"devices": "ref", **options})


def test_compiled_functions_with_state_and_numbers():
    calls = io.StringIO()

    def program(a):
        a.mul_(calls.write("x") + calls.tell())  # a constant, for compiled functions
        return Exp.apply(a), 3, "text"

    result = compare_backends(program, plain(), devices=("ref", "planted"), compiled=True)
    assert result.sides == ("ref", "ref compiled")  # one device: the first
    assert result.forward.name == "mul_"
    assert compare_backends(lambda a: (Exp.apply(a), 3), x(), devices="ref", compiled=True).equal

    def in_place(a):
        a.mul_(calls.write("x") + calls.tell())

    result = compare_backends(in_place, plain(), devices="ref", compiled=True)
    assert (result.forward.name, result.equal) == ("mul_", False)

"""What ``compare_backends`` says of programs in each of which one thing is wrong on one device."""

import dataclasses
import re
from collections import deque

import numpy as np
import pytest
from planted_device import (
    DEVICES,
    KERNELS,
    ByNumPy,
    Exp,
    is_wrong,
    load_planted,
    plain,
    planted,
    x,
)

import pullback as pb
from pullback.testing import compare_backends
from pullback.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")


@pytest.fixture(autouse=True)
def device():
    load_planted()
    planted.clear()
    yield
    planted.clear()


# ---- programs ------------------------------------------------------------------------------------


class Sin(pb.autograd.Function):
    """Has a setup_context, and keeps a tensor and a number as attributes."""

    @staticmethod
    def forward(a):
        return a.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.slope = inputs[0].cos()
        ctx.factor = 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.slope * ctx.factor


class ExpInPlace(pb.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.mark_dirty(a)
        return a.exp_()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WrongBackward(pb.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (3 if is_wrong(gradient) else 2)


class OtherOps(pb.autograd.Function):
    """Has another way to compute on one device, as one with a kernel of its own."""

    @staticmethod
    def forward(ctx, a):
        return a + a if a.device.type == "planted" else a * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Outer(pb.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return Exp.apply(a) + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Exponential(pb.nn.Module):
    def forward(self, a):
        return a.exp()


@dataclasses.dataclass(frozen=True)
class Pair:
    first: object
    second: object = None


@pb.library.custom_op("verdicts::exp", mutates_args=())
def custom_exp(a: pb.Tensor) -> pb.Tensor:
    return a.exp()


def scale(a):
    """Write an input by other ops."""
    if is_wrong(a):
        a.add_(5)
    else:
        a.mul_(2)


def running_mean(module, a):
    """Write a buffer by other ops."""
    if is_wrong(a):
        module.running_mean.add_(1)
    else:
        module.running_mean.mul_(0)
    return a.neg()


def replaced_buffer(module, a):
    module.running_mean = pb.ones_like(module.running_mean) if is_wrong(a) else a[0].detach()


def sgd(module, a):
    module(a).sum().backward()
    with pb.no_grad():
        for parameter in module.parameters():
            parameter.sub_(parameter.grad, alpha=0.5 if is_wrong(a) else 0.1)
    module.zero_grad()


def into_dict(given):
    given["y"] = given["x"].exp()


def into_array(a, array):
    array += 2 if is_wrong(a) else 1


def by_numpy(a):
    return pb.tensor(a.numpy(force=True) + is_wrong(a), device=a.device)


def linear():
    return pb.nn.Linear(3, 2)


EXP = "exp differs with equal inputs, at "
# Its name, what is planted, the program, its inputs, the verdict (as a pattern) and a part of the
# report.
PROGRAMS = [
    # in the forward pass
    ("op", "exp", lambda a: (a * 2).exp().sum(), [x], EXP, "exp(self=float32[2, 3])"),
    ("strided op", "exp", lambda a: a.t().exp(), [x], EXP, "strides (1, 3)"),
    ("op behind equal ones", "exp", lambda a: a.sin().neg().exp(), [x], EXP, "number 2"),
    ("op before integers", "exp", lambda a: (a.exp() * 100).int(), [plain], EXP, "of 3 elem"),
    ("batched op", "exp", lambda a: pb.vmap(lambda v: v.exp())(a), [x], EXP, ""),
    ("op behind a move", "exp", lambda a: a.to("ref").sin().to(a.device).exp(), [x], EXP, ""),
    ("array in between", "program", lambda a: by_numpy(a) * 2, [plain],
     "an argument of mul that no op made differs", ""),
    # in place
    ("other ops in place", "program", scale, [plain], r"inputs\[0\] differs after the call",
     "as number 0 ref runs mul_ and planted add_"),
    ("in place", "exp", lambda a: (a.exp_(), None)[1], [plain], "exp_ differs with equal", ""),
    ("in a view", "exp", lambda a: (a[1:].exp_(), None)[1], [plain], "exp_ differs with", ""),
    ("in a list", "exp", lambda *a: pb._foreach_exp_(list(a)), [plain], "exp_ differs with", ""),
    ("its own input", "exp writes its input", lambda a: a.exp(), [plain],
     "exp overwrote its input, at ", "argument 'self' was changed"),
    ("input of a later op", "exp writes its input", lambda a: a.exp() + a, [x],
     "exp overwrote its input, at ", ""),
    ("input of a product", "mul writes its input", lambda a: a * (a + 1) + a, [plain],
     "mul overwrote its input, at ", ""),
    ("item of a dict", "exp", into_dict, [lambda: {"x": plain()}], EXP, ""),
    ("array", "program", into_array, [plain, lambda: np.ones(2)],
     r"inputs\[1\] differs after the call", "3.0 instead of 2.0"),
    # in modules
    ("op in a module", "exp", pb.nn.Sequential(pb.nn.ReLU(), Exponential()), [x], EXP, "number 1"),
    ("buffer", "program", running_mean, [lambda: pb.nn.BatchNorm1d(3), x],
     r"inputs\[0\].running_mean differs after the call", ""),
    ("other buffer", "program", replaced_buffer, [lambda: pb.nn.BatchNorm1d(3), x],
     r"inputs\[0\].running_mean differs after the call", ""),
    ("parameter", "program", sgd, [linear, x], "", "planted calls "),
    # in custom Functions
    ("op in a Function", "exp", lambda a: Exp.apply(a).sum(), [x], EXP, "of Exp.forward(float32"),
    ("op in a Function in place", "exp", lambda a: (ExpInPlace.apply(a), None)[1], [plain],
     "exp_ differs with equal inputs", ""),
    ("op in setup_context", "cos", lambda a: Sin.apply(a), [x], "cos differs with equal", ""),
    ("op in nested Functions", "exp", lambda a: Outer.apply(a), [x], EXP, "number 0"),
    ("Function without ops", "program", lambda a: ByNumPy.apply(a).sum(), [x],
     "ByNumPy.forward differs with equal inputs", ""),
    ("op behind a Function of other ops", "exp", lambda a: OtherOps.apply(a).exp(), [x], EXP,
     "note: inside OtherOps.forward the sides do not run the same ops"),
    ("custom op", "exp", lambda a: custom_exp(a.detach()) + 1, [x], EXP, ""),
    ("own primitive", "twice", lambda a: pb.ops.verdicts.twice(a), [plain],
     "verdicts_twice_default differs with equal inputs", ""),
    ("op in a checkpoint", "exp",
     lambda a: checkpoint(lambda v: (v.exp().sin() * 2).exp(), a, use_reentrant=False), [x],
     EXP, "backward runs exp again, which differs itself"),
    ("op in a reentrant checkpoint", "exp",
     lambda a: checkpoint(lambda v: v.exp().sin() * 2, a, use_reentrant=True), [x],
     EXP, "backward runs exp again, which differs itself"),
    # in backward alone
    ("node", "cos", lambda a: (a.t() * 3).sin().sum(), [x],
     "node SinBackward0 differs with equal inputs, at ", ""),
    ("node of a Function", "program", lambda a: WrongBackward.apply(a).sum(), [x],
     "node WrongBackwardBackward differs with equal inputs", ""),
    ("op of a Function's node", "mul", lambda a: Exp.apply(a), [x],
     "node ExpBackward differs with equal inputs", ""),
    ("node in a checkpoint", "cos",
     lambda a: checkpoint(lambda v: v.sin() + 2, a, use_reentrant=False), [x],
     "node SinBackward0 differs with equal inputs", ""),
    ("graph", "program", lambda a: a.detach() * 2 if is_wrong(a) else a * 2, [x],
     r"gradient inputs\[0\] differs", "planted has none"),
    # dtypes, shapes and layouts
    ("dtype", "program", lambda a: a.double() if is_wrong(a) else a * 1, [plain],
     "output 0 differs", "the dtype is float64 instead of float32"),
    ("dtype of integers", "program", lambda a: (a > 1).to(pb.int32 if is_wrong(a) else pb.int64),
     [plain], "cast differs", "the dtype is int32 instead of int64"),
    ("layout", "program", lambda a: a if is_wrong(a) else a.to_sparse(), [plain],
     "output 0 differs", "the kind is tensor instead of sparse tensor"),
    ("shape of a meta tensor", "program",
     lambda a: pb.ones(2 + is_wrong(a), 10**9, device="meta"), [plain], "output 0 differs",
     "the shape is (3, 1000000000) instead of (2, 1000000000)"),
    # results that are no tensors
    ("number", "program", lambda a: (a + 5 if is_wrong(a) else a * 2).sum().item(), [plain],
     "output 0 differs", "21.0 instead of 12.0"),
    ("number of an op", "exp", lambda a: a.exp().sum().item(), [plain], EXP, ""),
    ("integer", "program", lambda a: 3 + is_wrong(a), [plain], "output 0 differs",
     "the value is 4 instead of 3"),
    ("kind of number", "program", lambda a: 1.0 if is_wrong(a) else 1, [plain],
     "output 0 differs", "the value is 1.0 instead of 1"),
    ("bool", "program", lambda a: (a, not is_wrong(a)), [plain], "output 1 differs", "False"),
    ("text", "program", lambda a: {"k": "ab"[is_wrong(a)]}, [plain], "output 0 differs", "'b'"),
    ("NumPy array", "program", lambda a: a.numpy(force=True) + is_wrong(a), [plain],
     "output 0 differs", "3 of 3 elements"),
    ("array of texts", "program", lambda a: np.array(["ab"[is_wrong(a)]]), [plain],
     "output 0 differs", ""),
    ("list of numbers", "program", lambda a: [1.0, 2.0 + is_wrong(a)], [plain],
     "output 1 differs", ""),
    ("longer list", "program", lambda a: [1.0] * (1 + is_wrong(a)), [plain],
     "output structure differs", "(result[0]: float, result[1]: float)"),
    ("dataclass", "exp", lambda p: Pair(p.first.exp(), 3), [lambda: Pair(x())], EXP, ""),
    ("number in a dataclass", "program", lambda a: Pair(1, 2 + is_wrong(a)), [plain],
     "output 1 differs", ""),
    ("deque", "program", lambda a: deque([2 + is_wrong(a)]), [plain], "output 0 differs", ""),
    ("infinity", "program", lambda a: float("-inf") if is_wrong(a) else float("inf"), [plain],
     "output 0 differs", "max relative error inf"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bug", "program", "inputs", "verdict", "part"),
    [pytest.param(*case[1:], id=case[0]) for case in PROGRAMS],
)
def test_one_wrong_thing_is_found(bug, program, inputs, verdict, part):
    given = [make() for make in inputs]
    right = compare_backends(program, *given, devices=DEVICES)
    assert right.equal, right
    kernel, _, how = bug.partition(" ")
    planted[kernel] = how or "larger"
    result = compare_backends(program, *given, devices=DEVICES)
    assert not result.equal
    assert re.match(f"different on planted: {verdict}", result.verdict()), result.verdict()
    assert part in str(result), str(result)
    for finding in (result.forward, result.backward):  # only what is wrong is said to be
        if finding is not None and finding.kind == "node" and result.forward is not None:
            assert not finding.with_equal_inputs, str(result)
    if result.forward is not None and result.forward.with_equal_inputs and kernel in KERNELS:
        program = result.reproducer()
        assert "Unverified" not in program
        with pytest.raises(AssertionError, match="not close"):
            exec(program, {})

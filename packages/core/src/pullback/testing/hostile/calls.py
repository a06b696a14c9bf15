"""One hostile call: which op, with which arguments, under which mode; what must hold afterwards."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import reprlib
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

import pullback as pb
from pullback._c.graph.levels import level_count
from pullback._c.graph.overrides import is_overridden_call
from pullback.autograd import forward_ad
from pullback.ops import ENTRIES, ops
from pullback.testing.draw import LAYOUTS
from pullback.testing.hostile.values import Lie, Values
from pullback.testing.samples import DTYPES, OPTIONAL_DTYPES, Maker, cases_of, tensors_in

__all__ = ["SECONDS", "Call", "attempt", "check_world", "draw_call", "targets"]

SECONDS = 5.0  # of processor time that one call may take
HONEST = (
    TypeError,
    ValueError,
    IndexError,
    RuntimeError,
    MemoryError,
    OverflowError,
    BufferError,
    AttributeError,
    KeyError,
    ZeroDivisionError,
    Lie,
)
NEVER = (
    bytes,
    bytearray,
    memoryview,
    dict,
    set,
    slice,
    object,
    type,
    type(print),
    type(...),
    type(NotImplemented),
)
REFUSED: dict[str, tuple[type, ...]] = {
    "Tensor": (*NEVER, str, list, tuple, range, pb.dtype),
    "Operand": (*NEVER, str, list, tuple, range, pb.dtype),
    "Tensor[]": (*NEVER, str, int, float, complex, range, pb.dtype),
    "Scalar": (*NEVER, str, list, tuple, range, pb.dtype),
    "float": (*NEVER, str, list, tuple, range, pb.dtype, complex),
    "int": (*NEVER, str, list, tuple, range, pb.dtype, complex, float),
    "bool": (*NEVER, str, list, tuple, range, pb.dtype, complex, float, int),
    "int[]": (*NEVER, str, pb.dtype, complex, float),
    "dtype": (*NEVER, str, list, tuple, range, complex, int),
    "str": (*NEVER, list, tuple, range, pb.dtype, complex, float, int),
}
LEGACY = {"size_average", "reduce"}  # if given, 'reduction' does not count
CONTENT = 256  # elements of a result that are looked at
MODES = ("plain",) * 6 + (
    "no_grad",
    "inference",
    "vmap",
    "vmap",
    "dual",
    "grad",
    "anomaly",
    "compile",
)


@dataclasses.dataclass
class Call:
    """A call that was drawn and not made yet."""

    name: str
    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    mode: str
    backward: bool
    declared: tuple[Any, ...] = ()  # the arguments of the op table's entry
    asserts: bool = False  # torch's function asserts, too: those of nn.functional are in Python

    def __str__(self) -> str:
        shown = reprlib.Repr()
        shown.maxstring = shown.maxother = 60
        values = [describe(value, shown) for value in self.args]
        values += [f"{name}={describe(value, shown)}" for name, value in self.kwargs.items()]
        return f"{self.name}({', '.join(values)}) under {self.mode}"


def describe(value: Any, shown: reprlib.Repr, depth: int = 0) -> str:
    """Return a short text for an argument, whatever its own ``__repr__`` does."""
    if type(value) in (list, tuple) and len(value) < 9 and depth < 3:
        inner = ", ".join(describe(item, shown, depth + 1) for item in value)
        return f"[{inner}]" if type(value) is list else f"({inner})"
    if type(value) is pb.Tensor:
        try:
            grad = ", grad" if value.requires_grad else ""
            return f"{value.dtype.name}{list(value.shape)} {value.stride()} on {value.device}{grad}"
        except RuntimeError:
            return "<a tensor whose level has ended>"
    if type(value) in (int, float, complex, bool, str, bytes, type(None), slice, pb.dtype):
        return shown.repr(value)
    return f"<{type(value).__name__}>"


# ---- drawing -------------------------------------------------------------------------------------


def getitem(self: pb.Tensor, key: Any) -> Any:
    """Index a tensor."""
    return self[key]


def setitem(self: pb.Tensor, key: Any, value: Any) -> Any:
    """Write into a tensor."""
    self[key] = value
    return self


OTHERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "tensor": (pb.tensor, ("any",)),
    "as_tensor": (pb.as_tensor, ("any",)),
    "from_numpy": (pb.from_numpy, ("any",)),
    "from_dlpack": (pb.from_dlpack, ("any",)),
    "getitem": (getitem, ("Tensor", "any")),
    "setitem": (setitem, ("Tensor", "any", "Operand")),
    "autograd.grad": (pb.autograd.grad, ("Tensor[]", "Tensor[]", "Tensor[]")),
    "backward": (pb.Tensor.backward, ("Tensor", "Tensor?")),
    "vmap": (lambda x, dims: pb.func.vmap(lambda t: t * 2, dims)(x), ("any", "any")),
    "jvp": (lambda x, t: pb.func.jvp(pb.sin, (x,), (t,)), ("Tensor", "any")),
    "make_dual": (lambda x, t: forward_ad.make_dual(x, t, level=0), ("Tensor", "Tensor")),
    "setattr": (setattr, ("Tensor", "str", "any")),
}


@functools.cache
def targets() -> tuple[str, ...]:
    """Return what can be called: the public ops, and how tensors are made, read and used."""
    return (*(name for name, entry in ENTRIES.items() if entry.method or entry.function), *OTHERS)


def is_tensor(value: Any) -> bool:
    """Return whether it is a tensor, whatever it says itself."""
    return issubclass(type(value), pb.Tensor)


def draw_call(seed: int, index: int, device: str, names: Sequence[str] | None = None) -> Call:
    """Return the call that a seed has at an index."""
    rng = Random(f"{seed} {index}")
    values = Values(rng, device)
    name = rng.choice(names or targets())
    mode = rng.choice(MODES)
    if name in OTHERS:
        function, kinds = OTHERS[name]
        args = [values.of_type(kind) for kind in kinds]
        return Call(name, function, args, {}, mode, values.flip(0.3))
    entry = ENTRIES[name]
    args, kwargs = draw_arguments(values, entry)
    form = rng.random()
    function = getattr(ops, name)
    if entry.inplace is True and form < 0.25:
        name += "_"
        function = getattr(ops, name)
    elif entry.out and form < 0.45:
        kwargs["out"] = draw_target(values, args)
    if values.flip(0.1):
        args = [rng.choice(args) for _ in args]  # the same object several times
    declared = () if entry.varargs else entry.arguments
    asserts = "functional" in entry.namespaces
    return Call(name, function, args, kwargs, mode, values.flip(0.3), declared, asserts)


def draw_arguments(values: Values, entry: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return those of a sample call, some of them exchanged; or of the right types at best."""
    rng = values.rng
    cases = cases_of(entry)
    if cases and values.flip(0.7):
        case, dtype = rng.choice(cases), rng.choice(DTYPES + OPTIONAL_DTYPES)
        if case.only >> dtype.code & 1:
            noise = np.random.default_rng(rng.getrandbits(32))
            grads = dtype.is_floating_point and values.flip(0.3)
            maker = Maker(noise, dtype, rng.choice(LAYOUTS), values.device, grads)
            args, kwargs = list(maker.make(case.args)), dict(maker.make(case.kwargs))
            for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
                exchange(values, entry, args, kwargs)
            return args, kwargs
    args, kwargs = [], {}
    for argument in entry.arguments:
        if argument.required and not argument.keyword_only:
            args.append(values.of_type(argument.type))
        elif argument.required or values.flip(0.3):
            kwargs[argument.name] = values.of_type(argument.type)
    return args, kwargs


def exchange(values: Values, entry: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Exchange the value of one argument."""
    if not entry.arguments:
        return
    position = values.rng.randrange(len(entry.arguments))
    argument = entry.arguments[position]
    if position < len(args):
        before = args[position]
        change = is_tensor(before) and values.flip(0.4)
        args[position] = values.changed(before) if change else values.of_type(argument.type)
    else:
        kwargs[argument.name] = values.of_type(argument.type)


def draw_target(values: Values, args: list[Any]) -> Any:
    """Return what to give as ``out``: an operand, a part of one, or something else."""
    operands = [value for value in args if is_tensor(value)]
    kind = values.rng.random()
    if operands and kind < 0.5:
        chosen = values.rng.choice(operands)
        if kind < 0.25 or not chosen.ndim:
            return chosen
        return chosen.detach()[:1].expand(chosen.shape) if kind < 0.35 else chosen.detach()[..., 1:]
    return values.tensor() if kind < 0.85 else values.anything()


# ---- making the call -----------------------------------------------------------------------------


def attempt(call: Call) -> str | None:
    """Make a call and look at its result; returns what is wrong, or None."""
    before = world()
    nonsense = nonsense_in(call)
    start = time.process_time()
    try:
        result = under(call)
        if nonsense and not is_overridden_call(*call.args, *call.kwargs.values()):
            return f"accepted {nonsense}"
        use(result, call.backward)
    except HONEST:
        pass
    except Exception as error:
        if isinstance(error, AssertionError) and call.asserts:
            return None
        return f"raised {type(error).__name__}: {str(error)[:300]}"
    taken = time.process_time() - start
    if taken > SECONDS:
        return f"took {taken:.1f} s of processor time"
    after = world()
    return None if after == before else f"left {after} behind, was {before}"


def nonsense_in(call: Call) -> str | None:
    """Return which argument is of a type that torch refuses, whatever its value; or None."""
    given = [*zip(call.declared, call.args)]
    given += [(item, call.kwargs[item.name]) for item in call.declared if item.name in call.kwargs]
    for argument, value in given:
        kind = argument.type.removesuffix("?")
        if value is None:
            refused = kind == argument.type and kind not in ("any", "dtype", "device")
        elif kind == "dtype" and type(value) is type and value in (bool, int, float, complex):
            continue  # which torch takes for dtypes, too
        elif kind == "str" and not LEGACY.isdisjoint(call.kwargs):
            continue
        else:
            refused = type(value) in REFUSED.get(kind, ())
        if refused:
            return f"{type(value).__name__} for '{argument.name}', which is {argument.type}"
    return None


def world() -> tuple[Any, ...]:
    """Return the modes of this thread and the defaults of the process."""
    return (
        pb.is_grad_enabled(),
        pb.is_inference_mode_enabled(),
        pb.is_anomaly_enabled(),
        level_count(),
        str(pb.get_default_dtype()),
        str(pb.get_default_device()),
    )


def under(call: Call) -> Any:
    """Return the result of a call under its mode."""
    function = functools.partial(call.function, **call.kwargs)
    if call.mode == "no_grad":
        with pb.no_grad():
            return function(*call.args)
    if call.mode == "inference":
        with pb.inference_mode():
            return function(*call.args)
    if call.mode == "anomaly":
        with pb.autograd.set_detect_anomaly(True):
            return function(*call.args)
    if call.mode == "compile":
        compiled = pb.compile(function)
        compiled(*call.args)
        return compiled(*call.args)
    positions = [at for at, value in enumerate(call.args) if is_tensor(value)]
    if call.mode == "plain" or not positions:
        return function(*call.args)
    return run_in_transform(call.mode, function, call.args, positions[-1])


def run_in_transform(
    mode: str, function: Callable[..., Any], args: list[Any], position: int
) -> Any:
    """Run a function of one of the arguments under a transform."""

    def run(value: Any) -> Any:
        return function(*args[:position], value, *args[position + 1 :])

    value = args[position]
    if mode == "vmap":
        return pb.func.vmap(run, randomness="different")(pb.stack([value, value]))
    if mode == "dual":
        with forward_ad.dual_level():
            return run(forward_ad.make_dual(value, value.clone()))
    return pb.func.grad(lambda part: first_of(run(part)).sum())(value)


def first_of(result: Any) -> Any:
    return next(iter(tensors_in(result)), result)


def use(result: Any, backward: bool) -> None:
    """Read what a call gave, and differentiate it."""
    for tensor in itertools.islice(tensors_in(result), 4):
        repr(tensor.shape)
        if tensor.numel() > CONTENT or tensor.device.type == "meta":
            continue
        if max(tensor.shape, default=0) <= CONTENT:  # no lists of billions of empty lists
            tensor.tolist()
            if tensor.numel() < 9:
                repr(tensor)
        if backward and tensor.requires_grad:
            tensor.abs().sum().backward()


# ---- is everything still right? ------------------------------------------------------------------


def check_world(device: str) -> None:
    """Compute what is known on a device.

    Raises: AssertionError when a result is wrong.
    """
    with pb.device(device):
        x = pb.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        y = (x @ x.t() + x.exp().log()).cumsum(0)[:, INDEX].sum()
        (gradient,) = pb.autograd.grad(y, x, create_graph=True)
        (gradient * gradient).sum().backward()
        image = pb.arange(9.0).reshape(1, 1, 3, 3)
        found = [
            y.item(),
            gradient.tolist(),
            pb.sort(x.detach().flatten(), descending=True)[0].tolist(),
            ops.conv2d(image, pb.ones(1, 1, 2, 2)).flatten().tolist(),
            pb.func.vmap(pb.func.grad(lambda v: (v * v).sum()))(x.detach()).tolist(),
            pb.func.jvp(pb.sin, (pb.zeros(2),), (pb.ones(2),))[1].tolist(),
            ops.linalg_solve(pb.eye(2) * 2, pb.ones(2)).tolist(),
            x.detach()[x.detach() > 2].tolist(),
        ]
    rounded = [pb.tensor(part, device="ref").mul(100).round().tolist() for part in found]
    assert rounded == EXPECTED, f"a known result became {rounded}"


INDEX = [0, 1]
EXPECTED = [
    8100.0,
    [[1500.0, 2200.0], [1000.0, 1500.0]],
    [400.0, 300.0, 200.0, 100.0],
    [800.0, 1200.0, 2000.0, 2400.0],
    [[200.0, 400.0], [600.0, 800.0]],
    [100.0, 100.0],
    [50.0, 50.0],
    [300.0, 400.0],
]

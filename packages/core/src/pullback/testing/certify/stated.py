"""The derivatives that entries state for kinks: are they valid, and does every mode give them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback.ops import ENTRIES, ops
from pullback.ops.table.kinks import Fixed, Kink
from pullback.testing.certify.derivatives import backward, flat, leaves
from pullback.testing.certify.judge import one_sided
from pullback.testing.samples import tensors_in

__all__ = ["FIRST", "KINKS", "SECOND", "problems_of", "states_kinks"]

Tensors = tuple[pb.Tensor, ...]
Function = Callable[..., Tensors]

KINKS: tuple[Kink, ...] = tuple(kink for entry in ENTRIES.values() for kink in entry.kinks)


def states_kinks(entry: Any) -> bool:
    """Tell whether an op says what its derivative is at kinks, or need not.

    A building block need not: the public op that is made of it has the same kinks. An in-place form
    and a function of the same public name share what one of them states.
    """
    if not (entry.method or entry.function):
        return True
    names = {entry.name, entry.name.removesuffix("_"), entry.function, entry.method}
    if isinstance(entry.function, str):
        names.add(entry.function.removesuffix("_"))
    return any(name in ENTRIES and ENTRIES[name].kinks for name in names if isinstance(name, str))


def prepared(kink: Kink) -> tuple[Function, Tensors]:
    """Return the call as a function of the tensors that require grad, and these."""
    inputs: list[pb.Tensor] = []

    def made(value: Any) -> Any:
        if isinstance(value, Fixed):
            whole = np.array(value.values).dtype.kind == "i"
            return pb.tensor(value.values, dtype=getattr(pb, value.whole) if whole else pb.float64)
        if isinstance(value, list):
            inputs.append(pb.tensor(value, dtype=pb.float64))
        return tuple(map(made, value)) if type(value) is tuple else value

    def given(value: Any, values: Iterator[pb.Tensor]) -> Any:
        if isinstance(value, tuple):
            return tuple([given(part, values) for part in value])
        return next(values) if isinstance(value, list) else value

    args = [made(value) for value in kink.args]
    options = {name: made(value) for name, value in kink.kwargs.items()}

    def function(*values: pb.Tensor) -> Tensors:
        rest = iter(values)
        call = [given(value, rest) for value in args]
        found = tensors_in((getattr(ops, kink.op)(*call, **options),))
        return tuple(tensor for tensor in found if tensor.is_floating_point())

    return function, tuple(inputs)


def units(inputs: Tensors) -> Iterator[Tensors]:
    """Yield the direction of each element of each input."""
    for i, one in enumerate(inputs):
        for k in range(one.numel()):
            made = [pb.zeros_like(x) for x in inputs]
            made[i].reshape(-1)[k] = 1.0
            yield tuple(made)


def ones(tensors: Any) -> Tensors:
    return tuple(pb.ones_like(tensor) for tensor in tensors)


def total(tensors: Any) -> float:
    return float(flat(tensors).sum())


def reverse(function: Function, inputs: Tensors) -> np.ndarray:
    x = leaves(inputs)
    results = function(*x)
    return flat(backward(results, x, ones(results)))


def forward(function: Function, inputs: Tensors) -> np.ndarray:
    return np.array([total(pb.func.jvp(function, inputs, unit)[1]) for unit in units(inputs)])


def reverse_reverse(function: Function, inputs: Tensors) -> np.ndarray:
    x = leaves(inputs)
    results = function(*x)
    first = backward(results, x, ones(results), create_graph=True)
    return flat(backward(first, x, ones(first)))


def forward_reverse(function: Function, inputs: Tensors) -> np.ndarray:
    def derivative(*values: pb.Tensor) -> Any:
        results, pull = pb.func.vjp(function, *values)
        return pull(ones(results))

    return np.array([total(pb.func.jvp(derivative, inputs, unit)[1]) for unit in units(inputs)])


def reverse_forward(function: Function, inputs: Tensors) -> np.ndarray:
    def derivative(*values: pb.Tensor) -> Any:
        return pb.func.jvp(function, values, ones(inputs))[1]

    results, pull = pb.func.vjp(derivative, *inputs)
    return flat(pull(ones(results)))


def forward_forward(function: Function, inputs: Tensors) -> np.ndarray:
    def derivative(*values: pb.Tensor) -> Any:
        return pb.func.jvp(function, values, ones(inputs))[1]

    return np.array([total(pb.func.jvp(derivative, inputs, unit)[1]) for unit in units(inputs)])


FIRST = {"rev": reverse, "fwd": forward}
SECOND = {
    "rev-rev": reverse_reverse,
    "fwd-rev": forward_reverse,
    "rev-fwd": reverse_forward,
    "fwd-fwd": forward_forward,
}


def problems_of(kink: Kink) -> Iterator[tuple[str, str]]:
    """Yield (mode, problem) for what is not as stated; the mode "bounds" if the statement is."""
    function, inputs = prepared(kink)
    gradients = numbers(kink.gradients)
    for mode, compute in FIRST.items():
        moved = numbers(kink.tangents) if mode == "fwd" and kink.tangents else gradients
        yield from compared(mode, compute, function, inputs, moved)
    if kink.second is not None:
        second = np.zeros_like(gradients) if kink.second == "zero" else numbers(kink.second)
        for mode, compute in SECOND.items():
            yield from compared(mode, compute, function, inputs, second)
    if not kink.outside:
        yield from out_of_bounds(function, inputs, gradients)


def numbers(parts: tuple) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts])


def compared(
    mode: str, compute: Any, function: Function, inputs: Tensors, stated: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield the difference between what a mode gives and what is stated, if there is one."""
    try:
        found = compute(function, inputs)
    except Exception as error:
        yield mode, f"{type(error).__name__}: {error}"
        return
    if mode == "fwd" and not np.isfinite(stated).all():  # 0 times an infinite derivative is NaN
        found = np.where(np.isfinite(stated), stated, found)
    if not np.allclose(found, stated, rtol=1e-14, atol=0, equal_nan=True):
        yield mode, f"got {found.tolist()}, stated {stated.tolist()}"


def out_of_bounds(
    function: Function, inputs: Tensors, gradients: np.ndarray
) -> Iterator[tuple[str, str]]:
    """Yield each derivative that is not between those from both sides."""
    for number, unit in enumerate(units(inputs)):

        def at(steps: Any, unit: Tensors = unit) -> np.ndarray:
            moved = [x + d * steps[0] for x, d in zip(inputs, unit)]
            with pb.no_grad():
                return np.array([total(function(*moved))])

        sides = [one_sided(at, (side,), 1e-2) for side in (1, -1)]
        low, high = sorted(float(side.value[0]) for side in sides)
        doubt = 10 * sum(float(side.error[0]) for side in sides) + 1e-6 * (1 + abs(low) + abs(high))
        if not low - doubt <= gradients[number] <= high + doubt:
            yield (
                "bounds",
                f"derivative {gradients[number]} of element {number} is not in [{low}, {high}]",
            )

"""Why a node spoils a gradient, read from the values that it saved."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pullback
from pullback._c.graph.tensor import Tensor
from pullback.autograd.diagnostics.nonfinite import statistics

PREFIX = "_saved_"


class Saved(NamedTuple):
    """One saved value: figures of a tensor, or the value of a number.

    ``always`` is the one value that it has at all elements in question, or None.
    """

    name: str
    text: str
    always: float | bool | None


class Cause(NamedTuple):
    """A reason code, a sentence with the node as its subject, and the saved values."""

    reason: str
    text: str
    saved: tuple[Saved, ...]
    elements: int


def saved_values(node: Any) -> dict[str, Any]:
    """Return the values that a node saved, by name; those that cannot be read are left out.

    Raises: RuntimeError when they were freed, or overwritten since.
    """
    found = {}
    if hasattr(type(node), "_forward_cls"):
        for position, tensor in enumerate(node.saved_tensors):
            found[f"saved_tensors[{position}]"] = tensor
        return found
    for name in dir(node):
        if name.startswith(PREFIX) and not name.endswith("_shape"):
            value = getattr(node, name)
            if isinstance(value, (Tensor, int, float, complex)):
                found[name.removeprefix(PREFIX)] = value
    return found


def examine(node: Any, kind: str, outputs: tuple, gradient: Tensor | None) -> Cause:
    """Say why a node's gradient is of a kind, where those that it took are not."""
    if gradient is None:
        return _none(node)
    try:
        values = saved_values(node)
    except RuntimeError:  # a hook that unpacks a value raised
        values = {}
    gradient = gradient.to_dense() if gradient.is_sparse else gradient.detach()
    taken = outputs[0] if len(outputs) == 1 else None
    where = _elements(kind, gradient, taken)
    count = int(where.sum())
    alone = len(values) == 1
    saved = tuple(_describe(name, value, where, alone) for name, value in sorted(values.items()))
    if kind == "zero":
        return _zero(saved, count)
    if kind == "huge":
        return Cause("growth_step", "returns a gradient that is far larger", saved, count)
    return _not_finite(kind, saved, count, _at(taken, where))


def _none(node: Any) -> Cause:
    forward = getattr(type(node), "_forward_cls", None)
    if forward is None:
        return Cause("no_gradient", "returns no gradient for this input", (), 0)
    code = getattr(forward.backward, "__code__", None)
    where = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    text = f"returns None for this input: the backward of {forward.__name__}{where} says so"
    return Cause("function_returned_none", text, (), 0)


def _elements(kind: str, gradient: Tensor, taken: Tensor | None) -> Tensor:
    """Return a mask of the elements in question."""
    if kind == "nan":
        return gradient.isnan()
    if kind == "inf":
        return gradient.isinf()
    if kind == "zero" and taken is not None and taken.shape == gradient.shape:
        return taken != 0
    return pullback.ones_like(gradient, dtype=pullback.bool)


def _at(value: Tensor | None, where: Tensor) -> Tensor | None:
    """Return the elements of a value that broadcasts to a mask, where that is set."""
    if value is None or not isinstance(value, Tensor) or value.is_sparse:
        return None
    try:
        if pullback.broadcast_shapes(value.shape, where.shape) != where.shape:
            return None
    except RuntimeError:
        return None
    return value.detach().expand(where.shape)[where]


def _describe(name: str, value: Any, where: Tensor, alone: bool) -> Saved:
    if not isinstance(value, Tensor):  # an option says nothing of elements, a lone factor does
        factor = value if alone and not isinstance(value, (bool, complex)) else None
        return Saved(name, f"{name} = {value!r}", factor)
    text = f"{name}: {statistics(value)}"
    picked = _at(value, where)
    return Saved(name, text, _constant(picked))


def _constant(picked: Tensor | None) -> float | bool | None:
    """Return the value that all elements have; NaN and infinities count as one each."""
    if picked is None or picked.numel() == 0:
        return None
    if picked.dtype == pullback.bool:
        count = int(picked.sum())
        return bool(count) if count in (0, picked.numel()) else None
    if picked.is_complex():
        picked = picked.abs()
    if bool(picked.isnan().all()):
        return math.nan
    if bool(picked.isinf().all()):
        return math.inf
    return 0.0 if int(picked.count_nonzero()) == 0 else None


def _found(saved: tuple[Saved, ...], test: Any) -> Saved | None:
    return next((s for s in saved if s.always is not None and test(s.always)), None)


def _zero(saved: tuple[Saved, ...], count: int) -> Cause:
    """Explain a gradient of zeros by a saved value that is the same at all elements in question."""
    elements = _counted(count, "that a gradient reaches")
    mask = _found(saved, lambda v: isinstance(v, bool))
    if mask is not None:
        text = f"lets no gradient through: '{mask.name}' is {mask.always} at {elements}"
        return Cause("zero_mask", text, saved, count)
    factor = _found(saved, lambda v: v == 0)
    if factor is None:
        return Cause("zero_derivative", "has a derivative of 0 at all elements", saved, count)
    if factor.name == "result":
        text = f"has a derivative of 0: its result is 0 at {elements}"
        return Cause("zero_result", text, saved, count)
    return Cause(
        "zero_factor", f"multiplies by '{factor.name}', which is 0 at {elements}", saved, count
    )


def _not_finite(kind: str, saved: tuple[Saved, ...], count: int, taken: Tensor | None) -> Cause:
    """Explain NaN or infinity by the saved values at those elements, and the gradient there."""
    word = "NaN" if kind == "nan" else "infinite"
    elements = _counted(count)
    zero = _found(saved, lambda v: not isinstance(v, bool) and v == 0)
    nan = _found(saved, lambda v: not isinstance(v, bool) and math.isnan(v))
    inf = _found(saved, lambda v: not isinstance(v, bool) and math.isinf(v))
    odd = nan or zero or inf
    if kind == "nan" and taken is not None and _constant(taken) == 0:
        shown = "" if odd is None else f" ('{odd.name}' is {_word(odd.always)})"
        text = f"multiplies a gradient of 0 by a derivative that is infinite or NaN{shown}"
        text += f" at {elements}"
        return Cause("masked_singularity", text, saved, count)
    if nan is not None:
        return Cause("nan_value", f"works on NaN: '{nan.name}' is NaN at {elements}", saved, count)
    if zero is not None:
        text = f"has an infinite derivative: '{zero.name}' is 0 at {elements}"
        return Cause("singularity", text, saved, count)
    if inf is not None:
        why = f"(a division by 0, or an overflow): '{inf.name}' is infinite at {elements}"
        text = f"works on infinities {why}"
        return Cause("infinite_value", text, saved, count)
    if kind == "nan" and taken is not None and bool(taken.isinf().any()):
        text = f"multiplies an infinite gradient by 0 at {elements}"
        return Cause("infinity_times_zero", text, saved, count)
    reason = "overflow" if kind == "inf" else "nan_at_node"
    return Cause(reason, f"returns a gradient that is {word} at {elements}", saved, count)


def _counted(count: int, which: str = "") -> str:
    if not which:
        return f"{count} element" + ("s" if count != 1 else "")
    return f"the 1 element {which}" if count == 1 else f"all {count} elements {which}"


def _word(value: Any) -> str:
    if value == 0:
        return "0"
    return "NaN" if math.isnan(value) else "infinite"

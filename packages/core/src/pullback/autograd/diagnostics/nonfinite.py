"""Checks of anomaly detection: NaN and infinity in results of ops and in gradients of nodes."""

from __future__ import annotations

import cmath
import contextlib
import math
import threading

import pullback as pb
from pullback._c.base import state
from pullback._c.engine.grad_utils import elements_of
from pullback._c.graph.tensor import Tensor

_CHECKED = "nan", "inf"


def copied(operand):
    """Return the elements that an operand has before it is written; others as they are."""
    if _checking.active or not _has_elements(operand):
        return operand
    with _check():
        return elements_of(operand).clone()


def check_forward(name, operands, result):
    """Raise if a result of an op has NaN or infinity that its operands do not have.

    ``operands`` are as they were before it ran. Of a sample of all ops, the operands may have it,
    too: the op that made it may be left out.
    """
    results = [one for one in _listed(result) if _has_elements(one)]
    if _are_finite(results):
        return
    operands = [one for item in operands for one in _listed(item)]
    with _check() as (kinds, sample):
        for one in results:
            for kind in kinds:
                count, index = _count(one, kind)
                if not count:
                    continue
                given = any(_has(operand, kind) for operand in operands)
                if given and sample == 1:
                    continue
                raise RuntimeError(
                    f"{name}() made {kind} in {count} of {elements_of(one).numel()} elements of "
                    f"its result, the first at index {index}."
                    + (" An operand has some, too: an op before made them." if given else "")
                    + _described(operands)
                )


def check_gradients(node, grads, results):
    """Raise if a gradient that a node returns has NaN, or infinity where that is checked."""
    if _are_finite([one for one in results if _has_elements(one)]):
        return
    with _check() as (kinds, _):
        for number, one in enumerate(results):
            for kind in kinds if _has_elements(one) else ():
                count, index = _count(one, kind)
                if not count:
                    continue
                elements = elements_of(one)
                given = any(_has(grad, kind) for grad in grads)
                raise RuntimeError(
                    f"Function '{node.name()}' returned {kind} values in its {number}th output. "
                    f"{count} of {elements.numel()} elements of shape {list(elements.shape)} are "
                    f"{kind}, the first at index {index}; the gradients it was given had "
                    f"{'some too' if given else 'none'}." + _note_on_zeros(grads, elements)
                )


class _Checking(threading.local):
    """True while a thread checks: the ops that it runs then are not checked themselves."""

    active = False


_checking = _Checking()


@contextlib.contextmanager
def _check():
    """Switch recording off; return the kinds that are looked for, and which part of all ops."""
    _, nan, inf, _, sample = state.anomaly_settings()
    recording = state.swap_grad_enabled(False)
    _checking.active = True
    try:
        yield [kind for kind, on in zip(_CHECKED, (nan, inf)) if on], sample
    finally:
        _checking.active = False
        state.swap_grad_enabled(recording)


def _are_finite(tensors):
    """Return True if no element can be NaN or infinite, which a sum of them all would show.

    And while this thread checks. A sum may be infinite without any: False says nothing.
    """
    if _checking.active:
        return True
    _checking.active = True
    recording = state.swap_grad_enabled(False)
    try:
        return all(cmath.isfinite(elements_of(one).sum().item()) for one in tensors)
    finally:
        _checking.active = False
        state.swap_grad_enabled(recording)


def _listed(value):
    return value if isinstance(value, (tuple, list)) else [value]


def _has_elements(value):
    """Return True for tensors whose elements can be NaN and can be read."""
    return (
        isinstance(value, Tensor)
        and (value.is_floating_point() or value.is_complex())
        and not value.is_meta
    )


def _mask(tensor, kind):
    tensor = elements_of(tensor)
    return tensor.isnan() if kind == "nan" else tensor.isinf()


def _has(value, kind):
    if _has_elements(value):
        return bool(_mask(value, kind).any().item())
    if isinstance(value, float):
        return math.isnan(value) if kind == "nan" else math.isinf(value)
    return False


def _count(tensor, kind):
    """Return how many elements are of a kind, and the index of the first."""
    mask = _mask(tensor, kind)
    if not mask.any().item():
        return 0, None
    return int(mask.sum().item()), tuple(mask.nonzero()[0].tolist())


def _described(operands):
    """Return a line for each operand that is a number or a tensor of floats."""
    lines = []
    for number, one in enumerate(operands):
        if isinstance(one, (int, float)) and not isinstance(one, bool):
            lines.append(f"\n  operand {number}: {one}")
        elif _has_elements(one):
            lines.append(f"\n  operand {number}: {statistics(one)}")
    return "".join(lines)


def statistics(tensor):
    """Return a tensor's dtype, shape, range of finite elements, and counts of some, as text."""
    elements = elements_of(tensor).detach()
    size = elements.numel()
    parts = [f"{elements.dtype.name} {list(elements.shape)}"]
    if elements.dtype == pb.bool:
        return f"{parts[0]}, True at {int(elements.sum())} of {size}" if size else parts[0]
    values = elements.abs() if elements.is_complex() else elements
    finite = values[pb.isfinite(values)].to(pb.float64)
    if finite.numel():
        what = "absolute values " if elements.is_complex() else ""
        parts.append(f"{what}from {finite.min().item():.4g} to {finite.max().item():.4g}")
    counts = {
        "0": size - int(values.count_nonzero()),
        "NaN": int(values.isnan().sum()),
        "infinite": int(values.isinf().sum()),
    }
    parts += [f"{kind} at {count} of {size}" for kind, count in counts.items() if count]
    return ", ".join(parts)


def _note_on_zeros(grads, elements):
    """Return a note where the gradients are 0 at each NaN: these elements were masked later."""
    nan = elements.isnan()
    given = [elements_of(grad) for grad in grads if grad is not None]
    if not given or not nan.any().item():
        return ""
    if any(grad.shape != elements.shape or (grad[nan] != 0).any().item() for grad in given):
        return ""
    return (
        " The gradient is 0 at each of them: `where`, or a mask, does not use these elements of "
        "the forward result, but 0 * inf is nan. Pass nan_safe=True to `where`, or replace the "
        "operand's elements before the op."
    )

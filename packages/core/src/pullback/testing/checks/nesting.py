"""In-place forms under nestings of forward mode, reverse mode and vmap, whole and through views.

A write must leave the value and the derivatives that the functional form gives, whatever is nested:
each mode computes one thing of a real function of the results, once with either form.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pullback as pb
from pullback.ops import ENTRIES, ops
from pullback.testing.compare import assert_close
from pullback.testing.samples import Sample, op_of, replace_tensors, tensors_in

__all__ = ["MODES", "TARGETS", "check_inplace_nested"]

SEED = 20
Values = tuple[pb.Tensor, ...]
Function = Callable[..., pb.Tensor]


# -- the tensor that is written -----------------------------------------------------------------


def _backwards(x: pb.Tensor) -> tuple[int, ...]:
    return tuple(reversed(range(x.ndim)))


# Kinds of it: a base with a view of it that has the elements of x; and what the base holds when
# the view was given the elements of y.
TARGETS: dict[str, tuple[Callable[..., Values], Callable[..., pb.Tensor]]] = {
    "whole": (
        lambda x: (x.clone(),) * 2,
        lambda x, y: y,
    ),
    "transposed": (
        lambda x: _with_view(x.permute(_backwards(x)).clone(), lambda b: b.permute(_backwards(x))),
        lambda x, y: y.permute(_backwards(x)),
    ),
    "stepped": (
        lambda x: _with_view(pb.stack([x, x], -1).flatten(), lambda b: b[1::2].view(x.shape)),
        lambda x, y: pb.stack([x, y], -1).flatten(),
    ),
    "part": (
        lambda x: _with_view(x.expand((3, *x.shape)).clone(), lambda b: b[1]),
        lambda x, y: pb.stack([x, y, x]),
    ),
}


def _with_view(base: pb.Tensor, view: Callable[[pb.Tensor], pb.Tensor]) -> Values:
    return base, view(base)


# -- the modes -------------------------------------------------------------------------------------


def _forward(function: Function, inputs: Values, directions: Values) -> Any:
    return pb.func.jvp(function, inputs, directions)


def _gradient(function: Function, count: int) -> Callable[..., Values]:
    return pb.func.grad(function, argnums=tuple(range(count)))


def _forward_over_reverse(function: Function, inputs: Values, directions: Values) -> Any:
    return pb.func.jvp(_gradient(function, len(inputs)), inputs, directions)


def _reverse_over_forward(function: Function, inputs: Values, directions: Values) -> Any:
    def pushed(*values: pb.Tensor) -> pb.Tensor:
        return pb.func.jvp(function, values, directions)[1]

    return _gradient(pushed, len(inputs))(*inputs)


def _reverse_over_reverse(function: Function, inputs: Values, directions: Values) -> Any:
    leaves = [x.detach().requires_grad_() for x in inputs]
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    grads = pb.autograd.grad(function(*leaves), leaves, create_graph=True, **options)
    total = sum(_inner(grad, t) for grad, t in zip(grads, directions))
    if not isinstance(total, pb.Tensor) or not total.requires_grad:
        return [pb.zeros_like(x) for x in inputs]
    return pb.autograd.grad(total, leaves, **options)


def _forward_over_forward(function: Function, inputs: Values, directions: Values) -> Any:
    def pushed(*values: pb.Tensor) -> pb.Tensor:
        return pb.func.jvp(function, values, directions)[1]

    return pb.func.jvp(pushed, inputs, directions)


def _batched(function: Function, inputs: Values, directions: Values) -> Any:
    """Push one direction and another, along different dims of the batches."""
    batches = tuple(pb.stack([t, -t, t], -1) for t in directions)
    same = tuple(pb.stack([x, x, x]) for x in inputs)

    def run(values: Values, pushed: Values) -> Any:
        return pb.func.jvp(function, values, pushed), _gradient(function, len(values))(*values)

    return pb.func.vmap(run, in_dims=(0, -1), randomness="different")(same, batches)


MODES: dict[str, Callable[[Function, Values, Values], Any]] = {
    "fwd": _forward,
    "fr": _forward_over_reverse,
    "rf": _reverse_over_forward,
    "rr": _reverse_over_reverse,
    "ff": _forward_over_forward,
    "vmap": _batched,
}


# -- the check -------------------------------------------------------------------------------------


def _inner(left: pb.Tensor, right: pb.Tensor) -> pb.Tensor:
    product = left * right.conj()
    return (product.real if product.is_complex() else product).sum()


def check_inplace_nested(sample: Sample) -> None:
    """In every mode the in-place form gives what the functional form gives, through views too."""
    plain = sample.mapped(lambda tensor: tensor.detach())
    inputs = tuple(t.detach() for t in sample.tensors() if t.requires_grad)
    if not inputs or not isinstance(plain.args[0], pb.Tensor):
        return
    pb.manual_seed(SEED)
    result = functional_form(plain)(*plain.args, **plain.kwargs)
    first = plain.args[0]
    if not isinstance(result, pb.Tensor) or result.shape != first.shape:
        return
    if result.is_complex() and not first.is_complex():
        return
    directions = tuple(pb.randn(x.shape, dtype=x.dtype, device=x.device) for x in inputs)
    problems = []
    for mode, kind in itertools.product(MODES, TARGETS):
        weights = [
            pb.randn(t.shape, dtype=first.dtype, device=first.device)
            for t in (first, TARGETS[kind][0](first)[0])
        ]
        expected = MODES[mode](written(plain, sample, kind, weights, False), inputs, directions)
        try:
            found = MODES[mode](written(plain, sample, kind, weights, True), inputs, directions)
            compare(found, expected)
        except Exception as error:  # the other modes and kinds are of interest, too
            problems.append(f"{mode}, {kind}: {type(error).__name__}: {error}")
    assert not problems, "; ".join(problems)


def functional_form(sample: Sample) -> Callable[..., Any]:
    entry = sample.entry
    if not entry.name.endswith("_"):
        return op_of(entry)
    other = ENTRIES.get(entry.name[:-1])
    if other is not None and other.arguments == entry.arguments:
        return op_of(other)
    return lambda first, *rest, **options: op_of(entry)(first.clone(), *rest, **options)


def inplace_form(sample: Sample) -> Callable[..., Any]:
    return getattr(ops, sample.entry.name.removesuffix("_") + "_")


def written(
    plain: Sample, sample: Sample, kind: str, weights: list[pb.Tensor], in_place: bool
) -> Function:
    """Return the call as a real function of the inputs, in one of the two forms."""
    wanted = [tensor.requires_grad for tensor in sample.tensors()]
    lay, rebuild = TARGETS[kind]

    def function(*values: pb.Tensor) -> pb.Tensor:
        given, flags = iter(values), iter(wanted)

        def pick(tensor: pb.Tensor) -> pb.Tensor:
            return next(given) if next(flags) else tensor

        args, kwargs = replace_tensors(plain.args, pick), replace_tensors(plain.kwargs, pick)
        first = args[0]
        pb.manual_seed(SEED)
        if in_place:
            base, view = lay(first)
            inplace_form(sample)(view, *args[1:], **kwargs)
        else:
            view = functional_form(sample)(*args, **kwargs).to(first.dtype)
            base = rebuild(first, view)
        kept = _inner(first, pb.ones_like(first))  # the rest may depend on nothing
        return _inner(view, weights[0]) + _inner(base, weights[1]) + kept

    return function


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(tensors_in(found), tensors_in(expected), strict=True):
        assert_close(one, other, equal_nan=True)

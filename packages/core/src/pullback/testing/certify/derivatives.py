"""The derivative of a function in every mode, as numbers that finite differences give too.

For a function f of several tensors with several results, directions v, w, z and weights u, every
mode computes parts of <u, Df[v]>, <u, D2f[v, w]> or <u, D3f[v, w, z]>. <a, b> is the real part of
the inner product, which is the convention of complex gradients: a step t in the inputs changes
<u, f> by <g, t>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.testing.compare import to_array

__all__ = ["MODES", "Part", "Problem", "flat"]

Tensors = tuple[pb.Tensor, ...]
Function = Callable[..., Tensors]
Term = tuple[str, Tensors | None]


class Problem(NamedTuple):
    """A function at a point, directions in its inputs, and weights of its results.

    ``other`` is a second point, for the middle row of a batch.
    """

    function: Function
    point: Tensors
    other: Tensors
    v: Tensors
    w: Tensors
    z: Tensors
    u: Tensors
    second_u: Tensors


class Part(NamedTuple):
    """Numbers that a mode gave, and which ones they must be.

    ``weights`` are None for the vector Df[...] itself, or those that it is summed with. Parts of
    which the truth has another name than directions are sums over several such terms.
    """

    found: np.ndarray
    size: float  # of what was summed, at most
    terms: tuple[Term, ...]
    beside: np.ndarray | None = None  # what was found without a batch, if that is the truth


def flat(tensors: Any) -> np.ndarray:
    """Return all numbers in one real vector, complex ones as pairs."""
    arrays = [np.ascontiguousarray(to_array(t.detach())).reshape(-1) for t in tensors]
    parts = [a.view(np.float64) if a.dtype.kind == "c" else a.astype(np.float64) for a in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)


def summed(left: Any, right: Any, *terms: Term, beside: Any = None) -> Part:
    """Return the real part of an inner product."""
    one, other = flat(left), flat(right)
    size = float(np.dot(np.abs(one), np.abs(other)))
    truth = None if beside is None else np.asarray(np.dot(flat(beside), other))
    return Part(np.asarray(np.dot(one, other)), size, terms, truth)


def whole(tensors: Any, names: str, beside: Any = None) -> Part:
    """Return a vector of results' derivatives."""
    found = flat(tensors)
    size = float(np.abs(found).max(initial=0.0))
    if beside is not None:
        return Part(found, size, (), flat(beside))
    return Part(found, size, ((names, None),))


def filled(gradients: Any, like: Any) -> Tensors:
    """Return gradients with zeros for those that are None."""
    return tuple(pb.zeros_like(x) if g is None else g for g, x in zip(gradients, like))


def backward(outputs: Any, inputs: Tensors, seeds: Any, **options: Any) -> Tensors:
    """Return the gradients of the outputs that have any; zeros where nothing depends."""
    pairs = [(y, s) for y, s in zip(outputs, seeds) if y.requires_grad]
    batched = options.get("is_grads_batched", False)
    if not pairs:
        return (None,) * len(inputs) if batched else filled([None] * len(inputs), inputs)
    found = pb.autograd.grad(
        [y for y, _ in pairs], inputs, [s for _, s in pairs], allow_unused=True, **options
    )
    return found if batched else filled(found, inputs)


def leaves(tensors: Tensors) -> Tensors:
    return tuple(tensor.detach().requires_grad_() for tensor in tensors)


def reverse(p: Problem) -> list[Part]:
    """Backward."""
    x = leaves(p.point)
    return [summed(backward(p.function(*x), x, p.u), p.v, ("v", p.u))]


def forward(p: Problem) -> list[Part]:
    """Dual numbers."""
    _, tangents = pb.func.jvp(p.function, p.point, p.v)
    return [whole(tangents, "v")]


def reverse_reverse(p: Problem) -> list[Part]:
    """Backward through backward, by the inputs and by the weights."""
    x, u = leaves(p.point), leaves(p.u)
    first = backward(p.function(*x), x, u, create_graph=True)
    second = backward(first, (*x, *u), p.v)
    return [
        summed(second[: len(x)], p.w, ("vw", p.u)),
        whole(second[len(x) :], "v"),
    ]


def forward_reverse(p: Problem) -> list[Part]:
    """Dual numbers through backward; the weights have tangents too."""
    n = len(p.point)

    def derivative(*values: pb.Tensor) -> Any:
        return pb.func.vjp(p.function, *values[:n])[1](tuple(values[n:]))

    _, tangents = pb.func.jvp(derivative, (*p.point, *p.u), (*p.w, *p.second_u))
    return [summed(tangents, p.v, ("vw", p.u), ("v", p.second_u))]


def reverse_forward(p: Problem) -> list[Part]:
    """Backward through dual numbers, by the inputs and by the tangents."""
    n = len(p.point)
    x, v = leaves(p.point), leaves(p.v)
    with pb.autograd.forward_ad.dual_level():
        duals = [pb.autograd.forward_ad.make_dual(a, b) for a, b in zip(x, v)]
        results = [pb.autograd.forward_ad.unpack_dual(y) for y in p.function(*duals)]
        pairs = [(r.tangent, s) for r, s in zip(results, p.u) if r.tangent is not None]
        found = backward([t for t, _ in pairs], (*x, *v), [s for _, s in pairs])
    return [
        summed(found[:n], p.w, ("vw", p.u)),
        summed(found[n:], p.w, ("w", p.u)),
    ]


def forward_forward(p: Problem) -> list[Part]:
    """Dual numbers of dual numbers."""

    def derivative(*values: pb.Tensor) -> Any:
        return pb.func.jvp(p.function, values, p.v)[1]

    _, tangents = pb.func.jvp(derivative, p.point, p.w)
    return [whole(tangents, "vw")]


def third(p: Problem) -> list[Part]:
    """Backward three times."""
    x, u = leaves(p.point), leaves(p.u)
    first = backward(p.function(*x), x, u, create_graph=True)
    second = backward(first, x, p.v, create_graph=True)
    last = backward(second, (*x, *u), p.w)
    return [
        summed(last[: len(x)], p.z, ("vwz", p.u)),
        whole(last[len(x) :], "vw"),
    ]


def stacked(*rows: Tensors) -> Tensors:
    return tuple(pb.stack(column) for column in zip(*rows))


def batched(derivative: Callable[..., Any], rows: Tensors) -> Any:
    """vmap, with the same random numbers in all rows where the operation permits that."""
    try:
        return pb.func.vmap(derivative, randomness="same")(*rows)
    except RuntimeError as error:
        if not str(error).startswith("Vmap does not currently support same randomness"):
            raise
        return pb.func.vmap(derivative, randomness="different")(*rows)


def batched_reverse(p: Problem) -> list[Part]:
    """vmap over backward: rows with other weights, and a row at another point between them."""

    def derivative(*values: pb.Tensor) -> Any:
        n = len(p.point)
        return pb.func.vjp(p.function, *values[:n])[1](tuple(values[n:]))

    rows = stacked((*p.point, *p.u), (*p.other, *p.u), (*p.point, *p.second_u))
    found = batched(derivative, rows)
    x = leaves(p.other)
    beside = backward(p.function(*x), x, p.u)
    return [
        summed([g[0] for g in found], p.v, ("v", p.u)),
        summed([g[2] for g in found], p.v, ("v", p.second_u)),
        summed([g[1] for g in found], p.v, beside=beside),
    ]


def batched_forward(p: Problem) -> list[Part]:
    """vmap over dual numbers: rows with other tangents, and a row at another point between them."""

    def derivative(*values: pb.Tensor) -> Any:
        n = len(p.point)
        return pb.func.jvp(p.function, values[:n], values[n:])[1]

    rows = stacked((*p.point, *p.v), (*p.other, *p.v), (*p.point, *p.w))
    found = batched(derivative, rows)
    _, beside = pb.func.jvp(p.function, p.other, p.v)
    return [
        whole([t[0] for t in found], "v"),
        whole([t[2] for t in found], "w"),
        whole([t[1] for t in found], "v", beside),
    ]


def batched_gradients(p: Problem) -> list[Part]:
    """One backward pass with a batch of weights."""
    x = leaves(p.point)
    found = backward(p.function(*x), x, stacked(p.u, p.second_u), is_grads_batched=True)
    rows = [filled([None if g is None else g[i] for g in found], x) for i in range(2)]
    return [
        summed(rows[0], p.v, ("v", p.u)),
        summed(rows[1], p.v, ("v", p.second_u)),
    ]


MODES: dict[str, Callable[[Problem], list[Part]]] = {
    "rev": reverse,
    "fwd": forward,
    "rev-rev": reverse_reverse,
    "fwd-rev": forward_reverse,
    "rev-fwd": reverse_forward,
    "fwd-fwd": forward_forward,
    "rev-rev-rev": third,
    "vmap-rev": batched_reverse,
    "vmap-fwd": batched_forward,
    "batched": batched_gradients,
}

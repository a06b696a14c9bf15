"""Checks at points that no sample is drawn at: zeros, nothing, operands of other shapes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pullback as pb
from pullback.testing.checks.basic import (
    REFUSALS,
    as_function,
    assert_same_bits,
    call,
    check_batch,
    inner,
    is_finite,
)
from pullback.testing.samples import Sample, tensors_in

__all__ = ["check_batch_of_numbers", "check_in_graph", "check_kept", "check_masked"]


def at_points(sample: Sample) -> Iterator[Sample]:
    """Yield the call with the elements that have a gradient at 0, all or the first, and at 1."""

    def first_zero(tensor: pb.Tensor) -> pb.Tensor:
        changed = tensor.detach().clone()
        if changed.numel():
            changed.reshape(-1)[:1] = 0
        return changed

    for change in (pb.zeros_like, first_zero, pb.ones_like):

        def moved(tensor: pb.Tensor, change: Callable[..., pb.Tensor] = change) -> pb.Tensor:
            if not tensor.requires_grad:
                return tensor
            return change(tensor.detach()).requires_grad_()

        yield sample.mapped(moved)


def check_masked(sample: Sample) -> None:
    """Where a formula masks infinite derivatives, forward mode and double backward mask them too.

    Both are the transpose of backward. Backward is linear in the gradient: if it is finite, then
    so are they, and <u, J t> = <J^H u, t> holds for them, also where a function has a kink.
    """
    for point in at_points(sample):
        try:
            compare_transposes(*as_function(point))
        except AssertionError as error:
            values = [tensor.tolist() for tensor in point.tensors()]
            raise AssertionError(f"{error}, at {values}") from None


def compare_transposes(function: Callable[..., Any], inputs: list[pb.Tensor]) -> None:
    """Compare J t by forward mode, and by a pass through backward, with J^H u."""
    try:
        outputs = tensors_in((function(*inputs),))
    except REFUSALS:
        return  # the function is not defined there
    kept = [n for n, y in enumerate(outputs) if y.requires_grad and is_finite(y)]
    if not inputs or not kept:
        return
    seeds = [
        pb.randn(y.shape, dtype=y.dtype, device=y.device).requires_grad_()
        for y in (outputs[n] for n in kept)
    ]
    try:
        grads = pb.autograd.grad(
            [outputs[n] for n in kept], inputs, seeds, create_graph=True, allow_unused=True
        )
    except RuntimeError as error:
        if "not implemented" in str(error):
            return
        raise
    if not all(is_finite(grad) for grad in grads if grad is not None):
        return
    directions = [pb.randn(x.shape, dtype=x.dtype, device=x.device) for x in inputs]
    pulled = [inner(g, t) for g, t in zip(grads, directions) if g is not None]
    forward_ad = pb.autograd.forward_ad
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, directions)]
        results = tensors_in((function(*duals),))
        tangents = [forward_ad.unpack_dual(results[n]).tangent for n in kept]
    compare_products("forward mode", tangents, seeds, pulled)
    products = [
        pb.sum(pb.real(g * t.conj()))
        for g, t in zip(grads, directions)
        if g is not None and g.requires_grad
    ]
    if products:
        again = pb.autograd.grad(sum(products), seeds, allow_unused=True)
        compare_products("a pass through backward", again, seeds, pulled)


def compare_products(how: str, pushed: Any, seeds: list[pb.Tensor], pulled: list[float]) -> None:
    """Raise unless <u, J t> is finite and <J^H u, t>."""
    parts = [inner(u, t) for u, t in zip(seeds, pushed) if t is not None]
    size = sum(abs(value) for value in (*parts, *pulled))
    assert math.isfinite(size), f"backward is finite, {how} gives {pushed}"
    exact = all(u.dtype.itemsize == (16 if u.is_complex() else 8) for u in seeds)
    atol = (1e-9 if exact else 1e-4) * (1 + size)
    assert math.isclose(sum(parts), sum(pulled), abs_tol=atol, rel_tol=0), (
        f"{how}: <u, J t> is {sum(parts)}, <J^H u, t> is {sum(pulled)}"
    )


def check_kept(sample: Sample) -> None:
    """A result is kept for backward only if its value takes part in the gradient.

    Otherwise a write to the result would be refused for nothing.
    """
    function, inputs = as_function(sample)
    sizes = [tensor.numel() for tensor in sample.tensors()]
    if sample.entry.name.endswith("_") or not inputs or max(sizes) < 2 or not min(sizes):
        return  # of one element, much is known without its value
    results = tensors_in((function(*inputs),))
    for number in range(len(results) if all(map(is_finite, results)) else 0):
        if is_refused(function, inputs, number):
            wanted = grads_with(function, inputs, number, None)
            found = [grads_with(function, inputs, number, value) for value in (math.nan, 0, -1)]
            assert any(differ(one, wanted) for one in found), (
                f"result {number} is kept, but its value has no part in the gradient"
            )


def run_all(function: Callable[..., Any], inputs: list[pb.Tensor]) -> list[pb.Tensor]:
    """Return the results that require grad, but for views of the inputs and the inputs."""
    return [
        y
        for y in tensors_in((function(*inputs),))
        if y.requires_grad and not y._is_view() and not any(y is x for x in inputs)
    ]


def is_refused(function: Callable[..., Any], inputs: list[pb.Tensor], number: int) -> bool:
    """Tell whether backward refuses a result that was written to."""
    results = run_all(function, inputs)
    if number >= len(results) or not results[number].numel():
        return False
    with pb.no_grad():
        results[number].zero_()
    try:
        gradients_of(results, inputs)
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False


def grads_with(
    function: Callable[..., Any], inputs: list[pb.Tensor], number: int, value: float | None
) -> list[Any]:
    """Return the gradients where a kept result has another value, without a new version."""
    results = run_all(function, inputs)
    if value is not None:
        results[number].data.fill_(value)
    return gradients_of(results, inputs)


def gradients_of(results: list[pb.Tensor], inputs: list[pb.Tensor]) -> list[Any]:
    pb.manual_seed(len(results))
    seeds = [pb.randn(y.shape, dtype=y.dtype, device=y.device) for y in results]
    return list(pb.autograd.grad(results, inputs, seeds, allow_unused=True))


def differ(one: list[Any], other: list[Any]) -> bool:
    """Tell whether two lists of gradients differ in a bit."""
    try:
        for left, right in zip(one, other):
            if left is not None and right is not None:
                assert_same_bits(left, right, "they differ")
    except AssertionError:
        return True
    return False


def check_in_graph(sample: Sample) -> None:
    """What is computed of operands that require grad does so too, also of a batch of nothing."""
    function, inputs = as_function(sample)
    if not inputs or sample.entry.constant:
        return
    results = [y for y in tensors_in((function(*inputs),)) if has_derivative(y)]
    for number, result in enumerate(results):
        assert result.requires_grad, f"result {number} does not require grad"
    if not results:
        return
    nothing = [x.detach().unsqueeze(0)[:0].requires_grad_() for x in inputs]
    found = pb.func.vmap(lambda *values: tensors_in((function(*values),)), randomness="different")(
        *nothing
    )
    for number, result in enumerate(filter(has_derivative, found)):
        assert result.requires_grad, f"result {number} of a batch of 0 does not require grad"


def has_derivative(tensor: pb.Tensor) -> bool:
    """Tell whether the dtype of a tensor lets it require grad."""
    return tensor.is_floating_point() or tensor.is_complex()


def check_batch_of_numbers(sample: Sample) -> None:
    """vmap gives what a loop gives where one operand is 0-dim, and broadcasts if it can."""
    tensors = sample.tensors()
    for number, tensor in enumerate(tensors):
        if not tensor.ndim or not tensor.numel():
            continue
        given = iter(range(len(tensors)))

        def change(one: pb.Tensor, given: Any = given, number: int = number) -> pb.Tensor:
            return one.reshape(-1)[0] if next(given) == number else one

        changed = sample.mapped(change)
        with warnings.catch_warnings():
            # Losses say that shapes differ, variances that one value has no freedom left.
            warnings.simplefilter("ignore", UserWarning)
            try:
                call(changed)
            except (*REFUSALS, AssertionError):
                continue
            check_batch(changed)

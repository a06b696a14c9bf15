"""Derivatives on devices without float64: in float32 there, in float64 on the host.

Differences of float32 numbers are too coarse to check a derivative. What the device computes in
float32 is compared with what ``ref`` computes in float64 by the same formulas, which the checks of
devices with float64 compare with differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.testing.checks.basic import SEED, as_function, call, inplace_function
from pullback.testing.compare import assert_close, to_array
from pullback.testing.draw import lay_out
from pullback.testing.samples import Sample, tensors_in

__all__ = ["NARROW", "check_grad", "check_gradgrad", "check_inplace_grad", "narrowed"]

HOST = "ref"
NARROW = {"float64": pb.float32, "complex128": pb.complex64}
WIDE = {pb.float32: pb.float64, pb.complex64: pb.complex128}
RELATIVE = 2.0**-10  # of an element, and of the largest one of its tensor
Function = tuple[Callable[..., Any], list[pb.Tensor]]


def narrowed(dtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return dtypes with half the width, each once, for a device without float64."""
    return tuple(dict.fromkeys(NARROW.get(dtype.name, dtype) for dtype in dtypes))


def check_grad(sample: Sample) -> None:
    """Backward in float32 gives the gradients of float64, to a few digits."""
    compare(sample, as_function, twice=False)


def check_gradgrad(sample: Sample) -> None:
    """Backward through backward in float32 gives the derivatives of float64, to a few digits."""
    compare(sample, as_function, twice=True)


def check_inplace_grad(sample: Sample) -> None:
    """Backward of the in-place form in float32 gives the gradients of float64."""
    if inplace_function(sample) is not None:
        compare(sample, inplace_function, twice=False)


def compare(sample: Sample, make: Callable[[Sample], Any], twice: bool) -> None:
    """Raise unless the derivatives of a call agree with those on the host.

    ``make`` returns the call as a function of the tensors that require grad, and these. Ops that
    draw random numbers draw others in float64: they are left out.
    """
    if draws(sample):
        return
    found = derivatives(make(sample), twice)
    with pb.device(HOST):
        wanted = derivatives(make(on_host(sample)), twice)
    assert len(found) == len(wanted), f"{len(found)} derivatives, {len(wanted)} on the host"
    for number, pair in enumerate(zip(found, wanted)):
        if pair[0] is None and pair[1] is None:
            continue
        shape = next(tensor.shape for tensor in pair if tensor is not None)
        left, right = (  # a derivative that is missing is 0
            np.zeros(shape) if tensor is None else to_array(tensor.detach()) for tensor in pair
        )
        finite = np.abs(right[np.isfinite(right)])
        assert_close(
            pb.tensor(left, device=HOST),
            pb.tensor(right, device=HOST),
            rtol=RELATIVE,
            atol=RELATIVE * max(1.0, float(finite.max(initial=0))),
            equal_nan=True,
            check_dtype=False,
            msg=f"derivative {number}: {{}}".format,
        )


def draws(sample: Sample) -> bool:
    """Tell whether a call draws random numbers."""
    pb.manual_seed(SEED)
    before = pb.get_rng_state()
    call(sample)
    return not pb.equal(pb.get_rng_state(), before)


def on_host(sample: Sample) -> Sample:
    """Return the call with tensors on the host, floating-point and complex ones twice as wide."""

    def widened(value: Any) -> Any:
        if isinstance(value, pb.Tensor):
            moved = value.detach().to(HOST)
            moved = moved.to(WIDE.get(moved.dtype, moved.dtype))
            return moved.requires_grad_(value.requires_grad)
        if isinstance(value, dict):
            return {name: widened(item) for name, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(widened(item) for item in value)
        return WIDE.get(value, value) if isinstance(value, pb.dtype) else value

    return sample._replace(args=widened(sample.args), kwargs=widened(sample.kwargs))


def derivatives(call: Function, twice: bool) -> list[pb.Tensor | None]:
    """Return the gradients of a call; ``twice``: those of these gradients, and of their seeds."""
    function, inputs = call
    outputs = [tensor for tensor in tensors_in((function(*inputs),)) if tensor.requires_grad]
    if not outputs or not inputs:
        return []
    seeds = [seed(number, y).requires_grad_(twice) for number, y in enumerate(outputs)]
    first = pb.autograd.grad(outputs, inputs, seeds, create_graph=twice, allow_unused=True)
    if not twice:
        return list(first)
    again = [grad for grad in first if grad is not None and grad.requires_grad]
    if not again:
        return []
    others = [seed(-1 - number, grad) for number, grad in enumerate(again)]
    return list(pb.autograd.grad(again, [*inputs, *seeds], others, allow_unused=True))


def seed(number: int, like: pb.Tensor) -> pb.Tensor:
    """Return numbers of a normal distribution: the same ones on all devices and in all dtypes."""
    rng = np.random.default_rng([number % 1000, *like.shape])
    values = rng.standard_normal(like.shape).astype(np.float32)
    if like.is_complex():
        values = values + 1j * rng.standard_normal(like.shape).astype(np.float32)
    return lay_out(np.asarray(values), like.dtype, like.device, "contiguous")

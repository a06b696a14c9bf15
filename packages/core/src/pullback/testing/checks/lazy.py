"""What must hold for every op whose operands are lazy: conjugates and negatives that are views.

A lazy operand has the elements of a plain one, and its memory their conjugates or negatives.
"""

from __future__ import annotations

from typing import Any

import pullback as pb
from pullback.ops import ops
from pullback.testing.checks.basic import (
    SEED,
    as_function,
    assert_same_bits,
    call,
    fits_inplace,
    tolerances,
)
from pullback.testing.compare import assert_close, to_array
from pullback.testing.samples import Sample, op_of, tensors_in

__all__ = ["check_lazy", "check_lazy_grad"]


def as_lazy(tensor: pb.Tensor) -> pb.Tensor:
    """Return a lazy tensor with the elements and strides of another; bools stay as they are."""
    if tensor.dtype == pb.bool:
        return tensor
    if tensor.is_complex():
        return tensor.conj_physical().conj()
    return (-tensor)._neg_view()


def laid_out(tensor: pb.Tensor) -> pb.Tensor:
    """As as_lazy, of a tensor without history, with its very strides."""
    memory = pb.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    lazy = as_lazy(memory)
    if any(step == 0 for step in tensor.stride()) or lazy.stride() != tensor.stride():
        return as_lazy(tensor)
    return lazy.copy_(tensor)


def check_lazy(sample: Sample) -> None:
    """Lazy operands, targets and ``out=`` give what plain ones give."""
    expected = tensors_in((call(sample),))
    lazy = sample.mapped(laid_out)
    _assert_alike(tensors_in((call(lazy),)), expected, "lazy operands")
    if sample.entry.out:
        outs = [laid_out(pb.zeros_like(tensor)) for tensor in expected]
        pb.manual_seed(SEED)
        op_of(sample.entry)(*lazy.args, **lazy.kwargs, out=outs[0] if len(outs) == 1 else outs)
        _assert_alike(outs, expected, "lazy out=")
    if sample.entry.inplace is True and fits_inplace(sample, expected[0]):
        target = laid_out(sample.args[0])
        base, before = target._base, target._version
        pb.manual_seed(SEED)
        getattr(ops, sample.entry.name + "_")(target, *lazy.args[1:], **lazy.kwargs)
        _assert_alike([target], [expected[0].to(target.dtype)], "a lazy target")
        assert target._version > before, "the version counter did not move"
        if base is not None and not sample.entry.view:
            memory = base.conj() if base.is_complex() else -base
            _assert_alike([memory], [target], "the memory of a lazy target")


def check_lazy_grad(sample: Sample) -> None:
    """Derivatives by lazy operands, of lazy gradients and tangents, are those by plain ones."""
    function, inputs = as_function(sample)
    outputs = [y for y in tensors_in((function(*inputs),)) if y.requires_grad]
    if not outputs or not inputs:
        return
    seeds = [pb.randn(y.shape, dtype=y.dtype, device=y.device) for y in outputs]
    wanted = pb.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    outputs = [y for y in tensors_in((function(*map(as_lazy, inputs)),)) if y.requires_grad]
    found = pb.autograd.grad(outputs, inputs, list(map(as_lazy, seeds)), allow_unused=True)
    _assert_alike(found, wanted, "gradients")
    directions = [pb.randn(x.shape, dtype=x.dtype, device=x.device) for x in inputs]
    tangents = _tangents(function, inputs, directions)
    lazy_tangents = _tangents(
        lambda *values: function(*map(as_lazy, values)), inputs, list(map(as_lazy, directions))
    )
    _assert_alike(lazy_tangents, tangents, "tangents")


def _tangents(function: Any, inputs: list, directions: list) -> list:
    forward_ad = pb.autograd.forward_ad
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, directions)]
        return [forward_ad.unpack_dual(y)[1] for y in tensors_in((function(*duals),))]


def _assert_alike(found: Any, expected: Any, what: str) -> None:
    assert len(found) == len(expected), f"{what}: {len(found)} results, not {len(expected)}"
    for one, other in zip(found, expected):
        if one is None or other is None:
            assert one is other, f"{what}: {one}, not {other}"
            continue
        one, other = one.detach(), other.detach()
        assert one.dtype == other.dtype, f"{what}: dtype {one.dtype}, not {other.dtype}"
        if not (one.is_floating_point() or one.is_complex()):
            assert_same_bits(one, other, what)
            continue
        rtol, atol = tolerances(other.dtype, to_array(other))
        assert_close(
            one, other, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
        )

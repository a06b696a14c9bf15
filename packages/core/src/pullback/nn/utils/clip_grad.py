"""Limits of the size of gradients, in place."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable

import pullback
from pullback import Tensor
from pullback.ops.rules.operands import all_hold

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def _listed(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters):
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of all elements of tensors, as if they were one vector.

    ``norm_type`` is p of the p-norm, ``inf`` for the largest absolute value; ``foreach`` is
    accepted, and makes no difference.

    Raises: RuntimeError with ``error_if_nonfinite`` if the norm is infinite or NaN.

    >>> import pullback
    >>> pullback.nn.utils.get_total_norm([pullback.tensor([3.0]), pullback.tensor([[4.0]])])
    tensor(5.)
    """
    tensors = _listed(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return pullback.tensor(0.0)
    norms = [pullback.linalg.vector_norm(tensor, norm_type) for tensor in tensors]
    device = norms[0].device
    total = pullback.linalg.vector_norm(
        pullback.stack([norm.to(device) for norm in norms]), norm_type
    )
    if error_if_nonfinite and not all_hold(total.isfinite(), RuntimeError):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale gradients in place by max_norm / total_norm, unless that is above 1.

    >>> import pullback
    >>> weight = pullback.nn.Parameter(pullback.zeros(2))
    >>> weight.grad = pullback.tensor([6.0, 8.0])
    >>> pullback.nn.utils.clip_grads_with_norm_(weight, 5.0, pullback.tensor(10.0))
    >>> weight.grad
    tensor([3.0000, 4.0000])
    """
    gradients = _gradients(parameters)
    with pullback.no_grad():
        scale = pullback.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.to(gradient.device))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients in place so that their norm is at most ``max_norm``; return the norm before.

    ``parameters`` is a tensor or an iterable of tensors. See ``get_total_norm``.

    >>> import pullback
    >>> weight = pullback.nn.Parameter(pullback.zeros(2))
    >>> weight.grad = pullback.tensor([6.0, 8.0])
    >>> pullback.nn.utils.clip_grad_norm_([weight], 5.0)
    tensor(10.)
    >>> weight.grad
    tensor([3.0000, 4.0000])
    """
    is_generator = isinstance(parameters, types.GeneratorType)
    parameters = _listed(parameters)
    if is_generator and not parameters:
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    with pullback.no_grad():
        total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Do as ``clip_grad_norm_``, with a FutureWarning."""
    warnings.warn(
        "`pullback.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`pullback.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place.

    >>> import pullback
    >>> weight = pullback.nn.Parameter(pullback.zeros(2))
    >>> weight.grad = pullback.tensor([6.0, -0.5])
    >>> pullback.nn.utils.clip_grad_value_(weight, 1.0)
    >>> weight.grad
    tensor([ 1.0000, -0.5000])
    """
    limit = float(clip_value)
    with pullback.no_grad():
        for gradient in _gradients(parameters):
            gradient.clamp_(-limit, limit)

"""Adafactor."""

from __future__ import annotations

import math
from typing import ClassVar

import pullback
from pullback import Tensor
from pullback._c.python.optimizer_steps import number_in_step, rate_in_capture
from pullback.ops.rules.dtypes import cast_to, widest
from pullback.optim.optimizer import (
    Optimizer,
    _check_modes,
    _step_counter,
    _unscale,
)

__all__ = ["Adafactor", "adafactor"]


class Adafactor(Optimizer):
    """Adafactor: Adam's scale of steps, from averages of squared gradients by row and by column.

    Of a parameter with two or more dimensions the last two are rows and columns, and the average
    of squares is estimated as the outer product of both; that needs the memory of one row and one
    column. Averages decay by 1 - t^beta2_decay, a step has at most ``d`` times the root mean
    square 1, and its size is the parameter's root mean square, at least the second of ``eps``,
    times min(lr, 1 / sqrt(t)) (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with
    Sublinear Memory Cost", 2018). Averages are at least the first of ``eps``; None is the dtype's
    own. ``weight_decay`` shrinks parameters by lr * weight_decay, and ``maximize`` climbs.
    ``foreach`` does not change results.

    Raises: ValueError for an option outside its range; RuntimeError in a step of a complex
    parameter.

    >>> import pullback
    >>> x = pullback.full((2, 2), 4.0, requires_grad=True)
    >>> optimizer = pullback.optim.Adafactor([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([[3., 3.],
            [3., 3.]], requires_grad=True)
    """

    _added_options: ClassVar = {"foreach": None}
    _has_tensor_steps = True
    _passed_options = ("lr", "d", "beta2_decay", "weight_decay", "maximize", "foreach")

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for valid, text in (
            (lr >= 0.0, f"Learning rate should be >= 0 but is: {lr}"),
            (beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}"),
            (eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}"),
            (eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}"),
            (d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}"),
            (weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}"),
        ):
            if not valid:
                raise ValueError(text)
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param)
        if param.ndim > 1:
            rows, columns = list(param.shape), list(param.shape)
            rows[-1] = columns[-2] = 1
            state["row_var"] = param.grad.new_zeros(rows)
            state["col_var"] = param.grad.new_zeros(columns)
        else:
            state["variance"] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        if any(param.is_complex() for param in group["params"] if param.grad is not None):
            raise RuntimeError("Adafactor does not support complex parameters")
        eps1, eps2 = group["eps"]
        adafactor(
            *self._gather(group, ("row_var", "col_var", "variance", "step")),
            eps1=eps1,
            eps2=eps2,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            **self._options(group),
        )


def adafactor(
    params,
    grads,
    row_vars,
    col_vars,
    variances,
    state_steps,
    foreach=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    *,
    d,
    lr,
    beta2_decay,
    weight_decay,
    eps1,
    eps2,
    maximize,
):
    """Make a step of ``Adafactor`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim._adafactor import adafactor
    >>> x, variance, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(())
    >>> adafactor([x], [x * 2], [None], [None], [variance], [step], d=1, lr=0.5, beta2_decay=-0.8,
    ...           weight_decay=0, eps1=0, eps2=1e-3, maximize=False)
    >>> x, variance
    (tensor([0.5000, 0.5000]), tensor([4., 4.]))
    """
    _check_modes(params, state_steps)
    if not _unscale(grads, grad_scale, found_inf):
        return
    lr = rate_in_capture(number_in_step(lr), params)
    for param, grad, row_var, col_var, variance, counter in zip(
        params, grads, row_vars, col_vars, variances, state_steps
    ):
        grad = -grad if maximize else grad
        step = cast_to(counter.add_(1), widest(param.device))
        floor = pullback.finfo(param.dtype).eps if eps1 is None else eps1
        size = _at_least(_root_mean_square(param), eps2) * _least(step.rsqrt(), lr)
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        estimate = _estimate(grad, row_var, col_var, variance, step**beta2_decay, floor)
        update = estimate.clamp_(min=floor * floor).rsqrt_().mul_(grad)
        size /= _at_least(_root_mean_square(update) / d, 1.0)
        param.addcmul_(update, size, value=-1)


def _at_least(one, least):
    """Return the larger of both, or the number for NaN, as Python's max does."""
    return one.nan_to_num(least, math.inf, -math.inf).clamp_(min=least)


def _least(one, lr):
    return pullback.minimum(one, lr) if isinstance(lr, Tensor) else one.clamp_(max=lr)


def _root_mean_square(tensor):
    return cast_to(tensor.norm(2), widest(tensor.device)) / max(tensor.numel(), 1) ** 0.5


def _estimate(grad, row_var, col_var, variance, share, floor):
    """Move the averages by a share towards the squared gradient; return its estimate."""
    if grad.ndim < 2:
        return _move(variance, grad.square(), share).clone()
    for average, dim in ((row_var, -1), (col_var, -2)):
        squares = pullback.linalg.vector_norm(grad, dim=dim, keepdim=True).square_()
        _move(average, squares.div_(grad.size(dim)), share)
    return (row_var @ col_var).div_(row_var.mean(dim=-2, keepdim=True).clamp_(min=floor))


def _move(average, value, share):
    """Move an average by a share towards a value; 16-bit numbers are computed with as float32."""
    dtype = pullback.promote_types(average.dtype, pullback.float32)
    before = average.to(dtype)
    return average.copy_(before + (value.to(dtype) - before) * share.to(dtype))

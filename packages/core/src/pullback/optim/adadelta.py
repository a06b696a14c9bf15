"""Adadelta."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_lr,
    _check_modes,
    _check_range,
    _decay,
    _move,
    _step_counter,
    _view_as_real,
)

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    """Adadelta: steps whose size follows from earlier steps and gradients.

    v = rho v + (1 - rho) g^2, d = g sqrt(u + eps) / sqrt(v + eps), u = rho u + (1 - rho) d^2,
    p = p - lr d (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012). ``weight_decay``
    adds that multiple of a parameter to its gradient, and ``maximize`` climbs. With
    ``differentiable`` steps are recorded for autograd, and ``lr`` may be a tensor that requires
    grad. ``capturable`` keeps counters of steps on a CUDA device. ``foreach`` does not change
    results.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.Adadelta([x], eps=0.01)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.6840], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _has_tensor_steps = True
    _passed_options = (
        *("lr", "rho", "eps", "weight_decay"),
        *("foreach", "maximize", "differentiable", "capturable"),
    )

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _check_range(0.0 <= rho <= 1.0, "rho value", rho)
        _check_range(eps >= 0.0, "epsilon value", eps)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"])
        for name in ("square_avg", "acc_delta"):
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        adadelta(*self._gather(group, ("square_avg", "acc_delta", "step")), **self._options(group))


def adadelta(
    params,
    grads,
    square_avgs,
    acc_deltas,
    state_steps,
    capturable=False,
    foreach=None,
    differentiable=False,
    has_complex=False,
    *,
    lr,
    rho,
    eps,
    weight_decay,
    maximize,
):
    """Make a step of ``Adadelta`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.adadelta import adadelta
    >>> x, v, u, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> adadelta([x], [x * 2], [v], [u], [step], lr=1, rho=0.75, eps=0.01, weight_decay=0,
    ...          maximize=False)
    >>> x, v
    (tensor([0.8010, 0.8010]), tensor([1., 1.]))
    """
    if _fused.take_step(
        pullback._fused_adadelta_,
        params,
        grads,
        (square_avgs, acc_deltas),
        state_steps,
        takes_steps=False,
        lr=lr,
        weight_decay=weight_decay,
        maximize=maximize,
        rho=rho,
        eps=eps,
        one_by_one=foreach is False or differentiable or capturable,
    ):
        return
    _check_modes(
        params, state_steps, foreach=foreach, differentiable=differentiable, capturable=capturable
    )
    lr = lr if differentiable else _as_number(lr)
    for param, grad, square_avg, acc_delta, counter in zip(
        params, grads, square_avgs, acc_deltas, state_steps
    ):
        grad = -grad if maximize else grad
        counter.add_(1)
        grad = _decay(param, grad, lr, weight_decay)
        if param.is_complex():
            param, grad, square_avg, acc_delta = _view_as_real(param, grad, square_avg, acc_delta)
        square_avg.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        if differentiable:
            delta = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * grad
        else:
            delta = acc_delta.add(eps).div_(square_avg.add(eps)).sqrt_().mul_(grad)
        acc_delta.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        _move(param, delta, lr)

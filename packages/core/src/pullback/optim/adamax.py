"""Adamax, the variant of Adam with the infinity norm."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_betas,
    _check_lr,
    _check_modes,
    _check_range,
    _decay,
    _move_by_quotient,
    _step_counter,
    _view_as_real,
)

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    """Adamax: Adam with the largest gradient, decayed, in place of the average of squares.

    m = b1 m + (1 - b1) g, u = max(b2 u, abs(g) + eps), p = p - lr m / (u (1 - b1^t)) (Kingma and
    Ba, "Adam: A Method for Stochastic Optimization", 2015, section 7.1). Other options are those
    of ``Adam``.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.Adamax([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.5000], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _has_tensor_steps = True
    _passed_options = (
        *("lr", "eps", "weight_decay", "foreach", "maximize", "differentiable", "capturable"),
    )

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_range(eps >= 0.0, "epsilon value", eps)
        _check_betas(betas)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"])
        for name in ("exp_avg", "exp_inf"):
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        beta1, beta2 = group["betas"]
        adamax(
            *self._gather(group, ("exp_avg", "exp_inf", "step")),
            beta1=beta1,
            beta2=beta2,
            **self._options(group),
        )


def adamax(
    params,
    grads,
    exp_avgs,
    exp_infs,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    eps,
    beta1,
    beta2,
    lr,
    weight_decay,
):
    """Make a step of ``Adamax`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.adamax import adamax
    >>> x, m, u, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> adamax([x], [x * 2], [m], [u], [step], eps=0, beta1=0.9, beta2=0.99, lr=0.1,
    ...        weight_decay=0)
    >>> x, u
    (tensor([0.9000, 0.9000]), tensor([2., 2.]))
    """
    if _fused.take_step(
        pullback._fused_adamax_,
        params,
        grads,
        (exp_avgs, exp_infs),
        state_steps,
        lr=lr,
        weight_decay=weight_decay,
        maximize=maximize,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        one_by_one=foreach is False or differentiable or capturable,
    ):
        return
    _check_modes(
        params, state_steps, foreach=foreach, differentiable=differentiable, capturable=capturable
    )
    lr = lr if differentiable else _as_number(lr)
    for param, grad, exp_avg, exp_inf, counter in zip(
        params, grads, exp_avgs, exp_infs, state_steps
    ):
        grad = -grad if maximize else grad
        step = counter.add_(1).item()
        grad = _decay(param, grad, lr, weight_decay)
        if param.is_complex():
            param, grad, exp_avg, exp_inf = _view_as_real(param, grad, exp_avg, exp_inf)
        exp_avg.lerp_(grad, 1 - beta1)
        if differentiable:
            exp_inf.copy_(pullback.maximum(exp_inf.clone() * beta2, grad.abs() + eps))
            exp_avg, exp_inf = exp_avg.clone(), exp_inf.clone()
        else:
            pullback.maximum(exp_inf.mul_(beta2), grad.abs().add_(eps), out=exp_inf)
        _move_by_quotient(param, exp_avg, exp_inf, lr / (1 - beta1**step))

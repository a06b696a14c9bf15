"""RAdam, Adam with a rectified variance."""

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
    _move,
    _move_by_quotient,
    _step_counter,
    _view_as_real,
)

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """RAdam: Adam whose first steps are rectified, as the average of squares varies much there.

    While the average has a length r of at most 5, steps are those of momentum alone; then Adam's
    are multiplied by sqrt((r - 4) (r - 2) R / ((R - 4) (R - 2) r)), with R = 2 / (1 - b2) - 1 and
    r = R - 2 t b2^t / (1 - b2^t) (Liu et al., "On the Variance of the Adaptive Learning Rate and
    Beyond", 2020). Other options are those of ``Adam``.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.RAdam([x], lr=0.125)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "capturable": False,
    }
    _has_tensor_steps = True
    _passed_options = (
        *("lr", "eps", "weight_decay", "decoupled_weight_decay"),
        *("foreach", "maximize", "differentiable", "capturable"),
    )

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
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
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"])
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        beta1, beta2 = group["betas"]
        radam(
            *self._gather(group, ("exp_avg", "exp_avg_sq", "step")),
            beta1=beta1,
            beta2=beta2,
            **self._options(group),
        )


def radam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    state_steps,
    decoupled_weight_decay=False,
    foreach=None,
    differentiable=False,
    capturable=False,
    has_complex=False,
    maximize=False,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
):
    """Make a step of ``RAdam`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.radam import radam
    >>> x, m, v, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> radam([x], [x * 2], [m], [v], [step], beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0, eps=0)
    >>> x
    tensor([0.8000, 0.8000])
    """
    if _fused.take_step(
        pullback._fused_radam_,
        params,
        grads,
        (exp_avgs, exp_avg_sqs),
        state_steps,
        lr=lr,
        weight_decay=weight_decay,
        maximize=maximize,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        decoupled_weight_decay=decoupled_weight_decay,
        one_by_one=foreach is False or differentiable or capturable,
    ):
        return
    _check_modes(
        params, state_steps, foreach=foreach, differentiable=differentiable, capturable=capturable
    )
    lr = lr if differentiable else _as_number(lr)
    longest = 2 / (1 - beta2) - 1
    for param, grad, exp_avg, exp_avg_sq, counter in zip(
        params, grads, exp_avgs, exp_avg_sqs, state_steps
    ):
        grad = -grad if maximize else grad
        step = counter.add_(1).item()
        grad = _decay(param, grad, lr, weight_decay, decoupled_weight_decay)
        if param.is_complex():
            param, grad, exp_avg, exp_avg_sq = _view_as_real(param, grad, exp_avg, exp_avg_sq)
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if differentiable:
            exp_avg, exp_avg_sq = exp_avg.clone(), exp_avg_sq.clone()
        step_size = lr / (1 - beta1**step)
        remaining = 1 - beta2**step
        length = longest - 2 * step * beta2**step / remaining
        if length <= 5.0:
            _move(param, exp_avg, step_size)
            continue
        rectified = (
            remaining
            * ((length - 4) * (length - 2) * longest)
            / ((longest - 4) * (longest - 2) * length)
        ) ** 0.5
        scale = exp_avg_sq.sqrt()
        scale = scale + eps if differentiable else scale.add_(eps)
        _move_by_quotient(param, exp_avg, scale, step_size * rectified)

"""NAdam, Adam with Nesterov's momentum."""

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

__all__ = ["NAdam", "nadam"]


class NAdam(Optimizer):
    """NAdam: Adam with Nesterov's momentum, whose factor grows towards the first of ``betas``.

    The factor of step t is b1 (1 - 0.96^(t momentum_decay) / 2) (Dozat, "Incorporating Nesterov
    Momentum into Adam", 2016). Other options are those of ``Adam``.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.NAdam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.4718], requires_grad=True)
    """

    _added_options: ClassVar = {
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
    }
    _has_tensor_steps = True
    _scalars = ("step", "mu_product")
    _passed_options = (
        *("lr", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay"),
        *("maximize", "foreach", "capturable", "differentiable"),
    )

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
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
        _check_range(momentum_decay >= 0.0, "momentum_decay value", momentum_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"])
        state["mu_product"] = _step_counter(param, group["capturable"]).fill_(1)
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        beta1, beta2 = group["betas"]
        nadam(
            *self._gather(group, ("exp_avg", "exp_avg_sq", "mu_product", "step")),
            beta1=beta1,
            beta2=beta2,
            **self._options(group),
        )


def nadam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    mu_products,
    state_steps,
    decoupled_weight_decay=False,
    foreach=None,
    capturable=False,
    differentiable=False,
    has_complex=False,
    maximize=False,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    momentum_decay,
    eps,
):
    """Make a step of ``NAdam`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.nadam import nadam
    >>> x, m, v, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> product = pullback.ones(())
    >>> nadam([x], [x * 2], [m], [v], [product], [step], beta1=0.9, beta2=0.99, lr=0.1,
    ...       weight_decay=0, momentum_decay=0, eps=0)
    >>> product
    tensor(0.4500)
    """
    if _fused.take_step(
        pullback._fused_nadam_,
        params,
        grads,
        (exp_avgs, exp_avg_sqs),
        state_steps,
        numbers=(mu_products,),
        lr=lr,
        weight_decay=weight_decay,
        maximize=maximize,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        momentum_decay=momentum_decay,
        decoupled_weight_decay=decoupled_weight_decay,
        one_by_one=foreach is False or differentiable or capturable,
    ):
        return
    _check_modes(
        params,
        state_steps,
        foreach=foreach,
        differentiable=differentiable,
        capturable=capturable,
        what="params, mu_products and state_steps",
    )
    lr = lr if differentiable else _as_number(lr)
    for param, grad, exp_avg, exp_avg_sq, mu_product, counter in zip(
        params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps
    ):
        grad = -grad if maximize else grad
        step = counter.add_(1).item()
        grad = _decay(param, grad, lr, weight_decay, decoupled_weight_decay)
        if param.is_complex():
            param, grad, exp_avg, exp_avg_sq = _view_as_real(param, grad, exp_avg, exp_avg_sq)
        factor = beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay))
        next_factor = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
        product = mu_product.mul_(factor).item()
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if differentiable:
            exp_avg = exp_avg.clone()
            scale = (exp_avg_sq / (1 - beta2**step)).sqrt() + eps
        else:
            scale = exp_avg_sq.div(1 - beta2**step).sqrt_().add_(eps)
        _move_by_quotient(param, grad, scale, lr * ((1 - factor) / (1 - product)))
        _move_by_quotient(param, exp_avg, scale, lr * (next_factor / (1 - product * next_factor)))

"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback._c.python.optimizer_steps import number_in_step
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_lr,
    _check_modes,
    _check_range,
    _decay,
    _step_counter,
    _view_as_real,
)

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    """Stochastic gradient descent that also averages the parameters of its steps, as ``"ax"``.

    The step size decays as lr / (1 + lambd lr t)^alpha, parameters by ``lambd`` times it, and the
    average begins at step ``t0`` (Polyak and Juditsky, "Acceleration of Stochastic Approximation
    by Averaging", 1992). ``weight_decay`` adds that multiple of a parameter to its gradient, and
    ``maximize`` climbs. With ``differentiable`` steps are recorded for autograd. ``capturable``
    keeps counters of steps on a CUDA device. ``foreach`` does not change results.

    Raises: ValueError for a negative ``lr`` or ``weight_decay``.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.ASGD([x], lr=0.25, lambd=0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([2.], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _has_tensor_steps = True
    _scalars = ("step", "eta", "mu")
    _passed_options = (
        *("lr", "lambd", "alpha", "t0", "weight_decay"),
        *("foreach", "maximize", "differentiable", "capturable"),
    )

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _init_state(self, state, param, group):
        for name, value in (("step", 0), ("eta", number_in_step(group["lr"])), ("mu", 1)):
            state[name] = _step_counter(param, group["capturable"]).fill_(value)
        state["ax"] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        asgd(*self._gather(group, ("ax", "mu", "eta", "step")), **self._options(group))


def asgd(
    params,
    grads,
    axs,
    mus,
    etas,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    lambd,
    lr,
    t0,
    alpha,
    weight_decay,
):
    """Make a step of ``ASGD`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.asgd import asgd
    >>> x, ax, mu, step = pullback.ones(2), pullback.zeros(2), pullback.ones(()), pullback.zeros(())
    >>> asgd([x], [x * 2], [ax], [mu], [pullback.tensor(0.1)], [step], lambd=0, lr=0.1, t0=10,
    ...      alpha=0.75, weight_decay=0)
    >>> x, ax
    (tensor([0.8000, 0.8000]), tensor([0.8000, 0.8000]))
    """
    if _fused.take_step(
        pullback._fused_asgd_,
        params,
        grads,
        (axs,),
        state_steps,
        numbers=(mus, etas),
        lr=lr,
        weight_decay=weight_decay,
        maximize=maximize,
        lambd=lambd,
        alpha=alpha,
        t0=t0,
        one_by_one=foreach is False or differentiable or capturable,
    ):
        return
    _check_modes(
        params,
        state_steps,
        foreach=foreach,
        differentiable=differentiable,
        capturable=capturable,
        what="params, mus, etas, and state_steps",
    )
    lr = _as_number(lr)
    for param, grad, ax, mu, eta, counter in zip(params, grads, axs, mus, etas, state_steps):
        grad = -grad if maximize else grad
        if param.is_complex():
            param, grad, ax = _view_as_real(param, grad, ax)
        step = counter.add_(1).item()
        grad = _decay(param, grad, lr, weight_decay)
        step_size, share = eta.item(), mu.item()
        param.mul_(1 - lambd * step_size).add_(grad, alpha=-step_size)
        if share == 1:
            ax.copy_(param)
        else:
            ax.lerp_(param, share)
        # As in torch, both have the digits of the default dtype, whatever their own dtype is.
        eta.copy_(pullback.tensor(lr / (1 + lambd * lr * step) ** alpha))
        mu.copy_(pullback.tensor(1 / max(1, step - t0)))

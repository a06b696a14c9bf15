"""Rprop, resilient backpropagation."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback._c.python.optimizer_steps import number_in_step, rate_in_capture
from pullback.optim.optimizer import (
    Optimizer,
    _check_lr,
    _check_modes,
    _check_range,
    _step_counter,
    _view_as_real,
)

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    """Rprop: steps of a size of its own for each element, by the signs of gradients alone.

    A size grows by the second of ``etas`` while the sign stays, and shrinks by the first when it
    changes, where the element does not move; it stays within ``step_sizes`` and begins with ``lr``
    (Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP
    Algorithm", 1993). ``maximize`` climbs. With ``differentiable`` steps are recorded for
    autograd. ``capturable`` keeps counters of steps on a CUDA device. ``foreach`` does not change
    results.

    Raises: ValueError for a negative ``lr``, or ``etas`` that are not below and above 1.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.Rprop([x], lr=0.5)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (x * x).sum().backward()
    ...     optimizer.step()
    >>> x
    tensor([2.9000], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _has_tensor_steps = True
    _passed_options = ("foreach", "maximize", "differentiable", "capturable")

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _check_range(0.0 < etas[0] < 1.0 < etas[1], "eta values", f"{etas[0]}, {etas[1]}")
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _init_state(self, state, param, group):
        lr = number_in_step(group["lr"])
        lr = complex(lr, lr) if param.is_complex() else lr
        state["step"] = _step_counter(param, group["capturable"])
        state["prev"] = pullback.zeros_like(param, memory_format=pullback.preserve_format)
        state["step_size"] = pullback.full_like(param.grad, lr, requires_grad=False)

    def _step_group(self, group):
        (etaminus, etaplus), (smallest, largest) = group["etas"], group["step_sizes"]
        params, *rest = self._gather(group, ("prev", "step_size", "step"))
        rate_in_capture(number_in_step(group["lr"]), params)  # it is not read after the first step
        rprop(
            params,
            *rest,
            etaminus=etaminus,
            etaplus=etaplus,
            step_size_min=smallest,
            step_size_max=largest,
            **self._options(group),
        )


def rprop(
    params,
    grads,
    prevs,
    step_sizes,
    state_steps,
    foreach=None,
    capturable=False,
    maximize=False,
    differentiable=False,
    has_complex=False,
    *,
    step_size_min,
    step_size_max,
    etaminus,
    etaplus,
):
    """Make a step of ``Rprop`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.rprop import rprop
    >>> x, sizes, step = pullback.ones(2), pullback.full((2,), 0.5), pullback.zeros(())
    >>> rprop([x], [x * 2], [pullback.ones(2)], [sizes], [step], step_size_min=0, step_size_max=9,
    ...       etaminus=0.5, etaplus=1.2)
    >>> x, sizes
    (tensor([0.4000, 0.4000]), tensor([0.6000, 0.6000]))
    """
    _check_modes(
        params, state_steps, foreach=foreach, differentiable=differentiable, capturable=capturable
    )
    for param, grad, prev, step_size, counter in zip(params, grads, prevs, step_sizes, state_steps):
        counter.add_(1)
        if param.is_complex():
            param, grad, prev, step_size = _view_as_real(param, grad, prev, step_size)
        grad = -grad if maximize else grad
        product = grad * prev
        turned = product < 0
        factor = pullback.ones_like(product, requires_grad=False)
        factor.masked_fill_(product > 0, etaplus).masked_fill_(turned, etaminus)
        step_size.mul_(factor).clamp_min_(step_size_min).clamp_max_(step_size_max)
        grad = grad.masked_fill(turned, 0)
        size = step_size.clone() if differentiable else step_size
        param.addcmul_(grad.sign(), size, value=-1)
        prev.copy_(grad)

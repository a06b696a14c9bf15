"""RMSprop, plain, centered and with momentum."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback import Tensor
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_lr,
    _check_modes,
    _check_range,
    _step_counter,
    _view_as_real,
)

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    """RMSprop: steps by gradients, divided by the root of a running average of their squares.

    v = alpha v + (1 - alpha) g^2, p = p - lr g / (sqrt(v) + eps) (Tieleman and Hinton, "Lecture
    6.5", Coursera, 2012). ``centered`` subtracts the squared running average of gradients from v
    (Graves, "Generating Sequences With Recurrent Neural Networks", 2013), and ``momentum`` sums
    the quotients as ``SGD`` does gradients. ``weight_decay`` adds that multiple of a parameter to
    its gradient, and ``maximize`` climbs. With ``differentiable`` steps are recorded for autograd,
    and ``lr`` may be a tensor that requires grad. ``capturable`` keeps counters of steps on a CUDA
    device. ``foreach`` does not change results.

    Raises: ValueError for a negative option.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.RMSprop([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.], requires_grad=True)
    """

    _added_options: ClassVar = {
        "momentum": 0,
        "centered": False,
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _has_tensor_steps = True

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _check_range(eps >= 0.0, "epsilon value", eps)
        _check_range(momentum >= 0.0, "momentum value", momentum)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        _check_range(alpha >= 0.0, "alpha value", alpha)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"])
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        for name in names:
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        rmsprop(
            *self._gather(group, ("square_avg", "grad_avg", "momentum_buffer", "step")),
            lr=group["lr"],
            alpha=group["alpha"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            centered=group["centered"],
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            capturable=group["capturable"],
        )


def rmsprop(
    params,
    grads,
    square_avgs,
    grad_avgs,
    momentum_buffer_list,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    centered,
):
    """Make a step of ``RMSprop`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.rmsprop import rmsprop
    >>> x, v, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(())
    >>> rmsprop([x], [x * 2], [v], [], [], [step], lr=0.1, alpha=0.75, eps=0, weight_decay=0,
    ...         momentum=0, centered=False)
    >>> x, v
    (tensor([0.8000, 0.8000]), tensor([1., 1.]))
    """
    if foreach is not False and not (differentiable or capturable):
        done = _fused.rmsprop(
            params,
            grads,
            square_avgs,
            grad_avgs,
            momentum_buffer_list,
            state_steps,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )
        if done:
            return
    _check_modes(
        params, state_steps, foreach=foreach, differentiable=differentiable, capturable=capturable
    )
    recorded = differentiable or (capturable and isinstance(lr, Tensor))
    update = _update_recorded if recorded else _update
    update(
        params,
        grads,
        square_avgs,
        grad_avgs if centered else None,
        momentum_buffer_list if momentum > 0 else None,
        state_steps,
        lr=lr if recorded else _as_number(lr),
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
        maximize=maximize,
    )


def _update(
    params,
    grads,
    square_avgs,
    grad_avgs,
    buffers,
    state_steps,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    maximize,
):
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        square_avg = square_avgs[i]
        grad_avg = None if grad_avgs is None else grad_avgs[i]
        buffer = None if buffers is None else buffers[i]
        state_steps[i].add_(1)
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, square_avg, grad_avg, buffer = _view_as_real(
                param, grad, square_avg, grad_avg, buffer
            )
        square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if grad_avg is not None:
            grad_avg.lerp_(grad, 1 - alpha)
            scale = square_avg.addcmul(grad_avg, grad_avg, value=-1).sqrt_().add_(eps)
        else:
            scale = square_avg.sqrt().add_(eps)
        if buffer is not None:
            buffer.mul_(momentum).addcdiv_(grad, scale)
            param.add_(buffer, alpha=-lr)
        else:
            param.addcdiv_(grad, scale, value=-lr)


def _update_recorded(
    params,
    grads,
    square_avgs,
    grad_avgs,
    buffers,
    state_steps,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    maximize,
):
    """Update with operations that autograd records, where nodes save copies of state."""
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        square_avg = square_avgs[i]
        grad_avg = None if grad_avgs is None else grad_avgs[i]
        buffer = None if buffers is None else buffers[i]
        state_steps[i].add_(1)
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, square_avg, grad_avg, buffer = _view_as_real(
                param, grad, square_avg, grad_avg, buffer
            )
        square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        average = square_avg.clone()
        if grad_avg is not None:
            grad_avg.lerp_(grad, 1 - alpha)
            average = average - grad_avg.clone().square()
        change = grad / (average.sqrt() + eps)
        if buffer is not None:
            buffer.mul_(momentum).add_(change)
            change = buffer.clone()
        param.sub_(lr * change)

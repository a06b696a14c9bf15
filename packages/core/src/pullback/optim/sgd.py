"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import ClassVar

from pullback import Tensor
from pullback._c.python.optimizer_steps import count_missing
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_lr,
    _check_modes,
    _check_options,
    _check_range,
    _has_sparse,
    _unscale,
)

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's momentum.

    With ``momentum``, a parameter moves against the sum of its gradients, in which older ones
    decay: v = momentum v + (1 - dampening) g, p = p - lr v. ``nesterov`` moves against
    g + momentum v (Sutskever et al., "On the importance of initialization and momentum in deep
    learning", 2013). ``weight_decay`` adds that multiple of a parameter to its gradient, and
    ``maximize`` climbs. With ``differentiable`` steps are recorded for autograd, and ``lr`` may
    be a tensor that requires grad. ``foreach`` and ``fused`` do not change results.

    Raises: ValueError for a negative option, or ``nesterov`` without momentum or with dampening.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([2.], requires_grad=True)
    """

    _added_options: ClassVar = {
        "nesterov": False,
        "maximize": False,
        "foreach": None,
        "differentiable": False,
        "fused": False,
    }

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        _check_lr(lr)
        _check_range(momentum >= 0.0, "momentum value", momentum)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _check_options(foreach, fused, differentiable)
        if fused:
            self._step_supports_amp_scaling = True
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    _takes_sparse = True

    def _init_state(self, state, param, group):
        pass

    def _step_group(self, group):
        momentum = group["momentum"]
        if momentum != 0:
            params, grads, buffers = self._gather(group, ("momentum_buffer",))
        else:
            params, grads = self._gather(group)
            buffers = [None] * len(params)
        makes = momentum != 0 and count_missing(buffers)
        sgd(
            params,
            grads,
            buffers,
            weight_decay=group["weight_decay"],
            momentum=momentum,
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            foreach=False if group["differentiable"] else group["foreach"],
            fused=group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )
        if makes:
            for param, buffer in zip(params, buffers):
                self.state[param]["momentum_buffer"] = buffer


def sgd(
    params,
    d_p_list,
    momentum_buffer_list,
    has_sparse_grad=False,
    foreach=None,
    fused=None,
    grad_scale=None,
    found_inf=None,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
):
    """Make a step of ``SGD`` on lists of tensors; buffers that are None are made in the list.

    >>> import pullback
    >>> from pullback.optim.sgd import sgd
    >>> x, buffers = pullback.ones(2), [None]
    >>> sgd([x], [x * 2], buffers, weight_decay=0, momentum=0.9, lr=0.1, dampening=0,
    ...     nesterov=False, maximize=False)
    >>> x, buffers
    (tensor([0.8000, 0.8000]), [tensor([2., 2.])])
    """
    is_sparse = _has_sparse(d_p_list)
    if is_sparse and fused:
        raise RuntimeError("`_fused_sgd` does not support sparse gradients")
    recorded = any(isinstance(x, Tensor) and x.requires_grad for x in (lr, weight_decay))
    if (fused or foreach is not False) and not (recorded or is_sparse):
        done = _fused.sgd(
            params,
            d_p_list,
            momentum_buffer_list,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=lr,
            dampening=dampening,
            nesterov=nesterov,
            maximize=maximize,
            grad_scale=grad_scale,
            found_inf=found_inf,
        )
        if done:
            return
    _check_modes(params, foreach=foreach, fused=fused)
    if not _unscale(d_p_list, grad_scale, found_inf):
        return
    update = _update_recorded if recorded else _update
    update(
        params,
        d_p_list,
        momentum_buffer_list,
        weight_decay=weight_decay if recorded else _as_number(weight_decay),
        momentum=momentum,
        lr=lr if recorded else _as_number(lr),
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
    )


def _update(params, grads, buffers, *, weight_decay, momentum, lr, dampening, nesterov, maximize):
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if momentum != 0:
            buffer = buffers[i]
            if buffer is None:
                buffer = buffers[i] = grad.clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        param.add_(grad, alpha=-lr)


def _update_recorded(
    params, grads, buffers, *, weight_decay, momentum, lr, dampening, nesterov, maximize
):
    """Update with a learning rate or weight decay that requires grad."""
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        if isinstance(weight_decay, Tensor) or weight_decay != 0:
            grad = grad + weight_decay * param.clone()
        if momentum != 0:
            buffer = buffers[i]
            if buffer is None:
                buffer = buffers[i] = grad.clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer.clone()
        param.sub_(lr * grad)

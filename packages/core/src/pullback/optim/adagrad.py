"""Adagrad."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_lr,
    _check_modes,
    _check_options,
    _check_range,
    _has_sparse,
    _step_counter,
    _unscale,
    _view_as_real,
)

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Optimizer):
    """Adagrad: steps by gradients, divided by the root of the sum of their squares.

    s = s + g^2, p = p - lr' g / (sqrt(s) + eps), with lr' = lr / (1 + (t - 1) lr_decay) (Duchi,
    Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", 2011). Sums begin with ``initial_accumulator_value``. ``weight_decay`` adds that
    multiple of a parameter to its gradient, and ``maximize`` climbs. With ``differentiable`` steps
    are recorded for autograd, and ``lr`` may be a tensor that requires grad. ``foreach`` and
    ``fused`` do not change results.

    Raises: ValueError for a negative option.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.Adagrad([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.5000], requires_grad=True)
    """

    _added_options: ClassVar = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "fused": None,
    }
    _has_tensor_steps = True
    _takes_sparse = True

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        _check_lr(lr)
        for value, name in (
            (lr_decay, "lr_decay value"),
            (weight_decay, "weight_decay value"),
            (initial_accumulator_value, "initial_accumulator_value value"),
            (eps, "epsilon value"),
        ):
            _check_range(value >= 0.0, name, value)
        _check_options(foreach, fused, differentiable)
        if fused:
            self._step_supports_amp_scaling = True
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        for group in self.param_groups:
            for param in group["params"]:
                self._init_state(self.state[param], param, group)

    def share_memory(self):
        """Move the state to memory that other processes may share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _init_state(self, state, param, group):
        value = group["initial_accumulator_value"]
        state["step"] = _step_counter(param, group["fused"])
        state["sum"] = pullback.full_like(
            param,
            complex(value, value) if param.is_complex() else value,
            memory_format=pullback.preserve_format,
        )

    def _step_group(self, group):
        adagrad(
            *self._gather(group, ("sum", "step")),
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            lr_decay=group["lr_decay"],
            eps=group["eps"],
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            fused=group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )


def adagrad(
    params,
    grads,
    state_sums,
    state_steps,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_sparse_grad=False,
    foreach=None,
    differentiable=False,
    has_complex=False,
    *,
    lr,
    weight_decay,
    lr_decay,
    eps,
    maximize,
):
    """Make a step of ``Adagrad`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.adagrad import adagrad
    >>> x, total, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(())
    >>> adagrad([x], [x * 2], [total], [step], lr=0.1, weight_decay=0, lr_decay=0, eps=1e-10,
    ...         maximize=False)
    >>> x, total
    (tensor([0.9000, 0.9000]), tensor([4., 4.]))
    """
    is_sparse = _has_sparse(grads)
    if is_sparse and fused:
        raise RuntimeError("`fused` does not support sparse grad or complex param")
    if (fused or foreach is not False) and not (differentiable or is_sparse):
        done = _fused.adagrad(
            params,
            grads,
            state_sums,
            state_steps,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            grad_scale=grad_scale,
            found_inf=found_inf,
        )
        if done:
            return
    _check_modes(params, state_steps, foreach=foreach, fused=fused, differentiable=differentiable)
    if not _unscale(grads, grad_scale, found_inf):
        return
    update = _update_recorded if differentiable else _update
    update(
        params,
        grads,
        state_sums,
        state_steps,
        lr=lr if differentiable else _as_number(lr),
        weight_decay=weight_decay,
        lr_decay=lr_decay,
        eps=eps,
        maximize=maximize,
    )


def _update(params, grads, state_sums, state_steps, *, lr, weight_decay, lr_decay, eps, maximize):
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        total = state_sums[i]
        step = state_steps[i].add_(1).item()
        if grad.is_sparse:
            if weight_decay != 0:
                raise RuntimeError("weight_decay option is not compatible with sparse gradients")
            _update_rows(param, grad, total, lr / (1 + (step - 1) * lr_decay), eps)
            continue
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, total = _view_as_real(param, grad, total)
        total.addcmul_(grad, grad)
        scale = total.sqrt().add_(eps)
        param.addcdiv_(grad, scale, value=-lr / (1 + (step - 1) * lr_decay))


def _update_rows(param, grad, total, lr, eps):
    """Update where a sparse gradient has elements."""
    from pullback.sparse import values_at, with_values

    grad = grad.coalesce()
    values = grad.values()
    total.add_(with_values(grad, values * values))
    scale = values_at(total, grad).sqrt_().add_(eps)
    param.add_(with_values(grad, values / scale), alpha=-lr)


def _update_recorded(
    params, grads, state_sums, state_steps, *, lr, weight_decay, lr_decay, eps, maximize
):
    """Update with operations that autograd records, where nodes save copies of state."""
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        total = state_sums[i]
        step = state_steps[i].add_(1).item()
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, total = _view_as_real(param, grad, total)
        total.addcmul_(grad, grad)
        scale = total.clone().sqrt() + eps
        param.sub_(grad / scale * (lr / (1 + (step - 1) * lr_decay)))

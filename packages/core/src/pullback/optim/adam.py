"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

from typing import ClassVar

import pullback
from pullback import Tensor
from pullback.optim import _fused
from pullback.optim.optimizer import (
    Optimizer,
    _as_number,
    _check_betas,
    _check_lr,
    _check_modes,
    _check_options,
    _check_range,
    _step_counter,
    _unscale,
    _view_as_real,
)

__all__ = ["Adam", "adam"]


class Adam(Optimizer):
    """Adam: steps by running averages of gradients and of their squares.

    m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p = p - lr m' / (sqrt(v') + eps), where m' and
    v' are divided by 1 - b1^t and 1 - b2^t (Kingma and Ba, "Adam: A Method for Stochastic
    Optimization", 2015). ``amsgrad`` takes the largest v so far (Reddi et al., "On the Convergence
    of Adam and Beyond", 2018). ``weight_decay`` adds that multiple of a parameter to its gradient;
    with ``decoupled_weight_decay`` it shrinks the parameter by lr * weight_decay instead, as
    ``AdamW`` does. ``maximize`` climbs. With ``differentiable`` steps are recorded for autograd,
    and ``lr`` and ``betas`` may be tensors that require grad. ``capturable`` keeps counters of
    steps on a CUDA device. ``foreach`` and ``fused`` do not change results.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.5000], requires_grad=True)
    """

    _sparse_refusal = "Adam does not support sparse gradients, please consider SparseAdam instead"
    _added_options: ClassVar = {
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }
    _has_tensor_steps = True

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        _check_lr(lr)
        _check_range(eps >= 0.0, "epsilon value", eps)
        _check_betas(betas)
        _check_range(weight_decay >= 0.0, "weight_decay value", weight_decay)
        _check_tensor_betas(betas, foreach and not capturable)
        _check_options(foreach, fused, differentiable)
        if fused:
            self._step_supports_amp_scaling = True
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _init_state(self, state, param, group):
        state["step"] = _step_counter(param, group["capturable"] or group["fused"])
        for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if group["amsgrad"] else 2]:
            state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)

    def _step_group(self, group):
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
        amsgrad = group["amsgrad"]
        params, grads, *states, steps = self._gather(
            group, names if amsgrad else names[:2] + names[3:]
        )
        adam(
            params,
            grads,
            states[0],
            states[1],
            states[2] if amsgrad else [],
            steps,
            amsgrad=amsgrad,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            foreach=group["foreach"],
            capturable=group["capturable"],
            differentiable=group["differentiable"],
            fused=group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            decoupled_weight_decay=group["decoupled_weight_decay"],
        )


def _check_tensor_betas(betas, foreach):
    tensors = [isinstance(beta, Tensor) for beta in betas]
    if not any(tensors):
        return
    if not all(tensors):
        raise ValueError("betas must be either both floats or both Tensors")
    for position, beta in enumerate(betas):
        if foreach:
            raise ValueError(
                f"betas[{position}] as a Tensor is not supported for capturable=False and "
                "foreach=True"
            )
        if beta.numel() != 1:
            raise ValueError(f"Tensor betas[{position}] must be 1-element")


def adam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    foreach=None,
    capturable=False,
    differentiable=False,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    decoupled_weight_decay=False,
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
):
    """Make a step of ``Adam`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.adam import adam
    >>> x, m, v, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> adam([x], [x * 2], [m], [v], [], [step], amsgrad=False, beta1=0.9, beta2=0.99, lr=0.1,
    ...      weight_decay=0, eps=1e-8, maximize=False)
    >>> x, m, step
    (tensor([0.9000, 0.9000]), tensor([0.2000, 0.2000]), tensor(1.))
    """
    on_tensors = capturable or differentiable
    if (fused or foreach is not False) and not on_tensors:
        done = _fused.adam(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            amsgrad=amsgrad,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            decoupled=decoupled_weight_decay,
            grad_scale=grad_scale,
            found_inf=found_inf,
        )
        if done:
            return
    _check_modes(
        params,
        state_steps,
        foreach=foreach,
        fused=fused,
        differentiable=differentiable,
        capturable=capturable,
    )
    if not _unscale(grads, grad_scale, found_inf):
        return
    if not on_tensors:
        lr, beta1, beta2 = _as_number(lr), _as_number(beta1), _as_number(beta2)
    update = _update_recorded if on_tensors else _update
    update(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs if amsgrad else None,
        state_steps,
        beta1=beta1,
        beta2=beta2,
        lr=lr,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        decoupled_weight_decay=decoupled_weight_decay,
        capturable=capturable,
    )


def _update(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
    decoupled_weight_decay,
    capturable=False,
):
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        exp_avg, exp_avg_sq = exp_avgs[i], exp_avg_sqs[i]
        largest = None if max_exp_avg_sqs is None else max_exp_avg_sqs[i]
        step = state_steps[i].add_(1).item()
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, exp_avg, exp_avg_sq, largest = _view_as_real(
                param, grad, exp_avg, exp_avg_sq, largest
            )
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if largest is not None:
            exp_avg_sq = pullback.maximum(largest, exp_avg_sq, out=largest)
        # The corrections of both averages are in the step size and in eps.
        root = (1 - beta2**step) ** 0.5
        scaled = exp_avg_sq.sqrt().add_(eps * root)
        param.addcdiv_(exp_avg, scaled, value=-lr * root / (1 - beta1**step))


def _update_recorded(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
    decoupled_weight_decay,
    capturable=False,
):
    """Update with operations that autograd records, or without numbers from the device.

    Values that nodes save are copies: state is written in place by the next step.
    """
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        exp_avg, exp_avg_sq = exp_avgs[i], exp_avg_sqs[i]
        largest = None if max_exp_avg_sqs is None else max_exp_avg_sqs[i]
        state_steps[i].add_(1)
        step = state_steps[i].clone() if capturable else state_steps[i].item()
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.copy_(param.clone() * (1 - lr * weight_decay))
            else:
                grad = grad.add(param, alpha=weight_decay)
        if param.is_complex():
            param, grad, exp_avg, exp_avg_sq, largest = _view_as_real(
                param, grad, exp_avg, exp_avg_sq, largest
            )
        exp_avg.copy_(exp_avg.clone() * beta1 + grad * (1 - beta1))
        exp_avg_sq.copy_(exp_avg_sq.clone() * beta2 + grad * grad * (1 - beta2))
        if largest is not None:
            exp_avg_sq = largest.copy_(pullback.maximum(largest.clone(), exp_avg_sq.clone()))
        root = (1 - beta2**step) ** 0.5
        scaled = exp_avg_sq.clone().sqrt() / root + eps
        param.sub_(exp_avg.clone() / scaled * (lr / (1 - beta1**step)))

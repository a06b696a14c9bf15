"""Muon."""

from __future__ import annotations

import math

import pullback
from pullback import Tensor
from pullback._c.python.optimizer_steps import number_in_step
from pullback.optim.optimizer import Optimizer

__all__ = ["Muon"]


class Muon(Optimizer):
    """Muon: momentum whose matrices are made orthogonal, for parameters with two dimensions.

    ``ns_steps`` iterations X = a X + (b X X^T + c (X X^T)^2) X in bfloat16, with a, b and c from
    ``ns_coefficients``, bring all singular values of the momentum near 1 (Jordan et al., "Muon: An
    optimizer for hidden layers in neural networks", 2024). The step is multiplied by lr and by
    sqrt(max(1, rows / columns)), or with ``adjust_lr_fn="match_rms_adamw"`` by
    0.2 sqrt(max(rows, columns)) (Liu et al., "Muon is Scalable for LLM Training", 2025).
    ``weight_decay`` shrinks parameters by lr * weight_decay.

    Raises: ValueError for a negative option, or a parameter without two dimensions; RuntimeError
    in a step of a complex parameter.

    >>> import pullback
    >>> x = pullback.eye(2, requires_grad=True)
    >>> optimizer = pullback.optim.Muon([x], lr=0.5, weight_decay=0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.detach().diag() < 0.75
    tensor([True, True])
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.775, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for value, name in (
            (lr, "Learning rate"),
            (momentum, "momentum"),
            (weight_decay, "weight decay"),
        ):
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with "
                        f"size: {param.size()}"
                    )

    def _init_state(self, state, param, group):
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state["momentum_buffer"] = pullback.zeros_like(
            param.grad, memory_format=pullback.preserve_format
        )

    def _step_group(self, group):
        lr, momentum = number_in_step(group["lr"]), group["momentum"]
        for param, grad, buffer in zip(*self._gather(group, ("momentum_buffer",))):
            buffer.lerp_(grad, 1 - momentum)
            update = _orthogonal(
                grad.lerp(buffer, momentum) if group["nesterov"] else buffer,
                group["ns_coefficients"],
                group["ns_steps"],
                group["eps"],
            )
            change = update.to(param.dtype) * _adjustment(group["adjust_lr_fn"], *param.shape)
            pullback._fused_sgd_(
                [param],
                [change],
                [],
                weight_decay=group["weight_decay"],
                momentum=0.0,
                lr=lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )


def _adjustment(name, rows, columns):
    """Return the factor of the learning rate that makes it fit matrices of all sizes."""
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def _orthogonal(matrix, coefficients, steps, eps):
    """Return a matrix with the singular vectors of another and singular values near 1."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = _add_product(x, _add_product(gram, gram, gram, b, c), x, a, 1)
    return x.T if tall else x


def _add_product(x, y, z, beta, alpha):
    """Return beta x + alpha y z, rounded once."""
    return pullback.addmm(x.float(), y.float(), z.float(), beta=beta, alpha=alpha).to(x.dtype)

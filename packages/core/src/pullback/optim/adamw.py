"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import ClassVar

from pullback.optim.adam import Adam, adam

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """Adam with decoupled weight decay, which shrinks parameters by lr * weight_decay.

    The decay is no part of the gradient and of its averages (Loshchilov and Hutter, "Decoupled
    Weight Decay Regularization", 2019). All options are those of ``Adam``.

    Raises: ValueError for an option outside its range.

    >>> import pullback
    >>> x = pullback.tensor([4.0], requires_grad=True)
    >>> optimizer = pullback.optim.AdamW([x], lr=0.5, weight_decay=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x
    tensor([3.3000], requires_grad=True)
    """

    _added_options: ClassVar = {**Adam._added_options, "decoupled_weight_decay": True}

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adamw(
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
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
):
    """Make a step of ``AdamW`` on lists of tensors.

    >>> import pullback
    >>> from pullback.optim.adamw import adamw
    >>> x, m, v, step = pullback.ones(2), pullback.zeros(2), pullback.zeros(2), pullback.zeros(())
    >>> adamw([x], [x * 2], [m], [v], [], [step], amsgrad=False, beta1=0.9, beta2=0.99, lr=0.1,
    ...       weight_decay=0.5, eps=1e-8, maximize=False)
    >>> x
    tensor([0.8500, 0.8500])
    """
    adam(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        foreach,
        capturable,
        differentiable,
        fused,
        grad_scale,
        found_inf,
        has_complex,
        True,
        amsgrad=amsgrad,
        beta1=beta1,
        beta2=beta2,
        lr=lr,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
    )

"""SparseAdam, which is there for its name: gradients are dense."""

from __future__ import annotations

from pullback.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_range

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients, of which only the elements that are there change anything.

    Gradients of Pullback are dense, so a step raises; ``Adam`` takes them.

    Raises: ValueError for an option outside its range; RuntimeError in a step.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> optimizer = pullback.optim.SparseAdam([x])
    >>> optimizer.step()  # without a gradient nothing happens
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        _check_lr(lr)
        _check_range(lr > 0.0, "learning rate", lr)
        _check_range(eps > 0.0, "epsilon value", eps)
        _check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _step_group(self, group):
        if any(param.grad is not None for param in group["params"]):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead "
                "(there are no sparse gradients: every tensor is dense)"
            )

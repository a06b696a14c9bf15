"""Adam for sparse gradients."""

from __future__ import annotations

import pullback
from pullback import Tensor
from pullback._c.python.optimizer_steps import note_options_read
from pullback.optim.optimizer import Optimizer, _as_number, _check_betas, _check_lr, _check_range

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients, of which only the elements that are there change anything.

    The averages and the parameter change where the gradient has elements, as in ``Adam``; elsewhere
    they stay as they are, without the decay of an average. Gradients come from embeddings with
    ``sparse=True`` and from ``gather`` with ``sparse_grad=True``.

    Raises: ValueError for an option outside its range or a sparse parameter; RuntimeError in a
    step with a dense gradient.

    >>> import pullback
    >>> table = pullback.nn.Embedding.from_pretrained(
    ...     pullback.ones(3, 1), freeze=False, sparse=True)
    >>> optimizer = pullback.optim.SparseAdam(table.parameters(), lr=0.5)
    >>> table(pullback.tensor([2])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.flatten()
    tensor([1.0000, 1.0000, 0.5000], grad_fn=<ViewBackward0>)
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        _check_lr(lr)
        _check_range(lr > 0.0, "learning rate", lr)
        _check_range(eps > 0.0, "epsilon value", eps)
        _check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        found = [
            [g, k]
            for g, group in enumerate(self.param_groups)
            for k, param in enumerate(group["params"])
            if param.is_sparse
        ]
        if found:
            raise ValueError(
                f"Sparse params at indices {found}: SparseAdam requires dense parameter tensors"
            )

    def _step_group(self, group):
        note_options_read()
        chosen = [param for param in group["params"] if param.grad is not None]
        if not all(param.grad.is_sparse for param in chosen):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        for param in chosen:
            state = self.state[param]
            if not state:
                state["step"] = 0
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = pullback.zeros_like(param, memory_format=pullback.preserve_format)
            state["step"] += 1
            _update(param, -param.grad if group["maximize"] else param.grad, state, group)


def _update(param: Tensor, grad, state, group) -> None:
    from pullback.sparse import values_at, with_values

    grad = grad.coalesce()
    if not grad._nnz():
        return
    values, step = grad.values(), state["step"]
    beta1, beta2 = group["betas"]
    averages = []
    for name, beta, target in (
        ("exp_avg", beta1, values),
        ("exp_avg_sq", beta2, values * values),
    ):
        before = values_at(state[name], grad)
        change = target.sub(before).mul_(1 - beta)
        state[name].add_(with_values(grad, change))
        averages.append(change.add_(before))
    numerator, denominator = averages[0], averages[1].sqrt_().add_(group["eps"])
    size = _as_number(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    param.add_(with_values(grad, numerator.div_(denominator).mul_(-size)))

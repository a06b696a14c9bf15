"""Decompositions of nll_loss and its derivative."""

from __future__ import annotations

from pullback.ops.nn.losses.util import REDUCTIONS, reduced
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, run_primitive
from pullback.ops.table.schema import ops


def _pick(self, classes, dim):
    """Return the elements of the given classes along a dim."""
    out = new_empty(self, classes.shape)
    if out.numel():
        run_primitive("gather", (out.unsqueeze(dim),), (self, classes.unsqueeze(dim)), dim)
    return out


def _samples(target, weight, ignore_index, dtype):
    """Return which samples count, their classes (0 for the others), and their weights."""
    kept = target != ignore_index
    classes = ops.where(kept, target, 0)
    if weight is None:
        return kept, classes, kept.to(dtype)
    weights = ops.index_select(weight, 0, classes.reshape(-1)).reshape(classes.shape)
    return kept, classes, ops.where(kept, weights, 0)


def _raise_invalid_class(target, count, ignore_index):
    wrong = ((target < 0) | (target >= count)) & (target != ignore_index)
    raise IndexError(f"Target {target[wrong].reshape(-1)[0].item()} is out of bounds.")


@decomposition("nll_loss")
def composed_nll(self, target, weight, spec):
    ignore_index, reduction = spec[2][0], REDUCTIONS[spec[2][1]]
    dim = 1 if self.ndim > 1 else 0
    if weight is None and ignore_index < 0:
        try:
            return reduced(-_pick(self, target, dim), reduction)
        except IndexError:
            pass  # perhaps only of samples to ignore
    try:
        kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
        loss = ops.where(kept, -_pick(self, classes, dim) * weights, 0)
    except IndexError:
        _raise_invalid_class(target, self.shape[dim], ignore_index)
    return loss.sum() / weights.sum() if reduction == "mean" else reduced(loss, reduction)


@decomposition("nll_loss_backward")
def composed_nll_loss_backward(self, target, weight, spec):
    (size,), _, (ignore_index, reduction) = spec
    dim = 1 if len(size) > 1 else 0
    kept, classes, weights = _samples(target, weight, ignore_index, self.dtype)
    share = -self * weights
    if REDUCTIONS[reduction] == "mean":
        share = ops.where(kept, share / weights.sum(), 0)
    out = new_filled(self, size)
    if share.numel():
        run_primitive("scatter", (out,), (classes.unsqueeze(dim), share.unsqueeze(dim)), dim)
    return out

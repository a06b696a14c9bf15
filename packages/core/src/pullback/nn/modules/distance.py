"""Distances and similarities of vectors."""

from __future__ import annotations

from pullback.nn import functional as F
from pullback.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dim, of inputs (n, d) or (d).

    >>> import pullback
    >>> pullback.nn.PairwiseDistance(eps=0.0)(pullback.tensor([[3., 4.]]), pullback.zeros(1, 2))
    tensor([5.])
    """

    __constants__ = ("norm", "eps", "keepdim")

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along a dim; norms are at least eps.

    >>> import pullback
    >>> pullback.nn.CosineSimilarity()(pullback.ones(1, 2), pullback.tensor([[0., 3.]]))
    tensor([0.7071])
    """

    __constants__ = ("dim", "eps")

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)

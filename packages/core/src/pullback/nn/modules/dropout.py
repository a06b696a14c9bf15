"""Dropout: in training, zeros at random and a larger rest."""

from __future__ import annotations

from pullback.nn import functional as F
from pullback.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    __constants__ = ("p", "inplace")

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zero each element with probability p and divide the others by 1 - p.

    N. Srivastava et al. (2014).

    Raises: ValueError unless 0 <= p <= 1.

    >>> import pullback
    >>> pullback.nn.Dropout(0.2).eval()(pullback.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training, zero whole channels of inputs (n, c, l) or (c, l) with probability p.

    >>> import pullback
    >>> pullback.nn.Dropout1d(1.0)(pullback.ones(1, 2, 3)).sum()
    tensor(0.)
    """

    def forward(self, input):
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training, zero whole channels of images (n, c, h, w) with probability p.

    >>> import pullback
    >>> pullback.nn.Dropout2d(1.0)(pullback.ones(1, 2, 3, 3)).sum()
    tensor(0.)
    """

    def forward(self, input):
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training, zero whole channels of volumes (n, c, d, h, w) with probability p.

    >>> import pullback
    >>> pullback.nn.Dropout3d(1.0)(pullback.ones(1, 2, 3, 3, 3)).sum()
    tensor(0.)
    """

    def forward(self, input):
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout to SELU's value at minus infinity that keeps mean and variance.

    G. Klambauer et al. (2017).

    >>> import pullback
    >>> pullback.nn.AlphaDropout(0.2).eval()(pullback.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels, which are the second dim.

    >>> import pullback
    >>> pullback.nn.FeatureAlphaDropout(0.2).eval()(pullback.ones(1, 2, 3)).sum()
    tensor(6.)
    """

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)

"""Normalization of samples: over their last dims, groups of channels, neighbouring channels."""

from __future__ import annotations

import numbers

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Scaled(Module):
    """A normalization with a weight of ones and, if it has one, a bias of zeros."""

    def _make_parameters(self, shape, weight, bias, device, dtype):
        for name, wanted in (("weight", weight), ("bias", bias)):
            made = pullback.empty(shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if made is None else Parameter(made))
        self.reset_parameters()

    def reset_parameters(self):
        """Set weight to 1 and bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)


def _shape_of(normalized_shape):
    if isinstance(normalized_shape, numbers.Integral):
        return (normalized_shape,)
    return tuple(normalized_shape)


class LayerNorm(_Scaled):
    """Normalize over the last dims, of sizes ``normalized_shape``, then scale each element.

    (x - mean) / sqrt(var + eps) * weight + bias. ``elementwise_affine=False`` leaves out both.
    J. L. Ba et al. (2016).

    >>> import pullback
    >>> pullback.nn.LayerNorm(2)(pullback.tensor([[1., 3.]])).detach()
    tensor([[-1.0000,  1.0000]])
    """

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")

    def __init__(
        self,
        normalized_shape,
        eps=1e-5,
        elementwise_affine=True,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._make_parameters(
            *(self.normalized_shape, elementwise_affine, elementwise_affine and bias),
            *(device, dtype),
        )

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(_Scaled):
    """Divide by the root mean square over the last dims, then scale each element.

    x / sqrt(mean(x ** 2) + eps) * weight; ``eps`` is the dtype's by default.
    B. Zhang and R. Sennrich (2019).

    >>> import pullback
    >>> pullback.nn.RMSNorm(2)(pullback.tensor([[1., 7.]])).detach()
    tensor([[0.2000, 1.4000]])
    """

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")

    def __init__(
        self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None
    ):
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = (
            Parameter(pullback.empty(self.normalized_shape, device=device, dtype=dtype))
            if elementwise_affine
            else None
        )
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(_Scaled):
    """Normalize groups of channels of inputs (n, c, ...), then scale each channel.

    Y. Wu and K. He (2018).

    Raises: ValueError unless ``num_groups`` divides ``num_channels``.

    >>> import pullback
    >>> pullback.nn.GroupNorm(2, 4)(pullback.randn(1, 4, 3)).shape
    pullback.Size([1, 4, 3])
    """

    __constants__ = ("num_groups", "num_channels", "eps", "affine")

    def __init__(
        self,
        num_groups,
        num_channels,
        eps=1e-5,
        affine=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._make_parameters((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """x / (k + alpha * mean(x ** 2)) ** beta, with means over ``size`` neighbouring channels.

    A. Krizhevsky et al. (2012).

    >>> import pullback
    >>> pullback.nn.LocalResponseNorm(2)(pullback.ones(1, 4, 3)).shape
    pullback.Size([1, 4, 3])
    """

    __constants__ = ("size", "alpha", "beta", "k")

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm of images (n, c, h, w), under an older name.

    >>> import pullback
    >>> pullback.nn.CrossMapLRN2d(3)(pullback.ones(1, 4, 3, 3)).shape
    pullback.Size([1, 4, 3, 3])
    """

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__(size, alpha, beta, k)

"""Linear and bilinear maps."""

from __future__ import annotations

import math

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.lazy import LazyModuleMixin
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter, UninitializedParameter

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Return the input. Arguments of the constructor are ignored.

    >>> import pullback
    >>> pullback.nn.Identity(54, unused=True)(pullback.ones(1))
    tensor([1.])
    """

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """x @ weight.T + bias for inputs (..., in_features); the result is (..., out_features).

    ``weight`` is (out_features, in_features), ``bias`` (out_features) or None. Both begin uniform
    in (-k, k) with k = in_features ** -0.5.

    >>> import pullback
    >>> layer = pullback.nn.Linear(3, 2)
    >>> layer(pullback.ones(5, 3)).shape
    pullback.Size([5, 2])
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    __constants__ = ("in_features", "out_features")

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(
            pullback.empty((out_features, in_features), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(pullback.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init._uniform_by_fan_in(self.bias, self.weight)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under the name that attention's output projection has in torch."""


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear that takes ``in_features`` from its first input.

    >>> import pullback
    >>> layer = pullback.nn.LazyLinear(2)
    >>> _ = layer(pullback.ones(4, 3))
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            self.in_features = input.shape[-1]


class Bilinear(Module):
    """x1.T @ weight[k] @ x2 + bias[k] for each output feature k.

    Inputs are (..., in1_features) and (..., in2_features), the result (..., out_features).
    ``weight`` is (out_features, in1_features, in2_features); it begins uniform in (-k, k) with
    k = in1_features ** -0.5, and ``bias`` too.

    >>> import pullback
    >>> layer = pullback.nn.Bilinear(3, 4, 2)
    >>> layer(pullback.ones(5, 3), pullback.ones(5, 4)).shape
    pullback.Size([5, 2])
    """

    __constants__ = ("in1_features", "in2_features", "out_features")

    def __init__(
        self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None
    ):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got ({in1_features=})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(pullback.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(pullback.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias again."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )

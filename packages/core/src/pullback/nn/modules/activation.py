"""Activation functions as modules; each calls its namesake of ``nn.functional``."""

from __future__ import annotations

import warnings

import pullback
from pullback.nn import functional as F
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Inplace(Module):
    """An activation that may write its result into its input."""

    __constants__ = ("inplace",)

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""

    def _shown(self, **numbers):
        parts = [f"{name}={value}" for name, value in numbers.items()]
        return ", ".join(parts + ["inplace=True"] * self.inplace)


# ---- without parameters --------------------------------------------------------------------------


class ReLU(_Inplace):
    """max(x, 0) of each element. ``inplace`` writes into the input.

    >>> import pullback
    >>> pullback.nn.ReLU()(pullback.tensor([-1., 2.]))
    tensor([0., 2.])
    """

    def forward(self, input):
        return F.relu(input, inplace=self.inplace)


class SELU(_Inplace):
    """scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0)); see ``nn.functional.selu``.

    >>> import pullback
    >>> pullback.nn.SELU()(pullback.zeros(1))
    tensor([0.])
    """

    def forward(self, input):
        return F.selu(input, self.inplace)


class SiLU(_Inplace):
    """x * sigmoid(x) of each element, also known as swish.

    >>> import pullback
    >>> pullback.nn.SiLU()(pullback.zeros(1))
    tensor([0.])
    """

    def forward(self, input):
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x)) of each element; D. Misra (2019).

    >>> import pullback
    >>> pullback.nn.Mish()(pullback.zeros(1))
    tensor([0.])
    """

    def forward(self, input):
        return F.mish(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """x * relu6(x + 3) / 6 of each element; A. Howard et al. (2019).

    >>> import pullback
    >>> pullback.nn.Hardswish()(pullback.tensor([1., 3.]))
    tensor([0.6667, 3.0000])
    """

    def extra_repr(self):
        return ""

    def forward(self, input):
        return F.hardswish(input, self.inplace)


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6 of each element.

    >>> import pullback
    >>> pullback.nn.Hardsigmoid()(pullback.tensor([-3., 0., 3.]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    def extra_repr(self):
        return ""

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-x)) of each element.

    >>> import pullback
    >>> pullback.nn.Sigmoid()(pullback.zeros(1))
    tensor([0.5000])
    """

    def forward(self, input):
        return pullback.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)) of each element.

    >>> import pullback
    >>> pullback.nn.LogSigmoid()(pullback.zeros(1))
    tensor([-0.6931])
    """

    def forward(self, input):
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent of each element.

    >>> import pullback
    >>> pullback.nn.Tanh()(pullback.zeros(1))
    tensor([0.])
    """

    def forward(self, input):
        return pullback.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x) of each element.

    >>> import pullback
    >>> pullback.nn.Tanhshrink()(pullback.zeros(1))
    tensor([0.])
    """

    def forward(self, input):
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + abs(x)) of each element.

    >>> import pullback
    >>> pullback.nn.Softsign()(pullback.tensor([-1., 3.]))
    tensor([-0.5000,  0.7500])
    """

    def forward(self, input):
        return F.softsign(input)


# ---- with numbers --------------------------------------------------------------------------------


class Threshold(_Inplace):
    """x where x > threshold, else ``value``.

    >>> import pullback
    >>> pullback.nn.Threshold(1.0, -7.0)(pullback.tensor([1., 2.]))
    tensor([-7.,  2.])
    """

    def __init__(self, threshold, value, inplace=False):
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return self._shown(threshold=self.threshold, value=self.value)


class RReLU(_Inplace):
    """x where x >= 0, else a * x, with a drawn from [lower, upper] in training and its mean after.

    B. Xu et al. (2015).

    >>> import pullback
    >>> pullback.nn.RReLU(0.5, 0.5)(pullback.tensor([-2., 2.]))
    tensor([-1.,  2.])
    """

    def __init__(self, lower=1 / 8, upper=1 / 3, inplace=False):
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return self._shown(lower=self.lower, upper=self.upper)


class Hardtanh(_Inplace):
    """min(max(x, min_val), max_val) of each element.

    Raises: AssertionError unless max_val > min_val.

    >>> import pullback
    >>> pullback.nn.Hardtanh()(pullback.tensor([-3., 0.5, 3.]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__(inplace)
        for old, new, given in (
            ("min_value", "min_val", min_value),
            ("max_value", "max_val", max_value),
        ):
            if given is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`",
                    FutureWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return self._shown(min_val=self.min_val, max_val=self.max_val)


class ReLU6(Hardtanh):
    """min(max(x, 0), 6) of each element.

    >>> import pullback
    >>> pullback.nn.ReLU6()(pullback.tensor([-1., 9.]))
    tensor([0., 6.])
    """

    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ELU(_Inplace):
    """x where x > 0, else alpha * (exp(x) - 1). D. Clevert et al. (2015).

    >>> import pullback
    >>> pullback.nn.ELU()(pullback.tensor([-1., 1.]))
    tensor([-0.6321,  1.0000])
    """

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return self._shown(alpha=self.alpha)


class CELU(ELU):
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0). J. T. Barron (2017).

    >>> import pullback
    >>> pullback.nn.CELU()(pullback.tensor([-1., 1.]))
    tensor([-0.6321,  1.0000])
    """

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(_Inplace):
    """x where x >= 0, else negative_slope * x.

    >>> import pullback
    >>> pullback.nn.LeakyReLU(0.1)(pullback.tensor([-1., 1.]))
    tensor([-0.1000,  1.0000])
    """

    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return self._shown(negative_slope=self.negative_slope)


class PReLU(Module):
    """x where x >= 0, else weight * x, with one learned weight, or one for each channel.

    Channels are the second dim. ``num_parameters`` is 1 or their number, ``init`` the first value.
    K. He et al. (2015).

    >>> import pullback
    >>> pullback.nn.PReLU()(pullback.tensor([-1., 1.])).tolist()
    [-0.25, 1.0]
    """

    __constants__ = ("num_parameters",)

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(pullback.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Set the weights to their first value again."""
        with pullback.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """x * Phi(x) with the normal distribution function; ``approximate="tanh"`` approximates it.

    D. Hendrycks and K. Gimpel (2016).

    >>> import pullback
    >>> pullback.nn.GELU()(pullback.tensor([0., 1.]))
    tensor([0.0000, 0.8413])
    """

    __constants__ = ("approximate",)

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.

    >>> import pullback
    >>> pullback.nn.Softplus()(pullback.zeros(1))
    tensor([0.6931])
    """

    __constants__ = ("beta", "threshold")

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardshrink(Module):
    """x where abs(x) > lambd, else 0.

    >>> import pullback
    >>> pullback.nn.Hardshrink()(pullback.tensor([0.4, 0.6]))
    tensor([0.0000, 0.6000])
    """

    __constants__ = ("lambd",)

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """x - lambd where x > lambd, x + lambd where x < -lambd, else 0.

    >>> import pullback
    >>> pullback.nn.Softshrink()(pullback.tensor([0.4, 1.5]))
    tensor([0., 1.])
    """

    def forward(self, input):
        return F.softshrink(input, self.lambd)


# ---- along a dim ---------------------------------------------------------------------------------


class _AlongDim(Module):
    """A function along one dim."""

    __constants__ = ("dim",)

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x) / sum(exp(x)) along a dim.

    >>> import pullback
    >>> pullback.nn.Softmax(dim=0)(pullback.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def forward(self, input):
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """exp(-x) / sum(exp(-x)) along a dim.

    >>> import pullback
    >>> pullback.nn.Softmin(dim=0)(pullback.zeros(2))
    tensor([0.5000, 0.5000])
    """

    def forward(self, input):
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """log(softmax(x)) along a dim.

    >>> import pullback
    >>> pullback.nn.LogSoftmax(dim=0)(pullback.zeros(2))
    tensor([-0.6931, -0.6931])
    """

    def forward(self, input):
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of images (n, c, h, w) or (c, h, w).

    Raises: ValueError for other numbers of dims.

    >>> import pullback
    >>> pullback.nn.Softmax2d()(pullback.zeros(2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3, _stacklevel=5)


class GLU(_AlongDim):
    """a * sigmoid(b) of the two halves a and b along a dim. Y. Dauphin et al. (2016).

    >>> import pullback
    >>> pullback.nn.GLU()(pullback.tensor([4., 0.]))
    tensor([2.])
    """

    def __init__(self, dim=-1):
        super().__init__(dim)

    def forward(self, input):
        return F.glu(input, self.dim)

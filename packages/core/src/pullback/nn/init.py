"""Initial values of parameters. Every function fills a tensor in place, outside the graph."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pullback
from pullback import Tensor, no_grad
from pullback._c.python.overridable import wrap as _wrap

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {
    **dict.fromkeys(["linear", "sigmoid", "conv1d", "conv2d", "conv3d"], 1.0),
    **dict.fromkeys([f"conv_transpose{n}d" for n in (1, 2, 3)], 1.0),
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before a nonlinearity are larger than for none.

    ``param`` is the negative slope of "leaky_relu" (0.01 by default).

    Raises: ValueError for an unknown nonlinearity or a slope that is no number.

    >>> from pullback.nn import init
    >>> round(init.calculate_gain("leaky_relu", 0.2), 4)
    1.3868
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, (int, float)):
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2 / (1 + slope**2))


# ---- the same for every element ------------------------------------------------------------------


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers that are uniform in [a, b); return the tensor.

    >>> import pullback
    >>> from pullback.nn import init
    >>> bool((init.uniform_(pullback.empty(9), 2, 3) >= 2).all())
    True
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with normal numbers of a mean and standard deviation; return the tensor.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.normal_(pullback.empty(2), mean=3.0, std=0.0)
    tensor([3., 3.])
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with normal numbers, given that they are in [a, b]; return the tensor.

    They are the quantiles of uniform numbers between those of a and b. Warns where the mean is
    more than two standard deviations outside of [a, b].

    >>> import pullback
    >>> from pullback.nn import init
    >>> bool((init.trunc_normal_(pullback.empty(9), a=-1.0, b=0.0) <= 0).all())
    True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )

    def below(x):
        return math.erf((x - mean) / (std * math.sqrt(2)))

    with no_grad():
        tensor.uniform_(below(a), below(b), generator=generator)
        return tensor.erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(min=a, max=b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number; return the tensor.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.constant_(pullback.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones; return the tensor.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.ones_(pullback.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros; return the tensor.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.zeros_(pullback.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


# ---- identities ----------------------------------------------------------------------------------


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity; return it. Raises: ValueError unless it has two dims.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.eye_(pullback.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        return tensor.copy_(pullback.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a kernel (out, in, sizes...) of a convolution pass on its input; return it.

    As many channels of each group as there are on both sides pass.

    Raises: ValueError unless it has 3 to 5 dims and ``groups`` divides the first one.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.dirac_(pullback.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    if tensor.ndimension() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.size(0) % groups:
        raise ValueError("dim 0 must be divisible by groups")
    each = tensor.size(0) // groups
    middle = tuple(size // 2 for size in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(each, tensor.size(1))):
                tensor[(group * each + channel, channel, *middle)] = 1
    return tensor


# ---- by fan-in and fan-out -----------------------------------------------------------------------


def _calculate_fan_in_and_fan_out(tensor):
    """Return how many inputs each output of a weight (out, in, sizes...) has, and the reverse."""
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    positions = math.prod(tensor.shape[2:])
    return tensor.size(1) * positions, tensor.size(0) * positions


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _uniform_by_fan_in(bias, weight):
    """Draw a bias uniform in (-k, k) with k = fan_in ** -0.5 of the weight beside it."""
    fan_in, _ = _calculate_fan_in_and_fan_out(weight)
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
    return uniform_(bias, -bound, bound)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers uniform in (-a, a), a = gain * sqrt(6 / (fan_in + fan_out)).

    X. Glorot and Y. Bengio (2010), equation 16. Returns the tensor.

    Raises: ValueError for fewer than two dims.

    >>> import pullback
    >>> from pullback.nn import init
    >>> bool((init.xavier_uniform_(pullback.empty(2, 4)).abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with normal numbers of standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    X. Glorot and Y. Bengio (2010). Returns the tensor.

    Raises: ValueError for fewer than two dims.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.xavier_normal_(pullback.empty(2, 4)).shape
    pullback.Size([2, 4])
    """
    std = gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    """Return the standard deviation of K. He et al., or None for a tensor without elements."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill with numbers uniform in (-b, b), b = gain * sqrt(3 / fan); return the tensor.

    ``mode`` says which fan keeps the variance: "fan_in" of the forward pass, "fan_out" of the
    backward pass. ``a`` is the negative slope of "leaky_relu". K. He et al. (2015), equation 14.

    Raises: ValueError for fewer than two dims, an unknown mode or nonlinearity.

    >>> import pullback
    >>> from pullback.nn import init
    >>> bool((init.kaiming_uniform_(pullback.empty(4, 6)).abs() <= 1).all())
    True
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    return uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill with normal numbers of standard deviation gain / sqrt(fan); see ``kaiming_uniform_``.

    >>> import pullback
    >>> from pullback.nn import init
    >>> init.kaiming_normal_(pullback.empty(3, 5), nonlinearity="relu").shape
    pullback.Size([3, 5])
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


# ---- matrices ------------------------------------------------------------------------------------


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Make a tensor, seen as a matrix of its first dim by all others, orthogonal; return it.

    The matrix is uniform among orthogonal ones (the polar factor of a matrix of normal numbers),
    times ``gain``; if it is not square, its rows or columns are orthonormal. A. M. Saxe et al.
    (2013) proposed it.

    Raises: ValueError for fewer than two dims.

    >>> import pullback
    >>> from pullback.nn import init
    >>> weight = init.orthogonal_(pullback.empty(3, 5, dtype=pullback.float64))
    >>> pullback.allclose(weight @ weight.T, pullback.eye(3, dtype=pullback.float64))
    True
    """
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    with no_grad():
        wide = pullback.float64 if tensor.dtype == pullback.float64 else pullback.float32
        flat = pullback.empty(rows, tensor.numel() // rows, dtype=wide, device=tensor.device)
        left, _, right = pullback.linalg.svd(normal_(flat, 0, 1, generator), full_matrices=False)
        return tensor.copy_((left @ right).reshape(tensor.shape)).mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal numbers, and a fraction of each column with zeros; return it.

    J. Martens (2010).

    Raises: ValueError unless it has two dims.

    >>> import pullback
    >>> from pullback.nn import init
    >>> int((init.sparse_(pullback.empty(4, 5), 0.5) == 0).sum())
    10
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            chosen = pullback.randperm(rows, generator=generator)[:zeros]
            tensor[chosen, column] = 0
    return tensor


# ---- older names ---------------------------------------------------------------------------------


def _deprecated(function):
    name = function.__name__[:-1]

    def former(*args, **kwargs):
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    former.__name__ = name
    former.__doc__ = f"An older name of ``{name}_``."
    former.__deprecated__ = f"use {name}_"
    return former


uniform, normal, constant, eye, dirac, sparse, orthogonal = map(
    _deprecated, (uniform_, normal_, constant_, eye_, dirac_, sparse_, orthogonal_)
)
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(
    _deprecated, (xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_)
)


_wrap(globals(), ("constant_", "kaiming_uniform_", "normal_", "uniform_"))

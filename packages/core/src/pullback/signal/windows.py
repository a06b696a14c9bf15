"""Windows of signals, symmetric by default, as ``torch.signal.windows``.

Source: F. Harris, "On the use of windows for harmonic analysis", 1978.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pullback
from pullback._help import explain_names as _explain_names
from pullback.ops.creation.windows import cosines, triangle
from pullback.ops.creation.windows import kaiser as kaiser_values

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]

_NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)


def _window(
    name: str,
    M: int,
    sym: bool,
    values: Callable[[pullback.Tensor, int], pullback.Tensor],
    dtype: pullback.dtype | None,
    layout: pullback.layout,
    device: Any,
    requires_grad: bool,
    one: bool = True,
) -> pullback.Tensor:
    """Make a window of ``values(positions, last position)``, in float64, and round it.

    One that is not symmetric is the first part of a symmetric one that is longer by one.
    """
    dtype = dtype or pullback.get_default_dtype()
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not pullback.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (pullback.float32, pullback.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    positions = pullback.arange(M, dtype=pullback.float64, device=device)
    if M == 0 or (M == 1 and one):
        made = pullback.ones_like(positions)
    else:
        made = values(positions, M - 1 if sym or M == 1 else M)
    return made.to(dtype).requires_grad_(requires_grad)


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Bartlett window: a triangle from 0 to 1 and back to 0.

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("bartlett", M, sym, triangle, *options)


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Blackman window: 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n).

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.blackman(4)[1:3]
    tensor([0.6300, 0.6300])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("blackman", M, sym, cosines(0.42, 0.5, 0.08), *options)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a cosine window: sin(pi (k + 1/2) / n), one half of a wave.

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """

    def values(positions: pullback.Tensor, last: int) -> pullback.Tensor:
        return pullback.sin((positions + 0.5) * (math.pi / (last + 1)))

    options = (dtype, layout, device, requires_grad)
    return _window("cosine", M, sym, values, *options, one=False)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return an exponential window: ``exp(-|k - center| / tau)``.

    `center` is the middle; another is for windows that are not symmetric.

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def values(positions: pullback.Tensor, last: int) -> pullback.Tensor:
        middle = last / 2 if center is None else center
        return pullback.exp((positions - middle).abs() / -tau)

    options = (dtype, layout, device, requires_grad)
    return _window("exponential", M, sym, values, *options, one=False)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Gaussian window: exp(-((k - n / 2) / std)^2 / 2).

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def values(positions: pullback.Tensor, last: int) -> pullback.Tensor:
        return pullback.exp(((positions - last / 2) / std).square() / -2)

    options = (dtype, layout, device, requires_grad)
    return _window("gaussian", M, sym, values, *options, one=False)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a sum of cosines with factors a: a[0] - a[1] cos(2 pi k / n) + ...

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.general_cosine(3, a=(0.5, 0.5))
    tensor([0., 1., 0.])
    """
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    options = (dtype, layout, device, requires_grad)
    return _window("general_cosine", M, sym, cosines(*a), *options)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a generalized Hamming window: alpha - (1 - alpha) cos(2 pi k / n).

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.general_hamming(3, alpha=0.5)
    tensor([0., 1., 0.])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("general_cosine", M, sym, cosines(alpha, 1 - alpha), *options)


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Hamming window: 0.54 - 0.46 cos(2 pi k / n).

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("general_cosine", M, sym, cosines(0.54, 0.46), *options)


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Hann window: 1/2 - 1/2 cos(2 pi k / n).

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("general_cosine", M, sym, cosines(0.5, 0.5), *options)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a Kaiser window: I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1.

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.kaiser(3, beta=0.0)
    tensor([1., 1., 1.])
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def values(positions: pullback.Tensor, last: int) -> pullback.Tensor:
        return kaiser_values(positions, last, beta)

    options = (dtype, layout, device, requires_grad)
    return _window("kaiser", M, sym, values, *options)


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: pullback.dtype | None = None,
    layout: pullback.layout = pullback.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> pullback.Tensor:
    """Return a minimum 4-term Blackman-Harris window, as Nuttall gives it.

    Source: A. Nuttall, "Some windows with very good sidelobe behavior", 1981.

    `M` is the number of points. A window that is not symmetric (`sym=False`) is one period.
    `dtype` is float32 or float64. Raises: ValueError for a negative M or another dtype.

    >>> from pullback.signal import windows
    >>> windows.nuttall(5)[1:]
    tensor([2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6280e-04])
    """
    options = (dtype, layout, device, requires_grad)
    return _window("general_cosine", M, sym, cosines(*_NUTTALL), *options)


def __dir__() -> list[str]:
    return [name for name in globals() if name in __all__ or name[0] == "_"]


_explain_names(globals())

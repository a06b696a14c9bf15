"""Padding of the last one, two or three dims."""

from __future__ import annotations

from pullback.nn import functional as F
from pullback.nn.modules.module import Module
from pullback.nn.modules.utils import _ntuple

__all__ = [
    f"{kind}Pad{n}d"
    for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero")
    for n in (1, 2, 3)
]


class _PadNd(Module):
    """Padding by one number, or by (left, right, top, bottom, front, back) as far as there are."""

    __constants__ = ("padding",)
    _dims = 0
    _mode = ""

    def __init__(self, padding):
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ("padding", "value")

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Add ``value`` at both ends of the last dim. ``padding`` is a number or (left, right).

    >>> import pullback
    >>> pullback.nn.ConstantPad1d((1, 2), 7.0)(pullback.zeros(1, 2))
    tensor([[7., 0., 0., 7., 7.]])
    """

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Add ``value`` around the last two dims. ``padding``: a number or (left, right, top, bottom).

    >>> import pullback
    >>> pullback.nn.ConstantPad2d(1, 0.5)(pullback.zeros(1, 2, 2)).sum()
    tensor(6.)
    """

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Add ``value`` around the last three dims. ``padding``: a number, or two for each dim.

    >>> import pullback
    >>> pullback.nn.ConstantPad3d(1, 1.0)(pullback.zeros(1, 2, 2, 2)).sum()
    tensor(56.)
    """

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """Add zeros at both ends of the last dim. See ConstantPad1d.

    >>> import pullback
    >>> pullback.nn.ZeroPad1d(1)(pullback.ones(1, 2))
    tensor([[0., 1., 1., 0.]])
    """

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Add zeros around the last two dims. See ConstantPad2d.

    >>> import pullback
    >>> pullback.nn.ZeroPad2d(1)(pullback.ones(1, 2, 2)).shape
    pullback.Size([1, 4, 4])
    """

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Add zeros around the last three dims. See ConstantPad3d.

    >>> import pullback
    >>> pullback.nn.ZeroPad3d(1)(pullback.ones(1, 2, 2, 2)).shape
    pullback.Size([1, 4, 4, 4])
    """

    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ReflectionPad1d(_PadNd):
    """Mirror inputs (n, c, l) or (c, l) at both ends; the end elements are not repeated.

    >>> import pullback
    >>> pullback.nn.ReflectionPad1d(2)(pullback.tensor([[1., 2., 3.]]))
    tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Mirror images (n, c, h, w) or (c, h, w) at their edges. See ReflectionPad1d.

    >>> import pullback
    >>> pullback.nn.ReflectionPad2d(1)(pullback.ones(1, 2, 2)).shape
    pullback.Size([1, 4, 4])
    """

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Mirror volumes (n, c, d, h, w) or (c, d, h, w) at their faces. See ReflectionPad1d.

    >>> import pullback
    >>> pullback.nn.ReflectionPad3d(1)(pullback.ones(1, 2, 2, 2)).shape
    pullback.Size([1, 4, 4, 4])
    """

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """Repeat the end elements of inputs (n, c, l) or (c, l).

    >>> import pullback
    >>> pullback.nn.ReplicationPad1d(2)(pullback.tensor([[1., 2.]]))
    tensor([[1., 1., 1., 2., 2., 2.]])
    """

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """Repeat the edges of images (n, c, h, w) or (c, h, w).

    >>> import pullback
    >>> pullback.nn.ReplicationPad2d(1)(pullback.ones(1, 2, 2)).shape
    pullback.Size([1, 4, 4])
    """

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """Repeat the faces of volumes (n, c, d, h, w) or (c, d, h, w).

    >>> import pullback
    >>> pullback.nn.ReplicationPad3d(1)(pullback.ones(1, 2, 2, 2)).shape
    pullback.Size([1, 4, 4, 4])
    """

    _dims, _mode = 3, "replicate"


class CircularPad1d(_PadNd):
    """Go on at the other end of inputs (n, c, l) or (c, l).

    >>> import pullback
    >>> pullback.nn.CircularPad1d(1)(pullback.tensor([[1., 2., 3.]]))
    tensor([[3., 1., 2., 3., 1.]])
    """

    _dims, _mode = 1, "circular"


class CircularPad2d(_PadNd):
    """Go on at the other side of images (n, c, h, w) or (c, h, w).

    >>> import pullback
    >>> pullback.nn.CircularPad2d(1)(pullback.ones(1, 2, 2)).shape
    pullback.Size([1, 4, 4])
    """

    _dims, _mode = 2, "circular"


class CircularPad3d(_PadNd):
    """Go on at the other side of volumes (n, c, d, h, w) or (c, d, h, w).

    >>> import pullback
    >>> pullback.nn.CircularPad3d(1)(pullback.ones(1, 2, 2, 2)).shape
    pullback.Size([1, 4, 4, 4])
    """

    _dims, _mode = 3, "circular"

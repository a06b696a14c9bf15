"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from pullback.nn import functional as F
from pullback.nn.modules.module import Module
from pullback.nn.modules.utils import _pair, _single, _triple

__all__ = [
    f"{kind}Pool{n}d"
    for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg")
    for n in (1, 2, 3)
]
__all__ += ["FractionalMaxPool2d", "FractionalMaxPool3d"]
__all__ += ["MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"]


class _MaxPoolNd(Module):
    __constants__ = (
        *("kernel_size", "stride", "padding", "dilation"),
        *("return_indices", "ceil_mode"),
    )

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        return_indices=False,
        ceil_mode=False,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input):
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Maxima of windows of inputs (n, c, l) or (c, l). See ``nn.functional.max_pool1d``.

    ``stride`` is the kernel size by default; ``padding`` adds minus infinity at both ends;
    ``return_indices`` returns positions too; ``ceil_mode`` keeps incomplete windows.

    >>> import pullback
    >>> pullback.nn.MaxPool1d(2)(pullback.tensor([[1., 3., 2., 0.]]))
    tensor([[3., 2.]])
    """

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPoolNd):
    """Maxima of windows of images (n, c, h, w) or (c, h, w). See MaxPool1d.

    >>> import pullback
    >>> pullback.nn.MaxPool2d(2)(pullback.ones(1, 4, 6)).shape
    pullback.Size([1, 2, 3])
    """

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPoolNd):
    """Maxima of windows of volumes (n, c, d, h, w) or (c, d, h, w). See MaxPool1d.

    >>> import pullback
    >>> pullback.nn.MaxPool3d(2)(pullback.ones(1, 4, 6, 2)).shape
    pullback.Size([1, 2, 3, 1])
    """

    _pool = staticmethod(F.max_pool3d)


class _MaxUnpoolNd(Module):
    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size = self._sizes(kernel_size)
        self.stride = self._sizes(kernel_size if stride is None else stride)
        self.padding = self._sizes(padding)

    def forward(self, input, indices, output_size=None):
        return self._pool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Put maxima back to the positions that MaxPool1d has returned; zeros elsewhere.

    >>> import pullback
    >>> x = pullback.tensor([[1., 3., 2., 0.]])
    >>> values, indices = pullback.nn.MaxPool1d(2, return_indices=True)(x)
    >>> pullback.nn.MaxUnpool1d(2)(values, indices)
    tensor([[0., 3., 2., 0.]])
    """

    _sizes = staticmethod(_single)
    _pool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpoolNd):
    """Put maxima back to the positions that MaxPool2d has returned. See MaxUnpool1d.

    >>> import pullback
    >>> pooled = pullback.nn.MaxPool2d(2, return_indices=True)(pullback.ones(1, 4, 4))
    >>> pullback.nn.MaxUnpool2d(2)(*pooled).sum()
    tensor(4.)
    """

    _sizes = staticmethod(_pair)
    _pool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpoolNd):
    """Put maxima back to the positions that MaxPool3d has returned. See MaxUnpool1d.

    >>> import pullback
    >>> pooled = pullback.nn.MaxPool3d(2, return_indices=True)(pullback.ones(1, 1, 4, 4, 4))
    >>> pullback.nn.MaxUnpool3d(2)(*pooled).sum()
    tensor(8.)
    """

    _sizes = staticmethod(_triple)
    _pool = staticmethod(F.max_unpool3d)


# ---- maxima at steps that are drawn --------------------------------------------------------------


class _FractionalMaxPoolNd(Module):
    __constants__ = ("kernel_size", "return_indices", "output_size", "output_ratio")

    def __init__(
        self,
        kernel_size,
        output_size=None,
        output_ratio=None,
        return_indices=False,
        _random_samples=None,
    ):
        super().__init__()
        self.kernel_size = self._sizes(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else self._sizes(output_size)
        self.output_ratio = None if output_ratio is None else self._sizes(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        return self._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima of windows of images (n, c, h, w) or (c, h, w) at steps that are drawn.

    The output has ``output_size``, or ``output_ratio`` in (0, 1) of the input's size.
    ``return_indices`` returns positions too. B. Graham (2014).

    Raises: ValueError unless one of output_size and output_ratio is given.

    >>> import pullback
    >>> pullback.nn.FractionalMaxPool2d(2, output_ratio=0.5)(pullback.ones(1, 8, 6)).shape
    pullback.Size([1, 4, 3])
    """

    _sizes = staticmethod(_pair)
    _pool = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima of windows of volumes at steps that are drawn. See FractionalMaxPool2d.

    >>> import pullback
    >>> pullback.nn.FractionalMaxPool3d(2, output_size=2)(pullback.ones(1, 8, 6, 5)).shape
    pullback.Size([1, 2, 2, 2])
    """

    _sizes = staticmethod(_triple)
    _pool = staticmethod(F.fractional_max_pool3d)


# ---- means ---------------------------------------------------------------------------------------


class _AvgPoolNd(Module):
    __constants__ = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Means of windows of inputs (n, c, l) or (c, l). See ``nn.functional.avg_pool1d``.

    ``count_include_pad`` counts the zeros of the padding.

    >>> import pullback
    >>> pullback.nn.AvgPool1d(2)(pullback.tensor([[1., 3., 2., 0.]]))
    tensor([[2., 1.]])
    """

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True
    ):
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = _single(kernel_size if stride is None else stride)
        self.padding = _single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input):
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class AvgPool2d(_AvgPoolNd):
    """Means of windows of images (n, c, h, w) or (c, h, w).

    ``count_include_pad`` counts the zeros of the padding; ``divisor_override`` is what sums are
    divided by instead of the size of the window.

    >>> import pullback
    >>> pullback.nn.AvgPool2d(2)(pullback.ones(1, 4, 6)).shape
    pullback.Size([1, 2, 3])
    """

    __constants__ = (*_AvgPoolNd.__constants__, "divisor_override")
    _pool = staticmethod(F.avg_pool2d)

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input):
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(AvgPool2d):
    """Means of windows of volumes (n, c, d, h, w) or (c, d, h, w). See AvgPool2d.

    >>> import pullback
    >>> pullback.nn.AvgPool3d(2)(pullback.ones(1, 4, 6, 2)).shape
    pullback.Size([1, 2, 3, 1])
    """

    _pool = staticmethod(F.avg_pool3d)


# ---- norms ---------------------------------------------------------------------------------------


class _LPPoolNd(Module):
    __constants__ = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input):
        return self._pool(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self):
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """sum(x ** norm_type) ** (1 / norm_type) of windows of inputs (n, c, l) or (c, l).

    >>> import pullback
    >>> pullback.nn.LPPool1d(2, 2)(pullback.tensor([[3., 4.]]))
    tensor([[5.]])
    """

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPoolNd):
    """sum(x ** norm_type) ** (1 / norm_type) of windows of images (n, c, h, w) or (c, h, w).

    >>> import pullback
    >>> pullback.nn.LPPool2d(1, 2)(pullback.ones(1, 2, 2))
    tensor([[[4.]]])
    """

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """sum(x ** norm_type) ** (1 / norm_type) of windows of volumes (n, c, d, h, w).

    >>> import pullback
    >>> pullback.nn.LPPool3d(1, 2)(pullback.ones(1, 2, 2, 2))
    tensor([[[[8.]]]])
    """

    _pool = staticmethod(F.lp_pool3d)


# ---- of a given output size ----------------------------------------------------------------------


class _AdaptivePoolNd(Module):
    __constants__ = ("output_size",)

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return self._pool(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(_AdaptivePoolNd):
    __constants__ = ("output_size", "return_indices")

    def __init__(self, output_size, return_indices=False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input):
        return self._pool(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of ``output_size`` windows that cover inputs (n, c, l) or (c, l).

    >>> import pullback
    >>> pullback.nn.AdaptiveMaxPool1d(1)(pullback.tensor([[1., 3., 2.]]))
    tensor([[3.]])
    """

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of windows that cover images; ``output_size`` is (h, w), None keeps a size.

    >>> import pullback
    >>> pullback.nn.AdaptiveMaxPool2d((1, None))(pullback.ones(2, 5, 7)).shape
    pullback.Size([2, 1, 7])
    """

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of windows that cover volumes; ``output_size`` is (d, h, w), None keeps a size.

    >>> import pullback
    >>> pullback.nn.AdaptiveMaxPool3d(1)(pullback.ones(2, 5, 7, 3)).shape
    pullback.Size([2, 1, 1, 1])
    """

    _pool = staticmethod(F.adaptive_max_pool3d)


class AdaptiveAvgPool1d(_AdaptivePoolNd):
    """Means of ``output_size`` windows that cover inputs (n, c, l) or (c, l).

    >>> import pullback
    >>> pullback.nn.AdaptiveAvgPool1d(1)(pullback.tensor([[1., 3., 2.]]))
    tensor([[2.]])
    """

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """Means of windows that cover images; ``output_size`` is (h, w), None keeps a size.

    >>> import pullback
    >>> pullback.nn.AdaptiveAvgPool2d((1, None))(pullback.ones(2, 5, 7)).shape
    pullback.Size([2, 1, 7])
    """

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePoolNd):
    """Means of windows that cover volumes; ``output_size`` is (d, h, w), None keeps a size.

    >>> import pullback
    >>> pullback.nn.AdaptiveAvgPool3d(1)(pullback.ones(2, 5, 7, 3)).shape
    pullback.Size([2, 1, 1, 1])
    """

    _pool = staticmethod(F.adaptive_avg_pool3d)

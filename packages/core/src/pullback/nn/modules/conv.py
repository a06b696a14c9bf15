"""Convolutions and transposed convolutions."""

from __future__ import annotations

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.lazy import LazyModuleMixin
from pullback.nn.modules.module import Module
from pullback.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from pullback.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    f"{lazy}Conv{transposed}{n}d"
    for lazy in ("", "Lazy")
    for transposed in ("", "Transpose")
    for n in (1, 2, 3)
]

_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    """Sizes, weight and bias of a convolution over ``_dims`` dims."""

    __constants__ = (
        *("stride", "padding", "dilation", "groups", "padding_mode", "output_padding"),
        *("in_channels", "out_channels", "kernel_size"),
    )
    _dims = 0
    transposed = False

    def _set_sizes(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        groups,
        padding_mode,
        output_padding=0,
    ):
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        sizes = _ntuple(self._dims)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}"
                )
            if padding == "same" and any(step != 1 for step in sizes(stride)):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(
                f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = sizes(kernel_size)
        self.stride = sizes(stride)
        self.padding = padding if isinstance(padding, str) else sizes(padding)
        self.dilation = sizes(dilation)
        self.output_padding = sizes(output_padding)
        self.groups = groups
        self.padding_mode = padding_mode
        self._padding_around = self._amounts_of_padding()

    def _amounts_of_padding(self):
        """Return what ``pad`` adds in modes other than zeros: two numbers a dim, last dim first."""
        if self.padding == "valid":
            return (0, 0) * self._dims
        if self.padding != "same":
            return _reverse_repeat_tuple(self.padding, 2)
        amounts = []
        for dilation, kernel in zip(self.dilation, self.kernel_size, strict=True):
            total = dilation * (kernel - 1)
            amounts[:0] = [total // 2, total - total // 2]
        return tuple(amounts)

    def _weight_shape(self):
        channels = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            channels = (self.in_channels, self.out_channels // self.groups)
        return (*channels, *self.kernel_size)

    def _make_parameters(self, bias, device, dtype):
        self.weight = Parameter(pullback.empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(pullback.empty(self.out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw weight and bias again."""
        init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None and self.weight.numel():
            init._uniform_by_fan_in(self.bias, self.weight)

    def extra_repr(self):
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        for name, default in (
            ("padding", (0,) * self._dims),
            ("dilation", (1,) * self._dims),
            ("output_padding", (0,) * self._dims),
            ("groups", 1),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Convolution(_ConvNd):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._set_sizes(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups),
            padding_mode,
        )
        self._make_parameters(bias, device, dtype)

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._padding_around, mode=self.padding_mode)
            padding = 0
        return self._convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Convolution):
    """Cross-correlation of inputs (n, in_channels, l), with a learned weight and bias.

    ``weight`` is (out_channels, in_channels // groups, kernel_size), ``bias`` (out_channels) or
    None; both begin uniform in (-k, k) with k = (in_channels // groups * kernel_size) ** -0.5.
    ``padding`` is a number, "valid" or "same", its ``padding_mode`` "zeros", "reflect", "replicate"
    or "circular".

    Raises: ValueError unless ``groups`` divides both numbers of channels, or for unknown modes.

    >>> import pullback
    >>> pullback.nn.Conv1d(2, 4, 3)(pullback.ones(1, 2, 10)).shape
    pullback.Size([1, 4, 8])
    """

    _dims = 1
    _convolve = staticmethod(F.conv1d)


class Conv2d(_Convolution):
    """Cross-correlation of images (n, in_channels, h, w), with a learned weight and bias.

    ``weight`` is (out_channels, in_channels // groups, kernel h, kernel w). Sizes are numbers or
    pairs. See Conv1d.

    >>> import pullback
    >>> pullback.nn.Conv2d(2, 4, 3, padding="same")(pullback.ones(1, 2, 5, 6)).shape
    pullback.Size([1, 4, 5, 6])
    """

    _dims = 2
    _convolve = staticmethod(F.conv2d)


class Conv3d(_Convolution):
    """Cross-correlation of volumes (n, in_channels, d, h, w), with a learned weight and bias.

    >>> import pullback
    >>> pullback.nn.Conv3d(1, 2, 3)(pullback.ones(1, 1, 4, 4, 4)).shape
    pullback.Size([1, 2, 2, 2, 2])
    """

    _dims = 3
    _convolve = staticmethod(F.conv3d)


# ---- transposed ----------------------------------------------------------------------------------


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__()
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        self._set_sizes(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups),
            *(padding_mode, output_padding),
        )
        self._make_parameters(bias, device, dtype)

    def forward(self, input, output_size=None):
        return self._convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
        )

    def _output_padding(self, input, output_size):
        """Return the padding of the output that makes it as large as asked."""
        if output_size is None:
            return self.output_padding
        dims = self._dims
        if len(output_size) == input.dim():
            output_size = output_size[-dims:]
        if len(output_size) != dims:
            raise ValueError(
                f"ConvTranspose{dims}D: for {input.dim()}D input, output_size must have {dims} or "
                f"{input.dim()} elements (got {len(output_size)})"
            )
        least = [
            (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
            for size, stride, padding, dilation, kernel in zip(
                *(input.shape[-dims:], self.stride, self.padding, self.dilation),
                self.kernel_size,
                strict=True,
            )
        ]
        most = [low + stride - 1 for low, stride in zip(least, self.stride, strict=True)]
        sizes = list(zip(least, output_size, most, strict=True))
        if any(not low <= size <= high for low, size, high in sizes):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {least} "
                f"to {most} (for an input of {input.size()[2:]})"
            )
        return [size - low for low, size, _ in sizes]


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d by its input, as a layer: (n, in_channels, l) gets longer.

    ``weight`` is (in_channels, out_channels // groups, kernel_size). ``output_padding``, or
    ``output_size`` of the call, chooses among the sizes that the stride leaves open.

    >>> import pullback
    >>> pullback.nn.ConvTranspose1d(2, 4, 3, stride=2)(pullback.ones(1, 2, 5)).shape
    pullback.Size([1, 4, 11])
    """

    _dims = 1
    _convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d by its input, as a layer of images. See ConvTranspose1d.

    >>> import pullback
    >>> layer = pullback.nn.ConvTranspose2d(2, 4, 3, stride=2)
    >>> layer(pullback.ones(1, 2, 5, 5), output_size=(12, 11)).shape
    pullback.Size([1, 4, 12, 11])
    """

    _dims = 2
    _convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d by its input, as a layer of volumes. See ConvTranspose1d.

    >>> import pullback
    >>> pullback.nn.ConvTranspose3d(1, 2, 2)(pullback.ones(1, 1, 3, 3, 3)).shape
    pullback.Size([1, 2, 4, 4, 4])
    """

    _dims = 3
    _convolve = staticmethod(F.conv_transpose3d)


# ---- lazy ----------------------------------------------------------------------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution that takes ``in_channels`` from its first input."""

    def __init__(self, out_channels, kernel_size, *args, groups=1, bias=True, **options):
        names = ("stride", "padding", "dilation")
        if self.transposed:
            names = ("stride", "padding", "output_padding")
        names = (*names, "groups", "bias")
        given = dict(zip(names, args, strict=False))
        groups, bias = given.pop("groups", groups), given.pop("bias", bias)
        given.update(options)
        device, dtype = given.get("device"), given.get("dtype")
        super().__init__(0, 0, kernel_size, groups=groups, bias=False, **given)
        self.out_channels = out_channels
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(
                f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-self._dims - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


def _lazy(kind):
    """Return the lazy class of a convolution."""
    doc = f"""A {kind.__name__} that takes ``in_channels`` from its first input.

    >>> import pullback
    >>> layer = pullback.nn.Lazy{kind.__name__}(4, 1)
    >>> layer(pullback.ones({", ".join("23" + "4" * kind._dims)})).shape[:2]
    pullback.Size([2, 4])
    """
    attributes = {"cls_to_become": kind, "__module__": __name__, "__doc__": doc}
    return type("Lazy" + kind.__name__, (_LazyConvXdMixin, kind), attributes)


LazyConv1d, LazyConv2d, LazyConv3d = map(_lazy, (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = map(
    _lazy, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)

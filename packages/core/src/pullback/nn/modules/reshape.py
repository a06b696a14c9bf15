"""Modules that rearrange or resample elements: flattening, windows, pixel shuffles, upsampling."""

from __future__ import annotations

from pullback.nn import functional as F
from pullback.nn.modules.module import Module

__all__ = [
    "ChannelShuffle",
    "Flatten",
    "Fold",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unflatten",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class Flatten(Module):
    """Join the dims from ``start_dim`` to ``end_dim``, by default all behind the batch.

    >>> import pullback
    >>> pullback.nn.Flatten()(pullback.ones(2, 3, 4)).shape
    pullback.Size([2, 12])
    """

    __constants__ = ("start_dim", "end_dim")

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split one dim into several of the given sizes, of which one may be -1.

    Raises: TypeError for sizes or dims of another type.

    >>> import pullback
    >>> pullback.nn.Unflatten(1, (3, -1))(pullback.ones(2, 12)).shape
    pullback.Size([2, 3, 4])
    """

    __constants__ = ("dim", "unflattened_size")

    def __init__(self, dim, unflattened_size):
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("invalid argument type for dim parameter")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                "unflattened_size must be a tuple of ints, but found type "
                f"{type(unflattened_size).__name__}"
            )
        for number, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {number}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class _Windows(Module):
    """Sizes of sliding windows."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Unfold(_Windows):
    """Return the sliding windows of images (n, c, h, w) as columns (n, c * window, windows).

    >>> import pullback
    >>> pullback.nn.Unfold(2)(pullback.ones(1, 3, 4, 5)).shape
    pullback.Size([1, 12, 12])
    """

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """Add columns (n, c * window, windows) to images of ``output_size``, as Unfold took them.

    >>> import pullback
    >>> pullback.nn.Fold((4, 5), 2)(pullback.ones(1, 12, 12)).shape
    pullback.Size([1, 3, 4, 5])
    """

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input):
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self):
        return f"output_size={self.output_size}, " + super().extra_repr()


class ChannelShuffle(Module):
    """Interleave the channels of ``groups`` groups; inputs are (n, c, ...).

    >>> import pullback
    >>> pullback.nn.ChannelShuffle(2)(pullback.arange(4.).view(1, 4, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    __constants__ = ("groups",)

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"


class PixelShuffle(Module):
    """Turn (..., c * r * r, h, w) into (..., c, h * r, w * r), r = ``upscale_factor``.

    W. Shi et al. (2016).

    >>> import pullback
    >>> pullback.nn.PixelShuffle(2)(pullback.ones(1, 8, 3, 3)).shape
    pullback.Size([1, 2, 6, 6])
    """

    __constants__ = ("upscale_factor",)

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Undo PixelShuffle: (..., c, h * r, w * r) becomes (..., c * r * r, h, w).

    >>> import pullback
    >>> pullback.nn.PixelUnshuffle(2)(pullback.ones(1, 2, 6, 6)).shape
    pullback.Size([1, 8, 3, 3])
    """

    __constants__ = ("downscale_factor",)

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class Upsample(Module):
    """Resample the sizes behind batch and channels to ``size``, or by ``scale_factor``.

    ``mode`` is "nearest", "linear", "bilinear", "bicubic" or "trilinear"; see
    ``nn.functional.interpolate``.

    >>> import pullback
    >>> pullback.nn.Upsample(scale_factor=2)(pullback.ones(1, 1, 3, 3)).shape
    pullback.Size([1, 1, 6, 6])
    """

    __constants__ = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")

    def __init__(
        self,
        size=None,
        scale_factor=None,
        mode="nearest",
        align_corners=None,
        recompute_scale_factor=None,
    ):
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input):
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self):
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of images by the nearest pixel.

    >>> import pullback
    >>> pullback.nn.UpsamplingNearest2d(scale_factor=2)(pullback.ones(1, 1, 3, 3)).shape
    pullback.Size([1, 1, 6, 6])
    """

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of images by bilinear interpolation that keeps the corners.

    >>> import pullback
    >>> pullback.nn.UpsamplingBilinear2d(size=(1, 3))(pullback.tensor([[[[0., 2.]]]]))
    tensor([[[[0., 1., 2.]]]])
    """

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)

"""pixel_shuffle, pixel_unshuffle, channel_shuffle: elements moved between channels and pixels."""

from pullback.ops.rules.arguments import as_int
from pullback.ops.table.primitives_api import new_empty, put
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import op, ops

references = references_of("pixel_shuffle")


def _copied(self, split, order, shape):
    """Return the elements with dims split, reordered and joined; always a copy."""
    moved = self.reshape(split).permute(order)
    return put(new_empty(self, moved.shape), moved).reshape(shape)


def _check_factor(self, name, argument, factor):
    if isinstance(factor, bool) or not hasattr(factor, "__index__"):
        raise TypeError(
            f"{name}(): argument '{argument}' (position 2) must be int, not {type(factor).__name__}"
        )
    if self.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input "
            f"with {self.ndim} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {argument}, but got {factor}")


def _shuffle(self, upscale_factor):
    r = upscale_factor
    _check_factor(self, "pixel_shuffle", "upscale_factor", r)
    *lead, channels, height, width = self.shape
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible "
            f"by the square of upscale_factor, but input.size(-3)={channels} is not "
            f"divisible by {r * r}"
        )
    n = len(lead)
    return _copied(
        self,
        (*lead, channels // (r * r), r, r, height, width),
        (*range(n), n, n + 3, n + 1, n + 4, n + 2),
        (*lead, channels // (r * r), height * r, width * r),
    )


def _unshuffle(self, downscale_factor):
    r = downscale_factor
    _check_factor(self, "pixel_unshuffle", "downscale_factor", r)
    *lead, channels, height, width = self.shape
    for what, size, dim in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by "
                f"downscale_factor, but input.size({dim})={size} is not divisible "
                f"by {r}"
            )
    n = len(lead)
    return _copied(
        self,
        (*lead, channels, height // r, r, width // r, r),
        (*range(n), n, n + 2, n + 4, n + 1, n + 3),
        (*lead, channels * r * r, height // r, width // r),
    )


op(
    "pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor",
    jvp="linear",
    forward=_shuffle,
    batch="unary",
    method=False,
    namespace=("", "functional"),
    vjp={"self": lambda g, upscale_factor: ops.pixel_unshuffle(g, upscale_factor)},
    doc="Return channels spread over a finer image.\n\nShape: (..., c * r * r, h, w) gives "
    "(..., c, h * r, w * r).",
    ref=references.pixel_shuffle,
    samples=lambda: [
        case(T(1, 8, 2, 3), 2),
        case(T(9, 1, 2), 3),
        case(T(2, 2, 4, 1, 2), 2),
        case(T(2, 2, 2), 1),
        case(T(0, 4, 2, 2), 2),
    ],
)
op(
    "pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor",
    jvp="linear",
    forward=_unshuffle,
    batch="unary",
    method=False,
    namespace=("", "functional"),
    vjp={"self": lambda g, downscale_factor: ops.pixel_shuffle(g, downscale_factor)},
    doc="Return an image's blocks spread over channels: the inverse of pixel_shuffle.\n\n"
    "Shape: (..., c, h * r, w * r) gives (..., c * r * r, h, w).",
    ref=references.pixel_unshuffle,
    samples=lambda: [
        case(T(1, 2, 4, 6), 2),
        case(T(1, 3, 6), 3),
        case(T(2, 2, 1, 2, 4), 2),
        case(T(2, 2, 2), 1),
        case(T(0, 1, 2, 2), 2),
    ],
)


def _channel_shuffle(self, groups):
    shape = self.shape
    if self.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}"
        )
    if as_int(groups, "channel_shuffle", "groups") <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {shape[1]} "
            f"channels and {groups} groups."
        )
    rest = shape[2:]
    return _copied(
        self,
        (shape[0], groups, shape[1] // groups, *rest),
        (0, 2, 1, *range(3, self.ndim + 1)),
        shape,
    )


op(
    "channel_shuffle(self: Tensor, groups: int) -> Tensor",
    jvp="linear",
    forward=_channel_shuffle,
    method=False,
    namespace=("", "functional"),
    aliases=("native_channel_shuffle",),
    vjp={"self": lambda g, groups: ops.channel_shuffle(g, max(g.shape[1] // groups, 1))},
    doc="Return the channels of dim 1 with groups interleaved.",
    ref=references.channel_shuffle,
    samples=lambda: [
        case(T(1, 6, 2, 2), 2),
        case(T(1, 6, 2), 3),
        case(T(2, 4, 1), 1),
        case(T(0, 4, 2, 2), 2),
    ],
)

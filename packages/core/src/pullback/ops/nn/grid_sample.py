"""grid_sample: images sampled at given points; affine_grid: the points of an affine map."""

import itertools
import warnings
from typing import Any

from pullback.ops.nn.interpolation import cubic_weights
from pullback.ops.rules.arguments import check_sequence
from pullback.ops.rules.dtypes import accumulate_dtype, require, type_name
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("grid_sample")

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


# -- coordinates -----------------------------------------------------------------------------------


def _in_elements(x, size, align_corners):
    """Convert coordinates in [-1, 1] to positions in a dim."""
    return (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2


def _clipped(x, size):
    """Clip to the dim; the derivative is 0 on its ends too."""
    return ops.where(x <= 0, 0, ops.where(x >= size - 1, size - 1, x))


def _reflected(x, size, align_corners):
    """Mirror at the outer elements, or half an element outside of them."""
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return x * 0
    x = x - low
    x = ops.where(x < 0, -x, x)
    flips = ops.floor(x / span).detach()
    rest = ops.fmod(x, span)
    return ops.where(ops.fmod(flips, 2) == 0, rest, span - rest) + low


def _kept_inside(x, size, padding_mode, align_corners):
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        x = _reflected(x, size, align_corners)
    return _clipped(x, size)


def _taps(x, size, mode, padding_mode, align_corners):
    """Return (position, weight) of the elements of one dim that take part."""
    x = _in_elements(x, size, align_corners)
    if mode == "bicubic":
        low = ops.floor(x).detach()
        return [
            (_kept_inside(low + tap - 1, size, padding_mode, align_corners), weight)
            for tap, weight in enumerate(cubic_weights(x - low))
        ]
    x = _kept_inside(x, size, padding_mode, align_corners)
    if mode == "nearest":
        position = ops.round(x)  # its derivative, zeros, is the grid's
        return [(position.detach(), ops.where(_inside(position, size), position * 0 + 1, 0))]
    low = ops.floor(x).detach()
    return [(low, low + 1 - x), (low + 1, x - low)]


def _inside(position, size):
    return ops.bitwise_and(position >= 0, position <= size - 1)


# -- grid_sample -----------------------------------------------------------------------------------


def _sample(self, grid, mode, padding_mode, align_corners):
    """Sum the elements around every point, weighted."""
    import pullback

    wide = accumulate_dtype(self.dtype)
    if wide != self.dtype:  # positions need more digits than 16 bits have
        out = _sample(self.to(wide), grid.to(wide), mode, padding_mode, align_corners)
        return out.to(self.dtype)
    sizes = self.shape[2:]
    rank, points = len(sizes), grid.shape[1:-1]
    flat = self.reshape((*self.shape[:2], product(sizes)))
    shape = (*self.shape[:2], product(points))
    # the last dim of the grid counts x first, which is the last dim of the image
    taps = [
        _taps(grid.select(-1, rank - 1 - dim), size, mode, padding_mode, align_corners)
        for dim, size in enumerate(sizes)
    ]
    total: Any = None
    for chosen in itertools.product(*taps):
        index: Any = 0
        weight: Any = 1
        inside: Any = None
        for (position, part), size in zip(chosen, sizes):
            within = _inside(position, size)
            index = index * size + ops.where(within, position, 0).to(pullback.int64)
            weight = part * weight
            inside = within if inside is None else ops.bitwise_and(inside, within)
        index = index.reshape((shape[0], 1, shape[2])).expand(shape)
        # at NaN and infinity the result is NaN, but no element of the image has part in it
        outside = ops.where(inside, 0, weight * 0).reshape((shape[0], 1, shape[2]))
        weight = ops.where(inside, weight, 0).reshape((shape[0], 1, shape[2]))
        part = ops.gather(flat, 2, index) * weight + outside
        total = part if total is None else total + part
    return total.reshape((*self.shape[:2], *points))


def _sizes_of(self, grid):
    return f"but got input with sizes {list(self.shape)} and grid with sizes {list(grid.shape)}"


def check_grid_dims(self, grid, count):
    """Raise RuntimeError unless both have as many dims as that."""
    if self.ndim != count or grid.ndim != count:
        raise RuntimeError(
            f"grid_sampler(): expected {count}D input and grid with same number of dimensions, "
            f"{_sizes_of(self, grid)}"
        )


def _check_grid(self, grid, mode):
    shape, points = list(self.shape), list(grid.shape)
    sizes = _sizes_of(self, grid)
    if not shape or not points or shape[0] != points[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, {sizes}"
        )
    if len(shape) > 2 and points[-1] != len(shape) - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {len(shape) - 2} in last "
            f"dimension, but got grid with sizes {points}"
        )
    if len(shape) not in (4, 5) or len(points) != len(shape):
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of "
            f"dimensions, {sizes}"
        )
    for dim, size in enumerate(shape[2:], 2):
        if size == 0:
            raise RuntimeError(
                f"grid_sampler(): expected input to have non-empty spatial "
                f"dimensions, but input has sizes {shape} with dimension {dim} "
                f"being empty"
            )
    if mode == "bicubic" and len(shape) != 4:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    require("grid_sampler", FLOATING, self)
    if self.dtype != grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected scalar type {type_name(self.dtype)} but "
            f"found {type_name(grid.dtype)}"
        )


def _chosen(number, names, argument):
    if number not in range(len(names)):
        raise RuntimeError(
            f"grid_sampler(): expected {argument} among 0 ({names[0]}) to "
            f"{len(names) - 1} ({names[-1]}), but got {number}"
        )
    return names[number]


def grid_sampler(self, grid, interpolation_mode, padding_mode, align_corners):
    mode = _chosen(interpolation_mode, _MODES, "interpolation_mode")
    padding = _chosen(padding_mode, _PADDINGS, "padding_mode")
    _check_grid(self, grid, mode)
    return _sample(self, grid, mode, padding, align_corners)


def _warn_of_corners():
    warnings.warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False "
        "since 1.3.0. Please specify align_corners=True if the old behavior is desired. "
        "See the documentation of grid_sample for details.",
        UserWarning,
        stacklevel=3,
    )


def _grid_sample(self, grid, mode, padding_mode, align_corners):
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' "
            f"or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
            f"'border', or 'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        _warn_of_corners()
    return grid_sampler(
        self, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), bool(align_corners)
    )


# Points between elements, beyond the ends, and far beyond; none of them at a kink.
_POINTS = (-0.83, 0.21, 0.37, -0.59, 1.13, 0.07, -1.71, 0.44, 0.62, 2.35, 0.11, -0.29)
_GRID = fixed(_POINTS, shape=(1, 2, 3, 2))
_VARIANTS = [
    (mode, padding, corners)
    for mode in _MODES
    for padding in _PADDINGS
    for corners in (False, True)
]
# Of an image of 2 x 2 elements, at the first of them.
_KINK = {"to": ([[[[1.0, 0.0], [0.0, 0.0]]]], [[[[1.0, 2.0]]]]), "second": None}
_CORNER = [[[[1.0, 2.0], [3.0, 5.0]]]], [[[[-0.5, -0.5]]]]
op(
    "grid_sampler(self: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, "
    "align_corners: bool) -> Tensor",
    composite=grid_sampler,
    autocast=("float32", "promote"),
    method=False,
    dtypes=FLOATING,
    doc="Return grid_sample, with numbers for the modes.",
    kinks=[kink(*_CORNER, 0, 0, False, **_KINK)],
    ref=references.grid_sampler,
    samples=lambda: [
        case(T(1, 2, 3, 4), _GRID, 0, 0, False),
        case(T(1, 1, 4, 3), _GRID, 1, 2, True),
    ],
)
op(
    "grid_sample(self: Tensor, grid: Tensor, mode: str = 'bilinear', padding_mode: str = 'zeros', "
    "align_corners: bool? = None) -> Tensor",
    autocast=("float32", "promote"),
    composite=_grid_sample,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.grid_sample,
    doc="Return an image's values at points, of which (-1, -1) and (1, 1) are its corners.\n\n"
    "Shape: (n, c, h, w) and (n, i, j, 2) give (n, c, i, j); likewise with three dims.\n\n"
    "Derivative: 0 by points that padding has moved to the border.",
    kinks=[kink(*_CORNER, mode="bilinear", align_corners=False, **_KINK)],
    samples=lambda: [
        *(case(T(1, 2, 3, 4), _GRID, *variant) for variant in _VARIANTS),
        *(
            case(T(1, 1, 2, 3, 2), fixed(_POINTS, shape=(1, 1, 2, 2, 3)), mode, padding, False)
            for mode, padding in (
                ("bilinear", "zeros"),
                ("bilinear", "reflection"),
                ("nearest", "border"),
            )
        ),
        case(T(0, 2, 3, 4), T(0, 2, 3, 2), "bilinear", "zeros", True),
    ],
)


# -- affine_grid -----------------------------------------------------------------------------------


def _line(like, count, align_corners):
    """Return the positions of a dim's elements in [-1, 1]."""
    import pullback

    parts = count - 1 if align_corners and count > 1 else count
    numbers = pullback.arange(count, device=like.device).to(accumulate_dtype(like.dtype))
    return ((numbers * 2 - (count - 1)) / parts).to(like.dtype)


def _affine_grid_generator(theta, size, align_corners):
    rank = len(size) - 2
    batch, sizes = size[0], size[2:]
    columns = []
    for dim in reversed(range(rank)):  # x first
        shape = [1] * rank
        shape[dim] = sizes[dim]
        columns.append(_line(theta, sizes[dim], align_corners).reshape(shape).expand(sizes))
    columns.append(ops.ones_like(columns[0]))
    base = ops.stack(columns, -1).reshape((1, product(sizes), rank + 1))
    points = ops.bmm(base.expand((batch, *base.shape[1:])), theta.transpose(1, 2))
    return points.reshape((batch, *sizes, rank))


def _check_affine(theta, size):
    if not theta.dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    check_sequence(size, "affine_grid", "size", 2)
    size = tuple(size)
    if len(size) not in (4, 5):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D "
            f"affine transforms, respectively. Got size {size}."
        )
    rank = len(size) - 2
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (rank, rank + 1):
        raise ValueError(
            f"Expected a batch of {rank}D affine matrices of shape "
            f"Nx{rank}x{rank + 1} for size {size}. Got {theta.shape}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return size


def _affine_grid(theta, size, align_corners):
    size = _check_affine(theta, size)
    if align_corners is None:
        _warn_of_corners()
    return _affine_grid_generator(theta, size, bool(align_corners))


op(
    "affine_grid_generator(theta: Tensor, size: int[], align_corners: bool) -> Tensor",
    composite=lambda theta, size, align_corners: _affine_grid(theta, size, align_corners),
    method=False,
    dtypes=FLOATING,
    doc="Return affine_grid; torch's lower-level name.",
    samples=lambda: [case(T(1, 2, 3), (1, 1, 2, 3), True)],
    ref=references.affine_grid,
)
op(
    "affine_grid(theta: Tensor, size: int[], align_corners: bool? = None) -> Tensor",
    composite=_affine_grid,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return the points that grid_sample needs to transform an image by affine matrices.\n\n"
    "Shape: (n, 2, 3) and the size (n, c, h, w) give (n, h, w, 2); likewise with three dims.",
    samples=lambda: [
        case(T(2, 2, 3), (2, 1, 2, 3), False),
        case(T(1, 2, 3), (1, 1, 4, 1), True),
        case(T(1, 3, 4), (1, 1, 2, 1, 3), False),
        case(T(1, 3, 4), (1, 1, 2, 2, 3), True),
    ],
    ref=references.affine_grid,
)

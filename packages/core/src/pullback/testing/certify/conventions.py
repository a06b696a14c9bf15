"""What the derivative is where a function has none: at kinks, jumps, ties and poles.

Each line is data: a call, the gradient of the sum of its results, and the gradient of the sum of
that. Unless a line says otherwise the gradients are torch's, and each slope lies between the slopes
from both sides. All modes must give exactly these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["KINKS", "Fixed", "Kink", "base_of", "has_convention", "taken_otherwise", "writes"]

inf = math.inf


class Fixed(NamedTuple):
    """A tensor argument by which there is no derivative."""

    values: list


class Kink(NamedTuple):
    """One call; a list among its arguments is a tensor that requires grad.

    ``slopes`` has the gradient by each of these. ``curves`` has the gradient of the sum of the
    slopes: zeros if it is "zero", and nothing is said of it if it is None. ``outside`` says why a
    slope does not lie between those of both sides. ``differs`` says what torch gives instead.
    ``tangents`` has what forward mode gives for each element, where that is something else.
    """

    op: str
    args: tuple
    slopes: tuple
    curves: Any = "zero"
    kwargs: Mapping[str, Any] = MappingProxyType({})
    outside: str = ""
    differs: str = ""
    tangents: tuple = ()


def _k(
    op: str,
    *args: Any,
    to: Any,
    curves: Any = "zero",
    outside: str = "",
    differs: str = "",
    tangents: tuple = (),
    **kwargs: Any,
) -> Kink:
    slopes = to if isinstance(to, tuple) else (to,)
    curves = (curves,) if isinstance(curves, list) else curves
    return Kink(op, args, slopes, curves, kwargs, outside, differs, tangents)


_JUMP = "the function jumps"
_POLE = "the slope is infinite from the one side that there is"
_AS_IF = "torch's formula treats the point as one where the function is flat"
_SAMPLE = "the derivative of a sample is 0 by definition"
_EACH = "of several elements at one place the last and its tangent stay, each has its gradient"
_NAN = "torch's second derivative is NaN"

# One argument, element by element.
_TURNS = [
    _k("abs", [0.0], to=[0.0]),
    _k("abs", [-0.0], to=[0.0]),
    _k("sign", [0.0, 1.0], to=[0.0, 0.0], outside=_JUMP),
    _k("sgn", [0.0, 1.0], to=[0.0, 0.0], outside=_JUMP),
    _k("angle", [0.0, 1.0, -1.0], to=[0.0, 0.0, 0.0], outside=_JUMP),
    _k("relu", [0.0], to=[0.0]),
    _k("relu6", [0.0, 6.0], to=[0.0, 0.0]),
    _k("leaky_relu", [0.0], 0.1, to=[0.1]),
    _k(
        "prelu",
        [0.0],
        [0.25],
        to=([0.25], [0.0]),
        curves=([1.0], [1.0]),
        differs="torch's second derivative is 0, although its slope is the weight",
    ),
    _k("rrelu", [0.0], 0.25, 0.25, to=[0.25]),
    _k("elu", [0.0], 0.5, to=[0.5]),
    _k("celu", [0.0], 0.5, to=[1.0]),
    _k("selu", [0.0], to=[1.7580993408473766]),
    _k("threshold", [0.5], 0.5, 2.0, to=[0.0], outside=_JUMP),
    _k("hardtanh", [-1.0, 1.0], to=[0.0, 0.0]),
    _k("hardsigmoid", [-3.0, 3.0], to=[0.0, 0.0]),
    _k("hardswish", [-3.0, 3.0], to=[0.0, 1.0]),
    _k("hardshrink", [-0.5, 0.5], to=[0.0, 0.0], outside=_JUMP),
    _k("hardshrink", [0.0], 0.0, to=[0.0], outside=_AS_IF),
    _k("softshrink", [-0.5, 0.5], to=[0.0, 0.0]),
    _k("softshrink", [0.0], 0.0, to=[0.0], outside=_AS_IF),
    _k("softsign", [0.0], to=[1.0]),
    _k("softplus", [20.0], 1.0, 20.0, to=[0.9999999979388463], curves=None),
    _k("frexp", [4.0], to=[0.125], outside=_JUMP),
    _k("floor", [0.0, 1.0], to=[0.0, 0.0], outside=_JUMP),
    _k("ceil", [0.0, 1.0], to=[0.0, 0.0], outside=_JUMP),
    _k("trunc", [1.0, -1.0], to=[0.0, 0.0], outside=_JUMP),
    _k("round", [0.5, 1.5], to=[0.0, 0.0], outside=_JUMP),
    _k("frac", [1.0, -1.0], to=[1.0, 1.0], outside=_JUMP),
    _k("nan_to_num", [inf, -inf, 1.0], to=[0.0, 0.0, 1.0], outside="the argument is infinite"),
    _k("logit", [0.25, 0.75], 0.25, to=[16 / 3, 16 / 3], curves=[-128 / 9, 128 / 9]),
    _k("sqrt", [0.0], to=[inf], curves=[-inf], outside=_POLE),
    _k("rsqrt", [0.0], to=[-inf], curves=[inf], outside=_POLE),
    _k("log", [0.0], to=[inf], curves=[-inf], outside=_POLE),
    _k("entr", [0.0], to=[inf], curves=[-inf], outside=_POLE),
    _k("acos", [1.0], to=[-inf], curves=None, outside=_POLE),
    _k("asin", [1.0], to=[inf], curves=None, outside=_POLE),
    _k("acosh", [1.0], to=[inf], curves=None, outside=_POLE),
    _k("atanh", [1.0], to=[inf], curves=None, outside=_POLE),
    _k("erfinv", [1.0], to=[inf], curves=None, outside=_POLE),
    _k("dropout", [1.0], to=[0.0], p=1.0),
    _k("bernoulli", [1.0], to=[0.0], outside=_SAMPLE),
    _k("poisson", [0.0], to=[0.0], outside=_SAMPLE),
]

# Two arguments, element by element.
_PAIRS = [
    _k("maximum", [2.0], [2.0], to=([0.5], [0.5])),
    _k("minimum", [2.0], [2.0], to=([0.5], [0.5])),
    _k("fmax", [2.0], [2.0], to=([1.0], [0.0])),
    _k("fmin", [2.0], [2.0], to=([1.0], [0.0])),
    _k("clamp", [-1.0, 1.0], -1.0, 1.0, to=[1.0, 1.0]),
    _k("clamp", [1.0], [1.0], [2.0], to=([1.0], [0.0], [0.0])),
    _k("at_least", [0.0, 2.0], 1.0, to=[1.0, 1.0], outside="it is clamp_min with the slope 1"),
    _k("clamp_min", [0.0], 0.0, to=[1.0]),
    _k("clamp_max", [0.0], 0.0, to=[1.0]),
    _k("atan2", [0.0], [0.0], to=([0.0], [0.0]), curves=None, outside=_JUMP),
    _k(
        "hypot",
        [0.0],
        [0.0],
        to=([math.nan], [math.nan]),
        curves=None,
        outside="a quotient of zeros",
    ),
    _k("copysign", [0.0], [1.0], to=([0.0], [0.0]), differs=_NAN),
    _k("copysign", [1.0], [0.0], to=([1.0], [0.0]), outside=_JUMP),
    _k("fmod", [4.0], [2.0], to=([1.0], [-2.0]), outside=_JUMP),
    _k("remainder", [4.0], [2.0], to=([1.0], [-2.0]), outside=_JUMP),
    _k("div", [4.0], [2.0], rounding_mode="floor", to=([0.0], [0.0]), outside=_JUMP),
    _k("div", [4.0], [2.0], rounding_mode="trunc", to=([0.0], [0.0]), outside=_JUMP),
    _k("nextafter", [1.0], [2.0], to=([1.0], [0.0]), outside=_JUMP),
    _k("nextafter", [1.0], [1.0], to=([0.0], [0.0]), outside=_AS_IF),
    _k("ldexp", [0.0], [1.0], to=([2.0], [0.0]), curves=None),
    _k("pow", [0.0], 0.5, to=[inf], curves=[-inf], outside=_POLE),
    _k("pow", [0.0], 1, to=[1.0]),
    _k("pow", [0.0], 0, to=[0.0]),
    _k("pow", [0.0], [0.0], to=([0.0], [0.0]), curves=None, outside=_JUMP),
    _k("pow", [0.0], [2.0], to=([0.0], [0.0]), curves=None),
    _k("pow", [0.0], [0.5], to=([inf], [0.0]), curves=None, outside=_POLE),
    _k("float_power", [0.0], [1.0], to=([1.0], [0.0]), curves=None),
    _k("xlogy", [0.0], [2.0], to=([math.log(2.0)], [0.0]), curves=([0.5], [0.5])),
    _k("xlogy", [0.0], [0.0], to=([0.0], [math.nan]), curves=None, outside=_POLE),
    _k("xlog1py", [0.0], [-1.0], to=([0.0], [math.nan]), curves=None, outside=_POLE),
]

# Elements that are chosen: ties are shared where all are looked at, else one is taken.
_CHOSEN = [
    _k("amax", [1.0, 3.0, 3.0], to=[0.0, 0.5, 0.5]),
    _k("amin", [3.0, 1.0, 1.0], to=[0.0, 0.5, 0.5]),
    _k("max", [1.0, 3.0, 3.0], to=[0.0, 0.5, 0.5]),
    _k("min", [3.0, 1.0, 1.0], to=[0.0, 0.5, 0.5]),
    _k("max", [1.0, 3.0, 3.0], 0, to=[0.0, 1.0, 0.0]),
    _k("min", [3.0, 1.0, 1.0], 0, to=[0.0, 1.0, 0.0]),
    _k("aminmax", [3.0, 3.0], to=[1.0, 1.0]),
    _k("median", [3.0, 3.0, 1.0], to=[0.5, 0.5, 0.0]),
    _k("median", [3.0, 3.0, 1.0], 0, to=[1.0, 0.0, 0.0]),
    _k("nanmedian", [3.0, 3.0, 1.0], to=[0.5, 0.5, 0.0]),
    _k("nanmedian", [3.0, 3.0, 1.0], 0, to=[1.0, 0.0, 0.0]),
    _k("mode", [3.0, 3.0, 1.0], to=[0.0, 1.0, 0.0], outside=_JUMP),
    _k("kthvalue", [3.0, 3.0, 1.0], 2, to=[1.0, 0.0, 0.0]),
    _k("topk", [3.0, 3.0, 1.0], 1, to=[1.0, 0.0, 0.0]),
    _k("sort", [3.0, 3.0, 1.0], to=[1.0, 1.0, 1.0]),
    _k("msort", [3.0, 3.0, 1.0], to=[1.0, 1.0, 1.0]),
    _k("quantile", [3.0, 3.0, 1.0], 0.5, to=[1.0, 0.0, 0.0]),
    _k("nanquantile", [3.0, 3.0, 1.0], 0.5, to=[1.0, 0.0, 0.0]),
    _k("cummax", [1.0, 1.0], 0, to=[1.0, 1.0]),
    _k("cummin", [1.0, 1.0], 0, to=[1.0, 1.0]),
    _k("max_pool1d", [[2.0, 2.0]], 2, to=[[1.0, 0.0]]),
    _k("max_pool2d", [[[2.0, 2.0]]], (1, 2), to=[[[1.0, 0.0]]]),
    _k("max_pool3d", [[[[2.0, 2.0]]]], (1, 1, 2), to=[[[[1.0, 0.0]]]]),
    _k("adaptive_max_pool1d", [[2.0, 2.0]], 1, to=[[1.0, 0.0]]),
    _k("adaptive_max_pool2d", [[[2.0, 2.0]]], 1, to=[[[1.0, 0.0]]]),
    _k("adaptive_max_pool3d", [[[[2.0, 2.0]]]], 1, to=[[[[1.0, 0.0]]]]),
    _k("scatter_reduce", [2.0], 0, Fixed([0]), [2.0], reduce="amax", to=([0.5], [0.5])),
    _k("scatter_reduce", [2.0], 0, Fixed([0]), [2.0], reduce="amin", to=([0.5], [0.5])),
    _k("index_reduce", [2.0], 0, Fixed([0]), [2.0], "amax", to=([0.5], [0.5])),
    _k("index_reduce", [2.0], 0, Fixed([0]), [2.0], "amin", to=([0.5], [0.5])),
    _k("embedding_bag", Fixed([0, 1]), [[1.0], [1.0]], Fixed([0]), mode="max", to=[[1.0], [0.0]]),
]

# Norms and distances at zero, where the derivative is 0.
_NORMS = [
    _k("norm", [0.0, 0.0], to=[0.0, 0.0], differs=_NAN),
    _k("norm", [0.0, 1.0], 1, to=[0.0, 1.0]),
    _k("norm", [1.0, -1.0], inf, to=[0.5, -0.5]),
    _k("linalg_vector_norm", [0.0, 0.0], to=[0.0, 0.0], differs=_NAN),
    _k("linalg_vector_norm", [0.0, 1.0], 1, to=[0.0, 1.0]),
    _k("linalg_vector_norm", [1.0, -1.0], inf, to=[0.5, -0.5]),
    _k("linalg_vector_norm", [1.0, -1.0], -inf, to=[0.5, -0.5]),
    _k("linalg_vector_norm", [0.0, 0.0], 3, to=[0.0, 0.0]),
    _k("linalg_norm", [0.0, 0.0], to=[0.0, 0.0], differs=_NAN),
    _k(
        "linalg_matrix_norm",
        [[0.0, 0.0], [0.0, 0.0]],
        "fro",
        to=[[0.0, 0.0], [0.0, 0.0]],
        differs=_NAN,
    ),
    _k("linalg_matrix_norm", [[1.0, 0.0], [0.0, 1.0]], 2, to=[[0.5, 0.0], [0.0, 0.5]], curves=None),
    _k(
        "linalg_matrix_norm",
        [[1.0, 0.0], [0.0, 1.0]],
        "nuc",
        to=[[1.0, 0.0], [0.0, 1.0]],
        curves=None,
    ),
    _k("linalg_svdvals", [[1.0, 0.0], [0.0, 1.0]], to=[[1.0, 0.0], [0.0, 1.0]], curves=None),
    _k("dist", [1.0, 1.0], [1.0, 1.0], to=([0.0, 0.0], [0.0, 0.0]), differs=_NAN),
    _k("dist", [1.0, 2.0], [1.0, 1.0], 1, to=([0.0, 1.0], [0.0, -1.0])),
    _k("pdist", [[1.0, 1.0], [1.0, 1.0]], to=[[0.0, 0.0], [0.0, 0.0]], curves=None),
    _k("cdist", [[1.0, 1.0]], [[1.0, 1.0]], to=([[0.0, 0.0]], [[0.0, 0.0]]), curves=None),
    _k("cdist", [[1.0, 1.0]], [[1.0, 1.0]], 1.0, to=([[0.0, 0.0]], [[0.0, 0.0]])),
    _k(
        "pairwise_distance",
        [[1.0, 1.0]],
        [[1.0, 1.0]],
        2.0,
        0.0,
        to=([[0.0, 0.0]], [[0.0, 0.0]]),
        differs=_NAN,
    ),
    _k("renorm", [[3.0, 4.0]], 2.0, 0, 5.0, to=[[1.0, 1.0]]),
    _k(
        "normalize",
        [0.0, 0.0],
        dim=0,
        to=[1e12, 1e12],
        differs=_NAN,
        outside="it turns 1e-12 away from there",
    ),
    _k(
        "cosine_similarity",
        [0.0, 0.0],
        [1.0, 2.0],
        dim=0,
        to=([2e8 / math.sqrt(20), 4e8 / math.sqrt(20)], [0.0, 0.0]),
        curves=None,
        outside="it turns 1e-8 away from there",
    ),
    _k(
        "rms_norm", [0.0, 0.0], (2,), to=[2.0**26, 2.0**26], outside="it turns 1e-8 away from there"
    ),
    _k("std", [2.0, 2.0], to=[0.0, 0.0]),
    _k("std_mean", [2.0, 2.0], to=[0.5, 0.5]),
    _k("lp_pool1d", [[0.0, 0.0]], 2.0, 2, to=[[0.0, 0.0]]),
    _k("lp_pool2d", [[[0.0, 0.0]]], 2.0, (1, 2), to=[[[0.0, 0.0]]]),
    _k("lp_pool3d", [[[[0.0, 0.0]]]], 2.0, (1, 1, 2), to=[[[[0.0, 0.0]]]]),
]

_LOSSES = [
    _k("l1_loss", [1.0], [1.0], to=([0.0], [0.0])),
    _k("smooth_l1_loss", [1.0], [1.0], beta=0.0, to=([0.0], [0.0])),
    _k("smooth_l1_loss", [1.0], [0.0], to=([1.0], [-1.0])),
    _k("huber_loss", [1.0], [0.0], to=([1.0], [-1.0])),
    _k("hinge_embedding_loss", [1.0], Fixed([-1.0]), to=[-1.0]),
    _k("margin_ranking_loss", [1.0], [1.0], Fixed([1.0]), to=([-1.0], [1.0])),
    _k("triplet_margin_loss", [[0.0]], [[1.0]], [[2.0]], eps=0.0, to=([[0.0]], [[1.0]], [[-1.0]])),
    _k("multi_margin_loss", [[1.0, 0.0]], Fixed([0]), to=[[0.0, 0.0]]),
    _k("multilabel_margin_loss", [[1.0, 0.0]], Fixed([[0, -1]]), to=[[0.0, 0.0]]),
    _k("kl_div", [0.5], [0.0], reduction="sum", to=([0.0], [math.nan]), curves=None, outside=_POLE),
    _k(
        "poisson_nll_loss",
        [2.0],
        [1.0],
        full=True,
        to=([math.exp(2.0) - 1], [-2.0]),
        curves=None,
        outside=_JUMP,
    ),
    _k(
        "gaussian_nll_loss",
        [1.0],
        Fixed([1.0]),
        [1e-6],
        eps=1e-6,
        to=([0.0], [5e5]),
        curves=None,
        outside="smaller variances are refused",
    ),
    _k("binary_cross_entropy", [0.0], Fixed([0.0]), to=[0.0], outside=_POLE),
    _k("binary_cross_entropy", [1.0], Fixed([1.0]), to=[0.0], outside=_POLE),
    _k(
        "cosine_embedding_loss",
        [[1.0, 0.0]],
        [[0.0, 1.0]],
        Fixed([-1.0]),
        to=([[0.0, 1.0 - 1e-12]], [[1.0 - 1e-12, 0.0]]),
        curves=None,
    ),
    _k(
        "grid_sample",
        [[[[1.0, 2.0], [3.0, 5.0]]]],
        [[[[-0.5, -0.5]]]],
        mode="bilinear",
        align_corners=False,
        to=([[[[1.0, 0.0], [0.0, 0.0]]]], [[[[1.0, 2.0]]]]),
        curves=None,
    ),
]

_WRITTEN = [
    _k(
        "scatter",
        [5.0],
        0,
        Fixed([0, 0]),
        [1.0, 2.0],
        to=([0.0], [1.0, 1.0]),
        tangents=([0.0], [0.0, 1.0]),
        outside=_EACH,
    ),
    _k(
        "put",
        [5.0],
        Fixed([0, 0]),
        [1.0, 2.0],
        to=([0.0], [1.0, 1.0]),
        tangents=([0.0], [0.0, 1.0]),
        outside=_EACH,
    ),
    _k(
        "index_copy",
        [5.0],
        0,
        Fixed([0, 0]),
        [1.0, 2.0],
        to=([0.0], [1.0, 1.0]),
        tangents=([0.0], [0.0, 1.0]),
        outside=_EACH,
    ),
    _k(
        "max_unpool1d",
        [[1.0, 2.0]],
        Fixed([[0, 0]]),
        1,
        to=[[1.0, 1.0]],
        tangents=([[0.0, 1.0]],),
        outside=_EACH,
    ),
]

KINKS = (*_TURNS, *_PAIRS, *_CHOSEN, *_NORMS, *_LOSSES, *_WRITTEN)

_ENDINGS = ("_kernel", "_unit", "_of", "_all", "_along", "_batch", "_with_indices", "_backward")
# Ops that are made of others: what holds for these holds for them.
MADE_OF = {
    "div_rounded": "div",
    "euclidean_dist": "cdist",
    "max_windows": "max_pool2d",
    "vector_norm": "linalg_vector_norm",
    "grid_sampler": "grid_sample",
    "triplet_margin_with_distance_loss": "triplet_margin_loss",
}


def _any_zero(*arrays: np.ndarray) -> bool:
    return any((array == 0).any() for array in arrays)


def _any_equal(*arrays: np.ndarray) -> bool:
    return bool((arrays[0] == arrays[1]).any())


def _any_small(*arrays: np.ndarray) -> bool:
    return bool((arrays[-1] < 1e-6).any())


# Where the function is smooth, and torch's formula takes it as another nevertheless.
OTHERWISE: dict[str, Callable[..., bool]] = {
    "hardshrink": _any_zero,
    "softshrink": _any_zero,
    "nextafter": _any_equal,
    "at_least": lambda *arrays: True,
    "gaussian_nll_loss": _any_small,
}
# Those that write: of several elements at one place the last one stays, and each has a gradient.
WRITERS = (
    "index_put",
    "index_copy",
    "put",
    "scatter",
    "scatter_values",
    "scatter_planes",
    "unpool_planes",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
)


def base_of(name: str) -> str:
    """Return the public op whose building block an op is, or itself."""
    name = name.removeprefix("plain_").removeprefix("functional_")
    changed = True
    while changed:
        changed = False
        for ending in (*_ENDINGS, "_"):
            if name.endswith(ending):
                name, changed = name.removesuffix(ending), True
    return MADE_OF.get(name, name)


def taken_otherwise(name: str, arrays: list[np.ndarray]) -> bool:
    """Tell whether an op's formula is that of another function at a point."""
    holds = OTHERWISE.get(base_of(name))
    return holds is not None and holds(*arrays)


def writes(name: str) -> bool:
    """Tell whether an op writes elements at places that it is given."""
    return base_of(name) in WRITERS


def has_convention(name: str) -> bool:
    """Tell whether something is written down about an op, or the op that it is part of."""
    return base_of(name) in {kink.op for kink in KINKS}

"""Conventions of derivatives at kinks, jumps, ties and poles.

An entry's ``kinks`` are calls at such points, each with the gradient of the sum of its results and
the gradient of the sum of that. Unless a call says otherwise the gradients are torch's, and each
derivative is between those from both sides. All modes must give exactly these numbers:
``python -m pullback.testing certify`` compares them, and refuses a public op that has a kink and
states none::

    kinks=[kink([0.0], to=[0.0]), kink([3.0, 3.0, 1.0], 0, to=[1.0, 0.0, 0.0])]
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

INFINITY, NAN = math.inf, math.nan

# Why a derivative is not between those from both sides.
JUMP = "the function jumps"
POLE = "the derivative is infinite from the one side that there is"
AS_IF_FLAT = "torch's formula treats the point as one where the function is flat"
EACH_WRITTEN = (
    "of several elements at one position the last and its tangent stay, each has its gradient"
)

# What torch gives instead.
TORCH_NAN = "torch's second derivative is NaN"


class Fixed(NamedTuple):
    """A tensor argument by which there is no derivative."""

    values: list
    whole: str = "int64"  # the dtype of integers


class Kink(NamedTuple):
    """One call; a list among its arguments is a tensor that requires grad, also in a tuple.

    ``gradients`` has the gradient by each of these. ``second`` has the gradient of the sum of the
    gradients: zeros if it is "zero", and it is not compared if it is None. ``outside`` says why a
    derivative is not between those of both sides. ``differs`` says what torch gives instead.
    ``tangents`` has what forward mode gives for each element, where that is something else.
    """

    args: tuple
    gradients: tuple
    second: Any
    kwargs: Mapping[str, Any]
    outside: str
    differs: str
    tangents: tuple
    op: str = ""  # the name of the entry, which fills it in


def kink(*args, to, second="zero", outside="", differs="", tangents=(), **kwargs):
    """Write one call down; ``to`` and ``second`` are one gradient, or a tuple of several."""
    gradients = to if isinstance(to, tuple) else (to,)
    second = (second,) if isinstance(second, list) else second
    return Kink(args, gradients, second, kwargs, outside, differs, tangents)

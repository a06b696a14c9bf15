"""Sample calls of an op, written down without values: shapes, ranges and kinds of its arguments.

``T(2, 3)`` stands for a tensor of that shape in the dtype under test; ``pullback.testing`` draws
its values, in every dtype and memory layout. Everything else in a case is passed on as it is::

    samples=[case(T(2, 3), 0), case(T(), -1, keepdim=True)]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Draw(NamedTuple):
    """A tensor argument to be drawn, uniformly from [low, high)."""

    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    kind: str = "tested"        # "tested", "real" (its real counterpart), or the name of a dtype
    step: float | None = None   # round to multiples of this, so that equal elements occur
    values: tuple | None = None     # these very elements, in row-major order


class Case(NamedTuple):
    """One call: its arguments, and the checks that it cannot take part in, with reasons."""

    args: tuple
    kwargs: dict[str, Any]
    skip: dict[str, str]
    dtypes: int | None


def T(*shape, low=None, high=None, step=None):  # noqa: N802  (reads as in formulas)
    """Stand for a tensor in the dtype under test."""
    return Draw(shape, low, high, "tested", step)


def real(*shape, low=None, high=None):
    """Stand for a real floating tensor: complex dtypes under test give their real counterpart."""
    return Draw(shape, low, high, "real")


def index(*shape, high, low=0):
    """Stand for an int64 tensor of indices."""
    return Draw(shape, low, high, "int64")


def mask(*shape):
    """Stand for a bool tensor."""
    return Draw(shape, kind="bool")


def fixed(values, *, shape=None, kind="tested"):
    """Stand for a tensor of these very elements."""
    values = tuple(values)
    return Draw((len(values),) if shape is None else shape, kind=kind, values=values)


def case(*args, skip=None, only=None, **kwargs):
    """Write one call down; ``only`` is a mask of the dtypes it makes sense for.

    ``skip`` maps the name of a check ("value", "grad", "gradgrad", "meta", ...) to the reason why
    this call cannot take part in it.
    """
    return Case(args, kwargs, skip or {}, only)


def cases(dimensions: Iterable, draw=T, **bounds):
    """Write one call down for each shape, or each tuple of (shape, further arguments)."""
    made = []
    for item in dimensions:
        shape, *rest = item if item and isinstance(item[0], tuple) else (item,)
        made.append(case(draw(*shape, **bounds), *rest))
    return made


SHAPES = ((3,), (2, 3), (2, 1, 3), (), (1,), (0,), (2, 0))
PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 3)), ((2, 3), ()),
         ((), ()), ((3, 1, 2), (2, 1)), ((0, 3), (3,)), ((2, 0), (1,)))


def unary(low, high, shapes=SHAPES):
    """Return calls of an op of one operand whose elements lie in [low, high)."""
    return cases(shapes, low=low, high=high)


def binary(first, second, pairs=PAIRS, step=None):
    """Return calls of an op of two operands; both ranges are (low, high), numbers come from them."""
    made = [case(T(*a, low=first[0], high=first[1], step=step),
                 T(*b, low=second[0], high=second[1], step=step)) for a, b in pairs]
    number = second[0] + 0.75 * (second[1] - second[0])
    made.append(case(T(2, 3, low=first[0], high=first[1], step=step), int(number) or 1))
    made.append(case(T(2, 3, low=first[0], high=first[1], step=step), number, only=0xFC0))
    return made

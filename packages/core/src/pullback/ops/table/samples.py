"""Sample calls of an op, written down without values: shapes, ranges and kinds of its arguments.

``T(2, 3)`` stands for a tensor of that shape in the dtype under test; ``pullback.testing`` draws
its values, in every dtype and memory layout. Everything else in a case is passed on as it is::

    samples=lambda: [case(T(2, 3), 0), case(T(), -1, keepdim=True)]

They are made when they are asked for, which spares an import of the package the work.
"""

import importlib
import math
from typing import Any, NamedTuple

from pullback.ops.table.schema import ALL, FLOAT_COMPLEX, FLOATING


class Draw(NamedTuple):
    """A tensor argument to be drawn, uniformly from [low, high)."""

    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    kind: str = "tested"  # "tested", "real" (its real counterpart), or the name of a dtype
    step: float | None = None  # round to multiples of this, so that equal elements occur
    values: tuple | None = None  # these very elements, in row-major order
    constant: bool = False  # the op has no derivative by it


class Dtype(NamedTuple):
    """A dtype among the arguments: "tested", or the name of one."""

    name: str


class Case(NamedTuple):
    """One call: its arguments, and the checks or layouts it is no use for, with reasons."""

    args: tuple
    kwargs: dict[str, Any]
    skip: dict[str, str]
    only: int


TESTED = Dtype("tested")
KINKS = dict.fromkeys(("grad", "gradgrad"), "the function has a kink or a jump at these values")
UNFILLED = dict.fromkeys(
    ("value", "grad", "gradgrad"), "the elements are what the memory held before"
)
MEMORY = dict.fromkeys(("transposed", "strided", "expanded"), "the result depends on the strides")
ROUNDED = dict.fromkeys(("grad", "gradgrad"), "finite differences need float64")
DETACHED = dict.fromkeys(("grad", "gradgrad"), "it cuts the derivative off, which is its purpose")
SHARED = {"alias": "it shares memory, but is no view: no history is shared"}
COUNTED = {"meta": "the size of the result depends on the elements"}
NOT_LAZY = dict.fromkeys(
    ("lazy", "lazy_grad"), "no view of the memory has the elements of a lazy tensor"
)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 40.0, -40.0, 1e-3, math.inf, -math.inf, math.nan)


def T(*shape, low=None, high=None, step=None):
    """Stand for a tensor in the dtype under test."""
    return Draw(shape, low, high, "tested", step)


def constant(*shape, low=None, high=None):
    """Stand for a tensor by which the op has no derivative."""
    return Draw(shape, low, high, constant=True)


def real(*shape, low=None, high=None):
    """Stand for a real floating tensor: complex dtypes under test give their real counterpart."""
    return Draw(shape, low, high, "real")


def at(*shape, high, low=0):
    """Stand for an int64 tensor of indices in [low, high)."""
    return Draw(shape, low, high, "int64")


def mask(*shape):
    """Stand for a bool tensor."""
    return Draw(shape, kind="bool")


def fixed(values, *, shape=None, kind="tested"):
    """Stand for a tensor of these very elements."""
    values = tuple(values)
    return Draw((len(values),) if shape is None else shape, kind=kind, values=values)


def case(*args, skip=None, only=ALL, **kwargs):
    """Write one call down; ``only`` is a mask of the dtypes it makes sense for.

    ``skip`` maps the name of a check ("value", "grad", "gradgrad", "meta", ...) or of a memory
    layout to the reason why this call cannot take part in it.
    """
    return Case(args, kwargs, skip or {}, only)


SHAPES = ((3,), (2, 3), (2, 1, 3), (), (1,), (0,), (2, 0))
PAIRS = (
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((), ()),
    ((3, 1, 2), (2, 1)),
    ((0, 3), (3,)),
    ((2, 0), (1,)),
)


# For the check that results require grad if an operand does.
NO_PART = {"in_graph": "no element has part in the result, as in torch"}


def unary(low, high, shapes=SHAPES, special=SPECIAL):
    """Return calls of an op of one operand with elements in [low, high), or are special."""
    made = [case(T(*shape, low=low, high=high)) for shape in shapes]
    return [*made, case(fixed(special), skip=KINKS, only=FLOATING)] if special else made


def binary(first=(-3, 3), second=(-3, 3), *, special=SPECIAL, ties=False, numbers=True):
    """Return calls of an op of two operands in ranges (low, high); ``numbers`` may be the second.

    ``special`` values are used in every pair. ``ties`` adds operands with equal elements.
    """

    def draw(shape, bounds, step=None):
        return T(*shape, low=bounds[0], high=bounds[1], step=step)

    made = [case(draw(a, first), draw(b, second)) for a, b in PAIRS]
    if numbers:
        number = second[0] + 0.8 * (second[1] - second[0])
        made += [
            case(draw((2, 3), first), int(number) or 1),
            case(draw((2, 3), first), number, only=FLOAT_COMPLEX),
        ]
    if special:
        made.append(
            case(fixed(special, shape=(len(special), 1)), fixed(special), skip=KINKS, only=FLOATING)
        )
    if ties:
        made.append(case(draw((4, 4), first, 1), draw((4, 4), second, 1), skip=KINKS))
    return made


def reduction(dims=(None, 0, -1, (0, 1)), *, empty=True, low=None, high=None):
    """Return calls of a reduction; ``empty``: it has a value for no elements."""

    def draw(*shape):
        return T(*shape, low=low, high=high)

    made = [case(draw(2, 3)), case(draw()), case(draw(1)), case(draw(3))]
    for dim in dims:
        made += [case(draw(2, 3), dim), case(draw(2, 3), dim, keepdim=True)]
    made += [
        case(draw(2, 3, 2), 1),
        case(draw(), 0),
        case(draw(), -1, keepdim=True),
        case(draw(0, 3), 1),
    ]
    return [*made, case(draw(0, 3), 0), case(draw(0)), case(draw(2, 0), 1, True)] if empty else made


# -- references ------------------------------------------------------------------------------------


class Reference(NamedTuple):
    """A function of ``pullback.testing.references``, imported when it is called.

    ``of(...)`` gives the function that it makes of arguments known to the entry.
    """

    family: str
    name: str
    given: tuple[Any, ...] | None = None

    def of(self, *given: Any) -> "Reference":
        return self._replace(given=given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = importlib.import_module(f"pullback.testing.references.{self.family}")
        function = getattr(module, self.name)
        if self.given is not None:
            function = function(*self.given)
        return function(*args, **kwargs)


class references_of:
    """The references of a family, by name."""

    def __init__(self, family: str) -> None:
        self.family = family

    def __getattr__(self, name: str) -> Reference:
        return Reference(self.family, name)

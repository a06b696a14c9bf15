"""How a row is declared: as a function of statements, or as an expression in a table.

A workload takes the module and a number ``n``. It does the set-up, which is not timed, and returns
the function that is timed and does the work ``n`` times. What that function returns stays alive
until the clock has stopped, so freeing a graph is not part of a row.

A table has operands, made once by a function, and expressions over them. The expressions name the
module ``m`` and its ``nn.functional`` ``F``; its operands and sizes have their own names. An
expression that NumPy or JAX can run, too, says how, with ``np`` for their namespace.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Budget = tuple[float, float]  # the ratio to torch's time that is allowed, and the one aimed at

DEFAULT_BUDGET: Budget = (1.0, 0.8)  # no workload is slower than torch
OVERHEAD_BUDGET: Budget = (1 / 6, 1 / 10)  # an operation on 8 elements
BANDWIDTH_BUDGET: Budget = (0.6, 0.3)  # elementwise on millions of elements
LAYOUT_BUDGET: Budget = (0.6, 0.25)  # reductions, broadcasting, transposed operands
LOOKUP_BUDGET: Budget = (0.5, 0.15)  # gather, index_select, embedding
PRODUCT_BUDGET: Budget = (1.02, 0.95)  # what BLAS and LAPACK do
FUSED_BUDGET: Budget = (0.9, 0.7)  # attention, steps of recurrent layers
DERIVATIVE_BUDGET: Budget = (1 / 10, 1 / 30)  # hessian, jacobian, gradcheck

Timed = Callable[[], Any]
Operands = dict[str, Any]

SAME = "as it is written to the left, with np for m"
FEWEST = 16  # how far a size is scaled down


class Size:
    """Gives the sizes of operands: those declared, or smaller ones for tests and quick runs."""

    def __init__(self, divisor: int = 1) -> None:
        self.divisor = divisor

    def __call__(self, elements: int) -> int:
        """Return the size to use in place of ``elements``."""
        return max(elements // self.divisor, min(elements, FEWEST))


FULL = Size()


class Workload(NamedTuple):
    """One row: how to run it, and the ratio to torch's time that it may have.

    ``units`` is how often a measurement runs it; None lets the process choose. ``table`` and
    ``entry`` are set for a row of a table. ``alone`` rows are measured with one thread only, and
    ``scaled`` ones take a ``Size`` to make smaller operands with.
    """

    key: str
    title: str
    prepare: Callable[..., Timed] | None
    units: int | None
    budget: float
    stretch: float
    table: Table | None = None
    entry: Entry | None = None
    alone: bool = True
    scaled: bool = False

    @property
    def group(self) -> str:
        """Return the class of the row."""
        return self.key.partition("/")[0]

    def written_for(self, dialect: str) -> str:
        """Return the expression for torch, NumPy or JAX; empty where there is none."""
        if self.table is None or self.entry is None:
            return ""
        text, numpy, jax = self.entry[:3]
        if dialect == "torch":
            return text
        words = re.sub(r"\bm\.", "np.", text) if numpy == SAME else numpy
        if dialect == "numpy":
            return "" if self.table.backward else words  # it has no gradients
        return (words or re.sub(r"\bm\.", "np.", text)) if jax == SAME else jax


class Entry(NamedTuple):
    """One expression of a table, and how NumPy and JAX write it (empty: they are not asked)."""

    expression: str
    numpy: str = ""
    jax: str = ""
    budget: Budget | None = None
    flops: Callable[[Operands], float] | None = None


class Table(NamedTuple):
    """Expressions over shared operands.

    ``backward`` differentiates them by the operands that require a gradient. ``bandwidth`` rows are
    held against the speed of memory.
    """

    key: str
    setup: Callable[[Any, Size], Operands]
    budget: Budget
    backward: bool
    bandwidth: bool
    alone: bool


WORKLOADS: dict[str, Workload] = {}


def workload(
    units: int | None, budget: float, stretch: float, group: str = "overhead", alone: bool = True
):
    """Register a function under its name; its docstring's first line is the row's title."""

    def register(prepare):
        title = prepare.__doc__.splitlines()[0].rstrip(".")
        key = f"{group}/{prepare.__name__}"
        scaled = "size" in inspect.signature(prepare).parameters
        WORKLOADS[key] = Workload(
            key, title, prepare, units, budget, stretch, alone=alone, scaled=scaled
        )
        return prepare

    return register


def table(
    key: str,
    setup: Callable[[Any, Size], Operands],
    entries: Iterable[str | Entry],
    *,
    budget: Budget = DEFAULT_BUDGET,
    backward: bool = False,
    bandwidth: bool = False,
    alone: bool = False,
) -> None:
    """Register a row for each expression; ``key`` is its class and what the operands are."""
    shared = Table(key, setup, budget, backward, bandwidth, alone)
    for given in entries:
        entry = Entry(given) if isinstance(given, str) else given
        what = key.partition("/")[2]
        title = re.sub(r"\b(m\.nn\.functional|m|F)\.", "", entry.expression)
        row_key = f"{key}/{title}"
        if row_key in WORKLOADS:
            raise ValueError(f"two rows are called {row_key}")
        WORKLOADS[row_key] = Workload(
            row_key,
            f"`{title}`, {what}",
            None,
            None,
            *(entry.budget or budget),
            table=shared,
            entry=entry,
            alone=alone,
            scaled=True,
        )


def same(*expressions: str, budget: Budget | None = None) -> Iterator[Entry]:
    """Give entries that NumPy and JAX write as torch does."""
    return (Entry(text, SAME, SAME, budget) for text in expressions)


def pairs(*expressions: tuple[str, str], budget: Budget | None = None) -> Iterator[Entry]:
    """Return entries of an expression for torch and one for NumPy and JAX."""
    return (Entry(text, other, SAME, budget) for text, other in expressions)


def leaf(x: Any) -> Any:
    """Make a tensor require a gradient; an array stays as it is."""
    return x.requires_grad_() if hasattr(x, "requires_grad_") else x


def cast(x: Any, dtype: Any) -> Any:
    """Convert a tensor or an array."""
    return x.to(dtype) if hasattr(x, "to") else x.astype(dtype)

"""The page about what was found, and what the derivative is at kinks."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pullback.ops import ENTRIES
from pullback.ops.table.kinks import Fixed, Kink
from pullback.testing.certify.cells import Cell, Found
from pullback.testing.certify.stated import KINKS
from pullback.testing.samples import op_of

__all__ = ["conventions", "page", "totals"]

Labelled = Iterable[tuple[tuple[str, ...], Cell]]  # device, op, dtype and mode of each cell

KINDS = ("right", "kink", "unjudged", "wrong", "raised", "unstated")
MEANING = {
    "right": "every number met its truth",
    "kink": "no point is smooth: modes agree, and the stated convention holds",
    "unjudged": "no point could be judged by differences; modes agree where both can be computed",
    "wrong": "a number is not the derivative, or not the stated one",
    "raised": "a mode raised",
    "unstated": "there is a kink, and no convention is stated",
}
POINTS = {
    "right": "met a truth",
    "kink": "not smooth: modes were compared with one another, conventions exactly",
    "unconverged": "differences did not settle: modes were compared with one another",
    "range": "the derivative, or squares that it is made of, leaves the range of the dtype",
}

INTRODUCTION = """\
Written by `python -m nox -s certify`. Each cell is an op in a dtype and a mode of differentiation:
`rev` is backward, `fwd` forward mode, `rev-rev` backward through backward, `fwd-rev` forward mode
over backward, and so on; `vmap-rev` and `vmap-fwd` are `vmap` over either, `batched` is
`is_grads_batched`.

The truths share no formula with the derivatives. They are differences of values, extrapolated as
Richardson and Ridders do, with an estimate of their error; complex steps, where the op is an
analytic function of complex numbers; and the definitions of scalar functions in 50 digits. Complex
functions are moved in complex directions: a step t changes the real inner product of weights and
results by that of the gradient and t. Narrow dtypes are compared with float64 and complex128 at
the same point. Points are the sample calls of each op in every memory layout, empty ones and those
of no dims among them, and calls with zeros, ties, equal elements, equal and nearly equal rows,
subnormal, tiny and large elements."""
CONVENTIONS = """\
What the derivative is where the function has none. It is torch's, and between the derivatives of
both sides, unless the last column says otherwise. Every mode gives exactly these numbers. "Second"
is the gradient of the sum of the gradients; - where nothing is promised. A public op with a
kink that states nothing here counts as wrong."""


def family(name: str) -> str:
    """Return the name of the namespace that an op belongs to."""
    entry = ENTRIES.get(name) or ENTRIES[name.removesuffix("_")]
    if not (entry.method or entry.function):
        return "building blocks"
    spaces = [space for space in entry.namespaces if space]
    if not spaces or "" in entry.namespaces:
        return "tensors"
    return {"functional": "nn.functional"}.get(spaces[0], spaces[0])


def kinds(cells: Iterable[Cell]) -> collections.Counter:
    return collections.Counter(cell.kind() for cell in cells)


def points_of(cells: Iterable[Cell]) -> collections.Counter:
    """Return the points of cells by kind."""
    points: collections.Counter = collections.Counter()
    for cell in cells:
        points.update(cell.counts)
    return points


def totals(found: Found) -> list[str]:
    """Return the totals in lines."""
    counts, points = kinds(found.cells.values()), points_of(found.cells.values())
    lines = [
        f"cells {len(found.cells)}: " + ", ".join(f"{counts[k]} {k}" for k in KINDS if counts[k]),
        f"points {points.total()}: " + ", ".join(f"{n} {k}" for k, n in sorted(points.items())),
        f"complex steps confirmed {found.steps} points",
    ]
    lines += [f"left out, {number} times: {why}" for why, number in sorted(found.skipped.items())]
    return lines


def table(head: list[str], rows: Iterable[list[Any]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def by(word: str, labelled: Labelled, key: Callable[..., str]) -> list[str]:
    """Return a table of the totals of cells that share a key."""
    groups: dict[str, list[Cell]] = {}
    for labels, cell in labelled:
        groups.setdefault(key(*labels), []).append(cell)
    rows = []
    for name, cells in groups.items():
        counts = kinds(cells)
        rows.append([name, len(cells), points_of(cells).total(), *(counts[k] for k in KINDS)])
    return table([word, "cells", "points", *KINDS], rows)


def page(founds: Mapping[str, Found]) -> str:
    """Return the page about what was found on some devices; it depends on nothing else."""
    labelled = [
        ((device, *labels), cell)
        for device, found in founds.items()
        for labels, cell in found.cells.items()
    ]
    points = points_of(cell for _, cell in labelled)
    forms = [
        f"{len({name for name, _, _ in found.cells})} on {device}"
        for device, found in founds.items()
    ]
    skipped: collections.Counter = collections.Counter()
    for found in founds.values():
        skipped.update(found.skipped)
    lines = [
        "# Certainty",
        "",
        INTRODUCTION,
        "",
        *table(["", "what it says of a cell"], [[kind, MEANING[kind]] for kind in KINDS]),
        "",
        "## By device",
        "",
        *by("device", labelled, lambda device, name, dtype, mode: device),
        "",
        "Ops and in-place forms looked at: " + ", ".join(forms) + ".",
        "",
        "## By mode",
        "",
        "`bounds` is the mode of the conventions: each must be between those of both sides.",
        "",
        *by("mode", labelled, lambda device, name, dtype, mode: mode),
        "",
        "## By dtype",
        "",
        *by("dtype", labelled, lambda device, name, dtype, mode: dtype),
        "",
        "## By family",
        "",
        *by("family", labelled, lambda device, name, dtype, mode: family(name)),
        "",
        "## Truths of points",
        "",
        f"Complex steps confirmed {sum(found.steps for found in founds.values())} of the points.",
        "",
        *table(["points", ""], [[points[kind], text] for kind, text in POINTS.items()]),
        "",
        "## Left out",
        "",
        *table(["times", "why"], [[number, why] for why, number in sorted(skipped.items())]),
        "",
        f"Public ops without a derivative, {len(without())}: "
        + ", ".join(f"`{name}`" for name in without())
        + ".",
        "",
        *conventions(),
        "",
    ]
    return "\n".join(lines)


def conventions() -> list[str]:
    """Return the part of the page that says what the derivative is at kinks."""
    return [
        "## Conventions at kinks",
        "",
        CONVENTIONS,
        "",
        *table(["call", "gradients", "second", ""], [stated(kink) for kink in KINKS]),
    ]


def without() -> list[str]:
    """Return the public ops that have no derivative."""
    return sorted(
        name
        for name, entry in ENTRIES.items()
        if not op_of(entry).differentiable and (entry.method or entry.function)
    )


def stated(kink: Kink) -> list[str]:
    """Return the row of a convention."""
    given = [text_of(value) for value in kink.args]
    given += [f"{name}={text_of(value)}" for name, value in kink.kwargs.items()]
    zeros = all(not any(_numbers(part)) for part in kink.gradients)
    gradients = "0" if zeros else ", ".join(text_of(part) for part in kink.gradients)
    if kink.second is None:
        second = "-"
    else:
        second = "0" if kink.second == "zero" else ", ".join(map(text_of, kink.second))
    notes = "; ".join(part for part in (kink.outside, kink.differs) if part)
    return [f"`{kink.op}({', '.join(given)})`", gradients, second, notes]


def text_of(value: Any) -> str:
    if isinstance(value, Fixed):
        return text_of(value.values)
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if type(value) is tuple and any(isinstance(part, list) for part in value):
        return "(" + ", ".join(map(text_of, value)) + ",)"
    return f"{value:.10g}" if isinstance(value, float) else repr(value)


def _numbers(value: Any) -> list[float]:
    return [n for part in value for n in _numbers(part)] if isinstance(value, list) else [value]

"""Turns measurements into RESULTS.md."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HEADER = """# Results

Written by `python -m benchmarks.run` (`nox -s bench`). Times are process CPU time with one thread.
Each round runs every process once on every row, in alternating order, and a ratio is taken within a
round. *Ratio* is the median over the rounds, *spread* their smallest and largest, *noise* the ratio
of a second torch process to the first. A time is the smallest of the rounds.
"""


class Row(NamedTuple):
    """One line of the table: seconds a unit in each round, and what is allowed."""

    title: str
    ours: Sequence[float]
    torch: Sequence[float]
    noise: Sequence[float]
    budget: float
    stretch: float

    @property
    def ratios(self) -> list[float]:
        """Return our time over torch's, round by round."""
        return [a / b for a, b in zip(self.ours, self.torch, strict=True)]

    @property
    def ratio(self) -> float:
        """Return the median of the rounds' ratios."""
        return statistics.median(self.ratios)


class Limit(NamedTuple):
    """One line of absolute figures: ours, torch's, and what is allowed, all in one unit."""

    title: str
    ours: float
    torch: float | None
    unit: str
    budget: float | None = None
    stretch: float | None = None


def format_ratio(ratio: float) -> str:
    """Return a ratio below one as a fraction, which is how the budgets are written."""
    return f"1/{1 / ratio:.1f}".removesuffix(".0") if ratio < 0.95 else f"{ratio:.2f}"


def format_seconds(seconds: float) -> str:
    """Return a time with three digits and a fitting unit."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def verdict(value: float, budget: float | None, stretch: float | None) -> str:
    """Return how a figure stands to what is allowed."""
    if budget is None:
        return ""
    if value > budget:
        return "**over**"
    return "stretch" if stretch is not None and value <= stretch else "within"


def ratio_table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table of ratios."""
    lines = [
        "| what | torch | ours | ratio | spread | noise | budget | stretch | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        noise = statistics.median(a / b for a, b in zip(row.noise, row.torch, strict=True))
        cells = [
            row.title,
            format_seconds(min(row.torch)),
            format_seconds(min(row.ours)),
            format_ratio(row.ratio),
            f"{format_ratio(min(row.ratios))} .. {format_ratio(max(row.ratios))}",
            f"{noise:.2f}",
            format_ratio(row.budget),
            format_ratio(row.stretch),
            verdict(row.ratio, row.budget, row.stretch),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def limit_table(limits: Sequence[Limit]) -> list[str]:
    """Return the lines of the table of absolute figures."""

    def cell(value: float | None, unit: str) -> str:
        return "" if value is None else f"{value:.3g} {unit}".strip()

    lines = [
        "| what | torch | ours | budget | stretch | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for limit in limits:
        values = (limit.torch, limit.ours, limit.budget, limit.stretch)
        cells = [cell(value, limit.unit) for value in values]
        judged = verdict(limit.ours, limit.budget, limit.stretch)
        lines.append("| " + " | ".join([limit.title, *cells, judged]) + " |")
    return lines


def processor_name() -> str:
    """Return the processor's name where the system tells it, else its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def render(rows: Sequence[Row], limits: Sequence[Limit], facts: dict[str, str]) -> str:
    """Return the text of RESULTS.md."""
    parts = [HEADER]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n")
    if rows:
        parts.append("\n".join(ratio_table(rows)) + "\n")
    if limits:
        parts.append("\n".join(limit_table(limits)) + "\n")
    return "\n".join(parts)


def over_budget(rows: Sequence[Row], limits: Sequence[Limit]) -> list[str]:
    """Return the titles of everything that is over its budget."""
    bad = [row.title for row in rows if row.ratio > row.budget]
    return bad + [x.title for x in limits if x.budget is not None and x.ours > x.budget]

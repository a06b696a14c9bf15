"""Turns measurements into RESULTS.md."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.reasons import reason_for

HEADER = """# Results

Written by `python -m benchmarks.run` (`nox -s bench`). Times are process CPU time with one thread,
and the wall's where a heading or a column says two threads. Each round runs every process once on
every row, in alternating order, and a ratio is taken within a round. *Ratio* is our time over
torch's, the median over the rounds, *spread* their smallest and largest, *noise* the ratio of a
second torch process to the first. A time is the smallest of the rounds. *NumPy* and *JAX* are the
ratios of our time to theirs. *Floor* is how close we come to the machine: to STREAM's bandwidth
with arrays of 16 MB for what moves elements, to the best library's 2048 x 2048 product for matrix
products. Above 100 % a row does not move all it names, or moves it within a cache.
"""
SLOWER = 1.02  # beyond what two processes of one library differ by
NEAR_BANDWIDTH = 0.85
NEAR_PRODUCT = 0.90


class Row(NamedTuple):
    """One line of the table: seconds a unit in each round, and what is allowed."""

    title: str
    ours: Sequence[float]
    torch: Sequence[float]
    noise: Sequence[float]
    budget: float
    stretch: float
    key: str = ""
    numpy: Sequence[float] = ()
    jax: Sequence[float] = ()
    fraction: float | None = None  # of what the machine can do
    errors: Mapping[str, str] = {}  # by the label of the process that failed
    two: Row | None = None  # the same with two threads

    @property
    def group(self) -> str:
        """Return the class of the row."""
        return self.key.partition("/")[0]

    @property
    def ratios(self) -> list[float]:
        """Return our time over torch's, round by round."""
        return [a / b for a, b in zip(self.ours, self.torch, strict=True)]

    @property
    def ratio(self) -> float:
        """Return the median of the rounds' ratios; none is not a number."""
        complete = self.ours and self.torch
        return statistics.median(self.ratios) if complete else math.nan

    @property
    def worst(self) -> float:
        """Return the larger ratio of one and two threads."""
        ratios = [self.ratio] + ([self.two.ratio] if self.two else [])
        return max((x for x in ratios if not math.isnan(x)), default=math.nan)

    @property
    def failed(self) -> bool:
        """Tell whether the row did not run on what is measured."""
        return "ours" in self.errors or bool(self.two and "ours" in self.two.errors)


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
    if math.isnan(ratio):
        return ""
    return f"1/{1 / ratio:.1f}".removesuffix(".0") if ratio < 0.95 else f"{ratio:.2f}"


def format_seconds(seconds: float) -> str:
    """Return a time with three digits and a fitting unit."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def format_spread(row: Row) -> str:
    """Return the smallest and the largest ratio."""
    if math.isnan(row.ratio):
        return ""
    return f"{format_ratio(min(row.ratios))} .. {format_ratio(max(row.ratios))}"


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median ratio over the rounds; none is not a number."""
    if not ours or len(ours) != len(theirs):
        return math.nan
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def verdict(value: float, budget: float | None, stretch: float | None) -> str:
    """Return how a figure stands to what is allowed."""
    if budget is None or math.isnan(value):
        return ""
    if value > budget:
        return "**over**"
    return "stretch" if stretch is not None and value <= stretch else "within"


def best(seconds: Sequence[float]) -> str:
    """Return the smallest time, or nothing."""
    return format_seconds(min(seconds)) if seconds else ""


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage."""
    return "" if fraction is None else f"{100 * fraction:.0f} %"


def escape(text: str) -> str:
    """Return text for a cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def ratio_table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table of ratios; columns that no row fills are left out."""
    extra = {
        "NumPy": any(row.numpy for row in rows),
        "JAX": any(row.jax for row in rows),
        "floor": any(row.fraction is not None for row in rows),
    }
    two = any(row.two for row in rows)
    heads = ["what", "torch", "ours", "ratio", "spread", "noise"]
    heads += [name for name, used in extra.items() if used]
    heads += ["2 threads: torch", "ours", "ratio", "spread", "noise"] if two else []
    heads += ["floor"] if two and extra["floor"] else []
    heads += ["budget", "stretch", ""]
    lines = ["| " + " | ".join(heads).rstrip() + " |", "| --- " * len(heads) + "|"]
    for row in rows:
        own = {
            "NumPy": format_ratio(ratio_of(row.ours, row.numpy)),
            "JAX": format_ratio(ratio_of(row.ours, row.jax)),
            "floor": percent(row.fraction),
        }
        cells = [escape(row.title), *time_cells(row)]
        cells += [own[name] for name, used in extra.items() if used]
        if two:
            cells += time_cells(row.two) if row.two else [""] * 5
            cells += [percent(row.two.fraction) if row.two else ""] if extra["floor"] else []
        judged = "**failed**" if row.failed else verdict(row.worst, row.budget, row.stretch)
        cells += [format_ratio(row.budget), format_ratio(row.stretch), judged]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def time_cells(row: Row) -> list[str]:
    """Return torch's time, ours, their ratio with its spread, and the noise."""
    noise = ratio_of(row.noise, row.torch)
    return [
        best(row.torch),
        best(row.ours),
        format_ratio(row.ratio),
        format_spread(row),
        "" if math.isnan(noise) else f"{noise:.2f}",
    ]


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


def summary_table(rows: Sequence[Row]) -> list[str]:
    """Return a line for each class: how many rows, their mean ratio, how many miss."""
    lines = [
        "| class | rows | mean ratio | 2 threads | slower than torch | over budget | failed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row.group for row in rows):
        mine = [row for row in rows if row.group == name]
        cells = [
            name,
            str(len(mine)),
            format_ratio(mean_ratio(mine)),
            format_ratio(mean_ratio([row.two for row in mine if row.two])),
            str(sum(row.worst > SLOWER for row in mine)),
            str(sum(row.worst > row.budget for row in mine)),
            str(sum(row.failed for row in mine)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def mean_ratio(rows: Sequence[Row]) -> float:
    """Return the geometric mean of the ratios."""
    ratios = [row.ratio for row in rows if not math.isnan(row.ratio)]
    return statistics.geometric_mean(ratios) if ratios else math.nan


def misses(rows: Sequence[Row], limits: Sequence[Limit]) -> list[str]:
    """Return the lines of what is over budget or slower than torch, worst first, with reasons."""
    bad = [row for row in rows if row.failed or row.worst > min(row.budget, SLOWER)]
    over = [x for x in limits if x.budget is not None and x.ours > x.budget]
    if not bad and not over:
        return ["Nothing is over its budget or slower than torch."]
    lines = ["| what | ratio | 2 threads | budget | reason |", "| --- | --- | --- | --- | --- |"]
    for row in sorted(bad, key=lambda row: -row.worst / row.budget if row.ours else -math.inf):
        both = [format_ratio(row.ratio), format_ratio(row.two.ratio) if row.two else ""]
        failures = {**(row.two.errors if row.two else {}), **row.errors}
        why = f"failed: {failures['ours']}" if row.failed else reason_for(row.key)
        cells = [escape(row.title), *both, format_ratio(row.budget), escape(why)]
        lines.append("| " + " | ".join(cells) + " |")
    for x in over:
        cells = [x.title, f"{x.ours:.3g} {x.unit}", "", f"{x.budget:.3g} {x.unit}"]
        lines.append("| " + " | ".join([*cells, escape(reason_for(x.title))]) + " |")
    return lines


def below_floor(rows: Sequence[Row]) -> list[str]:
    """Return the lines of elementwise rows far from bandwidth and of slow matrix products."""
    found = []
    for row in rows:
        for threads, at in ((1, row), (2, row.two)):
            if at is None or at.fraction is None or not at.ours:
                continue
            if row.group == "elementwise" and at.fraction < NEAR_BANDWIDTH:
                found.append((at.fraction, row, threads, "of bandwidth"))
            rivals = [min(times) for times in (at.torch, at.numpy) if times]
            if row.group == "linalg" and rivals:
                share = min(rivals) / min(at.ours)  # of the best library's rate on this very row
                if share < NEAR_PRODUCT:
                    found.append((share, row, threads, "of the best library's rate"))
    if not found:
        return ["Every elementwise row and every matrix product reaches its floor."]
    lines = ["| what | threads | reached | reason |", "| --- | --- | --- | --- |"]
    for share, row, threads, what in sorted(found, key=lambda item: item[0]):
        cells = [row.title, str(threads), f"{percent(share)} {what}", reason_for(row.key, "floor")]
        lines.append("| " + " | ".join(map(escape, cells)) + " |")
    return lines


def processor_name() -> str:
    """Return the processor's name where the system has it, else its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a line for each process in which a row failed, ours apart: that is a miss."""
    lines = []
    for row in rows:
        for at in (row, row.two):
            for label, text in (at.errors if at else {}).items():
                if label != "ours":
                    lines.append(f"- {row.title}: {label} failed: {escape(text)[:200]}")
    return list(dict.fromkeys(lines))


def render(rows: Sequence[Row], limits: Sequence[Limit], facts: dict[str, str]) -> str:
    """Return the text of RESULTS.md."""
    parts = [HEADER]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n")
    if rows:
        parts.append("\n".join(summary_table(rows)) + "\n")
    for name in dict.fromkeys(row.group for row in rows):
        table = ratio_table([row for row in rows if row.group == name])
        parts.append("\n".join(([f"## {name.capitalize()}", ""] if name else []) + table) + "\n")
    if limits:
        parts.append("## Figures\n\n" + "\n".join(limit_table(limits)) + "\n")
    if failures(rows):
        parts.append("## Not compared\n\n" + "\n".join(failures(rows)) + "\n")
    parts.append("## Misses: over budget or slower than torch\n")
    parts.append("\n".join(misses(rows, limits)) + "\n")
    if any(row.fraction is not None for row in rows):
        parts.append(
            f"## Below the floors: {percent(NEAR_BANDWIDTH)} of bandwidth, "
            f"{percent(NEAR_PRODUCT)} of the best library's matrix product\n"
        )
        parts.append("\n".join(below_floor(rows)) + "\n")
    return "\n".join(parts)


def over_budget(rows: Sequence[Row], limits: Sequence[Limit], factor: float = 1.0) -> list[str]:
    """Return the titles of everything that failed or is over its budget times a factor."""
    bad = [row.title for row in rows if row.failed or row.worst > row.budget * factor]
    return bad + [x.title for x in limits if x.budget is not None and x.ours > x.budget * factor]

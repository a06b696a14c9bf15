"""How cost grows: ``python -m benchmarks.growth`` writes docs/concepts/cost.md.

Time is process CPU time with one thread, the best of a few runs. A series is linear when a unit
costs the same at its largest size as at its smallest, so the page shows that ratio.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from benchmarks.report import format_seconds, processor_name
from benchmarks.subjects import ROOT
from benchmarks.worker import load_module

RUNS = 3
PAGE = ROOT / "docs" / "concepts" / "cost.md"
Phases = dict[str, float]


class Series(NamedTuple):
    """One table: sizes, and a function that gives the seconds of each phase at a size."""

    name: str
    title: str
    unit: str
    sizes: Sequence[int]
    run: Callable[[ModuleType, int], Phases]
    text: str


def timed_backward(y, seed, start: float) -> Phases:
    """Return the seconds since the start, and those of backward."""
    built = time.process_time()
    y.backward(seed)
    return {"forward": built - start, "backward": time.process_time() - built}


def grow_ops(module: ModuleType, n: int) -> Phases:
    """A chain of n products of 8 elements."""
    x, seed = module.ones(8, requires_grad=True), module.ones(8)
    start = time.process_time()
    y = x
    for _ in range(n):
        y = y * x
    return timed_backward(y, seed, start)


def grow_elements(module: ModuleType, n: int) -> Phases:
    """Four operations on n elements."""
    x, seed = module.ones(n, requires_grad=True), module.ones(n)
    start = time.process_time()
    y = (x * x + x).tanh().exp()
    return timed_backward(y, seed, start)


def grow_graph(module: ModuleType, n: int) -> Phases:
    """A lattice of n nodes: rows of 100, each node uses two of the row below."""
    width = min(n, 100)
    row = [module.ones(8, requires_grad=True) for _ in range(width)]
    seed = module.ones(8)
    start = time.process_time()
    for _ in range(n // width):
        row = [row[i - 1] * row[i] for i in range(width)]
    built = time.process_time()
    module.autograd.backward(row, [seed] * width)
    return {"forward": built - start, "backward": time.process_time() - built}


def grow_fan(module: ModuleType, n: int) -> Phases:
    """One tensor that n operations use, and one operation that takes all their results."""
    x, seed = module.ones(8, requires_grad=True), module.ones(n, 8)
    start = time.process_time()
    y = module.stack([x * x for _ in range(n)])
    return timed_backward(y, seed, start)


SERIES = (
    Series(
        *("ops", "Operations", "operation", (1_000, 10_000, 100_000, 1_000_000), grow_ops),
        "A chain of products of 8 elements: each operation needs the one before.",
    ),
    Series(
        *("elements", "Elements", "element"),
        *((100_000, 400_000, 1_600_000, 6_400_000, 25_600_000), grow_elements),
        "`(x * x + x).tanh().exp()`. Small tensors fit in a core's cache, large ones do not: "
        "the step between them is the cost of main memory.",
    ),
    Series(
        *("graph", "Graph", "node", (1_000, 10_000, 100_000, 400_000), grow_graph),
        "A lattice, rows of 100 products of two results of the row below: twice as many edges as "
        "nodes, and exponentially many paths.",
    ),
    Series(
        *("fan-in", "Fan-in", "edge", (100, 1_000, 10_000, 100_000), grow_fan),
        "One leaf that many operations use, so that many gradients are added up in it, and one "
        "`stack` of all their results.",
    ),
)


def measure(series: Series, module: ModuleType, divisor: int) -> list[tuple[int, Phases]]:
    """Return the best time of each phase at each size."""
    points = []
    for size in (max(full // divisor, 10) for full in series.sizes):
        runs = []
        for _ in range(RUNS):
            gc.collect()
            runs.append(series.run(module, size))
        points.append((size, {phase: min(run[phase] for run in runs) for phase in runs[0]}))
    return points


def growth_of(points: Sequence[tuple[int, Phases]], phase: str) -> float:
    """Return the cost of a unit at the largest size divided by that at the smallest."""
    (small, first), (large, last) = points[0], points[-1]
    return (last[phase] / large) / (first[phase] / small)


def section(series: Series, points: Sequence[tuple[int, Phases]]) -> str:
    """Return the text and the table of a series."""
    phases = list(points[0][1])
    lines = [f"## {series.title}", "", series.text, ""]
    lines.append(
        f"| {series.unit}s | " + " | ".join(f"{p}, per {series.unit}" for p in phases) + " |"
    )
    lines.append("| --- " * (1 + len(phases)) + "|")
    for size, seconds in points:
        cells = [f"{size:,}", *(format_seconds(seconds[phase] / size) for phase in phases)]
        lines.append("| " + " | ".join(cells) + " |")
    ratios = [f"{growth_of(points, phase):.2f}" for phase in phases]
    lines.append("| largest / smallest | " + " | ".join(ratios) + " |")
    return "\n".join(lines) + "\n"


def render(sections: Sequence[str], machine: str) -> str:
    """Return the page."""
    head = f"""# How cost grows

Time grows linearly with the number of operations, of elements, of nodes in a graph and of edges
that end in one: adding to a program never makes the rest of it slower. The last line of a table is
the cost of a unit at the largest size divided by that at the smallest: 1 is linear, less than 1
means that more units share a fixed cost.

Written by `python -m benchmarks.growth` (`nox -s growth`): process CPU time with one thread, the
best of {RUNS} runs. {machine}
"""
    return "\n".join([head, *sections])


def draw(series: Series, points: Sequence[tuple[int, Phases]], target: Path) -> None:
    """Draw time against size, with a straight line through the largest point for comparison."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    sizes = [size for size, _ in points]
    for phase, color in zip(points[0][1], ("#2a9d8f", "#d1495b"), strict=True):
        seconds = [found[phase] for _, found in points]
        straight = [seconds[-1] * size / sizes[-1] for size in sizes]
        axes.plot(sizes, straight, color=color, lw=0.8, ls=":")
        axes.plot(sizes, seconds, color=color, marker="o", ms=4, label=phase)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"{series.unit}s")
    axes.set_ylabel("seconds")
    axes.set_title(f"{series.title}: dotted is linear", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=90)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Measure every series, write the page, and plots where they are wanted."""
    parser = argparse.ArgumentParser(description="Measure how cost grows; write the docs' page.")
    parser.add_argument("--module", default="pullback", help="what is measured (pullback)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--plots", type=Path, help="a folder for plots (needs matplotlib)")
    options = parser.parse_args(arguments)
    module = load_module(options.module)
    sections = []
    for series in SERIES:
        points = measure(series, module, 100 if options.quick else 1)
        if options.plots:
            draw(series, points, options.plots / f"growth-{series.name}.png")
        sections.append(section(series, points))
        print(sections[-1], flush=True)
    machine = f"{processor_name()}, Python {platform.python_version()}."
    options.page.write_text(render(sections, machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())

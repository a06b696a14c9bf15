"""Draws the ratios of all rows: one bar a row, on a logarithmic scale, grouped by class.

``python -m benchmarks.chart FILE`` draws those of RESULTS.md, without measuring.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.report import Row, format_ratio

COLUMNS = 4
LINE_INCHES = 0.17
WIDTH_INCHES = 24
LABEL_LENGTH = 62
FASTER, WITHIN, SLOWER = "#2a9d8f", "#e9c46a", "#d1495b"

Line = Row | str  # a string is a class's heading


def read_rows(text: str) -> Iterator[Row]:
    """Yield the rows of the tables of ratios in the text of RESULTS.md; times are in torch's."""
    group, heads = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            group, heads = line[3:].lower(), []
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)][1:-1]
        if cells[:1] == ["what"]:
            heads = cells
        elif {"ratio", "spread", "budget"} <= {*heads} and len(cells) == len(heads):
            if cells[0] == "---":
                continue
            first = heads.index("ratio")
            ratios = read_spread(cells[first], cells[first + 1])
            if not ratios or not cells[heads.index("budget")]:
                continue
            budget = read_ratio(cells[heads.index("budget")])
            row = Row(cells[0], ratios, [1.0] * len(ratios), (), budget, budget, f"{group}/")
            if "ratio" in heads[first + 1 :]:
                second = heads.index("ratio", first + 1)
                two = read_spread(cells[second], cells[second + 1])
                if two:
                    row = row._replace(two=row._replace(ours=two, torch=[1.0] * len(two)))
            yield row


def read_ratio(cell: str) -> float:
    """Return the number that ``format_ratio`` wrote."""
    return 1 / float(cell[2:]) if cell.startswith("1/") else float(cell)


def read_spread(ratio: str, spread: str) -> list[float]:
    """Return the smallest, the median and the largest ratio of a row; nothing if it has none."""
    if not ratio:
        return []
    return sorted(read_ratio(cell) for cell in (ratio, *spread.split(" .. ")) if cell)


def color_of(row: Row) -> str:
    """Return green for what is within its budget, yellow for faster than torch, red for slower."""
    return SLOWER if row.worst > 1.02 else WITHIN if row.worst > row.budget else FASTER


def split_lines(rows: Sequence[Row], columns: int = COLUMNS) -> list[list[Line]]:
    """Return the lines of each column: classes one after another, their heading repeated."""
    lines: list[Line] = []
    for name in dict.fromkeys(row.group for row in rows):
        lines += [name, *(row for row in rows if row.group == name)]
    length = max(math.ceil(len(lines) / columns), 1)
    parts: list[list[Line]] = []
    heading = ""
    for start in range(0, len(lines), length):
        part = lines[start : start + length]
        if isinstance(part[0], Row):
            part = [f"{heading}, continued", *part]
        heading = next((line for line in reversed(part) if isinstance(line, str)), heading)
        heading = heading.removesuffix(", continued")
        parts.append(part)
    return parts


def draw(rows: Sequence[Row], target: Path) -> bool:
    """Write the picture; return False where matplotlib is not installed or no row has a ratio."""
    shown = [row for row in rows if not math.isnan(row.worst)]
    if not shown:
        return False
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    parts = split_lines(shown, min(COLUMNS, math.ceil(len(shown) / 20)))
    height = max(2.0, LINE_INCHES * max(map(len, parts)) + 1.2)
    width = WIDTH_INCHES * len(parts) / COLUMNS
    figure, grid = pyplot.subplots(1, len(parts), figsize=(width, height), squeeze=False)
    ends = [ratio for row in shown for ratio in row.ratios]
    limits = (min([*ends, 0.1]) * 0.8, max([*ends, 2.0]) * 2.5)
    for axes, part in zip(grid[0], parts, strict=True):
        draw_column(axes, part, limits)
        axes.set_ylim(max(map(len, parts)) - 0.4, -0.8)
    figure.suptitle(
        "Our time over torch's: left of the line is faster. Bar: one thread, with spread; "
        "circle: two threads; tick: budget.",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / height))
    figure.savefig(target, dpi=90, pil_kwargs={"optimize": True})
    pyplot.close(figure)
    return True


def draw_column(axes, lines: Sequence[Line], limits: tuple[float, float]) -> None:
    """Draw the bars of a column."""
    labels = []
    for y, line in enumerate(lines):
        if isinstance(line, str):
            labels.append(line.upper())
            continue
        text = line.title.replace("`", "").replace("$", r"\$")
        labels.append(text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 3] + "...")
        axes.barh(y, line.ratio - 1, left=1, height=0.7, color=color_of(line))
        axes.plot([min(line.ratios), max(line.ratios)], [y, y], color="#333333", lw=0.8)
        axes.plot([line.budget], [y], marker="|", color="black", ms=7, mew=1.2)
        if line.two and not math.isnan(line.two.ratio):
            axes.plot([line.two.ratio], [y], marker="o", color="#333333", ms=2.5)
        axes.text(
            limits[1] * 0.97, y, format_ratio(line.ratio), fontsize=6, ha="right", va="center"
        )
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.axvline(1, color="black", lw=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=6.5)
    for label in axes.get_yticklabels():
        if label.get_text().isupper():
            label.set_fontweight("bold")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7)


def main() -> int:
    """Draw RESULTS.md; returns the exit status."""
    [target] = sys.argv[1:]
    text = (Path(__file__).parent / "RESULTS.md").read_text(encoding="utf-8")
    if not draw(list(read_rows(text)), Path(target)):
        print("benchmarks.chart: nothing was drawn: it needs matplotlib", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure against torch, NumPy and JAX, and write RESULTS.md.

With matplotlib a chart of all ratios is drawn into RESULTS.png, which git ignores.

A part (--only, --quick) is printed and written only where --output says.

python -m benchmarks.run                               # torch is in this environment
python -m benchmarks.run --torch-python PATH           # torch is another interpreter's
python -m benchmarks.run --only mlp_step --rounds 20   # one row, to look closer
python -m benchmarks.run --only reductions 'elementwise/*/exp*'
python -m benchmarks.run --list                        # the keys of all rows
python -m benchmarks.run --quick                       # small operands: shows that it runs
python -m benchmarks.run --check                       # exit code 1 when over budget
python -m benchmarks.run --check 1.25                  # the same, over 1.25 times a budget
python -m benchmarks.run --module torch                # torch against itself: the noise
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks import chart, report
from benchmarks.figures import MEASURES, Amount, measure_figures
from benchmarks.measure import (
    AGAIN,
    JAX,
    NUMPY,
    OURS,
    TORCH,
    Floors,
    Plan,
    make_row,
    measure_floors,
    run_rounds,
)
from benchmarks.subjects import ROOT, MeasurementFailed, Subject, run_once
from benchmarks.workloads import WORKLOADS

QUICK_SHARE = 20  # by how much --quick divides the amount of work
QUICK_DIVISOR = 64  # and the operands
VERSIONS = "import json, sys; print(json.dumps(__import__(sys.argv[1]).__version__))"


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Measure against torch and write RESULTS.md.")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="classes or rows")
    parser.add_argument("--list", action="store_true", help="show the rows' keys and stop")
    parser.add_argument("--rounds", type=int, help="how often each row is run (5)")
    parser.add_argument("--threads", type=int, nargs="+", choices=(1, 2), help="(1 2)")
    parser.add_argument("--quick", action="store_true", help="less work: shows that it runs")
    parser.add_argument(
        "--check",
        nargs="?",
        type=float,
        const=1.0,
        metavar="FACTOR",
        help="fail when over budget, or over FACTOR times it",
    )
    parser.add_argument("--module", default="pullback", help="what is measured (pullback)")
    parser.add_argument("--torch", default="torch", help="what it is measured against (torch)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of --module")
    parser.add_argument("--torch-python", default=sys.executable, help="the interpreter of --torch")
    parser.add_argument("--jax-python", help="the interpreter of JAX")
    parser.add_argument("--output", type=Path, help="RESULTS.md; a part is printed only")
    options = parser.parse_args(arguments)
    if options.output is None and not (options.only or options.quick):
        options.output = ROOT / "benchmarks" / "RESULTS.md"
    if options.rounds is None:
        options.rounds = 1 if options.quick else 5
    if options.threads is None:
        options.threads = [1] if options.quick else [1, 2]
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    for pattern in options.only:
        if not select([pattern], [*WORKLOADS, *MEASURES]):
            parser.error(f"no row is called {pattern!r}; --list shows them")
    return options


def select(patterns: list[str], keys: list[str]) -> list[str]:
    """Return the keys that a pattern names: whole, their beginning, or their last part."""

    def fits(key: str, pattern: str) -> bool:
        last = key.rpartition("/")[2]
        return (
            key in (pattern, pattern.rstrip("/"))
            or last == pattern
            or key.startswith(pattern.rstrip("/") + "/")
            or fnmatchcase(key, pattern)
        )

    return [key for key in keys if not patterns or any(fits(key, p) for p in patterns)]


def has_module(python: str, name: str) -> bool:
    """Tell whether an interpreter can import a module."""
    command = [python, "-c", f"import {name}"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def choose_subjects(options: argparse.Namespace, facts: dict[str, str]) -> list[Subject]:
    """Return the processes to run; JAX is left out where it is not installed."""
    subjects = [
        Subject(OURS, options.module, options.python),
        Subject(TORCH, options.torch, options.torch_python),
        Subject(AGAIN, options.torch, options.torch_python),
        Subject(NUMPY, "numpy", options.python),
    ]
    if not has_module(options.python, "scipy"):
        facts["SciPy"] = "not installed: rows that need it have no NumPy column"
    jax_python = options.jax_python or sys.executable
    if options.quick and options.jax_python is None:
        facts["JAX"] = "left out of a quick run, for it compiles every row"
    elif has_module(jax_python, "jax"):
        subjects.append(Subject(JAX, "jax", jax_python))
    else:
        facts["JAX"] = "not installed: its column is left out"
    shown = (subject for subject in subjects if subject.label != AGAIN)
    facts["versions"] = ", ".join(
        f"{s.module} {run_once(s, '-c', VERSIONS, s.module)}" for s in shown
    )
    return subjects


def describe_floors(floors: Floors, threads: int) -> dict[str, str]:
    """Return the machine's speed as facts."""

    def rates(of: dict[str, float], unit: float) -> str:
        return ", ".join(f"{name} {rate / unit:.3g}" for name, rate in of.items())

    with_threads = "1 thread" if threads == 1 else f"{threads} threads"
    return {
        f"memory, {with_threads}, GB/s": f"{rates(floors.near, 1e9)} with arrays of 16 MB; "
        f"{rates(floors.far, 1e9)} with 256 MB",
        f"2048 x 2048 float32 product, {with_threads}, GFLOP/s": rates(floors.products, 1e9),
    }


def measure_rows(
    keys: list[str], subjects: list[Subject], options: argparse.Namespace, facts: dict[str, str]
) -> list[report.Row]:
    """Measure rows with each number of threads, and the floors they are held against."""
    tables: dict[int, dict[str, report.Row]] = {}
    share, divisor = (QUICK_SHARE, QUICK_DIVISOR) if options.quick else (1, 1)
    for threads in options.threads:
        plan = Plan(options.rounds, threads, divisor, share)
        mine = [key for key in keys if threads == 1 or not WORKLOADS[key].alone]
        if not mine:
            continue
        floors = measure_floors(subjects, plan)
        facts.update(describe_floors(floors, threads))
        found = run_rounds(subjects, mine, plan)
        tables[threads] = {key: make_row(WORKLOADS[key], found, floors) for key in mine}
    one, two = tables.get(1, {}), tables.get(2, {})
    if not one:
        return list(two.values())
    return [row._replace(two=two.get(key)) for key, row in one.items()]


def write(
    rows: list[report.Row], limits: list[report.Limit], facts: dict[str, str], output: Path | None
) -> str:
    """Write the report and a chart beside it, where they are wanted; return the report's text."""
    if output is None:
        return report.render(rows, limits, facts)
    picture = output.with_suffix(".png")
    if not chart.draw(rows, picture):  # without matplotlib, or where no row has a ratio
        picture.unlink(missing_ok=True)  # an old one would not belong to these figures
    text = report.render(rows, limits, facts)
    output.write_text(text)
    return text


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the report and return the exit code."""
    options = read_options(arguments)
    keys = select(options.only, list(WORKLOADS))
    figures = select(options.only, list(MEASURES))
    if options.list:
        print(*keys, *figures, sep="\n")
        return 0
    facts = {
        "processor": f"{report.processor_name()}, {os.cpu_count()} cores",
        "Python": f"{platform.python_version()}, {platform.system()}",
        "rounds": f"{options.rounds}{', with little work (--quick)' if options.quick else ''}",
    }
    try:
        subjects = choose_subjects(options, facts)
        rows = measure_rows(keys, subjects, options, facts)
        amount = Amount(options.rounds, QUICK_SHARE if options.quick else 1)
        more_rows, limits = measure_figures(figures, subjects[:3], amount, facts)
        rows += more_rows
    except MeasurementFailed as error:
        print(f"a measuring process failed: {error}", file=sys.stderr)
        return 2
    print(write(rows, limits, facts, options.output))
    over = report.over_budget(rows, limits, options.check or 1.0)
    if over:
        print("over budget:", *over, sep="\n  ", file=sys.stderr)
    return 1 if over and options.check else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure against torch and write RESULTS.md.

python -m benchmarks.run                               # torch is in this environment
python -m benchmarks.run --torch-python PATH           # torch is another interpreter's
python -m benchmarks.run --only mlp_step --rounds 20   # one row, to look closer
python -m benchmarks.run --check                       # exit code 1 when over budget
python -m benchmarks.run --module torch                # torch against itself: the noise
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from benchmarks import report, startup
from benchmarks.subjects import ROOT, MeasurementFailed, Subject, Worker, run_once
from benchmarks.workloads import WORKLOADS

CHAIN_ROWS = "chain"
STARTUP_ROWS = "startup"
CHAIN_NODES = 1_000_000
QUICK = 20  # by how much --quick divides the amount of work


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Measure against torch and write RESULTS.md.")
    names = [*WORKLOADS, CHAIN_ROWS, STARTUP_ROWS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ROW")
    parser.add_argument("--rounds", type=int, default=7, help="how often each row is run (7)")
    parser.add_argument("--quick", action="store_true", help="less work: shows that it runs")
    parser.add_argument("--check", action="store_true", help="fail when over budget")
    parser.add_argument("--module", default="pullback", help="what is measured (pullback)")
    parser.add_argument("--torch", default="torch", help="what it is measured against (torch)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of --module")
    parser.add_argument("--torch-python", default=sys.executable, help="the interpreter of --torch")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "RESULTS.md")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    return options


def measure_rows(subjects: list[Subject], options, facts: dict[str, str]) -> list[report.Row]:
    """Run every workload in every process, round by round."""
    names = [name for name in WORKLOADS if name in options.only]
    if not names:
        return []
    workers = [Worker(subject) for subject in subjects]
    facts["versions"] = ", ".join(f"{w.subject.module} {w.version}" for w in workers[:2])
    seconds: dict[tuple[str, str], list[float]] = {}
    for round_number in range(-1, options.rounds):  # the first one warms up
        order = workers if round_number % 2 else workers[::-1]
        for name in names:
            units = max(WORKLOADS[name].units // (QUICK if options.quick else 1), 1)
            for worker in order:
                value = worker.seconds(name, units)
                if round_number >= 0:
                    seconds.setdefault((name, worker.subject.label), []).append(value)
        print(f"round {round_number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    for worker in workers:
        worker.close()
    return [
        report.Row(
            WORKLOADS[name].title,
            seconds[name, "ours"],
            seconds[name, "torch"],
            seconds[name, "torch again"],
            WORKLOADS[name].budget,
            WORKLOADS[name].stretch,
        )
        for name in names
    ]


def measure_chain(subjects: list[Subject], options) -> tuple[list[report.Row], list[report.Limit]]:
    """Run the long chain in fresh processes: its time, its memory, and whether both are linear."""
    nodes = CHAIN_NODES // (QUICK if options.quick else 1)
    full = [run_chain(subject, nodes) for subject in subjects]
    quarter = run_chain(subjects[0], nodes // 4)
    ours, torch = full[0], full[1]
    totals = [[sum(run[phase] for phase in ("build", "backward", "free"))] for run in full]
    title = f"Chain of {nodes:,} nodes, 1 MB stack: build, backward and free, per node"
    rows = [report.Row(title, totals[0], totals[1], totals[2], 1 / 6, 1 / 10)]
    linear = totals[0][0] / sum(quarter[phase] for phase in ("build", "backward", "free"))
    limits = [
        report.Limit("Chain: memory of a node", ours["bytes"], torch["bytes"], "B", 500, 250),
        report.Limit(
            "Chain: memory held after freeing", ours["kept"] / 1e6, torch["kept"] / 1e6, "MB"
        ),
        report.Limit("Chain: time of a node beside that in a quarter of it", linear, None, "", 1.5),
    ]
    return rows, limits


def run_chain(subject: Subject, nodes: int) -> dict[str, float]:
    """Return the figures of one run of benchmarks.chain."""
    print(f"chain of {nodes:,}: {subject.label}", file=sys.stderr, flush=True)
    return run_once(subject, "-m", "benchmarks.chain", subject.module, str(nodes))


def measure_startup(subjects: list[Subject], options) -> list[report.Limit]:
    """Measure import times, alternating, and sizes."""
    seconds: dict[str, list[float]] = {}
    for round_number in range(max(options.rounds, 2)):
        for subject in subjects[:2] if round_number % 2 else subjects[1::-1]:
            seconds.setdefault(subject.label, []).append(startup.import_seconds(subject))
    ours, torch = (min(seconds[subject.label]) * 1e3 for subject in subjects[:2])
    size, torch_size = (startup.installed_bytes(subject) / 1e6 for subject in subjects[:2])
    limits = [
        report.Limit("Import beyond NumPy's, with a first tensor", ours, torch, "ms", 60, 30),
        report.Limit("Installed files", size, torch_size, "MB"),
    ]
    wheels = startup.wheel_bytes(ROOT / "dist")
    if wheels:
        size = sum(wheels.values()) / 1e6
        limits.append(report.Limit(f"Wheels: {', '.join(wheels)}", size, None, "MB", 6, 3))
    return limits


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the report and return the exit code."""
    options = read_options(arguments)
    subjects = [
        Subject("ours", options.module, options.python),
        Subject("torch", options.torch, options.torch_python),
        Subject("torch again", options.torch, options.torch_python),
    ]
    facts = {
        "processor": f"{report.processor_name()}, {os.cpu_count()} cores",
        "Python": f"{platform.python_version()}, {platform.system()}",
        "rounds": f"{options.rounds}{', with little work (--quick)' if options.quick else ''}",
    }
    try:
        rows = measure_rows(subjects, options, facts)
        limits: list[report.Limit] = []
        if CHAIN_ROWS in options.only:
            more_rows, limits = measure_chain(subjects, options)
            rows += more_rows
        if STARTUP_ROWS in options.only:
            limits += measure_startup(subjects, options)
    except MeasurementFailed as error:
        print(f"a measuring process failed: {error}", file=sys.stderr)
        return 2
    text = report.render(rows, limits, facts)
    options.output.write_text(text)
    print(text)
    over = report.over_budget(rows, limits)
    if over:
        print("over budget:", *over, sep="\n  ", file=sys.stderr)
    return 1 if over and options.check else 0


if __name__ == "__main__":
    sys.exit(main())

"""Figures besides the rows: the long chain, start-up, memory of training, accuracy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks import startup
from benchmarks.report import Limit, Row
from benchmarks.subjects import ROOT, MeasurementFailed, Subject, run_once
from benchmarks.workloads.training import MODELS

CHAIN_NODES = 1_000_000


class Amount(NamedTuple):
    """How much is measured."""

    rounds: int
    share: int = 1  # what the work is divided by


Measured = tuple[list[Row], list[Limit]]


def measure_chain(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Run the long chain in fresh processes: its time, its memory, and whether both are linear."""
    nodes = CHAIN_NODES // amount.share
    full = [run_chain(subject, nodes) for subject in subjects]
    quarter = run_chain(subjects[0], nodes // 4)
    ours, torch = full[0], full[1]
    totals = [[sum(run[phase] for phase in ("build", "backward", "free"))] for run in full]
    title = f"Chain of {nodes:,} nodes, 1 MB stack: build, backward and free, per node"
    rows = [Row(title, totals[0], totals[1], totals[2], 1 / 6, 1 / 10, key="overhead/chain")]
    linear = totals[0][0] / sum(quarter[phase] for phase in ("build", "backward", "free"))
    limits = [
        Limit("Chain: memory of a node", ours["bytes"], torch["bytes"], "B", 500, 250),
        Limit("Chain: memory held after freeing", ours["kept"] / 1e6, torch["kept"] / 1e6, "MB"),
        Limit("Chain: time of a node beside that in a quarter of it", linear, None, "", 1.5),
    ]
    return rows, limits


def run_chain(subject: Subject, nodes: int) -> dict[str, float]:
    """Return the figures of one run of the chain."""
    print(f"chain of {nodes:,}: {subject.label}", file=sys.stderr, flush=True)
    return run_once(subject, "-m", "benchmarks.probes", "chain", subject.module, str(nodes))


def measure_startup(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Measure import times, alternating, and sizes."""
    seconds: dict[str, list[float]] = {}
    for round_number in range(max(amount.rounds, 2)):
        for subject in subjects[:2] if round_number % 2 else subjects[1::-1]:
            seconds.setdefault(subject.label, []).append(startup.import_seconds(subject))
    ours, torch = (min(seconds[subject.label]) * 1e3 for subject in subjects[:2])
    size, torch_size = (startup.installed_bytes(subject) / 1e6 for subject in subjects[:2])
    limits = [
        Limit("Import beyond NumPy's, with a first tensor", ours, torch, "ms", 60, 30),
        Limit("Installed files", size, torch_size, "MB"),
    ]
    wheels = startup.wheel_bytes(ROOT / "dist")
    if wheels:
        size = sum(wheels.values()) / 1e6
        limits.append(Limit(f"Wheels: {', '.join(wheels)}", size, None, "MB", 6, 3))
    return [], limits


def measure_memory(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Measure how far memory rises in training steps, as Linux reports it."""
    if not sys.platform.startswith("linux"):
        return [], []
    limits = []
    for model in MODELS:
        arguments = ("-m", "benchmarks.probes", "memory")
        ours, torch = (
            run_once(subject, *arguments, subject.module, model, str(amount.share)) / 1e6
            for subject in subjects[:2]
        )
        title = f"Peak memory of three training steps: {model}"
        limits.append(Limit(title, ours, torch, "MB", torch, 0.8 * torch))
    return [], limits


def measure_accuracy(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Measure the largest error of float32 functions against float64 ones."""
    ours, torch = (
        run_once(subject, "-m", "benchmarks.probes", "accuracy", subject.module)
        for subject in subjects[:2]
    )
    return [], [
        Limit(f"Largest float32 error: {name}", ours[name], torch[name], "ULP", 1.05, torch[name])
        for name in ours
    ]


def measure_profiler(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Measure what a profiler costs an operation, switched off and recording."""
    ours, torch = (
        run_once(subject, "-m", "benchmarks.probes", "profiler", subject.module)
        for subject in subjects[:2]
    )
    if ours is None or torch is None:
        raise MeasurementFailed("the recording profiler is not installed")
    idle, their_idle = ours["idle"] / ours["none"], torch["idle"] / torch["none"]
    limits = [Limit("Profiler switched off: an op beside one without", idle, their_idle, "", 1.02)]
    for state, budget in (("recording", 0.5), ("memory", None), ("shapes", None), ("stacks", None)):
        what = "Profiler recording" if state == "recording" else f"Profiler recording {state}"
        more, their_more = ours[state] - ours["none"], torch[state] - torch["none"]
        limits.append(Limit(f"{what}: cost of an op", more, their_more, "us", budget))
    return [], limits


def measure_watched(subjects: Sequence[Subject], amount: Amount) -> Measured:
    """Measure what sampled anomaly detection costs a step of four operations on 16 KB."""
    ours = run_once(subjects[0], "-m", "benchmarks.probes", "watched", subjects[0].module)
    title = "Anomaly detection, 1 % of the {}: a step of {:.0f} us beside one without"
    return [], [
        Limit(title.format(what, ours["none"]), ours[name] / ours["none"], None, "", budget)
        for name, what, budget in (
            ("gradients", "gradients", 1.05),
            ("results", "gradients and results", None),
        )
    ]


MEASURES: dict[str, Callable[[Sequence[Subject], Amount], Measured]] = {
    "chain": measure_chain,
    "startup": measure_startup,
    "memory": measure_memory,
    "accuracy": measure_accuracy,
    "profiler": measure_profiler,
    "watched": measure_watched,
}


def measure_figures(
    names: Sequence[str], subjects: Sequence[Subject], amount: Amount, facts: dict[str, Any]
) -> Measured:
    """Measure the named figures; one that fails is reported among the facts."""
    rows: list[Row] = []
    limits: list[Limit] = []
    for name in names:
        try:
            more_rows, more_limits = MEASURES[name](subjects, amount)
        except MeasurementFailed as error:
            facts[f"{name}, not measured"] = str(error)
            continue
        rows += more_rows
        limits += more_limits
    return rows, limits

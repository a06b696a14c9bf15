"""Runs every row in every process, round by round, and the figures that are not rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.report import Row
from benchmarks.subjects import MeasurementFailed, RowFailed, Subject, Worker, run_once
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.registry import Workload

OURS, TORCH, AGAIN, NUMPY, JAX = "ours", "torch", "torch again", "NumPy", "JAX"
DIALECTS = {NUMPY: "numpy", JAX: "jax"}


class Plan(NamedTuple):
    """How much is measured."""

    rounds: int
    threads: int
    divisor: int = 1  # of operands
    share: int = 1  # of a row's units


class Floors(NamedTuple):
    """The speed of memory for arrays as large as the rows', and of the best matrix product."""

    near: dict[str, float]
    far: dict[str, float]
    products: dict[str, float]

    def fraction(self, work: dict[str, float], seconds: float) -> float | None:
        """Return how close a row comes to the machine's speed."""
        if "bytes" in work:
            return work["bytes"] / seconds / max(self.near.values())
        if "flops" in work and self.products:
            return work["flops"] / seconds / max(self.products.values())
        return None


class Rounds:
    """What the processes answered: seconds by row and label, a row's work, and errors."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.work: dict[str, dict[str, float]] = {}
        self.errors: dict[tuple[str, str], str] = {}

    def ask(self, worker: Worker, row: Workload, plan: Plan, counts: bool) -> None:
        """Run a row once in a process; one that failed before is not asked again."""
        key = (row.key, worker.subject.label)
        if key in self.errors:
            return
        units = row.units and max(row.units // plan.share, 1)
        try:
            figures = worker.measure(row.key, units)
        except RowFailed as error:
            self.errors[key] = str(error)
            return
        except MeasurementFailed as error:
            self.errors[key] = str(error)
            worker.start()
            return
        if counts:
            self.seconds.setdefault(key, []).append(figures.pop("seconds"))
        if worker.subject.label == OURS:
            self.work[row.key] = figures


def can_run(subject: Subject, row: Workload) -> bool:
    """Tell whether a row has words for a subject."""
    return subject.label not in DIALECTS or bool(row.written_for(DIALECTS[subject.label]))


def run_rounds(subjects: Sequence[Subject], keys: Iterable[str], plan: Plan) -> Rounds:
    """Run every row in every process; the first round warms up."""
    found, rows = Rounds(), [WORKLOADS[key] for key in keys]
    if not rows:
        return found
    workers = [Worker(subject, plan.threads, plan.divisor) for subject in subjects]
    for number in range(-1, plan.rounds):
        order = workers if number % 2 else workers[::-1]
        for row in rows:
            for worker in order:
                if can_run(worker.subject, row):
                    found.ask(worker, row, plan, counts=number >= 0)
        message = f"{plan.threads} thread(s), round {number + 1} of {plan.rounds}"
        print(message, file=sys.stderr, flush=True)
    for worker in workers:
        worker.close()
    return found


def make_row(workload: Workload, found: Rounds, floors: Floors | None) -> Row:
    """Return the line of a row."""

    def seconds(label: str) -> list[float]:
        whole = (workload.key, label) not in found.errors  # else rounds would not match
        return found.seconds.get((workload.key, label), []) if whole else []

    ours = seconds(OURS)
    fraction = None
    if floors is not None and ours:
        fraction = floors.fraction(found.work.get(workload.key, {}), min(ours))
    failed = {label: text for (key, label), text in found.errors.items() if key == workload.key}
    return Row(
        workload.title,
        ours,
        seconds(TORCH),
        seconds(AGAIN),
        workload.budget,
        workload.stretch,
        key=workload.key,
        numpy=seconds(NUMPY),
        jax=seconds(JAX),
        fraction=fraction,
        errors=failed,
    )


def measure_floors(subjects: Sequence[Subject], plan: Plan) -> Floors:
    """Measure what the machine can do with a number of threads."""
    where = next(s for s in subjects if s.label == NUMPY)
    counts = (str(plan.threads), str(plan.divisor))
    speeds: dict[str, Any] = run_once(
        where, "-m", "benchmarks.floors", "bandwidth", *counts, threads=plan.threads
    )
    products = {}
    for subject in subjects:
        if subject.label not in (AGAIN, JAX):
            arguments = ("-m", "benchmarks.floors", "gemm", subject.module, *counts)
            products[subject.label] = run_once(subject, *arguments, threads=plan.threads)
    return Floors(speeds["near"], speeds["far"], products)

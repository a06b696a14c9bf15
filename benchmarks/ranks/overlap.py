"""What backward hides of communication: ``mpiexec -n 2 python -m benchmarks.ranks.overlap``.

Trains the MLP of 20 M parameters under a profiler. Hidden is the time of collectives during which
an operation runs on the main thread. The first rank prints JSON, of each rank: the share, the
seconds of collectives in a step, and where the trace is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pullback
from benchmarks.ranks.training import WARM_UP, Trainer
from pullback import distributed, profiler

STEPS = 5
Interval = tuple[float, float]


def union_of(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same."""
    found: list[Interval] = []
    for start, stop in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def intervals_of(events: Iterable[dict[str, Any]]) -> list[Interval]:
    """Return when events of a trace ran, in seconds."""
    return [(1e-6 * one["ts"], 1e-6 * (one["ts"] + one["dur"])) for one in events]


def hidden_share(events: list[dict[str, Any]]) -> tuple[float, float]:
    """Return which share of the collectives' time had an operation beside it, and that time."""
    timed = [one for one in events if one.get("ph") == "X"]
    collectives = intervals_of(one for one in timed if one["name"].startswith("dist::"))
    computing = union_of(intervals_of(one for one in timed if one.get("cat") == "cpu_op"))
    total = sum(stop - start for start, stop in collectives)
    hidden = sum(
        max(0.0, min(stop, until) - max(start, since))
        for start, stop in collectives
        for since, until in computing
    )
    return hidden / total, total


def main() -> None:
    """Train, write the traces and print the share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("demo-output/overlap"))
    parser.add_argument("--model", default="wide_mlp")
    options = parser.parse_args()
    pullback.set_num_threads(1)
    distributed.init_process_group()
    trainer = Trainer(pullback, options.model, "replicated")
    for _ in range(WARM_UP):
        trainer.step()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"rank{distributed.get_rank()}.json"
    distributed.barrier()
    with profiler.profile() as profile:
        for _ in range(STEPS):
            trainer.step()
    profile.export_chrome_trace(str(path))
    share, total = hidden_share(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, (share, total / STEPS, str(path)))
    if distributed.get_rank() == 0:
        keys = ("hidden", "seconds", "traces")
        print(json.dumps(dict(zip(keys, zip(*found, strict=True), strict=True))))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

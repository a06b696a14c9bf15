"""How training scales, on paper: ``python -m benchmarks.scaling`` writes docs/concepts/scaling.md.

A model of messages (LogGP) and of three ways to train is fed with what is measured here: the link
between two ranks, and the steps of one. It is compared with runs on 2 and 4 ranks, and says what to
expect on other networks. ``--torch`` measures torch's data parallel training beside ours.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ranks.launch import run_ranks, run_torch_ranks
from benchmarks.report import format_seconds, processor_name
from benchmarks.subjects import ROOT

PAGE = ROOT / "docs" / "concepts" / "scaling.md"
BUCKET = 25 << 20  # bytes of gradients that travel together
NODES = [2**power for power in range(1, 11)]
STAGES, PARTS = 8, 32  # of a pipeline, at most, and of its batch
ROUNDS = 3


class Network(NamedTuple):
    """LogGP: seconds under way, of work at each end, between messages, of a byte, of adding one."""

    latency: float
    overhead: float
    gap: float
    per_byte: float
    add_per_byte: float

    def message(self, nbytes: float) -> float:
        """Return the seconds of one message."""
        return self.latency + 2 * self.overhead + nbytes * self.per_byte

    def all_gather(self, nbytes: float, ranks: int) -> float:
        """Return the seconds until each rank has what all have together, so many bytes."""
        rounds = math.ceil(math.log2(ranks))
        return rounds * self.message(0) + nbytes * (1 - 1 / ranks) * self.per_byte

    def reduce_scatter(self, nbytes: float, ranks: int) -> float:
        """Return the seconds until each rank has its part of a sum."""
        adding = nbytes * (1 - 1 / ranks) * self.add_per_byte
        return self.all_gather(nbytes, ranks) + adding

    def all_reduce(self, nbytes: float, ranks: int) -> float:
        """Return the seconds of a sum on each rank; Rabenseifner's way, or a short message's."""
        rounds = math.ceil(math.log2(ranks))
        short = rounds * (self.message(nbytes) + nbytes * self.add_per_byte)
        return min(short, self.reduce_scatter(nbytes, ranks) + self.all_gather(nbytes, ranks))


class Step(NamedTuple):
    """What one rank needs for a step when it is alone: seconds, and bytes of its parameters."""

    forward: float
    backward: float
    update: float
    nbytes: int
    copies: float = 0.0  # seconds of copying gradients and parameters to travel, and back
    tensors: int = 8
    activations: int = 128 * 2944 * 4  # bytes between two layers

    @property
    def seconds(self) -> float:
        """Return the seconds of the step."""
        return self.forward + self.backward + self.update


def replicated(step: Step, network: Network, ranks: int, hides: bool) -> float:
    """Return the seconds of a data parallel step: buckets travel while backward goes on."""
    backward = step.backward + step.copies
    buckets = max(1, math.ceil(step.nbytes / BUCKET))
    one = network.all_reduce(step.nbytes / buckets, ranks)
    if not hides:
        return step.forward + backward + buckets * one + step.update
    done = 0.0
    for number in range(1, buckets + 1):
        done = max(done, backward * number / buckets) + one
    return step.forward + max(backward, done) + step.update


def sharded(step: Step, network: Network, ranks: int, hides: bool) -> float:
    """Return the seconds of a step with divided parameters: gathered twice, gradients scattered."""
    each = step.nbytes / step.tensors
    messages = 2 * network.all_gather(each, ranks) + network.reduce_scatter(each, ranks)
    return (
        step.forward + step.backward + step.copies + step.tensors * messages + step.update / ranks
    )


def pipelined(step: Step, network: Network, ranks: int, hides: bool, parts: int = PARTS) -> float:
    """Return the seconds of a step of as many batches as there are ranks, in stages of layers.

    More ranks than stages are copies of the pipeline, which average the gradients of their stages.
    """
    stages = min(ranks, STAGES)
    copies = ranks // stages
    of_part = (step.forward + step.backward) / parts  # of a stage: its share of all its batches
    messages = 2 * network.message(stages * step.activations / parts)
    seconds = (parts + stages - 1) * of_part + (parts + 2 * (stages - 1)) * messages / 2
    if copies > 1:
        seconds += network.all_reduce(step.nbytes / stages, copies)
    return seconds + step.update / stages


KINDS: dict[str, Callable[[Step, Network, int, bool], float]] = {
    "data parallel": replicated,
    "sharded": sharded,
    "pipelined": pipelined,
}
NETWORKS = {  # nominal: bytes a second, seconds under way and at the ends
    "Ethernet, 10 Gb/s": Network(20e-6, 5e-6, 5e-6, 1 / 1.25e9, 4e-11),
    "Ethernet, 100 Gb/s": Network(10e-6, 3e-6, 3e-6, 1 / 12.5e9, 4e-11),
    "InfiniBand, 200 Gb/s": Network(1e-6, 0.3e-6, 0.2e-6, 1 / 25e9, 4e-11),
}


def best(count: int, *arguments: str, launch: Callable[..., Any] = run_ranks) -> dict[str, Any]:
    """Return the fastest of a few runs."""
    found = [launch(count, *arguments) for _ in range(ROUNDS)]
    return min(found, key=lambda one: one["seconds"])


def slower(value: Any, factor: float) -> Any:
    """Return steps or networks that take so many times as long, as where ranks share cores."""
    numbers = [x if isinstance(x, int) else x * factor for x in value]
    return type(value)(*numbers)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def measure_step(model: str) -> tuple[Step, Step]:
    """Return the step of a rank that is alone, with the copies of both ways to divide work."""
    alone = best(1, "training", "pullback", model, "--how", "alone")
    step = Step(alone["forward"], alone["backward"], alone["update"], alone["bytes"])
    found = []
    for how in ("replicated", "sharded"):
        whole = best(1, "training", "pullback", model, "--how", how)["seconds"]
        found.append(step._replace(copies=max(0.0, whole - alone["seconds"])))
    return found[0], found[1]


def check(steps: tuple[Step, Step], network: Network, cores: int) -> list[list[str]]:
    """Return the rows of a table: what the model says of runs here, and what they took."""
    alone = best(1, "pipeline")
    rows = []
    for ranks in (2, 4):
        share = max(1.0, ranks / cores)
        for name, step, how in (
            ("data parallel", steps[0], "replicated"),
            ("sharded", steps[1], "sharded"),
        ):
            # What all ranks have to copy goes through the same memory at once.
            step = step._replace(copies=step.copies * min(ranks, cores))
            expected = KINDS[name](slower(step, share), slower(network, share), ranks, False)
            found = best(ranks, "training", "pullback", "wide_mlp", "--how", how)["seconds"]
            rows.append([name, str(ranks), *compared(expected, found)])
        whole = Step(0.0, alone["seconds"] / ranks, 0.0, 0, activations=8 * alone["bytes"] // ranks)
        expected = share * pipelined(whole, network, ranks, False, parts=8)
        rows.append(
            ["pipelined", str(ranks), *compared(expected, best(ranks, "pipeline")["seconds"])]
        )
    return rows


def compared(expected: float, found: float) -> list[str]:
    """Return two times and their ratio as cells."""
    return [format_seconds(expected), format_seconds(found), f"{found / expected:.2f}"]


def efficiency(steps: tuple[Step, Step], network: Network, ranks: int, kind: str) -> float:
    """Return which part of the work of so many lone ranks is done."""
    step = steps[kind == "sharded"]
    return steps[0].seconds / KINDS[kind](step, network, ranks, True)


def predictions(steps: tuple[Step, Step]) -> str:
    """Return the tables of efficiencies, one for each network."""
    parts = []
    for name, network in NETWORKS.items():
        rows = [
            [f"{ranks:,}", *(f"{efficiency(steps, network, ranks, kind):.2f}" for kind in KINDS)]
            for ranks in NODES
        ]
        parts.append(f"### {name}\n\n" + table(["nodes", *KINDS], rows))
    return "\n".join(parts)


def collectives() -> str:
    """Return the table of ``all_reduce`` beside mpi4py's on two ranks."""
    rows = []
    for size, (ours, theirs) in run_ranks(2, "collectives").items():
        rate = int(size) / ours / 1e9
        over = format_seconds(max(0.0, ours - theirs))
        rows.append(
            [f"{int(size):,}", format_seconds(ours), format_seconds(theirs), over, f"{rate:.2f}"]
        )
    return table(["bytes", "all_reduce", "mpi4py's Allreduce", "more", "GB/s"], rows)


def beside_torch() -> str:
    """Return the table of data parallel steps on two ranks, ours and torch's with gloo."""
    rows = []
    for model in ("mlp", "conv_net", "wide_mlp"):
        found: list[float] = []
        for how in ("replicated", "alone"):
            options = (model, "--how", how)
            pairs = [
                (
                    run_ranks(2, "training", "pullback", *options)["seconds"],
                    run_torch_ranks(2, "training", "torch", *options)["seconds"],
                )
                for _ in range(ROUNDS)
            ]
            found += [min(one) for one in zip(*pairs, strict=True)]
        ratio = f"{found[0] / found[1]:.2f}"
        rows.append(
            [model, *map(format_seconds, found[:2]), ratio, *map(format_seconds, found[2:])]
        )
    return table(["model", "Pullback", "torch", "ratio", "without messages", "torch's"], rows)


def memory() -> str:
    """Return the table of what tensors hold at most in a step with Adam."""
    rows = []
    for ranks in (1, 2, 4):
        cells = []
        for how in ("replicated", "sharded"):
            options = ("pullback", "wide_mlp", "--how", how, "--optimizer", "Adam")
            peak = run_ranks(ranks, "training", *options)["peak"]
            cells.append(f"{peak / 1e6:.0f} MB")
        rows.append([str(ranks), *cells])
    return table(["ranks", "data parallel", "sharded"], rows)


def link(network: Network) -> str:
    """Return the sentences on the link between two ranks."""
    latency, overhead = format_seconds(network.latency), format_seconds(network.overhead)
    follow, added = 1e-9 / network.per_byte, 1e-9 / network.add_per_byte
    return (
        f"Between two ranks here a message is {latency} under way and keeps each end busy for\n"
        f"{overhead}; {follow:.1f} GB follow in a second, and {added:.1f} GB are added."
    )


def measured(step: Step, torch: bool) -> str:
    """Return the first part of the page."""
    start = min((run_ranks(2, "start") for _ in range(ROUNDS)), key=lambda one: one["import"])
    mpi, package, init = (format_seconds(start[name]) for name in ("mpi", "import", "init"))
    shares = run_ranks(2, "overlap")["hidden"]
    hidden = " and ".join(f"{100 * share:.0f} %" for share in shares)
    text = f"""### At the start

Beyond MPI's own {mpi} a rank needs {package} to import the package with a backend, and
{init} for `init_process_group`.

### Hidden communication

An MLP of {step.nbytes / 4e6:.0f} M parameters on two ranks: operations of the backward pass ran
beside {hidden} of the time of collectives (`python -m benchmarks.ranks.overlap` under
mpiexec writes a trace of each rank). Hidden is not free where the ranks have no core to spare, as
here: whoever copies messages takes its time from the computation.

### Memory

What tensors hold at most during a step of that MLP with Adam, on each rank.

{memory()}"""
    if torch:
        text += f"""
### Beside torch

Steps of `DistributedDataParallel` on two ranks; torch's process group is gloo.

{beside_torch()}"""
    return text


def render(network: Network, steps: tuple[Step, Step], cores: int, torch: bool) -> str:
    """Measure what is left, and return the page."""
    step = steps[0]
    forward, backward, update = map(format_seconds, step[:3])
    copies, more = (format_seconds(one.copies) for one in steps)
    head = ["training", "ranks", "model", "measured", "ratio"]
    return f"""# Scaling

What more processes bring, and what keeps them from bringing more. The first part was measured on
one machine; the second part is a model that was fed with those numbers.

Written by `python -m benchmarks.scaling` (`nox -s scaling`). {processor_name()},
{cores} cores, Python {platform.python_version()}; one thread for each rank.

## Measured

### Collectives

`all_reduce` of float32 in place on two ranks, and mpi4py's own on the same memory, in turn.

{collectives()}
{link(network)}

{measured(step, torch)}
## The model

Messages follow LogGP (Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995): latency *L*, work *o*
at each end, and *G* for each byte; adding a byte to another takes *A*. With *P* ranks and *n* bytes

- a message takes *L* + 2*o* + *n G*;
- all_gather log2(*P*) (*L* + 2*o*) + *n G* (*P* - 1) / *P*,
- reduce_scatter *n A* (*P* - 1) / *P* more,
- all_reduce both in a row (Rabenseifner 2004); a short one log2(*P*) messages with *n* bytes.

A step of the MLP takes {forward} forward, {backward} backward and {update} for the update.

- **Data parallel**: all ranks run the same step on batches of their own. Buckets of 25 MB are ready
  one after the other during backward and are reduced one after the other; what is left at its end
  is waited for. Copies to buckets and back take {copies}.
- **Sharded** (`fully_shard`): parameters are gathered in forward and again in backward, and
  gradients are scattered, all of which is waited for. Memory for whole parameters and gradients
  takes {more}. The update is divided.
- **Pipelined** (1F1B): at most {STAGES} stages, each with its share of the layers, and {PARTS}
  parts of a batch: of parts + stages - 1 turns a stage works in as many as there are parts. More
  nodes are copies of the pipeline, which average gradients.

## Checked

Where ranks are more than cores, all takes as many times as long. On one machine nothing is hidden,
and the copies of all ranks share the memory's speed.

{table(head, check(steps, network, cores))}
## Expected

The part of the work of as many lone nodes that is done, with a batch of the same size for each,
where messages need no core of the computation. Networks are nominal.

{predictions(steps)}"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Predict how training scales; write the page.")
    parser.add_argument("--torch", action="store_true", help="measure torch's training too")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    network = Network(**run_ranks(2, "network"))
    steps = measure_step("wide_mlp")
    page = render(network, steps, os.cpu_count() or 1, options.torch)
    options.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

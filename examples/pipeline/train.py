"""Train the transformer of ../char_transformer in a pipeline: some layers on each process.

    mpiexec -n 3 python examples/pipeline/train.py [--microbatches N] [--quick] [--steps N]
                                                   [--seed N] [--output FOLDER]

A batch goes through in small parts, of which each process works on another one: as many forward
passes as there are processes behind it, then a backward pass after each forward pass ("1F1B").
Without mpiexec there is one process. Process 0 prints the result; the exit code is 1 if text that
the network has not seen takes more bits per character than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
import pullback.nn.functional as F
from pullback import distributed

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.char_transformer import train as single

CONTEXT = single.CONTEXT


class Stage:
    """The layers of one process, and the parts of a batch that are under way in it."""

    def __init__(self, whole: single.Transformer, width: int) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        self.is_first, self.is_last = self.rank == 0, self.rank == self.count - 1
        self.width = width
        self.whole = whole
        self.layers = list(whole.blocks)[_places(len(whole.blocks), self.rank, self.count)]
        parameters = [one for layer in self.layers for one in layer.parameters()]
        if self.is_first:
            parameters += list(whole.positions.parameters())
        if self.is_first or self.is_last:  # one table for input and output
            parameters += list(whole.characters.parameters())
        self.parameters = parameters
        ends = distributed.new_group(sorted({0, self.count - 1}))
        self.ends = ends if self.is_first or self.is_last else None
        self._waiting: deque[tuple[Any, pb.Tensor]] = deque()
        self._sent: list[Any] = []
        self.largest = 0  # parts that were between their forward and backward pass at once

    def forward(self, codes: pb.Tensor, scale: float) -> float:
        """Run the layers on a part of a batch; return its loss, which only the last stage has."""
        x = None
        if self.is_first:
            found = self.whole.characters(codes[:, :-1]) + self.whole.positions.weight
        else:
            x = pb.empty(len(codes), CONTEXT, self.width)
            distributed.recv(x, self.rank - 1)
            found = x.requires_grad_()
        for layer in self.layers:
            found = layer(found)
        loss = math.nan
        if self.is_last:
            scores = F.linear(found, self.whole.characters.weight)
            found = F.cross_entropy(scores.flatten(0, 1), codes[:, 1:].flatten()) * scale
            loss = found.item()
        else:
            self._sent.append(distributed.isend(found.detach().contiguous(), self.rank + 1))
        self._waiting.append((x, found))
        self.largest = max(self.largest, len(self._waiting))
        return loss

    def backward(self) -> None:
        """Run the backward pass of the part that has waited for it longest."""
        x, found = self._waiting.popleft()
        if self.is_last:
            found.backward()
        else:
            grad = pb.empty_like(found)
            distributed.recv(grad, self.rank + 1)
            found.backward(grad)
        if x is not None:
            self._sent.append(distributed.isend(x.grad, self.rank - 1))

    def step(self, batch: pb.Tensor, count: int) -> float:
        """Run all passes of a batch in parts; return the loss, which only the last stage has."""
        parts = batch.chunk(count)
        scale = 1 / len(parts)
        ahead = min(self.count - 1 - self.rank, len(parts))
        losses = [self.forward(part, scale) for part in parts[:ahead]]
        for part in parts[ahead:]:
            losses.append(self.forward(part, scale))
            self.backward()
        for _ in range(ahead):
            self.backward()
        for work in self._sent:
            work.wait()
        self._sent.clear()
        if self.ends is not None and self.count > 1:
            distributed.all_reduce(self.whole.characters.weight.grad, group=self.ends)
        return sum(losses)

    def clip(self, largest: float) -> None:
        """Scale the gradients so that their norm, over all stages, is at most a number."""
        shared = self.is_last and not self.is_first  # the table counts on the first stage
        counted = self.parameters[:-1] if shared else self.parameters
        square = sum((one.grad.square().sum() for one in counted), pb.zeros(()))
        distributed.all_reduce(square)
        factor = min(1.0, largest / (float(square.sqrt()) + 1e-6))
        for parameter in self.parameters:
            parameter.grad.mul_(factor)

    def share(self) -> None:
        """Copy the layers of each process to all others."""
        for rank in range(self.count):
            for layer in list(self.whole.blocks)[_places(len(self.whole.blocks), rank, self.count)]:
                for parameter in layer.parameters():
                    distributed.broadcast(parameter.detach(), rank)
        for table in (self.whole.characters, self.whole.positions):
            distributed.broadcast(table.weight.detach(), 0)


def _places(layers: int, rank: int, count: int) -> slice:
    """Return which layers a stage has, as many as the others or one more."""
    return slice(layers * rank // count, layers * (rank + 1) // count)


def train(stage: Stage, text: np.ndarray, steps: int, parts: int, seed: int) -> list[float]:
    """Train on random parts of the text; return the bits per character of each update."""
    random = np.random.default_rng(seed)
    optimizer = pb.optim.AdamW(stage.parameters, lr=0.004, weight_decay=0.05)
    warmup = max(1, steps // 20)

    def factor(step: int) -> float:
        return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / steps))

    schedule = pb.optim.lr_scheduler.LambdaLR(optimizer, factor)
    curve: list[float] = []
    for _ in range(steps):
        starts = random.integers(0, len(text) - CONTEXT, single.BATCH_SIZE)
        batch = pb.from_numpy(text[starts[:, None] + np.arange(CONTEXT + 1)])
        optimizer.zero_grad()
        loss = stage.step(batch, parts)
        stage.clip(1.0)
        optimizer.step()
        schedule.step()
        curve.append(loss / math.log(2))
    return curve


def main() -> int:
    """Train on all processes, evaluate and return the exit code."""
    parser = argparse.ArgumentParser(description="Train a transformer in a pipeline.")
    parser.add_argument("--microbatches", type=int, default=8, help="parts of a batch")
    parser.add_argument("--quick", action="store_true", help="a small network, few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/pipeline"))
    options = parser.parse_args()
    settings = single.QUICK if options.quick else single.FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    distributed.init_process_group()
    texts = single.load_text()
    alphabet = sorted({*texts[0], *texts[1]})
    code_of = {character: code for code, character in enumerate(alphabet)}
    text, test = (np.array([code_of[character] for character in part]) for part in texts)
    pb.manual_seed(options.seed)
    whole = single.Transformer(len(alphabet), settings.width, settings.layers)
    stage = Stage(whole, settings.width)
    curves: list[Any] = [train(stage, text, settings.steps, options.microbatches, options.seed)]
    distributed.broadcast_object_list(curves, stage.count - 1)
    stage.share()

    by_position = single.bits_by_position(whole, test)
    bits = float(by_position[CONTEXT // 2 :].mean())
    largest = pb.tensor([stage.largest])
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    if stage.is_first:
        count = sum(parameter.numel() for parameter in stage.parameters)
        print(f"{stage.count} processes, {count} parameters on the first")
        print(f"at most {largest.item()} of {options.microbatches} parts were under way in a stage")
        others = {"trigrams": single.trigram_bits(text, test), "this network": bits}
        single.draw(options.output / "bits.png", curves[0], by_position, others)
        print(f"bits per character {bits:.4f} (required: at most {settings.required})")
    distributed.destroy_process_group()
    return 0 if bits <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

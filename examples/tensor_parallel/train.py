"""Train the transformer of ../char_transformer in parts, of each layer one on a process.

    mpiexec -n 4 python examples/tensor_parallel/train.py [--parts N] [--quick] [--steps N]
                                                          [--seed N] [--output FOLDER]

Processes form a grid: those of a row divide the layers into `--parts` (2 where the number of
processes is even), and the rows divide each batch. Without mpiexec there is one process. Process 0
prints the result and compares the network with that of one process; the exit code is 1 if text that
it has not seen takes more bits per character than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
import pullback.nn.functional as F
from pullback import distributed, nn
from pullback.autograd import Function

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.char_transformer import train as single

CONTEXT = single.CONTEXT
HEADS = 4


# -- what crosses processes: Shoeybi et al. 2019, figure 3 -----------------------------------------


class CopyToParts(Function):
    """The same tensor for each part; the gradients of the parts add up."""

    @staticmethod
    def forward(ctx: Any, group: Any, x: pb.Tensor) -> pb.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: pb.Tensor) -> tuple[Any, ...]:
        total = grad.clone()
        distributed.all_reduce(total, group=ctx.group)
        return None, total


class SumOfParts(Function):
    """The sum of what the parts have; each part gets its gradient."""

    @staticmethod
    def forward(ctx: Any, group: Any, x: pb.Tensor) -> pb.Tensor:
        total = x.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: pb.Tensor) -> tuple[Any, ...]:
        return None, grad


# -- layers of which this process has a part -------------------------------------------------------


def part_of(tensor: pb.Tensor, dim: int, group: Any) -> nn.Parameter:
    """Return this process's part of a parameter, for parts as equal as possible."""
    parts = tensor.detach().tensor_split(group.size(), dim)
    return nn.Parameter(parts[group.rank()].clone())


class ColumnParallel(nn.Module):
    """A linear layer that gives a part of the outputs of a whole one."""

    def __init__(self, whole: nn.Linear, group: Any) -> None:
        super().__init__()
        self.group = group
        self.weight = part_of(whole.weight, 0, group)
        self.bias = None if whole.bias is None else part_of(whole.bias, 0, group)

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        return F.linear(CopyToParts.apply(self.group, x), self.weight, self.bias)


class RowParallel(nn.Module):
    """A linear layer that takes a part of the inputs, and gives all outputs to each process."""

    def __init__(self, whole: nn.Linear, group: Any) -> None:
        super().__init__()
        self.group = group
        self.weight = part_of(whole.weight, 1, group)
        self.bias = None if whole.bias is None else nn.Parameter(whole.bias.detach().clone())

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        total = SumOfParts.apply(self.group, F.linear(x, self.weight))
        return total if self.bias is None else total + self.bias


class Attention(nn.Module):
    """Some of the heads of causal self-attention."""

    def __init__(self, whole: Any, group: Any) -> None:
        super().__init__()
        self.heads = HEADS // group.size()
        of_kinds = whole.project.weight.detach().unflatten(0, (3, HEADS, -1))
        own = of_kinds.tensor_split(group.size(), 1)[group.rank()]
        self.group = group
        self.project = nn.Parameter(own.flatten(0, 2).clone())
        self.out = RowParallel(whole.out, group)

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        projected = F.linear(CopyToParts.apply(self.group, x), self.project)
        parts = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Vocabulary(nn.Module):
    """A part of the rows of the table that is embedding and output layer."""

    def __init__(self, whole: nn.Embedding, group: Any) -> None:
        super().__init__()
        self.group = group
        self.weight = part_of(whole.weight, 0, group)
        rows = [len(part) for part in whole.weight.detach().tensor_split(group.size())]
        self.start = sum(rows[: group.rank()])
        self.stop = self.start + rows[group.rank()]

    def _own(self, codes: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
        """Return rows of this part for codes, and which of them are in it."""
        here = (codes >= self.start) & (codes < self.stop)
        return pb.where(here, codes - self.start, 0), here

    def embed(self, codes: pb.Tensor) -> pb.Tensor:
        rows, here = self._own(codes)
        found = F.embedding(rows, self.weight) * here.unsqueeze(-1)
        return SumOfParts.apply(self.group, found)

    def scores(self, x: pb.Tensor) -> pb.Tensor:
        """Return the scores of this part's characters."""
        return F.linear(CopyToParts.apply(self.group, x), self.weight)

    def cross_entropy(self, scores: pb.Tensor, codes: pb.Tensor) -> pb.Tensor:
        """Return the cross entropy of each code; no process has all scores."""
        largest = scores.detach().amax(-1)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group=self.group)
        shifted = scores - largest.unsqueeze(-1)
        total = SumOfParts.apply(self.group, shifted.exp().sum(-1))
        rows, here = self._own(codes)
        own = shifted.gather(-1, rows.unsqueeze(-1)).squeeze(-1) * here
        return total.log() - SumOfParts.apply(self.group, own)


class ParallelTransformer(nn.Module):
    """A part of a whole transformer; normalization and positions are whole on each process."""

    def __init__(self, whole: single.Transformer, group: Any) -> None:
        super().__init__()
        self.group = group
        self.characters = Vocabulary(whole.characters, group)
        self.positions = whole.positions
        self.blocks = nn.ModuleList()
        *blocks, self.last = whole.blocks
        for block in blocks:
            block.attention[1] = Attention(block.attention[1], group)
            block.network[1] = ColumnParallel(block.network[1], group)
            block.network[3] = RowParallel(block.network[3], group)
            self.blocks.append(block)

    def features(self, codes: pb.Tensor) -> pb.Tensor:
        x = self.characters.embed(codes) + self.positions.weight[: codes.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.last(x)

    def losses(self, codes: pb.Tensor, targets: pb.Tensor) -> pb.Tensor:
        scores = self.characters.scores(self.features(codes))
        return self.characters.cross_entropy(scores, targets)

    def forward(self, codes: pb.Tensor) -> pb.Tensor:
        """Return the scores of all characters, without history."""
        own = self.characters.scores(self.features(codes)).detach()
        count = distributed.get_world_size(self.group)
        found: list[Any] = [None] * count
        distributed.all_gather_object(found, tuple(own.shape), group=self.group)
        parts = [own.new_empty(shape) for shape in found]
        distributed.all_gather(parts, own.contiguous(), group=self.group)
        return pb.cat(parts, -1)


# -- training --------------------------------------------------------------------------------------


def clip(model: ParallelTransformer, largest: float) -> None:
    """Scale the gradients so that their norm, over all parts, is at most a number."""
    whole = {id(one) for one in (*model.positions.parameters(), *model.last.parameters())}
    for block in model.blocks:
        for module in (block.attention[0], block.network[0]):
            whole |= {id(one) for one in module.parameters()}
        whole.add(id(block.network[3].bias))
    squares = pb.zeros(2)
    for parameter in model.parameters():
        squares[int(id(parameter) in whole)] += parameter.grad.square().sum()
    divided, same = squares.unbind()
    distributed.all_reduce(divided, group=model.group)
    factor = min(1.0, largest / (float((divided + same).sqrt()) + 1e-6))
    for parameter in model.parameters():
        parameter.grad.mul_(factor)


def train(
    model: ParallelTransformer, rows: Any, text: np.ndarray, steps: int, seed: int
) -> list[float]:
    """Train on random parts of the text; return the bits per character of each update."""
    random = np.random.default_rng(seed)
    optimizer = pb.optim.AdamW(model.parameters(), lr=0.004, weight_decay=0.05)
    warmup = max(1, steps // 20)

    def factor(step: int) -> float:
        return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / steps))

    schedule = pb.optim.lr_scheduler.LambdaLR(optimizer, factor)
    curve: list[float] = []
    for _ in range(steps):
        starts = random.integers(0, len(text) - CONTEXT, single.BATCH_SIZE)
        own = starts[rows.rank() :: rows.size()]
        batch = pb.from_numpy(text[own[:, None] + np.arange(CONTEXT + 1)])
        loss = model.losses(batch[:, :-1], batch[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        distributed.synchronize_gradients(model.parameters(), group=rows)
        clip(model, 1.0)
        optimizer.step()
        schedule.step()
        mean = loss.detach()
        distributed.all_reduce(mean, distributed.ReduceOp.AVG, group=rows)
        curve.append(mean.item() / math.log(2))
    return curve


def groups_of(parts: int) -> tuple[Any, Any]:
    """Return the group of this process's row, which has the parts of one network, and its column.

    All processes make all groups.
    """
    rank, size = distributed.get_rank(), distributed.get_world_size()
    own: dict[str, Any] = {}
    for start in range(0, size, parts):
        members = list(range(start, start + parts))
        group = distributed.new_group(members)
        if rank in members:
            own["row"] = group
    for start in range(parts):
        members = list(range(start, size, parts))
        group = distributed.new_group(members)
        if rank in members:
            own["column"] = group
    return own["row"], own["column"]


def main() -> int:
    """Train on all processes, evaluate and return the exit code."""
    parser = argparse.ArgumentParser(description="Train a transformer in parts.")
    parser.add_argument("--parts", type=int, help="processes that divide each layer")
    parser.add_argument("--quick", action="store_true", help="a small network, few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/tensor_parallel"))
    options = parser.parse_args()
    settings = single.QUICK if options.quick else single.FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    distributed.init_process_group()
    size = distributed.get_world_size()
    parts = options.parts or (2 if size % 2 == 0 else 1)
    if size % parts or HEADS % parts:
        parser.error(f"--parts must divide the {size} processes and {HEADS} heads")
    row, column = groups_of(parts)
    texts = single.load_text()
    alphabet = sorted({*texts[0], *texts[1]})
    code_of = {character: code for code, character in enumerate(alphabet)}
    text, test = (np.array([code_of[character] for character in part]) for part in texts)
    pb.manual_seed(options.seed)
    whole = single.Transformer(len(alphabet), settings.width, settings.layers)
    codes = pb.from_numpy(text[: 2 * CONTEXT].reshape(2, CONTEXT))
    with pb.no_grad():
        expected = whole(codes)
    model = ParallelTransformer(whole, row)
    difference = float((model(codes) - expected).abs().max())
    curve = train(model, column, text, settings.steps, options.seed)

    by_position = single.bits_by_position(model, test)  # by all: the layers are divided
    bits = float(by_position[CONTEXT // 2 :].mean())
    if distributed.get_rank() == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(f"{size} processes, {parts} parts, {count} parameters on each")
        print(f"largest difference of a score from one process: {difference:.1e}")
        others = {"trigrams": single.trigram_bits(text, test), "this network": bits}
        single.draw(options.output / "bits.png", curve, by_position, others)
        print(f"bits per character {bits:.4f} (required: at most {settings.required})")
    distributed.destroy_process_group()
    return 0 if bits <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

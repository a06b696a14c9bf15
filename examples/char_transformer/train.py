"""Train a transformer to continue text, one character at a time.

    python examples/char_transformer/train.py [--quick] [--steps N] [--seed N] [--output FOLDER]

The text is what Python's help() prints about the language, which each Python brings along. Prints a
sample. Ends with exit code 1 if text that the network has not seen takes more bits per character
than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pullback as pb
import pullback.nn.functional as F
from pullback import nn

CONTEXT = 96  # characters that the network sees
BATCH_SIZE = 16


class Settings(NamedTuple):
    """Size of the network, updates, and the largest number of bits that counts as success."""

    width: int
    layers: int
    steps: int
    required: float


FULL = Settings(width=64, layers=3, steps=1200, required=2.3)
QUICK = Settings(width=48, layers=1, steps=150, required=4.2)


class Attention(nn.Module):
    """Causal self-attention with several heads (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        parts = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then a network on each position; both add to their normalized input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width))
        hidden = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
        self.network = nn.Sequential(nn.LayerNorm(width), *hidden)

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        x = x + self.attention(x)
        return x + self.network(x)


class Transformer(nn.Module):
    """Scores of the next character at each position, shape (batch, length, characters)."""

    def __init__(self, characters: int, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)), nn.LayerNorm(width))
        for table in (self.characters, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, codes: pb.Tensor) -> pb.Tensor:
        x = self.characters(codes) + self.positions.weight[: codes.shape[1]]
        return F.linear(self.blocks(x), self.characters.weight)  # one table for input and output


def load_text() -> tuple[str, str]:
    """Return text for training and for the test; no paragraph is in both, or twice in one."""
    pages = (topics[name].encode("ascii", "ignore").decode() for name in sorted(topics))
    paragraphs = list(dict.fromkeys(part for page in pages for part in page.split("\n\n")))
    test = paragraphs[::10]
    return "\n\n".join(p for i, p in enumerate(paragraphs) if i % 10), "\n\n".join(test)


def bits_by_position(model: nn.Module, codes: np.ndarray) -> np.ndarray:
    """Return the mean bits per character after 1, 2, ... CONTEXT characters."""
    starts = np.arange(0, len(codes) - CONTEXT, CONTEXT // 2)
    windows = codes[starts[:, None] + np.arange(CONTEXT + 1)]
    total = np.zeros(CONTEXT)
    with pb.no_grad():
        for part in np.array_split(windows, math.ceil(len(windows) / 64)):
            part_codes = pb.from_numpy(part)
            scores = model(part_codes[:, :-1])
            losses = F.cross_entropy(scores.mT, part_codes[:, 1:], reduction="none")
            total += losses.sum(0).numpy()
    return total / len(windows) / math.log(2)


def train(
    model: Transformer, text: np.ndarray, steps: int, seed: int, console: Console
) -> list[float]:
    """Train on random parts of the text; return the bits per character of each update."""
    random = np.random.default_rng(seed)
    optimizer = pb.optim.AdamW(model.parameters(), lr=0.004, weight_decay=0.05)
    warmup = max(1, steps // 20)

    def factor(step: int) -> float:
        return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / steps))

    schedule = pb.optim.lr_scheduler.LambdaLR(optimizer, factor)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn())
    shown = TextColumn("{task.fields[bits]:.3f} bits per character")
    curve: list[float] = []
    with Progress(*columns, shown, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, bits=math.nan)
        for _ in range(steps):
            starts = random.integers(0, len(text) - CONTEXT, BATCH_SIZE)
            batch = pb.from_numpy(text[starts[:, None] + np.arange(CONTEXT + 1)])
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            curve.append(loss.item() / math.log(2))
            progress.update(task, advance=1, bits=float(np.mean(curve[-20:])))
    return curve


@pb.no_grad()
def continue_text(model: Transformer, codes: Iterable[int], count: int) -> list[int]:
    """Return the codes with `count` more, drawn from what the network expects."""
    result = list(codes)
    for _ in range(count):
        scores = model(pb.tensor([result[-CONTEXT:]]))[0, -1]
        result.append(int(pb.multinomial((scores / 0.8).softmax(0), 1)))
    return result


def trigram_bits(text: np.ndarray, test: np.ndarray) -> float:
    """Return the bits per character when two characters before are known: the text counted.

    A pair that is rare in the text borrows from one character, and that from none.
    """
    count = max(text.max(), test.max()) + 1
    expected = np.full(count, 1 / count)
    for order in range(3):
        table = np.zeros((count,) * (order + 1))
        np.add.at(table, tuple(text[i : len(text) - order + i] for i in range(order + 1)), 1)
        expected = (table + 5 * expected) / (table.sum(-1, keepdims=True) + 5)
    return float(-np.log2(expected[test[:-2], test[1:-1], test[2:]]).mean())


def draw(path: Path, curve: list[float], by_position: np.ndarray, others: dict[str, float]) -> None:
    """Write the bits over the training, and over the number of characters seen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(curve, linewidth=0.6, label="in training")
    for (name, bits), style in zip(others.items(), ("--", "-")):
        left.axhline(bits, color="0.3", linestyle=style, label=f"test text, {name}")
    left.set(title="bits per character", xlabel="update", ylim=(1.0, 7.0))
    left.legend()
    right.plot(np.arange(1, CONTEXT + 1), by_position, ".-")
    right.set(title="the longer the context, the fewer bits", xlabel="characters seen before")
    right.set(xscale="log", ylabel="bits per character of the test text")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train, print a sample, evaluate and return the exit code."""
    parser = argparse.ArgumentParser(description="Train a transformer on characters.")
    parser.add_argument("--quick", action="store_true", help="a small network, few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/char_transformer"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    texts = load_text()
    alphabet = sorted({*texts[0], *texts[1]})
    code_of = {character: code for code, character in enumerate(alphabet)}
    text, test = (np.array([code_of[character] for character in part]) for part in texts)
    model = Transformer(len(alphabet), settings.width, settings.layers)
    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"{len(text)} characters, {count} parameters")
    curve = train(model, text, settings.steps, options.seed, console)

    by_position = bits_by_position(model, test)
    bits = float(by_position[CONTEXT // 2 :].mean())
    others = {"trigrams": trigram_bits(text, test), "this network": bits}
    draw(options.output / "bits.png", curve, by_position, others)
    start = "The "
    sample = continue_text(model, [code_of[character] for character in start], 400)
    print("".join(alphabet[code] for code in sample))
    for name, value in others.items():
        console.print(f"test text, {name}: {value:.3f} bits per character", highlight=False)
    console.print(f"picture in {options.output}")
    console.print(f"bits per character {bits:.4f} (required: at most {settings.required})")
    return 0 if bits <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

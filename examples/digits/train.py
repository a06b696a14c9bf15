"""Train a convolutional network on scikit-learn's handwritten digits.

    python examples/digits/train.py [--quick] [--epochs N] [--seed N] [--output FOLDER]

Prints where the time of the last epoch goes, how long a step takes, eagerly and compiled, and the
accuracy on digits that the network has not seen, and writes the curves of loss and accuracy as a
picture, and the last epoch as a report and as a trace for https://ui.perfetto.dev. Ends with exit
code 1 below the stated accuracy.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pullback as pb
import pullback.nn.functional as F
from pullback import nn
from pullback.autograd.profiler import profile, record_function
from pullback.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 32
PHASES = ("data", "forward", "backward", "update")


class Settings(NamedTuple):
    """Passes over the data, and the smallest accuracy that counts as success."""

    epochs: int
    required: float


FULL = Settings(epochs=25, required=0.985)
QUICK = Settings(epochs=3, required=0.94)


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return a convolution over 3 x 3 pixels, normalized over the batch, then rectified."""
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def make_network() -> nn.Sequential:
    """Return the network: images of shape (n, 1, 8, 8) in, 10 scores for each out."""
    return nn.Sequential(
        *(block(1, 16), block(16, 32), nn.MaxPool2d(2)),
        *(block(32, 64), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.3), nn.Linear(64 * 2 * 2, 10)),
    )


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return training and test data: images of shape (1, 8, 8), scaled to 0..1, and labels."""
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8),
        labels.astype(np.int64),
        test_size=0.2,
        stratify=labels,
        random_state=0,
    )
    train_x, test_x, train_y, test_y = map(pb.from_numpy, parts)
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


@pb.no_grad()
def accuracy_of(network: nn.Module, data: TensorDataset) -> float:
    """Return the share of images whose highest score is at the right digit."""
    images, labels = data.tensors
    network.eval()
    hits = network(images).argmax(1) == labels
    network.train()
    return hits.sum().item() / len(labels)


def shift(images: pb.Tensor, random: np.random.Generator) -> pb.Tensor:
    """Return the images moved by -1, 0 or 1 pixels: the same digits, a little different."""
    down, right = random.integers(0, 3, 2).tolist()
    return F.pad(images, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]


def train_epoch(
    network: nn.Module,
    optimizer: pb.optim.Optimizer,
    loader: DataLoader,
    random: np.random.Generator,
) -> Iterator[float]:
    """Take one pass over the data in mini-batches; yield each step's loss."""
    batches = iter(loader)
    while True:
        with record_function("data"):
            images, labels = next(batches, (None, None))
            if images is None:
                return
            images = shift(images, random)
        with record_function("forward"):
            loss = F.cross_entropy(network(images), labels)
        with record_function("backward"):
            optimizer.zero_grad()
            loss.backward()
        with record_function("update"):
            optimizer.step()
        yield loss.item()


def make_progress(console: Console) -> Progress:
    """Return a progress bar that also shows the current loss and accuracy."""
    text = TextColumn("loss {task.fields[loss]:.3f}, accuracy {task.fields[accuracy]:.3f}")
    return Progress(
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        text,
        TimeElapsedColumn(),
        console=console,
    )


def train(
    network: nn.Module,
    data: tuple[TensorDataset, TensorDataset],
    epochs: int,
    seed: int,
    console: Console,
) -> tuple[list[float], list[float], profile]:
    """Train; return each epoch's mean loss and test accuracy, and the profile of the last one."""
    train_data, test_data = data
    random = np.random.default_rng(seed)
    loader = DataLoader(train_data, BATCH_SIZE, shuffle=True)
    optimizer = pb.optim.SGD(
        network.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    profiled = profile(record_shapes=True, profile_memory=True)
    losses: list[float] = []
    accuracies: list[float] = []
    with make_progress(console) as progress:
        task = progress.add_task("", total=epochs, loss=float("nan"), accuracy=0.0)
        for epoch in range(epochs):
            with profiled if epoch == epochs - 1 else nullcontext():
                steps = list(train_epoch(network, optimizer, loader, random))
            schedule.step()
            losses.append(sum(steps) / len(steps))
            accuracies.append(accuracy_of(network, test_data))
            progress.update(task, advance=1, loss=losses[-1], accuracy=accuracies[-1])
    return losses, accuracies, profiled


def make_step(network: nn.Module) -> Callable[[pb.Tensor, pb.Tensor], pb.Tensor]:
    """Return a function that takes a step of training on a batch, and returns the loss."""
    optimizer = pb.optim.SGD(network.parameters(), lr=0.001, momentum=0.9)

    def step(images: pb.Tensor, labels: pb.Tensor) -> pb.Tensor:
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def time_steps(network: nn.Module, data: TensorDataset, rounds: int = 20) -> list[float]:
    """Return the seconds of a step of training of a copy: eagerly, and compiled."""
    images, labels = (part[:BATCH_SIZE] for part in data.tensors)
    calls = [make_step(copy.deepcopy(network)), pb.compile(make_step(copy.deepcopy(network)))]
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call(images, labels)
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def write_curves(path: Path, losses: list[float], accuracies: list[float], required: float) -> None:
    """Write loss and accuracy over the epochs as a picture."""
    import matplotlib

    matplotlib.use("Agg")  # no window: this must work where there is no screen
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    epochs = range(1, len(losses) + 1)
    left.semilogy(epochs, losses)
    left.set(title="training loss", xlabel="epoch", ylabel="cross entropy")
    right.plot(epochs, accuracies)
    right.axhline(required, color="grey", linestyle=":", label="required")
    right.legend(loc="lower right")
    right.set(title="test accuracy", xlabel="epoch", ylim=(min(0.9, *accuracies), 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Train, report and return the exit code."""
    parser = argparse.ArgumentParser(description="Train a network on handwritten digits.")
    parser.add_argument("--quick", action="store_true", help="few epochs")
    parser.add_argument("--epochs", type=int, help="passes over the data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    epochs = settings.epochs if options.epochs is None else options.epochs
    if epochs < 1:
        parser.error(f"--epochs must be at least 1, got {epochs}")

    console = Console()
    pb.manual_seed(options.seed)
    data = load_data()
    network = make_network()
    device = next(network.parameters()).device
    console.print(
        f"{len(data[0])} digits to learn from, {len(data[1])} to test on, device {device}"
    )
    start = time.perf_counter()
    losses, accuracies, profiled = train(network, data, epochs, options.seed, console)
    seconds = time.perf_counter() - start
    picture = options.output / "curves.png"
    write_curves(picture, losses, accuracies, settings.required)
    trace = options.output / "trace.json"
    profiled.export_chrome_trace(trace)
    report = options.output / "report.html"
    profiled.export_html(report, "Handwritten digits: the last epoch")
    averages = profiled.key_averages()
    print(averages.table("self_cpu_time_total", 12, header="The last epoch, by operation"))
    times = {row.key: row.cpu_time_total for row in averages if row.key in PHASES}
    shares = (f"{phase} {times[phase] / sum(times.values()):.0%}" for phase in PHASES)
    console.print(f"where a step's time goes: {', '.join(shares)}")
    eager, compiled = time_steps(network, data[0])
    console.print(f"a step takes {eager * 1e3:.2f} ms, compiled {compiled * 1e3:.2f} ms")
    console.print(
        f"trained {epochs} epochs in {seconds:.1f} s; "
        f"curves, trace.json and report.html in {options.output}"
    )
    console.print(f"test accuracy {accuracies[-1]:.4f} (required: at least {settings.required})")
    return 0 if accuracies[-1] >= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

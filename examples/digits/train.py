"""Train a small network on scikit-learn's handwritten digits.

    python examples/digits/train.py [--epochs N] [--seed N] [--output FOLDER]

Prints where the time of the last epoch goes and the accuracy on digits that the network has not
seen, and writes the curves of loss and accuracy as a picture, and the last epoch as a report and as
a trace for https://ui.perfetto.dev. Ends with exit code 1 below 97 % accuracy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pullback as pb
import pullback.nn.functional as F
from pullback.autograd.profiler import profile, record_function

REQUIRED_ACCURACY = 0.97
BATCH_SIZE = 32


class Network:
    """Two hidden layers of rectified linear units with dropout: 64 pixels in, 10 scores out."""

    def __init__(self, sizes: tuple[int, ...] = (64, 256, 128, 10), dropout: float = 0.1) -> None:
        self.dropout = dropout
        self.weights = []
        self.biases = []
        for inputs, outputs in pairwise(sizes):
            spread = (2 / inputs) ** 0.5  # He et al. 2015, eq. 10: keeps the variance under relu
            self.weights.append((pb.randn(inputs, outputs) * spread).requires_grad_())
            self.biases.append(pb.zeros(outputs, requires_grad=True))

    @property
    def parameters(self) -> list[pb.Tensor]:
        """Return every tensor that training changes."""
        return [*self.weights, *self.biases]

    def __call__(self, x: pb.Tensor, training: bool = False) -> pb.Tensor:
        *hidden, last = zip(self.weights, self.biases)
        for weight, bias in hidden:
            x = F.dropout(pb.relu(x @ weight + bias), self.dropout, training)
        weight, bias = last
        return x @ weight + bias


class Momentum:
    """Gradient descent with momentum, in place and unseen by the graph."""

    def __init__(self, parameters: list[pb.Tensor], momentum: float = 0.9) -> None:
        self.parameters = parameters
        self.momentum = momentum
        self.velocities = [pb.zeros(parameter.shape) for parameter in parameters]

    def step(self, rate: float) -> None:
        """Change each parameter by its velocity and forget its gradient."""
        with pb.no_grad():
            for parameter, velocity in zip(self.parameters, self.velocities):
                velocity.mul_(self.momentum).add_(parameter.grad)
                parameter.add_(velocity, alpha=-rate)
                parameter.grad = None


def load_data() -> tuple[pb.Tensor, pb.Tensor, pb.Tensor, pb.Tensor]:
    """Return training and test pixels (8 x 8, scaled to 0..1) and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (pixels / 16).astype(np.float32),
        labels.astype(np.int64),
        test_size=0.2,
        stratify=labels,
        random_state=0,
    )
    train_x, test_x, train_y, test_y = map(pb.from_numpy, parts)
    return train_x, train_y, test_x, test_y


def accuracy_of(network: Network, x: pb.Tensor, y: pb.Tensor) -> float:
    """Return the share of rows whose highest score is at the right digit."""
    with pb.no_grad():
        hits = network(x).argmax(1) == y
    return hits.sum().item() / len(y)


def shift(x: pb.Tensor, down: int, right: int) -> pb.Tensor:
    """Return the images moved by -1, 0 or 1 pixels: the same digits, a little different."""
    images = pb.zeros(len(x), 10, 10)
    images[:, 1 + down : 9 + down, 1 + right : 9 + right] = x.view(-1, 8, 8)
    return images[:, 1:9, 1:9].reshape(-1, 64)


def train_epoch(network, optimizer, rate, x, y, random) -> Iterator[float]:
    """Take one pass over the data in mini-batches; yield each step's loss."""
    order = pb.from_numpy(random.permutation(len(y)))
    for start in range(0, len(y), BATCH_SIZE):
        with record_function("data"):
            batch = order[start : start + BATCH_SIZE]
            batch_x, batch_y = shift(x[batch], *random.integers(-1, 2, 2).tolist()), y[batch]
        with record_function("forward"):
            loss = F.cross_entropy(network(batch_x, training=True), batch_y)
        with record_function("backward"):
            loss.backward()
        with record_function("update"):
            optimizer.step(rate)
        yield loss.item()


def make_progress(console: Console) -> Progress:
    """Return a progress bar that also shows the current loss and accuracy."""
    text = TextColumn("loss {task.fields[loss]:.3f}  test accuracy {task.fields[accuracy]:.3f}")
    return Progress(
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        text,
        TimeElapsedColumn(),
        console=console,
    )


def train(network: Network, data, epochs: int, seed: int, console: Console):
    """Train; return each epoch's mean loss and test accuracy, and the profile of the last one."""
    train_x, train_y, test_x, test_y = data
    random = np.random.default_rng(seed)
    optimizer = Momentum(network.parameters)
    profiled = profile(record_shapes=True, profile_memory=True)
    losses: list[float] = []
    accuracies: list[float] = []
    with make_progress(console) as progress:
        task = progress.add_task("", total=epochs, loss=float("nan"), accuracy=0.0)
        for epoch in range(epochs):
            rate = 0.05 * (1 + np.cos(np.pi * epoch / epochs)) / 2  # ends near zero, so it settles
            steps = train_epoch(network, optimizer, rate, train_x, train_y, random)
            if epoch == epochs - 1:
                with profiled:
                    steps = list(steps)
            steps = list(steps)
            losses.append(sum(steps) / len(steps))
            accuracies.append(accuracy_of(network, test_x, test_y))
            progress.update(task, advance=1, loss=losses[-1], accuracy=accuracies[-1])
    return losses, accuracies, profiled


def write_curves(path: Path, losses: list[float], accuracies: list[float]) -> None:
    """Write loss and accuracy over the epochs as a picture."""
    import matplotlib

    matplotlib.use("Agg")  # no window: this must work where there is no screen
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    epochs = range(1, len(losses) + 1)
    left.semilogy(epochs, losses)
    left.set(title="training loss", xlabel="epoch", ylabel="cross entropy")
    right.plot(epochs, accuracies)
    right.axhline(REQUIRED_ACCURACY, color="grey", linestyle=":")
    right.set(title="test accuracy", xlabel="epoch", ylim=(min(0.9, *accuracies), 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Train, report and return the exit code."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")

    console = Console()
    pb.manual_seed(options.seed)
    data = load_data()
    network = Network()
    device = network.weights[0].device
    console.print(
        f"{len(data[1])} digits to learn from, {len(data[3])} to test on, device {device}"
    )
    start = time.perf_counter()
    losses, accuracies, profiled = train(network, data, options.epochs, options.seed, console)
    seconds = time.perf_counter() - start
    picture = options.output / "curves.png"
    write_curves(picture, losses, accuracies)
    trace = options.output / "trace.json"
    profiled.export_chrome_trace(trace)
    report = options.output / "report.html"
    profiled.export_html(report, "Handwritten digits: the last epoch")
    averages = profiled.key_averages()
    print(averages.table("self_cpu_time_total", 12, header="The last epoch, by operation"))
    console.print(
        f"trained {options.epochs} epochs in {seconds:.1f} s; "
        f"curves, trace.json and report.html in {options.output}"
    )
    console.print(f"test accuracy {accuracies[-1]:.4f} (required: {REQUIRED_ACCURACY})")
    return 0 if accuracies[-1] >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())

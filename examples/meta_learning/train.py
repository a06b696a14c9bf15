"""Learn initial weights from which few gradient steps fit a new function (MAML).

    python examples/meta_learning/train.py [--quick] [--steps N] [--seed N] [--output FOLDER]

The loss is taken after gradient steps on other points, so its gradient goes through gradients.
Ends with exit code 1 if the error after those steps is larger than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pullback as pb
from pullback import nn

SHOTS = 10  # points of a task that the inner loop sees
TASKS = 25  # tasks in one update
INNER_RATE = 0.05
INNER_STEPS = 3


class Settings(NamedTuple):
    """Number of updates, and the largest error that counts as success."""

    steps: int
    required: float


FULL = Settings(steps=6000, required=0.2)
QUICK = Settings(steps=300, required=1.5)

Weights = tuple[pb.Tensor, ...]
Errors = list[tuple[float, float]]


class Task(NamedTuple):
    """Points of many sines, each of shape (tasks, points, 1): to adapt to, and to be judged by."""

    x: pb.Tensor
    y: pb.Tensor
    test_x: pb.Tensor
    test_y: pb.Tensor


class Network(nn.Module):
    """One input, two hidden layers, one output; weights have a leading dimension for tasks."""

    def __init__(self, sizes: tuple[int, ...] = (1, 40, 40, 1)) -> None:
        super().__init__()
        layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)]
        self.weights = nn.ParameterList([layer.weight.detach().T for layer in layers])
        self.biases = nn.ParameterList([layer.bias.detach() for layer in layers])

    def initial(self, tasks: int) -> Weights:
        """Return the weights and biases of each task before it is adapted: the same for all."""
        return (
            *(weight.expand(tasks, *weight.shape) for weight in self.weights),
            *(bias.expand(tasks, 1, *bias.shape) for bias in self.biases),
        )

    @staticmethod
    def apply_weights(x: pb.Tensor, weights: Weights) -> pb.Tensor:
        """Return each task's outputs, by its own weights."""
        half = len(weights) // 2
        *hidden, last = zip(weights[:half], weights[half:])
        for weight, bias in hidden:
            x = pb.tanh(pb.baddbmm(bias, x, weight))
        weight, bias = last
        return pb.baddbmm(bias, x, weight)


def draw_tasks(count: int, random: np.random.Generator) -> Task:
    """Return points of sines with random amplitude and phase (Finn et al. 2017, section 5.1)."""
    amplitude = random.uniform(0.1, 5.0, (count, 1, 1))
    phase = random.uniform(0.0, np.pi, (count, 1, 1))
    x = random.uniform(-5.0, 5.0, (count, 2 * SHOTS, 1))
    y = amplitude * np.sin(x - phase)
    arrays = (x[:, :SHOTS], y[:, :SHOTS], x[:, SHOTS:], y[:, SHOTS:])
    return Task(*(pb.from_numpy(array.astype(np.float32)) for array in arrays))


def errors_of(x: pb.Tensor, y: pb.Tensor, weights: Weights) -> pb.Tensor:
    """Return each task's mean squared error."""
    return (Network.apply_weights(x, weights) - y).square().mean((1, 2))


def adapt(weights: Weights, task: Task, steps: int, create_graph: bool) -> Weights:
    """Return the weights after gradient steps, recorded if `create_graph`."""
    for _ in range(steps):
        # A task's error depends on its own weights only: the gradient of the sum has them all.
        total = errors_of(task.x, task.y, weights).sum()
        gradients = pb.autograd.grad(total, weights, create_graph=create_graph)
        weights = tuple(
            weight - INNER_RATE * gradient for weight, gradient in zip(weights, gradients)
        )
    return weights


def train(network: Network, steps: int, through: bool, seed: int, progress: Progress) -> None:
    """Train for the error after the inner loop, or, as a baseline, for the error before it."""
    random = np.random.default_rng(seed)
    optimizer = pb.optim.Adam(network.parameters(), lr=0.003)
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    name = "meta-learning" if through else "joint training"
    bar = progress.add_task(f"{name:14}", total=steps, loss=math.nan)
    average = math.nan
    for step in range(steps):
        task = draw_tasks(TASKS, random)
        weights = network.initial(TASKS)
        if through:
            weights = adapt(weights, task, INNER_STEPS, create_graph=True)
        loss = errors_of(task.test_x, task.test_y, weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average = loss.item() if step == 0 else 0.98 * average + 0.02 * loss.item()
        progress.update(bar, advance=1, loss=average)


def evaluate(network: Network, seed: int, steps: int = 10) -> Errors:
    """Return mean and 95 % half width of the error on 600 new tasks after 0, 1, ... steps."""
    task = draw_tasks(600, np.random.default_rng(seed))
    weights = network.initial(600)
    results = []
    for _ in range(steps + 1):
        errors = errors_of(task.test_x, task.test_y, weights).detach()
        results.append((errors.mean().item(), 1.96 * errors.std().item() / math.sqrt(600)))
        weights = adapt(weights, task, 1, create_graph=False)
    return results


def draw(path: Path, networks: dict[str, Network], results: dict[str, Errors], seed: int) -> None:
    """Write two sines with their fits, and the errors over the inner steps, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    amplitude, phase = np.array([4.0, 1.5])[:, None, None], np.array([0.6, 2.4])[:, None, None]
    x = np.sort(np.random.default_rng(seed).uniform(-5, 0, (2, SHOTS, 1)), 1)  # the left half
    grid = np.broadcast_to(np.linspace(-5, 5, 200)[None, :, None], (2, 200, 1))
    arrays = (x, amplitude * np.sin(x - phase), grid, amplitude * np.sin(grid - phase))
    task = Task(*(pb.from_numpy(array.astype(np.float32)) for array in arrays))
    for name, color in zip(networks, ("C0", "C1")):
        weights = networks[name].initial(2)
        for steps, style in ((0, ":"), (INNER_STEPS, "-")):
            fit = Network.apply_weights(task.test_x, adapt(weights, task, steps, False)).detach()
            for axis, values in zip(axes, fit.numpy()):
                label = f"{name}, {steps} steps"
                axis.plot(grid[0, :, 0], values[:, 0], style, color=color, label=label)
        axes[2].errorbar(range(len(results[name])), *zip(*results[name]), capsize=3, label=name)
    for axis, given, target, truth in zip(axes, x, task.y.numpy(), task.test_y.numpy()):
        axis.plot(grid[0, :, 0], truth[:, 0], color="0.75", linewidth=5, zorder=0, label="true")
        axis.plot(given[:, 0], target[:, 0], "k^", markersize=5, label="points seen")
        axis.set(title="a new sine", xlabel="x", ylabel="y", ylim=(-6, 8))
        axis.legend(loc="upper center", ncols=2, fontsize="x-small")
    title = f"new sines, {SHOTS} points each"
    axes[2].set(title=title, xlabel="gradient steps", ylabel="mean squared error", yscale="log")
    axes[2].axvline(INNER_STEPS, color="0.75", linestyle="--", label="steps in training")
    axes[2].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train both networks, compare them and return the exit code."""
    parser = argparse.ArgumentParser(description="Meta-learning on sines.")
    parser.add_argument("--quick", action="store_true", help="few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/meta_learning"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    networks = {"meta-learning": Network(), "joint training": Network()}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("error {task.fields[loss]:.3f}")
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        for name, network in networks.items():
            train(network, settings.steps, name == "meta-learning", options.seed, progress)
    results = {name: evaluate(network, options.seed + 1) for name, network in networks.items()}
    draw(options.output / "adaptation.png", networks, results, options.seed)
    for name, errors in results.items():
        for steps in (0, 1, INNER_STEPS, 10):
            mean, half = errors[steps]
            console.print(f"{name:>14} after {steps:2} steps: error {mean:.3f} ± {half:.3f}")
    console.print(f"picture in {options.output}")
    error = results["meta-learning"][INNER_STEPS][0]
    console.print(f"mean squared error {error:.4f} (required: at most {settings.required})")
    return 0 if error <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

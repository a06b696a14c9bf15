"""Solve Burgers' equation with a network that has seen no solution, only the equation.

    python examples/physics_informed/train.py [--quick] [--steps N] [--seed N] [--output FOLDER]

Ends with exit code 1 if the relative error, by the exact solution, is larger than stated.
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

VISCOSITY = 0.01


class Settings(NamedTuple):
    """Points in a step, number of updates, and the largest error that counts as success."""

    points: int
    steps: int
    required: float


FULL = Settings(points=1500, steps=4500, required=0.01)
QUICK = Settings(points=200, steps=600, required=0.4)


class Solution(nn.Module):
    """u(x, t), a network in a form that has the initial and boundary values for any weights."""

    def __init__(self, sizes: tuple[int, ...] = (2, 32, 32, 32, 1)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: pb.Tensor, t: pb.Tensor) -> pb.Tensor:
        """Return u; it is -sin πx at t = 0, and 0 at x = ±1 (after Lagaris et al. 1998)."""
        network = self.layers(pb.stack([x, 2 * t - 1], 1))[:, 0]
        return -pb.sin(math.pi * x) + t * (1 - x**2) * network


def residual_of(u: Solution, x: pb.Tensor, t: pb.Tensor) -> pb.Tensor:
    """Return u_t + u u_x - VISCOSITY u_xx, which is zero where u solves the equation."""
    x, t = x.requires_grad_(), t.requires_grad_()
    value = u(x, t)
    # Points do not interact, so the gradient of the sum has the derivative at each of them.
    u_x, u_t = pb.autograd.grad(value.sum(), (x, t), create_graph=True)
    (u_xx,) = pb.autograd.grad(u_x.sum(), x, create_graph=True)
    return u_t + value * u_x - VISCOSITY * u_xx


def exact(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return the solution by the Cole-Hopf transform, with Gauss-Hermite quadrature.

    Source: Basdevant et al. 1986, "Spectral and finite difference solutions of the Burgers
    equation", eq. 2.5.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    shifted = x[..., None] - 2 * np.sqrt(VISCOSITY * t[..., None]) * nodes
    density = weights * np.exp(-np.cos(np.pi * shifted) / (2 * np.pi * VISCOSITY))
    return -(np.sin(np.pi * shifted) * density).sum(-1) / density.sum(-1)


def train(u: Solution, settings: Settings, console: Console) -> None:
    """Make the residual small at random points, new ones in each update."""
    optimizer = pb.optim.Adam(u.parameters(), lr=0.005)
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("mean squared residual {task.fields[loss]:.2e}")
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=settings.steps, loss=math.nan)
        for _ in range(settings.steps):
            x, t = 2 * pb.rand(settings.points) - 1, pb.rand(settings.points)
            loss = residual_of(u, x, t).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress.update(task, advance=1, loss=loss.item())


def draw(path: Path, x: np.ndarray, t: np.ndarray, found: np.ndarray, true: np.ndarray) -> None:
    """Write the solution, its error and three profiles as a picture; rows are times."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    pictures = (("u(x, t) of the network", found, "RdBu_r"), ("error", found - true, "PuOr"))
    for axis, (title, values, colors) in zip(axes, pictures):
        limit = np.abs(values).max()
        image = axis.pcolormesh(
            t[:, 0], x[0], values.T, cmap=colors, vmin=-limit, vmax=limit, rasterized=True
        )
        figure.colorbar(image, ax=axis)
        axis.set(title=title, xlabel="t", ylabel="x")
    for row, color in zip((0, len(t) // 4, len(t) // 2, len(t) - 1), ("C0", "C2", "C1", "C3")):
        axes[2].plot(x[0], true[row], color=color, alpha=0.3, linewidth=5)
        axes[2].plot(x[0], found[row], "--", color=color, label=f"t = {t[row, 0]:.2f}")
    axes[2].set(title="network (dashed) and exact solution", xlabel="x", ylabel="u")
    axes[2].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train, compare with the exact solution and return the exit code."""
    parser = argparse.ArgumentParser(description="Solve Burgers' equation.")
    parser.add_argument("--quick", action="store_true", help="few points, few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/physics_informed"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    u = Solution()
    train(u, settings, console)
    t, x = np.meshgrid(np.linspace(0, 1, 101), np.linspace(-1, 1, 201), indexing="ij")
    points = [pb.from_numpy(values.ravel().astype(np.float32)) for values in (x, t)]
    with pb.no_grad():
        found = u(*points).numpy().reshape(x.shape)
    true = exact(x, t)
    draw(options.output / "solution.png", x, t, found, true)
    error = np.linalg.norm(found - true) / np.linalg.norm(true)
    console.print(f"largest error {np.abs(found - true).max():.4f}; picture in {options.output}")
    console.print(f"relative error {error:.5f} (required: at most {settings.required})")
    return 0 if error <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

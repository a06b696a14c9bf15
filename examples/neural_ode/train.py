"""Learn a differential equation from its solution, with gradients by the adjoint method.

    python examples/neural_ode/train.py [--quick] [--steps N] [--seed N] [--output FOLDER]

Ends with exit code 1 if the learned solution is further from the true one than stated, or if the
adjoint method gives another gradient than backpropagation through the solver.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pullback as pb
from pullback import nn

SPACING = 0.05  # time between observations
WINDOW = 40  # observations that the solution is followed for in training
START = (0.2, 0.0)
BATCH_SIZE = 16
REQUIRED_AGREEMENT = 1e-3  # relative difference of both gradients; the solver causes it

Field = Callable[[pb.Tensor], pb.Tensor]


class Settings(NamedTuple):
    """Observations to learn from and in all, updates, and the error that counts as success."""

    observations: int
    total: int
    steps: int
    required: float


FULL = Settings(observations=400, total=800, steps=3000, required=0.05)
QUICK = Settings(observations=200, total=200, steps=300, required=0.4)


class VectorField(nn.Module):
    """dy/dt = f(y), a network of two hidden layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        hidden = [nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, y: pb.Tensor) -> pb.Tensor:
        return self.layers(y)


def oscillator(y: pb.Tensor) -> pb.Tensor:
    """Return the true field: x'' = (1 - x²) x' - x (van der Pol 1926), which ends in a cycle."""
    x, speed = y.unbind(-1)
    return pb.stack([speed, (1 - x**2) * speed - x], -1)


def advance(f: Callable, state: tuple[pb.Tensor, ...], h: float) -> tuple[pb.Tensor, ...]:
    """Return the state after the time h: one step of the classical Runge-Kutta method."""

    def moved(slope: tuple[pb.Tensor, ...], by: float) -> tuple[pb.Tensor, ...]:
        return tuple(value.add(rate, alpha=by) for value, rate in zip(state, slope))

    k1 = f(*state)
    k2 = f(*moved(k1, h / 2))
    k3 = f(*moved(k2, h / 2))
    k4 = f(*moved(k3, h))
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4)]
    return moved(tuple(mean), h)


def solve(f: Field, y: pb.Tensor, count: int) -> pb.Tensor:
    """Return the solution that begins at y, at `count` times, the first of them y's own."""
    solution = [y]
    for _ in range(count - 1):
        (y,) = advance(lambda value: (f(value),), (y,), SPACING)
        solution.append(y)
    return pb.stack(solution)


class AdjointSolution(pb.autograd.Function):
    """`solve` with a backward that solves an equation instead of reading a recorded graph.

    With a(t) = dL/dy(t), da/dt = -aᵀ ∂f/∂y and dL/dθ = ∫ aᵀ ∂f/∂θ dt (Chen et al. 2018, section 2).
    Memory does not grow with the number of Runge-Kutta steps.
    """

    @staticmethod
    def forward(ctx, f: nn.Module, count: int, y: pb.Tensor, *parameters: pb.Tensor) -> pb.Tensor:
        """Solve; nothing that f does is recorded here."""
        solution = solve(f, y, count)
        ctx.f = f
        ctx.save_for_backward(solution, *parameters)
        return solution

    @staticmethod
    @pb.autograd.function.once_differentiable
    def backward(ctx, grad: pb.Tensor) -> tuple[pb.Tensor | None, ...]:
        """Solve backward in time for y, its adjoint and the gradients of the parameters."""
        solution, *parameters = ctx.saved_tensors

        def dynamics(y: pb.Tensor, adjoint: pb.Tensor, *_: pb.Tensor) -> tuple[pb.Tensor, ...]:
            with pb.enable_grad():
                y = y.detach().requires_grad_()
                slope = ctx.f(y)
            products = pb.autograd.grad(slope, (y, *parameters), adjoint)
            return (slope.detach(), *(-product for product in products))

        state = (solution[-1], grad[-1], *(pb.zeros_like(value) for value in parameters))
        for index in range(len(solution) - 2, -1, -1):
            _, adjoint, *sums = advance(dynamics, state, -SPACING)
            # Each observation adds its own gradient; y is known there, so no error builds up.
            state = (solution[index], adjoint + grad[index], *sums)
        return (None, None, *state[1:])


def loss_of(f: nn.Module, windows: pb.Tensor, adjoint: bool) -> pb.Tensor:
    """Return the mean distance of solutions from observations, of shape (time, batch, 2)."""
    start = windows[0].clone().requires_grad_()
    if adjoint:
        found = AdjointSolution.apply(f, len(windows), start, *f.parameters())
    else:
        found = solve(f, start, len(windows))
    return (found - windows).abs().mean()


def draw_windows(truth: pb.Tensor, random: np.random.Generator) -> pb.Tensor:
    """Return windows of the observations that begin at random times."""
    starts = random.integers(0, len(truth) - WINDOW + 1, BATCH_SIZE)
    return truth[pb.from_numpy(starts[None, :] + np.arange(WINDOW)[:, None])]


def compare_gradients(f: nn.Module, windows: pb.Tensor) -> float:
    """Return the relative difference of gradients by the adjoint method and by backpropagation."""
    both = [
        pb.cat([g.ravel() for g in pb.autograd.grad(loss_of(f, windows, way), [*f.parameters()])])
        for way in (True, False)
    ]
    return ((both[0] - both[1]).norm() / both[1].norm()).item()


def train(f: nn.Module, truth: pb.Tensor, steps: int, seed: int, console: Console) -> list[float]:
    """Train on random windows; return the losses."""
    random = np.random.default_rng(seed)
    optimizer = pb.optim.Adam(f.parameters(), lr=0.01)
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("loss {task.fields[loss]:.5f}")
    losses = []
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, loss=float("nan"))
        for _ in range(steps):
            loss = loss_of(f, draw_windows(truth, random), adjoint=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            progress.update(task, advance=1, loss=losses[-1])
    return losses


def draw(path: Path, truth: pb.Tensor, found: pb.Tensor, losses: list[float], seen: int) -> None:
    """Write both solutions in the plane and over time, and the loss, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (plane, time, loss) = plt.subplots(
        1, 3, figsize=(14, 4), layout="constrained", gridspec_kw={"width_ratios": [2, 4, 2]}
    )
    true, learned = truth[:, 0].numpy(), found[:, 0].numpy()
    times = SPACING * np.arange(len(true))
    plane.plot(*true.T, color="0.75", linewidth=5)
    plane.plot(*learned.T, "C0--")
    plane.set(title="in the plane", xlabel="x", ylabel="dx/dt")
    time.plot(times, true[:, 0], color="0.75", linewidth=5, label="true")
    time.plot(times, learned[:, 0], "C0--", label="learned")
    time.axvspan(0, SPACING * seen, color="C1", alpha=0.15, label="times in the training data")
    time.set(title="over time", xlabel="t", ylabel="x", ylim=(-2.5, 3.5))
    time.legend(loc="upper right", ncols=3, fontsize="small")
    loss.semilogy(losses, linewidth=0.8)
    loss.set(title="training", xlabel="update", ylabel="mean distance in a window")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train, compare and return the exit code."""
    parser = argparse.ArgumentParser(description="Learn a differential equation.")
    parser.add_argument("--quick", action="store_true", help="a short solution, few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/neural_ode"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    with pb.no_grad():
        truth = solve(oscillator, pb.tensor([START]), settings.total)
    f = VectorField()
    seen = truth[: settings.observations, 0]
    losses = train(f, seen, settings.steps, options.seed, console)
    with pb.no_grad():
        found = solve(f, truth[0], settings.total)
    draw(options.output / "solution.png", truth, found, losses, len(seen))
    windows = draw_windows(seen, np.random.default_rng(options.seed)).double()
    agreement = compare_gradients(f.double(), windows)
    error = ((found - truth).norm() / truth.norm()).item()
    console.print(f"picture in {options.output}")
    console.print(
        f"adjoint and direct gradient differ by {agreement:.1e} (required: {REQUIRED_AGREEMENT})"
    )
    console.print(f"relative error {error:.4f} (required: at most {settings.required})")
    return 0 if error <= settings.required and agreement <= REQUIRED_AGREEMENT else 1


if __name__ == "__main__":
    sys.exit(main())

"""Fit a Gaussian process by its marginal likelihood, with SciPy's L-BFGS-B.

    python examples/gaussian_process/train.py [--quick] [--steps N] [--seed N] [--output FOLDER]

The data are drawn from a process with known parameters, so the fit can be compared with the truth.
Ends with exit code 1 if it predicts new points worse than stated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

import pullback as pb

# Each is positive, so the logarithm is what the optimizer moves.
TRUTH = {"trend": 1.5, "reach": 4.0, "wave": 1.0, "period": 1.7, "roughness": 1.2, "noise": 0.25}
INTERVAL = (0.0, 12.0)
GAP = (5.0, 7.0)  # no observations here
HORIZON = 15.0  # the picture goes beyond the data


class Settings(NamedTuple):
    """Size of the problem, and the largest excess that counts as success."""

    points: int
    starts: int
    steps: int
    required: float


FULL = Settings(points=250, starts=5, steps=80, required=0.05)
QUICK = Settings(points=80, starts=4, steps=40, required=0.15)


class Data(NamedTuple):
    """Observed and new points of one draw."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    new_y: np.ndarray


class LogDensity(pb.autograd.Function):
    """Logarithm of the density of N(0, K) at y."""

    @staticmethod
    def forward(ctx, covariance: pb.Tensor, y: pb.Tensor) -> pb.Tensor:
        """Return -(yᵀ K⁻¹ y + log det K + n log 2π) / 2 (Rasmussen & Williams 2006, eq. 2.30)."""
        factor = cho_factor(covariance.numpy(), lower=True)
        weights = pb.from_numpy(cho_solve(factor, y.numpy()))
        inverse = pb.from_numpy(cho_solve(factor, np.eye(len(y))))
        ctx.save_for_backward(weights, inverse)
        half_log_det = np.log(np.diag(factor[0])).sum()
        return -0.5 * (y @ weights) - half_log_det - 0.5 * len(y) * np.log(2 * np.pi)

    @staticmethod
    @pb.autograd.function.once_differentiable
    def backward(ctx, grad: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
        """Return (a aᵀ - K⁻¹) / 2 with a = K⁻¹ y (eq. 5.9) for K, and -a for y."""
        weights, inverse = ctx.saved_tensors
        return grad * 0.5 * (pb.outer(weights, weights) - inverse), -grad * weights


def kernel(x: pb.Tensor, z: pb.Tensor, log_parameters: pb.Tensor) -> pb.Tensor:
    """Return the covariance of f at x and z: a smooth trend and a wave of constant period."""
    trend, reach, wave, period, roughness, _ = log_parameters.exp().unbind()
    distance = x[:, None] - z[None, :]
    smooth = trend**2 * pb.exp(-0.5 * (distance / reach) ** 2)
    periodic = wave**2 * pb.exp(-2 * (pb.sin(np.pi * distance / period) / roughness) ** 2)
    return smooth + periodic


def noisy_kernel(x: pb.Tensor, log_parameters: pb.Tensor) -> pb.Tensor:
    """Return the covariance of observations at x, whose noise is independent."""
    noise = log_parameters[-1].exp()
    return kernel(x, x, log_parameters) + noise**2 * pb.eye(len(x), dtype=x.dtype)


def draw_data(count: int, random: np.random.Generator) -> Data:
    """Return observations outside the gap, and 400 new ones, of one draw from the true process."""
    x = random.uniform(*INTERVAL, 4 * count)
    inside = (x > GAP[0]) & (x < GAP[1])
    x = np.concatenate([x[~inside][:count], random.uniform(*INTERVAL, 400)])
    truth = pb.tensor(list(TRUTH.values()), dtype=pb.float64).log()
    covariance = noisy_kernel(pb.from_numpy(x), truth).numpy()
    y = np.linalg.cholesky(covariance) @ random.standard_normal(len(x))
    return Data(x[:count], y[:count], x[count:], y[count:])


def fit(data: Data, settings: Settings, console: Console) -> tuple[np.ndarray, list[list[float]]]:
    """Return the best logarithms of the parameters, and the objective after each evaluation.

    The likelihood has a maximum near each multiple of the period, so L-BFGS-B begins at several:
    those that are most likely while the other parameters have their first value.
    """
    x, y = pb.from_numpy(data.x), pb.from_numpy(data.y)
    history: list[list[float]] = []

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        log_parameters = pb.tensor(values, requires_grad=True)
        loss = -LogDensity.apply(noisy_kernel(x, log_parameters), y) / len(y)
        (gradient,) = pb.autograd.grad(loss, log_parameters)
        if history:
            history[-1].append(loss.item())
        return loss.item(), gradient.numpy()

    periods = np.geomspace(0.5, 5.0, 60)
    starts = [np.log([1.0, 3.0, 1.0, period, 1.0, 0.5]) for period in periods]
    starts = sorted(starts, key=lambda start: objective(start)[0])[: settings.starts]
    columns = (TextColumn("fitting"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("negative log likelihood {task.fields[loss]:.4f} nat per point")
    best, best_loss = starts[0], float("inf")
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=settings.starts, loss=best_loss)
        for start in starts:
            history.append([])
            arguments = {
                "bounds": [(-4.0, 4.0)] * len(start),
                "options": {"maxiter": settings.steps},
            }
            done = minimize(objective, start, jac=True, method="L-BFGS-B", **arguments)
            if done.fun < best_loss:
                best, best_loss = done.x, done.fun
            progress.update(task, advance=1, loss=best_loss)
    return best, history


def predict(data: Data, x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of new observations (Rasmussen & Williams, eq. 2.23)."""
    seen, new, parameters = pb.from_numpy(data.x), pb.from_numpy(x), pb.from_numpy(values)
    cross = kernel(new, seen, parameters)
    solved = pb.linalg.solve(noisy_kernel(seen, parameters), cross.T)
    mean = solved.T @ pb.from_numpy(data.y)
    prior = kernel(new[:1], new[:1], parameters) + parameters[-1].exp() ** 2
    variance = prior.squeeze() - (cross * solved.T).sum(1)
    return mean.numpy(), variance.sqrt().numpy()


def surprise(data: Data, values: np.ndarray) -> float:
    """Return the mean negative log density, in nat, that the model gives to the new points."""
    mean, spread = predict(data, data.new_x, values)
    scaled = (data.new_y - mean) / spread
    return float(np.mean(0.5 * scaled**2 + np.log(spread) + 0.5 * np.log(2 * np.pi)))


def draw(path: Path, data: Data, values: np.ndarray, history: list[list[float]]) -> None:
    """Write the prediction with its uncertainty, and the objective of each start, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    widths = {"width_ratios": [3, 1]}
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4), layout="constrained", gridspec_kw=widths
    )
    x = np.linspace(INTERVAL[0], HORIZON, 500)
    mean, spread = predict(data, x, values)
    left.fill_between(x, mean - 2 * spread, mean + 2 * spread, alpha=0.25, label="±2 deviations")
    left.plot(x, mean, label="mean of the prediction")
    left.plot(data.x, data.y, "k.", markersize=3, label="observed")
    left.plot(data.new_x, data.new_y, "r.", markersize=3, label="not shown to the model")
    left.set(title="Gaussian process with learned parameters", xlabel="x", ylabel="y")
    low, high = left.get_ylim()
    left.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
    left.legend(loc="upper center", ncols=4, fontsize="small")
    for run in history:
        right.plot(np.minimum.accumulate(run), linewidth=1)
    right.set(title="starts of the optimizer", xlabel="evaluation", ylabel="nat per point")
    lowest = min(min(run) for run in history)
    right.set_ylim(lowest - 0.05, lowest + 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Fit, compare with the truth and return the exit code."""
    parser = argparse.ArgumentParser(description="Fit a Gaussian process.")
    parser.add_argument("--quick", action="store_true", help="a small problem")
    parser.add_argument("--steps", type=int, help="iterations of each start of L-BFGS-B")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/gaussian_process"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    random = np.random.default_rng(options.seed)
    data = draw_data(settings.points, random)
    values, history = fit(data, settings, console)
    draw(options.output / "prediction.png", data, values, history)
    for (name, truth), value in zip(TRUTH.items(), np.exp(values)):
        console.print(f"{name:>10}: learned {value:6.3f}, true {truth:6.3f}")
    truth = surprise(data, np.log(list(TRUTH.values())))
    learned = surprise(data, values)
    console.print(f"new points: {learned:.4f} nat each; {truth:.4f} from the true parameters")
    console.print(f"picture in {options.output}")
    console.print(f"excess {learned - truth:.4f} nat (required: at most {settings.required})")
    return 0 if learned - truth <= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

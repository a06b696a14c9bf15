"""Learn to generate handwritten digits by a variational autoencoder.

    python examples/variational_autoencoder/train.py [--quick] [--steps N] [--seed N]
                                                     [--output FOLDER]

Ends with exit code 1 if the evidence lower bound on digits that the network has not seen is smaller
than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from scipy.special import gammaln
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pullback as pb
import pullback.nn.functional as F
from pullback import nn

LEVELS = 16  # a pixel counts black dots in a field of 4 x 4
LATENT = 10
BATCH_SIZE = 64

Curve = list[tuple[int, float, float]]


class Settings(NamedTuple):
    """Number of updates, and the smallest bound, in nat per image, that counts as success."""

    steps: int
    required: float


FULL = Settings(steps=4000, required=-95.0)
QUICK = Settings(steps=200, required=-200.0)


def hidden_layers(inputs: int, width: int) -> nn.Sequential:
    """Return two layers with smooth rectifiers, and dropout after them."""
    first, second = nn.Linear(inputs, width), nn.Linear(width, width)
    return nn.Sequential(first, nn.SiLU(), second, nn.SiLU(), nn.Dropout(0.1))


class Autoencoder(nn.Module):
    """An encoder of images as normal distributions, and a decoder of their samples."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.encoder = hidden_layers(64, width)
        self.mean = nn.Linear(width, LATENT)
        self.log_variance = nn.Linear(width, LATENT)
        self.decoder = nn.Sequential(hidden_layers(LATENT, width), nn.Linear(width, 64))

    def encode(self, images: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
        """Return mean and log-variance of the latent variables of images with values 0..16."""
        hidden = self.encoder(images / LEVELS - 0.5)
        return self.mean(hidden), self.log_variance(hidden)

    def forward(self, images: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor, pb.Tensor]:
        """Return the log-odds of the pixels for one sample of z, and both moments of z.

        The sample is mean + deviation * noise, so that its gradient reaches mean and deviation
        (Kingma & Welling 2014, section 2.4).
        """
        mean, log_variance = self.encode(images)
        sample = mean + (0.5 * log_variance).exp() * pb.randn_like(mean)
        return self.decoder(sample), mean, log_variance


def log_choices(images: pb.Tensor) -> pb.Tensor:
    """Return the sum over pixels of log C(16, x), the constant of a binomial distribution."""
    x = images.numpy()
    terms = gammaln(LEVELS + 1) - gammaln(x + 1) - gammaln(LEVELS - x + 1)
    return pb.from_numpy(terms.sum(1).astype(np.float32))


def bound_of(model: Autoencoder, images: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
    """Return of each image the log-likelihood for one sample, and the divergence, in nat.

    Their difference is the evidence lower bound: log p(x) ≥ E[log p(x|z)] - KL(q(z|x) || p(z)).
    """
    log_odds, mean, log_variance = model(images)
    target = images / LEVELS
    error = F.binary_cross_entropy_with_logits(log_odds, target, reduction="none").sum(1)
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
    return log_choices(images) - LEVELS * error, divergence


@pb.no_grad()
def evaluate(model: Autoencoder, images: pb.Tensor, samples: int = 20) -> tuple[float, float]:
    """Return mean log-likelihood and divergence of images."""
    model.eval()
    results = [bound_of(model, images) for _ in range(samples)]
    model.train()
    likelihood, divergence = (pb.stack(parts).mean().item() for parts in zip(*results))
    return likelihood, divergence


def train(
    model: Autoencoder, images: pb.Tensor, test: pb.Tensor, steps: int, console: Console
) -> Curve:
    """Train; return the bounds on training and test images with the update they belong to."""
    optimizer = pb.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.01)
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("bound {task.fields[train]:.1f}, test {task.fields[test]:.1f} nat")
    curve: Curve = []
    bounds: list[float] = []
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, train=math.nan, test=math.nan)
        while len(bounds) < steps:
            for rows in pb.randperm(len(images)).split(BATCH_SIZE)[: steps - len(bounds)]:
                likelihood, divergence = bound_of(model, images[rows])
                bound = (likelihood - divergence).mean()
                optimizer.zero_grad()
                (-bound).backward()
                optimizer.step()
                schedule.step()
                bounds.append(bound.item())
            likelihood_, divergence_ = evaluate(model, test, 1)
            curve.append((len(bounds), float(np.mean(bounds[-23:])), likelihood_ - divergence_))
            progress.update(task, completed=len(bounds), train=curve[-1][1], test=curve[-1][2])
    return curve


@pb.no_grad()
def draw(path: Path, model: Autoencoder, test: pb.Tensor, curve: Curve) -> None:
    """Write digits with what the network makes of them, new digits, and the bounds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def tiles(images: pb.Tensor, columns: int) -> np.ndarray:
        """Return images in rows of `columns`, with a white line around each."""
        padded = F.pad(images.view(-1, columns, 8, 8), (0, 1, 0, 1))
        return padded.permute(0, 2, 1, 3).reshape(-1, 9 * columns).numpy()

    model.eval()
    means = model.encode(test)[0]
    again = LEVELS * model.decoder(means[:10]).sigmoid()
    new = LEVELS * model.decoder(pb.randn(100, LATENT)).sigmoid()
    share = pb.linspace(0, 1, 10)[:, None]
    between = pb.cat([means[i].lerp(means[i + 1], share) for i in range(0, 10, 2)])
    between = LEVELS * model.decoder(between).sigmoid()

    figure = plt.figure(figsize=(13, 5), layout="constrained")
    axes = figure.subplot_mosaic("AB.D;AC.D".replace(".", "D"), width_ratios=[2, 2, 1.2, 1.2])
    pictures = {
        "A": ("new digits", new),
        "B": ("test digits and their reconstructions", pb.cat([test[:10], again])),
        "C": ("from one digit to another", between),
    }
    for name, (title, images) in pictures.items():
        axes[name].imshow(tiles(images, 10), cmap="gray_r", vmin=0, vmax=LEVELS)
        axes[name].set_title(title)
        axes[name].set_axis_off()
    steps, bounds, test_bounds = zip(*curve)
    axes["D"].plot(steps, bounds, label="training images")
    axes["D"].plot(steps, test_bounds, label="test images")
    low = min(test_bounds[len(test_bounds) // 10 :])
    axes["D"].set(title="evidence lower bound", xlabel="update", ylabel="nat per image")
    axes["D"].set_ylim(low - 5, max(bounds) + 5)
    axes["D"].legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train, evaluate and return the exit code."""
    parser = argparse.ArgumentParser(description="Learn to generate handwritten digits.")
    parser.add_argument("--quick", action="store_true", help="few updates")
    parser.add_argument("--steps", type=int, help="number of updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/variational_autoencoder"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        pixels.astype(np.float32), test_size=0.2, stratify=labels, random_state=0
    )
    images, test = map(pb.from_numpy, parts)
    model = Autoencoder()
    curve = train(model, images, test, settings.steps, console)
    draw(options.output / "digits.png", model, test, curve)
    likelihood, divergence = evaluate(model, test)
    bound = likelihood - divergence
    console.print(f"log-likelihood {likelihood:.1f} nat, divergence {divergence:.1f} nat")
    console.print(f"{-bound / 64 / math.log(2):.3f} bits per pixel; picture in {options.output}")
    console.print(f"evidence lower bound {bound:.2f} nat (required: at least {settings.required})")
    return 0 if bound >= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

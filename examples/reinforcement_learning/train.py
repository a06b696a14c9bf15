"""Learn to balance a pole on a cart by an actor and a critic.

    python examples/reinforcement_learning/train.py [--quick] [--steps N] [--seed N]
                                                    [--output FOLDER]

Ends with exit code 1 if the mean return of new episodes is smaller than stated.
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

import pullback as pb
import pullback.nn.functional as F
from pullback import nn

CARTS = 32  # that are simulated side by side
ROLLOUT = 64  # steps of each in one rollout
PASSES = 4  # over each rollout
BATCH_SIZE = 512
CLIP = 0.2
DISCOUNT = 0.99
TRACE = 0.95
LONGEST = 500  # steps of an episode, so the largest return


class Settings(NamedTuple):
    """Number of rollouts, and the smallest mean return that counts as success."""

    steps: int
    required: float


FULL = Settings(steps=150, required=475.0)
QUICK = Settings(steps=20, required=100.0)


class CartPole:
    """Many carts with a pole each; an action pushes a cart to the left (0) or right (1).

    Equations and constants are those of Barto, Sutton & Anderson 1983, "Neuronlike adaptive
    elements that can solve difficult learning control problems", without friction. The reward of
    each step is 1. An episode ends when the pole leans more than 12 degrees or the cart is more
    than 2.4 m from the centre; a new one begins at once.
    """

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE, INTERVAL = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.random = random
        self.state = random.uniform(-0.05, 0.05, (count, 4))
        self.age = np.zeros(count, int)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Advance; return the states reached, where poles fell, and where time was over."""
        _, speed, angle, turn = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        mass = self.CART + self.POLE
        push = np.where(action == 1, self.FORCE, -self.FORCE)
        shared = (push + self.POLE * self.HALF_LENGTH * turn**2 * sine) / mass
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE * cosine**2 / mass)
        angular = (self.GRAVITY * sine - cosine * shared) / inertia
        linear = shared - self.POLE * self.HALF_LENGTH * angular * cosine / mass
        rates = np.stack([speed, linear, turn, angular], 1)
        reached = self.state + self.INTERVAL * rates
        self.age += 1
        fell = (np.abs(reached[:, 0]) > 2.4) | (np.abs(reached[:, 2]) > math.radians(12))
        over = ~fell & (self.age >= LONGEST)
        new = self.random.uniform(-0.05, 0.05, reached.shape)
        self.state = np.where((fell | over)[:, None], new, reached)
        self.age[fell | over] = 0
        return reached, fell, over


class ActorCritic(nn.Module):
    """Scores of both actions, and the return that is expected from a state."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, state: pb.Tensor) -> tuple[pb.Tensor, pb.Tensor]:
        """Return log-probabilities of the actions, and values."""
        return F.log_softmax(self.actor(state), -1), self.critic(state)[:, 0]

    @staticmethod
    def scale(state: np.ndarray) -> pb.Tensor:
        """Return states in units that make them about as large as 1."""
        return pb.from_numpy((state / [2.4, 2.0, 0.2, 2.0]).astype(np.float32))


class Rollout(NamedTuple):
    """Steps of all carts: tensors with as many rows, the first of shape (rows, 4)."""

    states: pb.Tensor
    actions: pb.Tensor
    log_probabilities: pb.Tensor
    advantages: pb.Tensor
    targets: pb.Tensor


@pb.no_grad()
def collect(model: ActorCritic, carts: CartPole, lengths: list[int]) -> Rollout:
    """Follow the policy; append the lengths of episodes that ended.

    Advantages are sums of temporal differences, discounted by DISCOUNT * TRACE a step (Schulman et
    al. 2016, eq. 16). Values are in units of 1 / (1 - DISCOUNT), the largest that is possible.
    """
    steps, deltas, going = [], [], []
    for _ in range(ROLLOUT):
        state, ages = model.scale(carts.state), carts.age + 1
        scores, value = model(state)
        action = pb.multinomial(scores.exp(), 1)
        reached, fell, over = carts.step(action[:, 0].numpy())
        lengths += ages[fell | over].tolist()
        # Time that is over is no failure: the state reached keeps its value.
        following = model(model.scale(reached))[1] * pb.from_numpy(~fell)
        steps.append((state, action, scores.gather(1, action)))
        deltas.append((1 - DISCOUNT) + DISCOUNT * following - value)
        going.append(pb.from_numpy(~(fell | over)))
    advantage = pb.zeros(CARTS)
    advantages = []
    for delta, goes_on in zip(reversed(deltas), reversed(going)):
        advantage = delta + DISCOUNT * TRACE * goes_on * advantage
        advantages.append(advantage)
    states, actions, log_probabilities = (pb.cat(parts) for parts in zip(*steps))
    result = pb.cat(advantages[::-1])
    targets = result + model(states)[1]
    return Rollout(states, actions, log_probabilities, result, targets)


def loss_of(model: ActorCritic, batch: Rollout) -> pb.Tensor:
    """Return the policy's clipped loss (Schulman et al. 2017, eq. 7) and the critic's error."""
    scores, values = model(batch.states)
    ratio = (scores.gather(1, batch.actions) - batch.log_probabilities).exp()[:, 0]
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-6)
    gain = pb.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    return F.mse_loss(values, batch.targets) - gain.mean()


def train(
    model: ActorCritic, steps: int, random: np.random.Generator, console: Console
) -> tuple[list[int], list[int]]:
    """Train; return the lengths of all episodes and the number of steps when each ended."""
    carts = CartPole(CARTS, random)
    optimizer = pb.optim.Adam(model.parameters(), lr=0.003)
    schedule = pb.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn())
    text = TextColumn("last 50 episodes: {task.fields[length]:.0f} steps")
    lengths: list[int] = []
    ends: list[int] = []
    with Progress(*columns, text, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, length=math.nan)
        for step in range(steps):
            rollout = collect(model, carts, lengths)
            ends += [(step + 1) * CARTS * ROLLOUT] * (len(lengths) - len(ends))
            for _ in range(PASSES):
                for rows in pb.randperm(len(rollout.states)).split(BATCH_SIZE):
                    loss = loss_of(model, Rollout(*(values[rows] for values in rollout)))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            schedule.step()
            mean = float(np.mean(lengths[-50:])) if lengths else math.nan
            progress.update(task, advance=1, length=mean)
    return lengths, ends


@pb.no_grad()
def evaluate(
    model: ActorCritic, episodes: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the returns of new episodes by the likelier action, and the path of each cart."""
    carts = CartPole(episodes, random)
    returns, alive, paths = np.zeros(episodes), np.ones(episodes, bool), []
    for _ in range(LONGEST):
        paths.append(np.where(alive[:, None], carts.state, np.nan))
        _, fell, _ = carts.step(model(model.scale(carts.state))[0].argmax(-1).numpy())
        returns += alive
        alive &= ~fell
    return returns, np.stack(paths)


def draw(path: Path, lengths: list[int], ends: list[int], paths: np.ndarray) -> None:
    """Write the returns during training and what the trained policy does, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    width = min(50, len(lengths))
    means = np.convolve(lengths, np.ones(width) / max(width, 1), "valid")
    axes[0].plot(np.array(ends) / 1000, lengths, ".", markersize=2, alpha=0.3, label="an episode")
    axes[0].plot(np.array(ends[width - 1 :]) / 1000, means, label=f"mean of {width}")
    axes[0].set(title="training", xlabel="thousand steps", ylabel="return", ylim=(0, 600))
    axes[0].legend(loc="upper left", ncols=2)
    seconds = CartPole.INTERVAL * np.arange(len(paths))
    names = ("place of the cart in m", "", "angle of the pole in degrees")
    for axis, column, limit, unit in ((axes[1], 0, 2.4, 1), (axes[2], 2, 12, 180 / math.pi)):
        axis.plot(seconds, unit * paths[:, :10, column], linewidth=1)
        axis.axhline(limit, color="0.6", linestyle="--")
        axis.axhline(-limit, color="0.6", linestyle="--")
        axis.set(title="ten new episodes", xlabel="time in s", ylabel=names[column])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Train, evaluate and return the exit code."""
    parser = argparse.ArgumentParser(description="Balance a pole.")
    parser.add_argument("--quick", action="store_true", help="few rollouts")
    parser.add_argument("--steps", type=int, help="number of rollouts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo-output/reinforcement_learning"))
    options = parser.parse_args()
    settings = QUICK if options.quick else FULL
    settings = settings._replace(steps=options.steps or settings.steps)

    console = Console()
    pb.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    model = ActorCritic()
    lengths, ends = train(model, settings.steps, random, console)
    returns, paths = evaluate(model, 100, random)
    draw(options.output / "balance.png", lengths, ends, paths)
    console.print(f"{len(lengths)} episodes in training; picture in {options.output}")
    console.print(f"worst of 100 new episodes {returns.min():.0f} steps")
    console.print(f"mean return {returns.mean():.1f} (required: at least {settings.required})")
    return 0 if returns.mean() >= settings.required else 1


if __name__ == "__main__":
    sys.exit(main())

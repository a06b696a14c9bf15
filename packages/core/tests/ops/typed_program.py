"""A training script with types, which test_stubs.py gives to mypy, and runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pullback as pb
from pullback import Tensor, nn, optim
from pullback.autograd import Function, grad
from pullback.autograd.function import FunctionCtx
from pullback.func import functional_call, hessian, jacrev, vmap
from pullback.func import grad as fgrad
from pullback.nn import functional as F
from pullback.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Exp(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * y


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)
        self.scale = nn.Parameter(pb.ones(1))
        self.register_buffer("count", pb.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.norm(self.first(x)))) * self.scale


class Squares(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = pb.full((3,), float(index))
        return x, (x * x).sum(0, keepdim=True)


def batches(data: Dataset[Any], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    loader: DataLoader[Any] = DataLoader(data, batch_size=size, shuffle=True)
    yield from loader


def train(model: nn.Module, epochs: int = 2) -> float:
    optimizer = optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    total = 0.0
    for _ in range(epochs):
        for x, y in batches(Squares(), 10):
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        scheduler.step()
    return total


def derivatives() -> Tensor:
    x = pb.linspace(0, 1, 5, requires_grad=True)
    y = Exp.apply(x)
    (g,) = grad(y.sum(), x, create_graph=True)
    values, indices = x.reshape(1, 5).max(dim=1)
    h = hessian(lambda v: (v**3).sum())(x)
    j = jacrev(lambda v: v.sin())(x)
    rows = vmap(fgrad(lambda v: v.sin()))(x)
    total: Tensor = h.sum() + j.sum() + rows
    return g + values + indices + total


model = Net()
lost = train(model)
pb.save(model.state_dict(), "model.pt")
model.load_state_dict(pb.load("model.pt"))
out = functional_call(model, dict(model.named_parameters()), (pb.ones(2, 3),))
numbers: list[float] = out.flatten().tolist()
size: int = out.size(0)
parts = random_split(TensorDataset(pb.ones(10, 2)), [8, 2])
assert derivatives().shape[0] == 5
assert (size, len(numbers), len(parts[0])) == (2, 2, 8)

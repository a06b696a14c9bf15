"""A pipeline of layers, one forward and one backward pass in turn ("1F1B").

``mpiexec -n 2 python -m benchmarks.ranks.pipeline`` trains 8 layers of width 1,024, of which each
rank has some, with a batch of 256 in 8 parts. The first rank prints JSON: the median seconds of a
step, and the bytes that go from one rank to the next for a part.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from typing import Any

import pullback
from benchmarks.ranks.training import WARM_UP, count_steps
from pullback import distributed, nn

LAYERS, WIDTH, BATCH, PARTS = 8, 1024, 256, 8


class Stage:
    """The layers of one rank."""

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        layers: list[Any] = []
        for _ in range(LAYERS // self.count):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.optimizer = pullback.optim.SGD(self.layers.parameters(), lr=1e-4)
        self.part = pullback.randn(BATCH // PARTS, WIDTH)
        self.waiting: deque[tuple[Any, pullback.Tensor]] = deque()
        self.sent: list[Any] = []

    def forward(self) -> None:
        """Take a part through the layers."""
        x = self.part
        if self.rank:
            x = pullback.empty_like(self.part)
            distributed.recv(x, self.rank - 1)
            x.requires_grad_()
        y = self.layers(x)
        if self.rank < self.count - 1:
            self.sent.append(distributed.isend(y.detach(), self.rank + 1))
        else:
            y = y.square().mean()
        self.waiting.append((x, y))

    def backward(self) -> None:
        """Take the gradient of the first part that waits through the layers."""
        x, y = self.waiting.popleft()
        if self.rank < self.count - 1:
            grad = pullback.empty_like(y)
            distributed.recv(grad, self.rank + 1)
            y.backward(grad)
        else:
            y.backward()
        if self.rank:
            self.sent.append(distributed.isend(x.grad, self.rank - 1))

    def step(self) -> None:
        """Run all parts, and the update."""
        self.optimizer.zero_grad()
        ahead = min(self.count - 1 - self.rank, PARTS)
        for _ in range(ahead):
            self.forward()
        for _ in range(PARTS - ahead):
            self.forward()
            self.backward()
        for _ in range(ahead):
            self.backward()
        for work in self.sent:
            work.wait()
        self.sent.clear()
        self.optimizer.step()


def main() -> None:
    """Train, and print the seconds of a step."""
    pullback.set_num_threads(1)
    distributed.init_process_group()
    stage = Stage()
    for _ in range(WARM_UP):
        stage.step()
    found = []
    for _ in range(count_steps(stage, distributed)):
        distributed.barrier()
        start = time.perf_counter()
        stage.step()
        distributed.barrier()
        found.append(time.perf_counter() - start)
    if stage.rank == 0:
        print(json.dumps({"seconds": statistics.median(found), "bytes": stage.part.nbytes}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

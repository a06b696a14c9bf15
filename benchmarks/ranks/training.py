"""Training steps: ``mpiexec -n 2 python -m benchmarks.ranks.training MODULE MODEL``.

MODULE is pullback or torch, and the text is the same for both: DistributedDataParallel around a
module, SGD, a batch for each process. ``--how alone`` leaves the wrapper out: the processes
compute beside each other, but do not speak. ``--how sharded`` divides the parameters instead
(pullback only). The first rank prints JSON, medians of all steps: seconds of a step and of its
parts, bytes of the parameters, and (pullback only) the most that tensors held during steps.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from typing import Any

WARM_UP = 5
ENOUGH = 2.0  # seconds of steps, but no fewer than
STEPS = 11


def mlp(nn: Any, width: int = 512) -> tuple[Any, tuple[int, ...]]:
    """MLP 784-512-512-10, batch 128."""
    layers = (nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(width, 10)), (128, 784)


def wide_mlp(nn: Any, width: int = 2944) -> tuple[Any, tuple[int, ...]]:
    """MLP of 20 M parameters: 784-2944-2944-2944-10, batch 128."""
    layers: list[Any] = []
    for before in (784, width, width):
        layers += [nn.Linear(before, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (128, 784)


def conv_net(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Conv net on 32 images of 28 x 28: 16 and 32 filters, two poolings, a linear layer."""
    layers = (
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )
    return nn.Sequential(*layers), (32, 1, 28, 28)


MODELS = {make.__name__: make for make in (mlp, wide_mlp, conv_net)}


class Trainer:
    """A model, wrapped as told, and its data."""

    def __init__(self, module: Any, model: str, how: str, optimizer: str = "SGD") -> None:
        module.manual_seed(0)
        net, shape = MODELS[model](module.nn)
        self.bytes = sum(p.numel() * p.element_size() for p in net.parameters())
        if how == "replicated":
            parallel = importlib.import_module(f"{module.__name__}.nn.parallel")
            net = parallel.DistributedDataParallel(net)
        elif how == "sharded":
            from pullback.distributed.fsdp import fully_shard

            for layer in net:
                if any(True for _ in layer.parameters()):
                    fully_shard(layer)
            net = fully_shard(net)
        self.net = net
        self.optimizer = getattr(module.optim, optimizer)(net.parameters(), lr=1e-4)
        self.images = module.randn(*shape)
        self.labels = module.randint(0, 10, (shape[0],))
        self.loss = module.nn.functional.cross_entropy

    def step(self) -> tuple[float, float, float]:
        """Run forward, backward and the update; return the seconds of each."""
        marks = [time.perf_counter()]
        self.optimizer.zero_grad()
        loss = self.loss(self.net(self.images), self.labels)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        self.optimizer.step()
        marks.append(time.perf_counter())
        return marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]


def count_steps(trainer: Any, distributed: Any) -> int:
    """Return how many steps take long enough, the same number on all ranks."""
    start = time.perf_counter()
    trainer.step()
    steps = max(STEPS, int(ENOUGH / (time.perf_counter() - start)))
    found = [steps]
    distributed.broadcast_object_list(found, 0)
    return found[0]


def seconds_of(trainer: Trainer, distributed: Any) -> dict[str, float]:
    """Return the median seconds of a step and of its parts; all ranks begin together."""
    for _ in range(WARM_UP):
        trainer.step()
    steps = count_steps(trainer, distributed)
    distributed.barrier()
    found = [trainer.step() for _ in range(steps)]
    parts = dict(zip(("forward", "backward", "update"), zip(*found, strict=True), strict=True))
    return {
        "seconds": statistics.median(sum(one) for one in found),
        **{name: statistics.median(values) for name, values in parts.items()},
    }


def main() -> None:
    """Train, and print the seconds of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=("pullback", "torch"))
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--how", choices=("replicated", "alone", "sharded"), default="replicated")
    parser.add_argument("--optimizer", choices=("SGD", "Adam"), default="SGD")
    options = parser.parse_args()
    module = importlib.import_module(options.module)
    distributed = importlib.import_module(f"{options.module}.distributed")
    module.set_num_threads(1)
    distributed.init_process_group("gloo")
    trainer = Trainer(module, options.model, options.how, options.optimizer)
    if module.__name__ == "pullback":
        module.reset_peak_memory_stats()
    found = {**seconds_of(trainer, distributed), "bytes": trainer.bytes}
    if module.__name__ == "pullback":
        found["peak"] = module.memory_stats()["allocated_bytes.all.peak"]
    if distributed.get_rank() == 0:
        print(json.dumps(found))
    del trainer  # torch's threads may end the process where it outlives the group
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

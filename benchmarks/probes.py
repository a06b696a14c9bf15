"""Figures measured in a separate process: ``python -m benchmarks.probes PROBE MODULE ...``.

``memory MODEL DIVISOR``: peak bytes of training steps, without the memory in use before.
``profiler``: microseconds of an operation without profiler, with one that is switched off, and with
one that records; null where there is none.
``accuracy``: the largest error of float32 functions, in units in the last place.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

from benchmarks.expressions import find_module
from benchmarks.worker import load_module
from benchmarks.workloads.registry import Size
from benchmarks.workloads.training import MODELS

STATUS = Path("/proc/self/status")
FUNCTIONS = {  # name: range, as the functions are used; the reference is NumPy's or SciPy's float64
    "exp": (-80, 80),
    "expm1": (-10, 10),
    "log": (1e-6, 1e6),
    "log1p": (-0.9, 1e3),
    "sin": (-100, 100),
    "cos": (-100, 100),
    "tan": (-1.5, 1.5),
    "tanh": (-9, 9),
    "sinh": (-9, 9),
    "atan": (-50, 50),
    "asinh": (-50, 50),
    "sqrt": (0, 1e6),
    "sigmoid": (-20, 20),
    "erf": (-4, 4),
}
OTHER_NAMES = {"sigmoid": "expit", "atan": "arctan", "asinh": "arcsinh"}
SAMPLES = 200_000
OPERATIONS = 20_000

# States of the profiler, by what they are called in figures.
PROFILES: dict[str, dict[str, bool]] = {
    "idle": {"enabled": False},
    "recording": {},
    "memory": {"profile_memory": True},
    "shapes": {"record_shapes": True},
    "stacks": {"with_stack": True},
}


def resident(field: str) -> int:
    """Return a field of the process's status in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


def peak_of_training(module: ModuleType, model: str, divisor: int) -> int:
    """Return how far memory rises above the parameters and the data in three steps."""
    module.ones(8, requires_grad=True).sum().backward()  # what is set up once is not counted
    step = MODELS[model](module, Size(divisor))
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what is held now
    before = resident("VmRSS")
    step(3)
    return resident("VmHWM") - before


def errors(module: ModuleType) -> dict[str, float]:
    """Return each function's largest error."""
    special = find_module("scipy.special")
    found = {}
    for name, (low, high) in FUNCTIONS.items():
        other = OTHER_NAMES.get(name, name)
        reference = getattr(np, other, None) or getattr(special, other, None)
        if reference is None:  # without SciPy
            continue
        x = np.random.default_rng(0).uniform(low, high, SAMPLES).astype(np.float32)
        exact = reference(x.astype(np.float64))
        ours = getattr(module, name)(module.from_numpy(x)).numpy().astype(np.float64)
        spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        found[name] = float(np.max(np.abs(ours - exact) / spacing))
    return found


def profiled(module: ModuleType) -> dict[str, float] | None:
    """Return what an operation costs beside the profiler's states."""
    x = module.ones(8)

    def operations() -> float:
        start = time.process_time()
        for _ in range(OPERATIONS):
            x * x
        return (time.process_time() - start) / OPERATIONS * 1e6

    found: dict[str, float] = {}
    for _ in range(5):
        seconds = {"none": operations()}
        for name, options in PROFILES.items():
            try:
                with module.autograd.profiler.profile(**options):
                    seconds[name] = operations()
            except ImportError:
                return None
        found = {name: min(value, found.get(name, value)) for name, value in seconds.items()}
    return found


def main() -> None:
    """Print the figures of the probe that the command line names."""
    probe, module = sys.argv[1], load_module(sys.argv[2])
    if probe == "memory":
        print(json.dumps(peak_of_training(module, sys.argv[3], int(sys.argv[4]))))
    else:
        print(json.dumps({"accuracy": errors, "profiler": profiled}[probe](module)))


if __name__ == "__main__":
    main()

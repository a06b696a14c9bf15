"""Figures measured in a separate process: ``python -m benchmarks.probes PROBE MODULE ...``.

``memory MODEL DIVISOR``: peak bytes of training steps, without the memory in use before.
``profiler``: microseconds of an operation without profiler, with one that is switched off, and with
one that records; null where there is none.
``watched``: microseconds of small training steps without anomaly detection, and with its checks of
a sample of nodes and of ops.
``accuracy``: the largest error of float32 functions, in units in the last place.
``chain NODES``: builds a chain of nodes, runs backward and frees it, on a thread with a stack of
1 MB, which code that recurses over the graph overflows: the CPU seconds of each phase and the
memory of a node.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import sys
import threading
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
STACK_BYTES = 1 << 20
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


def resident_bytes() -> int:
    """Return the memory that this process holds now; its peak where only that is known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def return_freed_memory() -> None:
    """Ask the C library to return its caches to the system, so that only a leak remains."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)


def run_chain(module, nodes: int) -> dict[str, float]:
    """Return seconds and bytes a node for building, backward and freeing."""
    x = module.ones(8, requires_grad=True)
    seed = module.ones(8)
    (x * x).backward(seed)
    x.grad = None
    gc.collect()
    before = resident_bytes()

    start = time.process_time()
    y = x
    for _ in range(nodes):
        y = y * x
    built = time.process_time()
    size = resident_bytes() - before
    y.backward(seed, retain_graph=True)
    ran = time.process_time()
    del y
    freed = time.process_time()
    if x.grad[0].item() != nodes + 1:  # d/dx of x**(nodes + 1) at 1
        raise ArithmeticError(f"gradient is {x.grad[0].item()}, expected {nodes + 1}")
    gc.collect()
    return_freed_memory()
    return {
        "build": (built - start) / nodes,
        "backward": (ran - built) / nodes,
        "free": (freed - ran) / nodes,
        "bytes": size / nodes,
        "kept": resident_bytes() - before,
    }


def on_small_stack(module: ModuleType, nodes: int) -> dict[str, float]:
    """Return the figures of a chain, run on a thread of its own.

    Raises: SystemExit where it fails there.
    """
    result: dict[str, float] = {}
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=lambda: result.update(run_chain(module, nodes)))
    thread.start()
    thread.join()
    if not result:
        sys.exit("the chain failed")
    return result


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


def watched(module: ModuleType) -> dict[str, float]:
    """Return what a step of four operations costs beside sampled anomaly detection."""
    module.set_num_threads(1)
    x = module.randn(4096, requires_grad=True)

    def steps(count: int = 1000) -> float:
        start = time.process_time()
        for _ in range(count):
            (x.exp() * x).tanh().sum().backward()
            x.grad = None
        return (time.process_time() - start) / count * 1e6

    found: dict[str, float] = {}
    for _ in range(20):
        seconds = {"none": steps()}
        for name, forward in (("gradients", False), ("results", True)):
            options = {"check_forward": forward, "sample": 0.01}
            with module.autograd.set_detect_anomaly(True, **options):
                seconds[name] = steps()
        found = {name: min(value, found.get(name, value)) for name, value in seconds.items()}
    return found


def main() -> None:
    """Print the figures of the probe that the command line names."""
    probe, module = sys.argv[1], load_module(sys.argv[2])
    if probe == "memory":
        print(json.dumps(peak_of_training(module, sys.argv[3], int(sys.argv[4]))))
    elif probe == "chain":
        print(json.dumps(on_small_stack(module, int(sys.argv[3]))))
    else:
        probes = {"accuracy": errors, "profiler": profiled, "watched": watched}
        print(json.dumps(probes[probe](module)))


if __name__ == "__main__":
    main()

"""Compiled functions beside eager ones: ``python -m benchmarks.compiled`` prints a table.

Each row is one workload, in microseconds, the best of interleaved rounds in one process: pullback
eager and compiled, and torch eager where it is installed. ``--only NAME`` measures
some rows, ``--threads N`` sets the threads of all.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import pullback as pb

ROUNDS = 7
SECONDS = 0.2  # of one measurement
Call = Callable[[], Any]


def best_times(calls: dict[str, Call], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the best seconds of each call, measured in turn."""
    best = dict.fromkeys(calls, float("inf"))
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(SECONDS / rounds / max(time.perf_counter() - start, 1e-7)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / counts[name])
    return best


# ---- workloads: of a module with torch's names, a call; `wrap` compiles a function ---------------


def chain(module: Any, wrap: Any, dtype: str = "float32", size: int = 1 << 23) -> Call:
    """tanh(x) * y + exp(-x * x) on 8 M elements."""
    x = module.randn(size, dtype=getattr(module, dtype))
    y = module.randn(size, dtype=getattr(module, dtype))
    function = wrap(lambda x, y: module.tanh(x) * y + module.exp(-x * x))
    return lambda: function(x, y)


def chain_float64(module: Any, wrap: Any) -> Call:
    """The same in float64."""
    return chain(module, wrap, "float64")


def multiply_add(module: Any, wrap: Any) -> Call:
    """Forward and backward of x * y + x on 16 M elements."""
    x, y = module.randn(1 << 24), module.randn(1 << 24)
    seed = module.ones(1 << 24)

    def both(x: Any, y: Any, seed: Any) -> Any:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        return module.autograd.grad(x * y + x, (x, y), seed)

    function = wrap(both)
    return lambda: function(x, y, seed)


def norm_gelu(module: Any, wrap: Any) -> Call:
    """Forward and backward of dropout(gelu(layer_norm(x + residual))) on 4096 x 1024."""
    x, residual = module.randn(4096, 1024), module.randn(4096, 1024)
    functional = importlib.import_module(f"{module.__name__}.nn.functional")

    def both(x: Any, residual: Any) -> Any:
        x = x.detach().requires_grad_()
        y = functional.layer_norm(x + residual, (1024,))
        y = functional.dropout(functional.gelu(y), 0.1)
        return module.autograd.grad(y.sum(), x)

    function = wrap(both)
    return lambda: function(x, residual)


def small_step(module: Any, wrap: Any) -> Call:
    """A step of training of an MLP 2-16-16-1 on 4 samples, with SGD."""
    nn = module.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = module.optim.SGD(net.parameters(), lr=0.01)
    x, y = module.randn(4, 2), module.randn(4, 1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = wrap(step)
    return lambda: function(x, y)


def long_chain(module: Any, wrap: Any) -> Call:
    """Forward and backward of 1,000 products of 8 elements."""
    x = module.full((8,), 1.0001)

    def both(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = x
        for _ in range(1000):
            y = y * x
        return module.autograd.grad(y.sum(), x)

    function = wrap(both)
    return lambda: function(x)


def fixed(module: Any, wrap: Any) -> Call:
    """One addition of 8 elements: the fixed cost of a call."""
    x = module.ones(8)
    function = wrap(lambda x: x + 1)
    return lambda: function(x)


def hessian(module: Any, wrap: Any) -> Call:
    """The hessian of a function of 64 variables."""
    functions = importlib.import_module(f"{module.__name__}.func")
    x, weight = module.randn(64), module.randn(64, 64)
    function = wrap(functions.hessian(lambda x: module.tanh(weight @ x).pow(2).sum()))
    return lambda: function(x)


WORKLOADS = {
    "fixed": fixed,
    "small step": small_step,
    "long chain": long_chain,
    "hessian": hessian,
    "chain": chain,
    "chain float64": chain_float64,
    "multiply add": multiply_add,
    "norm gelu": norm_gelu,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    pb.set_num_threads(given.threads)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    print(f"{'workload':16}{'eager':>12}{'compiled':>12}{'torch':>12}   us; compiled / eager")
    for name in given.only or WORKLOADS:
        build = WORKLOADS[name]
        calls = {"eager": build(pb, lambda f: f), "compiled": build(pb, pb.compile)}
        if torch is not None:
            torch.set_num_threads(given.threads)
            calls["torch"] = build(torch, lambda f: f)
        found = best_times(calls)
        shown = [
            f"{found[key] * 1e6:12.2f}" if key in found else " " * 12
            for key in ("eager", "compiled", "torch")
        ]
        print(f"{name:16}{''.join(shown)}   {found['compiled'] / found['eager']:.2f}", flush=True)


if __name__ == "__main__":
    main()

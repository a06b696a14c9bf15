"""Measure the CUDA backend beside torch and CuPy on the same device, in one process.

python -m benchmarks.gpu                     # a table; needs a CUDA device
python -m benchmarks.gpu --json results.json # the figures too
python -m benchmarks.gpu --quick             # small operands: shows that it runs

A row is run in rounds, one library after the other; its figure is the best of all rounds. Device
time is the wall time of many calls up to a synchronisation, host time that of giving the work to
the device without waiting for it. Libraries that are not installed, or see no device, are left out.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = ("pullback", "torch", "cupy")
ROUNDS = 5
LONG_ENOUGH = 0.05  # seconds of one measurement
MIB = 2**20
QUICK_DIVISOR = 256  # of the operands' elements
COPY = "elementwise/copy"  # the row that gives the bandwidth
BANDWIDTH = 0.85  # of it, for what moves memory
NOISE = 1.02  # by which an aim may be missed


class Row(NamedTuple):
    """One workload: what makes its operands, what is timed, and the bytes or operations of it.

    ``make`` gets a library and a size factor, and returns a function without arguments; None where
    the library cannot do it. ``work`` is bytes moved (``unit`` "GB/s"), operations ("TFLOP/s"), or
    calls of ops ("us/op", where less is better). ``aim`` is the most time, torch's being 1;
    ``bandwidth`` the least part of the copy's bandwidth.
    """

    name: str
    make: Callable[[Library, float], Callable[[], Any] | None]
    work: Callable[[float], float]
    unit: str
    aim: float = 1.0
    bandwidth: float = 0.0


class Library:
    """torch, pullback or CuPy, with the few names that they do not share."""

    def __init__(self, name: str):
        self.name = name
        self.module = importlib.import_module(name)
        self.is_cupy = name == "cupy"
        if not self.is_available():
            raise ImportError(f"{name} sees no CUDA device")

    def is_available(self) -> bool:
        if self.is_cupy:
            return self.module.cuda.runtime.getDeviceCount() > 0
        return self.module.cuda.is_available()

    def synchronize(self) -> None:
        if self.is_cupy:
            self.module.cuda.Device().synchronize()
        else:
            self.module.cuda.synchronize()

    def random(self, *shape: int, dtype: str = "float32", grad: bool = False):
        """Return numbers between 0 and 1."""
        if self.is_cupy:
            return self.module.random.rand(*shape).astype(dtype)
        made = self.module.rand(*shape, device="cuda").to(getattr(self.module, dtype))
        return made.requires_grad_() if grad else made

    def free(self) -> None:
        gc.collect()
        if self.is_cupy:
            self.module.get_default_memory_pool().free_all_blocks()
        else:
            self.module.cuda.empty_cache()

    def version(self) -> str:
        return self.module.__version__


# ---- workloads -----------------------------------------------------------------------------------


def scaled(count: float, factor: float) -> int:
    """Return a number of elements, smaller in quick runs."""
    return max(64, int(count * factor))


def elementwise(
    name: str,
    megabytes_per_element: int,
    expression: Callable,
    dtype: str = "float32",
    operands: int = 1,
) -> Row:
    """Return a row of an expression over vectors of 64 Mi elements."""
    size = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}[dtype]
    count = 64 * MIB

    def make(lib: Library, factor: float):
        if lib.is_cupy and dtype == "bfloat16":
            return None
        values = [lib.random(scaled(count, factor), dtype=dtype) for _ in range(operands)]
        return lambda: expression(lib.module, *values)

    return Row(
        f"elementwise/{name}",
        make,
        lambda f: megabytes_per_element * size * scaled(count, f),
        "GB/s",
        bandwidth=BANDWIDTH,
    )


def matrix(
    name: str,
    rows: int,
    columns: int,
    passes: float,
    expression: Callable,
    cupy: Callable | None = None,
) -> Row:
    """Return a row of an expression over a float32 matrix, which is read ``passes`` times."""

    def make(lib: Library, factor: float):
        shape = (max(2, int(rows * math.sqrt(factor))), max(2, int(columns * math.sqrt(factor))))
        x = lib.random(*shape)
        if lib.is_cupy:
            return None if cupy is None else lambda: cupy(lib.module, x)
        return lambda: expression(lib.module, x)

    bandwidth = 0.0 if name.startswith("rows/") else BANDWIDTH
    return Row(name, make, lambda f: passes * 4 * rows * columns * f, "GB/s", bandwidth=bandwidth)


def product(name: str, batch: int, size: int, dtype: str) -> Row:
    """Return a row of products of square matrices."""

    def make(lib: Library, factor: float):
        if lib.is_cupy and dtype == "bfloat16":
            return None
        n = max(16, int(size * factor ** (1 / 3)))
        shape = (n, n) if batch == 1 else (batch, n, n)
        x, y = lib.random(*shape, dtype=dtype), lib.random(*shape, dtype=dtype)
        return lambda: x @ y

    return Row(f"matmul/{name}", make, lambda f: 2.0 * batch * size**3 * f, "TFLOP/s")


def chain(name: str, grad: bool, backward: bool) -> Row:
    """Return a row of small ops one after the other: what counts is the host's time for each."""
    length = 50

    def make(lib: Library, factor: float):
        if lib.is_cupy and grad:
            return None
        x, y = lib.random(64, grad=grad), lib.random(64)

        def run():
            value = x
            for _ in range(length):
                value = value * y + y
            if backward:
                value.sum().backward()
                x.grad = None

        return run

    ops = 2 * length * (2 if backward else 1)
    return Row(f"chains/{name}", make, lambda f: ops, "us/op", aim=0.5)


def layer_norm_step(lib: Library, factor: float):
    """Forward and backward of a layer norm over 16,384 rows of 1,024."""
    if lib.is_cupy:
        return None
    x = lib.random(max(2, int(16384 * factor)), 1024, grad=True)
    w, b = lib.random(1024, grad=True), lib.random(1024, grad=True)
    g = lib.random(*x.shape)

    def run():
        lib.module.nn.functional.layer_norm(x, (1024,), w, b).backward(g)
        x.grad = w.grad = b.grad = None

    return run


def mlp_step(lib: Library, factor: float):
    """One step of gradient descent of a 784-512-512-10 network on 256 samples."""
    if lib.is_cupy:
        return None
    torch = lib.module
    sizes = (784, 512, 512, 10)
    weights = [(lib.random(m, n) / 30).requires_grad_() for n, m in itertools.pairwise(sizes)]
    biases = [lib.random(m, grad=True) for m in sizes[1:]]
    x, target = lib.random(256, 784), torch.arange(256, device="cuda") % 10

    def run():
        value = x
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            value = torch.nn.functional.linear(value, weight, bias)
            value = torch.relu(value) if i < 2 else value
        torch.nn.functional.cross_entropy(value, target).backward()
        with torch.no_grad():
            for parameter in (*weights, *biases):
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None

    return run


def transformer_step(lib: Library, factor: float):
    """One step of a transformer block: 32 sequences of 128, width 512, 8 heads."""
    if lib.is_cupy:
        return None
    torch, functional = lib.module, lib.module.nn.functional
    width, heads = 512, 8
    batch, length = max(1, int(32 * factor)), 128
    x = lib.random(batch, length, width)
    shapes = {
        "qkv": (3 * width, width),
        "out": (width, width),
        "up": (4 * width, width),
        "down": (width, 4 * width),
    }
    weights = {name: (lib.random(*shape) / 40).requires_grad_() for name, shape in shapes.items()}
    norms = [lib.random(width, grad=True) for _ in range(4)]

    def run():
        h = functional.layer_norm(x, (width,), norms[0], norms[1])
        q, k, v = (
            functional.linear(h, weights["qkv"])
            .view(batch, length, 3, heads, width // heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        scores = (q @ k.transpose(-1, -2)) * (width // heads) ** -0.5
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        y = x + functional.linear(mixed, weights["out"])
        h = functional.layer_norm(y, (width,), norms[2], norms[3])
        y = y + functional.linear(
            functional.gelu(functional.linear(h, weights["up"])), weights["down"]
        )
        (y * y).mean().backward()
        with torch.no_grad():
            for parameter in (*weights.values(), *norms):
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None

    return run


ROWS = [
    elementwise("copy", 2, lambda t, x: x.clone() if hasattr(x, "clone") else x.copy()),
    elementwise("add", 3, lambda t, x, y: x + y, operands=2),
    elementwise("mul scalar", 2, lambda t, x: x * 2.5),
    elementwise("exp", 2, lambda t, x: t.exp(x)),
    elementwise("tanh", 2, lambda t, x: t.tanh(x)),
    elementwise("add bfloat16", 3, lambda t, x, y: x + y, "bfloat16", 2),
    elementwise("add float16", 3, lambda t, x, y: x + y, "float16", 2),
    elementwise("add float64", 3, lambda t, x, y: x + y, "float64", 2),
    matrix("elementwise/bias", 8192, 8192, 2, lambda t, x: x + x[0], cupy=lambda t, x: x + x[0]),
    matrix(
        "elementwise/transposed copy",
        8192,
        8192,
        2,
        lambda t, x: x.t().contiguous(),
        cupy=lambda t, x: x.T.copy(),
    ),
    matrix("reductions/sum", 8192, 8192, 1, lambda t, x: x.sum(), cupy=lambda t, x: x.sum()),
    matrix("reductions/sum(0)", 8192, 8192, 1, lambda t, x: x.sum(0), cupy=lambda t, x: x.sum(0)),
    matrix("reductions/sum(1)", 8192, 8192, 1, lambda t, x: x.sum(1), cupy=lambda t, x: x.sum(1)),
    matrix("reductions/amax(1)", 8192, 8192, 1, lambda t, x: x.amax(1), cupy=lambda t, x: x.max(1)),
    matrix(
        "reductions/argmax(1)",
        8192,
        8192,
        1,
        lambda t, x: x.argmax(1),
        cupy=lambda t, x: x.argmax(1),
    ),
    matrix("reductions/var(1)", 8192, 8192, 1, lambda t, x: x.var(1), cupy=lambda t, x: x.var(1)),
    matrix("rows/softmax 1024", 65536, 1024, 2, lambda t, x: t.softmax(x, 1)),
    matrix("rows/log_softmax 32768", 2048, 32768, 2, lambda t, x: t.log_softmax(x, 1)),
    matrix(
        "rows/cumsum", 8192, 8192, 2, lambda t, x: t.cumsum(x, 1), cupy=lambda t, x: t.cumsum(x, 1)
    ),
    matrix("rows/sort 1024", 16384, 1024, 5, lambda t, x: t.sort(x, 1)),
    matrix("rows/topk 8 of 8192", 4096, 8192, 1, lambda t, x: t.topk(x, 8, 1)),
    Row("rows/layer_norm step", layer_norm_step, lambda f: 5 * 4 * 16384 * 1024 * f, "GB/s"),
    product("1024 float32", 1, 1024, "float32"),
    product("4096 float32", 1, 4096, "float32"),
    product("4096 float64", 1, 4096, "float64"),
    product("8192 bfloat16", 1, 8192, "bfloat16"),
    product("8192 float16", 1, 8192, "float16"),
    product("64 x 512 float32", 64, 512, "float32"),
    chain("forward", False, False),
    chain("recorded", True, False),
    chain("forward and backward", True, True),
    Row("training/mlp", mlp_step, lambda f: 1, "us/op"),
    Row("training/transformer", transformer_step, lambda f: 1, "us/op"),
]


# ---- measuring -----------------------------------------------------------------------------------


def time_once(library: Library, run: Callable[[], Any], calls: int, wait: bool) -> float:
    """Return the seconds of one call among several."""
    library.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    given = time.perf_counter()
    library.synchronize()
    return ((time.perf_counter() if wait else given) - start) / calls


def measure(row: Row, libraries: list[Library], factor: float, rounds: int) -> dict[str, float]:
    """Return each library's best seconds for one call of a row."""
    best: dict[str, float] = {}
    runs = {}
    wait = not row.name.startswith("chains/")
    for library in libraries:
        run = row.make(library, factor)
        if run is None:
            continue
        for _ in range(3):
            run()
        seconds = time_once(library, run, 1, True)
        # The queue of a device is not endless: a host that fills it waits.
        most = 10_000 if wait else 8
        runs[library.name] = (library, run, max(1, min(most, int(LONG_ENOUGH / seconds))))
    for _ in range(rounds):
        for name, (library, run, calls) in runs.items():
            seconds = time_once(library, run, calls, wait)
            best[name] = min(best.get(name, math.inf), seconds)
    for library, _, _ in runs.values():
        library.free()
    return best


def figure(row: Row, seconds: float, factor: float) -> float:
    """Return what a row shows for a time."""
    work = row.work(factor)
    if row.unit == "us/op":
        return seconds * 1e6 / work
    return work / seconds / (1e12 if row.unit == "TFLOP/s" else 1e9)


def find_libraries() -> list[Library]:
    """Return the libraries that see a device; ours must be among them."""
    found = []
    for name in LIBRARIES:
        try:
            found.append(Library(name))
        except Exception as error:  # not installed, or broken in its own way
            if name == "pullback":
                raise
            print(f"without {name}: {error}", file=sys.stderr)
    return found


def bandwidths(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return what part of the fastest library's copy each row of ours that moves memory reaches."""
    rows = {row.name: row for row in ROWS}
    if COPY not in results:
        return {}
    most = max(
        figure(rows[COPY], seconds, results[COPY]["factor"])
        for name, seconds in results[COPY].items()
        if name != "factor"
    )
    return {
        name: figure(rows[name], seconds["pullback"], seconds["factor"]) / most
        for name, seconds in results.items()
        if rows[name].unit == "GB/s"
    }


def verdict(row: Row, ratio: float | None, part: float | None) -> str:
    """Tell whether a row reaches its aims, as far as they can be known."""
    if ratio is not None and ratio > row.aim * NOISE:
        return "no"
    if part is not None and part * NOISE < row.bandwidth:
        return "no"
    return "" if ratio is None else "yes"


def table(results: dict[str, dict[str, float]], names: list[str]) -> str:
    """Return the figures as a table in Markdown.

    Its last columns: what part of the copy's bandwidth ours has, our time over torch's, the aims
    for both, and whether they are reached.
    """
    lines = [
        f"| row | {' | '.join(names)} | unit | of the copy | time, torch = 1 | aim | reached |",
        f"| --- | {'---: | ' * len(names)}--- | ---: | ---: | --- | --- |",
    ]
    parts = bandwidths(results)
    for row in ROWS:
        seconds = results.get(row.name)
        if seconds is None:
            continue
        shown = [
            f"{figure(row, seconds[name], seconds['factor']):.4g}" if name in seconds else ""
            for name in names
        ]
        part = parts.get(row.name)
        ratio = seconds["pullback"] / seconds["torch"] if "torch" in seconds else None
        aim = f"{row.aim:g}" + (f", {row.bandwidth:.0%} of the copy" if row.bandwidth else "")
        lines.append(
            f"| {row.name} | {' | '.join(shown)} | {row.unit} | "
            f"{'' if part is None else f'{part:.0%}'} | {'' if ratio is None else f'{ratio:.2f}'} "
            f"| {aim} | {verdict(row, ratio, part)} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure the CUDA backend beside torch and CuPy.")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of rows' names")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="small operands: shows that it runs")
    parser.add_argument("--json", type=Path, help="where the seconds go")
    options = parser.parse_args(arguments)
    libraries = find_libraries()
    factor = 1 / QUICK_DIVISOR**2 if options.quick else 1.0
    results = {}
    for row in ROWS:
        if row.name.startswith(tuple(options.only)):
            best = measure(row, libraries, factor, 1 if options.quick else options.rounds)
            results[row.name] = {**best, "factor": factor}
            print(
                row.name,
                *(f"{name} {value * 1e6:.1f} us" for name, value in best.items()),
                file=sys.stderr,
                flush=True,
            )
    names = [library.name for library in libraries]
    versions = {library.name: library.version() for library in libraries}
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "seconds": results}, indent=1))
    print(table(results, names))


if __name__ == "__main__":
    main()

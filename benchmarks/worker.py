"""One measuring process: ``python -m benchmarks.worker MODULE [THREADS [DIVISOR]]``.

Reads one request a line, ``{"workload": key, "units": n}``, and answers with the seconds that one
unit took, or with the error. With one thread they are process CPU seconds, with more the wall's.
It lives through the whole run, so warm-up is paid once. Without ``units`` it repeats a row
until that has taken a while, and answers with the best repetition; the first time, it finds out
how often a row has to run for the clock to be exact.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.expressions import Expressions
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.registry import Size

SHORTEST = 1e-3  # what is timed takes at least this long, so the clock's own cost is lost in it
ENOUGH = 10e-3  # a row is repeated until it has taken this long in a round


def load_module(name: str, threads: int = 1) -> ModuleType:
    """Import the module to measure and keep it to a number of threads."""
    module = importlib.import_module(name)
    if hasattr(module, "set_num_threads"):
        module.set_num_threads(threads)
    return module


class Bench:
    """Measures rows on one module."""

    def __init__(self, module: ModuleType, threads: int = 1, divisor: int = 1) -> None:
        self.module = module
        self.size = Size(divisor)
        self.shortest, self.enough = SHORTEST, ENOUGH
        if divisor > 1:  # a quick run: its figures do not count
            self.shortest, self.enough = SHORTEST / 10, 0.0
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.expressions = Expressions(module, self.size)
        self.units: dict[str, int] = {}

    def timer(self, key: str) -> tuple[Callable[[int], float], dict[str, float]]:
        """Return what gives the seconds of n units of a row, and the row's bytes and flops."""
        row = WORKLOADS[key]
        work: dict[str, float] = {}
        build = row.prepare
        if build is None:
            calls, work = self.expressions.calls_of(row)

            def prepare(n: int) -> Callable[[], Any]:
                return lambda: calls(n)
        else:
            sized = {"size": self.size} if row.scaled else {}

            def prepare(n: int) -> Callable[[], Any]:
                return build(self.module, n, **sized)

        def run(n: int) -> float:
            timed = prepare(n)
            if row.units is not None:
                gc.collect()  # what came before is not this row's work; the collector stays on
            start = self.clock()
            result = timed()
            seconds = self.clock() - start
            del result
            return seconds

        return run, work

    def measure(self, key: str, units: int | None) -> dict[str, float]:
        """Return the seconds of one unit of a row, its bytes and its flops."""
        run, work = self.timer(key)
        if units is not None:
            return {"seconds": run(units) / units, **work}
        units = self.units.get(key)
        if units is None:
            run(1)  # what is done once only is not counted
            units, best = 1, run(1)
            while best < self.shortest:
                units *= 4
                best = run(units)
            self.units[key] = units
            return {"seconds": best / units, **work}
        seconds = [run(units)]
        while sum(seconds) < self.enough:
            seconds.append(run(units))
        return {"seconds": min(seconds) / units, **work}


def answer(bench: Bench, request: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a request, or what went wrong."""
    try:
        return bench.measure(request["workload"], request["units"])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Announce the module's version, then answer requests until the input ends."""
    threads, divisor = (int(text) for text in [*sys.argv[2:], "1", "1"][:2])
    bench = Bench(load_module(sys.argv[1], threads), threads, divisor)
    print(json.dumps({"version": bench.module.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(bench, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

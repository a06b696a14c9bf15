"""What the machine can do: the speed of memory, and of matrix products in the best library.

    python -m benchmarks.floors bandwidth THREADS DIVISOR
    python -m benchmarks.floors gemm MODULE THREADS DIVISOR

prints JSON. Bandwidth is that of STREAM's four loops, compiled where there is a C compiler and by
NumPy's functions as well; the faster counts. Bytes are counted as STREAM counts them: what is read
and what is written, not what a cache fetches before it is overwritten.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.worker import load_module

ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}  # that a loop reads or writes
NEAR = 4_000_000  # elements of the rows called large
FAR = 64_000_000  # 256 MB an array: what no cache holds
EDGE = 2048
TRIALS = 7

Loop = Callable[..., None]  # takes a, b, c, n and times


def compiled_loops() -> dict[str, Loop]:
    """Return the loops of stream.c, or nothing without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return {}
    source = Path(__file__).parent / "workloads" / "stream.c"
    flags = ("-O3", "-march=native", "-shared", "-fPIC")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "stream.so"
        command = [compiler, *flags, str(source), "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return {}
        library = ctypes.CDLL(str(target))

    def loop(name: str) -> Loop:
        function = library[f"stream_{name}"]
        function.restype = None

        def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, times: int) -> None:
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c)]
            function(*pointers, ctypes.c_size_t(a.size), times)

        return run

    return {name: loop(name) for name in ARRAYS}


def numpy_loops() -> dict[str, Loop]:
    """Return NumPy's functions for the loops; it has none that is a triad."""

    def repeated(once: Callable[..., object]) -> Loop:
        def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, times: int) -> None:
            for _ in range(times):
                once(a, b, c)

        return run

    return {
        "copy": repeated(lambda a, b, c: np.copyto(a, b)),
        "scale": repeated(lambda a, b, c: np.multiply(b, np.float32(3), out=a)),
        "add": repeated(lambda a, b, c: np.add(b, c, out=a)),
    }


def seconds_of(loop: Loop, arrays: list[np.ndarray], threads: int, times: int) -> float:
    """Return the seconds of one pass, by the clock that the rows are measured with."""
    clock = time.process_time if threads == 1 else time.perf_counter
    chunks = list(zip(*(np.array_split(array, threads) for array in arrays)))
    best = float("inf")
    for _ in range(TRIALS):
        others = [threading.Thread(target=loop, args=(*chunk, times)) for chunk in chunks[1:]]
        start = clock()
        for thread in others:
            thread.start()
        loop(*chunks[0], times)
        for thread in others:
            thread.join()
        best = min(best, (clock() - start) / times)
    return best


def bandwidth(threads: int, divisor: int) -> dict[str, dict[str, float]]:
    """Return bytes a second of each loop, near (the rows' size) and far (beyond any cache)."""
    found: dict[str, dict[str, float]] = {}
    for where, elements, times in (("near", NEAR // divisor, 5), ("far", FAR // divisor, 1)):
        arrays = [np.full(elements, value, np.float32) for value in (1, 2, 3)]
        rates = found.setdefault(where, {})
        for loops in (compiled_loops(), numpy_loops()):
            for name, loop in loops.items():
                size = ARRAYS[name] * arrays[0].nbytes
                rate = size / seconds_of(loop, arrays, threads, times)
                rates[name] = max(rates.get(name, 0.0), rate)
    return found


def product_rate(module_name: str, threads: int, divisor: int) -> float:
    """Return the operations a second of a module's float32 matrix product."""
    module = load_module(module_name, threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    edge = EDGE // divisor
    if module_name == "numpy":
        a = np.random.default_rng(0).standard_normal((edge, edge), np.float32)
    else:
        a = module.randn(edge, edge)
    best = float("inf")
    for _ in range(TRIALS):
        start = clock()
        a @ a
        best = min(best, clock() - start)
    return 2 * edge**3 / best


def main() -> None:
    """Measure what the command line names."""
    if sys.argv[1] == "bandwidth":
        print(json.dumps(bandwidth(int(sys.argv[2]), int(sys.argv[3]))))
    else:
        print(json.dumps(product_rate(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))


if __name__ == "__main__":
    main()

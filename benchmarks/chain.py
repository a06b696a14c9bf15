"""A chain of many nodes in a separate process: ``python -m benchmarks.chain MODULE NODES``.

Builds it, runs backward and frees it, on a thread with a stack of 1 MB: code that recurses over
the graph overflows it. Prints the CPU seconds of each phase and the memory of a node.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time

from benchmarks.worker import load_module

STACK_BYTES = 1 << 20


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


def main() -> None:
    """Run on a thread with a small stack and print the figures."""
    module, nodes = load_module(sys.argv[1]), int(sys.argv[2])
    result = {}
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=lambda: result.update(run_chain(module, nodes)))
    thread.start()
    thread.join()
    if not result:
        sys.exit("the chain failed")
    print(json.dumps(result))


if __name__ == "__main__":
    main()

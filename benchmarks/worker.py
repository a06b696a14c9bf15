"""One measuring process: ``python -m benchmarks.worker MODULE``.

Reads one request a line, ``{"workload": name, "units": n}``, and answers with the process CPU
seconds that one unit took. It lives through the whole run, so warm-up is paid once.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from types import ModuleType

from benchmarks.workloads import WORKLOADS


def load_module(name: str) -> ModuleType:
    """Import the module to measure and keep it to one thread."""
    module = importlib.import_module(name)
    if hasattr(module, "set_num_threads"):
        module.set_num_threads(1)
    return module


def measure(module: ModuleType, name: str, units: int) -> float:
    """Return the process CPU seconds of one unit of a workload."""
    timed = WORKLOADS[name].prepare(module, units)
    gc.collect()  # what came before is not this row's work; the collector stays on
    start = time.process_time()
    result = timed()
    seconds = time.process_time() - start
    del result
    return seconds / units


def main() -> None:
    """Announce the module's version, then answer requests until the input ends."""
    module = load_module(sys.argv[1])
    print(json.dumps({"version": module.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seconds = measure(module, request["workload"], request["units"])
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()

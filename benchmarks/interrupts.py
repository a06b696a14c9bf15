"""How long Ctrl-C takes: ``python -m benchmarks.interrupts`` prints a table of kernels.

Each call is made long enough, as far as memory allows, and a signal interrupts it. The latency is
the longest of a few runs, from the signal until KeyboardInterrupt has been raised.
"""

from __future__ import annotations

import argparse
import gc

from pullback.testing.interrupts import CALLS, interrupt

LONGEST = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CALLS), help="of the calls; all")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a call (%(default)s)")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB (%(default)s)")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    late = 0
    print("| call | seconds | longest latency, ms |\n| --- | --- | --- |")
    for name in given.names:
        latency, took = 0.0, 0.0
        for _ in range(given.runs):
            found = interrupt(name, seconds=given.seconds, memory=int(given.memory * 2**30))
            gc.collect()
            if found.ended:
                latency = max(latency, found.latency)
            took = max(took, found.left * 8 / 7)
        late += latency > LONGEST
        print(f"| {name} | {took:.1f} | {1000 * latency:.0f} |", flush=True)
    return late


if __name__ == "__main__":
    raise SystemExit(main())

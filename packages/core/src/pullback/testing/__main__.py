"""Check every op of the table on a device and print what was checked.

    python -m pullback.testing                        # all checks
    python -m pullback.testing --gradcheck            # first and second derivatives only
    python -m pullback.testing --check value out --op add mul --device cpu
"""

from __future__ import annotations

import argparse
import sys
import time

import pullback as pb
from pullback.optable import ENTRIES
from pullback.testing.runner import CHECKS, Totals, run_check

GRADIENTS = ("grad", "gradgrad")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m pullback.testing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", nargs="+", choices=list(CHECKS), metavar="NAME",
                        help=f"some of: {', '.join(CHECKS)}")  # fmt: skip
    parser.add_argument("--gradcheck", action="store_true", help="derivatives only")
    parser.add_argument("--op", nargs="+", metavar="NAME", help="only these ops")
    parser.add_argument("--device", help="where to run; the default device otherwise")
    given = parser.parse_args(arguments)
    if given.device:
        pb.set_default_device(given.device)
    unknown = sorted(set(given.op or ()) - set(ENTRIES))
    if unknown:
        parser.error(f"the op table has no entry {unknown[0]!r}")
    entries = [ENTRIES[name] for name in given.op or ENTRIES]
    names = given.check or (GRADIENTS if given.gradcheck else list(CHECKS))
    print(f"device {pb.get_default_device()}, {len(entries)} ops in the table")
    return 1 if sum(report(name, entries) for name in names) else 0


def report(name: str, entries: list) -> int:
    """Run one check, print its totals and failures, and return how many there are."""
    start = time.perf_counter()
    totals = Totals()
    for entry in entries:
        totals.add(run_check(name, entry))
    print(f"{name:>12}: {totals} in {time.perf_counter() - start:.1f} s")
    for failure in totals.failures:
        print("  " + failure.replace("\n", "\n    "))
    return len(totals.failures)


if __name__ == "__main__":
    sys.exit(main())

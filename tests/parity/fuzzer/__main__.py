"""Runs random programs on torch and on Pullback and reports where they differ.

    PYTHONPATH=tests/parity python -m fuzzer --seed 0 --count 5000

A program that differs is shown with its seed; ``python -m fuzzer.shrink SEED`` makes it short.
Exit status: 1 when programs differ or kill the interpreter.
"""

from __future__ import annotations

import argparse
import sys

from .runner import run_chunks


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--count", type=int, default=5000, help="how many programs")
    parser.add_argument("--chunk", type=int, default=500, help="programs of one inner process")
    parser.add_argument("--group", action="append", default=[], help="also draw from this group")
    parser.add_argument("--show", type=int, default=40, help="kinds of differences to print")
    options = parser.parse_args()
    report = run_chunks(options.seed, options.count, options.chunk, options.group)
    print(report.text(options.show))
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())

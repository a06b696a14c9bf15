"""The inner process: runs programs on both modules and writes one JSON line for what it finds."""

from __future__ import annotations

import argparse
import json
import sys

import torch

import pullback

from .compare import compare
from .draft import write_program
from .meant import accepted
from .proofs import proved, reset, run_program


def first_of_both(statements, observed):
    """Run a program on both modules; return the first difference, or None."""
    torch_trace = run_program(torch, statements, observed)
    return compare(statements, torch_trace, run_program(pullback, statements, observed))


def say(**line):
    print(json.dumps(line), flush=True)


def run_seed(seed, groups):
    """Write and run one program, and say what came of it."""
    say(begin=seed, on="torch")
    draft = write_program(torch, seed, groups)
    statements, observed = draft.statements, draft.world.observed
    say(begin=seed, on="pullback")
    ours = run_program(pullback, statements, observed)
    found = compare(statements, draft.trace, ours)
    errors = sum(step["outcome"][0] != "ok" for step in draft.trace)
    line = {"end": seed, "statements": len(statements), "errors": errors}
    if found is not None:
        reason = accepted(found)
        if reason is not None and not proved(reason, statements, observed, ours, found):
            reason = None
        if reason is not None:
            line["accepted"] = reason
        else:
            line.update(difference=str(found), key=found.key())
    reset()
    say(**line)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="not included")
    parser.add_argument("--group", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(options.first, options.last):
        run_seed(seed, options.group)
    return 0


if __name__ == "__main__":
    sys.exit(main())

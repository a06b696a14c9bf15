"""Certify every derivative of every op on a device, and print what was found.

    python -m pullback.testing certify                     # all ops on the default device
    python -m pullback.testing certify --device cpu ref --jobs 4
    python -m pullback.testing certify --op sin amax
    python -m pullback.testing certify --share 3/10        # every tenth op, from the fourth on
    python -m pullback.testing certify --report certainty.md
    python -m pullback.testing certify --keep found        # when interrupted, goes on if run again

Each cell is an op in a dtype and a mode: rev, fwd, rev-rev (the second derivative by backward
through backward), fwd-rev (forward mode over backward), rev-fwd, fwd-fwd, rev-rev-rev, vmap-rev and
vmap-fwd (vmap over each), batched (is_grads_batched). Returns 1 if a cell is wrong or raises.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import shelve
import time
from collections.abc import Iterable, MutableMapping
from pathlib import Path

import pullback as pb
from pullback.ops import ENTRIES
from pullback.testing.certify.cells import DTYPES, Found, certify
from pullback.testing.certify.page import page, totals
from pullback.testing.requirements import exit_without, requirements_of
from pullback.testing.shares import chosen

__all__ = ["main", "run"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m pullback.testing certify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    here = [str(pb.get_default_device())]
    parser.add_argument(
        "--device", nargs="+", metavar="NAME", default=here, help="where to run: the default device"
    )
    parser.add_argument("--op", nargs="+", metavar="NAME", help="only these ops")
    parser.add_argument("--share", metavar="I/N", help="every N-th op, from number I on (0 to N-1)")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="how many processes run")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the totals as a page")
    parser.add_argument(
        "--keep", metavar="FILE", help="keep what is found there, and leave out what already is"
    )
    parser.add_argument("--quiet", action="store_true", help="no line for each op")
    given = parser.parse_args(arguments)
    exit_without(parser, *given.device)
    unknown = sorted(set(given.op or ()) - set(ENTRIES))
    if unknown:
        parser.error(f"the op table has no entry {unknown[0]!r}")
    try:
        names = chosen(given.op or list(ENTRIES), given.share)
    except ValueError as error:
        parser.error(str(error))
    founds = {}
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(shelve.open(given.keep)) if given.keep else {}
        for device in given.device:
            share = f", share {given.share}" if given.share else ""
            print(f"device {device}, {len(names)} ops{share}", flush=True)
            start = time.perf_counter()
            founds[device] = run(names, device, given.quiet, given.jobs, kept)
            print("\n".join(totals(founds[device])))
            print(f"{time.perf_counter() - start:.1f} s")
    if given.report:
        given.report.write_text(page(founds), encoding="utf-8")
    return int(any(found.lines for found in founds.values()))


def run(
    names: list[str],
    device: str,
    quiet: bool = True,
    jobs: int = 1,
    kept: MutableMapping[str, Found] | None = None,
) -> Found:
    """Certify some ops, and print what is bad as soon as it is found.

    ``kept`` has what was found of ops before, by device and name; the others are added.
    """
    kept = {} if kept is None else kept
    keys = {name: f"{device} {name}" for name in names}
    missing = [name for name, key in keys.items() if key not in kept]
    found = Found()
    with contextlib.ExitStack() as stack:
        work = functools.partial(at, device=device)
        results: Iterable[Found] = map(work, missing)
        if jobs > 1:
            spawn = multiprocessing.get_context("spawn")
            executor = concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawn)
            results = stack.enter_context(executor).map(work, missing)
        made = iter(results)
        for name, key in keys.items():
            one = kept[key] if key in kept else kept.setdefault(key, next(made))
            found.merge(one)
            if not quiet:
                show(name, one)
            for line in one.lines:
                print(f"  {line}", flush=True)
    return found


def at(name: str, device: str) -> Found:
    """Certify one op on a device, which becomes the default device meanwhile."""
    requirements = requirements_of(device)
    dtypes = tuple(d for d in DTYPES if d.name not in requirements.without_dtypes)
    before = pb.get_default_device()
    pb.set_default_device(device)
    try:
        found = certify(ENTRIES[name], dtypes)
    finally:
        pb.set_default_device(before)
    reason = requirements.why_failing("certify", name)
    if reason is None or not found.lines:
        return found
    return Found(skipped=collections.Counter({f"expected to fail: {reason}": 1}))


def show(name: str, found: Found) -> None:
    """Print a line about one op."""
    points = sum(cell.counts.total() for cell in found.cells.values())
    print(f"{name}: {len(found.cells)} cells, {points} points, {len(found.lines)} bad", flush=True)

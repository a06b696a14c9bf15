"""Check every op of the table on a device and print what was checked.

python -m pullback.testing                        # all checks: a matrix, failures, totals
python -m pullback.testing --gradcheck            # first and second derivatives only
python -m pullback.testing --check value out --op add mul --device cpu
python -m pullback.testing --mode anomaly         # all checks under anomaly detection
python -m pullback.testing --html matrix.html
python -m pullback.testing certify --help         # derivatives against independent truths
python -m pullback.testing hostile --device cpu   # every op with hostile arguments
"""

from __future__ import annotations

import argparse
import html
import sys
import time
from pathlib import Path

import pullback as pb
from pullback.ops import ENTRIES
from pullback.testing.certify.command import main as certify
from pullback.testing.hostile.run import main as hostile
from pullback.testing.modes import MODES
from pullback.testing.requirements import Requirements, exit_without, requirements_of
from pullback.testing.runner import CHECKS, Totals, collapsed, run_check

GRADIENTS = ("grad", "gradgrad")
Matrix = dict[str, dict[str, Totals]]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 1 if a check failed."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["certify"]:
        return certify(arguments[1:])
    if arguments[:1] == ["hostile"]:
        return hostile(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m pullback.testing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--check",
        nargs="+",
        choices=list(CHECKS),
        metavar="NAME",
        help=f"some of: {', '.join(CHECKS)}",
    )
    parser.add_argument("--gradcheck", action="store_true", help="derivatives only")
    parser.add_argument("--op", nargs="+", metavar="NAME", help="only these ops")
    parser.add_argument("--device", help="where to run; the default device otherwise")
    parser.add_argument(
        "--mode", choices=list(MODES), default="plain", help="run every check under a mode"
    )
    parser.add_argument("--quiet", action="store_true", help="totals and failures only")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the matrix as a page")
    given = parser.parse_args(arguments)
    if given.device:
        exit_without(parser, given.device)
        pb.set_default_device(given.device)
    unknown = sorted(set(given.op or ()) - set(ENTRIES))
    if unknown:
        parser.error(f"the op table has no entry {unknown[0]!r}")
    entries = [ENTRIES[name] for name in given.op or ENTRIES]
    names = list(given.check or (GRADIENTS if given.gradcheck else CHECKS))
    device = str(pb.get_default_device())
    requirements = requirements_of(device)
    under = "" if given.mode == "plain" else f", mode {given.mode}"
    print(f"device {device}, {len(entries)} ops in the table{under}")
    start = time.perf_counter()
    matrix = run_matrix(names, entries, requirements, given.mode)
    if not given.quiet:
        print_matrix(names, matrix, requirements)
    wrong = print_totals(names, matrix, requirements)
    print(f"{time.perf_counter() - start:.1f} s")
    if given.html:
        given.html.write_text(page(device, names, matrix, requirements), encoding="utf-8")
    return 1 if wrong else 0


def run_matrix(names: list[str], entries: list, requirements: Requirements, mode: str) -> Matrix:
    """Run the checks on the ops."""
    return {
        entry.name: {
            name: run_check(name, entry, without=requirements.without_dtypes, mode=mode)
            for name in names
            if CHECKS[name].concerns(entry)
        }
        for entry in entries
    }


def cell(found: Totals | None, reason: str | None) -> str:
    """Return what the matrix shows of a check of an op: the samples that passed, or the trouble."""
    if found is None or not found.samples:
        return "-"
    if reason is not None:
        return "expected" if found.failures else "repaired"
    return f"{len(found.failures)} FAIL" if found.failures else str(found.samples)


def print_matrix(names: list[str], matrix: Matrix, requirements: Requirements) -> None:
    """Print a line for each op with the samples that passed each check."""
    width = max(map(len, matrix), default=0)
    print(" " * width, *(f"{name[:10]:>10}" for name in names))
    for op, row in matrix.items():
        cells = (cell(row.get(name), requirements.why_failing(name, op)) for name in names)
        print(f"{op:<{width}}", *(f"{text:>10}" for text in cells))


def print_totals(names: list[str], matrix: Matrix, requirements: Requirements) -> int:
    """Print the totals of each check and all failures; return how many were not expected."""
    wrong = 0
    for name in names:
        totals, expected = Totals(), 0
        for op, row in matrix.items():
            found = row.get(name, Totals())
            if requirements.why_failing(name, op) is None:
                totals.add(found)
            elif found.samples:
                expected += 1
                if not found.failures:
                    totals.failures.append(f"{name} of {op}: passes, but was expected to fail")
        more = f", {expected} ops expected to fail" if expected else ""
        print(f"{name:>12}: {totals}{more}")
        for failure in collapsed(totals.failures):
            print("  " + failure.replace("\n", "\n    "))
        wrong += len(totals.failures)
    return wrong


def page(device: str, names: list[str], matrix: Matrix, requirements: Requirements) -> str:
    """Return the matrix as an HTML page."""
    rows = []
    for op, row in matrix.items():
        cells = []
        for name in names:
            reason = requirements.why_failing(name, op)
            text = cell(row.get(name), reason)
            kind = "bad" if "FAIL" in text else "odd" if text in ("expected", "repaired") else ""
            hint = html.escape(reason or "\n".join(row[name].failures[:3]) if name in row else "")
            cells.append(f'<td class="{kind}" title="{hint}">{text}</td>')
        rows.append(f"<tr><th>{html.escape(op)}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Conformance of {html.escape(device)}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; }}
td, th {{ padding: 1px 8px; text-align: right; }} tr > th:first-child {{ text-align: left; }}
tr:nth-child(even) {{ background: #f4f4f4; }}
.bad {{ background: #f99; }} .odd {{ background: #fd9; }}
</style>
<h1>Conformance of {html.escape(device)}</h1>
<p>pullback {pb.__version__}: samples of each op that pass each check; - if there are none.</p>
<table><tr><th>op</th>{head}</tr>
{chr(10).join(rows)}
</table></html>
"""


if __name__ == "__main__":
    sys.exit(main())

"""Runs a given program and shows what each module makes of it."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from pathlib import Path

from .compare import compare
from .world import World


def statements_of(text):
    """Cut a program into its statements."""
    return [ast.get_source_segment(text, part) for part in ast.parse(text).body]


def run_on(name, statements, observed):
    """Return the trace of a program on the module of this name."""
    world = World(importlib.import_module(name), observed)
    trace = [world.run(statement) for statement in statements]
    return [*trace, world.finish()]


def show(text, observed="all"):
    """Run a program on torch and on Pullback, print the errors of both and the first difference."""
    statements = statements_of(text)
    traces = [run_on(name, statements, observed) for name in ("torch", "pullback")]
    for statement, *steps in zip(statements, *traces):
        print(statement)
        for name, step in zip(("torch", "pullback"), steps):
            if step["outcome"][0] == "error":
                print(f"    {name}: {step['outcome'][1][0]}: {step['outcome'][2][:200]}")
    print(compare(statements, *traces) or "no difference")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="JSON: a list of statements; - is the standard input")
    parser.add_argument("--only", required=True)
    parser.add_argument("--observed", default="all")
    options = parser.parse_args()
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
    run_on(options.only, json.loads(text), options.observed)


if __name__ == "__main__":
    main()

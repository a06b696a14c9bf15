"""The cost of a package: seconds to import it after NumPy, and bytes on disk."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.subjects import Subject, run_once

# The first tensor is part of it: a backend is loaded when its device is used for the first time.
IMPORT_CODE = """
import json, sys, time
import numpy
start = time.perf_counter()
module = __import__(sys.argv[1])
module.ones(1)
print(json.dumps(time.perf_counter() - start))
"""
SIZE_CODE = """
import importlib.metadata, json, sys
size = 0
for name in sys.argv[1:]:
    files = importlib.metadata.files(name) or []
    size += sum(path.stat().st_size for path in (f.locate() for f in files) if path.is_file())
print(json.dumps(size))
"""
DISTRIBUTIONS = ("pullback", "pullback-cpu", "pullback-profiler")


def import_seconds(subject: Subject) -> float:
    """Return what a fresh process needs to import a module after NumPy and make one tensor."""
    return run_once(subject, "-c", IMPORT_CODE, subject.module)


def installed_bytes(subject: Subject) -> int:
    """Return the size of the installed files of what is measured."""
    names = DISTRIBUTIONS if subject.module == "pullback" else (subject.module,)
    return run_once(subject, "-c", SIZE_CODE, *names)


def wheel_bytes(folder: Path) -> dict[str, int]:
    """Return the sizes of this Python's wheels of core, CPU backend and profiler, by file name."""
    tags = (f"-cp{sys.version_info[0]}{sys.version_info[1]}-", "-py3-")
    return {
        path.name: path.stat().st_size
        for name in DISTRIBUTIONS
        for path in sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
        if any(tag in path.name for tag in tags)
    }

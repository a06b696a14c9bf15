"""The processes that are measured, and how they are asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Subject(NamedTuple):
    """A module to measure and the interpreter that can import it."""

    label: str
    module: str
    python: str = sys.executable


class MeasurementFailed(RuntimeError):
    """A measuring process ended early; its own message is on standard error."""


def python_command(subject: Subject, *arguments: str) -> dict[str, Any]:
    """Return the arguments of subprocess for a run of the subject's interpreter."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        "args": [subject.python, *arguments],
        "cwd": ROOT,
        "env": {**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        "text": True,
    }


def run_once(subject: Subject, *arguments: str) -> Any:
    """Run the interpreter to its end and return the JSON on its last line of output."""
    result = subprocess.run(
        **python_command(subject, *arguments), stdout=subprocess.PIPE, check=False
    )
    if result.returncode:
        raise MeasurementFailed(f"{subject.label}: exit code {result.returncode}")
    return json.loads(result.stdout.splitlines()[-1])


class Worker:
    """A living process that runs workloads on request."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        command = python_command(subject, "-m", "benchmarks.worker", subject.module)
        self.process = subprocess.Popen(**command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.version: str = self.read()["version"]

    def read(self) -> dict[str, Any]:
        """Return the process's next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise MeasurementFailed(f"{self.subject.label}: exit code {self.close()}")
        return json.loads(line)

    def seconds(self, workload: str, units: int) -> float:
        """Return the CPU seconds of one unit of a workload."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"workload": workload, "units": units}) + "\n")
        self.process.stdin.flush()
        return self.read()["seconds"]

    def close(self) -> int:
        """Let the process end, and return its exit code."""
        with self.process:  # closes the pipes, which ends the process, and waits for it
            pass
        return self.process.returncode

"""The processes that are measured, and requests to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
THREADS_OF = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC")


class Subject(NamedTuple):
    """A module to measure and the interpreter that can import it."""

    label: str
    module: str
    python: str = sys.executable


class MeasurementFailed(RuntimeError):
    """A measuring process ended early; its own message is on standard error."""


class RowFailed(RuntimeError):
    """A row raised an exception; its process goes on."""


def python_command(subject: Subject, *arguments: str, threads: int = 1) -> dict[str, Any]:
    """Return the arguments of subprocess for a run of the subject's interpreter."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        "args": [subject.python, *arguments],
        "cwd": ROOT,
        "env": {**os.environ, **dict.fromkeys(THREADS_OF, str(threads)), "PYTHONPATH": path},
        "text": True,
    }


def run_once(subject: Subject, *arguments: str, threads: int = 1) -> Any:
    """Run the interpreter to its end and return the JSON on its last line of output."""
    command = python_command(subject, *arguments, threads=threads)
    result = subprocess.run(**command, stdout=subprocess.PIPE, check=False)
    if result.returncode:
        raise MeasurementFailed(f"{subject.label}: exit code {result.returncode}")
    return json.loads(result.stdout.splitlines()[-1])


class Worker:
    """A living process that runs workloads on request; ``divisor`` makes their operands smaller.

    Between requests it is stopped where the system can do so: the threads of several libraries spin
    for a while after a product, and would take CPU time from the process measured next.
    """

    def __init__(self, subject: Subject, threads: int = 1, divisor: int = 1) -> None:
        self.subject = subject
        arguments = ("-m", "benchmarks.worker", subject.module, str(threads), str(divisor))
        self.command = python_command(subject, *arguments, threads=threads)
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.process = subprocess.Popen(
            **self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.version: str = self.read()["version"]
        self.signal("SIGSTOP")

    def signal(self, name: str) -> None:
        """Send the process a signal by its name, where the system has it."""
        if hasattr(signal, name):
            self.process.send_signal(getattr(signal, name))

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let the process run meanwhile."""
        self.signal("SIGCONT")
        try:
            yield
        finally:
            self.signal("SIGSTOP")

    def read(self) -> dict[str, Any]:
        """Return the process's next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise MeasurementFailed(f"{self.subject.label}: exit code {self.close()}")
        return json.loads(line)

    def measure(self, workload: str, units: int | None) -> dict[str, float]:
        """Return the seconds of one unit of a workload, and its bytes and flops if they count."""
        assert self.process.stdin is not None
        with self.awake():
            self.process.stdin.write(json.dumps({"workload": workload, "units": units}) + "\n")
            self.process.stdin.flush()
            figures = self.read()
        if "error" in figures:
            raise RowFailed(figures["error"])
        return figures

    def close(self) -> int:
        """Let the process end, and return its exit code."""
        self.signal("SIGCONT")
        with self.process:  # closes the pipes, which ends the process, and waits for it
            pass
        return self.process.returncode

"""Start a program on several processes: of this package under mpiexec, of torch with gloo."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.subjects import MeasurementFailed, Subject, python_command

OURS, TORCH = "pullback", "torch"


def mpiexec() -> str:
    """Return mpiexec, that of this environment first.

    Raises: FileNotFoundError if there is none.
    """
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = found or shutil.which("mpiexec")
    if found is None:
        raise FileNotFoundError("mpiexec: install pullback-distributed[mpich], or the system's MPI")
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_ranks(count: int, program: str, *arguments: str, python: str = sys.executable) -> Any:
    """Run ``benchmarks.ranks.PROGRAM`` under mpiexec; return the JSON that the first rank prints.

    Each process has one thread. Raises: MeasurementFailed if the program fails.
    """
    command = python_command(
        Subject(program, OURS, python), "-m", f"benchmarks.ranks.{program}", *arguments
    )
    command["args"] = [mpiexec(), "-n", str(count), *command["args"]]
    done = subprocess.run(**command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise MeasurementFailed(f"{program} on {count} processes: exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def run_torch_ranks(count: int, program: str, *arguments: str, python: str = sys.executable) -> Any:
    """Run a program with torch's process group of gloo, as torchrun would start it.

    Raises: MeasurementFailed if a process fails.
    """
    command = python_command(
        Subject(program, TORCH, python), "-m", f"benchmarks.ranks.{program}", *arguments
    )
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    with contextlib.ExitStack() as stack:
        started: Sequence[subprocess.Popen[str]] = [
            stack.enter_context(
                subprocess.Popen(
                    **{**command, "env": {**command["env"], **shared, "RANK": str(rank)}},
                    stdout=subprocess.PIPE,
                )
            )
            for rank in range(count)
        ]
        texts = [process.communicate()[0] for process in started]
    codes = [process.returncode for process in started]
    if any(codes):
        raise MeasurementFailed(f"{program} with torch on {count} processes: exit codes {codes}")
    return json.loads(texts[0].splitlines()[-1])

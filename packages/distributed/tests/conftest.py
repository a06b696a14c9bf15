"""Programs that mpiexec runs on several processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def run_ranks():
    """Return a function that runs a Python program on some ranks, and returns the process."""
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no mpiexec")

    def run(count, *command, timeout=120, **environment):
        command = [mpiexec, "-n", str(count), sys.executable, *map(str, command)]
        environment = {**os.environ, **environment}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment
        )

    return run

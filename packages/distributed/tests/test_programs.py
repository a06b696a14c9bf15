"""Programs for several processes, run under mpiexec."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def run_ranks(count, program, timeout=120):
    """Run a program of ``programs`` on some ranks; return the finished process."""
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no mpiexec")
    command = [mpiexec, "-n", str(count), sys.executable, str(PROGRAMS / f"{program}.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_program_succeeds(program, count):
    done = run_ranks(count, program)
    assert done.returncode == 0, done.stdout + done.stderr

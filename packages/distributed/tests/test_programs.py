"""Programs for several processes, run under mpiexec."""

from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("programs/*.py"))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_succeeds(run_ranks, program, count):
    done = run_ranks(count, program)
    assert done.returncode == 0, done.stdout + done.stderr

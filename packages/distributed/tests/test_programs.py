"""Programs for several processes, run under mpiexec."""

from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("programs/*.py"))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_succeeds(run_ranks, program, count):
    done = run_ranks(count, program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_succeeds_where_one_thread_may_use_mpi(run_ranks, program, level):
    done = run_ranks(2, program, MPI4PY_RC_THREAD_LEVEL=level)
    assert done.returncode == 0, done.stdout + done.stderr
    warned = f"UserWarning: init_process_group: MPI gives MPI_THREAD_{level.upper()}"
    assert done.stderr.count(warned) == 2  # one for each rank

"""More elements than one call of MPI takes, or seems to take."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMALL_CALLS = HERE / "large" / "small_calls.py"


@pytest.mark.parametrize("program", ["collectives", "messages", "data_parallel", "fully_sharded"])
def test_elements_beyond_one_call_travel(run_ranks, program):
    done = run_ranks(2, SMALL_CALLS, HERE / "programs" / f"{program}.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_parts_without_larger_unit_are_refused(run_ranks):
    done = run_ranks(3, SMALL_CALLS, HERE / "programs" / "collectives.py")
    assert done.returncode == 1
    assert "RuntimeError: all_gather: MPI " in done.stderr
    assert (
        "cannot move 12 elements in parts of several sizes, only 3: make the sizes" in done.stderr
    )


@pytest.mark.skipif("PULLBACK_TEST_LARGE" not in os.environ, reason="needs 12 GiB of memory")
def test_more_elements_than_an_int_counts(run_ranks):
    done = run_ranks(2, HERE / "large" / "many_elements.py", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

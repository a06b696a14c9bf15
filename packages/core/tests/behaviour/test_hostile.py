"""Hostile arguments crash nothing, hang nothing, and leave everything usable."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pullback as pb
from pullback.nn import functional as F
from pullback.testing.hostile.calls import draw_call, targets

CALLS = 5000


def run(*command, timeout=500):
    """Run a command line; returns its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=timeout
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_every_op_survives_hostile_arguments(seed):
    """What fails is shown with a line that repeats it; `nox -s fuzz` makes more calls."""
    device = str(pb.get_default_device())
    code, printed = run(
        "-m", "pullback.testing", "hostile", "--device", device, "--count", CALLS, "--seed", seed
    )
    assert code == 0, printed
    assert f"{CALLS} calls on {device}: 0 failures" in printed


def test_calls_follow_from_the_seed():
    device = str(pb.get_default_device())
    first, second = ([str(draw_call(seed, i, device)) for i in range(60)] for seed in (5, 5))
    other = [str(draw_call(6, i, device)) for i in range(60)]
    assert first == second
    assert first != other


def test_every_public_op_is_a_target():
    names = set(targets())
    assert {"add", "conv2d", "index_put", "linalg_solve", "getitem", "from_dlpack"} <= names


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("op", "report"),
    [
        ("crash", "ended with -6"),
        ("hang", "hung"),
        ("break_the_rules", "raised SystemError: error return"),
        ("leave_a_mode", "behind"),
        ("spoil", "after these calls AssertionError: a known result became"),
    ],
)
def test_what_no_op_may_do_is_found(op, report):
    script = Path(__file__).parent / "scripts" / "hostile_faults.py"
    code, printed = run(script, "--device", "ref", "--op", op, "--count", 2)
    assert code == 1
    assert report in printed
    line = rf"hostile --device ref --seed 0 --op {op} (--call [01]|--first 0 --count 2)\n"
    assert re.search(line, printed)
    assert re.search(r"2 calls on ref: [12] failures", printed)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit on memory")
def test_runaway_memory_ends_in_a_memory_error():
    script = Path(__file__).parent / "scripts" / "hostile_faults.py"
    code, printed = run(script, "--device", "ref", "--op", "grow", "--count", 1)
    assert code == 0, printed


@pytest.mark.parametrize("value", [0, itertools.repeat(1), itertools.repeat(pb.nn)])
def test_endless_sequences_are_refused(value):
    x, index = pb.ones(2, requires_grad=True), pb.tensor([0])
    with pytest.raises(TypeError, match=r"Tensors? or|must be a Tensor"):
        pb.autograd.grad(value, x)
    with pytest.raises(TypeError, match="must be tuple of Tensors, not"):
        x.index_put(value, pb.ones(1))
    with pytest.raises(TypeError, match="must be tuple of ints, not"):
        F.affine_grid(pb.ones(1, 2, 3), value)
    with pytest.raises(TypeError, match="list of subscripts, not"):
        pb.einsum(index, value)


def test_unknown_op_is_refused():
    code, printed = run("-m", "pullback.testing", "hostile", "--op", "nonsense")
    assert code == 2
    assert "no public op is named 'nonsense'" in printed

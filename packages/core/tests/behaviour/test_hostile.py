"""Hostile arguments crash nothing, hang nothing, and leave everything usable."""

import itertools
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.nn import functional as F
from pullback.ops import ops
from pullback.testing.hostile.calls import Call, attempt, draw_call, nonsense_in, targets

CALLS = 5000


def run(*command, timeout=500):
    """Run a command line; returns its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=timeout
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.pullback_share
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


def test_arguments_that_torch_refuses_are_nonsense():
    declared = ops.sum.entry.arguments
    call = Call("sum", ops.sum, [pb.ones(2), None], {"keepdim": 1}, "plain", False, declared)
    assert nonsense_in(call) == "int for 'keepdim', which is bool"
    assert attempt(call) is None
    call.function = lambda *args, **kwargs: None
    assert attempt(call) == "accepted int for 'keepdim', which is bool"


@pytest.mark.parametrize("value", [1, 0, "x", 1.0, None, [1], ()])
def test_what_is_no_bool_is_refused(value):
    x = pb.ones(2, 2)
    with pytest.raises(TypeError, match=r"sum\(\): argument 'keepdim' must be bool, not"):
        x.sum(0, keepdim=value)
    with pytest.raises(TypeError, match=r"topk\(\): argument 'largest' .*must be bool"):
        x.topk(1, 1, value)
    assert x.sum(0, keepdim=np.True_).shape == (1, 2)


@pytest.mark.parametrize("value", ["1", [1], (), None, b"1", {}, object])
def test_what_is_no_number_is_refused(value):
    x, index = pb.ones(0), pb.zeros(0, dtype=pb.int64)
    with pytest.raises(TypeError, match=r"index_add\(\): argument 'alpha' must be Number, not"):
        x.index_add(0, index, x, alpha=value)
    with pytest.raises(TypeError, match=r"addmm\(\): argument 'beta' must be Number, not"):
        pb.ones(0, 0).addmm(pb.ones(0, 0), pb.ones(0, 0), beta=value)
    if value is not None:
        with pytest.raises(TypeError, match=r"trapezoid\(\): argument 'dx' must be Number, not"):
            pb.trapezoid(pb.ones(0, 3), dx=value, dim=0)


@pytest.mark.parametrize("value", [range(1), {0}, iter([0]), {0: 1}.keys(), "0", 0.0])
def test_what_is_no_list_of_ints_is_refused(value):
    x = pb.ones(1, 1)
    for name in ("sum", "squeeze", "amax", "flip", "view", "reshape", "expand", "permute", "tile"):
        with pytest.raises(TypeError, match=rf"^{name}\(\): argument .*must be tuple of ints, not"):
            getattr(x, name)(value)
    with pytest.raises(TypeError, match=r"argument '.*' .*must be tuple of ints, not"):
        pb.zeros(value)
    assert x.sum(np.int64(0)).shape == (1,)


def test_more_views_than_memory_holds_are_refused_at_once():
    x = pb.empty(1 << 42, 1, device="meta")
    for divide in (x.unbind, x.split, x.chunk, x.tensor_split, x.vsplit):
        with pytest.raises(MemoryError, match=r"\(\): \d+ views do not fit in memory"):
            divide(*{"unbind": [], "split": [1]}.get(divide.__name__, [1 << 42]))


def test_dtypes_are_checked_where_arguments_are_placed():
    x = pb.ones(2)
    for name, function in (
        ("zeros", pb.zeros),
        ("cumsum", x.cumsum),
        ("sum", x.sum),
        ("softmax", x.softmax),
        ("rand_like", partial(pb.rand_like, x)),
    ):
        for wrong in ("float32", 3, str, np.dtype("f4"), x):
            with pytest.raises(TypeError, match=rf"^{name}\(\): argument 'dtype' .*must be"):
                function(0, dtype=wrong) if "like" not in name else function(dtype=wrong)
    assert x.cumsum(0, dtype=float).dtype == pb.linspace(0, 1, 2, dtype=float).dtype == pb.float64


class ClaimsToBeAList:
    """An object that isinstance takes for a list and that has items without an end."""

    __class__ = list

    def __getitem__(self, index):
        return 1


@pytest.mark.parametrize("device", ["meta", None])
def test_what_only_claims_to_be_a_list_is_refused(device):
    x = pb.ones(1, 1, 2, 2, device=device)
    for function in (
        F.adaptive_avg_pool2d,
        F.adaptive_max_pool2d,
        pb.split,
        pb.tensor_split,
        pb.pixel_shuffle,
        F.interpolate,
        F.upsample_nearest,
    ):
        with pytest.raises(TypeError, match=r"\(\): argument .* must be"):
            function(x, ClaimsToBeAList())


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

"""Certainty of derivatives: a part of the whole run, and that the run sees what is wrong."""

import math
import os
import warnings

import numpy as np
import pytest

import pullback as pb
from pullback.ops import ENTRIES
from pullback.testing.__main__ import main
from pullback.testing.certify.cells import certify
from pullback.testing.certify.command import run
from pullback.testing.certify.derivatives import MODES, Problem
from pullback.testing.certify.digits import derivatives, formula_of, load
from pullback.testing.certify.judge import Judge, central, one_sided
from pullback.testing.certify.page import page
from pullback.testing.certify.stated import KINKS, problems_of, states_kinks
from pullback.testing.samples import op_of
from pullback.testing.shares import chosen, parsed

PARTS = 4  # of a share, for processes that run tests side by side


# What the environment says, or the share that is due; kernels in Python take five times as long.
# The counts have no divisor that the shares of tests (tox.ini) have, so that all come together.
DUE = "auto/91" if pb.get_default_device().type == "ref" else "auto/31"
SHARE = os.environ.get("PULLBACK_TEST_CERTIFY") or "{}/{}".format(*parsed(DUE))


@pytest.mark.pullback_share
@pytest.mark.parametrize("part", range(PARTS))
def test_a_share_of_the_table_is_right(part):
    device = pb.get_default_device().type
    ops = [name for name, entry in ENTRIES.items() if op_of(entry).differentiable]
    found = run(chosen(chosen(ops, SHARE), f"{part}/{PARTS}"), device)
    assert found.lines == [], f"certify --device {device} --share {SHARE}"
    assert found.cells


@pytest.mark.parametrize("kink", KINKS, ids=lambda kink: f"{kink.op}-{KINKS.index(kink)}")
def test_every_mode_gives_what_is_stated_for_a_kink(kink):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names that are deprecated
        assert list(problems_of(kink)) == []


# -- what it must see ------------------------------------------------------------------------------


def sine(factor):
    """Return the sine, with a derivative that is off by a factor."""

    class Sine(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * factor

    return lambda x: (Sine.apply(x),)


def problem(function, *values):
    """Return a problem at a point, with directions and weights that are not special."""
    point = tuple(pb.tensor(value, dtype=pb.float64) for value in values)
    v, w, z = (tuple(pb.full_like(x, s) for x in point) for s in (0.7, -0.45, 0.9))
    results = function(*point)
    u, second = (tuple(pb.full_like(y, s) for y in results) for s in (0.8, -0.6))
    return Problem(function, point, point, v, w, z, u, second)


@pytest.mark.parametrize(
    ("mode", "error"), [("rev", 1e-6), ("batched", 1e-6), ("rev-rev", 1e-4), ("rev-rev-rev", 1e-2)]
)
def test_a_derivative_that_is_a_little_off_is_wrong(mode, error):
    for factor in (1, 1 + error):
        there = problem(sine(factor), [0.3, 1.1])
        judge = Judge(there)
        found = {judge.judge(part).kind for part in MODES[mode](there)}
        assert found <= {"right", "wrong"}
        assert ("wrong" in found) == (factor > 1)


@pytest.mark.parametrize(
    ("function", "values", "names", "way"),
    [
        pytest.param(lambda x: (x.sin(),), [[0.5]], "vw", "smooth", id="smooth"),
        pytest.param(lambda x: (x.abs(),), [[0.0]], "v", "kink", id="kink"),
        pytest.param(lambda x: (x * x.abs(),), [[0.0]], "vw", "kink", id="second-order"),
        pytest.param(lambda x: (x.floor(),), [[1.0]], "v", "kink", id="jump"),
        pytest.param(lambda x: (x.sqrt(),), [[0.0]], "v", "kink", id="pole"),
        pytest.param(lambda x, y: (pb.copysign(x, y),), [[0.0], [0.0]], "v", "kink", id="bent"),
        pytest.param(lambda x: (x.median(),), [[1.0, 1.0, 1.0]], "v", "smooth", id="all-alike"),
    ],
)
def test_points_that_are_not_smooth_are_known(function, values, names, way):
    assert Judge(problem(function, *values)).way(names) == way


def test_ties_are_a_kink_in_most_directions():
    there = problem(lambda x: (x.median(),), [1.0, 1.0, 1.0])
    uneven = (pb.tensor([0.7, -0.4, 0.9], dtype=pb.float64),)
    assert Judge(there._replace(v=uneven)).way("v") == "kink"


def test_differences_tell_their_error():
    def values(steps):
        return np.array([math.exp(0.5 + sum(steps))])

    for order, precision in ((1, 1e-10), (2, 1e-8), (3, 1e-5)):
        value, error = central(values, order)
        assert abs(value[0] - math.exp(0.5)) <= 10 * error[0] <= precision
    value, error = one_sided(lambda steps: np.array([abs(steps[0])]), (-1,))
    assert value[0] == pytest.approx(-1) and error[0] < 1e-9


def test_complex_steps_are_exact_where_the_function_is_analytic():
    there = problem(lambda x: (x.exp(),), [0.5, 1.0])
    assert Judge(there).complex_step() == pytest.approx(0.7 * np.exp([0.5, 1.0]), rel=1e-15)
    assert Judge(problem(lambda x: (x.abs(),), [0.5, 1.0])).complex_step() is None


def test_formulas_in_many_digits():
    mp = load()
    if mp is None:
        pytest.skip("mpmath is not installed")
    sin, log, exp = (formula_of(ENTRIES[name], mp) for name in ("sin", "log", "exp"))
    assert derivatives(mp, sin, 1.0) == pytest.approx(
        [math.sin(1), math.cos(1), -math.sin(1), -math.cos(1)], rel=1e-15
    )
    assert derivatives(mp, log, -1.0) is None
    assert derivatives(mp, exp, 1e5) == [math.inf] * 4


def test_public_ops_state_their_kinks():
    stated = {name for name, entry in ENTRIES.items() if states_kinks(entry)}
    assert {"elu", "elu_", "kl_div", "kl_div.top", "sum_backward"} <= stated
    assert "sin" not in stated


# -- the command -----------------------------------------------------------------------------------


def test_command(capsys, tmp_path):
    report = tmp_path / "certainty.md"
    assert main(["certify", "--op", "square", "relu", "--report", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "square: " in shown and ", 0 bad" in shown and "cells " in shown
    text = report.read_text()
    assert "| rev-rev |" in text and "`relu([0])`" in text
    both = certify(ENTRIES["square"])
    both.merge(certify(ENTRIES["relu"]))
    assert page({str(pb.get_default_device()): both}) == text


def test_devices_and_processes_find_the_same(capsys, tmp_path):
    report = tmp_path / "certainty.md"
    given = ["--op", "neg", "le", "--device", "ref", "ref:0", "--jobs", "2"]
    assert main(["certify", *given, "--report", str(report)]) == 0
    first, second = (
        line.partition("| ")[2].split(" | ", 1)
        for line in report.read_text().splitlines()
        if line.startswith("| ref")
    )
    assert (first[0], second[0]) == ("ref", "ref:0") and first[1] == second[1]


def test_kept_ops_are_not_run_again(capsys, tmp_path, monkeypatch):
    given = ["certify", "--quiet", "--keep", str(tmp_path / "found"), "--op", "square"]
    assert main(given) == 0
    once = capsys.readouterr().out.splitlines()
    ran = []

    def at(name, device):
        ran.append(name)
        return certify(ENTRIES[name])

    monkeypatch.setattr("pullback.testing.certify.command.at", at)
    assert main(given) == 0
    assert capsys.readouterr().out.splitlines()[1:-1] == once[1:-1]
    assert ran == []
    assert main([*given, "relu"]) == 0
    assert ran == ["relu"]


def test_wrong_cells_are_told_and_fail_the_command(capsys, monkeypatch):
    monkeypatch.setattr("pullback.testing.certify.cells.problems_of", lambda kink: [("rev", "off")])
    assert main(["certify", "--op", "relu", "--quiet"]) == 1
    assert "wrong: relu, float64, rev, stated" in capsys.readouterr().out


def test_shares_are_all_of_the_ops_together():
    names = list("abcdefg")
    parts = [chosen(names, f"{i}/3") for i in range(3)]
    assert parts[0] == ["a", "d", "g"] and sorted(name for part in parts for name in part) == names
    with pytest.raises(ValueError, match="share such as 3/10"):
        chosen(names, "3/3")
    with pytest.raises(SystemExit):
        main(["certify", "--share", "ten"])

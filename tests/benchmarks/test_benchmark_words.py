"""A row computes the same with torch, NumPy and JAX."""

import importlib

import numpy as np
import pytest

import pullback as pb
from benchmarks.expressions import Expressions, dialect_of, plain_calls
from benchmarks.numpy_api import Creator
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.registry import Size

SMALL = Size(1024)
UNLIKE = ("random numbers", "svd(", "topk(")  # other numbers, other signs, another order
KEYS = [
    key
    for key, row in WORKLOADS.items()
    if row.written_for("numpy") and not any(part in key for part in UNLIKE)
]
JITTED = [key for key, row in WORKLOADS.items() if row.written_for("jax")]


def as_tensor(value):
    """Copy an array, or a list of them, into a tensor with the same strides."""
    if isinstance(value, list):
        return [as_tensor(part) for part in value]
    return pb.from_numpy(np.copy(value, "K")) if isinstance(value, np.ndarray) else value


def first(value):
    """Return the values of what comes with indices."""
    return first(value[0]) if isinstance(value, tuple) else value


@pytest.mark.parametrize("key", KEYS)
def test_numpy_computes_the_same(key):
    row, words = WORKLOADS[key], dialect_of(np)
    if "special." in row.written_for("numpy"):
        pytest.importorskip("scipy")
    arrays = row.table.setup(Creator(), SMALL)
    tensors = {name: as_tensor(value) for name, value in arrays.items()}
    ours = first(eval(row.written_for("torch"), {**dialect_of(pb).names, **tensors})).numpy()
    with np.errstate(all="ignore"):
        theirs = first(eval(row.written_for("numpy"), {**words.names, **arrays}))
    assert ours.shape == np.shape(theirs)
    rough = "float16" in key or ours.dtype == np.float16
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if rough else {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(ours, theirs, **tolerance)


@pytest.mark.parametrize("key", JITTED[::8])
def test_jax_runs(key):
    jax = pytest.importorskip("jax")
    pytest.importorskip("scipy")
    calls, _ = Expressions(jax, SMALL).calls_of(WORKLOADS[key])
    calls(1)


def test_calls_repeat_and_their_names_hide_nothing():
    seen = []
    calls = plain_calls(["seen.append(n)"], {"seen": seen, "n": 5})
    calls(3)
    assert seen == [5, 5, 5]


def test_operands_are_kept_for_a_table_only():
    expressions = Expressions(pb, SMALL)
    one, same, other = (
        WORKLOADS[f"elementwise/{key}"].table
        for key in ("4M elements/exp(x)", "4M elements/tanh(x)", "1M complex64/z + w")
    )
    operands = expressions.operands_of(one)
    assert expressions.operands_of(same) is operands
    assert expressions.operands_of(other).keys() == {"z", "w"}
    again = expressions.operands_of(one)
    assert pb.equal(again["x"], operands["x"])  # the same numbers in every round


def test_gradients_of_a_row_do_not_pile_up():
    expressions = Expressions(pb, SMALL)
    row = WORKLOADS["elementwise/1024 x 1024, forward and backward/(a + r).sum()"]
    calls, _ = expressions.calls_of(row)
    calls(2)
    assert expressions.operands["a"].grad is None
    assert row.written_for("numpy") == ""


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_arrays_are_made_as_tensors_are(name):
    array = getattr(Creator(), name)(2, 3)
    assert array.shape == (2, 3)
    assert array.dtype == np.float32


def test_creator_gives_equal_numbers_after_a_seed():
    creator = Creator()
    draws = []
    for _ in range(2):
        creator.manual_seed(1)
        draws.append(creator.randn(5, dtype=np.complex64))
    assert draws[0].dtype == np.complex64
    np.testing.assert_array_equal(*draws)


def test_module_that_is_missing_is_none():
    find = importlib.import_module("benchmarks.expressions").find_module
    assert find("a_module_that_is_not_there") is None
    assert find("numpy") is np

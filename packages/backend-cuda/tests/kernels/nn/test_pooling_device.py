"""Windows, and weighted sums along a dim, against NumPy."""

import itertools

import numpy as np
import pytest
from primitive_calls import assert_close, begin, blank, reference, run_primitive, sample

from pullback.testing.kernel_calls import E_INDEX, E_VALUE, KernelError

TOLERANCES = {"f32": 2**-19, "f64": 2**-48}
INDEX = np.dtype(np.int64)


@pytest.fixture(autouse=True)
def device(request):
    """The fake device, ready."""
    begin(request)


# ---- windows: (sizes, kernel, stride, padding, dilation) -----------------------------------------

CASES = [
    ((9,), (2,), (2,), (0,), (1,)),
    ((9,), (3,), (1,), (1,), (2,)),
    ((7, 9), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((7, 9), (3, 3), (2, 2), (1, 1), (2, 2)),
    ((5, 6, 7), (2, 3, 2), (1, 2, 3), (1, 0, 1), (1, 1, 2)),
    ((40, 41), (20, 19), (7, 9), (3, 9), (1, 1)),
    ((300,), (300,), (1,), (0,), (1,)),
    ((4, 4), (1, 1), (3, 3), (0, 0), (1, 1)),
]
ADAPTIVE = [
    ((9,), (4,)),
    ((7, 9), (3, 2)),
    ((5, 6, 7), (2, 3, 7)),
    ((3, 2), (7, 5)),
    ((40, 50), (1, 2)),
    ((6,), (6,)),
]


def count_of(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def pooled(case):
    """Return the sizes of the windows of a case, and its parameters."""
    sizes, *sides = case
    return tuple(count_of(*side) for side in zip(sizes, *sides, strict=True)), sum(sides, ())


def all_windows(dilated):
    """Yield (sizes, counts, parameters)."""
    for case in CASES:
        if dilated or max(case[4]) == 1:
            yield (case[0], *pooled(case))
    for sizes, counts in ADAPTIVE:
        rank = len(sizes)
        yield sizes, counts, (0,) * rank + (1,) * rank + (0,) * rank + (1,) * rank


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("windows", list(all_windows(True)))
@pytest.mark.parametrize("kind", ["plain", "repeats", "special"])
def test_max_pool(name, windows, kind):
    sizes, counts, parameters = windows
    values = sample(name, (2, 3, *sizes))
    if kind == "repeats":
        values = np.round(values)
    elif kind == "special":
        chosen = np.random.default_rng(0).choice(
            [0.0, np.nan, -np.inf, np.inf], values.shape, p=[0.3, 0.1, 0.5, 0.1]
        )
        values = np.where(chosen == 0, values, chosen).astype(values.dtype)
    outs = blank((2, 3, *counts), values.dtype), blank((2, 3, *counts), INDEX)
    run_primitive("max_pool", outs, [values], parameters)
    expected = blank((2, 3, *counts), values.dtype), blank((2, 3, *counts), INDEX)
    reference("max_pool", expected, [values], window_params=parameters)
    np.testing.assert_array_equal(outs[0], expected[0])
    # Where a window holds nothing larger than -inf, its index is any one in the window.
    known = expected[0] != -np.inf
    np.testing.assert_array_equal(outs[1][known], expected[1][known])
    assert ((outs[1] >= 0) & (outs[1] < np.prod(sizes))).all()


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("windows", list(all_windows(False)))
@pytest.mark.parametrize("padded", [0, 1])
@pytest.mark.parametrize("divisor", [0, 5])
def test_avg_pool_forward_and_backward(name, windows, padded, divisor):
    sizes, counts, parameters = windows
    whole, means = sample(name, (2, 3, *sizes)), sample(name, (2, 3, *counts), seed=1)
    options = {"window_params": parameters, "padded": padded, "divisor": divisor}
    for primitive, source, shape in (
        ("avg_pool", whole, means.shape),
        ("avg_pool_backward", means, whole.shape),
    ):
        out, expected = blank(shape, whole.dtype), blank(shape, whole.dtype)
        run_primitive(primitive, out, [source], *options.values())
        reference(primitive, expected, [source], **options)
        assert_close(out, expected, TOLERANCES[name])


def test_windows_of_nothing():
    parameters = (2, 1, 0, 1)
    for shape, count in (((0, 5), 4), ((3, 1), 0)):
        values = np.zeros(shape, np.float32)
        outs = blank((shape[0], count), values.dtype), blank((shape[0], count), INDEX)
        run_primitive("max_pool", outs, [values], parameters)
        run_primitive("avg_pool", outs[0], [values], parameters, 0, 0)
    out = blank((3, 1), values.dtype)
    run_primitive("avg_pool_backward", out, [np.zeros((3, 0), np.float32)], parameters, 0, 0)
    assert not out.any()


def test_parameters_that_do_not_fit_the_dims_raise():
    values = np.zeros((3, 5), np.float32)
    for parameters in ((2, 1, 0), (2, 0, 0, 1), (2, 1, -1, 1), (1,) * 12, (2, 1, 2**62, 1)):
        with pytest.raises(KernelError) as error:
            run_primitive("avg_pool", blank((3, 4), values.dtype), [values], parameters, 0, 0)
        assert error.value.code == E_VALUE


# ---- weighted sums -------------------------------------------------------------------------------


RESAMPLED = list(
    itertools.product(
        [((5,), 0), ((3, 6, 4), 1), ((2, 3, 7), 2), ((2, 1, 5), 1)],
        [(1, 4), (4, 9), (3, 700), (0, 3)],
        [True, False],
    )
)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("case", RESAMPLED)
def test_interpolate_forward_and_backward(name, case):
    (shape, dim), (taps, positions), weighted = case
    if not weighted:
        taps = 1
    made = (*shape[:dim], positions, *shape[dim + 1 :])
    indices = np.random.default_rng(0).integers(0, shape[dim], (taps, positions))
    more = [sample(name, (taps, positions), seed=2)] if weighted else []
    whole, sums = sample(name, shape), sample(name, made, seed=1)
    for primitive, source, result in (
        ("interpolate", whole, made),
        ("interpolate_backward", sums, shape),
    ):
        out, expected = blank(result, whole.dtype), blank(result, whole.dtype)
        run_primitive(primitive, out, [source, indices, *more], dim)
        if taps:
            reference(primitive, expected, [source, indices, *more], dim=dim)
        else:
            expected[...] = 0
        assert_close(out, expected, TOLERANCES[name])


@pytest.mark.parametrize("wrong", [-1, 6, 2**40])
@pytest.mark.parametrize("positions", [3, 900])
def test_taps_out_of_range_are_reported(wrong, positions):
    indices = np.random.default_rng(0).integers(0, 6, (2, positions))
    indices[1, 2] = wrong
    weights, whole = sample("f32", (2, positions)), sample("f32", (2, 6, 3))
    made = sample("f32", (2, positions, 3))
    for primitive, source, out in (
        ("interpolate", whole, blank(made.shape, made.dtype)),
        ("interpolate_backward", made, blank(whole.shape, whole.dtype)),
    ):
        with pytest.raises(KernelError) as error:
            run_primitive(primitive, out, [source, indices, weights], 1)
        assert error.value.code == E_INDEX
        assert error.value.message == f"index {wrong} is out of bounds for dimension 1 with size 6"


def test_backward_of_no_sums():
    out = blank((2, 6), np.dtype(np.float32))
    ins = [np.zeros((2, 0), np.float32), np.zeros((2, 0), np.int64), np.zeros((2, 0), np.float32)]
    run_primitive("interpolate_backward", out, ins, 1)
    assert not out.any()

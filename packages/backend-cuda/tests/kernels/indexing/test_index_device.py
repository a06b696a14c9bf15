"""Elements at index arrays: reading, writing and combining, against NumPy."""

import numpy as np
import pytest
from primitive_calls import (
    LAYOUTS,
    NAMES,
    STORED,
    assert_close,
    begin,
    blank,
    plain,
    reference,
    run_primitive,
    sample,
    strided,
)

from pullback.testing.kernel_calls import E_INDEX, E_RUNTIME, KernelError

TOLERANCES = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-20, "c64": 2**-20}
BY_SIZE = ["u8", "f16", "f32", "f64", "c128"]


@pytest.fixture(autouse=True)
def device(request):
    """The fake device, ready."""
    begin(request)


def indices(shape, length, seed=0, low=0):
    return np.random.default_rng(seed).integers(low, length, shape)


def assert_same(actual, expected, name):
    if name in TOLERANCES or name in ("f64", "c128"):
        assert_close(actual, expected, TOLERANCES.get(name, 2**-48))
    else:
        np.testing.assert_array_equal(actual, expected)


# ---- along one dim -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_SIZE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", range(3))
def test_gather(name, layout, dim):
    values = sample(name, (4, 5, 6))
    shape = [3, 4, 5]
    shape[dim] = 8
    index = indices(shape, values.shape[dim])
    out, expected = blank(shape, values.dtype, layout), blank(shape, values.dtype)
    run_primitive("gather", out, [LAYOUTS[layout](values), LAYOUTS[layout](index)], dim)
    reference("gather", expected, [values, index], dim=dim)
    np.testing.assert_array_equal(out, expected)


def test_gather_of_rows_moves_words():
    values, row = sample("u8", (50, 64)), indices((33, 1), 50)
    index = np.broadcast_to(row, (33, 64))
    out = blank((33, 64), values.dtype)
    run_primitive("gather", out, [values, index], 0)
    np.testing.assert_array_equal(out, values[row[:, 0]])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3000,), (2, 0, 3)])
def test_gather_of_any_size(shape):
    values = sample("f32", shape or ())
    length = shape[0] if shape and shape[0] else 1
    index = indices(shape, length)
    out = blank(shape, values.dtype)
    run_primitive("gather", out, [values, index], 0)
    expected = blank(shape, values.dtype)
    reference("gather", expected, [values, index], dim=0)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("wrong", [-1, 5, 2**40, -(2**63)])
@pytest.mark.parametrize("primitive", ["gather", "scatter", "scatter_add", "scatter_reduce"])
def test_index_out_of_range_is_reported_and_writes_nothing(primitive, wrong):
    values, index = sample("f32", (5, 3), seed=1), indices((6, 3), 5)
    index[4, 1] = wrong
    others = sample("f32", (6, 3), seed=2)
    out = plain(others) if primitive == "gather" else plain(values)
    before = plain(out)
    ins = [values, index] if primitive == "gather" else [index, others]
    mode = (0,) if primitive == "scatter_reduce" else ()
    with pytest.raises(KernelError) as error:
        run_primitive(primitive, out, ins, 0, *mode)
    assert error.value.code == E_INDEX
    assert error.value.message == f"index {wrong} is out of bounds for dimension 0 with size 5"
    index[4, 1] = 0
    expected = plain(before)
    if primitive == "gather":
        reference(primitive, expected, [values, index], dim=0)
        expected[4, 1] = before[4, 1]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", BY_SIZE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", range(3))
def test_scatter_of_the_last(name, layout, dim):
    start = sample(name, (4, 5, 6), seed=1)
    shape = [3, 4, 5]
    shape[dim] = 17
    index, source = indices(shape, start.shape[dim]), sample(name, shape, seed=2)
    out, expected = LAYOUTS[layout](start), plain(start)
    run_primitive("scatter", out, [LAYOUTS[layout](index), LAYOUTS[layout](source)], dim)
    reference("scatter", expected, [index, source], dim=dim)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", BY_SIZE)
@pytest.mark.parametrize("count", [1, 2, 300, 5000])
def test_scatter_into_many_targets(name, count):
    # Far more targets than positions: they are sorted.
    start = sample(name, (100_000,), seed=1)
    index = np.random.default_rng(3).choice([5, 99_999, 1234, 70], count)
    source = sample(name, (count,), seed=2)
    out, expected = plain(start), plain(start)
    run_primitive("scatter", out, [index, source], 0)
    reference("scatter", expected, [index, source], dim=0)
    np.testing.assert_array_equal(out, expected)


def test_scatter_of_a_number_and_of_part_of_a_source():
    index = indices((2, 3), 4)
    out, expected = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    run_primitive("scatter", out, [index, np.broadcast_to(np.float32(3), (2, 3))], 0)
    reference("scatter", expected, [index, np.full((2, 3), 3, np.float32)], dim=0)
    np.testing.assert_array_equal(out, expected)
    source = sample("f32", (6, 5))
    run_primitive("scatter", out, [index, source], 0)
    reference("scatter", expected, [index, source], dim=0)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["plain", "reversed"])
@pytest.mark.parametrize("primitive", ["scatter_add", 0, 1, 2])
def test_scatter_combines(name, layout, primitive):
    if primitive in (1, 2) and name.startswith("c"):
        pytest.skip("complex numbers have no order")
    start, shape = sample(name, (4, 5, 6), seed=1), (3, 13, 5)
    index, source = indices(shape, 5), sample(name, shape, seed=2)
    primitive, mode = (
        (primitive, {}) if isinstance(primitive, str) else ("scatter_reduce", {"mode": primitive})
    )
    out, expected = LAYOUTS[layout](start), plain(start)
    run_primitive(
        primitive, out, [LAYOUTS[layout](index), LAYOUTS[layout](source)], 1, *mode.values()
    )
    if name == "b":
        join = np.logical_or if mode.get("mode", 1) == 1 else np.logical_and
        for at in np.ndindex(shape):
            target = (at[0], index[at], at[2])
            expected[target] = join(expected[target], source[at])
    else:
        reference(primitive, expected, [index, source], dim=1, **mode)
    assert_same(out, expected, name)


@pytest.mark.parametrize("name", ["f32", "i8", "i64", "i32", "bf16", "c64"])
@pytest.mark.parametrize("count", [1, 511, 512, 1024, 1025, 2047, 2048, 2049, 9000])
def test_long_runs_are_added_in_pieces(name, count):
    index = np.full(count, 3)
    index[:: max(count // 7, 1)] = 1
    index[-3:] = 2
    source, start = sample(name, (count,), seed=4), sample(name, (5,), seed=5)
    out, expected = plain(start), plain(start)
    run_primitive("scatter_add", out, [index, source], 0)
    reference("scatter_add", expected, [index, source], dim=0)
    assert_close(out, expected, {"bf16": 2**-6, "f32": 2**-18, "c64": 2**-18}.get(name, 0))


def test_short_runs_are_added_in_order():
    rng = np.random.default_rng(0)
    index, source = rng.integers(0, 40, 9000), rng.normal(size=9000).astype(np.float32)
    out, expected = np.zeros(40, np.float32), np.zeros(40, np.float32)
    run_primitive("scatter_add", out, [index, source], 0)
    for target, value in zip(index, source, strict=True):
        expected[target] += value
    np.testing.assert_array_equal(out, expected)


def test_nan_wins():
    source = np.array([1, np.nan, 3, -2], np.float32)
    for mode in (1, 2):
        out = np.zeros(2, np.float32)
        run_primitive("scatter_reduce", out, [np.array([0, 0, 0, 1]), source], 0, mode)
        assert np.isnan(out[0])
        assert out[1] == (0 if mode == 1 else -2)
        out = np.full(1, np.nan, np.float32)
        run_primitive("scatter_reduce", out, [np.array([0]), source[:1]], 0, mode)
        assert np.isnan(out[0])


# ---- along the first dims ------------------------------------------------------------------------


CASES = {
    "one": ((7, 6), [(4, 3)]),
    "row": ((7, 64), [(50,)]),
    "two": ((7, 6, 5), [(4, 3), (4, 3)]),
    "scalar": ((7, 6), [()]),
    "spread": ((7, 6, 5), [(4, 1), (1, 3)]),
    "many": ((2, 3, 2, 3, 2, 3), [(30,)] * 6),
    "five": ((2, 3, 2, 3, 2, 4), [(6, 5)] * 5),
    "large": ((300, 3), [(5000,)]),
    "empty": ((7, 6), [(0,)]),
    "no rest": ((7, 0), [(3,)]),
}


def selected(case, seed=0):
    """Return the shape of an array, and index arrays of one shape for it, negative ones too."""
    shape, shapes = CASES[case]
    arrays = [indices(one, shape[k], seed + k, low=-shape[k]) for k, one in enumerate(shapes)]
    return shape, list(np.broadcast_arrays(*arrays))


@pytest.mark.parametrize("name", ["u8", "f32", "c128"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_index(name, layout, case):
    shape, arrays = selected(case)
    values = sample(name, shape)
    expected = values[tuple(arrays)]
    out = blank(expected.shape, values.dtype, layout)
    run_primitive("index", out, [LAYOUTS[layout](values), *arrays])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["u8", "f32", "c128"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_index_put(name, layout, case):
    shape, arrays = selected(case)
    start = sample(name, shape)
    values = sample(name, start[tuple(arrays)].shape, seed=1)
    out, expected = LAYOUTS[layout](start), plain(start)
    run_primitive("index_put", out, [LAYOUTS[layout](values), *arrays], 0)
    expected[tuple(arrays)] = values
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_index_put_adds(name, case):
    shape, arrays = selected(case)
    start = sample(name, shape)
    values = sample(name, start[tuple(arrays)].shape, seed=1)
    out, expected = strided(start), plain(start)
    run_primitive("index_put", out, [values, *arrays], 1)
    if name == "b":
        np.logical_or.at(expected, tuple(arrays), values)
    else:
        reference("index_put", expected, [values, *arrays], accumulate=1)
    assert_same(out, expected, name)


def test_index_put_of_a_repeated_value():
    values = np.broadcast_to(np.float32(2), (100, 4))
    index, out = indices((100,), 5), np.zeros((5, 4), np.float32)
    run_primitive("index_put", out, [values, index], 1)
    np.testing.assert_array_equal(out, 2.0 * np.bincount(index, minlength=5)[:, None].repeat(4, 1))


@pytest.mark.parametrize("wrong", [7, -8])
@pytest.mark.parametrize("arrays", [1, 2, 5])
def test_index_names_the_dim(wrong, arrays):
    values = sample("f32", (7, 7, 7, 7, 7))
    chosen = [indices((9,), 7, seed) for seed in range(arrays)]
    chosen[-1][4] = wrong
    out = blank(values[tuple(np.clip(one, 0, 6) for one in chosen)].shape, values.dtype)
    with pytest.raises(KernelError, match=rf"{wrong} is .*dimension {arrays - 1} with size 7"):
        run_primitive("index", out, [values, *chosen])
    assert (out[4] == 77).all()
    for accumulate in (0, 1):
        target = plain(values)
        with pytest.raises(KernelError, match=rf"{wrong} is .*dimension {arrays - 1} with size 7"):
            run_primitive("index_put", target, [out, *chosen], accumulate)


@pytest.mark.parametrize("primitive", ["index", "index_put", "gather", "scatter", "scatter_add"])
def test_more_dims_than_a_kernel_takes(primitive):
    shape = (2,) * 15
    values = np.asfortranarray(np.arange(2**15, dtype=np.int16).reshape(shape))
    values = values.transpose(*range(0, 15, 2), *range(1, 15, 2))
    index = indices((3, 2), 2)
    if primitive.startswith("index"):
        out = np.zeros((3, 2, *shape[1:]), np.int16)
        if primitive == "index":
            run_primitive(primitive, out, [values, index])
            np.testing.assert_array_equal(out, values[index])
            return
        source, target = sample("i16", out.shape), values.copy(order="K")
        run_primitive(primitive, target, [source, index], 0)
        expected = values.copy()
        expected[index] = source
        np.testing.assert_array_equal(target, expected)
        return
    index = indices((3, *shape[1:]), 2)
    index = np.asfortranarray(index).transpose(0, *range(14, 0, -1))
    if primitive == "gather":
        out, expected = np.zeros(index.shape, np.int16), np.zeros(index.shape, np.int16)
        run_primitive(primitive, out, [values, index], 0)
        reference(primitive, expected, [values, index], dim=0)
    else:
        source = sample("i16", index.shape)
        out, expected = values.copy(order="K"), values.copy()
        run_primitive(primitive, out, [index, source], 0)
        reference(primitive, expected, [index, source], dim=0)
    np.testing.assert_array_equal(out, expected)


# ---- nonzero -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nonzero(name, layout):
    values = sample(name, (5, 4, 150), high=1, low=-1) * sample("b", (5, 4, 150))
    values = values.astype(STORED[name])
    if name in ("f16", "f32", "f64", "c64", "c128"):
        values[0, 0, :3] = -0.0
    expected = np.argwhere(values.astype(np.complex128) != 0)
    out = blank(expected.shape, np.dtype(np.int64), layout)
    run_primitive("nonzero", out, [LAYOUTS[layout](values)])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2047,), (2049,), (100_000,)])
def test_nonzero_of_any_size(shape):
    values = sample("b", shape)
    expected = np.argwhere(values)
    out = blank(expected.shape, np.dtype(np.int64))
    run_primitive("nonzero", out, [values])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("more", [-1, 1])
def test_nonzero_of_changed_elements(more):
    values = sample("b", (5000,))
    out = blank((values.sum() + more, 1), np.dtype(np.int64))
    with pytest.raises(KernelError, match="changed while they were counted") as error:
        run_primitive("nonzero", out, [values])
    assert error.value.code == E_RUNTIME

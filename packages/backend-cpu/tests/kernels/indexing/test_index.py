"""Indexing kernels: gather, scatter, scatter_add, index, index_put, nonzero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import DTYPES, run_kernel
from layouts import LAYOUTS, assert_close, empty_like, sample

from pullback.testing.kernel_calls import E_DTYPE, E_INDEX, E_RUNTIME, E_VALUE, KernelError
from pullback_cpu.runtime import threads


def random_indices(shape, length: int, seed: int = 0, low: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, length, shape)


def add_in_order(target: np.ndarray, position, value) -> None:
    target[position] = (
        (target[position] | value) if target.dtype.kind == "b" else target[position] + value
    )


# -- along one dimension --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", range(3))
def test_gather(dtype, layout, dim):
    values = sample(dtype, (4, 5, 6))
    shape = [3, 4, 5]
    shape[dim] = 8
    index = random_indices(shape, values.shape[dim])
    cut = values[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(shape))]
    out = empty_like(index, values.dtype, layout)
    run_kernel("gather", out, [LAYOUTS[layout](values), LAYOUTS[layout](index)], dim)
    np.testing.assert_array_equal(out, np.take_along_axis(cut, index, dim))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", range(3))
def test_scatter_and_scatter_add(dtype, layout, dim):
    start = sample(dtype, (4, 5, 6), seed=1)
    shape = [3, 4, 5]
    shape[dim] = 8
    index = random_indices(shape, start.shape[dim], seed=2)
    source = sample(dtype, (9, 9, 9), seed=3)[: shape[0], : shape[1], : shape[2]]
    written, added = start.copy(), start.copy()
    for position in np.ndindex(*shape):
        target = (*position[:dim], index[position], *position[dim + 1 :])
        written[target] = source[position]
        add_in_order(added, target, source[position])
    for primitive, expected in (("scatter", written), ("scatter_add", added)):
        out = LAYOUTS[layout](start.copy())
        run_kernel(primitive, out, [LAYOUTS[layout](index), LAYOUTS[layout](source)], dim)
        assert_close(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", range(2))
@pytest.mark.parametrize(
    ("mode", "combine"), list(enumerate([np.multiply, np.maximum, np.minimum]))
)
def test_scatter_reduce(dtype, layout, dim, mode, combine):
    start = sample(dtype, (5, 6), seed=1)
    shape = [4, 5]
    shape[dim] = 30
    index = random_indices(shape, start.shape[dim], seed=2)
    source = sample(dtype, shape, seed=3)
    out = LAYOUTS[layout](start.copy())
    operands = [LAYOUTS[layout](index), LAYOUTS[layout](source)]
    if mode and DTYPES[dtype].kind == "c":
        with pytest.raises(KernelError) as info:
            run_kernel("scatter_reduce", out, operands, dim, mode)
        assert info.value.code == E_DTYPE
        return
    expected = start.copy()
    for position in np.ndindex(*shape):
        target = (*position[:dim], index[position], *position[dim + 1 :])
        expected[target] = combine(expected[target], source[position])
    run_kernel("scatter_reduce", out, operands, dim, mode)
    assert_close(out, expected, scale=30)


def test_scatter_reduce_lets_nan_win():
    index = np.array([0, 0, 1, 1])
    for mode in (1, 2):
        out = np.array([0.0, np.nan])
        run_kernel("scatter_reduce", out, [index, np.array([1.0, np.nan, 5.0, -5.0])], 0, mode)
        assert np.isnan(out).all()


# One index for each row, and rows of several lengths: they are moved in memory order.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3, 700])
def test_rows_by_a_repeated_index(dtype, width):
    values = sample(dtype, (6, width))
    index = np.broadcast_to(random_indices((9, 1), 6), (9, width))
    out = empty_like(index, values.dtype)
    run_kernel("gather", out, [values, index], 0)
    np.testing.assert_array_equal(out, values[index[:, 0]])
    added, expected = values.copy(), values.copy()
    for row, position in enumerate(index[:, 0]):
        add_in_order(expected, int(position), out[row])
    run_kernel("scatter_add", added, [index, out], 0)
    assert_close(added, expected)


@pytest.fixture
def limit_threads():
    """Return what sets the limit of threads; afterwards it is what it was."""
    before = threads.get_num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)


@pytest.mark.parametrize("shape", [(200_000,), (3, 70_000), (70_000, 3), (700, 300)], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_threads_move_what_one_thread_moves(shape, dim, limit_threads):
    dim %= len(shape)
    values, source = sample("f32", shape), sample("f32", shape, seed=1)
    index = random_indices(shape, shape[dim])
    found = []
    for count in (1, 3):
        limit_threads(count)
        results = [values.copy() for _ in range(5)]
        run_kernel("gather", results[0], [values, index], dim)
        run_kernel("scatter", results[1], [index, source], dim)
        run_kernel("scatter_add", results[2], [index, source], dim)
        rows = random_indices((200_000 // values[0].size,), shape[0], low=-shape[0], seed=4)
        picked = np.zeros((len(rows), *shape[1:]), np.float32)
        run_kernel("index", picked, [values, rows])
        run_kernel("index_put", results[3], [picked, rows], 0)
        run_kernel("index_put", results[4], [picked, rows], 1)
        found.append([*results, picked])
    for one, several in zip(*found, strict=True):
        np.testing.assert_array_equal(one, several)
    np.testing.assert_array_equal(found[0][0], np.take_along_axis(values, index, dim))
    np.testing.assert_array_equal(found[0][5], values[rows])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("position", [0, 70_000, 99_999])
def test_every_thread_checks_bounds(count, position, limit_threads):
    limit_threads(count)
    index = np.zeros(100_000, np.int64)
    index[position] = 7
    source = np.zeros(100_000)
    calls = [
        ("gather", source, [np.zeros(5), index], 0),
        ("scatter_add", np.zeros(5), [index, source], 0),
        ("index", source, [np.zeros(5), index]),
        ("index_put", np.zeros(5), [source, index], 1),
    ]
    for primitive, out, *rest in calls:
        with pytest.raises(KernelError) as info:
            run_kernel(primitive, out, *rest)
        assert info.value.code == E_INDEX
        assert info.value.message == "index 7 is out of bounds for dimension 0 with size 5"


@pytest.mark.parametrize("primitive", ["gather", "scatter", "scatter_add"])
@pytest.mark.parametrize("bad", [5, -1, 2**40, -(2**40)])
def test_gather_and_scatter_check_bounds(primitive, bad):
    values = np.arange(20.0).reshape(4, 5)
    index = np.zeros((4, 3), np.int64)
    index[2, 1] = bad
    near = np.zeros((4, 3))
    operands = (near, [values, index]) if primitive == "gather" else (values, [index, near])
    with pytest.raises(KernelError) as info:
        run_kernel(primitive, *operands, 1)
    assert info.value.code == E_INDEX
    assert info.value.message == f"index {bad} is out of bounds for dimension 1 with size 5"


def test_gather_edges():
    out = np.zeros(())
    run_kernel("gather", out, [np.array(3.0), np.array(0)], 0)
    assert out == 3
    run_kernel("scatter", out, [np.array(0), np.array(4.0)], 0)
    assert out == 4
    with pytest.raises(KernelError):
        run_kernel("gather", out, [np.array(3.0), np.array(1)], 0)
    run_kernel("gather", np.zeros((0, 2)), [np.zeros((5, 2)), np.zeros((0, 2), np.int64)], 0)
    with pytest.raises(KernelError):
        run_kernel("gather", np.zeros((1, 2)), [np.zeros((0, 2)), np.zeros((1, 2), np.int64)], 0)


# -- by index arrays ------------------------------------------------------------------------------

# Shape of the indexed array, how many index arrays, their shape.
SELECTIONS = [
    ((7,), 1, (9,)),
    ((7,), 1, ()),
    ((7, 4), 1, (600,)),
    ((7, 4), 2, (600,)),
    ((7, 4), 2, (3, 5)),
    ((5, 4, 3), 1, (2, 3)),
    ((5, 4, 3), 2, (6, 1)),
    ((5, 4, 3), 3, (2, 3, 2)),
    ((5, 1, 3), 2, (4,)),
    ((5, 0, 3), 1, (4,)),
    ((5, 4), 1, (0,)),
    ((0, 4), 1, (0,)),
    ((2, 3, 4, 5), 1, (2,)),
]


def index_arrays(shape, count, selected):
    """Return index arrays of which about half the entries count from the end."""
    limits = [max(1, n) if 0 in selected else n for n in shape[:count]]
    return [random_indices(selected, n, seed=d, low=-n) for d, n in enumerate(limits)]


@pytest.mark.parametrize(("shape", "count", "selected"), SELECTIONS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_index(shape, count, selected, layout):
    indices = index_arrays(shape, count, selected)
    for dtype in DTYPES:
        values = sample(dtype, shape)
        expected = values[tuple(indices)]
        out = empty_like(np.asarray(expected), layout=layout)
        run_kernel("index", out, [LAYOUTS[layout](values), *map(LAYOUTS[layout], indices)])
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("shape", "count", "selected"), SELECTIONS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_index_put(shape, count, selected, layout):
    indices = index_arrays(shape, count, selected)
    for dtype in DTYPES:
        start = sample(dtype, shape, seed=1)
        values = sample(dtype, (*selected, *shape[count:]), seed=2)
        written, added = start.copy(), start.copy()
        for position in np.ndindex(*selected):
            target = tuple(int(index[position]) for index in indices)
            written[target] = values[position]
            add_in_order(added, target, values[position])
        for accumulate, expected in ((0, written), (1, added)):
            out = LAYOUTS[layout](start.copy())
            operands = [LAYOUTS[layout](values), *map(LAYOUTS[layout], indices)]
            run_kernel("index_put", out, operands, accumulate)
            assert_close(out, expected)


def test_index_broadcast_index_arrays_and_values():
    values = sample("f32", (6, 7))
    rows = np.broadcast_to(np.array([[1], [5], [-6]]), (3, 4))
    columns = np.broadcast_to(np.array([0, 3, 3, -1]), (3, 4))
    out = np.zeros((3, 4), np.float32)
    run_kernel("index", out, [values, rows, columns])
    np.testing.assert_array_equal(out, values[rows, columns])
    expected = values.copy()
    np.add.at(expected, (rows, columns), np.float32(2))
    run_kernel("index_put", values, [np.broadcast_to(np.float32(2), (3, 4)), rows, columns], 1)
    assert_close(values, expected)


@pytest.mark.parametrize("bad", [5, -6, 2**62, -(2**62)])
@pytest.mark.parametrize("position", [0, 700])
def test_index_checks_bounds(bad, position):
    values = np.zeros((9, 5))
    first, second = np.zeros(701, np.int64), np.zeros(701, np.int64)
    second[position] = bad
    for primitive, operands in (
        ("index", (np.zeros(701), [values, first, second])),
        ("index_put", (values, [np.zeros(701), first, second], 0)),
    ):
        with pytest.raises(KernelError) as info:
            run_kernel(primitive, *operands)
        assert info.value.code == E_INDEX
        assert info.value.message == f"index {bad} is out of bounds for dimension 1 with size 5"


def test_index_refuses_too_many_index_arrays():
    index = np.zeros(2, np.int64)
    for indices in ([index, index], []):
        with pytest.raises(KernelError) as info:
            run_kernel("index", np.zeros(2), [np.zeros(3), *indices])
        assert info.value.code == E_VALUE


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.integers(0, 4), min_size=0, max_size=3),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_index_any_shapes(shape, selected, data):
    count = data.draw(st.integers(1, len(shape)))
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    indices = [random_indices(selected, n, seed=d, low=-n) for d, n in enumerate(shape[:count])]
    expected = np.asarray(values[tuple(indices)])
    out = empty_like(expected)
    run_kernel("index", out, [values, *indices])
    np.testing.assert_array_equal(out, expected)


# -- nonzero --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(), (9,), (3, 4, 5), (2, 0), (1, 6), (40, 3), (2, 1500)], ids=str
)
def test_nonzero(dtype, layout, shape):
    values = sample(dtype, shape, low=-1, high=1)
    values = np.where(sample("bool", shape, seed=8), values, np.zeros((), values.dtype))
    expected = np.argwhere(values)
    out = empty_like(expected, layout=layout)
    run_kernel("nonzero", out, [LAYOUTS[layout](np.asarray(values))])
    np.testing.assert_array_equal(out, expected)


def test_nonzero_counts_nan_and_imaginary_parts():
    out = np.zeros((2, 1), np.int64)
    run_kernel("nonzero", out, [np.array([np.nan, -0.0, 1.0])])
    assert out[:, 0].tolist() == [0, 2]
    run_kernel("nonzero", out, [np.array([1j, 0, 1])])
    assert out[:, 0].tolist() == [0, 2]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_nonzero_never_writes_beyond_its_output(rows):
    room = np.full((5, 1), -7)
    with pytest.raises(KernelError) as info:
        run_kernel("nonzero", room[:rows], [np.array([1, 0, 1])])
    assert info.value.code == E_RUNTIME
    assert (room[rows:] == -7).all()


def test_an_index_that_changes_meanwhile_was_read_once():
    # The output overlaps the index, one element later: what is written would be the next index.
    room = np.arange(401) % 7
    index = room[:-1].copy()
    values = (np.arange(7) * 3 + 1) % 7
    run_kernel("gather", room[1:], [values, room[:-1]], 0)
    np.testing.assert_array_equal(room[1:], values[index])
    room = np.arange(401)[::-1] % 400
    index, expected = room[:-1].copy(), room[1:].copy()
    values = np.arange(400) * 3 % 400
    expected[index] = values
    run_kernel("scatter", room[1:], [room[:-1], values], 0)
    np.testing.assert_array_equal(room[1:], expected)

"""Indexing and assignment: basic, advanced, boolean; compared with NumPy; errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

import pullback as pb

SHAPE = (2, 3, 4)
ARRAY = np.arange(24.0).reshape(SHAPE)
GENERATED = settings(max_examples=150, deadline=None, derandomize=True)


def cube():
    return pb.tensor(ARRAY)


def as_index(index):
    """Replace the arrays of a NumPy index by tensors."""
    if isinstance(index, tuple):
        return tuple(as_index(i) for i in index)
    return pb.tensor(index) if isinstance(index, np.ndarray) else index


# Reading, against NumPy

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def forward_slices(size):
    return st.slices(size).map(
        lambda s: slice(s.start, s.stop, -s.step) if (s.step or 1) < 0 else s
    )


@st.composite
def basic_indices(draw, shape):
    entries, dims = [], list(shape)
    for size in dims[: draw(st.integers(0, len(dims)))]:
        choices = [forward_slices(size)]
        if size:
            choices.append(st.integers(-size, size - 1))
        entries.append(draw(st.one_of(choices)))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        # An ellipsis may shift what follows to other dimensions, so put it last.
        entries.append(...)
    return tuple(entries)


@st.composite
def advanced_indices(draw, shape):
    """Slices, None, and integer arrays that broadcast together."""
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    entries = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["slice", "array", "full"] if size else ["slice"]))
        if kind == "slice":
            entries.append(draw(forward_slices(size)))
        else:
            sides = common if kind == "full" else common[1:]
            elements = st.integers(-size, size - 1)
            entries.append(draw(hnp.arrays(np.int64, sides, elements=elements)))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


def case(index_strategy):
    return shapes.flatmap(lambda shape: st.tuples(st.just(shape), index_strategy(shape)))


def numpy_result(array, index):
    # NumPy alone gives a scalar or treats a 0-d index array as basic; both agree in value.
    return np.asarray(array[index])


@GENERATED
@given(case(basic_indices))
def test_basic_reading_is_numpys(shape_and_index):
    shape, index = shape_and_index
    array = np.arange(float(np.prod(shape))).reshape(shape)
    x = pb.tensor(array)
    result = x[index]
    expected = numpy_result(array, index)
    assert result.shape == expected.shape
    assert_array_equal(result, expected)
    assert result.numel() == 0 or result._is_view()


@GENERATED
@given(case(advanced_indices))
def test_advanced_reading_is_numpys(shape_and_index):
    shape, index = shape_and_index
    if any(isinstance(i, np.ndarray) and i.ndim == 0 for i in index):
        # NumPy lets a 0-d array select like an integer among other arrays; torch does not.
        index = tuple(i[None] if isinstance(i, np.ndarray) and i.ndim == 0 else i for i in index)
    array = np.arange(float(np.prod(shape))).reshape(shape)
    result = pb.tensor(array)[as_index(index)]
    expected = numpy_result(array, index)
    assert result.shape == expected.shape
    assert_array_equal(result, expected)


@GENERATED
@given(
    hnp.arrays(np.bool_, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4)), st.integers(0, 2)
)
def test_boolean_reading_is_numpys(mask, extra):
    shape = mask.shape + (2,) * extra
    array = np.arange(float(np.prod(shape))).reshape(shape)
    assert_array_equal(pb.tensor(array)[pb.tensor(mask)], array[mask])


@GENERATED
@given(case(basic_indices), st.floats(-5, 5))
def test_basic_assignment_is_numpys(shape_and_index, value):
    shape, index = shape_and_index
    array = np.arange(float(np.prod(shape))).reshape(shape)
    x = pb.tensor(array)
    array[index] = value
    x[index] = value
    assert_array_equal(x, array)


@GENERATED
@given(case(advanced_indices))
def test_gradient_of_reading_counts_each_element(shape_and_index):
    shape, index = shape_and_index
    x = pb.zeros(shape, dtype=pb.float64, requires_grad=True)
    x[as_index(index)].sum().backward()
    counts = np.zeros(shape)
    np.add.at(counts, index, 1.0)
    assert_array_equal(x.grad, counts)


# Reading, by hand


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        (0, 2, 3),
        slice(1, None),
        (slice(None), slice(0, 3, 2)),
        (..., 1),
        (1, ...),
        None,
        (None, ..., None),
        (),
        True,
        False,
        np.int64(1),
        (slice(5, None),),
        (slice(-100, 100),),
        (slice(None), np.array([2, 0])),
        np.array([[0, 1], [1, 0]]),
        (np.array([0, 1]), np.array([2, 0])),
        (np.array([0, 1]), slice(None), np.array([3, 0])),
        (slice(None), np.array([0, 2]), np.array([1, 3])),
        (np.array([[0], [1]]), np.array([0, 2])),
        np.array([], dtype=np.int64),
        np.array([True, False]),
        (slice(None), np.array([True, False, True])),
        (np.array([True, True]), np.array([0, 2])),
        ARRAY > 5,
        (ARRAY > 5)[:, :, 0],
    ],
    ids=repr,
)
def test_reading(index):
    result = cube()[as_index(index)]
    expected = ARRAY[index]
    assert result.shape == expected.shape
    assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ([0, 1], [0, 1]),
        ([True, False], [True, False]),
        (range(2), [0, 1]),
        (([0, 1], [0, 2]), ([0, 1], [0, 2])),
        ((slice(None), [2, 0]), (slice(None), [2, 0])),
    ],
    ids=repr,
)
def test_sequences_are_index_arrays(index, expected):
    assert_array_equal(cube()[index], ARRAY[expected])


def test_integer_beside_an_index_array_selects_first():
    # NumPy would broadcast the integer with the array and put its dimension in front.
    assert cube()[0, :, pb.tensor([0, 1])].shape == (3, 2)


def test_zero_dimensional_integer_tensor_is_an_integer():
    x = cube()
    assert_array_equal(x[pb.tensor(1)], ARRAY[1])
    assert_array_equal(x[pb.tensor(0) : pb.tensor(1)], ARRAY[0:1])


@pytest.mark.parametrize("dtype", [pb.int32, pb.int64])
def test_dtypes_of_index_tensors(dtype):
    assert_array_equal(cube()[pb.tensor([1, 0], dtype=dtype)], ARRAY[[1, 0]])


def test_basic_results_are_views_and_others_copies():
    x = cube()
    x[0, 1:].zero_()
    assert x.sum().item() == ARRAY.sum() - ARRAY[0, 1:].sum()
    before = x.tolist()
    x[pb.tensor([0])].zero_()
    x[x > 3].zero_()
    assert x.tolist() == before


def test_zero_dimensional_tensor_takes_few_indices():
    x = pb.tensor(3.0)
    assert x[...].item() == x[()].item() == 3.0
    assert x[None].tolist() == x[True].tolist() == [3.0]
    assert x[False].shape == (0,)
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        x[0]


@pytest.mark.parametrize(
    ("index", "error", "fragment"),
    [
        (2, IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
        (-3, IndexError, "index -3 is out of bounds for dimension 0 with size 2"),
        ((0, 3), IndexError, "index 3 is out of bounds"),
        ((0, 0, 0, 0), IndexError, "too many indices for tensor of dimension 3"),
        ((slice(None),) * 4, IndexError, "too many indices for tensor of dimension 3"),
        ([0, 5], IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
        (np.array([-3]), IndexError, "index -3 is out of bounds for dimension 0 with size 2"),
        (np.array([2**62]), IndexError, "out of bounds"),
        (([0, 1], [0, 1, 2]), IndexError, "indexing tensors could not be broadcast together"),
        (np.array([0.0]), IndexError, "tensors used as indices must be long, int, byte or bool"),
        (
            np.array([True] * 3),
            IndexError,
            r"The shape of the mask \[3\] at index 0 does not match",
        ),
        (1.5, IndexError, "valid indices"),
        (1j, IndexError, "valid indices"),
        ({}, IndexError, "valid indices"),
        (object, IndexError, "valid indices"),
        (slice(None, None, 0), ValueError, "step"),
        (slice(None, None, -1), ValueError, "step"),
        (slice(1, "a"), TypeError, None),
        ((slice(None), "a"), TypeError, None),
        (2**70, (ValueError, IndexError, OverflowError), None),
    ],
    ids=repr,
)
def test_refused_indices(index, error, fragment):
    x = cube()
    with pytest.raises(error, match=fragment):
        x[as_index(index)]
    with pytest.raises(error, match=fragment):
        x[as_index(index)] = 1.0


@pytest.mark.beyond_torch
def test_refused_assignment_writes_nothing():
    x = cube()
    with pytest.raises(IndexError):
        x[pb.tensor([0, 5])] = 1.0
    assert_array_equal(x, ARRAY)
    assert x._version == 0


# Assignment


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (3, 4)),
        (0, (4,)),
        (0, ()),
        ((slice(None), 1), (2, 4)),
        ((..., 0), (2, 3)),
        ((0, 0, 0), ()),
        (slice(0, 1), (1, 3, 4)),
        (np.array([0, 1]), (2, 3, 4)),
        (np.array([1]), (4,)),
        ((np.array([0, 1]), np.array([2, 0])), (2, 4)),
        ((np.array([0, 1]), slice(None), np.array([2, 0])), (2, 3)),
        (np.array([True, False]), (1, 3, 4)),
        (ARRAY > 20, (3,)),
        (ARRAY > 20, (1,)),
        (ARRAY > 20, ()),
        (None, (1, 2, 3, 4)),
        (0, (1, 1, 4)),
        (slice(5, None), (0, 3, 4)),
    ],
    ids=repr,
)
def test_assignment(index, shape):
    value = -1.0 - np.arange(float(np.prod(shape))).reshape(shape)
    array, x = ARRAY.copy(), cube()
    array[index] = value
    x[as_index(index)] = pb.tensor(value)
    assert_array_equal(x, array)
    assert x._version == 1


def test_one_element_tensor_may_be_assigned_to_an_element():
    x = pb.zeros(2)
    x[0] = pb.tensor([3.0])
    x[1] = pb.tensor([[4.0]])
    assert x.tolist() == [3.0, 4.0]


def test_assigned_scalars_are_converted():
    x = pb.arange(3)
    x[0] = 1.7
    x[1] = True
    x[pb.tensor([2])] = 4
    x[2:] = pb.tensor(9.9)
    assert x.tolist() == [1, 1, 9]


def test_assigned_tensor_is_converted_by_basic_indexing_only():
    x = pb.zeros(3)
    x[0] = pb.tensor(2, dtype=pb.int64)
    x[1:] = pb.tensor([1.5, 2.5], dtype=pb.float64)
    assert x.tolist() == [2.0, 1.5, 2.5]
    with pytest.raises(RuntimeError, match="dtype"):
        x[[0, 1]] = pb.ones(2, dtype=pb.float64)


def test_assignment_by_true_and_false():
    x = pb.zeros(2)
    x[False] = 5.0
    assert x.tolist() == [0.0, 0.0]
    x[True] = 5.0
    assert x.tolist() == [5.0, 5.0]


def test_assignment_from_an_overlapping_source():
    x = pb.arange(5)
    x[1:] = x[:-1].clone()
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_assignment_of_a_tensor_to_itself():
    x = pb.arange(4)
    x[:] = x
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("index", "value", "error", "fragment"),
    [
        (0, lambda: pb.ones(5), RuntimeError, "expanded size"),
        (0, lambda: pb.ones(2, 3, 4), RuntimeError, None),
        ((0, 0, 0), lambda: pb.ones(2), RuntimeError, None),
        (
            [0, 1],
            lambda: pb.ones(5, dtype=pb.float64),
            RuntimeError,
            "shape mismatch: value tensor",
        ),
        (ARRAY > 20, lambda: pb.ones(2, dtype=pb.float64), RuntimeError, "shape mismatch"),
        (0, lambda: "a", TypeError, "can't assign a str"),
        (0, lambda: None, TypeError, "can't assign a NoneType"),
        (0, lambda: [1.0] * 4, TypeError, "can't assign a list"),
        (0, lambda: 1j, RuntimeError, "cannot be converted"),
    ],
)
def test_refused_assignments(index, value, error, fragment):
    x = cube()
    with pytest.raises(error, match=fragment):
        x[as_index(index)] = value()
    assert_array_equal(x, ARRAY)


def test_deleting_items_is_refused():
    with pytest.raises(TypeError, match="delet"):
        del cube()[0]


# index_select, gather, index_put, where


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_index_select(dim):
    index = np.array([1, 0, 1])
    expected = np.take(ARRAY, index, dim)
    assert_array_equal(pb.index_select(cube(), dim, pb.tensor(index)), expected)
    assert_array_equal(cube().index_select(dim, pb.tensor(index, dtype=pb.int32)), expected)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (lambda: (0, pb.tensor([5])), IndexError),
        (lambda: (0, pb.tensor([-1])), IndexError),
        (lambda: (5, pb.tensor([0])), IndexError),
        (lambda: (0, pb.tensor([[0]])), IndexError),
        (lambda: (0, pb.tensor([0.0])), RuntimeError),
        (lambda: (0, [0]), TypeError),
    ],
)
def test_index_select_refuses(arguments, error):
    with pytest.raises(error):
        cube().index_select(*arguments())


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_and_its_gradient(dim):
    rng = np.random.default_rng(0)
    shape = [2, 3, 4]
    shape[dim] = 5
    index = rng.integers(0, SHAPE[dim], shape)
    x = cube().requires_grad_()
    y = pb.gather(x, dim, pb.tensor(index))
    assert_array_equal(y.detach(), np.take_along_axis(ARRAY, index, dim))
    y.sum().backward()
    assert_array_equal(x.grad.sum(dim), np.full(y.sum(dim).shape, 5.0))


def test_gather_takes_smaller_index():
    x = pb.tensor([[1, 2, 3], [4, 5, 6]])
    assert x.gather(1, pb.tensor([[2, 0]])).tolist() == [[3, 1]]


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: (1, pb.tensor([[5]])),
        lambda: (0, pb.tensor([[-1]])),
        lambda: (1, pb.tensor([[0.0]])),
        lambda: (1, pb.tensor([0])),
        lambda: (1, pb.zeros(5, 1, dtype=pb.int64)),
    ],
)
def test_gather_refuses(arguments):
    with pytest.raises((RuntimeError, IndexError)):
        cube()[0].gather(*arguments())


def test_index_put_returns_a_copy_and_accumulates():
    x = pb.zeros(3)
    index = (pb.tensor([0, 0, 2]),)
    assert x.index_put(index, pb.ones(3), accumulate=True).tolist() == [2.0, 0.0, 1.0]
    assert x.index_put(index, pb.tensor(5.0)).tolist() == [5.0, 0.0, 5.0]
    assert x.tolist() == [0.0] * 3
    assert x.index_put_(index, pb.ones(3)) is x
    assert x.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("indices", "value", "error"),
    [
        (lambda: (pb.tensor([5]),), lambda: pb.tensor(1.0, dtype=pb.float64), IndexError),
        (lambda: (pb.tensor([0]),), lambda: pb.ones(5, dtype=pb.float64), RuntimeError),
        (lambda: (pb.tensor([0]),), lambda: pb.tensor(1.0), RuntimeError),
        (lambda: (pb.tensor([0.0]),), lambda: pb.tensor(1.0, dtype=pb.float64), IndexError),
        (lambda: 3, lambda: pb.tensor(1.0), TypeError),
    ],
)
def test_index_put_refuses(indices, value, error):
    with pytest.raises(error):
        cube().index_put(indices(), value())


def test_where_broadcasts_and_promotes():
    condition = pb.tensor([[True], [False]])
    y = pb.where(condition, pb.tensor([1, 2, 3]), 0.5)
    assert y.tolist() == [[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]
    assert y.dtype == pb.float32


def test_where_with_one_argument_gives_positions():
    rows, columns = pb.where(pb.tensor([[0, 1], [1, 0]]))
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (lambda x: (x, x, x), RuntimeError),
        (lambda x: (x > 5, pb.ones(5), x), RuntimeError),
        (lambda x: (x > 5, 1.0, "a"), TypeError),
        (lambda x: (3, x, x), TypeError),
    ],
)
def test_where_refuses(arguments, error):
    with pytest.raises(error):
        pb.where(*arguments(cube()))


def test_masked_fill():
    x = pb.tensor([[1.0, 2.0], [3.0, 4.0]])
    mask = pb.tensor([True, False])
    assert x.masked_fill(mask, 9).tolist() == [[9.0, 2.0], [9.0, 4.0]]
    assert x.masked_fill(mask, pb.tensor(9.0)).tolist() == [[9.0, 2.0], [9.0, 4.0]]
    for bad in ((x, 1.0), (mask, pb.ones(2)), (pb.tensor([True] * 3), 1.0)):
        with pytest.raises(RuntimeError):
            x.masked_fill(*bad)


# Several ellipses, and bare bools


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((..., ...), (2, 3)),
        ((..., 0, ...), (2,)),
        ((0, ..., ...), (3,)),
        ((..., 0, ..., 0), ()),
        ((..., None, ...), (2, 3, 1)),
        ((0, ..., 0, ...), ()),
    ],
)
def test_each_ellipsis_takes_all_free_dims(key, shape):
    x = pb.zeros(2, 3)
    assert x[key].shape == shape
    x[key] = 1
    assert x.sum().item() == x[key].numel()
    assert pb.tensor(2.0)[..., ...].item() == 2


@pytest.mark.parametrize(
    "key",
    [
        (..., ..., 0),
        (..., ..., pb.tensor([0])),
        (..., ..., pb.tensor([True])),
        (..., ..., True),
        (..., ..., None),
    ],
)
def test_parts_behind_the_last_dim_are_refused(key):
    x = pb.zeros(2, 3)
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError):
        x[key] = 1


def test_a_bare_bool_chooses_all_or_nothing():
    x = pb.zeros(3)
    for value in (pb.ones(7), pb.ones(2, 3), pb.ones(3, dtype=pb.int64), 5):
        x[False] = value
    assert x.tolist() == [0.0, 0.0, 0.0]
    x[True] = pb.ones(3, dtype=pb.int64)
    assert x.tolist() == [1.0, 1.0, 1.0]
    x[True] = pb.full((1, 3), 2.0)
    assert x.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="must match the existing size"):
        x[True] = pb.ones(7)
    y = pb.tensor(1.0)
    y[False] = 3
    assert y.item() == 1
    y[True] = 3
    assert y.item() == 3


# ---- indices kept for backward -------------------------------------------------------------------

KEEPING_INDICES = {
    "index": lambda x, index: x[index],
    "index_put": lambda x, index: x.index_put((index,), pb.zeros(2)),
    "index_select": lambda x, index: x.index_select(0, index),
}


@pytest.mark.parametrize("op", KEEPING_INDICES.values(), ids=KEEPING_INDICES)
def test_indices_written_after_use_are_noticed(op):
    x = pb.arange(4.0, requires_grad=True)
    index = pb.tensor([0, 1])
    y = op(x * 1, index)
    index.add_(1)
    with pytest.raises(
        RuntimeError,
        match=r"modified by an inplace operation: "
        r"\[pullback.int64 \[2\]\]",
    ):
        y.sum().backward()


@pytest.mark.parametrize("op", KEEPING_INDICES.values(), ids=KEEPING_INDICES)
def test_indices_are_freed_with_the_graph(op):
    x = pb.arange(4.0, requires_grad=True)
    y = op(x, pb.tensor([0, 1]))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.sum().backward()


def test_indices_go_through_saved_tensor_hooks():
    packed, unpacked = [], []

    def unpack(tensor):
        unpacked.append(tensor)
        return tensor + 1

    x = pb.arange(4.0, requires_grad=True)
    with pb.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, unpack):
        y = x[pb.tensor([0, 1])]
    y.sum().backward()
    assert [t.tolist() for t in packed] == [[0, 1]]
    assert len(unpacked) == 1
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_hook_that_gives_no_index():
    x = pb.arange(4.0, requires_grad=True)
    with pb.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x[pb.tensor([0, 1])]
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected"):
        y.sum().backward()


def test_formulas_of_a_node_share_what_the_hook_unpacks():
    unpacked = []
    x, y = pb.zeros(3, requires_grad=True), pb.ones(2, requires_grad=True)
    hooks = pb.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        z = x.index_put((pb.tensor([0, 1]),), y)
    z.sum().backward()
    assert len(unpacked) == 1
    assert x.grad.tolist() == [0.0, 0.0, 1.0]
    assert y.grad.tolist() == [1.0, 1.0]

"""Writes and reductions at index tensors: forms of calls, aliasing, derivatives, errors."""

import math

import pytest

import pullback as pb

NAN = math.nan


def double(values):
    return pb.tensor(values, dtype=pb.float64)


def gradients(function, *values):
    inputs = [double(value).requires_grad_() for value in values]
    result = function(*inputs)
    weights = pb.arange(1, result.numel() + 1, dtype=pb.float64).reshape(result.shape)
    return [g.tolist() for g in pb.autograd.grad(result, inputs, weights)]


# scatter


def test_forms_of_scatter():
    x, index = double([1.0, 2.0, 3.0]), pb.tensor([2, 0])
    assert x.scatter(0, index, double([5.0, 6.0])).tolist() == [6.0, 2.0, 5.0]
    assert x.scatter(0, index, src=double([5.0, 6.0])).tolist() == [6.0, 2.0, 5.0]
    assert x.scatter(0, index, 7.0).tolist() == [7.0, 2.0, 7.0]
    assert pb.scatter(x, 0, index, value=7).tolist() == [7.0, 2.0, 7.0]
    assert x.scatter(0, index.int(), 7).tolist() == [7.0, 2.0, 7.0]
    assert x.scatter(0, pb.tensor([2, 2]), 2.0, reduce="multiply").tolist() == [1.0, 2.0, 12.0]
    assert x.scatter(0, pb.tensor([2, 2]), 2.0, reduce="add").tolist() == [1.0, 2.0, 7.0]
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert x.scatter_(0, index, 7.0) is x
    assert x.tolist() == [7.0, 2.0, 7.0]
    assert pb.tensor([1, 2]).scatter(0, pb.tensor([0]), 1.5).tolist() == [1, 2]


def test_derivatives_of_scatter():
    index = pb.tensor([2, 0])
    mine, others = gradients(lambda x, s: x.scatter(0, index, s), [1.0, 2.0, 3.0], [5.0, 6.0])
    assert mine == [0.0, 2.0, 0.0]
    assert others == [3.0, 1.0]
    assert gradients(lambda x: x.scatter(0, index, 4.0), [1.0, 2.0, 3.0]) == [[0.0, 2.0, 0.0]]


@pytest.mark.parametrize(
    ("reduce", "with_self", "without_self"),
    [
        ("sum", [9.0, 8.0, 3.0], [8.0, 6.0, 3.0]),
        ("prod", [15.0, 12.0, 3.0], [15.0, 6.0, 3.0]),
        ("mean", [3.0, 4.0, 3.0], [4.0, 6.0, 3.0]),
        ("amax", [5.0, 6.0, 3.0], [5.0, 6.0, 3.0]),
        ("amin", [1.0, 2.0, 3.0], [3.0, 6.0, 3.0]),
    ],
)
def test_scatter_reduce(reduce, with_self, without_self):
    x, src, index = double([1.0, 2.0, 3.0]), double([3.0, 5.0, 6.0]), pb.tensor([0, 0, 1])
    assert x.scatter_reduce(0, index, src, reduce).tolist() == with_self
    found = x.scatter_reduce(0, index, src, reduce, include_self=False)
    assert found.tolist() == without_self
    if reduce != "sum":
        assert x.index_reduce(0, index, src, reduce).tolist() == with_self
        assert x.index_reduce(0, index, src, reduce, include_self=False).tolist() == without_self
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert x.scatter_reduce_(0, index, src, reduce).tolist() == with_self


def test_scatter_reduce_of_integers_and_nan():
    x = pb.tensor([0, 5])
    index = pb.tensor([0, 0])
    assert x.scatter_reduce(0, index, pb.tensor([-3, -4]), "mean").tolist() == [-3, 5]
    found = double([1.0, 2.0]).scatter_reduce(0, index, double([NAN, 1.0]), "amax")
    assert math.isnan(found[0].item())
    assert found[1].item() == 2.0


@pytest.mark.parametrize(
    ("reduce", "include_self", "values", "src", "expected"),
    [
        ("sum", True, [1, 2, 3], [4, 5, 6], ([1, 2, 3], [1, 1, 2])),
        ("sum", False, [1, 2, 3], [4, 5, 6], ([0, 0, 3], [1, 1, 2])),
        ("mean", True, [1, 2, 3], [4, 5, 6], ([1 / 3, 1, 3], [1 / 3, 1 / 3, 1])),
        ("mean", False, [1, 2, 3], [4, 5, 6], ([0, 0, 3], [0.5, 0.5, 2])),
        ("prod", True, [1, 2, 3], [4, 5, 6], ([20, 12, 3], [5, 4, 4])),
        ("prod", True, [1, 2, 3], [4, 0, 6], ([0, 12, 3], [0, 4, 4])),
        ("prod", True, [0, 2, 3], [4, 3, 6], ([12, 12, 3], [0, 0, 4])),
        ("prod", False, [1, 2, 3], [4, 0, 0], ([0, 0, 3], [0, 4, 2])),
        ("amax", True, [5, 2, 3], [5, 5, 1], ([1 / 3, 2, 3], [1 / 3, 1 / 3, 0])),
        ("amin", True, [5, 2, 3], [5, 5, 1], ([1 / 3, 0, 3], [1 / 3, 1 / 3, 2])),
        ("amax", False, [5, 2, 3], [5, 5, 1], ([0, 0, 3], [1 / 3, 1 / 3, 2])),
    ],
)
def test_derivatives_of_scatter_reduce(reduce, include_self, values, src, expected):
    index = pb.tensor([0, 0, 1])
    found = gradients(
        lambda x, s: x.scatter_reduce(0, index, s, reduce, include_self=include_self), values, src
    )
    assert found[0] == pytest.approx(expected[0])
    assert found[1] == pytest.approx(expected[1])


@pytest.mark.beyond_torch
def test_second_derivative_of_a_scattered_product_with_two_zeros():
    x, src = double([2.0]), double([0.0, 3.0, 0.0]).requires_grad_()
    result = x.scatter_reduce(0, pb.tensor([0, 0, 0]), src, "prod")
    (g,) = pb.autograd.grad(result.sum(), src, create_graph=True)
    (second,) = pb.autograd.grad(g[0], src)
    assert second.tolist() == [0.0, 0.0, 6.0]


# slices


def test_slices_at_an_index():
    x, rows = double([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), pb.tensor([2, 0])
    src = double([[10.0, 20.0], [30.0, 40.0]])
    assert x.index_add(0, rows, src).tolist() == [[31.0, 42.0], [3.0, 4.0], [15.0, 26.0]]
    assert x.index_add(0, rows, src, alpha=-1).tolist()[1:] == [[3.0, 4.0], [-5.0, -14.0]]
    assert x.index_copy(0, rows, src).tolist() == [[30.0, 40.0], [3.0, 4.0], [10.0, 20.0]]
    assert x.index_fill(1, pb.tensor([-1]), 0).tolist() == [[1.0, 0.0], [3.0, 0.0], [5.0, 0.0]]
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for name, arguments in {
        "index_add_": (src,),
        "index_copy_": (src,),
        "index_fill_": (3,),
        "index_reduce_": (src, "amax"),
    }.items():
        y = x.clone()
        assert getattr(y, name)(0, rows, *arguments) is y
        assert y._version > 0


def test_index_add_counts_equal_indices_each_time():
    assert pb.zeros(2).index_add(0, pb.tensor([1, 1, 1]), pb.ones(3)).tolist() == [0.0, 3.0]


def test_derivatives_of_slices():
    index, x, src = pb.tensor([0, 0]), [1.0, 2.0], [3.0, 4.0]
    assert gradients(lambda x, s: x.index_add(0, index, s, alpha=3), x, src) == [
        [1.0, 2.0],
        [3.0, 3.0],
    ]
    once = pb.tensor([1, 0])
    assert gradients(lambda x, s: x.index_copy(0, once, s), x, src) == [[0.0, 0.0], [2.0, 1.0]]
    fill = gradients(lambda x, v: x.index_fill(0, index, v), x, 5.0)
    assert fill == [[0.0, 2.0], 1.0]


# masks and flat indices


def test_masks_are_broadcast():
    x, mask = double([[1.0, 2.0], [3.0, 4.0]]), pb.tensor([True, False])
    assert x.masked_select(mask).tolist() == [1.0, 3.0]
    assert x[0].masked_select(pb.tensor([[True], [True]])).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert x.masked_scatter(mask, double([8.0, 9.0, 7.0])).tolist() == [[8.0, 2.0], [9.0, 4.0]]
    assert gradients(lambda x: x[0].masked_select(pb.tensor([[True], [True]])), x.tolist()) == [
        [[4.0, 6.0], [0.0, 0.0]]
    ]
    mine, others = gradients(lambda x, s: x.masked_scatter(mask, s), x.tolist(), [8.0, 9.0, 7.0])
    assert mine == [[0.0, 2.0], [0.0, 4.0]]
    assert others == [1.0, 3.0, 0.0]


def test_take_and_put():
    x = double([[1.0, 2.0], [3.0, 4.0]])
    assert x.take(pb.tensor([[0, -1], [2, 2]])).tolist() == [[1.0, 4.0], [3.0, 3.0]]
    assert x.t().take(pb.tensor([1])).tolist() == [3.0]
    assert x.put(pb.tensor([0, -1]), double([8.0, 9.0])).tolist() == [[8.0, 2.0], [3.0, 9.0]]
    added = x.put(pb.tensor([1, 1]), double([8.0, 9.0]), accumulate=True)
    assert added.tolist() == [[1.0, 19.0], [3.0, 4.0]]
    y = x.clone()
    assert y.t().put_(pb.tensor([1]), double([7.0]))._base is y
    assert y.tolist() == [[1.0, 2.0], [7.0, 4.0]]
    assert gradients(lambda x: x.take(pb.tensor([0, 3, 3])), x.tolist()) == [
        [[1.0, 0.0], [0.0, 5.0]]
    ]


def test_take_along_dim():
    x = pb.tensor([[3, 1, 2], [6, 5, 4]])
    assert x.take_along_dim(x.argsort(1), 1).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.take_along_dim(pb.tensor([[0], [2]]), 1).tolist() == [[3], [4]]
    assert x.take_along_dim(pb.tensor([5, 0])).tolist() == [4, 3]


def test_nonzero_and_where_of_0d_tensors():
    assert [part.tolist() for part in pb.tensor(3).nonzero(as_tuple=True)] == [[0]]
    assert [part.tolist() for part in pb.where(pb.tensor(0))] == [[]]
    assert pb.tensor(3).nonzero().shape == (1, 0)
    rows, columns = pb.where(pb.tensor([[True, False], [False, True]]))
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [0, 1])


def test_writes_refuse_leaves_that_require_grad():
    x = pb.ones(3, requires_grad=True)
    for call in (
        lambda: x.scatter_(0, pb.tensor([0]), 1.0),
        lambda: x.index_add_(0, pb.tensor([0]), pb.ones(1)),
        lambda: x.put_(pb.tensor([0]), pb.ones(1)),
        lambda: x.masked_scatter_(pb.ones(3, dtype=pb.bool), pb.ones(3)),
    ):
        with pytest.raises(RuntimeError, match="leaf"):
            call()


def ones():
    return pb.ones(3, 4)


ZERO = [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ones().gather(0, pb.tensor([[9]])), RuntimeError, "index 9 is out of bounds"),
        (lambda: ones().gather(0, pb.tensor([[-1]])), RuntimeError, "index -1 is out of bounds"),
        (lambda: ones().gather(0, pb.tensor([[0.0]])), RuntimeError, "index"),
        (lambda: ones().gather(0, pb.tensor([0])), RuntimeError, "same number of dimensions"),
        (lambda: ones().gather(4, pb.tensor([[0]])), IndexError, "Dimension out of range"),
        (lambda: ones().scatter(0, pb.tensor([[9]]), 1), RuntimeError, "index 9 is out of bounds"),
        (lambda: ones().scatter(0, pb.tensor(ZERO), double([[1.0]])), RuntimeError, "dtype"),
        (lambda: ones().scatter(0, pb.tensor(ZERO), pb.ones(1, 3)), RuntimeError, "no larger"),
        (lambda: ones().scatter(0, pb.tensor(ZERO), 1, reduce="x"), RuntimeError, "add or mult"),
        (lambda: ones().scatter(0, pb.tensor(ZERO), 2j), RuntimeError, "overflow"),
        (lambda: ones().scatter(0, pb.tensor(ZERO)), TypeError, "scatter"),
        (
            lambda: ones().scatter_reduce(0, pb.tensor([[-1]]), pb.ones(1, 1), "amax"),
            RuntimeError,
            "index -1 is out of bounds",
        ),
        (
            lambda: ones().scatter_reduce(0, pb.tensor([[0]]), pb.ones(1, 1), "x"),
            RuntimeError,
            "sum, prod, mean, amax or amin",
        ),
        (
            lambda: ones().index_reduce(0, pb.tensor([0]), pb.ones(1, 4), "sum"),
            RuntimeError,
            "prod, mean, amax or amin",
        ),
        (lambda: ones().index_add(0, pb.tensor([5]), pb.ones(1, 4)), RuntimeError, "index 5"),
        (lambda: ones().index_add(0, pb.tensor([0]), pb.ones(2, 4)), RuntimeError, "Number of"),
        (lambda: ones().index_add(0, pb.tensor([0]), pb.ones(1, 2)), RuntimeError, "must match"),
        (lambda: ones().index_add(0, pb.tensor([[0]]), pb.ones(1, 4)), IndexError, "vector"),
        (lambda: ones().index_copy(0, pb.tensor([5]), pb.ones(1, 4)), IndexError, "index 5"),
        (lambda: ones().index_copy(0, pb.tensor([0]), pb.ones(1, 2)), RuntimeError, "slice shapes"),
        (lambda: ones().index_fill(0, pb.tensor([9]), 1), IndexError, "out of bounds"),
        (lambda: ones().index_fill(0, pb.tensor([0]), pb.ones(2)), RuntimeError, "0-dimensional"),
        (lambda: ones().masked_select(ones()), RuntimeError, "BoolTensor"),
        (lambda: ones().masked_select(pb.ones(2) > 0), RuntimeError, "must match"),
        (lambda: ones().masked_scatter(ones() > 0, pb.ones(2)), RuntimeError, "Number of elements"),
        (lambda: ones().take(pb.tensor([12])), IndexError, "tried to access index 12"),
        (lambda: ones().take(pb.tensor([0.0])), RuntimeError, "long"),
        (lambda: pb.zeros(0).take(pb.tensor([0])), IndexError, "empty tensor"),
        (lambda: ones().put(pb.tensor([12]), pb.ones(1)), IndexError, "tried to access index 12"),
        (lambda: ones().put(pb.tensor([0, 1]), pb.ones(1)), IndexError, "same number of elements"),
        (lambda: ones().put(pb.tensor([0]), double([1.0])), RuntimeError, "same dtype"),
        (lambda: ones().take_along_dim(pb.tensor([0]), 0), RuntimeError, "number of dimensions"),
        (
            lambda: pb.ones(()).index_add(0, pb.tensor([0, 0]), pb.ones(())),
            IndexError,
            "scalar|no dimensions",
        ),
        (lambda: pb.ones(()).index_copy(0, pb.tensor([0, 0]), pb.ones(())), IndexError, "scalar"),
        (lambda: ones().index_copy(0, pb.tensor([1]), pb.ones(())), RuntimeError, "slice shapes"),
        (lambda: pb.ones(()).index_select(0, pb.tensor([0, 0])), RuntimeError, "only 1 value"),
        (
            lambda: pb.ones(3).scatter(0, pb.tensor([0]), pb.ones(1, 1)),
            RuntimeError,
            "same number of dimensions as src tensor",
        ),
        (
            lambda: ones().index_put((pb.ones(5) > 0,), pb.tensor(1.0)),
            IndexError,
            r"mask \[5\] at index 0 does not match the shape of the indexed tensor \[3, 4\]",
        ),
        (lambda: ones()[pb.tensor([1, 0, 1, 0], dtype=pb.uint8)], IndexError, "shape of the mask"),
        (lambda: pb.zeros(0, 0)[pb.tensor([0])], IndexError, "dimension with size 0"),
        (
            lambda: pb.zeros(0, 0).index_put((pb.tensor([0]),), pb.tensor(1.0)),
            IndexError,
            "dimension with size 0",
        ),
        (lambda: pb.zeros(0, 0).index_select(1, pb.tensor([0])), RuntimeError, "nothing to select"),
        (
            lambda: pb.zeros(2, dtype=pb.int8).masked_fill(pb.ones(2) > 0, 300),
            RuntimeError,
            "without overflow",
        ),
        (
            lambda: pb.zeros(2, dtype=pb.int64).masked_fill(pb.ones(2) > 0, float("nan")),
            RuntimeError,
            "without overflow",
        ),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.scatter_(0, pb.tensor([1, 2]), x[:2]),
        lambda x: x.scatter_add_(0, pb.tensor([1, 2]), x[:2]),
        lambda x: x.scatter_reduce_(0, pb.tensor([1, 2]), x[:2], "prod"),
        lambda x: x.index_add_(0, pb.tensor([1, 2]), x[:2]),
        lambda x: x.index_copy_(0, pb.tensor([1, 2]), x[:2]),
        lambda x: x.put_(pb.tensor([1, 2]), x[:2]),
    ],
)
def test_writes_refuse_a_source_that_they_overwrite(call):
    with pytest.raises(RuntimeError, match="single memory location"):
        call(pb.ones(3))


TOO_FEW = {
    "scatter": lambda x, i, src: x.scatter(0, i, src),
    "scatter_add": lambda x, i, src: x.scatter_add(0, i, src),
    "scatter_reduce": lambda x, i, src: x.scatter_reduce(0, i, src, "amax"),
    "scatter by prod": lambda x, i, src: x.scatter(0, i, src, reduce="multiply"),
}


@pytest.mark.parametrize("name", TOO_FEW)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_an_index_without_dims_needs_a_source_element(name, shape):
    x, index = pb.ones(shape), pb.tensor(0)
    with pytest.raises(RuntimeError, match=r"Expected index \[\] to be no larger than self"):
        TOO_FEW[name](x, index, pb.zeros(0))
    assert TOO_FEW[name](x, index, pb.ones(1)).shape == shape
    assert TOO_FEW[name](x, pb.tensor([0]), pb.ones(())).shape == shape


def test_an_index_that_is_overwritten_is_refused_as_such():
    x = pb.arange(3)
    for call in (
        lambda: x.index_copy_(0, x, pb.tensor([2, 1, 0])),
        lambda: x.index_add_(0, x, pb.tensor([2, 1, 0])),
        lambda: x.scatter_(0, x, pb.tensor([2, 1, 0])),
    ):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert x.tolist() == [0, 1, 2]


def test_no_index_into_nothing():
    assert pb.zeros(0, 3)[pb.tensor([], dtype=pb.int64)].shape == (0, 3)
    assert pb.zeros(3, 0)[pb.tensor([2, 0])].shape == (2, 0)
    assert pb.zeros(3, 0).index_select(0, pb.tensor([1])).shape == (1, 0)


def test_tensors_without_dims_count_as_vectors():
    x, twice = pb.tensor(1.0), pb.tensor([0, 0])
    assert x.scatter(0, twice, pb.tensor([5.0, 6.0])).item() == 6
    assert x.index_copy(0, twice, pb.tensor([5.0, 6.0])).item() == 6
    assert x.index_fill(0, twice, 3).item() == 3
    assert x.gather(0, twice).tolist() == [1.0, 1.0]
    assert pb.tensor([1.0, 2.0]).gather(0, pb.tensor(1)).item() == 2
    assert pb.zeros(3).scatter(0, pb.tensor([1]), pb.tensor(5.0)).tolist() == [0.0, 5.0, 0.0]
    assert pb.zeros(2, 3).gather(0, pb.zeros(0, 4, dtype=pb.int64)).shape == (0, 4)


def test_assignment_refuses_what_it_overwrites():
    x = pb.arange(4.0)
    for key in ([1, 2, 3], pb.tensor([True, True, True, False])):
        with pytest.raises(RuntimeError, match="single memory location"):
            x[key] = x[:3]
    with pytest.raises(RuntimeError, match="single memory location"):
        x.index_put_((pb.tensor([1, 2]),), x[:2], True)
    x[x > 1] = x[1]
    assert x.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert x[:3].index_fill_(0, pb.tensor([0]), x[1]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax"])
def test_a_source_larger_than_the_index_has_zeros_behind_it(reduce):
    s = pb.tensor([2.0, 3.0], requires_grad=True)
    out = pb.scatter_reduce(pb.ones(2), 0, pb.tensor([0]), s, reduce)
    out.sum().backward()
    assert s.grad.tolist() == [0.5 if reduce == "mean" else 1.0, 0.0]


def test_all_modes_of_scatter_add_with_a_larger_source():
    index = pb.tensor([[1, 0]])
    f = lambda s: pb.zeros(2, 2).scatter_add(0, index, s).pow(2).sum()  # noqa: E731
    s = pb.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = pb.diag(pb.tensor([2.0, 2.0, 0.0, 0.0, 0.0, 0.0]))
    for first in (pb.func.jacfwd, pb.func.jacrev):
        for second in (pb.func.jacfwd, pb.func.jacrev):
            assert pb.equal(first(second(f))(s).reshape(6, 6), expected)

"""Sorting, sets and counts: order of equals and of NaN, forms of calls, derivatives, errors."""

import math

import pytest

import pullback as pb

NAN, INF = math.nan, math.inf


def gradient(function, values):
    x = pb.tensor(values, dtype=pb.float64, requires_grad=True)
    (g,) = pb.autograd.grad(function(x).sum(), x)
    return g.tolist()


# sort, topk, kthvalue


def test_sort_puts_nan_last_and_first_when_descending():
    x = pb.tensor([NAN, 1.0, INF, -INF])
    assert x.sort().indices.tolist() == [3, 1, 2, 0]
    assert x.sort(descending=True).indices.tolist() == [0, 2, 1, 3]
    assert x.argsort(descending=True).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("count", [7, 100, 3000])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_keeps_the_order_of_equals(count, descending):
    x = pb.arange(count) % 3
    indices = pb.sort(x, stable=True, descending=descending).indices.tolist()
    expected = sorted(range(count), key=lambda k: (-(k % 3) if descending else k % 3, k))
    assert indices == expected


def test_sort_along_other_dims_and_of_bools():
    x = pb.tensor([[3, 1], [2, 5]])
    assert x.sort(0).values.tolist() == [[2, 1], [3, 5]]
    assert x.msort().tolist() == [[2, 1], [3, 5]]
    assert x.sort(dim=-1, descending=True).values.tolist() == [[3, 1], [5, 2]]
    assert pb.tensor([True, False]).sort().indices.tolist() == [1, 0]
    assert pb.tensor(2.0).sort().indices.item() == 0


def test_topk_and_kthvalue():
    x = pb.tensor([[3.0, 1.0, NAN, 2.0], [4.0, 7.0, 5.0, 6.0]])
    values, indices = x.topk(2)
    assert math.isnan(values[0, 0].item())
    assert indices.tolist() == [[2, 0], [1, 3]]
    assert x.topk(1, 0, largest=False).values.tolist()[0][:2] == [3.0, 1.0]
    assert x.kthvalue(2, 1).values.tolist() == [2.0, 5.0]
    assert x.kthvalue(2, keepdim=True).indices.tolist() == [[3], [2]]
    assert x.topk(0).values.shape == (2, 0)


def test_derivatives_go_to_the_chosen_elements():
    assert gradient(lambda x: x.sort()[0] * pb.arange(3), [5.0, 1.0, 3.0]) == [2.0, 0.0, 1.0]
    assert gradient(lambda x: x.topk(2)[0], [5.0, 1.0, 3.0]) == [1.0, 0.0, 1.0]
    assert gradient(lambda x: x.kthvalue(2)[0], [5.0, 1.0, 3.0]) == [0.0, 0.0, 1.0]


def test_node_names():
    x = pb.ones(3, requires_grad=True)
    for name, call in {
        "SortBackward0": x.sort,
        "TopkBackward0": lambda: x.topk(1),
        "KthvalueBackward0": lambda: x.kthvalue(1),
    }.items():
        values, indices = call()
        assert values.grad_fn.name() == name
        assert not indices.requires_grad


def test_out_of_a_pair():
    values, indices = pb.empty(0), pb.empty(0, dtype=pb.int64)
    pb.topk(pb.tensor([1.0, 3.0, 2.0]), 2, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([3.0, 2.0], [1, 2])


# sets


def test_everything_that_unique_returns():
    x = pb.tensor([[3, 1], [2, 1]])
    values, inverse, counts = pb.unique(x, return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 3]
    assert inverse.tolist() == [[2, 0], [1, 0]]
    assert counts.tolist() == [2, 1, 1]
    assert x.unique().tolist() == [1, 2, 3]
    assert x.unique(return_counts=True)[1].tolist() == [2, 1, 1]


def test_unique_slices_are_in_lexicographic_order():
    x = pb.tensor([[3, 1, 0], [2, 1, 5], [3, 1, 0], [2, 0, 9]])
    values, inverse, counts = x.unique(dim=0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[2, 0, 9], [2, 1, 5], [3, 1, 0]]
    assert inverse.tolist() == [2, 1, 2, 0]
    assert counts.tolist() == [1, 1, 2]
    assert x.unique(dim=1).shape == (4, 3)


def test_unique_takes_zeros_for_equal_and_nan_for_different():
    assert pb.tensor([0.0, -0.0]).unique().shape == (1,)
    assert pb.tensor([NAN, 1.0, NAN]).unique().shape == (3,)
    assert pb.tensor([NAN, NAN]).unique_consecutive().shape == (2,)


def test_unique_consecutive():
    x = pb.tensor([1, 1, 2, 2, 1])
    values, inverse, counts = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 1]
    assert inverse.tolist() == [0, 0, 1, 1, 2]
    assert counts.tolist() == [2, 2, 1]
    rows = pb.tensor([[1, 1], [1, 1], [2, 2]])
    assert rows.unique_consecutive(dim=0).tolist() == [[1, 1], [2, 2]]
    assert pb.zeros(0, 3).unique_consecutive(dim=0).shape == (0, 3)


def test_isin():
    x = pb.tensor([1.0, NAN, 3.0])
    assert pb.isin(x, pb.tensor([NAN, 3.0])).tolist() == [False, False, True]
    assert pb.isin(x, 3, invert=True).tolist() == [True, True, False]
    assert pb.isin(3, x).item()
    assert pb.isin(x, pb.zeros(0)).tolist() == [False] * 3
    assert pb.isin(pb.tensor([1, 2]), pb.tensor([1.5, 2.0])).tolist() == [False, True]


# indices and counts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 3, 3]),
        ({"right": True}, [1, 2, 3, 3]),
        ({"side": "right"}, [1, 2, 3, 3]),
        ({"side": "left"}, [0, 1, 3, 3]),
    ],
)
def test_places_among_sorted_elements(options, expected):
    bounds = pb.tensor([1.0, 3.0, 4.0])
    values = pb.tensor([1.0, 3.0, 5.0, NAN])
    assert pb.searchsorted(bounds, values, **options).tolist() == expected


def test_searchsorted_of_rows_numbers_and_sorters():
    rows = pb.tensor([[1, 3, 5], [2, 4, 6]])
    assert pb.searchsorted(rows, pb.tensor([[3, 6], [3, 6]])).tolist() == [[1, 3], [1, 2]]
    assert pb.searchsorted(rows[0], 4).item() == 2
    assert pb.searchsorted(rows[0], 3.5).item() == 2
    mixed, order = pb.tensor([5, 1, 3]), pb.tensor([1, 2, 0])
    assert pb.searchsorted(mixed, pb.tensor([2, 9]), sorter=order).tolist() == [1, 3]
    assert pb.searchsorted(rows[0], rows, out_int32=True).dtype == pb.int32
    assert pb.bucketize(2, rows[0]).item() == 1
    assert pb.bucketize(pb.tensor([1, 3]), rows[0], right=True).tolist() == [1, 2]


def test_bincount():
    x = pb.tensor([1, 1, 4])
    assert x.bincount().tolist() == [0, 2, 0, 0, 1]
    assert x.bincount(minlength=7).shape == (7,)
    assert x.bincount(pb.tensor([0.5, 1.0, 2.0])).tolist() == [0.0, 1.5, 0.0, 0.0, 2.0]
    assert x.bincount(pb.tensor([5, 1, 2])).dtype == pb.float64
    assert pb.zeros(0, dtype=pb.int64).bincount().shape == (0,)


def test_histograms():
    x = pb.tensor([0.0, 0.75, 1.5, 2.25, 3.0, 3.1, -1.0, NAN])
    assert x.histc(4, 0, 3).tolist() == [1.0, 1.0, 1.0, 2.0]
    assert pb.tensor([1.0, 1.0]).histc(4).tolist() == [0.0, 0.0, 2.0, 0.0]
    assert pb.tensor([3e38, -3e38, 0.0]).histc(4).tolist() == [1.0, 0.0, 1.0, 1.0]
    assert pb.tensor([3e38, 0.0]).histc(4, 0, 3e38).tolist() == [1.0, 0.0, 0.0, 1.0]
    hist, edges = pb.histogram(pb.tensor([1.0, 2.0, 1.0]), 4, range=(0.0, 3.0))
    assert hist.tolist() == [0.0, 2.0, 1.0, 0.0]
    assert edges.tolist() == [0.0, 0.75, 1.5, 2.25, 3.0]
    found = pb.histogram(pb.tensor([1.0, 2.0]), pb.tensor([0.0, 1.0, 3.0]), density=True)
    assert found.hist.tolist() == [0.0, 0.5]
    assert found.bin_edges.tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.ones(3).sort(1), IndexError, "Dimension out of range"),
        (lambda: pb.ones(3, dtype=pb.complex64).sort(), RuntimeError, "complex"),
        (lambda: pb.ones(3).topk(4), RuntimeError, "k out of range"),
        (lambda: pb.ones(3).topk(1.5), TypeError, "must be int"),
        (lambda: pb.ones(3, dtype=pb.bool).topk(1), RuntimeError, "bool"),
        (lambda: pb.ones(3).kthvalue(0), RuntimeError, "out of range for dimension 0"),
        (lambda: pb.zeros(0).kthvalue(1), IndexError, "non-zero size"),
        (lambda: pb.ones(3, dtype=pb.complex64).unique(), NotImplementedError, "unique"),
        (lambda: pb.tensor(1).unique(dim=0), IndexError, "no dimensions"),
        (lambda: pb.zeros(0, 3).unique(dim=1), RuntimeError, "0 sized dimensions"),
        (lambda: pb.isin(1, 2), TypeError, "isin"),
        (lambda: pb.isin(pb.ones(1, dtype=pb.bool), 1), RuntimeError, "Unsupported input"),
        (lambda: pb.searchsorted(pb.tensor(1), pb.ones(1)), RuntimeError, "positive dimension"),
        (lambda: pb.searchsorted(pb.ones(2, 3), pb.ones(3)), RuntimeError, "first N-1 dimensions"),
        (lambda: pb.searchsorted(pb.ones(2, 3), 1), RuntimeError, "can be a scalar only"),
        (lambda: pb.searchsorted(pb.ones(3), pb.ones(3), side="x"), RuntimeError, "side"),
        (
            lambda: pb.searchsorted(pb.ones(3), pb.ones(3), side="left", right=True),
            RuntimeError,
            "opposites",
        ),
        (
            lambda: pb.searchsorted(pb.ones(2), pb.ones(3), sorter=pb.tensor([0, 5])),
            RuntimeError,
            "sorter index out of range",
        ),
        (lambda: pb.bucketize(pb.ones(3), pb.ones(1, 1)), RuntimeError, "1 dimension"),
        (lambda: pb.tensor([1, -1]).bincount(), RuntimeError, "non-negative"),
        (lambda: pb.tensor([[1]]).bincount(), RuntimeError, "1-d"),
        (lambda: pb.tensor([1]).bincount(minlength=-1), RuntimeError, "minlength"),
        (lambda: pb.tensor([1.0]).bincount(), NotImplementedError, "Float"),
        (lambda: pb.tensor([1, 2]).bincount(pb.ones(1)), RuntimeError, "same length"),
        (lambda: pb.ones(3).histc(0), RuntimeError, "bins must be > 0"),
        (lambda: pb.ones(3).histc(4, 3, 1), RuntimeError, "max must be larger than min"),
        (lambda: pb.tensor([1.0, NAN]).histc(4), RuntimeError, "not finite"),
        (lambda: pb.histogram(pb.tensor([1, 2]), 4), NotImplementedError, "histogramdd"),
        (lambda: pb.histogram(pb.ones(2), 4, weight=pb.ones(3)), RuntimeError, "weight"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("function", [pb.unique, pb.unique_consecutive, pb.histogram])
def test_values_without_a_derivative_are_in_the_graph_and_refuse_backward(function):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    found = function(x, 2)[0] if function is pb.histogram else function(x)
    assert found.requires_grad
    with pytest.raises(NotImplementedError, match="derivative for"):
        (found.sum() + x.sum()).backward()

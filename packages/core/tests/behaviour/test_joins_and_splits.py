"""Stacks, splits, grids and parts written into copies: views, dtypes and errors."""

import warnings

import numpy as np
import pytest
from numbered import counted

import pullback as pb

REFUSED = {
    "hstack nothing": (lambda: pb.hstack([]), RuntimeError, "non-empty TensorList"),
    "hstack tensor": (lambda: pb.hstack(counted(2)), TypeError, "must be tuple of Tensors"),
    "vstack sizes": (lambda: pb.vstack([counted(2), counted(3)]), RuntimeError, "must match"),
    "block_diag": (
        lambda: pb.block_diag(counted(1), counted(1, 1, 1)),
        RuntimeError,
        "Input 1 has 3 dimensions",
    ),
    "block_diag int": (lambda: pb.block_diag(1), TypeError, "expected Tensor as element 0"),
    "no sections": (lambda: counted(3).tensor_split(0), RuntimeError, "larger than 0"),
    "0-d split": (lambda: counted().tensor_split(2), RuntimeError, "at least a 1-dimensional"),
    "float split": (lambda: counted(3).tensor_split(1.5), TypeError, "must be int"),
    "two splits": (lambda: counted(3).tensor_split(2, indices=(1,)), TypeError, "expected one of"),
    "split by matrix": (
        lambda: counted(3).tensor_split(pb.ones(1, 1, dtype=pb.int64)),
        RuntimeError,
        "zero-dimensional or one-dimensional",
    ),
    "split by floats": (lambda: counted(3).tensor_split(pb.ones(1)), RuntimeError, "dtype of long"),
    "hsplit": (lambda: counted(5).hsplit(2), RuntimeError, "not divisible by the split_size 2"),
    "hsplit 0-d": (lambda: counted().hsplit(1), RuntimeError, "at least 1 dimension"),
    "vsplit": (lambda: counted(4).vsplit(2), RuntimeError, "at least 2 dimension"),
    "dsplit": (lambda: counted(4, 2).dsplit(2), RuntimeError, "at least 3 dimension"),
    "unsafe_chunk": (lambda: counted(4).unsafe_chunk(0), RuntimeError, "greater than 0"),
    "unsafe_split": (lambda: counted(4).unsafe_split((1, 3)), TypeError, "must be int"),
    "broadcast": (
        lambda: pb.broadcast_tensors(counted(2), counted(3)),
        RuntimeError,
        r"The size of tensor a \(2\) must match the size of tensor b \(3\)",
    ),
    "meshgrid matrix": (
        lambda: pb.meshgrid(counted(2, 2), indexing="ij"),
        RuntimeError,
        "Expected 0D or 1D tensor",
    ),
    "meshgrid dtypes": (
        lambda: pb.meshgrid(counted(2), pb.ones(2), indexing="ij"),
        RuntimeError,
        "same dtype",
    ),
    "meshgrid word": (lambda: pb.meshgrid(counted(2), indexing="ji"), RuntimeError, "must be one"),
    "meshgrid nothing": (lambda: pb.meshgrid(indexing="ij"), RuntimeError, "non-empty"),
    "cartesian_prod": (
        lambda: pb.cartesian_prod(counted(2, 2)),
        RuntimeError,
        "Expect a 1D vector, but got shape",
    ),
    "combinations": (lambda: pb.combinations(counted(3), -1), RuntimeError, "non-negative"),
    "combinations of many": (
        lambda: pb.combinations(counted(60), 30),
        RuntimeError,
        "integer multiplication overflow",
    ),
    "combinations again": (
        lambda: pb.combinations(counted(2), 10**6, True),
        RuntimeError,
        "integer multiplication overflow",
    ),
    "combinations 0-d": (lambda: pb.combinations(counted()), RuntimeError, "1D vector"),
    "diag": (lambda: counted(1, 1, 1).diag(), RuntimeError, "Supports 1D or 2D tensors. Got 3D"),
    "diag_embed": (lambda: counted(2).diag_embed(0, 1, -1), RuntimeError, "cannot be identical"),
    "diag_embed far": (
        lambda: pb.zeros(0, 1).diag_embed(2**62),
        RuntimeError,
        "Stride calculation overflowed",
    ),
    "diag_embed 0-d": (lambda: counted().diag_embed(), IndexError, "Dimension out of range"),
    "fill_diagonal_": (lambda: counted(3).fill_diagonal_(1), RuntimeError, "larger than 1"),
    "fill_diagonal_ sizes": (
        lambda: counted(2, 2, 3).fill_diagonal_(1),
        RuntimeError,
        "of equal length",
    ),
    "select_scatter": (
        lambda: counted(2, 3).select_scatter(counted(2), 0, 0),
        RuntimeError,
        r"src size = \[2\], slice size = \[3\]",
    ),
    "slice_scatter": (
        lambda: counted(3).slice_scatter(counted(1), 0, 0, 3, 0),
        RuntimeError,
        "step must be positive",
    ),
    "diagonal_scatter": (
        lambda: counted(3, 3).diagonal_scatter(counted(2)),
        RuntimeError,
        "expected src to have a size",
    ),
    "as_strided_scatter": (
        lambda: counted(3).as_strided_scatter(counted(2), (2,), (3,)),
        RuntimeError,
        "out of bounds for storage",
    ),
}


@pytest.mark.parametrize("call, error, message", REFUSED.values(), ids=list(REFUSED))
def test_refused_calls(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "join",
    [pb.hstack, pb.vstack, pb.dstack, pb.column_stack, pb.block_diag],
    ids=lambda join: join.__name__,
)
def test_joins_promote_dtypes(join):
    tensors = [pb.ones(2, dtype=pb.int8), pb.ones(2, dtype=pb.float16)]
    assert join(*tensors if join is pb.block_diag else (tensors,)).dtype == pb.float16


def test_row_stack_is_vstack():
    assert pb.row_stack([counted(2), counted(2)]).tolist() == [[1, 2], [1, 2]]


SPLITS = {
    "tensor_split": lambda x: x.tensor_split(2, 1),
    "tensor_split at": lambda x: x.tensor_split((2,), 1),
    "tensor_split by tensor": lambda x: x.tensor_split(pb.tensor([2]), 1),
    "hsplit": lambda x: x.hsplit(2),
    "indices": lambda x: x.hsplit(indices=(2,)),
    "sections": lambda x: x.tensor_split(sections=2, dim=-1),
    "dsplit": lambda x: [part[0] for part in x.unsqueeze(0).dsplit(2)],
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=list(SPLITS))
def test_splits_are_views(split):
    x = counted(2, 4)
    first, second = split(x)
    assert second._base is x
    assert second.tolist() == [[3, 4], [7, 8]]
    second.zero_()
    assert x.tolist() == [[1, 2, 0, 0], [5, 6, 0, 0]]
    assert first.tolist() == [[1, 2], [5, 6]]


def test_split_into_unequal_parts():
    assert [part.tolist() for part in counted(5).tensor_split(3)] == [[1, 2], [3, 4], [5]]
    assert [len(part) for part in counted(2).tensor_split(4)] == [1, 1, 0, 0]
    assert [part.tolist() for part in counted(4).tensor_split((3, 1))] == [[1, 2, 3], [], [2, 3, 4]]


def test_unsafe_splits_are_no_views():
    x = (counted(4) * 1).requires_grad_()
    parts = x.unsafe_split(3)
    assert [part._base for part in parts] == [None, None]
    assert parts[0].data_ptr() == x.data_ptr()
    parts[1].mul_(2)
    assert x.tolist() == [1, 2, 3, 8]
    parts[0].sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 0]


def test_at_least_so_many_dims():
    number, vector, matrix = counted(), counted(2), counted(2, 3)
    assert pb.atleast_1d(vector) is vector
    assert pb.atleast_2d(matrix) is matrix
    assert pb.atleast_1d(number)._base is number
    assert [tuple(x.shape) for x in pb.atleast_3d(number, vector, matrix)] == [
        (1, 1, 1),
        (1, 2, 1),
        (2, 3, 1),
    ]
    assert isinstance(pb.atleast_1d([number]), tuple)
    assert pb.atleast_1d() == ()


def test_broadcast_tensors_are_views_where_needed():
    x, y = counted(2, 3), counted(3)
    same, wide = pb.broadcast_tensors(x, y)
    assert same is x
    assert wide._base is y
    assert wide.stride() == (0, 1)


@pytest.mark.parametrize(
    "shapes, expected",
    [
        ((), ()),
        (((2, 1), (3,)), (2, 3)),
        (((2, 3),), (2, 3)),
        ((2, 1), (2,)),
        ((3, (4, 1), [1]), (4, 3)),
        (((0, 1), (1, 3)), (0, 3)),
    ],
)
def test_broadcast_shapes(shapes, expected):
    found = pb.broadcast_shapes(*shapes)
    assert isinstance(found, pb.Size)
    assert found == expected


@pytest.mark.parametrize(
    "shapes, error, message",
    [
        ((2, 3), RuntimeError, "dimension of length 3 at -1"),
        (((0, 1), (3, 3)), RuntimeError, "dimension of length 3 at -2"),
        (((-1, 3),), ValueError, "negative length"),
        ((2.5,), RuntimeError, "should be of type ints"),
    ],
)
def test_broadcast_shapes_refuses(shapes, error, message):
    with pytest.raises(error, match=message):
        pb.broadcast_shapes(*shapes)


def test_meshgrid_warns_without_indexing():
    with pytest.warns(UserWarning, match="it will be required to pass the indexing argument"):
        rows, columns = pb.meshgrid(counted(2), counted(3))
    assert rows.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert columns.stride() == (0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.meshgrid(counted(2), indexing="ij")
        assert pb.cartesian_prod(counted(2), counted(1)).tolist() == [[1, 1], [2, 1]]


def test_meshgrid_is_made_of_views():
    x, y = counted(2), counted(3)
    across, down = pb.meshgrid(x, y, indexing="xy")
    assert across.shape == down.shape == (3, 2)
    assert across._base is x
    assert down._base is y


def test_one_vector_is_its_own_product():
    x = counted(3)
    assert pb.cartesian_prod(x) is x


@pytest.mark.beyond_torch
def test_combinations_of_more_than_there_are():
    assert pb.combinations(counted(2), 10**6).shape == (0, 10**6)
    assert pb.combinations(counted(30), 29).shape == (30, 29)


def test_combinations_of_one_element():
    assert pb.combinations(counted(1), 1000, True).shape == (1, 1000)
    assert pb.combinations(counted(1), 65).shape == (0, 65)
    assert pb.combinations(counted(0), 3, True).shape == (0, 3)


def test_combinations_are_pythons():
    import itertools

    for n, r in ((6, 3), (4, 4), (2, 3), (5, 1)):
        expected = [list(row) for row in itertools.combinations(range(n), r)]
        assert pb.combinations(pb.arange(n), r).tolist() == expected
        expected = [list(row) for row in itertools.combinations_with_replacement(range(n), r)]
        assert pb.combinations(pb.arange(n), r, True).tolist() == expected


# -- diagonals and parts ---------------------------------------------------------------------------


def test_diagonal_of_a_matrix_is_copied():
    x = counted(2, 3)
    x.diag().zero_()
    assert x[0, 0] == 1
    assert x.diag(5).shape == (0,)


def test_diagonal_filled_in_place():
    x = counted(7, 2)
    assert x.fill_diagonal_(0, wrap=True) is x
    assert (x == 0).nonzero().tolist() == [[0, 0], [1, 1], [3, 0], [4, 1], [6, 0]]
    assert counted(2, 2, 2).fill_diagonal_(0).sum() == 36 - 1 - 8
    y = (counted(3, 3).requires_grad_() * 1).fill_diagonal_(pb.tensor(5.0))
    assert y.diag().tolist() == [5, 5, 5]


SCATTERS = {
    "select": lambda x, part: x.select_scatter(part, 0, 1),
    "slice": lambda x, part: x.slice_scatter(part.unsqueeze(0), 0, 1),
    "as_strided": lambda x, part: x.as_strided_scatter(part, (3,), (1,), 3),
}


@pytest.mark.parametrize("scatter", SCATTERS.values(), ids=list(SCATTERS))
def test_scatter_into_a_copy(scatter):
    x, part = counted(2, 3).requires_grad_(), pb.zeros(3, dtype=pb.float64, requires_grad=True)
    result = scatter(x, part)
    assert result.tolist() == [[1, 2, 3], [0, 0, 0]]
    assert result._base is None
    assert x[1, 0] == 4
    (result * counted(2, 3)).sum().backward()
    assert x.grad.tolist() == [[1, 2, 3], [0, 0, 0]]
    assert part.grad.tolist() == [4, 5, 6]


def test_scatter_keeps_strides_and_dtype():
    assert counted(2, 3).t().select_scatter(counted(2), 0, 0).stride() == (1, 3)
    assert counted(4)[::2].select_scatter(counted(), 0, 0).stride() == (2,)
    assert counted(2, 1).expand(2, 3).select_scatter(counted(3), 0, 0).stride() == (3, 1)
    assert counted(2, dtype=pb.int64).select_scatter(counted() / 2, 0, 1).tolist() == [1, 0]


@pytest.mark.parametrize("join", [pb.cat, pb.stack])
def test_joined_tensors_are_on_one_device(join):
    parts = [pb.ones(2), pb.ones(2), pb.ones(2, device="meta")]
    message = rf"at least two devices, .* and meta! .* in method {join.__name__}"
    with pytest.raises(RuntimeError, match=message):
        join(parts)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_many_parts_of_all_layouts(dim):
    square = pb.arange(9.0).reshape(3, 3)
    parts = [
        square,
        square.t(),
        square[::2, ::2].repeat(2, 2)[:3, :3],
        square.flip(0),
        square[:1].expand(3, 3),
    ] * 50
    arrays = [part.numpy() for part in parts]
    assert pb.cat(parts, dim).tolist() == np.concatenate(arrays, dim).tolist()
    assert pb.stack(parts, dim).tolist() == np.stack(arrays, dim).tolist()


def test_joined_parts_keep_dtypes_and_derivatives():
    x = pb.ones(2, requires_grad=True)
    y = pb.ones(2, dtype=pb.float64, requires_grad=True)
    joined = pb.stack([x, y, x], 1)
    assert joined.dtype == pb.float64
    (joined * pb.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [4, 4]
    assert y.grad.tolist() == [2, 2]


def test_nothing_but_empty_vectors_is_joined_in_any_dim():
    x = pb.zeros(0, requires_grad=True)
    joined = pb.cat([x, x], 1)
    assert joined.shape == (0,)
    joined.sum().backward()
    assert x.grad.shape == (0,)


def test_a_stack_of_too_many_dims_is_refused():
    deep = pb.ones([1] * 64)
    with pytest.raises(RuntimeError, match="at most 64 dimensions, got 65"):
        pb.stack([deep, deep])
    with pytest.raises(RuntimeError, match="at most 64 dimensions, got 65"):
        pb.stack([deep, deep.double()])
    assert pb.cat([deep, deep]).shape == (2, *[1] * 63)


def test_einsum_of_one_operand_without_dims():
    for equation in ("", "->", "...", "...->..."):
        assert pb.einsum(equation, pb.tensor(2.0)).item() == 2.0
    with pytest.raises(RuntimeError, match="fewer operands"):
        pb.einsum("i,i->", pb.ones(2, 2))

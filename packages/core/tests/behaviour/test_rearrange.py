"""Flips, rolls, repeats and triangles: forms of arguments, memory, gradients and errors."""

import pytest
from numbered import counted

import pullback as pb

REFUSED = {
    "flip twice": (lambda x: x.flip(0, -2), RuntimeError, "appears multiple times"),
    "flip range": (lambda x: x.flip(2), IndexError, "Dimension out of range"),
    "flip float": (lambda x: x.flip(1.5), TypeError, "tuple of ints"),
    "fliplr": (lambda x: pb.fliplr(x[0]), RuntimeError, "Input must be >= 2-d"),
    "flipud": (lambda x: pb.flipud(x[0, 0]), RuntimeError, "Input must be >= 1-d"),
    "rot90 one dim": (lambda x: x.rot90(1, (0,)), RuntimeError, "total rotation dims == 2"),
    "rot90 vector": (lambda x: x[0].rot90(), RuntimeError, "total dims >= 2"),
    "rot90 same": (lambda x: x.rot90(1, (0, -2)), RuntimeError, "dims to be different"),
    "rot90 range": (lambda x: x.rot90(1, (0, 5)), IndexError, "Dimension out of range"),
    "roll counts": (lambda x: x.roll((1, 2), (0,)), RuntimeError, "shifts and dimensions must"),
    "roll nothing": (lambda x: x.roll(()), RuntimeError, "`shifts` required"),
    "roll 0-d": (lambda x: x[0, 0].roll(1, 0), IndexError, "has no dimensions"),
    "repeat few": (lambda x: x.repeat(2), RuntimeError, "can not be smaller than number of dim"),
    "repeat negative": (lambda x: x.repeat(2, -1), RuntimeError, "negative dimension -3"),
    "repeat float": (lambda x: x.repeat(2, 1.5), TypeError, "object at pos 2"),
    "repeats negative": (lambda x: x.repeat_interleave(-1, 0), RuntimeError, "non-negative"),
    "repeats count": (
        lambda x: x.repeat_interleave(pb.tensor([1, 2]), 1),
        RuntimeError,
        "same size as input along dim",
    ),
    "repeats dims": (
        lambda x: x.repeat_interleave(pb.ones(2, 2, dtype=pb.int64), 0),
        RuntimeError,
        "0-dim or 1-dim",
    ),
    "repeats values": (
        lambda x: x.repeat_interleave(pb.tensor([1, -2]), 0),
        RuntimeError,
        "can not be negative",
    ),
    "repeats dtype": (
        lambda x: x.repeat_interleave(pb.tensor([1.0, 2.0]), 0),
        NotImplementedError,
        "'Float'",
    ),
    "repeats size": (
        lambda x: x.repeat_interleave(pb.tensor([1, 2]), 0, output_size=4),
        RuntimeError,
        "does not match required size",
    ),
    "output size": (
        lambda x: x.repeat_interleave(2, 0, output_size=5),
        RuntimeError,
        "expected 4 but got 5",
    ),
    "tril vector": (lambda x: x[0].tril(), RuntimeError, "at least 2 dimensions"),
    "triu float": (lambda x: x.triu(1.5), TypeError, "must be int"),
    "unflatten none": (lambda x: x.unflatten(0, ()), RuntimeError, "must be non-empty"),
    "unflatten sizes": (lambda x: x.unflatten(1, (2, 2)), RuntimeError, "don't multiply up"),
    "unflatten unknown": (lambda x: x.unflatten(1, (-1, 2)), RuntimeError, "don't multiply up"),
    "narrow_copy": (lambda x: x.narrow_copy(1, 2, 2), RuntimeError, "exceeds dimension size"),
    "adjoint": (lambda x: x[0].adjoint(), RuntimeError, "matrices or batches of matrices"),
    "mH": (lambda x: x[0].mH, RuntimeError, "tensor.mH is only supported on matrices"),
    "H": (lambda x: x.unsqueeze(0).H, RuntimeError, "tensor.H is only supported on matrices"),
}


@pytest.mark.parametrize("call, error, message", REFUSED.values(), ids=list(REFUSED))
def test_refused_calls(call, error, message):
    with pytest.raises(error, match=message):
        call(counted(2, 3))


COPIES = {
    "flip": lambda x: x.flip(()),
    "roll": lambda x: x.roll(0, 0),
    "roll flat": lambda x: x.roll(6),
    "rot90": lambda x: x.rot90(0),
    "repeat": lambda x: x.repeat(1, 1),
    "tile": lambda x: x.tile(1),
    "narrow_copy": lambda x: x.narrow_copy(0, 0, 2),
    "tril": lambda x: x.tril(5),
}


@pytest.mark.parametrize("call", COPIES.values(), ids=list(COPIES))
def test_result_is_a_copy_even_if_nothing_moves(call):
    x = counted(2, 3)
    result = call(x)
    assert result._base is None
    assert result.tolist() == x.tolist()
    result.zero_()
    assert x[0, 0] == 1


def test_views_share_memory():
    x = counted(2, 6)
    for view in (x.unflatten(1, (2, -1)), x.adjoint(), x.mH, x.H, x.mT):
        assert view._base is x
        assert view.data_ptr() == x.data_ptr()
    assert counted(2, 3, dtype=pb.complex64).mul(1j).mH[2, 1] == -6j


def test_flip_and_rotation_keep_the_order_of_dims_in_memory():
    assert counted(2, 3).t().flip(0).stride() == (1, 3)
    assert counted(2, 3, 2).permute(2, 0, 1).flip(0, 2).stride() == (1, 6, 2)
    assert counted(2, 3).rot90().stride() == (1, 3)
    assert counted(2, 3).t().rot90(2).stride() == (1, 3)


def test_rolls_of_one_dim_add_up():
    x = counted(5)
    assert x.roll((1, 2), (0, 0)).tolist() == x.roll(3).tolist() == [3, 4, 5, 1, 2]


def test_spellings_of_repeats():
    x = counted(2, 2)
    whole = [[1, 2, 1, 2], [3, 4, 3, 4]]
    for result in (
        x.repeat(1, 2),
        x.repeat((1, 2)),
        x.repeat([1, 2]),
        x.tile(2),
        x.tile((1, 2)),
        pb.tile(x, (2,)),
    ):
        assert result.tolist() == whole
    each = [[1, 1, 2, 2], [3, 3, 4, 4]]
    for result in (
        x.repeat_interleave(2, 1),
        x.repeat_interleave(2, dim=-1),
        x.repeat_interleave(pb.tensor(2), 1),
        x.repeat_interleave(pb.tensor([2]), 1),
        pb.repeat_interleave(x, pb.tensor([2, 2], dtype=pb.int32), 1),
    ):
        assert result.tolist() == each
    indices = pb.repeat_interleave(pb.tensor([1, 0, 3], dtype=pb.int32))
    assert indices.tolist() == [0, 2, 2, 2]
    assert indices.dtype == pb.int32


def test_repeats_of_meta_tensors_need_the_size():
    x, repeats = pb.zeros(2, 3, device="meta"), pb.zeros(2, dtype=pb.int64, device="meta")
    assert x.repeat_interleave(repeats, 0, output_size=7).shape == (7, 3)
    with pytest.raises(NotImplementedError, match="output_size"):
        x.repeat_interleave(repeats, 0)


def test_gradient_of_repeats_is_their_sum():
    x = counted(2, 2).requires_grad_()
    x.repeat(2, 3).sum().backward()
    assert x.grad.tolist() == [[6, 6], [6, 6]]
    x.grad = None
    x.repeat_interleave(pb.tensor([2, 0]), 0).sum().backward()
    assert x.grad.tolist() == [[2, 2], [0, 0]]


def test_triangle_in_place_keeps_nan_out():
    x = pb.full((2, 2), float("nan"))
    assert x.tril_() is x
    assert x[0, 1] == 0
    assert x.isnan().tolist() == [[True, False], [True, True]]
    assert pb.ones(2, 2, dtype=pb.bool).triu(1).tolist() == [[False, True], [False, False]]


NODES = {
    "FlipBackward0": lambda x: x.flip(0),
    "RollBackward0": lambda x: x.roll(1),
    "Rot90Backward0": lambda x: x.rot90(),
    "RepeatBackward0": lambda x: x.tile(2),
    "TrilBackward0": lambda x: x.tril(),
    "TriuBackward0": lambda x: x.triu(),
    "NarrowCopyBackward0": lambda x: x.narrow_copy(0, 0, 1),
    "DiagEmbedBackward0": lambda x: x.diagflat(),
    "SelectScatterBackward0": lambda x: x.select_scatter(x[0], 0, 1),
    "SliceScatterBackward0": lambda x: x.slice_scatter(x[:1], 0, 1),
    "DiagonalScatterBackward0": lambda x: x.diagonal_scatter(x[0, :2]),
    "AsStridedScatterBackward0": lambda x: x.as_strided_scatter(x[0], (3,), (1,)),
    "UnsafeSplitBackward0": lambda x: x.unsafe_chunk(2)[1],
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_have_torch_names(name):
    assert NODES[name](counted(2, 3).requires_grad_()).grad_fn.name() == name

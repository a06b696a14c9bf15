"""Keys of other integers than int, and of several tensors."""

import enum

import numpy as np
import pytest

import pullback as pb

ARRAY = np.arange(24.0).reshape(2, 3, 4)


def test_an_index_may_be_any_integer():
    class Place(enum.IntEnum):
        FIRST = 0
        LAST = -1

    x = pb.tensor(ARRAY)
    assert x[Place.LAST, Place.FIRST].tolist() == ARRAY[-1, 0].tolist()
    assert x[0, Place.FIRST : np.int64(2)].tolist() == ARRAY[0, :2].tolist()
    for key in (2**63, -(2**70), (0, 2**64)):
        with pytest.raises(IndexError, match="out of bounds for dimension"):
            x[key]


def test_index_tensors_and_masks_may_stand_together():
    x, rows = pb.tensor(ARRAY), np.array([[True, False, True], [False, True, False]])
    for key in ((rows, np.array([3, 0, 1])), (np.array([1]), np.array([[2], [0]]))):
        assert x[tuple(pb.tensor(part) for part in key)].tolist() == ARRAY[key].tolist()
    with pytest.raises(IndexError, match="shape of the mask"):
        x[pb.ones(2, 4) > 0]
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        x[pb.tensor([0]), pb.tensor([3])]


def test_a_uint8_tensor_is_a_mask_of_any_number_of_dims():
    x, mask = pb.arange(3.0), pb.tensor([[1, 0, 2], [0, 0, 1]], dtype=pb.uint8)
    assert x[pb.tensor(0, dtype=pb.uint8)].shape == (0, 3)
    assert x[pb.tensor(1, dtype=pb.uint8)].shape == (1, 3)
    assert pb.tensor(5.0)[pb.tensor(1, dtype=pb.uint8)].tolist() == [5.0]
    assert pb.arange(6).reshape(2, 3)[mask].tolist() == [0, 2, 5]


def test_a_list_of_slices_or_lists_is_a_tuple_with_a_warning():
    x = pb.arange(27).reshape(3, 3, 3)
    for key in (
        [slice(None), [0, 2]],
        [[0, 1], [1, 2]],
        [pb.tensor(0), pb.tensor(1)],
        [None, 0],
        [..., 0],
        [(0, 1), 0],
    ):
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            found = x[key]
        assert found.tolist() == x[tuple(key)].tolist()
    assert x[[0, 1]].shape == (2, 3, 3)
    assert x[(0, 1), 0].tolist() == x[[0, 1], 0].tolist()


def test_index_put_wants_an_index():
    for x in (pb.tensor(1.0), pb.ones(2)):
        with pytest.raises(RuntimeError, match="at least one index"):
            x.index_put([], pb.tensor([2.0]))


def test_gather_of_an_empty_index_of_any_dtype():
    assert pb.gather(pb.ones(3), 0, pb.tensor([])).shape == (0,)

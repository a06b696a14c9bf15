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

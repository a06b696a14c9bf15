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


KEYS_OF_ELEMENTS = {  # with index tensors of one number in each element of a batch
    "alone": lambda i, j: i,
    "behind a slice": lambda i, j: (slice(None), j),
    "two": lambda i, j: (i, j),
    "behind an ellipsis": lambda i, j: (..., j),
    "before a slice": lambda i, j: (i, slice(1, 3)),
    "behind a new dim": lambda i, j: (None, i),
    "before a list": lambda i, j: (i, [0, 2]),
    "behind a list": lambda i, j: ([0, 1], j),
    "narrow": lambda i, j: i.to(pb.int32),
}


@pytest.mark.parametrize("name", KEYS_OF_ELEMENTS)
def test_each_element_of_a_batch_has_its_own_number(name):
    key = KEYS_OF_ELEMENTS[name]
    x = pb.arange(24, dtype=pb.float64).reshape(3, 2, 4)
    i, j = pb.tensor([0, 1, 1]), pb.tensor([3, 0, -1])

    def read(x, i, j):
        return x[key(i, j)]

    def write(x, i, j):
        x = x.clone()
        x[key(i, j)] = -1.0
        return x

    def total(x, i, j):
        return (x[key(i, j)] ** 2).sum()

    for function in (read, write, pb.func.grad(total)):
        expected = pb.stack([function(*row) for row in zip(x, i, j)])
        assert pb.equal(pb.vmap(function)(x, i, j), expected)


def test_number_of_an_element_that_is_out_of_range():
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension"):
        pb.vmap(lambda x, i: x[i])(pb.ones(2, 3), pb.tensor([0, 5]))

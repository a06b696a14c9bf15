"""compile: tensors that share memory, exchanged storages, and views of arguments."""

import warnings

import numpy as np
import pytest

import pullback as pb


def test_argument_that_the_function_refers_to_too():
    weight = pb.tensor([1.0, 2.0, 3.0])
    compiled = pb.compile(lambda x: x * weight)
    for x in (weight, weight, pb.full((3,), 10.0), weight.view(3), weight[:3], pb.ones(3)):
        for _ in range(2):
            assert compiled(x).tolist() == (x * weight).tolist()


@pytest.mark.parametrize("size", [3, 20_000])
def test_argument_that_is_written_by_another_name(size):
    weight = pb.ones(size)

    def function(x):
        first = x.exp() + 0.5
        weight.add_(1)
        return first, x.exp() + 0.25

    compiled = pb.compile(function)
    compiled(pb.ones(size)), compiled(pb.ones(size))
    for _ in range(2):
        weight.fill_(1)
        found = [x.tolist() for x in compiled(weight)]
        weight.fill_(1)
        assert found == [x.tolist() for x in function(weight)]


def test_memory_that_overlaps_in_part():
    def function(x, y):
        first = x.exp() + 0.5
        y.add_(1)
        return first, x.exp() + 0.25

    compiled = pb.compile(function)
    compiled(pb.ones(3), pb.ones(3)), compiled(pb.ones(3), pb.ones(3))
    found = []
    for run in (compiled, function):
        array = np.ones(8, np.float32)
        results = run(pb.from_numpy(array[:3]), pb.from_numpy(array[1:4]))
        found.append([*(x.tolist() for x in results), array.tolist()])
    assert found[0] == found[1]


def test_rows_that_a_group_overtakes():
    whole = pb.zeros(20_100)
    target = whole[100:].view(200, 100)

    def function(x):
        target.copy_(x * 2 + 1)
        return x + target

    compiled = pb.compile(function)
    compiled(pb.ones(200, 100)), compiled(pb.ones(200, 100))
    found = []
    for run in (compiled, function):
        whole.copy_(pb.arange(20_100.0))
        found.append((run(whole[:20_000].view(200, 100)).tolist(), whole.tolist()))
    assert found[0] == found[1]


def test_storage_that_is_exchanged_while_the_old_one_lives():
    weight = pb.ones(3)
    compiled = pb.compile(lambda x: x * weight)
    compiled(pb.ones(3)), compiled(pb.ones(3))
    old = weight.detach()
    weight.data = pb.full((3,), 5.0)
    for _ in range(2):
        assert compiled(pb.ones(3)).tolist() == [5, 5, 5]
    weight.set_(pb.full((3,), 7.0))
    assert compiled(pb.ones(3)).tolist() == [7, 7, 7]
    assert old.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "view", [lambda x: x.view(pb.int64), lambda x: x.view(pb.uint8), lambda x: x.view(pb.float16)]
)
def test_views_of_another_dtype_are_where_the_argument_is(view):
    compiled = pb.compile(lambda x: (view(x), x + 1))
    base = pb.arange(20.0)
    for first in (0, 16, 8, 4):
        x = base[first : first + 4]
        found, expected = compiled(x)[0], view(x)
        assert found.tolist() == expected.tolist()
        assert found.storage_offset() == expected.storage_offset()


def test_real_part_of_an_argument():
    compiled = pb.compile(lambda x: (pb.view_as_real(x), x * 2))
    base = pb.randn(12, dtype=pb.complex64)
    for first in (0, 8, 4):
        x = base[first : first + 4]
        assert compiled(x)[0].tolist() == pb.view_as_real(x).tolist()


def test_write_through_a_view_that_autograd_records_is_refused():
    weight = pb.ones(3, requires_grad=True)

    def function(x):
        x[0] = weight.sum()
        return x.detach() * 2

    compiled = pb.compile(function)
    with pytest.warns(UserWarning, match="in-place write that autograd records"):
        compiled(pb.zeros(3))
    for _ in range(2):
        x = pb.zeros(3)
        compiled(x)
        assert x.requires_grad


def test_leaf_from_outside_is_returned_itself():
    weight = pb.ones(3, requires_grad=True)
    compiled = pb.compile(lambda x: ((x * weight).detach(), weight, weight.contiguous()))
    for _ in range(3):
        assert [one is weight for one in compiled(pb.ones(3))] == [False, True, True]


def test_argument_that_gets_another_shape_is_refused():
    row = pb.ones(13, 1)

    def function(a):
        pb.mul(a, row, out=a)
        return a.view(-1)

    compiled = pb.compile(function)
    with pytest.warns(UserWarning):
        compiled(pb.full((20, 6), 2.0)[:1, :1])
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that memory was too small for the result
            a, b = (pb.full((20, 6), 2.0)[:1, :1] for _ in range(2))
            assert compiled(a).tolist() == function(b).tolist()
        assert a.shape == b.shape


def test_large_memory_that_a_copy_fills_in_part():
    def function(x):
        room = pb.empty(1_000_000)
        room[:5].copy_(x)
        return room[500_000:500_010] * 0, room[:5] * 2

    compiled = pb.compile(function)
    for _ in range(3):
        assert compiled(pb.ones(5))[1].tolist() == [2] * 5


def test_backward_pass_that_fails_fails_when_it_is_called():
    def function(x):
        y = x.exp()
        y.detach().mul_(2)
        return y

    compiled = pb.compile(function)
    with pytest.warns(UserWarning, match="backward pass fails"):
        result = compiled(pb.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="in-place"):
        result.sum().backward()


@pytest.mark.parametrize(
    "shape", [(4100, 2), (1025, 8), (40, 8, 300), (300, 70), (9, 3000)], ids=str
)
@pytest.mark.parametrize("name", ["sum", "var", "mean", "prod", "amax", "nansum"])
@pytest.mark.parametrize("dim", [-1, 1])
def test_reductions_have_the_bits_of_eager_ones(shape, name, dim):
    def function(x):
        found = getattr(pb, name)(x * 2 + 1, dim, keepdim=True)
        return found * (x * 2 + 1), found.sum(1)

    compiled = pb.compile(function)
    for _ in range(3):
        x = pb.randn(shape)
        for found, expected in zip(compiled(x), function(x)):
            assert found.numpy().tobytes() == expected.numpy().tobytes()

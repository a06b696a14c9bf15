"""What compiled functions return: as many objects as the functions themselves do."""

from collections import OrderedDict, deque, namedtuple

import numpy as np
import pytest

import pullback as pb

Pair = namedtuple("Pair", "one other")
KEPT = [pb.ones(1), 3]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_one_tensor_that_is_several_results(requires_grad):
    w = pb.full((2,), 3.0).requires_grad_(requires_grad)

    @pb.compile
    def repeated(x):
        y = x * w
        return y, {"same": y, "other": y + 1}, [y, 5, 5]

    for value in (1.0, 2.0, 3.0):
        y, named, listed = repeated(pb.full((2,), value))
        assert y is named["same"] is listed[0] and listed[1:] == [5, 5]
        assert y.tolist() == [3 * value] * 2 and named["other"].tolist() == [3 * value + 1] * 2
        if requires_grad:
            assert pb.autograd.grad(y.sum(), w)[0].tolist() == [value] * 2


def test_gradient_that_is_a_result():
    w = pb.ones(2).requires_grad_()

    @pb.compile
    def gradient(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    for value in (1.0, 2.0, 3.0):
        assert gradient(pb.full((2,), value)) is w.grad and w.grad.tolist() == [value] * 2


def test_containers_that_are_several_results():
    @pb.compile
    def repeated(x):
        listed = [x * 2]
        return listed, listed, {"again": listed, "other": [x]}

    for value in (1.0, 2.0, 3.0):
        one, other, named = repeated(pb.full((1,), value))
        assert one is other is named["again"] and named["other"] is not one
        assert one[0].item() == 2 * value


@pytest.mark.parametrize(
    "function",
    [
        lambda x, given: given,
        lambda x, given: (given, given["a"], given["a"][0]),
        lambda x, given: {"new": [x * 2], "given": given["a"]},
        lambda x, given: Pair(x * 2, [given, KEPT]),
        lambda x, given: KEPT,
        lambda x, given: OrderedDict(b=x * 2, a=(KEPT, x)),
        lambda x, given: ((), {}, []),
    ],
)
def test_containers_of_the_caller_are_returned_themselves(function):
    def shape(value, known):
        """Return a value with the names of the objects that the caller has."""
        if id(value) in known:
            return known[id(value)]
        if isinstance(value, dict):
            return type(value), [(key, shape(one, known)) for key, one in value.items()]
        if isinstance(value, (tuple, list)):
            return type(value), [shape(one, known) for one in value]
        return value.tolist() if isinstance(value, pb.Tensor) else value

    compiled = pb.compile(function)
    for value in (1.0, 2.0, 3.0):
        x, given = pb.full((1,), value), {"a": [pb.full((1,), value)]}
        known = {id(given): "given", id(given["a"]): "a", id(KEPT): "kept"}
        assert shape(compiled(x, given), known) == shape(function(x, given), known)
    assert compiled.entries[0].runs == 2


class Box:
    def __init__(self):
        self.items = []

    def append(self, item):
        self.items.append(item)

    def __len__(self):
        return len(self.items)


@pytest.mark.parametrize("make", [deque, bytearray, Box, lambda: np.zeros(2)])
def test_objects_that_a_call_makes_are_its_own(make):
    compiled = pb.compile(lambda x: (x * 2, make()))
    for _ in range(3):
        _, made = compiled(pb.ones(1))
        if isinstance(made, np.ndarray):
            assert made.tolist() == [0, 0]
            made += 1
        else:
            assert len(made) == 0
            made.append(1)
    compiled = pb.compile(lambda x: make())
    assert compiled(pb.ones(1)) is not compiled(pb.ones(1))


def test_tensor_from_outside_that_is_written_and_returned():
    held = pb.zeros(2)
    held.name_of_mine = "held"
    added = pb.compile(lambda x: held.add_(x))
    copied = pb.compile(lambda x: (held.copy_(x), [held]))
    given = pb.compile(lambda x: pb.add(x, 1, out=held))
    for value in (1.0, 2.0, 3.0):
        x = pb.full((2,), value)
        assert added(x) is held and given(x) is held and held.tolist() == [value + 1] * 2
        one, (other,) = copied(x)
        assert one is other is held and held.tolist() == [value] * 2


def test_objects_of_the_caller_are_not_copied_with_a_result():
    class Out:
        def __init__(self, *parts):
            self.parts = parts

    held, given = Box(), Box()
    made = pb.compile(lambda x, box: (x * 2, Out(held, box, [1])))
    twice = pb.compile(lambda x: (lambda out: (out, [out]))(Out(x.shape)))
    for _ in range(3):
        _, out = made(pb.ones(1), given)
        assert out.parts[0] is held and out.parts[1] is given
        out.parts[2].append(2)
        assert out.parts[2] == [1, 2]
        one, (other,) = twice(pb.ones(1))
        assert one is other

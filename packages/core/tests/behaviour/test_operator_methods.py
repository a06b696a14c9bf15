"""Operators as methods: ``Tensor.__add__`` and its kind, called by name and from subclasses."""

from typing import ClassVar

import pytest

import pullback as pb

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
LOGICAL = ["and", "or", "xor"]
UNARY = ["neg", "pos", "abs", "bool", "int", "float", "index", "invert", "len", "iter", "contains"]


@pytest.mark.parametrize(
    "name",
    [
        *BINARY,
        *LOGICAL,
        *UNARY,
        *(f"r{name}" for name in BINARY),
        *(f"i{name}" for name in BINARY + LOGICAL),
        *("matmul", "rmatmul", "lshift", "rshift", "ilshift", "irshift"),
        *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem", "delitem"),
    ],
)
def test_method_exists(name):
    assert callable(getattr(pb.Tensor, f"__{name}__"))
    assert callable(getattr(pb.ones(1), f"__{name}__"))


def test_methods_compute():
    x = pb.tensor([1.0, 2.0])
    assert x.__add__(1).tolist() == x.__radd__(1).tolist() == [2.0, 3.0]
    assert pb.Tensor.__sub__(x, 1).tolist() == [0.0, 1.0]
    assert x.__rsub__(1).tolist() == [0.0, -1.0]
    assert x.__rtruediv__(2).tolist() == [2.0, 1.0]
    assert x.__rpow__(2).tolist() == [2.0, 4.0]
    assert x.__eq__(1).tolist() == [True, False]
    assert x.__iadd__(1) is x
    assert pb.tensor(3).__index__() == 3


def test_methods_leave_foreign_operands_to_others():
    x = pb.ones(2)
    for name in ("add", "radd", "mul", "truediv", "lt"):
        assert getattr(x, f"__{name}__")(object()) is NotImplemented


def test_subclass_extends_an_operator():
    class Loud(pb.Tensor):
        calls: ClassVar[list[str]] = []

        def __add__(self, other):
            self.calls.append("add")
            return super().__add__(other)

        def __radd__(self, other):
            self.calls.append("radd")
            return super().__radd__(other)

    x = pb.ones(2).as_subclass(Loud)
    assert (x + 1).tolist() == (1 + x).tolist() == (pb.ones(2) + x).tolist() == [2.0, 2.0]
    assert Loud.calls == ["add", "radd", "radd"]
    assert (x * 2).tolist() == [2.0, 2.0]


def test_shifts_in_place():
    x = pb.tensor([1, 2])
    x <<= 2
    assert x.tolist() == [4, 8]
    x >>= 1
    assert x.tolist() == [2, 4]

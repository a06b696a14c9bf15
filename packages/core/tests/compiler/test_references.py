"""What compiled functions refer to: attributes of tensors, order, code, and objects in sets."""

from collections import OrderedDict, deque

import pytest

import pullback as pb

# ---- attributes of tensors -----------------------------------------------------------------------


def test_attributes_of_tensors_are_watched():
    layer, scale = pb.nn.Linear(2, 2), pb.ones(2)
    layer.weight.decay, scale.factor = 0.5, 2.0

    @pb.compile
    def penalty(x):
        decayed = (p.square().sum() * getattr(p, "decay", 0) for p in layer.parameters())
        return (x * scale.factor).sum() + sum(decayed)

    def expected(factor, decay):
        return 2 * factor + layer.weight.square().sum() * decay

    x = pb.ones(2)
    for factor, decay in ((2.0, 0.5), (3.0, 0.5), (3.0, 0.25)):
        scale.factor, layer.weight.decay = factor, decay
        for _ in range(2):
            pb.testing.assert_close(penalty(x), expected(factor, decay))


def test_attributes_that_are_asked_by_name_are_watched():
    class Options:
        alpha = 1.0

    options = Options()
    options.beta = 2.0
    scaled = pb.compile(lambda x: x * getattr(options, "beta", 0) * getattr(options, "alpha", 0))
    x = pb.ones(2)
    for beta, alpha in ((2.0, 1.0), (3.0, 1.0), (3.0, 4.0)):
        options.beta, Options.alpha = beta, alpha
        assert scaled(x).tolist() == scaled(x).tolist() == [beta * alpha] * 2


def test_attributes_that_tensors_get_later_are_watched():
    weight = pb.ones(1)
    compiled = pb.compile(lambda x: x * weight * getattr(weight, "factor", 1))
    assert [compiled(pb.ones(1)).item() for _ in range(2)] == [1, 1]
    weight.factor = 3
    assert [compiled(pb.ones(1)).item() for _ in range(2)] == [3, 3]
    weight.unused = 4
    assert compiled(pb.ones(1)).item() == 3 and compiled.entries[0].runs == 2
    del weight.factor
    assert compiled(pb.ones(1)).item() == 1


def test_attributes_of_arguments_are_part_of_a_call():
    class Options:
        scale = 2.0

    @pb.compile
    def scaled(x, pair):
        options = getattr(x, "options", None)
        return x * (3 if options is None else options.scale) + getattr(pair["other"], "bias", 0)

    def call(options=None, bias=None, **unused):
        x, other = pb.ones(1), pb.ones(1)
        for name, value in {"options": options, **unused}.items():
            if value is not None:
                setattr(x, name, value)
        if bias is not None:
            other.bias = bias
        return scaled(x, {"other": other}).item()

    options = Options()
    for _ in range(2):
        assert [call(), call(options), call(bias=5), call(options, 5)] == [3, 2, 8, 7]
    options.scale = 10.0
    assert [call(), call(options), call(tag="unread")] == [3, 10, 3]
    held = pb.ones(1)
    for _ in range(2):
        assert call(bias=held) == 4
        held = held.add_(0) if held.item() == 1 else held
    assert call(bias=pb.full((1,), 7.0)) == 10


def leaf():
    return pb.ones(2, requires_grad=True)


def product():
    return leaf() * 1


ASKED = {  # a function that asks, and what makes arguments that differ in it
    "is_leaf": (lambda x: x * (2 if x.is_leaf else 3), leaf, product),
    "grad_fn": (lambda x: x * (2 if x.grad_fn is None else 3), leaf, product),
    "kind": (lambda x: x * (2 if "Mul" in x.grad_fn.name() else 3), product, leaf().exp),
    "output_nr": (
        lambda x: x * (2 + x.output_nr),
        lambda: leaf().split(1)[0],
        lambda: leaf().split(1)[1],
    ),
    "_version": (lambda x: x * (2 + x._version), lambda: pb.ones(2), lambda: pb.ones(2).add_(0)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_what_code_asks_of_arguments_is_part_of_a_call(name, dynamic):
    function, *makers = ASKED[name]
    compiled = pb.compile(function, dynamic=dynamic)
    for number in (1, 0, 1, 0, 0, 1):
        x = makers[number]()
        assert compiled(x).tolist() == function(x).tolist()


# ---- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_order_of_dicts_is_watched(kind):
    factors = kind(a=2.0, b=3.0)

    @pb.compile
    def folded(x):
        for factor in factors.values():
            x = x * factor + 1
        return x

    for expected in (10, 9, 10):
        assert [folded(pb.ones(1)).item() for _ in range(2)] == [expected] * 2
        first = next(iter(factors))
        factors[first] = factors.pop(first)
    if kind is OrderedDict:
        factors.move_to_end("a")
        before = folded(pb.ones(1)).item()
        factors.move_to_end("b")
        assert {before, folded(pb.ones(1)).item()} == {9, 10}


# ---- functions -----------------------------------------------------------------------------------


def test_code_and_defaults_of_functions_are_watched():
    def scale(x, by=2.0, *, plus=0.0):
        return x * by + plus

    compiled = pb.compile(lambda x: scale(x))

    def check(expected):
        assert [compiled(pb.ones(1)).item() for _ in range(2)] == [expected] * 2

    check(2)
    scale.__defaults__ = (3.0,)
    check(3)
    scale.__kwdefaults__ = {"plus": 1.0}
    check(4)
    scale.__kwdefaults__["plus"] = 2.0
    check(5)
    scale.__code__ = (lambda x, by=0.0, *, plus=0.0: x * by - plus).__code__
    check(1)


def test_method_that_only_another_method_calls_is_watched():
    class Net(pb.nn.Module):
        factor = 2.0

        def forward(self, x):
            return self.scaled(x)

        def scaled(self, x):
            return x * self.factor

    compiled = pb.compile(Net())
    assert [compiled(pb.ones(1)).item() for _ in range(2)] == [2, 2]
    Net.factor = 3.0
    assert compiled(pb.ones(1)).item() == 3
    Net.scaled = lambda self, x: x * 7
    assert compiled(pb.ones(1)).item() == 7


# ---- objects in sets -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [set, deque])
def test_objects_in_sets_and_deques_are_watched(kind):
    class Factor:
        def __init__(self, value):
            self.value = value

    held = kind([Factor(2.0)])

    @pb.compile
    def scaled(x):
        for one in held:
            x = x * one.value
        return x

    for value in (2.0, 3.0, 4.0):
        assert [scaled(pb.ones(1)).item() for _ in range(2)] == [value] * 2
        next(iter(held)).value = value + 0.5
        assert scaled(pb.ones(1)).item() == value + 0.5
        held.pop()
        (held.add if kind is set else held.append)(Factor(value + 1))

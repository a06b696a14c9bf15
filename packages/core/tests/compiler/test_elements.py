"""Numbers that ``item()`` returns in compiled functions: returned, computed with, read."""

import collections
import datetime
import decimal
import fractions
import itertools
import json
import math
import sqlite3
import statistics
import time
import types
import typing
import warnings
from functools import partial

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback.compiler.numbers import Number

Scores = collections.namedtuple("Scores", "loss correct")


def same(one, other):
    """Equal values of one class, bit for bit, in containers too."""
    if isinstance(one, pb.Tensor):
        return one.dtype == other.dtype and same(one.tolist(), other.tolist())
    if isinstance(one, (tuple, list)):
        return (
            type(one) is type(other)
            and len(one) == len(other)
            and all(same(a, b) for a, b in zip(one, other))
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and (one == other or (one != one and other != other))


RETURNED = {
    "itself": lambda x: x.sum().item(),
    "tuple": lambda x: (x * 2, x.double().mean().item()),
    "named": lambda x: Scores(x.double().mean().item(), (x > 0).sum().item()),
    "dict": lambda x: {"largest": [x.max().item(), x.argmax().item()], "any": (x > 1).any().item()},
    "twice": lambda x: (lambda one: (one, one, [one]))(x.sum().item()),
    "of an argument": lambda x: x[0].item(),
    "factor": lambda x: x * (2 * x.double().amax().item() - 1) + 1 - x[0].item() / 4,
    "percent": lambda x: 100.0 * (x > 0).sum().item() / len(x),
    "accuracy": lambda x: (x > 0).sum().item() / x.numel(),
    "rounded": lambda x: round(x.double().mean().item(), 2),
    "sum": lambda x: sum(x[k].item() for k in range(3)),
    "several": lambda x: -x[0].item() + abs(x[1].item()) * 3 - 2 * x[2].item() - x[0].item(),
    "wholes": lambda x: ((x > 0).sum().item() // 2, (x > 0).sum().item() % 2, +x.argmin().item()),
    "bools": lambda x: (x > 0).all().item() + True,
    "scaled": lambda x: x / x.abs().max().item(),
    "shifted": lambda x: (x - x.double().mean().item()) * 2 + x.max().item(),
    "both": lambda x: (lambda one: (x * one, one))(x.max().item()),
    "not used": lambda x: (x.sum().item(), x * 2)[1],
    "memory written later": lambda x: (lambda y: (y[0].item(), y.zero_()))(x * 1),
}
FACTORS = {"factor", "scaled", "shifted", "both"}
VALUES = [
    pb.tensor([1.0, -2.0, 3.0]),
    pb.tensor([0.1, 0.2, 0.3]),
    pb.tensor([-5.0, 1e30, 0.0]),
    pb.tensor([math.inf, -1.0, 2.0]),
    pb.tensor([math.nan, -1.0, 2.0]),
]


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.bfloat16, pb.int32])
@pytest.mark.parametrize("name", RETURNED)
def test_elements_are_returned(name, dtype):
    if name in FACTORS and not dtype.is_floating_point:
        pytest.skip("an int that is a factor is read")
    function = RETURNED[name]
    compiled = pb.compile(function, fullgraph=True)
    for x in VALUES[: None if dtype.is_floating_point else 2]:
        x = x.to(dtype)
        assert same(compiled(x.clone()), function(x.clone()))
    assert [one.runs for one in compiled.entries] == [4 if dtype.is_floating_point else 1]


READ = {
    "whole float": lambda x: (x > 0).sum().item() == 3.0,
    "float and whole": lambda x: [3.0, 2.0, 1.0, 0.0].index((x > 0).sum().item()),
    "key of a float": lambda x: {0.0: "a", 1.0: "b", 2.0: "c", 3.0: "d"}[(x > 0).sum().item()],
    "complex": lambda x: (x > 0).sum().item() == 3 + 0j,
    "fraction": lambda x: fractions.Fraction(1, 2) + (x > 0).sum().item(),
    "number of numpy": lambda x: numpy.float32(0.1) * x[0].item(),
    "element of numpy": lambda x: x[0].item() - numpy.float32(0.1),
    "function of numpy": lambda x: numpy.exp(x[0].item()),
    "two for numpy": lambda x: numpy.maximum(x[0].item(), x[1].item()),
    "is not a number": lambda x: bool(numpy.isnan(x[0].item())),
    "mean of numpy": lambda x: numpy.mean([x[0].item(), x[1].item()]),
    "array and number": lambda x: (x.numpy() + x[0].item()).tolist(),
    "is finite": lambda x: math.isfinite(x[0].item()),
    "numpy array": lambda x: (x[:1].numpy() * x[0].item()).dtype.name,
    "comparison": lambda x: x * 2 if x.sum().item() > 0 else x,
    "power": lambda x: x ** x.sum().item(),
    "divisor": lambda x: 1 / (x.sum().item() + 3.5),
    "math": lambda x: math.exp(x.double().mean().item()),
    "text": lambda x: f"{x.sum().item():.2f}",
    "format": lambda x: f"{x.sum().item()}",
    "percent": lambda x: "%.3f" % x.sum().item(),  # noqa: UP031
    "int": lambda x: int(x.sum().item()),
    "index": lambda x: [5, 6, 7][x.argmax().item()],
    "range": lambda x: list(range((x > 0).sum().item())),
    "largest": lambda x: max(x[0].item(), x[1].item()),
    "key": lambda x: {0: "a", 1: "b", 2: "c"}[x.argmax().item()],
    "whole": lambda x: round(x.double().mean().item()),
    "is whole": lambda x: x[0].item().is_integer(),
    "array": lambda x: numpy.asarray([x[0].item(), x[1].item()]).sum().item(),
    "array of numpy": lambda x: numpy.float64(x[0].item()) * 2,
    "median": lambda x: statistics.median([x[0].item(), x[1].item(), x[2].item()]),
    "tensor": lambda x: pb.tensor([x[0].item(), 1.0]),
    "full": lambda x: pb.full((2,), x[0].item()),
    "clamp": lambda x: x.clamp(min=x[2].item()),
    "slice": lambda x: x[: x.argmax().item()],
    "size": lambda x: pb.zeros(x.argmax().item()),
    "type": lambda x: type(x[0].item()) is float,
    "float": lambda x: float(x[0]),
    "complex element": lambda x: pb.complex(x, x)[0].item(),
    "shift": lambda x: 1 << (x > 0).sum().item(),
}


@pytest.mark.parametrize("name", READ)
def test_elements_that_are_read_run_eagerly(name):
    function = READ[name]
    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in VALUES[:2]:
            assert same(compiled(x.clone()), function(x.clone()))
    assert compiled.refusals and not any(one.runs for one in compiled.entries)
    with pytest.raises(RuntimeError, match=r"cannot capture .*\(line \d+ of .*test_elements.py\)"):
        pb.compile(function, fullgraph=True)(VALUES[0])


Holder = type("Holder", (), {})
Slotted = type("Slotted", (), {"__slots__": ("loss",)})


def keepers():
    kept, holder, space, queue = [], Holder(), types.SimpleNamespace(), collections.deque(maxlen=2)
    table, some, slotted, last = {}, set(), Slotted(), 0.0

    def cell(x):
        nonlocal last
        last = x.sum().item()
        return x * 2

    return {
        "list": (lambda x: kept.append(x.sum().item()), lambda: kept),
        "deque": (lambda x: queue.append(x.sum().item()), lambda: queue),
        "dict": (lambda x: table.update(loss=x.sum().item()), lambda: table.values()),
        "attribute": (lambda x: setattr(holder, "loss", x.sum().item()), lambda: [holder.loss]),
        "namespace": (lambda x: setattr(space, "loss", x.sum().item()), lambda: [space.loss]),
        "cell": (cell, lambda: [last]),
        "computed": (lambda x: kept.append(x.sum().item() / 3), lambda: kept),
        "nested": (lambda x: kept.append([x.sum().item()]), lambda: [*itertools.chain(*kept)]),
        "tuple": (lambda x: kept.append((1, x.sum().item())), lambda: [*itertools.chain(*kept)]),
        "tuples": (
            lambda x: kept.append((1, (x.sum().item(),))),
            lambda: [one[1][0] for one in kept],
        ),
        "set": (lambda x: some.add(x.sum().item()), lambda: sorted(some)),
        "key": (lambda x: table.update({x.sum().item(): 1}), lambda: [*table]),
        "slot": (lambda x: setattr(slotted, "loss", x.sum().item()), lambda: [slotted.loss]),
        "partial": (
            lambda x: kept.append(partial(max, x.sum().item())),
            lambda: [kept[-1].args[0]],
        ),
    }


@pytest.mark.parametrize("name", keepers())
def test_elements_that_are_kept_are_plain_numbers(name):
    function, values = keepers()[name]
    expected, expected_values = keepers()[name]
    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in VALUES[:4]:
            compiled(x)
            expected(x)
            assert list(values()) == list(expected_values())
            assert not any(isinstance(one, Number) for one in values())
            assert [type(one) for one in values()] == [type(one) for one in expected_values()]
    assert not any(one.runs for one in compiled.entries)


def test_whole_training_step_with_its_numbers():
    def run(compiled):
        pb.manual_seed(0)
        net = pb.nn.Sequential(pb.nn.Linear(4, 8), pb.nn.Tanh(), pb.nn.Linear(8, 3))
        optimizer = pb.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            out = net(x)
            loss = pb.nn.functional.cross_entropy(out, y)
            loss.backward()
            norm = pb.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            correct = (out.argmax(1) == y).sum().item()
            return {"loss": loss.item(), "norm": norm.item(), "accuracy": 100.0 * correct / len(y)}

        step = pb.compile(step, fullgraph=True) if compiled else step
        found = [step(pb.randn(5, 4), pb.randint(0, 3, (5,))) for _ in range(8)]
        return found, step

    (found, step), (expected, _) = run(True), run(False)
    assert found == expected
    assert [one.runs for one in step.entries] == [6]


def test_gradient_of_what_is_computed_with_an_element():
    def function(x, w):
        scale = x.abs().max().item()
        return (w * scale + x / scale).square().sum()

    compiled = pb.compile(function, fullgraph=True)
    for x in VALUES[:3]:
        found = []
        for call in (compiled, function):
            w = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
            call(x, w).backward()
            found.append(w.grad.tolist())
        assert found[0] == found[1]


def test_elements_beside_sizes_that_vary():
    compiled = pb.compile(lambda x: (x * 2, x.sum().item() / 8), dynamic=True)
    divided = pb.compile(lambda x: (x * 2, x.sum().item() / x.shape[0]), dynamic=True)
    for size in (8, 64, 20, 33, 12, 57, 12):
        x = pb.randn(size)
        assert same(compiled(x), (x * 2, x.sum().item() / 8))
        assert same(divided(x), (x * 2, x.sum().item() / size))
    assert "made from two" in str(compiled.explain())
    assert len(divided.entries) == 6  # each size is recorded


def test_json_gets_plain_numbers():
    compiled = pb.compile(lambda x: json.dumps({"loss": x.sum().item()}))
    with pytest.warns(UserWarning, match="runs eagerly"):
        assert compiled(pb.ones(2)) == '{"loss": 2.0}'
    assert compiled(pb.zeros(2)) == '{"loss": 0.0}'


OPERATIONS = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / other,
    "//": lambda one, other: one // other,
    "%": lambda one, other: one % other,
    "round": lambda one, other: round(one, 3) + other,
    "neg": lambda one, other: -one - abs(other),
    "reflected": lambda one, other: other - one,
}
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).filter(bool), st.integers(-1000, 1000).filter(bool), st.just(True)
)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), NUMBERS), max_size=6),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=4),
)
def test_what_python_computes_is_computed_in_each_run(steps, values):
    def function(x, whole):
        number = whole.item() if steps and len(steps) % 2 else x.item()
        for name, other in steps:
            number = OPERATIONS[name](number, other)
        return number

    compiled = pb.compile(function, fullgraph=True)
    for value in values:
        x, whole = pb.tensor(value, dtype=pb.float64), pb.tensor(int(value))
        assert same(compiled(x, whole), function(x, whole))


class Plus(typing.NamedTuple("Plus", [("loss", object), ("n", object)])):
    __slots__ = ()

    def __new__(cls, loss, n=3):
        return super().__new__(cls, loss, n + 1)


class Doubled(list):
    def __init__(self, one):
        super().__init__([one, one])


class Two(tuple):
    __slots__ = ()

    def __new__(cls, one, other):
        return super().__new__(cls, (one, other))


OWN = {
    "named tuple": lambda x: Plus(x.sum().item()),
    "named tuple of a tensor": lambda x: Plus(x.sum()),
    "list": lambda x: Doubled(x.sum().item()),
    "tuple": lambda x: Two(x.sum().item(), 2),
    "tuple of a tensor": lambda x: Two(x.sum(), 2),
    "counter": lambda x: collections.Counter(hit=(x > 0).sum().item(), n=3),
}


@pytest.mark.parametrize("name", OWN)
def test_containers_that_are_made_in_their_own_way_are_left_alone(name):
    function = OWN[name]
    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in VALUES[:2] * 2:
            found, expected = compiled(x), function(x)
            assert type(found) is type(expected) and same(found, expected)


def test_counter_of_the_caller_is_counted_in():
    def run(wrap):
        total = collections.Counter()
        function = wrap(lambda x: total.update(hit=(x > 0).sum().item(), n=3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in VALUES[:4]:
                function(x)
        return total

    assert run(pb.compile) == run(lambda function: function)


PLAIN_ALONE = {
    "statistics": lambda n: statistics.mean([n, 1]),
    "decimal": lambda n: str(decimal.Decimal(n)),
    "json": lambda n: json.dumps([n]),
    "date": lambda n: datetime.datetime.fromtimestamp(n, datetime.timezone.utc).year,
    "span": lambda n: datetime.timedelta(seconds=n).seconds,
    "time": lambda n: time.gmtime(n).tm_sec,
    "sleep": lambda n: time.sleep(n * 0),
    "query": lambda n: sqlite3.connect(":memory:").execute("select ?", (n,)).fetchone(),
}


@pytest.mark.parametrize("name", PLAIN_ALONE)
def test_what_takes_plain_numbers_alone_gets_them_after_a_step(name):
    use = PLAIN_ALONE[name]

    def run(wrap):
        w = pb.ones(1, requires_grad=True)
        optimizer = pb.optim.SGD([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (w * x).sum()
            loss.backward()
            optimizer.step()
            return use(loss.item())

        step = wrap(step)
        return [step(pb.ones(2)) for _ in range(3)], w.item()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(pb.compile) == run(lambda function: function)


def test_scale_of_a_scaler_is_an_element():
    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Linear(4, 2)
        optimizer, scaler = pb.optim.SGD(net.parameters(), lr=0.1), pb.amp.GradScaler("cpu")

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return {"loss": loss.item(), "scale": scaler.get_scale()}

        step = wrap(step)
        return [step(pb.randn(3, 4)) for _ in range(6)]

    assert run(partial(pb.compile, fullgraph=True)) == run(lambda function: function)

"""Arguments of compiled functions that hold others: dicts of several classes, dataclasses."""

import collections
import dataclasses
import warnings

import pytest

import pullback as pb


@dataclasses.dataclass
class Batch:
    x: object
    y: object
    name: str = "a"

    def product(self):
        return self.x * self.y

    @property
    def total(self):
        return self.product().sum()


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    inner: object = None


def pair():
    return pb.randn(3), pb.randn(3)


MADE = {
    "dict": lambda: dict(zip("xy", pair())),
    "OrderedDict": lambda: collections.OrderedDict(zip("xy", pair())),
    "defaultdict": lambda: collections.defaultdict(list, zip("xy", pair())),
    "nested": lambda: {"x": collections.OrderedDict(x=pair()[0]), "y": pair()[0]},
}


@pytest.mark.parametrize("name", MADE)
def test_new_dicts_are_one_program(name):
    def function(batch):
        x = batch["x"]["x"] if name == "nested" else batch["x"]
        return (x * batch["y"]).sum()

    compiled = pb.compile(function, fullgraph=True)
    for _ in range(5):
        batch = MADE[name]()
        assert compiled(batch).equal(function(batch))
    assert [one.runs for one in compiled.entries] == [4]


def test_order_and_class_of_a_dict_count():
    compiled = pb.compile(lambda batch: next(iter(batch.values())) * 2)
    ordered = collections.OrderedDict(x=pb.ones(2), y=pb.zeros(2))
    assert compiled(ordered).tolist() == [2.0, 2.0] and compiled(ordered).tolist() == [2.0, 2.0]
    ordered.move_to_end("x")
    assert compiled(ordered).tolist() == [0.0, 0.0]
    assert compiled({"x": pb.ones(2), "y": pb.zeros(2)}).tolist() == [2.0, 2.0]


FUNCTIONS = {
    "fields": lambda b: (b.x * b.y).sum(),
    "method": lambda b: b.product().sum(),
    "property": lambda b: b.total * 3,
    "text": lambda b: b.x * len(b.name),
    "in a tuple": lambda b: (b.x, b.y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_new_instances_of_dataclasses_are_one_program(name):
    function = FUNCTIONS[name]
    compiled = pb.compile(function, fullgraph=True)
    for number in range(6):
        batch = Batch(*pair(), "a" if number < 3 else "bb")
        found, expected = compiled(batch), function(batch)
        if name == "in a tuple":
            assert found[0] is batch.x and found[1] is batch.y
        else:
            assert found.equal(expected)
    assert [one.runs for one in compiled.entries] == [2, 2]


def test_gradients_through_fields():
    compiled = pb.compile(lambda b: (b.x * b.y).sum())
    for _ in range(3):
        x, y = pb.randn(3).requires_grad_(), pb.randn(3)
        compiled(Batch(x, y)).backward()
        assert x.grad.equal(y)


def test_what_fields_refer_to_is_watched():
    inner = Config(3.0)
    config = Config(2.0, inner)
    compiled = pb.compile(lambda x, c: x * c.scale * c.inner.scale)
    assert compiled(pb.ones(1), config).item() == 6.0
    assert compiled(pb.ones(1), Config(2.0, Config(3.0))).item() == 6.0
    assert len(compiled.entries) == 1
    inner.scale = 5.0
    assert compiled(pb.ones(1), config).item() == 10.0
    config.scale = 1.0
    assert compiled(pb.ones(1), config).item() == 5.0


CHANGES = {
    "new attribute": lambda b: setattr(b, "z", b.x * 2),
    "attribute": lambda b: setattr(b, "x", b.x * 2),
    "text": lambda b: setattr(b, "name", b.name + "c"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_functions_that_change_fields_run_eagerly(name):
    def function(batch):
        CHANGES[name](batch)
        return batch.x + 1

    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            one, other = Batch(pb.ones(2), pb.ones(2)), Batch(pb.ones(2), pb.ones(2))
            assert compiled(one).equal(function(other))
            assert vars(one).keys() == vars(other).keys() and one.name == other.name
            assert one.x.equal(other.x)
    assert not any(one.runs for one in compiled.entries)


def test_dataclass_that_is_returned_is_that_of_the_call():
    compiled = pb.compile(lambda c, x: (c, x * c.scale))
    for number in (2.0, 2.0, 3.0):
        config = Config(number)
        found, y = compiled(config, pb.ones(1))
        assert found is config and y.item() == number


@pytest.mark.parametrize("make", [list, lambda one: {0: one[0]}, lambda one: Pair(one[0])])
def test_one_container_twice_is_no_two_containers(make):
    def function(a, b):
        first = a.x if isinstance(a, Pair) else a[0]
        return first * (2 if a is b else 3), a, b

    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for is_one in (True, False, True, False, False):
            one, other = make([pb.ones(1)]), make([pb.ones(1)])
            y, a, b = compiled(one, one if is_one else other)
            assert y.item() == (2 if is_one else 3)
            assert a is one and b is (one if is_one else other)


@dataclasses.dataclass
class Pair:
    x: object


class Slotted:
    __slots__ = ("h",)


@dataclasses.dataclass
class Inherits(Slotted):
    x: object


@dataclasses.dataclass
class Field(list):
    scale: float = 1.0


def test_dataclasses_that_hold_more_than_their_fields():
    scaled = pb.compile(lambda d: d.x * d.h)
    counted = pb.compile(lambda d, x: x * len(d) * d.scale)
    for number in range(4):
        one = Inherits(pb.ones(1))
        one.h = number
        assert scaled(one).item() == number
        other = Field()
        other.extend(range(number))
        assert counted(other, pb.ones(1)).item() == number


def test_factory_of_a_defaultdict_counts():
    compiled = pb.compile(lambda d, x: x * d.default_factory() + d["a"])
    for factory, value in ((int, 0), (lambda: 3, 3), (int, 0), (lambda: 4, 4)):
        found = compiled(collections.defaultdict(factory, a=1), pb.ones(1))
        assert found.item() == value + 1


# ---- what is said, and how often -----------------------------------------------------------------


def test_warning_names_what_a_function_changes():
    class Counter:
        step = 0

    counter = Counter()

    def function(x):
        counter.step += 1
        return x * 2

    compiled = pb.compile(function)
    with pytest.warns(UserWarning, match=r"changes what it refers to, counter\.step"):
        _ = [compiled(pb.ones(2)) for _ in range(5)]
    assert counter.step == 5


def test_refused_functions_are_not_recorded_again_and_again():
    kept = []

    def function(x):
        kept.append(x.sum().item() > 0)
        return x * 2

    compiled = pb.compile(function, recompile_limit=1000)
    with pytest.warns(UserWarning, match=r"cannot replay item\(\)"):
        _ = [compiled(pb.ones(2)) for _ in range(10)]
    assert len(kept) == 10 and len(compiled.refusals) <= 3
    compiled.forget()
    with pytest.warns(UserWarning, match=r"cannot replay item\(\)"):
        compiled(pb.ones(2))


# ---- results -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Output:
    loss: object
    scores: object = None
    rest: tuple = ()

    @property
    def best(self):
        return self.scores.argmax()


@dataclasses.dataclass(eq=False)
class Node:
    x: object
    parent: object = None
    children: list = dataclasses.field(default_factory=list)


OUTPUTS = {
    "itself": lambda x, w: Output((x * w).sum(), x * w),
    "in a tuple": lambda x, w: (x, Output((x * w).sum(), w * 2, (x * 3,))),
    "nested": lambda x, w: Output(Output(x * w, 3), {"w": w * 2}, ("text", None)),
    "numbers": lambda x, w: Output(x.sum().item(), (x > 0).sum().item() / 4),
    "twice": lambda x, w: (lambda one: [one, one])(Output(x * w)),
    "list": lambda x, w: [Batch(one, one * 2) for one in (x * w).unbind(0)],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_dataclasses_are_results(name):
    function = OUTPUTS[name]
    compiled = pb.compile(function, fullgraph=True)

    def plain(value):
        if isinstance(value, pb.Tensor):
            return value.tolist(), value.requires_grad
        if dataclasses.is_dataclass(value):
            return type(value), [plain(one) for one in vars(value).items()]
        if isinstance(value, (tuple, list)):
            return [plain(one) for one in value]
        return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value

    seen = []
    for _ in range(4):
        x, w = pb.randn(4), pb.randn(4).requires_grad_()
        found, expected = compiled(x, w), function(x, w)
        assert plain(found) == plain(expected)
        assert not any(found is one for one in seen)
        seen.append(found)
        if name == "itself":
            found.loss.backward()
            assert w.grad.equal(x) and found.best.equal(expected.best)
        if name == "twice":
            assert found[0] is found[1]
    assert [one.runs for one in compiled.entries] == [3]


def test_arguments_that_contain_themselves_run_eagerly():
    def tree():
        root = Node(pb.ones(2))
        root.children.append(Node(pb.full((2,), 3.0), root))
        return root

    compiled = pb.compile(lambda node: node.x * node.children[0].x)
    with pytest.warns(UserWarning, match="an argument that contains itself"):
        assert compiled(tree()).tolist() == [3.0, 3.0]
    cycle = [pb.ones(1)]
    cycle.append(cycle)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(compiled(tree()).tolist() == [3.0, 3.0] for _ in range(4))
        assert pb.compile(lambda one: one[0] * 2)(cycle).tolist() == [2.0]


@dataclasses.dataclass(slots=True)
class Slots:
    x: object
    y: object = None


@dataclasses.dataclass(slots=True, frozen=True)
class More:
    x: object
    n: int = 2


def test_dataclasses_with_slots():
    compiled = pb.compile(
        lambda b, m: Slots(b.x * b.y * m.n, More(m.x.sum().item())), fullgraph=True
    )
    for n in (2, 2, 3, 2):
        x, y = pair()
        found = compiled(Slots(x, y), More(x, n))
        assert type(found) is Slots and found.x.equal(x * y * n)
        assert found.y == More(x.sum().item())
    assert [one.runs for one in compiled.entries] == [2, 0]

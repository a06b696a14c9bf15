"""What compiled functions refer to: attributes of tensors, order, code, and objects in sets."""

import array
import configparser
import contextvars
import ctypes
import dataclasses
import functools
import multiprocessing
import operator
import subprocess
import sys
import threading
import types
import typing
import warnings
import weakref
from collections import ChainMap, OrderedDict, UserDict, deque

import numpy as np
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
    assert compiled(pb.ones(1)).item() == 3 and compiled.entries[-1].runs == 2
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


def retaining():
    made = product()
    made.retain_grad()
    return made


def hooked():
    made = leaf()
    made.register_hook(lambda grad: grad)
    return made


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
    "retains_grad": (lambda x: x * (2 + x.retains_grad), product, retaining),
    "is_shared": (lambda x: x * (2 + x.is_shared()), leaf, lambda: pb.ones(2).share_memory_()),
    "_backward_hooks": (lambda x: x * (2 if x._backward_hooks is None else 3), leaf, hooked),
}


@pytest.mark.filterwarnings("ignore:.*a leaf with tensor hooks")
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


# ---- objects of libraries, which hold what a program puts there ----------------------------------


def with_item(holder):
    holder["k"] = 1.0
    return holder


class Owner:
    k = 1.0


OWNER = Owner()
LOCAL = threading.local()
VARIABLE = contextvars.ContextVar("VARIABLE", default=1.0)
ARRAY = np.ones(2)
OCTETS = array.array("d", [1.0])
NAMED = with_item(UserDict())
CHAINED = with_item(ChainMap({}, {}))
WEAK = weakref.WeakKeyDictionary({OWNER: 1.0})
TABLE = {"k": 1.0}
VIEW = TABLE.values()
COUNT, SHARED = ctypes.c_float(1.0), multiprocessing.Value("d", 1.0)
CONFIGURATION = configparser.ConfigParser()
CONFIGURATION["a"] = {"k": "1.0"}
PROXY = types.MappingProxyType(TABLE)
REFERENCE = weakref.ref(OWNER)
GETTER = operator.attrgetter("k")
HELD = dataclasses.make_dataclass("Held", ["k"])(1.0)
SPACE = types.ModuleType("space_of_test")
SCALE = 1.0
sys.modules["space_of_test"] = SPACE
NAMES = ["k"]


def scaled(self, by=1.0):
    return self.k * by


def counting(x):
    return x * counting.k


class Meta(type):
    k = 1.0


class Named(metaclass=Meta):
    pass


class Mapping(dict):
    def read(self):
        return self["a"] * self.k


class Listing(list):
    def read(self):
        return len(self) * self.k


class Pair(typing.NamedTuple):
    a: float
    b: int

    def read(self):
        return self.a * SCALE


class Weight(pb.nn.Parameter):
    def read(self):
        return self.detach() * SCALE


class Bound(Owner):
    read = functools.partialmethod(scaled, by=1.0)


@functools.wraps(pb.relu)
def relu(x):
    return x * SCALE


def importing(x):
    import space_of_test

    return x * space_of_test.k


def matching(x):
    match OWNER:
        case Owner(k=k):
            return x * k


def rate_of(state):
    first, *_ = list(state.values())[1][0].values()
    return first


def set_attribute(owner):
    return lambda value: setattr(owner, "k", value)


def set_scale(value):
    globals()["SCALE"] = value


BOUND, MAPPING, LISTING = Bound(), Mapping(a=1.0), Listing([1])
PAIR, WEIGHT = Pair(1.0, 2), Weight(pb.ones(1))
WATCHED = {  # a function, and what gives it another value
    "array": (lambda x: x * float(ARRAY[0]), lambda value: ARRAY.fill(value)),
    "octets": (lambda x: x * OCTETS[0], lambda value: OCTETS.__setitem__(0, value)),
    "number of C": (lambda x: x * COUNT.value, lambda value: setattr(COUNT, "value", value)),
    "shared number": (lambda x: x * SHARED.value, lambda value: setattr(SHARED, "value", value)),
    "view of a dict": (lambda x: x * sum(VIEW), lambda value: TABLE.update(k=value)),
    "configuration": (
        lambda x: x * float(CONFIGURATION["a"]["k"]),
        lambda value: CONFIGURATION["a"].__setitem__("k", str(value)),
    ),
    "dict of a library": (lambda x: x * NAMED["k"], lambda value: NAMED.update(k=value)),
    "chain of dicts": (lambda x: x * CHAINED["k"], lambda value: CHAINED.update(k=value)),
    "weak dict": (lambda x: x * WEAK[OWNER], lambda value: WEAK.update({OWNER: value})),
    "proxy": (lambda x: x * PROXY["k"], lambda value: TABLE.update(k=value)),
    "thread": (lambda x: x * LOCAL.k, set_attribute(LOCAL)),
    "context": (lambda x: x * VARIABLE.get(), VARIABLE.set),
    "weak reference": (lambda x: x * REFERENCE().k, set_attribute(OWNER)),
    "formatted name": (lambda x: x * getattr(OWNER, f"{'k'}"), set_attribute(OWNER)),
    "name in a list": (lambda x: x * getattr(OWNER, NAMES[0]), set_attribute(OWNER)),
    "vars": (lambda x: x * sum(vars(HELD).values()), set_attribute(HELD)),
    "getter": (lambda x: x * GETTER(OWNER), set_attribute(OWNER)),
    "match": (matching, set_attribute(OWNER)),
    "class made at run time": (lambda x: x * HELD.k, set_attribute(HELD)),
    "wrapper of an op": (lambda x: relu(x), set_scale),
    "import": (importing, set_attribute(SPACE)),
    "globals()": (lambda x: x * globals()["SCALE"], set_scale),
    "function": (lambda x: counting(x), set_attribute(counting)),
    "partial method": (lambda x: x * BOUND.read(), set_attribute(BOUND)),
    "metaclass": (lambda x: x * Named.k, set_attribute(Meta)),
    "subclass of dict": (lambda x: x * MAPPING.read(), set_attribute(MAPPING)),
    "subclass of list": (lambda x: x * LISTING.read(), set_attribute(LISTING)),
    "subclass of tuple": (lambda x: x * PAIR.read(), set_scale),
    "subclass of Tensor": (lambda x: x * WEIGHT.read(), set_scale),
    "name of a class": (
        lambda x: x * getattr(OWNER, "later", 0),
        lambda v: setattr(Owner, "later", v),
    ),
    "name of a module": (
        lambda x: x * getattr(SPACE, "later", 0),
        lambda v: setattr(SPACE, "later", v),
    ),
    "learning rate": (
        lambda x: x * rate_of(OPTIMIZER.state_dict()),
        lambda value: OPTIMIZER.param_groups[0].update(lr=value),
    ),
}
OPTIMIZER = pb.optim.SGD([pb.nn.Parameter(pb.ones(1))], lr=1.0)


@pytest.mark.parametrize("name", WATCHED)
def test_what_code_may_read_is_watched(name):
    function, change = WATCHED[name]
    if not name.startswith("name of a"):
        change(1.0)
    compiled = pb.compile(function)
    assert [compiled(pb.ones(1)).item() for _ in range(2)] == [function(pb.ones(1)).item()] * 2
    for value in (2.0, 3.0):
        change(value)
        assert [compiled(pb.ones(1)).item() for _ in range(2)] == [value] * 2


def test_class_that_an_object_gets_is_watched():
    class Twice(pb.nn.Module):
        def forward(self, x):
            return x * 2

    class Thrice(Twice):
        def forward(self, x):
            return x * 3

    module = Twice()
    compiled = pb.compile(module)
    assert compiled(pb.ones(1)).item() == 2
    module.__class__ = Thrice
    assert compiled(pb.ones(1)).item() == 3


def test_name_that_hides_a_builtin_is_watched(monkeypatch):
    compiled = pb.compile(lambda x: x * abs(-2))
    assert compiled(pb.ones(1)).item() == 2
    monkeypatch.setitem(globals(), "abs", lambda value: value)
    assert compiled(pb.ones(1)).item() == -2


def test_writes_to_objects_of_libraries_run_eagerly():
    written, log = np.zeros(1), UserDict(n=0)

    @pb.compile
    def logged(x):
        written[0] += 1
        log["n"] += 1
        return x * 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            logged(pb.ones(1))
    assert [" changes what it refers to" in str(one.message) for one in caught] == [True]
    assert written[0] == log["n"] == 5


@pytest.mark.parametrize("name", ["large", "objects"])
def test_arrays_that_are_not_compared_run_eagerly(name):
    held = np.ones(100_000) if name == "large" else np.array([1.0, None])
    compiled = pb.compile(lambda x: x * float(held[0]))
    with pytest.warns(UserWarning, match="refers to an array of"):
        assert compiled(pb.ones(1)).item() == 1
    held[0] = 2.0
    assert compiled(pb.ones(1)).item() == 2


def test_object_that_answers_few_attributes():
    class Few:
        def __getattribute__(self, name):
            return {"k": 2.0}[name]

    few = Few()
    assert pb.compile(lambda x: x * few.k)(pb.ones(1)).item() == 2


# ---- which objects arguments are -----------------------------------------------------------------


def test_arguments_that_are_keys():
    def run(wrap):
        params = [pb.ones(1), pb.full((1,), 2.0), pb.full((1,), 3.0)]
        state = {one: pb.zeros(1) for one in params}

        def update(param, grad):
            moment = state[param]
            moment.mul_(0.9).add_(grad)
            param.sub_(moment)

        step = wrap(update)
        for _ in range(3):
            for one in params:
                step(one, pb.ones(1))
        return [one.item() for one in (*params, *state.values())]

    assert run(pb.compile) == run(lambda function: function)


def test_arguments_that_are_compared_by_identity():
    held = pb.ones(1)
    is_held = pb.compile(lambda t: t * 2 if t is held else t * 3)
    are_same = pb.compile(lambda a, b: a * 2 if a is b else a * 3)
    for _ in range(2):
        assert [is_held(one).item() for one in (held, pb.ones(1))] == [2, 3]
        assert [are_same(held, one).item() for one in (held, held.view(1), pb.ones(1))] == [2, 3, 3]


# ---- where arguments are in memory ---------------------------------------------------------------


def test_offsets_that_code_uses_are_part_of_a_call():
    filled = pb.compile(lambda x: x.as_strided((10,), (1,), 0).fill_(5.0).sum())
    assert filled(pb.arange(10.0)[:3]).item() == 50
    for size in (10, 20):
        for start in (1, 7):
            base = pb.zeros(size)
            filled(base[start:])
            assert base.tolist() == [5.0] * 10 + [0.0] * (size - 10)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size"):
        filled(pb.zeros(5))
    for function in (lambda x: x * x.storage_offset(), lambda x: x * len(x.untyped_storage())):
        compiled = pb.compile(function)
        for start, size in ((0, 4), (1, 4), (1, 8)):
            x = pb.ones(size)[start : start + 2]
            assert compiled(x).tolist() == function(x).tolist()


# ---- modes of the process ------------------------------------------------------------------------


def test_modes_that_code_asks_for_are_watched():
    made = pb.compile(lambda x: pb.zeros(1) + 1)
    seeded = pb.compile(lambda x: x * pb.initial_seed())
    x = pb.ones(1)
    assert made(x).device == x.device
    with pb.device("meta"):
        assert made(x).device.type == "meta"
    for seed in (1, 2):
        pb.manual_seed(seed)
        assert seeded(x).item() == seed


# ---- what is alike -------------------------------------------------------------------------------


def test_equal_numbers_of_other_types_are_other_calls():
    queue, pool = deque([1]), {8, 0}
    first = pb.compile(lambda x: x * queue[0])
    folded = pb.compile(lambda x: functools.reduce(lambda y, k: y * 2 + k, list(pool), x))
    given = pb.compile(lambda x, part, table: x[part] * next(iter(table)))
    x = pb.tensor([1, 2])
    for value in (1, 1.0, -0.0, 0.0):
        queue[0] = value
        assert repr(first(x)) == repr(x * value)
    for items in ([8, 0], [0, 8]):
        pool.clear()
        pool.update(items)
        assert (
            folded(x).tolist() == functools.reduce(lambda y, k: y * 2 + k, list(pool), x).tolist()
        )
    assert given(x, slice(0, 2), {1: x}).dtype == pb.int64
    assert given(x, slice(0, 2), {1.0: x}).dtype == pb.float32
    with pytest.raises(TypeError):
        given(x, slice(0, 2.0), {1: x})


def test_names_that_hide_others_or_come_later_are_watched():
    class Scaled:
        __slots__ = ("later",)
        scale = 2.0

    class Open:
        scale = 2.0

    held, slots = Open(), Scaled()
    held.unused = 1
    hidden = pb.compile(lambda x: x * held.scale)
    slot = pb.compile(lambda x: x * (5 if hasattr(slots, "later") else 2))
    known = pb.compile(lambda x: x * (5 if "NEW_GLOBAL" in globals() else 2))
    x = pb.ones(1)
    assert [one(x).item() for one in (hidden, slot, known)] == [2, 2, 2]
    del held.unused
    held.scale = slots.later = 7.0
    globals()["NEW_GLOBAL"] = 1
    try:
        assert [one(x).item() for one in (hidden, slot, known)] == [7, 5, 5]
    finally:
        del globals()["NEW_GLOBAL"]


def test_attributes_that_no_code_names_cost_no_program():
    class Net(pb.nn.Module):
        def forward(self, x):
            return x * self.scale

    net = Net()
    net.scale, net.history, net.epoch = 2.0, [], 0
    compiled = pb.compile(net)
    x = pb.ones(1)
    for number in range(8):
        net.epoch = number
        net.history.append(number)
        setattr(Net, f"of_class_{number}", 1)
        assert compiled(x).item() == 2
    assert len(compiled._compiled.entries) == 1
    net.scale = 3.0
    assert compiled(x).item() == 3


def test_arguments_that_are_equal_objects():
    expanded = pb.compile(lambda x, size, factor: x.expand(size) * float(factor))
    for _ in range(5):
        y = pb.ones(3, 2)
        assert expanded(pb.ones(1), y.shape, np.float64(0.5)).tolist() == [[0.5] * 2] * 3
    assert len(expanded.entries) == 1
    assert expanded(pb.ones(1), pb.ones(2).shape, np.float32(2)).tolist() == [2, 2]


def test_dict_of_tensors_by_tensors():
    total = pb.compile(lambda table: sum(key * value for key, value in table.items()))
    for value in (1.0, 3.0):
        assert total({pb.full((2,), value): 2}).tolist() == [2 * value] * 2


def test_region_of_autocast_is_recorded():
    code = """
import pullback as pb
net = pb.nn.Linear(4, 2)
@pb.compile
def step(x):
    with pb.autocast("cpu", dtype=pb.bfloat16):
        return net(x).float().sum()
for _ in range(3):
    step(pb.ones(3, 4)).backward()
assert step.entries[0].runs == 2, step.refusals
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("closed", [False, True])
def test_order_of_an_ordered_dict_that_is_an_argument(closed):
    class Ordered(OrderedDict):
        pass

    held = Ordered(a=2.0, b=3.0) if closed else OrderedDict(a=2.0, b=3.0)
    folded = pb.compile(
        lambda x, table: functools.reduce(lambda y, k: y * k + 1, table.values(), x)
    )
    assert [folded(pb.ones(1), held).item() for _ in range(2)] == [10, 10]
    held.move_to_end("a")
    assert [folded(pb.ones(1), held).item() for _ in range(2)] == [9, 9]


def test_what_a_constructor_reads_is_watched():
    class Made:
        def __init__(self):
            self.scale = SCALE

    compiled = pb.compile(lambda x: x * Made().scale)
    for value in (2.0, 3.0):
        set_scale(value)
        assert [compiled(pb.ones(1)).item() for _ in range(2)] == [value] * 2


def test_cell_that_is_assigned_later_is_watched():
    def make():
        def scaled(x):
            try:
                return x * scale
            except NameError:
                return x * 2

        compiled = pb.compile(scaled)
        found = [compiled(pb.ones(1)).item() for _ in range(2)]
        scale = 3.0
        return found + [compiled(pb.ones(1)).item() for _ in range(2)]

    assert make() == [2, 2, 3, 3]


# ---- what a function does to tensors from outside ------------------------------------------------


def refuses(function, *args):
    compiled = pb.compile(function)
    with pytest.warns(UserWarning, match="from outside|the memory of another tensor"):
        compiled(*args)
    return len(compiled.entries) == 0 or compiled.entries[0].program is None


def test_new_hooks_of_tensors_from_outside_are_not_replayed():
    """Each call would add one."""
    leaf = pb.ones(2, requires_grad=True)
    made = leaf * 2
    assert refuses(lambda: (leaf.register_hook(lambda g: g * 2), leaf * 1)[1])
    assert refuses(lambda: (leaf.register_post_accumulate_grad_hook(print), leaf * 1)[1])
    assert refuses(lambda: (made.register_hook(lambda g: g * 2), made * 1)[1])
    assert refuses(lambda: (made.retain_grad(), made * 1)[1])
    assert refuses(lambda: (made.grad_fn.register_hook(lambda *g: None), made * 1)[1])
    assert refuses(lambda x: (x.register_post_accumulate_grad_hook(print), x * 1)[1], leaf)


@pytest.mark.parametrize("times", [1, 2, 3])  # whose freed memory may come back
def test_an_argument_that_gets_other_memory_is_not_replayed(times):
    def function(x):
        zeros = pb.zeros(2)
        for _ in range(times):
            x.data = zeros
        return x * 1

    x = pb.ones(2)
    assert refuses(function, x)
    assert x.tolist() == [0.0, 0.0]


def test_results_that_cannot_be_asked_for_their_history():
    def function(x):
        y = x * 2
        part, _ = y.unbind(0)
        y.mul_(2)
        return part

    compiled = pb.compile(function)
    with pytest.warns(UserWarning, match="a result whose history is invalid"):
        found = compiled(pb.ones(2, 3, requires_grad=True))
    with pytest.raises(RuntimeError, match="Output 0 of Unbind is a view"):
        _ = found.is_leaf

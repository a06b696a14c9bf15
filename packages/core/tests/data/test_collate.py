"""Batches made of samples: classes of containers, dtypes, errors."""

import collections
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback.utils.data import DataLoader, default_collate, default_convert
from pullback.utils.data._utils.collate import collate, default_collate_fn_map
from pullback.utils.data._utils.pin_memory import pin_memory

Pair = namedtuple("Pair", "x y")


class Record(collections.abc.Mapping):
    """A mapping that is made of one."""

    def __init__(self, items):
        self.items_ = dict(items)

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class Point(Record):
    """A mapping that is made of two numbers."""

    def __init__(self, x, y):
        super().__init__({"x": x, "y": y})


class Row(list):
    pass


class Two(collections.abc.Sequence):
    def __init__(self, first, second):
        self.values = [first, second]

    def __getitem__(self, index):
        return self.values[index]

    def __len__(self):
        return 2


def plain(value):
    """Return a batch with (class, dtype, list) in place of tensors."""
    if isinstance(value, pb.Tensor):
        return value.dtype.name, value.tolist()
    if isinstance(value, collections.abc.Mapping):
        return type(value), {key: plain(value[key]) for key in value}
    if isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes)):
        return type(value), [plain(part) for part in value]
    return value


INTS = ("int64", [1, 2])
DOUBLES = ("float64", [1.0, 2.0])


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1, 2], INTS),
        ([1.0, 2.0], DOUBLES),
        ([True, False], ("bool", [True, False])),
        ([1, 2.5], ("float32", [1.0, 2.5])),
        (["a", "b"], (list, ["a", "b"])),
        ([b"a", b"b"], (list, [b"a", b"b"])),
        ([np.float32(1), np.float32(2)], ("float32", [1.0, 2.0])),
        ([np.int16(3)], ("int16", [3])),
        ([np.bool_(True)], ("bool", [True])),
        ([np.float64(1), np.float64(2)], DOUBLES),
        ([np.array(1.0), np.array(2.0)], DOUBLES),
        ([np.ones((1, 2), np.int32)] * 2, ("int32", [[[1, 1]], [[1, 1]]])),
        ([pb.tensor(1), pb.tensor(2)], INTS),
        ([pb.ones(2)] * 2, ("float32", [[1, 1], [1, 1]])),
        ([(1, 1.0), (2, 2.0)], (list, [INTS, DOUBLES])),
        ([[1, "a"], [2, "b"]], (list, [INTS, (tuple, ["a", "b"])])),
        ([Row([1]), Row([2])], (Row, [INTS])),
        ([Two(1, 1), Two(2, 2)], (list, [INTS, INTS])),
        ([range(1, 2), range(2, 3)], (list, [INTS])),
        ([Pair(1, 1.0), Pair(2, 2.0)], (Pair, [INTS, DOUBLES])),
        ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], (dict, {"a": INTS, "b": (list, ["x", "y"])})),
        ([OrderedDict(a=1), OrderedDict(a=2)], (OrderedDict, {"a": INTS})),
        ([defaultdict(int, a=1), defaultdict(int, a=2)], (defaultdict, {"a": INTS})),
        ([Record({"a": 1}), Record({"a": 2})], (Record, {"a": INTS})),
        ([Point(1, 1.0), Point(2, 2.0)], (dict, {"x": INTS, "y": DOUBLES})),
        ([{"a": [(1,)]}, {"a": [(2,)]}], (dict, {"a": (list, [(list, [INTS])])})),
        ([[], []], (list, [])),
    ],
)
def test_default_collate_keeps_containers_and_dtypes(samples, expected):
    assert plain(default_collate(samples)) == expected


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([None], TypeError, "batch must contain tensors, numpy arrays, numbers, dicts or lists; f"),
        ([1j], TypeError, "found <class 'complex'>"),
        ([np.array("a")], TypeError, "found <U1"),
        ([np.array([object()])], TypeError, "found object"),
        ([(1,), (1, 2)], RuntimeError, "each element in list of batch should be of equal size"),
        ([pb.ones(1), pb.ones(2)], RuntimeError, "expects each tensor to be equal size"),
        ([{"a": 1}, {"b": 1}], KeyError, "a"),
        ([], IndexError, "out of range"),
    ],
)
def test_default_collate_refuses(samples, error, text):
    with pytest.raises(error, match=text):
        default_collate(samples)


def test_collate_takes_functions_for_classes():
    class Text(str):
        __slots__ = ()

    joined = {str: lambda batch, *, collate_fn_map: "".join(batch)}
    assert collate([("a", Text("b")), ("c", Text("d"))], collate_fn_map=joined) == ["ac", "bd"]
    both = {**default_collate_fn_map, **joined}
    assert plain(collate([{"a": 1, "b": "x"}] * 2, collate_fn_map=both)) == (
        dict,
        {"a": ("int64", [1, 1]), "b": "xx"},
    )


def test_stacked_tensors_have_a_gradient():
    x = pb.ones(2, requires_grad=True)
    default_collate([x, 2 * x]).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (1, 1),
        ("a", "a"),
        (None, None),
        (np.array([1.0, 2.0]), DOUBLES),
        (np.float32(1), ("float32", 1.0)),
        ({"a": np.array([1, 2])}, (dict, {"a": INTS})),
        ((1, np.array([1, 2])), (list, [1, INTS])),
        (Pair(1, np.array([1, 2])), (Pair, [1, INTS])),
        (Row([np.array([1, 2])]), (Row, [INTS])),
        (Record({"a": np.array([1, 2])}), (Record, {"a": INTS})),
        (range(2), (list, [0, 1])),
    ],
)
def test_default_convert_makes_tensors_of_arrays(data, expected):
    assert plain(default_convert(data)) == expected
    assert plain(next(iter(DataLoader([data], batch_size=None)))) == expected


def test_default_convert_leaves_text_arrays():
    texts = np.array(["a"])
    assert default_convert(texts) is texts


def test_pin_memory_calls_the_method_of_leaves():
    class Leaf:
        def __init__(self, text="plain"):
            self.text = text

        def pin_memory(self):
            return Leaf("pinned")

    done = pin_memory({"a": (Leaf(), "text", 3), "b": Pair(Leaf(), Row([Leaf()]))})
    assert done["a"][0].text == done["b"].x.text == done["b"].y[0].text == "pinned"
    assert done["a"][1:] == ["text", 3]
    assert type(done["b"].y) is Row

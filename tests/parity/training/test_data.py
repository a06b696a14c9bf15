"""Data loading gives torch's batches, structures, lengths and errors.

Programs take the module, torch or pullback, and its ``utils.data``.
"""

import collections
import re
import time
import warnings

import numpy as np
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

# Other tests may have started threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

Pair = collections.namedtuple("Pair", "x y")


class Record(collections.abc.Mapping):
    """A mapping that is made of one."""

    def __init__(self, items):
        self.parts = dict(items)

    def __getitem__(self, key):
        return self.parts[key]

    def __iter__(self):
        return iter(self.parts)

    def __len__(self):
        return len(self.parts)


class Point(Record):
    """A mapping that is made of two numbers."""

    def __init__(self, x, y):
        super().__init__({"x": x, "y": y})


class Row(list):
    pass


class Custom(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


def described(value):
    """Return a value with (dtype, shape, elements) in place of tensors, of either library."""
    if isinstance(value, (torch.Tensor, pullback.Tensor)):
        return (
            str(value.dtype).replace("torch", "pullback"),
            tuple(value.shape),
            value.tolist(),
            value.requires_grad,
        )
    if isinstance(value, collections.abc.Mapping):
        return type(value), [(key, described(value[key])) for key in value]
    if isinstance(value, (list, tuple)):
        return type(value), [described(part) for part in value]
    return value


def text_of(error):
    """Return an error's text, without the traceback of a worker and with one name for both."""
    text = re.sub(r"(?s)Traceback.*\n(?=\S)", "", str(error))
    text = re.sub(r"0x[0-9a-f]+", "0x0", text).replace("torch", "pullback")
    return re.sub(r"pid\(s\) \d+|pid \d+", "pid", text)


def outcome(program, m):
    """Return what a program gives, or the error's class and text, and the warnings' texts."""
    m.manual_seed(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = described(program(m, m.utils.data))
        except Exception as error:
            cause = error.__cause__
            result = type(error), text_of(error), cause and (type(cause), text_of(cause))
    texts = [text_of(found.message) for found in caught if found.category is UserWarning]
    return result, texts


def same(program):
    """Assert that a program does the same with both."""
    assert outcome(program, pullback) == outcome(program, torch)


SAMPLES = {
    "ints": lambda m: [1, 2],
    "floats": lambda m: [1.0, 2.0],
    "bools": lambda m: [True, False],
    "mixed": lambda m: [1, 2.5],
    "texts": lambda m: ["a", "b"],
    "bytes": lambda m: [b"a", b"b"],
    "tuples": lambda m: [(1, "a"), (2, "b")],
    "lists": lambda m: [[1, "a"], [2, "b"]],
    "pairs": lambda m: [Pair(1, 2.0), Pair(3, 4.0)],
    "dicts": lambda m: [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "ordered": lambda m: [collections.OrderedDict(a=1)] * 2,
    "default": lambda m: [collections.defaultdict(int, a=1)] * 2,
    "records": lambda m: [Record({"a": 1}), Record({"a": 2})],
    "points": lambda m: [Point(1, 2.0), Point(3, 4.0)],
    "rows": lambda m: [Row([1, 2]), Row([3, 4])],
    "ranges": lambda m: [range(2), range(2)],
    "numpy numbers": lambda m: [np.float32(1), np.float32(2)],
    "numpy bools": lambda m: [np.bool_(True)],
    "numpy doubles": lambda m: [np.float64(2)],
    "numpy texts": lambda m: [np.str_("a")],
    "arrays": lambda m: [np.ones(2), np.zeros(2)],
    "0-d arrays": lambda m: [np.array(1), np.array(2)],
    "text arrays": lambda m: [np.array(["a"])],
    "object arrays": lambda m: [np.array([object()])],
    "tensors": lambda m: [m.tensor([1, 2]), m.tensor([3, 4])],
    "leaves": lambda m: [m.ones(2, requires_grad=True)],
    "nested": lambda m: [{"a": [(1, Pair(np.ones(1), "t"))]}] * 2,
    "nothing": lambda m: [],
    "none": lambda m: [None],
    "complex": lambda m: [1j],
    "slices": lambda m: [slice(1)],
    "dates": lambda m: [np.datetime64(1, "D")],
    "empty lists": lambda m: [[], []],
    "empty tuples": lambda m: [(), ()],
    "lengths": lambda m: [(1,), (1, 2)],
    "shapes": lambda m: [m.ones(1), m.ones(2)],
    "keys": lambda m: [{"a": 1}, {"b": 1}],
    "more keys": lambda m: [{"a": 1}, {"a": 1, "b": 1}],
    "large": lambda m: [2**70],
    "bytearrays": lambda m: [bytearray(b"a")],
    "tuple of samples": lambda m: (1, 2),
    "no sequence": lambda m: {1: 2},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_collated_and_converted_samples_agree(name):
    make = SAMPLES[name]
    same(lambda m, d: d.default_collate(make(m)))
    if name not in ("slices", "object arrays", "dates"):  # not compared, or in other words
        same(lambda m, d: d.default_convert(make(m)))


def tensors(m, d):
    return d.TensorDataset(m.arange(10) ** 2, m.eye(10))


def stream(d, length=None):
    class Stream(d.IterableDataset):
        def __iter__(self):
            return iter(range(10))

        def __repr__(self):
            return "Stream"

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


PROGRAMS = {
    "workers": lambda m, d: d.DataLoader([1], num_workers=-1),
    "timeout": lambda m, d: d.DataLoader([1], timeout=-1),
    "prefetch": lambda m, d: d.DataLoader([1], prefetch_factor=2),
    "negative prefetch": lambda m, d: d.DataLoader([1], num_workers=1, prefetch_factor=-1),
    "persistent": lambda m, d: d.DataLoader([1], persistent_workers=True),
    "stream shuffled": lambda m, d: d.DataLoader(stream(d), shuffle=True),
    "stream sampler": lambda m, d: d.DataLoader(stream(d), sampler=[1]),
    "stream batches": lambda m, d: d.DataLoader(stream(d), batch_sampler=[1]),
    "sampler shuffled": lambda m, d: d.DataLoader([1], shuffle=True, sampler=[1]),
    "batch sampler": lambda m, d: d.DataLoader([1], 2, batch_sampler=[[1]]),
    "drop nothing": lambda m, d: d.DataLoader([1], None, drop_last=True),
    "batch size": lambda m, d: d.DataLoader([1], 0),
    "batch size 2": lambda m, d: d.DataLoader([1], True),
    "drop": lambda m, d: d.DataLoader([1], drop_last=1),
    "context": lambda m, d: d.DataLoader([1], multiprocessing_context="fork"),
    "context 2": lambda m, d: d.DataLoader([1], num_workers=1, multiprocessing_context=3),
    "empty": lambda m, d: d.DataLoader([], shuffle=True),
    "many": lambda m, d: len(d.DataLoader([1], num_workers=1000)),
    "no samples": lambda m, d: list(d.DataLoader([])),
    "fixed": lambda m, d: setattr(d.DataLoader([1]), "batch_size", 2),
    "fixed 2": lambda m, d: setattr(d.DataLoader([1]), "multiprocessing_context", 2),
    "pickled": lambda m, d: iter(d.DataLoader([1])).__reduce_ex__(2),
    "pinned": lambda m, d: list(d.DataLoader([1], pin_memory=True, pin_memory_device="cuda")),
    "stream length": lambda m, d: [
        len(d.DataLoader(stream(d, n), size, drop_last=last))
        for n, size, last in ((3, 2, False), (3, 2, True), (3, None, False))
    ],
    "no length": lambda m, d: bool(d.DataLoader(stream(d), 2)) and 1,
    "too long": lambda m, d: (lambda loader: (len(loader), list(loader)))(
        d.DataLoader(stream(d, 8), None)
    ),
    "batches": lambda m, d: list(d.DataLoader(tensors(m, d), 4)),
    "dropped": lambda m, d: list(d.DataLoader(tensors(m, d), 4, drop_last=True)),
    "sampled": lambda m, d: list(d.DataLoader(tensors(m, d), 4, sampler=[3, -1, 3, 0, 1])),
    "single": lambda m, d: list(d.DataLoader(tensors(m, d), None)),
    "keyed": lambda m, d: list(d.DataLoader({"a": 1, "b": 2}, None, sampler=["a", "b"])),
    "batched keys": lambda m, d: list(d.DataLoader([1, 2, 3], batch_sampler=[[0], [2, 1]])),
    "out of range": lambda m, d: list(d.DataLoader(tensors(m, d), 4, sampler=[1, 10])),
    "subset": lambda m, d: list(d.DataLoader(d.Subset(tensors(m, d), [5, 2, 2, 9, 0]), 2)),
    "stacked": lambda m, d: list(d.DataLoader(d.StackDataset(a=tensors(m, d), b=range(10)), 5)),
    "joined": lambda m, d: list(d.DataLoader(tensors(m, d) + tensors(m, d), 8)),
    "chained": lambda m, d: list(d.DataLoader(stream(d) + stream(d), 8)),
    "stream": lambda m, d: [list(d.DataLoader(stream(d), n, drop_last=True)) for n in (3, 5)],
    "lengths": lambda m, d: [
        len(d.DataLoader(tensors(m, d), n, drop_last=last))
        for n in (1, 3, 5)
        for last in (False, True)
    ],
    "tensor sizes": lambda m, d: d.TensorDataset(m.ones(2), m.ones(3)),
    "stack both": lambda m, d: d.StackDataset([1], a=[1]),
    "stack none": lambda m, d: d.StackDataset(),
    "stack sizes": lambda m, d: d.StackDataset([1], [1, 2]),
    "concat none": lambda m, d: d.ConcatDataset([]),
    "concat stream": lambda m, d: tensors(m, d) + stream(d),
    "concat before": lambda m, d: d.ConcatDataset([[1], [2]])[-3],
    "chain list": lambda m, d: list(d.ChainDataset([[1]])),
    "chain length": lambda m, d: len(d.ChainDataset([stream(d, 3), stream(d, 4)])),
    "no item": lambda m, d: d.Dataset()[0],
    "split sizes": lambda m, d: d.random_split([1, 2], [1, 2]),
    "split sum": lambda m, d: d.random_split([1, 2], [0.5, 0.6]),
    "split sign": lambda m, d: d.random_split([1, 2], [-0.5, 1.5]),
    "split": lambda m, d: [len(part) for part in d.random_split(range(11), [0.3, 0.3, 0.4])],
    "split empty": lambda m, d: [len(part) for part in d.random_split(range(1), [0.5, 0.5])],
    "split whole": lambda m, d: sorted(
        i for part in d.random_split(range(11), [5, 6]) for i in part.indices
    ),
    "replacement": lambda m, d: d.RandomSampler([1], replacement=1),
    "samples": lambda m, d: d.RandomSampler([1], num_samples=2.0),
    "random": lambda m, d: sorted(d.RandomSampler(range(7), num_samples=14)),
    "drawn": lambda m, d: len(list(d.RandomSampler(range(7), True, 75))),
    "weights": lambda m, d: d.WeightedRandomSampler([[1, 2]], 2),
    "weights 2": lambda m, d: list(d.WeightedRandomSampler([1.0, 2], 3, False)),
    "weights 3": lambda m, d: d.WeightedRandomSampler([1, 2], 3).weights,
    "weights 4": lambda m, d: d.WeightedRandomSampler([1], 1, 1),
    "indices": lambda m, d: sorted(d.SubsetRandomSampler([4, 7, 1])),
    "batch": lambda m, d: [list(d.BatchSampler(range(5), 2, last)) for last in (True, False)],
    "batch 2": lambda m, d: d.BatchSampler(range(5), 2, 1),
    "rank": lambda m, d: d.DistributedSampler([1], 2, 2),
    "parts": lambda m, d: [
        list(d.DistributedSampler(range(n), 3, rank, shuffle=False, drop_last=last))
        for n in (2, 7, 9)
        for rank in range(3)
        for last in (True, False)
    ],
    "shuffled parts": lambda m, d: sorted(
        i for rank in range(2) for i in d.DistributedSampler(range(8), 2, rank)
    ),
    "worker info": lambda m, d: d.get_worker_info(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree(name):
    same(PROGRAMS[name])


def loaded(function, **options):
    """Return a program that reads a dataset of a function in worker processes."""

    def program(m, d):
        class Samples(d.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return function(m, d, index)

        return list(d.DataLoader(Samples(), num_workers=2, **options))

    return program


def failing(error):
    def sample(m, d, index):
        if index == 3:
            raise error
        return index

    return sample


def end(m, d, index):
    raise SystemExit(3)


def information(m, d, index):
    info = d.get_worker_info()
    return info.id, info.num_workers, info.seed - m.initial_seed(), m.get_num_threads()


WORKERS = {
    "batches": loaded(
        lambda m, d, i: (m.full((2,), i), {"a": np.ones(2) * i, "t": "x"}), batch_size=3
    ),
    "singles": loaded(lambda m, d, i: (i, np.ones(1)), batch_size=None),
    "information": loaded(information, collate_fn=list),
    "value error": loaded(failing(ValueError("why"))),
    "key error": loaded(failing(KeyError("why"))),
    "os error": loaded(failing(OSError(2, "why"))),
    "two arguments": loaded(failing(Custom(1, 2))),
    "stop": loaded(failing(StopIteration())),
    "exit": loaded(end),
    "init": loaded(failing(None), worker_init_fn=lambda number: 1 / 0),
    "timeout": loaded(lambda m, d, i: time.sleep(2), timeout=0.2),
    "stream": lambda m, d: list(d.DataLoader(stream(d), 4, num_workers=2)),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's workers
@pytest.mark.parametrize("name", WORKERS)
def test_worker_processes_agree(name):
    same(WORKERS[name])

"""Datasets, samplers and splits: samples, orders, lengths and errors."""

import importlib
import pickle
from collections import Counter

import pytest

import pullback as pb
from pullback.utils import data
from pullback.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Stream(IterableDataset):
    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


ROWS = TensorDataset(pb.arange(10) ** 2, pb.eye(10))


@pytest.mark.parametrize("name", ["dataset", "sampler", "dataloader", "distributed"])
def test_submodule_has_the_public_names(name):
    module = importlib.import_module(f"pullback.utils.data.{name}")
    for public in module.__all__:
        assert getattr(data, public) is getattr(module, public)


def test_import_of_the_package_is_left_to_first_use(run_lines_of):
    code = "import sys, pullback; print('pullback.utils.data' in sys.modules)"
    assert run_lines_of(code + "; print(pullback.utils.data.DataLoader.__name__)") == [
        "False",
        "DataLoader",
    ]


def test_datasets_give_the_samples_of_their_parts():
    assert [value.tolist() for value in ROWS[3]] == [9, [0.0] * 3 + [1.0] + [0.0] * 6]
    assert len(ROWS) == 10
    stacked = StackDataset(a="abc", b=Subset("xyz", [2, 1, 0]))
    assert (len(stacked), stacked[0]) == (3, {"a": "a", "b": "z"})
    assert stacked.__getitems__([2, 1]) == [{"a": "c", "b": "x"}, {"a": "b", "b": "y"}]
    assert StackDataset("abc", "xyz").__getitems__([1]) == [("b", "y")]
    both = ConcatDataset(["ab", "", "cde"])
    assert [both[i] for i in range(-5, 5)] == list("abcdeabcde")
    assert both.cumulative_sizes == [2, 2, 5]
    with pytest.warns(DeprecationWarning, match="renamed to cumulative_sizes"):
        assert both.cummulative_sizes == [2, 2, 5]
    assert Subset(ROWS, [4, 2])[[0, 1]][0].tolist() == [16, 4]
    assert list(Stream("ab") + Stream("c")) == ["a", "b", "c"]
    assert len(ChainDataset([Stream("ab"), Stream("c")])) == 3
    assert isinstance(ROWS + ROWS, ConcatDataset)
    assert Dataset[int] is not None  # generic


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: TensorDataset(pb.ones(2), pb.ones(3)), AssertionError, "Size mismatch between te"),
        (lambda: StackDataset(), ValueError, "At least one dataset should be passed"),
        (lambda: StackDataset("a", b="b"), ValueError, "both types are given"),
        (lambda: StackDataset("a", "bc"), ValueError, "Size mismatch between datasets"),
        (lambda: ConcatDataset([]), AssertionError, "should not be an empty iterable"),
        (lambda: ConcatDataset([Stream("a")]), AssertionError, "does not support Iterable"),
        (lambda: ConcatDataset(["a"])[-2], ValueError, "should not exceed dataset length"),
        (lambda: ConcatDataset(["a"])[1], IndexError, "out of range"),
        (lambda: list(ChainDataset(["a"])), AssertionError, "only supports IterableDataset"),
        (lambda: Dataset()[0], NotImplementedError, "should implement __getitem__"),
        (lambda: IterableDataset(), TypeError, "abstract"),
        (lambda: random_split("abc", [1, 1]), ValueError, "does not equal the length"),
        (lambda: random_split("abc", [-0.5, 1.5]), ValueError, "Fraction at index 0 is not betw"),
        (lambda: RandomSampler([]), ValueError, "but got num_samples=0"),
        (lambda: RandomSampler("a", replacement=1), TypeError, "but got replacement=1"),
        (lambda: RandomSampler("a", num_samples=2.0), ValueError, "but got num_samples=2.0"),
        (lambda: WeightedRandomSampler([1], True), ValueError, "but got num_samples=True"),
        (lambda: WeightedRandomSampler([1], 1, 1), ValueError, "but got replacement=1"),
        (lambda: WeightedRandomSampler([[1, 2]], 1), ValueError, r"have shape \(1, 2\)"),
        (lambda: list(WeightedRandomSampler([1], 2, False)), RuntimeError, "cannot sample"),
        (lambda: BatchSampler([1], 0, False), ValueError, "but got batch_size=0"),
        (lambda: BatchSampler([1], True, False), ValueError, "but got batch_size=True"),
        (lambda: BatchSampler([1], 1, 1), ValueError, "but got drop_last=1"),
        (lambda: iter(Sampler()), NotImplementedError, "^$"),
        (lambda: DistributedSampler("ab", 2, 2), ValueError, r"in the interval \[0, 1\]"),
    ],
)
def test_wrong_argument_raises(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("count", [None, 3, 10, 25])
def test_random_order_has_every_index_equally_often(count):
    sampler = RandomSampler(ROWS, num_samples=count, generator=pb.Generator().manual_seed(3))
    order = list(sampler)
    assert len(order) == len(sampler) == (count or 10)
    often = Counter(order)
    assert set(often) <= set(range(10))
    assert max(often.values()) - min(often.get(i, 0) for i in range(10)) <= 1
    assert order == list(
        RandomSampler(ROWS, num_samples=count, generator=pb.Generator().manual_seed(3))
    )
    assert all(type(index) is int for index in order)


def test_random_order_follows_the_default_generator():
    sampler = RandomSampler(range(100))
    pb.manual_seed(5)
    first, second = list(sampler), list(sampler)
    pb.manual_seed(5)
    assert [list(sampler), list(sampler)] == [first, second]
    assert first != second


def test_sampler_with_replacement_draws_from_all_indices():
    order = list(RandomSampler(range(5), replacement=True, num_samples=3000))
    often = Counter(order)
    assert sum(often.values()) == 3000
    assert all(abs(often[i] - 600) < 6 * (3000 * 0.2 * 0.8) ** 0.5 for i in range(5))
    weights = [0.0, 1.0, 3.0]
    often = Counter(WeightedRandomSampler(weights, 4000))
    assert often[0] == 0
    assert abs(often[2] - 3000) < 6 * (4000 * 0.75 * 0.25) ** 0.5
    assert sorted(WeightedRandomSampler(weights[1:], 2, replacement=False)) == [0, 1]


def test_other_samplers_give_their_indices():
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(SubsetRandomSampler([7, 3, 5])) == [3, 5, 7]
    for last, expected in ((False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2, 3]])):
        sampler = BatchSampler(range(5), 2, last)
        assert (list(sampler), len(sampler)) == (expected, len(expected))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("length", "parts"), [(10, 3), (2, 5), (7, 1), (12, 4)])
def test_distributed_parts_cover_the_dataset(length, parts, drop_last):
    def indices(rank, epoch, shuffle=True):
        sampler = DistributedSampler(range(length), parts, rank, shuffle, 4, drop_last)
        sampler.set_epoch(epoch)
        found = list(sampler)
        assert len(found) == len(sampler)
        return found

    size = length // parts if drop_last else -(-length // parts)
    together = [indices(rank, 0) for rank in range(parts)]
    assert {len(part) for part in together} == {size}
    found = {index for part in together for index in part}
    assert len(found) == (size * parts if drop_last else length)
    in_order = [indices(rank, 0, shuffle=False) for rank in range(parts)]
    assert in_order == [
        [i % length for i in range(rank, size * parts, parts)] for rank in range(parts)
    ]
    if length == 12:
        assert together != [indices(rank, 1) for rank in range(parts)]


def test_random_split_rounds_fractions():
    for lengths, expected in (
        ([0.33, 0.33, 0.34], [4, 3, 3]),
        ([0.7, 0.3], [7, 3]),
        ([10, 0], [10, 0]),
    ):
        parts = random_split(ROWS, lengths, pb.Generator().manual_seed(1))
        assert [len(part) for part in parts] == expected
        assert sorted(i for part in parts for i in part.indices) == list(range(10))
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        random_split("a", [0.5, 0.5])


def test_datasets_and_samplers_are_pickled():
    for made in (ROWS, Subset(ROWS, [1]), ConcatDataset([ROWS]), StackDataset(ROWS)):
        assert len(pickle.loads(pickle.dumps(made))) == len(made)
    sampler = RandomSampler(range(9), generator=pb.Generator().manual_seed(2))
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)

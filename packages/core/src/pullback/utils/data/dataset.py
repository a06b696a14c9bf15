"""Datasets: samples by index or in a stream, and combinations of them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import pullback
from pullback._c.interop.arrays import host_device
from pullback.random import default_generator

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A base class of datasets whose samples have an index or another key.

    A subclass has ``__getitem__``, and mostly ``__len__``. A method ``__getitems__`` that takes a
    list of keys and returns a list of samples is called in place of ``__getitem__`` for whole
    batches. ``a + b`` is a ``ConcatDataset`` of both.

    >>> from pullback.utils.data import Dataset
    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> Squares()[3]
    9
    """

    def __getitem__(self, index) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A base class of datasets that are streams: a subclass has ``__iter__``.

    Each worker of a loader iterates over its own copy: ``__iter__`` uses ``get_worker_info`` to
    choose a part of the stream. ``a + b`` is a ``ChainDataset`` of both.

    >>> from pullback.utils.data import DataLoader, IterableDataset
    >>> class Countdown(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3, 0, -1))
    >>> list(DataLoader(Countdown(), batch_size=2))
    [tensor([3, 2]), tensor([1])]
    """

    def __add__(self, other: Dataset[T_co]):
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """A dataset of tensors of one length: sample ``i`` is the tuple of their rows ``i``.

    A ``DataLoader`` with the default ``collate_fn`` gathers a batch with one operation a tensor.
    Raises: AssertionError when the sizes of dim 0 differ.

    >>> import pullback
    >>> from pullback.utils.data import TensorDataset
    >>> TensorDataset(pullback.tensor([[1, 2], [3, 4]]), pullback.tensor([0, 1]))[1]
    (tensor([3, 4]), tensor(1))
    """

    def __init__(self, *tensors) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[Any]):
    """A dataset whose samples are tuples, or with keyword arguments dicts, of others' samples.

    Raises: ValueError when the lengths differ, without datasets, and when both forms are used.

    >>> from pullback.utils.data import StackDataset
    >>> StackDataset(text=["a", "b"], label=[0, 1])[1]
    {'text': 'b', 'label': 1}
    """

    datasets: tuple | dict

    def __init__(self, *args, **kwargs) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or"
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = {len(dataset) for dataset in self._parts()}
        if len(lengths) != 1:
            raise ValueError("Size mismatch between datasets")
        (self._length,) = lengths

    def _parts(self):
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _sample(self, values):
        return dict(zip(self.datasets, values)) if isinstance(self.datasets, dict) else values

    def __getitem__(self, index):
        return self._sample(tuple(dataset[index] for dataset in self._parts()))

    def __getitems__(self, indices: list):
        columns = []
        for dataset in self._parts():
            if callable(getattr(dataset, "__getitems__", None)):
                column = dataset.__getitems__(indices)
                if len(column) != len(indices):
                    raise ValueError(
                        "Nested dataset's output size mismatch. "
                        f"Expected {len(indices)}, got {len(column)}"
                    )
            else:
                column = [dataset[index] for index in indices]
            columns.append(column)
        return [self._sample(values) for values in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other, as one dataset.

    Raises: AssertionError without datasets, and for an ``IterableDataset`` among them.

    >>> from pullback.utils.data import ConcatDataset
    >>> both = ConcatDataset(["ab", "cde"])
    >>> len(both), both[3], both[-1]
    (5, 'd', 'e')
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence):
        """Return the cumulative sums of the lengths."""
        return list(itertools.accumulate(map(len, sequence)))

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        number = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][index - before]

    @property
    def cummulative_sizes(self):
        """The older, misspelt name of ``cumulative_sizes``."""
        warnings.warn(
            "cummulative_sizes attribute is renamed to cumulative_sizes",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """Streams one after the other, as one stream.

    Raises: AssertionError, when it is used, for a dataset that is no ``IterableDataset``.

    >>> from pullback.utils.data import ChainDataset, IterableDataset
    >>> class Letters(IterableDataset):
    ...     def __init__(self, text):
    ...         self.text = text
    ...     def __iter__(self):
    ...         return iter(self.text)
    >>> list(ChainDataset([Letters("ab"), Letters("c")]))
    ['a', 'b', 'c']
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def _streams(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self):
        for dataset in self._streams():
            yield from dataset

    def __len__(self) -> int:
        return sum(map(len, self._streams()))


class Subset(Dataset[T_co]):
    """The samples of a dataset with the given indices.

    >>> from pullback.utils.data import Subset
    >>> subset = Subset("abcdef", [4, 1])
    >>> len(subset), subset[0]
    (2, 'e')
    """

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        keys = [self.indices[index] for index in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(keys) if callable(fetch) else [self.dataset[key] for key in keys]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset, lengths: Sequence[int | float], generator=default_generator
) -> list[Subset]:
    """Split a dataset at random into subsets of the given lengths, or fractions that sum to 1.

    What is left over after fractions are rounded down goes to the first subsets, one sample each.
    Raises: ValueError when the lengths do not sum to the dataset's, or a fraction is not in [0, 1].

    >>> import pullback
    >>> from pullback.utils.data import random_split
    >>> parts = random_split(range(10), [0.75, 0.25], pullback.Generator().manual_seed(0))
    >>> [len(part) for part in parts]
    [8, 2]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _rounded(lengths, len(dataset))  # type: ignore[arg-type]
    total = sum(lengths)
    if total != len(dataset):  # type: ignore[arg-type]
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = pullback.randperm(total, generator=generator, device=host_device()).tolist()
    ends = list(itertools.accumulate(lengths))
    return [
        Subset(dataset, order[int(end - length) : int(end)]) for end, length in zip(ends, lengths)
    ]


def _rounded(fractions, total: int) -> list[int]:
    """Return lengths that sum to ``total`` for fractions of it."""
    sizes = []
    for number, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {number} is not between 0 and 1")
        sizes.append(math.floor(total * fraction))
    for number in range(total - sum(sizes)):
        sizes[number % len(sizes)] += 1
    for number, size in enumerate(sizes):
        if size == 0:
            warnings.warn(
                f"Length of split at index {number} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return sizes

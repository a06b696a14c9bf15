"""Samplers: the order in which a loader reads the samples of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic, TypeVar

import pullback
from pullback._c.interop.arrays import host_device

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T_co = TypeVar("T_co", covariant=True)
_CHUNK = 1024  # how many numbers are drawn at once with replacement


def random_seed(generator=None) -> int:
    """Draw a seed of 63 bits from a generator, by default the process's."""
    draw = pullback.empty((), dtype=pullback.int64, device=host_device())
    return int(draw.random_(generator=generator).item())


def _check_count(num_samples) -> None:
    if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
        raise ValueError(
            f"num_samples should be a positive integer value, but got num_samples={num_samples}"
        )


class Sampler(Generic[T_co]):
    """A base class of samplers: ``__iter__`` gives indices, or lists of them.

    >>> from pullback.utils.data import DataLoader, Sampler
    >>> class Backwards(Sampler):
    ...     def __init__(self, data):
    ...         self.data = data
    ...     def __iter__(self):
    ...         return iter(range(len(self.data) - 1, -1, -1))
    ...     def __len__(self):
    ...         return len(self.data)
    >>> data = [10, 20, 30]
    >>> list(DataLoader(data, batch_size=2, sampler=Backwards(data)))
    [tensor([30, 20]), tensor([10])]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Every index once, in order.

    >>> from pullback.utils.data import SequentialSampler
    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, or drawn with replacement.

    Without ``replacement`` every index comes once in ``len(data_source)`` samples.
    ``num_samples``: by default as many as the dataset has. Without ``generator``, each iteration
    begins with a seed from the default generator.
    Raises: TypeError and ValueError for wrong arguments, and for a dataset without samples.

    >>> import pullback
    >>> from pullback.utils.data import RandomSampler
    >>> sampler = RandomSampler(range(4), generator=pullback.Generator().manual_seed(0))
    >>> sorted(sampler)
    [0, 1, 2, 3]
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator=None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        _check_count(self.num_samples)

    @property
    def num_samples(self) -> int:
        """The number of samples in one iteration."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, count = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            generator = pullback.Generator().manual_seed(random_seed())
        where = host_device()
        if self.replacement:
            for first in range(0, count, _CHUNK):
                size = (min(_CHUNK, count - first),)
                drawn = pullback.randint(n, size, generator=generator, device=where)
                yield from drawn.tolist()
        else:
            for first in range(0, count, max(n, 1)):
                order = pullback.randperm(n, generator=generator, device=where).tolist()
                yield from order[: count - first]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order, each once.

    >>> from pullback.utils.data import SubsetRandomSampler
    >>> sorted(SubsetRandomSampler([5, 3, 8]))
    [3, 5, 8]
    """

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator=None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = pullback.randperm(
            len(self.indices), generator=self.generator, device=host_device()
        ).tolist()
        return (self.indices[i] for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices ``0 .. len(weights) - 1``, drawn with probabilities in proportion to weights.

    Raises: ValueError for wrong arguments; RuntimeError for more samples than weights without
    replacement.

    >>> from pullback.utils.data import WeightedRandomSampler
    >>> list(WeightedRandomSampler([0.0, 1.0], num_samples=3))
    [1, 1, 1]
    """

    num_samples: int
    replacement: bool

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator=None
    ) -> None:
        _check_count(num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        made = pullback.as_tensor(weights, dtype=pullback.double)
        if made.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(made.shape)}"
            )
        self.weights = made
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = pullback.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list]):
    """The indices of another sampler in lists of ``batch_size``.

    ``drop_last``: without the last list where it would be shorter.
    Raises: ValueError for wrong arguments.

    >>> from pullback.utils.data import BatchSampler
    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

"""Fetchers: from the indices of a batch to the batch."""

from __future__ import annotations

import itertools

import pullback
from pullback._c.graph.tensor import Tensor
from pullback.utils.data._utils import shared
from pullback.utils.data._utils.collate import default_collate
from pullback.utils.data.dataset import Subset, TensorDataset

__all__ = ["IterableFetcher", "MapFetcher", "create_fetcher"]


class MapFetcher:
    """Reads the samples of indices; without ``auto_collation`` an index is that of one sample."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.gathers = auto_collation and collate_fn is default_collate

    def fetch(self, index):
        """Return the batch of a list of indices, or the sample of one."""
        dataset = self.dataset
        if not self.auto_collation:
            return self.collate_fn(dataset[index])
        if self.gathers:
            batch = gathered(dataset, index)
            if batch is not None:
                return batch
        fetch = getattr(dataset, "__getitems__", None)
        samples = fetch(index) if fetch else [dataset[i] for i in index]
        return self.collate_fn(samples)


class IterableFetcher:
    """Reads the next samples of a stream; what an index says is only how many.

    Raises: StopIteration at the end of the stream.
    """

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.iterator = iter(dataset)
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.ended = False

    def fetch(self, index):
        """Return the next batch or sample."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.iterator))
        samples = list(itertools.islice(self.iterator, len(index)))
        self.ended = len(samples) < len(index)
        if not samples or (self.ended and self.drop_last):
            raise StopIteration
        return self.collate_fn(samples)


def create_fetcher(iterable, dataset, auto_collation, collate_fn, drop_last):
    """Return the fetcher of a dataset."""
    kind = IterableFetcher if iterable else MapFetcher
    return kind(dataset, auto_collation, collate_fn, drop_last)


def gathered(dataset, indices):
    """Return the default batch of rows of a ``TensorDataset`` or subset, by one op a tensor.

    None where samples must be read one by one: for other datasets, for tensors that require grad,
    and for indices that are negative or out of range, whose errors ``__getitem__`` raises.
    """
    kind = type(dataset)
    try:
        while kind is Subset:
            indices = [dataset.indices[i] for i in indices]
            dataset = dataset.dataset
            kind = type(dataset)
        if kind is not TensorDataset or not dataset.tensors:
            return None
        tensors = dataset.tensors
        if not all(type(tensor) is Tensor and not tensor.requires_grad for tensor in tensors):
            return None
        where = tensors[0].device
        rows = pullback.tensor(indices, device=where)
        if rows.dtype != pullback.int64 or rows.ndim != 1:
            return None
        return [_rows(tensor, rows, indices) for tensor in tensors]
    except Exception:
        return None


def _rows(tensor, rows, indices):
    writer = shared.writer
    if writer is None or tensor.device != writer.device or not indices:
        return pullback.index_select(tensor, 0, rows.to(tensor.device))
    out = writer.empty((len(indices), *tensor.shape[1:]), tensor.dtype)
    if shared.is_large(out[0]) and min(indices) >= 0:
        return shared.fill(out, (tensor[i] for i in indices))
    return pullback.index_select(tensor, 0, rows, out=out)

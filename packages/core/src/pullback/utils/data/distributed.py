"""The sampler for a dataset that several processes share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pullback
from pullback._c.interop.arrays import host_device
from pullback.utils.data.dataset import Dataset
from pullback.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


def _process_group():
    """Return the module of process groups.

    Raises: RuntimeError where there are none.
    """
    from pullback import distributed

    if not distributed.is_available():
        raise RuntimeError("Requires distributed package to be available")
    return distributed


class DistributedSampler(Sampler[int]):
    """A part of a dataset's indices for each of ``num_replicas`` processes.

    Process ``rank`` gets every ``num_replicas``-th index, beginning at ``rank``. Parts have the
    same length: the first indices are repeated, or the last left out with ``drop_last``.
    ``shuffle``: in an order that ``seed`` and the epoch give, the same in all processes; call
    ``set_epoch`` before each epoch for another order.
    Raises: ValueError for a rank out of range; RuntimeError where ``num_replicas`` or ``rank`` is
    not given and there are no process groups.

    >>> from pullback.utils.data import DistributedSampler
    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Dataset,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = int(_process_group().get_world_size())
        if rank is None:
            rank = int(_process_group().get_rank())
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        length = len(dataset)  # type: ignore[arg-type]
        self.num_samples = length // num_replicas if drop_last else math.ceil(length / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))  # type: ignore[arg-type]
        if self.shuffle:
            generator = pullback.Generator().manual_seed(self.seed + self.epoch)
            order = pullback.randperm(len(indices), generator=generator, device=host_device())
            indices = order.tolist()
        whole = list(itertools.islice(itertools.cycle(indices), self.total_size))
        return iter(whole[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""
        self.epoch = epoch

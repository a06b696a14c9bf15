"""Batches of a dataset in memory, without workers."""

from __future__ import annotations

import itertools

from benchmarks.workloads.registry import workload

BATCH, BATCHES = 64, 32


def read_batches(module, n, *shape):
    """Return a function that reads ``n`` shuffled batches of samples of a shape."""
    data = module.utils.data
    count = BATCH * BATCHES
    dataset = data.TensorDataset(module.randn(count, *shape), module.arange(count) % 10)
    loader = data.DataLoader(dataset, batch_size=BATCH, shuffle=True)

    def timed():
        epochs = itertools.chain.from_iterable(itertools.repeat(loader))
        for batch in itertools.islice(epochs, n):
            last = batch
        return last

    return timed


@workload(units=500, budget=1 / 5, stretch=1 / 10)
def load_rows(module, n):
    """`DataLoader`: a batch of 64 samples of 8 elements and labels."""
    return read_batches(module, n, 8)


@workload(units=500, budget=1 / 5, stretch=1 / 10)
def load_images(module, n):
    """`DataLoader`: a batch of 64 samples of 1 x 28 x 28 elements and labels."""
    return read_batches(module, n, 1, 28, 28)

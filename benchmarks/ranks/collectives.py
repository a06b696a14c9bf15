"""all_reduce beside mpi4py's own: ``mpiexec -n 2 python -m benchmarks.ranks.collectives``.

Both take turns on the same buffer of float32; a figure is the best of the rounds, of the mean over
calls in a row, and of a call the slowest rank counts. The first rank prints JSON: for each size the
seconds of an ``all_reduce`` and of ``Allreduce``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import pullback
from pullback import distributed

ROUNDS = 7
ENOUGH = 0.02  # seconds of calls in a round


def seconds_of(call: Callable[[], object], count: int) -> float:
    """Return the seconds of a call on the slowest rank."""
    MPI.COMM_WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return MPI.COMM_WORLD.allreduce(time.perf_counter() - start, MPI.MAX) / count


def compare(nbytes: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of ours and of mpi4py's for a size."""
    array = np.zeros(nbytes // 4, np.float32)
    tensor = pullback.from_numpy(array)
    calls = (
        lambda: distributed.all_reduce(tensor),
        lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array),
    )
    count = max(1, min(2000, int(ENOUGH / seconds_of(calls[1], 3))))
    found = [[seconds_of(call, count) for call in calls] for _ in range(rounds)]
    return min(one[0] for one in found), min(one[1] for one in found)


def main() -> None:
    """Compare sizes, and print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[4 << 2 * k for k in range(14)])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    distributed.init_process_group()
    found = {size: compare(size, options.rounds) for size in options.sizes}
    if distributed.get_rank() == 0:
        print(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

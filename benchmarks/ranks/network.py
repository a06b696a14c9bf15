"""The parameters of LogGP between two ranks: ``mpiexec -n 2 python -m benchmarks.ranks.network``.

The first rank prints JSON, in seconds: ``latency`` of a message that is underway, without what
sender and receiver spend on it; that ``overhead``, of each; the ``gap`` between two messages in a
row; ``per_byte`` of a long message; and ``add_per_byte``, of adding two buffers of a long one.
A. Alexandrov, M. Ionescu, K. Schauser and C. Scheiman, LogGP, SPAA 1995.
"""

from __future__ import annotations

import json
import time

import numpy as np
from mpi4py import MPI

SHORT, LONG = 8, 32 << 20
ROUNDS = 7
BURST = 64  # short messages in a row


def best(run) -> float:
    """Return the shortest time of a few runs; all ranks begin together."""
    found = []
    for _ in range(ROUNDS):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Measure, and print."""
    world = MPI.COMM_WORLD
    rank, other = world.rank, 1 - world.rank
    buffers = {size: np.zeros(size, np.uint8) for size in (SHORT, LONG)}

    def there_and_back(size: int, count: int) -> None:
        for _ in range(count):
            for sender in (0, 1):
                if rank == sender:
                    world.Send(buffers[size], other)
                else:
                    world.Recv(buffers[size], other)

    def burst() -> None:
        if rank == 0:
            for _ in range(BURST):
                world.Send(buffers[SHORT], other)
        else:
            for _ in range(BURST):
                world.Recv(buffers[SHORT], other)

    short = best(lambda: there_and_back(SHORT, 1000)) / 2000
    long = best(lambda: there_and_back(LONG, 4)) / 8
    gap = best(burst) / BURST
    overhead = min(gap, short) / 2  # a burst is as fast as the slower side can handle messages
    numbers = np.zeros(LONG // 4, np.float32)
    adding = best(lambda: np.add(numbers, numbers, out=numbers))
    if rank == 0:
        found = {
            "latency": short - 2 * overhead,
            "overhead": overhead,
            "gap": gap,
            "per_byte": (long - short) / LONG,
            "add_per_byte": adding / LONG,
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()

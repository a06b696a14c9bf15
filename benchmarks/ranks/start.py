"""What a rank costs at its start, beyond MPI: ``mpiexec -n 2 python -m benchmarks.ranks.start``.

The first rank prints JSON: the seconds of the slowest rank to start MPI, which Python programs that
use it need too, then to import the package with a backend, and to make and leave a process group.
"""

from __future__ import annotations

import json
import time

import numpy as np


def main() -> None:
    """Start, and print how long that took."""
    begun = time.perf_counter()
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    everyone.Barrier()
    marks = [time.perf_counter()]
    import pullback
    from pullback import distributed

    pullback.ones(1)
    marks.append(time.perf_counter())
    distributed.init_process_group()
    marks.append(time.perf_counter())
    distributed.destroy_process_group()
    marks.append(time.perf_counter())
    names = ("mpi", "import", "init", "destroy")
    spans = [after - before for before, after in zip([begun, *marks], marks, strict=False)]
    found = everyone.gather(spans)
    if found is not None:
        print(json.dumps(dict(zip(names, np.max(found, 0).tolist(), strict=True))))


if __name__ == "__main__":
    main()

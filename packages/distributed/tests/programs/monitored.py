"""A barrier that raises where a rank does not come, after which all ranks go on."""

import time
from datetime import timedelta

import pytest

import pullback as pb
import pullback_distributed as dist

SHORT = timedelta(milliseconds=300)


def main():
    dist.init_process_group("gloo")
    assert dist.get_backend() == "mpi"
    rank, size = dist.get_rank(), dist.get_world_size()
    for _ in range(3):
        dist.monitored_barrier()
    last = size - 1
    if rank == last:
        time.sleep(0.6)
        with pytest.raises(RuntimeError, match=f"Rank {last}.: reached .* has missed other ranks"):
            dist.monitored_barrier(timeout=SHORT)  # too late
    elif rank == 0:
        expected = f"Ranks {last} failed to pass monitoredBarrier in 300 ms"
        with pytest.raises(RuntimeError, match=expected):
            dist.monitored_barrier(timeout=SHORT, wait_all_ranks=True)
    else:
        with pytest.raises(RuntimeError, match="but rank 0 has missed other ranks in 300 ms"):
            dist.monitored_barrier(timeout=SHORT)
    dist.monitored_barrier()
    if rank == 0:
        time.sleep(2)
        with pytest.raises(RuntimeError, match=r"Ranks 1.* failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=SHORT)
    elif rank == 1:
        with pytest.raises(RuntimeError, match="but rank 0 did not come in 300 ms"):
            dist.monitored_barrier(timeout=SHORT)
        time.sleep(1)
    else:
        time.sleep(2)
        with pytest.raises(RuntimeError, match="has missed other ranks"):
            dist.monitored_barrier(timeout=SHORT)
    found = pb.ones(3)
    dist.all_reduce(found)
    assert (found == size).all()
    group = dist.new_group([1, 0], sort_ranks=False)
    if rank < 2:
        dist.monitored_barrier(group)
        assert dist.get_backend(group) == "mpi"
    else:
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.get_backend(group)
    with pytest.raises(TypeError, match="timedelta"):
        dist.monitored_barrier(timeout=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

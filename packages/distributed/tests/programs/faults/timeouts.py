"""Rank 1 is late, in a way that the first argument names; the timeout is short."""

import os
import sys
import time
from datetime import timedelta

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.faults import watch


def shorten():
    """Look more often than every second, and wait less, so that the test is short."""
    watch.INTERVAL, watch.PATIENCE, watch.PATIENCE_OF_MESSAGES = 0.05, 0.3, 0.6


def naps():
    time.sleep(60)


def waits(how, x):
    if how == "collective":
        dist.all_reduce(x)
    elif how == "asynchronous":
        dist.all_reduce(x, async_op=True).wait()
    elif how == "recv":
        dist.recv(x, 1)
    elif how == "barrier":
        dist.barrier(timeout=timedelta(seconds=0.5))
    elif how == "new_group":
        dist.new_group([0, 1])
    elif how == "destroy":
        dist.all_reduce(x, async_op=True)
        dist.destroy_process_group()


def main(how):
    if how != "collective":
        shorten()
    limit = timedelta(minutes=1) if how == "barrier" else timedelta(seconds=0.5)
    if how == "start":
        if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
            time.sleep(60)
    else:
        from mpi4py import MPI  # which may take longer than the timeout

        if how == "init" and MPI.COMM_WORLD.rank == 1:
            time.sleep(60)
    dist.init_process_group(timeout=limit)
    x = pb.ones(2)
    other = dist.new_group([0, 1])
    dist.barrier()
    if how == "groups":
        dist.all_reduce(x, group=other if dist.get_rank() == 1 else None)
    elif dist.get_rank() == 1:
        naps()
    else:
        waits(how, x)


main(sys.argv[1])

"""Rank 1 leaves, in a way that the first argument names, while rank 0 waits."""

import sys
import time

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.faults import watch


def shorten():
    """Look more often than every second, and wait less, so that the test is short."""
    watch.INTERVAL, watch.PATIENCE, watch.PATIENCE_OF_MESSAGES = 0.05, 0.3, 0.6


def waits(how, x, part):
    if how == "asynchronous":
        dist.all_reduce(x, async_op=True).wait()
    elif how == "not waited for":
        dist.all_reduce(x, async_op=True)
    elif how == "any":
        dist.irecv(x).wait()
    elif how == "send":
        dist.send(pb.ones(1 << 22), 1)
    elif how == "new_group":
        dist.new_group([0, 1])
    elif how == "part":
        dist.all_gather_object([None, None], 1, group=part)
    else:
        dist.all_reduce(x)


def main(how):
    if how != "end":
        shorten()
    dist.init_process_group()
    x = pb.ones(2)
    part = dist.new_group([0, 1])
    dist.all_reduce(x)
    rank = dist.get_rank()
    if rank == 1:
        if how == "part":
            dist.destroy_process_group(part)
        if how in ("part", "destroy"):
            dist.destroy_process_group(None)
            time.sleep(60)
        if how == "started":
            dist.all_reduce(x, async_op=True)
        return
    if how == "started":
        time.sleep(1)  # rank 1 is at its end by now
        dist.all_reduce(x, async_op=True).wait()
        assert (x == 2 * dist.get_world_size()).all(), x
    else:
        waits(how, x, part)


def root_leaves():
    """The root of a broadcast has sent all, and ends; another rank is late; all is well."""
    shorten()
    dist.init_process_group()
    rank = dist.get_rank()
    x = pb.full((2,), float(rank))
    if rank == 3:  # which passes the tensor on, where MPI makes a tree
        time.sleep(1.5)
    dist.broadcast(x, 1)
    assert (x == 1).all()


if sys.argv[1] == "root":
    root_leaves()
else:
    main(sys.argv[1])

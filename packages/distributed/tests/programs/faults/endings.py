"""All ranks end well, in a way that the first argument names."""

import atexit
import gc
import os
import sys
import threading
import time
import warnings

import pullback as pb
import pullback_distributed as dist

kept = []


def main(how):
    if how == "handlers":
        atexit.register(dist.destroy_process_group)
    hook = sys.excepthook, threading.excepthook, sys.exit, exit, os.fork
    dist.init_process_group()
    assert sys.excepthook is not hook[0]
    if how == "destroying handler":
        atexit.register(dist.destroy_process_group)
    if how == "handlers":
        atexit.register(lambda: dist.all_reduce(pb.ones(2)))
    rank, size = dist.get_rank(), dist.get_world_size()
    x = pb.ones(2)
    dist.all_reduce(x)
    kept.extend([x, dist.new_group([0, 1]), dist.all_reduce(x, async_op=True)])
    if how == "not waited for":
        for _ in range(20):
            kept.append(dist.all_reduce(pb.ones(1 << 16), async_op=True))
        return
    if how == "late rank":
        kept.append(dist.all_reduce(pb.ones(2), async_op=True))
        time.sleep(1 * (rank == 0))
    if how in ("late destroy", "again"):
        kept.clear()
        dist.barrier()
        if how == "late destroy":
            time.sleep(1 * (rank == 0))
        dist.destroy_process_group()
        assert (sys.excepthook, threading.excepthook, sys.exit, exit, os.fork) == hook
        assert not any("pullback" in thread.name for thread in threading.enumerate())
    if how == "again":
        for _ in range(20):
            dist.init_process_group()
            x = pb.ones(2)
            dist.all_reduce(x)
            assert (x == size).all()
            dist.destroy_process_group()
        dist.init_process_group()
        for _ in range(1100):  # MPICH has 2048 communicators
            dist.destroy_process_group(dist.new_group([0, 1]))
        dist.destroy_process_group()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: MPICH's
            child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        gc.collect()
    if how == "exit":
        sys.exit()


main(sys.argv[1])

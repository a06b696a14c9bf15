"""Rank 1 is killed by a signal, whose number is the first argument; the others wait."""

import os
import sys

import pullback as pb
import pullback_distributed as dist

dist.init_process_group()
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), int(sys.argv[1]))
dist.all_reduce(pb.ones(2))

"""Ranks leave and destroy as soon as they have done their part; the watch has no patience."""

import random
import sys
import time

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.faults import watch


def nap(chance):
    if chance.random() < 0.05:
        time.sleep(chance.random() / 200)


def rounds(chance, rank, size):
    group = dist.new_group(list(range(size)))
    x = pb.full((3,), float(rank))
    for step in range(60):
        root = step % size
        nap(chance)
        dist.broadcast(x, root)
        work = [dist.all_reduce(x.clone(), async_op=True, group=group) for _ in range(2)]
        nap(chance)
        if rank != root:
            dist.send(x, root, group=group)
        else:
            for _ in range(size - 1):
                dist.recv(x, group=group)
        for each in work:
            each.wait()
        nap(chance)
        dist.scatter(x, [x.clone() for _ in range(size)] if rank == root else None, root)
    dist.broadcast(x, 0)  # the root of which has done all it must
    return dist.all_reduce(x, async_op=True)


def main():
    watch.INTERVAL, watch.PATIENCE, watch.PATIENCE_OF_MESSAGES = 1e-3, 0.0, 1.0
    for epoch in range(4):
        dist.init_process_group()
        rank = dist.get_rank()
        chance = random.Random(10 * epoch + rank)
        last = rounds(chance, rank, dist.get_world_size())
        nap(chance)
        if epoch < 3:
            dist.destroy_process_group()
    if rank == 1:
        last.wait()
    sys.exit()


main()

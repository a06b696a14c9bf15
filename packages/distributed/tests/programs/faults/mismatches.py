"""Ranks call different things, of several kinds; debugging is on."""

import sys

import pullback as pb
import pullback_distributed as dist


def differs(how, rank):
    x = pb.ones(3)
    if how == "name":
        if rank == 0:
            dist.all_reduce(x)
        else:
            dist.broadcast(x, 0)
    elif how == "op":
        dist.all_reduce(x, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    elif how == "root":
        dist.broadcast(x, rank)
    elif how == "shape":
        dist.all_reduce(pb.ones(2 + rank))
    elif how == "dtype":
        dist.all_reduce(x.double() if rank else x)
    elif how == "asynchronous":
        dist.all_reduce(pb.ones(2 + rank), async_op=True).wait()
    elif how == "object":
        if rank == 0:
            dist.broadcast_object_list([1], 0)
        else:
            dist.all_gather_object([None] * dist.get_world_size(), 1)
    elif how == "new_group":
        dist.new_group([0, 1] if rank else [0])


def same(rank, size):
    """Call what may differ between ranks."""
    x = pb.ones(3)
    dist.all_reduce(x)
    dist.all_gather([pb.empty(1 + place) for place in range(size)], pb.ones(1 + rank))
    sizes = [pb.full((2,), float(place)) for place in range(size)]
    dist.scatter(pb.empty(2), sizes if rank == 1 else None, 1)
    dist.gather(pb.ones(2), sizes if rank == 0 else None, 0)
    dist.broadcast(pb.ones(2, 3) if rank else pb.ones(6), 0)
    going = [pb.ones(1 + (rank + place) % 2) for place in range(size)]
    dist.all_to_all([each.clone() for each in going], going)
    dist.reduce_scatter(pb.empty(2), sizes)
    dist.all_reduce(x, async_op=True).wait()
    dist.barrier()
    part = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, group=part)
    found = [None] * size
    dist.all_gather_object(found, rank)
    assert found == list(range(size))


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    for how in ("name", "op", "root", "shape", "dtype", "asynchronous", "object", "new_group"):
        same(rank, size)  # the group can still be used
        try:
            differs(how, rank)
        except RuntimeError as error:
            sys.stderr.write(f"rank {rank}, {how}: {error}\n")
            sys.stderr.flush()
        else:
            raise AssertionError(f"{how}: not seen")
    dist.destroy_process_group()


main()

"""Messages and collectives of more elements than an int counts, between two processes."""

import gc

import pullback as pb
import pullback_distributed as dist

MANY = 2**31 + 5


def check(tensor, value):
    """Look at both ends, and in the middle, without memory for a comparison."""
    assert tensor.numel() >= MANY
    for place in (0, 1, 2**31 - 2, 2**31 - 1, 2**31, tensor.numel() - 1):
        assert tensor[place].item() == value, (place, tensor[place].item(), value)


def moves(rank):
    tensor = pb.full((MANY,), rank + 1, dtype=pb.int8)
    dist.broadcast(tensor, 1)
    check(tensor, 2)
    if rank == 0:
        dist.send(tensor.fill_(7), 1)
    else:
        assert dist.recv(tensor, 0) == 0
    check(tensor, 7)


def combines(rank):
    tensor = pb.full((MANY,), rank + 1, dtype=pb.int8)
    dist.all_reduce(tensor)
    check(tensor, 3)
    dist.reduce(tensor, 1)
    check(tensor, 6 if rank == 1 else 3)


def gathers(rank):
    """Half of the elements from each process."""
    half = (MANY + 1) // 2
    joined = pb.zeros(2 * half, dtype=pb.int8)
    part = pb.full((half,), rank + 1, dtype=pb.int8)
    dist.all_gather_into_tensor(joined, part)
    for place in (0, 1, half - 1, half, 2 * half - 1):
        assert joined[place].item() == 1 + (place >= half)
    joined.fill_(rank + 1)
    dist.reduce_scatter_tensor(part, joined)
    assert all(part[place].item() == 3 for place in (0, 1, half - 1))


def main():
    dist.init_process_group()
    for check_some in (moves, combines, gathers):
        check_some(dist.get_rank())
        gc.collect()
        if dist.get_rank() == 0:
            print(f"{check_some.__name__}: right", flush=True)
    dist.destroy_process_group()


main()

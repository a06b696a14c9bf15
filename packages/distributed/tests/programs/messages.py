"""Messages between two processes, and collectives of Python objects."""

from datetime import timedelta

import pytest

import pullback as pb
import pullback_distributed as dist


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in (pb.float32, pb.bfloat16, pb.complex64):
        sent = pb.full((3, 2), rank + 1).to(dtype).t()
        found = pb.zeros(2, 3).to(dtype).t().contiguous().t()
        work = [dist.irecv(found, before, tag=7), dist.isend(sent, after, tag=7)]
        assert all(each.wait() for each in work)
        assert (found == pb.full((2, 3), before + 1).to(dtype)).all()
        if rank == 0:
            dist.send(sent, 1)
        elif rank == 1:
            assert dist.recv(found) == 0
            assert (found == pb.full((2, 3), 1).to(dtype)).all()
    found = pb.zeros(2)
    batch = [
        dist.P2POp(dist.isend, pb.full((2,), float(rank)), after),
        dist.P2POp(dist.irecv, found, before),
    ]
    for each in dist.batch_isend_irecv(batch):
        each.wait()
    assert (found == before).all()
    if rank == 0:
        dist.send_object_list(["a", {1: (2,)}], 1)
    elif rank == 1:
        objects = [None, None]
        assert dist.recv_object_list(objects) == 0
        assert objects == ["a", {1: (2,)}]
        dist.send_object_list([1], 0)
    if rank == 0:
        with pytest.raises(RuntimeError, match="expected a list of 1 places"):
            dist.recv_object_list([None, None], 1)
    own, groups = dist.new_subgroups(1)
    assert len(groups) == size and own is groups[rank] and own.ranks == (rank,)
    own, groups = dist.new_subgroups_by_enumeration([[0], list(range(1, size))])
    total = pb.ones(1)
    dist.all_reduce(total, group=own)
    assert total.item() == (1 if rank == 0 else size - 1)
    for wrong, said in (([], "cannot be empty"), ([[0], [0]], "Rank 0 has appeared in more")):
        with pytest.raises(ValueError, match=said):
            dist.new_subgroups_by_enumeration(wrong)
    with pytest.raises(ValueError, match=f"divides the {size} processes"):
        dist.new_subgroups(size + 1)
    never = dist.irecv(found, before, tag=99)
    try:
        never.wait(timedelta(milliseconds=50))
    except RuntimeError as error:
        assert "irecv: not done after" in str(error)
    else:
        raise AssertionError("a message came that nobody sent")
    dist.barrier()
    dist.send(pb.ones(2), after, tag=99)
    never.wait()
    for place in (rank, None, size):
        try:
            dist.send(found, place)
        except ValueError:
            pass
        else:
            raise AssertionError("a wrong rank was taken")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": k} for k in range(size)]
    dist.gather_object(rank, objects if rank == 0 else None, 0)
    assert rank or objects == list(range(size))
    shared = ["a", 1] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, 1)
    assert shared == ["a", 1]
    own = [None]
    dist.scatter_object_list(own, list("abcd"[:size]) if rank == 0 else None, 0)
    assert own == ["abcd"[rank]]
    dist.destroy_process_group()


main()

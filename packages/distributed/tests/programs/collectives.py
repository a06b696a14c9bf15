"""Every collective of tensors, for several dtypes, at once and asynchronously."""

import pullback as pb
import pullback_distributed as dist

DTYPES = (pb.float32, pb.bfloat16, pb.float16, pb.complex64, pb.complex32, pb.bool, pb.int64)


def full(shape, value, dtype):
    return pb.full(shape, value).to(dtype)


def check(found, value):
    wanted = full(found.shape, value, found.dtype)
    assert (found == wanted).all(), (found, wanted)


def movements(rank, size, dtype, finish):
    columns = full((2, 3), rank + 1, dtype).t().contiguous().t()  # not contiguous
    finish(dist.broadcast, columns, size - 1)
    check(columns, size)
    own = full((rank + 1, 2), rank + 1, dtype)
    parts = [full((k + 1, 2), 0, dtype) for k in range(size)]
    finish(dist.all_gather, parts, own)
    for k in range(size):
        check(parts[k], k + 1)
    row = full((2, 3), rank + 1, dtype)
    joined = full((2 * size, 3), 0, dtype)
    finish(dist.all_gather_into_tensor, joined, row)
    for k in range(size):
        check(joined[2 * k : 2 * k + 2], k + 1)
    parts = [full((2, 3), 0, dtype) for _ in range(size)] if rank == 0 else None
    finish(dist.gather, row, parts, 0)
    for k, part in enumerate(parts or ()):
        check(part, k + 1)
    parts = [full((2,), k + 5, dtype) for k in range(size)] if rank == 1 else None
    found = full((2,), 0, dtype)
    finish(dist.scatter, found, parts, 1)
    check(found, rank + 5)
    found = full((size,), 0, dtype)
    finish(dist.all_to_all_single, found, pb.arange(size).to(dtype))
    check(found, rank)
    parts = [full((1,), 0, dtype) for _ in range(size)]
    finish(dist.all_to_all, parts, [full((1,), rank + 1, dtype)] * size)
    for k in range(size):
        check(parts[k], k + 1)


def reductions(rank, size, dtype, finish):
    for shape in ((), (0,), (5,), (3, 2)):
        found = full(shape, 1, dtype)
        finish(dist.all_reduce, found)
        check(found, size)
    columns = full((2, 3), rank + 1, dtype).t()
    finish(dist.all_reduce, columns)
    check(columns, size * (size + 1) // 2)
    found = full((2,), rank + 1, dtype)
    finish(dist.reduce, found, size - 1)
    check(found, size * (size + 1) // 2 if rank == size - 1 else rank + 1)
    part = full((2,), 0, dtype)
    finish(dist.reduce_scatter, part, [full((2,), k + 1, dtype) for k in range(size)])
    check(part, size * (rank + 1))
    whole = pb.cat([full((2,), k + 1, dtype) for k in range(size)])
    finish(dist.reduce_scatter_tensor, part, whole)
    check(part, size * (rank + 1))


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    for async_op in (False, True):

        def finish(collective, *arguments, async_op=async_op):
            work = collective(*arguments, async_op=async_op)
            assert (work is not None) is async_op
            if async_op:
                assert work.wait() and work.is_completed()

        for dtype in DTYPES:
            movements(rank, size, dtype, finish)
            reductions(rank, size, dtype, finish)
        mean = pb.full((2,), float(rank))
        finish(dist.all_reduce, mean, dist.ReduceOp.AVG)
        check(mean, (size - 1) / 2)
    saved = pb.ones(2, requires_grad=True) * 2
    product = saved * saved
    dist.all_reduce(saved)
    try:
        product.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a saved tensor that a collective wrote gave a gradient")
    even = dist.new_group(range(0, size, 2))
    if rank % 2 == 0:
        found = pb.ones(1)
        dist.all_reduce(found, group=even)
        check(found, (size + 1) // 2)
        assert dist.get_rank(even) == rank // 2
    else:
        assert dist.get_rank(even) == -1
    dist.barrier()
    dist.destroy_process_group()


main()

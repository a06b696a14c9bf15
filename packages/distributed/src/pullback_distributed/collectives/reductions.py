"""Collectives that combine values: all_reduce, reduce, reduce_scatter."""

from __future__ import annotations

from itertools import repeat

import pullback
from pullback import Tensor
from pullback_distributed import mpi as MPI
from pullback_distributed.abilities import largest_count
from pullback_distributed.collectives.buffers import (
    check_dtypes,
    check_tensor,
    check_tensors,
)
from pullback_distributed.collectives.datatypes import ReduceOp, reduction
from pullback_distributed.collectives.memory import Joined, Memory, Source, Target
from pullback_distributed.collectives.progress import Work
from pullback_distributed.collectives.running import member, root_of, run
from pullback_distributed.groups.process_group import ProcessGroup

AVG = ReduceOp.AVG  # members of enumerations are slow to look up


def _average(tensor: Tensor, op: ReduceOp, size: int) -> None:
    if op is AVG and size > 1:
        with pullback.no_grad():
            tensor.detach().div_(size)


def _reduce_scatter(
    communicator: MPI.Intracomm,
    sent: Memory,
    written: Memory,
    counts: list[int],
    combining: MPI.Op,
) -> None:
    """Combine memory, each rank's part for itself where one call does not take all of it."""
    if sum(counts) <= largest_count():
        communicator.Reduce_scatter(sent.message(), written.message(), counts, combining)
        return
    start = 0
    for place, count in enumerate(counts):
        kept = written.pieces() if place == communicator.rank else repeat(None)
        for piece, target in zip(sent.pieces(start, count), kept):
            communicator.Reduce(piece, target, combining, place)
        start += count


def all_reduce(
    tensor: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine a tensor of all processes, element by element; each gets the result in place.

    ``tensor`` has the same shape and dtype everywhere. ``AVG`` needs a floating or complex dtype,
    the bitwise ones a whole or bool one; of bools a sum is "any" and a product "all". With
    ``async_op`` the result is there after ``wait()`` of the ``Work`` that is returned. Nothing is
    recorded for backward: ``distributed.nn.functional.all_reduce`` is differentiable.
    Raises: TypeError for other arguments; RuntimeError where ``op`` does not fit the dtype.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> x = pullback.ones(2)
    >>> dist.all_reduce(x)
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    combining = reduction(tensor.dtype, op)
    found = member(group, "all_reduce")
    if found is None:
        return None
    written = Target("all_reduce", tensor, reduced=True)
    size = found.size()

    def operate(communicator: MPI.Intracomm) -> None:
        for piece in written.pieces():
            communicator.Allreduce(MPI.IN_PLACE, piece, combining)
        if op is AVG:
            _average(written.plain, op, size)
        written.done()

    return run(found, "all_reduce", operate, async_op, [tensor], tensor, op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine a tensor of all processes; only ``dst``, a global rank, gets the result in place.

    ``group_dst`` is the rank in the group instead. Other arguments and errors as ``all_reduce``;
    ValueError without one of the ranks.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.reduce(pullback.ones(2), 0)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    combining = reduction(tensor.dtype, op)
    found = member(group, "reduce")
    if found is None:
        return None
    root = root_of(found, dst, group_dst)
    here = found.rank() == root
    given = (Target if here else Source)("reduce", tensor, reduced=True)
    size = found.size()

    def operate(communicator: MPI.Intracomm) -> None:
        if isinstance(given, Target):
            for piece in given.pieces():
                communicator.Reduce(MPI.IN_PLACE, piece, combining, root)
            _average(given.plain, op, size)
            given.done()
        else:
            for piece in given.pieces():
                communicator.Reduce(piece, None, combining, root)

    return run(found, "reduce", operate, async_op, [tensor], tensor, op, root)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine a tensor of all processes, and give each its part of the first dim.

    ``input`` has as many elements as there are processes times those of ``output``.
    Raises: as ``all_reduce``; RuntimeError for other sizes, ValueError for other dtypes.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> part = pullback.empty(2)
    >>> dist.reduce_scatter_tensor(part, pullback.ones(2))
    >>> part
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(output, "output")
    check_tensor(input, "input")
    combining = reduction(output.dtype, op)
    found = member(group, "reduce_scatter_tensor")
    if found is None:
        return None
    check_dtypes("reduce_scatter_tensor", output, [input])
    if output.numel() * found.size() != input.numel():
        raise RuntimeError(
            f"reduce_scatter_tensor: expected an input of {found.size()} times the output's "
            f"{output.numel()} elements, but it has {input.numel()}"
        )
    name, size = "reduce_scatter_tensor", found.size()
    written = Target(name, output, keeps=False, reduced=True)
    sent = Source(name, input, reduced=True)
    counts = [output.numel()] * size

    def operate(communicator: MPI.Intracomm) -> None:
        _reduce_scatter(communicator, sent, written, counts, combining)
        _average(written.plain, op, size)
        written.done()

    return run(found, name, operate, async_op, [output], output, op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the lists of all processes, and give each the tensor at its rank.

    Raises: as ``reduce_scatter_tensor``; RuntimeError if there is not a tensor for each process.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> part = pullback.empty(2)
    >>> dist.reduce_scatter(part, [pullback.ones(2)])
    >>> dist.destroy_process_group()
    """
    check_tensor(output, "output")
    check_tensors(input_list, "input_list")
    combining = reduction(output.dtype, op)
    found = member(group, "reduce_scatter")
    if found is None:
        return None
    check_dtypes("reduce_scatter", output, input_list)
    if len(input_list) != found.size():
        raise RuntimeError("invalid input tensor list size, must be world size")
    if input_list[found.rank()].shape != output.shape:
        raise RuntimeError(
            f"reduce_scatter: expected an output of shape {tuple(input_list[found.rank()].shape)}, "
            f"as the input for this rank, but got {tuple(output.shape)}"
        )
    counts = [part.numel() for part in input_list]
    sent = Joined("reduce_scatter", input_list, reduced=True)
    written = Target("reduce_scatter", output, keeps=False, reduced=True)
    size = found.size()

    def operate(communicator: MPI.Intracomm) -> None:
        _reduce_scatter(communicator, sent, written, counts, combining)
        _average(written.plain, op, size)
        written.done()

    return run(found, "reduce_scatter", operate, async_op, [output], input_list, op)

"""Collectives that move values: broadcast, gather, scatter, all_to_all, barrier."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pullback import Tensor
from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.buffers import (
    check_dtypes,
    check_tensor,
    check_tensors,
)
from pullback_distributed.collectives.memory import Joined, Room, Source, Target
from pullback_distributed.collectives.progress import Work
from pullback_distributed.collectives.running import member, root_of, run
from pullback_distributed.groups.lifecycle import checked_timeout
from pullback_distributed.groups.process_group import ProcessGroup


def _check_list(name: str, tensors: list[Tensor], size: int, what: str) -> None:
    if len(tensors) != size:
        raise RuntimeError(
            f"{name}: expected {what} of {size} tensors, one for each process, but got "
            f"{len(tensors)}"
        )


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copy the tensor of ``src``, a global rank, into those of all other processes.

    ``tensor`` has the same number of elements and dtype everywhere; ``group_src`` is the rank in
    the group instead of ``src``.
    Raises: TypeError if it is no tensor; ValueError without one rank, or for one that is not in the
    group.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.broadcast(pullback.ones(2), 0)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = member(group, "broadcast")
    if found is None:
        return None
    root = root_of(found, src, group_src)
    here = found.rank() == root
    moved = Source("broadcast", tensor) if here else Target("broadcast", tensor, keeps=False)

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Bcast(moved.message(), root)
        if isinstance(moved, Target):
            moved.done()

    return run(found, "broadcast", operate, async_op, [tensor], tensor, None, root)


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Join the tensors of all processes along the first dim, for each of them.

    ``output_tensor`` has as many elements as there are processes times those of ``input_tensor``.
    Raises: TypeError if they are no tensors; ValueError for other dtypes; RuntimeError for other
    sizes.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.all_gather_into_tensor(pullback.empty(2), pullback.ones(2))
    >>> dist.destroy_process_group()
    """
    check_tensor(output_tensor, "output_tensor")
    check_tensor(input_tensor, "input_tensor")
    found = member(group, "all_gather_into_tensor")
    if found is None:
        return None
    check_dtypes("all_gather_into_tensor", output_tensor, [input_tensor])
    if output_tensor.numel() != found.size() * input_tensor.numel():
        raise RuntimeError(
            f"all_gather_into_tensor: expected an output of {found.size()} times the input's "
            f"{input_tensor.numel()} elements, but it has {output_tensor.numel()}"
        )
    name, counts = "all_gather_into_tensor", [input_tensor.numel()] * found.size()
    written, sent = Target(name, output_tensor, keeps=False), Source(name, input_tensor)

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Allgatherv(sent.message(), written.parts(counts))
        written.done()

    return run(found, name, operate, async_op, [output_tensor], input_tensor)


def all_gather(
    tensor_list: list[Tensor],
    tensor: Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Fill a list with the tensors of all processes, which may have several sizes.

    ``tensor_list[k]`` has the shape of ``tensor`` on the group's rank ``k``.
    Raises: TypeError if they are no tensors; ValueError for other dtypes; RuntimeError if there is
    not one for each process, or if this rank's has another shape.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> parts = [pullback.empty(2)]
    >>> dist.all_gather(parts, pullback.ones(2))
    >>> parts
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    check_tensors(tensor_list, "tensor_list")
    check_tensor(tensor, "tensor")
    found = member(group, "all_gather")
    if found is None:
        return None
    _check_list("all_gather", tensor_list, found.size(), "an output list")
    check_dtypes("all_gather", tensor, tensor_list)
    if tensor_list[found.rank()].numel() != tensor.numel():
        raise RuntimeError(
            f"all_gather: expected an output of shape {tuple(tensor.shape)} for this rank, but got "
            f"{tuple(tensor_list[found.rank()].shape)}"
        )
    counts = [part.numel() for part in tensor_list]
    sent, room = Source("all_gather", tensor), Room("all_gather", sum(counts), tensor)

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Allgatherv(sent.message(), room.parts(counts))
        room.deal_out(tensor_list)

    return run(found, "all_gather", operate, async_op, tensor_list, tensor_list)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Fill the list of ``dst``, a global rank (0 if none is given), with all tensors.

    Raises: as ``all_gather``; ValueError if ``gather_list`` is missing there or given elsewhere.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> parts = [pullback.empty(2)]
    >>> dist.gather(pullback.ones(2), parts, dst=0)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = member(group, "gather")
    if found is None:
        return None
    root = root_of(found, 0 if dst is None and group_dst is None else dst, group_dst)
    targets = list(gather_list or ())
    if found.rank() == root:
        if not targets:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        check_tensors(targets, "gather_list")
        _check_list("gather", targets, found.size(), "a list")
        check_dtypes("gather", tensor, targets)
    elif targets:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    counts = [part.numel() for part in targets]
    sent = Source("gather", tensor)
    room = Room("gather", sum(counts), tensor) if targets else None

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Gatherv(sent.message(), None if room is None else room.parts(counts), root)
        if room is not None:
            room.deal_out(targets)

    return run(found, "gather", operate, async_op, targets, tensor.dtype, None, root)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each process its tensor of the list of ``src``, a global rank (0 if none is given).

    Raises: as ``gather``, of ``scatter_list``.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.scatter(pullback.empty(2), [pullback.ones(2)], src=0)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = member(group, "scatter")
    if found is None:
        return None
    root = root_of(found, 0 if src is None and group_src is None else src, group_src)
    sources = list(scatter_list or ())
    sent = None
    if found.rank() == root:
        if not sources:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        check_tensors(sources, "scatter_list")
        _check_list("scatter", sources, found.size(), "a list")
        check_dtypes("scatter", tensor, sources)
        sent = Joined("scatter", sources)
    elif sources:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    counts = [part.numel() for part in sources]
    written = Target("scatter", tensor, keeps=False)

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Scatterv(None if sent is None else sent.parts(counts), written.message(), root)
        written.done()

    return run(found, "scatter", operate, async_op, [tensor], tensor.dtype, None, root)


def rows_of_parts(name: str, tensor: Tensor, sizes: list[int] | None, count: int) -> list[int]:
    """Return the rows of dim 0 for each process, equally many without sizes.

    Raises: RuntimeError if the sizes do not fit.
    """
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if rows % count:
            raise RuntimeError(
                f"{name}: Tensor's dim 0 does not divide equally across group size: {rows} rows, "
                f"{count} processes"
            )
        return [rows // count] * count
    if len(sizes) != count:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != rows or min(sizes) < 0:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return list(sizes)


def _splits(name: str, tensor: Tensor, sizes: list[int] | None, count: int) -> list[int]:
    """Return the number of elements for each process of a tensor that is split along dim 0."""
    found = rows_of_parts(name, tensor, sizes, count)
    row = tensor.numel() // sum(found) if sum(found) else 0
    return [rows * row for rows in found]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Send part ``k`` of the first dim to rank ``k``, and join the parts that come.

    The split sizes are in rows; without them all parts are equal.
    Raises: TypeError if they are no tensors; ValueError for other dtypes; RuntimeError if the split
    sizes do not fit.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.all_to_all_single(pullback.empty(2), pullback.ones(2))
    >>> dist.destroy_process_group()
    """
    check_tensor(output, "output")
    check_tensor(input, "input")
    found = member(group, "all_to_all_single")
    if found is None:
        return None
    check_dtypes("all_to_all_single", output, [input])
    name, size = "all_to_all_single", found.size()
    received = _splits(name, output, output_split_sizes, size)
    going = _splits(name, input, input_split_sizes, size)
    written, sent = Target(name, output, keeps=False), Source(name, input)

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Alltoallv(sent.parts(going), written.parts(received))
        written.done()

    return run(found, name, operate, async_op, [output], output.dtype)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Send tensor ``k`` of a list to rank ``k``, and fill the other list with those that come.

    Raises: TypeError if they are no tensors; ValueError for other dtypes; RuntimeError if there is
    not one for each process.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.all_to_all([pullback.empty(2)], [pullback.ones(2)])
    >>> dist.destroy_process_group()
    """
    check_tensors(output_tensor_list, "output_tensor_list")
    check_tensors(input_tensor_list, "input_tensor_list")
    found = member(group, "all_to_all")
    if found is None:
        return None
    _check_list("all_to_all", output_tensor_list, found.size(), "an output list")
    _check_list("all_to_all", input_tensor_list, found.size(), "an input list")
    check_dtypes("all_to_all", input_tensor_list[0], [*input_tensor_list, *output_tensor_list])
    sent = Joined("all_to_all", input_tensor_list)
    going = [part.numel() for part in input_tensor_list]
    received = [part.numel() for part in output_tensor_list]
    room = Room("all_to_all", sum(received), input_tensor_list[0])

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Alltoallv(sent.parts(going), room.parts(received))
        room.deal_out(output_tensor_list)

    dtype = input_tensor_list[0].dtype
    return run(found, "all_to_all", operate, async_op, output_tensor_list, dtype)


def barrier(
    group: ProcessGroup | None = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Wait until all processes of the group are here.

    ``timeout`` is how long that may take, instead of the group's. ``device_ids`` has no effect.
    Raises: TypeError for a timeout that is no timedelta, ValueError if it is not positive.

    >>> import pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.barrier()
    >>> dist.destroy_process_group()
    """
    if timeout is not None:
        timeout = checked_timeout(timeout)
    found = member(group, "barrier")
    if found is None:
        return None

    def operate(communicator: MPI.Intracomm) -> None:
        communicator.Barrier()

    return run(found, "barrier", operate, async_op, [], timeout=timeout)

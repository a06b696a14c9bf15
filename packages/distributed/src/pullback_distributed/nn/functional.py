"""Collectives that are recorded for backward.

They are linear functions of the tensors of all processes together, and the backward pass runs their
adjoints, which are collectives of this module too, so that there is every order of derivatives. The
value that is differentiated is the sum of what the processes call ``backward`` on. All processes
must use the result in it, or the adjoint waits for those that do not; use it times zero there.
Products, minima and maxima are those of gathered tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pullback
from pullback import Tensor
from pullback.autograd import Function
from pullback.distributed import ReduceOp
from pullback_distributed.collectives import movements, reductions
from pullback_distributed.collectives.buffers import check_tensor, check_tensors
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup

_LINEAR = (ReduceOp.SUM, ReduceOp.AVG)
_OF_GATHERED = {
    ReduceOp.PRODUCT: lambda parts: parts.prod(0),
    ReduceOp.MIN: lambda parts: parts.amin(0),
    ReduceOp.MAX: lambda parts: parts.amax(0),
}


def _group_of(group: ProcessGroup | None) -> ProcessGroup:
    return world() if group is None else group


def _combined(parts: Sequence[Tensor], op: ReduceOp) -> Tensor:
    """Combine tensors of all processes that are here.

    Raises: RuntimeError for a bitwise op, which has no derivative.
    """
    if op not in _OF_GATHERED:
        raise RuntimeError(f"ReduceOp.{op.name} has no derivative: use pullback.distributed's own")
    return _OF_GATHERED[op](pullback.stack(list(parts)))


def _contiguous(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().contiguous()


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, op: ReduceOp, tensor: Tensor) -> Tensor:
        ctx.group, ctx.op = group, op
        found = tensor.detach().clone()
        reductions.all_reduce(found, op, group)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, _AllReduce.apply(ctx.group, ctx.op, grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, root: int, tensor: Tensor) -> Tensor:
        ctx.group, ctx.root = group, root
        found = tensor.detach().clone()
        movements.broadcast(found, group=group, group_src=root)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, _Reduce.apply(ctx.group, ctx.root, grad)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, root: int, tensor: Tensor) -> Tensor:
        ctx.group, ctx.root = group, root
        found = tensor.detach().clone()
        reductions.reduce(found, group=group, group_dst=root)
        return found if group.rank() == root else found.zero_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, _Broadcast.apply(ctx.group, ctx.root, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        sent = _contiguous(tensor)
        found = [pullback.empty_like(sent) for _ in range(group.size())]
        movements.all_gather(found, sent, group)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return None, _ReduceScatter.apply(ctx.group, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, *tensors: Tensor) -> Tensor:
        ctx.group = group
        sent = [_contiguous(tensor) for tensor in tensors]
        found = pullback.empty_like(sent[group.rank()])
        reductions.reduce_scatter(found, sent, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, *_AllGather.apply(ctx.group, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, root: int, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.root = group, root
        sent = _contiguous(tensor)
        found = [pullback.zeros_like(sent) for _ in range(group.size())]
        here = group.rank() == root
        movements.gather(sent, found if here else None, group=group, group_dst=root)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return None, None, _Scatter.apply(ctx.group, ctx.root, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, root: int, *tensors: Tensor) -> Tensor:
        ctx.group, ctx.root = group, root
        here = group.rank() == root
        sent = [_contiguous(tensor) for tensor in tensors]
        found = pullback.empty_like(sent[group.rank()])
        movements.scatter(found, sent if here else None, group=group, group_src=root)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, *_Gather.apply(ctx.group, ctx.root, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Take this process's tensors and then one of each shape that comes."""
        ctx.group, half = group, len(tensors) // 2
        ctx.shapes = [tensor.shape for tensor in tensors[:half]]
        ctx.set_materialize_grads(True)
        found = [pullback.empty_like(_contiguous(tensor)) for tensor in tensors[half:]]
        movements.all_to_all(found, [_contiguous(tensor) for tensor in tensors[:half]], group)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        coming = [grads[0].new_empty(shape) for shape in ctx.shapes]
        return None, *_AllToAll.apply(ctx.group, *grads, *coming), *(None for _ in grads)


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Tensor:
    """Return a tensor of all processes combined, on each of them.

    The adjoint of a sum is the sum of the gradients. With ``MIN`` and ``MAX`` equal elements share
    the gradient.
    Raises: TypeError if it is no tensor; RuntimeError for an op without a derivative; ValueError
    before ``init_process_group``.

    >>> import pullback, pullback_distributed as dist
    >>> from pullback_distributed.nn.functional import all_reduce
    >>> dist.init_process_group()
    >>> x = pullback.ones(2, requires_grad=True)
    >>> all_reduce(x * 3).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = _group_of(group)
    if op in _LINEAR:
        return _AllReduce.apply(found, op, tensor)
    return _combined(_AllGather.apply(found, tensor), op)


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """Return the tensor of ``src``, a global rank, on all processes.

    Others give a tensor of the same shape and dtype. The adjoint is the sum of all gradients on
    ``src``, and zero on others. Raises: as ``all_reduce``; ValueError for a rank that is not there.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.broadcast(pullback.ones(2), 0)
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = _group_of(group)
    return _Broadcast.apply(found, found.rank_of(src), tensor)


def reduce(
    tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Tensor:
    """Return a tensor of all processes combined on ``dst``, a global rank, and zeros on others.

    The adjoint of a sum gives the gradient of ``dst`` to all. Raises: as ``all_reduce``; ValueError
    for a rank that is not there.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.reduce(pullback.ones(2), 0)
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = _group_of(group)
    root = found.rank_of(dst)
    if op in _LINEAR:
        total = _Reduce.apply(found, root, tensor)
        return total / found.size() if op is ReduceOp.AVG else total
    combined = _combined(_Gather.apply(found, root, tensor), op)
    return combined if found.rank() == root else combined * 0


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Return the tensors of all processes, which have one shape, in the order of ranks.

    The adjoint gives each process the sum of all gradients of its tensor. Raises: as
    ``all_reduce``.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.all_gather(pullback.ones(2))
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    return tuple(_AllGather.apply(_group_of(group), tensor))


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Return the tensors of all processes on ``dst``, a global rank, and zeros on others.

    The adjoint gives each process its gradient of those on ``dst``. Raises: as ``all_reduce``;
    ValueError for a rank that is not there.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.gather(pullback.ones(2))
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    found = _group_of(group)
    return tuple(_Gather.apply(found, found.rank_of(dst), tensor))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Return this process's tensor of the list of ``src``, a global rank.

    All tensors have one shape; others than ``src`` give a list too, of tensors of that shape. The
    adjoint gives ``src`` the gradients of all, and others zeros. Raises: as ``gather``;
    RuntimeError if there is not a tensor for each process.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.scatter([pullback.ones(2)])
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    tensors = list(tensors)
    check_tensors(tensors, "tensors")
    found = _group_of(group)
    _check_count("scatter", tensors, found)
    return _Scatter.apply(found, found.rank_of(src), *tensors)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return the sum over the processes of what each has for this one.

    ``output`` gives the shape, and is not written. The adjoint gives the gradient of each process
    to all. Raises: as ``scatter``; RuntimeError for another shape.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.reduce_scatter(pullback.empty(2), [pullback.ones(2)])
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(output, "output")
    tensors = list(input_list)
    check_tensors(tensors, "input_list")
    found = _group_of(group)
    _check_count("reduce_scatter", tensors, found)
    if tensors[found.rank()].shape != output.shape:
        raise RuntimeError(
            f"reduce_scatter: expected an output of shape {tuple(tensors[found.rank()].shape)}, as "
            f"the input for this rank, but got {tuple(output.shape)}"
        )
    if op in _LINEAR:
        total = _ReduceScatter.apply(found, *tensors)
        return total / found.size() if op is ReduceOp.AVG else total
    own = [pullback.empty_like(output) for _ in tensors]
    return _combined(_AllToAll.apply(found, *tensors, *own), op)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
) -> tuple[Tensor, ...]:
    """Send tensor ``k`` of a list to rank ``k``, and return those that come.

    ``output_tensor_list`` gives the shapes, and is not written. The adjoint sends the gradients
    back. Raises: as ``scatter``.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.all_to_all([pullback.empty(2)], [pullback.ones(2)])
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    going, coming = list(input_tensor_list), list(output_tensor_list)
    check_tensors(going, "input_tensor_list")
    check_tensors(coming, "output_tensor_list")
    found = _group_of(group)
    _check_count("all_to_all", going, found)
    _check_count("all_to_all", coming, found)
    return tuple(_AllToAll.apply(found, *going, *(part.detach() for part in coming)))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Send part ``k`` of the first dim to rank ``k``, and return the parts that come, joined.

    ``output`` gives the shape, and is not written; the split sizes are in rows. Raises: as
    ``all_to_all``; RuntimeError if the sizes do not fit.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> dist.nn.functional.all_to_all_single(pullback.empty(2), pullback.ones(2))
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    check_tensor(output, "output")
    check_tensor(input, "input")
    found = _group_of(group)

    def parts(tensor: Tensor, sizes: list[int] | None) -> list[Tensor]:
        counts = movements.rows_of_parts("all_to_all_single", tensor, sizes, found.size())
        return list(tensor.split(counts))

    coming = parts(output.detach(), output_split_sizes)
    going = parts(input, input_split_sizes)
    return pullback.cat(list(_AllToAll.apply(found, *going, *coming)))


def _check_count(name: str, tensors: list[Tensor], group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise RuntimeError(
            f"{name}: expected {group.size()} tensors, one for each process, but got {len(tensors)}"
        )

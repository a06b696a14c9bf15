"""How tensors and storages go through the queues and pipes of ``multiprocessing``.

A storage on the host goes as the name of its block of shared memory, so that sender and receiver
have the same memory. Tensors of other devices are copied.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

from pullback._c.graph.tensor import Tensor
from pullback._c.interop.arrays import host_device
from pullback.multiprocessing.blocks import open_block, sent_block
from pullback.nn.parameter import Parameter
from pullback.serialization.names import lazy_bits, with_lazy_bits
from pullback.storage.typed import TypedStorage
from pullback.storage.untyped import UntypedStorage
from pullback.utils.hooks import warn_if_has_hooks

__all__ = ["init_reductions", "rebuild_storage", "rebuild_tensor"]


def reduce_storage(storage):
    """Return how a storage is made again in another process."""
    if storage.device != host_device():
        return storage.__reduce__()
    return rebuild_storage, (sent_block(storage), storage.nbytes())


def rebuild_storage(name, nbytes):
    """Return a storage over a named block of shared memory; messages call this.

    Raises: RuntimeError if the block is gone.
    """
    block = open_block(name, nbytes)
    made = UntypedStorage()
    made._over(block.address, nbytes, block)
    return made


def reduce_tensor(tensor):
    """Return how a tensor is made again in another process.

    Raises: RuntimeError for tensors with a history.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    if tensor.device != host_device():
        return tensor.__reduce_ex__(2)
    warn_if_has_hooks(tensor)
    part = tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return rebuild_tensor, (
        *(type(tensor), tensor.untyped_storage(), part, lazy_bits(tensor)),
        *(tensor.requires_grad, dict(vars(tensor))),
    )


def rebuild_tensor(kind, storage, part, lazy, requires_grad, attributes):
    """Return a tensor over part of a storage; messages call this."""
    made = with_lazy_bits(storage._tensor(*part), lazy)
    if kind is Parameter:
        made = Parameter(made, requires_grad)
    elif requires_grad:
        made.requires_grad_()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def init_reductions():
    """Register the functions above for the queues and pipes of ``multiprocessing``."""
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, lambda s: s.__reduce__())
    for kind in (Tensor, Parameter):
        ForkingPickler.register(kind, reduce_tensor)

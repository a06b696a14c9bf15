"""Manipulation functions of the standard: shapes, joins, repetition."""

from __future__ import annotations

from pullback._c.graph.tensor import Tensor
from pullback._methods import broadcast_shapes
from pullback.array_api._calls import BY_NAME, axes_of, flat, promoted, share_dtype, standard
from pullback.ops import ops

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]

moveaxis = ops.movedim


def broadcast_arrays(*arrays):
    """Return views of all tensors in the shape that they broadcast to.

    >>> import pullback.array_api as xp
    >>> [x.shape for x in xp.broadcast_arrays(xp.ones(3), xp.ones((2, 1)))]
    [pullback.Size([2, 3]), pullback.Size([2, 3])]
    """
    return list(ops.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x, /, shape):
    """Return a view in a larger shape, where elements along dims of size 1 are repeated.

    >>> import pullback.array_api as xp
    >>> xp.broadcast_to(xp.ones(3), (2, 3)).shape
    pullback.Size([2, 3])
    """
    return ops.broadcast_to(x, shape)


def concat(arrays, /, *, axis=0):
    """Return tensors joined along an axis, or all their elements for ``axis=None``.

    >>> import pullback.array_api as xp
    >>> xp.concat([xp.ones(1), xp.zeros(1)])
    tensor([1., 0.])
    """
    if axis is not None and share_dtype(arrays):
        return ops.cat(arrays, axis)
    joined = promoted(*arrays)
    if axis is None:
        return ops.cat([flat(x) for x in joined])
    return ops.cat(joined, axis)


@standard(ops.unsqueeze, axis=True, alone=False)
def expand_dims(x, /, axis=0):
    """Return a view with dims of size 1 inserted at the axes, which count those of the result.

    Raises: IndexError for an axis that the result does not have.

    >>> import pullback.array_api as xp
    >>> xp.expand_dims(xp.ones(2), axis=-1).shape
    pullback.Size([2, 1])
    """
    if isinstance(axis, tuple):
        for one in sorted(axes_of(axis, x.ndim + len(axis))):
            x = ops.unsqueeze(x, one)
        return x
    return ops.unsqueeze(x, axis)


@standard(ops.flip, axis=True, axes=True, alone=False)
def flip(x, /, *, axis=None):
    """Return ``x`` with the order of elements reversed along axes, by default along all.

    >>> import pullback.array_api as xp
    >>> xp.flip(xp.arange(3))
    tensor([2, 1, 0])
    """
    return ops.flip(x, axes_of(axis, x.ndim))


def permute_dims(x, /, axes):
    """Return a view whose dims are those of ``x`` in another order.

    >>> import pullback.array_api as xp
    >>> xp.permute_dims(xp.ones((2, 3)), (1, 0)).shape
    pullback.Size([3, 2])
    """
    return ops.permute(x, axes)


def repeat(x, repeats, /, *, axis=None):
    """Return each element along an axis repeated, one after the other; by default of all elements.

    ``repeats``: a number, or a tensor with one for each element.

    >>> import pullback.array_api as xp
    >>> xp.repeat(xp.arange(3), xp.asarray([0, 1, 2]))
    tensor([1, 2, 2])
    """
    if isinstance(repeats, Tensor):
        repeats = repeats.to(BY_NAME["int64"])
    if axis is None:
        return ops.repeat_interleave(flat(x), repeats, 0)
    return ops.repeat_interleave(x, repeats, axis)


def reshape(x, /, shape, *, copy=None):
    """Return the elements in another shape, in which one size may be -1.

    ``copy``: True always copies, False never, None where strides need it.
    Raises: ValueError when ``copy=False`` and a copy is needed.

    >>> import pullback.array_api as xp
    >>> xp.reshape(xp.arange(4), (2, -1))
    tensor([[0, 1],
            [2, 3]])
    """
    if copy is None:
        return ops.reshape(x, shape)
    if copy:
        return ops.reshape(ops.clone(x), shape)
    try:
        return ops.view(x, shape)
    except RuntimeError as error:
        raise ValueError(f"reshape(): {x.shape} to {shape} needs a copy: {error}") from None


def roll(x, /, shift, *, axis=None):
    """Return ``x`` with elements moved along axes, those at the end to the beginning.

    Without an axis, of all elements in a row.

    >>> import pullback.array_api as xp
    >>> xp.roll(xp.arange(3), 1)
    tensor([2, 0, 1])
    """
    if axis is None:
        return ops.roll(x, shift)
    if isinstance(axis, tuple) and not isinstance(shift, tuple):
        shift = (shift,) * len(axis)
    return ops.roll(x, shift, axis)


def squeeze(x, /, axis):
    """Return a view without dims of size 1.

    Raises: ValueError for an axis of another size, IndexError for one that is not there.

    >>> import pullback.array_api as xp
    >>> xp.squeeze(xp.ones((1, 2)), 0).shape
    pullback.Size([2])
    """
    if type(axis) is int and x.size(axis) == 1:
        return ops.squeeze(x, axis)
    axes = axes_of(axis, x.ndim)
    for one in axes:
        if x.shape[one] != 1:
            raise ValueError(f"squeeze(): axis {one} has size {x.shape[one]}, which is not 1")
    return ops.squeeze(x, axes) if axes else x


def stack(arrays, /, *, axis=0):
    """Return tensors of one shape joined along a new axis.

    >>> import pullback.array_api as xp
    >>> xp.stack([xp.ones(2), xp.zeros(2)], axis=1)
    tensor([[1., 0.],
            [1., 0.]])
    """
    return ops.stack(arrays if share_dtype(arrays) else promoted(*arrays), axis)


def tile(x, repetitions, /):
    """Return ``x`` repeated along each axis; missing axes or repetitions are 1, at the front.

    >>> import pullback.array_api as xp
    >>> xp.tile(xp.arange(2), (2,))
    tensor([0, 1, 0, 1])
    """
    return ops.tile(x, repetitions)


@standard(ops.unbind, axis=True)
def unstack(x, /, *, axis=0):
    """Return the parts of ``x`` along an axis, as a tuple of tensors without it.

    >>> import pullback.array_api as xp
    >>> xp.unstack(xp.arange(2))
    (tensor(0), tensor(1))
    """
    return tuple(ops.unbind(x, axis))

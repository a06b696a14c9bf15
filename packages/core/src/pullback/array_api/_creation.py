"""Creation functions of the standard."""

from __future__ import annotations

from pullback._c.graph.tensor import Tensor
from pullback._construct import asarray as _asarray
from pullback.ops import ops
from pullback.utils.dlpack import from_dlpack as _from_dlpack

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """Return evenly spaced numbers from ``start`` up to, without, ``stop``; (N,).

    The result is empty where ``step`` leads away from ``stop``. ``arange(stop)`` starts at 0.
    Raises: ValueError for a step of 0.

    >>> import pullback.array_api as xp
    >>> xp.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    if stop is None:
        if dtype is device is None and step == 1 and start >= 0:
            return ops.arange(start)
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange(): step must not be 0")
    if (stop > start) != (step > 0):
        stop = start
    return ops.arange(start, stop, step, dtype=dtype, device=device)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """Return an object as a tensor: numbers, nested sequences, arrays, buffers.

    ``copy``: True always copies, False never, None where dtype, device or layout need it, or
    memory is read-only. A tensor keeps its history.
    Raises: ValueError when ``copy=False`` and a copy is needed.

    >>> import pullback.array_api as xp
    >>> xp.asarray([[1, 2]], dtype=xp.float64)
    tensor([[1., 2.]], dtype=pullback.float64)
    """
    if type(obj) is Tensor and dtype is device is None and not copy:
        return obj
    if copy is None and hasattr(obj, "flags") and not getattr(obj.flags, "writeable", True):
        copy = True
    return _asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape, *, dtype=None, device=None):
    """Return a tensor whose elements are not set.

    >>> import pullback.array_api as xp
    >>> xp.empty((2, 3)).shape
    pullback.Size([2, 3])
    """
    if dtype is device is None:
        return ops.empty(shape)
    return ops.empty(shape, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    """Return a tensor of the shape of ``x`` whose elements are not set.

    >>> import pullback.array_api as xp
    >>> xp.empty_like(xp.ones(3), dtype=xp.int8).dtype
    pullback.int8
    """
    if dtype is device is None:
        return ops.empty_like(x)
    return ops.empty_like(x, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Return a matrix with ones on the diagonal ``k``, above the main one for k > 0, else zeros.

    >>> import pullback.array_api as xp
    >>> xp.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    columns = n_rows if n_cols is None else n_cols
    if k == 0:
        return ops.eye(n_rows, columns, dtype=dtype, device=device)
    made = ops.zeros((n_rows, columns), dtype=dtype, device=device)
    if -n_rows < k < columns:
        ops.diagonal(made, k).fill_(1)
    return made


def from_dlpack(x, /, *, device=None, copy=None):
    """Return a tensor over the memory of another library's array.

    ``copy``: True always copies, False never, None where the device needs it.
    Raises: ValueError when ``copy=False`` and a copy is needed; BufferError for memory that no
    tensor can represent.

    >>> import numpy, pullback.array_api as xp
    >>> xp.from_dlpack(numpy.arange(3))
    tensor([0, 1, 2])
    """
    return _from_dlpack(x, device=device, copy=copy)


def full(shape, fill_value, *, dtype=None, device=None):
    """Return a tensor with ``fill_value`` everywhere, by default in the dtype of its kind.

    >>> import pullback.array_api as xp
    >>> xp.full(2, 7)
    tensor([7, 7])
    """
    sizes = (shape,) if isinstance(shape, int) else shape
    if isinstance(fill_value, Tensor):
        made = ops.empty(sizes, dtype=dtype or fill_value.dtype, device=device)
        return made.copy_(fill_value)
    if dtype is device is None:
        return ops.full(sizes, fill_value)
    return ops.full(sizes, fill_value, dtype=dtype, device=device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """Return a tensor of the shape and dtype of ``x`` with ``fill_value`` everywhere.

    >>> import pullback.array_api as xp
    >>> xp.full_like(xp.ones(2), 7)
    tensor([7., 7.])
    """
    if isinstance(fill_value, Tensor):
        return ops.empty_like(x, dtype=dtype, device=device).copy_(fill_value)
    if dtype is device is None:
        return ops.full_like(x, fill_value)
    return ops.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``, which is the last of them.

    ``endpoint=False``: without ``stop``.

    >>> import pullback.array_api as xp
    >>> xp.linspace(0, 1, 4, endpoint=False)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if endpoint and dtype is device is None:
        return ops.linspace(start, stop, num)
    if endpoint:
        return ops.linspace(start, stop, num, dtype=dtype, device=device)
    return ops.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays, indexing="xy"):
    """Return the coordinates of each point of a grid, one tensor for each 1-d tensor given.

    ``indexing``: "xy" puts the first tensor along the second dim, "ij" along the first.
    Raises: ValueError for another ``indexing``.

    >>> import pullback.array_api as xp
    >>> xp.meshgrid(xp.arange(2), xp.arange(3))[0]
    tensor([[0, 1],
            [0, 1],
            [0, 1]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid(): indexing must be 'xy' or 'ij', not {indexing!r}")
    return list(ops.meshgrid(*arrays, indexing=indexing)) if arrays else []


def ones(shape, *, dtype=None, device=None):
    """Return a tensor of ones.

    >>> import pullback.array_api as xp
    >>> xp.ones(2)
    tensor([1., 1.])
    """
    if dtype is device is None:
        return ops.ones(shape)
    return ops.ones(shape, dtype=dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    """Return ones in the shape and dtype of ``x``.

    >>> import pullback.array_api as xp
    >>> xp.ones_like(xp.arange(2))
    tensor([1, 1])
    """
    if dtype is device is None:
        return ops.ones_like(x)
    return ops.ones_like(x, dtype=dtype, device=device)


def tril(x, /, *, k=0):
    """Return the matrices of ``x``, (..., M, N), with zeros above the diagonal ``k``.

    >>> import pullback.array_api as xp
    >>> xp.tril(xp.ones((2, 2)))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return ops.tril(x, k)


def triu(x, /, *, k=0):
    """Return the matrices of ``x``, (..., M, N), with zeros below the diagonal ``k``.

    >>> import pullback.array_api as xp
    >>> xp.triu(xp.ones((2, 2)), k=1)
    tensor([[0., 1.],
            [0., 0.]])
    """
    return ops.triu(x, k)


def zeros(shape, *, dtype=None, device=None):
    """Return a tensor of zeros.

    >>> import pullback.array_api as xp
    >>> xp.zeros((2,), dtype=xp.bool)
    tensor([False, False])
    """
    if dtype is device is None:
        return ops.zeros(shape)
    return ops.zeros(shape, dtype=dtype, device=device)


def zeros_like(x, /, *, dtype=None, device=None):
    """Return zeros in the shape and dtype of ``x``.

    >>> import pullback.array_api as xp
    >>> xp.zeros_like(xp.ones(2))
    tensor([0., 0.])
    """
    if dtype is device is None:
        return ops.zeros_like(x)
    return ops.zeros_like(x, dtype=dtype, device=device)

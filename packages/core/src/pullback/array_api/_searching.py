"""Searching, sorting, set and indexing functions of the standard."""

from __future__ import annotations

from collections import namedtuple

from pullback._c.graph.tensor import Tensor
from pullback.array_api._calls import BY_NAME, flat, one_axis, promoted, standard
from pullback.ops import ops

__all__ = [
    "argsort",
    "isin",
    "nonzero",
    "searchsorted",
    "sort",
    "take",
    "take_along_axis",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]

INT64 = BY_NAME["int64"]
UniqueAllResult = namedtuple(
    "UniqueAllResult", ("values", "indices", "inverse_indices", "counts"), module=__name__
)
UniqueCountsResult = namedtuple("UniqueCountsResult", ("values", "counts"), module=__name__)
UniqueInverseResult = namedtuple(
    "UniqueInverseResult", ("values", "inverse_indices"), module=__name__
)


# ---- searching and sorting -----------------------------------------------------------------------


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """Return the indices that sort ``x`` along an axis.

    >>> import pullback.array_api as xp
    >>> xp.argsort(xp.asarray([3, 1, 2]), descending=True)
    tensor([0, 2, 1])
    """
    return ops.argsort(x, axis, descending, stable)


def isin(x1, x2, /, *, invert=False):
    """Return whether each element of ``x1`` is among those of ``x2``, or with ``invert`` is not.

    >>> import pullback.array_api as xp
    >>> xp.isin(xp.asarray([1, 2]), 2)
    tensor([False,  True])
    """
    x1, x2 = promoted(x1, x2)
    return ops.isin(x1, x2, invert=invert)


def nonzero(x, /):
    """Return the indices of the elements that are not zero: a tuple with a tensor for each axis.

    Raises: ValueError for 0-d tensors.

    >>> import pullback.array_api as xp
    >>> xp.nonzero(xp.asarray([0, 5, 7]))
    (tensor([1, 2]),)
    """
    if x.ndim == 0:
        raise ValueError("nonzero(): a 0-d tensor has no axis to index")
    return tuple(ops.nonzero(x, as_tuple=True))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Return where the elements of ``x2`` would be inserted into the sorted 1-d ``x1``.

    ``side``: before equal elements ("left") or after them ("right"). ``sorter``: indices that
    sort ``x1``.

    >>> import pullback.array_api as xp
    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([3, 4]))
    tensor([1, 2])
    """
    x1, x2 = promoted(x1, x2)
    if sorter is not None:
        sorter = sorter.to(INT64)
    return ops.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """Return the elements of ``x`` in order along an axis.

    >>> import pullback.array_api as xp
    >>> xp.sort(xp.asarray([3, 1, 2]))
    tensor([1, 2, 3])
    """
    return ops.sort(x, axis, descending, stable)[0]


@standard(ops.where, 3)
def where(condition, x1=None, x2=None, /):
    """Return ``x1`` where the condition is true and ``x2`` elsewhere, in their common dtype.

    scikit-learn gives a condition alone, for which the result is that of ``nonzero``; the standard
    requires all three.
    Raises: TypeError when one of ``x1`` and ``x2`` is missing.

    >>> import pullback.array_api as xp
    >>> xp.where(xp.asarray([True, False]), xp.ones(2), 0.)
    tensor([1., 0.])
    """
    if x1 is x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise TypeError("where(): x1 and x2 are given together")
    if isinstance(x1, Tensor) or isinstance(x2, Tensor):
        x1, x2 = promoted(x1, x2)
    return ops.where(condition, x1, x2)


# ---- indexing ------------------------------------------------------------------------------------


def take(x, indices, /, *, axis=None):
    """Return the elements at ``indices`` along an axis, which only a 1-d ``x`` does without.

    Negative indices count from the end.
    Raises: ValueError when there is no axis and ``x`` is not 1-d.

    >>> import pullback.array_api as xp
    >>> xp.take(xp.asarray([4, 5, 6]), xp.asarray([2, 0]))
    tensor([6, 4])
    """
    if axis is None:
        if x.ndim != 1:
            raise ValueError(
                f"axis is required for a tensor of {x.ndim} dimensions, which is not 1"
            )
        axis = 0
    if indices.dtype is not INT64:  # bytes would be a mask
        indices = indices.to(INT64)
    if axis == 0:
        return x[indices]
    return x[(slice(None),) * one_axis(axis, x.ndim) + (indices,)]


def take_along_axis(x, indices, /, *, axis=-1):
    """Return the elements of each row along an axis at that row's indices.

    The other dims of ``x`` and ``indices`` broadcast; negative indices count from the end.

    >>> import pullback.array_api as xp
    >>> x = xp.asarray([[3, 1], [2, 5]])
    >>> xp.take_along_axis(x, xp.argsort(x), axis=1)
    tensor([[1, 3],
            [2, 5]])
    """
    indices = indices.to(INT64)
    indices = ops.where(ops.lt(indices, 0), ops.add(indices, x.shape[axis]), indices)
    return ops.take_along_dim(x, indices, axis)


# ---- sets ----------------------------------------------------------------------------------------


def _order(values):
    """Return the stable order of 1-d values; complex numbers by their real, then imaginary part."""
    if values.dtype.kind != "c":
        return ops.argsort(values, 0, False, True)
    by_imaginary = ops.argsort(ops.imag(values), 0, False, True)
    by_real = ops.argsort(ops.real(values)[by_imaginary], 0, False, True)
    return by_imaginary[by_real]


def _groups(x):
    """Return the elements in order, their order, and the positions at which each value begins.

    NaNs are values of their own, and both zeros are one.
    """
    values = flat(x)
    order = _order(values)
    values = values[order]
    if values.shape[0] == 0:
        return values, order, order
    differs = ops.ne(values[1:], values[:-1])
    first = ops.ones((1,), dtype=BY_NAME["bool"], device=x.device)
    return values, order, ops.nonzero(ops.cat([first, differs]), as_tuple=True)[0]


def _counts(starts, total):
    end = ops.full((1,), total, dtype=INT64, device=starts.device)
    return ops.diff(ops.cat([starts, end])) if total else starts


def _inverse(x, order, starts):
    """Return for each element of ``x`` the number of its value."""
    marks = ops.zeros_like(order)
    marks[starts[1:]] = 1
    out = ops.empty_like(order)
    out[order] = ops.cumsum(marks, 0)
    return ops.reshape(out, x.shape)


def unique_all(x, /):
    """Return the different values of ``x``, in ascending order, and where they are.

    The fields are ``values``; ``indices``, of the first element with each in ``x`` as a row;
    ``inverse_indices``, the number of each element's value, in the shape of ``x``; ``counts``.
    Every NaN is a value.

    >>> import pullback.array_api as xp
    >>> xp.unique_all(xp.asarray([5, 2, 5])).indices
    tensor([1, 0])
    """
    values, order, starts = _groups(x)
    return UniqueAllResult(
        values[starts],
        order[starts],
        _inverse(x, order, starts),
        _counts(starts, values.shape[0]),
    )


def unique_counts(x, /):
    """Return the different values of ``x``, in ascending order, and how often each occurs.

    >>> import pullback.array_api as xp
    >>> xp.unique_counts(xp.asarray([5, 2, 5])).counts
    tensor([1, 2])
    """
    values, _, starts = _groups(x)
    return UniqueCountsResult(values[starts], _counts(starts, values.shape[0]))


def unique_inverse(x, /):
    """Return the different values of ``x``, in ascending order, and the number of each element's.

    >>> import pullback.array_api as xp
    >>> xp.unique_inverse(xp.asarray([5, 2, 5])).inverse_indices
    tensor([1, 0, 1])
    """
    values, order, starts = _groups(x)
    return UniqueInverseResult(values[starts], _inverse(x, order, starts))


def unique_values(x, /):
    """Return the different values of ``x``, in ascending order; every NaN is one.

    >>> import pullback.array_api as xp
    >>> xp.unique_values(xp.asarray([5, 2, 5]))
    tensor([2, 5])
    """
    values, _, starts = _groups(x)
    return values[starts]

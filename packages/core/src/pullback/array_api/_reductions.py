"""Statistical, utility and cumulative functions of the standard."""

from __future__ import annotations

import math

from pullback.array_api._calls import BY_NAME, axes_of, one_axis, promoted, standard
from pullback.ops import ops

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]

BOOL = BY_NAME["bool"]
# The dtype of sums of unsigned integers, where there is one.
UNSIGNED = BY_NAME.get("uint64", BY_NAME["int64"])
INTEGERS = "bui" if "uint64" not in BY_NAME else "bi"


def _sum_dtype(x, dtype):
    """Return the dtype of a sum or product: integers give 64 bits, of their own signedness."""
    if dtype is None and x.dtype.kind == "u":
        return UNSIGNED
    return dtype


def _over(op, x, axis, keepdims, **keywords):
    """Return a reduction over axes; over none, each element is reduced by itself."""
    axes = axes_of(axis, x.ndim)
    if not axes:
        return op(ops.unsqueeze(x, -1), (-1,), False, **keywords)
    return op(x, axes, keepdims, **keywords)


@standard(ops.all, without=("uint8",), axis=True, axes=True)
def all(x, /, *, axis=None, keepdims=False):
    """Return whether all elements are nonzero, over axes; by default over all of them.

    >>> import pullback.array_api as xp
    >>> xp.all(xp.asarray([[True, False], [True, True]]), axis=1)
    tensor([False,  True])
    """
    return _over(ops.all, x if x.dtype is BOOL else ops.ne(x, 0), axis, keepdims)


@standard(ops.any, without=("uint8",), axis=True, axes=True)
def any(x, /, *, axis=None, keepdims=False):
    """Return whether any element is nonzero, over axes; by default over all of them.

    >>> import pullback.array_api as xp
    >>> xp.any(xp.asarray([[True, False], [False, False]]), axis=1)
    tensor([ True, False])
    """
    return _over(ops.any, x if x.dtype is BOOL else ops.ne(x, 0), axis, keepdims)


@standard(ops.argmax, kinds="uif", axis=True)
def argmax(x, /, *, axis=None, keepdims=False):
    """Return the position of the first largest element along an axis, or of all elements in a row.

    >>> import pullback.array_api as xp
    >>> xp.argmax(xp.asarray([1., 3., 3.]))
    tensor(1)
    """
    return ops.argmax(x, axis, keepdims)


@standard(ops.argmin, kinds="uif", axis=True)
def argmin(x, /, *, axis=None, keepdims=False):
    """Return the position of the first smallest element along an axis, or of all in a row.

    >>> import pullback.array_api as xp
    >>> xp.argmin(xp.asarray([1., 3., 3.]))
    tensor(0)
    """
    return ops.argmin(x, axis, keepdims)


@standard(ops.count_nonzero)
def count_nonzero(x, /, *, axis=None, keepdims=False):
    """Return the number of elements that are not zero, over axes; by default over all of them.

    >>> import pullback.array_api as xp
    >>> xp.count_nonzero(xp.asarray([0, 2, 3]))
    tensor(2)
    """
    return sum(ops.ne(x, 0), axis=axis, keepdims=keepdims)


def _spread(x, axes, keepdims, measure, correction):
    """Return std or var, which are NaN where no more elements are left than corrected for."""
    out = measure(x, axes, None, keepdims, correction=correction)
    left = math.prod(x.shape[axis] for axis in axes) - correction
    return out if left > 0 else ops.mul(out, math.nan)


def _cumulative(op, x, axis, dtype, include_initial, initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(
                f"axis is required for a tensor of {x.ndim} dimensions, which is not 1"
            )
        axis = 0
    axis = one_axis(axis, x.ndim)
    dtype = _sum_dtype(x, dtype)
    out = op(x, axis) if dtype is None else op(x, axis, dtype=dtype)
    if not include_initial:
        return out
    sizes = list(x.shape)
    sizes[axis] = 1
    first = ops.full(sizes, initial, dtype=out.dtype, device=out.device)
    return ops.cat([first, out], axis)


@standard(ops.cumprod, kinds=INTEGERS + "fc", axis=True, alone=False)
def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Return the product of the elements up to each one, along an axis.

    ``include_initial``: with the empty product, 1, in front. Small integers give 64 bits.
    Raises: ValueError when there is no axis and ``x`` is not 1-d.

    >>> import pullback.array_api as xp
    >>> xp.cumulative_prod(xp.asarray([2, 3]), include_initial=True)
    tensor([1, 2, 6])
    """
    return _cumulative(ops.cumprod, x, axis, dtype, include_initial, 1)


@standard(ops.cumsum, kinds=INTEGERS + "fc", axis=True, alone=False)
def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Return the sum of the elements up to each one, along an axis.

    ``include_initial``: with the empty sum, 0, in front. Small integers give 64 bits.
    Raises: ValueError when there is no axis and ``x`` is not 1-d.

    >>> import pullback.array_api as xp
    >>> xp.cumulative_sum(xp.asarray([2, 3]), include_initial=True)
    tensor([0, 2, 5])
    """
    return _cumulative(ops.cumsum, x, axis, dtype, include_initial, 0)


def diff(x, /, n=1, *, axis=-1, prepend=None, append=None):
    """Return the differences of neighbours along an axis, ``n`` times.

    scikit-learn gives ``n`` as the second argument, the standard only by its name.
    ``prepend``, ``append``: tensors joined to ``x`` first.

    >>> import pullback.array_api as xp
    >>> xp.diff(xp.asarray([1, 4, 9]))
    tensor([3, 5])
    """
    given = [part for part in (prepend, x, append) if part is not None]
    if len(given) > 1:
        x = ops.cat(promoted(*given), axis)
    return ops.diff(x, n, axis)


@standard(ops.amax, axis=True, axes=True)
def max(x, /, *, axis=None, keepdims=False):
    """Return the largest element over axes, by default over all of them; NaN if there is one.

    >>> import pullback.array_api as xp
    >>> xp.max(xp.asarray([[1, 4], [3, 2]]), axis=0)
    tensor([3, 4])
    """
    return _over(ops.amax, x, axis, keepdims)


@standard(ops.amin, axis=True, axes=True)
def min(x, /, *, axis=None, keepdims=False):
    """Return the smallest element over axes, by default over all of them; NaN if there is one.

    >>> import pullback.array_api as xp
    >>> xp.min(xp.asarray([[1, 4], [3, 2]]), axis=0)
    tensor([1, 2])
    """
    return _over(ops.amin, x, axis, keepdims)


@standard(ops.mean, kinds="fc", axis=True, axes=True)
def mean(x, /, *, axis=None, keepdims=False):
    """Return the mean over axes, by default over all of them.

    >>> import pullback.array_api as xp
    >>> xp.mean(xp.asarray([1., 4.]))
    tensor(2.5000)
    """
    return _over(ops.mean, x, axis, keepdims)


@standard(ops.prod, kinds=INTEGERS + "fc", axis=True)
def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """Return the product over axes, by default over all of them; small integers give 64 bits.

    >>> import pullback.array_api as xp
    >>> xp.prod(xp.asarray([[1, 2], [3, 4]]), axis=(0, 1))
    tensor(24)
    """
    dtype = _sum_dtype(x, dtype)
    if axis is None and not keepdims:
        return ops.prod(x, dtype=dtype)
    axes = sorted(axes_of(axis, x.ndim))
    if not axes:
        return ops.prod(ops.unsqueeze(x, -1), -1, dtype=dtype)
    for one in reversed(axes):
        x = ops.prod(x, one, keepdims, dtype=dtype)
    return x


@standard(ops.sum, kinds=INTEGERS + "fc", axis=True, axes=True)
def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    """Return the sum over axes, by default over all of them; small integers give 64 bits.

    >>> import pullback.array_api as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=1, keepdims=True)
    tensor([[3],
            [7]])
    """
    return _over(ops.sum, x, axis, keepdims, dtype=_sum_dtype(x, dtype))


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Return the standard deviation over axes, by default over all of them.

    ``correction``: what is subtracted from the number of elements in the divisor.

    >>> import pullback.array_api as xp
    >>> xp.std(xp.asarray([1., 3.]))
    tensor(1.)
    """
    return _over(_spread, x, axis, keepdims, measure=ops.std, correction=correction)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Return the variance over axes, by default over all of them.

    ``correction``: what is subtracted from the number of elements in the divisor.

    >>> import pullback.array_api as xp
    >>> xp.var(xp.asarray([1., 3.]), correction=1)
    tensor(2.)
    """
    return _over(_spread, x, axis, keepdims, measure=ops.var, correction=correction)

"""Kernels: functions of MLX arrays that return new arrays, which the core has stored.

Each takes the inputs as arrays and the parameters by name. Those in ``OF_OUT`` take first the
description of the output, or a tuple of several.
"""

import math

import mlx.core as mx
import numpy as np

from pullback.backend.masks import ALL, BOOL, COMPLEX, FLOATING, I64, INTEGRAL, UNSIGNED
from pullback_mlx.memory import DTYPES, view

EVERY, WHOLE, INEXACT = ALL | UNSIGNED, INTEGRAL | UNSIGNED, FLOATING | COMPLEX
NUMBERS, REAL = EVERY & ~BOOL, EVERY & ~COMPLEX
DIRECT = {  # primitives that are functions of MLX, with its name where that is another
    INEXACT: "exp log sqrt sin cos tanh square reciprocal atan=arctan div=divide neg=negative",
    FLOATING: "erf sigmoid rsqrt log1p expm1 abs sign atan2=arctan2",
    BOOL | WHOLE: "bitwise_not=bitwise_invert bitwise_and bitwise_or bitwise_xor",
    NUMBERS: "sub=subtract",
    EVERY: "add mul=multiply eq=equal ne=not_equal where",
    REAL: "lt=less le=less_equal maximum minimum",
}


def is_whole(x):
    return mx.issubdtype(x.dtype, mx.integer)


# -- element by element ----------------------------------------------------------------------------


def copy(out, x):
    """Cast as C casts: -1.0 is 255 as uint8, and everything but 0 is true."""
    if out.dtype == "bool":
        return x != 0
    x = mx.real(x) if x.dtype == mx.complex64 and out.dtype != "complex64" else x
    to = DTYPES[out.dtype]
    whole = mx.issubdtype(to, mx.integer) and mx.issubdtype(x.dtype, mx.floating)
    return x.astype(mx.int64).astype(to) if whole else x.astype(to)


def fmod(x, y):
    if is_whole(y) and mx.any(y == 0).item():
        raise RuntimeError("ZeroDivisionError")
    rest = mx.remainder(mx.abs(x), mx.abs(y))
    return mx.where(x < 0, -rest, rest)


def remainder(x, y):
    rest = fmod(x, y)
    return mx.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def floor_divide(x, y):
    rest = fmod(x, y)
    if is_whole(x):
        return mx.floor_divide(x, y)
    below = (rest != 0) & ((rest < 0) != (y < 0))
    return mx.where(y == 0, x / y, mx.round((x - rest) / y) - below)


def power(x, y):
    if not is_whole(x):
        return mx.power(x, y)
    sign = 1 - 2 * mx.remainder(y, 2).astype(mx.int64)
    small = mx.where(x == 1, 1, mx.where(x == mx.array(-1, mx.int64), sign, 0))
    return mx.where(y < 0, small.astype(x.dtype), mx.power(x, mx.maximum(y, 0)))


def shift(function, beyond):
    def shifted(x, y):
        inside = (y >= 0) & (y < 8 * x.dtype.size)
        return mx.where(inside, function(x, mx.where(inside, y, 0)), beyond(x))

    return shifted


def bmm(x, y):
    if mx.issubdtype(x.dtype, mx.inexact) and x.shape[2]:
        return x @ y
    return mx.sum(x[..., None] * y[:, None], axis=2)  # MLX multiplies no matrices of integers


# -- over dims -------------------------------------------------------------------------------------


def reduced(out, x):
    return [d for d in range(x.ndim) if out.shape[d] != x.shape[d]]


def reduction(function):
    return lambda out, x: function(x, axis=reduced(out, x), keepdims=True) if reduced(out, x) else x


def extreme(function, end):
    """Reduce; no elements give the least value (end 0) or the greatest one (1)."""

    def reduce(out, x):
        if x.size:
            return reduction(function)(out, x)
        kind = np.iinfo if is_whole(x) else lambda dtype: np.finfo("f4")
        ends = (kind(out.dtype).min, kind(out.dtype).max) if is_whole(x) else (-math.inf, math.inf)
        return mx.full(out.shape, bool(end) if out.dtype == "bool" else ends[end], x.dtype)

    return reduce


def position(function):
    def find(out, x):
        axes = reduced(out, x)
        found = function(x, axis=axes[0] if len(axes) == 1 else None)
        return found.reshape(out.shape) if axes else mx.zeros(out.shape, mx.int64)

    return find


def sort(outs, x, descending):
    keys = mx.atleast_1d(x)[..., ::-1] if descending else mx.atleast_1d(x)
    order = mx.argsort(keys, axis=-1)
    if descending:  # the reversed order of the reversed row keeps equal elements in order
        order = keys.shape[-1] - 1 - order[..., ::-1]
    order = order[..., : outs[0].shape[-1] if x.ndim else 1]  # shorter outputs get the first ones
    values = mx.take_along_axis(mx.atleast_1d(x), order, -1)
    return values.reshape(outs[0].shape), order.reshape(outs[1].shape)


def solve(outs, a, b):
    """Solve; the diagonal of the factor shows which pivot is 0. Complex systems as real ones."""
    n = a.shape[1]
    if a.dtype == mx.complex64:
        parts = [mx.real(a), mx.imag(a)]
        a = mx.concatenate([mx.concatenate([parts[0], -parts[1]], 2),
                            mx.concatenate([parts[1], parts[0]], 2)], 1)  # fmt: skip
        b = mx.concatenate([mx.real(b), mx.imag(b)], 1)
    diagonal = mx.diagonal(mx.linalg.lu_factor(a, stream=mx.cpu)[0], 0, 1, 2) == 0
    singular = mx.any(diagonal, axis=1)[:, None, None]
    x = mx.linalg.solve(mx.where(singular, mx.eye(a.shape[1]), a), b, stream=mx.cpu)
    x = mx.where(singular, mx.array(math.nan), x)
    info = mx.where(singular[:, 0, 0], mx.argmax(diagonal, axis=1) % n + 1, 0)
    return (x[:, :n] + 1j * x[:, n:] if outs[0].dtype == "complex64" else x), info


def svd(outs, matrices):
    u, s, vh = mx.linalg.svd(matrices, stream=mx.cpu)
    zeros = mx.zeros(outs[3].shape, mx.int32)
    return u[..., : outs[0].shape[2]], s, vh[:, : outs[2].shape[1]], zeros


# -- by index --------------------------------------------------------------------------------------


def checked(shape, indices, lowest=None):
    """Return indices; raise IndexError for one out of bounds, where MLX reads other memory."""
    for size, one in zip(shape, indices, strict=False):
        low = -size if lowest is None else lowest
        if one.size and mx.any((one < low) | (one >= size)).item():
            raise IndexError(f"index is out of bounds for dimension with size {size}")
    return tuple(indices)


def gather(x, index, dim):
    x, flat = mx.atleast_1d(x), mx.atleast_1d(index)
    checked([x.shape[dim]], [flat], 0)
    ends = [None if d == dim % x.ndim else size for d, size in enumerate(flat.shape)]
    return mx.take_along_axis(x[tuple(map(slice, ends))], flat, dim).reshape(index.shape)


def scattering(add):
    """Source elements go where indices along a dim say; the other elements stay."""

    def scatter(out, index, source, dim):
        target, index = mx.atleast_1d(view(out)), mx.atleast_1d(index)
        source = mx.atleast_1d(source)[tuple(map(slice, index.shape))]
        where = list(mx.meshgrid(*map(mx.arange, index.shape), indexing="ij"))
        (where[dim],) = checked([target.shape[dim]], [index], 0)
        return put(target, tuple(where), source, add).reshape(out.shape)

    return scatter


def put(target, where, values, add):
    if add:
        return target.at[where].add(values)
    changed = mx.array(target)
    changed[where] = values
    return changed


def index_put(out, values, *indices, accumulate):
    target = view(out)
    return put(target, checked(target.shape, indices), values, accumulate)


OF_OUT = {
    "copy": (EVERY, copy),
    "sum": (I64 | INEXACT, reduction(mx.sum)),
    "prod": (I64 | INEXACT, reduction(mx.prod)),
    "amax": (REAL, extreme(mx.max, 0)),
    "amin": (REAL, extreme(mx.min, 1)),
    "argmax": (REAL, position(mx.argmax)),
    "argmin": (REAL, position(mx.argmin)),
    "sort": (REAL, sort),
    "solve": (INEXACT, solve),
    "svd": (INEXACT, svd),
    "scatter": (EVERY, scattering(False)),
    "scatter_add": (EVERY, scattering(True)),
    "index_put": (EVERY, index_put),
}
OF_INPUTS = {
    "floor": (WHOLE | FLOATING, lambda x: x if is_whole(x) else mx.floor(x)),
    "round": (WHOLE | FLOATING, lambda x: x if is_whole(x) else mx.round(x)),
    "fmod": (WHOLE | FLOATING, fmod),
    "remainder": (WHOLE | FLOATING, remainder),
    "floor_divide": (WHOLE | FLOATING, floor_divide),
    "lshift": (WHOLE, shift(mx.left_shift, mx.zeros_like)),
    "rshift": (WHOLE, shift(mx.right_shift, lambda x: mx.where(x < 0, mx.array(-1, mx.int64), 0))),
    "pow": (NUMBERS, power),
    "bmm": (NUMBERS, bmm),
    "cumsum": (NUMBERS, lambda x, dim: mx.cumsum(x, dim) if x.ndim else x),
    "softmax": (FLOATING, lambda x, dim: mx.softmax(x, dim) if x.ndim else mx.ones_like(x)),
    "gather": (EVERY, gather),
    "index": (EVERY, lambda x, *indices: x[checked(x.shape, indices)]),
    "nonzero": (EVERY, lambda x: mx.array(np.argwhere(np.array(x != 0)))),
}


def kernels():
    """Yield each primitive with its mask of dtypes and its kernel."""
    for mask, pairs in DIRECT.items():
        for pair in pairs.split():
            name, _, other = pair.partition("=")
            OF_INPUTS[name] = mask, getattr(mx, other or name)
    for name, (mask, function) in OF_INPUTS.items():
        yield name, mask, lambda out, *xs, f=function, **params: f(*map(view, xs), **params)
    for name, (mask, function) in OF_OUT.items():
        yield name, mask, lambda out, *xs, f=function, **params: f(out, *map(view, xs), **params)

"""The kernels that cannot be composed from others, in NumPy: see pullback.ops.table.primitives."""

import math

import numpy as np

from pullback.backend.masks import ALL, BOOL, COMPLEX, FLOATING, I64, INTEGRAL
from pullback_example.memory import view

KERNELS = {}  # of each primitive: a mask of dtypes, and the kernel
FUNCTIONS = {}  # the same on NumPy arrays
INEXACT = FLOATING | COMPLEX
REAL = ALL ^ COMPLEX


def wide(array):
    """Return floating and complex numbers in double precision, all others as they are."""
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


def store(out, values):
    """Write values into an operand, cast as C casts."""
    if out.dtype.kind == "b":
        values = values != 0
    elif out.dtype.kind != "c" and values.dtype.kind == "c":
        values = values.real
    if out.dtype.kind in "iu" and values.dtype.kind == "f":
        values = values.astype(np.int64)
    out[...] = values


def kernel(name, mask):
    """Register a function that fills NumPy arrays from others."""

    def register(function):
        def run(out, *inputs, **params):
            outs = tuple(map(view, out)) if isinstance(out, tuple) else view(out)
            with np.errstate(all="ignore"):
                function(outs, *map(view, inputs), **params)

        FUNCTIONS[name] = function
        KERNELS[name] = (mask, run)

    return register


def kernels(mask, **functions):
    """Register functions that return what goes into the output, computed in double precision."""
    for name, function in functions.items():

        def fill(out, *inputs, function=function, **params):
            store(out, np.asarray(function(*map(wide, inputs), **params)))

        kernel(name, mask)(fill)


# -- element by element ----------------------------------------------------------------------------


def nonzero_divisor(function):
    def divide(x, y):
        if y.dtype.kind in "iu" and np.any(y == 0):  # torch refuses, NumPy gives 0
            raise RuntimeError("ZeroDivisionError")
        return function(x, y)

    return divide


def rounding(function):
    return lambda x: x if x.dtype.kind in "biu" else function(x)


def remainder(x, y):
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def power(x, y):
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    small = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (y % 2), 0))  # to negative exponents
    return np.where(y < 0, small, np.power(x, np.maximum(y, 0)))


def shift(function, beyond):  # by less than the width; other counts give beyond(x)
    def shifted(x, y):
        inside = (y >= 0) & (y < 8 * x.dtype.itemsize)
        return np.where(inside, function(x, np.where(inside, y, 0)), beyond(x))

    return shifted


kernels(
    INEXACT,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    sin=np.sin,
    cos=np.cos,
    atan=np.arctan,
    div=np.divide,
)
kernels(FLOATING, erf=np.vectorize(math.erf, otypes=[np.float64]), atan2=np.arctan2)
kernels(
    INTEGRAL | FLOATING,
    floor=rounding(np.floor),
    round=rounding(np.rint),
    floor_divide=nonzero_divisor(np.floor_divide),
    fmod=nonzero_divisor(np.fmod),
    remainder=nonzero_divisor(remainder),
)
kernels(
    BOOL | INTEGRAL,
    bitwise_not=np.invert,
    bitwise_and=np.bitwise_and,
    bitwise_or=np.bitwise_or,
    bitwise_xor=np.bitwise_xor,
)
kernels(
    INTEGRAL,
    lshift=shift(np.left_shift, np.zeros_like),
    rshift=shift(np.right_shift, lambda x: np.where(x < 0, -1, 0).astype(x.dtype)),
)
kernels(ALL ^ BOOL, sub=np.subtract, pow=power, bmm=np.matmul)
kernels(ALL, add=np.add, mul=np.multiply, eq=np.equal, copy=lambda x: x, where=np.where)
kernels(REAL, lt=np.less)

# -- over dims -------------------------------------------------------------------------------------


def ends(dtype):
    """Return the least and the greatest value."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return (False, True) if dtype.kind == "b" else (-np.inf, np.inf)


def reduction(name, mask, function, end=None):
    """Register a reduction: ``out`` has size 1 where it runs; ``end`` is what no elements give."""

    @kernel(name, mask)
    def reduce(out, x):
        axes = tuple(d for d in range(x.ndim) if out.shape[d] != x.shape[d])
        given = {} if end is None else {"initial": ends(x.dtype)[end]}
        store(out, function(wide(x), axis=axes, keepdims=True, **given))


def position(name, function):  # argmax or argmin, over one dim or all
    @kernel(name, REAL)
    def find(out, x):
        axes = [d for d in range(x.ndim) if out.shape[d] != x.shape[d]]
        kept = [d for d in range(x.ndim) if d not in axes]
        rows = wide(x).transpose(kept + axes).reshape([x.shape[d] for d in kept] + [-1])
        out[...] = np.expand_dims(function(rows, axis=-1), tuple(axes))


reduction("sum", I64 | INEXACT, np.sum)
reduction("prod", I64 | INEXACT, np.prod)
reduction("amax", REAL, np.max, 0)
reduction("amin", REAL, np.min, 1)
position("argmax", np.argmax)
position("argmin", np.argmin)
kernels(ALL ^ BOOL, cumsum=lambda x, dim: np.cumsum(x, dim, x.dtype) if x.ndim else x)


@kernel("sort", REAL)
def sort(outs, x, *, descending):
    keys = np.atleast_1d(wide(x))
    order = np.argsort(keys[..., ::-1] if descending else keys, axis=-1, kind="stable")
    if descending:  # the reversed order of the reversed row keeps equal elements in order
        order = keys.shape[-1] - 1 - order[..., ::-1]
    order = order[..., : np.atleast_1d(outs[0]).shape[-1]]  # shorter outputs get the first ones
    outs[0][...] = np.take_along_axis(np.atleast_1d(x), order, -1).reshape(outs[0].shape)
    outs[1][...] = order.reshape(outs[1].shape)


@kernel("solve", INEXACT)
def solve(outs, matrices, right):
    for number, (matrix, values) in enumerate(zip(wide(matrices), wide(right), strict=True)):
        try:
            outs[0][number], outs[1][number] = np.linalg.solve(matrix, values), 0
        except np.linalg.LinAlgError:  # the first pivot that is 0: so many columns are dependent
            short = [np.linalg.matrix_rank(matrix[:, :k]) < k for k in range(1, len(matrix) + 1)]
            outs[0][number], outs[1][number] = np.nan, 1 + short.index(True)


@kernel("svd", INEXACT)
def svd(outs, matrices):
    full = outs[0].shape[2] + outs[2].shape[1] > 2 * outs[1].shape[1]
    for out, values in zip(outs, (*np.linalg.svd(matrices, full), 0), strict=True):
        out[...] = values


# -- by index --------------------------------------------------------------------------------------


def check(index, size, lowest=0):
    wrong = index[(index < lowest) | (index >= size)]
    if wrong.size:
        raise IndexError(f"index {wrong.flat[0]} is out of bounds for dimension with size {size}")


def along(index, dim, target):
    """Return full coordinates for indices along a dim."""
    check(index, target.shape[dim])
    where = list(np.indices(index.shape, sparse=True))
    where[dim] = index
    return tuple(where)


def checked(target, indices):
    """Return indices into the first dims; negative ones count from the end."""
    for dim, one in enumerate(indices):
        check(one, target.shape[dim], -target.shape[dim])
    return tuple(indices)


def add_at(target, where, values):
    total = wide(target).copy()
    np.add.at(total, where, wide(values))
    store(target, total)


def gather(x, index, dim):
    x, flat = np.atleast_1d(x), np.atleast_1d(index)
    return x[along(flat, dim % x.ndim, x)].reshape(index.shape)


def scattering(name, put):  # source elements go where indices along a dim say
    @kernel(name, ALL)
    def scatter(out, index, source, *, dim):
        target, index = out.reshape(1) if out.ndim == 0 else out, np.atleast_1d(index)
        source = source[tuple(map(slice, index.shape))] if source.ndim else source
        put(target, along(index, dim % target.ndim, target), source)


kernels(
    ALL,
    gather=gather,
    index=lambda x, *indices: x[checked(x, indices)],
    nonzero=lambda x: np.argwhere(x != 0),
)
scattering("scatter", np.ndarray.__setitem__)
scattering("scatter_add", add_at)


@kernel("index_put", ALL)
def index_put(out, values, *indices, accumulate):
    (add_at if accumulate else np.ndarray.__setitem__)(out, checked(out, indices), values)

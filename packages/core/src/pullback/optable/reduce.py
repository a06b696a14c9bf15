"""Reductions over all dims or some."""

import math
from collections import namedtuple

from pullback.optable import references
from pullback.optable.cases import KINKS, SPECIAL, Dtype, T, case, fixed, reduction
from pullback.optable.schema import (
    ALL,
    COMPLEX,
    FLOAT64,
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    REAL,
    op,
    ops,
)


def _extreme_vjp(g, self, self_shape, out, dim, keepdim):
    chosen = self == ops.restore_dims(out, self_shape, dim, keepdim)
    return ops.restore_dims(g, self_shape, dim, keepdim) * chosen / chosen.sum(dim, True)


def _numbered(name):
    """torch counts an op with dims as another overload."""
    return lambda dim: f"{name}Backward{0 if dim is None else 1}"


_NOTHING = {"gradgrad": "the mean of nothing is NaN, whatever its gradient is multiplied by"}

op("sum(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, "
   "dtype: dtype? = None) -> Tensor",
   forward="sum", kernel="sum", dtypes=ALL, out=True, ref="numpy.sum",
   vjp={"self": lambda g, self_shape, dim, keepdim: ops.restore_dims(g, self_shape, dim, keepdim)},
   node=_numbered("Sum"),
   doc="Return the sum over some dims, or all.\n\nDtype: integers and bools give int64.",
   samples=[*reduction(), case(T(2, 3), 0, dtype=Dtype("float64"), only=ALL & ~COMPLEX)])
op("mean(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, "
   "dtype: dtype? = None) -> Tensor",
   forward="mean", kernel="sum", out=True, ref="numpy.mean",
   vjp={"self": lambda g, self_shape, dim, keepdim: ops.restore_mean(g, self_shape, dim, keepdim)},
   node=_numbered("Mean"),
   doc="Return the mean over some dims, or all.\n\nRaises: RuntimeError for integers.",
   samples=[*reduction(empty=False), case(T(0, 3), 0, skip=_NOTHING), case(T(0), skip=_NOTHING)],
   dtypes=FLOAT_COMPLEX)
_restored = [case(T(2), (2, 3), 1, False), case(T(2, 1), (2, 3), -1, True),
             case(T(), (2, 3), None, False), case(T(3), (2, 3, 2), (0, 2), False),
             case(T(), (), 0, False), case(T(1, 1), (2, 3), None, True)]
op("restore_dims(self: Tensor, shape: int[], dim: int[]?, keepdim: bool) -> Tensor",
   forward="restore_dims", view=True, method=False, function=False, node="ExpandBackward0",
   vjp={"self": lambda g, dim, keepdim: g.sum(dim, keepdim)},
   doc="Return a view that repeats the elements of a reduction over `shape`, which it had before.",
   samples=_restored, ref=references.restore_dims)
op("restore_mean(self: Tensor, shape: int[], dim: int[]?, keepdim: bool) -> Tensor",
   forward="restore_mean", method=False, function=False,
   vjp={"self": lambda g, dim, keepdim: g.mean(dim, keepdim)},
   doc="Return restore_dims, divided by how many elements share one.",
   samples=_restored, dtypes=FLOAT_COMPLEX,
   ref=lambda np, self, shape, dim, keepdim: references.restore_dims(
       np, self, shape, dim, keepdim) * self.size / max(int(np.prod(shape)), 1))
op("amax(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor", forward="extreme",
   kernel="amax", vjp={"self": _extreme_vjp}, out=True, ref="numpy.amax",
   doc="Return the largest element over some dims, or all; NaN wins.\n\n"
       "Derivative: split evenly among equal elements.",
   samples=[*reduction((0, -1, (0, 1), ()), empty=False),
            case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
            case(T(4, 5, step=1), 1, skip=KINKS)],
   dtypes=REAL)
op("amin(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor", forward="extreme",
   kernel="amin", vjp={"self": _extreme_vjp}, out=True, ref="numpy.amin",
   doc="Return the smallest element over some dims, or all; NaN wins.\n\n"
       "Derivative: split evenly among equal elements.",
   samples=[*reduction((0, -1, (0, 1), ()), empty=False),
            case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
            case(T(4, 5, step=1), 1, skip=KINKS)],
   dtypes=REAL)
op("argmax(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
   forward="arg_extreme", kernel="argmax", out=True, ref="numpy.argmax",
   doc="Return the first index of the largest element along a dim, or of all.",
   samples=[*reduction((None, 0, -1), empty=False), case(T(4, 5, step=1), 1),
            case(fixed(SPECIAL), only=FLOATING)],
   dtypes=INTEGRAL | FLOATING)
op("argmin(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
   forward="arg_extreme", kernel="argmin", out=True, ref="numpy.argmin",
   doc="Return the first index of the smallest element along a dim, or of all.",
   samples=[*reduction((None, 0, -1), empty=False), case(T(4, 5, step=1), 1),
            case(fixed(SPECIAL), only=FLOATING)],
   dtypes=INTEGRAL | FLOATING)
op("any(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor", forward="any",
   kernel="any", out=True, ref="numpy.any", doc="Return whether any element is not 0.",
   samples=[*reduction((None, 0, -1, (0, 1))), case(fixed((0, 0, 0, 1), shape=(2, 2)), 1)])
op("all(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor", forward="any",
   kernel="all", out=True, ref="numpy.all", doc="Return whether all elements are not 0.",
   samples=[*reduction((None, 0, -1, (0, 1))), case(fixed((0, 1, 1, 1), shape=(2, 2)), 1)])

_named = {name: namedtuple(name, ("values", "indices")) for name in ("max", "min")}


def _extreme(name, self, dim, keepdim):
    """max and min: of all elements, along a dim (values and indices), or of two tensors."""
    if dim is None:
        return getattr(ops, "a" + name)(self)
    if hasattr(dim, "shape"):
        return getattr(ops, name + "imum")(self, dim)
    # torch has argmax of bools here, though not by itself
    order = self + 0 if str(self.dtype) == "pullback.bool" else self
    where = getattr(ops, "arg" + name)(order, dim, True)
    values = ops.gather(self, dim, where) if self.ndim else self.clone()
    if not keepdim and self.ndim:
        values, where = values.squeeze(dim), where.squeeze(dim)
    elif not self.ndim:
        where = where.reshape(())
    return _named[name](values, where)


for _name, _what in (("max", "largest"), ("min", "smallest")):
    op(f"{_name}(self: Tensor, dim: any = None, keepdim: bool = False) -> any",
       composite=lambda self, dim, keepdim, _name=_name: _extreme(_name, self, dim, keepdim),
       doc=f"Return the {_what} element, (values, indices) along a dim, or the elementwise one of "
           f"two tensors.", dtypes=REAL,
       samples=[*reduction((0, -1), empty=False), case(T(2, 3), T(3)),
                case(fixed(SPECIAL), skip=KINKS, only=FLOATING)],
       ref=references.extreme("a" + _name, "arg" + _name, _name + "imum"))


def _logsumexp(self, dim, keepdim):
    if not (self.is_floating_point() or self.is_complex()):
        self = ops.cast(self, _default_dtype())
    peak = ops.amax(ops.real(self.detach()), dim, True)
    peak = ops.where(ops.isfinite(peak), peak, 0)
    total = ops.log(ops.sum(ops.exp(self - peak), dim, True)) + peak
    if keepdim or not self.ndim:
        return total
    dims = (dim,) if isinstance(dim, int) else dim
    return total.squeeze(tuple(dims))


def _default_dtype():
    import pullback
    return pullback.get_default_dtype()


op("logsumexp(self: Tensor, dim: int[], keepdim: bool = False) -> Tensor", composite=_logsumexp,
   ref=references.logsumexp, doc="Return log(sum(exp(self))) over dims, without overflow.",
   samples=[*reduction((0, -1, (0, 1)), low=-3, high=3, empty=False)[4:],
            case(fixed((0.0, 700.0, -700.0, 710.0), shape=(2, 2)), 1, only=FLOAT64),
            case(fixed((-math.inf, -math.inf, 0.0, math.inf), shape=(2, 2)), 1,
                 only=FLOATING, skip=KINKS)])

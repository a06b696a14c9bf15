"""Reductions over all dims or some."""

from collections import namedtuple

from pullback.optable.schema import ALL, op, ops


def restore_dims(reduced, shape, dim, keepdim):
    """Expand a reduction's result (or its gradient) to the input's shape."""
    if keepdim or dim is None or dim == () or dim == [] or not shape:
        return reduced.expand(shape)
    dims = (dim,) if isinstance(dim, int) else dim
    for position in sorted(d % len(shape) for d in dims):
        reduced = reduced.unsqueeze(position)
    return reduced.expand(shape)


def reduced_count(shape, dim):
    """Return how many elements each result was reduced from."""
    count = 1
    if dim is None or dim == () or dim == []:
        for size in shape:
            count *= size
        return count
    for d in (dim,) if isinstance(dim, int) else dim:
        count *= shape[d] if shape else 1
    return count


def _sum_vjp(g, self_shape, dim, keepdim):
    return restore_dims(g, self_shape, dim, keepdim)


def _mean_vjp(g, self_shape, dim, keepdim):
    return restore_dims(g, self_shape, dim, keepdim) / reduced_count(self_shape, dim)


def _extreme_vjp(g, self, out, dim, keepdim):
    where = self == restore_dims(out, self.shape, dim, keepdim)
    share = where.to(g.dtype)
    count = restore_dims(share.sum(dim, keepdim), self.shape, dim, keepdim)
    return restore_dims(g, self.shape, dim, keepdim) * (share / count)


op("sum(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, dtype: dtype? = None) -> Tensor",
   forward="sum", kernel="sum", dtypes=ALL, vjp={"self": _sum_vjp}, out=True, ref="numpy.sum",
   doc="Return the sum over some dims, or all.\n\nDtype: integers and bools give int64.")
op("mean(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, dtype: dtype? = None) -> Tensor",
   forward="mean", kernel="sum", vjp={"self": _mean_vjp}, out=True, ref="numpy.mean",
   doc="Return the mean over some dims, or all.\n\nRaises: RuntimeError for integers.")
op("amax(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor", forward="extreme",
   kernel="amax", vjp={"self": _extreme_vjp}, out=True, ref="numpy.amax",
   doc="Return the largest element over some dims, or all; NaN wins.\n\n"
       "Derivative: split evenly among equal elements.")
op("amin(self: Tensor, dim: int[] = (), keepdim: bool = False) -> Tensor", forward="extreme",
   kernel="amin", vjp={"self": _extreme_vjp}, out=True, ref="numpy.amin",
   doc="Return the smallest element over some dims, or all; NaN wins.\n\n"
       "Derivative: split evenly among equal elements.")
op("argmax(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
   forward="arg_extreme", kernel="argmax", out=True, ref="numpy.argmax",
   doc="Return the first index of the largest element along a dim, or of all.")
op("argmin(self: Tensor, dim: int? = None, keepdim: bool = False) -> Tensor",
   forward="arg_extreme", kernel="argmin", out=True, ref="numpy.argmin",
   doc="Return the first index of the smallest element along a dim, or of all.")
op("any(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor", forward="any",
   kernel="any", out=True, ref="numpy.any", doc="Return whether any element is not 0.")
op("all(self: Tensor, dim: int[]? = None, keepdim: bool = False) -> Tensor", forward="any",
   kernel="all", out=True, ref="numpy.all", doc="Return whether all elements are not 0.")

_named = {name: namedtuple(name, ("values", "indices")) for name in ("max", "min")}


def _extreme(name, self, dim, keepdim):
    """max and min: of all elements, along a dim (values and indices), or of two tensors."""
    if dim is None:
        return getattr(ops, "a" + name)(self)
    if hasattr(dim, "shape"):
        return getattr(ops, name + "imum")(self, dim)
    where = getattr(ops, "arg" + name)(self, dim, True)
    values = ops.gather(self, dim, where) if self.ndim else self.clone()
    if not keepdim and self.ndim:
        values, where = values.squeeze(dim), where.squeeze(dim)
    elif not self.ndim:
        where = where.reshape(())
    return _named[name](values, where)


for _name, _what in (("max", "largest"), ("min", "smallest")):
    op(f"{_name}(self: Tensor, dim: any = None, keepdim: bool = False) -> Tensor",
       composite=lambda self, dim, keepdim, _name=_name: _extreme(_name, self, dim, keepdim),
       doc=f"Return the {_what} element, (values, indices) along a dim, or the elementwise one of "
           f"two tensors.")


def _logsumexp(self, dim, keepdim):
    peak = ops.amax(self.detach(), dim, True)
    peak = ops.where(ops.isfinite(peak), peak, 0)
    total = ops.log(ops.sum(ops.exp(self - peak), dim, True)) + peak
    if keepdim or not self.ndim:
        return total
    dims = (dim,) if isinstance(dim, int) else dim
    return total.squeeze(tuple(dims))


op("logsumexp(self: Tensor, dim: int[], keepdim: bool = False) -> Tensor", composite=_logsumexp,
   ref="scipy.special.logsumexp", doc="Return log(sum(exp(self))) over dims, without overflow.")

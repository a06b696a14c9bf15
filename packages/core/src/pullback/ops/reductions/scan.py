"""Cumulative results along a dim, differences and integrals."""

import math

from pullback.ops.decompositions.reductions import logcumsumexp
from pullback.ops.rules.arguments import as_int
from pullback.ops.rules.associative_scan import recur_backwards, shifted
from pullback.ops.rules.dims import check_has_dims, wrap_dim, wrap_dims
from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named, unsupported
from pullback.ops.rules.operands import all_hold, is_meta
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import new_empty, new_filled, run_primitive, whole_batch
from pullback.ops.table.samples import KINKS, NO_PART, SPECIAL, Dtype, T, case, fixed, references_of
from pullback.ops.table.schema import (
    ALL,
    COMPLEX,
    FLOAT_COMPLEX,
    FLOATING,
    NUMBERS,
    REAL,
    op,
    ops,
    result_type,
)

references = references_of("reductions")

_ALONG = [
    case(T(3), 0),
    case(T(2, 3), 0),
    case(T(2, 3), -1),
    case(T(2, 4, 3), 1),
    case(T(), 0),
    case(T(1), 0),
    case(T(0, 3), 0),
    case(T(2, 0), 0),
]
_TYPED = [case(T(2, 3), 0, dtype=Dtype("float64"), only=ALL & ~COMPLEX)]


def _widened(name, self, dtype):
    """Return the operand of a cumulative sum or product: integers and bools become int64."""
    if dtype is None:
        dtype = dtype_named("int64") if self.dtype.kind in "biu" else self.dtype
    if dtype.kind == "b":
        raise unsupported(name, dtype)
    return cast_to(self, dtype)


# -- sums and products -----------------------------------------------------------------------------


def _cumsum(self, dim, dtype):
    dim, self = wrap_dim(dim, self.ndim, "cumsum"), _widened("cumsum", self, dtype)
    return _scanned("cumsum", self, dim)


def _cumsum_vjp(g, dim):
    if g.numel() < 2:
        return g
    dim = wrap_dim(dim, g.ndim, "cumsum")
    return g.flip(dim).cumsum(dim).flip(dim)


op(
    "cumsum(self: Tensor, dim: int, *, dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    jvp="linear",
    forward=_cumsum,
    compiled="scan",
    kernel="cumsum",
    vjp={"self": _cumsum_vjp},
    inplace=True,
    out=True,
    batch="along",
    ref=references.running.of("cumsum"),
    doc="Return the cumulative sum along a dim.\n\nShape: self's.  Dtype: integers and bools give "
    "int64.\n\nRaises: IndexError when `dim` is out of range.",
    samples=lambda: [*_ALONG, *_TYPED],
    inplace_function=False,
)


def _cumprod(self, dim, dtype):
    dim, self = wrap_dim(dim, self.ndim, "cumprod"), _widened("cumprod", self, dtype)
    return _scanned("cumprod", self, dim)


def _scanned(primitive, self, dim):
    if not self.ndim:
        return self.clone()
    out = new_empty(self, self.shape)
    if out.numel():
        run_primitive(primitive, (out,), (self,), dim)
    return out


def _cumprod_vjp(g, self, dim):
    """The gradient without a division, so that zeros need no care.

    d out[j] / d x[k] is the product before k, times that from k + 1 to j: the sum over j of the
    latter, times g[j], is a recurrence from the end.
    """
    if not g.ndim or g.shape[dim] == 1:
        return g
    dim = wrap_dim(dim, g.ndim, "cumprod")
    x = ops.conj(cast_to(self, g.dtype))
    before = shifted(x, dim, 1).cumprod(dim)
    return before * recur_backwards(g, shifted(x, dim, 0, forwards=False), dim)


op(
    "cumprod(self: Tensor, dim: int, *, dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    forward=_cumprod,
    compiled="scan",
    kernel="cumprod",
    vjp={"self": _cumprod_vjp},
    inplace=True,
    out=True,
    batch="along",
    ref=references.running.of("cumprod"),
    doc="Return the cumulative product along a dim.\n\nDtype: integers and bools give int64.\n\n"
    "Derivative: exact where elements are 0.",
    samples=lambda: [
        *_ALONG,
        *_TYPED,
        case(fixed((2, 0, 3, 0, 1)), 0),
        case(fixed((2, 0, 3, 4, 5, 0), shape=(2, 3)), -1),
    ],
    inplace_function=False,
)


# -- extreme elements ------------------------------------------------------------------------------


def _running_extreme(name, fields):
    def forward(self, dim):
        dim = wrap_dim(dim, self.ndim, name)
        check_dtype(name, self, "biuf")
        values = new_empty(self, self.shape)
        indices = new_filled(self, self.shape, 0, dtype_named("int64"))
        if not self.ndim or not self.numel():
            return fields(self.clone(), indices)
        run_primitive(name, (values, indices), (self,), dim)
        return fields(values, indices)

    return forward


for _name, _what in (("cummax", "largest"), ("cummin", "smallest")):
    _fields = result_type(_name, "values", "indices")
    op(
        f"{_name}(self: Tensor, dim: int) -> any",
        kernel=_name,
        forward=_running_extreme(_name, _fields),
        results=_fields.type,
        vjp={
            "self": lambda g, self_like, dim, out1: ops.scatter_add(
                ops._zeros_like(self_like), dim, out1, g
            )
        },
        out=True,
        batch="along",
        out_dtype="exact",
        out_overlap=True,
        dtypes=REAL,
        ref=references.running_extreme.of(_name == "cummax"),
        kinks=[kink([1.0, 1.0], 0, to=[1.0, 1.0])],
        doc=f"Return the {_what} elements so far along a dim, and the index of each: "
        f"(values, indices).\n\nNaN wins; of equal elements the last counts.",
        samples=lambda: [
            *_ALONG,
            case(T(4, 5, step=1), 1, skip=KINKS),
            case(fixed(SPECIAL), 0, skip=KINKS, only=FLOATING),
        ],
    )


# -- log of the sum of exponentials ----------------------------------------------------------------


def _logcumsumexp(self, dim):
    dim = wrap_dim(dim, self.ndim, "logcumsumexp")
    check_dtype("logcumsumexp", self, "fc")
    if self.is_complex():
        return logcumsumexp(self, dim)
    return _scanned("logcumsumexp", self, dim)


def _logcumsumexp_vjp(g, self, out, dim):
    """sum over j >= i of g[j] * exp(x[i] - out[j]), as a recurrence whose factors are below 1."""
    if not g.ndim:
        return g
    dim = wrap_dim(dim, g.ndim, "logcumsumexp")
    count = out.shape[dim]
    if not count:
        return g
    before, after = out.narrow(dim, 0, count - 1), out.narrow(dim, 1, count - 1)
    steps = ops.exp(ops.where(before == after, 0, before - after))  # of infinities, too
    last = ops.zeros_like(out.detach().narrow(dim, 0, 1))
    factors = ops.conj(ops.cat([steps, last], dim))
    share = ops.exp(ops.where(self == out, 0, self - out))
    return ops.conj(share) * recur_backwards(g, factors, dim)


op(
    "logcumsumexp(self: Tensor, dim: int) -> Tensor",
    forward=_logcumsumexp,
    compiled="scan",
    kernel="logcumsumexp",
    vjp={"self": _logcumsumexp_vjp},
    out=True,
    dtypes=FLOAT_COMPLEX,
    batch="along",
    out_dtype="exact",
    ref=references.logcumsumexp,
    doc="Return log(cumsum(exp(self))) along a dim, without overflow.\n\nThe imaginary part of "
    "complex results may be off by a multiple of 2 pi.",
    samples=lambda: [
        case(T(3, low=-1, high=1), 0),
        case(T(2, 3, low=-1, high=1), 0),
        case(T(2, 4, 3, low=-1, high=1), 1),
        case(T(2, 3, low=-1, high=1), -1),
        case(T(), 0),
        case(T(1), 0),
        case(T(0, 3), 0),
        case(T(2, 0), 0),
        case(fixed((0.0, 80.0, -80.0, 85.0, 85.0)), 0, only=FLOATING),
        case(
            fixed((-math.inf, -math.inf, 1.0, math.inf, math.inf, 2.0)),
            0,
            skip=KINKS,
            only=FLOATING,
        ),
    ],
)


# -- neighbours ------------------------------------------------------------------------------------


def _join_for_diff(self, prepend, append, dim):
    for extra in (prepend, append):
        if extra is None:
            continue
        if extra.ndim != self.ndim:
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        for d in range(self.ndim):
            if d != dim and extra.shape[d] != self.shape[d]:
                raise RuntimeError(
                    "diff expects the shape of tensor to prepend or append to match that of input "
                    f"except along the differencing dimension; input.size({d}) = {self.shape[d]}, "
                    f"but got tensor.size({d}) = {extra.shape[d]}"
                )
    parts = [part for part in (prepend, self, append) if part is not None]
    return ops.cat(parts, dim) if len(parts) > 1 else self


def _diff(self, n, dim, prepend, append):
    if not self.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if as_int(n, "diff", "n") < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap_dim(dim, self.ndim, "diff")
    if n == 0:
        return self.clone()
    self = _join_for_diff(self, prepend, append, dim)
    for _ in range(min(n, self.shape[dim])):
        count = max(self.shape[dim] - 1, 0)
        later, sooner = self.narrow(dim, self.shape[dim] - count, count), self.narrow(dim, 0, count)
        self = ops.bitwise_xor(later, sooner) if self.dtype.kind == "b" else later - sooner
    return self


op(
    "diff(self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor? = None, "
    "append: Tensor? = None) -> Tensor",
    composite=_diff,
    out=True,
    ref=references.diff,
    doc="Return the n-th differences of neighbours along a dim; bools give where they differ.\n\n"
    "Raises: RuntimeError for 0-d tensors and for a negative n.",
    samples=lambda: [
        case(T(4)),
        case(T(2, 4)),
        case(T(2, 4), 2),
        case(T(3, 2), dim=0),
        case(T(3), 0),
        case(T(2), 3),
        case(T(0, 3)),
        case(T(0)),
        case(T(2, 3), prepend=T(2, 1)),
        case(T(2, 3), 1, 0, T(1, 3), T(2, 3)),
        case(T(2, 3), 2, append=T(2, 2)),
    ],
)


def _ends(y, dim):
    """Return all elements along a dim but the first, and all but the last."""
    count = y.shape[dim] - 1
    return y.narrow(dim, 1, count), y.narrow(dim, 0, count)


def _widths(name, y, x, dim):
    """Return the distances of the points x, shaped to go with y along a dim."""
    if "b" in (y.dtype.kind, x.dtype.kind):
        raise RuntimeError(
            f"{name}: received a bool input for `x` or `y`, but bool is not supported"
        )
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        shape = [1] * y.ndim
        shape[dim] = x.shape[0]
        x = x.reshape(tuple(shape))
    elif x.ndim < y.ndim:
        x = x.reshape((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    after, before = _ends(x, dim - y.ndim)
    return after - before


def _check_trapezoid(name, y, x, dx):
    if x is not None and dx is not None:
        raise TypeError(f"{name}() takes either x or dx, not both")
    if x is None and y.dtype.kind == "b":
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")


def _trapezoid(y, x, dx, dim):
    check_has_dims(y, dim)
    dim = wrap_dim(dim, y.ndim, "trapezoid")
    _check_trapezoid("trapezoid", y, x, dx)
    if not y.shape[dim]:
        shape = [size for d, size in enumerate(y.shape) if d != dim]
        return ops.new_zeros(y, tuple(shape))
    if x is None:
        ends = y.select(dim, 0) + y.select(dim, -1)
        return (y.sum(dim) - ends * 0.5) * (1 if dx is None else dx)
    after, before = _ends(y, dim)
    return ((before + after) * _widths("trapezoid", y, x, dim)).sum(dim) / 2.0


def _cumulative_trapezoid(y, x, dx, dim):
    if not y.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, y.ndim, "cumulative_trapezoid")
    _check_trapezoid("cumulative_trapezoid", y, x, dx)
    if not y.shape[dim]:
        return y.clone()
    after, before = _ends(y, dim)
    if x is None:
        return ((1 if dx is None else dx) / 2.0 * (after + before)).cumsum(dim)
    widths = _widths("cumulative_trapezoid", y, x, dim)
    return ((after + before) * widths).cumsum(dim) / 2.0


_CURVES = [
    case(T(4)),
    case(T(2, 3)),
    case(T(3, 2), dim=0),
    case(T(2, 3), dx=0.5),
    *[
        case(*operands, **options, only=FLOAT_COMPLEX)  # unsigned distances wrap around
        for operands, options in (
            ((T(2, 3), T(3)), {}),
            ((T(2, 3), T(2, 3)), {}),
            ((T(3, 2), T(3)), {"dim": 0}),
            ((T(2, 3, 2), T(3, 2)), {"dim": 1}),
        )
    ],
    case(T(1)),
    case(T(0, 3)),
]
op(
    "trapezoid(y: Tensor, x: Tensor? = None, *, dx: Scalar? = None, dim: int = -1) -> Tensor",
    composite=_trapezoid,
    method=False,
    aliases=("trapz",),
    dtypes=NUMBERS,
    ref=references.trapezoid,
    doc="Return the integral along a dim by the trapezoidal rule.\n\nThe points are at x, or "
    "dx apart (1 by default).\n\nRaises: RuntimeError for bools and for an x that does "
    "not fit.",
    samples=lambda: [*_CURVES, case(T(0, 3), dim=0, skip=NO_PART)],
)
op(
    "cumulative_trapezoid(y: Tensor, x: Tensor? = None, *, dx: Scalar? = None, dim: int = -1) "
    "-> Tensor",
    composite=_cumulative_trapezoid,
    method=False,
    dtypes=NUMBERS,
    ref=references.cumulative_trapezoid,
    doc="Return the running integral along a dim by the trapezoidal rule; the first point gives "
    "none.\n\nRaises: as trapezoid.",
    samples=_CURVES,
)


# -- product of elements ---------------------------------------------------------------------------


def _prod_vjp(g, self, out, dim, keepdim):
    """g times the product of the others."""
    x, out = ops.conj(cast_to(self, g.dtype)), ops.conj(out)
    if not x.ndim:
        return g.reshape(()) if g.ndim else g
    if dim is None:
        g, out = (value.reshape((1,) * x.ndim) for value in (g, out))
        return g * (out / x if _is_quotient(out) else _others(x.reshape(-1), 0).reshape(self.shape))
    (dim,) = wrap_dims(dim, x.ndim, "prod")
    if not keepdim:
        g, out = g.unsqueeze(dim), out.unsqueeze(dim)
    return g * (out / x if _is_quotient(out) else _others(x, dim))


def _is_quotient(out):
    """True if the product of the others is that of all, divided: no product is 0, lost digits to
    underflow, or left the range."""
    if is_meta(out):
        return False
    import pullback

    size = ops.abs(whole_batch(out).detach())
    limits = pullback.finfo(size.dtype)
    return all_hold((size >= limits.tiny) & (size <= limits.max))


def _others(x, dim):
    """Return the product of those before, times that of those after."""
    if not x.numel():
        return x
    before = shifted(x, dim, 1).cumprod(dim)
    after = shifted(x, dim, 1, forwards=False).flip(dim).cumprod(dim).flip(dim)
    return before * after


def _prod(self, dim, keepdim, dtype):
    if dim is not None and not hasattr(dim, "__index__"):
        raise TypeError(f"prod(): argument 'dim' must be int, not {type(dim).__name__}")
    return ops.prod_over(self, dim, keepdim, dtype=dtype)


_PRODUCTS = [
    case(T(2, 3)),
    case(T()),
    case(T(0)),
    case(T(3)),
    case(T(2, 3), 0),
    case(T(2, 3), -1, True),
    case(T(2, 3, 2), 1, keepdim=True),
    case(T(0, 3), 0),
    case(T(), 0),
    case(T(2, 0), 0),
    case(fixed((2, 0, 3, 4))),
    case(fixed((2, 0, 3, 0, 1, 0), shape=(2, 3)), 1),
    *_TYPED,
]
op(
    "prod(self: Tensor, dim: int? = None, keepdim: bool = False, *, dtype: dtype? = None) "
    "-> Tensor",
    autocast=("float32", "dtype"),
    composite=_prod,
    out=True,
    out_overlap=True,
    ref="numpy.prod",
    doc="Return the product along a dim, or of all elements.\n\nDtype: integers and bools give "
    "int64.\n\nDerivative: exact where elements are 0.",
    samples=_PRODUCTS,
)
op(
    "prod_over(self: Tensor, dim: int? = None, keepdim: bool = False, *, dtype: dtype? = None) "
    "-> Tensor",
    forward="sum",
    kernel="prod",
    batch="along",
    method=False,
    function=False,
    vjp={"self": _prod_vjp},
    node=lambda dim: f"ProdBackward{0 if dim is None else 1}",
    doc="Return prod of a checked dim.",
    ref="numpy.prod",
    samples=_PRODUCTS,
)

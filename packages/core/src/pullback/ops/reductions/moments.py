"""Variances, standard deviations, covariances."""

import math
import warnings

from pullback.ops.decompositions import reductions
from pullback.ops.reductions.quantile import SINGLE_DOUBLE
from pullback.ops.rules.arguments import check_number, integers
from pullback.ops.rules.dims import count_of, wrap_dims
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, type_name
from pullback.ops.rules.operands import any_holds
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import FEW, new_empty, run_primitive
from pullback.ops.table.samples import (
    KINKS,
    T,
    at,
    case,
    constant,
    fixed,
    references_of,
)
from pullback.ops.table.schema import (
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    op,
    ops,
    result_type,
)

references = references_of("reductions")


# -- variance --------------------------------------------------------------------------------------


def _deviation(name, self, dim, unbiased, correction):
    """Return (dim, correction) of the three forms that torch accepts; 1 is the default."""
    if isinstance(dim, bool):  # var(unbiased)
        if unbiased is not None:
            raise TypeError(f"{name}(): argument 'dim' must be tuple of ints, not bool")
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() takes either unbiased or correction, not both")
    if correction is not None:
        check_number(correction, name, "correction")
    else:
        correction = 1 if unbiased is None or unbiased else 0
    if dim is not None:
        integers(dim, name, "dim")
    if self.dtype.kind not in "fc":
        of = "std and var" if name in ("std", "var") else name
        raise RuntimeError(f"{of} only support floating point and complex dtypes")
    return dim, correction


_Moments = result_type("_moments", "mean", "squares")


def _both_moments(self, dims):
    shape = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
    found = _Moments(new_empty(self, shape), new_empty(self, shape))
    if found.mean.numel():
        run_primitive("moments", tuple(found), (self,))
    return found


def _moments_vjp(gs, self, out0, dims):
    parts = []
    if gs[0] is not None:
        parts.append(ops.mean_backward(gs[0], self.shape, dims, True))
    if gs[1] is not None:
        parts.append(2 * gs[1] * (self - out0))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


op(
    "moments(self: Tensor, dims: int[]) -> any",
    forward=_both_moments,
    results=_Moments.type,
    kernel="moments",
    vjp={"self": _moments_vjp},
    method=False,
    function=False,
    dtypes=SINGLE_DOUBLE,
    doc="Return the mean over counted dims, which stay, and the sum of the squared differences.",
    ref=lambda np, self, dims: (
        self.mean(dims, keepdims=True),
        self.var(dims, keepdims=True) * count_of(self, dims),
    ),
    samples=lambda: [
        case(T(2, 3), (1,)),
        case(T(2, 3), (0,)),
        case(T(2, 3, 4), (0, 2)),
        case(T(), ()),
        case(T(5000), (0,)),
        case(T(3, 40), (0, 1)),
    ],
)


def _moments(name, self, dim, correction, keepdim, wants_mean=True):
    """Return variance and, if it is wanted, mean, by a method that no large mean can spoil."""
    dims = wrap_dims(dim, self.ndim, name)
    work = cast_to(self, accumulate_dtype(self.dtype))
    count = count_of(self, dims)
    freedom = count - correction
    if freedom <= 0:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less "
            f"than the reduction factor (input numel divided by output numel).",
            UserWarning,
            stacklevel=2,
        )
    if work.is_complex():
        mean = ops.mean(work, dims, True)
        off = work - mean
        squares = ops.sum(ops.real(off * off.conj()), dims, True)
    elif work.numel() <= FEW:
        mean, squares = reductions.moments(work, dims)
    else:
        mean, squares = ops.moments(work, dims)
    variance = squares / (max(float(freedom), 0.0) if count else 0.0)
    if not keepdim:
        shape = tuple(n for d, n in enumerate(self.shape) if d not in dims)
        variance = variance.reshape(shape)
        mean = mean.reshape(shape) if wants_mean else mean
    return variance, cast_to(mean, self.dtype) if wants_mean else None


def _real(self, found):
    """Return a real result in the precision of its operand."""
    return cast_to(found, self.dtype.to_real() if self.is_complex() else self.dtype)


def _var_forward(self, dim, correction, keepdim):
    return _real(self, _moments("var", self, dim, correction, keepdim, False)[0])


def _std_forward(self, dim, correction, keepdim):
    return _real(self, ops.sqrt(_moments("std", self, dim, correction, keepdim, False)[0]))


def _var_mean_forward(self, dim, correction, keepdim):
    variance, mean = _moments("var_mean", self, dim, correction, keepdim)
    return _real(self, variance), mean


def _std_mean_forward(self, dim, correction, keepdim):
    variance, mean = _moments("std_mean", self, dim, correction, keepdim)
    return _real(self, ops.sqrt(variance)), mean


def _var_vjp(g, self, dim, correction, keepdim):
    freedom = count_of(self, wrap_dims(dim, self.ndim, "var")) - correction
    derivative = 2.0 / freedom if freedom else math.inf
    dims = tuple(wrap_dims(dim, self.ndim, "var"))
    off = self - (ops.mean(self, dims, True) if self.ndim else self)
    return derivative * ops.sum_backward(g, self.shape, dim, keepdim) * off


def _std_vjp(g, self, out, dim, correction, keepdim):
    equal = out == 0
    share = ops.where(equal, 0, g) / ops.where(equal, 1, 2 * out)
    return _var_vjp(share, self, dim, correction, keepdim)


def _with_mean(spread, g, self, dim, keepdim):
    """Add the gradient of the mean to that of the spread; one of the two may be None."""
    mean = None if g is None else ops.mean_backward(g, self.shape, dim, keepdim)
    return spread if mean is None else mean if spread is None else spread + mean


def _var_mean_vjp(gs, self, dim, correction, keepdim):
    spread = None if gs[0] is None else _var_vjp(gs[0], self, dim, correction, keepdim)
    return _with_mean(spread, gs[1], self, dim, keepdim)


def _std_mean_vjp(gs, self, out, dim, correction, keepdim):
    spread = None if gs[0] is None else _std_vjp(gs[0], self, out, dim, correction, keepdim)
    return _with_mean(spread, gs[1], self, dim, keepdim)


_SPREADS = [
    case(T(2, 3)),
    case(T(4)),
    case(T(2, 3), 0),
    case(T(2, 3), -1, True),
    case(T(2, 3), (0, 1)),
    case(T(2, 3, 2), (0, 2), False, True),
    case(T(3), False),
    case(T(3), unbiased=False),
    case(T(2, 3), 1, correction=0),
    case(T(2, 4), 1, correction=2.5, keepdim=True),
    case(T(0, 3), 1),
    case(T(2, 3), dim=None, correction=0, keepdim=True),
    case(T(2, 3), (), correction=0),
]
_CHECKED = [
    case(T(2, 3), None, 1, False),
    case(T(2, 3), 0, 1, True),
    case(T(2, 3), -1, 0, False),
    case(T(2, 3, 2), (0, 2), 1.5, False),
    case(T(2, 3), (), 0, True),
]

for _name, _forward, _vjp, _what, _kinks in (
    (
        "var",
        _var_forward,
        lambda g, self, dim, correction, keepdim: _var_vjp(g, self, dim, correction, keepdim),
        "variance",
        [],
    ),
    (
        "std",
        _std_forward,
        lambda g, self, out, dim, correction, keepdim: _std_vjp(
            g, self, out, dim, correction, keepdim
        ),
        "standard deviation",
        [kink([2.0, 2.0], to=[0.0, 0.0])],
    ),
    ("var_mean", _var_mean_forward, _var_mean_vjp, "variance, and the mean,", []),
    (
        "std_mean",
        _std_mean_forward,
        _std_mean_vjp,
        "standard deviation, and the mean,",
        [kink([2.0, 2.0], to=[0.5, 0.5])],
    ),
):
    _returns = "any" if "mean" in _name else "Tensor"
    op(
        f"{_name}.correction(self: Tensor, dim: int[]?, correction: Scalar, keepdim: bool) -> "
        f"{_returns}",
        forward=_forward,
        vjp={"self": _vjp},
        method=False,
        function=False,
        dtypes=FLOAT_COMPLEX,
        batch="along",
        node="".join(part.title() for part in _name.split("_")) + "Backward0",
        doc=f"Return the {_what} over checked dims.",
        ref=references.spread_of.of(_name),
        samples=_CHECKED,
    )
    op(
        f"{_name}(self: Tensor, dim: any = None, unbiased: bool? = None, keepdim: bool = False, *, "
        f"correction: Scalar? = None) -> {_returns}",
        out=True,
        out_overlap=True,
        method="mean" not in _name,
        composite=lambda self, dim, unbiased, keepdim, correction, _name=_name: getattr(
            ops, _name + ".correction"
        )(self, *_deviation(_name, self, dim, unbiased, correction), keepdim),
        doc=f"Return the {_what} over some dims, or all.\n\nThe sum of squares is divided by the "
        f"number of elements less `correction`: 1, or 0 with unbiased=False.\n\nDtype: real for "
        f"complex tensors.\n\nRaises: RuntimeError for integers and bools.",
        kinks=_kinks,
        samples=_SPREADS,
        ref=references.spread.of(_name),
        dtypes=FLOAT_COMPLEX,
    )


# -- covariance ------------------------------------------------------------------------------------


def _cov_weights(observations, fweights, aweights):
    """Check the weights and return their product, or None."""
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        if weights.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got "
                f"{name} with {weights.ndim} dimensions"
            )
        kinds, wanted = ("iu", "integral") if name == "fweights" else ("f", "floating point")
        if weights.dtype.kind not in kinds:
            raise RuntimeError(
                f"cov(): expected {name} to have {wanted} dtype but got {name} with "
                f"{type_name(weights.dtype)} dtype"
            )
        if weights.numel() != observations:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are "
                f"observations in the input but got {weights.numel()} != "
                f"{observations}"
            )
        if any_holds(weights < 0):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return fweights * aweights


def _cov_divisor(self, weights, aweights, correction, total):
    """Return what the products are divided by: observations (or weights) less the correction."""
    if weights is None:
        freedom = self.shape[1] - correction
        few = freedom <= 0
        freedom = max(freedom, 0)
    else:
        if aweights is None or correction == 0:
            freedom = total - correction
        else:
            freedom = total - correction * (weights * aweights).sum() / total
        few = any_holds(freedom <= 0)
        freedom = ops.clamp(freedom, min=0)
    if few:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than "
            "the number of observations.",
            UserWarning,
            stacklevel=3,
        )
    return freedom


def _cov(self, correction, fweights, aweights, name="cov"):
    if self.ndim > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an "
            f"input with {self.ndim} dimensions"
        )
    if self.dtype.kind == "b":
        raise RuntimeError(f"{name}(): bool dtype is not supported for input")
    rows = self if self.ndim == 2 else self.reshape(1, -1)
    weights = _cov_weights(rows.shape[1], fweights, aweights)
    weights = weights if weights is None else weights.reshape(-1)
    total = None if weights is None else weights.sum()
    if total is not None and any_holds(total == 0):
        raise RuntimeError(f"{name}(): weights sum to zero, can't be normalized")
    divisor = _cov_divisor(
        rows, weights, None if aweights is None else aweights.reshape(-1), correction, total
    )
    if weights is None:
        mean = rows.sum(1) / rows.shape[1] if rows.shape[1] else ops.real(rows.sum(1)) * math.nan
    else:
        mean = (rows * weights).sum(1) / total
    off = rows - mean.unsqueeze(1)
    other = off if weights is None else off * weights
    products = ops.mm(off, cast_to(other, off.dtype).t().conj())
    return (products / (divisor if hasattr(divisor, "shape") else float(divisor))).squeeze()


op(
    "cov(self: Tensor, *, correction: int = 1, fweights: Tensor? = None, aweights: Tensor? = None) "
    "-> Tensor",
    composite=lambda self, correction, fweights, aweights: _cov(
        self, correction, fweights, aweights
    ),
    dtypes=INTEGRAL | FLOAT_COMPLEX,
    ref=references.cov,
    doc="Return the covariances of variables, one a row, whose observations are the columns.\n\n"
    "`fweights` counts how often each observation occurs, `aweights` says how much it matters."
    "\n\nRaises: RuntimeError for bools, above 2 dims, and for weights that do not fit.",
    samples=lambda: [
        case(T(2, 4)),
        case(T(3, 4), correction=0),
        case(T(4)),
        case(T(2, 3), correction=-1),
        case(T(2, 3), fweights=at(3, low=1, high=4)),
        case(T(2, 3), aweights=constant(3, low=0.5, high=2), only=FLOATING),
        case(
            T(2, 4),
            correction=0,
            fweights=at(4, low=1, high=3),
            aweights=constant(4, low=0.5, high=2),
            only=FLOATING,
        ),
    ],
)


def _corrcoef(self):
    found = _cov(self, 1, None, None, "corrcoef")
    if not found.ndim:
        return found / found
    deviations = ops.sqrt(ops.real(found.diagonal()))
    found = found / deviations.unsqueeze(1) / deviations.unsqueeze(0)
    if not found.is_complex():
        return ops.clamp(found, -1, 1)
    return ops.clamp(ops.real(found), -1, 1) + ops.clamp(ops.imag(found), -1, 1) * 1j


op(
    "corrcoef(self: Tensor) -> Tensor",
    composite=_corrcoef,
    dtypes=INTEGRAL | FLOAT_COMPLEX,
    ref=references.corrcoef,
    doc="Return the correlation coefficients of variables, one a row.\n\nRaises: as cov.",
    samples=lambda: [
        case(fixed((1, 5, 2, 7, 8, 3, 4, 1, 9, 2, 4, 4), shape=(3, 4)), skip=KINKS),
        case(fixed((1, 5, 2, 7, 4)), skip=KINKS),
        case(T(3, 5), only=FLOAT_COMPLEX, skip=KINKS),
    ],
)

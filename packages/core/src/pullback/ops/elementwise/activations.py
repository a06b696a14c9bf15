"""Activation functions of networks: torch.nn.functional's, some of which are in torch too.

An entry ``<name>_kernel`` has the derivative. What users call is composed of it, since it also
takes ``inplace``. 16-bit dtypes are computed in float32 and rounded once.
"""

import math

from pullback.ops.rules.dims import require, unsupported
from pullback.ops.rules.elementwise_util import look_at, number, wide
from pullback.ops.table.samples import KINKS, SPECIAL, T, case, fixed
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, INTEGRAL, op, ops

_SHAPES = ((3,), (2, 3), (2, 1, 3), (), (1,), (0,), (2, 0))
F, BOTH = "functional", ("", "functional")


def _samples(*numbers, low=-4, high=4):
    """Return calls with several shapes and, for each tuple of arguments, special values."""
    made = [case(T(*shape, low=low, high=high), *numbers[0]) for shape in _SHAPES]
    made += [case(T(4, 4, low=low, high=high), *given) for given in numbers]
    made += [case(fixed(SPECIAL), *given, skip=KINKS, only=FLOATING) for given in numbers]
    return made


def _activation(name, forward, vjp, ref, doc, *, parameters=(), others=((),), namespace=F,
                node=None, inplace=False, inplace_function=False, method=False, low=-4, high=4,
                dtypes=FLOATING, check=None, out=False, out_dtype="cast", out_overlap=False):
    """Declare an activation: its kernel, the function, and ``name_`` where torch has it.

    ``forward`` is a Python function, or the name of a primitive. ``parameters`` are (name,
    default) pairs of numbers; ``others`` further values of them for the samples. ``check`` sees the
    arguments of the function first and returns the numbers to use.
    """
    title = name.title().replace("_", "")
    listed = "".join(f", {argument}: Scalar" for argument, _ in parameters)
    defaults = "".join(f", {argument}: Scalar = {value}" for argument, value in parameters)
    given = [tuple(value for _, value in parameters),
             *(values for values in others if values)]
    samples = _samples(*given, low=low, high=high)

    def run(self, *numbers):
        return forward(require(name, dtypes, self), *numbers)

    how = {"kernel": forward} if isinstance(forward, str) else {"forward": run}
    op(f"{name}_kernel(self: Tensor{listed}) -> Tensor", **how,
       vjp={"self": vjp}, jvp="pointwise", node=node or f"{title}Backward0", dtypes=dtypes,
       inplace=True, batch="unary", method=False, function=False, doc=doc, samples=samples, ref=ref)

    def numbers_of(self, values):
        if check is not None:
            return check(self, *values)
        return [number(name, argument, value, self)
                for (argument, _), value in zip(parameters, values)]

    def call(self, *values):
        *values, overwrite = values if inplace else (*values, False)
        function = getattr(ops, f"{name}_kernel_" if overwrite else f"{name}_kernel")
        return function(self, *numbers_of(self, values))

    # Every argument may be left out: what users call shares the samples, and tries the defaults.
    flag = ", inplace: bool = False" if inplace else ""
    op(f"{name}(self: Tensor{defaults}{flag}) -> Tensor", composite=call, dtypes=dtypes,
       namespace=namespace, method=method, doc=doc, ref=ref, out=out, out_dtype=out_dtype,
       out_overlap=out_overlap, samples=[case(T(2, 3, low=low, high=high)), *samples])
    if inplace_function:
        op(f"{name}_(self: Tensor{defaults}) -> Tensor", namespace=namespace, method=False,
           composite=lambda self, *values: getattr(ops, f"{name}_kernel_")(
               self, *numbers_of(self, values)),
           dtypes=dtypes, doc=f"Replace each element: see `{name}`; returns self.", ref=ref,
           samples=samples)


def _negative_part(self):
    """Return 0 for the positive elements, so that no exponential overflows."""
    return ops.where(self > 0, 0, self)


def _below(self):
    """Return 0 for the other elements than negative ones: the second derivative at 0 is 0."""
    return ops.where(self < 0, self, 0)


def _up_to(self, limit):
    return ops.where(self > limit, 0, self)


def _unit(name, primitive, vjp, ref, doc):
    """Declare an activation without its numbers, which have their usual values."""
    op(f"{name}(self: Tensor) -> Tensor", kernel=primitive, vjp={"self": vjp}, dtypes=FLOATING,
       method=False, function=False, doc=doc, samples=_samples(()), ref=ref)


def _slope(name, primitive, vjp, ref, doc, dtypes=FLOATING):
    """Declare the derivative of an activation, times a gradient, by the activation's input."""
    op(f"{name}(grad: Tensor, self: Tensor) -> Tensor", kernel=primitive, vjp=vjp, dtypes=dtypes,
       method=False, function=False, doc=doc, ref=ref,
       samples=[case(T(*shape), T(*shape, low=-2.5, high=2.5)) for shape in _SHAPES])


# -- exponential units -----------------------------------------------------------------------------

_unit("elu_unit", "elu", lambda g, self: ops.where(self <= 0, g * _below(self).exp(), g),
      lambda np, self: np.where(self > 0, self, np.expm1(np.minimum(self, 0))),
      "Return elu with an alpha of 1.")


@wide
def _scaled_elu(self, alpha):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self)) * alpha)


def _elu(self, alpha):
    return ops.elu_unit(self) if alpha == 1 else _scaled_elu(self, alpha)


_activation("elu", _elu,
            lambda g, self, alpha: ops.where(
                self <= 0, g * (_below(self).exp() * alpha), g),
            lambda np, self, alpha=1.0: np.where(
                self > 0, self, alpha * np.expm1(np.minimum(self, 0))),
            "Return x, or alpha * (e**x - 1) of elements up to 0.\n\nDerivative: alpha at 0.",
            parameters=(("alpha", 1.0),), others=((0.5,), (2,)), inplace=True,
            inplace_function=True)


@wide
def _celu(self, alpha):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self) / alpha) * alpha)


def _celu_alpha(self, alpha):
    if number("celu", "alpha", alpha, self) == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return (alpha,)


_activation("celu", _celu,
            lambda g, self, alpha: ops.where(
                self <= 0, g * (_below(self) / alpha).exp(), g),
            lambda np, self, alpha=1.0: np.where(
                self > 0, self, alpha * np.expm1(np.minimum(self, 0) / alpha)),
            "Return x, or alpha * (e**(x / alpha) - 1) of elements up to 0.",
            parameters=(("alpha", 1.0),), others=((0.5,), (-2,)), inplace=True,
            inplace_function=True, namespace=BOTH, check=_celu_alpha)

# Klambauer et al., Self-Normalizing Neural Networks (2017), equation 14.
_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@wide
def _selu(self):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self)) * _ALPHA) * _SCALE


_activation("selu", _selu,
            lambda g, self: ops.where(
                self <= 0, g * (_below(self).exp() * (_ALPHA * _SCALE)), g * _SCALE),
            lambda np, self: _SCALE * np.where(
                self > 0, self, _ALPHA * np.expm1(np.minimum(self, 0))),
            "Return elu, scaled so that normalised layers stay so.\n\n"
            "Source: Klambauer et al., Self-Normalizing Neural Networks (2017).",
            node="EluBackward0", inplace=True, inplace_function=True, namespace=BOTH)


# -- products with a squashed x --------------------------------------------------------------------

def _silu_curve(g, grad, self):
    """The second derivative of x * sigmoid(x), s (1 - s) (2 + x (1 - 2 s)) for s = sigmoid(x)."""
    share = self.sigmoid()
    return (g.conj() * grad) * (share * (1 - share) * (self * (1 - share * 2) + 2)).conj()


_slope("silu_backward", "silu_backward",
       {"grad": lambda g, self: ops.silu_backward(g, self.conj()), "self": _silu_curve},
       lambda np, grad, self: grad * np.conj(
           (1 + self * (1 - 1 / (1 + np.exp(-self)))) / (1 + np.exp(-self))),
       "Return grad times the conjugate of the derivative of x * sigmoid(x), "
       "s * (1 + x * (1 - s)) for s = sigmoid(x).", dtypes=FLOAT_COMPLEX)
_activation("silu", "silu", lambda g, self: ops.silu_backward(g, self),
            lambda np, self: self / (1 + np.exp(-self)),
            "Return x * sigmoid(x).", inplace=True, dtypes=FLOAT_COMPLEX, low=-2.5, high=2.5)


@wide
def _mish(self):
    return self * ops.tanh(ops.log1p(ops.exp(self)))


def _mish_vjp(g, self):
    size = ops.tanh(ops.where(self > 20, self, _up_to(self, 20).exp().log1p()))
    return g * (size + self * self.sigmoid() * (1 - size * size))


_activation("mish", _mish, _mish_vjp,
            lambda np, self: self * np.tanh(np.logaddexp(0, self)),
            "Return x * tanh(log(1 + e**x)).", inplace=True)


_ROOT = math.sqrt(2 / math.pi)


def _gelu_curve(g, grad, self):
    """The second derivative of x P(x), p(x) (2 - x^2) for the normal density p."""
    self = ops.clamp(self, -40, 40)         # beyond, it is 0 and squares may overflow
    square = self * self
    return g * grad * ((square * -0.5).exp() * (2 - square) * (0.5 * _ROOT))


def _gelu_tanh_curve(g, grad, self):
    """The second derivative of x / 2 (1 + t(u)) for t = tanh: (t u)' = (1 - t^2) u'."""
    self = ops.clamp(self, -16, 16)         # beyond, it is 0 and squares may overflow
    square = self * self
    size = ((self + square * self * 0.044715) * _ROOT).tanh()
    rate = (square * (3 * 0.044715) + 1) * _ROOT
    steep = 1 - size * size
    return g * grad * (steep * (
        rate + self * 0.5 * (self * (6 * 0.044715 * _ROOT) - size * rate * rate * 2)))


def _gelu_reference(np, self, *, approximate="none"):
    from scipy.special import erf
    if approximate == "none":
        return self * 0.5 * (1 + erf(self / np.sqrt(2)))
    return 0.5 * self * (1 + np.tanh(np.sqrt(2 / np.pi) * (self + 0.044715 * self ** 3)))


def _gelu_slope_reference(np, grad, self):
    from scipy.special import ndtr
    return grad * (ndtr(self) + self * np.exp(-self * self / 2) / np.sqrt(2 * np.pi))


def _gelu_tanh_slope_reference(np, grad, self):
    size = np.tanh(np.sqrt(2 / np.pi) * (self + 0.044715 * self ** 3))
    rate = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * self * self)
    return grad * (0.5 * (1 + size) + 0.5 * self * (1 - size * size) * rate)


def _gelu(self, approximate):
    if not isinstance(approximate, str):
        raise TypeError(f"gelu(): argument 'approximate' must be str, not "
                        f"{type(approximate).__name__}")
    if approximate not in ("none", "tanh"):
        raise RuntimeError("gelu(): approximate argument must be either none or tanh.")
    return ops.gelu_kernel(require("gelu", FLOATING, self), approximate)


def _gelu_vjp(g, self, approximate):
    look_at(approximate)
    if approximate == "none":
        return ops.gelu_none_backward(g, self)
    return ops.gelu_tanh_backward(g, self)


def _gelu_kind(name, primitive, vjp, approximate):
    op(f"{name}(self: Tensor) -> Tensor", kernel=primitive, dtypes=FLOATING, method=False,
       function=False, node="GeluBackward0", samples=_samples(()), vjp={"self": vjp},
       doc=f"Return gelu with approximate={approximate!r}.",
       ref=lambda np, self: _gelu_reference(np, self, approximate=approximate))


_slope("gelu_none_backward", "gelu_backward",
       {"grad": lambda g, self: ops.gelu_none_backward(g, self), "self": _gelu_curve},
       _gelu_slope_reference, "Return grad times the derivative of gelu.")
_slope("gelu_tanh_backward", "gelu_tanh_backward",
       {"grad": lambda g, self: ops.gelu_tanh_backward(g, self), "self": _gelu_tanh_curve},
       _gelu_tanh_slope_reference, "Return grad times the derivative of gelu's approximation.")
_gelu_kind("gelu_none", "gelu", lambda g, self: ops.gelu_none_backward(g, self), "none")
_gelu_kind("gelu_tanh", "gelu_tanh", lambda g, self: ops.gelu_tanh_backward(g, self), "tanh")
op("gelu_kernel(self: Tensor, approximate: str) -> Tensor", jvp="pointwise", dtypes=FLOATING,
   forward=lambda self, approximate: (
       ops.gelu_none(self) if approximate == "none" else ops.gelu_tanh(self)),
   vjp={"self": _gelu_vjp}, node="GeluBackward0", batch="unary", method=False, function=False,
   doc="Return gelu of checked arguments.", samples=_samples(("none",), ("tanh",)),
   ref=lambda np, self, approximate: _gelu_reference(np, self, approximate=approximate))
op("gelu(self: Tensor, *, approximate: str = 'none') -> Tensor", composite=_gelu, out=True,
   dtypes=FLOATING, out_dtype="pointwise", method=False, namespace=F, ref=_gelu_reference,
   doc="Return x times the normal distribution's probability of at most x.\n\n"
       "Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016), with its approximation "
       "by tanh.", samples=[*_samples(()), case(T(2, 3), approximate="tanh")])


# -- piecewise linear ------------------------------------------------------------------------------

_activation("hardsigmoid", wide(lambda self: ops.clamp(self + 3, 0, 6) / 6),
            lambda g, self: ops.where((self > -3) & (self < 3), g / 6, 0),
            lambda np, self: np.clip(self + 3, 0, 6) / 6,
            "Return (x + 3) / 6, moved into [0, 1].\n\nDerivative: 0 at -3 and 3.", inplace=True)
_activation("hardswish", wide(lambda self: self * ops.clamp(self + 3, 0, 6) / 6),
            lambda g, self: ops.where(
                self <= -3, 0, ops.where(self < 3, g * (self / 3 + 0.5), g)),
            lambda np, self: self * np.clip(self + 3, 0, 6) / 6,
            "Return x * hardsigmoid(x).\n\nDerivative: 0 at -3 and 1 at 3.", inplace=True)
_activation("leaky_relu", wide(lambda self, slope: ops.where(self > 0, self, self * slope)),
            lambda g, self, negative_slope: ops.depending(
                ops.where(self > 0, g, g * negative_slope), self),
            lambda np, self, negative_slope=0.01: np.where(self > 0, self, self * negative_slope),
            "Return x, or negative_slope * x of elements up to 0.\n\n"
            "Derivative: negative_slope at 0.", parameters=(("negative_slope", 0.01),),
            others=((-0.5,), (2,)), inplace=True, inplace_function=True)


def _within(self, lambd):
    look_at(lambd)
    return (self >= -lambd) & (self <= lambd)


_activation("hardshrink", lambda self, lambd: ops.where(_within(self, lambd), 0, self),
            lambda g, self, lambd: ops.depending(
                ops.where(_within(self, lambd), 0, g), self),
            lambda np, self, lambd=0.5: np.where((self >= -lambd) & (self <= lambd), 0, self),
            "Return x, or 0 of elements in [-lambd, lambd].", parameters=(("lambd", 0.5),),
            others=((1,), (0,), (-1.0,)), namespace=BOTH, method=True, out=True,
            out_dtype="pointwise")


def _softshrink_lambda(self, lambd):
    import pullback
    if not self.dtype.is_floating_point:
        raise unsupported("softshrink", self.dtype)
    limit = pullback.finfo(self.dtype).max
    if not 0 <= number("softshrink", "lambd", lambd, self) <= limit:
        raise RuntimeError(f"softshrink(): lambda must be in range [0, {limit:g}] for input dtype "
                           f"{self.dtype.name}, but found {lambd:g}")
    return (lambd,)


_activation("softshrink",
            wide(lambda self, lambd: ops.where(
                _within(self, lambd), 0, self - ops.sign(self) * lambd)),
            lambda g, self, lambd: ops.depending(
                ops.where(_within(self, lambd), 0, g), self),
            lambda np, self, lambd=0.5: np.where(
                np.abs(self) <= lambd, 0, self - np.sign(self) * lambd),
            "Return each element moved towards 0 by lambd, and 0 of elements in [-lambd, lambd].",
            parameters=(("lambd", 0.5),), others=((1,), (0,)), check=_softshrink_lambda, out=True,
            out_dtype="pointwise")


# -- bounded and thresholded, of integers too ------------------------------------------------------

def _limits(name, self, low, high):
    """Return bounds as numbers of the tensor's dtype."""
    low, high = number(name, "min_val", low, self), number(name, "max_val", high, self)
    if self.dtype.name == "bool":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if self.is_complex():
        raise NotImplementedError("clamp is not supported for complex types")
    if low > high:
        raise ValueError("min_val cannot be greater than max_val")
    if self.dtype.is_floating_point:
        return low, high
    if self.dtype.name == "uint8" and (low < 0 or high < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return int(low), int(high)


_SIGNED_OR_FLOATING = (INTEGRAL | FLOATING) & ~0x002       # all but uint8
_LIMITED = _samples((0.0, 6.0), low=-2, high=8)

op("hardtanh_kernel(self: Tensor, low: Scalar, high: Scalar) -> Tensor",
   jvp="pointwise",
   forward=lambda self, low, high: ops.minimum(ops.maximum(self, low), high),
   vjp={"self": lambda g, self, low, high: ops.depending(
       ops.where((self <= low) | (self >= high), 0, g), self)},
   node="HardtanhBackward0", dtypes=INTEGRAL | FLOATING, inplace=True, batch="unary",
   method=False, function=False,
   doc="Return hardtanh of checked arguments.",
   samples=[*(made._replace(args=(made.args[0], 0, 6)) for made in _LIMITED),
            case(T(4, 4, low=-3, high=3), -1, 2, only=_SIGNED_OR_FLOATING)],
   ref=lambda np, self, low, high: np.clip(self, low, high))


def _hardtanh(self, min_val, max_val, inplace):
    limits = _limits("hardtanh", self, min_val, max_val)
    return (ops.hardtanh_kernel_ if inplace else ops.hardtanh_kernel)(self, *limits)


op("hardtanh(self: Tensor, min_val: Scalar = -1.0, max_val: Scalar = 1.0, inplace: bool = False) "
   "-> Tensor", composite=_hardtanh, dtypes=_SIGNED_OR_FLOATING, method=False, namespace=F,
   doc="Return each element moved into [min_val, max_val].\n\nDerivative: 0 at the bounds.",
   samples=[*_samples((), (-2, 1), low=-3, high=3), case(T(3), max_val=0.5, only=FLOATING)],
   ref=lambda np, self, min_val=-1, max_val=1: np.clip(self, min_val, max_val))
op("hardtanh_(self: Tensor, min_val: Scalar = -1.0, max_val: Scalar = 1.0) -> Tensor",
   composite=lambda self, min_val, max_val: _hardtanh(self, min_val, max_val, True),
   dtypes=_SIGNED_OR_FLOATING, method=False, namespace=F,
   doc="Replace each element: see `hardtanh`; returns self.",
   samples=_samples((), (-2, 1), low=-3, high=3),
   ref=lambda np, self, min_val=-1, max_val=1: np.clip(self, min_val, max_val))
op("relu6(self: Tensor, inplace: bool = False) -> Tensor", dtypes=INTEGRAL | FLOATING, method=False,
   composite=lambda self, inplace: _hardtanh(self, 0, 6, inplace), namespace=F,
   doc="Return each element moved into [0, 6].\n\nDerivative: 0 at the bounds.",
   samples=_samples((), low=-2, high=8), ref=lambda np, self: np.clip(self, 0, 6))


# -- with a value below a threshold ----------------------------------------------------------------

def _threshold_kernel(self, threshold, value):
    return ops.masked_fill(self, self <= threshold, value)


op("threshold_kernel(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor",
   jvp="pointwise",
   forward=_threshold_kernel, dtypes=INTEGRAL | FLOATING, node="ThresholdBackward0", inplace=True,
   vjp={"self": lambda g, self, threshold: ops.depending(
       ops.where(self <= threshold, 0, g), self)},
   batch="unary", method=False, function=False, doc="Return threshold of checked arguments.",
   samples=_samples((1, 7), (0, 2)),
   ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self))


def _threshold(self, threshold, value, inplace=False):
    require("threshold", INTEGRAL | FLOATING, self)
    bounds = [number("threshold", name, given, self)
              for name, given in (("threshold", threshold), ("value", value))]
    if not self.dtype.is_floating_point:
        bounds = [int(bound) for bound in bounds]
    return (ops.threshold_kernel_ if inplace else ops.threshold_kernel)(self, *bounds)


_THRESHOLDS = _samples((1, 7), (2, 0))

op("threshold(self: Tensor, threshold: Scalar, value: Scalar, inplace: bool = False) -> Tensor",
   composite=_threshold, dtypes=INTEGRAL | FLOATING, method=False, namespace=BOTH, out=True,
   doc="Return x, or value of elements up to the threshold.", samples=_THRESHOLDS,
   ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self))
op("threshold_(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor", method=False,
   composite=lambda self, threshold, value: _threshold(self, threshold, value, True),
   dtypes=INTEGRAL | FLOATING, namespace=BOTH, samples=_THRESHOLDS,
   doc="Replace elements up to the threshold by value; returns self.",
   ref=lambda np, self, threshold, value: np.where(self <= threshold, value, self))


# -- logarithms of sums ----------------------------------------------------------------------------

_unit("softplus_unit", "softplus", lambda g, self: ops.where(self > 20, g, g * self.sigmoid()),
      lambda np, self: np.where(self > 20, self, np.logaddexp(0, self)),
      "Return softplus with a beta of 1 and a threshold of 20.")


@wide
def _scaled_softplus(self, beta, threshold):
    scaled = self * beta
    return ops.where(scaled > threshold, self, ops.log1p(ops.exp(scaled)) / beta)


def _softplus(self, beta, threshold):
    if beta == 1 and threshold == 20:
        return ops.softplus_unit(self)
    return _scaled_softplus(self, beta, threshold)


_activation("softplus", _softplus,
            lambda g, self, beta, threshold: ops.where(
                self * beta > threshold, g, g * (self * beta).sigmoid()),
            lambda np, self, beta=1.0, threshold=20.0: np.where(
                self * beta > threshold, self, np.logaddexp(0, self * beta) / beta),
            "Return log(1 + e**(beta * x)) / beta, and x where beta * x exceeds the threshold.",
            parameters=(("beta", 1.0), ("threshold", 20.0)), others=((2, 1), (0.5, 50.0)),
            out=True, out_dtype="pointwise")
_activation("logsigmoid",
            wide(lambda self: ops.minimum(self, 0) - ops.log1p(ops.exp(-ops.abs(self)))),
            lambda g, self: g * (-self).sigmoid(),
            lambda np, self: -np.logaddexp(0, -self),
            "Return log(sigmoid(x)), without overflow.", node="LogSigmoidBackward0", out=True,
            out_dtype="exact", out_overlap=True)
op("softsign(self: Tensor) -> Tensor", composite=lambda self: self / (ops.abs(self) + 1),
   dtypes=INTEGRAL | FLOAT_COMPLEX, method=False, namespace=F,
   doc="Return x / (1 + |x|) of each element.", samples=[case(T(*shape)) for shape in _SHAPES],
   ref=lambda np, self: self / (1.0 + np.abs(self)))
op("tanhshrink(self: Tensor) -> Tensor", composite=lambda self: self - ops.tanh(self),
   dtypes=INTEGRAL | FLOAT_COMPLEX, method=False, namespace=F,
   doc="Return x - tanh(x) of each element.",
   samples=[case(T(*shape, low=-1.4, high=1.4)) for shape in _SHAPES],
   ref=lambda np, self: self - np.tanh(self * 1.0))

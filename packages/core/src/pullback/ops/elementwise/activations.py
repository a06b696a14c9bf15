"""Activation functions of networks: torch.nn.functional's, some of which are in torch too.

An entry ``_<name>`` has the derivative. What users call is composed of it, since it also
takes ``inplace``. 16-bit dtypes are computed in float32 and rounded once.
"""

import math

from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.dtypes import require
from pullback.ops.rules.elementwise_util import look_at, number, wide
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import KINKS, SPECIAL, T, case, fixed
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, INTEGRAL, op, ops

_SHAPES = ((3,), (2, 3), (2, 1, 3), (), (1,), (0,), (2, 0))
F, BOTH = "functional", ("", "functional")


def activation_samples(*numbers, low=-4, high=4):
    """Return calls with several shapes and, for each tuple of arguments, special values."""
    made = [case(T(*shape, low=low, high=high), *numbers[0]) for shape in _SHAPES]
    made += [case(T(4, 4, low=low, high=high), *given) for given in numbers]
    made += [case(fixed(SPECIAL), *given, skip=KINKS, only=FLOATING) for given in numbers]
    return made


def activation(
    name,
    forward,
    vjp,
    ref,
    doc,
    *,
    parameters=(),
    others=((),),
    namespace=F,
    node=None,
    inplace=False,
    inplace_function=False,
    method=False,
    low=-4,
    high=4,
    dtypes=FLOATING,
    check=None,
    out=False,
    out_dtype="cast",
    out_overlap=False,
    mpmath=None,
    kinks=(),
    nonderivative_at=None,
    autocast=None,
):
    """Declare an activation: its kernel, the function, and ``name_`` where torch has it.

    ``forward`` is a Python function, or the name of a primitive. ``parameters`` are (name,
    default) pairs of numbers; ``others`` further values of them for the samples. ``check`` sees the
    arguments of the function first and returns the numbers to use.
    """
    title = name.title().replace("_", "")
    listed = "".join(f", {argument}: Scalar" for argument, _ in parameters)
    defaults = "".join(f", {argument}: Scalar = {value}" for argument, value in parameters)
    given = [tuple(value for _, value in parameters), *(values for values in others if values)]

    def samples():
        return activation_samples(*given, low=low, high=high)

    def run(self, *numbers):
        return forward(require(name, dtypes, self), *numbers)

    how = {"kernel": forward} if isinstance(forward, str) else {"forward": run}
    op(
        f"_{name}(self: Tensor{listed}) -> Tensor",
        **how,
        vjp={"self": vjp},
        jvp="pointwise",
        node=node or f"{title}Backward0",
        dtypes=dtypes,
        inplace=True,
        batch="unary",
        method=False,
        function=False,
        doc=doc,
        samples=samples,
        ref=ref,
        nonderivative_at=nonderivative_at,
    )

    def numbers_of(self, values):
        if check is not None:
            return check(self, *values)
        return [
            number(name, argument, value, self) for (argument, _), value in zip(parameters, values)
        ]

    def call(self, *values):
        *numbers, overwrite = values if inplace else (*values, False)
        function = getattr(ops, f"_{name}_" if overwrite else f"_{name}")
        return function(self, *numbers_of(self, numbers))

    # Every argument may be left out: what users call shares the samples, and tries the defaults.
    flag = ", inplace: bool = False" if inplace else ""
    op(
        f"{name}(self: Tensor{defaults}{flag}) -> Tensor",
        composite=call,
        autocast=autocast,
        mpmath=mpmath,
        kinks=kinks,
        nonderivative_at=nonderivative_at,
        dtypes=dtypes,
        namespace=namespace,
        method=method,
        doc=doc,
        ref=ref,
        out=out,
        out_dtype=out_dtype,
        out_overlap=out_overlap,
        samples=lambda: [case(T(2, 3, low=low, high=high)), *samples()],
    )
    if inplace_function:
        op(
            f"{name}_(self: Tensor{defaults}) -> Tensor",
            namespace=namespace,
            method=False,
            composite=lambda self, *values: getattr(ops, f"_{name}_")(
                self, *numbers_of(self, values)
            ),
            dtypes=dtypes,
            doc=f"Replace each element: see `{name}`; returns self.",
            ref=ref,
            samples=samples,
        )


def _softplus_digits(mp, x):
    """Return log(1 + e**x) of a number of mpmath."""
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


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
    op(
        f"{name}(self: Tensor) -> Tensor",
        kernel=primitive,
        vjp={"self": vjp},
        dtypes=FLOATING,
        method=False,
        function=False,
        doc=doc,
        samples=lambda: activation_samples(()),
        ref=ref,
    )


def _backward(name, primitive, vjp, ref, doc, dtypes=FLOATING, node=None):
    """Declare the derivative of an activation, times a gradient, by the activation's input."""
    op(
        f"{name}(grad: Tensor, self: Tensor) -> Tensor",
        kernel=primitive,
        vjp=vjp,
        dtypes=dtypes,
        node=node,
        method=False,
        function=False,
        doc=doc,
        ref=ref,
        samples=lambda: [case(T(*shape), T(*shape, low=-2.5, high=2.5)) for shape in _SHAPES],
    )


# -- exponential units -----------------------------------------------------------------------------

_unit(
    "elu_unit",
    "elu",
    lambda g, self: ops.where(self <= 0, g * _below(self).exp(), g),
    lambda np, self: np.where(self > 0, self, np.expm1(np.minimum(self, 0))),
    "Return elu with an alpha of 1.",
)


@wide
def _scaled_elu(self, alpha):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self)) * alpha)


def _elu(self, alpha):
    return ops.elu_unit(self) if alpha == 1 else _scaled_elu(self, alpha)


activation(
    "elu",
    _elu,
    lambda g, self, alpha: ops.where(self <= 0, g * (_below(self).exp() * alpha), g),
    lambda np, self, alpha=1.0: np.where(self > 0, self, alpha * np.expm1(np.minimum(self, 0))),
    "Return x, or alpha * (e**x - 1) of elements up to 0.\n\nDerivative: alpha at 0.",
    parameters=(("alpha", 1.0),),
    others=((0.5,), (2,)),
    inplace=True,
    inplace_function=True,
    kinks=[kink([0.0], 0.5, to=[0.5])],
)


@wide
def _celu(self, alpha):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self) / alpha) * alpha)


def _celu_alpha(self, alpha):
    if number("celu", "alpha", alpha, self) == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return (alpha,)


activation(
    "celu",
    _celu,
    lambda g, self, alpha: ops.where(self <= 0, g * (_below(self) / alpha).exp(), g),
    lambda np, self, alpha=1.0: np.where(
        self > 0, self, alpha * np.expm1(np.minimum(self, 0) / alpha)
    ),
    "Return x, or alpha * (e**(x / alpha) - 1) of elements up to 0.",
    parameters=(("alpha", 1.0),),
    others=((0.5,), (-2,)),
    inplace=True,
    inplace_function=True,
    namespace=BOTH,
    check=_celu_alpha,
    kinks=[kink([0.0], 0.5, to=[1.0])],
)

# Klambauer et al., Self-Normalizing Neural Networks (2017), equation 14.
_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@wide
def _selu(self):
    return ops.where(self > 0, self, ops.expm1(_negative_part(self)) * _ALPHA) * _SCALE


activation(
    "selu",
    _selu,
    lambda g, self: ops.where(self <= 0, g * (_below(self).exp() * (_ALPHA * _SCALE)), g * _SCALE),
    lambda np, self: _SCALE * np.where(self > 0, self, _ALPHA * np.expm1(np.minimum(self, 0))),
    "Return elu, scaled so that normalised layers stay so.\n\n"
    "Source: Klambauer et al., Self-Normalizing Neural Networks (2017).",
    node="EluBackward0",
    inplace=True,
    inplace_function=True,
    namespace=BOTH,
    kinks=[kink([0.0], to=[1.7580993408473766])],
)


# -- products with a squashed x --------------------------------------------------------------------


def _silu_curve(g, grad, self):
    """The second derivative of x * sigmoid(x), s (1 - s) (2 + x (1 - 2 s)) for s = sigmoid(x)."""
    share = self.sigmoid()
    return (g.conj() * grad) * (share * (1 - share) * (self * (1 - share * 2) + 2)).conj()


_backward(
    "silu_backward",
    "silu_backward",
    {"grad": lambda g, self: ops.silu_backward(g, self.conj()), "self": _silu_curve},
    lambda np, grad, self: (
        grad * np.conj((1 + self * (1 - 1 / (1 + np.exp(-self)))) / (1 + np.exp(-self)))
    ),
    "Return grad times the conjugate of the derivative of x * sigmoid(x), "
    "s * (1 + x * (1 - s)) for s = sigmoid(x).",
    dtypes=FLOAT_COMPLEX,
)
activation(
    "silu",
    "silu",
    lambda g, self: ops.silu_backward(g, self),
    lambda np, self: self / (1 + np.exp(-self)),
    "Return x * sigmoid(x).",
    inplace=True,
    dtypes=FLOAT_COMPLEX,
    low=-2.5,
    high=2.5,
    mpmath=lambda mp, x: x / (1 + mp.exp(-x)),
)


@wide
def _mish(self):
    return self * ops.tanh(ops.log1p(ops.exp(self)))


def _mish_vjp(g, self):
    size = ops.tanh(ops.where(self > 20, self, _up_to(self, 20).exp().log1p()))
    return g * (size + self * self.sigmoid() * (1 - size * size))


activation(
    "mish",
    _mish,
    _mish_vjp,
    lambda np, self: self * np.tanh(np.logaddexp(0, self)),
    "Return x * tanh(log(1 + e**x)).",
    inplace=True,
    mpmath=lambda mp, x: x * mp.tanh(_softplus_digits(mp, x)),
)


_ROOT = math.sqrt(2 / math.pi)


def _gelu_curve(g, grad, self):
    """The second derivative of x P(x), p(x) (2 - x^2) for the normal density p."""
    self = ops.clamp(self, -40, 40)  # beyond, it is 0 and squares may overflow
    square = self * self
    return g * grad * ((square * -0.5).exp() * (2 - square) * (0.5 * _ROOT))


def _gelu_tanh_curve(g, grad, self):
    """The second derivative of x / 2 (1 + t(u)) for t = tanh: (t u)' = (1 - t^2) u'."""
    self = ops.clamp(self, -16, 16)  # beyond, it is 0 and squares may overflow
    square = self * self
    size = ((self + square * self * 0.044715) * _ROOT).tanh()
    rate = (square * (3 * 0.044715) + 1) * _ROOT
    steep = 1 - size * size
    return (
        g
        * grad
        * (steep * (rate + self * 0.5 * (self * (6 * 0.044715 * _ROOT) - size * rate * rate * 2)))
    )


def _gelu_reference(np, self, *, approximate="none"):
    from scipy.special import erf

    if approximate == "none":
        return self * 0.5 * (1 + erf(self / np.sqrt(2)))
    return 0.5 * self * (1 + np.tanh(np.sqrt(2 / np.pi) * (self + 0.044715 * self**3)))


def _gelu_backward_reference(np, grad, self):
    from scipy.special import ndtr

    return grad * (ndtr(self) + self * np.exp(-self * self / 2) / np.sqrt(2 * np.pi))


def _gelu_tanh_backward_reference(np, grad, self):
    size = np.tanh(np.sqrt(2 / np.pi) * (self + 0.044715 * self**3))
    rate = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * self * self)
    return grad * (0.5 * (1 + size) + 0.5 * self * (1 - size * size) * rate)


def _gelu(self, approximate):
    check_str(approximate, "gelu", "approximate")
    if approximate not in ("none", "tanh"):
        raise RuntimeError("gelu(): approximate argument must be either none or tanh.")
    return ops._gelu(require("gelu", FLOATING, self), approximate)


def _gelu_vjp(g, self, approximate):
    look_at(approximate)
    if approximate == "none":
        return ops.gelu_none_backward(g, self)
    return ops.gelu_tanh_backward(g, self)


def _gelu_kind(name, primitive, vjp, approximate, mpmath=None):
    op(
        f"{name}(self: Tensor) -> Tensor",
        kernel=primitive,
        dtypes=FLOATING,
        method=False,
        function=False,
        node="GeluBackward0",
        samples=lambda: activation_samples(()),
        vjp={"self": vjp},
        doc=f"Return gelu with approximate={approximate!r}.",
        mpmath=mpmath,
        ref=lambda np, self: _gelu_reference(np, self, approximate=approximate),
    )


_backward(
    "gelu_none_backward",
    "gelu_backward",
    {"grad": lambda g, self: ops.gelu_none_backward(g, self), "self": _gelu_curve},
    _gelu_backward_reference,
    "Return grad times the derivative of gelu.",
    node="GeluBackwardBackward0",
)
_backward(
    "gelu_tanh_backward",
    "gelu_tanh_backward",
    {"grad": lambda g, self: ops.gelu_tanh_backward(g, self), "self": _gelu_tanh_curve},
    _gelu_tanh_backward_reference,
    "Return grad times the derivative of gelu's approximation.",
    node="GeluBackwardBackward0",
)
_gelu_kind("gelu_none", "gelu", lambda g, self: ops.gelu_none_backward(g, self), "none")
_gelu_kind(
    "gelu_tanh",
    "gelu_tanh",
    lambda g, self: ops.gelu_tanh_backward(g, self),
    "tanh",
    mpmath=lambda mp, x: (
        x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))
    ),
)
op(
    "_gelu(self: Tensor, approximate: str) -> Tensor",
    jvp="pointwise",
    dtypes=FLOATING,
    forward=lambda self, approximate: (
        ops.gelu_none(self) if approximate == "none" else ops.gelu_tanh(self)
    ),
    vjp={"self": _gelu_vjp},
    node="GeluBackward0",
    batch="unary",
    method=False,
    function=False,
    doc="Return gelu of checked arguments.",
    samples=lambda: activation_samples(("none",), ("tanh",)),
    ref=lambda np, self, approximate: _gelu_reference(np, self, approximate=approximate),
)
op(
    "gelu(self: Tensor, *, approximate: str = 'none') -> Tensor",
    composite=_gelu,
    out=True,
    dtypes=FLOATING,
    out_dtype="pointwise",
    method=False,
    namespace=F,
    ref=_gelu_reference,
    doc="Return x times the normal distribution's probability of at most x.\n\n"
    "Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016), with its approximation "
    "by tanh.",
    mpmath=lambda mp, x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    samples=lambda: [*activation_samples(()), case(T(2, 3), approximate="tanh")],
)


# -- logarithms of sums ----------------------------------------------------------------------------

_unit(
    "softplus_unit",
    "softplus",
    lambda g, self: ops.where(self > 20, g, g * self.sigmoid()),
    lambda np, self: np.where(self > 20, self, np.logaddexp(0, self)),
    "Return softplus with a beta of 1 and a threshold of 20.",
)


@wide
def _scaled_softplus(self, beta, threshold):
    scaled = self * beta
    return ops.where(scaled > threshold, self, ops.log1p(ops.exp(scaled)) / beta)


def _softplus(self, beta, threshold):
    if beta == 1 and threshold == 20:
        return ops.softplus_unit(self)
    return _scaled_softplus(self, beta, threshold)


activation(
    "softplus",
    _softplus,
    lambda g, self, beta, threshold: ops.where(
        self * beta > threshold, g, g * (self * beta).sigmoid()
    ),
    lambda np, self, beta=1.0, threshold=20.0: np.where(
        self * beta > threshold, self, np.logaddexp(0, self * beta) / beta
    ),
    "Return log(1 + e**(beta * x)) / beta, and x where beta * x exceeds the threshold.",
    parameters=(("beta", 1.0), ("threshold", 20.0)),
    others=((2, 1), (0.5, 50.0)),
    out=True,
    out_dtype="pointwise",
    kinks=[kink([20.0], 1.0, 20.0, to=[0.9999999979388463], second=None)],
    mpmath=_softplus_digits,
    autocast=(None, "float32"),
)
activation(
    "logsigmoid",
    wide(lambda self: ops.minimum(self, 0) - ops.log1p(ops.exp(-ops.abs(self)))),
    lambda g, self: g * (-self).sigmoid(),
    lambda np, self: -np.logaddexp(0, -self),
    "Return log(sigmoid(x)), without overflow.",
    node="LogSigmoidBackward0",
    out=True,
    out_dtype="exact",
    out_overlap=True,
    mpmath=lambda mp, x: -_softplus_digits(mp, -x),
)
op(
    "softsign(self: Tensor) -> Tensor",
    composite=lambda self: self / (ops.abs(self) + 1),
    dtypes=INTEGRAL | FLOAT_COMPLEX,
    method=False,
    namespace=F,
    doc="Return x / (1 + |x|) of each element.",
    kinks=[kink([0.0], to=[1.0])],
    samples=lambda: [case(T(*shape)) for shape in _SHAPES],
    ref=lambda np, self: self / (1.0 + np.abs(self)),
)
op(
    "tanhshrink(self: Tensor) -> Tensor",
    composite=lambda self: self - ops.tanh(self),
    dtypes=INTEGRAL | FLOAT_COMPLEX,
    method=False,
    namespace=F,
    doc="Return x - tanh(x) of each element.",
    mpmath=lambda mp, x: x - mp.tanh(x),
    samples=lambda: [case(T(*shape, low=-1.4, high=1.4)) for shape in _SHAPES],
    ref=lambda np, self: self - np.tanh(self * 1.0),
)

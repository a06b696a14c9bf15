"""Elementwise ops that read or change the bits of floating-point numbers."""

from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.rules.elementwise_util import is_tensor, promoted
from pullback.ops.table.kinks import AS_IF_FLAT, JUMP, TORCH_NAN, kink
from pullback.ops.table.samples import KINKS, SPECIAL, binary, case, fixed, unary
from pullback.ops.table.schema import FLOAT64, FLOATING, REAL, op, ops, result_type

# The integer of the same size, and the bits of the fraction and of the exponent: IEEE 754, table
# 3.5; bfloat16 has the upper half of float32's.
_FORMATS = {
    "float16": ("int16", 10, 5),
    "bfloat16": ("int16", 7, 8),
    "float32": ("int32", 23, 8),
    "float64": ("int64", 52, 11),
}

op(
    "bitcast(self: Tensor, dtype: dtype) -> Tensor",
    forward="bitcast",
    view=True,
    batch="unary",
    method=False,
    function=False,
    doc="Return the same bytes read as another dtype; the last dim gets longer or shorter.",
    samples="it reads bits, which signbit, copysign, nextafter and frexp are tested with",
)


def _bits(self):
    """Return the elements' bits as signed integers."""
    return ops.bitcast(self.resolve_neg(), dtype_named(_FORMATS[self.dtype.name][0]))


def _signbit(self):
    if self.is_complex():
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    if self.dtype.is_floating_point:
        return _bits(self) < 0
    return self < 0


op(
    "signbit(self: Tensor) -> Tensor",
    forward=_signbit,
    promote="bool",
    dtypes=REAL,
    out=True,
    batch="unary",
    out_dtype="bool",
    doc="Return whether the sign bit of each element is set; it is for -0.",
    ref="numpy.signbit",
    samples=lambda: [*unary(-3, 3, special=None), case(fixed(SPECIAL), only=FLOATING)],
)


def _copysign(self, other):
    self, other = promoted("copysign", FLOATING, self, other, floats=True)
    if is_tensor(other):
        return ops.where(_signbit(self) == _signbit(other), self, -self)
    import math

    return ops.where(_signbit(self), -self, self) * math.copysign(1, other)


op(
    "copysign(self: Tensor, other: Operand) -> Tensor",
    jvp="pointwise",
    forward=_copysign,
    promote="float",
    dtypes=FLOATING,
    inplace=True,
    out=True,
    batch="pointwise",
    ref="numpy.copysign",
    vjp={
        "self": lambda g, self, out: g * (out / ops.where(self == 0, 1, self)),
        "other": lambda g, other: ops.zeros_like(other),
    },
    node=lambda other_shape: f"CopysignBackward{0 if isinstance(other_shape, tuple) else 1}",
    doc="Return the size of self with the sign of other, elementwise.\n\nDerivative: 0 at 0, and "
    "by other.",
    kinks=[
        kink([0.0], [1.0], to=([0.0], [0.0]), differs=TORCH_NAN),
        kink([1.0], [0.0], to=([1.0], [0.0]), outside=JUMP),
    ],
    samples=lambda: binary((0.2, 3)),
)


def _nextafter(self, other):
    self, other = promoted("nextafter", FLOATING, self, other)
    bits = _bits(self)
    # Away from zero the integer grows; for either sign it holds the size in its lower bits.
    step = ops.where((other > self) == (self > 0), 1, -1)
    moved = ops.bitcast(bits + ops.cast(step, bits.dtype), self.dtype)
    tiny = ops.bitcast(ops.full_like(bits, 1), self.dtype)
    moved = ops.where(self == 0, ops.where(other > 0, tiny, -tiny), moved)
    moved = ops.where(self == other, other, moved)
    return ops.where((self != self) | (other != other), self + other, moved)


op(
    "nextafter(self: Tensor, other: Tensor) -> Tensor",
    forward=_nextafter,
    dtypes=FLOATING,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g, self, other: ops.where(self == other, 0, g),
        "other": lambda g: ops.zeros_like(g),
    },
    batch="pointwise",
    doc="Return the adjacent number after self towards other, elementwise.\n\nDerivative: 1, and 0 "
    "where both are equal.",
    kinks=[
        kink([1.0], [2.0], to=([1.0], [0.0]), outside=JUMP),
        kink([1.0], [1.0], to=([0.0], [0.0]), outside=AS_IF_FLAT),
    ],
    nonderivative_at=lambda self, other: (self == other).any(),
    samples=lambda: [
        *binary(numbers=False, special=None),
        case(fixed(SPECIAL, shape=(12, 1)), fixed(SPECIAL), only=FLOAT64, skip=KINKS),
        case(fixed((0.0, 1.0, 2.0)), fixed((-1.0, 3.0, 2.0)), skip=KINKS),
    ],
    ref=lambda np, self, other: np.nextafter(self, other),
)


# -- frexp -----------------------------------------------------------------------------------------

_Parts = result_type("frexp", "mantissa", "exponent")


def _frexp(self):
    """Split the bits; subnormal numbers are scaled into the normal range before."""
    if not self.dtype.is_floating_point:
        raise RuntimeError(f"frexp() only supports floating-point dtypes, got {self.dtype.name}")
    _, fraction, width = _FORMATS[self.dtype.name]
    bias = 2 ** (width - 1) - 2  # so that mantissas are in [0.5, 1)
    field = 2**width - 1
    small = ops.abs(self) < 2.0**-bias  # the smallest normal number
    scaled = ops.where(small, self * 2.0 ** (fraction + 1), self)
    bits = _bits(scaled)
    stored = (bits >> fraction) & field
    exponent = ops.where(small, stored - (bias + fraction + 1), stored - bias)
    mantissa = ops.bitcast((bits & ~(field << fraction)) | (bias << fraction), self.dtype)
    kept = (self == 0) | ~ops.isfinite(self)
    return _Parts(
        ops.where(kept, self, mantissa),
        ops.cast(ops.where(kept, 0, exponent), dtype_named("int32")),
    )


op(
    "frexp(self: Tensor) -> any",
    forward=_frexp,
    dtypes=FLOATING,
    out=True,
    batch="unary",
    out_dtype="frexp",
    ref="numpy.frexp",
    vjp={"self": lambda gs, self_like, out1: _frexp_vjp(gs, self_like, out1)},
    doc="Return (mantissa, exponent): self = mantissa * 2 ** exponent, mantissas in [0.5, 1).\n\n"
    "Derivative: that of dividing by 2 ** exponent.",
    kinks=[kink([4.0], to=[0.125], outside=JUMP)],
    samples=lambda: [
        *unary(-30, 30, special=None),
        case(fixed((*SPECIAL, 8.0, 0.999, -6e-8)), skip=KINKS),
    ],
)


def _frexp_vjp(gs, self_like, out1):
    if gs[0] is None:
        return ops._zeros_like(self_like)
    return gs[0] * ops.exp2(-ops.cast(out1.detach(), self_like.dtype))

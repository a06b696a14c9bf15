"""Elementwise ops of three operands: addcmul, addcdiv, lerp, where, clamp."""

import importlib

from pullback.ops.rules.dtypes import dtype_named, unsupported
from pullback.ops.rules.elementwise_util import (
    is_tensor,
    look_at,
    number,
    promoted,
)
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import compiled
from pullback.ops.table.samples import KINKS, SPECIAL, T, binary, case, fixed, mask
from pullback.ops.table.schema import (
    ALL,
    FLOAT_COMPLEX,
    FLOATING,
    INTEGRAL,
    NUMBERS,
    REAL,
    op,
    ops,
)

UINT8 = 0x002


def _is_integer(dtype):
    return not (dtype.is_floating_point or dtype.is_complex)


def _scale(name, dtype, value):
    """Return ``value`` as a number that fits the result's dtype; integers cut it off."""
    if isinstance(value, complex) and not dtype.is_complex:
        raise RuntimeError(
            f"{name}(): argument 'value': value cannot be converted to type "
            f"{dtype.name} without overflow"
        )
    if not isinstance(value, (int, float, complex)):
        raise TypeError(f"{name}(): argument 'value' must be Number, not {type(value).__name__}")
    if _is_integer(dtype):
        compiled("base.dtype", "check_number")(value, dtype)
        return int(value.real)
    return value


def _addc(name):
    def forward(self, tensor1, tensor2, value):
        run = ops.add_product if name == "addcmul" else ops.add_quotient
        first, second = promoted(name, NUMBERS, tensor1, tensor2)
        if name == "addcdiv" and _is_integer(first.dtype):
            raise RuntimeError(
                "Integer division with addcdiv is no longer supported: addcdiv() expects tensor1 "
                "or tensor2 to be floating point. Use input + value * (tensor1 / tensor2).trunc()."
            )
        self, _ = promoted(name, NUMBERS, self, first)
        dtype = (
            self.dtype
            if first.ndim == 0 and self.ndim
            else promoted(name, NUMBERS, first, self)[0].dtype
        )
        value = _scale(name, dtype, value)
        if dtype.itemsize == 2 and dtype.is_floating_point:  # the number keeps its digits
            return ops.cast(
                run(
                    *(ops.cast(part, dtype_named("float32")) for part in (self, first, second)),
                    value,
                ),
                dtype,
            )
        return run(self, first, second, value)

    return forward


_THREE = [
    case(T(2, 3), T(2, 3), T(2, 3)),
    case(T(2, 3), T(3), T(2, 1)),
    case(T(), T(2, 3), T()),
    case(T(3), T(), T()),
    case(T(), T(), T()),
    case(T(0, 3), T(3), T(1)),
    case(T(2, 3), T(2, 3), T(3), value=2),
    case(T(3), T(3), T(3), value=-1, only=ALL & ~UINT8),
    case(T(3), T(3), T(3), value=0.5, only=FLOAT_COMPLEX),
]
_DIVIDED = [
    made._replace(args=(*made.args[:2], made.args[2]._replace(low=0.5, high=3))) for made in _THREE
]

op(
    "add_product(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand) -> Tensor",
    kernel="addcmul",
    dtypes=NUMBERS,
    method=False,
    function=False,
    doc="Return self + (value * tensor1) * tensor2, elementwise.",
    samples=lambda: [
        case(T(2, 3), T(3), T(2, 1), 2),
        case(T(), T(), T(), 1),
        case(T(0, 3), T(3), T(1), 1),
    ],
    ref=lambda np, self, tensor1, tensor2, value: self + tensor1 * tensor2 * value,
)
op(
    "add_quotient(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand) -> Tensor",
    kernel="addcdiv",
    dtypes=FLOAT_COMPLEX,
    method=False,
    function=False,
    doc="Return self + (value * tensor1) / tensor2, elementwise.",
    samples=lambda: [
        case(T(2, 3), T(3), T(2, 1, low=0.5, high=3), 2),
        case(T(), T(), T(low=0.5, high=3), 1),
        case(T(0, 3), T(3), T(1), 1),
    ],
    ref=lambda np, self, tensor1, tensor2, value: self + tensor1 / tensor2 * value,
)
op(
    "addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor",
    autocast=(None, "promote"),
    jvp="pointwise",
    forward=_addc("addcmul"),
    compiled="scaled_term",
    kernel="addcmul",
    dtypes=NUMBERS,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g: g,
        "tensor1": lambda g, tensor2, value: ops.scaled(g * ops.conj(tensor2), _conj(value)),
        "tensor2": lambda g, tensor1, value: ops.scaled(g * ops.conj(tensor1), _conj(value)),
    },
    batch="pointwise",
    doc="Return self + value * tensor1 * tensor2, elementwise.",
    samples=_THREE,
    ref=lambda np, self, tensor1, tensor2, value=1: self + value * tensor1 * tensor2,
)
op(
    "addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor",
    autocast=(None, "promote"),
    jvp="pointwise",
    forward=_addc("addcdiv"),
    compiled="scaled_term",
    kernel="addcdiv",
    dtypes=FLOAT_COMPLEX,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g: g,
        "tensor1": lambda g, tensor2, value: ops.scaled(g / ops.conj(tensor2), _conj(value)),
        "tensor2": lambda g, tensor1, tensor2, value: ops.scaled(
            -g * (tensor1 / (tensor2 * tensor2)).conj(), _conj(value)
        ),
    },
    batch="pointwise",
    doc="Return self + value * tensor1 / tensor2, elementwise.\n\n"
    "Raises: RuntimeError when both divided tensors hold integers.",
    samples=_DIVIDED,
    ref=lambda np, self, tensor1, tensor2, value=1: self + value * (tensor1 / tensor2),
)


def _conj(value):
    look_at(value)
    return value.conjugate()


# -- lerp ------------------------------------------------------------------------------------------


def _lerp(self, end, weight):
    for name, other in (("end", end), ("weight", weight)):
        if (
            is_tensor(other)
            and other.dtype != self.dtype
            and not (name == "weight" and other.ndim == 0)
        ):
            raise RuntimeError(
                f"lerp(): expected dtype {self.dtype.name} for `{name}` but got "
                f"dtype {other.dtype.name}"
            )
    if _is_integer(self.dtype):
        raise unsupported("lerp", self.dtype)
    if not is_tensor(weight):
        weight = number("lerp", "weight", weight, self)
    dtype = self.dtype
    if dtype.itemsize == 2:
        self, end = (ops.cast(value, dtype_named("float32")) for value in (self, end))
    out = ops.weighted(self, end, weight)
    return out if out.dtype == dtype else ops.cast(out, dtype)


def _rest(weight):
    look_at(weight)
    return 1 - (weight.conj() if is_tensor(weight) else weight.conjugate())


_ENDS = [
    case(T(2, 3), T(2, 3), 0.3),
    case(T(2, 3), T(3), 0.8),
    case(T(2, 1), T(3), 0),
    case(T(), T(), 1),
    case(T(0, 3), T(3), 2.5),
    case(T(2, 3), T(2, 3), T(2, 3)),
    case(T(2, 3), T(3), T(2, 1)),
    case(T(3), T(), T()),
    case(T(), T(2), T(1)),
    case(T(3), T(3), T()),
]
op(
    "weighted(self: Tensor, end: Tensor, weight: Operand) -> Tensor",
    kernel="lerp",
    dtypes=FLOAT_COMPLEX,
    method=False,
    function=False,
    samples=_ENDS,
    doc="Return self + weight * (end - self), elementwise, from the nearer end.",
    ref=lambda np, self, end, weight: self + weight * (end - self),
)
op(
    "lerp(self: Tensor, end: Tensor, weight: Operand) -> Tensor",
    jvp="pointwise",
    forward=_lerp,
    compiled="interpolation",
    kernel="lerp",
    dtypes=FLOAT_COMPLEX,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g, weight: g * _rest(weight),
        "end": lambda g, weight: g * ops.conj(weight),
        "weight": lambda g, self, end: g * (end - self).conj(),
    },
    node=lambda weight_shape: f"LerpBackward{1 if isinstance(weight_shape, tuple) else 0}",
    batch="pointwise",
    out_dtype="pointwise",
    doc="Return self + weight * (end - self), elementwise.\n\n"
    "Raises: RuntimeError when the dtypes differ.",
    samples=_ENDS,
    ref=lambda np, self, end, weight: self + weight * (end - self),
)


def _where_nan_safe(condition, self, other, nan_safe):
    result = ops.where(condition, self, other)
    if nan_safe:
        nan_safe = importlib.import_module("pullback.autograd._nan_safe")
        nan_safe.protect_operands(result, (self, other))
    return result


op(
    "where(condition: Tensor, self: Operand? = None, other: Operand? = None) -> Tensor",
    forward="where",
    kernel="where",
    promote="where",
    dtypes=ALL,
    batch="where",
    out_dtype="exact",
    method=False,
    out=True,
    vjp={
        "self": lambda g, condition: ops.where(condition, g, 0),
        "other": lambda g, condition: ops.where(condition, 0, g),
    },
    ref="numpy.where",
    overload="where.nan_safe",
    doc="Return self where the condition holds, else other.\n\nWith a condition "
    "alone: the positions where it holds, as a tuple of one index tensor per dim.\n\n"
    "An element that is not selected has a gradient of 0. Behind it 0 * inf is NaN, as in "
    "``where(x > 0, x.log(), 0)`` at 0. With ``nan_safe=True`` it is 0 there, in each pass "
    "through this ``where``: in the derivatives of the elementwise ops behind it, also behind "
    "views, for operands that have the shape of the op's result.",
    jvp="pointwise",
    samples=lambda: [
        case(mask(2, 3), T(2, 3), T(2, 3)),
        case(mask(3), T(2, 1), T()),
        case(mask(2, 1), T(3), 2),
        case(mask(2, 3), 1, T(2, 3)),
        case(mask(), T(2), T(2)),
        case(mask(0, 3), T(3), T(1)),
    ],
)
op(
    "where.nan_safe(condition: Tensor, self: Operand, other: Operand, *, nan_safe: bool) -> Tensor",
    composite=_where_nan_safe,
    function=False,
    method=False,
    doc="Return self where the condition holds, else other; see ``where``.",
    samples=lambda: [
        case(mask(2, 3), T(2, 3), T(2, 3), nan_safe=True),
        case(mask(3), T(2, 1), 2, nan_safe=False),
    ],
    ref=lambda np, condition, self, other, nan_safe: np.where(condition, self, other),
)
op(
    "where_method(self: Operand, condition: Tensor, other: Operand, *, nan_safe: bool = False) "
    "-> Tensor",
    function=False,
    composite=lambda self, condition, other, nan_safe: _where_nan_safe(
        condition, self, other, nan_safe
    ),
    method="where",
    doc="Return self where the condition holds, else other; see the function.",
    samples=lambda: [
        case(T(2, 3), mask(2, 3), T(3)),
        case(T(2, 1), mask(3), 0),
        case(T(), mask(), T()),
    ],
    ref=lambda np, self, condition, other, nan_safe=False: np.where(condition, self, other),
)


op(
    "masked_fill(self: Tensor, mask: Tensor, value: Operand) -> Tensor",
    jvp="linear",
    forward="masked_fill",
    kernel="where",
    inplace=True,
    vjp={
        "self": lambda g, mask: g.masked_fill(mask, 0),
        "value": lambda g, mask: ops.where(mask, g, 0).sum(),
    },
    node=lambda value_shape: f"MaskedFillBackward{1 if isinstance(value_shape, tuple) else 0}",
    batch="masked_fill",
    doc="Return self with `value`, cast to its dtype, where the mask holds.",
    samples=lambda: [
        case(T(2, 3), mask(2, 3), 1),
        case(T(2, 3), mask(3), 0),
        case(T(2, 1), mask(3), T()),
        case(T(), mask(), 1),
        case(T(0, 3), mask(3), 1),
    ],
    ref=lambda np, self, mask, value: np.where(mask, value, self).astype(self.dtype),
)


# -- clamp -----------------------------------------------------------------------------------------


def _check_clamp(name, *values):
    """Complex numbers have no order, and torch has no kernel for bools."""
    for value in values:
        if value.is_complex() if is_tensor(value) else isinstance(value, complex):
            raise NotImplementedError(f"{name} is not supported for complex types")


def _check_bound(self, bound):
    """An integer bound must fit the integers; as in C, unsigned ones also wrap around."""
    kind = self.dtype.kind
    if kind in "iu" and isinstance(bound, int) and not isinstance(bound, bool):
        import pullback

        limits = pullback.iinfo(self.dtype)
        if bound > limits.max or bound < (limits.min if kind == "i" else -limits.max):
            raise RuntimeError(
                f"clamp(): value cannot be converted to type {self.dtype.name} "
                f"without overflow: {bound}"
            )


def _clamp(self, min, max):
    if min is None and max is None:
        raise RuntimeError("clamp(): At least one of 'min' or 'max' must not be None")
    _check_clamp("clamp", self, min, max)
    for bound in (min, max):
        _check_bound(self, bound)
    if min is not None and max is not None:
        if all(
            value.dtype.kind == "b" if is_tensor(value) else isinstance(value, bool)
            for value in (self, min, max)
        ):
            raise unsupported("clamp", self.dtype)
        return ops.between(self, min, max)
    bound = max if min is None else min
    out = ops.minimum(self, max) if min is None else ops.maximum(self, min)
    if out.dtype.name == "bool" and not is_tensor(bound):
        raise unsupported("clamp", out.dtype)
    return out


def _clamp_self_vjp(g, self, min, max):
    look_at(self)
    inside = None if min is None else self >= min
    if max is not None:
        below = self <= max
        inside = below if inside is None else inside & below
    return ops.where(inside, g, 0)


def _clamp_min_vjp(g, self, min, max):
    look_at(self)
    taken = self < min
    return ops.where(taken if max is None else taken & (min < max), g, 0)


def _clamp_max_vjp(g, self, min, max):
    look_at(self)
    taken = self > max
    return ops.where(taken if min is None else taken | (max < min), g, 0)


def _clamp_node(min_shape, max_shape):
    tensors = isinstance(min_shape, tuple) or isinstance(max_shape, tuple)
    return f"ClampBackward{0 if tensors else 1}"


op(
    "between(self: Tensor, min: Operand, max: Operand) -> Tensor",
    kernel="clamp",
    dtypes=INTEGRAL | FLOATING,
    method=False,
    function=False,
    doc="Return minimum(maximum(self, min), max), elementwise.",
    samples=lambda: [
        case(T(2, 3), T(3), T(2, 1)),
        case(T(2, 3), 1, 2),
        case(T(), 0, 2),
        case(T(0), 0, 1),
        case(fixed(SPECIAL), fixed(SPECIAL), fixed(SPECIAL[::-1]), only=FLOATING),
    ],
    ref=lambda np, self, min, max: np.minimum(np.maximum(self, min), max),
)
op(
    "clamp(self: Tensor, min: Operand? = None, max: Operand? = None) -> Tensor",
    jvp="pointwise",
    inplace=True,
    out=True,
    forward=_clamp,
    batch="pointwise",
    out_dtype="pointwise",
    aliases=("clip",),
    node=_clamp_node,
    dtypes=INTEGRAL | FLOATING,
    vjp={"self": _clamp_self_vjp, "min": _clamp_min_vjp, "max": _clamp_max_vjp},
    doc="Return each element moved into [min, max]; NaN stays, and a NaN bound wins.\n\n"
    "Derivative: 1 by self at the bounds; to max where min is larger.",
    kinks=[
        kink([-1.0, 1.0], -1.0, 1.0, to=[1.0, 1.0]),
        kink([1.0], [1.0], [2.0], to=([1.0], [0.0], [0.0])),
    ],
    samples=lambda: [
        case(T(2, 3), T(3), T(2, 1)),
        case(T(2, 3), 1, 2),
        case(T(2, 3), None, 1),
        case(T(2, 3), min=1),
        case(T(), 0, 2),
        case(T(0), 0, 1),
        case(T(2, 3), 2, 1),
        case(T(2, 3), T(3)),
        case(T(2, 3), None, T(2, 3)),
        case(T(3), T(3), 2),
        case(T(2, 3), -0.5, 1.5, only=FLOATING),
        case(fixed(SPECIAL), -1, 0.5, only=FLOATING, skip=KINKS),
        case(fixed(SPECIAL), fixed(SPECIAL), fixed(SPECIAL[::-1]), only=FLOATING, skip=KINKS),
    ],
    ref=lambda np, self, min=None, max=None: np.clip(self, min, max),
    inplace_function=True,
)

op(
    "clamp_min(self: Tensor, min: Operand) -> Tensor",
    kernel="maximum",
    dtypes=REAL,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g, self, min: ops.where(self >= min, g, 0),
        "min": lambda g, self, min: ops.where(self < min, g, 0),
    },
    node=lambda min_shape: f"ClampMinBackward{1 if isinstance(min_shape, tuple) else 0}",
    out_dtype="pointwise",
    doc="Return each element, or min where that is larger; NaN wins.\n\n"
    "Derivative: to self where both are equal.",
    kinks=[kink([0.0], 0.0, to=[1.0])],
    samples=lambda: binary(ties=True),
    ref="numpy.maximum",
    inplace_function=True,
)
op(
    "clamp_max(self: Tensor, max: Operand) -> Tensor",
    kernel="minimum",
    dtypes=REAL,
    inplace=True,
    out=True,
    vjp={
        "self": lambda g, self, max: ops.where(self <= max, g, 0),
        "max": lambda g, self, max: ops.where(self > max, g, 0),
    },
    node=lambda max_shape: f"ClampMaxBackward{1 if isinstance(max_shape, tuple) else 0}",
    out_dtype="pointwise",
    doc="Return each element, or max where that is smaller; NaN wins.\n\n"
    "Derivative: to self where both are equal.",
    kinks=[kink([0.0], 0.0, to=[1.0])],
    samples=lambda: binary(ties=True),
    ref="numpy.minimum",
    inplace_function=True,
)

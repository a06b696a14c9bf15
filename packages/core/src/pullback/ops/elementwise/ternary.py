"""Elementwise ops of three operands: addcmul, addcdiv, lerp."""

from pullback.ops.rules.dims import dtype_named, unsupported
from pullback.ops.rules.elementwise_util import is_tensor, look_at, number, promoted
from pullback.ops.table.primitives_api import compiled
from pullback.ops.table.samples import T, case
from pullback.ops.table.schema import ALL, FLOAT_COMPLEX, NUMBERS, op, ops

UINT8 = 0x002


def _is_integer(dtype):
    return not (dtype.is_floating_point or dtype.is_complex)


def _scale(name, dtype, value):
    """Return ``value`` as a number that fits the result's dtype; integers cut it off."""
    if isinstance(value, complex) and not dtype.is_complex:
        raise RuntimeError(f"{name}(): argument 'value': value cannot be converted to type "
                           f"{dtype.name} without overflow")
    if not isinstance(value, (int, float, complex)):
        raise TypeError(f"{name}(): argument 'value' must be Number, not {type(value).__name__}")
    if _is_integer(dtype):
        compiled("base.dtype", "check_number")(value, dtype)
        return int(value)
    return value


def _addc(name):
    def forward(self, tensor1, tensor2, value):
        run = ops.add_product if name == "addcmul" else ops.add_quotient
        first, second = promoted(name, NUMBERS, tensor1, tensor2)
        if name == "addcdiv" and _is_integer(first.dtype):
            raise RuntimeError(
                "Integer division with addcdiv is no longer supported: addcdiv() expects tensor1 "
                "or tensor2 to be floating point. Use input + value * (tensor1 / tensor2).trunc().")
        self, _ = promoted(name, NUMBERS, self, first)
        dtype = self.dtype if first.ndim == 0 and self.ndim else promoted(
            name, NUMBERS, first, self)[0].dtype
        value = _scale(name, dtype, value)
        if dtype.itemsize == 2 and dtype.is_floating_point:      # the number keeps its digits
            return ops.cast(run(*(ops.cast(part, dtype_named("float32"))
                                  for part in (self, first, second)), value), dtype)
        return run(self, first, second, value)
    return forward


_THREE = [case(T(2, 3), T(2, 3), T(2, 3)), case(T(2, 3), T(3), T(2, 1)), case(T(), T(2, 3), T()),
          case(T(3), T(), T()), case(T(), T(), T()), case(T(0, 3), T(3), T(1)),
          case(T(2, 3), T(2, 3), T(3), value=2),
          case(T(3), T(3), T(3), value=-1, only=ALL & ~UINT8),
          case(T(3), T(3), T(3), value=0.5, only=FLOAT_COMPLEX)]
_DIVIDED = [made._replace(args=(*made.args[:2], made.args[2]._replace(low=0.5, high=3)))
            for made in _THREE]

op("add_product(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand) -> Tensor",
   kernel="addcmul", dtypes=NUMBERS, method=False, function=False,
   doc="Return self + (value * tensor1) * tensor2, elementwise.",
   samples=[case(T(2, 3), T(3), T(2, 1), 2), case(T(), T(), T(), 1), case(T(0, 3), T(3), T(1), 1)],
   ref=lambda np, self, tensor1, tensor2, value: self + tensor1 * tensor2 * value)
op("add_quotient(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand) -> Tensor",
   kernel="addcdiv", dtypes=FLOAT_COMPLEX, method=False, function=False,
   doc="Return self + (value * tensor1) / tensor2, elementwise.",
   samples=[case(T(2, 3), T(3), T(2, 1, low=0.5, high=3), 2),
            case(T(), T(), T(low=0.5, high=3), 1), case(T(0, 3), T(3), T(1), 1)],
   ref=lambda np, self, tensor1, tensor2, value: self + tensor1 / tensor2 * value)
op("addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor",
   jvp="pointwise",
   forward=_addc("addcmul"), compiled="scaled_term", kernel="addcmul", dtypes=NUMBERS,
   inplace=True, out=True,
   vjp={"self": lambda g: g,
        "tensor1": lambda g, tensor2, value: ops.scaled(g * ops.conj(tensor2), _conj(value)),
        "tensor2": lambda g, tensor1, value: ops.scaled(g * ops.conj(tensor1), _conj(value))},
   batch="pointwise", doc="Return self + value * tensor1 * tensor2, elementwise.", samples=_THREE,
   ref=lambda np, self, tensor1, tensor2, value=1: self + value * tensor1 * tensor2)
op("addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor",
   jvp="pointwise",
   forward=_addc("addcdiv"), compiled="scaled_term", kernel="addcdiv", dtypes=FLOAT_COMPLEX,
   inplace=True, out=True,
   vjp={"self": lambda g: g,
        "tensor1": lambda g, tensor2, value: ops.scaled(g / ops.conj(tensor2), _conj(value)),
        "tensor2": lambda g, tensor1, tensor2, value: ops.scaled(
            -g * (tensor1 / (tensor2 * tensor2)).conj(), _conj(value))},
   batch="pointwise", doc="Return self + value * tensor1 / tensor2, elementwise.\n\n"
       "Raises: RuntimeError when both divided tensors hold integers.", samples=_DIVIDED,
   ref=lambda np, self, tensor1, tensor2, value=1: self + value * (tensor1 / tensor2))


def _conj(value):
    look_at(value)
    return value.conjugate()


# -- lerp ------------------------------------------------------------------------------------------

def _lerp(self, end, weight):
    for name, other in (("end", end), ("weight", weight)):
        if is_tensor(other) and other.dtype != self.dtype and not (name == "weight"
                                                                   and other.ndim == 0):
            raise RuntimeError(f"lerp(): expected dtype {self.dtype.name} for `{name}` but got "
                               f"dtype {other.dtype.name}")
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


_ENDS = [case(T(2, 3), T(2, 3), 0.3), case(T(2, 3), T(3), 0.8), case(T(2, 1), T(3), 0),
         case(T(), T(), 1), case(T(0, 3), T(3), 2.5), case(T(2, 3), T(2, 3), T(2, 3)),
         case(T(2, 3), T(3), T(2, 1)), case(T(3), T(), T()), case(T(), T(2), T(1)),
         case(T(3), T(3), T())]
op("weighted(self: Tensor, end: Tensor, weight: Operand) -> Tensor", kernel="lerp",
   dtypes=FLOAT_COMPLEX, method=False, function=False, samples=_ENDS,
   doc="Return self + weight * (end - self), elementwise, from the nearer end.",
   ref=lambda np, self, end, weight: self + weight * (end - self))
op("lerp(self: Tensor, end: Tensor, weight: Operand) -> Tensor",
   jvp="pointwise", forward=_lerp,
   dtypes=FLOAT_COMPLEX, inplace=True, out=True,
   vjp={"self": lambda g, weight: g * _rest(weight),
        "end": lambda g, weight: g * ops.conj(weight),
        "weight": lambda g, self, end: g * (end - self).conj()},
   node=lambda weight_shape: f"LerpBackward{1 if isinstance(weight_shape, tuple) else 0}",
   batch="pointwise", out_dtype="pointwise",
   doc="Return self + weight * (end - self), elementwise.\n\n"
       "Raises: RuntimeError when the dtypes differ.",
   samples=_ENDS, ref=lambda np, self, end, weight: self + weight * (end - self))

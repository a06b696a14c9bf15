"""Complex numbers: conj, angle, polar and their like; real, imag and view_as_real are views."""

import math

from pullback.ops.rules.dtypes import type_name, unsupported
from pullback.ops.table.kinks import JUMP, kink
from pullback.ops.table.samples import KINKS, MEMORY, NOT_LAZY, SPECIAL, T, case, fixed, unary
from pullback.ops.table.schema import ALL, BOOL, COMPLEX, FLOAT_COMPLEX, FLOATING, HALF, op, ops


def _angle(self):
    import pullback

    if self.is_complex():
        return ops.atan2(ops.imag(self), ops.real(self))
    dtype = self.dtype if self.dtype.is_floating_point else pullback.get_default_dtype()
    turned = ops.where(self < 0, ops.full((), math.pi, dtype=dtype, device=self.device), 0.0)
    return ops.where(self != self, math.nan, turned) if self.dtype.is_floating_point else turned


def _angle_vjp(g, self):
    """The gradient points along the circle through self: i self / |self|^2, without a square."""
    if not self.is_complex():
        return ops.zeros_like(self)
    size = ops.abs(self)
    origin = size == 0
    size = ops.where(origin, 1, size)
    return ops.where(origin, 0, self / size * 1j * (g / size))


op(
    "angle(self: Tensor) -> Tensor",
    forward=_angle,
    vjp={"self": _angle_vjp},
    promote="float",
    dtypes=FLOAT_COMPLEX,
    out=True,
    batch="unary",
    doc="Return the angle of each complex number; pi for negative real ones, else 0.\n\n"
    "Derivative: 0 at 0 and for real numbers.",
    kinks=[kink([0.0, 1.0, -1.0], to=[0.0, 0.0, 0.0], outside=JUMP)],
    samples=lambda: [
        *unary(0.2, 3, special=None),
        case(T(2, 3, low=-3, high=-0.2)),
        case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
        case(fixed((0j, 1 + 0j, -1 + 0j, 2j)), skip=KINKS, only=COMPLEX),
    ],
    ref=lambda np, self: _angle_reference(np, self),
)


def _angle_reference(np, self):
    """A real zero has no sign here."""
    return np.angle(self if self.dtype.kind == "c" else self + 0.0)


def _parts(name, first, second):
    """Check that two tensors can be the parts of complex numbers."""
    kinds = ("float16", "float32", "float64")
    if first.dtype.name not in kinds or second.dtype.name not in kinds:
        raise RuntimeError(
            f"{name}(): Expected both inputs to be Half, Float or Double tensors but got "
            f"{type_name(first.dtype)} and {type_name(second.dtype)}"
        )
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"{name}(): Expected object of scalar type {type_name(first.dtype)} but got "
            f"scalar type {type_name(second.dtype)} for second argument"
        )
    return first, second


def _joined(re, im):
    """Return complex numbers; written part by part, so that infinities stay in their part."""
    shape = (re + im).shape if re.shape != im.shape else re.shape
    out = ops.empty(tuple(shape), dtype=re.dtype.to_complex(), device=re.device)
    parts = ops.view_as_real(out)
    ops.copy_(ops.select(parts, -1, 0), re)
    ops.copy_(ops.select(parts, -1, 1), im)
    return out


_PARTS = [
    case(T(2, 3), T(2, 3)),
    case(T(2, 1), T(3)),
    case(T(), T(2)),
    case(T(), T()),
    case(T(0, 3), T(3)),
]
_SINGLE = FLOATING & ~HALF  # polar has no float16
_PARTS_OF_COMPLEX = FLOATING & ~0x080  # no complex dtype has parts of bfloat16

op(
    "complex(real: Tensor, imag: Tensor) -> Tensor",
    jvp="linear",
    batch="pointwise",
    out_dtype="exact",
    method=False,
    dtypes=_PARTS_OF_COMPLEX,
    out=True,
    forward=lambda real, imag: _joined(*_parts("complex", real, imag)),
    vjp={"real": lambda g: ops.real(g), "imag": lambda g: ops.imag(g)},
    doc="Return real + i * imag, elementwise.\n\n"
    "Raises: RuntimeError unless both are float16, both float32 or both float64.",
    samples=_PARTS,
    ref=lambda np, real, imag: real + 1j * imag,
)


def _polar(abs, angle):
    _parts("polar", abs, angle)
    if abs.dtype.name == "float16":
        raise unsupported("polar_cpu", abs.dtype)
    return _joined(abs * ops.cos(angle), abs * ops.sin(angle))


op(
    "polar(abs: Tensor, angle: Tensor) -> Tensor",
    autocast=("float32", None),
    batch="pointwise",
    out_dtype="exact",
    method=False,
    dtypes=_SINGLE,
    out=True,
    forward=_polar,
    vjp={
        "abs": lambda g, angle: ops.real(g) * angle.cos() + ops.imag(g) * angle.sin(),
        "angle": lambda g, abs, angle: (
            abs * (ops.imag(g) * angle.cos() - ops.real(g) * angle.sin())
        ),
    },
    doc="Return the complex numbers with this size and angle, elementwise.\n\n"
    "Raises: RuntimeError unless both are float32 or both float64.",
    samples=lambda: [
        made._replace(args=(made.args[0]._replace(low=0.5, high=3), made.args[1]))
        for made in _PARTS
    ],
    ref=lambda np, abs, angle: abs * np.exp(1j * angle),
)
op(
    "conj_physical(self: Tensor) -> Tensor",
    jvp="linear",
    forward="conj_physical",
    kernel="conj",
    dtypes=ALL,
    inplace=True,
    inplace_node="ConjPhysicalBackward1",
    out=True,
    vjp={"self": lambda g: g.conj_physical()},
    batch="unary",
    out_dtype="pointwise",
    ref="numpy.conj",
    doc="Return the complex conjugate, computed now; a real tensor is returned as it is.",
)


# -- views of the same memory ----------------------------------------------------------------------

_PLAIN = [case(T(2, 3)), case(T()), case(T(0))]

op(
    "view_as_real(self: Tensor) -> Tensor",
    forward="view_as_real",
    view=True,
    batch="unary",
    method=False,
    vjp={"self": lambda g: ops.view_as_complex(g.contiguous())},
    samples=lambda: [made._replace(skip=NOT_LAZY) for made in _PLAIN],
    dtypes=COMPLEX,
    doc="Return the real and imaginary parts as a last dim of 2, over the same memory.",
    ref=lambda np, self: np.stack([self.real, self.imag], -1),
)
op(
    "view_as_complex(self: Tensor) -> Tensor",
    autocast=("float32", None),
    forward="view_as_complex",
    view=True,
    batch="unary",
    method=False,
    vjp={"self": lambda g: ops.view_as_real(g.resolve_conj())},
    dtypes=_PARTS_OF_COMPLEX,
    doc="Return a last dim of 2 as complex numbers, over the same memory.",
    samples=lambda: [case(T(*shape), skip=MEMORY) for shape in ((3, 2), (2,), (0, 2))],
    ref=lambda np, self: self[..., 0] + 1j * self[..., 1],
)
op(
    "_conj(self: Tensor) -> Tensor",
    forward="conj_view",
    view=True,
    node="ConjBackward0",
    vjp={"self": lambda g: g.conj()},
    batch="unary",
    doc="Return a view of the conjugates.",
    samples=_PLAIN,
    dtypes=COMPLEX,
    ref="numpy.conj",
)
op(
    "_neg_view(self: Tensor) -> Tensor",
    forward="neg_view",
    view=True,
    node="NegViewBackward0",
    vjp={"self": lambda g: -g},
    batch="unary",
    doc="Return a view of the negatives.",
    samples=_PLAIN,
    dtypes=ALL & ~BOOL,
    ref="numpy.negative",
)
op(
    "conj(self: Operand) -> Tensor",
    composite="conj",
    doc="Return the complex conjugate: a view that is computed where it is read, and through which "
    "one writes. A real tensor is returned as it is.\n\n`resolve_conj` gives it memory of its "
    "own; `conj_physical` computes it immediately.",
    samples=_PLAIN,
    ref="numpy.conj",
)
for _name, _what in (("conj", "conjugates"), ("neg", "negatives")):
    op(
        f"resolve_{_name}(self: Tensor) -> Tensor",
        composite=f"resolve_{_name}",
        ref="numpy.copy",
        doc=f"Return the tensor, or a copy if its elements are the {_what} of the values in "
        f"memory.",
        samples=_PLAIN,
    )


def _real(self):
    if not self.is_complex():
        return self
    return ops.select(ops.view_as_real(ops._conj(self) if self.is_conj() else self), -1, 0)


op(
    "real(self: Tensor) -> Tensor",
    method=False,  # Tensor.real is a property
    doc="Return the real part: a view, or a real tensor itself.",
    composite=_real,
    samples=_PLAIN,
    ref="numpy.real",
)


def _imag(self):
    if not self.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    if self.is_conj():  # the negatives of the values in memory
        return ops.select(ops._neg_view(ops.view_as_real(ops._conj(self))), -1, 1)
    return ops.select(ops.view_as_real(self), -1, 1)


op(
    "imag(self: Tensor) -> Tensor",
    method=False,
    composite=_imag,
    doc="Return a view of the imaginary part.",
    samples=_PLAIN,
    ref="numpy.imag",
    dtypes=COMPLEX,
)

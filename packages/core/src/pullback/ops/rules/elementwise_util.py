"""Helpers of forward passes of elementwise ops in Python: common dtypes, numbers, 16-bit floats."""

import functools

from pullback.ops.rules.arguments import check_number
from pullback.ops.rules.dtypes import default_dtype, dtype_named, unsupported
from pullback.ops.table.schema import ops

UNDERIVED = dict.fromkeys(("grad", "gradgrad", "compiled"), "it has no derivative, as in torch")


def is_tensor(value):
    """Tell a tensor from a number."""
    return hasattr(value, "shape")


def look_at(value):
    """Say that a formula needs the value itself: called with what stands for it, tracing ends."""
    getattr(value, "shape", None)


def common_dtype(name, dtypes, first, second, *, floats=False):
    """Return the dtype that two operands promote to, if the op has it."""
    from pullback._c.ops.elementwise import result_dtype

    dtype = result_dtype(first, second)
    if floats and not (dtype.is_floating_point or dtype.is_complex):
        dtype = default_dtype()
    if not dtypes >> dtype.code & 1:
        raise unsupported(name, dtype)
    return dtype


def promoted(name, dtypes, first, second, *, floats=False):
    """Return two operands, their tensors cast to the common dtype.

    Raises: NotImplementedError when the op does not have it; TypeError for two numbers.
    """
    if not (is_tensor(first) or is_tensor(second)):
        raise TypeError(f"{name}(): expected at least one Tensor, got two numbers")
    dtype = common_dtype(name, dtypes, first, second, floats=floats)
    return tuple(
        ops.cast(value, dtype) if is_tensor(value) and value.dtype != dtype else value
        for value in (first, second)
    )


def within_a_turn(angle):
    """Return an angle in half turns, less whole turns, of which real ones are taken off exactly."""
    real = ops.real(angle) if angle.is_complex() else angle
    return angle - ops.round(real * 0.5) * 2


def wide(function):
    """Make a forward pass compute its 16-bit dtypes in float32, rounding once, as torch does."""

    @functools.wraps(function)
    def run(self, *others):
        if self.dtype.itemsize > 2 or not self.dtype.is_floating_point:
            return function(self, *others)
        single = dtype_named("float32")
        widened = [
            ops.cast(other, single) if is_tensor(other) and other.dtype == self.dtype else other
            for other in others
        ]
        return ops.cast(function(ops.cast(self, single), *widened), self.dtype)

    return run


def number(name, argument, value, self):
    """Return an argument that must be a number fit for a tensor's dtype."""
    if isinstance(value, complex) and not self.is_complex():
        raise RuntimeError(
            f"{name}(): argument '{argument}': value cannot be converted to type "
            f"{self.dtype.name} without overflow"
        )
    if is_tensor(value) and value.ndim == 0:
        return value.item()
    check_number(value, name, argument)
    return value


def no_derivative(name, argument):
    """Return the formula of an op that has no derivative: torch records it and refuses backward."""

    def formula(g):
        raise NotImplementedError(f"derivative for {name} is not implemented (for '{argument}')")

    return formula

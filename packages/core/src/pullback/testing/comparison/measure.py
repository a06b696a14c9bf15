"""How far two values are apart: absolutely, relatively and in units in the last place."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.testing.compare import default_tolerances

# Values that are the same or not: nothing between.
PLAIN = (type(None), bool, int, str, bytes, range, slice, type, enum.Enum)


class Tolerances(NamedTuple):
    """What a caller allows; None: what fits the dtypes."""

    rtol: float | None
    atol: float | None
    same_dtype: bool = True  # whether two dtypes are a difference
    coarsest: Any = None  # the dtype that numbers and arrays of a program may have been computed in

    def of(self, *dtypes: Any) -> tuple[float, float]:
        """Return (rtol, atol) for values of these dtypes.

        >>> import pullback
        >>> Tolerances(None, 0.5).of(pullback.float16)
        (0.001, 0.5)
        """
        rtol, atol = default_tolerances(*dtypes)
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol


class Value(NamedTuple):
    """The elements on the host, and the dtype, of a tensor, an array or a number."""

    array: np.ndarray  # of zeros for a meta tensor, which has none
    dtype: Any
    kind: str = "tensor"  # or "meta tensor", "sparse tensor", "array", "number"


class Plain(NamedTuple):
    """A value that is equal to another one or not, such as a string."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Difference:
    """How two values differ. Without ``index`` they differ as a whole, in ``what``."""

    max_abs_error: float
    max_relative_error: float
    ulps: float | None  # at the worst element, of the coarser dtype; None for integers
    index: tuple[int, ...] | None  # of the worst element
    expected: Any
    actual: Any
    mismatched: int
    elements: int
    dtype: str
    rtol: float
    atol: float
    what: str = "elements"  # or "shape", "dtype", "kind", "value"

    def __str__(self) -> str:
        if self.index is None:
            return f"the {self.what} is {self.actual} instead of {self.expected}"
        ulps = "" if self.ulps is None else f", {self.ulps:.4g} ULPs of {self.dtype}"
        return (
            f"{self.mismatched} of {self.elements} elements, the worst at {list(self.index)}: "
            f"{self.actual!r} instead of {self.expected!r}\n"
            f"max absolute error {self.max_abs_error:.6g}, max relative error "
            f"{self.max_relative_error:.6g}{ulps} (allowed: rtol={self.rtol:g}, atol={self.atol:g})"
        )


def unlike(what: str, expected: Any, actual: Any) -> Difference:
    """Return the difference of values that are not the same thing."""
    return Difference(np.inf, np.inf, None, None, expected, actual, 0, 0, "", 0.0, 0.0, what)


# ---- values --------------------------------------------------------------------------------------


def value_of(tensor: pb.Tensor) -> Value:
    """Return a copy of a tensor's elements on the host; of a meta tensor, which has none, zeros."""
    kind = "sparse tensor" if tensor.is_sparse else "tensor"
    plain = (tensor.to_dense() if tensor.is_sparse else tensor).detach()
    if plain.device.type == "meta":
        zeros = np.broadcast_to(np.zeros((), bool), tuple(plain.shape))
        return Value(zeros, tensor.dtype, "meta tensor")
    plain = plain.resolve_conj().resolve_neg()
    if plain.dtype == pb.complex32:  # NumPy has no such dtype
        plain = plain.to(pb.complex64)
    return Value(np.array(plain.numpy(force=True)), tensor.dtype, kind)


def observed(value: Any) -> Value | Plain | None:
    """Return what is compared of a value that is no container; None for an unknown kind.

    >>> observed("a"), observed(object())
    (Plain(value='a'), None)
    """
    if isinstance(value, pb.nn.UninitializedParameter | pb.nn.UninitializedBuffer):
        return Plain("no elements yet")
    if isinstance(value, pb.Tensor):
        return value_of(value)
    if isinstance(value, np.ndarray | np.generic):
        dtype = getattr(pb, value.dtype.name, None)
        if isinstance(dtype, pb.dtype):
            return Value(np.array(value), dtype, "array")
        known = value.dtype.kind in "SUmM"  # texts and times
        return Plain((value.dtype.name, value.tolist())) if known else None
    if isinstance(value, PLAIN):
        return Plain(value)
    if isinstance(value, float | complex):
        dtype = pb.float64 if isinstance(value, float) else pb.complex128
        return Value(np.array(value), dtype, "number")
    return None


def shown(value: Value | Plain | None) -> str:
    """Return a few words for a value."""
    if isinstance(value, Plain):
        return repr(value.value)
    if value is None:
        return "something that cannot be compared"
    return repr(value.array.item()) if value.kind == "number" else f"a {value.kind}"


def coarsest(values: Any) -> Any:
    """Return the floating-point dtype among values that has the fewest digits, or the default."""
    dtypes = {value.dtype for value in values if isinstance(value, Value)}
    found = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    return min(found, key=_precision, default=pb.get_default_dtype())


# ---- differences ---------------------------------------------------------------------------------


def difference(
    actual: Value | Plain | None, expected: Value | Plain | None, tolerances: Tolerances
) -> Difference | None:
    """Return how two values differ by more than is allowed, or None; NaN equals NaN.

    >>> import numpy, pullback
    >>> one, other = (Value(numpy.array([1.0, x]), pullback.float64) for x in (2.0, 2.5))
    >>> found = difference(one, other, Tolerances(None, None))
    >>> found.index, found.max_abs_error, found.expected
    ((1,), 0.5, 2.5)
    """
    if not (isinstance(actual, Value) and isinstance(expected, Value)):
        same = type(actual) is type(expected) and (
            not (isinstance(actual, Plain) and isinstance(expected, Plain))
            or (type(actual.value) is type(expected.value) and actual.value == expected.value)
        )
        return None if same else unlike("value", shown(expected), shown(actual))
    if actual.kind != expected.kind:
        return unlike("kind", expected.kind, actual.kind)
    if actual.array.shape != expected.array.shape:
        return unlike("shape", expected.array.shape, actual.array.shape)
    if tolerances.same_dtype and actual.dtype != expected.dtype:
        return unlike("dtype", expected.dtype.name, actual.dtype.name)
    if actual.kind == "meta tensor":
        return None
    return _of_elements(actual, expected, tolerances)


def _of_elements(actual: Value, expected: Value, tolerances: Tolerances) -> Difference | None:
    """Return how the elements of two values of one shape differ."""
    dtypes = [actual.dtype, expected.dtype]
    if actual.kind in ("number", "array") and min(map(_precision, dtypes)) < np.inf:
        dtypes.append(tolerances.coarsest or pb.get_default_dtype())
    dtype = min(dtypes, key=_precision)
    rtol, atol = tolerances.of(*dtypes)
    left, right = _wide(actual.array), _wide(expected.array)
    is_exact = left.dtype.kind in "iu" and rtol == atol == 0  # float64 has 53 bits
    if is_exact or left.dtype.kind == right.dtype.kind == "b":  # True is not close to False
        wrong = left != right
    else:
        wrong = ~np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        error = np.abs(np.subtract(left, right, dtype=np.result_type(left, right, np.float64)))
        error = np.where(np.isnan(error) & wrong, np.inf, error)
        relative = np.where(error == 0, 0, error / np.abs(right))
        relative = np.where(np.isnan(relative), np.inf, relative)  # of infinities and NaN
        excess = np.where(
            wrong, np.where(np.isinf(error), np.inf, error / (atol + rtol * np.abs(right))), -1
        )
    at = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), error.shape)
    return Difference(
        float(error[wrong].max()),
        float(relative[wrong].max()),
        _ulps(float(error[at]), float(np.abs(right[at])), dtype),
        tuple(int(i) for i in at),
        expected.array[at].item(),
        actual.array[at].item(),
        int(wrong.sum()),
        wrong.size,
        dtype.name,
        rtol,
        atol,
    )


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _precision(dtype: Any) -> float:
    """Return a number that is larger for finer dtypes; integers are the finest."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return np.inf
    return -pb.finfo(dtype).eps


def _ulps(error: float, magnitude: float, dtype: Any) -> float | None:
    """Return an error in units in the last place of a number of a dtype."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return None
    if not np.isfinite(error) or not np.isfinite(magnitude):
        return np.inf
    info = pb.finfo(dtype)
    exponent = np.floor(np.log2(max(magnitude, info.smallest_normal)))
    return float(error / (info.eps * 2.0**exponent))

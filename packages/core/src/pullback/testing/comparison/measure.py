"""How far two arrays are apart: absolutely, relatively and in units in the last place."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

import pullback as pb
from pullback.testing.compare import default_tolerances


class Tolerances(NamedTuple):
    """What a caller allows; None: what fits the dtypes."""

    rtol: float | None
    atol: float | None

    def of(self, *dtypes: Any) -> tuple[float, float]:
        """Return (rtol, atol) for values of these dtypes.

        >>> import pullback
        >>> Tolerances(None, 0.5).of(pullback.float16)
        (0.001, 0.5)
        """
        rtol, atol = default_tolerances(*dtypes)
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol


class Value(NamedTuple):
    """A tensor's elements on the host, and its dtype."""

    array: np.ndarray
    dtype: Any


@dataclasses.dataclass(frozen=True)
class Difference:
    """How two values differ. Without ``index`` their shapes do, which ``expected`` names."""

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

    def __str__(self) -> str:
        if self.index is None:
            return f"the shape is {self.actual} instead of {self.expected}"
        ulps = "" if self.ulps is None else f", {self.ulps:.4g} ULPs of {self.dtype}"
        return (
            f"{self.mismatched} of {self.elements} elements, the worst at {list(self.index)}: "
            f"{self.actual!r} instead of {self.expected!r}\n"
            f"max absolute error {self.max_abs_error:.6g}, max relative error "
            f"{self.max_relative_error:.6g}{ulps} (allowed: rtol={self.rtol:g}, atol={self.atol:g})"
        )


def value_of(tensor: pb.Tensor) -> Value:
    """Return a copy of a tensor's elements on the host."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype == pb.complex32:  # NumPy has no such dtype
        plain = plain.to(pb.complex64)
    return Value(np.array(plain.numpy(force=True)), tensor.dtype)


def difference(actual: Value, expected: Value, tolerances: Tolerances) -> Difference | None:
    """Return how two values differ by more than is allowed, or None; NaN equals NaN.

    >>> import numpy, pullback
    >>> one, other = (Value(numpy.array([1.0, x]), pullback.float64) for x in (2.0, 2.5))
    >>> found = difference(one, other, Tolerances(None, None))
    >>> found.index, found.max_abs_error, found.expected
    ((1,), 0.5, 2.5)
    """
    dtype = min(actual.dtype, expected.dtype, key=_precision)
    rtol, atol = tolerances.of(actual.dtype, expected.dtype)
    if actual.array.shape != expected.array.shape:
        shapes = expected.array.shape, actual.array.shape
        return Difference(np.inf, np.inf, None, None, *shapes, 0, 0, dtype.name, rtol, atol)
    left, right = _wide(actual.array), _wide(expected.array)
    if left.dtype.kind in "iu" and rtol == atol == 0:  # exactly: float64 has 53 bits
        wrong = left != right
    else:
        wrong = ~np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        error = np.abs(np.subtract(left, right, dtype=np.result_type(left, right, np.float64)))
        error = np.where(np.isnan(error) & wrong, np.inf, error)
        relative = np.where(error == 0, 0, error / np.abs(right))
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

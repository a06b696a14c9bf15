"""Compare tensors, with tolerances that fit the dtype, and say where they differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import pullback as pb

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]

# (rtol, atol) by the name of a dtype; the page of torch.testing.assert_close lists these.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}

_LEGACY_TOLERANCES = {
    "float16": (1e-3, 1e-3),
    "float32": (1e-4, 1e-5),
    "float64": (1e-5, 1e-8),
}

Message = str | Callable[[str], str] | None


def default_tolerances(*dtypes: Any) -> tuple[float, float]:
    """Return (rtol, atol) for comparing these dtypes: the loosest; exact for integers and bools.

    >>> import pullback
    >>> default_tolerances(pullback.float64, pullback.float16)
    (0.001, 1e-05)
    """
    found = [TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes]
    return max(rtol for rtol, _ in found), max(atol for _, atol in found)


class Options(NamedTuple):
    """What a comparison looks at."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Takes tensors, numbers, NumPy arrays, and sequences and mappings of them. Tolerances follow from
    the dtypes unless both are given. Infinities are close to themselves only; NaN to nothing, or to
    NaN with ``equal_nan``. Every tensor here has the one layout "strided".

    Raises: AssertionError that tells how many elements differ, and where most; TypeError for
    things that cannot be compared; ValueError when only one tolerance is given.

    >>> import pullback
    >>> from pullback.testing import assert_close
    >>> assert_close(pullback.tensor([1.0, 2.0]), pullback.tensor([1.0, 2.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "rtol and atol must both be specified or both be unspecified, got "
            f"rtol={rtol} and atol={atol}"
        )
    options = Options(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    for problem in differences(actual, expected, options, allow_subclasses, ""):
        raise AssertionError(_worded(problem, msg))


def _worded(problem: str, msg: Message) -> str:
    if callable(msg):
        return msg(problem)
    return problem if msg is None else msg


# -- walking through containers --------------------------------------------------------------------


def differences(
    actual: Any, expected: Any, options: Options, subclasses: bool, where: str
) -> Iterator[str]:
    """Yield a description of each pair that is not close."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            yield (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(set(expected) - set(actual))}\n"
                f"Missing keys in the expected mapping: {sorted(set(actual) - set(expected))}"
                + _position(where)
            )
            return
        for key in sorted(actual):
            yield from differences(
                actual[key], expected[key], options, subclasses, f"{where}[{key!r}]"
            )
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            yield (
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
                + _position(where)
            )
            return
        for position, pair in enumerate(zip(actual, expected)):
            yield from differences(*pair, options, subclasses, f"{where}[{position}]")
    else:
        yield from _different(actual, expected, options, subclasses, where)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _position(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _different(
    actual: Any, expected: Any, options: Options, subclasses: bool, where: str
) -> Iterator[str]:
    if actual is None and expected is None:
        return
    if not subclasses and type(actual) is not type(expected):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(actual)} and "
            f"{type(expected)}."
        )
    left, right = as_tensor(actual), as_tensor(expected)
    problem = _different_attributes(left, right, options)
    if problem is None and left.device.type != "meta" and right.device.type != "meta":
        numbers = not isinstance(actual, pb.Tensor) and left.ndim == 0
        problem = _different_values(left, right, options, numbers)
    if problem is not None:
        yield problem + _position(where)


def as_tensor(value: Any) -> pb.Tensor:
    """Return a tensor of a value that can be compared.

    Raises: TypeError for others.
    """
    if isinstance(value, pb.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray | np.generic):
        return pb.tensor(np.asarray(value))
    if isinstance(value, bool | int):
        return pb.tensor(value)
    if isinstance(value, float | complex):
        return pb.tensor(value, dtype=pb.complex128 if isinstance(value, complex) else pb.float64)
    raise TypeError(f"cannot compare {type(value).__name__}: expected a tensor, number or array")


# -- two tensors -----------------------------------------------------------------------------------


def _different_attributes(actual: pb.Tensor, expected: pb.Tensor, options: Options) -> str | None:
    checked: list[tuple[str, bool, Any, Any]] = [
        ("shape", True, tuple(actual.shape), tuple(expected.shape)),
        ("device", options.check_device, actual.device, expected.device),
        ("dtype", options.check_dtype, actual.dtype, expected.dtype),
        ("stride()", options.check_stride, actual.stride(), expected.stride()),
    ]
    for name, wanted, left, right in checked:
        if wanted and left != right:
            return f"The values for attribute '{name}' do not match: {left} != {right}."
    return None


def to_array(tensor: pb.Tensor) -> np.ndarray:
    """Return the values as NumPy's widest dtype of their kind, which holds them exactly."""
    if tensor.is_complex():
        return tensor.cpu().to(pb.complex128).numpy(force=True)
    if tensor.is_floating_point():
        return tensor.cpu().to(pb.float64).numpy(force=True)
    return tensor.cpu().numpy(force=True)


def _different_values(
    actual: pb.Tensor, expected: pb.Tensor, options: Options, numbers: bool
) -> str | None:
    rtol, atol = options.rtol, options.atol
    if rtol is None or atol is None:
        rtol, atol = default_tolerances(actual.dtype, expected.dtype)
    left, right = to_array(actual), to_array(expected)
    exact = rtol == 0 and atol == 0 and left.dtype.kind in "biu" and right.dtype.kind in "biu"
    if exact:
        close = left == right
    else:
        left, right = _widened(left, right)
        close = np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if close.all():
        return None
    kind = "Scalars" if numbers else "Tensor-likes"
    relation = "equal" if exact else "close"
    return f"{kind} are not {relation}!\n\n" + describe(left, right, ~close, rtol, atol)


def _widened(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    is_complex = any(array.dtype.kind == "c" for array in arrays)
    return tuple(array.astype(np.complex128 if is_complex else np.float64) for array in arrays)


def describe(
    actual: np.ndarray, expected: np.ndarray, wrong: np.ndarray, rtol: float, atol: float
) -> str:
    """Return how many elements differ, and the largest differences with their indices."""
    head = (
        f"Expected {expected.item()} but got {actual.item()}."
        if wrong.ndim == 0
        else (f"Mismatched elements: {wrong.sum()} / {wrong.size} ({100 * wrong.mean():.1f}%)")
    )
    left, right = _widened(actual, expected)
    with np.errstate(all="ignore"):
        absolute = np.abs(left - right)
        relative = absolute / np.abs(right)
    lines = (
        head,
        _largest("absolute", absolute, wrong, atol),
        _largest("relative", relative, wrong, rtol),
    )
    return "\n".join(lines)


def _largest(name: str, error: np.ndarray, wrong: np.ndarray, allowed: float) -> str:
    if wrong.ndim == 0:
        return f"{name.capitalize()} difference: {error.item()} (up to {allowed} allowed)"
    at = np.unravel_index(np.argmax(np.where(wrong, error, -1)), error.shape)
    where = tuple(int(i) for i in at)
    return f"Greatest {name} difference: {error[at]} at index {where} (up to {allowed} allowed)"


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Raise AssertionError unless tensors or numbers are close; deprecated, use ``assert_close``.

    NaN is close to NaN; dtypes and devices are not compared, and tensors may be given as data.

    Raises: AssertionError as ``assert_close``; ValueError when only one tolerance is given.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.testing.assert_allclose([1.0, float("nan")], [1.0, float("nan")])
    """
    warnings.warn(
        "`pullback.testing.assert_allclose()` is deprecated, use `pullback.testing.assert_close()` "
        "instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual = actual if isinstance(actual, pb.Tensor) else pb.tensor(actual)
    expected = (
        expected if isinstance(expected, pb.Tensor) else pb.tensor(expected, dtype=actual.dtype)
    )
    if rtol is None and atol is None:
        pair = [_LEGACY_TOLERANCES.get(side.dtype.name, (0.0, 0.0)) for side in (actual, expected)]
        rtol, atol = max(found[0] for found in pair), max(found[1] for found in pair)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )

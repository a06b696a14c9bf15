"""What functions of the namespace share: the choice of op or function, promotion, axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback._c.base import dtype as _dtype
from pullback._c.graph.tensor import Tensor
from pullback._c.interop.standard_function import StandardFunction, share_dtype
from pullback.ops import ops

ALL_KINDS = "buifc"
NUMBERS = (bool, int, float, complex)
BY_NAME = {found.name: found for found in _dtype.ALL}
# The standard's dtypes; uint16, uint32 and uint64 only where the package has them.
STANDARD_DTYPES = {
    name: BY_NAME[name]
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
    if name in BY_NAME
}


def standard(
    op: Any,
    tensors: int = 1,
    kinds: str = ALL_KINDS,
    without: Sequence[str] = (),
    **flags: bool,
) -> Callable:
    """Return a decorator: calls that the op answers as the standard says go to the op.

    ``kinds``: of the dtypes for which it does, ``without`` some. ``flags``: of StandardFunction.
    """
    dtypes = [d for d in _dtype.ALL if d.kind in kinds and d.name not in without]
    return lambda function: StandardFunction(op, function, tensors, dtypes, **flags)


def as_operand(value: Any) -> Any:
    """Return a tensor or Python number; NumPy's numbers become Python's.

    Raises: TypeError for other objects.
    """
    if isinstance(value, (Tensor, *NUMBERS)):
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"expected a tensor or a number, not {type(value).__name__}")


def kind_of(number: Any) -> int:
    """Return the rank of a Python number's kind, or of a dtype's."""
    if isinstance(number, bool):
        return 0
    if isinstance(number, int):
        return 1
    return 2 if isinstance(number, float) else 3


RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def joined_dtype(*values: Any) -> Any:
    """Return the dtype that tensors, dtypes and Python numbers promote to.

    A number takes the dtype of the others unless its kind is above theirs; the sizes of tensors do
    not matter, unlike in ``pullback.result_type``.
    Raises: ValueError without a tensor or dtype; TypeError for other types.
    """
    found, highest = None, -1
    for value in values:
        if isinstance(value, NUMBERS):
            highest = max(highest, kind_of(value))
            continue
        dtype = value.dtype if isinstance(value, Tensor) else value
        if not isinstance(dtype, _dtype.dtype):
            raise TypeError(f"expected tensors, dtypes or numbers, not {type(value).__name__}")
        found = dtype if found is None else _dtype.promote_types(found, dtype)
    if found is None:
        raise ValueError("at least one tensor or dtype is required")
    if highest <= RANKS[found.kind]:
        return found
    default = _dtype.get_default_dtype()
    if highest == 3:
        return (found if found.kind == "f" else default).to_complex()
    return default if highest == 2 else BY_NAME["int64"]


def promoted(*values: Any) -> list[Any]:
    """Return tensors and numbers as tensors of the dtype that they promote to."""
    if share_dtype(values):
        return list(values)
    values = tuple(map(as_operand, values))
    dtype = joined_dtype(*values)
    device = next(value.device for value in values if isinstance(value, Tensor))
    return [
        (value if value.dtype is dtype else value.to(dtype))
        if isinstance(value, Tensor)
        else ops.full((), value, dtype=dtype, device=device)
        for value in values
    ]


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that a reduction is over, none negative and each once.

    Raises: IndexError for an axis that is not there; ValueError for one given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    found = tuple(one_axis(a, ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(found)) < len(found):
        raise ValueError(f"axis {axis} names an axis twice")
    return found


def one_axis(axis: int, ndim: int) -> int:
    """Return an axis counted from the front.

    Raises: IndexError when there is none.
    """
    if not -ndim <= axis < ndim:
        raise IndexError(f"axis {axis} is out of bounds for an array of {ndim} dimensions")
    return axis + ndim if axis < 0 else axis


def flat(x: Tensor) -> Tensor:
    """Return the elements in one dimension."""
    return ops.reshape(x, (-1,))

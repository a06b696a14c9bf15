"""torch.types: names of annotations, and the classes of symbolic numbers, of which none is made.

>>> import pullback
>>> isinstance(3, pullback.SymInt)
False
"""

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, Union

from pullback._c.base.dtype import dtype as _dtype
from pullback._c.device.device import device as _device
from pullback._c.graph.size import Size
from pullback._c.graph.size import layout as _layout
from pullback._c.graph.tensor import Tensor

__all__ = [
    "BoolLikeType",
    "Device",
    "FileLike",
    "FloatLikeType",
    "IntLikeType",
    "Number",
    "Size",
    "Storage",
    "SymBool",
    "SymFloat",
    "SymInt",
    "py_sym_types",
]

_bool = builtins.bool
_bytes = builtins.bytes
_complex = builtins.complex
_float = builtins.float
_int = builtins.int
_str = builtins.str
_size = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrOptionalTensors = Union[Tensor, Sequence[Union[Tensor, None]]]  # noqa: UP007
_Number = (int, float, bool)


class _Symbol:
    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            f"pullback.{type(self).__name__}: symbolic numbers are left out; sizes are ints"
        )


class SymInt(_Symbol):
    """A size that a compiler of torch does not know; cannot be made."""


class SymFloat(_Symbol):
    """A number that a compiler of torch does not know; cannot be made."""


class SymBool(_Symbol):
    """A truth value that a compiler of torch does not know; cannot be made."""


class _LeftOutDtype:
    """The name of a dtype that no tensor has; programs compare it with dtypes and keep it."""

    is_floating_point = is_signed = True
    is_complex = False
    itemsize = 1

    def __init__(self, name: str, eps: float, maximum: float, least: float, normal: float):
        self.name = name
        self._limits = (eps, maximum, least, normal, 1.0)  # for ``finfo``

    def __repr__(self) -> str:
        return f"pullback.{self.name}"

    def __reduce__(self) -> Any:
        return _dtype_named, (self.name,)


def _dtype_named(name: str) -> _LeftOutDtype:
    return globals()[name]


# eps, the largest, the least and the smallest normal number. Source: the OCP specification of
# 8-bit floating-point numbers; for fnuz, Noune et al., "8-bit numerical formats", 2022.
float8_e4m3fn = _LeftOutDtype("float8_e4m3fn", 0.125, 448.0, -448.0, 2.0**-6)
float8_e4m3fnuz = _LeftOutDtype("float8_e4m3fnuz", 0.125, 240.0, -240.0, 2.0**-7)
float8_e5m2 = _LeftOutDtype("float8_e5m2", 0.25, 57344.0, -57344.0, 2.0**-14)
float8_e5m2fnuz = _LeftOutDtype("float8_e5m2fnuz", 0.25, 57344.0, -57344.0, 2.0**-15)
float8_e8m0fnu = _LeftOutDtype("float8_e8m0fnu", 1.0, 2.0**127, 2.0**-127, 2.0**-127)


IntLikeType = Union[int, SymInt]  # noqa: UP007
FloatLikeType = Union[float, SymFloat]  # noqa: UP007
BoolLikeType = Union[bool, SymBool]  # noqa: UP007
py_sym_types = (SymInt, SymFloat, SymBool)
Number = Union[int, float, bool]  # noqa: UP007
Device = Union[_device, str, int, None]  # noqa: UP007
FileLike = Union[str, os.PathLike[str], IO[bytes]]  # noqa: UP007
Storage = Any

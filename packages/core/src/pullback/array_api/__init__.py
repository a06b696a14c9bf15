"""The array API standard 2024.12 on tensors: the module that ``Tensor.__array_namespace__`` gives.

Names, arguments, dtypes and special values are the standard's where torch's differ; functions that
agree are the package's ops. Everything is differentiable as the ops are.

>>> import pullback.array_api as xp
>>> x = xp.asarray([1., 4.])
>>> xp.std(xp.concat([x, x]), correction=0)
tensor(1.5000)
"""

from __future__ import annotations

from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from pullback.array_api import (
    _creation,
    _dtypes,
    _elementwise,
    _manipulation,
    _reductions,
    _searching,
    linalg,
)
from pullback.array_api._calls import STANDARD_DTYPES as _STANDARD_DTYPES

__array_api_version__ = "2024.12"

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793

__all__ = ["__array_api_version__", "e", "inf", "linalg", "nan", "newaxis", "pi"]

for _module in (_creation, _dtypes, _elementwise, _manipulation, _reductions, _searching):
    globals().update({_name: getattr(_module, _name) for _name in _module.__all__})
    __all__.extend(_module.__all__)
globals().update(_STANDARD_DTYPES)
__all__.extend(_STANDARD_DTYPES)
for _name in ("matmul", "matrix_transpose", "tensordot", "vecdot"):
    globals()[_name] = getattr(linalg, _name)
    __all__.append(_name)


if _find_spec("pullback.fft") is not None:  # an extension, where the package has its ops
    from pullback.array_api import fft

    __all__.append("fft")


if _TYPE_CHECKING:  # most names are bound by the loops above

    def __getattr__(name: str) -> _Any: ...


def __dir__():
    return sorted(__all__)

"""Names that code written for torch takes from ``torch._C``."""

from pullback import Tensor as TensorBase
from pullback._c.graph.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
)

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TensorBase",
    "_disabled_torch_function_impl",
]

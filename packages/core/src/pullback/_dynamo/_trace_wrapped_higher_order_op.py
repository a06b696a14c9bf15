"""The region in which tensors of no dims index under vmap without becoming numbers."""

from __future__ import annotations

from typing import Any

from pullback import Tensor
from pullback.overrides import TorchFunctionMode

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(TorchFunctionMode):
    """Let ``x[index]`` with integer tensors of no dims select under ``vmap``, without ``item()``.

    >>> import pullback
    >>> from pullback._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    >>> x = pullback.arange(4)
    >>> with TransformGetItemToIndex():
    ...     pullback.vmap(lambda index: x[index])(pullback.tensor([3, 1]))
    tensor([3, 1])
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            x, index = args
            indices = index if isinstance(index, tuple) else (index,)
            if indices and all(isinstance(i, Tensor) and _is_number(i) for i in indices):
                return x[tuple(i.reshape(1) for i in indices)].squeeze(0)
        return func(*args, **(kwargs or {}))


def _is_number(index: Tensor) -> bool:
    kind = index.dtype.kind
    return index.dim() == 0 and kind in "iu"

"""Checks of tensors that are given to collectives, and their values in host memory."""

from __future__ import annotations

from typing import Any

from pullback._c.interop.arrays import is_host

import pullback
from pullback import Tensor
from pullback.autograd.graph import increment_version

STRIDED = pullback.strided


def check_tensor(value: Any, argument: str) -> None:
    """Raise TypeError unless the value is a strided tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type "
            f"pullback.Tensor\n             but got {type(value)} instead."
        )
    if value.layout is not STRIDED:
        raise RuntimeError(f"expected `{argument}` to be a dense tensor, not {value.layout}")


def check_tensors(values: Any, argument: str) -> None:
    """Raise TypeError unless the value is a list or tuple of tensors."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type "
            f"List[pullback.Tensor]\n             but got {type(values)} instead."
        )
    for value in values:
        check_tensor(value, argument)


def check_dtypes(name: str, tensor: Tensor, others: list[Tensor]) -> None:
    """Raise ValueError unless all tensors have one dtype."""
    for other in others:
        if other.dtype is not tensor.dtype:
            raise ValueError(
                f"{name}: Invalid usage of tensors with different dtypes: found {tensor.dtype} "
                f"and {other.dtype}"
            )


def readable(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor in host memory with the values: itself if it is one."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not is_host(tensor):
        tensor = tensor.cpu()
    return tensor.contiguous()


def is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor's memory is its values, one after the other."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def put(tensor: Tensor, values: Tensor) -> None:
    """Copy values into a tensor, and let formulas that saved it know of the write."""
    with pullback.no_grad():
        tensor.detach().copy_(values.view(tensor.shape), non_blocking=True)
    increment_version(tensor)


class Written:
    """A tensor that the host writes: its own memory if it can be, else a copy that is put back."""

    __slots__ = ("plain", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        if is_host(tensor) and is_plain(tensor):
            self.plain = tensor
        else:
            host = tensor.device if is_host(tensor) else "cpu"
            self.plain = pullback.empty(tensor.shape, dtype=tensor.dtype, device=host)

    def done(self) -> None:
        """Put the values back, and let formulas that saved the tensor know of the write."""
        if self.plain is self.tensor:
            increment_version(self.tensor)
        else:
            put(self.tensor, self.plain)

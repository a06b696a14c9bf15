"""The memory of tensors as MPI takes it."""

from __future__ import annotations

from typing import Any

from pullback._c.interop.arrays import is_host

import pullback
from pullback import Tensor
from pullback.autograd.graph import increment_version
from pullback_distributed import mpi as MPI
from pullback_distributed.collectives.datatypes import datatype


def check_tensor(value: Any, argument: str) -> None:
    """Raise TypeError unless the value is a strided tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type "
            f"pullback.Tensor\n             but got {type(value)} instead."
        )
    if value.layout is not pullback.strided:
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
    """Return whether MPI can read and write the tensor's memory as it is."""
    return (
        is_host(tensor) and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    )


def message(tensor: Tensor) -> list[Any]:
    """Return a plain tensor's memory, its number of elements and its datatype."""
    count = tensor.numel()
    return [MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes), count, datatype(tensor.dtype)]


class Written:
    """A tensor that MPI writes: its own memory if that is plain, else a copy that is put back."""

    __slots__ = ("plain", "tensor")

    def __init__(self, tensor: Tensor, keeps: bool = True) -> None:
        self.tensor = tensor
        if is_plain(tensor):
            self.plain = tensor
        elif keeps:
            found = readable(tensor)
            self.plain = found.clone() if found.data_ptr() == tensor.data_ptr() else found
        else:
            host = tensor.device if is_host(tensor) else "cpu"
            self.plain = pullback.empty(tensor.shape, dtype=tensor.dtype, device=host)

    def message(self) -> list[Any]:
        return message(self.plain)

    def done(self) -> None:
        """Put the values back, and let formulas that saved the tensor know of the write."""
        if self.plain is not self.tensor:
            with pullback.no_grad():
                self.tensor.detach().copy_(self.plain)
        increment_version(self.tensor)

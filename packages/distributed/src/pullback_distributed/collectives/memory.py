"""The memory of tensors as MPI takes it.

Host memory is MPI's to read and write. That of CUDA devices is too where MPI is CUDA-aware; else,
and for dtypes that are combined by an op of our own, which works in host memory, the values go
through pinned host memory. MPI knows no streams: it gets memory when the device is done with it.
More elements than a call takes, which are 2**31 - 1 before MPI 4, are given as few larger ones, or
in several calls where they are combined.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from pullback._c.interop.arrays import is_host
from pullback._c.interop.pinned_tensors import pinned_like
from pullback._c.python.tensor_methods import increment_version_of

import pullback
from pullback import Tensor
from pullback_distributed import mpi as MPI
from pullback_distributed.abilities import (
    CUDA_AWARE,
    cuda_aware_by_environment,
    is_cuda_aware,
    largest_count,
)
from pullback_distributed.collectives.buffers import is_plain, put
from pullback_distributed.collectives.datatypes import HALVES, datatype, datatype_of_many

_warned = False


def _warn(name: str) -> None:
    """Warn once that CUDA tensors make a detour, unless the environment asks for it."""
    global _warned
    if _warned or cuda_aware_by_environment() is False:
        return
    _warned = True
    warnings.warn(
        f"{name}: this MPI library is not CUDA-aware, so CUDA tensors are copied through pinned "
        f"host memory. Use an MPI library that was built with CUDA; {CUDA_AWARE}=1 in the "
        f"environment is for one that does not say that it was, and {CUDA_AWARE}=0 for copies "
        f"without this warning.",
        stacklevel=5,
    )


def _is_reached(name: str, tensor: Tensor, reduced: bool) -> bool:
    """Return whether MPI can read and write memory like a tensor's."""
    if is_host(tensor):
        return True
    if not tensor.is_cuda:
        return False
    if not is_cuda_aware():
        _warn(name)
        return False
    return not (reduced and tensor.dtype in HALVES)


def _room(name: str, like: Tensor, shape: Sequence[int], reduced: bool) -> Tensor:
    """Return a new tensor that MPI can write, for values of another one's dtype and device."""
    if _is_reached(name, like, reduced):
        return pullback.empty(shape, dtype=like.dtype, device=like.device)
    pinned = pinned_like(like.new_empty(()).expand(shape))  # the shape, without its memory
    if pinned is not None:
        return pinned
    return pullback.empty(shape, dtype=like.dtype, device="cpu")  # another device than CUDA's


def streams_of(tensors: Sequence[Any]) -> list[Any]:
    """Return this thread's stream on each CUDA device of tensors."""
    devices = {one.device for one in tensors if isinstance(one, Tensor) and one.is_cuda}
    return [pullback.cuda.current_stream(device) for device in devices]


def on_streams(function: Callable[..., None], streams: Sequence[Any]) -> Callable[..., None]:
    """Return a function that works on streams, on whatever thread, and waits for its work there."""
    if not streams:
        return function

    def run(*arguments: Any) -> None:
        with contextlib.ExitStack() as stack:
            for stream in streams:
                stack.enter_context(pullback.cuda.stream(stream))
            function(*arguments)
        for stream in streams:
            stream.synchronize()

    return run


class Memory:
    """Memory that MPI reads or writes in a function ``name``."""

    __slots__ = ("_event", "name", "plain")

    def __init__(self, name: str, plain: Tensor, device: Any) -> None:
        self.name = name
        self.plain = plain
        # After copies into the memory, and what used it before.
        self._event: Any = None
        if device.type == "cuda":
            self._event = pullback.cuda.current_stream(device).record_event()

    def _bytes(self, start: int, count: int) -> Any:
        if self._event is not None:
            self._event.synchronize()
        size = self.plain.element_size()
        return MPI.buffer.fromaddress(self.plain.data_ptr() + start * size, count * size)

    def message(self) -> list[Any]:
        """Return the memory, its number of elements and its datatype, when it may be used."""
        count = self.plain.numel()
        if count > largest_count():
            kind = datatype_of_many(self.plain.dtype, count, largest_count())
            return [self._bytes(0, count), 1, kind]
        return self._short(count)

    def _short(self, count: int) -> list[Any]:
        """Return the message of all elements, which one call takes."""
        plain = self.plain
        if self._event is not None:
            self._event.synchronize()
        memory = MPI.buffer.fromaddress(plain.data_ptr(), plain.nbytes)
        return [memory, count, datatype(plain.dtype)]

    def parts(self, counts: list[int]) -> list[Any]:
        """Return the message of memory of which each rank has a part.

        Raises: RuntimeError if there are too many elements, and no larger unit that fits all parts.
        """
        whole, dtype, most = sum(counts), self.plain.dtype, largest_count()
        if whole <= most:
            return [self._bytes(0, whole), counts, datatype(dtype)]
        unit = math.gcd(*counts)
        if whole // unit > most:
            raise RuntimeError(
                f"{self.name}: MPI {'.'.join(map(str, MPI.Get_version()))} cannot move {whole} "
                f"elements in parts of several sizes, only {most}: make the sizes multiples of a "
                f"larger number, split the tensors, or use a library with MPI 4, such as MPICH"
            )
        kind = datatype_of_many(dtype, unit, min(unit, most))
        return [self._bytes(0, whole), [count // unit for count in counts], kind]

    def pieces(self, start: int = 0, count: int | None = None) -> Sequence[list[Any]]:
        """Return the messages, at least one, that some elements are combined in."""
        most = largest_count()
        if count is None:
            count = self.plain.numel()
            if count <= most:
                return (self._short(count),)
        kind, end = datatype(self.plain.dtype), start + count
        return [
            [self._bytes(first, min(end - first, most)), min(end - first, most), kind]
            for first in range(start, max(end, start + 1), most)
        ]


class Source(Memory):
    """A tensor that MPI reads, for the collective ``name``: its own memory, or a copy."""

    __slots__ = ()

    def __init__(self, name: str, tensor: Tensor, reduced: bool = False) -> None:
        tensor = tensor.detach()
        device = tensor.device
        if not (_is_reached(name, tensor, reduced) and is_plain(tensor)):
            room = _room(name, tensor, tensor.shape, reduced)
            with pullback.no_grad():
                tensor = room.copy_(tensor, non_blocking=True)
        super().__init__(name, tensor, device)


class Joined(Memory):
    """Copies of several tensors, one after the other."""

    __slots__ = ()

    def __init__(self, name: str, tensors: Sequence[Tensor], reduced: bool = False) -> None:
        counts = [tensor.numel() for tensor in tensors]
        flat = _room(name, tensors[0], (sum(counts),), reduced)
        with pullback.no_grad():
            for tensor, part in zip(tensors, flat.split(counts), strict=True):
                part.view(tensor.shape).copy_(tensor.detach(), non_blocking=True)
        super().__init__(name, flat, tensors[0].device)


class Room(Memory):
    """New memory for values that come for several tensors, of one dtype and device."""

    __slots__ = ()

    def __init__(self, name: str, count: int, like: Tensor) -> None:
        super().__init__(name, _room(name, like, (count,), False), like.device)

    def deal_out(self, tensors: Sequence[Tensor]) -> None:
        """Copy the values into tensors, whatever their strides and device."""
        counts = [tensor.numel() for tensor in tensors]
        for tensor, part in zip(tensors, self.plain.split(counts), strict=True):
            put(tensor, part)


class Target(Memory):
    """A tensor that MPI writes: its own memory, or a copy that is put back.

    Without ``keeps`` the copy begins without the tensor's values.
    """

    __slots__ = ("tensor",)

    def __init__(
        self, name: str, tensor: Tensor, keeps: bool = True, reduced: bool = False
    ) -> None:
        self.tensor = plain = tensor
        if is_host(tensor) and is_plain(tensor):  # short messages notice each call
            self.name, self.plain, self._event = name, tensor, None
            return
        if not (_is_reached(name, tensor, reduced) and is_plain(tensor)):
            plain = _room(name, tensor, tensor.shape, reduced)
            if keeps:
                with pullback.no_grad():
                    plain.copy_(tensor.detach(), non_blocking=True)
        super().__init__(name, plain, tensor.device)

    def done(self) -> None:
        """Put the values back, and let formulas that saved the tensor know of the write."""
        if self.plain is not self.tensor:
            put(self.tensor, self.plain)
        elif not self.plain.is_inference():
            increment_version_of(self.plain)

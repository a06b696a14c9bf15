"""Tensors with random elements, in every memory layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import pullback as pb

__all__ = ["LAYOUTS", "draw_array", "lay_out", "make_tensor"]

# Memory layouts of tensors. "expanded" repeats the first of a dim's elements.
LAYOUTS = ("contiguous", "transposed", "strided", "expanded")


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> pb.Tensor:
    """Return a tensor with elements drawn uniformly from [low, high).

    Without bounds: [-9, 9) for floating and complex dtypes, [-9, 10) for signed integers, [0, 10)
    for uint8. The elements follow ``pullback.manual_seed``.

    Raises: RuntimeError for ``requires_grad`` with a dtype that has no derivatives; ValueError for
    ``noncontiguous`` with a memory format.

    >>> import pullback
    >>> from pullback.testing import make_tensor
    >>> make_tensor(2, 3, dtype=pullback.float32).shape
    pullback.Size([2, 3])
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if low is None and high is None:
        low, high = (-9, 9) if dtype.is_floating_point or dtype.is_complex else (-9, 10)
    seed = int(pb.randint(0, 2**31, (1,), dtype=pb.int64, device="ref").item())
    values = draw_array(sizes, dtype, np.random.default_rng(seed), low, high)
    if exclude_zero:
        values = np.where(values == 0, 1, values)
    if memory_format is not None and noncontiguous:
        raise ValueError("make_tensor: noncontiguous=True and memory_format exclude each other")
    made = lay_out(values, dtype, device, "strided" if noncontiguous else "contiguous")
    if memory_format is not None:
        made = made.clone(memory_format=memory_format)
    return made.requires_grad_(requires_grad)


def draw_array(
    shape: tuple[int, ...],
    dtype: Any,
    rng: np.random.Generator,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
) -> np.ndarray:
    """Return an array of random values that suit a dtype, each part of complex ones in [low, high).

    Integers are between the bounds, or the one next to them. Bools are true where a bound
    above zero asks for non-zero elements.
    """
    low = -3 if low is None else low
    high = low + 6 if high is None else high
    if dtype.is_complex:
        parts = [rng.uniform(low, high, shape) for _ in range(2)]
        values = np.asarray(parts[0] + 1j * parts[1])
    elif dtype.is_floating_point:
        values = np.asarray(rng.uniform(low, high, shape))
    elif dtype == pb.bool:
        return np.asarray(rng.integers(0, 2, shape) if low <= 0 else np.ones(shape)).astype(bool)
    else:
        first = max(math.ceil(low), 0 if dtype.name.startswith("u") else math.ceil(low))
        return np.asarray(rng.integers(first, max(math.ceil(high), first + 1), shape))
    return values if step is None else np.round(values / step) * step


def lay_out(values: np.ndarray, dtype: Any, device: Any, layout: str) -> pb.Tensor:
    """Return a tensor of these values whose memory has the layout; it is a leaf.

    Raises: ValueError for a layout that is not in LAYOUTS.
    """
    if layout == "expanded":
        values = _repeat_first(values)
    plain = pb.tensor(values, device="ref").to(dtype)  # the device may not have float64
    plain = plain.to(pb.get_default_device() if device is None else device)
    if layout == "contiguous":
        return plain
    if layout == "transposed":
        order = tuple(range(plain.ndim - 1, -1, -1))
        return plain.permute(order).contiguous().permute(order).detach()
    if layout == "strided":
        return _stretch(plain)
    if layout == "expanded":
        return _first_of_repeated(plain).expand(plain.shape).detach()
    raise ValueError(f"lay_out(): expected a layout among {LAYOUTS}, got {layout!r}")


def _stretch(plain: pb.Tensor) -> pb.Tensor:
    """Return the elements with gaps between them, away from the beginning of the storage."""
    if plain.ndim == 0:
        part = pb.zeros((3,), dtype=plain.dtype, device=plain.device)[1]
    else:
        *sizes, last = plain.shape
        wide = pb.zeros((*sizes, 2 * last + 1), dtype=plain.dtype, device=plain.device)
        part = wide[..., 1::2]
    return part.copy_(plain).detach()


def _repeated_dim(shape: tuple[int, ...]) -> int | None:
    return next((dim for dim, size in enumerate(shape) if size > 1), None)


def _repeat_first(values: np.ndarray) -> np.ndarray:
    dim = _repeated_dim(values.shape)
    if dim is None:
        return values
    return np.broadcast_to(values.take([0], axis=dim), values.shape).copy()


def _first_of_repeated(plain: pb.Tensor) -> pb.Tensor:
    dim = _repeated_dim(tuple(plain.shape))
    return plain if dim is None else plain.narrow(dim, 0, 1)

"""Reference kernels of convolutions: one matrix product per position in the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen


class _Parameters:
    """The strides, paddings and dilations of some dims, and the number of groups."""

    def __init__(self, conv_params: tuple[int, ...]) -> None:
        *sizes, self.groups = conv_params
        rank = len(sizes) // 3
        self.stride, self.padding = sizes[:rank], sizes[rank : 2 * rank]
        self.dilation = sizes[2 * rank :]

    def pad(self, image: Array) -> Array:
        """Return a copy with zeros around it."""
        return np.pad(image, [(0, 0), (0, 0), *((p, p) for p in self.padding)])

    def split(self, array: Array) -> Array:
        """Return a view of channels as (groups, channels of a group)."""
        return array.reshape(len(array), self.groups, -1, *array.shape[2:])

    def positions(
        self, padded: Array, kernel: tuple[int, ...], counts: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield each position in the kernel and the view of the elements that it multiplies."""
        for position in itertools.product(*map(range, kernel)):
            spots = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(position, self.dilation, counts, self.stride, strict=True)
            )
            yield position, padded[_last(spots)]


def _last(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index for the last dimensions."""
    return (..., *index)


def conv(
    out: Array, x: Array, weight: Array, bias: Array | None = None, *, conv_params: tuple[int, ...]
) -> None:
    """Convolve."""
    how = _Parameters(conv_params)
    weights = widen(weight).reshape(how.groups, -1, *weight.shape[1:])
    padded = how.split(how.pad(widen(x)))
    total = np.zeros(how.split(out).shape, padded.dtype)
    with np.errstate(all="ignore"):
        for position, part in how.positions(padded, weight.shape[2:], out.shape[2:]):
            total += np.einsum("ngc...,goc->ngo...", part, weights[_last(position)])
        total = total.reshape(out.shape)
        store(out, total if bias is None else total + _by_channel(bias, out))


def conv_backward_input(
    out: Array, x: Array, weight: Array, bias: Array | None = None, *, conv_params: tuple[int, ...]
) -> None:
    """Add each element, weighted, to those that it would be made of."""
    how = _Parameters(conv_params)
    weights = widen(weight).reshape(how.groups, -1, *weight.shape[1:])
    given = how.split(widen(x))
    padded = how.pad(np.zeros(out.shape, given.dtype))
    with np.errstate(all="ignore"):
        for position, part in how.positions(how.split(padded), weight.shape[2:], x.shape[2:]):
            part += np.einsum("ngo...,goc->ngc...", given, weights[_last(position)])
        inside = tuple(slice(p, p + n) for p, n in zip(how.padding, out.shape[2:], strict=True))
        total = padded[_last(inside)]
        store(out, total if bias is None else total + _by_channel(bias, out))


def conv_backward_weight(
    out: Array, x: Array, other: Array, *, conv_params: tuple[int, ...]
) -> None:
    """Sum the products of the elements at each position in the kernel."""
    how = _Parameters(conv_params)
    padded, given = how.split(how.pad(widen(x))), _flat(how.split(widen(other)))
    total = np.zeros((how.groups, out.shape[0] // how.groups, *out.shape[1:]), padded.dtype)
    with np.errstate(all="ignore"):
        for position, part in how.positions(padded, out.shape[2:], other.shape[2:]):
            total[_last(position)] = np.einsum("ngcw,ngow->goc", _flat(part), given)
        store(out, total.reshape(out.shape))


def _flat(windows: Array) -> Array:
    return windows.reshape(*windows.shape[:3], -1)


def _by_channel(bias: Array, out: Array) -> Array:
    return widen(bias).reshape(-1, *[1] * (out.ndim - 2))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "conv": (masks.INEXACT, conv),
    "conv_backward_input": (masks.INEXACT, conv_backward_input),
    "conv_backward_weight": (masks.INEXACT, conv_backward_weight),
}

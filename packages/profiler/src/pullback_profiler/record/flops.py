"""The floating-point operations of an op, from the shapes of its inputs.

A multiplication and an addition count as two, so a product of (m, k) and (k, n) matrices takes
2 m k n, and a convolution 2 for each element of its result and each weight that reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Shape = Sequence[int]


def flops_of(op: str, shapes: Sequence[Any], values: Sequence[Any]) -> int | None:
    """Return the floating-point operations of an op; None where no formula is known.

    ``op`` is the op's name without ``pullback::``; ``shapes`` holds the shape of each argument that
    is a tensor, else None, and ``values`` the other arguments.

    >>> flops_of("mm", [(8, 16), (16, 4)], [None, None])
    1024
    >>> flops_of("add", [(3, 1), (1, 4)], [None, None])
    12
    >>> flops_of("sort", [(3,)], [None]) is None
    True
    """
    formula = _FORMULAS.get(op.removesuffix("_"))
    if formula is None:
        return None
    try:
        return formula(shapes, values)
    except (IndexError, TypeError, ValueError):  # arguments that the formula was not made for
        return None


def _product(first: int) -> Callable[[Sequence[Any], Sequence[Any]], int]:
    """Return the formula of a matrix product whose factors begin at an argument."""

    def formula(shapes: Sequence[Any], values: Sequence[Any]) -> int:
        left, right = shapes[first], shapes[first + 1]
        columns = right[-1] if len(right) > 1 else 1
        rows = left[-2] if len(left) > 1 else 1
        return 2 * rows * left[-1] * columns * math.prod(_broadcast(left[:-2], right[:-2]))

    return formula


def _broadcast(*shapes: Shape) -> list[int]:
    """Return the shape of an elementwise result.

    >>> _broadcast((3, 1), (4,))
    [3, 4]
    """
    ndim = max(map(len, shapes))
    aligned = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    return [max(sizes) if min(sizes) else 0 for sizes in zip(*aligned, strict=True)]


def _elementwise(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    return math.prod(_broadcast(*(shape for shape in shapes[:2] if shape is not None)))


def _linear(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    return 2 * math.prod(shapes[0]) * shapes[1][0]


def _each(value: Any, count: int) -> list[int]:
    """Return a number for each spatial dim: numbers may be given once for all."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [int(v) for v in (list(values) * count if len(values) == 1 else values)]


def _convolution(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    """``conv1d`` to ``conv3d``: input, weight, bias, stride, padding, dilation, groups."""
    images, weight = shapes[0], shapes[1]
    kernel = weight[2:]
    stride, dilation = _each(values[3], len(kernel)), _each(values[5], len(kernel))
    sizes = images[-len(kernel) :]
    out = 1
    for d, size in enumerate(sizes):
        extent = dilation[d] * (kernel[d] - 1)
        if values[4] == "same":
            out *= size
        else:
            padding = 0 if values[4] == "valid" else _each(values[4], len(kernel))[d]
            out *= (size + 2 * padding - extent - 1) // stride[d] + 1
    batch = images[0] if len(images) == len(weight) else 1
    return 2 * batch * out * math.prod(weight)


def _transposed(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    """``conv_transpose1d`` to 3d: each input element times the weights of its channel."""
    images, weight = shapes[0], shapes[1]
    return 2 * math.prod(images) * math.prod(weight[1:])


def _input_gradient(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    """The gradient of a convolution's input: gradient, weight."""
    return 2 * math.prod(shapes[0]) * math.prod(shapes[1][1:])


def _weight_gradient(shapes: Sequence[Any], values: Sequence[Any]) -> int:
    """The gradient of a convolution's weight: input, gradient, kernel's sizes, ..."""
    channels = shapes[0][1] // values[-1]
    return 2 * math.prod(shapes[1]) * channels * math.prod(values[2])


_FORMULAS: dict[str, Callable[[Sequence[Any], Sequence[Any]], int]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "inner", "vdot"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm"), _product(1)),
    **dict.fromkeys(("add", "sub", "mul", "div"), _elementwise),
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    "convolution_backward_input": _input_gradient,
    "convolution_backward_weight": _weight_gradient,
}

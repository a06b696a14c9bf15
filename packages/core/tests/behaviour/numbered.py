"""Tensors whose elements say where they came from."""

import pullback as pb


def counted(*shape, dtype=pb.float64):
    """Return 1, 2, 3, ... in a shape."""
    return (pb.arange(pb.zeros(shape).numel()) + 1).to(dtype).reshape(shape).clone()

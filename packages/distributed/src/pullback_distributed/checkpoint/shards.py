"""What stands in a state dict for a tensor of which each rank has a part."""

from __future__ import annotations

from collections.abc import Sequence

from pullback import Tensor
from pullback_distributed.checkpoint.boxes import Box, is_inside
from pullback_distributed.collectives.buffers import check_tensor


def _whole_numbers(values: Sequence[int], argument: str) -> tuple[int, ...]:
    try:
        found = tuple(value.__index__() for value in values)
    except (AttributeError, TypeError):
        raise TypeError(
            f"Shard: expected whole numbers for `{argument}`, but got {values!r}"
        ) from None
    return found


class Shard:
    """A part of a tensor, with the place that it has there: ``offsets`` in the whole ``shape``.

    ``tensor`` is this rank's part, of any dtype; ``shape`` the whole tensor's shape; ``offsets``
    where the part begins, one number for each dim. An empty part is fine: a dim of 3 on 4 ranks.
    Nothing is copied: ``save`` reads the tensor, ``load`` writes it in place.
    Raises: TypeError for other types; ValueError where the part does not lie in the shape.

    >>> import pullback
    >>> from pullback.distributed.checkpoint import Shard
    >>> Shard(pullback.ones(2, 3), (4, 3), offsets=(2, 0))
    Shard([2:4,0:3] of (4, 3), pullback.float32)
    """

    __slots__ = ("offsets", "shape", "tensor")

    def __init__(self, tensor: Tensor, shape: Sequence[int], offsets: Sequence[int]) -> None:
        check_tensor(tensor, "tensor")
        self.tensor = tensor
        self.shape = _whole_numbers(shape, "shape")
        self.offsets = _whole_numbers(offsets, "offsets")
        if not is_inside(self.box, self.shape):
            raise ValueError(
                f"Shard: a part of shape {tuple(tensor.shape)} at {self.offsets} does not lie in "
                f"the shape {self.shape}"
            )

    @classmethod
    def along(cls, tensor: Tensor, shape: Sequence[int], dim: int, start: int) -> Shard:
        """Return the shard of a tensor that is cut along one dim; the part begins at ``start``.

        Raises: as ``Shard``; IndexError if there is no such dim.

        >>> import pullback
        >>> from pullback.distributed.checkpoint import Shard
        >>> Shard.along(pullback.ones(4, 1), (4, 3), dim=1, start=2)
        Shard([0:4,2:3] of (4, 3), pullback.float32)
        """
        shape = _whole_numbers(shape, "shape")
        (dim,) = _whole_numbers([dim], "dim")
        offsets = [0] * len(shape)
        if not -len(shape) <= dim < len(shape):
            raise IndexError(f"Shard.along: there is no dim {dim} in the shape {shape}")
        offsets[dim] = start
        return cls(tensor, shape, offsets)

    @property
    def box(self) -> Box:
        """Return the part's place and sizes."""
        return Box(self.offsets, tuple(self.tensor.shape))

    def __repr__(self) -> str:
        return f"Shard({self.box.text()} of {self.shape}, {self.tensor.dtype})"

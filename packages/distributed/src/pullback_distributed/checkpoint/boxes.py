"""Parts of a tensor: where they begin in each dim, and their sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pullback import Tensor


class Box(NamedTuple):
    """A part of a tensor, with as many offsets and sizes as the tensor has dims."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.sizes)

    def text(self) -> str:
        """Return what an index would look like, such as ``[0:2,4:8]``."""
        pairs = zip(self.offsets, self.sizes, strict=True)
        return "[" + ",".join(f"{offset}:{offset + size}" for offset, size in pairs) + "]"


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all elements."""
    return Box((0,) * len(shape), tuple(shape))


def common(one: Box, other: Box) -> Box | None:
    """Return the elements that two boxes have in common, None if there are none."""
    starts = tuple(max(a, b) for a, b in zip(one.offsets, other.offsets, strict=True))
    stops = [
        min(a + m, b + n)
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    ]
    sizes = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
    return Box(starts, sizes) if all(size > 0 for size in sizes) else None


def part_of(tensor: Tensor, outer: Box, inner: Box) -> Tensor:
    """Return a view of a tensor that has the elements of ``outer``: those of ``inner``."""
    if outer == inner:
        return tensor
    starts = [a - b for a, b in zip(inner.offsets, outer.offsets, strict=True)]
    return tensor[
        tuple(slice(start, start + n) for start, n in zip(starts, inner.sizes, strict=True))
    ]


def is_inside(box: Box, shape: Sequence[int]) -> bool:
    """Return whether a box has the dims of a shape, and no element outside of it."""
    return len(box.offsets) == len(box.sizes) == len(shape) and all(
        offset >= 0 and size >= 0 and offset + size <= n
        for offset, size, n in zip(box.offsets, box.sizes, shape, strict=True)
    )


def overlapping(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """Return two of the boxes, none of them empty, that have elements in common; else None."""
    if len(boxes) < 2 or not boxes[0].offsets:
        return (boxes[0], boxes[1]) if len(boxes) > 1 else None
    dims = range(len(boxes[0].offsets))
    dim = max(dims, key=lambda k: len({box.offsets[k] for box in boxes}))
    ordered = sorted(boxes, key=lambda box: box.offsets[dim])
    for place, box in enumerate(ordered):
        stop = box.offsets[dim] + box.sizes[dim]
        for k in range(place + 1, len(ordered)):
            if ordered[k].offsets[dim] >= stop:
                break
            if common(box, ordered[k]) is not None:
                return box, ordered[k]
    return None


def flaw(shape: Sequence[int], boxes: Sequence[Box]) -> str | None:
    """Return what is wrong if boxes do not cover a tensor, each element once; else None."""
    for box in boxes:
        if not is_inside(box, shape):
            return f"the part {box.text()} does not lie in the shape {tuple(shape)}"
    pair = overlapping(boxes)
    if pair is not None:
        return f"the parts {pair[0].text()} and {pair[1].text()} overlap"
    count, total = sum(box.numel() for box in boxes), math.prod(shape)
    if count != total:
        return f"its parts have {count} of the {total} elements of the shape {tuple(shape)}"
    return None

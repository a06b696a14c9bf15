"""Decompositions of pooling.

Windows are searched and added up one dim after the other: one of k x k costs 2 k passes, not k * k.
"""

import math
from collections import namedtuple
from typing import Any

from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, put
from pullback.ops.table.schema import ops

# The windows of one dim: `count` of them, each of `kernel` elements `dilation` apart, the first one
# beginning `pad` before the dim. Those of adaptive pooling are a list of (start, end).
Slide = namedtuple("Slide", "count kernel stride pad dilation")


def windows_by_dim(sizes, counts, window_params):
    """Return the windows of each dim, from the parameters of the primitives."""
    rank = len(sizes)
    return [
        Slide(count, *window_params[dim::rank])
        if window_params[dim]
        else [(number * size // count, -(-(number + 1) * size // count)) for number in range(count)]
        for dim, (size, count) in enumerate(zip(sizes, counts))
    ]


def _every(self, dim, start, count, step):
    return ops.slice(self, dim, start, start + (count - 1) * step + 1, step)


# -- the largest element ---------------------------------------------------------------------------


def _better(value, best):
    """The first of equal elements stays, but the last NaN wins."""
    return (value > best) | (value != value) if value.dtype.is_floating_point else value > best


def _lowest(dtype):
    import pullback

    return -math.inf if dtype.is_floating_point else pullback.iinfo(dtype).min


def _select(self, dim, index):
    import pullback

    return ops.index_select(
        self, dim, pullback.tensor(index, dtype=pullback.int64, device=self.device)
    )


def _along(like, dim, shape, numbers, dtype):
    """Return numbers along a dim of a shape, written out: mixed strides would slow comparisons."""
    import pullback

    line = pullback.tensor(numbers, dtype=dtype, device=like.device)
    return put(
        new_empty(like, shape, dtype),
        line.reshape((-1, *[1] * (len(shape) - dim - 1))).expand(shape),
    )


def _pick(found, state):
    """Take each part of what was found where its first part, the value, is better."""
    if state is None:
        return found
    better = _better(found[0], state[0])
    return [ops.where(better, new, old) for new, old in zip(found, state)]


def _with_ends(parts, dim, slide):
    """Return the parts with positions before and after a dim, so that every window is inside.

    There the values are the lowest. Before the dim the other parts are those of the first element
    that a window beginning there has inside, because they stay if no value is above the lowest.
    """
    size = parts[0].shape[dim]
    last = (slide.count - 1) * slide.stride - slide.pad + (slide.kernel - 1) * slide.dilation
    grown: list[Any] = []
    for part in parts:
        shape = (*part.shape[:dim], slide.pad + max(size, last + 1), *part.shape[dim + 1 :])
        wide = new_filled(part, shape, 0 if grown else _lowest(part.dtype))
        put(ops.narrow(wide, dim, slide.pad, size), part)
        for before in range(1, slide.pad + 1 if grown else 1):
            put(
                ops.narrow(wide, dim, slide.pad - before, 1),
                ops.narrow(part, dim, min(-before % slide.dilation, size - 1), 1),
            )
        grown.append(wide)
    return grown


def _first_inside(slide, size):
    """Return the number, in its window, of the first element inside the dim."""
    starts = [number * slide.stride - slide.pad for number in range(slide.count)]
    firsts = [max(-(start // slide.dilation), 0) for start in starts]
    return [
        first
        if start + first * slide.dilation < size
        else max((size - 1 - start) // slide.dilation, 0)
        for start, first in zip(starts, firsts)
    ]


def _max_slide(parts, dim, slide, kind):
    """Return the largest values of sliding windows along a dim.

    `parts` are the values and, of each dim done before, the number of the chosen element in its
    window. The result has one part more: the numbers of this dim.
    """
    size, state = parts[0].shape[dim], None
    last = (slide.count - 1) * slide.stride - slide.pad + (slide.kernel - 1) * slide.dilation
    inside = slide.pad == 0 and last < size
    parts = parts if inside else _with_ends(parts, dim, slide)
    for number in range(slide.kernel):
        found = [
            _every(part, dim, number * slide.dilation, slide.count, slide.stride).contiguous()
            for part in parts
        ]
        shape = found[0].shape
        if number == 0 and not inside:
            found.append(_along(found[0], dim, shape, _first_inside(slide, size), kind))
        else:
            found.append(new_filled(found[0], shape, number, kind))
        state = _pick(found, state)
    return state


def _max_spans(parts, dim, spans, kind):
    """As _max_slide, of windows (start, end); shorter ones see their last element again."""
    state = None
    for number in range(max([end - start for start, end in spans], default=1)):
        numbers = [min(number, end - start - 1) for start, end in spans]
        index = [start + own for (start, _), own in zip(spans, numbers)]
        found = [_select(part, dim, index) for part in parts]
        state = _pick([*found, _along(found[0], dim, found[0].shape, numbers, kind)], state)
    return state


def _positions(numbers, windows, sizes, dtype):
    """Turn the numbers of the chosen elements into one index into the plane."""
    import pullback

    index = None
    for dim, (number, window, size) in enumerate(zip(numbers, windows, sizes)):
        slide = isinstance(window, Slide)
        starts = (
            [n * window.stride - window.pad for n in range(window.count)]
            if slide
            else [start for start, _ in window]
        )
        line = pullback.tensor(starts, dtype=dtype, device=number.device)
        line = line.reshape((-1, *[1] * (len(sizes) - dim - 1)))
        position = number.to(dtype)
        if slide and window.dilation > 1:
            position = position * window.dilation
        position = position + line
        if slide and window.pad and window.dilation > 1:
            position = ops.clamp(position, 0, size - 1)  # a window may have no element inside
        index = position if index is None else index * size + position
    return index


@decomposition("max_pool")
def composed_max(self, spec, node):
    import pullback

    (shape, _), _, (window_params,) = spec
    rank = len(window_params) // 4
    sizes, counts = self.shape[self.ndim - rank :], shape[self.ndim - rank :]
    values, found = new_empty(self, shape), new_empty(self, shape, pullback.int64)
    if not values.numel():
        return values, found
    windows = windows_by_dim(sizes, counts, window_params)
    longest = max(max(window_params[:rank]), *(n // m + 2 for n, m in zip(sizes, counts)))
    kind = pullback.uint8 if longest < 256 else pullback.int32
    parts = [self]
    for dim, window in reversed(list(enumerate(windows, self.ndim - rank))):
        run = _max_slide if isinstance(window, Slide) else _max_spans
        parts = run(parts, dim, window, kind)
    best, *numbers = parts
    return put(values, best), put(found, _positions(numbers[::-1], windows, sizes, pullback.int64))


# -- the mean --------------------------------------------------------------------------------------


def _window_position(slide, number, size):
    """Return which windows have an element at this position inside the dim, and the first one's."""
    offset = number - slide.pad
    low = max(-(offset // slide.stride), 0)
    high = min((size - 1 - offset) // slide.stride, slide.count - 1)
    return low, high - low + 1, low * slide.stride + offset


def _clipped(window, size, more=0):
    """Return windows as (start, end) inside the dim and `more` positions of padding."""
    if not isinstance(window, Slide):
        return window
    starts = [number * window.stride - window.pad for number in range(window.count)]
    return [(max(start, -more), min(start + window.kernel, size + more)) for start in starts]


def _sum_along(self, dim, window):
    """Add the elements of each window: by position in it, or by window if there are fewer."""
    size = self.shape[dim]
    if isinstance(window, Slide) and window.kernel <= window.count:
        out = new_filled(self, (*self.shape[:dim], window.count, *self.shape[dim + 1 :]))
        for number in range(window.kernel):
            low, count, start = _window_position(window, number, size)
            if count > 0:
                ops.narrow(out, dim, low, count).add_(
                    _every(self, dim, start, count, window.stride)
                )
        return out
    spans = _clipped(window, size)
    out = new_empty(self, (*self.shape[:dim], len(spans), *self.shape[dim + 1 :]))
    for number, (start, end) in enumerate(spans):
        put(
            ops.narrow(out, dim, number, 1),
            ops.sum(ops.narrow(self, dim, start, end - start), dim, True),
        )
    return out


def _spread_along(self, dim, window, size):
    """Add each element to all of its window: the derivative of _sum_along."""
    out = new_filled(self, (*self.shape[:dim], size, *self.shape[dim + 1 :]))
    if isinstance(window, Slide) and window.kernel <= window.count:
        for number in range(window.kernel):
            low, count, start = _window_position(window, number, size)
            if count > 0:
                _every(out, dim, start, count, window.stride).add_(
                    ops.narrow(self, dim, low, count)
                )
        return out
    for number, (start, end) in enumerate(_clipped(window, size)):
        ops.narrow(out, dim, start, end - start).add_(ops.narrow(self, dim, number, 1))
    return out


def _divided(self, windows, sizes, padded, divisor):
    """Divide by a given number, or by how many positions each window has."""
    import pullback

    if divisor:
        return _quotient(self, divisor)
    areas = [
        [
            end - start
            for start, end in _clipped(
                window, size, window.pad if padded and isinstance(window, Slide) else 0
            )
        ]
        for window, size in zip(windows, sizes)
    ]
    area = 1
    for dim, lengths in enumerate(areas):
        shape = [1] * len(areas)
        shape[dim] = len(lengths)
        area = pullback.tensor(lengths, dtype=self.dtype, device=self.device).reshape(shape) * area
    return _quotient(self, area)


def _quotient(self, divisor):
    """Integers are divided as C does it, towards 0."""
    if self.dtype.is_floating_point:
        return self / divisor
    negative = (
        (self < 0) ^ (divisor < 0) if hasattr(divisor, "shape") or divisor >= 0 else (self >= 0)
    )
    size = ops.floor_divide(ops.abs(self), abs(divisor))
    return ops.where(negative, -size, size)


@decomposition("avg_pool")
def composed_mean(self, spec, node):
    (shape,), _, (window_params, padded, divisor) = spec
    rank = len(window_params) // 4
    sizes, counts = self.shape[self.ndim - rank :], shape[self.ndim - rank :]
    windows, out = windows_by_dim(sizes, counts, window_params), self
    for dim, window in reversed(list(enumerate(windows, self.ndim - rank))):
        out = _sum_along(out, dim, window)
    return _divided(out, windows, sizes, padded, divisor)


@decomposition("avg_pool_backward")
def composed_avg_pool_backward(self, spec, node):
    (shape,), _, (window_params, padded, divisor) = spec
    sizes = shape[self.ndim - len(window_params) // 4 :]
    windows = windows_by_dim(sizes, self.shape[self.ndim - len(sizes) :], window_params)
    out = _divided(self, windows, sizes, padded, divisor)
    for dim, (window, size) in enumerate(zip(windows, sizes), self.ndim - len(sizes)):
        out = _spread_along(out, dim, window, size)
    return out

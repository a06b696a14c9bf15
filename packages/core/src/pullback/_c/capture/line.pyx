# build: small
"""Sizes of calls between two recorded ones.

Two calls are alike but for sizes. One of those, where they first differ, is the size of the call;
every other number of a call between them is found by linear interpolation, and must be whole.
Strides that are products of sizes are computed from these, and numbers of elements may go with the
square of the size. Why that is right is explained in compiler/sizes.py.
"""

from libc.stdint cimport int64_t

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.base.types cimport layout_shape, layout_strides, pb_layout
from pullback._c.capture.signature cimport Signature
from pullback._c.capture.spec cimport (
    SPEC_DICT, SPEC_FIELDS, SPEC_LIST, SPEC_OBJECT, SPEC_TENSOR, SPEC_TUPLE, SPEC_VALUE, Spec,
    same_attributes,
    same_value)

__all__ = ["Line", "layout_between", "line_between", "same_but_sizes"]

cdef object WIDE = 1 << 62              # greater numbers are not interpolated


# ---- arguments -----------------------------------------------------------------------------------

cdef class Line:
    """The size of a call, ``at``, and those of two calls, ``low`` and ``high``.

    A size below 2 is on no line, since dims of one element are broadcast. ``exact``: nothing may
    differ.
    """
    def __init__(self, int64_t low=0, int64_t high=0, int64_t at=0):
        self.low, self.high, self.at = low, high, at

    cdef bint number(self, int64_t low, int64_t high, int64_t *found) noexcept:
        """Interpolate a number; false if the result is not whole."""
        cdef int64_t span = self.high - self.low, part = self.at - self.low
        cdef int64_t change = high - low
        if change == 0 or self.exact:
            found[0] = low
            return change == 0
        if span == 0:               # no size differs
            return False
        if change > (<int64_t>1 << 62) // span or -change > (<int64_t>1 << 62) // span:
            return False
        if change * part % span != 0:
            return False
        found[0] = low + change * part // span
        return True

    cdef bint extent(self, int64_t low, int64_t high, int64_t *found) noexcept:
        """Interpolate a number of elements, which may be proportional to the size's square."""
        cdef int64_t factor
        if low != high and self.low > 0 and not self.exact and self.high < 1 << 31 and (
                low % (self.low * self.low) == 0):
            factor = low // (self.low * self.low)
            if factor <= (<int64_t>1 << 62) // (self.high * self.high) and (
                    high == factor * self.high * self.high):
                found[0] = factor * self.at * self.at
                return True
        return self.number(low, high, found)

    cdef bint size(self, int64_t low, int64_t high, int64_t at) noexcept:
        """Return whether a size of the call is on the line. The first that differs sets it."""
        cdef int64_t found
        if low == high:
            return at == low
        if low < 2 or high < 2:
            return False
        if self.high == 0:
            self.low, self.high, self.at = low, high, at
            return low < high
        return self.number(low, high, &found) and found == at

    def value(self, low, high):
        """Interpolate an int; None if the result is not whole, or if the two are no ints."""
        cdef int64_t found
        if type(low) is not int or type(high) is not int:
            return low if low is high else None
        if low == high:
            return low
        if not (-WIDE < low < WIDE and -WIDE < high < WIDE):
            return None
        return found if self.number(low, high, &found) else None


cdef bint on_line(Spec low, Spec high, Spec at, Line line):
    """True if arguments are alike but for sizes, which are on a line."""
    cdef int d
    if low.kind != high.kind or low.kind != at.kind or (
            low.type is not high.type or low.type is not at.type):
        return False
    if low.kind == SPEC_TENSOR:
        if not (like(low, high) and like(low, at)):
            return False
        for d in range(low.layout.ndim):
            if not line.size(layout_shape(low.layout)[d], layout_shape(high.layout)[d],
                             layout_shape(at.layout)[d]):
                return False
        return strides_on_line(low.layout, high.layout, at.layout, line)
    if low.kind == SPEC_VALUE:
        return same_value(low.value, high.value) and same_value(low.value, at.value)
    if low.kind == SPEC_OBJECT:
        return low.value is high.value and low.value is at.value
    if low.kind not in (SPEC_TUPLE, SPEC_LIST, SPEC_DICT, SPEC_FIELDS):
        return False
    if len(low.items) != len(high.items) or len(low.items) != len(at.items) or (
            low.keys != high.keys or low.keys != at.keys):
        return False
    for one, other, third in zip(low.items, high.items, at.items):
        if not on_line(one, other, third, line):
            return False
    return True


cdef bint like(Spec one, Spec other) except -1:
    return (one.dtype == other.dtype and one.device == other.device and one.flags == other.flags
            and one.requires_grad == other.requires_grad and one.is_leaf == other.is_leaf
            and one.layout.ndim == other.layout.ndim
            and same_attributes(one.attributes, other.attributes))


cdef bint strides_on_line(pb_layout *low, pb_layout *high, pb_layout *at, Line line) noexcept:
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int d
    if not strides_between(line, low.ndim, layout_shape(low), layout_strides(low),
                           layout_shape(high), layout_strides(high), layout_shape(at), strides):
        return False
    for d in range(low.ndim):
        if strides[d] != layout_strides(at)[d]:
            return False
    return True


cdef bint same_modes(Signature one, Signature other):
    return (one.grad_enabled == other.grad_enabled and one.inference == other.inference
            and one.layout_policy == other.layout_policy and one.dtype == other.dtype
            and one.autocast == other.autocast and one.aliases == other.aliases)


def line_between(Signature low not None, Signature high not None, Signature at not None):
    """Return the line on which a call is between two calls, with its size; None if it is on none.
    """
    cdef Line line = Line()
    cdef int64_t found
    if not (same_modes(low, high) and same_modes(low, at) and on_line(low.args, high.args, at.args,
                                                                      line)
            and on_line(low.kwargs, high.kwargs, at.kwargs, line)):
        return None
    if not line.low < line.at < line.high:
        return None
    for one, other, third in zip(low.distances, high.distances, at.distances):
        if not line.number(one, other, &found) or found != third:
            return None
    return line


def same_but_sizes(Signature one not None, Signature other not None):
    """Return the sizes of two calls, the first that differ; None if they differ in more, or not.
    """
    cdef Line line = Line()
    if not same_modes(one, other):
        return None
    if on_line(one.args, other.args, other.args, line) and (
            on_line(one.kwargs, other.kwargs, other.kwargs, line)) and line.high:
        return line.low, line.high
    line = Line()
    if on_line(other.args, one.args, one.args, line) and (
            on_line(other.kwargs, one.kwargs, one.kwargs, line)) and line.high:
        return line.high, line.low
    return None


# ---- shapes and strides --------------------------------------------------------------------------

cdef bint strides_between(
        Line line, int ndim, const int64_t *low_shape, const int64_t *low,
        const int64_t *high_shape, const int64_t *high, const int64_t *shape,
        int64_t *found) noexcept:
    """Set strides for a shape between two; false if they are on no line.

    A stride that is another one times its dim's size, in both, is that in between, too.
    """
    cdef bint known[PB_MAX_NDIM]
    cdef int d, e, left = ndim, before = ndim + 1
    for d in range(ndim):
        known[d] = low[d] == high[d]
        if known[d]:
            found[d] = low[d]
            left -= 1
    while 0 < left < before:
        before = left
        for d in range(ndim):
            if known[d]:
                continue
            for e in range(ndim):
                if known[e] and low[e] != 0 and low[d] == low[e] * low_shape[e] and (
                        high[d] == high[e] * high_shape[e]):
                    found[d] = found[e] * shape[e]
                    known[d] = True
                    left -= 1
                    break
    for d in range(ndim):
        if not known[d] and not line.extent(low[d], high[d], &found[d]):
            return False
    return True


cdef bint sizes_between(Line line, int count, const int64_t *low, const int64_t *high,
                        int64_t *found) noexcept:
    cdef int d
    for d in range(count):
        if not line.extent(low[d], high[d], &found[d]):
            return False
    return True


def layout_between(tuple low not None, tuple high not None, Line line not None):
    """Return the (shape, strides) between two such pairs; None if there are none."""
    cdef int64_t numbers[4][PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int d, row = 0, ndim = <int>len(low[0])
    for dims in (*low, *high):
        if len(dims) != ndim:
            return None
        for d in range(ndim):
            numbers[row][d] = dims[d]
        row += 1
    if not sizes_between(line, ndim, numbers[0], numbers[2], shape) or not strides_between(
            line, ndim, numbers[0], numbers[1], numbers[2], numbers[3], shape, strides):
        return None
    return tuple([shape[d] for d in range(ndim)]), tuple([strides[d] for d in range(ndim)])

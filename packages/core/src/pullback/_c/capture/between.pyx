# build: small
"""Recordings of calls with sizes between those of two recorded calls.

Two calls are alike but for sizes. One of those, where they first differ, is the size of the call;
every other number of a call between them is found by linear interpolation, and must be whole.
Strides that are products of sizes are computed from these, and numbers of elements may go with the
square of the size. Why that is right is explained in
compiler/sizes.py.
"""

from fractions import Fraction

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_F32, PB_F64, PB_I64, PB_MAX_NDIM, PB_PARAM_INTS, PB_U8, pb_array,
    pb_param)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.layout cimport (
    layout_contiguous, layout_extent, layout_new, layout_release)
from pullback._c.base.types cimport layout_shape, layout_strides, pb_layout
from pullback._c.capture.recording cimport Recording, copy_of
from pullback._c.capture.signature cimport (
    SPEC_DICT, SPEC_LIST, SPEC_OBJECT, SPEC_TENSOR, SPEC_TUPLE, SPEC_VALUE, Signature, Spec,
    same_value)
from pullback._c.device.device cimport device_type
from pullback._c.program.launches cimport BUFFER_INPUT, BUFFER_OUTER, Buffer, Launch
from pullback._c.program.program cimport Outer, Result
from pullback._c.program.run_values cimport Option

__all__ = [
    "Line", "between", "decisions", "difference", "layout_between", "line_between",
    "same_but_sizes"]


cdef object WIDE = 1 << 62              # greater numbers are not interpolated


# ---- arguments -----------------------------------------------------------------------------------

cdef class Line:
    """The size of a call, ``at``, and those of two calls, ``low`` and ``high``.

    A size below 2 is on no line, since dims of one element are broadcast. ``exact``: nothing may
    differ.
    """
    cdef readonly int64_t low, high, at
    cdef bint exact

    def __init__(self, int64_t low=0, int64_t high=0, int64_t at=0):
        self.low, self.high, self.at = low, high, at

    cdef bint number(self, int64_t low, int64_t high, int64_t *found) noexcept:
        """Interpolate a number; false if the result is not whole."""
        cdef int64_t span = self.high - self.low, part = self.at - self.low
        cdef int64_t change = high - low
        if change == 0 or self.exact:
            found[0] = low
            return change == 0
        if change > (<int64_t>1 << 62) // span or -change > (<int64_t>1 << 62) // span:
            return False
        if change * part % span != 0:
            return False
        found[0] = low + change * part // span
        return True

    cdef bint extent(self, int64_t low, int64_t high, int64_t *found) noexcept:
        """Interpolate a number of elements, which may be proportional to the size's square."""
        cdef int64_t factor
        if low != high and not self.exact and self.high < 1 << 31 and (
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
    if low.kind not in (SPEC_TUPLE, SPEC_LIST, SPEC_DICT):
        return False
    if len(low.items) != len(high.items) or len(low.items) != len(at.items) or (
            low.keys != high.keys or low.keys != at.keys):
        return False
    for one, other, third in zip(low.items, high.items, at.items):
        if not on_line(one, other, third, line):
            return False
    return True


cdef bint like(Spec one, Spec other) noexcept:
    return (one.dtype == other.dtype and one.device == other.device and one.flags == other.flags
            and one.requires_grad == other.requires_grad
            and one.layout.ndim == other.layout.ndim)


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


# ---- recordings ----------------------------------------------------------------------------------

def between(Recording low not None, Recording high not None, Line line not None):
    """Return a recording of a call on a line between two; a str says why there is none."""
    cdef Recording made = Recording.__new__(Recording)
    cdef Launch one, other
    cdef Buffer buffer, another
    cdef int number = 0
    if len(low.launches) != len(high.launches) or len(low.buffers) != len(high.buffers):
        return "how many kernels run"
    if len(low.results) != len(high.results) or len(low.draws) != len(high.draws) or (
            len(low.begins) != len(high.begins)) or low.reads_options != high.reads_options:
        return "what the function returns"
    if not same_outers(low.outers, high.outers):
        return "what the function writes to"
    made.begins = [0] * len(low.begins)
    made.outers = high.outers
    made.reads_options = high.reads_options
    made.buffers, made.launches, made.results, made.draws = [], [], [], []
    for buffer, another in zip(low.buffers, high.buffers):
        if not same_memory(buffer, another):
            return f"which memory is {buffer!r}"
        buffer = copy_of(another)
        buffer.nbytes = 0 if is_made(another) else another.nbytes
        made.buffers.append(buffer)
    for one, other in zip(low.launches, high.launches):
        found = launch_between(one, other, low, high, line)
        if type(found) is str:
            return f"kernel {number}, {one.primitive}: {found}"
        if not note_extents(<Launch>found, made.buffers):
            return f"kernel {number}, {one.primitive}: memory that is too small"
        made.launches.append(found)
        number += 1
    for (generator, blocks), (another_generator, more) in zip(low.draws, high.draws):
        drawn = line.value(blocks, more)
        if generator is not another_generator or drawn is None:
            return "how many random numbers it draws"
        made.draws.append((generator, drawn))
    for item, another_item in zip(low.results, high.results):
        found = result_between(item, another_item, low, high, line, made.buffers)
        if found is NotImplemented:
            return f"result {len(made.results)}"
        made.results.append(found)
    for buffer, another in zip(low.buffers, high.buffers):
        size = line.value(buffer.nbytes, another.nbytes)
        if is_made(buffer) and size is not None:    # else what its operands need
            buffer = <Buffer>made.buffers[buffer.number]
            buffer.nbytes = max(<int64_t>size, buffer.nbytes)
    for number, item in enumerate(low.results):
        if is_whole(item, low) and is_whole(high.results[number], high):
            fill_whole(<Result>made.results[number], made)
    return made


cdef bint is_made(Buffer buffer) noexcept:
    return buffer.kind not in (BUFFER_INPUT, BUFFER_OUTER) and buffer.storage == NULL


cdef bint same_memory(Buffer one, Buffer other) noexcept:
    """True if two buffers are alike, but for the bytes of what a program makes."""
    if one.kind != other.kind or one.input != other.input or one.written != other.written or (
            one.device_type != other.device_type or one.device_index != other.device_index):
        return False
    if one.kind == BUFFER_INPUT or one.storage == NULL or other.storage == NULL:
        return one.storage == other.storage
    if one.kind == BUFFER_OUTER:
        return one.storage == other.storage
    return one.nbytes == other.nbytes and one.storage.nbytes == other.storage.nbytes and (
        same_bytes(one, other))


cdef bint same_bytes(Buffer one, Buffer other) noexcept:
    """True if two constants of the host are equal; those of other devices are not compared."""
    return device_type(one.device_type).host and (
        memcmp(one.storage.data, other.storage.data, one.storage.nbytes) == 0)


cdef bint same_outers(list one, list other):
    cdef Outer a, b
    if len(one) != len(other):
        return False
    for a, b in zip(one, other):
        if a.storage != b.storage or a.storage == NULL and a.input != b.input or (
                a.writes != b.writes):
            return False
    return True


cdef object launch_between(Launch low, Launch high, Recording first, Recording last, Line line):
    """Return a launch between two; a str says why there is none."""
    cdef Launch made
    cdef pb_array *one
    cdef pb_array *other
    cdef pb_array *array
    cdef int i, count = low.call.nout + low.call.nin
    if low.call.primitive != high.call.primitive or low.type_id != high.type_id or (
            low.key != high.key or low.call.nout != high.call.nout
            or low.call.nin != high.call.nin or low.call.nparam != high.call.nparam
            or low.call.device != high.call.device or low.expected is not high.expected
            or low.draw != high.draw or not same_errors(low.error, high.error)
            or not same_options(low.options, high.options)):
        return f"{high.primitive} there"
    for i in range(count):
        one, other = &low.arrays[i], &high.arrays[i]
        if low.buffers[i] != high.buffers[i] or one.dtype != other.dtype or (
                one.flags != other.flags or one.device != other.device or one.ndim != other.ndim
                or (one.base == NULL) != (other.base == NULL)):
            return f"operand {i} of another kind"
    made = high.copy()
    made.work = low.work + <int64_t>(
        (high.work - low.work) * (<double>(line.at - line.low) / (line.high - line.low)))
    for i in range(count):
        one, other, array = &low.arrays[i], &high.arrays[i], &made.arrays[i]
        if not sizes_between(line, array.ndim, one.shape, other.shape, <int64_t *>array.shape) or (
                not strides_between(line, array.ndim, one.shape, one.strides, other.shape,
                                    other.strides, array.shape, <int64_t *>array.strides)):
            return f"the shape of operand {i}"
        if array.flags & PB_ARRAY_HOST:
            if not number_between(line, one, other, array):
                return "a number"
            continue
        if not line.number(low.shifts[i] - begin_of(low, i, first),
                           high.shifts[i] - begin_of(high, i, last), &made.shifts[i]):
            return f"where operand {i} begins"
    if not line.number(low.draw_shift, high.draw_shift, &made.draw_shift):
        return "which random numbers it takes"
    for i in range(low.call.nparam):
        if low.draw >= 0 and (i == low.seed or i == low.offset) or is_option(high, i):
            continue
        if not param_between(line, &low.call.param[i], &high.call.param[i],
                             <pb_param *>&made.call.param[i]):
            return f"parameter {i}"
    return made


cdef inline int64_t begin_of(Launch launch, int i, Recording recording) except? -1:
    """Return where the argument that an operand is in begins, in bytes; 0 for other operands."""
    cdef Buffer buffer
    if launch.buffers[i] < 0:
        return 0
    buffer = <Buffer>recording.buffers[launch.buffers[i]]
    return <int64_t>recording.begins[buffer.input] if buffer.kind == BUFFER_INPUT else 0


cdef bint same_errors(object one, object other):
    return one is other or type(one) is type(other) and one.args == other.args


cdef bint same_options(list one, list other):
    cdef Option a, b
    if one is None or other is None or len(one) != len(other):
        return one is other
    for (i, a), (k, b) in zip(one, other):
        if i != k or a.group is not b.group or a.key != b.key or a.item != b.item:
            return False
    return True


cdef bint is_option(Launch launch, int number):
    return launch.options is not None and any([i == number for i, _ in launch.options])


cdef bint number_between(Line line, pb_array *low, pb_array *high, pb_array *found) except -1:
    """Interpolate a number of the host: one that is the same in both, whole, or a quotient."""
    cdef double exact
    if memcmp(low.data, high.data, dtype_itemsize[low.dtype]) == 0:
        return True
    if low.dtype == PB_I64:
        return line.number((<int64_t *>low.data)[0], (<int64_t *>high.data)[0],
                           <int64_t *>found.data)
    if low.dtype == PB_F64:
        return double_between(line, (<double *>low.data)[0], (<double *>high.data)[0], False,
                              <double *>found.data)
    if low.dtype == PB_F32:
        if not double_between(line, (<float *>low.data)[0], (<float *>high.data)[0], True, &exact):
            return False
        (<float *>found.data)[0] = <float>exact
        return True
    return False


cdef bint double_between(Line line, double low, double high, bint single, double *found) except -1:
    """Interpolate numbers that are whole, or quotients of such; ``single``: of 24 bits."""
    cdef int64_t value
    cdef double limit = 1 << 24 if single else 1e15
    if -limit < low < limit and -limit < high < limit and low == <int64_t>low and (
            high == <int64_t>high):
        if not line.number(<int64_t>low, <int64_t>high, &value):
            return False
        found[0] = <double>value
        return True
    for terms in (doubled_reciprocal, quotient):
        one, other = terms(low, single), terms(high, single)
        if one is not None and other is not None:
            above, below = line.value(one[0], other[0]), line.value(one[1], other[1])
            if above is not None and below:
                found[0] = <double>above / <double>below
                return True
    return False


def rounded(double value, bint single):
    """Return a number as it is kept."""
    return <double><float>value if single else value


def doubled_reciprocal(double value, bint single):
    """Return (2, n) for 2 / n, so for 1 / n too; None for other numbers."""
    if not 1e-12 < value < 4:
        return None
    below = round(2 / value)
    return (2, below) if rounded(2.0 / below, single) == value else None


def quotient(double value, bint single):
    """Return the terms of a quotient of two small ints; None for other numbers."""
    if not -1e12 < value < 1e12:
        return None
    found = Fraction(value).limit_denominator(1 << 11 if single else 1 << 20)
    if rounded(found.numerator / found.denominator, single) != value:
        return None
    return found.numerator, found.denominator


cdef bint param_between(Line line, const pb_param *low, const pb_param *high,
                        pb_param *found) except -1:
    if low.kind != high.kind:
        return False
    if low.kind == PB_PARAM_INTS:
        return low.count == high.count and sizes_between(
            line, low.count, low.ints, high.ints, <int64_t *>found.ints)
    if not line.number(low.i, high.i, &found.i):
        return False
    return memcmp(&low.d, &high.d, sizeof(double)) == 0 or (
        double_between(line, low.d, high.d, False, &found.d))


cdef bint note_extents(Launch launch, list buffers) except -1:
    """Let buffers that a program makes have the bytes that a launch's operands need.

    False if another buffer has too few.
    """
    cdef pb_array *array
    cdef int64_t high
    cdef int i, d
    for i in range(launch.call.nout + launch.call.nin):
        array = &launch.arrays[i]
        if launch.buffers[i] < 0:
            continue
        high = 0
        for d in range(array.ndim):
            if array.strides[d] > 0:
                high += (array.shape[d] - 1) * array.strides[d]
        if not note_end(<Buffer>buffers[launch.buffers[i]],
                        launch.shifts[i] + (high + 1) * dtype_itemsize[array.dtype]):
            return False
    return True


cdef bint note_end(Buffer buffer, int64_t end) noexcept:
    if is_made(buffer):
        buffer.nbytes = max(buffer.nbytes, end)
    return buffer.kind == BUFFER_INPUT or end <= buffer.nbytes


cdef object result_between(object low, object high, Recording first, Recording last, Line line,
                           list buffers):
    """Return a result between two; NotImplemented if there is none."""
    cdef Result one, other, made
    cdef Buffer buffer
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t begin = 0, end = 0, low_end
    if type(low) is not Result or type(high) is not Result:
        if low is high or type(low) is not Result and same_value(low, high):
            return high
        return NotImplemented
    one, other = <Result>low, <Result>high
    if one.buffer != other.buffer or one.dtype != other.dtype or one.flags != other.flags or (
            one.device_type != other.device_type or one.device_index != other.device_index
            or one.layout.ndim != other.layout.ndim):
        return NotImplemented
    if is_whole(low, first) and is_whole(high, last):
        shape[0], strides[0] = 0, 1     # until its buffer's bytes are known
    elif not sizes_between(line, one.layout.ndim, layout_shape(one.layout),
                           layout_shape(other.layout), shape) or not strides_between(
            line, one.layout.ndim, layout_shape(one.layout), layout_strides(one.layout),
            layout_shape(other.layout), layout_strides(other.layout), shape, strides):
        return NotImplemented
    made = Result.__new__(Result)
    made.buffer = other.buffer
    made.dtype = other.dtype
    made.flags = other.flags
    made.device_type = other.device_type
    made.device_index = other.device_index
    made.layout = layout_new(one.layout.ndim, shape, strides)
    if one.buffer >= 0:
        buffer = <Buffer>first.buffers[one.buffer]
        if buffer.kind == BUFFER_INPUT:
            begin = <int64_t>first.begins[buffer.input] // dtype_itemsize[one.dtype]
            end = <int64_t>last.begins[buffer.input] // dtype_itemsize[one.dtype]
    if not line.number(one.offset - begin, other.offset - end, &made.offset):
        return NotImplemented
    if made.buffer >= 0:
        end = layout_extent(made.layout, &low_end)
        if not note_end(<Buffer>buffers[made.buffer],
                        (made.offset + end + 1) * dtype_itemsize[made.dtype]):
            return NotImplemented
    return made


cdef bint is_whole(object item, Recording recording):
    """True for a result that is all memory of a buffer that the program makes, as bytes."""
    cdef Result result
    cdef Buffer buffer
    if type(item) is not Result or (<Result>item).buffer < 0:
        return False
    result = <Result>item
    buffer = <Buffer>recording.buffers[result.buffer]
    return (is_made(buffer) and result.dtype == PB_U8 and result.layout.ndim == 1
            and result.offset == 0 and layout_shape(result.layout)[0] == buffer.nbytes)


cdef int fill_whole(Result result, Recording recording) except -1:
    cdef int64_t nbytes = (<Buffer>recording.buffers[result.buffer]).nbytes
    layout_release(result.layout)
    result.layout = NULL
    result.layout = layout_contiguous(1, &nbytes)
    return 0


def decisions(Recording recording not None):
    """Return the outcomes of a recorded call's decisions by values, in order."""
    cdef Launch launch
    return [launch.expected for launch in recording.launches if launch.expected is not None]


def difference(Recording one not None, Recording other not None):
    """Return in what two recordings differ, as text; None if they are the same calls.

    Memory of arguments may begin elsewhere, and random numbers as well.
    """
    cdef Line line = Line(0, 1, 0)
    line.exact = True
    found = between(one, other, line)
    return found if type(found) is str else None

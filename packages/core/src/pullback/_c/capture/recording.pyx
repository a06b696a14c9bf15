# build: small
"""What was recorded of calls, programs made of it, and recordings of calls between two others."""

from fractions import Fraction

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_F32, PB_F64, PB_I64, PB_MAX_NDIM, PB_PARAM_INTS, PB_U8, pb_array, pb_param)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.layout cimport (
    layout_contiguous, layout_extent, layout_new, layout_release)
from pullback._c.base.types cimport layout_shape, layout_strides
from pullback._c.capture.line cimport Line, sizes_between, strides_between
from pullback._c.capture.signature cimport Signature
from pullback._c.capture.spec cimport is_plain, same_value
from pullback._c.device.device cimport device_type
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport Tensor
from pullback._c.program.arena cimport is_temporary, place_temporaries
from pullback._c.program.groups cimport find_groups, hold_for_groups
from pullback._c.program.launches cimport (
    BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTER, BUFFER_RESULT, Buffer, Launch)
from pullback._c.program.program cimport Outer, Program, Result
from pullback._c.program.run_values cimport Option
from pullback._c.program.simplify cimport first_write, number_uses, simplified


__all__ = ["Recording", "between", "decisions", "difference", "reaches", "set_with_defined"]


cdef object with_defined = None     # replaces launches by kernels of defined primitives


def set_with_defined(function):
    """Install what finds defined primitives among launches; None: nothing does."""
    global with_defined
    with_defined = function


cdef class Recording:
    """Launches, the buffers that they use, and results."""

    cdef Recording copy(self):
        """Return a recording with launches and buffers of its own."""
        cdef Recording made = Recording.__new__(Recording)
        cdef Launch launch
        cdef Buffer buffer
        made.launches = [(<Launch>launch).copy() for launch in self.launches]
        made.buffers = [copy_of(<Buffer>buffer) for buffer in self.buffers]
        made.results = self.results
        made.begins = self.begins
        made.outers = self.outers
        made.draws = self.draws
        made.rates = self.rates
        made.reads_options = self.reads_options
        return made

    def program(self):
        """Return the program, which takes the launches and buffers; a str says why there is none.
        """
        cdef Program made = Program.__new__(Program)
        cdef Launch launch
        cdef Buffer buffer
        cdef int i, number = 0
        for buffer in self.buffers:
            if buffer.kind == BUFFER_CONSTANT and buffer.written:
                buffer.kind = BUFFER_RESULT     # each run begins with what the host wrote
        made.results = self.results
        made.launches = simplified(self.launches, self.buffers)
        if with_defined is not None:
            made.launches = with_defined(made.launches, self.buffers)
        number_uses(made.launches, self.buffers)
        made.buffers = self.buffers
        made.begins = self.begins
        made.outers = self.outers
        made.writes = len(made.outers) > 0
        made.options = [(-1, -1, one) for one in self.rates] if self.reads_options else []
        for launch in made.launches if self.reads_options else ():
            made.options += [(number, i, option) for i, option in launch.options or ()]
            number += 1
        made.first_write = first_write(made.launches, self.buffers)
        made.draws = self.draws
        made.moving = [one for one in self.buffers if one.kind == BUFFER_RESULT
                       or one.first >= 0 and one.kind in (BUFFER_INPUT, BUFFER_OUTER)]
        made.temporaries = sum([one.nbytes for one in self.buffers if is_temporary(one)])
        made.groups = find_groups(made.launches, self.buffers)
        inner = hold_for_groups(made.groups, self.buffers)
        made.arenas = place_temporaries(self.buffers, inner, made.launches, made.groups)
        made.idle = []
        return made


cdef Buffer copy_of(Buffer buffer):
    """Return a buffer with references of its own."""
    cdef Buffer made = Buffer.__new__(Buffer)
    made.number = buffer.number
    made.kind = buffer.kind
    made.nbytes = buffer.nbytes
    made.input = buffer.input
    made.written = buffer.written
    made.device_type = buffer.device_type
    made.device_index = buffer.device_index
    if buffer.storage != NULL:
        made.storage = storage_retain(buffer.storage)
    made.first = made.last = -1
    return made


# ---- between two calls ---------------------------------------------------------------------------

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
    made.rates = high.rates
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
        if array.flags & PB_ARRAY_HOST and high.buffers[i] < 0:
            if not number_between(line, one, other, array):
                return "a number"
            continue
        if not line.number(low.shifts[i] - begin_of(low, i, first),
                           high.shifts[i] - begin_of(high, i, last), &made.shifts[i]):
            return f"where operand {i} begins"
        if made.shifts[i] % dtype_itemsize[array.dtype]:
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
    if not single and low == <double><float>low and high == <double><float>high:
        return False            # it may have been rounded to 24 bits before
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
    cdef int i
    for i in range(launch.call.nout + launch.call.nin):
        if launch.buffers[i] >= 0 and not note_end(
                <Buffer>buffers[launch.buffers[i]], launch.shifts[i] + reach(&launch.arrays[i])):
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
        if low is high or is_plain(low) and same_value(low, high):
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


def reaches(Recording recording not None, Signature signature not None):
    """Return True if all that kernels use of arguments is in their memory."""
    cdef Launch launch
    cdef Buffer buffer
    cdef Tensor tensor
    cdef pb_array *array
    cdef int64_t first
    cdef int i
    for launch in recording.launches:
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] < 0:
                continue
            buffer = <Buffer>recording.buffers[launch.buffers[i]]
            if buffer.kind != BUFFER_INPUT:
                continue
            tensor = <Tensor>signature.tensors[buffer.input]
            array = &launch.arrays[i]
            first = tensor.offset * dtype_itemsize[tensor.dtype] + launch.shifts[i]
            if first < 0 or first + reach(array) > tensor.storage.nbytes:
                return False
    return True


cdef int64_t reach(pb_array *array) noexcept:
    """Return how many bytes an operand needs from where it begins."""
    cdef int64_t high = 0
    cdef int d
    for d in range(array.ndim):
        if array.strides[d] > 0:
            high += (array.shape[d] - 1) * array.strides[d]
    return (high + 1) * dtype_itemsize[array.dtype]


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

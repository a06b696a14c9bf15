# build: small
"""Which launches of a program are needed, when memory is used, and what is written.

Programs become simpler, with the same bits: constants are computed once, equal kernels run once,
copies that change nothing, and products with one, are not made. All of that needs a buffer that
one kernel writes and nobody else sees: a temporary. What it holds then depends on the operands of
that kernel alone, as they were when it ran.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_ARRAY_WRITE, PB_F32, PB_F64, PB_PARAM_INTS, pb_array, pb_param)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.program.run_values cimport is_random
from pullback._c.program.launches cimport (
    BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTER, BUFFER_TEMPORARY, Buffer, Launch)
from pullback._c.device.device cimport device_type
from pullback._c.device.storage cimport storage_new
from pullback._c.dispatch.launch cimport call_again, primitive_id

__all__ = []

# Bytes of a constant that a program keeps, or of a result that it keeps longer than the function.
cdef enum:
    SMALL = 1 << 16

cdef int COPY = primitive_id("copy")
cdef int PRODUCT = primitive_id("mul")


cdef list simplified(list launches, list buffers):
    """Return the launches that are left; buffers of computed constants become constants."""
    launches = without_equals(fold_constants(live_launches(launches, buffers), buffers), buffers)
    return live_launches(without_copies(launches, buffers), buffers)


# ---- uses ----------------------------------------------------------------------------------------

cdef int first_write(list launches, list buffers) except -1:
    """Return the first launch that writes to an argument or memory from outside; else the end."""
    cdef Launch launch
    cdef int i, number = 0
    for launch in launches:
        for i in range(launch.call.nout):
            if launch.buffers[i] >= 0 and (<Buffer>buffers[launch.buffers[i]]).kind in (
                    BUFFER_INPUT, BUFFER_OUTER):
                return number
        number += 1
    return number


cdef list live_launches(list launches, list buffers):
    """Return the launches whose results are used, by a later one or after the program."""
    cdef Launch launch
    cdef list kept = []
    cdef int i
    cdef bint needed
    cdef set used = {one.number for one in buffers if one.kind != BUFFER_TEMPORARY}
    for launch in reversed(launches):
        needed = launch.expected is not None
        for i in range(launch.call.nout):
            needed = needed or launch.buffers[i] in used
        if not needed:
            continue
        kept.append(launch)
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] >= 0:
                used.add(launch.buffers[i])
    kept.reverse()
    return kept


cdef int number_uses(list launches, list buffers) except -1:
    """Set the first and the last launch that uses each buffer."""
    cdef Launch launch
    cdef Buffer buffer
    cdef int i, number = 0
    for buffer in buffers:
        buffer.first = buffer.last = -1
    for launch in launches:
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] >= 0:
                buffer = <Buffer>buffers[launch.buffers[i]]
                if buffer.first < 0:
                    buffer.first = number
                buffer.last = number
        number += 1
    return 0


cdef list decided_first(list launches, list buffers):
    """Return launches in which decisions without an error come before writes to outside memory.

    None where one depends on such a write.
    """
    cdef Launch launch
    cdef set moved
    cdef Py_ssize_t first = first_write(launches, buffers), number
    for number in range(first, len(launches)):
        launch = <Launch>launches[number]
        if launch.expected is None or launch.error is not None:
            continue
        moved = needed_for(launches, buffers, number)
        if moved is None:
            return None
        launches = [launches[i] for i in sorted(moved)] + [
            launches[i] for i in range(len(launches)) if i not in moved]
    return launches


cdef set needed_for(list launches, list buffers, Py_ssize_t decision):
    """Return a decision and the launches that it needs, if they can all run first; else None.

    They depend on nothing that others write before, and others do not see that they ran earlier.
    """
    cdef Launch launch = <Launch>launches[decision]
    cdef set needed = {launch.buffers[0]}, found = {decision}
    cdef dict last = {}                     # of each buffer that they write
    cdef Py_ssize_t number
    cdef int i
    for number in range(decision - 1, -1, -1):
        launch = <Launch>launches[number]
        outs = {launch.buffers[i] for i in range(launch.call.nout)}
        if needed.isdisjoint(outs):
            continue
        if launch.expected is not None or launch.draw >= 0 or any(
                [i < 0 or (<Buffer>buffers[i]).kind != BUFFER_TEMPORARY for i in outs]):
            return None
        found.add(number)
        for i in outs:
            last.setdefault(i, number)
        needed |= {launch.buffers[i] for i in range(
            launch.call.nout, launch.call.nout + launch.call.nin) if launch.buffers[i] >= 0}
    for number in range(decision):
        launch = <Launch>launches[number]
        for i in range(launch.call.nout + launch.call.nin):
            if number not in found and last.get(launch.buffers[i], -1) > number:
                return None
    return found


cdef list count_writers(list launches, list buffers):
    """Return of each buffer how many launches write to it."""
    cdef list counts = [0] * len(buffers)
    cdef Launch launch
    cdef int i
    for launch in launches:
        for i in range(launch.call.nout):
            if launch.buffers[i] >= 0:
                counts[launch.buffers[i]] += 1
    return counts


cdef bint is_sole(int number, list buffers, list writers):
    """True for a temporary that one launch writes; which launch, the caller knows."""
    return number >= 0 and writers[number] == 1 and (
        (<Buffer>buffers[number]).kind == BUFFER_TEMPORARY)


# ---- constants -----------------------------------------------------------------------------------

cdef list fold_constants(list launches, list buffers):
    """Run what has no operands but constants; return the launches that are left."""
    cdef list kept = [], writers = count_writers(launches, buffers)
    cdef Launch launch
    for launch in launches:
        if launch.expected is not None:
            if (<Buffer>buffers[launch.buffers[0]]).kind != BUFFER_CONSTANT:
                kept.append(launch)
        elif is_constant(launch, buffers, writers):
            compute(launch, buffers)
        else:
            kept.append(launch)
    return kept


cdef bint is_constant(Launch launch, list buffers, list writers):
    cdef pb_array *array
    cdef int i
    if is_random(launch) or not device_type(launch.type_id).host:
        return False                    # elsewhere it may not be done when the call returns
    for i in range(launch.call.nout):
        if not is_sole(launch.buffers[i], buffers, writers) or (
                (<Buffer>buffers[launch.buffers[i]]).nbytes > SMALL):
            return False
    for i in range(launch.call.nout, launch.call.nout + launch.call.nin):
        array = &launch.arrays[i]
        if launch.buffers[i] < 0:
            if not array.flags & PB_ARRAY_HOST:
                return False
        elif array.flags & PB_ARRAY_HOST or (
                (<Buffer>buffers[launch.buffers[i]]).kind != BUFFER_CONSTANT):
            return False
    return True


cdef int compute(Launch launch, list buffers) except -1:
    """Run a kernel on memory of its own, which becomes that of constants."""
    cdef Launch copy = launch.copy()
    cdef Buffer buffer
    cdef pb_array *array
    cdef int i
    for i in range(launch.call.nout):
        buffer = <Buffer>buffers[launch.buffers[i]]
        if buffer.storage == NULL:
            buffer.storage = storage_new(buffer.device_type, buffer.device_index, buffer.nbytes)
        buffer.kind = BUFFER_CONSTANT
    for i in range(launch.call.nout + launch.call.nin):
        if launch.buffers[i] >= 0:
            buffer = <Buffer>buffers[launch.buffers[i]]
            array = &copy.arrays[i]
            array.base = buffer.storage.data
            array.data = <char *>array.base + copy.shifts[i]
            array.offset = copy.shifts[i] // dtype_itemsize[array.dtype]
    call_again(copy.type_id, &copy.call, copy.key, copy.work)
    return 0


# ---- equal kernels -------------------------------------------------------------------------------

cdef list without_equals(list launches, list buffers):
    """Return the launches but for those that compute what is there already."""
    cdef list kept = [], writers = count_writers(launches, buffers)
    cdef list versions = [0] * len(buffers)
    cdef dict seen = {}                 # what is computed -> the launch
    cdef dict same = {}                 # buffer -> the one that has the same elements
    cdef Launch launch, first
    cdef int i, number = -1
    number_uses(launches, buffers)
    for launch in launches:
        number += 1
        for i in range(launch.call.nout + launch.call.nin):
            launch.buffers[i] = same.get(launch.buffers[i], launch.buffers[i])
        if repeats(launch, buffers, writers):
            key = description(launch, versions, buffers)
            first = <Launch>seen.get(key)
            if first is not None and is_kept(first, number, buffers):
                for i in range(launch.call.nout):
                    same[launch.buffers[i]] = first.buffers[i]
                    (<Buffer>buffers[first.buffers[i]]).last = max(
                        (<Buffer>buffers[first.buffers[i]]).last,
                        (<Buffer>buffers[launch.buffers[i]]).last)
                continue
            seen[key] = launch
        for i in range(launch.call.nout):
            if launch.buffers[i] >= 0:
                versions[launch.buffers[i]] += 1
        kept.append(launch)
    return kept


cdef bint repeats(Launch launch, list buffers, list writers):
    """True if a launch gives the same whenever its operands are the same."""
    cdef int i
    if launch.expected is None and is_random(launch):
        return False
    for i in range(launch.call.nout):
        if not is_sole(launch.buffers[i], buffers, writers):
            return False
    return True


cdef bint is_kept(Launch launch, int number, list buffers) noexcept:
    """True if a later launch needs the results anyway, or they are small."""
    cdef Buffer buffer
    cdef int i
    for i in range(launch.call.nout):
        buffer = <Buffer>buffers[launch.buffers[i]]
        if buffer.last < number and buffer.nbytes > SMALL:
            return False
    return True


ctypedef struct pb_text:
    char *begin
    Py_ssize_t count, room


cdef int note(pb_text *text, const void *data, Py_ssize_t count) except -1:
    """Append bytes."""
    cdef char *longer
    if text.count + count > text.room:
        longer = <char *>PyMem_Realloc(text.begin, 2 * (text.count + count))
        if longer == NULL:
            raise MemoryError()
        text.begin = longer
        text.room = 2 * (text.count + count)
    memcpy(text.begin + text.count, data, count)
    text.count += count
    return 0


cdef inline int note_number(pb_text *text, int64_t number) except -1:
    return note(text, &number, sizeof(number))


cdef bytes description(Launch launch, list versions, list buffers):
    """Return what a launch computes: its operands as they are now, parameters, shapes."""
    cdef pb_text text
    cdef int i
    text.begin = NULL
    text.count = text.room = 0
    try:
        describe(launch, versions, &text)
        for i in range(launch.call.nout):
            note_number(&text, (<Buffer>buffers[launch.buffers[i]]).nbytes)
        return text.begin[:text.count]
    finally:
        PyMem_Free(text.begin)


cdef int describe(Launch launch, list versions, pb_text *text) except -1:
    cdef pb_array *array
    cdef const pb_param *param
    cdef int i, number
    note_number(text, launch.call.primitive)
    note_number(text, launch.key)
    note_number(text, launch.type_id)
    note_number(text, launch.call.device)
    note_number(text, launch.call.nout)
    note_number(text, -1 if launch.expected is None else launch.expected)
    for i in range(launch.call.nout + launch.call.nin):
        array = &launch.arrays[i]
        note_number(text, array.dtype)
        note_number(text, array.flags)
        note_number(text, array.ndim)
        note_number(text, launch.shifts[i])
        note(text, array.shape, array.ndim * sizeof(int64_t))
        note(text, array.strides, array.ndim * sizeof(int64_t))
        if i < launch.call.nout:
            continue
        number = launch.buffers[i]
        if array.flags & PB_ARRAY_HOST and number < 0:
            note(text, array.data, dtype_itemsize[array.dtype])
        else:
            note_number(text, number)
            note_number(text, -1 if number < 0 else versions[number])
    for i in range(launch.call.nparam):
        param = &launch.call.param[i]
        note_number(text, param.kind)
        if param.kind == PB_PARAM_INTS:
            note_number(text, param.count)
            note(text, param.ints, param.count * sizeof(int64_t))
        else:
            note_number(text, param.i)
            note(text, &param.d, sizeof(double))
    return 0


# ---- copies --------------------------------------------------------------------------------------

cdef list without_copies(list launches, list buffers):
    """Return the launches but for copies with the elements where they were, which nobody changes.

    What read a copy reads the original.
    """
    cdef list kept = [], writers = count_writers(launches, buffers)
    cdef dict last = {}                 # buffer -> the last launch that writes to it
    cdef dict moved = {}                # buffer -> (the original, bytes that it is further on)
    cdef Launch launch
    cdef Buffer copy, source
    cdef int number = 0, i, which, outside = -1
    number_uses(launches, buffers)
    for launch in launches:
        for i in range(launch.call.nout):
            last[launch.buffers[i]] = number
            if launch.buffers[i] >= 0 and (<Buffer>buffers[launch.buffers[i]]).kind in (
                    BUFFER_INPUT, BUFFER_OUTER):
                outside = number        # it may be another's memory, too
        number += 1
    number = -1
    for launch in launches:
        number += 1
        for i in range(launch.call.nout + launch.call.nin):
            if launch.buffers[i] in moved:
                original, shift = moved[launch.buffers[i]]
                launch.buffers[i] = original
                launch.shifts[i] += <int64_t>shift
        which = copied_operand(launch, buffers)
        if not (which
                and is_sole(launch.buffers[0], buffers, writers)
                and is_same_layout(launch, which, (<Buffer>buffers[launch.buffers[0]]).nbytes)
                and last.get(launch.buffers[which], -1) < number):
            kept.append(launch)
            continue
        copy = <Buffer>buffers[launch.buffers[0]]
        source = <Buffer>buffers[launch.buffers[which]]
        if source.kind in (BUFFER_INPUT, BUFFER_OUTER) and outside > number or (
                source.last < copy.last and source.nbytes > copy.nbytes + SMALL):
            kept.append(launch)
            continue
        moved[copy.number] = source.number, launch.shifts[which] - launch.shifts[0]
        source.last = max(source.last, copy.last)
    return kept


cdef int copied_operand(Launch launch, list buffers):
    """Return the operand whose elements the result has; 0 if none is known."""
    if launch.call.primitive == COPY:
        return 1
    if launch.call.primitive == PRODUCT:
        if is_one(launch, 1, buffers):
            return 2
        if is_one(launch, 2, buffers):
            return 1
    return 0


cdef bint is_one(Launch launch, int which, list buffers):
    """True for a constant that is one in each element."""
    cdef pb_array *array = &launch.arrays[which]
    cdef Buffer buffer
    cdef const char *data
    cdef int d
    if launch.buffers[which] < 0:
        return False
    buffer = <Buffer>buffers[launch.buffers[which]]
    if buffer.kind != BUFFER_CONSTANT or buffer.storage == NULL or (
            not device_type(launch.type_id).host):
        return False
    for d in range(array.ndim):
        if array.strides[d] and array.shape[d] != 1:
            return False
    data = <const char *>buffer.storage.data + launch.shifts[which]
    if array.dtype == PB_F32:
        return (<const float *>data)[0] == 1
    return array.dtype == PB_F64 and (<const double *>data)[0] == 1


cdef bint is_same_layout(Launch launch, int which, int64_t nbytes) noexcept:
    """True for an operand with dtype, shape and strides of the result, which fills the bytes."""
    cdef pb_array *out = &launch.arrays[0]
    cdef pb_array *source = &launch.arrays[which]
    cdef int64_t count = 1
    cdef int d
    if source.flags & PB_ARRAY_HOST or launch.buffers[0] < 0 or launch.buffers[which] < 0:
        return False
    if out.dtype != source.dtype or out.ndim != source.ndim or (
            out.flags | source.flags) & ~PB_ARRAY_WRITE:
        return False
    for d in range(out.ndim):
        if out.shape[d] != source.shape[d] or out.strides[d] != source.strides[d]:
            return False
        count *= out.shape[d]
    return launch.shifts[0] == 0 and count * dtype_itemsize[out.dtype] == nbytes

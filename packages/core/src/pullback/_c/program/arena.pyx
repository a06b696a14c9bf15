# build: small
"""Places of temporaries in one block of memory, such that those in use at one time do not overlap.

The result of an elementwise kernel takes the place of an operand that nobody needs any more.
Short ones, of which a program may have thousands, take in the order of their use what another of
the same size has left. The long ones come after them, the longest first, each at the lowest place
that is free while it is in use.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t
from libc.string cimport memmove

from pullback.abi cimport pb_array
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.program.groups cimport Group
from pullback._c.program.launches cimport BUFFER_TEMPORARY, Buffer, Launch
from pullback._c.program.rows cimport is_elementwise

__all__ = []

cdef enum:
    ALIGNMENT = 64
    SHORT = 1 << 10             # bytes

ctypedef struct pb_place:
    int64_t begin
    int64_t end
    int first
    int last


cdef inline int64_t aligned(int64_t nbytes) noexcept:
    return (nbytes + ALIGNMENT - 1) & -<int64_t>ALIGNMENT


def by_size(one):
    """Order buffers by size, the largest first."""
    return -one.nbytes, one.first


def by_first(one):
    """Order buffers by the launch that uses them first."""
    return one.first


cdef bint is_temporary(Buffer one) noexcept:
    """True for a temporary that a kernel uses."""
    return one.kind == BUFFER_TEMPORARY and one.first >= 0


cdef list place_temporaries(list buffers, set apart, list launches, list groups):
    """Give temporaries places, but those in `apart`; return the arenas: device and bytes."""
    cdef Buffer one
    cdef list arenas = []
    cdef dict found = {}                # (type, index) of a device -> its temporaries
    for one in buffers:
        one.place = -1
        if is_temporary(one):
            found.setdefault((one.device_type, one.device_index), []).append(one)
    for number, ((type_id, index), own) in enumerate(found.items()):
        elsewhere = {one.number for each in found.values() if each is not own for one in each}
        arenas.append((type_id, index, place_on_device(
            own, apart | elsewhere, buffers, launches, groups)))
        for one in own:
            one.arena = number
    return arenas


cdef int64_t place_on_device(
        list own, set apart, list buffers, list launches, list groups) except -1:
    """Give the temporaries of one device places; return the end of the last."""
    cdef Buffer one, before
    cdef list short = [], long = []
    cdef int64_t end
    cdef dict places = take_over(buffers, apart, launches, groups)
    for one in own:
        if one.number not in apart and one.number not in places:
            (short if one.nbytes <= SHORT else long).append(one)
    end = place_long(sorted(long, key=by_size), place_short(sorted(short, key=by_first)))
    for number, before in places.items():
        (<Buffer>buffers[number]).place = before.place
    return end


cdef bint is_placed(Buffer one, set apart):
    return is_temporary(one) and one.number not in apart


cdef dict take_over(list buffers, set apart, list launches, list groups):
    """Return whose place a buffer takes, by number; that one is in use as long as both are."""
    cdef dict places = {}
    cdef Launch launch
    cdef Buffer out, before
    cdef Group group
    cdef int number = -1, i
    cdef set tiled = set()
    for group in groups:
        tiled.update(range(group.first, group.first + group.count))
    for launch in launches:
        number += 1
        if number in tiled or not is_elementwise(launch) or launch.buffers[0] < 0:
            continue
        out = <Buffer>buffers[launch.buffers[0]]
        if not is_placed(out, apart) or out.first != number:
            continue
        for i in range(1, 1 + launch.call.nin):
            if launch.buffers[i] < 0 or not is_over(launch, i):
                continue
            before = <Buffer>buffers[launch.buffers[i]]
            if is_placed(before, apart) and before.last == number and (
                    before.nbytes == out.nbytes):
                before = <Buffer>places.get(before.number, before)
                places[out.number] = before
                before.last = out.last
                break
    return places


cdef bint is_over(Launch launch, int which) noexcept:
    """True if no other operand is in its buffer, and its elements are where the result's are."""
    cdef pb_array *out = &launch.arrays[0]
    cdef pb_array *one = &launch.arrays[which]
    cdef int i
    for i in range(1, 1 + launch.call.nin):
        if i != which and launch.buffers[i] == launch.buffers[which]:
            return False
    if launch.shifts[which] != launch.shifts[0] or one.ndim != out.ndim or (
            dtype_itemsize[one.dtype] != dtype_itemsize[out.dtype]):
        return False
    for i in range(out.ndim):
        if one.shape[i] != out.shape[i] or one.strides[i] != out.strides[i]:
            return False
    return True


cdef int64_t place_short(list buffers) except -1:
    """Place buffers in the order of their first uses; return the end."""
    cdef Buffer one, other
    cdef int64_t end = 0
    cdef dict ending = {}               # launch -> the buffers that it uses last
    cdef dict free = {}                 # size -> places
    cdef int now = -1
    for one in buffers:
        while now < one.first - 1:
            now += 1
            for other in ending.pop(now, ()):
                free.setdefault(aligned(other.nbytes), []).append(other.place)
        places = free.get(aligned(one.nbytes))
        if places:
            one.place = places.pop()
        else:
            one.place = end
            end += aligned(one.nbytes)
        ending.setdefault(one.last, []).append(one)
    return end


cdef int64_t place_long(list buffers, int64_t begin) except -1:
    """Place buffers from `begin` on, in this order; return the end."""
    cdef Buffer one
    cdef Py_ssize_t count = len(buffers), placed = 0, i
    cdef int64_t place, end = begin, size
    cdef pb_place *places = <pb_place *>PyMem_Malloc(max(count, 1) * sizeof(pb_place))
    if places == NULL:
        raise MemoryError()
    for one in buffers:
        size = aligned(one.nbytes)
        place = begin
        for i in range(placed):         # by their begins
            if places[i].last < one.first or places[i].first > one.last:
                continue
            if places[i].begin - place >= size:
                break
            place = max(place, places[i].end)
        i = placed
        while i > 0 and places[i - 1].begin > place:
            i -= 1
        memmove(&places[i + 1], &places[i], (placed - i) * sizeof(pb_place))
        places[i] = pb_place(place, place + size, one.first, one.last)
        placed += 1
        one.place = place
        end = max(end, place + size)
    PyMem_Free(places)
    return end

# build: small
"""Groups: launches that run tile by tile, so that what one leaves for the next stays in the cache.

A group's launches are those of elementwise kernels that follow each other, over arrays with the
same rows: a tile is some rows, and all launches run on it before the next tile. Rows are
independent: what is written in the group is read there row by row. Temporaries that only the group
uses have no place in the arena, but a slot of the size of a tile.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_E_MEMORY, PB_E_PYTHON, PB_MESSAGE_SIZE, PB_NUM_DTYPES, PB_OK, pb_array,
    pb_call)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.errors cimport raise_code
from pullback._c.base.interrupts cimport interrupts_begin, interrupts_end
from pullback._c.capture.launches cimport BUFFER_TEMPORARY, Buffer, Launch
from pullback._c.device.device cimport device_type, has_field, pb_device_type

from pullback.ops.table.primitives import PRIMITIVES

cdef enum:
    TILE_BYTES = 8192           # of an operand: several fit into the first-level cache
    LARGEST_ROW = 1 << 17       # bytes of a row; longer ones fill the cache alone
    LEAST_ELEMENTS = 8192       # below, a group costs more than it saves
    ALIGNMENT = 64
    MOST = 64                   # launches of a group

cdef list families = [primitive.family for primitive in PRIMITIVES.values()]
cdef list primitive_names = list(PRIMITIVES)


# ---- finding groups ------------------------------------------------------------------------------

cdef bint is_elementwise(Launch launch):
    """True for a compiled elementwise kernel on host memory, with few dims."""
    cdef int i
    cdef pb_device_type *found = device_type(launch.type_id)
    if launch.expected is not None:
        return False
    if families[launch.call.primitive] not in ("unary", "binary", "ternary"):
        return False
    if not found.host or launch.call.nout != 1 or launch.call.nin + 1 > MAX_TILED:
        return False
    if found.table[launch.call.primitive * PB_NUM_DTYPES + launch.key].kernel == NULL:
        return False
    for i in range(launch.call.nout + launch.call.nin):
        if not 1 <= launch.arrays[i].ndim <= MAX_DIMS or (
                launch.buffers[i] < 0 and not launch.arrays[i].flags & PB_ARRAY_HOST):
            return False
    return True


def why_alone(Launch launch not None):
    """Return why a launch is in no group, as text."""
    if launch.expected is not None:
        return "a decision"
    if families[launch.call.primitive] not in ("unary", "binary", "ternary"):
        return "no elementwise kernel"
    if not device_type(launch.type_id).host:
        return "not on the host"
    if not is_elementwise(launch):
        return f"a kernel in Python, an empty operand, or more than {MAX_DIMS} dims"
    if elements(launch) < LEAST_ELEMENTS:
        return f"fewer than {LEAST_ELEMENTS} elements"
    return "its neighbours have other sizes, or need more of its result than the same rows"


cdef int64_t elements(Launch launch) noexcept:
    cdef int64_t count = 1
    cdef int d
    for d in range(launch.arrays[0].ndim):
        count *= launch.arrays[0].shape[d]
    return count


cdef bint by_rows(Launch launch, int64_t rows, int which, int64_t *advance, int64_t *scale,
                  bint *disjoint) noexcept:
    """Find the stride of an operand's rows, and whether rows are disjoint in memory."""
    cdef pb_array *array = &launch.arrays[which]
    cdef int64_t reach = 0, size = dtype_itemsize[array.dtype]
    cdef int d
    if array.shape[0] % rows:
        return False
    scale[0] = array.shape[0] // rows
    advance[0] = scale[0] * array.strides[0] * size
    for d in range(array.ndim):
        if array.strides[d] < 0:
            return False
        reach += ((scale[0] if d == 0 else array.shape[d]) - 1) * array.strides[d] * size
    disjoint[0] = advance[0] > reach
    return True


cdef class Group:
    """Launches that run tile by tile."""


cdef class Draft:
    """A group that is being made."""
    cdef int first
    cdef int64_t rows                   # 0: any, all operands are flat
    cdef int64_t elements
    cdef int type_id
    cdef list launches
    cdef dict written                   # buffer -> (advance, shift) of the writes in the group
    cdef dict read                      # buffer -> set of the same of the reads

    cdef bint fits(self, Launch launch, int64_t rows):
        """True if a launch's rows are those of the group, and depend on those alone."""
        cdef int i
        cdef int64_t advance, scale
        cdef bint disjoint
        for i in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[i]
            if number < 0:
                continue
            if not by_rows(launch, rows, i, &advance, &scale, &disjoint):
                return False
            if i == 0 and not (disjoint and advance <= LARGEST_ROW):
                return False
            if i and number in self.written and (
                    not disjoint or self.written[number] != (advance, launch.shifts[i])):
                return False
            if i == 0 and number in self.read and (
                    self.read[number] != {(advance, launch.shifts[i])}):
                return False
            if i == 0 and number in self.written and (
                    self.written[number] != (advance, launch.shifts[i])):
                return False
        return True

    cdef int note(self, Launch launch, int64_t rows) except -1:
        """Note what a launch reads and writes."""
        cdef int i
        cdef int64_t advance, scale
        cdef bint disjoint
        for i in range(launch.call.nout + launch.call.nin - 1, -1, -1):
            number = launch.buffers[i]
            if number < 0:
                continue
            by_rows(launch, rows, i, &advance, &scale, &disjoint)
            place = (advance, launch.shifts[i])
            if i == 0:
                self.written[number] = place
            else:
                self.read.setdefault(number, set()).add(place if disjoint else (advance, -1))
        return 0

    cdef bint add(self, Launch launch):
        """Add a launch if it fits, perhaps with fewer rows than before; False if it does not."""
        cdef int64_t rows
        cdef Draft other
        if len(self.launches) >= MOST or launch.type_id != self.type_id or (
                elements(launch) != self.elements):
            return False
        rows = launch.arrays[0].shape[0]
        if self.rows % rows:
            rows = self.rows
        if rows == self.rows:
            if not self.fits(launch, rows):
                return False
            self.note(launch, rows)
            self.launches.append(launch)
            return True
        other = draft(self.first, self.launches[0], rows)   # again, with these rows
        if other is None:
            return False
        for one in self.launches[1:]:
            if not other.fits(<Launch>one, rows):
                return False
            other.note(<Launch>one, rows)
            other.launches.append(one)
        if not other.fits(launch, rows):
            return False
        other.note(launch, rows)
        other.launches.append(launch)
        self.rows, self.launches = rows, other.launches
        self.written, self.read = other.written, other.read
        return True


cdef Draft draft(int first, Launch launch, int64_t rows):
    """Return a group of one launch; None if it has no such rows."""
    cdef Draft made = Draft.__new__(Draft)
    made.first = first
    made.rows = rows
    made.elements = elements(launch)
    made.type_id = launch.type_id
    made.launches = [launch]
    made.written = {}
    made.read = {}
    if not made.fits(launch, rows):
        return None
    made.note(launch, rows)
    return made


cdef list find_groups(list launches, list buffers):
    """Return the groups of a program, in order."""
    cdef list groups = []
    cdef Draft current = None
    cdef Launch launch
    cdef int number = 0
    for launch in launches:
        if not is_elementwise(launch) or elements(launch) < LEAST_ELEMENTS:
            close(current, buffers, groups)
            current = None
        elif current is None or not current.add(launch):
            close(current, buffers, groups)
            current = draft(number, launch, launch.arrays[0].shape[0])
        number += 1
    close(current, buffers, groups)
    return groups


cdef int close(Draft made, list buffers, list groups) except -1:
    """End a group; one of a single launch is none."""
    cdef Group group
    cdef Launch launch
    cdef Buffer buffer
    cdef int64_t advance, scale, longest = 1
    cdef bint disjoint
    cdef int number, i, last
    cdef list slots, unused = []
    if made is None or len(made.launches) < 2:
        return 0
    group = Group.__new__(Group)
    group.first = made.first
    group.count = <int>len(made.launches)
    group.rows = made.rows
    group.inner = set()
    group.slots, group.advance, group.scale = [], [], []
    last = group.first + group.count - 1
    for number in made.written:
        buffer = <Buffer>buffers[number]
        if buffer.kind == BUFFER_TEMPORARY and buffer.first >= group.first and (
                buffer.last <= last):
            group.inner.add(number)
    assigned = {}
    for k, one in enumerate(made.launches):
        launch = <Launch>one
        slots, advances, scales = [], [], []
        for i in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[i]
            advance = scale = 0
            if number >= 0:
                by_rows(launch, group.rows, i, &advance, &scale, &disjoint)
                longest = max(longest, advance)
            else:
                scale = 0 if launch.arrays[i].shape[0] % group.rows else (
                    launch.arrays[i].shape[0] // group.rows)
            if number in group.inner and number not in assigned:
                if unused:
                    assigned[number] = unused.pop()
                else:
                    assigned[number] = group.nslots
                    group.nslots += 1
            slots.append(assigned.get(number, -1))
            advances.append(advance)
            scales.append(scale)
        for number in {launch.buffers[i] for i in range(launch.call.nout + launch.call.nin)}:
            if number in group.inner and (<Buffer>buffers[number]).last == group.first + k:
                unused.append(assigned[number])
        group.slots.append(slots)
        group.advance.append(advances)
        group.scale.append(scales)
    group.tile = max(1, TILE_BYTES // longest)
    group.slot = (group.tile * longest + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    groups.append(group)
    return 0


cdef int fill_members(Group group, list launches, pb_member *members) except -1:
    """Describe the launches of a group for its runs; `launches` are those of one instance."""
    cdef Launch launch
    cdef int i, k
    for k in range(group.count):
        launch = <Launch>launches[group.first + k]
        members[k].call = &launch.call
        members[k].entry = &device_type(launch.type_id).table[
            launch.call.primitive * PB_NUM_DTYPES + launch.key]
        members[k].count = launch.call.nout + launch.call.nin
        for i in range(members[k].count):
            members[k].slots[i] = group.slots[k][i]
            members[k].advance[i] = group.advance[k][i]
            members[k].scale[i] = group.scale[k][i]
    return 0


# ---- running them --------------------------------------------------------------------------------

ctypedef struct pb_run:
    pb_member *members
    int count
    int nslots
    int64_t rows
    int64_t tile
    int64_t slot
    int code                    # of the first failure
    int failed                  # the launch that failed
    char *message


# A launch on one tile.
ctypedef struct pb_tile:
    pb_call call
    pb_array arrays[MAX_TILED]
    pb_array *pointers[MAX_TILED]
    char *begin[MAX_TILED]
    int64_t shape[MAX_TILED][MAX_DIMS]


cdef void run_tiles(void *context, int64_t first, int64_t last) noexcept nogil:
    """Run all launches on some tiles, one tile after the other."""
    cdef pb_run *run = <pb_run *>context
    cdef pb_tile *tiles
    cdef pb_tile *one
    cdef pb_member *member
    cdef char *room
    cdef char message[PB_MESSAGE_SIZE]
    cdef int64_t row, rows, number
    cdef int k, i, code
    if run.code != PB_OK:
        return
    room = <char *>malloc(run.count * sizeof(pb_tile) + run.nslots * run.slot + ALIGNMENT)
    if room == NULL:
        run.code = PB_E_MEMORY
        return
    tiles = <pb_tile *>room
    room = <char *>((<size_t>room + run.count * sizeof(pb_tile) + ALIGNMENT - 1)
                    & ~<size_t>(ALIGNMENT - 1))
    for k in range(run.count):
        one = &tiles[k]
        member = &run.members[k]
        one.call = member.call[0]
        one.call.out = &one.pointers[0]
        one.call.in_ = &one.pointers[member.call.nout]
        one.call.message = message
        for i in range(member.count):
            one.arrays[i] = member.call.out[i][0]
            one.pointers[i] = &one.arrays[i]
            one.begin[i] = <char *>one.arrays[i].data
            if member.slots[i] >= 0:
                one.begin[i] = room + member.slots[i] * run.slot
                one.arrays[i].data = one.arrays[i].base = one.begin[i]
                one.arrays[i].offset = 0
            memcpy(one.shape[i], one.arrays[i].shape, one.arrays[i].ndim * sizeof(int64_t))
            one.arrays[i].shape = one.shape[i]
    for number in range(first, last):
        row = number * run.tile
        rows = min(run.tile, run.rows - row)
        for k in range(run.count):
            one = &tiles[k]
            member = &run.members[k]
            for i in range(member.count):
                if member.scale[i]:
                    one.shape[i][0] = rows * member.scale[i]
                if member.slots[i] < 0 and member.advance[i]:
                    one.arrays[i].data = one.begin[i] + row * member.advance[i]
                    one.arrays[i].offset = (
                        <char *>one.arrays[i].data - <char *>one.arrays[i].base
                    ) // dtype_itemsize[one.arrays[i].dtype]
            message[0] = 0
            code = member.entry.kernel(&one.call)
            if code != PB_OK:
                run.code = code
                run.failed = k
                memcpy(run.message, message, PB_MESSAGE_SIZE)
                free(tiles)
                return
    free(tiles)


cdef int run_group(Group group, pb_member *members, pb_device_type *found,
                   char *message) except -1:
    """Run the launches of a group, on the threads of its device if it offers them."""
    cdef pb_run run
    cdef int64_t count = (group.rows + group.tile - 1) // group.tile
    cdef bint listening, parallel
    run.members = members
    run.count = group.count
    run.nslots = group.nslots
    run.rows = group.rows
    run.tile = group.tile
    run.slot = group.slot
    run.code = PB_OK
    run.failed = 0
    run.message = message
    message[0] = 0
    parallel = (found.backend != NULL and has_field(found.backend, &found.backend.run_parallel)
                and found.backend.run_parallel != NULL)
    listening = interrupts_begin()
    with nogil:
        if parallel:
            found.backend.run_parallel(found.backend.self, count, 4, run_tiles, &run)
        else:
            run_tiles(&run, 0, count)
    if interrupts_end(listening):
        run.code = PB_E_PYTHON
    if run.code != PB_OK:
        raise_code(run.code, message, <str>primitive_names[members[run.failed].call.primitive])
    return 0

# build: small
"""Groups: launches that run tile by tile, so that what one leaves for the next stays in the cache.

A group's launches follow each other, over arrays with the same rows (``rows``): a tile is some
rows, and all launches run on it before the next tile. Rows are independent: what is written in the
group is read there row by row. Temporaries that only the group uses have no place in the arena, but
a slot of the size of a tile.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_E_MEMORY, PB_E_PYTHON, PB_MESSAGE_SIZE, PB_NUM_DTYPES, PB_OK, pb_array, pb_call, pb_param)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.errors cimport raise_code
from pullback._c.base.interrupts cimport interrupts_begin, interrupts_end
from pullback._c.program.launches cimport BUFFER_TEMPORARY, Buffer, Launch
from pullback._c.program.rows cimport (
    by_rows, elements, is_elementwise, numbers_of_block, whole_operands)
from pullback._c.device.device cimport device_type, has_field, pb_device_type

from pullback.ops.table.numbered import NAMES

cdef enum:
    TILE_BYTES = 16384          # of an operand: several fit into the second-level cache
    LARGEST_ROW = 1 << 17       # bytes of a row; longer ones fill the cache alone
    LEAST_ELEMENTS = 8192       # below, a group costs more than it saves
    ALIGNMENT = 64
    MOST = 64                   # launches of a group

cdef list primitive_names = NAMES
cdef tuple WHOLE = (-1, -1)     # how a buffer is read that each row needs as a whole


# ---- finding groups ------------------------------------------------------------------------------

def why_alone(Launch launch not None):
    """Return why a launch is in no group, as text."""
    if launch.expected is not None:
        return "a decision"
    if not device_type(launch.type_id).host:
        return "not on the host"
    if whole_operands(launch) < 0:
        if is_elementwise(launch):
            return f"a kernel in Python, an empty operand, or more than {MAX_DIMS} dims"
        return "rows that depend on one another"
    if elements(launch) < LEAST_ELEMENTS:
        return f"fewer than {LEAST_ELEMENTS} elements"
    return "its neighbours have other sizes, or need more of its result than the same rows"


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
        cdef int i, whole = whole_operands(launch)
        cdef int64_t advance, scale
        cdef bint disjoint, is_out, alike = is_elementwise(launch)
        for i in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[i]
            is_out = i < launch.call.nout
            if number < 0:
                continue
            if whole >> i & 1:
                if number in self.written:
                    return False
                continue
            if not by_rows(launch, rows, i, &advance, &scale, &disjoint):
                return False
            if (is_out or not alike) and not (disjoint and advance <= LARGEST_ROW):
                return False
            if number in self.written and (
                    not disjoint or self.written[number] != (advance, launch.shifts[i])):
                return False
            if is_out and number in self.read and (
                    self.read[number] != {(advance, launch.shifts[i])}):
                return False
        return True

    cdef int note(self, Launch launch, int64_t rows) except -1:
        """Note what a launch reads and writes."""
        cdef int i, whole = whole_operands(launch)
        cdef int64_t advance, scale
        cdef bint disjoint
        for i in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[i]
            if number < 0:
                continue
            if whole >> i & 1:
                self.read.setdefault(number, set()).add(WHOLE)
                continue
            by_rows(launch, rows, i, &advance, &scale, &disjoint)
            place = (advance, launch.shifts[i])
            if i < launch.call.nout:
                self.written[number] = place
            else:
                self.read.setdefault(number, set()).add(place if disjoint else (advance, -1))
        return 0

    cdef bint reads_written(self, Launch launch):
        """True if a launch reads what the group writes."""
        cdef int i
        for i in range(launch.call.nout, launch.call.nout + launch.call.nin):
            if launch.buffers[i] in self.written:
                return True
        return False

    cdef bint add(self, Launch launch):
        """Add a launch if it fits, perhaps with fewer rows than before; False if it does not."""
        cdef int64_t rows
        cdef Draft other
        if len(self.launches) >= MOST or launch.type_id != self.type_id or (
                elements(launch) != self.elements and not self.reads_written(launch)):
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
        if whole_operands(launch) < 0:
            close(current, buffers, groups)
            current = None
        elif current is None or not current.add(launch):
            close(current, buffers, groups)
            current = None
            if elements(launch) >= LEAST_ELEMENTS:
                current = draft(number, launch, launch.arrays[0].shape[0])
        number += 1
    close(current, buffers, groups)
    return groups


cdef int close(Draft made, list buffers, list groups) except -1:
    """End a group; one of a single launch is none, nor is one whose launches share nothing."""
    cdef Group group
    cdef Launch launch
    cdef Buffer buffer
    cdef int64_t advance, scale, longest = 1
    cdef bint disjoint, unaligned = False
    cdef int number, i, last, whole
    cdef list slots, unused = []
    if made is None or len(made.launches) < 2 or not shares(made):
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
        whole = whole_operands(launch)
        if numbers_of_block(launch) and elements(launch) // group.rows % numbers_of_block(launch):
            unaligned = True
        for i in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[i]
            advance = scale = 0
            if whole >> i & 1:
                pass
            elif number >= 0:
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
    if unaligned:                       # each tile begins with a block of random numbers
        group.tile = (group.tile + 3) // 4 * 4
    group.slot = (group.tile * longest + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    groups.append(group)
    return 0


cdef set hold_for_groups(list groups, list buffers):
    """Let buffers live through the groups that use them; return those that stay in the cache.

    The first launch of a group runs on its last tile after the last launch on the first tile.
    """
    cdef Group group
    cdef Buffer buffer
    cdef set inner = set()
    cdef int last
    for group in groups:
        inner |= group.inner
        last = group.first + group.count - 1
        for buffer in buffers:
            if group.first <= buffer.first <= last:
                buffer.first = group.first
            if group.first <= buffer.last <= last:
                buffer.last = last
    return inner


cdef bint shares(Draft made):
    """True if two launches use the same long rows: there is something to keep in the cache."""
    cdef Launch launch
    cdef set seen = set()
    cdef int i, whole
    for launch in made.launches:
        whole = whole_operands(launch)
        for number in {launch.buffers[i] for i in range(launch.call.nout + launch.call.nin)
                       if not whole >> i & 1 and size_of(launch, i) >= made.elements}:
            if number in seen:
                return True
            seen.add(number)
    return False


cdef int64_t size_of(Launch launch, int which) noexcept:
    """Return the elements of an operand that is in a buffer, each counted once; else 0."""
    cdef pb_array *array = &launch.arrays[which]
    cdef int64_t count = launch.buffers[which] >= 0
    cdef int d
    for d in range(array.ndim):
        if array.strides[d]:
            count *= array.shape[d]
    return count


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
        members[k].block = numbers_of_block(launch)
        members[k].offset = launch.offset
        members[k].row = elements(launch) // group.rows
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
    pb_param params[2]
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
        if member.block:
            memcpy(one.params, member.call.param, 2 * sizeof(pb_param))
            one.call.param = one.params
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
            if member.block:
                one.params[member.offset].i = (
                    member.call.param[member.offset].i + row * member.row // member.block)
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

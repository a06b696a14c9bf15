"""Programs: kernel calls that were recorded, and run again without Python and without dispatch.

A program's memory is in buffers. Addresses of arguments, of memory from outside and of results may
differ in each run; where they do, the operands' pointers are set before it. Temporaries have fixed
places in one arena. Several threads may run a program: each run has operands and an arena of its
own.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from pullback.abi cimport (
    PB_DEVICE_TO_DEVICE, PB_DEVICE_TO_HOST, PB_EVENT_KERNEL, PB_EVENT_OP, PB_MESSAGE_SIZE,
    PB_NUM_DTYPES, PB_OK, pb_array, pb_call, pb_event, pb_kernel, pb_param)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.errors cimport raise_code
from pullback._c.base.layout cimport layout_release, layout_retain
from pullback._c.base.state cimport globals_, pb_globals
from pullback._c.base.types cimport pb_storage
from pullback._c.program.groups cimport Group, fill_members, pb_member, run_group
from pullback._c.program.launches cimport (
    BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTER, BUFFER_TEMPORARY, Buffer, Launch)
from pullback._c.program.parts cimport SMALL_WORK, Part, find_parts
from pullback._c.program.run_values cimport Option, count_drawn, give_back, take_draws
from pullback._c.device.device cimport device_type, device_types, pb_device_type, pb_entry
from pullback._c.device.storage cimport storage_new, storage_release, storage_retain
from pullback._c.dispatch.launch cimport call_again, is_timed
from pullback._c.dispatch.observer cimport begin_event, end_event, lasting
from pullback._c.graph.tensor cimport TENSOR_LAZY, Tensor, tensor_new, tensor_wrap

from pullback.ops.table.numbered import NAMES

__all__ = ["Program"]

cdef pb_globals *process = globals_()
cdef list primitive_names = NAMES


# ---- runs ----------------------------------------------------------------------------------------

# An operand whose address depends on that of its buffer.
ctypedef struct pb_site:
    pb_array *array
    int64_t shift

ctypedef struct pb_step:
    pb_call *call
    pb_entry *entry             # NULL: it is called the long way
    int64_t work
    int type_id
    int key
    int group                   # number of the group that begins here, -1: none
    int part                    # number of the part that begins here, -1: none
    int expected                # of a decision: its outcome, 0 or 1; -1 of a kernel


cdef class Instance:
    """What a run needs for itself: operands, and an arena."""
    cdef list launches
    cdef pb_step *steps
    cdef int nsteps
    cdef pb_site *sites                 # in the order of their buffers
    cdef int *ends                      # of each buffer: where its sites end
    cdef void **bases                   # of each buffer: what its sites have for base,
    cdef int64_t *deltas                # and bytes from there to its begin
    cdef list arenas                    # Kept
    cdef list groups
    cdef list parts
    cdef pb_member *members             # of all groups, one after the other
    cdef int failed                     # the launch at which the run ended with an exception
    cdef char message[PB_MESSAGE_SIZE]

    def __dealloc__(self):
        PyMem_Free(self.members)
        PyMem_Free(self.steps)
        PyMem_Free(self.sites)
        PyMem_Free(self.ends)
        PyMem_Free(self.bases)
        PyMem_Free(self.deltas)

    cdef inline void move(self, int number, void *base, int64_t delta) noexcept:
        """Let a buffer begin `delta` bytes from what an allocator returned, in all operands.

        That is an address, or with some backends a handle: `base` stays as it is.
        """
        cdef int i = self.ends[number - 1] if number else 0
        cdef pb_site *site
        while i < self.ends[number]:
            site = &self.sites[i]
            site.array.base = base
            site.array.data = <char *>base + site.shift + delta
            site.array.offset = (site.shift + delta) // dtype_itemsize[site.array.dtype]
            i += 1
        self.bases[number] = base
        self.deltas[number] = delta


cdef Instance instance_of(Program program):
    """Return what a run of a program needs."""
    cdef Instance made = Instance.__new__(Instance)
    cdef Launch launch
    cdef Buffer buffer
    cdef Group group
    cdef Part part
    cdef pb_device_type *found
    cdef int nbuffers = <int>len(program.buffers), count = 0, i, k, number
    made.launches = [(<Launch>launch).copy() for launch in program.launches]
    made.nsteps = <int>len(made.launches)
    made.steps = <pb_step *>PyMem_Malloc(max(made.nsteps, 1) * sizeof(pb_step))
    made.ends = <int *>PyMem_Malloc(max(nbuffers, 1) * sizeof(int))
    made.bases = <void **>PyMem_Malloc(max(nbuffers, 1) * sizeof(void *))
    made.deltas = <int64_t *>PyMem_Malloc(max(nbuffers, 1) * sizeof(int64_t))
    if made.steps == NULL or made.ends == NULL or made.bases == NULL or made.deltas == NULL:
        raise MemoryError()
    memset(made.ends, 0, nbuffers * sizeof(int))
    memset(made.bases, 0, nbuffers * sizeof(void *))
    memset(made.deltas, 0, nbuffers * sizeof(int64_t))
    for launch in made.launches:
        for k in range(launch.call.nout + launch.call.nin):
            if launch.buffers[k] >= 0:
                made.ends[launch.buffers[k]] += 1
                count += 1
    made.sites = <pb_site *>PyMem_Malloc(max(count, 1) * sizeof(pb_site))
    if made.sites == NULL:
        raise MemoryError()
    count = 0
    for i in range(nbuffers):           # where each buffer's sites begin, for now
        number = made.ends[i]
        made.ends[i] = count
        count += number
    for launch in made.launches:
        for k in range(launch.call.nout + launch.call.nin):
            number = launch.buffers[k]
            if number >= 0:
                made.sites[made.ends[number]].array = &launch.arrays[k]
                made.sites[made.ends[number]].shift = launch.shifts[k]
                made.ends[number] += 1
    for i in range(made.nsteps):
        launch = <Launch>made.launches[i]
        found = device_type(launch.type_id)
        launch.call.message = made.message
        made.steps[i].call = &launch.call
        made.steps[i].type_id = launch.type_id
        made.steps[i].key = launch.key
        made.steps[i].work = launch.work
        made.steps[i].entry = NULL
        made.steps[i].group = -1
        made.steps[i].part = -1
        made.steps[i].expected = -1
        if launch.expected is not None:
            made.steps[i].expected = launch.expected
        elif found.host and launch.work < SMALL_WORK and (
                found.backend == NULL or found.backend.current_stream == NULL):
            made.steps[i].entry = &found.table[
                launch.call.primitive * PB_NUM_DTYPES + launch.key]
            launch.call.backend = NULL if found.backend == NULL else found.backend.self
            launch.call.stream = NULL
    made.groups = program.groups
    count = 0
    for group in program.groups:
        made.steps[group.first].group = count
        count += 1
    made.members = <pb_member *>PyMem_Malloc(max(made.nsteps, 1) * sizeof(pb_member))
    if made.members == NULL:
        raise MemoryError()
    for group in program.groups:        # those of a group are where its launches are
        fill_members(group, made.launches, made.members + group.first)
    made.arenas = [keep(storage_new(type_id, index, size)) for type_id, index, size in (
        program.arenas)]
    for buffer in program.buffers:
        if buffer.kind == BUFFER_TEMPORARY and buffer.place >= 0:
            made.move(buffer.number, (<Kept>made.arenas[buffer.arena]).storage.data, buffer.place)
        elif buffer.kind == BUFFER_CONSTANT:
            made.move(buffer.number, buffer.storage.data, 0)
    made.parts = find_parts(made.launches, program.groups, program.buffers)
    count = 0
    for part in made.parts:
        made.steps[part.first].part = count
        count += 1
    return made


cdef bint decides(pb_step *step) except -1:
    """Return the truth of a decision's operand."""
    cdef pb_array *array = step.call.in_[0]
    cdef pb_device_type *found = device_type(step.type_id)
    cdef char value[16]
    cdef char message[PB_MESSAGE_SIZE]
    cdef int i, failed, size = dtype_itemsize[array.dtype]
    if found.host:
        memcpy(value, array.data, size)
    else:
        message[0] = 0
        failed = found.backend.copy_bytes(found.backend.self, array.device, value, 0, array.base,
                                          array.offset * size, size, PB_DEVICE_TO_HOST, message)
        if failed:
            raise_code(failed, message, "decide")
    for i in range(size):
        if value[i]:
            return True
    return False


cdef str name_in_profiles(Instance instance, int first):
    """Return the name of a kernel, a group or a part."""
    cdef list names
    cdef pb_step *step = &instance.steps[first]
    if step.group < 0 and step.part < 0:
        return (<Launch>instance.launches[first]).primitive
    many = instance.groups[step.group] if step.group >= 0 else instance.parts[step.part]
    names = [one.primitive for one in instance.launches[first:first + many.count]]
    return f"group({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"


cdef bint run_observed(Instance instance, str name) except -1:
    """Run all kernels, with an event for the program and one for each kernel or group."""
    cdef pb_event event
    cdef bint fits
    memset(&event, 0, sizeof(event))
    event.sequence = -1
    begin_event(&event, PB_EVENT_OP, lasting(name))
    try:
        for part in instance.parts:     # kernels of the host give the same bits, one by one
            if (<Part>part).host:
                instance.steps[(<Part>part).first].part = -1
        fits = run_steps(instance, True)
    finally:
        end_event(&event)
        for number, part in enumerate(instance.parts):
            instance.steps[(<Part>part).first].part = number
    return fits


cdef bint run_steps(Instance instance, bint observed) except -1:
    """Run all kernels in order; False if a decision has another outcome: the rest has not run."""
    cdef pb_event event
    cdef int number = 0, count
    while number < instance.nsteps:
        instance.failed = number
        if observed:
            memset(&event, 0, sizeof(event))
            event.sequence = -1
            begin_event(&event, PB_EVENT_OP, lasting(name_in_profiles(instance, number)))
            try:
                if instance.steps[number].part >= 0:
                    count = run_part_timed(instance, instance.steps + number)
                else:
                    count = run_step(instance, instance.steps + number)
            finally:
                end_event(&event)
        else:
            count = run_step(instance, instance.steps + number)
        if count == 0:
            return False
        number += count
    return True


cdef inline int run_step(Instance instance, pb_step *step) except -1:
    """Run a kernel or a group; return how many launches that are, 0 for another outcome."""
    cdef pb_kernel kernel
    cdef Group group
    cdef int code
    if step.expected >= 0:
        if decides(step) == step.expected:
            return 1
        error = (<Launch>instance.launches[instance.failed]).error
        if error is None:
            return 0
        raise type(error)(*error.args)
    if step.group >= 0:
        group = <Group>instance.groups[step.group]
        run_group(group, instance.members + group.first, device_types() + step.type_id,
                  instance.message)
        return group.count
    if step.part >= 0:
        return run_part(instance, <Part>instance.parts[step.part])
    kernel = NULL if step.entry == NULL else step.entry.kernel
    if kernel == NULL:
        call_again(step.type_id, step.call, step.key, step.work)
        step.call.message = instance.message
        return 1
    instance.message[0] = 0
    code = kernel(step.call)
    if code != PB_OK:
        raise_code(code, instance.message, <str>primitive_names[step.call.primitive])
    return 1


cdef int run_part(Instance instance, Part part) except -1:
    """Run the launches of a part; return how many they are."""
    cdef int32_t begun
    cdef int code
    instance.message[0] = 0
    code = part.run(&begun, instance.message)
    if code != PB_OK:
        instance.failed = part.first + max(begun - 1, 0)
        raise_code(code, instance.message,
                   <str>primitive_names[instance.steps[instance.failed].call.primitive])
    return part.count


cdef int run_part_timed(Instance instance, pb_step *step) except -1:
    """Run the launches of a part within one kernel event, if the backend has marks."""
    cdef Part part = <Part>instance.parts[step.part]
    cdef pb_event event
    if not is_timed(part.backend):
        return run_part(instance, part)
    memset(&event, 0, sizeof(event))
    event.sequence = -1
    event.backend = part.backend
    event.device_type = step.type_id
    event.device = part.device
    begin_event(&event, PB_EVENT_KERNEL, lasting(name_in_profiles(instance, part.first)))
    try:
        return run_part(instance, part)
    finally:
        end_event(&event)


# ---- programs ------------------------------------------------------------------------------------

cdef class Result:
    """A tensor that a program returns."""

    def __dealloc__(self):
        if self.layout != NULL:
            layout_release(self.layout)


cdef Result result_of(Tensor tensor, int buffer):
    cdef Result made = Result.__new__(Result)
    made.buffer = buffer
    made.layout = layout_retain(tensor.layout)
    made.offset = tensor.offset
    made.dtype = tensor.dtype
    made.flags = tensor.flags & TENSOR_LAZY
    made.device_type = tensor.storage.device_type
    made.device_index = tensor.storage.device_index
    return made


cdef class Outer:
    """A storage that was there before the program."""

    def __dealloc__(self):
        if self.storage != NULL:
            storage_release(self.storage)


cdef class Program:
    """Kernel calls that run again, on other arguments."""

    cpdef bint stale(self) noexcept:
        """True if memory from outside was freed, moved to another device or made smaller."""
        cdef Buffer buffer
        for buffer in self.moving:
            if buffer.kind == BUFFER_OUTER and (
                    buffer.storage.refcount == 1 or buffer.storage.nbytes < buffer.nbytes
                    or buffer.storage.device_type != buffer.device_type
                    or buffer.storage.device_index != buffer.device_index):
                return True
        return False

    @property
    def arena(self):
        """The bytes of all arenas."""
        return sum([size for _, _, size in self.arenas])

    @property
    def parts(self):
        """Parts that an executor of their backend runs: pairs of the first launch and how many.

        Known after the first run; empty before.
        """
        if not self.idle:
            return []
        return [(part.first, part.count) for part in (<Instance>self.idle[0]).parts]

    cpdef list run(self, list inputs, list drawn=None):
        """Run on arguments that fit; return the results.

        None if memory from outside is gone (``stale``), if a decision has another outcome than when
        it was recorded, or if a kernel failed, so that the function has a message for it; then
        nothing that was there before has changed. ``drawn`` gets what generators gave: (generator,
        seed, first block).
        """
        cdef Instance instance
        cdef Buffer buffer
        cdef Result result
        cdef Outer prior
        cdef Tensor tensor
        cdef list found = [], firsts = None
        cdef list fresh = None
        cdef pb_storage *storage
        cdef int64_t delta
        cdef bint done = False, fits = True
        if self.stale():
            return None
        instance = <Instance>self.idle.pop() if self.idle else instance_of(self)
        try:
            for buffer in self.moving:
                delta = 0
                if buffer.kind == BUFFER_INPUT:
                    tensor = <Tensor>inputs[buffer.input]
                    storage = tensor.storage
                    delta = tensor.offset * dtype_itemsize[tensor.dtype] - (
                        <int64_t>self.begins[buffer.input])
                elif buffer.kind == BUFFER_OUTER:
                    storage = buffer.storage
                else:
                    storage = storage_new(buffer.device_type, buffer.device_index, buffer.nbytes)
                    if fresh is None:
                        fresh = [None] * len(self.buffers)
                    fresh[buffer.number] = keep(storage)
                    if buffer.storage != NULL:
                        fill(storage, buffer.storage)
                if (instance.bases[buffer.number] != storage.data
                        or instance.deltas[buffer.number] != delta):
                    instance.move(buffer.number, storage.data, delta)
            firsts = take_draws(self.draws, instance.launches) if self.draws else []
            for number, param, option in self.options:
                if number < 0:
                    (<Option>option).store()
                    continue
                (<pb_param *>(<Launch>instance.launches[number]).call.param)[<int>param].d = (
                    (<Option>option).value())
            try:
                fits = (run_steps(instance, False) if process.observer == NULL
                        else run_observed(instance, self.name))
                done = True
            except (IndexError, RuntimeError, ValueError):
                if self.first_write < instance.failed + self.launches_at(instance.failed):
                    raise
                fits = False
                done = True
            finally:
                if not done:
                    give_back(self.draws, firsts, count_drawn(instance.launches[:instance.failed]))
                for prior in self.outers if fits else ():
                    storage = prior.storage
                    if storage == NULL:
                        storage = (<Tensor>inputs[prior.input]).storage
                    storage.version += prior.writes if done else 1
        finally:
            self.idle.append(instance)
        if not fits:
            give_back(self.draws, firsts, 0)
            return None
        if drawn is not None:
            for (generator, _), (seed, first) in zip(self.draws, firsts):
                drawn.append((generator, seed, first))
        for item in self.results:
            if type(item) is not Result:
                found.append(item)
                continue
            result = <Result>item
            if result.buffer == -1:
                found.append(inputs[result.offset])
                continue
            if result.buffer == -2:
                found.append(tensor_new(layout_retain(result.layout), result.dtype,
                                        result.device_type, result.device_index))
                continue
            buffer = <Buffer>self.buffers[result.buffer]
            delta = 0
            if buffer.kind == BUFFER_INPUT:
                tensor = <Tensor>inputs[buffer.input]
                storage = tensor.storage
                delta = (tensor.offset * dtype_itemsize[tensor.dtype] - (
                    <int64_t>self.begins[buffer.input])) // dtype_itemsize[result.dtype]
            elif buffer.kind == BUFFER_OUTER:
                storage = buffer.storage
            else:
                storage = (<Kept>fresh[result.buffer]).storage
            tensor = tensor_wrap(storage_retain(storage), layout_retain(result.layout),
                                 result.offset + delta, result.dtype)
            tensor.flags |= result.flags
            found.append(tensor)
        return found

    cdef int launches_at(self, int number):
        """Return how many launches run at once: those of the group that begins there, or one."""
        cdef Group group
        for group in self.groups:
            if group.first == number:
                return group.count
        return 1


# Keeps a storage until the run has ended.
cdef class Kept:
    cdef pb_storage *storage            # owned

    def __dealloc__(self):
        if self.storage != NULL:
            storage_release(self.storage)


cdef Kept keep(pb_storage *storage):
    cdef Kept made = Kept.__new__(Kept)
    made.storage = storage
    return made


cdef int fill(pb_storage *storage, pb_storage *source) except -1:
    """Copy all bytes of a storage to another of the same device."""
    cdef pb_device_type *found = device_type(storage.device_type)
    cdef char message[PB_MESSAGE_SIZE]
    cdef int failed
    if found.host:
        memcpy(storage.data, source.data, source.nbytes)
        return 0
    message[0] = 0
    failed = found.backend.copy_bytes(
        found.backend.self, storage.device_index, storage.data, 0, source.data, 0, source.nbytes,
        PB_DEVICE_TO_DEVICE, message)
    if failed:
        raise_code(failed, message, "copy")
    return 0

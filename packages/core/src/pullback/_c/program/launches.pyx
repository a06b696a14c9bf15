# build: small
"""Kernel calls that were recorded, and the memory that they use."""

from math import prod

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_MAX_NDIM, PB_MAX_OPERANDS, PB_PARAM_FLOAT, PB_PARAM_INTS, pb_array, pb_call,
    pb_param)
from pullback._c.base.dtype cimport dtype_itemsize, dtype_object, scalar_read
from pullback._c.device.device cimport MAX_DEVICE_TYPES, device_types
from pullback._c.device.storage cimport storage_release
from pullback._c.dispatch.launch cimport param_fill
from pullback._c.graph.tensor cimport device_of

from pullback.ops.table.numbered import NAMES
from pullback.ops.table.primitives import PRIMITIVES

__all__ = ["Buffer", "Launch", "launch_instead"]

cdef list primitive_names = NAMES
cdef list kinds = ["temporary", "result", "input", "outside", "constant"]


cdef class Buffer:
    """A block of memory that kernels of a program use."""

    def __dealloc__(self):
        if self.storage != NULL:
            storage_release(self.storage)

    @property
    def kind_name(self):
        """What it is: temporary, result, input, outside or constant."""
        return kinds[self.kind]

    @property
    def used(self):
        """True if a kernel uses it."""
        return self.first >= 0

    @property
    def device(self):
        """The device of the memory."""
        return device_of(self.device_type, self.device_index)

    def __repr__(self):
        return f"<Buffer {self.number} {kinds[self.kind]} {self.nbytes} bytes>"


cdef object place_of(pb_storage *storage):
    return place(storage.device_type, storage.device_index, storage.data)


cdef Buffer buffer_on_host(dict live, void *base):
    """Return the buffer at an address of the host, by places; None of a number of the caller."""
    cdef int type_id
    for type_id in range(MAX_DEVICE_TYPES):
        if device_types()[type_id].host:
            found = live.get(place(type_id, 0, base))
            if found is not None:
                return <Buffer>found
    return None


cdef class Launch:
    """A recorded kernel call."""

    def __dealloc__(self):
        PyMem_Free(self.arrays)

    cdef Launch copy(self):
        """Return a call with operands of its own."""
        return launch_of(self.type_id, &self.call, self.key, self.work, self)

    @property
    def primitive(self):
        """The name of the primitive; of a decision "decide"."""
        return "decide" if self.call.primitive < 0 else primitive_names[self.call.primitive]

    @property
    def family(self):
        """What kind of primitive it is, of ops/table/primitives.py; of others an empty string."""
        known = PRIMITIVES.get(self.primitive)
        return "" if known is None else known.family

    @property
    def device(self):
        """The device that runs it."""
        return device_of(self.type_id, self.call.device)

    @property
    def operands(self):
        """Of each operand, outputs first: its buffer or None, dtype, shape, strides, offset."""
        cdef list found = []
        cdef pb_array *array
        cdef int i, d
        for i in range(self.call.nout + self.call.nin):
            array = &self.arrays[i]
            found.append((
                None if self.buffers[i] < 0 else self.buffers[i], dtype_object(array.dtype),
                tuple([array.shape[d] for d in range(array.ndim)]),
                tuple([array.strides[d] for d in range(array.ndim)]),
                self.shifts[i] // dtype_itemsize[array.dtype]))
        return found

    @property
    def settings(self):
        """What it is called with besides operands: parameters, numbers on the host, flags.

        Numbers and flags are those of operands, outputs first; None is no number.
        """
        cdef list params = [], numbers = [], flags = []
        cdef const pb_param *param
        cdef pb_array *array
        cdef int i, k
        for i in range(self.call.nparam):
            param = &self.call.param[i]
            if param.kind == PB_PARAM_INTS:
                params.append(tuple([param.ints[k] for k in range(param.count)]))
            else:
                params.append(param.d if param.kind == PB_PARAM_FLOAT else param.i)
        for i in range(self.call.nout + self.call.nin):
            array = &self.arrays[i]
            flags.append(array.flags)
            numbers.append(scalar_read(array.data, array.dtype)
                           if array.flags & PB_ARRAY_HOST and self.buffers[i] < 0 else None)
        return params, numbers, flags

    cdef bint reads_host(self) noexcept:
        """True if a tensor on the host is an operand, of a kernel of another device."""
        cdef int i
        for i in range(self.call.nout + self.call.nin):
            if self.arrays[i].flags & PB_ARRAY_HOST and self.buffers[i] >= 0:
                return True
        return False

    @property
    def is_plain(self):
        """False for a decision, random numbers and a step of an optimizer."""
        return self.expected is None and self.draw < 0 and self.options is None

    @property
    def outputs(self):
        """The number of outputs."""
        return self.call.nout

    def __repr__(self):
        shown = [f"%{number}" if number is not None else "number"
                 for number, *_ in self.operands]
        if self.expected is not None:
            return f"decide({shown[0]}) is {self.expected}"
        outputs = ", ".join(shown[:self.call.nout])
        return f"{outputs} = {self.primitive}({', '.join(shown[self.call.nout:])})"


def launch_instead(Launch root not None, int primitive, int key, list operands, tuple params):
    """Return a launch of a primitive of programs, in place of one that has the same output; None
    if there are too many operands.

    ``operands``, the output first: a launch and the number of its operand which is in the same
    memory, the shape, the strides and the offset of this one.
    """
    cdef pb_array arrays[PB_MAX_OPERANDS]
    cdef pb_array *pointers[PB_MAX_OPERANDS]
    cdef int64_t dims[PB_MAX_OPERANDS * 8]
    cdef int64_t room[PB_MAX_NDIM]
    cdef pb_param values[8]
    cdef pb_call call = root.call
    cdef Launch source, made
    cdef int64_t work = 0
    cdef int i, d, used = 0, which
    if len(operands) > PB_MAX_OPERANDS:
        return None
    for i in range(<int>len(operands)):
        source, which, shape, strides, _ = operands[i]
        arrays[i] = source.arrays[which]
        if used + 2 * len(shape) > PB_MAX_OPERANDS * 8:
            return None
        arrays[i].ndim = <int>len(shape)
        arrays[i].shape, arrays[i].strides = dims + used, dims + used + len(shape)
        for d in range(<int>len(shape)):
            dims[used + d], dims[used + len(shape) + d] = shape[d], strides[d]
        used += 2 * <int>len(shape)
        work += prod(shape)
        pointers[i] = &arrays[i]
    used = 0
    for i in range(<int>len(params)):
        param_fill(&values[i], params[i], room + used, PB_MAX_NDIM - used)
        used += values[i].count
    call.primitive = primitive
    call.nout = 1
    call.nin = <int>len(operands) - 1
    call.nparam = <int>len(params)
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = values
    made = launch_of(root.type_id, &call, key, work)
    for i in range(<int>len(operands)):
        source, which, _, _, offset = operands[i]
        made.buffers[i] = source.buffers[which]
        made.shifts[i] = <int64_t>offset * dtype_itemsize[arrays[i].dtype]
    return made


cdef Launch launch_of(int type_id, pb_call *call, int key, int64_t work, Launch like=None):
    """Return a copy of a call; `like` has the places of its operands."""
    cdef Launch made = Launch.__new__(Launch)
    cdef int count = call.nout + call.nin, i, ints = 0, dims = 0
    cdef pb_array *arrays
    cdef pb_array **pointers
    cdef pb_param *params
    cdef int64_t *room
    cdef char *numbers
    cdef size_t size
    for i in range(count):
        dims += 2 * call.out[i].ndim
    for i in range(call.nparam):
        if call.param[i].kind == PB_PARAM_INTS:
            ints += call.param[i].count
    size = (count * (sizeof(pb_array) + sizeof(void *) + 2 * sizeof(int64_t) + 16)
            + call.nparam * sizeof(pb_param) + (dims + ints) * sizeof(int64_t))
    arrays = <pb_array *>PyMem_Malloc(size)
    if arrays == NULL:
        raise MemoryError()
    made.arrays = arrays
    pointers = <pb_array **>(arrays + count)
    params = <pb_param *>(pointers + count)
    numbers = <char *>(params + call.nparam)            # 16 bytes for each operand
    made.shifts = <int64_t *>(numbers + 16 * count)
    room = made.shifts + count
    made.buffers = <int *>(room + dims + ints)
    for i in range(count):
        arrays[i] = call.out[i][0]                      # the inputs follow the outputs
        pointers[i] = &arrays[i]
        memcpy(room, call.out[i].shape, arrays[i].ndim * sizeof(int64_t))
        arrays[i].shape = room
        room += arrays[i].ndim
        memcpy(room, call.out[i].strides, arrays[i].ndim * sizeof(int64_t))
        arrays[i].strides = room
        room += arrays[i].ndim
        if arrays[i].flags & PB_ARRAY_HOST and (like is None or like.buffers[i] < 0):
            memcpy(numbers + 16 * i, arrays[i].data, dtype_itemsize[arrays[i].dtype])
            arrays[i].data = arrays[i].base = numbers + 16 * i
        made.buffers[i] = -1 if like is None else like.buffers[i]
        made.shifts[i] = 0 if like is None else like.shifts[i]
    for i in range(call.nparam):
        params[i] = call.param[i]
        if params[i].kind == PB_PARAM_INTS:
            memcpy(room, params[i].ints, params[i].count * sizeof(int64_t))
            params[i].ints = room
            room += params[i].count
    made.call = call[0]
    made.call.out = pointers
    made.call.in_ = pointers + call.nout
    made.call.param = params
    made.type_id = type_id
    made.key = key
    made.work = work
    made.draw = -1
    if like is not None:
        made.draw = like.draw
        made.seed = like.seed
        made.offset = like.offset
        made.draw_shift = like.draw_shift
        made.expected = like.expected
        made.error = like.error
        made.options = like.options
    return made

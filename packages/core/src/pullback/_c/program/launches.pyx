# build: small
"""Kernel calls that were recorded, and the memory that they use."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from pullback.abi cimport PB_ARRAY_HOST, PB_PARAM_INTS, pb_array, pb_call, pb_param
from pullback._c.base.dtype cimport dtype_itemsize, dtype_object
from pullback._c.device.storage cimport storage_release
from pullback._c.graph.tensor cimport device_of

from pullback.ops.table.numbered import NAMES

__all__ = ["Buffer", "Launch"]

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
        if arrays[i].flags & PB_ARRAY_HOST:
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

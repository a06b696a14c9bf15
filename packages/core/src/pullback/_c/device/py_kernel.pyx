# build: small
"""Calls of kernels written in Python, and of the host's NumPy kernels on memory of a device.

Which kernel runs is decided in `dispatch/launch.pyx`.
"""

from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_ARRAY_WRITE, PB_DEVICE_TO_HOST, PB_HOST_TO_DEVICE, PB_MESSAGE_SIZE,
    PB_OPERAND_INNER, PB_PARAM_FLOAT, PB_PARAM_INT, pb_array, pb_call, pb_param, pb_part)
from pullback._c.device.device cimport device_make, device_types, pb_device_type
from pullback._c.base.dtype cimport dtype_itemsize, dtype_object, scalar_read
from pullback._c.base.errors cimport raise_failure
from pullback._c.device.py_allocator import memories, set_describe_part
from pullback.ops.table.numbered import NAMES, PARAMS

cdef list primitive_params = PARAMS
cdef object numpy = None
cdef object bfloat16 = None


cdef class KernelArray:
    """One operand of a Python kernel, on a backend whose memory is no host memory.

    Attributes: ``base`` (the result of the backend's allocate), ``offset`` and ``strides`` in
    elements, ``shape``, ``dtype`` (a name), ``device`` (an index), ``host`` (True: the operand is
    one number, ``value``, and ``base`` its address in host memory).
    """
    cdef readonly size_t base
    cdef readonly int64_t offset
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly str dtype
    cdef readonly int device
    cdef readonly bint host
    cdef int code

    @property
    def value(self):
        """The number of an operand with ``host``; None of other operands."""
        return scalar_read(<void *>self.base, self.code) if self.host else None

    def __repr__(self):
        where = f"value={self.value}" if self.host else f"base={self.base}, offset={self.offset}"
        return f"<KernelArray {self.dtype}{list(self.shape)} strides={self.strides} {where}>"


cdef object kernel_array(pb_array *array):
    cdef KernelArray result = KernelArray.__new__(KernelArray)
    cdef int d
    result.host = array.flags & PB_ARRAY_HOST != 0
    result.base = <size_t>(array.data if result.host else array.base)
    result.offset = 0 if result.host else array.offset
    result.shape = tuple([array.shape[d] for d in range(array.ndim)])
    result.strides = tuple([array.strides[d] for d in range(array.ndim)])
    result.dtype = dtype_object(array.dtype).name
    result.code = array.dtype
    result.device = array.device
    return result


cdef class KernelCall:
    """One kernel call of a part of a compiled program, as ``Memory.compile`` gets them.

    Attributes: ``primitive``, ``outs`` and ``ins`` (tuples of ``KernelArray``), ``params`` (a
    dict), and ``inner``: for each output, whether its memory is of no use outside of the part.
    """
    cdef readonly str primitive
    cdef readonly tuple outs
    cdef readonly tuple ins
    cdef readonly dict params
    cdef readonly tuple inner

    def __repr__(self):
        return f"<KernelCall {self.primitive}>"


def calls_of_part(size_t address):
    """Return the calls of a ``pb_part`` as they are now."""
    cdef const pb_part *part = <const pb_part *>address
    cdef KernelCall made
    cdef pb_call *call
    cdef list found = []
    cdef int i, k, at = 0
    for i in range(part.count):
        call = part.calls[i]
        made = KernelCall.__new__(KernelCall)
        made.primitive = primitive_name(call.primitive)
        made.outs = tuple([kernel_array(call.out[k]) for k in range(call.nout)])
        made.ins = tuple([kernel_array(call.in_[k]) for k in range(call.nin)])
        made.params = call_params(call)
        made.inner = tuple([part.flags[at + k] & PB_OPERAND_INNER != 0 for k in range(call.nout)])
        at += call.nout + call.nin
        found.append(made)
    return found


set_describe_part(calls_of_part)


cdef class HostMemory:
    """Exposes memory to NumPy for one kernel call."""
    cdef readonly dict __array_interface__


cdef object numpy_dtype(int code):
    """Return NumPy's dtype of a code; bfloat16 is ml_dtypes'."""
    global numpy, bfloat16
    if numpy is None:
        import numpy as module
        numpy = module
    name = dtype_object(code).name
    if name == "bfloat16":
        if bfloat16 is None:
            from ml_dtypes import bfloat16 as found
            bfloat16 = numpy.dtype(found)
        return bfloat16
    return numpy.dtype(name)


cdef object host_array(pb_array *array):
    """Return a NumPy array over host memory; valid as long as the memory is."""
    cdef HostMemory memory
    cdef int d
    dtype = numpy_dtype(array.dtype)
    shape = tuple([array.shape[d] for d in range(array.ndim)])
    if 0 in shape:
        return numpy.empty(shape, dtype)
    memory = HostMemory.__new__(HostMemory)
    size = dtype.itemsize
    plain = "<u2" if dtype is bfloat16 else dtype.str
    memory.__array_interface__ = {
        "version": 3, "shape": shape, "typestr": plain,
        "data": (<size_t>array.data, array.flags & PB_ARRAY_WRITE == 0),
        "strides": tuple([array.strides[d] * size for d in range(array.ndim)])}
    result = numpy.asarray(memory)
    return result.view(dtype) if plain != dtype.str else result


cdef dict call_params(pb_call *call):
    cdef dict params = {}
    cdef int i, k
    cdef const pb_param *param
    for i in range(call.nparam):
        param = &call.param[i]
        name = primitive_params[call.primitive][i]
        if param.kind == PB_PARAM_INT:
            params[name] = param.i
        elif param.kind == PB_PARAM_FLOAT:
            params[name] = param.d
        else:
            params[name] = tuple([param.ints[k] for k in range(param.count)])
    return params


cdef int run_callable(object function, pb_call *call, bint host, str device) except -1:
    cdef int i
    outs = []
    ins = []
    for i in range(call.nout):
        call.out[i].flags |= PB_ARRAY_WRITE
        outs.append(host_array(call.out[i]) if host else kernel_array(call.out[i]))
    for i in range(call.nin):
        ins.append(host_array(call.in_[i]) if host else kernel_array(call.in_[i]))
    try:
        if host:
            result = run_quietly(function, outs, ins, call)
        else:
            result = function(outs[0] if len(outs) == 1 else tuple(outs), *ins,
                              **call_params(call))
        if result is not None:
            problem = store_results(result, outs, host, device)
            result = None               # freeing an array may run code, which needs no exception
            if problem is not None:
                raise TypeError(problem)
    except DEFECTS as error:
        raise RuntimeError(f"the kernel {primitive_name(call.primitive)!r} of the backend "
                           f"{device!r} failed: {type(error).__name__}: {error}") from error
    except (ValueError, NotImplementedError) as error:
        add_place(error, call, device)
        raise
    return 0


cdef object run_quietly(object function, list outs, list ins, pb_call *call):
    """Call a kernel that computes with NumPy, with NumPy's warnings off; return its result."""
    # Not `with`: where a traceback finds no memory, Cython's reads a null pointer.
    quiet = numpy.errstate(all="ignore")
    quiet.__enter__()
    try:
        return function(outs[0] if len(outs) == 1 else tuple(outs), *ins, **call_params(call))
    finally:
        quiet.__exit__(None, None, None)


cdef dict RANKS = {"bool": 0, "int": 1, "float": 2, "complex": 3}   # none fits into one before
cdef dict KINDS = {"uint": "int", "bfloat": "float"}


def kind_of(dtype):
    """Return the kind of a dtype of any library, from its name: "bool", "int", "float", ...

    >>> import numpy
    >>> from pullback.backend.results import kind_of
    >>> kind_of(numpy.dtype("uint8")), kind_of("bfloat16"), kind_of("mlx.core.complex64")
    ('int', 'float', 'complex')
    """
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2].rstrip("0123456789_")
    return KINDS.get(name, name)


cdef str store_results(object result, list outs, bint host, str device):
    """Write the arrays that a kernel returned into its outputs; return what is wrong, or None."""
    cdef object store = None
    values = [result] if len(outs) == 1 else result
    if not isinstance(values, (list, tuple)) or len(values) != len(outs):
        count = f" of {len(values)}" if isinstance(values, (list, tuple)) else ""
        return (f"it returned {type(result).__name__}{count}: a kernel with {len(outs)} outputs "
                "fills them, or returns a tuple of as many arrays")
    if not host:
        store = getattr(memories.get(device), "store", None)
    for out, value in zip(outs, values):
        if value is out:                # as NumPy's functions with out= do
            continue
        kind = type(value).__name__
        shape = getattr(value, "shape", None)
        if shape is None or tuple(shape) != out.shape:
            what = kind if shape is None else f"shape {tuple(shape)}"
            return f"it returned {what} for an output of shape {out.shape}"
        given = getattr(value, "dtype", out.dtype)
        if RANKS.get(kind_of(given), 0) > RANKS.get(kind_of(out.dtype), 3):
            return f"it returned {given} for an output of {out.dtype}"
        if host:
            out[...] = value
        elif store is None:
            return (f"it returned {kind}: a kernel fills its outputs, or the memory of the backend "
                    "has a method store(out, value), which writes what kernels return")
        else:
            store(out, value)
    return None


cdef int add_place(object error, pb_call *call, str device) except -1:
    """Add the kernel, dtype and device to an exception that a kernel raised for the user."""
    cdef pb_array *first = call.in_[0] if call.nin else call.out[0]
    note = (f"in the kernel {primitive_name(call.primitive)!r} of the backend {device!r}, for "
            f"{dtype_object(first.dtype).name}")
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif len(error.args) == 1 and isinstance(error.args[0], str):     # before Python 3.11
        error.args = (f"{error.args[0]} ({note})",)
    return 0


# Exceptions that mean a defect of the kernel, which are wrapped. All others go to the user as they
# are: a kernel may raise them on purpose, or a signal handler that ran inside it.
DEFECTS = (TypeError, AttributeError, NameError, ArithmeticError, AssertionError, KeyError,
           ImportError, StopIteration)


cdef list primitive_names = NAMES


cdef str primitive_name(int primitive):
    return primitive_names[primitive]


cdef object fetch(pb_device_type *found, pb_array *array, int64_t *moved):
    """Copy an operand of a backend with its own memory to a NumPy array of the same shape."""
    cdef int64_t high = 0, low = 0
    cdef int d, failed
    cdef char message[PB_MESSAGE_SIZE]
    cdef size_t size = dtype_itemsize[array.dtype]
    if array.flags & PB_ARRAY_HOST:
        return host_array(array).copy()
    for d in range(array.ndim):
        if array.shape[d] == 0:
            return host_array(array)
        if array.strides[d] > 0:
            high += (array.shape[d] - 1) * array.strides[d]
        else:
            low += (array.shape[d] - 1) * array.strides[d]
    numpy_dtype(array.dtype)
    moved[0] += (high - low + 1) * size
    flat = numpy.empty((high - low + 1) * size, "u1")
    cdef size_t address = flat.ctypes.data
    message[0] = 0
    failed = found.backend.copy_bytes(
        found.backend.self, array.device, <void *>address, 0, array.base,
        (array.offset + low) * size, (high - low + 1) * size, PB_DEVICE_TO_HOST, message)
    if failed:
        raise_failure(failed, message, "copy to the host",
                      device_make(<int>(found - device_types()), array.device))
    cdef pb_array host = array[0]
    host.data = <void *>(address - low * <int64_t>size)
    return host_array(&host).copy()


cdef int64_t run_on_host(pb_device_type *found, object function, pb_call *call) except -1:
    """Run a NumPy kernel on copies; returns how many bytes were copied, in both directions."""
    cdef int64_t moved = 0
    cdef int i
    outs = [fetch(found, call.out[i], &moved) for i in range(call.nout)]
    ins = [fetch(found, call.in_[i], &moved) for i in range(call.nin)]
    run_quietly(function, outs, ins, call)
    for i in range(call.nout):
        put_back(found, call.out[i], outs[i], &moved)
    return moved


cdef int put_back(pb_device_type *found, pb_array *array, object result,
                  int64_t *moved) except -1:
    """Write a NumPy array into a strided output: in one copy if it is dense, else by elements."""
    cdef size_t size = dtype_itemsize[array.dtype]
    cdef int64_t offset, step = 1
    cdef int d
    cdef bint dense = True
    for d in range(array.ndim - 1, -1, -1):
        dense = dense and (array.shape[d] == 1 or array.strides[d] == step)
        step *= array.shape[d]
    if step == 0:
        return 0
    moved[0] += step * size
    if dense:
        return put_bytes(found, array, array.offset, result, step * size)
    for index in numpy.ndindex(result.shape):
        offset = array.offset
        for d in range(array.ndim):
            offset += <int64_t>index[d] * array.strides[d]
        put_bytes(found, array, offset, result[index], size)
    return 0


cdef int put_bytes(pb_device_type *found, pb_array *array, int64_t offset, object source,
                   size_t nbytes) except -1:
    """Copy consecutive elements to an array, at `offset` elements from its base."""
    cdef char message[PB_MESSAGE_SIZE]
    cdef int failed
    row = numpy.ascontiguousarray(source)
    cdef size_t address = row.ctypes.data
    message[0] = 0
    failed = found.backend.copy_bytes(
        found.backend.self, array.device, array.base, offset * dtype_itemsize[array.dtype],
        <void *>address, 0, nbytes, PB_HOST_TO_DEVICE, message)
    if failed:
        raise_failure(failed, message, "copy from the host",
                      device_make(<int>(found - device_types()), array.device))
    return 0

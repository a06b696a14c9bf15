# build: small
"""Notifications for anomaly detection: new nodes, results, in-place writes, the node that failed.

What they raise and warn of is Python, in `autograd/anomaly_mode.py`. The rest is C: of a long run,
in which few nodes and ops are looked at, each of them may cost little.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_C64, PB_C128, PB_F32, PB_F64
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.state cimport CHECK_FORWARD, globals_, pb_globals, thread_state
from pullback._c.base.types cimport LAYOUT_DENSE, pb_node, pb_storage, pb_storage_extra
from pullback._c.device.device cimport device_type
from pullback._c.device.storage cimport storage_extra
from pullback._c.graph.node cimport node_notes, node_object
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, Tensor, is_tensor, tensor_data, tensor_is_exact)

from pullback._c.base.errors import user_frame

__all__ = ["Stack", "running_stack", "set_listeners"]

cdef extern from "Python.h":
    ctypedef struct PyCodeObject
    int PyCode_Addr2Line(PyCodeObject *code, int instruction)

cdef enum:
    FEW_ELEMENTS = 4096         # are read here, more are summed by the backend

cdef pb_globals *process = globals_()

# Called with the node that failed, with an operand that is going to be written, which a copy of it
# stands for from then on, with (name of an op, operands, result), and with (node, gradients that it
# got, those that it returned).
cdef object on_failure = None
cdef object on_write = None
cdef object on_forward = None
cdef object on_gradients = None


def set_listeners(failure, write, forward, gradients):
    """Install the functions of anomaly detection."""
    global on_failure, on_write, on_forward, on_gradients
    on_failure = failure
    on_write = write
    on_forward = forward
    on_gradients = gradients


# ---- where the user's code runs ------------------------------------------------------------------

cdef set files_known = set()    # whose source `linecache` can find


cdef class Stack:
    """Where the user's code ran: the sequence that ``traceback.format_stack`` would have returned.

    The texts are made when they are read. ``str`` returns the innermost file and line.
    """

    cdef list frames            # code and last instruction of each, innermost last

    def __init__(self):
        raise TypeError("cannot create 'Stack' instances")

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, key):
        if isinstance(key, slice):
            return [text_of(frame) for frame in self.frames[key]]
        return text_of(self.frames[key])

    def __str__(self):
        if not self.frames:
            return "a thread without Python code"
        return place_of(self.frames[len(self.frames) - 1])


cdef str place_of(tuple frame):
    code, instruction = frame
    line = PyCode_Addr2Line(<PyCodeObject *>code, instruction)
    return f'File "{code.co_filename}", line {line}, in {code.co_name}'


cdef str text_of(tuple frame):
    import linecache                    # only needed in this mode

    code, instruction = frame
    line = PyCode_Addr2Line(<PyCodeObject *>code, instruction)
    source = linecache.getline(code.co_filename, line).strip()
    text = f"  {place_of(frame)}\n"
    return f"{text}    {source}\n" if source else text


def running_stack(int limit=-1):
    """Return the stack of the user's running code, of ``limit`` frames at most."""
    cdef Stack stack = Stack.__new__(Stack)
    cdef list frames = []
    frame = user_frame()
    while frame is not None and len(frames) != limit:
        code = frame.f_code
        frames.append((code, frame.f_lasti))
        if code.co_filename not in files_known:
            know_file(code.co_filename, frame.f_globals)
        frame = frame.f_back
    frames.reverse()
    stack.frames = frames
    return stack


cdef int know_file(str name, dict names) except -1:
    """Let the source of a file be found once its module's globals are gone."""
    import linecache

    linecache.lazycache(name, names)
    files_known.add(name)
    return 0


# ---- what is noted -------------------------------------------------------------------------------

cdef int note_node(pb_node *node) except -1:
    """Store in the metadata of a new node its stack, and the node whose backward made it."""
    cdef pb_node *running
    cdef dict metadata = node_notes(node)
    if "traceback_" in metadata:
        return 0
    metadata["traceback_"] = running_stack()
    running = <pb_node *>thread_state().running_node
    if running != NULL:
        metadata["parent_"] = node_object(running)
    return 0


cdef int note_result(object result) except -1:
    """Note the node that the results of an op share; for a written view its base's too."""
    if is_tensor(result):
        return note_tensor(<Tensor>result)
    for item in result:
        if (<Tensor>item).node != NULL:
            return note_tensor(<Tensor>item)
    return 0


cdef inline int note_tensor(Tensor tensor) except -1:
    cdef pb_node *base
    if tensor.flags & TENSOR_IS_VIEW:
        base = (<Tensor>tensor.extra.base).node
        if base != NULL and is_sampled(base.sequence):
            note_node(base)
    if tensor.node != NULL and is_sampled(tensor.node.sequence):
        note_node(tensor.node)
    return 0


cdef uint64_t results_seen = 0      # of ops, to choose some
cdef uint64_t writes_seen = 0

cdef bint wants_result() noexcept:
    """True if the result of the op that begins is one of those that are checked."""
    global results_seen
    if not process.anomaly or not process.anomaly_checks & CHECK_FORWARD:
        return False
    results_seen += 1
    return on_forward is not None and is_sampled(results_seen)


cdef list operands_before(int nargs, PyObject **args, object written):
    """Return the operands of an op; copies of those that it writes, one tensor or several."""
    cdef int i
    cdef list found = []
    targets = written if isinstance(written, tuple) else (written,)
    for i in range(nargs):
        if args[i] == NULL:
            continue
        operand = <object>args[i]
        found.append(on_write(operand) if any([one is operand for one in targets]) else operand)
    return found


cdef int note_forward(str name, int nargs, PyObject **args, list operands,
                      object result) except -1:
    """Notify of the result of an op, unless all its elements are seen to be finite.

    ``operands`` are those that it had, if it writes; else an operand that it returns is as it was.
    """
    cdef int i
    if is_finite(<PyObject *>result):
        return 0
    if operands is None:
        for i in range(nargs):
            if args[i] == <PyObject *>result:
                return 0
        operands = [<object>args[i] for i in range(nargs) if args[i] != NULL]
    on_forward(name, operands, result)
    return 0


cdef int note_gradients(pb_node *node, PyObject **grads, PyObject **results) except -1:
    """Notify of the gradients that a node got and returned; None where there is none.

    Not if all elements of those that it returned are seen to be finite.
    """
    cdef uint32_t i = 0
    while i < node.nedges and is_finite(results[i]):
        i += 1
    if i == node.nedges:
        return 0
    on_gradients(
        node_object(node),
        [None if grads[i] == NULL else <object>grads[i] for i in range(node.noutputs)],
        [None if results[i] == NULL else <object>results[i] for i in range(node.nedges)])
    return 0


cdef bint is_finite(PyObject *value) noexcept:
    """True if a gradient or result is None, or has few elements on the host, all finite."""
    cdef Tensor tensor
    cdef int64_t i, count
    cdef uint32_t found = 0
    cdef uint32_t *words
    if value == NULL or value == <PyObject *>None:
        return True
    if not tensor_is_exact(<object>value):
        return False
    tensor = <Tensor>value
    if (tensor.layout.numel > FEW_ELEMENTS or thread_state().levels
            or not tensor.layout.flags & LAYOUT_DENSE
            or tensor.dtype not in (PB_F32, PB_F64, PB_C64, PB_C128)
            or not device_type(tensor.storage.device_type).host):
        return False
    # The exponent of a number that is not finite has all bits set: 8 in a float, 11 in a double,
    # whose upper half is the second word of the two.
    words = <uint32_t *>tensor_data(tensor)
    count = tensor.layout.numel * dtype_itemsize[tensor.dtype] // sizeof(uint32_t)
    if tensor.dtype == PB_F32 or tensor.dtype == PB_C64:
        for i in range(count):
            found |= words[i] & 0x7f800000u == 0x7f800000u
    else:
        for i in range(1, count, 2):
            found |= words[i] & 0x7ff00000u == 0x7ff00000u
    return found == 0


cdef int note_write(pb_storage *storage) except -1:
    """Store the source line of a write in the storage."""
    cdef pb_storage_extra *extra
    cdef PyObject *before
    global writes_seen
    writes_seen += 1
    if not is_sampled(writes_seen) and storage.extra == NULL:
        return 0
    line = None
    if is_sampled(writes_seen):
        line = running_stack(1)
        Py_INCREF(line)
    extra = storage_extra(storage)
    before = extra.written_at           # read after the call: another thread may have written
    extra.written_at = NULL if line is None else <PyObject *>line
    Py_XDECREF(before)
    return 0


cdef int note_freed(pb_node *node) except -1:
    """Store in a node's metadata the source line of the pass that freed its saved values."""
    if is_sampled(node.sequence):
        node_notes(node)["freed_at"] = running_stack(1)
    return 0


cdef int note_failure(pb_node *node) except -1:
    """Notify of the node that raised."""
    if on_failure is not None:
        on_failure(node_object(node))
    return 0

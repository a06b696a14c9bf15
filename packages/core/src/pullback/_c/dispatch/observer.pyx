# build: small
"""Notifying observers of ops, nodes, Functions, ranges and kernels.

Callers test the process's single observer pointer and call this module only if it is set. With
several observers the pointer is that of a relay, which calls each.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_EVENT_FUNCTION, PB_EVENT_KERNEL, PB_EVENT_OP, PB_EVENT_RANGE, PB_OBSERVER_CAPSULE,
    pb_array, pb_event, pb_observer)
from pullback._c.device.device cimport device_types
from pullback._c.graph.op cimport OP_COMPOSITE, OP_DIFFERENTIABLE, Op
from pullback._c.dispatch.fallback import set_range_events
from pullback._c.dispatch.launch cimport array_fill, set_kernel_events
from pullback._c.graph.node cimport node_name
from pullback._c.graph.record cimport needs_grad
from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.graph.tensor cimport Tensor, is_tensor
from pullback._c.base.types cimport pb_node

from pullback._c.base.state import thread_number
from pullback.ops.table.numbered import NAMES

__all__ = ["attach_observer", "begin_range", "detach_observer", "end_range"]

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8(object text) except NULL

cdef enum:
    MAX_OBSERVERS = 16
    MAX_FUNCTION_INPUTS = 64    # inputs of a Function

cdef pb_globals *process = globals_()
cdef uint64_t events = 0            # number of events begun in this process
cdef dict names = {}                # name -> bytes, kept for the lifetime of the process

# ---- attached observers --------------------------------------------------------------------------

cdef list attached = []             # the capsules
cdef pb_observer *observers[MAX_OBSERVERS]
cdef int count = 0
cdef bint observes_results = False  # anomaly detection checks the results of ops
cdef pb_observer relay
memset(&relay, 0, sizeof(relay))
relay.size = sizeof(pb_observer)
relay.begin = relay_begin
relay.end = relay_end
relay.memory = relay_memory


cdef void relay_begin(void *self, const pb_event *event) noexcept:
    cdef int i = 0
    while i < count:
        observers[i].begin(observers[i].self, event)
        i += 1


cdef void relay_end(void *self, const pb_event *event) noexcept:
    """Notify observers of an end in the reverse order of the begin."""
    cdef int i = count - 1
    while i >= 0:
        if i < count:
            observers[i].end(observers[i].self, event)
        i -= 1


cdef void relay_memory(void *self, int backend, int device, void *data, int64_t delta) noexcept:
    cdef int i = 0
    while i < count:
        observers[i].memory(observers[i].self, backend, device, data, delta)
        i += 1


cdef int arrange() except -1:
    """Set the process's pointer to the attached observer, or to the relay."""
    global count
    count = 0
    for capsule in attached:
        observers[count] = <pb_observer *>PyCapsule_GetPointer(capsule, PB_OBSERVER_CAPSULE)
        count += 1
    process.observer = NULL if count == 0 else observers[0] if count == 1 else &relay
    process.observed = count > 0 or observes_results
    return 0


def observe_results(bint enabled):
    """Let every op go where its results can be checked, with or without observers, or not."""
    global observes_results
    observes_results = enabled
    arrange()


def attach_observer(capsule):
    """Notify an observer of every op, node, range and change of memory from now on.

    ``capsule`` is a PyCapsule named ``pb_observer`` that holds a ``pb_observer *`` of abi.h; it is
    kept until ``detach_observer``. Raises: TypeError for anything else; RuntimeError for one that
    is attached already, and for a seventeenth.

    >>> import pullback
    >>> pullback.backend.attach_observer(print)
    Traceback (most recent call last):
    TypeError: attach_observer(): argument 'capsule' must be a PyCapsule named 'pb_observer', ...
    """
    if not PyCapsule_IsValid(capsule, PB_OBSERVER_CAPSULE):
        raise TypeError(f"attach_observer(): argument 'capsule' must be a PyCapsule named "
                        f"'pb_observer', not {type(capsule).__name__}")
    if capsule in attached:
        raise RuntimeError("attach_observer(): this observer is attached already")
    if count == MAX_OBSERVERS:
        raise RuntimeError(f"attach_observer(): there are {MAX_OBSERVERS} observers already")
    attached.append(capsule)
    arrange()


def detach_observer(capsule):
    """Stop notifying an observer, also of the ends of running events.

    Raises: RuntimeError for one that is not attached.

    >>> import pullback
    >>> pullback.backend.detach_observer(None)
    Traceback (most recent call last):
    RuntimeError: detach_observer(): this observer is not attached
    """
    if capsule not in attached:
        raise RuntimeError("detach_observer(): this observer is not attached")
    attached.remove(capsule)
    arrange()


# ---- events --------------------------------------------------------------------------------------

cdef int describe(void *object_, pb_array *array) noexcept:
    cdef object value = <object>object_
    if not is_tensor(value):
        return 0
    array_fill(array, <Tensor>value)
    return 1


cdef void begin_event(pb_event *event, int kind, const char *name) noexcept:
    """Fill the fields that all events have, and notify observers that it begins."""
    global events
    cdef pb_state *state = thread_state()
    if state.thread == 0:
        thread_number()
    events += 1
    event.size = sizeof(pb_event)
    event.kind = kind
    event.name = name
    event.thread = state.thread
    event.id = events
    event.describe = describe
    if process.observer != NULL:
        process.observer.begin(process.observer.self, event)


cdef void end_event(pb_event *event) noexcept:
    """Notify observers that an event ended, with a pending exception set aside."""
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    if process.observer != NULL:
        PyErr_Fetch(&kind, &value, &trace)
        process.observer.end(process.observer.self, event)
        PyErr_Restore(kind, value, trace)


cdef int begin_op(pb_event *event, Op op, PyObject **args) except -1:
    """Notify observers that an op begins."""
    cdef pb_state *state = thread_state()
    memset(event, 0, sizeof(pb_event))
    event.sequence = -1
    if (state.grad_enabled and not state.inference
            and (op.kind == OP_COMPOSITE or op.flags & OP_DIFFERENTIABLE)
            and (state.levels or needs_grad(op, args) != 0)):
        event.sequence = state.sequence     # with open levels only the end has the final one
    event.ninput = op.nargs
    event.inputs = <void **>args
    begin_event(event, PB_EVENT_OP, op.name_bytes)
    return 0


cdef const char *lasting(str name) except NULL:
    """Return a name as a C string with the lifetime of the process."""
    encoded = names.get(name)
    if encoded is None:
        encoded = names[name] = name.encode(errors="replace")
    return <bytes>encoded


cdef void end_op(pb_event *event) noexcept:
    """Notify observers that an op ended, and whether it made a node."""
    if event.sequence == thread_state().sequence:
        event.sequence = -1
    end_event(event)


cdef int begin_node(pb_event *event, pb_node *node, PyObject **grads, int kind) except -1:
    """Notify observers that a node's formula begins, or its whole evaluation by the engine."""
    memset(event, 0, sizeof(pb_event))
    event.sequence = <int64_t>node.sequence
    event.forward_thread = node.thread
    event.ninput = node.noutputs
    event.inputs = <void **>grads
    begin_event(event, kind, lasting(node_name(node)))
    return 0


cdef void begin_kernel(pb_event *event, int primitive, int type_id, int device) noexcept:
    """Notify observers that a kernel of a backend with marks begins."""
    memset(event, 0, sizeof(pb_event))
    event.sequence = -1
    event.backend = device_types()[type_id].backend
    event.device_type = type_id
    event.device = device
    begin_event(event, PB_EVENT_KERNEL, lasting(<str>NAMES[primitive]))


set_kernel_events(begin_kernel, end_event)


# ---- Functions and ranges ------------------------------------------------------------------------

cdef uint64_t begin_function(str name, tuple args, bint recorded) except 0:
    """Notify observers that forward of a user's Function begins; returns the event's id."""
    cdef pb_event event
    cdef PyObject *inputs[MAX_FUNCTION_INPUTS]
    cdef int i
    memset(&event, 0, sizeof(event))
    event.sequence = thread_state().sequence if recorded else -1
    event.ninput = min(MAX_FUNCTION_INPUTS, <int>len(args))
    for i in range(event.ninput):
        inputs[i] = <PyObject *>args[i]
    event.inputs = <void **>inputs
    begin_event(&event, PB_EVENT_FUNCTION, lasting(name))
    return event.id


cdef int end_numbered(uint64_t number, int kind, int64_t sequence) except -1:
    """Notify observers that the event with an id ends."""
    cdef pb_event event
    cdef pb_state *state = thread_state()
    if process.observer == NULL or number == 0:
        return 0
    if state.thread == 0:
        thread_number()
    memset(&event, 0, sizeof(event))
    event.size = sizeof(pb_event)
    event.kind = kind
    event.name = ""
    event.sequence = sequence
    event.thread = state.thread
    event.id = number
    end_event(&event)
    return 0


def begin_range(str name not None, args=None, uint64_t asked_by=0):
    """Notify observers that a range begins; ``args`` is a text about it, or None.

    ``asked_by`` is the ``thread_number()`` of another thread, for which this one works: profilers
    of that thread show the range too. Returns a number for ``end_range``; 0 if no observer is
    attached.

    >>> import pullback
    >>> pullback.backend.begin_range("epoch")
    0
    """
    cdef pb_event event
    cdef PyObject *inputs[1]
    if process.observer == NULL:
        return 0
    try:
        PyUnicode_AsUTF8(name)
    except UnicodeEncodeError:          # a lone surrogate becomes a question mark
        name = name.encode(errors="replace").decode()
    memset(&event, 0, sizeof(event))
    event.sequence = -1
    event.object = <void *>name
    inputs[0] = <PyObject *>args
    event.inputs = <void **>inputs
    event.ninput = args is not None
    event.forward_thread = asked_by
    begin_event(&event, PB_EVENT_RANGE, PyUnicode_AsUTF8(name))
    return event.id


def end_range(uint64_t number):
    """Notify observers that a range ends; it may have begun on another thread.

    >>> import pullback
    >>> number = pullback.backend.begin_range("epoch", "first")
    >>> pullback.backend.end_range(number)
    """
    end_numbered(number, PB_EVENT_RANGE, -1)


set_range_events(begin_range, end_range)

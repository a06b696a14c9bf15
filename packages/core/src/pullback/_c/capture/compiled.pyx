# build: small
"""Calls of compiled functions: the program of a call that is alike runs, or Python records one."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from pullback.abi cimport PB_U8
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.layout cimport layout_contiguous, layout_retain
from pullback._c.base.state cimport capturing, refuse_capture, thread_state
from pullback._c.program.program cimport Program
from pullback._c.capture.signature cimport Signature, must_run_eagerly
from pullback._c.capture.spec cimport Spec, fits, has_own_memory, spec_of
from pullback._c.device.device cimport device_type
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_NUMBER, TENSOR_IS_WRAPPED, TENSOR_OVERRIDES, Tensor, is_tensor,
    tensor_extra, tensor_wrap)

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object, Py_ssize_t)      # borrowed

__all__ = [
    "CompiledCallable", "Entry", "are_transformed", "flat_memory", "grad_now", "hooks_now",
    "is_capturing", "is_on_host", "number_like", "refuse_now", "replace_items", "set_forced_eager"]


def is_capturing():
    """Return True while this thread's kernels are recorded."""
    return capturing()


def refuse_now(str why not None):
    """Note that this thread does what a capture cannot replay, if one is under way."""
    if capturing():
        refuse_capture(why.encode())


cdef bint forced_eager = False


def set_forced_eager(bint on):
    """Set whether all compiled functions run eagerly."""
    global forced_eager
    forced_eager = on


def flat_memory(Tensor self not None):
    """Return the bytes of a tensor's storage as a tensor, from the tensor's first element on."""
    cdef int64_t begin = self.offset * dtype_itemsize[self.dtype]
    cdef int64_t nbytes = self.storage.nbytes - begin
    return tensor_wrap(storage_retain(self.storage), layout_contiguous(1, &nbytes), begin, PB_U8)


def are_transformed(list seeds not None):
    """Return True in a transform, and where one of some gradients is a batch or has a tangent."""
    for one in seeds:
        if one is not None and (<Tensor?>one).flags & (
                TENSOR_IS_BATCHED | TENSOR_IS_WRAPPED | TENSOR_OVERRIDES):
            return True
    return thread_state().levels != 0


def is_on_host(Tensor self not None):
    """Return True if a tensor's memory is that of the process."""
    return device_type(self.storage.device_type).host != 0


def number_like(Tensor self not None, bint promotes_as_number):
    """Return a tensor with the same memory, which takes part in promotion as a number or not."""
    cdef Tensor made = tensor_wrap(
        storage_retain(self.storage), layout_retain(self.layout), self.offset, self.dtype)
    if promotes_as_number:
        made.flags |= TENSOR_IS_NUMBER
    return made


def replace_items(tuple value not None, list items not None):
    """Put other items into a tuple, equal to those that it has."""
    cdef Py_ssize_t i
    cdef PyObject *before
    for i in range(len(value)):
        if value[i] is not items[i]:
            before = PyTuple_GET_ITEM(value, i)
            Py_INCREF(items[i])
            PyTuple_SET_ITEM(value, i, items[i])
            Py_DECREF(<object>before)


def grad_now(Tensor self not None):
    """Return the gradient of a leaf or None, without a note of a capture."""
    return None if self.extra == NULL or self.extra.grad == NULL else <object>self.extra.grad


cpdef object hooks_now(Tensor self):
    """Return the hooks of a leaf, or None if there are none."""
    if self.extra == NULL or self.extra.hooks == NULL and self.extra.post_hooks == NULL:
        return None
    found = []
    if self.extra.hooks != NULL:
        found += (<object>self.extra.hooks).values()
    if self.extra.post_hooks != NULL:
        found += (<object>self.extra.post_hooks).values()
    return found or None


cdef int set_grad(Tensor leaf, object grad) except -1:
    """Give a leaf a gradient, or none."""
    cdef PyObject *before
    if grad is None and leaf.extra == NULL:
        return 0
    before = tensor_extra(leaf).grad
    if grad is None:
        leaf.extra.grad = NULL
    else:
        Py_INCREF(grad)
        leaf.extra.grad = <PyObject *>grad
    if before != NULL:
        Py_DECREF(<object>before)
    return 0


cdef class Entry:
    """What is known of calls with one signature.

    ``program`` is None if such calls run eagerly. ``grads`` are the leaves whose gradients it sets:
    pairs of a leaf, or the number of an argument, and the number of a result, or None to clear it.
    ``expected`` are the gradients on which it depends: of a leaf, or an argument, that very tensor.
    ``updated`` are gradients that its program takes as further arguments: of a leaf, or an
    argument, and how that gradient must be.
    ``sets`` are the modules whose mode a call leaves changed: their attributes, and ``training``.
    ``hooked`` are the hooks of those whose gradients are computed.
    ``rebuild`` makes the value that is returned from the results and the arguments of the call;
    None: it is the first result.
    ``replay`` runs a program whose results need a graph; it returns what ``Program.run`` does.
    """
    cdef readonly Signature signature
    cdef public Program program
    cdef public list grads
    cdef public list expected, hooked
    cdef list updated
    cdef public list sets
    cdef public object rebuild
    cdef public object replay
    cdef public object backward
    cdef public Py_ssize_t runs

    def __init__(self, Signature signature not None):
        self.signature = signature
        self.grads = []
        self.expected = []
        self.updated = []
        self.sets = []
        self.hooked = []

    def update(self, leaf, Tensor grad not None):
        """Let the program take the gradient of a leaf, like this one, as its next argument."""
        self.updated.append((leaf, spec_of(grad, "grad", [])))

    cdef list match(self, tuple args, dict kwargs):
        cdef list tensors = self.signature.match(args, kwargs)
        if tensors is None:
            return None
        for leaf, hooks in self.hooked:
            if hooks_now(leaf if is_tensor(leaf) else tensors[leaf]) != hooks:
                return None
        for leaf, grad in self.expected:
            tensor = leaf if is_tensor(leaf) else tensors[leaf]
            if grad_now(tensor) is not grad:
                return None
        return tensors if not self.updated or self.add_gradients(tensors) else None

    cdef bint add_gradients(self, list tensors) except -1:
        """Add the gradients that the program takes; False if one is not as it was."""
        cdef Py_ssize_t k
        cdef list given = list(tensors)
        for leaf, spec in self.updated:
            grad = grad_now(leaf if is_tensor(leaf) else given[leaf])
            if grad is None or not fits(<Spec>spec, grad, tensors) or (
                    not has_own_memory(<Tensor>grad, 1)):
                return False
            for k in range(len(tensors) - 1):   # an argument, or the gradient of two leaves
                if tensors[k] is grad:
                    return False
        return True

    cdef object finish(self, list tensors, list found, tuple args, dict kwargs):
        """Set the gradients, and return the value that the function returns."""
        for leaf, number in self.grads:
            set_grad(<Tensor>(leaf if is_tensor(leaf) else tensors[leaf]),
                     None if number is None else found[number])
        for attributes, training in self.sets:
            if attributes["training"] is not training:
                attributes["training"] = training
        if self.rebuild is None:
            return found[0]
        return self.rebuild(found, args, kwargs)


cdef class CompiledCallable:
    """A function whose kernels are recorded at the first call of a kind, and replayed later."""
    cdef readonly object function
    cdef readonly list entries
    cdef object __weakref__
    cdef dict __dict__

    def __init__(self, function):
        self.function = function
        self.entries = []

    def __call__(self, *args, **kwargs):
        cdef Entry entry
        cdef list tensors
        if forced_eager:
            return self.function(*args, **kwargs)
        for entry in self.entries:
            tensors = entry.match(args, kwargs)
            if tensors is None:
                continue
            if must_run_eagerly() or entry.program is None:
                return self.function(*args, **kwargs)
            if entry.replay is not None:
                found = entry.replay(entry, tensors, args, kwargs)
            else:
                found = entry.program.run(tensors)
            if found is None:           # perhaps another program is for these values
                if entry.program.stale():
                    self.entries.remove(entry)
                    break
                continue
            entry.runs += 1
            return entry.finish(tensors, <list>found, args, kwargs)
        if must_run_eagerly():
            return self.function(*args, **kwargs)
        return self.capture(args, kwargs)

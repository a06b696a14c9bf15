# build: small
"""What a program depends on: the arguments of its call, modes, and what its function refers to.

Checked before each run, so all of it is compiled: a few nanoseconds for each argument and guard.
"""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from collections import OrderedDict

from pullback._c.base.dtype cimport dtype_default, dtype_itemsize
from pullback._c.base.state cimport globals_, pb_globals, pb_state, thread_state
from pullback._c.base.types cimport pb_storage
from pullback._c.capture.guards cimport GUARD_ITEMS, Guard, WatchedDict
from pullback._c.capture.spec cimport (
    differs_in_numbers, first_difference, fits, has_repeated, set_read, spec_of)
from pullback._c.device.device cimport (
    device_default_ordinal, device_default_type, device_type)
from pullback._c.graph.tensor cimport TENSOR_IS_NUMBER, Tensor
from pullback._c.program.run_values cimport Option

__all__ = ["Signature"]

cdef pb_globals *process = globals_()

cdef enum:
    MANY = 32                           # arguments, of which not each is compared with each


cdef bint is_unstepped(object group, list stepped) except -1:
    """Return True for a parameter group that is none of these, with a number for its rate."""
    return type(group) is dict and "params" in group and type(group["lr"]) in (float, int) and (
        not any([one is group for one in stepped]))


cdef class Signature:
    """Arguments and modes of a call, and what its function refers to.

    ``tensors`` are those of the arguments, in the order in which programs take them. Floats at the
    places that ``numbers`` has are among them: see spec_of, for ``names`` too.
    """

    def __init__(self, tuple args not None, dict kwargs not None, dict numbers=None, names=None):
        cdef list tensors = []
        cdef pb_state *state = thread_state()
        self.args = spec_of(args, "args", tensors, numbers, names)
        self.kwargs = spec_of(kwargs, "kwargs", tensors, numbers, names)
        self.guards, self.watched_dicts, self.others = [], [], []
        self.tensors = tuple(tensors)
        self.grad_enabled = state.grad_enabled
        self.inference = state.inference
        self.layout_policy = state.layout_policy
        self.dtype = dtype_default()
        self.default_device = device_default_type()
        self.default_ordinal = device_default_ordinal()
        self.autocast = state.autocast
        memcpy(self.autocast_dtypes, state.autocast_dtypes, sizeof(self.autocast_dtypes))
        self.aliases = aliases_of(tensors)
        self.distances = [begin(<Tensor>tensors[i]) - begin(<Tensor>tensors[first])
                          for i, first in enumerate(self.aliases)]
        self.sames = [first_same(tensors, i) for i in range(len(tensors))]
        self.apart = False
        self.outer, self.shared = [], []
        self.known = self.identities = None

    def compare_objects(self, list known not None):
        """Let arguments be the same ones among each other, and the same ones of known tensors."""
        self.known = known
        self.identities = identities_of(list(self.tensors), known)

    def versions(self, list tensors not None):
        """Return a number that changes with each write to tensors, and to those outside."""
        cdef uint64_t found = 0
        cdef Tensor tensor
        for tensor in tensors:
            found += tensor.storage.version
        for tensor in self.outer:
            found += tensor.storage.version
        return found

    def varying(self, tuple args not None, dict kwargs not None):
        """Return the places of floats in which alone a call differs; None if more does."""
        cdef set found = set()
        if differs_in_numbers(self.args, args, found) and (
                differs_in_numbers(self.kwargs, kwargs, found)):
            return found
        return None

    def fix(self, tuple args not None, dict kwargs not None, set read not None):
        """Let floats, by their places, be as they are in a call."""
        set_read(self.args, args, read)
        set_read(self.kwargs, kwargs, read)

    def overlaps(self, list guards not None):
        """Return True if tensors have memory in common without sharing their storages' begins."""
        for _, number, _, _ in relations_of(list(self.tensors), outer_of(guards)):
            if number < 0:
                return True
        return False

    def guard(self, list guards not None, bint apart, object options=(), list stepped=None):
        """Set what the function refers to, and whether tensors must not share more memory.

        What programs read in each run may change, and so may the learning rates of groups that are
        not among those of which the program makes a step, if they are given.
        """
        cdef Guard guard
        cdef Option option
        cdef WatchedDict watched
        cdef dict read = {}, by_holder = {}
        for option in options:
            read.setdefault((id(option.group), option.key), []).append(option)
        for guard in guards if stepped is not None else ():
            if guard.key == "lr" and is_unstepped(guard.holder, stepped):
                read[id(guard.holder), "lr"] = [Option(guard.holder, "lr", -1)]
        for guard in guards if read else ():
            guard.options = read.get((id(guard.holder), guard.key))
        self.guards = guards
        self.watched_dicts = []
        self.others = []
        for guard in guards:
            if not isinstance(guard.holder, dict) or guard.options is not None or (
                    guard.kind == GUARD_ITEMS and guard.key
                    and isinstance(guard.holder, OrderedDict)):
                self.others.append(guard)
                continue
            watched = by_holder.get(id(guard.holder))
            if watched is None:
                watched = by_holder[id(guard.holder)] = WatchedDict.__new__(WatchedDict)
                watched.holder = guard.holder
                watched.guards, watched.tensors = [], []
                self.watched_dicts.append(watched)
            watched.guards.append(guard)
            if guard.spec is not None:
                watched.tensors.append(guard)
        self.apart = apart
        self.outer = outer_of(guards)
        if self.tensors:
            self.shared = relations_of(list(self.tensors), self.outer)
        self.tensors = ()           # the arguments are not kept alive

    def guard_as(self, Signature like not None, bint apart, object options):
        """Refer to what another call refers to; False if memory is shared in another way."""
        if like.known is not None:
            self.compare_objects(like.known)
            if self.identities != like.identities:
                return False
        if relations_of(list(self.tensors), outer_of(like.guards)) != like.shared:
            return False
        self.guard(like.guards, apart, options)
        return True

    cpdef list match(self, tuple args, dict kwargs):
        """Return the tensors of a call that is alike, else None."""
        cdef list tensors = []
        cdef pb_state *state = thread_state()
        cdef Py_ssize_t i, first
        cdef Tensor tensor, other
        if (state.grad_enabled != self.grad_enabled or state.inference != self.inference
                or state.layout_policy != self.layout_policy or state.autocast != self.autocast
                or dtype_default() != self.dtype or device_default_type() != self.default_device
                or device_default_ordinal() != self.default_ordinal
                or state.autocast and memcmp(self.autocast_dtypes, state.autocast_dtypes, 32)):
            return None
        if not fits(self.args, args, tensors) or not fits(self.kwargs, kwargs, tensors):
            return None
        for i in range(len(tensors)):
            tensor = <Tensor>tensors[i]
            first = <Py_ssize_t>self.aliases[i]
            if first != i:
                other = <Tensor>tensors[first]
                if tensor.storage.data != other.storage.data or (
                        begin(tensor) - begin(other) != <int64_t>self.distances[i]):
                    return None
                if first_same(tensors, i) != <Py_ssize_t>self.sames[i]:
                    return None
        if self.known is not None and (
                identities_of(tensors, self.known) != self.identities
                or self.has_repeated(args, kwargs)):
            return None
        if not are_aliased_as(tensors, self.aliases) or (
                self.apart and relations_of(tensors, self.outer) != self.shared):
            return None
        for i, first, distance, same in self.shared:
            tensor, other = <Tensor>tensors[i], <Tensor>self.outer[first]
            if (tensor is other) is not same:
                return None
            if tensor.storage.data != other.storage.data or (
                    begin(tensor) - begin(other) != <int64_t>distance):
                return None
        return tensors if self.holds() else None

    def takes(self, tuple args not None, dict kwargs not None):
        """Return True for arguments of these sizes, dtypes, devices and values."""
        return fits(self.args, args, []) and fits(self.kwargs, kwargs, [])

    def has_repeated(self, tuple args not None, dict kwargs not None):
        """Return True if a list, dict or dataclass is there more than once."""
        cdef set seen = set()
        return has_repeated(self.args, args, seen) or has_repeated(self.kwargs, kwargs, seen)

    def takes_same(self, tuple args not None, dict kwargs not None, tuple tensors not None):
        """Return True for such arguments with these very tensors; others stand for numbers."""
        cdef list found = []
        if not fits(self.args, args, found) or not fits(self.kwargs, kwargs, found):
            return False
        return all([one is other or (<Tensor>one).flags & TENSOR_IS_NUMBER
                    for one, other in zip(found, tensors)])

    def described(self):
        """Return what the arguments were, as text."""
        shown = [repr(one) for one in self.args.items]
        shown += [f"{key}={one!r}" for key, one in zip(self.kwargs.keys, self.kwargs.items)]
        return f"({', '.join(shown)}){'' if self.grad_enabled else ', no_grad'}"

    def watched(self):
        """Return the references that are watched, as text."""
        return [place for guard in self.guards for place in (<Guard>guard).places()]

    def outdated(self):
        """Return True if an object that the function refers to was replaced by another."""
        cdef Guard guard
        for guard in self.guards:
            if guard.outdated():
                return True
        return False

    cpdef bint holds(self) except -1:
        """Return True if everything that the function refers to is as it was."""
        cdef WatchedDict watched
        cdef Guard guard
        for watched in self.watched_dicts:
            if not watched.hold():
                return False
        for guard in self.others:
            if not guard.holds():
                return False
        return True

    def difference(self, tuple args not None, dict kwargs not None):
        """Return what is not alike in a call, as text; None if all is."""
        cdef pb_state *state = thread_state()
        cdef Guard guard
        found = first_difference(self.args, args)
        if found is None:
            found = first_difference(self.kwargs, kwargs)
        if found is not None:
            return found
        for guard in self.guards:
            if not guard.holds():
                return guard.difference()
        if state.grad_enabled != self.grad_enabled:
            return "the grad mode"
        if dtype_default() != self.dtype:
            return "the default dtype"
        if (device_default_type(), device_default_ordinal()) != (
                self.default_device, self.default_ordinal):
            return "the default device"
        if state.autocast or self.autocast:
            return "autocast"
        return "which arguments share memory"


cdef int64_t begin(Tensor tensor) noexcept:
    """Return the offset of a tensor in bytes."""
    return tensor.offset * dtype_itemsize[tensor.dtype]


cdef list outer_of(list guards):
    """Return the tensors that are watched, each once."""
    return list({id((<Guard>one).expected): (<Guard>one).expected
                 for one in guards if (<Guard>one).spec is not None}.values())


cdef bint overlap(pb_storage *one, pb_storage *other) noexcept:
    """True if two storages on the host have bytes in common, or are the same memory elsewhere."""
    if one.data == NULL or one.device_type != other.device_type:
        return False
    if not device_type(one.device_type).host:
        return one.data == other.data and one.device_index == other.device_index
    return (<char *>one.data < <char *>other.data + other.nbytes
            and <char *>other.data < <char *>one.data + one.nbytes)


cdef list relations_of(list tensors, list outer):
    """Return which tensors share memory with outer ones.

    That is (number, number, bytes between them, whether they are one object).

    The second number is -1 where the memory of one begins inside that of the other, which may be
    another of the tensors.
    """
    cdef list found = []
    cdef Tensor tensor, other
    cdef Py_ssize_t i, k
    for i in range(len(tensors)):
        tensor = <Tensor>tensors[i]
        for k in range(i):
            other = <Tensor>tensors[k]
            if tensor.storage.data != other.storage.data and (
                    overlap(tensor.storage, other.storage)):
                found.append((i, -1, 0, False))
        for k in range(len(outer)):
            other = <Tensor>outer[k]
            if not overlap(tensor.storage, other.storage):
                continue
            if tensor.storage.data == other.storage.data:
                found.append((i, k, begin(tensor) - begin(other), tensor is other))
            else:
                found.append((i, -1, 0, False))
    return found


cdef list identities_of(list tensors, list known):
    """Return of each tensor which of the tensors, and then of the known ones, it is first."""
    cdef Py_ssize_t i, k
    cdef list found = []
    for i in range(len(tensors)):
        first = first_same(tensors, i)
        for k in range(len(known) if first == i else 0):
            if known[k] is tensors[i]:
                first = len(tensors) + k
                break
        found.append(first)
    return found


cdef Py_ssize_t first_same(list tensors, Py_ssize_t i):
    """Return where a tensor is in a list first."""
    cdef Py_ssize_t k = 0
    while PyList_GET_ITEM(tensors, k) != PyList_GET_ITEM(tensors, i):
        k += 1
    return k


cdef list aliases_of(list tensors):
    """Return of each tensor the number of the first one that has the same memory."""
    cdef dict seen = {}
    cdef list found = []
    cdef Tensor tensor
    for i, tensor in enumerate(tensors):
        if tensor.storage.data == NULL:
            found.append(i)
        else:
            found.append(seen.setdefault(<size_t>tensor.storage.data, i))
    return found


cdef bint are_aliased_as(list tensors, list aliases) except -1:
    """Return whether ``aliases_of`` some tensors are these."""
    cdef Py_ssize_t i, k, count = len(tensors)
    cdef void *data
    if count > MANY:
        return aliases_of(tensors) == aliases
    for i in range(1, count):
        data = (<Tensor>tensors[i]).storage.data
        k = 0
        while k < i and (data == NULL or (<Tensor>tensors[k]).storage.data != data):
            k += 1
        if k != <Py_ssize_t>aliases[i]:
            return False
    return True


cdef bint must_run_eagerly() noexcept:
    """True if this thread's calls run eagerly now, so that all of their ops are seen."""
    cdef pb_state *state = thread_state()
    return (process.capture != NULL or state.levels or process.anomaly or state.saved_hooks != NULL
            or process.overrides or process.module_hooks)

# build: small
"""The runtime op: function and method of an entry of the op table, with what recording needs.

`dispatch/call.pyx` runs ops; `python/bind.pyx` makes them of entries.
"""

from cpython.number cimport PyIndex_Check, PyNumber_Check, PyNumber_Index
from cpython.object cimport PyObject, PyObject_IsInstance, PyTypeObject
from pullback._c.base.dtype cimport dtype_code, dtype_object
from pullback._c.base.vectorcall cimport pb_make_callable
from pullback._c.device.device cimport device
from pullback._c.graph.tensor cimport is_tensor
from pullback._c.graph.size import check_layout

__all__ = ["Op", "op_names"]


class Missing:
    """The default of a required argument."""

    def __repr__(self):
        return "<required>"


missing = Missing()
all_ops = []
cdef dict by_name = {}


cdef class Op:
    """A differentiable operation: call it as a function, or through a tensor as a method.

    Like a builtin function it does not bind to instances of a class that has it as an attribute.

    Attributes: ``name``, ``arg_names``, ``node_name`` (of the node it records), ``entry`` (of the
    op table), ``formulas`` (its derivatives).

    >>> import pullback
    >>> pullback.mul(pullback.ones(2), 3)
    tensor([3., 3.])
    """

    def __get__(self, instance, owner):
        return self                     # `inspect` takes it for a function then

    def __repr__(self):
        return f"<built-in op {self.__name__}>"

    def __reduce__(self):
        return op_by_name, (self.name,)

    def __getattr__(self, name):
        # Made when `help` or `inspect.signature` asks: a thousand texts would slow the import down.
        if name != "__signature__":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        from pullback._help.ops import signature_of
        return signature_of(self.entry, inplace=self.functional is not None)

    @property
    def __doc__(self):
        from pullback._help.ops import documentation_of
        return documentation_of(self.entry, inplace=self.functional is not None)

    @property
    def is_inplace(self):
        """True when the op writes its first argument."""
        return self.flags & OP_INPLACE != 0

    @property
    def is_view(self):
        """True when results share the first argument's memory."""
        return self.flags & OP_VIEW != 0

    @property
    def is_composite(self):
        """True when the op is composed of other ops, which are recorded instead of it."""
        return self.kind == OP_COMPOSITE

    @property
    def differentiable(self):
        """True when results can require grad."""
        return self.flags & OP_DIFFERENTIABLE != 0 or self.kind == OP_COMPOSITE


cdef Op op_named(str name):
    """Return an op by its name."""
    found = by_name.get(name)
    if found is None:
        raise AttributeError(f"there is no op named {name!r}")
    return <Op>found


# ---- numbers -------------------------------------------------------------------------------------

cdef str shown_name(Op op):
    """Return the public name of an op."""
    entry = op.entry
    if "." in op.name:
        return op.__name__
    shown = entry.function or entry.method
    if not isinstance(shown, str) or op.name.startswith(("linalg_", "fft_")):
        return op.name
    return shown if op.name == entry.name else shown + "_"


cdef bint called_as_method = False


cdef bint *call_as_method() noexcept:
    """Return where calls note if they are of a method; errors of arguments read it."""
    return &called_as_method


cdef str describe(Op op, int position, bint by_name):
    """Name an argument as torch does: positions of methods skip the tensor, keywords have none."""
    name = op.arg_names[position].rstrip("_")
    text = f"{shown_name(op)}(): argument '{'input' if name == 'self' else name}'"
    return text if by_name else f"{text} (position {position + (not called_as_method)})"


cdef dict NAMES = {NUMBER_INT: "int", NUMBER_FLOAT: "float", NUMBER_BOOL: "bool",
                   NUMBER_LIST: "tuple of ints", NUMBER_SCALAR: "Number"}


cdef tuple SEQUENCES = (tuple, list)


cdef int check_items(Op op, int position, value, bint by_name) except -1:
    """Raise TypeError for an item of a tuple or list that is no integer."""
    for k, item in enumerate(value):
        if PyIndex_Check(item):         # the entry's code checks tensors and bools
            continue
        kind = type(item).__name__
        if k == 0:
            raise TypeError(f"{describe(op, position, by_name)} must be tuple of ints, but found "
                            f"element of type {kind} at pos 0")
        raise TypeError(f"{shown_name(op)}(): argument '{op.arg_names[position].rstrip('_')}' "
                        f"failed to unpack the object at pos {k + 1} with error \"type must be "
                        f"tuple of ints,but got {kind}\"")
    return 0


cdef int check_declared(Op op, int position, value, bint by_name) except -1:
    """Raise TypeError for an argument that is no device, layout or memory format."""
    cdef int wanted = op.numbers[position] & ~NUMBER_OPTIONAL
    if wanted == NUMBER_LAYOUT:
        check_layout(shown_name(op), value)
        return 0
    if wanted == NUMBER_DEVICE:
        name = "device"
        if isinstance(value, (device, str)) or (PyIndex_Check(value) and not is_tensor(value)
                                                and not isinstance(value, bool)):
            return 0
    else:
        name = "memory_format"
        if type(value).__name__ == name:        # defined above, where it is checked again
            return 0
    raise TypeError(f"{describe(op, position, by_name)} must be pullback.{name}, not "
                    f"{type(value).__name__}")


cdef object plain_number(Op op, int position, object value, bint by_name):
    """Convert an argument that is declared as a number, a bool, ints or a dtype.

    NumPy numbers and 0-d tensors become Python numbers, Python types such as float dtypes. Raises
    for an object whose __class__ only claims to be a sequence: Python code would iterate over it
    without end.
    """
    cdef int wanted = op.numbers[position]
    cdef object found = None
    if value is None and wanted & NUMBER_OPTIONAL:
        return None
    if wanted & NUMBER_ANY and wanted & ~NUMBER_OPTIONAL != NUMBER_ANY:
        check_declared(op, position, value, by_name)
        return value
    if wanted & NUMBER_DTYPE:
        return dtype_object(dtype_code(value, shown_name(op).encode()))
    if wanted & NUMBER_ANY:
        if PyObject_IsInstance(value, SEQUENCES) and not isinstance(value, (tuple, list)):
            raise TypeError(f"{describe(op, position, by_name)} must be a tuple or list, not "
                            f"{type(value).__name__}, whose __class__ claims to be one")
        return value
    if wanted & NUMBER_SCALAR:
        if isinstance(value, (float, int, complex)):
            return value
        if is_tensor(value):
            return value.item() if value.ndim == 0 and not value.requires_grad else value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return value.item()
        if PyNumber_Check(value):
            return value                # the entry's code checks the type
    elif wanted & NUMBER_LIST:
        if isinstance(value, (tuple, list)):
            check_items(op, position, value, by_name)
            return value
        if is_tensor(value) or isinstance(value, bool):
            return value
        if PyIndex_Check(value) and getattr(value, "shape", ()) == ():
            found = PyNumber_Index(value)
    elif wanted & NUMBER_BOOL:
        dtype = None if is_tensor(value) else getattr(value, "dtype", None)
        if getattr(dtype, "kind", None) == "b" and getattr(value, "shape", None) == ():
            found = bool(value)
    elif is_tensor(value):
        if value.ndim == 0 and not value.requires_grad and value.dtype.kind in (
                "iu" if wanted & NUMBER_INT else "biuf"):
            found = value.item()
    elif wanted & NUMBER_FLOAT:
        if isinstance(value, (float, int)):
            return value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            found = value.item()
            found = None if isinstance(found, complex) else found
    elif PyIndex_Check(value) and not isinstance(value, bool):
        found = PyNumber_Index(value)
    if found is None:
        raise TypeError(f"{describe(op, position, by_name)} must be "
                        f"{NAMES[wanted & ~NUMBER_OPTIONAL]}, not {type(value).__name__}")
    if wanted & NUMBER_INT and not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"{describe(op, position, by_name)} does not fit in 64 bits: {found}")
    return found


cdef dict forwards = {}


cdef int forward_register(str name, forward_function function) except -1:
    """Register a compiled forward pass under the name that entries use."""
    forwards[name] = <size_t>function
    return 0


cdef forward_function forward_named(str name) except NULL:
    found = forwards.get(name)
    if found is None:
        raise ValueError(f"there is no compiled forward pass named {name!r}")
    return <forward_function><size_t>found


def op_by_name(name):
    """Return an op by its name.

    Raises: AttributeError when there is none.
    """
    return op_named(name)


def register(Op op not None):
    """Give an op its number, and add it to the ops by name."""
    if op.name in by_name:
        raise ValueError(f"there is an op named {op.name!r} already")
    op.id = len(all_ops)
    all_ops.append(op)
    by_name[op.name] = op


def op_names():
    """Return the names of all ops."""
    return list(by_name)


cdef Op probe = Op.__new__(Op)
pb_make_callable(<PyTypeObject *>Op,
                 <Py_ssize_t>(<char *>&probe.vectorcall - <char *><PyObject *>probe), 0)

from cpython.object cimport (
    Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_LIST_SUBCLASS, Py_TPFLAGS_TUPLE_SUBCLASS, Py_TYPE, PyObject,
    PyTypeObject)
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from pullback._c.base.dtype cimport dtype
from pullback._c.base.layout cimport PyLong_CheckExact, small_int
from pullback._c.graph.tensor cimport Tensor


cdef enum:
    MAX_ARGS = 16
    MAX_TENSOR_ARGS = 8
    MAX_SAVED = 16

cdef enum argument_kind:
    ARG_ANY = 0                 # the entry's code checks it
    ARG_TENSOR = 1
    ARG_OPTIONAL_TENSOR = 2
    ARG_OPERAND = 3             # a tensor or a number
    ARG_TENSORS = 4             # a sequence of tensors
    ARG_OPTIONAL_OPERAND = 5

# Types of arguments other than tensors; with bit 2 the argument may be None.
cdef enum number_kind:
    NUMBER_INT = 1
    NUMBER_FLOAT = 2
    NUMBER_OPTIONAL = 4
    NUMBER_SCALAR = 8           # of any type
    NUMBER_BOOL = 16
    NUMBER_LIST = 32            # ints, or one
    NUMBER_DTYPE = 64
    NUMBER_ANY = 128            # the entry's code checks it
    NUMBER_FORMAT = 144         # of memory
    NUMBER_DEVICE = 160
    NUMBER_LAYOUT = 192

cdef enum op_kind:
    OP_KERNEL = 0               # its forward pass runs below autograd, recorded as one node
    OP_COMPOSITE = 1            # composed of other ops, each of which is recorded

cdef enum:
    OP_INPLACE = 1              # writes its first argument
    OP_VIEW = 2                 # results share the first argument's memory
    OP_HAS_OUT = 4              # takes out=
    OP_VARARGS = 8              # the last positional argument takes *args: view(2, 3)
    OP_DIFFERENTIABLE = 16
    OP_ALPHA = 32               # the second operand is scaled by `alpha`
    OP_OVERLAP = 64             # writes one value: elements of the target may share memory
    OP_INDEXED = 128            # an untyped argument holds tensors
    OP_RANDOM = 256             # draws random numbers
    OP_SHARES = 512             # its target may overlap its operands
    OP_EXACT = 1024             # out= must have the result's dtype
    OP_DIRECT = 2048            # its forward pass can write into the tensor given as out=
    OP_LISTS = 4096             # writes the tensors of its list arguments in `written`
    OP_AUTOCAST = 8192          # autocast has a policy for it

# What autocast does with a call.
cdef enum autocast_policy:
    AUTOCAST_NONE = 0           # nothing, but it acts on the parts of a composite
    AUTOCAST_LOWER = 1          # casts operands to the region's dtype
    AUTOCAST_FLOAT32 = 2        # casts 16-bit operands to float32
    AUTOCAST_DTYPE = 3          # gives dtype=float32 where the call gives no dtype
    AUTOCAST_PROMOTE = 4        # casts operands to the widest of their dtypes
    AUTOCAST_OFF = 5            # nothing, nor does it act on the parts of a composite
    AUTOCAST_ERROR = 6          # raises the error of the entry
    AUTOCAST_CALL = 7           # what the entry's function of all arguments says

# Where a saved value comes from.
cdef enum saved_source:
    SOURCE_ARG = 0
    SOURCE_OUT = 1
    SOURCE_EXTRA = 2            # computed by the entry's `save`


ctypedef struct saved_spec:
    uint8_t source
    uint8_t number              # of the argument or output
    uint8_t shape_only
    uint64_t needed_by          # bit i: the formula of tensor argument i uses it


# Type promotion: the dtype an op computes in, and that of its result.
cdef enum promotion:
    PROMOTE_DEFAULT = 0         # the result has the operands' common dtype
    PROMOTE_FLOAT = 1           # integers and bool become the default float
    PROMOTE_BOOL_OUT = 2        # computed in the common dtype, the result is bool
    PROMOTE_REAL_OUT = 3        # the result of a complex dtype is real
    PROMOTE_WHERE = 4           # the first operand is a condition


# Rules of forward mode: how an op maps tangents.
cdef enum jvp_rule:
    JVP_TRANSPOSE = 0           # by transposing its vjp
    JVP_POINTWISE = 1           # diagonal Jacobian: for real numbers the vjp is the jvp
    JVP_LINEAR = 2              # linear in all differentiable arguments together
    JVP_MULTILINEAR = 3         # linear in each of them
    JVP_AS_VIEW = 4             # linear; the tangent is viewed as the operand is, by its memory


ctypedef object (*forward_function)(Op op, PyObject **args, PyObject *target)


cdef class Op:
    cdef void *vectorcall
    cdef readonly str name
    cdef bytes encoded_name
    cdef const char *name_bytes
    cdef readonly str node_name
    cdef readonly object namer          # None, or computes the node's name from saved values
    cdef readonly tuple namer_indices   # the saved values that it takes
    cdef readonly int id
    cdef int kind
    cdef int flags
    cdef readonly int nargs
    cdef int npositional
    cdef readonly tuple arg_names
    cdef tuple defaults                 # `missing` where there is none
    cdef uint8_t arg_kinds[MAX_ARGS]
    cdef uint8_t numbers[MAX_ARGS]      # number_kind, 0: no number is declared
    cdef uint8_t autocast[2]            # policies: on the host, on other devices
    cdef int ntensors
    cdef uint8_t tensor_args[MAX_TENSOR_ARGS]
    cdef int list_arg                   # position among the arguments, -1: none
    cdef uint32_t written               # bit i: argument i is a list of tensors that it writes
    # the forward pass
    cdef forward_function forward
    cdef object python                  # a composite, or a forward pass in Python
    cdef readonly object decompose      # decomposition, for devices without a kernel
    cdef int primitive
    cdef int promote
    cdef uint32_t dtypes
    # derivatives
    cdef int jvp
    cdef int nsaved
    cdef saved_spec saved[MAX_SAVED]
    cdef readonly tuple saved_names
    cdef readonly dict formulas         # joint tuple of argument names -> callable
    cdef object save                    # dict: extra name -> callable, or None
    cdef object backward                # Backward, made at first use
    cdef readonly Op functional         # of an in-place op
    cdef Op view                        # of a view's backward op: the view, after its first run
    cdef object reads_out              # of all arguments: whether formulas read the result; or None
    cdef str overload                   # op for calls with keywords that this one lacks, or None
    cdef readonly object entry          # the table's entry
    cdef bint takes_number              # as a 0-d tensor, with the same bits
    cdef dict __dict__
    cdef object __weakref__


cdef extern from "Python.h":
    bint PyTuple_CheckExact(PyObject *object)
    bint PyList_CheckExact(PyObject *object)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *object)
    Py_ssize_t PyList_GET_SIZE(PyObject *object)
    PyObject *PyTuple_GET_ITEM(object object, Py_ssize_t index)
    PyObject *PyList_GET_ITEM(PyObject *object, Py_ssize_t index)


cdef object missing
cdef list all_ops
cdef Op op_named(str name)
cdef str shown_name(Op op)
cdef bint *call_as_method() noexcept
cdef str describe(Op op, int position, bint by_name)
cdef object plain_number(Op op, int position, object value, bint by_name)


cdef inline bint are_ints(PyObject *value) noexcept:
    """True for a tuple or list of Python ints."""
    cdef Py_ssize_t k
    if PyTuple_CheckExact(value):
        for k in range(PyTuple_GET_SIZE(value)):
            if not PyLong_CheckExact(<object>PyTuple_GET_ITEM(<object>value, k)):
                return False
        return True
    if PyList_CheckExact(value):
        for k in range(PyList_GET_SIZE(value)):
            if not PyLong_CheckExact(<object>PyList_GET_ITEM(value, k)):
                return False
        return True
    return False


cdef inline bint is_plain_number(Op op, int position, PyObject *value) except -1:
    """True for an argument that needs no conversion: a default, or one of the declared type."""
    cdef int64_t found
    if value == PyTuple_GET_ITEM(op.defaults, position):
        return True
    if op.numbers[position] & NUMBER_ANY:
        if op.numbers[position] & ~NUMBER_OPTIONAL != NUMBER_ANY:
            return op.numbers[position] & NUMBER_LIST and type(<object>value) is str
        return not (<PyTypeObject *>Py_TYPE(<object>value)).tp_flags & (
            Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS)
    if op.numbers[position] & NUMBER_DTYPE:
        return type(<object>value) is dtype
    if isinstance(<object>value, bool):
        return op.numbers[position] & NUMBER_BOOL != 0
    if op.numbers[position] & NUMBER_LIST:
        return PyLong_CheckExact(<object>value) or are_ints(value)
    if op.numbers[position] & NUMBER_BOOL:
        return False
    if op.numbers[position] & NUMBER_INT:
        return small_int(<object>value, &found)
    return PyLong_CheckExact(<object>value)
cdef int forward_register(str name, forward_function function) except -1
cdef forward_function forward_named(str name) except NULL

"""Python operators of tensors: functions for the type's C slots, which call the ops."""

from cpython.object cimport (
    Py_EQ, Py_GT, Py_LE, Py_LT, Py_NE, PyObject, PyTypeObject, richcmpfunc)

from pullback._c.dispatch.call cimport op_apply, op_apply_inplace
from pullback._c.dispatch.operands cimport is_number_argument, operand_of_number
from pullback._c.ops.create import element_of
from pullback._c.base.dtype cimport (
    CATEGORY_BOOL, CATEGORY_COMPLEX, CATEGORY_INTEGRAL, dtype_category, dtype_of_scalar)
from pullback._c.base.state cimport globals_, pb_globals, thread_state
from pullback._c.graph.op cimport Op, op_named
from pullback._c.graph.overrides cimport (
    call_override, call_override_of_operator, is_overriding, modes_enabled)
from pullback._c.graph.tensor cimport TENSOR_IS_BATCHED, Tensor, call_of_class, is_tensor

cdef extern from *:
    """
    #include <Python.h>
    static PyNumberMethods pb_methods;
    static PyNumberMethods *pb_number_methods(PyTypeObject *type) {
        if (type->tp_as_number == NULL) type->tp_as_number = &pb_methods;
        return type->tp_as_number;
    }
    static void pb_unused(void) {}
    /* A type with the slots that this module fills: CPython makes a method for each. */
    static PyObject *pb_patterns(void) {
        #define PB_SLOT(name) {name, (void *)pb_unused}
        static PyType_Slot slots[] = {
            PB_SLOT(Py_nb_add), PB_SLOT(Py_nb_subtract), PB_SLOT(Py_nb_multiply),
            PB_SLOT(Py_nb_remainder), PB_SLOT(Py_nb_power), PB_SLOT(Py_nb_negative),
            PB_SLOT(Py_nb_positive), PB_SLOT(Py_nb_absolute), PB_SLOT(Py_nb_bool),
            PB_SLOT(Py_nb_invert), PB_SLOT(Py_nb_lshift), PB_SLOT(Py_nb_rshift),
            PB_SLOT(Py_nb_and), PB_SLOT(Py_nb_xor), PB_SLOT(Py_nb_or),
            PB_SLOT(Py_nb_int), PB_SLOT(Py_nb_float), PB_SLOT(Py_nb_inplace_add),
            PB_SLOT(Py_nb_inplace_subtract), PB_SLOT(Py_nb_inplace_multiply),
            PB_SLOT(Py_nb_inplace_remainder), PB_SLOT(Py_nb_inplace_power),
            PB_SLOT(Py_nb_inplace_lshift), PB_SLOT(Py_nb_inplace_rshift),
            PB_SLOT(Py_nb_inplace_and), PB_SLOT(Py_nb_inplace_xor),
            PB_SLOT(Py_nb_inplace_or), PB_SLOT(Py_nb_floor_divide),
            PB_SLOT(Py_nb_true_divide), PB_SLOT(Py_nb_inplace_floor_divide),
            PB_SLOT(Py_nb_inplace_true_divide), PB_SLOT(Py_nb_index),
            PB_SLOT(Py_nb_matrix_multiply), PB_SLOT(Py_tp_richcompare), {0, NULL},
        };
        #undef PB_SLOT
        static PyType_Spec spec = {
            "pullback._c.python.operators.patterns", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT,
            slots};
        return PyType_FromSpec(&spec);
    }
    /* A method of `type` for `slot`, of the same kind as `pattern`, a method of another type. */
    static PyObject *pb_slot_method(PyTypeObject *type, PyObject *pattern, void *slot) {
        if (!Py_IS_TYPE(pattern, &PyWrapperDescr_Type)) {
            PyErr_SetString(PyExc_TypeError, "the pattern is no method of a slot");
            return NULL;
        }
        return PyDescr_NewWrapper(type, ((PyWrapperDescrObject *)pattern)->d_base, slot);
    }
    """
    ctypedef struct PyNumberMethods:
        void *nb_add
        void *nb_subtract
        void *nb_multiply
        void *nb_true_divide
        void *nb_floor_divide
        void *nb_remainder
        void *nb_power
        void *nb_matrix_multiply
        void *nb_negative
        void *nb_positive
        void *nb_absolute
        void *nb_invert
        void *nb_and
        void *nb_or
        void *nb_xor
        void *nb_lshift
        void *nb_rshift
        void *nb_bool
        void *nb_int
        void *nb_float
        void *nb_index
        void *nb_inplace_add
        void *nb_inplace_subtract
        void *nb_inplace_multiply
        void *nb_inplace_true_divide
        void *nb_inplace_floor_divide
        void *nb_inplace_remainder
        void *nb_inplace_power
        void *nb_inplace_lshift
        void *nb_inplace_rshift
        void *nb_inplace_and
        void *nb_inplace_or
        void *nb_inplace_xor
    PyNumberMethods *pb_number_methods(PyTypeObject *type)
    object pb_patterns()
    object pb_slot_method(PyTypeObject *type, PyObject *pattern, void *slot)
    void PyType_Modified(PyTypeObject *type)

cdef pb_globals *process = globals_()

cdef Op ADD, SUB, RSUB, MUL, DIV, RECIPROCAL, FLOOR_DIVIDE, REMAINDER, POW, MATMUL, MM, MV, DOT
cdef Op NEG, ABS, INVERT
cdef Op AND, OR, XOR, LSHIFT, RSHIFT, EQ, NE, LT, LE, GT, GE
cdef Op ADD_, SUB_, MUL_, DIV_, FLOOR_DIVIDE_, REMAINDER_, POW_, AND_, OR_, XOR_, LSHIFT_, RSHIFT_
cdef object one = 1                     # the interned int, identical to defaults of entries
cdef PyObject *ONE = <PyObject *>one


cdef object as_operand(object value):
    """Return a tensor or a number, or None for anything else."""
    if is_tensor(value) or dtype_of_scalar(value) >= 0:
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    if type(value).__name__ == "ndarray":
        from pullback._construct import as_tensor
        return as_tensor(value)
    return None


cdef inline bint is_overridden(object a, object b) noexcept:
    """True if an operator goes to a ``__torch_function__``."""
    return (type(a) is not Tensor and is_overriding(a) or type(b) is not Tensor
            and is_overriding(b) or process.overrides != 0 and modes_enabled())


cdef inline object as_given(object value):
    """Return an operand for overrides, which get foreign objects that have some; else None."""
    return value if is_overriding(value) else as_operand(value)


cdef object run2(Op op, object a, object b, str name, str reflected):
    """Apply a two-operand op, with alpha = 1 where it has one.

    The names are those of the method that overrides receive where it is not the op: with the
    tensor as left operand, and as right one.
    """
    cdef PyObject *args[3]
    if type(a) is Tensor and type(b) is Tensor and not process.overrides:
        args[0] = <PyObject *>a
        args[1] = <PyObject *>b
        args[2] = ONE
        return op_apply(op, args)
    if is_overridden(a, b):
        a, b = as_given(a), as_given(b)
        if a is None or b is None:
            return NotImplemented
        return call_override_of_operator(op, name, reflected, a, b)
    if is_number_argument(a):
        a = operand_of_number(a, b, op.takes_number)
    elif is_number_argument(b):
        b = operand_of_number(b, a, op.takes_number)
    cdef object x = as_operand(a), y = as_operand(b)
    if x is None or y is None:
        return NotImplemented
    args[0] = <PyObject *>x
    args[1] = <PyObject *>y
    args[2] = ONE
    return op_apply(op, args)


cdef object run2_(Op op, object a, object b, str name):
    cdef PyObject *args[3]
    if is_overridden(a, b):
        b = as_given(b)
        if b is None:
            return NotImplemented
        return call_override_of_operator(op, name, name, a, b)
    if is_number_argument(b):
        b = operand_of_number(b, a, op.takes_number)
    cdef object y = as_operand(b)
    if y is None or not is_tensor(a):
        return NotImplemented
    args[0] = <PyObject *>a
    args[1] = <PyObject *>y
    args[2] = ONE
    return op_apply_inplace(op, args)


cdef object run1(Op op, object a):
    cdef PyObject *args[1]
    if is_overridden(a, a):
        return call_override(op, (a,), None)
    args[0] = <PyObject *>a
    return op_apply(op, args)


cdef object slot_add(object a, object b):
    return run2(ADD, a, b, None, None)

cdef object slot_sub(object a, object b):
    if is_tensor(a):
        return run2(SUB, a, b, None, "__rsub__")
    return run2(RSUB, b, a, "__rsub__", None)

cdef object slot_mul(object a, object b):
    return run2(MUL, a, b, None, None)

cdef object slot_div(object a, object b):
    if is_tensor(a) or is_overridden(a, b):
        return run2(DIV, a, b, None, "__rtruediv__")
    if not is_number_argument(a) and as_operand(a) is None:
        return NotImplemented
    # As torch, whose nodes this gives.
    return run2(MUL, run1(RECIPROCAL, b), a, None, None)

cdef object slot_floor_divide(object a, object b):
    return run2(FLOOR_DIVIDE, a, b, "__floordiv__", "__rfloordiv__")

cdef object slot_remainder(object a, object b):
    return run2(REMAINDER, a, b, None, "__rmod__")

cdef object slot_pow(object a, object b, object modulus):
    if modulus is not None:
        raise TypeError("pow() with a modulus is not supported for tensors")
    if process.capture != NULL and hasattr(type(b), "size_log"):
        b = b.__index__()               # a size, of which it then is known that it is read
    return run2(POW, a, b, None, "__rpow__")

cdef object slot_matmul(object a, object b):
    if not is_tensor(a) and not is_overriding(a) or not is_tensor(b) and not is_overriding(b):
        return NotImplemented
    if is_overridden(a, b):
        return call_override_of_operator(MATMUL, None, "__rmatmul__", a, b)
    if (<Tensor>a).layout.ndim == 2 and (<Tensor>b).layout.ndim == 2:
        return run2(MM, a, b, None, None)
    if thread_state().autocast == 0:    # which has a policy for matmul, and none for its parts
        if (<Tensor>a).layout.ndim == 2 and (<Tensor>b).layout.ndim == 1:
            return run2(MV, a, b, None, None)
        if (<Tensor>a).layout.ndim == 1 and (<Tensor>b).layout.ndim == 1:
            return run2(DOT, a, b, None, None)
    return run2(MATMUL, a, b, None, None)

cdef object slot_and(object a, object b):
    return run2(AND, a, b, "__and__", None)

cdef object slot_or(object a, object b):
    return run2(OR, a, b, "__or__", None)

cdef object slot_xor(object a, object b):
    return run2(XOR, a, b, "__xor__", None)

cdef object slot_lshift(object a, object b):
    return run2(LSHIFT, a, b, "__lshift__", "__rlshift__")

cdef object slot_rshift(object a, object b):
    return run2(RSHIFT, a, b, "__rshift__", "__rrshift__")

cdef object slot_neg(object a):
    return run1(NEG, a)

cdef object slot_pos(object a):
    if is_overridden(a, a):
        return call_of_class("positive", (a,))
    if dtype_category[(<Tensor>a).dtype] == CATEGORY_BOOL:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return a

cdef object slot_abs(object a):
    return run1(ABS, a)

cdef object slot_invert(object a):
    if is_overridden(a, a):
        return call_of_class("__invert__", (a,))
    if dtype_category[(<Tensor>a).dtype] > CATEGORY_INTEGRAL:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type "
                        "tensors")
    return run1(INVERT, a)

cdef object slot_iadd(object a, object b):
    return run2_(ADD_, a, b, None)

cdef object slot_isub(object a, object b):
    return run2_(SUB_, a, b, None)

cdef object slot_imul(object a, object b):
    return run2_(MUL_, a, b, None)

cdef object slot_idiv(object a, object b):
    return run2_(DIV_, a, b, None)

cdef object slot_ifloor_divide(object a, object b):
    return run2_(FLOOR_DIVIDE_, a, b, None)

cdef object slot_iremainder(object a, object b):
    return run2_(REMAINDER_, a, b, None)

cdef object slot_ipow(object a, object b, object modulus):
    return run2_(POW_, a, b, None)

cdef object slot_ilshift(object a, object b):
    return run2_(LSHIFT_, a, b, "__ilshift__")

cdef object slot_irshift(object a, object b):
    return run2_(RSHIFT_, a, b, "__irshift__")

cdef object slot_iand(object a, object b):
    return run2_(AND_, a, b, "__iand__")

cdef object slot_ior(object a, object b):
    return run2_(OR_, a, b, "__ior__")

cdef object slot_ixor(object a, object b):
    return run2_(XOR_, a, b, "__ixor__")


cdef object slot_compare(object a, object b, int how):
    if how == Py_EQ:
        return run2(EQ, a, b, "__eq__", None)
    if how == Py_NE:
        return run2(NE, a, b, None, None)
    if how == Py_LT:
        return run2(LT, a, b, None, None)
    if how == Py_LE:
        return run2(LE, a, b, None, None)
    if how == Py_GT:
        return run2(GT, a, b, None, None)
    return run2(GE, a, b, None, None)


# ---- conversions to Python numbers ---------------------------------------------------------------

cdef int slot_bool(object a) except -1:
    if is_overridden(a, a):
        return call_of_class("__bool__", (a,))
    if (<Tensor>a).flags & TENSOR_IS_BATCHED:
        raise RuntimeError("vmap: It looks like you're attempting to use a Tensor in some "
                           "data-dependent control flow. We don't support that: use where() to "
                           "choose between values.")
    if (<Tensor>a).layout.numel == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    if (<Tensor>a).layout.numel != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return 1 if element_of(a, b"bool(tensor)") else 0


cdef object number_of(object a, const char *what):
    cdef Tensor tensor = <Tensor>a
    if tensor.layout.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    value = element_of(tensor, what)
    if dtype_category[tensor.dtype] == CATEGORY_COMPLEX:
        if value.imag != 0:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return value.real
    return value


cdef object slot_int(object a):
    if is_overridden(a, a):
        return call_of_class("__int__", (a,))
    return int(number_of(a, b"int(tensor)"))


cdef object slot_float(object a):
    if is_overridden(a, a):
        return call_of_class("__float__", (a,))
    return float(number_of(a, b"float(tensor)"))


cdef object slot_index(object a):
    if is_overridden(a, a):
        return call_of_class("__index__", (a,))
    cdef Tensor tensor = <Tensor>a
    if dtype_category[tensor.dtype] > CATEGORY_INTEGRAL or tensor.layout.numel != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(element_of(tensor, b"a tensor as an index"))


def install():
    """Fill the slots of the Tensor type; the ops must exist."""
    global ADD, SUB, RSUB, MUL, DIV, RECIPROCAL, FLOOR_DIVIDE, REMAINDER, POW, MATMUL, MM, MV, DOT
    global NEG, ABS, INVERT, AND, OR, XOR, LSHIFT, RSHIFT, EQ, NE, LT, LE, GT, GE
    global ADD_, SUB_, MUL_, DIV_, FLOOR_DIVIDE_, REMAINDER_, POW_
    global AND_, OR_, XOR_, LSHIFT_, RSHIFT_
    ADD, SUB, MUL, DIV = op_named("add"), op_named("sub"), op_named("mul"), op_named("div")
    RSUB, RECIPROCAL = op_named("rsub"), op_named("reciprocal")
    FLOOR_DIVIDE, REMAINDER = op_named("floor_divide"), op_named("remainder")
    POW, MATMUL = op_named("pow"), op_named("matmul")
    MM, MV, DOT = op_named("mm"), op_named("mv"), op_named("dot")
    NEG, ABS, INVERT = op_named("neg"), op_named("abs"), op_named("bitwise_not")
    AND, OR, XOR = op_named("bitwise_and"), op_named("bitwise_or"), op_named("bitwise_xor")
    LSHIFT, RSHIFT = op_named("bitwise_left_shift"), op_named("bitwise_right_shift")
    EQ, NE, LT = op_named("eq"), op_named("ne"), op_named("lt")
    LE, GT, GE = op_named("le"), op_named("gt"), op_named("ge")
    ADD_, SUB_, MUL_, DIV_ = op_named("add_"), op_named("sub_"), op_named("mul_"), op_named("div_")
    FLOOR_DIVIDE_, REMAINDER_ = op_named("floor_divide_"), op_named("remainder_")
    POW_ = op_named("pow_")
    AND_, OR_ = op_named("bitwise_and_"), op_named("bitwise_or_")
    XOR_ = op_named("bitwise_xor_")
    LSHIFT_, RSHIFT_ = op_named("bitwise_left_shift_"), op_named("bitwise_right_shift_")
    for op in (ADD, SUB, RSUB, MUL, DIV, ADD_, SUB_, MUL_, DIV_, EQ, NE, LT, LE, GT, GE):
        (<Op>op).takes_number = True
    fill_slots()
    expose_slots()


cdef int fill_slots() except -1:
    cdef PyTypeObject *kind = <PyTypeObject *>Tensor
    cdef PyNumberMethods *slots = pb_number_methods(kind)
    slots.nb_add = <void *>slot_add
    slots.nb_subtract = <void *>slot_sub
    slots.nb_multiply = <void *>slot_mul
    slots.nb_true_divide = <void *>slot_div
    slots.nb_floor_divide = <void *>slot_floor_divide
    slots.nb_remainder = <void *>slot_remainder
    slots.nb_power = <void *>slot_pow
    slots.nb_matrix_multiply = <void *>slot_matmul
    slots.nb_negative = <void *>slot_neg
    slots.nb_positive = <void *>slot_pos
    slots.nb_absolute = <void *>slot_abs
    slots.nb_invert = <void *>slot_invert
    slots.nb_and = <void *>slot_and
    slots.nb_or = <void *>slot_or
    slots.nb_xor = <void *>slot_xor
    slots.nb_lshift = <void *>slot_lshift
    slots.nb_rshift = <void *>slot_rshift
    slots.nb_bool = <void *>slot_bool
    slots.nb_int = <void *>slot_int
    slots.nb_float = <void *>slot_float
    slots.nb_index = <void *>slot_index
    slots.nb_inplace_add = <void *>slot_iadd
    slots.nb_inplace_subtract = <void *>slot_isub
    slots.nb_inplace_multiply = <void *>slot_imul
    slots.nb_inplace_true_divide = <void *>slot_idiv
    slots.nb_inplace_floor_divide = <void *>slot_ifloor_divide
    slots.nb_inplace_remainder = <void *>slot_iremainder
    slots.nb_inplace_power = <void *>slot_ipow
    slots.nb_inplace_lshift = <void *>slot_ilshift
    slots.nb_inplace_rshift = <void *>slot_irshift
    slots.nb_inplace_and = <void *>slot_iand
    slots.nb_inplace_or = <void *>slot_ior
    slots.nb_inplace_xor = <void *>slot_ixor
    kind.tp_richcompare = <richcmpfunc>slot_compare
    PyType_Modified(kind)
    return 0


cdef int expose(object patterns, str name, size_t slot) except -1:
    """Put the method of a slot into the type's dict, for ``Tensor.__add__`` and ``super()``.

    CPython makes these methods in PyType_Ready; here the slots are filled later. Each kind of slot
    has one descriptor base in CPython, taken from another type's method of the same name, so that a
    subclass inherits the C slot.
    """
    cdef object pattern = patterns[name]
    (<dict>(<PyTypeObject *>Tensor).tp_dict)[name] = pb_slot_method(
        <PyTypeObject *>Tensor, <PyObject *>pattern, <void *>slot)
    return 0


cdef int expose_slots() except -1:
    """Make a method of every filled slot."""
    cdef PyTypeObject *kind = <PyTypeObject *>Tensor
    cdef PyNumberMethods *slots = pb_number_methods(kind)
    patterns = vars(pb_patterns())
    for name, slot in (
            ("__add__", <size_t>slots.nb_add), ("__sub__", <size_t>slots.nb_subtract),
            ("__mul__", <size_t>slots.nb_multiply), ("__truediv__", <size_t>slots.nb_true_divide),
            ("__floordiv__", <size_t>slots.nb_floor_divide),
            ("__mod__", <size_t>slots.nb_remainder),
            ("__pow__", <size_t>slots.nb_power), ("__matmul__", <size_t>slots.nb_matrix_multiply),
            ("__and__", <size_t>slots.nb_and), ("__or__", <size_t>slots.nb_or),
            ("__xor__", <size_t>slots.nb_xor), ("__lshift__", <size_t>slots.nb_lshift),
            ("__rshift__", <size_t>slots.nb_rshift)):
        expose(patterns, name, slot)
        expose(patterns, "__r" + name[2:], slot)
    for name, slot in (
            ("__neg__", <size_t>slots.nb_negative), ("__pos__", <size_t>slots.nb_positive),
            ("__abs__", <size_t>slots.nb_absolute), ("__invert__", <size_t>slots.nb_invert),
            ("__bool__", <size_t>slots.nb_bool), ("__int__", <size_t>slots.nb_int),
            ("__float__", <size_t>slots.nb_float), ("__index__", <size_t>slots.nb_index),
            ("__iadd__", <size_t>slots.nb_inplace_add),
            ("__isub__", <size_t>slots.nb_inplace_subtract),
            ("__imul__", <size_t>slots.nb_inplace_multiply),
            ("__itruediv__", <size_t>slots.nb_inplace_true_divide),
            ("__ifloordiv__", <size_t>slots.nb_inplace_floor_divide),
            ("__imod__", <size_t>slots.nb_inplace_remainder),
            ("__ipow__", <size_t>slots.nb_inplace_power),
            ("__ilshift__", <size_t>slots.nb_inplace_lshift),
            ("__irshift__", <size_t>slots.nb_inplace_rshift),
            ("__iand__", <size_t>slots.nb_inplace_and),
            ("__ior__", <size_t>slots.nb_inplace_or), ("__ixor__", <size_t>slots.nb_inplace_xor)):
        expose(patterns, name, slot)
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        expose(patterns, name, <size_t>kind.tp_richcompare)
    PyType_Modified(kind)
    return 0

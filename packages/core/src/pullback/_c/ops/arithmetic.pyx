"""Forward passes of arithmetic ops with special cases: pow, sub, rsub, square."""

from cpython.object cimport PyObject

from pullback.abi cimport PB_BF16, PB_BOOL, PB_F16, PB_I64
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, CATEGORY_INTEGRAL, dtype_category, dtype_of_scalar, scalar_check_all)
from pullback._c.dispatch.operands cimport cast_tensor
from pullback._c.ops.elementwise cimport ONE, forward_elementwise, run_general
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.dispatch.launch cimport fill_with
from pullback._c.graph.tensor cimport Tensor, is_tensor


cdef object forward_conj_physical(Op op, PyObject **args, PyObject *target):
    """conj_physical; returns a real tensor itself."""
    if dtype_category[(<Tensor>args[0]).dtype] < CATEGORY_COMPLEX and target == NULL:
        return <object>args[0]
    return forward_elementwise(op, args, target)


cdef object forward_scaled(Op op, PyObject **args, PyObject *target):
    """factor * self; for the factor 1 self itself."""
    cdef PyObject *values[2]
    if args[1] == ONE:
        return <object>args[0]
    if dtype_of_scalar(<object>args[1]) < 0:
        raise TypeError(f"{op.name}(): argument 'factor' must be Number, not "
                        f"{type(<object>args[1]).__name__}")
    values[0] = args[0]
    values[1] = args[1]
    return run_general(op, op.primitive, values, 2, NULL)


cdef object forward_pow(Op op, PyObject **args, PyObject *target):
    """self ** other; raises for a number that integers or 16-bit floats cannot hold."""
    cdef object exponent = <object>args[1]
    cdef Tensor base
    if not is_tensor(exponent) and is_tensor(<object>args[0]):
        base = <Tensor>args[0]
        if base.dtype == PB_BOOL and is_bool(args[1]):
            return bool_power(base, exponent, target)
        if (dtype_category[base.dtype] <= CATEGORY_INTEGRAL
                and dtype_category[dtype_of_scalar(exponent)] <= CATEGORY_INTEGRAL):
            if exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            scalar_check_all(exponent, base.dtype if base.dtype != PB_BOOL else PB_I64)
        elif base.dtype == PB_F16 or base.dtype == PB_BF16:
            scalar_check_all(exponent, base.dtype)
    return forward_elementwise(op, args, target)


cdef object bool_power(Tensor self, object exponent, PyObject *target):
    """The powers of bools, for the exponents 1 and 0 only."""
    cdef Tensor out = cast_tensor(self, PB_BOOL) if target == NULL else <Tensor>target
    if not exponent:
        fill_with(out, True)
    return out


cdef inline bint is_bool(PyObject *value) noexcept:
    if is_tensor(<object>value):
        return (<Tensor>value).dtype == PB_BOOL
    return <object>value is True or <object>value is False


cdef object forward_sub(Op op, PyObject **args, PyObject *target):
    """self - alpha * other; raises for bools."""
    if is_bool(args[0]) or is_bool(args[1]):
        if is_bool(args[0]) and is_bool(args[1]):
            raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not "
                               "supported. Use the `^` or `logical_xor()` operator instead.")
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If "
                           "you are trying to invert a mask, use the `~` or `logical_not()` "
                           "operator instead.")
    return forward_elementwise(op, args, target)


cdef object forward_rsub(Op op, PyObject **args, PyObject *target):
    """other - alpha * self."""
    cdef PyObject *swapped[3]
    swapped[0] = args[1]
    swapped[1] = args[0]
    swapped[2] = args[2]
    return forward_sub(op, swapped, target)


cdef object forward_square(Op op, PyObject **args, PyObject *target):
    """x * x; of bools as integers, as pow(x, 2)."""
    cdef PyObject *values[1]
    cdef Tensor self = <Tensor>args[0]
    if self.dtype != PB_BOOL:
        return forward_elementwise(op, args, target)
    self = cast_tensor(self, PB_I64)
    values[0] = <PyObject *>self
    return forward_elementwise(op, values, target)


forward_register("conj_physical", forward_conj_physical)
forward_register("pow", forward_pow)
forward_register("rsub", forward_rsub)
forward_register("scaled", forward_scaled)
forward_register("square", forward_square)
forward_register("sub", forward_sub)

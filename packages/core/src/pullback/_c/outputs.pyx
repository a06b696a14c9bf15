"""Checks of the tensors that ops write: their dtypes, and memory that they share with operands."""

from cpython.object cimport PyObject

from pullback._c.elementwise cimport refuse_partial_overlap
from pullback._c.entry cimport OP_EXACT, OP_SHARES, Op
from pullback._c.tensor cimport Tensor, is_tensor
from pullback.optable.outputs import complaint


cdef int refuse_shared(Tensor target, object value) except -1:
    """Raise if an operand, or one of a list, shares memory with what is written, but not all."""
    if is_tensor(value):
        return refuse_partial_overlap(target, <Tensor>value)
    if isinstance(value, (tuple, list)):
        for item in value:
            if is_tensor(item):
                refuse_partial_overlap(target, <Tensor>item)
    return 0


def refuse_shared_memory(Tensor target not None, *values):
    """Raise RuntimeError if an operand shares memory with what is written, but not all of it."""
    for value in values:
        refuse_shared(target, value)


cdef int check_outputs(Op op, PyObject **args, object targets, tuple results) except -1:
    """Raise unless the tensors given as out= may take the results."""
    cdef int i
    cdef Tensor target
    for number, item in enumerate(targets):
        target = <Tensor>item
        if op.flags & OP_EXACT and target.dtype != (<Tensor?>results[number]).dtype:
            wrong = complaint(op.entry.name, <object>args[0], results, number, item)
            if wrong is not None:
                raise RuntimeError(wrong)
        if not op.flags & OP_SHARES:
            for i in range(op.nargs):
                refuse_shared(target, <object>args[i])
    return 0

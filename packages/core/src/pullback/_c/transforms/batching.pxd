from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op
from pullback._c.graph.levels cimport Level
from pullback._c.graph.tensor cimport Tensor

cdef object run_batched(Op op, PyObject **args, int level)
cdef Tensor batched(Tensor value, Level level)
cdef Tensor unwrap(Tensor tensor, Level level)
cdef Tensor rewrap(Tensor value, Level level)

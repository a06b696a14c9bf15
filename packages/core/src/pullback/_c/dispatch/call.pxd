from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op


cdef class OpMethod:
    cdef void *vectorcall
    cdef readonly Op op

cdef object op_apply(Op op, PyObject **args)
cdef object op_apply_inplace(Op op, PyObject **args)
cdef object apply_as_given(Op op, PyObject **args, object target)
ctypedef object (*way_to_apply)(Op op, PyObject **args, object target)
cdef object apply_without_autocast(Op op, PyObject **args, object target, way_to_apply apply)
cdef void set_autocast_run(object (*run)(Op op, PyObject **args)) noexcept
cdef object composite_python(Op op, PyObject **args)
cdef object forward_python(Op op, PyObject **args, PyObject *target)
cdef object run_composite_plainly(Op op, PyObject **args)
cdef object run_forward(Op op, PyObject **args, PyObject *target)
cdef object op_record(Op op, PyObject **args, object result)
cdef object op_run_inplace(Op op, PyObject **args)
cdef void set_transform_dispatch(object (*run)(Op op, PyObject **args),
                                 object (*run_inplace)(Op op, PyObject **args),
                                 object (*draw)(Op op, PyObject **args),
                                 bint (*is_transformed)(Op op, PyObject **args) except -1,
                                 int (*announce)(Op op, object targets) except -1) noexcept
cdef void set_metadata_run(object (*run)(Op op, PyObject **args)) noexcept
cdef object op_call1(Op op, object a)
cdef object op_call2(Op op, object a, object b)
cdef object op_parse_and_apply(Op op, PyObject *const *args, Py_ssize_t nargs, object names)

"""Compiled classes whose instances are called by the vectorcall protocol."""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    #include <Python.h>
    static inline void pb_make_callable(PyTypeObject *type, Py_ssize_t offset,
                                        unsigned long flags) {
        type->tp_vectorcall_offset = offset;
        type->tp_call = PyVectorcall_Call;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | flags;
        PyType_Modified(type);
    }
    """
    # Methods of instances that the interpreter calls without making a bound method.
    const unsigned long Py_TPFLAGS_METHOD_DESCRIPTOR
    # `offset` is that of the member with the function.
    void pb_make_callable(PyTypeObject *type, Py_ssize_t offset, unsigned long flags)

cdef extern from "Python.h":
    Py_ssize_t PyVectorcall_NARGS(size_t nargs)
    object PyObject_Vectorcall(object callable, PyObject *const *args, size_t nargsf,
                               PyObject *names)

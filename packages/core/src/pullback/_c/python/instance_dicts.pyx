# build: small
"""``__dict__`` of compiled classes that programs assign, as they do to copy an object.

Cython makes the attribute read-only. A module, a tensor or a context of a custom function is copied
by ``copied.__dict__ = original.__dict__.copy()``, which Python's own classes allow.
"""

from cpython.object cimport PyTypeObject

cdef extern from *:
    """
    #include <Python.h>
    static PyGetSetDef pb_instance_dict =
        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL};
    static PyObject *pb_writable_dict(PyTypeObject *type) {
        return PyDescr_NewGetSet(type, &pb_instance_dict);
    }
    """
    object pb_writable_dict(PyTypeObject *type)
    void PyType_Modified(PyTypeObject *type)


def install(*classes):
    """Make ``__dict__`` of instances of compiled classes writable."""
    for kind in classes:
        (<dict>(<PyTypeObject *>kind).tp_dict)["__dict__"] = pb_writable_dict(<PyTypeObject *>kind)
        PyType_Modified(<PyTypeObject *>kind)

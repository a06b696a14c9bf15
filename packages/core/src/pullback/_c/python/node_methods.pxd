from cpython.object cimport PyObject

cdef object hook_table(PyObject **field)

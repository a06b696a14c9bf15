from pullback._c.base.types cimport pb_node
from pullback._c.graph.tensor cimport Tensor


# What code does beside naming things.
cdef enum:
    COMPARES_OBJECTS = 1        # by `is` or id()
    ASKS_BY_NAME = 2            # for attributes, by texts in it
    NAMES_LATER = 4             # attributes by names that are not in it
    IMPORTS = 8                 # modules


cdef tuple code_names(object code)
cdef list uses_of(object code, str name, object module)
cdef bint reads_texts(object code, object some)
cdef bint uses_by_text(object code, str name)
cdef list code_of_node(pb_node *node)
cdef Py_ssize_t count_hooks(Tensor tensor)

# What is looked at in one way.
cdef enum kind_of_value:
    VALUE_FUNCTION
    VALUE_METHOD
    VALUE_BUILTIN               # a function in C, perhaps of an object
    VALUE_WRAPPER               # a static or class method
    VALUE_PROPERTY
    VALUE_PARTIAL
    VALUE_TUPLE
    VALUE_LIST
    VALUE_DICT
    VALUE_SET
    VALUE_CLASS                 # or a module
    VALUE_ITERATOR
    VALUE_CACHE
    VALUE_ARRAY                 # of NumPy or another module
    VALUE_GETTER                # of operator: it has names of attributes
    VALUE_REFERENCE             # a weak one
    VALUE_VARIABLE              # of a context
    VALUE_OF_THREAD
    VALUE_PROXY
    VALUE_VIEW                  # of a dict
    VALUE_OPEN                  # an object whose attributes are the program's
    VALUE_LOADER
    VALUE_GENERATOR             # of random numbers, whose position a program moves
    VALUE_RANDOM                # another source of random numbers
    VALUE_CLOSED
    VALUE_OBJECT


# What is known of all objects of a class.
cdef class Kind:
    cdef int kind
    cdef bint is_extended               # its class is the program's, and a container
    cdef bint is_model                  # its class has what modules have
    cdef bint is_ours, is_stateful
    cdef bint is_named                  # only code of the program knows its public attributes
    cdef list slots


cdef bint asks_system(object function) except -1
cdef bint is_closed(object module)
cdef bint is_library(object kind)
cdef Kind kind_of(object value)

from libc.stdint cimport uint64_t

from pullback._c.base.types cimport pb_storage
from pullback._c.capture.spec cimport Spec


cdef enum guard_kind:
    GUARD_DICT                  # the item of a dict
    GUARD_LIST                  # the item of a list
    GUARD_CELL                  # what is in the cell of a closure
    GUARD_LENGTH                # the length of a list or dict
    GUARD_ITEMS                 # all items of a dict, in their order: the key has the keys
    GUARD_FUNCTION              # the code and the defaults of a function: parts_of
    GUARD_CLASS                 # the class of an object
    GUARD_ABSENT                # that a dict has none of some keys
    GUARD_CALL                  # what a function returns


# A reference that a function follows, and what was found there.
cdef class Guard:
    cdef readonly object holder, key
    cdef object expected
    cdef list options                   # instead of what is expected
    cdef Spec spec
    cdef int kind
    cdef Py_ssize_t number              # in a list, or the length
    cdef bint plain
    cdef pb_storage *storage            # of a tensor; borrowed: programs own those that they use
    cdef readonly str where

    cdef list places(self)
    cdef str difference(self)
    cdef bint outdated(self) except -1
    cdef bint holds(self) except -1
    cdef bint refers(self, bint as_it_was) except -1
    cdef int name_attributes(self, object names) except -1


# Guards of one dict.
cdef class WatchedDict:
    cdef object holder
    cdef uint64_t version               # at which all guards held; 0: unknown
    cdef list guards
    cdef list tensors                   # the guards of tensors among them

    cdef bint hold(self) except -1


cdef Guard guard_of(int kind, object holder, object key, object expected, str where)
cdef tuple parts_of(object function)
cdef str shown_key(object key)
cdef object IGNORED

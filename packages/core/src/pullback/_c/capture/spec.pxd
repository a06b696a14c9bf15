from libc.stdint cimport uint8_t, uint16_t, uint32_t

from pullback._c.base.types cimport pb_layout
from pullback._c.graph.tensor cimport Tensor

cdef enum spec_kind:
    SPEC_VALUE                  # equal, and of the same type
    SPEC_OBJECT                 # the same object
    SPEC_TENSOR
    SPEC_TUPLE
    SPEC_LIST
    SPEC_DICT                   # also an OrderedDict or a defaultdict
    SPEC_FIELDS                 # an instance of a dataclass
    SPEC_NUMBER                 # a float, which programs take as a 0-d tensor


# What one argument, or an item of one, must be.
cdef class Spec:
    cdef int kind
    cdef object type
    cdef object value                   # SPEC_VALUE, SPEC_OBJECT
    cdef tuple keys                     # SPEC_DICT, SPEC_FIELDS
    cdef list items
    cdef pb_layout *layout              # owned; SPEC_TENSOR
    cdef uint32_t device
    cdef uint8_t dtype
    cdef uint16_t flags
    cdef bint requires_grad, inference, is_leaf
    cdef object names                   # SPEC_TENSOR: attributes that code may read; or None
    cdef dict attributes                # those of them that it has; or None
    cdef bint is_asked                  # the names have facts of ASKED among them
    cdef int device_type, device_index  # SPEC_NUMBER: of its tensor
    cdef readonly str where             # how messages name it


cpdef bint is_plain(value)
cdef bint same_value(object value, object expected)
cdef dict own_attributes(Tensor tensor)
cdef int note_attributes(Spec spec, Tensor tensor, object names) except -1
cdef bint same_attributes(dict some, dict others) except -1
cdef Spec spec_of(object value, str where, list tensors, dict numbers=*, object names=*)
cdef bint tensor_fits(Spec spec, Tensor tensor) except -1
cdef bint has_own_memory(Tensor tensor, Py_ssize_t owners) noexcept
cdef bint has_repeated(Spec spec, object value, set seen) except -1
cdef bint fits(Spec spec, object value, list tensors)
cdef str first_difference(Spec spec, object value)
cdef bint differs_in_numbers(Spec spec, object value, set found)
cdef int set_read(Spec spec, object value, set read) except -1

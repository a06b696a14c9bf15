from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint16_t, uint32_t

from pullback._c.base.types cimport pb_layout, pb_node, pb_storage


cdef enum tensor_flags:
    TENSOR_REQUIRES_GRAD = 1    # of a leaf; non-leaves have a node
    TENSOR_IS_VIEW = 2
    TENSOR_RETAINS_GRAD = 4
    TENSOR_IS_WRAPPED = 8       # has wrapper states: tangents, or a batch
    TENSOR_IS_PRIMAL = 16       # a view that its base's tangents do not reach
    TENSOR_IS_BATCHED = 32
    TENSOR_CONJ = 64            # the elements are the conjugates of the values in memory
    TENSOR_NEG = 128            # and the negatives of that
    TENSOR_OVERRIDES = 256      # its class has a __torch_function__
    TENSOR_IS_NUMBER = 512      # a 0-d tensor that promotes as a Python number does
    TENSOR_LAZY = 192           # either: only kernel_call and `resolved` in launch.pyx compute them

# How a view was made, which decides which in-place writes raise.
cdef enum view_kind:
    VIEW_DEFAULT = 0
    VIEW_MULTI_OUTPUT = 1
    VIEW_NO_GRAD = 2
    VIEW_IN_FUNCTION = 3
    VIEW_INFERENCE = 4


# Fields that few tensors have.
ctypedef struct pb_tensor_extra:
    PyObject *grad              # owned Tensor
    PyObject *base              # owned Tensor that the view, or the first of a chain, is of
    PyObject *hooks             # owned dict of a leaf's tensor hooks
    PyObject *post_hooks        # owned dict of post-accumulate hooks
    PyObject *wrapper_state     # owned WrapperState of the innermost level, linked to outer ones
    PyObject *name              # owned str
    pb_node *accumulator        # borrowed; owned once its count is 0, to be used again
    uint32_t view_version       # storage version that the view's node belongs to
    uint8_t view_kind
    int8_t grad_dtype           # -1: the tensor's own; -2: unchecked
    int16_t device_type         # of a batched tensor: its batch's
    int16_t device_index
    uint16_t grad_stream        # of the last addition to grad; 0: the device's default stream
    bint closed                 # leaf made by a transform whose function has returned


cdef class Tensor:
    cdef pb_storage *storage        # owned, never NULL
    cdef pb_layout *layout          # owned, never NULL
    cdef pb_node *node              # owned; NULL for leaves
    cdef pb_tensor_extra *extra     # owned, may be NULL
    cdef int64_t offset             # in elements
    cdef uint32_t output_nr
    cdef uint32_t gc_mark
    cdef uint8_t dtype
    cdef uint16_t flags
    cdef uint32_t transform         # number of the last transform begun before the tensor was made
    cdef dict __dict__
    cdef object __weakref__


cdef void set_run_from_root(
    object (*function)(Tensor root, object gradient, bint keep_graph)) noexcept
cdef object disabled_override
cdef object call_of_class
cdef uint16_t override_flag(object kind) noexcept
cdef void set_indexing(object (*read)(Tensor self, object key),
                       int (*write)(Tensor self, object key, object value) except -1) noexcept
cdef Tensor tensor_wrap(pb_storage *storage, pb_layout *layout, int64_t offset, int dtype)
cdef Tensor tensor_new(pb_layout *layout, int dtype, int device_type, int device_index)
cdef Tensor tensor_alias(Tensor self)
cdef Tensor tensor_over(Tensor self, pb_storage *storage, pb_layout *layout, int64_t offset)
cdef pb_tensor_extra *tensor_extra(Tensor self) except NULL
cdef void tensor_set_node(Tensor self, pb_node *node, uint32_t output_nr) noexcept
cdef void *tensor_data(Tensor self) noexcept nogil
cdef object tensor_device(Tensor self)
cdef object device_of(int type_id, int index)


cdef bint view_requires_grad(Tensor self) noexcept nogil


cdef inline bint tensor_is_exact(object value) noexcept:
    return type(value) is Tensor


cdef inline bint is_tensor(object value) noexcept:
    return type(value) is Tensor or isinstance(value, Tensor)


cdef inline bint tensor_requires_grad(Tensor self) noexcept nogil:
    """True if it has a history, or is a leaf that requires grad, or a view of either."""
    return (self.node != NULL or self.flags & TENSOR_REQUIRES_GRAD != 0
            or self.flags & TENSOR_IS_VIEW and view_requires_grad(self))


cdef inline int tensor_device_type(Tensor self) noexcept nogil:
    """Return the type of the tensor's device; of a batched one, that of its batch."""
    return self.extra.device_type if self.flags & TENSOR_IS_BATCHED else self.storage.device_type


cdef inline int tensor_device_index(Tensor self) noexcept nogil:
    return self.extra.device_index if self.flags & TENSOR_IS_BATCHED else self.storage.device_index


cdef inline uint32_t device_key(Tensor self) noexcept nogil:
    """Return a number that identifies the device of the tensor's memory."""
    return <uint32_t><uint16_t>self.storage.device_type << 16 | <uint16_t>self.storage.device_index


cdef inline bint same_device(Tensor a, Tensor b) noexcept nogil:
    """True if the memory of both is on one device."""
    return device_key(a) == device_key(b)


cdef inline bint tensor_is_tracked(Tensor self) noexcept nogil:
    """True if autograd or a transform must see what is computed from the tensor."""
    return tensor_requires_grad(self) or self.flags & TENSOR_IS_WRAPPED != 0


# Methods that need ops or the engine; modules above this one set them.
cdef class Late:
    cdef public object repr
    cdef public object new
    cdef public object array
    cdef public object reduce
    cdef public object deepcopy
    cdef public object iterate
    cdef public object contains
    cdef public object format
    cdef public object backward

cdef Late late

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_MAX_NDIM, pb_array, pb_backend, pb_call, pb_event, pb_param)
from pullback._c.base.types cimport pb_layout
from pullback._c.device.device cimport device_types
from pullback._c.graph.tensor cimport Tensor, same_device


cdef enum:
    MAX_ELEMENTWISE = 6         # operands of one elementwise kernel


# One operand of an elementwise call: a tensor (borrowed), or a number in `scalar`.
ctypedef struct operand:
    PyObject *tensor
    double scalar[2]


cdef int primitive_id(str name) except -1
cdef pb_layout *elementwise_layout(operand *inputs, int count) except NULL
cdef int launch_elementwise(int primitive, int key, Tensor out, operand *inputs,
                            int count) except -1
cdef int launch(int primitive, int key, tuple outs, tuple ins, tuple params) except -1
cdef int launch_with_int(int primitive, int key, PyObject **operands, int nout, int nin,
                         int64_t param) except -1
cdef int launch_operands(int primitive, int key, PyObject **operands, int nout, int nin,
                         pb_param *params, int nparam) except -1
cdef int merge_dims(int nop, int64_t *shape, int64_t (*strides)[PB_MAX_NDIM], int ndim) noexcept
cdef int call_primitive(int type_id, pb_call *call, int key, int64_t work) except -1
cdef void set_call_lazy(int (*run)(int type_id, pb_call *call, int key,
                                   int64_t work) except -1) noexcept
cdef void set_call_optional(int (*run)(int type_id, pb_call *call, int key,
                                       int64_t work) except -1) noexcept
cdef int call_with_kernel(int type_id, pb_call *call, int key, int64_t work) except -1
cdef int call_again(int type_id, pb_call *call, int key, int64_t work) except -1
cdef bint is_timed(const pb_backend *backend) noexcept
cdef int kernel_call(int type_id, pb_call *call, int key, int64_t work) except -1
cdef void set_kernel_events(void (*begin)(pb_event *event, int primitive, int type_id,
                                          int device) noexcept,
                            void (*end)(pb_event *event) noexcept) noexcept
cdef void param_int(pb_param *param, int64_t value) noexcept
cdef void param_float(pb_param *param, double value) noexcept
cdef int param_fill(pb_param *param, object value, int64_t *room, int left) except -1
cdef void array_scalar(pb_array *array, int dtype, void *value) noexcept
cdef void array_fill(pb_array *array, Tensor tensor) noexcept
cdef int copy_into(Tensor out, Tensor source) except -1
cdef int fill_with(Tensor out, object value) except -1
cdef int add_into(Tensor out, Tensor other) except -1
cdef int launch_locked(int primitive, Tensor out, operand *inputs, int count) except -1
cdef int raise_two_devices(object one, object other, str argument, str name) except -1
cdef int raise_operand_device(int primitive, Tensor out, Tensor tensor, int number) except -1


cdef inline int check_device(int primitive, Tensor out, Tensor tensor, int number) except -1:
    """Raise unless an operand is on the device of the kernel's first output."""
    if not same_device(out, tensor):
        raise_operand_device(primitive, out, tensor, number)
    return 0


cdef inline int mark_host(int primitive, Tensor out, Tensor tensor, int number,
                          pb_array *array) except -1:
    """Let a kernel read a number on the host; raises for other operands of another device."""
    if not same_device(out, tensor):
        if tensor.layout.ndim != 0 or not device_types()[tensor.storage.device_type].host:
            raise_operand_device(primitive, out, tensor, number)
        array.flags |= PB_ARRAY_HOST
    return 0

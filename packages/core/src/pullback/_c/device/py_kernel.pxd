from libc.stdint cimport int64_t

from pullback.abi cimport pb_call
from pullback._c.device.device cimport pb_device_type

cdef int run_callable(object function, pb_call *call, bint host, str device) except -1
cdef int64_t run_on_host(pb_device_type *found, object function, pb_call *call) except -1

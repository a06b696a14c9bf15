from pullback.abi cimport pb_call
from pullback._c.device.device cimport pb_device_type, pb_entry

cdef int call_python(pb_device_type *found, pb_entry *entry, pb_call *call, int key) except -1
cdef int call_missing(int type_id, pb_call *call, int key) except -1

from libc.stdint cimport int8_t
from cpython.object cimport PyObject
from pullback.abi cimport PB_NUM_DTYPES, pb_backend, pb_kernel


cdef enum:
    DEVICE_META = 0
    DEVICE_REF = 1
    DEVICE_CPU = 2
    DEVICE_CUDA = 3
    MAX_DEVICE_TYPES = 32
    MAX_PRIMITIVES = 512
    ROWS_FIRST = 0              # the order of dims in memory that a kernel prefers: row-major,
    CHANNELS_LAST = 1           # dim 1 innermost,
    COLUMNS_FIRST = 2           # the last two dims exchanged


# One cell of a device type's dense table of kernels, for a primitive and a dtype.
ctypedef struct pb_entry:
    pb_kernel kernel            # a compiled kernel
    PyObject *callable          # owned; a Python kernel
    int8_t resolution           # where the kernel was found, see launch.pyx
    bint takes_conj             # inputs may have PB_ARRAY_CONJ


ctypedef struct pb_device_type:
    const char *name
    PyObject *name_object       # owned str
    PyObject *error             # owned exception of the failed load, or NULL
    pb_backend *backend         # NULL: plain host memory, or not loaded yet
    PyObject *capsule           # owned; keeps `backend` alive
    bint loaded
    bint host                   # memory is host memory
    bint handles                # allocate() returns handles, not addresses
    bint streams                # it has streams that can be changed
    pb_entry *table             # MAX_PRIMITIVES * PB_NUM_DTYPES


cdef class device:
    cdef readonly str type
    cdef int type_id
    cdef int ordinal            # -1: not given


cdef pb_device_type *device_types() noexcept nogil
cdef pb_device_type *device_type(int type_id) except NULL
cdef int device_type_id(str name, bint create) except -2
cdef device device_parse(object value)
cdef device device_make(int type_id, int ordinal)
cdef int device_default_type() except -1
cdef int device_default_ordinal() noexcept
cdef int device_index(device d) except -1
cdef int device_check_dtype(int type_id, int dtype) except -1
cdef int preferred_layout(int type_id, int primitive) noexcept nogil


cdef inline bint has_field(const pb_backend *backend, const void *field) noexcept:
    """True if the backend was built for an abi.h that has the field."""
    return <size_t>(<const char *>field - <const char *>backend) < backend.size

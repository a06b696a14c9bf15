# The same contract as abi.h, for Cython. See the comments there.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "pullback/abi.h" nogil:
    enum:
        PB_ABI_VERSION
        PB_MAX_NDIM
        PB_MAX_OPERANDS
        PB_MESSAGE_SIZE
        PB_MASK_INTEGRAL
        PB_MASK_HALF
        PB_MASK_FLOATING
        PB_MASK_COMPLEX
        PB_MASK_ALL
        PB_MASK_UNSIGNED
    const char *PB_KERNEL_CAPSULE
    const char *PB_BACKEND_CAPSULE
    const char *PB_OBSERVER_CAPSULE
    const char *PB_INTERRUPTED_CAPSULE

    enum:
        PB_BOOL
        PB_U8
        PB_I8
        PB_I16
        PB_I32
        PB_I64
        PB_F16
        PB_BF16
        PB_F32
        PB_F64
        PB_C64
        PB_C128
        PB_U16
        PB_U32
        PB_U64
        PB_C32
        PB_NUM_DTYPES

    enum:
        PB_ARRAY_HOST
        PB_ARRAY_WRITE
        PB_ARRAY_CONJ
        PB_ARRAY_NEG

    ctypedef struct pb_array:
        uint32_t size
        int16_t dtype
        int16_t flags
        int32_t device
        int32_t ndim
        void *data
        void *base
        int64_t offset
        const int64_t *shape
        const int64_t *strides

    enum:
        PB_PARAM_INT
        PB_PARAM_FLOAT
        PB_PARAM_INTS

    ctypedef struct pb_param:
        int32_t kind
        int32_t count
        int64_t i
        double d
        const int64_t *ints

    ctypedef struct pb_call:
        uint32_t size
        int32_t primitive
        int32_t nout
        int32_t nin
        int32_t nparam
        int32_t device
        pb_array **out
        pb_array **in_ "in"
        const pb_param *param
        void *stream
        void *backend
        char *message

    enum:
        PB_OK
        PB_E_RUNTIME
        PB_E_MEMORY
        PB_E_INDEX
        PB_E_VALUE
        PB_E_DTYPE
        PB_E_PYTHON

    ctypedef int (*pb_kernel)(pb_call *call) noexcept nogil
    ctypedef int (*pb_interrupted)() noexcept nogil

    enum:
        PB_OPERAND_MOVES
        PB_OPERAND_INNER

    ctypedef struct pb_part:
        uint32_t size
        int32_t count
        pb_call **calls
        const pb_kernel *kernels
        const int32_t *dtypes
        const uint8_t *flags
        const int32_t *blocks
        const int64_t *offsets

    enum:
        PB_BACKEND_HOST
        PB_BACKEND_HANDLES
        PB_BACKEND_ASYNC
        PB_HOST_TO_DEVICE
        PB_DEVICE_TO_HOST
        PB_DEVICE_TO_DEVICE
        PB_NON_BLOCKING

    ctypedef struct pb_backend:
        uint32_t size
        uint32_t abi_version
        uint32_t flags
        void *self
        int (*device_count)(void *self) noexcept
        void *(*allocate)(void *self, int device, size_t nbytes) noexcept
        void (*release)(void *self, int device, void *data, size_t nbytes) noexcept
        int (*copy_bytes)(void *self, int device, void *dst, size_t dst_offset, const void *src,
                          size_t src_offset, size_t nbytes, int kind, char *message) noexcept
        int (*synchronize)(void *self, int device, char *message) noexcept
        void *(*current_stream)(void *self, int device) noexcept
        void (*memory_stats)(void *self, int device, int64_t *stats) noexcept
        void (*empty_cache)(void *self, int device) noexcept
        void (*reset_peak)(void *self, int device) noexcept
        void *(*mark)(void *self, int device) noexcept
        int (*elapsed)(void *self, int device, void *first, void *last, double *microseconds,
                       char *message) noexcept
        void (*release_mark)(void *self, int device, void *mark) noexcept
        int (*wait_stream)(void *self, int device, void *waiter, int other_device, void *awaited,
                           char *message) noexcept
        int (*set_stream)(void *self, int device, void *stream, void **previous) noexcept
        int (*use_memory)(void *self, int device, void *data, void *stream) noexcept
        int (*copy_between)(void *self, int dst_device, void *dst, size_t dst_offset,
                            int src_device, const void *src, size_t src_offset, size_t nbytes,
                            char *message) noexcept
        void *(*allocate_pinned)(void *self, size_t nbytes) noexcept
        void (*release_pinned)(void *self, void *data, size_t nbytes) noexcept
        int (*run_parallel)(void *self, int64_t n, int64_t grain,
                            void (*body)(void *context, int64_t first, int64_t last) noexcept nogil,
                            void *context) noexcept nogil
        void *(*compile)(void *self, const pb_part *part) noexcept
        int (*execute)(void *self, void *executor, void *stream, int32_t *begun,
                       char *message) noexcept
        void (*release_executor)(void *self, void *executor) noexcept

    enum:
        PB_EVENT_OP
        PB_EVENT_NODE
        PB_EVENT_RANGE
        PB_EVENT_EVALUATION
        PB_EVENT_KERNEL
        PB_EVENT_FUNCTION

    ctypedef struct pb_event:
        uint32_t size
        int32_t kind
        const char *name
        int64_t sequence
        uint64_t forward_thread
        uint64_t thread
        uint64_t id
        void *object
        int32_t ninput
        int32_t device
        int32_t device_type
        void **inputs
        const pb_backend *backend
        int (*describe)(void *object, pb_array *array) noexcept

    ctypedef struct pb_observer:
        uint32_t size
        void *self
        void (*begin)(void *self, const pb_event *event) noexcept
        void (*end)(void *self, const pb_event *event) noexcept
        void (*memory)(void *self, int backend, int device, void *data, int64_t delta) noexcept

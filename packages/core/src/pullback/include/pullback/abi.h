/* The C interface between pullback's core and code that is compiled apart from it.
 *
 * A backend provides memory and kernels; it has no access to tensors or the graph. All structs are
 * plain data. Each begins with its size at the time of compilation; new fields are appended, so a
 * reader tests `size` before it reads a field that was added later. Nothing here raises, and no
 * kernel needs the interpreter lock.
 */
#ifndef PULLBACK_ABI_H
#define PULLBACK_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PB_ABI_VERSION 2
#define PB_MAX_NDIM 64
#define PB_MAX_OPERANDS 68 /* outputs and inputs of one kernel call together */
#define PB_MESSAGE_SIZE 256

/* Capsule names. The core checks them when a capsule is registered. */
#define PB_KERNEL_CAPSULE "int (pb_call *)"
#define PB_BACKEND_CAPSULE "pb_backend"
#define PB_OBSERVER_CAPSULE "pb_observer"
#define PB_INTERRUPTED_CAPSULE "int (void)"

/* ---- dtypes ---------------------------------------------------------------------------- */

enum pb_dtype {
    PB_BOOL = 0, /* one byte, 0 or 1 */
    PB_U8 = 1,
    PB_I8 = 2,
    PB_I16 = 3,
    PB_I32 = 4,
    PB_I64 = 5,
    PB_F16 = 6,
    PB_BF16 = 7,
    PB_F32 = 8,
    PB_F64 = 9,
    PB_C64 = 10,
    PB_C128 = 11,
    PB_U16 = 12, /* From here on kernels are optional: the core runs those of other dtypes. */
    PB_U32 = 13,
    PB_U64 = 14,
    PB_C32 = 15, /* two f16 */
    PB_NUM_DTYPES = 16
};

#define PB_MASK(dtype) (1u << (dtype))
#define PB_MASK_INTEGRAL 0x03Eu  /* u8 i8 i16 i32 i64 */
#define PB_MASK_HALF 0x0C0u      /* f16 bf16 */
#define PB_MASK_FLOATING 0x3C0u  /* f16 bf16 f32 f64 */
#define PB_MASK_COMPLEX 0xC00u   /* c64 c128 */
#define PB_MASK_ALL 0xFFFu       /* all of these, and bool */
#define PB_MASK_UNSIGNED 0x7000u /* u16 u32 u64 */

/* ---- kernel calls ------------------------------------------------------------------------ */

enum pb_array_flags {
    PB_ARRAY_HOST = 1,  /* `data` is host memory on any backend: one scalar, all strides 0 */
    PB_ARRAY_WRITE = 2, /* an output */
    /* The operand is the conjugate of the values in memory, or the negative (after that). The core
     * resolves such operands before it calls a kernel. A kernel that is registered with
     * `conj=True` gets inputs with PB_ARRAY_CONJ, and must test the flag. */
    PB_ARRAY_CONJ = 4,
    PB_ARRAY_NEG = 8
};

/* One operand. `data` is the first element (base + offset); a backend whose pointers cannot be
 * added to, because they are handles, uses `base` and `offset`. Strides count elements and may
 * be zero or negative. An array with ndim 0 has one element. */
typedef struct pb_array {
    uint32_t size;
    int16_t dtype;
    int16_t flags;
    int32_t device; /* index among the backend's devices */
    int32_t ndim;
    void *data;
    void *base;     /* what allocate() returned */
    int64_t offset; /* in elements */
    const int64_t *shape;
    const int64_t *strides;
} pb_array;

enum pb_param_kind { PB_PARAM_INT = 0, PB_PARAM_FLOAT = 1, PB_PARAM_INTS = 2 };

/* One parameter, in the order in which the primitive declares them. */
typedef struct pb_param {
    int32_t kind;
    int32_t count; /* length of `ints` */
    int64_t i;
    double d;
    const int64_t *ints;
} pb_param;

typedef struct pb_call {
    uint32_t size;
    int32_t primitive;
    int32_t nout;
    int32_t nin;
    int32_t nparam;
    int32_t device;
    pb_array **out; /* allocated by core; never NULL, may have no elements */
    pb_array **in;
    const pb_param *param;
    void *stream;
    void *backend; /* pb_backend.self */
    char *message; /* PB_MESSAGE_SIZE bytes: why it failed */
} pb_call;

enum pb_error {
    PB_OK = 0,
    PB_E_RUNTIME = 1, /* RuntimeError */
    PB_E_MEMORY = 2,  /* MemoryError */
    PB_E_INDEX = 3,   /* IndexError */
    PB_E_VALUE = 4,   /* ValueError */
    PB_E_DTYPE = 5,   /* NotImplementedError: this dtype has no kernel after all */
    PB_E_PYTHON = 6   /* a Python exception is set */
};

typedef int (*pb_kernel)(pb_call *call);

/* Returns not 0 if the running kernel shall stop, because a Python signal handler raised (Ctrl-C).
 * The function is in a capsule, `pullback.backend.INTERRUPTED`. A kernel that may take long calls
 * it every few milliseconds, on the thread that called the kernel (others get 0), without a lock of
 * its own; most calls take a few nanoseconds. If the result is not 0, a Python exception is set,
 * which stays set until the kernel has returned PB_E_PYTHON: soon, and after all its threads have
 * stopped. The values of its outputs do not matter then. */
typedef int (*pb_interrupted)(void);

/* ---- parts of compiled programs ------------------------------------------------------------ */

enum pb_operand_flags {
    PB_OPERAND_MOVES = 1, /* `data`, `base` and `offset` may be others in each run */
    PB_OPERAND_INNER = 2  /* its memory is of no use before the part and after it */
};

/* Kernel calls of a compiled program that follow each other, on one device. On a host device they
 * are calls of few elements. All that is pointed to stays where it is as long as the executor. */
typedef struct pb_part {
    uint32_t size;
    int32_t count;         /* of the calls */
    pb_call *const *calls; /* in order; numbers among their parameters may change from run to run */
    const pb_kernel *kernels; /* of each call; NULL for a kernel in Python */
    const int32_t *dtypes;    /* of each call: the dtype for which its kernel was registered */
    /* Of each operand, the outputs of a call first, one call after the other: flags; a number of
     * its memory, and bytes from the begin of that. Operands of different numbers do not overlap.
     * A number in host memory has -1. */
    const uint8_t *flags;
    const int32_t *blocks;
    const int64_t *offsets;
} pb_part;

/* ---- backends ----------------------------------------------------------------------------- */

enum pb_backend_flags {
    PB_BACKEND_HOST = 1,    /* memory of this backend is host memory: core may read and write it */
    PB_BACKEND_HANDLES = 2, /* allocate() returns handles: no arithmetic on them makes sense */
    PB_BACKEND_ASYNC = 4    /* copy_bytes knows PB_NON_BLOCKING */
};

/* PB_NON_BLOCKING is or-ed into a kind where the host memory is from `allocate_pinned`: the copy
 * may return before it is done. Without it copies from and to the host are done on return. */
enum pb_copy_kind {
    PB_HOST_TO_DEVICE = 0,
    PB_DEVICE_TO_HOST = 1,
    PB_DEVICE_TO_DEVICE = 2,
    PB_NON_BLOCKING = 8
};

/* Memory and devices. Every function may be called from any thread, with the interpreter lock
 * held. `allocate` returns NULL when there is no memory, perhaps with a Python exception set that
 * says more; it is never asked for zero bytes.
 *
 * Kernels and copies may return before the device has done the work. They and `synchronize` may
 * report the failure of earlier work: any pb_error code, which becomes its exception with the
 * message unchanged. Where an int is returned without a message, 0 is success.
 *
 * A stream is a queue of work of one device. Each thread has a current one on each device: kernels
 * and copies are queued on it, and `allocate` returns memory for its work. The stream NULL is the
 * default one, current in a new thread; `current_stream` may return another address for it. */
typedef struct pb_backend {
    uint32_t size;
    uint32_t abi_version;
    uint32_t flags;
    void *self;
    int (*device_count)(void *self);
    void *(*allocate)(void *self, int device, size_t nbytes);
    void (*release)(void *self, int device, void *data, size_t nbytes);
    /* May be NULL for host backends. Offsets are in bytes, for pointers that are handles. */
    int (*copy_bytes)(void *self, int device, void *dst, size_t dst_offset, const void *src,
                      size_t src_offset, size_t nbytes, int kind, char *message);
    int (*synchronize)(void *self, int device, char *message); /* may be NULL */
    void *(*current_stream)(void *self, int device);           /* may be NULL */
    /* Bytes in use, peak in use, held from the system, allocations made; may be NULL. */
    void (*memory_stats)(void *self, int device, int64_t stats[4]);
    void (*empty_cache)(void *self, int device); /* may be NULL; may set a Python exception */
    /* Test `size` before reading any of the following fields. */
    void (*reset_peak)(void *self, int device); /* the peak becomes what is in use; may be NULL */
    /* Marks in the work of the current stream, by which profilers time kernels; all may be NULL.
     * `elapsed` waits until the device has passed both. */
    void *(*mark)(void *self, int device); /* NULL: there is none left */
    int (*elapsed)(void *self, int device, void *first, void *last, double *microseconds,
                   char *message);
    void (*release_mark)(void *self, int device, void *mark);
    /* Streams, which need `current_stream`, `wait_stream` and `set_stream`; all may be NULL. Work
     * queued on `waiter` from now on begins after all work queued so far on `awaited`. */
    int (*wait_stream)(void *self, int device, void *waiter, int other_device, void *awaited,
                       char *message);
    /* Make a stream the current one of this thread; sets `previous` to the one before. */
    int (*set_stream)(void *self, int device, void *stream, void **previous);
    /* Memory is used on another stream than it was allocated for: after its release, it must not be
     * used again before the work queued on that stream until then is done. */
    int (*use_memory)(void *self, int device, void *data, void *stream);
    /* Copy to another device of this backend; NULL: the core copies through the host. It begins
     * after all work queued so far on the current streams of both, and before their later work. */
    int (*copy_between)(void *self, int dst_device, void *dst, size_t dst_offset, int src_device,
                        const void *src, size_t src_offset, size_t nbytes, char *message);
    /* Pinned host memory; both may be NULL. After its release, it must not be used again before
     * copies with PB_NON_BLOCKING from and to it are done. */
    void *(*allocate_pinned)(void *self, size_t nbytes);
    void (*release_pinned)(void *self, void *data, size_t nbytes);
    /* Call `body` for pieces of the range from 0 to `n`, of at least `grain` if possible, on threads
     * of the backend and the calling one, without a lock; may be NULL. Returns not 0 if it was
     * interrupted (PB_INTERRUPTED_CAPSULE). Compiled programs run elementwise kernels so, tile by
     * tile: kernels that are called from `body` must not start threads. */
    int (*run_parallel)(void *self, int64_t n, int64_t grain,
                        void (*body)(void *context, int64_t first, int64_t last), void *context);
    /* Prepare to run a part of a compiled program in the backend's own way; NULL, without an
     * exception: the core calls its kernels. These three are NULL, or none is. */
    void *(*compile)(void *self, const pb_part *part);
    /* Run a part, on a stream. The same results as its calls one after the other; a host backend's
     * have the same bits. After a failure `begun` is how many of the calls, from the first on, may
     * have written to memory. */
    int (*execute)(void *self, void *executor, void *stream, int32_t *begun, char *message);
    void (*release_executor)(void *self, void *executor);
} pb_backend;

/* ---- observers ---------------------------------------------------------------------------- */

enum pb_event_kind {
    PB_EVENT_OP = 0,         /* an op; of a composite, its ops are nested in it */
    PB_EVENT_NODE = 1,       /* the formula of a node of the graph */
    PB_EVENT_RANGE = 2,      /* a range with a name of the user */
    PB_EVENT_EVALUATION = 3, /* a node's task in the engine: hooks, formula, propagation */
    PB_EVENT_KERNEL = 4,     /* a kernel of a backend that has `mark` */
    PB_EVENT_FUNCTION = 5    /* the forward pass of a user's Function */
};

/* Events of a thread are nested; a range may end on another thread or out of order. `end` is called
 * after an exception too, with the `id` of `begin`; only `begin` gets inputs. An observer that is
 * attached between the two gets an end without a begin. */
typedef struct pb_event {
    uint32_t size;
    int32_t kind;
    const char *name;        /* valid as long as the process; of a range as long as `object` */
    int64_t sequence;        /* of the running node, or of the next one made, final at the end;
                              * -1 if none is made */
    uint64_t forward_thread; /* that made the running node, or asked for the range; else 0 */
    uint64_t thread;         /* the running thread: 1, 2, ... in order of first use */
    uint64_t id;             /* unique in the process */
    void *object;            /* PyObject *, borrowed: the name of a range */
    int32_t ninput;
    int32_t device; /* of a kernel; its index among those of `device_type`, numbered as below */
    int32_t device_type;
    void *const *inputs;       /* PyObject *, borrowed: arguments of an op, gradients of a node */
    const pb_backend *backend; /* of a kernel */
    /* Describe an object's memory if it is a tensor (1), else return 0. */
    int (*describe)(void *object, pb_array *array);
} pb_event;

/* What `pullback.backend.attach_observer` takes, from a profiler. Called with the interpreter lock
 * held; must leave no Python exception set. */
typedef struct pb_observer {
    uint32_t size;
    void *self;
    void (*begin)(void *self, const pb_event *event);
    void (*end)(void *self, const pb_event *event);
    /* `delta` bytes were allocated (or freed, below 0) at `data`; where that is NULL, allocating
     * them failed. `backend` numbers device types as `pullback.backend.device_types` lists them. */
    void (*memory)(void *self, int backend, int device, void *data, int64_t delta);
} pb_observer;

#ifdef __cplusplus
}
#endif
#endif

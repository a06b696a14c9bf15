/* The C contract between pullback's core and everything that is compiled apart from it.
 *
 * A backend gives memory and kernels; it never sees tensors or the graph. All structs are plain
 * data. Each begins with its size as the writer knew it; new fields are appended, so a reader
 * tests `size` before it touches a field that was added later. Nothing here raises, and no
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

/* Capsule names. A capsule whose name differs is refused when it is registered. */
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
    PB_NUM_DTYPES = 12
};

#define PB_MASK(dtype) (1u << (dtype))
#define PB_MASK_INTEGRAL 0x03Eu /* u8 i8 i16 i32 i64 */
#define PB_MASK_HALF 0x0C0u     /* f16 bf16 */
#define PB_MASK_FLOATING 0x3C0u /* f16 bf16 f32 f64 */
#define PB_MASK_COMPLEX 0xC00u  /* c64 c128 */
#define PB_MASK_ALL 0xFFFu

/* ---- kernel calls ------------------------------------------------------------------------ */

enum pb_array_flags {
    PB_ARRAY_HOST = 1,  /* `data` is host memory on any backend: one scalar, all strides 0 */
    PB_ARRAY_WRITE = 2, /* an output */
    /* The operand is the conjugate of the values in memory, or the negative (after that). Core
     * computes such operands before it calls a kernel; of inputs of a kernel that is registered
     * with `conj=True` it leaves PB_ARRAY_CONJ to the kernel, which must then test it. */
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

/* Whether the running kernel shall end, because a signal handler of Python raised: Ctrl-C. The
 * function is in a capsule, `pullback.backend.INTERRUPTED`. A kernel that may take long asks every
 * few milliseconds of its work, on the thread that called it (others get 0), holding no lock of its
 * own; most answers cost a few nanoseconds. If the answer is not 0, a Python exception is set: it
 * stays until the kernel has returned PB_E_PYTHON, which it does soon and with nothing running on.
 * What its outputs hold then does not matter. */
typedef int (*pb_interrupted)(void);

/* ---- backends ----------------------------------------------------------------------------- */

enum pb_backend_flags {
    PB_BACKEND_HOST = 1,    /* memory of this backend is host memory: core may read and write it */
    PB_BACKEND_HANDLES = 2, /* allocate() returns handles: no arithmetic on them makes sense */
    PB_BACKEND_ASYNC = 4    /* copy_bytes knows PB_NON_BLOCKING */
};

/* PB_NON_BLOCKING is or-ed into a kind where the host side is memory of `allocate_pinned`: the
 * copy may return before it is done. Without it copies from and to the host are done on return. */
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
 * Kernels, copies and `synchronize` may return before the device has done what it was asked for,
 * and may report what work given earlier ran into: any pb_error code, which becomes its exception
 * with the message as it stands. Where an int is returned without a message, 0 is success.
 *
 * A stream is a queue of work of one device. Each thread has a current one on each device: kernels
 * and copies are given to it, and `allocate` returns memory for its work. The stream NULL is the
 * default one, current in a new thread; `current_stream` may give it another address. */
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
    /* From here on `size` says whether a backend has the field. */
    void (*reset_peak)(void *self, int device); /* the peak becomes what is in use; may be NULL */
    /* Points in the work of the current stream, by which profilers time kernels; all may be NULL.
     * `elapsed` waits until the device has passed both. */
    void *(*mark)(void *self, int device); /* NULL: there is none left */
    int (*elapsed)(void *self, int device, void *first, void *last, double *microseconds,
                   char *message);
    void (*release_mark)(void *self, int device, void *mark);
    /* Streams, which need `current_stream`, `wait_stream` and `set_stream`; all may be NULL. Work
     * that `waiter` is given from now on begins after all that `awaited` was given so far. */
    int (*wait_stream)(void *self, int device, void *waiter, int other_device, void *awaited,
                       char *message);
    /* Make a stream the current one of this thread; tells which one was. */
    int (*set_stream)(void *self, int device, void *stream, void **previous);
    /* Memory is used on a stream that it was not allocated for: once released, it must not be used
     * again before the work is done that the stream has been given until then. */
    int (*use_memory)(void *self, int device, void *data, void *stream);
    /* Copy to another device of this backend; NULL: core copies through the host. It begins after
     * all work given so far to the current streams of both, whose later work begins after it. */
    int (*copy_between)(void *self, int dst_device, void *dst, size_t dst_offset, int src_device,
                        const void *src, size_t src_offset, size_t nbytes, char *message);
    /* Host memory that the device reads and writes by itself; both may be NULL. Once released, it
     * must not be used again while a copy with PB_NON_BLOCKING is at work on it. */
    void *(*allocate_pinned)(void *self, size_t nbytes);
    void (*release_pinned)(void *self, void *data, size_t nbytes);
} pb_backend;

/* ---- observers ---------------------------------------------------------------------------- */

enum pb_event_kind {
    PB_EVENT_OP = 0,         /* an op; the ops that it is made of lie inside */
    PB_EVENT_NODE = 1,       /* the formula of a node of the graph */
    PB_EVENT_RANGE = 2,      /* what a user named */
    PB_EVENT_EVALUATION = 3, /* all that the engine does for a node: hooks, formula, delivery */
    PB_EVENT_KERNEL = 4,     /* a kernel of a backend that has `mark` */
    PB_EVENT_FUNCTION = 5    /* the forward pass of a user's Function */
};

/* Events of a thread lie inside each other; a range may end on another thread or out of turn.
 * `end` is told after an exception too, with the `id` that `begin` was told; inputs are for `begin`
 * alone. An observer that comes in the middle gets ends of what it has not seen begin. */
typedef struct pb_event {
    uint32_t size;
    int32_t kind;
    const char *name;        /* lives as long as the process; of a range as long as `object` */
    int64_t sequence;        /* of the node run, or of the next one made, which the end knows best;
                              * -1 if none is made */
    uint64_t forward_thread; /* where the node that runs was made */
    uint64_t thread;         /* the running thread: 1, 2, ... in order of first use */
    uint64_t id;             /* no two events of a process have the same */
    void *object;            /* PyObject *, borrowed: the name of a range */
    int32_t ninput;
    int32_t device; /* of a kernel; its number among `device_type`, numbered as below */
    int32_t device_type;
    void *const *inputs;       /* PyObject *, borrowed: arguments of an op, gradients of a node */
    const pb_backend *backend; /* of a kernel */
    /* Describe an object's memory if it is a tensor (1), else return 0. */
    int (*describe)(void *object, pb_array *array);
} pb_event;

/* What a profiler hangs on core's single pointer (`pullback.backend.attach_observer`). Called with
 * the interpreter lock held; must leave no Python exception set. */
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

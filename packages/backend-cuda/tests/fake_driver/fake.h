/* What the parts of the fake CUDA driver share.
 *
 * The types repeat what CUDA's own header declares, under the same names, so that the library can
 * be built where no CUDA toolkit is installed. One recursive lock guards everything; each entry
 * point takes it by ENTER() and gives it back by leaving its scope.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct fake_context *CUcontext;
typedef struct fake_stream *CUstream;
typedef struct fake_event *CUevent;
typedef struct fake_module *CUmodule;
typedef struct fake_function *CUfunction;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum { FAKE_MAX_DEVICES = 8, FAKE_STACK_DEPTH = 4096, FAKE_LAUNCHES_KEPT = 64 };

/* -- the lock, and the entry to every call ----------------------------------------------------- */

typedef struct fake_site {
    const char *name;
    struct fake_site *next;
    atomic_long calls;
    atomic_int known;
} fake_site;

void fake_lock(void);
void fake_unlock(void);
void fake_unlock_scope(int *unused);

/* Counts a call, and returns the error that a test wants from it. */
CUresult fake_enter(fake_site *site, const char *name, int needs_init);

#define ENTER_ANY(needs_init)                                                                 \
    static fake_site site_;                                                                   \
    fake_lock();                                                                              \
    __attribute__((cleanup(fake_unlock_scope), unused)) int scope_ = 0;                       \
    {                                                                                         \
        CUresult entered_ = fake_enter(&site_, __func__, needs_init);                         \
        if (entered_) return entered_;                                                        \
    }
#define ENTER() ENTER_ANY(1)
#define ENTER_BEFORE_INIT() ENTER_ANY(0)

/* The same, for a call that needs a current context; `context` names it afterwards. */
#define ENTER_CONTEXT()                                                                       \
    ENTER();                                                                                  \
    __attribute__((unused)) CUcontext context;                                                \
    {                                                                                         \
        CUresult entered_ = fake_current(&context);                                           \
        if (entered_) return entered_;                                                        \
    }

/* And for one that names a stream: `stream` is what the handle means. */
#define ENTER_STREAM(handle)                                                                  \
    ENTER_CONTEXT();                                                                          \
    CUstream stream;                                                                          \
    {                                                                                         \
        CUresult found_ = fake_stream_of(handle, context, &stream);                           \
        if (found_) return found_;                                                            \
    }

#define REQUIRE(condition, code)                                                              \
    do {                                                                                      \
        if (!(condition)) return (code);                                                      \
    } while (0)

/* -- handles: each live one stands in one table, destroyed ones are never handed out again ----- */

typedef enum {
    KIND_CONTEXT = 1,
    KIND_STREAM,
    KIND_EVENT,
    KIND_MODULE,
    KIND_FUNCTION,
} fake_kind;

void fake_handle_add(const void *handle, fake_kind kind);
void fake_handle_remove(const void *handle);
int fake_handle_is(const void *handle, fake_kind kind);
void *fake_new(size_t size);

/* -- devices and contexts ---------------------------------------------------------------------- */

typedef struct {
    CUcontext primary;
    unsigned primary_uses;
    unsigned primary_flags;
    size_t memory, used;
    atomic_int broken; /* what every call in its contexts returns from now on, or 0 */
} fake_device;

struct fake_context {
    CUdevice device;
    unsigned flags;
    int is_primary;
    unsigned uses;
    int cache_config;
    int shared_config;
    size_t limits[16];
    uint64_t peers; /* a bit a device whose memory this context may reach */
    CUstream streams; /* all of them, destroyed ones too: they may have work left */
    CUstream legacy;
    CUevent events;
    CUmodule modules;
    struct fake_context *next; /* in the list of all live ones */
};

extern fake_device fake_devices[FAKE_MAX_DEVICES];
extern int fake_device_total;
extern int fake_initialized;
extern CUcontext fake_contexts;

CUresult fake_current(CUcontext *context);
CUcontext fake_context_new(CUdevice device, unsigned flags, int is_primary);
void fake_context_end(CUcontext context);
int fake_device_exists(CUdevice device);

/* -- memory ------------------------------------------------------------------------------------ */

typedef enum {
    BLOCK_DEVICE = 1,
    BLOCK_PINNED,
    BLOCK_REGISTERED,
    BLOCK_MANAGED,
    BLOCK_GLOBAL,
} fake_block_kind;

typedef struct {
    uintptr_t start;
    size_t size;
    fake_block_kind kind;
    CUcontext context;
    CUdevice device;
    unsigned flags;
    uint64_t number;
    void *memory; /* what free() takes, with the guards around the block */
} fake_block;

fake_block *fake_block_at(uintptr_t address);
/* Is [address, address + size) inside one live block that devices can reach? */
int fake_on_device(CUdeviceptr address, size_t size);
/* Is the range all host memory, pinned or not? `pinned` says which. */
int fake_on_host(const void *address, size_t size, int *pinned);
CUresult fake_block_global(CUcontext context, void *address, size_t size);
void fake_block_forget(void *address);
void fake_memory_end(CUcontext context);
long fake_guards_check(void);

/* -- streams, work and events ------------------------------------------------------------------ */

typedef void (*fake_work)(void *data);

struct fake_stream {
    CUcontext context;
    unsigned flags;
    int priority;
    int destroyed;
    uint64_t number;
    uint64_t queued, done; /* how many tasks were ever queued, and how many have run */
    struct fake_item *first, *last;
    struct fake_stream *next;
};

struct fake_event {
    CUcontext context;
    unsigned flags;
    CUstream stream; /* where it was recorded last */
    uint64_t position; /* and after how many tasks there */
    int64_t time;
    uint64_t time_of; /* the position that `time` belongs to */
    struct fake_event *next;
};

extern int fake_deferred;

/* Turns what a caller passed into a stream of the current context or any live one. */
CUresult fake_stream_of(CUstream handle, CUcontext context, CUstream *stream);
CUstream fake_stream_new(CUcontext context, unsigned flags, int priority);
void fake_streams_end(CUcontext context);
/* Runs `work` on a copy of `data` now, or in deferred mode when the stream is forced. */
CUresult fake_queue(CUstream stream, fake_work work, const void *data, size_t size);
void fake_force(CUstream stream, uint64_t position);
void fake_force_stream(CUstream stream);
void fake_force_context(CUcontext context);
void fake_force_device(CUdevice device);
int64_t fake_work_left(void);
void fake_modules_end(CUcontext context);

/* -- counters ---------------------------------------------------------------------------------- */

typedef struct {
    atomic_long allocations, frees, live_blocks, live_bytes, peak_bytes;
    atomic_long bad_frees, leaked_blocks, overruns, writes_after_free;
    atomic_long launches, copies, copied_bytes, memsets;
    atomic_long live_streams, live_events, live_modules, live_contexts;
} fake_counts;

extern fake_counts fake_count;

#endif

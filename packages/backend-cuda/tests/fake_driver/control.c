/* The lock, failures that tests ask for, counters, and the rest of control.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"

fake_counts fake_count;

/* -- the lock ---------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void fake_lock(void) { pthread_mutex_lock(&lock); }
void fake_unlock(void) { pthread_mutex_unlock(&lock); }
void fake_unlock_scope(int *unused) {
    (void)unused;
    pthread_mutex_unlock(&lock);
}

#define LOCKED()                                                                              \
    fake_lock();                                                                              \
    __attribute__((cleanup(fake_unlock_scope), unused)) int scope_ = 0

/* -- failures on request ----------------------------------------------------------------------- */

enum { MAX_FAILURES = 32 };

static struct failure {
    char name[64];
    long nth, times;
    CUresult code;
} failures[MAX_FAILURES];
static int failure_count;
static fake_site *sites;

/* "cuMemAlloc" names cuMemAlloc_v2 too. */
static int named(const char *asked, const char *name) {
    size_t length = strlen(asked);
    if (!strcmp(asked, "*")) return 1;
    if (strncmp(asked, name, length)) return 0;
    return !name[length] || (!strncmp(name + length, "_v", 2) && strlen(name + length) == 3);
}

static CUresult failure_for(const char *name) {
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < failure_count; i++) {
        struct failure *of = &failures[i];
        if (!of->times || !named(of->name, name)) continue;
        if (of->nth > 1) {
            of->nth--;
            continue;
        }
        if (of->times > 0) of->times--;
        if (!code) code = of->code;
    }
    return code;
}

CUresult fake_enter(fake_site *site, const char *name, int needs_init) {
    if (!site->known) {
        site->known = 1;
        site->name = name;
        site->next = sites;
        sites = site;
    }
    site->calls++;
    if (failure_count) {
        CUresult code = failure_for(name);
        if (code) return code;
    }
    return needs_init && !fake_initialized ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

API int fake_fail(const char *name, long nth, int code, long times) {
    LOCKED();
    int place = 0;
    while (place < failure_count && failures[place].times) place++;
    if (place == MAX_FAILURES || strlen(name) >= sizeof failures->name || nth < 1) return -1;
    if (place == failure_count) failure_count++;
    strcpy(failures[place].name, name);
    failures[place].nth = nth;
    failures[place].times = times;
    failures[place].code = code;
    return 0;
}

API void fake_fail_nothing(void) {
    LOCKED();
    failure_count = 0;
}

API int fake_break(int device, int code) {
    LOCKED();
    if (device < 0 || device >= FAKE_MAX_DEVICES) return -1;
    fake_devices[device].broken = code;
    return 0;
}

/* -- devices ----------------------------------------------------------------------------------- */

API int fake_set_device_count(int count) {
    LOCKED();
    if (count < 0 || count > FAKE_MAX_DEVICES) return -1;
    fake_device_total = count;
    return 0;
}

API int fake_set_memory(int device, int64_t bytes) {
    LOCKED();
    if (device < 0 || device >= FAKE_MAX_DEVICES || bytes < 0) return -1;
    fake_devices[device].memory = (size_t)bytes;
    return 0;
}

API int fake_set_block_limit(int threads) {
    LOCKED();
    if (threads < 1 || threads > 1024) return -1;
    fake_block_limit = threads;
    return 0;
}

/* -- work -------------------------------------------------------------------------------------- */

API void fake_run_all(void) {
    LOCKED();
    for (CUdevice i = 0; i < FAKE_MAX_DEVICES; i++) fake_force_device(i);
}

API int fake_set_deferred(int mode) {
    LOCKED();
    if (mode < 0 || mode > 2) return -1;
    if (!mode) fake_run_all();
    fake_deferred = mode;
    return 0;
}

API int64_t fake_pending(void) {
    LOCKED();
    return fake_work_left();
}

API CUresult fake_enter_library(fake_site *site, const char *name) {
    LOCKED();
    return fake_enter(site, name, 0);
}

API int fake_enqueue(const char *name, CUstream handle, fake_work work, const void *data,
                     size_t size) {
    LOCKED();
    CUcontext context;
    CUstream stream;
    CUresult code = fake_current(&context);
    if (!code) code = fake_stream_of(handle, context, &stream);
    if (code) return code;
    REQUIRE(stream->context == context, CUDA_ERROR_INVALID_HANDLE);
    fake_log_launch(name, (unsigned[3]){0, 0, 0}, (unsigned[3]){0, 0, 0}, 0, context->device,
                    stream->number);
    return fake_queue(stream, work, data, size);
}

API int fake_check_range(CUdeviceptr address, size_t size) {
    LOCKED();
    return !size || fake_on_device(address, size);
}

/* -- what happened ----------------------------------------------------------------------------- */

static fake_launched launches[FAKE_LAUNCHES_KEPT];

void fake_log_launch(const char *name, const unsigned grid[3], const unsigned block[3],
                     size_t shared, int device, uint64_t stream) {
    fake_launched *of = &launches[fake_count.launches++ % FAKE_LAUNCHES_KEPT];
    of->name = name;
    memcpy(of->grid, grid, sizeof of->grid);
    memcpy(of->block, block, sizeof of->block);
    of->shared = shared;
    of->device = device;
    of->stream = stream;
}

API const fake_launched *fake_launch(int64_t back) {
    LOCKED();
    int64_t count = fake_count.launches;
    if (back < 0 || back >= count || back >= FAKE_LAUNCHES_KEPT) return NULL;
    return &launches[(count - 1 - back) % FAKE_LAUNCHES_KEPT];
}

API int64_t fake_counter(const char *name) {
    LOCKED();
    const struct {
        const char *name;
        int64_t value;
    } counters[] = {
#define COUNTER(name) {#name, fake_count.name}
        COUNTER(allocations),       /* of device and managed memory */
        COUNTER(frees),             /* of the same, in good order */
        COUNTER(live_blocks),       /* allocated and not freed */
        COUNTER(live_bytes),        /* in them */
        COUNTER(peak_bytes),        /* the most there ever were */
        COUNTER(bad_frees),         /* twice, or of what was never allocated */
        COUNTER(leaked_blocks),     /* still live when their context ended */
        COUNTER(overruns),          /* blocks written around */
        COUNTER(writes_after_free), /* freed blocks written into */
        COUNTER(launches),          /* of kernels */
        COUNTER(copies),            /* of memory, of any kind */
        COUNTER(copied_bytes),      /* by them */
        COUNTER(memsets),           /* of any kind */
        COUNTER(live_streams),      /* created and not destroyed */
        COUNTER(live_events),       /* likewise */
        COUNTER(live_modules),      /* likewise */
        COUNTER(live_contexts),     /* likewise */
#undef COUNTER
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (!strcmp(counters[i].name, name)) return counters[i].value;
    return -1;
}

API int64_t fake_calls(const char *name) {
    LOCKED();
    int64_t calls = 0;
    for (fake_site *site = sites; site; site = site->next)
        if (named(name, site->name)) calls += site->calls;
    return calls;
}

API int64_t fake_check_memory(void) {
    LOCKED();
    return fake_guards_check();
}

API void fake_reset(void) {
    LOCKED();
    fake_set_deferred(0);
    failure_count = 0;
    fake_block_limit = 1024;
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) fake_devices[i].broken = 0;
    for (fake_site *site = sites; site; site = site->next) site->calls = 0;
    fake_count.allocations = fake_count.frees = fake_count.bad_frees = 0;
    fake_count.leaked_blocks = fake_count.overruns = fake_count.writes_after_free = 0;
    fake_count.launches = fake_count.copies = fake_count.copied_bytes = fake_count.memsets = 0;
    fake_count.peak_bytes = fake_count.live_bytes;
}

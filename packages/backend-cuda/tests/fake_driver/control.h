/* How tests steer the fake driver and look into it: every function here is exported.
 *
 * Names of entry points are given as CUDA's manual has them: "cuMemAlloc" stands for the versions
 * of it too, such as cuMemAlloc_v2. All of this can be called at any time from any thread.
 */
#ifndef FAKE_CONTROL_H
#define FAKE_CONTROL_H

#include "fake.h"

/* Forgets failures, counts and the log of launches; runs what is queued and stops deferring. */
API void fake_reset(void);

/* How many devices there are (0: cuInit fails), and how much memory one has. */
API int fake_set_device_count(int count);
API int fake_set_memory(int device, int64_t bytes);

/* Calls of `name` fail with `code`: the nth from now (1 is the next), and `times` in all (-1: for
 * ever). A name of "*" stands for every entry point. */
API int fake_fail(const char *name, long nth, int code, long times);
API void fake_fail_nothing(void);

/* As after an error in a kernel: every call that needs a context of the device returns `code` until this
 * is called with 0. */
API int fake_break(int device, int code);

/* 0: work runs immediately. 1: it runs when a call waits for it. 2: as 1, and asynchronous copies
 * into pageable memory wait as well, which the manual allows although the real driver does not. */
API int fake_set_deferred(int mode);
/* Pieces of work that have not run; and run them all. */
API int64_t fake_pending(void);
API void fake_run_all(void);

/* The most threads that a block of any kernel may have (1024). */
API int fake_set_block_limit(int threads);

/* Counters: "allocations", "live_bytes" and so on, see control.c; -1 for an unknown name. */
API int64_t fake_counter(const char *name);
/* How often an entry point was called, failures included. */
API int64_t fake_calls(const char *name);

/* Compares all guard zones and all freed memory that is still kept; returns the damaged ones. */
API int64_t fake_check_memory(void);

typedef struct {
    const char *name;
    unsigned grid[3], block[3];
    size_t shared;
    int device;
    uint64_t stream;
} fake_launched;

/* The launch before `back` others (0 is the last), or NULL: the log is FAKE_LAUNCHES_KEPT long. */
API const fake_launched *fake_launch(int64_t back);
void fake_log_launch(const char *name, const unsigned grid[3], const unsigned block[3],
                     size_t shared, int device, uint64_t stream);

/* For libraries on top of the driver: count a call and return the failure that a test wants; run
 * `work` on a copy of `data` in the stream's order, logged as a launch of `name`; is a range inside
 * one live block? */
API CUresult fake_enter_library(fake_site *site, const char *name);
API int fake_enqueue(const char *name, CUstream stream, fake_work work, const void *data,
                     size_t size);
API int fake_check_range(CUdeviceptr address, size_t size);

extern int fake_block_limit;

#endif

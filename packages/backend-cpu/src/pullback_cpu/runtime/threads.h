/* The threads that share the work of one kernel call.
 *
 * A call with much to do cuts it into chunks and opens a job. Threads that are awake, or wake up in
 * time, join it and take chunk after chunk; the caller takes chunks too and, when none is left,
 * closes the job and waits for those who are still at one. So a job never waits for a thread that
 * did not come, on a machine with other things to do. After a job a thread looks for the next one
 * for a moment, then it sleeps: to wake it up takes as long as many a job. A call that opens many
 * jobs, with work of its own in between, holds the threads: then they look a while longer.
 *
 * There is one job at a time: a call from within a chunk, or while another thread has a job, runs
 * alone. A process that forks leaves its threads behind; the child starts its own.
 *
 * A long chunk is run some grains at a time. In between the caller polls core for an interrupt, and
 * notifies its helpers when it shall not: then the rest of the job is left out. */
#ifndef PULLBACK_CPU_THREADS_H
#define PULLBACK_CPU_THREADS_H
#include <stdint.h>

#include "pullback/clock.h"

typedef void (*pb_body)(void *context, int64_t first, int64_t last);

#define PB_THREADS_LARGEST 1024
#define PB_CHUNKS_PER_THREAD 8 /* so that one slow thread does not hold up the others */
#define PB_GRAINS 32           /* of a chunk that are run before the first poll */

static int pb_never(void) { return 0; }

static int (*pb_ask)(void) = pb_never; /* `pb_interrupted` of abi.h */

static int pb_stopping(void);

/* Run a chunk; returns whether the rest of it was left out. */
static int pb_run_chunk(int64_t first, int64_t last, int64_t grain, pb_body body, void *context) {
    int64_t step = last - first, before;
    if (step / PB_GRAINS > grain)
        step = PB_GRAINS * grain;
    for (;;) {
        if (last - first <= step)
            step = last - first;
        before = pb_milliseconds();
        body(context, first, first + step);
        first += step;
        if (first >= last)
            return 0;
        if (pb_stopping())
            return 1;
        if (pb_milliseconds() == before)
            step *= 2;
    }
}

#if defined(__GNUC__) && !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define PB_EXPORTED __attribute__((visibility("default")))
#define PB_LOOKS 500
#define PB_WAITS 20000000 /* nanoseconds */
#define PB_AWAKE 100000   /* nanoseconds; a pause takes 10 to 140 cycles and is no clock */
#define PB_AWAKE_HELD 1000000

#if defined(__x86_64__) || defined(__i386__)
#define pb_pause() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pb_pause() __asm__ volatile("yield")
#else
#define pb_pause() ((void)0)
#endif

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t opened; /* a job is open */
    pthread_cond_t left;   /* the last thread has left a job */
    atomic_int limit;      /* threads that one call may use */
    atomic_flag busy;      /* a caller has a job */
    atomic_uint number;    /* of the last job */
    atomic_int holds;      /* calls that will open further jobs at once */
    int workers;           /* threads that were started */
    int sleepers;          /* of them, those that wait to be woken */
    int open;              /* the job may be joined */
    int wanted;            /* threads that may still join it */
    atomic_uint working;   /* threads that joined and have not left */
    atomic_llong next;     /* the first chunk that was not taken */
    atomic_int stopped;    /* the rest of the job is to be left out */
    pb_body body;
    void *context;
    int64_t n, grain, length, chunks;
} pb_team = {.mutex = PTHREAD_MUTEX_INITIALIZER,
             .opened = PTHREAD_COND_INITIALIZER,
             .left = PTHREAD_COND_INITIALIZER,
             .limit = 1,
             .busy = ATOMIC_FLAG_INIT};

enum { PB_ALONE, PB_HELPS, PB_LEADS };
static __thread int pb_in_job;

/* The mutex is held for a few instructions only, so a thread spins before it sleeps. */
static void pb_lock(void) {
    for (int looks = 0; looks < PB_LOOKS; looks++) {
        if (pthread_mutex_trylock(&pb_team.mutex) == 0)
            return;
        pb_pause();
    }
    pthread_mutex_lock(&pb_team.mutex);
}

static int64_t pb_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

/* Spin until a number is, or is no longer, a value; but not for long. */
static void pb_spin(atomic_uint *number, unsigned value, int is_wanted) {
    int64_t start = pb_nanoseconds(), time;
    do {
        for (int looks = 0; looks < 16; looks++) {
            if ((atomic_load_explicit(number, memory_order_acquire) == value) == is_wanted)
                return;
            pb_pause();
        }
        time = pb_nanoseconds() - start;
    } while (time < PB_AWAKE ||
             (time < PB_AWAKE_HELD &&
              atomic_load_explicit(&pb_team.holds, memory_order_relaxed) > 0));
}

/* Whether the call shall end. Any thread may ask; the answer stays until the call ends. */
static int pb_stopping(void) {
    int role = pb_in_job, answer;
    if (role == PB_HELPS)
        return atomic_load_explicit(&pb_team.stopped, memory_order_relaxed);
    pb_in_job = PB_ALONE; /* signal handlers may run, and call kernels */
    answer = pb_ask();
    pb_in_job = role;
    if (answer && role == PB_LEADS)
        atomic_store(&pb_team.stopped, 1);
    return answer;
}

static void pb_take_chunks(void) {
    while (!pb_stopping()) {
        int64_t chunk = atomic_fetch_add(&pb_team.next, 1), first, last;
        if (chunk >= pb_team.chunks)
            return;
        first = chunk * pb_team.length;
        last = first + pb_team.length;
        pb_run_chunk(first, last < pb_team.n ? last : pb_team.n, pb_team.grain, pb_team.body,
                     pb_team.context);
    }
}

static void *pb_worker(void *start) {
    unsigned seen = (unsigned)(uintptr_t)start;
    pb_in_job = PB_HELPS;
    for (;;) {
        pb_spin(&pb_team.number, seen, 0);
        pb_lock();
        while (atomic_load(&pb_team.number) == seen) {
            ++pb_team.sleepers;
            pthread_cond_wait(&pb_team.opened, &pb_team.mutex);
            --pb_team.sleepers;
        }
        seen = atomic_load(&pb_team.number);
        if (!pb_team.open || !pb_team.wanted) {
            pthread_mutex_unlock(&pb_team.mutex);
            continue;
        }
        --pb_team.wanted;
        atomic_fetch_add(&pb_team.working, 1);
        pthread_mutex_unlock(&pb_team.mutex);
        pb_take_chunks();
        if (atomic_fetch_sub(&pb_team.working, 1) == 1) {
            pb_lock();
            pthread_cond_signal(&pb_team.left);
            pthread_mutex_unlock(&pb_team.mutex);
        }
    }
    return NULL;
}

/* In the child of a fork only the thread that forked is there. */
static void pb_after_fork(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pb_team.mutex = mutex;
    pb_team.opened = condition;
    pb_team.left = condition;
    pb_team.workers = pb_team.sleepers = pb_team.open = pb_team.wanted = 0;
    atomic_store(&pb_team.working, 0);
    atomic_store(&pb_team.holds, 0);
    atomic_flag_clear(&pb_team.busy);
}

static int pb_threads_start(void) { return pthread_atfork(NULL, NULL, pb_after_fork); }

/* Hold the mutex. What cannot be started is done without. */
static void pb_start_workers(int count, unsigned number) {
    sigset_t all, before;
    pthread_t thread;
    if (pb_team.workers >= count)
        return;
    sigfillset(&all); /* signals are for the interpreter's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pb_team.workers < count &&
           pthread_create(&thread, NULL, pb_worker, (void *)(uintptr_t)number) == 0) {
        pthread_detach(thread);
        ++pb_team.workers;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Wait until the last helper has left, and poll for an interrupt. */
static void pb_wait_for_helpers(void) {
    struct timespec until;
    pb_spin(&pb_team.working, 0, 1);
    pb_lock();
    while (atomic_load(&pb_team.working)) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PB_WAITS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&pb_team.left, &pb_team.mutex, &until) == 0)
            continue;
        pthread_mutex_unlock(&pb_team.mutex);
        pb_stopping();
        pb_lock();
    }
    pthread_mutex_unlock(&pb_team.mutex);
}

static int pb_run_job(int64_t n, int64_t grain, int64_t length, int64_t chunks, int threads,
                      pb_body body, void *context) {
    pb_lock();
    pb_start_workers(threads - 1, atomic_load(&pb_team.number));
    pb_team.body = body;
    pb_team.context = context;
    pb_team.n = n;
    pb_team.grain = grain;
    pb_team.length = length;
    pb_team.chunks = chunks;
    atomic_store(&pb_team.next, 0);
    atomic_store(&pb_team.stopped, 0);
    pb_team.wanted = threads - 1;
    pb_team.open = 1;
    atomic_fetch_add_explicit(&pb_team.number, 1, memory_order_release);
    if (pb_team.sleepers)
        pthread_cond_broadcast(&pb_team.opened);
    pthread_mutex_unlock(&pb_team.mutex);
    pb_in_job = PB_LEADS;
    pb_take_chunks();
    pb_lock();
    pb_team.open = 0;
    pthread_mutex_unlock(&pb_team.mutex);
    pb_wait_for_helpers();
    pb_in_job = PB_ALONE;
    return atomic_load(&pb_team.stopped);
}

/* Returns whether a part was left out. */
static int pb_parallel_for(int64_t n, int64_t grain, pb_body body, void *context) {
    int threads = atomic_load_explicit(&pb_team.limit, memory_order_relaxed), stopped = 0;
    int64_t grains = grain > 0 ? (n + grain - 1) / grain : 1, chunks, length;
    if (grains <= 1) {
        if (n > 0)
            body(context, 0, n);
        return 0;
    }
    if (threads <= 1)
        return pb_stopping() || pb_run_chunk(0, n, grain, body, context);
    chunks = grains < (int64_t)threads * PB_CHUNKS_PER_THREAD
                 ? grains
                 : (int64_t)threads * PB_CHUNKS_PER_THREAD;
    length = (grains + chunks - 1) / chunks * grain;
    chunks = (n + length - 1) / length;
    if (pb_in_job || atomic_flag_test_and_set(&pb_team.busy)) {
        for (int64_t first = 0; first < n && !stopped; first += length)
            stopped = pb_stopping() || pb_run_chunk(first, n - first < length ? n : first + length,
                                                    grain, body, context);
        return stopped;
    }
    stopped = pb_run_job(n, grain, length, chunks, chunks < threads ? (int)chunks : threads, body,
                         context);
    atomic_flag_clear(&pb_team.busy);
    return stopped;
}

/* Let threads look for jobs longer, until as many calls have said that they open no more. */
static void pb_hold_threads(int change) { atomic_fetch_add(&pb_team.holds, change); }

/* The names by which threadpoolctl finds the library; see threadpools.py. */
PB_EXPORTED int pullback_cpu_get_num_threads(void) { return atomic_load(&pb_team.limit); }

PB_EXPORTED void pullback_cpu_set_num_threads(int count) {
    if (count > PB_THREADS_LARGEST)
        count = PB_THREADS_LARGEST;
    atomic_store(&pb_team.limit, count > 1 ? count : 1);
}

#else /* one thread */

static int pb_threads_start(void) { return 0; }

static int pb_stopping(void) { return pb_ask(); }

static int pb_parallel_for(int64_t n, int64_t grain, pb_body body, void *context) {
    if (n <= 0)
        return 0;
    return pb_stopping() || pb_run_chunk(0, n, grain > 0 ? grain : n, body, context);
}

static void pb_hold_threads(int change) { (void)change; }

static int pullback_cpu_get_num_threads(void) { return 1; }

static void pullback_cpu_set_num_threads(int count) { (void)count; }

#endif
#endif

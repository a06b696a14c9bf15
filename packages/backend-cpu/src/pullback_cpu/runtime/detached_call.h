/* A call that cannot be ended from outside, run on a thread of its own.
 *
 * The caller waits and polls for an interrupt. If there is one, it leaves the thread behind, which
 * works until its call returns and then frees what it worked on. Nothing else can be done about it:
 * a thread that is ended by force leaves locks and buffers of its library taken. So the context
 * holds all memory that the call reads and writes, and nothing of the caller's.
 *
 * A process may end meanwhile. It must not come to the destructors of the library, which free what
 * the thread works on and wait for threads that wait for each other. */
#ifndef PULLBACK_CPU_DETACHED_CALL_H
#define PULLBACK_CPU_DETACHED_CALL_H

/* Do the work on a context, and free it. */
typedef void (*pb_detached_work)(void *context);

#if defined(__GNUC__) && !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PB_DETACHED_WAIT 10000000   /* nanoseconds between two polls */
#define PB_DETACHED_LEFT 2          /* calls of one kind that may be left behind at a time */
#define PB_DETACHED_STACK (8 << 20) /* bytes: as much as a main thread has */

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pb_detached_work work, release;
    void *context;
    int done, abandoned;
} pb_detached;

static atomic_int pb_detached_left; /* threads that were left behind and still work */

#if defined(__GLIBC__)
static void pb_detached_at_exit(int status, void *unused) {
    (void)unused;
    if (!atomic_load(&pb_detached_left))
        return;
    fflush(NULL);
    _exit(status);
}
#else
static void pb_detached_at_exit(void) {
    struct timespec moment = {0, PB_DETACHED_WAIT};
    while (atomic_load(&pb_detached_left))
        nanosleep(&moment, NULL);
}
#endif

/* Once, before the first detached call. Returns whether that worked. */
static int pb_detached_prepare(void) {
#if defined(__GLIBC__)
    return on_exit(pb_detached_at_exit, NULL) == 0;
#else
    return atexit(pb_detached_at_exit) == 0;
#endif
}

static void pb_detached_free(pb_detached *detached) {
    pthread_cond_destroy(&detached->changed);
    pthread_mutex_destroy(&detached->mutex);
    free(detached);
}

static void *pb_detached_run(void *data) {
    pb_detached *detached = data;
    int abandoned;
    detached->work(detached->context);
    pthread_mutex_lock(&detached->mutex);
    abandoned = detached->abandoned;
    detached->done = 1;
    pthread_cond_signal(&detached->changed);
    pthread_mutex_unlock(&detached->mutex);
    if (abandoned) {
        detached->release(detached->context);
        pb_detached_free(detached);
        atomic_fetch_sub(&pb_detached_left, 1);
    }
    return NULL;
}

/* Returns whether the thread started. */
static int pb_detached_start(pb_detached *detached) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failed;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, PB_DETACHED_STACK);
    sigfillset(&all); /* signals are for the interpreter's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, pb_detached_run, detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* Wait until few enough calls are left behind: more of them would compete with each other and with
 * everything else for processors and for the library's buffers. Returns whether the call shall
 * end. */
static int pb_detached_wait(int (*stopping)(void)) {
    struct timespec moment = {0, PB_DETACHED_WAIT};
    for (;;) {
        if (stopping())
            return 1;
        if (atomic_load(&pb_detached_left) < PB_DETACHED_LEFT)
            return 0;
        nanosleep(&moment, NULL);
    }
}

/* Run `work`. Returns 0 when it is done; then the context is still the caller's. Otherwise the call
 * shall end, and the context is the caller's no more: `release` frees it, once it can. */
static int pb_run_detached(pb_detached_work work, pb_detached_work release, void *context,
                           int (*stopping)(void)) {
    pb_detached *detached = malloc(sizeof(pb_detached));
    struct timespec until;
    int done = 0;
    if (pb_detached_wait(stopping)) {
        free(detached);
        release(context);
        return 1;
    }
    if (detached == NULL) {
        work(context);
        return 0;
    }
    pthread_mutex_init(&detached->mutex, NULL);
    pthread_cond_init(&detached->changed, NULL);
    detached->work = work;
    detached->release = release;
    detached->context = context;
    detached->done = detached->abandoned = 0;
    if (!pb_detached_start(detached)) {
        pb_detached_free(detached);
        work(context);
        return 0;
    }
    for (;;) {
        int stops = !done && stopping();
        pthread_mutex_lock(&detached->mutex);
        if (!detached->done && !stops) {
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += PB_DETACHED_WAIT;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&detached->changed, &detached->mutex, &until);
        }
        done = detached->done;
        detached->abandoned = stops && !done;
        if (detached->abandoned)
            atomic_fetch_add(&pb_detached_left, 1);
        pthread_mutex_unlock(&detached->mutex);
        if (done)
            break;
        if (stops)
            return 1;
    }
    pb_detached_free(detached);
    return 0;
}

#else /* the call is waited for */

static int pb_detached_prepare(void) { return 1; }

static int pb_run_detached(pb_detached_work work, pb_detached_work release, void *context,
                           int (*stopping)(void)) {
    if (stopping()) {
        release(context);
        return 1;
    }
    work(context);
    return 0;
}

#endif
#endif

/* A call that cannot be ended from outside, run on a thread of its own.
 *
 * The caller waits and asks whether to go on. If not, it leaves the thread behind: that works until
 * its call returns, then it frees what it worked on. Nothing else can be done about it: a thread
 * that is ended by force leaves locks and buffers of its library taken. So the context holds all
 * memory that the call reads and writes, and nothing of the caller's.
 *
 * A process may end meanwhile. It must not come to the destructors of the library, which free what
 * the thread works on and wait for threads that wait for each other. */
#ifndef PULLBACK_CPU_ASIDE_H
#define PULLBACK_CPU_ASIDE_H

/* Do the work on a context, and free it. */
typedef void (*pb_aside_work)(void *context);

#if defined(__GNUC__) && !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PB_ASIDE_WAIT 10000000   /* nanoseconds between two questions */
#define PB_ASIDE_LEFT 2          /* calls of one kind that may be left behind at a time */
#define PB_ASIDE_STACK (8 << 20) /* bytes: as much as a main thread has */

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pb_aside_work work, release;
    void *context;
    int done, abandoned;
} pb_aside;

static atomic_int pb_aside_left; /* threads that were left behind and still work */

#if defined(__GLIBC__)
static void pb_aside_at_exit(int status, void *unused) {
    (void)unused;
    if (!atomic_load(&pb_aside_left))
        return;
    fflush(NULL);
    _exit(status);
}
#else
static void pb_aside_at_exit(void) {
    struct timespec moment = {0, PB_ASIDE_WAIT};
    while (atomic_load(&pb_aside_left))
        nanosleep(&moment, NULL);
}
#endif

/* Once, before anything is run aside. Returns whether that worked. */
static int pb_aside_prepare(void) {
#if defined(__GLIBC__)
    return on_exit(pb_aside_at_exit, NULL) == 0;
#else
    return atexit(pb_aside_at_exit) == 0;
#endif
}

static void pb_aside_free(pb_aside *aside) {
    pthread_cond_destroy(&aside->changed);
    pthread_mutex_destroy(&aside->mutex);
    free(aside);
}

static void *pb_aside_run(void *data) {
    pb_aside *aside = data;
    int abandoned;
    aside->work(aside->context);
    pthread_mutex_lock(&aside->mutex);
    abandoned = aside->abandoned;
    aside->done = 1;
    pthread_cond_signal(&aside->changed);
    pthread_mutex_unlock(&aside->mutex);
    if (abandoned) {
        aside->release(aside->context);
        pb_aside_free(aside);
        atomic_fetch_sub(&pb_aside_left, 1);
    }
    return NULL;
}

/* Returns whether the thread started. */
static int pb_aside_start(pb_aside *aside) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failed;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, PB_ASIDE_STACK);
    sigfillset(&all); /* signals are for the interpreter's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, pb_aside_run, aside);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* Wait until few enough calls are left behind: more of them would take the processors, and the
 * library's buffers, from each other and from everything else. Returns whether the call shall end. */
static int pb_aside_wait(int (*stopping)(void)) {
    struct timespec moment = {0, PB_ASIDE_WAIT};
    for (;;) {
        if (stopping())
            return 1;
        if (atomic_load(&pb_aside_left) < PB_ASIDE_LEFT)
            return 0;
        nanosleep(&moment, NULL);
    }
}

/* Run `work`. Returns 0 when it is done; then the context is still the caller's. Otherwise the call
 * shall end, and the context is the caller's no more: `release` frees it, once it can. */
static int pb_run_aside(pb_aside_work work, pb_aside_work release, void *context,
                        int (*stopping)(void)) {
    pb_aside *aside = malloc(sizeof(pb_aside));
    struct timespec until;
    int done = 0;
    if (pb_aside_wait(stopping)) {
        free(aside);
        release(context);
        return 1;
    }
    if (aside == NULL) {
        work(context);
        return 0;
    }
    pthread_mutex_init(&aside->mutex, NULL);
    pthread_cond_init(&aside->changed, NULL);
    aside->work = work;
    aside->release = release;
    aside->context = context;
    aside->done = aside->abandoned = 0;
    if (!pb_aside_start(aside)) {
        pb_aside_free(aside);
        work(context);
        return 0;
    }
    for (;;) {
        int stops = !done && stopping();
        pthread_mutex_lock(&aside->mutex);
        if (!aside->done && !stops) {
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += PB_ASIDE_WAIT;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&aside->changed, &aside->mutex, &until);
        }
        done = aside->done;
        aside->abandoned = stops && !done;
        if (aside->abandoned)
            atomic_fetch_add(&pb_aside_left, 1);
        pthread_mutex_unlock(&aside->mutex);
        if (done)
            break;
        if (stops)
            return 1;
    }
    pb_aside_free(aside);
    return 0;
}

#else /* the call is waited for */

static int pb_aside_prepare(void) { return 1; }

static int pb_run_aside(pb_aside_work work, pb_aside_work release, void *context,
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

/* One thread of BLAS for each of ours.
 *
 * OpenBLAS shares all but small products among its own threads, which wait for each other without
 * sleeping: where other processes keep the processors busy, a product of 20 us then takes
 * milliseconds. So a product is shared among our threads, while BLAS is limited to one. Any other
 * BLAS is left as it is.
 */
#ifndef PULLBACK_CPU_BLAS_THREADS_H
#define PULLBACK_CPU_BLAS_THREADS_H

#include <stddef.h>
#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#endif

typedef struct {
    int (*get)(void);
    void (*set)(int);
    int holders; /* calls that run now and want one thread */
    int before;  /* how many there were before the first of them */
#if !defined(_WIN32)
    pthread_mutex_t mutex;
#endif
} pb_blas_threads;

#if defined(_WIN32)

static void pb_blas_threads_find(pb_blas_threads *threads, const char *library) {
    (void)library;
    threads->get = NULL;
    threads->set = NULL;
}

static inline int pb_blas_threads_hold(pb_blas_threads *threads, int is_worth_it) {
    (void)threads;
    (void)is_worth_it;
    return 0;
}

static inline void pb_blas_threads_release(pb_blas_threads *threads, int held) {
    (void)threads;
    (void)held;
}

static inline void pb_blas_threads_set(pb_blas_threads *threads, int count) {
    (void)threads;
    (void)count;
}

#else

/* Look for OpenBLAS among the libraries that an extension module was linked with. */
static void pb_blas_threads_find(pb_blas_threads *threads, const char *library) {
    static const char *const names[][2] = {
        {"scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"},
        {"scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"},
        {"openblas_get_num_threads", "openblas_set_num_threads"},
        {"openblas_get_num_threads64_", "openblas_set_num_threads64_"},
    };
    size_t i;
    void *handle = dlopen(library, RTLD_LAZY); /* kept open: the module stays loaded anyway */
    threads->get = NULL;
    threads->set = NULL;
    threads->holders = 0;
    pthread_mutex_init(&threads->mutex, NULL);
    for (i = 0; handle != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        /* ISO C has no conversion from an object pointer to a function pointer, POSIX has. */
        *(void **)&threads->get = dlsym(handle, names[i][0]);
        *(void **)&threads->set = dlsym(handle, names[i][1]);
        if (threads->get != NULL && threads->set != NULL)
            return;
    }
    threads->get = NULL;
    threads->set = NULL;
}

/* Before products: true if BLAS keeps to one thread until the release.
 *
 * The number is BLAS's for all callers: the first of them sets it, the last one puts it back. */
static inline int pb_blas_threads_hold(pb_blas_threads *threads, int is_worth_it) {
    if (!is_worth_it || threads->set == NULL)
        return 0;
    pthread_mutex_lock(&threads->mutex);
    if (threads->holders++ == 0) {
        threads->before = threads->get();
        if (threads->before > 1)
            threads->set(1);
    }
    pthread_mutex_unlock(&threads->mutex);
    return 1;
}

static inline void pb_blas_threads_release(pb_blas_threads *threads, int held) {
    if (!held)
        return;
    pthread_mutex_lock(&threads->mutex);
    if (--threads->holders == 0 && threads->before > 1)
        threads->set(threads->before);
    pthread_mutex_unlock(&threads->mutex);
}

/* Let BLAS use so many threads, once no call holds it to one. */
static inline void pb_blas_threads_set(pb_blas_threads *threads, int count) {
    if (threads->set == NULL)
        return;
    pthread_mutex_lock(&threads->mutex);
    if (threads->holders > 0)
        threads->before = count;
    else
        threads->set(count);
    pthread_mutex_unlock(&threads->mutex);
}

#endif

#endif

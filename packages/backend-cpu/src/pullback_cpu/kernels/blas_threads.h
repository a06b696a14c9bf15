/* One thread of BLAS for each of ours.
 *
 * OpenBLAS shares all but small products among its own threads, which wait for each other without
 * sleeping: where other processes keep the processors busy, a product of 20 us then takes
 * milliseconds. So a product is shared among our threads, and BLAS is told to use one meanwhile. Any
 * other BLAS is left as it is.
 */
#ifndef PB_BLAS_THREADS_H
#define PB_BLAS_THREADS_H

#include <stddef.h>

typedef struct {
    int (*get)(void);
    void (*set)(int);
    int held; /* 1 while a call has set the number */
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

static inline void pb_blas_threads_release(pb_blas_threads *threads, int before) {
    (void)threads;
    (void)before;
}

#else

#include <dlfcn.h>

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
    threads->held = 0;
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

/* Before a product: return how many threads to give back afterwards, or 0 for nothing to do.
 *
 * One caller at a time changes the number, so that each restores what it found. */
static inline int pb_blas_threads_hold(pb_blas_threads *threads, int is_worth_it) {
    int before;
    if (!is_worth_it || threads->set == NULL)
        return 0;
    if (__atomic_exchange_n(&threads->held, 1, __ATOMIC_ACQUIRE))
        return 0;
    before = threads->get();
    if (before > 1) {
        threads->set(1);
        return before;
    }
    __atomic_store_n(&threads->held, 0, __ATOMIC_RELEASE);
    return 0;
}

static inline void pb_blas_threads_release(pb_blas_threads *threads, int before) {
    if (before == 0)
        return;
    threads->set(before);
    __atomic_store_n(&threads->held, 0, __ATOMIC_RELEASE);
}

#endif

#endif

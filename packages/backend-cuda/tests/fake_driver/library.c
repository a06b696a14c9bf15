/* Handles and checks of the fake libraries; compiled into each of them. */
#include "library.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static library_handle *handles;

/* The current context if it is alive, or NULL. */
static CUcontext live_context(void) {
    CUcontext context = NULL;
    CUdevice device;
    return cuCtxGetDevice(&device) || cuCtxGetCurrent(&context) ? NULL : context;
}

library_handle *library_handle_new(void) {
    CUcontext context = live_context();
    if (!context) return NULL;
    library_handle *handle = calloc(1, sizeof *handle);
    if (!handle) abort();
    handle->live = 1;
    handle->context = context;
    pthread_mutex_lock(&lock);
    handle->next = handles;
    handles = handle;
    pthread_mutex_unlock(&lock);
    return handle;
}

int library_handle_is(const library_handle *handle) {
    pthread_mutex_lock(&lock);
    const library_handle *found = handles;
    while (found && found != handle) found = found->next;
    int live = found && found->live;
    pthread_mutex_unlock(&lock);
    return live;
}

int library_handle_in_context(const library_handle *handle) {
    return live_context() == handle->context;
}

int library_range(const void *matrix, size_t element, int64_t rows, int64_t columns, int64_t ld,
                  int64_t stride, int64_t count) {
    if (!rows || !columns || !count) return 1;
    int64_t first = 0, last = 0, extent = (columns - 1) * ld + rows;
    if (stride < 0) first = (count - 1) * stride;
    else last = (count - 1) * stride;
    if ((uintptr_t)matrix % element) return 0;
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)matrix + (uint64_t)(first * (int64_t)element);
    return fake_check_range(start, (size_t)(last - first + extent) * element);
}

void library_bad_access(CUcontext context) { fake_break(context->device, 700); }

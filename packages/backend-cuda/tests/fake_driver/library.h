/* What the fake libraries on top of the driver need from it, and the handles that they share. */
#ifndef FAKE_LIBRARY_H
#define FAKE_LIBRARY_H

#include "fake.h"

/* Exported by the driver for them; control.h describes the last two. */
CUresult fake_enter_library(fake_site *site, const char *name);
int fake_enqueue(const char *name, CUstream stream, fake_work work, const void *data, size_t size);
int fake_check_range(CUdeviceptr address, size_t size);
int fake_break(int device, int code);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);

/* A handle of cuBLAS or cuSOLVER. It belongs to the context that was current when it was made. */
typedef struct library_handle {
    struct library_handle *next;
    int live;
    CUcontext context;
    CUstream stream;
    int device_scalars;
    int atomics, math, deterministic;
} library_handle;

/* The library's own list; handles are not freed, so that stale ones are known. */
library_handle *library_handle_new(void);
int library_handle_is(const library_handle *handle);
int library_handle_in_context(const library_handle *handle);

/* Is a packed, strided or repeated matrix of elements inside one live block? */
int library_range(const void *matrix, size_t element, int64_t rows, int64_t columns, int64_t ld,
                  int64_t stride, int64_t count);

/* For work that finds bad pointers when it runs: as the real one, everything fails from then on. */
void library_bad_access(CUcontext context);

#endif

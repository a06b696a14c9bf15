/* What the parts of the fake cuBLAS share. */
#ifndef FAKE_CUBLAS_H
#define FAKE_CUBLAS_H

#include "library.h"

typedef int cublasStatus_t;
typedef library_handle *cublasHandle_t;

enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

/* Counts the call, fails if a test wants it, and checks the handle. */
#define ENTER_BLAS(handle)                                                                    \
    static fake_site site_;                                                                   \
    {                                                                                         \
        int entered_ = fake_enter_library(&site_, __func__);                                  \
        if (entered_) return entered_;                                                        \
    }                                                                                         \
    REQUIRE(library_handle_is(handle), CUBLAS_STATUS_NOT_INITIALIZED)

/* The same for calls that compute: in the handle's context. */
#define ENTER_COMPUTE(handle)                                                                 \
    ENTER_BLAS(handle);                                                                       \
    REQUIRE(library_handle_in_context(handle), CUBLAS_STATUS_EXECUTION_FAILED)

#define QUEUE(handle, work, data)                                                             \
    (fake_enqueue(__func__, (handle)->stream, work, &(data), sizeof(data))                    \
         ? CUBLAS_STATUS_EXECUTION_FAILED                                                     \
         : CUBLAS_STATUS_SUCCESS)

#endif

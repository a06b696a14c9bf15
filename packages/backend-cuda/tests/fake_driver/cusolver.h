/* What the parts of the fake cuSOLVER share. */
#ifndef FAKE_CUSOLVER_H
#define FAKE_CUSOLVER_H

#include "dense.h"
#include "library.h"

typedef int cusolverStatus_t;
typedef library_handle *cusolverDnHandle_t;

enum {
    CUSOLVER_STATUS_SUCCESS = 0,
    CUSOLVER_STATUS_NOT_INITIALIZED = 1,
    CUSOLVER_STATUS_INVALID_VALUE = 3,
    CUSOLVER_STATUS_EXECUTION_FAILED = 6,
    CUSOLVER_STATUS_NOT_SUPPORTED = 9,
};

enum { BAD = CUSOLVER_STATUS_INVALID_VALUE };

#define ENTER_SOLVER(handle)                                                                  \
    static fake_site site_;                                                                   \
    {                                                                                         \
        int entered_ = fake_enter_library(&site_, __func__);                                  \
        if (entered_) return entered_;                                                        \
    }                                                                                         \
    REQUIRE(library_handle_is(handle), CUSOLVER_STATUS_NOT_INITIALIZED)

/* The same for calls that compute: in the handle's context. */
#define ENTER_SOLVING(handle)                                                                 \
    ENTER_SOLVER(handle);                                                                     \
    REQUIRE(library_handle_in_context(handle), CUSOLVER_STATUS_EXECUTION_FAILED)

/* Memory that a call may use; the fake only spoils it, to show who counts on what it holds. */
typedef struct {
    void *memory;
    size_t size;
} workspace;

cusolverStatus_t workspace_check(workspace given, size_t needed);
void workspace_spoil(workspace given);

/* Are data types of a 64-bit call those of one matrix type? */
int solver_type(int type, int compute);

#endif

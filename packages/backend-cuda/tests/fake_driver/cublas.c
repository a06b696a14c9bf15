/* The fake cuBLAS: handles and their settings. */
#include "cublas.h"

enum { VERSION = 130000 };

API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    static fake_site site;
    int entered = fake_enter_library(&site, __func__);
    if (entered) return entered;
    REQUIRE(handle, CUBLAS_STATUS_INVALID_VALUE);
    *handle = library_handle_new();
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    ENTER_BLAS(handle);
    handle->live = 0;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    ENTER_BLAS(handle);
    REQUIRE(version, CUBLAS_STATUS_INVALID_VALUE);
    *version = VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetProperty(int which, int *value) {
    REQUIRE(value && which >= 0 && which < 3, CUBLAS_STATUS_INVALID_VALUE);
    *value = which ? 0 : VERSION / 10000;
    return CUBLAS_STATUS_SUCCESS;
}

API size_t cublasGetCudartVersion(void) { return 13000; }

API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream) {
    ENTER_BLAS(handle);
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, CUstream *stream) {
    ENTER_BLAS(handle);
    REQUIRE(stream, CUBLAS_STATUS_INVALID_VALUE);
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size) {
    ENTER_BLAS(handle);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)workspace;
    REQUIRE(address % 256 == 0 && fake_check_range(address, size), CUBLAS_STATUS_INVALID_VALUE);
    return CUBLAS_STATUS_SUCCESS;
}

#define SETTING(name, field, most)                                                            \
    API cublasStatus_t cublasSet##name(cublasHandle_t handle, int value) {                    \
        ENTER_BLAS(handle);                                                                   \
        REQUIRE(value >= 0 && value <= most, CUBLAS_STATUS_INVALID_VALUE);                    \
        handle->field = value;                                                                \
        return CUBLAS_STATUS_SUCCESS;                                                         \
    }                                                                                         \
    API cublasStatus_t cublasGet##name(cublasHandle_t handle, int *value) {                   \
        ENTER_BLAS(handle);                                                                   \
        REQUIRE(value, CUBLAS_STATUS_INVALID_VALUE);                                          \
        *value = handle->field;                                                               \
        return CUBLAS_STATUS_SUCCESS;                                                         \
    }

SETTING(PointerMode_v2, device_scalars, 1)
SETTING(AtomicsMode, atomics, 1)
SETTING(MathMode, math, 31)

/* Copies and memsets. Each side must be inside one live block, or be plain host memory.
 *
 * When they return is as CUDA's manual says: copies from pageable memory have read it by then;
 * copies into pageable memory have written it; with pinned memory the asynchronous ones have done
 * neither, in deferred mode. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct copy {
    char *to;
    const char *from;
    char *staged; /* what `from` held at the call, if it may change before the copy runs */
    size_t width, height, to_pitch, from_pitch;
};

static void copy(void *data) {
    struct copy *of = data;
    const char *from = of->staged ? of->staged : of->from;
    size_t from_pitch = of->staged ? of->width : of->from_pitch;
    for (size_t row = 0; row < of->height; row++)
        memmove(of->to + row * of->to_pitch, from + row * from_pitch, of->width);
    free(of->staged);
}

enum side { HOST = 1, DEVICE = 2, EITHER = 4 };

/* What is on this side of a copy: 0 is nothing that may be copied. */
static enum side side_of(enum side wanted, const void *address, size_t size, int *pinned) {
    *pinned = 0;
    if (wanted != HOST && fake_on_device((uintptr_t)address, size)) {
        fake_block_kind kind = fake_block_at((uintptr_t)address)->kind;
        *pinned = kind == BLOCK_PINNED || kind == BLOCK_REGISTERED;
        return wanted == EITHER && *pinned ? HOST : DEVICE;
    }
    return wanted != DEVICE && fake_on_host(address, size, pinned) ? HOST : 0;
}

static CUresult run(struct copy of, enum side to, enum side from, CUstream stream, int is_async) {
    REQUIRE(of.width && of.height, CUDA_SUCCESS);
    int to_pinned, from_pinned;
    size_t to_size = (of.height - 1) * of.to_pitch + of.width;
    size_t from_size = (of.height - 1) * of.from_pitch + of.width;
    to = side_of(to, of.to, to_size, &to_pinned);
    from = side_of(from, of.from, from_size, &from_pinned);
    REQUIRE(to && from, CUDA_ERROR_INVALID_VALUE);
    fake_count.copies++;
    fake_count.copied_bytes += (long)(of.width * of.height);
    if (fake_deferred && from == HOST && !from_pinned) {
        if (!is_async) fake_force_stream(stream);
        struct copy stage = of;
        of.staged = malloc(of.width * of.height);
        REQUIRE(of.staged, CUDA_ERROR_OUT_OF_MEMORY);
        stage.to = of.staged;
        stage.to_pitch = of.width;
        copy(&stage);
    }
    CUresult code = fake_queue(stream, copy, &of, sizeof of);
    int waits = to == HOST && (!is_async || (!to_pinned && fake_deferred < 2));
    waits |= !is_async && from == HOST && from_pinned;
    if (waits) fake_force_stream(stream);
    return code;
}

static CUresult row(const void *to, enum side to_side, const void *from, enum side from_side,
                    size_t size, CUstream stream, int is_async) {
    struct copy of = {(char *)to, from, NULL, size, 1, size, size};
    return run(of, to_side, from_side, stream, is_async);
}

#define AT(address) ((void *)(uintptr_t)(address))

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    ENTER_STREAM(NULL);
    return row(AT(to), DEVICE, from, HOST, size, stream, 0);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream handle) {
    ENTER_STREAM(handle);
    return row(AT(to), DEVICE, from, HOST, size, stream, 1);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    ENTER_STREAM(NULL);
    return row(to, HOST, AT(from), DEVICE, size, stream, 0);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream handle) {
    ENTER_STREAM(handle);
    return row(to, HOST, AT(from), DEVICE, size, stream, 1);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER_STREAM(NULL);
    return row(AT(to), DEVICE, AT(from), DEVICE, size, stream, 0);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream handle) {
    ENTER_STREAM(handle);
    return row(AT(to), DEVICE, AT(from), DEVICE, size, stream, 1);
}

/* With unified addressing the pointers say which side is which. */
API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER_STREAM(NULL);
    return row(AT(to), EITHER, AT(from), EITHER, size, stream, 0);
}

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream handle) {
    ENTER_STREAM(handle);
    return row(AT(to), EITHER, AT(from), EITHER, size, stream, 1);
}

static CUresult peers(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t size, CUstream stream, int is_async) {
    REQUIRE(fake_handle_is(to_context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(fake_handle_is(from_context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(size, CUDA_SUCCESS);
    fake_block *target = fake_block_at(to), *source = fake_block_at(from);
    REQUIRE(target && source, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(target->device == to_context->device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(source->device == from_context->device, CUDA_ERROR_INVALID_VALUE);
    return row(AT(to), DEVICE, AT(from), DEVICE, size, stream, is_async);
}

API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t size) {
    ENTER_STREAM(NULL);
    return peers(to, to_context, from, from_context, size, stream, 0);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                               CUcontext from_context, size_t size, CUstream handle) {
    ENTER_STREAM(handle);
    return peers(to, to_context, from, from_context, size, stream, 1);
}

/* -- with pitches ------------------------------------------------------------------------------ */

typedef struct {
    size_t x, y;
    int type;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
} plane;

typedef struct {
    plane from, to;
    size_t width, height;
} CUDA_MEMCPY2D;

static enum side plane_side(const plane *of) {
    return of->type == 1 ? HOST : of->type == 2 ? DEVICE : of->type == 4 ? EITHER : 0;
}

static char *plane_start(const plane *of) {
    char *base = of->type == 1 ? of->host : AT(of->device);
    return base + of->y * of->pitch + of->x;
}

static CUresult copy_plane(const CUDA_MEMCPY2D *asked, CUstream stream, int is_async) {
    REQUIRE(asked, CUDA_ERROR_INVALID_VALUE);
    enum side to = plane_side(&asked->to), from = plane_side(&asked->from);
    REQUIRE(to && from, CUDA_ERROR_NOT_SUPPORTED); /* CUDA arrays */
    struct copy of = {plane_start(&asked->to), plane_start(&asked->from), NULL, asked->width,
                      asked->height, asked->to.pitch, asked->from.pitch};
    if (!of.to_pitch) of.to_pitch = of.width;
    if (!of.from_pitch) of.from_pitch = of.width;
    REQUIRE(of.height < 2 || (of.to_pitch >= asked->to.x + of.width &&
                              of.from_pitch >= asked->from.x + of.width),
            CUDA_ERROR_INVALID_VALUE);
    return run(of, to, from, stream, is_async);
}

API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *asked) {
    ENTER_STREAM(NULL);
    return copy_plane(asked, stream, 0);
}

API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *asked) {
    ENTER_STREAM(NULL);
    return copy_plane(asked, stream, 0);
}

API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *asked, CUstream handle) {
    ENTER_STREAM(handle);
    return copy_plane(asked, stream, 1);
}

/* -- memsets ----------------------------------------------------------------------------------- */

struct set {
    char *to;
    size_t pitch, width, height;
    int bytes;
    unsigned value;
};

static void set(void *data) {
    struct set *of = data;
    for (size_t row = 0; row < of->height; row++) {
        char *to = of->to + row * of->pitch;
        if (of->bytes == 1) {
            memset(to, (int)of->value, of->width);
            continue;
        }
        for (size_t i = 0; i < of->width; i++)
            memcpy(to + i * of->bytes, &of->value, of->bytes);
    }
}

static CUresult fill(CUdeviceptr to, size_t pitch, unsigned value, int bytes, size_t width,
                     size_t height, CUstream stream) {
    REQUIRE(width && height, CUDA_SUCCESS);
    REQUIRE(to % (unsigned)bytes == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(width <= SIZE_MAX / 16 && height <= SIZE_MAX / 16, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(height < 2 || pitch >= width * bytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_on_device(to, (height - 1) * pitch + width * bytes), CUDA_ERROR_INVALID_VALUE);
    fake_count.memsets++;
    struct set of = {AT(to), pitch, width, height, bytes, value};
    return fake_queue(stream, set, &of, sizeof of);
}

#define MEMSETS(bits, type)                                                                     \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {               \
        ENTER_STREAM(NULL);                                                                     \
        return fill(to, 0, value, bits / 8, count, 1, stream);                                  \
    }                                                                                           \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count,               \
                                        CUstream handle) {                                      \
        ENTER_STREAM(handle);                                                                   \
        return fill(to, 0, value, bits / 8, count, 1, stream);                                  \
    }                                                                                           \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                        size_t height) {                                        \
        ENTER_STREAM(NULL);                                                                     \
        return fill(to, pitch, value, bits / 8, width, height, stream);                         \
    }                                                                                           \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value,             \
                                          size_t width, size_t height, CUstream handle) {       \
        ENTER_STREAM(handle);                                                                   \
        return fill(to, pitch, value, bits / 8, width, height, stream);                         \
    }

MEMSETS(8, unsigned char)
MEMSETS(16, unsigned short)
MEMSETS(32, unsigned)

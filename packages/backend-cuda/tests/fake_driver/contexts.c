/* Handles, contexts and the stack of current contexts that every thread has. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* -- the table of live handles: open addressing, keyed by the handle's address ----------------- */

static struct {
    const void *handle;
    fake_kind kind;
} *primitives;
static size_t primitive_count, primitives_used;
static const char removed;

static size_t primitive_of(const void *handle) {
    return (size_t)(((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 20) & (primitive_count - 1);
}

static void insert(const void *handle, fake_kind kind) {
    size_t at = primitive_of(handle);
    while (primitives[at].handle) at = (at + 1) & (primitive_count - 1);
    primitives[at].handle = handle;
    primitives[at].kind = kind;
    primitives_used++;
}

static void grow(void) {
    __typeof__(primitives) old = primitives;
    size_t old_count = primitive_count, live = 0;
    for (size_t i = 0; i < old_count; i++) live += old[i].handle && old[i].handle != &removed;
    primitive_count = 1024;
    while (primitive_count < live * 4) primitive_count *= 2;
    primitives = calloc(primitive_count, sizeof *primitives);
    if (!primitives) abort();
    primitives_used = 0;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].handle && old[i].handle != &removed) insert(old[i].handle, old[i].kind);
    free(old);
}

void fake_handle_add(const void *handle, fake_kind kind) {
    if (primitives_used * 2 >= primitive_count) grow();
    insert(handle, kind);
}

void fake_handle_remove(const void *handle) {
    if (!primitive_count) return;
    for (size_t at = primitive_of(handle); primitives[at].handle; at = (at + 1) & (primitive_count - 1))
        if (primitives[at].handle == handle) {
            primitives[at].handle = &removed;
            return;
        }
}

int fake_handle_is(const void *handle, fake_kind kind) {
    if (!primitive_count || !handle) return 0;
    for (size_t at = primitive_of(handle); primitives[at].handle; at = (at + 1) & (primitive_count - 1))
        if (primitives[at].handle == handle) return primitives[at].kind == kind;
    return 0;
}

/* What handles point to is never freed, so that a stale handle is never a new thing's address. */
void *fake_new(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) abort();
    return memory;
}

/* -- the stack of each thread ------------------------------------------------------------------ */

static __thread CUcontext stack[FAKE_STACK_DEPTH];
static __thread int depth;

static CUcontext top(void) { return depth ? stack[depth - 1] : NULL; }

CUresult fake_current(CUcontext *context) {
    *context = top();
    REQUIRE(*context, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(fake_handle_is(*context, KIND_CONTEXT), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return fake_devices[(*context)->device].broken;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    REQUIRE(fake_handle_is(context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(depth < FAKE_STACK_DEPTH, CUDA_ERROR_INVALID_VALUE);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER();
    REQUIRE(depth, CUDA_ERROR_INVALID_CONTEXT);
    CUcontext popped = stack[--depth];
    if (context) *context = popped;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    if (!context) {
        if (depth) depth--;
        return CUDA_SUCCESS;
    }
    REQUIRE(fake_handle_is(context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    *context = top();
    return CUDA_SUCCESS;
}

/* -- their lives ------------------------------------------------------------------------------- */

CUcontext fake_contexts;

CUcontext fake_context_new(CUdevice device, unsigned flags, int is_primary) {
    CUcontext context = fake_new(sizeof *context);
    context->device = device;
    context->flags = flags;
    context->is_primary = is_primary;
    context->uses = 1;
    context->limits[0] = 1024;
    context->limits[1] = 1 << 20;
    context->limits[2] = 8 << 20;
    context->next = fake_contexts;
    fake_contexts = context;
    fake_handle_add(context, KIND_CONTEXT);
    context->legacy = fake_stream_new(context, 0, 0);
    fake_count.live_contexts++;
    return context;
}

void fake_context_end(CUcontext context) {
    fake_force_context(context);
    fake_streams_end(context);
    fake_modules_end(context);
    fake_memory_end(context);
    fake_handle_remove(context);
    CUcontext *link = &fake_contexts;
    while (*link != context) link = &(*link)->next;
    *link = context->next;
    fake_count.live_contexts--;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    fake_device *of = &fake_devices[device];
    if (!of->primary) of->primary = fake_context_new(device, of->primary_flags, 1);
    of->primary_uses++;
    *context = of->primary;
    return CUDA_SUCCESS;
}

static void end_primary(fake_device *of) {
    if (of->primary) fake_context_end(of->primary);
    of->primary = NULL;
    of->primary_uses = 0;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER();
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    fake_device *of = &fake_devices[device];
    REQUIRE(of->primary_uses, CUDA_ERROR_INVALID_CONTEXT);
    if (!--of->primary_uses) end_primary(of);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER();
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    end_primary(&fake_devices[device]);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER();
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    fake_devices[device].primary_flags = flags;
    if (fake_devices[device].primary) fake_devices[device].primary->flags = flags;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER();
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    if (flags) *flags = fake_devices[device].primary_flags;
    if (active) *active = fake_devices[device].primary != NULL;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    ENTER();
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!parameters, CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(depth < FAKE_STACK_DEPTH, CUDA_ERROR_INVALID_VALUE);
    *context = stack[depth++] = fake_context_new(device, flags, 0);
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext context) {
    REQUIRE(fake_handle_is(context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(!context->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    if (top() == context) depth--;
    fake_context_end(context);
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER();
    return destroy(context);
}

API CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    ENTER();
    REQUIRE(context && !flags, CUDA_ERROR_INVALID_VALUE);
    CUresult code = fake_current(context);
    if (!code) (*context)->uses++;
    return code;
}

API CUresult cuCtxDetach(CUcontext context) {
    ENTER();
    REQUIRE(fake_handle_is(context, KIND_CONTEXT) && top() == context, CUDA_ERROR_INVALID_CONTEXT);
    return --context->uses ? CUDA_SUCCESS : destroy(context);
}

/* -- what can be asked and set ----------------------------------------------------------------- */

API CUresult cuCtxSynchronize(void) {
    ENTER_CONTEXT();
    fake_force_context(context);
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER_CONTEXT();
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER_CONTEXT();
    REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetId(CUcontext asked, unsigned long long *number) {
    ENTER();
    CUcontext context = asked ? asked : top();
    REQUIRE(fake_handle_is(context, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(number, CUDA_ERROR_INVALID_VALUE);
    *number = (unsigned long long)(uintptr_t)context; /* never used twice, see fake_new */
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetApiVersion(CUcontext asked, unsigned *version) {
    ENTER();
    REQUIRE(!asked || fake_handle_is(asked, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    *version = 3020;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER_CONTEXT();
    REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(limit >= 0 && limit < 7, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(int limit, size_t value) {
    ENTER_CONTEXT();
    REQUIRE(limit >= 0 && limit < 7, CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCacheConfig(int *config) {
    ENTER_CONTEXT();
    REQUIRE(config, CUDA_ERROR_INVALID_VALUE);
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCacheConfig(int config) {
    ENTER_CONTEXT();
    context->cache_config = config;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetSharedMemConfig(int *config) {
    ENTER_CONTEXT();
    REQUIRE(config, CUDA_ERROR_INVALID_VALUE);
    *config = context->shared_config;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetSharedMemConfig(int config) {
    ENTER_CONTEXT();
    context->shared_config = config;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER_CONTEXT();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(peer, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(peer->device != context->device, CUDA_ERROR_INVALID_DEVICE);
    uint64_t bit = (uint64_t)1 << peer->device;
    REQUIRE(!(context->peers & bit), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    context->peers |= bit;
    return CUDA_SUCCESS;
}

API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    ENTER_CONTEXT();
    REQUIRE(fake_handle_is(peer, KIND_CONTEXT), CUDA_ERROR_INVALID_CONTEXT);
    uint64_t bit = (uint64_t)1 << peer->device;
    REQUIRE(context->peers & bit, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers &= ~bit;
    return CUDA_SUCCESS;
}

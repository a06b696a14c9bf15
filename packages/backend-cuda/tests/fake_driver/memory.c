/* Device memory, pinned memory, and what pointers are.
 *
 * Live blocks stand in one table ordered by address. Each has a guard zone of a known pattern on
 * both sides, which is compared when the block is freed or when a test asks. Fresh memory holds
 * 0xCD, freed memory 0xDD; freed blocks wait in a queue before their memory is given back, so that
 * reads of one find 0xDD, and writes to one are counted. Where the address
 * sanitizer runs, guards and freed blocks are declared to it, so that it reports the first bad access.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { GUARD = 512, FRESH = 0xCD, FREED = 0xDD, EDGE = 0xE7 };
static const size_t QUARANTINE = (size_t)16 << 20;

static fake_block *blocks;
static size_t block_count, block_room;
static uint64_t block_numbers;

static struct waiting {
    void *memory;
    size_t size;
    struct waiting *next;
} *waiting_first, *waiting_last;
static size_t waiting_bytes;

/* -- the table --------------------------------------------------------------------------------- */

/* The number of blocks that start at or before the address. */
static size_t blocks_up_to(uintptr_t address) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

fake_block *fake_block_at(uintptr_t address) {
    size_t place = blocks_up_to(address);
    if (!place) return NULL;
    fake_block *block = &blocks[place - 1];
    return address - block->start < block->size ? block : NULL;
}

static fake_block *block_from(uintptr_t start) {
    fake_block *block = fake_block_at(start);
    return block && block->start == start ? block : NULL;
}

static fake_block *add(uintptr_t start, size_t size, fake_block_kind kind, CUcontext context) {
    if (block_count == block_room) {
        block_room = block_room ? block_room * 2 : 256;
        blocks = realloc(blocks, block_room * sizeof *blocks);
        if (!blocks) abort();
    }
    size_t place = blocks_up_to(start);
    memmove(&blocks[place + 1], &blocks[place], (block_count - place) * sizeof *blocks);
    block_count++;
    blocks[place] = (fake_block){
        .start = start,
        .size = size,
        .kind = kind,
        .context = context,
        .device = context->device,
        .number = ++block_numbers,
    };
    return &blocks[place];
}

static void drop(fake_block *block) {
    size_t place = (size_t)(block - blocks);
    memmove(block, block + 1, (block_count - place - 1) * sizeof *blocks);
    block_count--;
}

static int overlaps(uintptr_t start, size_t size) {
    size_t place = blocks_up_to(start + size - 1);
    return place && blocks[place - 1].start + blocks[place - 1].size > start;
}

/* -- whole ranges ------------------------------------------------------------------------------ */

int fake_on_device(CUdeviceptr address, size_t size) {
    fake_block *block = fake_block_at(address);
    return block && size <= block->size - (address - block->start);
}

int fake_on_host(const void *address, size_t size, int *pinned) {
    uintptr_t start = (uintptr_t)address;
    *pinned = 0;
    if (!address) return 0;
    fake_block *block = fake_block_at(start);
    if (!block) return !overlaps(start, size);
    *pinned = block->kind == BLOCK_PINNED || block->kind == BLOCK_REGISTERED;
    if (block->kind == BLOCK_DEVICE || block->kind == BLOCK_GLOBAL) return 0;
    return size <= block->size - (start - block->start);
}

/* -- guards and quarantine --------------------------------------------------------------------- */

/* Functions of the address sanitizer; absent without it. */
#define SANITIZER extern __attribute__((weak, visibility("default")))
SANITIZER void __asan_poison_memory_region(const volatile void *, size_t);
SANITIZER void __asan_unpoison_memory_region(const volatile void *, size_t);

static void forbid(const void *memory, size_t size) {
    if (__asan_poison_memory_region) __asan_poison_memory_region(memory, size);
}

static void permit(const void *memory, size_t size) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, size);
}

static size_t whole(size_t size) { return (size + GUARD - 1) / GUARD * GUARD + 2 * GUARD; }

static int holds(const unsigned char *memory, size_t size, unsigned char value) {
    return !size || (*memory == value && !memcmp(memory, memory + 1, size - 1));
}

static void make_guards(const fake_block *block) {
    unsigned char *memory = block->memory;
    size_t total = whole(block->size), end = GUARD + block->size;
    memset(memory, EDGE, GUARD);
    memset(memory + end, EDGE, total - end);
    forbid(memory, GUARD);
    forbid(memory + end, total - end);
}

/* Are the guards as they were made? Afterwards all of the memory may be used. */
static int intact(const fake_block *block) {
    const unsigned char *memory = block->memory;
    size_t total = whole(block->size), end = GUARD + block->size;
    permit(memory, total);
    return holds(memory, GUARD, EDGE) && holds(memory + end, total - end, EDGE);
}

/* Host memory that was registered and then given back to the system, still registered. */
static void forget_registered(uintptr_t start, size_t size) {
    for (;;) {
        size_t place = blocks_up_to(start + size - 1);
        if (!place || blocks[place - 1].start + blocks[place - 1].size <= start) return;
        drop(&blocks[place - 1]);
    }
}

static void *new_memory(size_t size, fake_block_kind kind, CUcontext context, fake_block **block) {
    unsigned char *memory = aligned_alloc(GUARD, whole(size));
    if (!memory) return NULL;
    forget_registered((uintptr_t)memory, whole(size));
    memset(memory + GUARD, FRESH, size);
    *block = add((uintptr_t)memory + GUARD, size, kind, context);
    (*block)->memory = memory;
    make_guards(*block);
    return memory + GUARD;
}

/* A freed block has kept its 0xDD? Afterwards all of the memory may be used. */
static int unused(const struct waiting *block) {
    permit(block->memory, block->size);
    return holds((unsigned char *)block->memory + GUARD, block->size - 2 * GUARD, FREED);
}

static void release_oldest(void) {
    struct waiting *oldest = waiting_first;
    waiting_first = oldest->next;
    if (!waiting_first) waiting_last = NULL;
    waiting_bytes -= oldest->size;
    if (!unused(oldest)) fake_count.writes_after_free++;
    free(oldest->memory);
    free(oldest);
}

static void give_back(fake_block *block) {
    if (!intact(block)) fake_count.overruns++;
    size_t total = whole(block->size);
    memset((unsigned char *)block->memory + GUARD, FREED, total - 2 * GUARD);
    forbid(block->memory, total);
    struct waiting *last = fake_new(sizeof *last);
    *last = (struct waiting){block->memory, total, NULL};
    if (waiting_last) waiting_last->next = last;
    else waiting_first = last;
    waiting_last = last;
    waiting_bytes += total;
    drop(block);
    while (waiting_bytes > QUARANTINE && waiting_first != waiting_last) release_oldest();
}

/* Looks at every guard and every freed block still kept; what it finds is mended and counted. */
long fake_guards_check(void) {
    long found = 0;
    for (size_t i = 0; i < block_count; i++) {
        if (!blocks[i].memory) continue;
        if (!intact(&blocks[i])) {
            fake_count.overruns++;
            found++;
        }
        make_guards(&blocks[i]);
    }
    for (struct waiting *block = waiting_first; block; block = block->next) {
        if (!unused(block)) {
            memset((unsigned char *)block->memory + GUARD, FREED, block->size - 2 * GUARD);
            fake_count.writes_after_free++;
            found++;
        }
        forbid(block->memory, block->size);
    }
    return found;
}

/* -- allocating -------------------------------------------------------------------------------- */

static void used(CUdevice device, long bytes) {
    fake_devices[device].used += (size_t)bytes;
    long live = fake_count.live_bytes += bytes;
    if (live > fake_count.peak_bytes) fake_count.peak_bytes = live;
    fake_count.live_blocks += bytes > 0 ? 1 : -1;
}

static CUresult allocate(CUdeviceptr *address, size_t size, fake_block_kind kind,
                         CUcontext context) {
    REQUIRE(address && size, CUDA_ERROR_INVALID_VALUE);
    fake_device *device = &fake_devices[context->device];
    REQUIRE(device->used <= device->memory && size <= device->memory - device->used,
            CUDA_ERROR_OUT_OF_MEMORY);
    fake_block *block;
    void *memory = new_memory(size, kind, context, &block);
    REQUIRE(memory, CUDA_ERROR_OUT_OF_MEMORY);
    fake_count.allocations++;
    used(context->device, (long)size);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    ENTER_CONTEXT();
    return allocate(address, size, BLOCK_DEVICE, context);
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(flags == 1 || flags == 2, CUDA_ERROR_INVALID_VALUE);
    return allocate(address, size, BLOCK_MANAGED, context);
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                unsigned element) {
    ENTER_CONTEXT();
    REQUIRE(pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(width < SIZE_MAX / 2 / height, CUDA_ERROR_OUT_OF_MEMORY);
    *pitch = (width + 511) / 512 * 512;
    return allocate(address, *pitch * height, BLOCK_DEVICE, context);
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER_CONTEXT();
    REQUIRE(address, CUDA_SUCCESS);
    fake_block *block = block_from(address);
    if (!block || (block->kind != BLOCK_DEVICE && block->kind != BLOCK_MANAGED)) {
        fake_count.bad_frees++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_force_device(block->device); /* as the real one: nothing may still use the block */
    fake_count.frees++;
    used(block->device, -(long)block->size);
    give_back(block);
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    ENTER_CONTEXT();
    REQUIRE(left && total, CUDA_ERROR_INVALID_VALUE);
    fake_device *device = &fake_devices[context->device];
    *total = device->memory;
    *left = device->used < device->memory ? device->memory - device->used : 0;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    ENTER_CONTEXT();
    fake_block *block = fake_block_at(address);
    REQUIRE(block, CUDA_ERROR_NOT_FOUND);
    if (base) *base = block->start;
    if (size) *size = block->size;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(address && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(size, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(size < (size_t)1 << 40, CUDA_ERROR_OUT_OF_MEMORY);
    fake_block *block;
    *address = new_memory(size, BLOCK_PINNED, context, &block);
    REQUIRE(*address, CUDA_ERROR_OUT_OF_MEMORY);
    block->flags = flags;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocHost_v2(void **address, size_t size) {
    return cuMemHostAlloc(address, size, 0);
}

API CUresult cuMemFreeHost(void *address) {
    ENTER_CONTEXT();
    fake_block *block = block_from((uintptr_t)address);
    if (!block || block->kind != BLOCK_PINNED) {
        fake_count.bad_frees++;
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUdevice i = 0; i < fake_device_total; i++) fake_force_device(i);
    give_back(block);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(address && size && !(flags & ~15u), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!overlaps((uintptr_t)address, size), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    add((uintptr_t)address, size, BLOCK_REGISTERED, context)->flags = flags;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostUnregister(void *address) {
    ENTER_CONTEXT();
    fake_block *block = block_from((uintptr_t)address);
    REQUIRE(block && block->kind == BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    for (CUdevice i = 0; i < fake_device_total; i++) fake_force_device(i);
    drop(block);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(device && !flags, CUDA_ERROR_INVALID_VALUE);
    fake_block *block = fake_block_at((uintptr_t)address);
    REQUIRE(block && (block->kind == BLOCK_PINNED || block->kind == BLOCK_REGISTERED),
            CUDA_ERROR_INVALID_VALUE);
    *device = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *address) {
    ENTER_CONTEXT();
    fake_block *block = fake_block_at((uintptr_t)address);
    REQUIRE(flags && block && block->kind == BLOCK_PINNED, CUDA_ERROR_INVALID_VALUE);
    *flags = block->flags | 2; /* with unified addressing all pinned memory is mapped */
    return CUDA_SUCCESS;
}

/* -- a module's variables, and the end of a context -------------------------------------------- */

CUresult fake_block_global(CUcontext context, void *address, size_t size) {
    if (!block_from((uintptr_t)address)) add((uintptr_t)address, size, BLOCK_GLOBAL, context);
    return CUDA_SUCCESS;
}

void fake_block_forget(void *address) {
    fake_block *block = block_from((uintptr_t)address);
    if (block) drop(block);
}

void fake_memory_end(CUcontext context) {
    for (size_t i = block_count; i-- > 0;) {
        fake_block *block = &blocks[i];
        if (block->context != context) continue;
        if (block->kind == BLOCK_DEVICE || block->kind == BLOCK_MANAGED) {
            fake_count.leaked_blocks++;
            used(block->device, -(long)block->size);
        }
        if (block->memory) give_back(block);
        else drop(block);
    }
}

/* -- attributes of pointers -------------------------------------------------------------------- */

static size_t attribute_size(int attribute) {
    switch (attribute) {
        case 1: case 3: case 4: case 7: case 11: case 12: return 8;
        case 5: return 16;
        case 6: case 8: case 10: case 13: return 1;
        case 2: case 9: return 4;
        default: return 0;
    }
}

static void attribute_of(const fake_block *block, int attribute, uintptr_t address,
                         uint64_t out[2]) {
    int is_host = block->kind == BLOCK_PINNED || block->kind == BLOCK_REGISTERED;
    out[0] = out[1] = 0;
    switch (attribute) {
        case 1: out[0] = (uintptr_t)block->context; break;
        case 2: out[0] = is_host ? 1 : 2; break;
        case 3: out[0] = address; break;
        case 4: out[0] = is_host || block->kind == BLOCK_MANAGED ? address : 0; break;
        case 7: out[0] = block->number; break;
        case 8: out[0] = block->kind == BLOCK_MANAGED; break;
        case 9: out[0] = (uint64_t)block->device; break;
        case 10: out[0] = 0; break;
        case 11: out[0] = block->start; break;
        case 12: out[0] = block->size; break;
        case 13: out[0] = 1; break;
    }
}

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    ENTER_CONTEXT();
    size_t size = attribute_size(attribute);
    REQUIRE(data && attribute > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(size, CUDA_ERROR_NOT_SUPPORTED);
    fake_block *block = fake_block_at(address);
    REQUIRE(block, CUDA_ERROR_INVALID_VALUE);
    int host_only = block->kind == BLOCK_DEVICE || block->kind == BLOCK_GLOBAL;
    REQUIRE(attribute != 4 || !host_only, CUDA_ERROR_INVALID_VALUE);
    uint64_t value[2];
    attribute_of(block, attribute, address, value);
    memcpy(data, value, size);
    return CUDA_SUCCESS;
}

/* Unlike the call for one attribute, this answers zeros for memory that it does not know. */
API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data,
                                    CUdeviceptr address) {
    ENTER_CONTEXT();
    REQUIRE(attributes && data, CUDA_ERROR_INVALID_VALUE);
    fake_block *block = fake_block_at(address);
    for (unsigned i = 0; i < count; i++) {
        size_t size = attribute_size(attributes[i]);
        REQUIRE(size && data[i], CUDA_ERROR_INVALID_VALUE);
        uint64_t value[2] = {0, 0};
        if (block) attribute_of(block, attributes[i], address, value);
        else if (attributes[i] == 9) value[0] = (uint64_t)-2; /* no device */
        memcpy(data[i], value, size);
    }
    return CUDA_SUCCESS;
}

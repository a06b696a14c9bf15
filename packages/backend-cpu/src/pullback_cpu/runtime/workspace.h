/* Workspaces: temporary memory of kernels. Blocks are kept for the next call, because the system
 * takes large ones back when they are freed, and new pages cost as much as a small product. */
#ifndef PULLBACK_CPU_WORKSPACE_H
#define PULLBACK_CPU_WORKSPACE_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/huge_pages.h"

#define PB_WORKSPACE_KEPT 4            /* blocks that are kept */
#define PB_WORKSPACE_LARGEST (1 << 22) /* bytes of a block that is kept */
/* A block's size is stored in front of it. It begins with a cache line: otherwise every other
 * vector of 512 bits would span two. */
#define PB_WORKSPACE_HEAD 64
#if defined(_WIN32)
#define pb_workspace_new(bytes) malloc(bytes)
#else
#define pb_workspace_new(bytes) aligned_alloc(PB_WORKSPACE_HEAD, bytes)
#endif

#if defined(__GNUC__)
static void *pb_workspace_blocks[PB_WORKSPACE_KEPT];
#define pb_workspace_swap(entry, block) __atomic_exchange_n(entry, block, __ATOMIC_ACQ_REL)
#endif

/* Return memory for so many bytes, or NULL. Any thread may ask. */
static void *pb_workspace_alloc(size_t bytes) {
    size_t size = 4096;
    char *block;
    if (bytes > SIZE_MAX / 4)
        return NULL;
    while (size < bytes && size < PB_WORKSPACE_LARGEST)
        size *= 2;
    if (size < bytes)
        size = (bytes + 4095) & ~(size_t)4095;
#if defined(__GNUC__)
    for (int i = 0; i < PB_WORKSPACE_KEPT; i++) {
        if (pb_workspace_blocks[i] == NULL)
            continue;
        block = pb_workspace_swap(&pb_workspace_blocks[i], NULL);
        if (block != NULL && *(size_t *)block >= size && *(size_t *)block <= 4 * size)
            return block + PB_WORKSPACE_HEAD;
        if (block != NULL)
            block = pb_workspace_swap(&pb_workspace_blocks[i], block);
        free(block);
    }
#endif
    block = pb_workspace_new(size + PB_WORKSPACE_HEAD);
    if (block == NULL)
        return NULL;
    pb_advise_huge(block, size);
    *(size_t *)block = size;
    return block + PB_WORKSPACE_HEAD;
}

/* Give memory back; NULL is fine. */
static void pb_workspace_free(void *data) {
    void *block = data == NULL ? NULL : (char *)data - PB_WORKSPACE_HEAD;
#if defined(__GNUC__)
    if (block != NULL && *(size_t *)block <= PB_WORKSPACE_LARGEST)
        for (int i = 0; i < PB_WORKSPACE_KEPT && block != NULL; i++)
            if (pb_workspace_blocks[i] == NULL)
                block = pb_workspace_swap(&pb_workspace_blocks[i], block);
#endif
    free(block);
}

#endif

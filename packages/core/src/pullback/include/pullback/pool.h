/* Allocator of small blocks of host memory, in slabs of large arenas.
 *
 * Nodes and storages are small, and allocated and freed in great numbers. The system's allocators
 * return such memory page by page and fault it in again page by page, which costs more than the
 * rest of recording an op. Here an arena is one aligned region of 2 MB, which the operating system
 * may back with one huge page. It is returned when all its blocks are free, except for a few empty
 * arenas that are kept.
 *
 *     arena (2 MB, aligned)  =  32 slabs
 *     slab (64 KB, aligned)  =  a header, then blocks of one size
 *
 * A block's slab is found by its address. Not thread-safe: hold the interpreter lock. The core uses
 * it for nodes and storages; backends whose memory is host memory may use it too. */
#ifndef PULLBACK_POOL_H
#define PULLBACK_POOL_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <malloc.h>
#else
#include <sys/mman.h>
#endif

#define PB_POOL_LARGEST ((size_t)16384) /* bytes of the largest block */
#define PB_POOL_ARENA ((size_t)1 << 21)
#define PB_POOL_SLAB ((size_t)1 << 16)
#define PB_POOL_HEADER ((size_t)64)
#define PB_POOL_FINE ((size_t)1024) /* sizes up to here go in steps of 16 bytes, then of 1024 */
#define PB_POOL_CLASSES 81
#define PB_POOL_KEPT 4 /* empty arenas that are kept */

typedef struct pb_slab {
    struct pb_slab *next, *previous; /* in the list of slabs of this size with free blocks */
    void *freed;                     /* list of free blocks; each has the address of the next */
    uint32_t size;                   /* of a block */
    uint32_t used;                   /* blocks in use */
    uint32_t cut;                    /* offset of the part that was never used */
    uint32_t number;                 /* of the size class */
    uint32_t listed;
} pb_slab;

typedef struct pb_arena {             /* stored after the header of the arena's first slab */
    struct pb_arena *next, *previous; /* in the list of arenas with a free slab */
    uint32_t free_slabs;              /* one bit each */
} pb_arena;

typedef struct pb_pool {
    pb_slab *open[PB_POOL_CLASSES];
    pb_arena *arenas;
    size_t held; /* bytes taken from the system */
    int empty;   /* arenas without a block in use */
} pb_pool;

#if defined(__GNUC__)
#define PB_POOL_RARE __attribute__((noinline, cold, unused))
#define PB_POOL_COMMON static inline __attribute__((unused))
#define pb_pool_lowest(bits) __builtin_ctz(bits)
#else
#define PB_POOL_RARE
#define PB_POOL_COMMON static inline
static inline int pb_pool_lowest(uint32_t bits) {
    int n = 0;
    while (!(bits & 1))
        bits >>= 1, ++n;
    return n;
}
#endif

/* ---- arenas ------------------------------------------------------------------------------- */

static inline char *pb_arena_base(const pb_arena *arena) {
    return (char *)((uintptr_t)arena & ~(PB_POOL_ARENA - 1));
}

#if defined(_WIN32)
static PB_POOL_RARE char *pb_arena_map(int huge) {
    (void)huge;
    return (char *)_aligned_malloc(PB_POOL_ARENA, PB_POOL_ARENA);
}
static PB_POOL_RARE void pb_arena_unmap(char *base) { _aligned_free(base); }
#else
static PB_POOL_RARE char *pb_arena_map(int huge) {
    size_t before, room = 2 * PB_POOL_ARENA;
    char *base, *start = (char *)mmap(NULL, room, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == (char *)MAP_FAILED)
        return NULL;
    base = (char *)(((uintptr_t)start + PB_POOL_ARENA - 1) & ~(PB_POOL_ARENA - 1));
    before = (size_t)(base - start);
    if (before)
        munmap(start, before);
    munmap(base + PB_POOL_ARENA, room - before - PB_POOL_ARENA);
#if defined(MADV_HUGEPAGE)
    if (huge)
        madvise(base, PB_POOL_ARENA, MADV_HUGEPAGE);
#else
    (void)huge;
#endif
    return base;
}
static PB_POOL_RARE void pb_arena_unmap(char *base) { munmap(base, PB_POOL_ARENA); }
#endif

static inline void pb_arena_link(pb_pool *pool, pb_arena *arena) {
    arena->previous = NULL;
    arena->next = pool->arenas;
    if (pool->arenas)
        pool->arenas->previous = arena;
    pool->arenas = arena;
}

static inline void pb_arena_unlink(pb_pool *pool, pb_arena *arena) {
    if (arena->next)
        arena->next->previous = arena->previous;
    if (arena->previous)
        arena->previous->next = arena->next;
    else
        pool->arenas = arena->next;
}

/* Return empty arenas to the system until `keep` are left. */
static PB_POOL_RARE void pb_pool_trim(pb_pool *pool, int keep) {
    pb_arena *next, *arena = pool->arenas;
    for (; arena && pool->empty > keep; arena = next) {
        next = arena->next;
        if (arena->free_slabs == 0xFFFFFFFFu) {
            pb_arena_unlink(pool, arena);
            pb_arena_unmap(pb_arena_base(arena));
            pool->held -= PB_POOL_ARENA;
            pool->empty -= 1;
        }
    }
}

/* ---- slabs -------------------------------------------------------------------------------- */

static inline void pb_slab_link(pb_pool *pool, pb_slab *slab) {
    pb_slab **head = &pool->open[slab->number];
    slab->previous = NULL;
    slab->next = *head;
    if (*head)
        (*head)->previous = slab;
    *head = slab;
    slab->listed = 1;
}

static inline void pb_slab_unlink(pb_pool *pool, pb_slab *slab) {
    if (slab->next)
        slab->next->previous = slab->previous;
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        pool->open[slab->number] = slab->next;
    slab->listed = 0;
}

/* Make a slab for blocks of a size class; NULL when there is no memory. */
static PB_POOL_RARE pb_slab *pb_slab_new(pb_pool *pool, uint32_t number, uint32_t size) {
    pb_arena *arena = pool->arenas;
    pb_slab *slab;
    char *base;
    int which;
    if (!arena) {
        /* Small programs stay small: huge pages are requested from the second arena on. */
        base = pb_arena_map(pool->held > 0);
        if (!base)
            return NULL;
        arena = (pb_arena *)(base + PB_POOL_HEADER);
        arena->free_slabs = 0xFFFFFFFFu;
        pb_arena_link(pool, arena);
        pool->held += PB_POOL_ARENA;
        pool->empty += 1;
    }
    if (arena->free_slabs == 0xFFFFFFFFu)
        pool->empty -= 1;
    which = pb_pool_lowest(arena->free_slabs);
    arena->free_slabs &= ~(1u << which);
    if (!arena->free_slabs)
        pb_arena_unlink(pool, arena);
    slab = (pb_slab *)(pb_arena_base(arena) + (size_t)which * PB_POOL_SLAB);
    slab->freed = NULL;
    slab->size = size;
    slab->used = 0;
    slab->cut = (uint32_t)(which ? PB_POOL_HEADER : 2 * PB_POOL_HEADER);
    slab->number = number;
    pb_slab_link(pool, slab);
    return slab;
}

/* Return a slab without blocks in use to its arena. */
static PB_POOL_RARE void pb_slab_free(pb_pool *pool, pb_slab *slab) {
    char *base = (char *)((uintptr_t)slab & ~(PB_POOL_ARENA - 1));
    pb_arena *arena = (pb_arena *)(base + PB_POOL_HEADER);
    pb_slab_unlink(pool, slab);
    if (!arena->free_slabs)
        pb_arena_link(pool, arena);
    arena->free_slabs |= 1u << (((char *)slab - base) / PB_POOL_SLAB);
    if (arena->free_slabs == 0xFFFFFFFFu) {
        pool->empty += 1;
        if (pool->empty > PB_POOL_KEPT)
            pb_pool_trim(pool, PB_POOL_KEPT);
    }
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* Return a block of at least `nbytes` (1 .. PB_POOL_LARGEST), or NULL. Blocks of a multiple of 64
 * bytes are aligned to 64 bytes, others to the largest power of two that divides their size. */
PB_POOL_COMMON void *pb_pool_allocate(pb_pool *pool, size_t nbytes) {
    uint32_t number, size;
    pb_slab *slab;
    void *block;
    if (nbytes <= PB_POOL_FINE) {
        number = (uint32_t)((nbytes + 15) >> 4);
        size = number << 4;
    } else {
        size = (uint32_t)((nbytes + 1023) & ~(size_t)1023);
        number = 63 + (size >> 10);
    }
    slab = pool->open[number];
    if (!slab) {
        slab = pb_slab_new(pool, number, size);
        if (!slab)
            return NULL;
    }
    block = slab->freed;
    if (block) {
        memcpy(&slab->freed, block, sizeof(void *));
    } else {
        block = (char *)slab + slab->cut;
        slab->cut += size;
    }
    slab->used += 1;
    if (!slab->freed && slab->cut + size > PB_POOL_SLAB)
        pb_slab_unlink(pool, slab);
    return block;
}

PB_POOL_COMMON void pb_pool_release(pb_pool *pool, void *block) {
    pb_slab *slab = (pb_slab *)((uintptr_t)block & ~(PB_POOL_SLAB - 1));
    memcpy(block, &slab->freed, sizeof(void *));
    slab->freed = block;
    slab->used -= 1;
    if (!slab->listed)
        pb_slab_link(pool, slab);
    /* One slab of a size always stays, so that single blocks are allocated cheaply. */
    if (!slab->used && (slab->next || slab->previous))
        pb_slab_free(pool, slab);
}

#endif

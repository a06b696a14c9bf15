/* Large pages for large blocks: pages of 4 KB that are touched for the first time cost more than
 * the work that is done in them. */
#ifndef PULLBACK_CPU_HUGE_PAGES_H
#define PULLBACK_CPU_HUGE_PAGES_H
#include <stddef.h>
#include <stdint.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define PB_HUGE_BLOCK ((size_t)1 << 22) /* bytes from which on it pays */

static void pb_advise_huge(void *data, size_t nbytes) {
#if defined(__linux__)
    if (data != NULL && nbytes >= PB_HUGE_BLOCK)
        madvise((void *)(((uintptr_t)data + 4095) & ~(uintptr_t)4095),
                (nbytes - 4096) & ~(size_t)4095, MADV_HUGEPAGE);
#else
    (void)data, (void)nbytes;
#endif
}

#endif

/* A coarse clock for frequent polls: a few nanoseconds to read, a few milliseconds per tick. */
#ifndef PULLBACK_CLOCK_H
#define PULLBACK_CLOCK_H
#include <stdint.h>
#if defined(_WIN32)
#include <windows.h>
static inline int64_t pb_milliseconds(void) { return (int64_t)GetTickCount64(); }
#else
#include <time.h>
static inline int64_t pb_milliseconds(void) {
    struct timespec now;
#if defined(CLOCK_MONOTONIC_COARSE)
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * (int64_t)1000 + now.tv_nsec / 1000000;
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000 + now.tv_nsec / 1000000 / 4 * 4;
#endif
}
#endif
#endif

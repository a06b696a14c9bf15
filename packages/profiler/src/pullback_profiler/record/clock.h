/* Nanoseconds of a clock that never goes back. */
#ifndef PULLBACK_PROFILER_CLOCK_H
#define PULLBACK_PROFILER_CLOCK_H
#include <stdint.h>

#if defined(_WIN32)
#include <windows.h>
static inline int64_t clock_now(void) {
    LARGE_INTEGER count, frequency;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    return count.QuadPart / frequency.QuadPart * 1000000000 +
           count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}
#else
#include <time.h>
static inline int64_t clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

#if defined(_MSC_VER)
#define PER_THREAD __declspec(thread)
#else
#define PER_THREAD __thread
#endif
#endif

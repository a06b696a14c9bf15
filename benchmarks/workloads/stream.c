/* The loops of McCalpin's STREAM benchmark (https://www.cs.virginia.edu/stream/), on float32 as the
   rows have it. Each runs `times` times over n elements. */

#include <stddef.h>

void stream_copy(float *a, const float *b, const float *c, size_t n, int times) {
  (void)c;
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < n; i++) a[i] = b[i];
    __asm__ volatile("" ::"r"(a) : "memory"); /* every pass counts */
  }
}

void stream_scale(float *a, const float *b, const float *c, size_t n, int times) {
  (void)c;
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < n; i++) a[i] = 3.0f * b[i];
    __asm__ volatile("" ::"r"(a) : "memory");
  }
}

void stream_add(float *a, const float *b, const float *c, size_t n, int times) {
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + c[i];
    __asm__ volatile("" ::"r"(a) : "memory");
  }
}

void stream_triad(float *a, const float *b, const float *c, size_t n, int times) {
  for (int t = 0; t < times; t++) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0f * c[i];
    __asm__ volatile("" ::"r"(a) : "memory");
  }
}

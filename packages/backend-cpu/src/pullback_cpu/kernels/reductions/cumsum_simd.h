/* Cumulative sums of contiguous float32 numbers, added up in double.

   One after the other, each sum waits for the last one. Here eight numbers are added up in three
   steps, which add the elements 1, 2 and 4 positions before, and only their last sum is waited
   for (Hillis and Steele, Communications of the ACM 29(12), 1986). */
#ifndef PULLBACK_CPU_CUMSUM_SIMD_H
#define PULLBACK_CPU_CUMSUM_SIMD_H

#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>

/* Write the sums of as many numbers as fill vectors; return how many these are. */
static inline int64_t pb_cumsum_f32(float *o, const float *a, int64_t n, double *total) {
    const __m512i zero = _mm512_setzero_si512(), last = _mm512_set1_epi64(7);
    __m512d before = _mm512_set1_pd(*total);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m512d sums = _mm512_cvtps_pd(_mm256_loadu_ps(a + i));
#define PB_ADD_EARLIER(distance) \
    sums = _mm512_add_pd(sums, _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(sums), \
                                                                       zero, 8 - distance)))
        PB_ADD_EARLIER(1);
        PB_ADD_EARLIER(2);
        PB_ADD_EARLIER(4);
#undef PB_ADD_EARLIER
        _mm256_storeu_ps(o + i, _mm512_cvtpd_ps(_mm512_add_pd(before, sums)));
        before = _mm512_add_pd(before, _mm512_permutexvar_pd(last, sums));
    }
    *total = _mm512_cvtsd_f64(before);
    return i;
}
#else
static inline int64_t pb_cumsum_f32(float *o, const float *a, int64_t n, double *total) {
    return 0;
}
#endif
#endif

/* Square roots of contiguous numbers.

   The divider of processors with AVX-512 also takes roots, and needs up to three times as long as
   Newton's steps from the estimate that they have an instruction for. The last step of a root is
   Markstein's, which rounds correctly (IBM Journal of Research and Development 34(1), 1990). Zeros,
   NaN, and numbers that are negative, tiny or huge go through the divider. */
#ifndef PULLBACK_CPU_SQRT_SIMD_H
#define PULLBACK_CPU_SQRT_SIMD_H

#include <math.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>

static inline __m512 pb_root_f32(__m512 x) {
    const __m512 half = _mm512_set1_ps(0.5f);
    __m512 y = _mm512_rsqrt14_ps(x), g = _mm512_mul_ps(x, y), h = _mm512_mul_ps(half, y);
    __m512 rest = _mm512_fnmadd_ps(g, h, half);
    g = _mm512_fmadd_ps(g, rest, g);
    h = _mm512_fmadd_ps(h, rest, h);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, x), h, g);
}

/* Newton's step from y to 1 / sqrt(x), with what the product x y loses. */
static inline __m512 pb_nearer_inverse_root_f32(__m512 x, __m512 y) {
    const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1);
    __m512 g = _mm512_mul_ps(x, y), lost = _mm512_fmsub_ps(x, y, g);
    __m512 rest = _mm512_fnmadd_ps(lost, y, _mm512_fnmadd_ps(g, y, one));
    return _mm512_fmadd_ps(_mm512_mul_ps(half, y), rest, y);
}

static inline __m512 pb_inverse_root_f32(__m512 x) {
    return pb_nearer_inverse_root_f32(x, _mm512_rsqrt14_ps(x));
}

static inline __m512 pb_divided_root_f32(__m512 x) {
    /* The step makes NaN of 0 and infinity. */
    __m512 y = _mm512_div_ps(_mm512_set1_ps(1), _mm512_sqrt_ps(x));
    __m512 nearer = pb_nearer_inverse_root_f32(x, y);
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(nearer, nearer, _CMP_ORD_Q), nearer);
}

static inline __m512d pb_root_f64(__m512d x) {
    const __m512d half = _mm512_set1_pd(0.5);
    __m512d y = _mm512_rsqrt14_pd(x), g = _mm512_mul_pd(x, y), h = _mm512_mul_pd(half, y), rest;
    for (int k = 0; k < 2; k++) {
        rest = _mm512_fnmadd_pd(g, h, half);
        g = _mm512_fmadd_pd(g, rest, g);
        h = _mm512_fmadd_pd(h, rest, h);
    }
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(g, g, x), h, g);
}

/* A function over an array: its steps, and what it is where they do not hold. The last vector is
   masked, so that a number has the same result wherever it stands. */
#define PB_ROOTS(name, T, vector, mask, width, p, steps, divider, least, most) \
    static inline __attribute__((always_inline)) vector name##_value(vector x) { \
        mask usual = _mm512_cmp_##p##_mask(x, _mm512_set1_##p(least), _CMP_GE_OQ); \
        vector result = steps(x); \
        usual = _mm512_mask_cmp_##p##_mask(usual, x, _mm512_set1_##p(most), _CMP_LE_OQ); \
        return usual == (mask) - 1 ? result : _mm512_mask_mov_##p(divider(x), usual, result); \
    } \
    static inline void name(T *o, const T *a, int64_t n) { \
        int64_t i = 0; \
        for (; i + width <= n; i += width) \
            _mm512_storeu_##p(o + i, name##_value(_mm512_loadu_##p(a + i))); \
        if (i < n) { \
            mask some = (mask)((1 << (n - i)) - 1); \
            vector x = _mm512_mask_loadu_##p(_mm512_set1_##p(1), some, a + i); \
            _mm512_mask_storeu_##p(o + i, some, name##_value(x)); \
        } \
    }

PB_ROOTS(pb_sqrt_f32, float, __m512, __mmask16, 16, ps, pb_root_f32, _mm512_sqrt_ps, 0x1p-100f,
         0x1p126f)
PB_ROOTS(pb_rsqrt_f32, float, __m512, __mmask16, 16, ps, pb_inverse_root_f32, pb_divided_root_f32,
         0x1p-126f, 0x1p126f)
PB_ROOTS(pb_sqrt_f64, double, __m512d, __mmask8, 8, pd, pb_root_f64, _mm512_sqrt_pd, 0x1p-900,
         0x1p1020)
#else
/* As above, from the rounded root; without fma the product x y is exact in double. */
static inline float pb_inverse_root_f32(float x) {
    float y = 1 / sqrtf(x);
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    float g = x * y, lost = __builtin_fmaf(x, y, -g);
    float rest = __builtin_fmaf(-lost, y, __builtin_fmaf(-g, y, 1.0f));
#else
    float rest = (float)(1 - (double)x * y * y);
#endif
    return rest == rest ? y + 0.5f * y * rest : y;
}

#define PB_ROOTS(name, T, value) \
    static inline void name(T *o, const T *a, int64_t n) { \
        for (int64_t i = 0; i < n; i++) \
            o[i] = value; \
    }

PB_ROOTS(pb_sqrt_f32, float, sqrtf(a[i]))
PB_ROOTS(pb_rsqrt_f32, float, pb_inverse_root_f32(a[i]))
PB_ROOTS(pb_sqrt_f64, double, sqrt(a[i]))
#endif
#endif

/* Blocks of Philox4x32-10 (Salmon et al., SC'11), one or two vectors of them at a time.

   A lane of 64 bits holds a word of a block in its low half. The high half may hold anything until
   the words are stored: the products take the low halves alone. */
#ifndef PULLBACK_CPU_PHILOX_SIMD_H
#define PULLBACK_CPU_PHILOX_SIMD_H

#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define PB_LANES 8
typedef __m512i pb_lanes;
#define PB_SPREAD(value) _mm512_set1_epi64((long long)(value))
#define PB_FROM(first) _mm512_add_epi64(PB_SPREAD(first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0))
#define PB_PRODUCT(a, b) _mm512_mul_epu32(a, b)
#define PB_HIGH(a) _mm512_srli_epi64(a, 32)
#define PB_XOR(a, b) _mm512_xor_si512(a, b)
/* The low halves of a, and above them those of b. */
#define PB_JOINED(a, b) _mm512_mask_blend_epi32(0xAAAA, a, _mm512_slli_epi64(b, 32))
static inline void pb_store_pairs(uint32_t *out, pb_lanes a, pb_lanes b) {
    const __m512i low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i high = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(a, low, b));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(a, high, b));
}
#elif defined(__AVX2__)
#include <immintrin.h>
#define PB_LANES 4
typedef __m256i pb_lanes;
#define PB_SPREAD(value) _mm256_set1_epi64x((long long)(value))
#define PB_FROM(first) _mm256_add_epi64(PB_SPREAD(first), _mm256_set_epi64x(3, 2, 1, 0))
#define PB_PRODUCT(a, b) _mm256_mul_epu32(a, b)
#define PB_HIGH(a) _mm256_srli_epi64(a, 32)
#define PB_XOR(a, b) _mm256_xor_si256(a, b)
#define PB_JOINED(a, b) _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xAA)
static inline void pb_store_pairs(uint32_t *out, pb_lanes a, pb_lanes b) {
    const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}
#endif

#if defined(PB_LANES)
/* Write the words of `count` vectors of blocks: each waits for its products while those of the
   others are made. */
__attribute__((always_inline)) static inline void pb_philox_vectors(
    uint64_t first, const pb_lanes *keys, const int count, uint32_t *words) {
    const pb_lanes m0 = PB_SPREAD(0xD2511F53u), m1 = PB_SPREAD(0xCD9E8D57u);
    pb_lanes word0[2], word1[2], word2[2], word3[2];
#pragma GCC unroll 2
    for (int k = 0; k < count; k++) {
        word0[k] = PB_FROM(first + (uint64_t)(k * PB_LANES));
        word1[k] = PB_HIGH(word0[k]);
        word2[k] = word3[k] = PB_SPREAD(0);
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 2
        for (int k = 0; k < count; k++) {
            pb_lanes product0 = PB_PRODUCT(word0[k], m0), product1 = PB_PRODUCT(word2[k], m1);
            word0[k] = PB_XOR(PB_XOR(PB_HIGH(product1), word1[k]), keys[2 * round]);
            word2[k] = PB_XOR(PB_XOR(PB_HIGH(product0), word3[k]), keys[2 * round + 1]);
            word1[k] = product1;
            word3[k] = product0;
        }
    }
#pragma GCC unroll 2
    for (int k = 0; k < count; k++)
        pb_store_pairs(words + 4 * k * PB_LANES, PB_JOINED(word0[k], word1[k]),
                       PB_JOINED(word2[k], word3[k]));
}
#endif

/* Write the words of as many blocks as fill vectors; return how many blocks these are. */
static inline int64_t pb_philox(uint64_t first, const uint32_t *key, int64_t blocks,
                                uint32_t *words) {
    int64_t i = 0;
#if defined(PB_LANES)
    pb_lanes keys[20];
    for (uint32_t round = 0; round < 10; round++) {
        keys[2 * round] = PB_SPREAD((uint32_t)(key[0] + round * 0x9E3779B9u));
        keys[2 * round + 1] = PB_SPREAD((uint32_t)(key[1] + round * 0xBB67AE85u));
    }
    for (; i + 2 * PB_LANES <= blocks; i += 2 * PB_LANES)
        pb_philox_vectors(first + (uint64_t)i, keys, 2, words + 4 * i);
    if (i + PB_LANES <= blocks) {
        pb_philox_vectors(first + (uint64_t)i, keys, 1, words + 4 * i);
        i += PB_LANES;
    }
#endif
    return i;
}
#endif

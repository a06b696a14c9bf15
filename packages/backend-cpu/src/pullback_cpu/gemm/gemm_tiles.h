/* Sizes of the tiles of matrix products, for the instruction set that is compiled for.
 *
 * gemm_microkernel.h has the code and is included here once for each element type. Vectors are
 * those of GCC's extension, as wide as the instruction set's; other compilers get vectors of one
 * element. */
#ifndef PULLBACK_CPU_GEMM_TILES_H
#define PULLBACK_CPU_GEMM_TILES_H
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define PB_ALWAYS_INLINE static inline __attribute__((always_inline))
#define PB_ALIGNED __attribute__((aligned(64))) /* no vector spans two cache lines */
#define PB_UNROLL _Pragma("GCC unroll 16")
/* Let the compiler forget how a pointer was computed. */
#define PB_HIDE(pointer) __asm__("" : "+r"(pointer))
#define PB_PREFETCH(address) __builtin_prefetch(address)
#if defined(__AVX512F__)
#define PB_VECTOR_BYTES 64
#elif defined(__AVX__)
#define PB_VECTOR_BYTES 32
#else
#define PB_VECTOR_BYTES 16
#endif
#else
#define PB_ALWAYS_INLINE static inline
#define PB_ALIGNED
#define PB_UNROLL
#define PB_HIDE(pointer) ((void)0)
#define PB_PREFETCH(address) ((void)0)
#endif

/* Stores of a vector into a line of memory that is not read first and not kept in a cache, for
 * results that are larger than those. */
#define PB_STREAMED 2
#if defined(__GNUC__) && defined(__AVX512F__)
#include <immintrin.h>
#define PB_CAN_STREAM 1
#define PB_STREAM_VECTOR(target, value) _mm512_stream_si512((__m512i *)(target), (__m512i)(value))
#define PB_STREAM_END() _mm_sfence()
#elif defined(__GNUC__) && defined(__AVX2__)
#include <immintrin.h>
#define PB_CAN_STREAM 1
#define PB_STREAM_VECTOR(target, value) _mm256_stream_si256((__m256i *)(target), (__m256i)(value))
#define PB_STREAM_END() _mm_sfence()
#else
#define PB_CAN_STREAM 0
#define PB_STREAM_VECTOR(target, value) ((void)0)
#define PB_STREAM_END() ((void)0)
#endif

/* The sums of a tile leave registers for the factors. A tile of few rows has more vectors, so that
 * there are enough sums to hide how long an addition takes. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define PB_TILE_ROWS 14
#define PB_TILE_THREE 6 /* up to so many rows there are four vectors, up to half of them eight */
#define PB_TILE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define PB_TILE_ROWS 6
#define PB_TILE_THREE 3
#define PB_TILE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif
/* PB_CASE_OF for a number of rows and each number of vectors. */
#define PB_TILE_CASE(rows) \
    PB_CASE_OF(rows, 1) PB_CASE_OF(rows, 2) PB_CASE_OF(rows, 4) PB_CASE_OF(rows, 8)
#define PB_TILE_VECTORS(rows) ((rows) <= PB_TILE_THREE / 2 ? 8 : (rows) <= PB_TILE_THREE ? 4 : 2)

/* Whether products in tiles keep up with those of a BLAS that is tuned for the processor. */
#if defined(__AVX2__) || (defined(__GNUC__) && defined(__aarch64__))
#define PB_TILES_ARE_WIDE 1
#else
#define PB_TILES_ARE_WIDE 0
#endif

/* Bytes of a row of a that are multiplied at a time: those of a tile have 28 KiB. */
#define PB_DEPTH_BYTES 2048
#define PB_PANEL_SIZE 8192 /* elements of a panel that is copied to the stack */
#define PB_TURNED_SIZE 4096 /* and of results that are made as rows of the transposed product */
#define PB_TURNED_ROWS 32

/* True for few rows and more columns of contiguous elements: there the rows are copied, instead of
 * the columns. */
static inline int pb_is_turned(int64_t m, int64_t n, int64_t k, int64_t a_column, int64_t b_row,
                               int64_t b_column) {
    return a_column == 1 && b_row == 1 && b_column != 1 && m > 1 && m <= PB_TURNED_ROWS &&
           n >= 2 * m && k >= 16;
}

/* One part of a large product: tiles below each other, few enough that threads share parts
 * evenly, and panels beside each other that stay in a cache. */
#define PB_GROUP_TILES 2
#define PB_GROUP_PANELS 8

#define PB_JOIN_(a, b) a##b
#define PB_JOIN(a, b) PB_JOIN_(a, b)
#define PB_OF(name) PB_JOIN(name, PB_SUFFIX)

/* Cut n into as few equal parts of at most `most` as there can be. */
static inline int64_t pb_even_part(int64_t n, int64_t most) {
    int64_t parts = (n + most - 1) / most;
    return parts ? (n + parts - 1) / parts : 1;
}

#define PB_NUMBER float
#define PB_BITS int32_t
#define PB_SUFFIX _f32
#include "gemm/gemm_microkernel.h"
#define PB_NUMBER double
#define PB_BITS int64_t
#define PB_SUFFIX _f64
#include "gemm/gemm_microkernel.h"
#if defined(PB_TILES_OF_INTEGERS)
#define PB_NUMBER int32_t
#define PB_BITS int32_t
#define PB_SUFFIX _i32
#include "gemm/gemm_microkernel.h"
#define PB_NUMBER int64_t
#define PB_BITS int64_t
#define PB_SUFFIX _i64
#include "gemm/gemm_microkernel.h"
#endif

#endif

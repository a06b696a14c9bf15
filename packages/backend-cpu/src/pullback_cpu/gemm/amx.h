/* Products of bfloat16 matrices in the tile registers of AMX.
 *
 * Both factors are copied in strips of 16 rows of a or 16 columns of b. A strip is a chain of
 * tiles of 512 elements, each for 32 values along k; zeros fill what is missing. A line of a tile
 * has 32 values of one row of a, or 16 pairs of values, one pair for each column of b. Blocks of
 * two strips by two are summed in float32 over all of k and rounded once.
 *
 * The processor takes subnormal numbers for zero here, as operands, sums and results.
 *
 * Instructions: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; the
 * permission to use them: Documentation/arch/x86/xstate.rst of Linux. */
#ifndef PULLBACK_CPU_AMX_H
#define PULLBACK_CPU_AMX_H
#include "gemm/gemm_tiles.h"

#define PB_AMX_LINES 16
#define PB_AMX_DEPTH 32
#define PB_AMX_TILE (PB_AMX_LINES * PB_AMX_DEPTH)
#define PB_AMX_TOGETHER 8
#define PB_AMX_GROUP (1 << 18) /* elements of b's copy that stay in a cache beside rows of a */

typedef struct {
    int64_t m, n, k;
    const uint16_t *a;
    int64_t a_row, a_column;
    const uint16_t *b;
    int64_t b_row, b_column;
    uint16_t *c;
    int64_t c_row, c_column;
    uint16_t *rows, *columns; /* the copies */
} pb_amx_product;

static inline int64_t pb_amx_strips(int64_t lines) {
    return (lines + PB_AMX_LINES - 1) / PB_AMX_LINES;
}

/* Return how many elements the copy of a strip has. */
static inline int64_t pb_amx_strip_size(const pb_amx_product *task) {
    return (task->k + PB_AMX_DEPTH - 1) / PB_AMX_DEPTH * PB_AMX_TILE;
}

/* Return how many columns are multiplied with all rows before the next ones. */
static inline int64_t pb_amx_group(const pb_amx_product *task) {
    int64_t pairs = PB_AMX_GROUP / (2 * pb_amx_strip_size(task));
    return (pairs > 1 ? pairs : 1) * 2 * PB_AMX_LINES;
}

/* Parts of a product: two strips of rows by a group of columns. */
static inline int64_t pb_amx_parts(const pb_amx_product *task) {
    int64_t group = pb_amx_group(task);
    return (pb_amx_strips(task->m) + 1) / 2 * ((task->n + group - 1) / group);
}

#if defined(__AVX512BW__) && defined(__x86_64__) && defined(__linux__) && \
    (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PB_AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16")))
#define PB_AMX_ASK 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define PB_AMX_STATE 18   /* XFEATURE_XTILE_DATA */

/* Return whether the processor has the instructions and the system lets this process use them. */
static int pb_amx_is_usable(void) {
    static int known; /* 1: yes, -1: no */
    int is_usable = __atomic_load_n(&known, __ATOMIC_RELAXED);
    unsigned eax, ebx, ecx, edx, most;
    if (is_usable == 0) {
        is_usable = -1;
        /* AMX-BF16 and AMX-TILE, then AVX512_BF16 */
        if (__get_cpuid_count(7, 0, &most, &ebx, &ecx, &edx) && most >= 1 && (edx >> 22 & 1) &&
            (edx >> 24 & 1) && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1) &&
            syscall(SYS_arch_prctl, PB_AMX_ASK, PB_AMX_STATE) == 0)
            is_usable = 1;
        __atomic_store_n(&known, is_usable, __ATOMIC_RELAXED);
    }
    return is_usable > 0;
}

/* Copy up to 16 lines of up to 32 values; neighbours in a line are `step` apart.
 * If `in_pairs` the tile has the lines as columns. */
static void pb_amx_pack_tile(const uint16_t *from, int64_t line, int64_t step, int64_t lines,
                             int64_t depth, int in_pairs, uint16_t *tile) {
    int has_pairs = step != 1 && line == 1;
    if (step == 1) {
        __mmask32 mask = depth < PB_AMX_DEPTH ? (1u << depth) - 1 : ~0u;
        for (int64_t i = 0; i < PB_AMX_LINES; i++)
            _mm512_storeu_si512(tile + i * PB_AMX_DEPTH,
                                i < lines ? _mm512_maskz_loadu_epi16(mask, from + i * line)
                                          : _mm512_setzero_si512());
    } else if (line == 1) {
        __mmask16 mask = (__mmask16)(lines < PB_AMX_LINES ? (1u << lines) - 1 : ~0u);
        for (int64_t i = 0; i < PB_AMX_DEPTH; i += 2, from += 2 * step) {
            __m256i low = _mm256_maskz_loadu_epi16(i < depth ? mask : 0, from);
            __m256i high = _mm256_maskz_loadu_epi16(i + 1 < depth ? mask : 0, from + step);
            _mm512_storeu_si512(
                tile + i * PB_AMX_LINES,
                _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
        }
    } else {
        for (int64_t i = 0; i < PB_AMX_LINES; i++)
            for (int64_t l = 0; l < PB_AMX_DEPTH; l++)
                tile[i * PB_AMX_DEPTH + l] = i < lines && l < depth ? from[i * line + l * step] : 0;
    }
    if (has_pairs != in_pairs)
        pb_transpose_i32((const int32_t *)tile, PB_AMX_LINES, PB_AMX_LINES, (int32_t *)tile,
                         PB_AMX_LINES);
}

/* Copy strips; first those of rows are counted, then those of columns. */
static void pb_amx_pack(void *context, int64_t first, int64_t last) {
    const pb_amx_product *task = (const pb_amx_product *)context;
    int64_t above = pb_amx_strips(task->m), size = pb_amx_strip_size(task), end;
    for (int64_t part = first; part < last; part = end) {
        int in_pairs = part >= above;
        int64_t skipped = in_pairs ? above : 0, lines = in_pairs ? task->n : task->m;
        int64_t line = in_pairs ? task->b_column : task->a_row;
        int64_t step = in_pairs ? task->b_row : task->a_column;
        const uint16_t *source = in_pairs ? task->b : task->a;
        uint16_t *target = in_pairs ? task->columns : task->rows;
        /* Where values of several strips are contiguous, these are copied together. */
        end = part + (line == 1 ? PB_AMX_TOGETHER : 1);
        if (end > last)
            end = last;
        if (!in_pairs && end > above)
            end = above;
        for (int64_t l = 0; l < task->k; l += PB_AMX_DEPTH)
            for (int64_t strip = part - skipped; strip < end - skipped; strip++) {
                int64_t from = strip * PB_AMX_LINES, some = lines - from, depth = task->k - l;
                pb_amx_pack_tile(source + from * line + l * step, line, step,
                                 some < PB_AMX_LINES ? some : PB_AMX_LINES,
                                 depth < PB_AMX_DEPTH ? depth : PB_AMX_DEPTH, in_pairs,
                                 target + strip * size + l * PB_AMX_LINES);
            }
    }
}

/* Multiply strips of rows with strips of columns, one or two of each; a row of the sums has two
 * tiles beside each other. */
PB_AMX static void pb_amx_multiply_strips(const uint16_t *a, int has_second_a, const uint16_t *b,
                                          int has_second_b, int64_t size, float *sums) {
    const int bytes = 64;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t l = 0; l < size; l += PB_AMX_TILE) {
        _tile_loadd(4, a + l, bytes);
        _tile_loadd(6, b + l, bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (has_second_b) {
            _tile_loadd(7, b + size + l, bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (has_second_a) {
            _tile_loadd(5, a + size + l, bytes);
            _tile_dpbf16ps(2, 5, 6);
            if (has_second_b)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 2 * bytes);
    if (has_second_b)
        _tile_stored(1, sums + PB_AMX_LINES, 2 * bytes);
    if (has_second_a) {
        _tile_stored(2, sums + 2 * PB_AMX_LINES * PB_AMX_LINES, 2 * bytes);
        _tile_stored(3, sums + 2 * PB_AMX_LINES * PB_AMX_LINES + PB_AMX_LINES, 2 * bytes);
    }
}

/* Round a row of up to 32 sums. */
PB_AMX static inline void pb_amx_round_row(const float *sums, int64_t count, uint16_t *out,
                                           int64_t step) {
    if (count == 2 * PB_AMX_LINES && step == 1) {
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + PB_AMX_LINES),
                                                              _mm512_loadu_ps(sums)));
        return;
    }
    for (int64_t j = 0; j < count; j += PB_AMX_LINES) {
        int64_t some = count - j < PB_AMX_LINES ? count - j : PB_AMX_LINES;
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(sums + j));
        uint16_t each[PB_AMX_LINES];
        if (step == 1) {
            _mm256_mask_storeu_epi16(
                out + j, (__mmask16)(some < PB_AMX_LINES ? (1u << some) - 1 : ~0u), rounded);
            continue;
        }
        _mm256_storeu_si256((__m256i *)each, rounded);
        for (int64_t i = 0; i < some; i++)
            out[(j + i) * step] = each[i];
    }
}

/* Multiply parts of the copied factors; parts that follow each other have their columns in
 * common. */
PB_AMX static void pb_amx_multiply(void *context, int64_t first, int64_t last) {
    const pb_amx_product *task = (const pb_amx_product *)context;
    int64_t size = pb_amx_strip_size(task), down = (pb_amx_strips(task->m) + 1) / 2;
    int64_t group = pb_amx_group(task);
    struct { /* as LDTILECFG reads it */
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    PB_ALIGNED float sums[4 * PB_AMX_LINES * PB_AMX_LINES];
    for (int t = 0; t < 8; t++) {
        shapes.row_bytes[t] = 2 * PB_AMX_DEPTH;
        shapes.rows[t] = PB_AMX_LINES;
    }
    __asm__ volatile("" : : "r"(&shapes) : "memory"); /* all of it is read, not what GCC believes */
    _tile_loadconfig(&shapes);
    for (int64_t part = first; part < last; part++) {
        int64_t row = part % down * 2 * PB_AMX_LINES, begin = part / down * group;
        int64_t end = begin + group < task->n ? begin + group : task->n;
        int64_t rows = task->m - row;
        if (rows > 2 * PB_AMX_LINES)
            rows = 2 * PB_AMX_LINES;
        for (int64_t q = begin; q < end; q += 2 * PB_AMX_LINES) {
            int64_t columns = end - q < 2 * PB_AMX_LINES ? end - q : 2 * PB_AMX_LINES;
            pb_amx_multiply_strips(task->rows + row / PB_AMX_LINES * size, rows > PB_AMX_LINES,
                                   task->columns + q / PB_AMX_LINES * size, columns > PB_AMX_LINES,
                                   size, sums);
            for (int64_t i = 0; i < rows; i++)
                pb_amx_round_row(sums + i * 2 * PB_AMX_LINES, columns,
                                 task->c + (row + i) * task->c_row + q * task->c_column,
                                 task->c_column);
        }
    }
    _tile_release();
}
#else
static int pb_amx_is_usable(void) { return 0; }
static void pb_amx_pack(void *context, int64_t first, int64_t last) {}
static void pb_amx_multiply(void *context, int64_t first, int64_t last) {}
#endif

#endif

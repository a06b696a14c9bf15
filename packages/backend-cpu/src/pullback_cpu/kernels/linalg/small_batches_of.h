/* For PB_NUMBER, integers PB_BITS of its size, its root PB_ROOT, and PB_SUFFIX; see
 * small_batches.h. Strides count elements: of matrices, rows and columns. */
#define PB_V PB_SMALL_OF(pb_small)
#define PB_M PB_SMALL_OF(pb_small_mask)
#define PB_W ((int64_t)(PB_SMALL_BYTES / sizeof(PB_NUMBER)))

typedef PB_NUMBER PB_V __attribute__((vector_size(PB_SMALL_BYTES)));
typedef PB_BITS PB_M __attribute__((vector_size(PB_SMALL_BYTES)));

static inline int64_t PB_SMALL_OF(pb_small_lanes)(void) { return PB_W; }

static inline PB_V PB_SMALL_OF(pb_pick)(PB_M mask, PB_V a, PB_V b) {
    return (PB_V)((mask & (PB_M)a) | (~mask & (PB_M)b));
}

static inline int PB_SMALL_OF(pb_any)(PB_M mask) {
    uint64_t words[PB_SMALL_BYTES / 8], all = 0;
    memcpy(words, &mask, sizeof(words));
    for (int i = 0; i < PB_SMALL_BYTES / 8; i++)
        all |= words[i];
    return all != 0;
}

/* Read `count` matrices, at most one for each lane; the other lanes get the identity. */
static PB_SMALL_APART void PB_SMALL_OF(pb_small_read)(const PB_NUMBER *a, const int64_t *strides,
                                                      int64_t count, int64_t rows, int64_t columns,
                                                      PB_V *m) {
    PB_NUMBER *to = (PB_NUMBER *)m;
    for (int64_t lane = 0; lane < count; lane++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                to[(i * columns + j) * PB_W + lane] =
                    a[lane * strides[0] + i * strides[1] + j * strides[2]];
    for (int64_t lane = count; lane < PB_W; lane++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                to[(i * columns + j) * PB_W + lane] = i == j;
}

static inline void PB_SMALL_OF(pb_small_write)(const PB_V *m, int64_t count, int64_t rows,
                                               int64_t columns, PB_NUMBER *out,
                                               const int64_t *strides) {
    const PB_NUMBER *from = (const PB_NUMBER *)m;
    for (int64_t lane = 0; lane < count; lane++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                out[lane * strides[0] + i * strides[1] + j * strides[2]] =
                    from[(i * columns + j) * PB_W + lane];
}

/* LU decompositions with partial pivoting: pivots are counted from 1, `zero` is the first pivot
 * that is zero, counted from 1, or 0. The largest element is that which is not a number, if there
 * is one; after a zero pivot the elimination goes on with the next column, as in LAPACK. */
static inline void PB_SMALL_OF(pb_small_lu)(const PB_NUMBER *a, const int64_t *strides,
                                            int64_t count, int64_t rows, int64_t columns,
                                            PB_NUMBER *out, const int64_t *out_strides,
                                            int32_t *pivots, const int64_t *pivot_strides,
                                            int32_t *info, int64_t info_stride) {
    PB_V m[PB_SMALL_ROWS * PB_SMALL_ROWS];
    const PB_M magnitude = (PB_M){0} + (PB_BITS)(((uint64_t)-1 >> (64 - 8 * sizeof(PB_BITS))) >> 1);
    PB_M zero = {0};
    int64_t small = rows < columns ? rows : columns;
    PB_SMALL_OF(pb_small_read)(a, strides, count, rows, columns, m);
    for (int64_t k = 0; k < small; k++) {
        PB_V *top = m + k * columns;
        PB_V largest = (PB_V)((PB_M)top[k] & magnitude), pivot;
        PB_M number = (PB_M){0} + (PB_BITS)k, flat;
        for (int64_t i = k + 1; i < rows; i++) {
            PB_V size = (PB_V)((PB_M)m[i * columns + k] & magnitude);
            PB_M larger =
                (PB_M)(size > largest) | ((PB_M)(size != size) & (PB_M)(largest == largest));
            largest = PB_SMALL_OF(pb_pick)(larger, size, largest);
            number = (larger & ((PB_M){0} + (PB_BITS)i)) | (~larger & number);
        }
        for (int64_t lane = 0; lane < count; lane++)
            pivots[lane * pivot_strides[0] + k * pivot_strides[1]] = (int32_t)number[lane] + 1;
        for (int64_t i = k + 1; i < rows; i++) {
            PB_M chosen = (PB_M)(number == (PB_BITS)i);
            PB_V *row = m + i * columns;
            for (int64_t j = 0; j < columns; j++) {
                PB_M other = ((PB_M)top[j] ^ (PB_M)row[j]) & chosen;
                top[j] = (PB_V)((PB_M)top[j] ^ other);
                row[j] = (PB_V)((PB_M)row[j] ^ other);
            }
        }
        flat = (PB_M)(largest == 0);
        zero |= flat & (PB_M)(zero == 0) & ((PB_M){0} + (PB_BITS)(k + 1));
        pivot = PB_SMALL_OF(pb_pick)(flat, (PB_V){0} + 1, top[k]);
        if (PB_SMALL_OF(pb_any)(flat)) {
            for (int64_t i = k + 1; i < rows; i++) {
                PB_V *row = m + i * columns, factor = row[k] / pivot;
                row[k] = factor;
                for (int64_t j = k + 1; j < columns; j++)
                    row[j] = PB_SMALL_OF(pb_pick)(flat, row[j], row[j] - factor * top[j]);
            }
        } else {
            for (int64_t i = k + 1; i < rows; i++) {
                PB_V *row = m + i * columns, factor = row[k] / pivot;
                row[k] = factor;
                for (int64_t j = k + 1; j < columns; j++)
                    row[j] -= factor * top[j];
            }
        }
    }
    PB_SMALL_OF(pb_small_write)(m, count, rows, columns, out, out_strides);
    for (int64_t lane = 0; lane < count; lane++)
        info[lane * info_stride] = (int32_t)zero[lane];
}

/* Cholesky decompositions of lower triangles. `info` is the order of the first minor that is not
 * positive, where the decomposition stops, or 0. */
static inline void PB_SMALL_OF(pb_small_cholesky)(const PB_NUMBER *a, const int64_t *strides,
                                                  int64_t count, int64_t n, PB_NUMBER *out,
                                                  const int64_t *out_strides, int32_t *info,
                                                  int64_t info_stride) {
    PB_V m[PB_SMALL_ROWS * PB_SMALL_ROWS];
    PB_M failed = {0};
    PB_SMALL_OF(pb_small_read)(a, strides, count, n, n, m);
    for (int64_t k = 0; k < n; k++) {
        PB_V pivot = m[k * n + k], root;
        PB_M goes_on;
        failed |= ~(PB_M)(pivot > 0) & (PB_M)(failed == 0) & ((PB_M){0} + (PB_BITS)(k + 1));
        goes_on = (PB_M)(failed == 0);
        pivot = PB_SMALL_OF(pb_pick)(goes_on, pivot, (PB_V){0} + 1);
        for (int64_t lane = 0; lane < PB_W; lane++)
            root[lane] = PB_ROOT(pivot[lane]);
        m[k * n + k] = PB_SMALL_OF(pb_pick)(goes_on, root, m[k * n + k]);
        for (int64_t i = k + 1; i < n; i++)
            m[i * n + k] = PB_SMALL_OF(pb_pick)(goes_on, m[i * n + k] / root, m[i * n + k]);
        for (int64_t i = k + 1; i < n; i++) {
            PB_V factor = PB_SMALL_OF(pb_pick)(goes_on, m[i * n + k], (PB_V){0});
            for (int64_t j = k + 1; j <= i; j++)
                m[i * n + j] = PB_SMALL_OF(pb_pick)(goes_on, m[i * n + j] - factor * m[j * n + k],
                                                    m[i * n + j]);
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            m[i * n + j] = (PB_V){0};
    PB_SMALL_OF(pb_small_write)(m, count, n, n, out, out_strides);
    for (int64_t lane = 0; lane < count; lane++)
        info[lane * info_stride] = (int32_t)failed[lane];
}

#if PB_HAS_SMALL_ROTATIONS
#include "kernels/linalg/small_rotations_of.h"
#endif

#undef PB_V
#undef PB_M
#undef PB_W
#undef PB_NUMBER
#undef PB_BITS
#undef PB_ROOT
#undef PB_FUSED
#undef PB_SUFFIX

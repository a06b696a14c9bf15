/* The micro-kernel of matrix products for one element type: tiles whose sums stay in vector
 * registers, and copies of the factors in the order in which tiles read them. gemm_tiles.h includes
 * it once for each type, with PB_NUMBER, PB_BITS and PB_SUFFIX set. */

#if defined(PB_VECTOR_BYTES)
typedef PB_NUMBER PB_OF(pb_vector) __attribute__((vector_size(PB_VECTOR_BYTES)));
/* One without alignment. */
typedef PB_NUMBER PB_OF(pb_loose)
    __attribute__((vector_size(PB_VECTOR_BYTES), aligned(sizeof(PB_NUMBER)), may_alias));
typedef PB_BITS PB_OF(pb_order) __attribute__((vector_size(PB_VECTOR_BYTES)));
#else
typedef PB_NUMBER PB_OF(pb_vector);
typedef PB_NUMBER PB_OF(pb_loose);
#endif
#define PB_VECTOR PB_OF(pb_vector)
#define PB_LOOSE PB_OF(pb_loose)
#define PB_SLAB PB_OF(pb_slab)
#define PB_LANES ((int64_t)(sizeof(PB_VECTOR) / sizeof(PB_NUMBER)))
#define PB_IS_FLOAT ((PB_NUMBER)0.5 != 0)

static inline int64_t PB_OF(pb_lanes)(void) { return PB_LANES; }

/* Copy up to PB_LANES elements. */
PB_ALWAYS_INLINE void PB_OF(pb_copy_few)(const PB_NUMBER *from, int64_t count, PB_NUMBER *out) {
    if (count == PB_LANES) {
        *(PB_LOOSE *)out = *(const PB_LOOSE *)from;
        return;
    }
    PB_UNROLL
    for (int64_t some = PB_LANES / 2; some; some /= 2)
        if (count & some) {
            memcpy(out, from, (size_t)some * sizeof(PB_NUMBER));
            from += some;
            out += some;
        }
}

/* ---- one tile ---------------------------------------------------------------------------- */

/* Add the products of a column of a and a row of b. Every third row of a has a pointer: more would
 * need more registers than there are. */
PB_ALWAYS_INLINE void PB_OF(pb_tile_step)(const int rows, const int vectors,
                                          const PB_NUMBER *a[PB_TILE_ROWS / 3 + 1], int64_t a_row,
                                          const PB_NUMBER *b, PB_VECTOR s[PB_TILE_ROWS][8]) {
    PB_VECTOR y[8];
    PB_UNROLL
    for (int j = 0; j < vectors; j++)
        y[j] = *(const PB_LOOSE *)(b + j * PB_LANES);
    PB_UNROLL
    for (int i = 0; i < rows; i++) {
        PB_NUMBER x = a[i / 3][i % 3 * a_row];
        PB_UNROLL
        for (int j = 0; j < vectors; j++)
            s[i][j] += x * y[j];
    }
}

/* c = a @ b for a few rows and vectors of columns; with `adds` it is added to c, or, if that is
 * negative, taken away from it, or, if it is PB_STREAMED, written past the caches into whole lines.
 * Row l of b begins at b + l * b_row, or, if there are offsets, at b + offsets[l]. */
PB_ALWAYS_INLINE void PB_OF(pb_tile_body)(const int rows, const int vectors, int64_t k,
                                          const PB_NUMBER *a, int64_t a_row, int64_t a_column,
                                          const PB_NUMBER *b, int64_t b_row, const int64_t *offsets,
                                          PB_NUMBER *c, int64_t c_row, int adds) {
    const PB_NUMBER *lines[PB_TILE_ROWS / 3 + 1];
    /* The branch at the end of a loop costs as much as one of its thirty multiplications. */
    const int at_once = PB_IS_FLOAT && vectors <= 4 && rows * vectors >= 24 ? 2 : 1;
    PB_VECTOR s[PB_TILE_ROWS][8];
    PB_UNROLL
    for (int i = 0; i < rows; i++) {
        PB_UNROLL
        for (int j = 0; j < vectors; j++)
            s[i][j] = (PB_VECTOR){0};
    }
    if (k >= 64) { /* what the sums go to arrives while they are made */
        PB_UNROLL
        for (int i = 0; i < rows; i++) {
            PB_PREFETCH(c + i * c_row);
            PB_PREFETCH(c + i * c_row + (vectors - 1) * PB_LANES);
        }
    }
    PB_UNROLL
    for (int i = 0; i < rows; i += 3) {
        lines[i / 3] = a + i * a_row;
        if (offsets == NULL)
            PB_HIDE(lines[i / 3]);
    }
    for (; k >= at_once; k -= at_once) {
        PB_UNROLL
        for (int step = 0; step < at_once; step++) {
            PB_OF(pb_tile_step)(rows, vectors, lines, a_row, offsets ? b + *offsets++ : b, s);
            PB_UNROLL
            for (int i = 0; i < rows; i += 3)
                lines[i / 3] += a_column;
            b += b_row;
        }
    }
    if (k > 0)
        PB_OF(pb_tile_step)(rows, vectors, lines, a_row, offsets ? b + *offsets : b, s);
    PB_UNROLL
    for (int i = 0; i < rows; i++) {
        PB_UNROLL
        for (int j = 0; j < vectors; j++) {
            PB_LOOSE *target = (PB_LOOSE *)(c + i * c_row + j * PB_LANES);
            if (PB_CAN_STREAM && adds == PB_STREAMED) {
                PB_STREAM_VECTOR(target, s[i][j]);
                continue;
            }
            if (adds > 0)
                s[i][j] += *target;
            if (adds < 0)
                s[i][j] = *target - s[i][j];
            *target = s[i][j];
        }
    }
}

/* As pb_tile_body; `vectors` is 1, 2, 4 or 8, and at most PB_TILE_VECTORS(rows). */
static void PB_OF(pb_tile)(int64_t rows, int64_t vectors, int64_t k, const PB_NUMBER *a,
                           int64_t a_row, int64_t a_column, const PB_NUMBER *b, int64_t b_row,
                           PB_NUMBER *c, int64_t c_row, int adds) {
#define PB_CASE_OF(rows, vectors) \
    case (rows) * 8 + (vectors) - 1: \
        if ((vectors) <= PB_TILE_VECTORS(rows)) \
            PB_OF(pb_tile_body)(rows, (vectors) <= PB_TILE_VECTORS(rows) ? (vectors) : 1, k, a, \
                                a_row, a_column, b, b_row, NULL, c, c_row, adds); \
        break;
    switch (rows * 8 + vectors - 1) { PB_TILE_CASES(PB_TILE_CASE) }
#undef PB_CASE_OF
}

#if defined(PB_TILES_AT_OFFSETS)
/* The same with a list of offsets, and the elements of a column of a side by side. */
static void PB_OF(pb_tile_at)(int64_t rows, int64_t vectors, int64_t k, const PB_NUMBER *a,
                              const PB_NUMBER *b, const int64_t *offsets, PB_NUMBER *c,
                              int64_t c_row, int adds) {
#define PB_CASE_OF(rows, vectors) \
    case (rows) * 8 + (vectors) - 1: \
        if ((vectors) <= PB_TILE_VECTORS(rows)) \
            PB_OF(pb_tile_body)(rows, (vectors) <= PB_TILE_VECTORS(rows) ? (vectors) : 1, k, a, 1, \
                                rows, b, 0, offsets, c, c_row, adds); \
        break;
    switch (rows * 8 + vectors - 1) { PB_TILE_CASES(PB_TILE_CASE) }
#undef PB_CASE_OF
}

/* out = from + more. What follows the numbers up to the end of a vector is read too. */
static inline void PB_OF(pb_store_line)(const PB_NUMBER *from, int64_t count, PB_NUMBER more,
                                        PB_NUMBER *out) {
    int64_t q = 0;
    for (; q + PB_LANES <= count; q += PB_LANES)
        *(PB_LOOSE *)(out + q) = *(const PB_LOOSE *)(from + q) + more;
    if (q < count) {
        PB_VECTOR last = *(const PB_LOOSE *)(from + q) + more;
#if defined(__GNUC__) && defined(__AVX512F__)
        if (sizeof(PB_NUMBER) == 4)
            _mm512_mask_storeu_epi32(out + q, (__mmask16)((1 << (count - q)) - 1), (__m512i)last);
        else
            _mm512_mask_storeu_epi64(out + q, (__mmask8)((1 << (count - q)) - 1), (__m512i)last);
#else
        PB_OF(pb_copy_few)((const PB_NUMBER *)&last, count - q, out + q);
#endif
    }
}

/* Add to eight sums the products of lines with the elements at eight offsets. */
static void PB_OF(pb_dots_at)(int64_t lines, int64_t n, const PB_NUMBER *a, int64_t a_line,
                              const PB_NUMBER *b, int64_t b_line, const int64_t *offsets,
                              PB_NUMBER *sums) {
    PB_VECTOR s[8];
    PB_UNROLL
    for (int t = 0; t < 8; t++)
        s[t] = (PB_VECTOR){0};
    for (int64_t line = 0; line < lines; line++, a += a_line, b += b_line) {
        int64_t q = 0;
        for (; q + PB_LANES <= n; q += PB_LANES) {
            PB_VECTOR x = *(const PB_LOOSE *)(a + q);
            PB_UNROLL
            for (int t = 0; t < 8; t++)
                s[t] += x * *(const PB_LOOSE *)(b + offsets[t] + q);
        }
        if (q < n) {
            PB_VECTOR x = {0}, y = {0};
            PB_OF(pb_copy_few)(a + q, n - q, (PB_NUMBER *)&x);
            for (int t = 0; t < 8; t++) {
                PB_OF(pb_copy_few)(b + offsets[t] + q, n - q, (PB_NUMBER *)&y);
                s[t] += x * y;
            }
        }
    }
    for (int t = 0; t < 8; t++) {
        PB_NUMBER parts[PB_LANES];
        memcpy(parts, &s[t], sizeof(parts));
        for (int64_t half = PB_LANES / 2; half; half /= 2)
            for (int64_t i = 0; i < half; i++)
                parts[i] += parts[i + half];
        sums[t] += parts[0];
    }
}
#endif

/* ---- copies in the order in which tiles read ---------------------------------------------- */

/* Read PB_LANES lines of so many elements and write them as columns, `step` apart. What follows a
 * short column is written too: it has PB_LANES elements. */
PB_ALWAYS_INLINE void PB_OF(pb_transpose)(const PB_NUMBER *lines, int64_t line, int64_t count,
                                          PB_NUMBER *out, int64_t step) {
#if defined(PB_VECTOR_BYTES) && !defined(__clang__)
    PB_VECTOR x[PB_LANES], y[PB_LANES];
    PB_OF(pb_order) low, high;
    for (int i = 0; i < PB_LANES; i++) {
        x[i] = (PB_VECTOR){0};
        if (i < count)
            x[i] = *(const PB_LOOSE *)(lines + i * line);
        low[i] = i / 2 + i % 2 * PB_LANES;
        high[i] = low[i] + PB_LANES / 2;
    }
    /* Interleaving line i with line i + n / 2 moves a bit of the column's number to the line's. */
    PB_UNROLL
    for (int bit = 1; bit < PB_LANES; bit *= 2) {
        PB_UNROLL
        for (int i = 0; i < PB_LANES / 2; i++) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + PB_LANES / 2], low);
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + PB_LANES / 2], high);
        }
        PB_UNROLL
        for (int i = 0; i < PB_LANES; i++)
            x[i] = y[i];
    }
    PB_UNROLL
    for (int i = 0; i < PB_LANES; i++)
        *(PB_LOOSE *)(out + i * step) = x[i];
#else
    for (int64_t i = 0; i < PB_LANES; i++)
        for (int64_t j = 0; j < PB_LANES; j++)
            out[i * step + j] = j < count ? lines[j * line + i] : 0;
#endif
}

/* Write rows as columns, `step` apart. */
static inline void PB_OF(pb_turn)(const PB_NUMBER *from, int64_t row, int64_t rows, int64_t columns,
                                  PB_NUMBER *to, int64_t step) {
    for (int64_t i = 0; i < rows; i += PB_LANES) {
        int64_t count = rows - i < PB_LANES ? rows - i : PB_LANES, l = 0;
        if (count == PB_LANES)
            for (; l + PB_LANES <= columns; l += PB_LANES)
                PB_OF(pb_transpose)(from + i * row + l, row, count, to + l * step + i, step);
        for (; l < columns; l++)
            for (int64_t q = i; q < i + count; q++)
                to[l * step + q] = from[q * row + l];
    }
}

/* Copy `width` columns of k rows side by side, and zeros up to `step` columns, a multiple of
 * PB_LANES. */
static void PB_OF(pb_pack_panel)(const PB_NUMBER *b, int64_t b_row, int64_t b_column, int64_t k,
                                 int64_t width, PB_NUMBER *panel, int64_t step) {
    if (b_column == 1 && width == 2 * PB_LANES && step == width) {
        for (int64_t l = 0; l < k; l++, b += b_row, panel += step) {
            *(PB_LOOSE *)panel = *(const PB_LOOSE *)b;
            *(PB_LOOSE *)(panel + PB_LANES) = *(const PB_LOOSE *)(b + PB_LANES);
        }
        return;
    }
    if (b_column == 1) {
        for (int64_t l = 0; l < k; l++) {
            const PB_NUMBER *line = b + l * b_row;
            PB_NUMBER *out = panel + l * step;
            int64_t q = 0;
            for (; q + PB_LANES <= width; q += PB_LANES)
                *(PB_LOOSE *)(out + q) = *(const PB_LOOSE *)(line + q);
            if (q < step) {
                *(PB_LOOSE *)(out + q) = (PB_VECTOR){0};
                PB_OF(pb_copy_few)(line + q, width - q, out + q);
            }
        }
        return;
    }
    for (int64_t q = 0; q < step; q += PB_LANES) {
        int64_t l = 0, count = width - q < PB_LANES ? width - q : PB_LANES;
        if (b_row == 1)
            for (; l + PB_LANES <= k; l += PB_LANES)
                PB_OF(pb_transpose)(b + q * b_column + l, b_column, count, panel + l * step + q,
                                    step);
        for (; l < k; l++)
            for (int64_t i = 0; i < PB_LANES; i++)
                panel[l * step + q + i] = i < count ? b[l * b_row + (q + i) * b_column] : 0;
    }
}

/* Copy rows of k columns so that those of a column are contiguous. The copy may run over its end
 * by PB_LANES elements. */
static void PB_OF(pb_pack_rows)(const PB_NUMBER *a, int64_t a_row, int64_t a_column, int64_t rows,
                                int64_t k, PB_NUMBER *packed) {
    /* The last rows first: what they write too much belongs to the first ones. */
    for (int64_t i = (rows - 1) / PB_LANES * PB_LANES; i >= 0; i -= PB_LANES) {
        int64_t l = 0, count = rows - i < PB_LANES ? rows - i : PB_LANES;
        if (a_column == 1)
            for (; l + PB_LANES <= k; l += PB_LANES)
                PB_OF(pb_transpose)(a + i * a_row + l, a_row, count, packed + l * rows + i, rows);
        if (a_row == 1)
            for (; l < k; l++)
                PB_OF(pb_copy_few)(a + i + l * a_column, count, packed + l * rows + i);
        for (; l < k; l++)
            for (int64_t q = 0; q < count; q++)
                packed[l * rows + i + q] = a[(i + q) * a_row + l * a_column];
    }
}

/* ---- products ----------------------------------------------------------------------------- */

/* Multiply rows, in blocks that are alike and `a_block` apart, with a panel of `width` columns and
 * whole vectors. In `packed` blocks columns follow each other, each with as many elements
 * as there are rows. */
static void PB_OF(pb_multiply_panel)(int64_t m, int64_t k, const PB_NUMBER *a, int64_t a_row,
                                     int64_t a_column, int64_t block, int64_t a_block, int packed,
                                     const PB_NUMBER *b, int64_t b_row, int64_t width, PB_NUMBER *c,
                                     int64_t c_row, int adds) {
    for (int64_t first = 0; first < m; first += block, a += a_block) {
        int64_t rows = m - first < block ? m - first : block, q = 0;
        int64_t a_step = packed ? rows : a_column;
        int64_t vectors = PB_TILE_VECTORS(rows);
        for (; q + PB_LANES <= width; q += vectors * PB_LANES) {
            while (vectors * PB_LANES > width - q)
                vectors /= 2;
            PB_OF(pb_tile)(rows, vectors, k, a, a_row, a_step, b + q, b_row, c + first * c_row + q,
                           c_row, adds);
        }
        if (q < width) {
            PB_ALIGNED PB_NUMBER some[PB_TILE_ROWS * PB_LANES];
            PB_OF(pb_tile)(rows, 1, k, a, a_row, a_step, b + q, b_row, some, PB_LANES, 0);
            for (int64_t i = 0; i < rows; i++) {
                PB_NUMBER *target = c + (first + i) * c_row + q;
                if (adds == 1 || adds == -1)
                    for (int64_t j = 0; j < width - q; j++)
                        some[i * PB_LANES + j] =
                            target[j] + (adds > 0 ? 1 : -1) * some[i * PB_LANES + j];
                PB_OF(pb_copy_few)(some + i * PB_LANES, width - q, target);
            }
        }
    }
}

/* The same for a small b, of which all columns are there, `b_panel` apart from one panel to the
 * next: rows of c are finished one after the other. */
static void PB_OF(pb_multiply_rows)(int64_t m, int64_t n, int64_t k, const PB_NUMBER *a,
                                    int64_t a_row, int64_t a_column, const PB_NUMBER *b,
                                    int64_t b_row, int64_t b_panel, PB_NUMBER *c, int64_t c_row,
                                    int adds) {
    int64_t block = pb_even_part(m, PB_TILE_ROWS), most = PB_TILE_VECTORS(block) * PB_LANES;
    for (int64_t i = 0; i < m; i += block)
        for (int64_t q = 0, l = 0; q < n; q += most, l += b_panel) {
            int64_t width = n - q < most ? n - q : most;
            PB_OF(pb_multiply_panel)(m - i < block ? m - i : block, k, a + i * a_row, a_row,
                                     a_column, block, 0, 0, b + l, b_row, width, c + i * c_row + q,
                                     c_row, adds);
        }
    if (adds == PB_STREAMED)
        PB_STREAM_END();
}

/* c = a @ b for a few contiguous rows of a, and more columns of b, which are contiguous, too: the
 * rows of the transposed product are made, for which only a is copied, and written as columns of c.
 * Sums have the parts that pb_multiply gives them. */
static void PB_OF(pb_multiply_turned)(int64_t m, int64_t n, int64_t k, int64_t depth,
                                      const PB_NUMBER *a, int64_t a_row, const PB_NUMBER *b,
                                      int64_t b_column, PB_NUMBER *c, int64_t c_row) {
    PB_ALIGNED PB_NUMBER panel[PB_PANEL_SIZE], turned[PB_TURNED_SIZE];
    int64_t step = (m + PB_LANES - 1) / PB_LANES * PB_LANES;
    int64_t most = pb_even_part(n, PB_TURNED_SIZE / step);
    for (int64_t first = 0, count; first < n; first += count) {
        count = n - first < most ? n - first : most;
        int64_t block = pb_even_part(count, PB_TILE_ROWS);
        for (int64_t l = 0; l < k; l += depth) {
            int64_t some = k - l < depth ? k - l : depth;
            for (int64_t q = 0, width; q < step; q += width) {
                width = step - q < 2 * PB_LANES ? step - q : 2 * PB_LANES;
                PB_OF(pb_pack_panel)(a + q * a_row + l, 1, a_row, some,
                                     m - q < width ? m - q : width, panel, width);
                PB_OF(pb_multiply_panel)(count, some, b + first * b_column + l, b_column, 1, block,
                                         block * b_column, 0, panel, width, width, turned + q, step,
                                         l > 0);
            }
        }
        PB_OF(pb_turn)(turned, step, count, m, c + first, c_row);
    }
}

/* The same for any size, where a is read in place and c has rows of contiguous elements. A few rows
 * read b in place too, except columns that do not fill a vector; more rows if b stays in the cache
 * and its rows begin like vectors. Only results of a small b are streamed. */
static void PB_OF(pb_multiply)(int64_t m, int64_t n, int64_t k, const PB_NUMBER *a, int64_t a_row,
                               int64_t a_column, const PB_NUMBER *b, int64_t b_row,
                               int64_t b_column, PB_NUMBER *c, int64_t c_row, int adds) {
    PB_ALIGNED PB_NUMBER panel[PB_PANEL_SIZE];
    int64_t block = pb_even_part(m, PB_TILE_ROWS), most = PB_TILE_VECTORS(block) * PB_LANES;
    int in_place =
        b_column == 1 && (m <= PB_TILE_ROWS || (k * b_row <= PB_PANEL_SIZE &&
                                                (m <= 2 * PB_TILE_ROWS || b_row % PB_LANES == 0)));
    int64_t depth = pb_even_part(k, PB_PANEL_SIZE / (in_place ? PB_LANES : most));
    if (pb_is_turned(m, n, k, a_column, b_row, b_column) && (adds == 0 || adds == PB_STREAMED)) {
        PB_OF(pb_multiply_turned)(m, n, k, depth, a, a_row, b, b_column, c, c_row);
        return;
    }
    if (n > most && (n + most - 1) / most * most <= PB_PANEL_SIZE / k &&
        (!in_place || n % PB_LANES == 0)) {
        if (in_place) {
            PB_OF(pb_multiply_rows)(m, n, k, a, a_row, a_column, b, b_row, most, c, c_row, adds);
            return;
        }
        for (int64_t q = 0; q < n; q += most)
            PB_OF(pb_pack_panel)(b + q * b_column, b_row, b_column, k, n - q < most ? n - q : most,
                                 panel + q * k, most);
        PB_OF(pb_multiply_rows)(m, n, k, a, a_row, a_column, panel, most, most * k, c, c_row, adds);
        return;
    }
    if (adds == PB_STREAMED)
        adds = 0;
    for (int64_t l = 0; l < k; l += depth) {
        int64_t some = k - l < depth ? k - l : depth;
        for (int64_t q = 0, width; q < n; q += width) {
            const PB_NUMBER *from = b + l * b_row + q * b_column;
            int64_t from_row = b_row;
            width = n - q < most ? n - q : most;
            if (in_place && width > PB_LANES)
                width -= width % PB_LANES;
            if (!in_place || width < PB_LANES) {
                from_row = (width + PB_LANES - 1) / PB_LANES * PB_LANES;
                PB_OF(pb_pack_panel)(from, b_row, b_column, some, width, panel, from_row);
                from = panel;
            }
            PB_OF(pb_multiply_panel)(m, some, a + l * a_column, a_row, a_column, block,
                                     block * a_row, 0, from, from_row, width, c + q, c_row,
                                     adds ? adds : l > 0);
        }
    }
}

/* ---- large products: factors are copied, a slab of a few columns of a at a time ----------- */

typedef struct {
    int64_t m, n, k;
    const PB_NUMBER *a;
    int64_t a_row, a_column;
    const PB_NUMBER *b;
    int64_t b_row, b_column;
    PB_NUMBER *c;
    int64_t c_row;
    int adds;
    int64_t block, blocks; /* rows of a tile, and how many tiles there are below each other */
    PB_NUMBER *rows;       /* copy of a, tile by tile, or NULL where a is read in place */
    PB_NUMBER *panels;     /* copy of b, two vectors of columns after the other */
} PB_SLAB;

/* Return how many panels there are. */
static inline int64_t PB_OF(pb_panels)(const PB_SLAB *slab) {
    return (slab->n + 2 * PB_LANES - 1) / (2 * PB_LANES);
}

/* Copy parts of the factors: first panels are counted, then the tiles of a. */
static void PB_OF(pb_pack_slab)(void *context, int64_t first, int64_t last) {
    PB_SLAB *slab = (PB_SLAB *)context;
    int64_t panels = PB_OF(pb_panels)(slab), part = first;
    /* A few rows of several panels, then the next rows: each row has its own pages. */
    int64_t some = slab->b_column == 1 ? PB_LANES : slab->k;
    while (part < last && part < panels) {
        int64_t begin = part * 2 * PB_LANES, end;
        part = part + PB_GROUP_PANELS < last ? part + PB_GROUP_PANELS : last;
        end = part * 2 * PB_LANES < slab->n ? part * 2 * PB_LANES : slab->n;
        for (int64_t l = 0; l < slab->k; l += some)
            for (int64_t q = begin; q < end; q += 2 * PB_LANES)
                PB_OF(pb_pack_panel)(slab->b + l * slab->b_row + q * slab->b_column, slab->b_row,
                                     slab->b_column, slab->k - l < some ? slab->k - l : some,
                                     end - q < 2 * PB_LANES ? end - q : 2 * PB_LANES,
                                     slab->panels + q * slab->k + l * 2 * PB_LANES, 2 * PB_LANES);
        if (part > panels)
            part = panels;
    }
    for (; part < last; part++) {
        int64_t tile = part - panels, row = tile * slab->block;
        int64_t rows = slab->m - row < slab->block ? slab->m - row : slab->block;
        PB_OF(pb_pack_rows)(slab->a + row * slab->a_row, slab->a_row, slab->a_column, rows, slab->k,
                            slab->rows + row * slab->k + tile * PB_LANES);
    }
}

static inline int64_t PB_OF(pb_tile_groups)(const PB_SLAB *slab) {
    return (slab->blocks + PB_GROUP_TILES - 1) / PB_GROUP_TILES;
}

static inline int64_t PB_OF(pb_slab_parts)(const PB_SLAB *slab) {
    int64_t across = (PB_OF(pb_panels)(slab) + PB_GROUP_PANELS - 1) / PB_GROUP_PANELS;
    return PB_OF(pb_tile_groups)(slab) * across;
}

/* Multiply parts of the factors; parts that follow each other have their panels in common. */
static void PB_OF(pb_multiply_slab)(void *context, int64_t first, int64_t last) {
    PB_SLAB *slab = (PB_SLAB *)context;
    int64_t down = PB_OF(pb_tile_groups)(slab), width = PB_GROUP_PANELS * 2 * PB_LANES;
    for (int64_t part = first; part < last; part++) {
        int64_t tile = part % down * PB_GROUP_TILES, row = tile * slab->block;
        int64_t m = slab->m - row, begin = part / down * width, end = begin + width;
        if (m > PB_GROUP_TILES * slab->block)
            m = PB_GROUP_TILES * slab->block;
        if (end > slab->n)
            end = slab->n;
        /* Panels beside each other have rows of a and pages of c in common. */
        for (int64_t first = 0; first < m; first += slab->block, tile++) {
            int packed = slab->rows != NULL;
            const PB_NUMBER *a = packed ? slab->rows + (row + first) * slab->k + tile * PB_LANES
                                        : slab->a + (row + first) * slab->a_row;
            for (int64_t q = begin; q < end; q += 2 * PB_LANES)
                PB_OF(pb_multiply_panel)(m - first < slab->block ? m - first : slab->block, slab->k,
                                         a, packed ? 1 : slab->a_row, slab->a_column, slab->block,
                                         0, packed, slab->panels + q * slab->k, 2 * PB_LANES,
                                         end - q < 2 * PB_LANES ? end - q : 2 * PB_LANES,
                                         slab->c + (row + first) * slab->c_row + q, slab->c_row,
                                         slab->adds);
        }
    }
}

#undef PB_VECTOR
#undef PB_LOOSE
#undef PB_SLAB
#undef PB_LANES
#undef PB_IS_FLOAT
#undef PB_NUMBER
#undef PB_BITS
#undef PB_SUFFIX

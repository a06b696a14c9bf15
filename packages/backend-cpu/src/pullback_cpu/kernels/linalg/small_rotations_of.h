/* Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations: for the types of
 * small_batches_of.h, which includes this.
 *
 * The rotations of disjoint pairs of rows are computed together. A lane that has nothing to turn
 * gets the identity: no matrix depends on its neighbours, but for signs of zeros, which are
 * cleared. Matrices with elements that are not finite, whose largest element is subnormal or close
 * to overflow, or that need too many sweeps, have -1 as their info: they are left to LAPACK.
 *
 * Sources: G. Golub and C. Van Loan, "Matrix computations", 4th edition, sections 8.5 and 8.6.3;
 * M. Hestenes, "Inversion of matrices by biorthogonalization and related results", 1958. */
#define PB_PAIRS (PB_SMALL_ROWS / 2)
#define PB_SWEEPS 30
#define PB_DIGITS (sizeof(PB_NUMBER) == 4 ? 23 : 52) /* after the point */
#define PB_ONE ((PB_BITS)(sizeof(PB_NUMBER) == 4 ? 127 : 1023) << PB_DIGITS)
#define PB_EPSILON (sizeof(PB_NUMBER) == 4 ? (PB_NUMBER)0x1p-23 : (PB_NUMBER)0x1p-52)

static inline PB_V PB_SMALL_OF(pb_small_root)(PB_V x) {
    for (int64_t lane = 0; lane < PB_W; lane++)
        x[lane] = PB_ROOT(x[lane]);
    return x;
}

static inline PB_V PB_SMALL_OF(pb_small_size)(PB_V x) {
    return (PB_V)((PB_M)x & ~((PB_M){0} + (PB_BITS)((uint64_t)1 << (8 * sizeof(PB_BITS) - 1))));
}

/* The power of two that is not above x, and its inverse; both are 1 for 0 and for lanes that are
 * found lost, as the power or its inverse is no normal number. */
static inline PB_V PB_SMALL_OF(pb_small_power)(PB_V x, PB_M *lost, PB_V *inverse) {
    PB_M bits = (PB_M)x & ((PB_M){0} + (PB_ONE * 2 + ((PB_BITS)1 << PB_DIGITS)));
    PB_M normal = (PB_M)(bits > 0) & (PB_M)(bits < PB_ONE * 2);
    *lost |= ~normal & (PB_M)(x != 0);
    bits = (normal & bits) | (~normal & ((PB_M){0} + PB_ONE));
    *inverse = (PB_V)(PB_ONE * 2 - bits);
    return (PB_V)bits;
}

/* Divide matrices by a power of two that brings their largest element close to 1, and return it;
 * that of the lower triangle alone, if no other is used. */
static PB_SMALL_APART PB_V PB_SMALL_OF(pb_small_scale)(PB_V *m, int64_t rows, int64_t columns,
                                                       int lower, PB_M *lost) {
    PB_V largest = {0}, nothing = {0}, power, inverse;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            PB_V x = m[i * columns + j], size = PB_SMALL_OF(pb_small_size)(x);
            nothing += x - x;
            if (!lower || j <= i)
                largest = PB_SMALL_OF(pb_pick)((PB_M)(size > largest), size, largest);
        }
    *lost = (PB_M)(nothing != 0);
    power = PB_SMALL_OF(pb_small_power)(largest, lost, &inverse);
    for (int64_t i = 0; i < rows * columns; i++)
        m[i] *= inverse;
    return power;
}

static inline PB_V PB_SMALL_OF(pb_small_fused)(PB_V x, PB_V y, PB_V sum) {
    for (int64_t lane = 0; lane < PB_W; lane++)
        sum[lane] = PB_FUSED(x[lane], y[lane], sum[lane]);
    return sum;
}

/* The rotation that makes [[p, off], [off, q]] diagonal, by at most an eighth of a turn: returns
 * its tangent, and gives its sine and what its cosine lacks of 1, which is exact for small turns. */
static inline PB_V PB_SMALL_OF(pb_small_angle)(PB_V p, PB_V off, PB_V q, PB_M turns, PB_V *lack,
                                               PB_V *sine) {
    PB_V one = (PB_V){0} + 1, gap = q - p, twice = off + off, t, inverse;
    PB_V size = PB_SMALL_OF(pb_small_size)(gap);
    t = twice / (size + PB_SMALL_OF(pb_small_root)(gap * gap + twice * twice));
    t = (PB_V)(turns & (PB_M)PB_SMALL_OF(pb_pick)((PB_M)(gap < 0), -t, t));
    size = PB_SMALL_OF(pb_small_root)(PB_SMALL_OF(pb_small_fused)(t, t, one));
    inverse = t / (size * (size + one));
    *lack = t * inverse;
    *sine = inverse + inverse * size;
    return t;
}

static inline void PB_SMALL_OF(pb_small_turn)(PB_V *x, PB_V *y, int64_t count, PB_V lack,
                                              PB_V sine) {
    for (int64_t i = 0; i < count; i++) {
        PB_V u = x[i], v = y[i];
        x[i] = u - PB_SMALL_OF(pb_small_fused)(lack, u, sine * v);
        y[i] = v + PB_SMALL_OF(pb_small_fused)(sine, u, -(lack * v));
    }
}

/* The order of a lane's keys, the least first. */
static PB_SMALL_APART void PB_SMALL_OF(pb_small_sort)(const PB_V *keys, int64_t lane, int64_t count,
                                                      int64_t *order) {
    for (int64_t i = 0; i < count; i++) {
        int64_t j = i;
        for (; j > 0 && keys[i][lane] < keys[order[j - 1]][lane]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
}

/* Eigenvalues of symmetric matrices in ascending order, by their lower triangles; and eigenvectors,
 * unless `vectors` is NULL. */
static inline void PB_SMALL_OF(pb_small_eigh)(const PB_NUMBER *a, const int64_t *strides,
                                              int64_t count, int64_t n, PB_NUMBER *values,
                                              const int64_t *value_strides, PB_NUMBER *vectors,
                                              const int64_t *vector_strides, int32_t *info,
                                              int64_t info_stride) {
    PB_V m[PB_SMALL_ROWS * PB_SMALL_ROWS], v[PB_SMALL_ROWS * PB_SMALL_ROWS];
    PB_V lack[PB_PAIRS], sine[PB_PAIRS], diagonal[PB_SMALL_ROWS], power, least;
    PB_M turns[PB_PAIRS], lost, turned = {0};
    int64_t pairs[PB_PAIRS][2], order[PB_SMALL_ROWS], even = n + n % 2;
    PB_SMALL_OF(pb_small_read)(a, strides, count, n, n, v);
    power = PB_SMALL_OF(pb_small_scale)(v, n, n, 1, &lost);
    for (int64_t i = 0; i < even; i++)
        for (int64_t j = 0; j <= i; j++)
            m[i * even + j] = m[j * even + i] = i < n ? v[i * n + j] : (PB_V){0};
    for (int64_t i = 0; i < even * even; i++)
        v[i] = (PB_V){0} + (PB_NUMBER)(i % (even + 1) == 0);
    least = (PB_V){0} + PB_EPSILON / 16;
    for (int sweep = 0; sweep < PB_SWEEPS; sweep++) {
        turned = (PB_M){0};
        for (int64_t round = 0; round < even - 1; round++) {
            PB_M any = {0};
            pb_small_meet(even, round, pairs);
            for (int64_t k = 0; k < even / 2; k++) {
                PB_V off = m[pairs[k][0] * even + pairs[k][1]];
                turns[k] = (PB_M)(PB_SMALL_OF(pb_small_size)(off) > least);
                any |= turns[k];
            }
            if (!PB_SMALL_OF(pb_any)(any))
                continue;
            turned |= any;
            for (int64_t k = 0; k < even / 2; k++) {
                int64_t p = pairs[k][0], q = pairs[k][1];
                PB_V off = m[p * even + q], moved;
                moved = off * PB_SMALL_OF(pb_small_angle)(m[p * even + p], off, m[q * even + q],
                                                          turns[k], lack + k, sine + k);
                m[p * even + p] -= moved;
                m[q * even + q] += moved;
                m[p * even + q] = m[q * even + p] = (PB_V)(~turns[k] & (PB_M)off);
                if (vectors)
                    PB_SMALL_OF(pb_small_turn)(v + p * even, v + q * even, n, lack[k], sine[k]);
            }
            for (int64_t k = 1; k < even / 2; k++)
                for (int64_t l = 0; l < k; l++) {
                    int64_t p = pairs[k][0], q = pairs[k][1], f = pairs[l][0], g = pairs[l][1];
                    PB_V pf = m[p * even + f], pg = m[p * even + g];
                    PB_V qf = m[q * even + f], qg = m[q * even + g];
                    PB_SMALL_OF(pb_small_turn)(&pf, &qf, 1, lack[k], sine[k]);
                    PB_SMALL_OF(pb_small_turn)(&pg, &qg, 1, lack[k], sine[k]);
                    PB_SMALL_OF(pb_small_turn)(&pf, &pg, 1, lack[l], sine[l]);
                    PB_SMALL_OF(pb_small_turn)(&qf, &qg, 1, lack[l], sine[l]);
                    m[p * even + f] = m[f * even + p] = pf;
                    m[p * even + g] = m[g * even + p] = pg;
                    m[q * even + f] = m[f * even + q] = qf;
                    m[q * even + g] = m[g * even + q] = qg;
                }
        }
        if (!PB_SMALL_OF(pb_any)(turned))
            break;
    }
    lost |= turned;
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = m[i * even + i] * power + 0;
    for (int64_t lane = 0; lane < count; lane++) {
        PB_SMALL_OF(pb_small_sort)(diagonal, lane, n, order);
        for (int64_t j = 0; j < n; j++) {
            values[lane * value_strides[0] + j * value_strides[1]] = diagonal[order[j]][lane];
            for (int64_t i = 0; vectors && i < n; i++)
                vectors[lane * vector_strides[0] + i * vector_strides[1] + j * vector_strides[2]] =
                    v[order[j] * even + i][lane] + 0;
        }
        info[lane * info_stride] = -(lost[lane] != 0);
    }
}

static inline PB_V PB_SMALL_OF(pb_small_dot)(const PB_V *x, const PB_V *y, int64_t count) {
    PB_V sum = {0};
    for (int64_t i = 0; i < count; i++)
        sum = PB_SMALL_OF(pb_small_fused)(x[i], y[i], sum);
    return sum;
}

/* Singular values in descending order: lengths of rows that have been turned until they are
 * orthogonal; of columns, where there are fewer. */
static inline void PB_SMALL_OF(pb_small_svdvals)(const PB_NUMBER *a, const int64_t *strides,
                                                 int64_t count, int64_t rows, int64_t columns,
                                                 PB_NUMBER *values, const int64_t *value_strides,
                                                 int32_t *info, int64_t info_stride) {
    PB_V m[PB_SMALL_ROWS * PB_SMALL_ROWS], squares[PB_SMALL_ROWS], gaps[PB_PAIRS], power, least;
    PB_M turns[PB_PAIRS], lost, turned = {0};
    int64_t pairs[PB_PAIRS][2], order[PB_SMALL_ROWS], few = rows, many = columns, even;
    int64_t turned_strides[3] = {strides[0], strides[1], strides[2]};
    if (rows > columns) {
        few = columns, many = rows;
        turned_strides[1] = strides[2], turned_strides[2] = strides[1];
    }
    PB_SMALL_OF(pb_small_read)(a, turned_strides, count, few, many, m);
    power = PB_SMALL_OF(pb_small_scale)(m, few, many, 0, &lost);
    even = few + few % 2;
    for (int64_t i = few * many; i < even * many; i++)
        m[i] = (PB_V){0};
    for (int sweep = 0; sweep < PB_SWEEPS; sweep++) {
        turned = (PB_M){0};
        least = (PB_V){0};
        for (int64_t i = 0; i < even; i++) {
            squares[i] = PB_SMALL_OF(pb_small_dot)(m + i * many, m + i * many, many);
            least = PB_SMALL_OF(pb_pick)((PB_M)(squares[i] > least), squares[i], least);
        }
        least *= PB_EPSILON * PB_EPSILON;
        for (int64_t round = 0; round < even - 1; round++) {
            PB_M any = {0};
            pb_small_meet(even, round, pairs);
            for (int64_t k = 0; k < even / 2; k++) {
                int64_t p = pairs[k][0], q = pairs[k][1];
                PB_V gap = PB_SMALL_OF(pb_small_dot)(m + p * many, m + q * many, many);
                PB_V larger =
                    PB_SMALL_OF(pb_pick)((PB_M)(squares[p] > squares[q]), squares[p], squares[q]);
                gaps[k] = gap;
                turns[k] = (PB_M)(gap * gap > PB_SMALL_OF(pb_small_size)(larger * least));
                any |= turns[k];
            }
            if (!PB_SMALL_OF(pb_any)(any))
                continue;
            turned |= any;
            for (int64_t k = 0; k < even / 2; k++) {
                int64_t p = pairs[k][0], q = pairs[k][1];
                PB_V lack, sine, moved;
                moved = gaps[k] * PB_SMALL_OF(pb_small_angle)(squares[p], gaps[k], squares[q],
                                                              turns[k], &lack, &sine);
                squares[p] -= moved;
                squares[q] += moved;
                PB_SMALL_OF(pb_small_turn)(m + p * many, m + q * many, many, lack, sine);
            }
        }
        if (!PB_SMALL_OF(pb_any)(turned))
            break;
    }
    lost |= turned;
    for (int64_t i = 0; i < few; i++) { /* the squares of a short row may have no place */
        PB_M none = {0};
        PB_V largest = {0}, inverse, own;
        for (int64_t j = 0; j < many; j++) {
            PB_V size = PB_SMALL_OF(pb_small_size)(m[i * many + j]);
            largest = PB_SMALL_OF(pb_pick)((PB_M)(size > largest), size, largest);
        }
        own = PB_SMALL_OF(pb_small_power)(largest, &none, &inverse);
        for (int64_t j = 0; j < many; j++)
            m[i * many + j] *= inverse;
        squares[i] = PB_SMALL_OF(pb_small_dot)(m + i * many, m + i * many, many);
        squares[i] = PB_SMALL_OF(pb_small_root)(squares[i]) * own * power;
    }
    for (int64_t lane = 0; lane < count; lane++) {
        PB_SMALL_OF(pb_small_sort)(squares, lane, few, order);
        for (int64_t j = 0; j < few; j++)
            values[lane * value_strides[0] + j * value_strides[1]] =
                squares[order[few - 1 - j]][lane];
        info[lane * info_stride] = -(lost[lane] != 0);
    }
}

#undef PB_PAIRS
#undef PB_SWEEPS
#undef PB_DIGITS
#undef PB_ONE
#undef PB_EPSILON

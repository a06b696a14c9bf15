/* Sorting pairs of a key and an index by merging, and finding those of least keys.
 *
 * Long loops poll `stopping`. If the call shall end, the pairs are left in some
 * order; what is returned holds pairs of the same line all the same. */
#ifndef PULLBACK_CPU_PAIRS_H
#define PULLBACK_CPU_PAIRS_H
#include <stdint.h>
#include <string.h>

#define PB_PAIRS_SHORT 16       /* are sorted by insertion */
#define PB_PAIRS_SPAN (1 << 18) /* between two polls for an interrupt */

typedef struct {
    uint64_t key;
    int64_t index;
} pb_pair;

static void pb_insert_pairs(pb_pair *pairs, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        pb_pair current = pairs[i];
        int64_t j = i;
        for (; j && pairs[j - 1].key > current.key; j--)
            pairs[j] = pairs[j - 1];
        pairs[j] = current;
    }
}

/* Returns whether the call shall end; then part of the target is not written. */
static int pb_merge_halves(const pb_pair *source, int64_t middle, int64_t n, pb_pair *target,
                           int (*stopping)(void)) {
    int64_t left = 0, right = middle, i = 0;
    for (;;) {
        int64_t end = n - i > PB_PAIRS_SPAN ? i + PB_PAIRS_SPAN : n;
        for (; i < end; i++) {
            if (left < middle && (right >= n || source[left].key <= source[right].key))
                target[i] = source[left++];
            else
                target[i] = source[right++];
        }
        if (i == n)
            return 0;
        if (stopping())
            return 1;
    }
}

/* Return which of the two buffers holds the sorted pairs. */
static pb_pair *pb_sort_pairs(pb_pair *pairs, pb_pair *spare, int64_t n, int (*stopping)(void)) {
    int64_t start, width, rest, done = 0;
    for (start = 0; start < n; start += PB_PAIRS_SHORT) {
        rest = n - start;
        pb_insert_pairs(pairs + start, rest < PB_PAIRS_SHORT ? rest : PB_PAIRS_SHORT);
        if (!((start + PB_PAIRS_SHORT) & (PB_PAIRS_SPAN - 1)) && stopping())
            return pairs;
    }
    for (width = PB_PAIRS_SHORT; width < n; width *= 2) {
        pb_pair *merged = spare;
        for (start = 0; start < n; start += 2 * width) {
            rest = n - start;
            if (pb_merge_halves(pairs + start, width < rest ? width : rest,
                                2 * width < rest ? 2 * width : rest, spare + start, stopping))
                return pairs;
            done += 2 * width;
            if (done >= PB_PAIRS_SPAN) {
                done = 0;
                if (stopping())
                    return pairs;
            }
        }
        spare = pairs;
        pairs = merged;
    }
    return pairs;
}

/* Move the k pairs of least keys to the front, in the order they have.
 *
 * The k-th key is found digit by digit, the highest first, among pairs that share the others. */
static void pb_keep_least(pb_pair *pairs, pb_pair *spare, int64_t n, int64_t k, int digits,
                          int (*stopping)(void)) {
    int64_t counts[256], i, end, found, m = n, equal = k;
    const pb_pair *among = pairs;
    uint64_t threshold = 0;
    for (int shift = 8 * (digits - 1); shift >= 0; shift -= 8) {
        unsigned value = 0;
        memset(counts, 0, sizeof(counts));
        for (i = 0; i < m;) {
            end = m - i > PB_PAIRS_SPAN ? i + PB_PAIRS_SPAN : m;
            for (; i < end; i++)
                counts[(among[i].key >> shift) & 255]++;
            if (i < m && stopping())
                return;
        }
        while (counts[value] < equal)
            equal -= counts[value++];
        threshold |= (uint64_t)value << shift;
        if (counts[value] == equal) { /* all that share these digits are wanted */
            threshold |= ((uint64_t)1 << shift) - 1;
            break;
        }
        found = 0;
        for (i = 0; i < m;) {
            end = m - i > PB_PAIRS_SPAN ? i + PB_PAIRS_SPAN : m;
            for (; i < end; i++)
                if (((among[i].key >> shift) & 255) == value)
                    spare[found++] = among[i];
            if (i < m && stopping())
                return;
        }
        among = spare;
        m = found;
    }
    found = 0;
    for (i = 0; i < n;) {
        end = n - i > PB_PAIRS_SPAN ? i + PB_PAIRS_SPAN : n;
        for (; i < end; i++) {
            if (pairs[i].key > threshold)
                continue;
            if (pairs[i].key == threshold) {
                if (equal == 0)
                    continue;
                equal--;
            }
            pairs[found++] = pairs[i];
        }
        if (i < n && stopping())
            return;
    }
}

#endif

// Sums, products, larger and smaller elements of what goes to one place, in the order of positions.
//
// Keys are sorted, so those that are equal form runs. The thread of a run's first key combines the
// run, element after element. Of a run that goes on for more than a piece, or two, the rest is cut
// where pieces of all keys begin: each piece is combined apart, and then all with what is there.
#include "kernels/common/dtypes.cuh"
#include "kernels/strides/row_indexer.cuh"

template <class T>
struct combination {
    typedef typename traits<T>::compute value;
    static DEVICE value of(value there, value comes, int mode) {
        if (mode == COMBINE_SUM)
            return sum(there, comes);
        if (mode == COMBINE_PRODUCT)
            return product(there, comes);
        if (mode == COMBINE_LARGER)
            return there < comes || comes != comes ? comes : there;
        return comes < there || comes != comes ? comes : there;
    }
    static DEVICE value sum(value x, value y) {
        if constexpr (traits<T>::is_integer)
            return (value)((uint64_t)x + (uint64_t)y);
        else
            return x + y;
    }
    static DEVICE value product(value x, value y) {
        if constexpr (traits<T>::is_integer)
            return (value)((uint64_t)x * (uint64_t)y);
        else
            return x * y;
    }
};

template <>
struct combination<bool> {
    static DEVICE bool of(bool there, bool comes, int mode) {
        return mode == COMBINE_SUM || mode == COMBINE_LARGER ? there || comes : there && comes;
    }
};

template <class R>
struct combination<complex<R>> {
    static DEVICE complex<R> of(complex<R> there, complex<R> comes, int mode) {
        return mode == COMBINE_SUM ? there + comes : there * comes;
    }
};

template <class T>
struct run_combiner {
    typedef typename traits<T>::compute value;
    const put_arguments &args;
    const T *near_data;
    T *far_data;
    value *partial;

    DEVICE run_combiner(const put_arguments &given)
        : args(given), near_data(static_cast<const T *>(given.near_data)),
          far_data(static_cast<T *>(given.far_data)), partial(static_cast<value *>(given.partial)) {
    }

    DEVICE int64_t key_at(int64_t turn) const { return load_number(args.keys, turn, args.wide); }

    DEVICE value comes(int64_t turn, int64_t near_at) const {
        return load(near_data + near_at + near_offset(args, position_of(args, turn)));
    }

    // Whether a piece that begins in this turn belongs to a run whose first thread stops before it.
    DEVICE bool is_later_piece(int64_t turn, int64_t key) const {
        return turn >= 2 * COMBINE_PIECE && key_at(turn - COMBINE_PIECE - 1) == key;
    }

    // Combine with `total` what has the key from this turn on, up to another one. A few elements
    // are loaded at once, so that a long run does not wait for each.
    DEVICE value combine_run(value total, int64_t turn, int64_t end, int64_t key,
                             int64_t near_at) const {
        constexpr int AT_ONCE = 4;
        bool belongs = true;
        for (; belongs; turn += AT_ONCE) {
            value next[AT_ONCE];
            int count = 0;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                belongs = belongs && turn + j < end && key_at(turn + j) == key;
                count += belongs;
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (j < count)
                    next[j] = comes(turn + j, near_at);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (j < count)
                    total = combination<T>::of(total, next[j], args.mode);
        }
        return total;
    }

    DEVICE void first_stage(int64_t turn, int64_t element) const {
        const int64_t key = key_at(turn), piece = turn / COMBINE_PIECE;
        int64_t near_at, far_at, end;
        if (key == args.nowhere)
            return;
        row_offsets(args, element, near_at, far_at);
        T *const target = far_data + far_at + key * args.scale + args.base;
        if (args.mode == COMBINE_LAST) {
            if (args.order == nullptr || turn + 1 == args.count || key_at(turn + 1) != key)
                store(target, comes(turn, near_at));
            return;
        }
        if (args.order == nullptr) {
            store(target, combination<T>::of(load(target), comes(turn, near_at), args.mode));
            return;
        }
        const bool is_first = turn == 0 || key_at(turn - 1) != key;
        if (!is_first && (turn % COMBINE_PIECE != 0 || !is_later_piece(turn, key)))
            return;
        value total = is_first ? load(target) : comes(turn, near_at);
        end = (piece + (is_first ? 2 : 1)) * COMBINE_PIECE;
        total = combine_run(total, is_first ? turn : turn + 1, end < args.count ? end : args.count,
                            key, near_at);
        if (is_first)
            store(target, total);
        else
            partial[piece * args.row.total + element] = total;
    }

    DEVICE void second_stage(int64_t piece, int64_t element) const {
        const int64_t turn = piece * COMBINE_PIECE, key = key_at(turn);
        int64_t near_at, far_at;
        if (key == args.nowhere || !is_later_piece(turn, key) ||
            (turn >= 3 * COMBINE_PIECE && key_at(turn - 2 * COMBINE_PIECE - 1) == key))
            return;
        row_offsets(args, element, near_at, far_at);
        T *const target = far_data + far_at + key * args.scale + args.base;
        value total = load(target);
        for (; piece * COMBINE_PIECE < args.count && key_at(piece * COMBINE_PIECE) == key; piece++)
            total = combination<T>::of(total, partial[piece * args.row.total + element], args.mode);
        store(target, total);
    }
};

template <class T>
DEVICE void combine(const put_arguments &args) {
    const run_combiner<T> combiner(args);
    const int64_t turns =
        args.stage == 1 ? args.count : (args.count + COMBINE_PIECE - 1) / COMBINE_PIECE;
    for (int64_t number = thread_number(); number < turns * args.row.total;
         number += thread_count()) {
        int64_t turn, element;
        split_number(args, number, turn, element);
        if (args.stage == 1)
            combiner.first_stage(turn, element);
        else
            combiner.second_stage(turn, element);
    }
}

#define COMBINE(name, T) \
    KERNEL(combine_##name, put_arguments) { combine<T>(args); }
FOR_ALL(COMBINE)

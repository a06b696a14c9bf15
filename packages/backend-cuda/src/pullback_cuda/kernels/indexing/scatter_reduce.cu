// Sums, products, largest and smallest of the elements with one target, in the order of positions.
//
// Keys are sorted, so equal keys form runs. The thread of the first key of a run reduces the run,
// element by element. A run that goes on for more than one or two chunks of the sorted keys is
// split where chunks begin: each further chunk is reduced on its own, then all with the target.
#include "kernels/common/dtypes.cuh"
#include "kernels/strides/row_indexer.cuh"

template <class T>
struct reduction_of {
    typedef typename traits<T>::compute value;
    static DEVICE value of(value there, value comes, int mode) {
        if (mode == REDUCE_SUM)
            return sum(there, comes);
        if (mode == REDUCE_PRODUCT)
            return product(there, comes);
        if (mode == REDUCE_LARGER)
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
struct reduction_of<bool> {
    static DEVICE bool of(bool there, bool comes, int mode) {
        return mode == REDUCE_SUM || mode == REDUCE_LARGER ? there || comes : there && comes;
    }
};

template <class R>
struct reduction_of<complex<R>> {
    static DEVICE complex<R> of(complex<R> there, complex<R> comes, int mode) {
        return mode == REDUCE_SUM ? there + comes : there * comes;
    }
};

template <class T>
struct run_reducer {
    typedef typename traits<T>::compute value;
    const put_arguments &args;
    const T *near_data;
    T *far_data;
    value *partial;

    DEVICE run_reducer(const put_arguments &given)
        : args(given), near_data(static_cast<const T *>(given.near_data)),
          far_data(static_cast<T *>(given.far_data)), partial(static_cast<value *>(given.partial)) {
    }

    DEVICE int64_t key_at(int64_t turn) const { return load_number(args.keys, turn, args.wide); }

    DEVICE value comes(int64_t turn, int64_t near_at) const {
        return load(near_data + near_at + near_offset(args, position_of(args, turn)));
    }

    // Whether a chunk that begins in this turn belongs to a run whose first thread stops before it.
    DEVICE bool is_later_chunk(int64_t turn, int64_t key) const {
        return turn >= 2 * RUN_CHUNK && key_at(turn - RUN_CHUNK - 1) == key;
    }

    // Reduce `total` and the elements from this turn on that have the key. A few elements are
    // loaded together, so that a long run does not wait for each load.
    DEVICE value reduce_run(value total, int64_t turn, int64_t end, int64_t key,
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
                    total = reduction_of<T>::of(total, next[j], args.mode);
        }
        return total;
    }

    DEVICE void first_stage(int64_t turn, int64_t element) const {
        const int64_t key = key_at(turn), chunk = turn / RUN_CHUNK;
        int64_t near_at, far_at, end;
        if (key == args.nowhere)
            return;
        row_offsets(args, element, near_at, far_at);
        T *const target = far_data + far_at + key * args.scale + args.base;
        if (args.mode == REDUCE_LAST) {
            if (args.order == nullptr || turn + 1 == args.count || key_at(turn + 1) != key)
                store(target, comes(turn, near_at));
            return;
        }
        if (args.order == nullptr) {
            store(target, reduction_of<T>::of(load(target), comes(turn, near_at), args.mode));
            return;
        }
        const bool is_first = turn == 0 || key_at(turn - 1) != key;
        if (!is_first && (turn % RUN_CHUNK != 0 || !is_later_chunk(turn, key)))
            return;
        value total = is_first ? load(target) : comes(turn, near_at);
        end = (chunk + (is_first ? 2 : 1)) * RUN_CHUNK;
        total = reduce_run(total, is_first ? turn : turn + 1, end < args.count ? end : args.count,
                           key, near_at);
        if (is_first)
            store(target, total);
        else
            partial[chunk * args.row.total + element] = total;
    }

    DEVICE void second_stage(int64_t chunk, int64_t element) const {
        const int64_t turn = chunk * RUN_CHUNK, key = key_at(turn);
        int64_t near_at, far_at;
        if (key == args.nowhere || !is_later_chunk(turn, key) ||
            (turn >= 3 * RUN_CHUNK && key_at(turn - 2 * RUN_CHUNK - 1) == key))
            return;
        row_offsets(args, element, near_at, far_at);
        T *const target = far_data + far_at + key * args.scale + args.base;
        value total = load(target);
        for (; chunk * RUN_CHUNK < args.count && key_at(chunk * RUN_CHUNK) == key; chunk++)
            total =
                reduction_of<T>::of(total, partial[chunk * args.row.total + element], args.mode);
        store(target, total);
    }
};

template <class T>
DEVICE void scatter_reduce(const put_arguments &args) {
    const run_reducer<T> reducer(args);
    const int64_t turns = args.stage == 1 ? args.count : (args.count + RUN_CHUNK - 1) / RUN_CHUNK;
    for (int64_t number = thread_number(); number < turns * args.row.total;
         number += thread_count()) {
        int64_t turn, element;
        split_number(args, number, turn, element);
        if (args.stage == 1)
            reducer.first_stage(turn, element);
        else
            reducer.second_stage(turn, element);
    }
}

#define SCATTER_REDUCE(name, T) \
    KERNEL(scatter_reduce_##name, put_arguments) { scatter_reduce<T>(args); }
FOR_ALL(SCATTER_REDUCE)

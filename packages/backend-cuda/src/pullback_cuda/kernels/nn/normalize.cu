// Standardized elements, scaled and shifted, and the derivative of that: what layer, group, batch
// and instance normalization are made of. Sums are kept in double.
#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/register_tile.cuh"
#include "kernels/common/group.cuh"
#include "kernels/reductions/moments.cuh"
#include "kernels/nn/normalize.h"

// ---- rows --------------------------------------------------------------------------------------

// The row of a thread group.
struct row_info {
    int64_t row;
    int64_t group;
    int64_t statistics; // where its mean and scale are
    bool exists;
};

DEVICE row_info find_row(const pb_normal &args, const thread_groups &threads) {
    row_info info;
    info.row = ((int64_t)blockIdx.x << args.group_bits) + threads.group();
    info.exists = info.row < args.rows;
    const int64_t sample = divide_any(info.row, args.groups);
    info.group = info.row - sample * args.groups.size;
    info.statistics = sample * args.mean_stride + info.group;
    return info;
}

// The elements of a row that a block has.
struct row_range {
    int64_t start;
    int64_t end;
    bool keeps; // the block has all of them in registers
};

template <int ITEMS>
DEVICE row_range range_of(const pb_normal &args, bool exists) {
    const int64_t start = blockIdx.y * args.chunk;
    int64_t end = blockIdx.y + 1 == gridDim.y ? args.length : start + args.chunk;
    end = exists ? end : start; // a thread without a row has no elements
    return {start, end, end - start <= (int64_t)ITEMS << args.thread_bits};
}

// The weights and the biases of a group's channels; null for ones and zeros.
template <class T>
struct channel_values {
    const T *weight;
    const T *bias;
    int64_t weight_stride;
    int64_t bias_stride;
};

// Multiply items with the weights of their channels, and add the biases.
template <class T, int ITEMS>
DEVICE void scale_items(const pb_normal &args, channel_values<T> values, const line_part &part,
                        int64_t first, T (&items)[ITEMS]) {
    constexpr int WIDTH = vector_width<T>::size;
    // Only small numbers are divided for each item. A channel too long for that has all items, or
    // the channel after it has the last ones.
    const int64_t channel = args.inner.size == 1 ? first : divide_any(first, args.inner);
    const int64_t before = first - channel * args.inner.size;
    const bool is_long = args.inner.size > INT32_MAX / 2;
    values.weight += channel * values.weight_stride;
    values.bias += channel * values.bias_stride;
    const bool has_weight = args.weight != nullptr, has_bias = args.bias != nullptr;
#pragma unroll
    for (int i = 0; i < ITEMS; i += WIDTH) {
        if (args.vectorized_weight) {
            const int at = tile_element<WIDTH>(part, i);
            if (at >= part.left)
                continue;
            if (has_weight) {
                vector<T, WIDTH> weight = load_vector<WIDTH>(values.weight + at);
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    items[i + j] *= weight.of[j];
            }
            if (has_bias) {
                vector<T, WIDTH> bias = load_vector<WIDTH>(values.bias + at);
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    items[i + j] += bias.of[j];
            }
            continue;
        }
#pragma unroll
        for (int j = i; j < i + WIDTH; j++) {
            const int at = tile_element<WIDTH>(part, j);
            if (at >= part.left)
                continue;
            const int further = is_long ? before + at >= args.inner.size
                                        : (int)divide((uint32_t)before + at, args.inner);
            if (has_weight)
                items[j] *= values.weight[further * values.weight_stride];
            if (has_bias)
                items[j] += values.bias[further * values.bias_stride];
        }
    }
}

template <class T>
DEVICE channel_values<T> channels_of(const pb_normal &args, int64_t group) {
    return {static_cast<const T *>(args.weight) + group * args.weight_strides[0],
            static_cast<const T *>(args.bias) + group * args.bias_strides[0],
            args.weight_strides[1], args.bias_strides[1]};
}

template <int ITEMS, class T>
DEVICE void load_row(const T *row, int64_t first, int64_t end, line_part &part, T (&items)[ITEMS]) {
    part.left = (int)(end - first < INT32_MAX ? end - first : INT32_MAX);
    load_tile<ITEMS>(row + first, part, items, (T)0);
}

// ---- forward -----------------------------------------------------------------------------------

// The moments of some elements: of differences from a rounded mean, corrected by their sum.
template <class T, int ITEMS>
DEVICE moments moments_of(const T (&items)[ITEMS], const line_part &part) {
    constexpr int WIDTH = vector_width<T>::size;
    int count = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        count += tile_element<WIDTH>(part, i) < part.left;
    if (count == 0)
        return {0, 0, 0};
    const T sum = add_in_pairs(items), mean = sum / count;
    T off[ITEMS], off_squares[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        off[i] = tile_element<WIDTH>(part, i) < part.left ? items[i] - mean : 0;
        off_squares[i] = off[i] * off[i];
    }
    const double off_sum = add_in_pairs(off), exact = (double)mean * count + off_sum;
    return {(double)count, exact == exact ? exact : sum, // an infinite sum stays infinite
            add_in_pairs(off_squares) - off_sum * off_sum / count};
}

// Merge the moments of a thread group; each thread gets the same bits.
DEVICE moments join_moments(const thread_groups &threads, const moments &own) {
    moments found;
    found.count = group_reduce(threads, own.count, sum_of_both());
    found.sum = group_reduce(threads, own.sum, sum_of_both());
    const double gap = own.count == 0 ? 0 : own.sum / own.count - found.sum / found.count;
    found.squares = group_reduce(threads, own.squares + own.count * gap * gap, sum_of_both());
    return found;
}

// The mean of a row, its rounding error, and one over the standard deviation.
template <class T>
struct statistics {
    T mean;
    T rest;
    T scale;
};

// Compute them from the moments of the row, and write mean and variance.
template <class T>
DEVICE statistics<T> finish_row(const pb_normal &args, const row_info &info, bool is_first,
                                const moments &found) {
    double variance = found.squares / found.count;
    variance = variance < 0 ? 0 : variance;
    const double exact = found.sum / found.count;
    const T mean = (T)exact;
    if (info.exists && is_first) {
        static_cast<T *>(args.means)[info.row] = mean;
        static_cast<T *>(args.variances)[info.row] = (T)variance;
    }
    return {mean, (T)(exact - mean), (T)(1 / sqrt(variance + args.eps))};
}

template <class T>
DEVICE statistics<T> given_statistics(const pb_normal &args, const row_info &info) {
    if (!info.exists)
        return {0, 0, 0};
    return {static_cast<const T *>(args.mean)[info.statistics], 0,
            static_cast<const T *>(args.scale)[info.statistics]};
}

template <class T>
DEVICE void standardize(const pb_normal &args) {
    constexpr int ITEMS = register_tile<T>::items;
    const thread_groups threads = {args.thread_bits, args.group_bits, false};
    const row_info info = find_row(args, threads);
    const row_range range = range_of<ITEMS>(args, info.exists);
    const int64_t step = (int64_t)ITEMS << args.thread_bits, offset = info.row * args.length;
    const T *source = static_cast<const T *>(args.source) + offset;
    const bool finds = args.phase == ROWS_WHOLE || args.phase == ROWS_FIND;
    line_part part = {threads.rank(), 1 << args.thread_bits, 0, 1, args.vectorized != 0};
    moments found = {0, 0, 0}, *partial = static_cast<moments *>(args.partial) + info.row;
    if (args.phase == ROWS_WRITE) {
#pragma unroll 1
        for (int64_t k = part.rank; info.exists && k < args.chunks; k += part.group_size)
            found = merge_moments(found, partial[k * args.rows]);
    }
    statistics<T> row = {0, 0, 0};
    T items[ITEMS];
    // The first pass over the elements finds the statistics, the second writes.
#pragma unroll 1
    for (int pass = finds ? 0 : 1; pass < 2; pass++) {
        if (pass == 1 && args.phase == ROWS_GIVEN) {
            row = given_statistics<T>(args, info);
        } else if (pass == 1) {
            found = join_moments(threads, found);
            if (args.phase == ROWS_FIND) {
                if (info.exists && part.rank == 0)
                    partial[blockIdx.y * args.rows] = found;
                return;
            }
            row = finish_row<T>(args, info, part.rank == 0 && blockIdx.y == 0, found);
        }
#pragma unroll 1
        for (int64_t first = range.start; first < range.end; first += step) {
            if (pass == 0 || !finds || !range.keeps)
                load_row(source, first, range.end, part, items);
            if (pass == 0) {
                found = merge_moments(found, moments_of(items, part));
                continue;
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                items[i] = ((items[i] - row.mean) - row.rest) * row.scale;
            scale_items(args, channels_of<T>(args, info.group), part, first, items);
            store_tile<ITEMS>(static_cast<T *>(args.out) + offset + first, part, items);
        }
    }
}

// ---- backward: gradients of the elements -------------------------------------------------------

// Of a row: sums of the gradients times the weights, and of these times the standardized elements.
struct pair {
    double plain;
    double unit;
};

DEVICE pair operator+(const pair &x, const pair &y) { return {x.plain + y.plain, x.unit + y.unit}; }

template <class T>
DEVICE void standardize_backward(const pb_normal &args) {
    constexpr int ITEMS = register_tile<T>::items, WIDTH = vector_width<T>::size;
    const thread_groups threads = {args.thread_bits, args.group_bits, false};
    const row_info info = find_row(args, threads);
    const row_range range = range_of<ITEMS>(args, info.exists);
    const int64_t step = (int64_t)ITEMS << args.thread_bits, offset = info.row * args.length;
    const T *source = static_cast<const T *>(args.source) + offset;
    const T *grad = static_cast<const T *>(args.grad) + offset;
    const statistics<T> row = given_statistics<T>(args, info);
    const bool adds = args.phase == ROWS_WHOLE || args.phase == ROWS_FIND;
    line_part part = {threads.rank(), 1 << args.thread_bits, 0, 1, args.vectorized != 0};
    pair sums = {0, 0}, *partial = static_cast<pair *>(args.partial) + info.row;
    if (args.phase == ROWS_GIVEN && info.exists)
        sums = static_cast<const pair *>(args.shares)[info.group];
    if (args.phase == ROWS_WRITE) {
#pragma unroll 1
        for (int64_t k = part.rank; info.exists && k < args.chunks; k += part.group_size)
            sums = sums + partial[k * args.rows];
    }
    // Gradients times weights, and differences from the mean.
    T grads[ITEMS], off[ITEMS], plain = 0, unit = 0;
    // The first pass over the elements finds the sums, the second writes.
#pragma unroll 1
    for (int pass = adds ? 0 : 1; pass < 2; pass++) {
        if (pass == 1 && args.phase != ROWS_GIVEN) {
            sums = group_reduce(threads, sums, sum_of_both());
            if (args.phase == ROWS_FIND) {
                if (info.exists && part.rank == 0)
                    partial[blockIdx.y * args.rows] = sums;
                return;
            }
            sums = {sums.plain / args.length, sums.unit / args.length};
        }
        plain = (T)sums.plain;
        unit = (T)(sums.unit * row.scale);
#pragma unroll 1
        for (int64_t first = range.start; first < range.end; first += step) {
            if (pass == 0 || !adds || !range.keeps) {
                load_row(grad, first, range.end, part, grads);
                load_row(source, first, range.end, part, off);
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    off[i] = tile_element<WIDTH>(part, i) < part.left ? off[i] - row.mean : 0;
                scale_items(args, channels_of<T>(args, info.group), part, first, grads);
            }
            if (pass == 0) {
                T terms[ITEMS];
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    terms[i] = grads[i] * off[i];
                sums = sums + pair{add_in_pairs(grads), add_in_pairs(terms) * (double)row.scale};
                continue;
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                grads[i] = row.scale * (grads[i] - plain - off[i] * unit);
            store_tile<ITEMS>(static_cast<T *>(args.out) + offset + first, part, grads);
        }
    }
}

// ---- backward: gradients of weight and bias ----------------------------------------------------

// Add up columns: a chunk of each in every block.
template <class T>
DEVICE void sum_columns(const pb_normal_sums &args) {
    constexpr int COUNT = 4;
    const thread_groups threads = {args.thread_bits, args.group_bits, args.strided != 0};
    const int64_t column = ((int64_t)blockIdx.x << args.group_bits) + threads.group();
    const bool exists = column < args.columns;
    const int64_t start = blockIdx.y * args.chunk;
    int64_t end = blockIdx.y + 1 == gridDim.y ? args.length : start + args.chunk;
    end = exists ? end : start;
    const int64_t group = divide_any(column, args.channels);
    const T *source = static_cast<const T *>(args.source) + column * args.inner.size;
    const T *grad = static_cast<const T *>(args.grad) + column * args.inner.size;
    const T *means = static_cast<const T *>(args.mean) + group;
    const T *scales = static_cast<const T *>(args.scale) + group;
    const int group_size = 1 << args.thread_bits;
    pair sums = {0, 0};
#pragma unroll 1
    for (int64_t first = start + threads.rank(); first < end; first += COUNT * group_size) {
        T plain[COUNT], unit[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const int64_t position = first + k * group_size;
            plain[k] = unit[k] = 0;
            if (position < end) {
                const int64_t sample = divide_any(position, args.inner);
                // The elements of a sample come after those of all its columns.
                const int64_t at = sample * (args.columns - 1) * args.inner.size + position;
                plain[k] = grad[at];
                unit[k] = plain[k] * ((source[at] - means[sample * args.mean_stride]) *
                                      scales[sample * args.mean_stride]);
            }
        }
        sums = sums + pair{add_in_pairs(plain), add_in_pairs(unit)};
    }
    sums = group_reduce(threads, sums, sum_of_both());
    if (exists && threads.rank() == 0)
        static_cast<pair *>(args.partial)[blockIdx.y * args.columns + column] = sums;
}

// Add up the chunks of each column, into the first one, and write its gradients.
template <class T>
DEVICE void join_columns(const pb_normal_sums &args) {
    const thread_groups threads = {args.thread_bits, args.group_bits, args.strided != 0};
    const int64_t column = ((int64_t)blockIdx.x << args.group_bits) + threads.group();
    const bool exists = column < args.columns;
    pair *partial = static_cast<pair *>(args.partial) + column;
    pair sums = {0, 0};
    for (int64_t chunk = threads.rank(); exists && chunk < args.chunks;
         chunk += 1 << args.thread_bits)
        sums = sums + partial[chunk * args.columns];
    sums = group_reduce(threads, sums, sum_of_both());
    if (!exists || threads.rank() != 0)
        return;
    *partial = sums;
    static_cast<T *>(args.bias_out)[column] = (T)sums.plain;
    static_cast<T *>(args.weight_out)[column] = (T)sums.unit;
}

// Find the share of each element of a group in the sums over all of them, where samples share their
// statistics: a column of here is a group.
template <class T>
DEVICE void share_groups(const pb_normal_sums &args) {
    const thread_groups threads = {args.thread_bits, args.group_bits, false};
    const int64_t group = ((int64_t)blockIdx.x << args.group_bits) + threads.group();
    const bool exists = group < args.columns;
    const pair *partial = static_cast<const pair *>(args.partial) + group * args.channels.size;
    const T *weight = static_cast<const T *>(args.weight) + group * args.weight_strides[0];
    const double count = (double)args.samples * args.channels.size * args.inner.size;
    pair sums = {0, 0};
    for (int64_t k = threads.rank(); exists && k < args.channels.size; k += 1 << args.thread_bits) {
        const double factor = weight[k * args.weight_strides[1]];
        sums = sums + pair{partial[k].plain * factor, partial[k].unit * factor};
    }
    sums = group_reduce(threads, sums, sum_of_both());
    if (exists && threads.rank() == 0)
        static_cast<pair *>(args.shares)[group] = {sums.plain / count, sums.unit / count};
}

// ---- kernels -----------------------------------------------------------------------------------

#define NORMALIZES(name, T) \
    BUSY_KERNEL(standardize_##name, pb_normal, 3) { standardize<T>(args); } \
    BUSY_KERNEL(standardize_backward_##name, pb_normal, sizeof(T) < 8 ? 3 : 2) { \
        standardize_backward<T>(args); \
    } \
    KERNEL(normal_columns_##name, pb_normal_sums) { sum_columns<T>(args); } \
    KERNEL(normal_join_##name, pb_normal_sums) { join_columns<T>(args); } \
    KERNEL(normal_shares_##name, pb_normal_sums) { share_groups<T>(args); }
NORMALIZES(f32, float)
NORMALIZES(f64, double)

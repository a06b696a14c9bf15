// Standardized elements, scaled and shifted, and the derivative of that: what layer, group, batch
// and instance normalization are made of. Sums are kept in double.
#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/register_tile.cuh"
#include "kernels/common/group.cuh"
#include "kernels/reductions/moments.cuh"
#include "kernels/nn/normalize.h"

// ---- rows ---------------------------------------------------------------------------------------

// What a row has of its own.
struct row_place {
    int64_t row;
    int64_t group;
    int64_t statistics; // where its mean and scale are
    bool exists;
};

DEVICE row_place place_row(const pb_normal &args, const lane_grid &grid) {
    row_place place;
    place.row = ((int64_t)blockIdx.x << args.slots) + grid.slot();
    place.exists = place.row < args.rows;
    const int64_t sample = divide_any(place.row, args.groups);
    place.group = place.row - sample * args.groups.size;
    place.statistics = sample * args.mean_stride + place.group;
    return place;
}

// The elements of a row that a block has.
struct row_range {
    int64_t start;
    int64_t end;
    bool keeps; // they lie in registers from first to last
};

template <int ITEMS>
DEVICE row_range range_of(const pb_normal &args, bool exists) {
    const int64_t start = blockIdx.y * args.chunk;
    int64_t end = blockIdx.y + 1 == gridDim.y ? args.length : start + args.chunk;
    end = exists ? end : start; // a thread without a row has no elements
    return {start, end, end - start <= (int64_t)ITEMS << args.lanes};
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
    constexpr int PACK = packing<T>::size;
    // Only small numbers are divided for each item. A channel that is too long for that has all of
    // them, or the next one has the last of them.
    const int64_t channel = args.inner.size == 1 ? first : divide_any(first, args.inner);
    const int64_t before = first - channel * args.inner.size;
    const bool is_long = args.inner.size > INT32_MAX / 2;
    values.weight += channel * values.weight_stride;
    values.bias += channel * values.bias_stride;
    const bool has_weight = args.weight != nullptr, has_bias = args.bias != nullptr;
#pragma unroll
    for (int i = 0; i < ITEMS; i += PACK) {
        if (args.packed_weight) {
            const int at = item_number<PACK>(part, i);
            if (at >= part.left)
                continue;
            if (has_weight) {
                pack<T, PACK> weight = load_pack<PACK>(values.weight + at);
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    items[i + j] *= weight.of[j];
            }
            if (has_bias) {
                pack<T, PACK> bias = load_pack<PACK>(values.bias + at);
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    items[i + j] += bias.of[j];
            }
            continue;
        }
#pragma unroll
        for (int j = i; j < i + PACK; j++) {
            const int at = item_number<PACK>(part, j);
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
    load_items<ITEMS>(row + first, part, items, (T)0);
}

// ---- forward ------------------------------------------------------------------------------------

// The moments of some elements: of differences from a rounded mean, corrected by their sum.
template <class T, int ITEMS>
DEVICE moments moments_of(const T (&items)[ITEMS], const line_part &part) {
    constexpr int PACK = packing<T>::size;
    int count = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        count += item_number<PACK>(part, i) < part.left;
    if (count == 0)
        return {0, 0, 0};
    const T sum = add_in_pairs(items), mean = sum / count;
    T off[ITEMS], off_squares[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        off[i] = item_number<PACK>(part, i) < part.left ? items[i] - mean : 0;
        off_squares[i] = off[i] * off[i];
    }
    const double off_sum = add_in_pairs(off), exact = (double)mean * count + off_sum;
    return {(double)count, exact == exact ? exact : sum, // an infinite sum stays infinite
            add_in_pairs(off_squares) - off_sum * off_sum / count};
}

// Join the moments of all lanes; each gets the same bits.
DEVICE moments join_moments(const lane_grid &grid, const moments &own) {
    moments found;
    found.count = combine_lanes(grid, own.count, sum_of_both());
    found.sum = combine_lanes(grid, own.sum, sum_of_both());
    const double gap = own.count == 0 ? 0 : own.sum / own.count - found.sum / found.count;
    found.squares = combine_lanes(grid, own.squares + own.count * gap * gap, sum_of_both());
    return found;
}

// The mean of a row, what rounding took from it, and one over the deviation.
template <class T>
struct statistics {
    T mean;
    T rest;
    T scale;
};

// Find them from what each lane found, and tell them.
template <class T>
DEVICE statistics<T> finish_row(const pb_normal &args, const row_place &place, bool is_first,
                                const moments &found) {
    double variance = found.squares / found.count;
    variance = variance < 0 ? 0 : variance;
    const double exact = found.sum / found.count;
    const T mean = (T)exact;
    if (place.exists && is_first) {
        static_cast<T *>(args.means)[place.row] = mean;
        static_cast<T *>(args.variances)[place.row] = (T)variance;
    }
    return {mean, (T)(exact - mean), (T)(1 / sqrt(variance + args.eps))};
}

template <class T>
DEVICE statistics<T> given_statistics(const pb_normal &args, const row_place &place) {
    if (!place.exists)
        return {0, 0, 0};
    return {static_cast<const T *>(args.mean)[place.statistics], 0,
            static_cast<const T *>(args.scale)[place.statistics]};
}

template <class T>
DEVICE void standardize(const pb_normal &args) {
    constexpr int ITEMS = held<T>::items;
    const lane_grid grid = {args.lanes, args.slots, false};
    const row_place place = place_row(args, grid);
    const row_range range = range_of<ITEMS>(args, place.exists);
    const int64_t step = (int64_t)ITEMS << args.lanes, offset = place.row * args.length;
    const T *source = static_cast<const T *>(args.source) + offset;
    const bool finds = args.phase == ROWS_WHOLE || args.phase == ROWS_FIND;
    line_part part = {grid.lane(), 1 << args.lanes, 0, 1, args.packed != 0};
    moments found = {0, 0, 0}, *partial = static_cast<moments *>(args.partial) + place.row;
    if (args.phase == ROWS_WRITE) {
#pragma unroll 1
        for (int64_t k = part.lane; place.exists && k < args.chunks; k += part.lanes)
            found = merge_moments(found, partial[k * args.rows]);
    }
    statistics<T> row = {0, 0, 0};
    T items[ITEMS];
    // The elements are gone through once to find the statistics, and once to write.
#pragma unroll 1
    for (int pass = finds ? 0 : 1; pass < 2; pass++) {
        if (pass == 1 && args.phase == ROWS_GIVEN) {
            row = given_statistics<T>(args, place);
        } else if (pass == 1) {
            found = join_moments(grid, found);
            if (args.phase == ROWS_FIND) {
                if (place.exists && part.lane == 0)
                    partial[blockIdx.y * args.rows] = found;
                return;
            }
            row = finish_row<T>(args, place, part.lane == 0 && blockIdx.y == 0, found);
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
            scale_items(args, channels_of<T>(args, place.group), part, first, items);
            store_items<ITEMS>(static_cast<T *>(args.out) + offset + first, part, items);
        }
    }
}

// ---- backward: slopes of the elements -----------------------------------------------------------

// Of a row: sums of the gradients times the weights, and of these times the standardized elements.
struct pair {
    double plain;
    double unit;
};

DEVICE pair operator+(const pair &x, const pair &y) { return {x.plain + y.plain, x.unit + y.unit}; }

template <class T>
DEVICE void slope(const pb_normal &args) {
    constexpr int ITEMS = held<T>::items, PACK = packing<T>::size;
    const lane_grid grid = {args.lanes, args.slots, false};
    const row_place place = place_row(args, grid);
    const row_range range = range_of<ITEMS>(args, place.exists);
    const int64_t step = (int64_t)ITEMS << args.lanes, offset = place.row * args.length;
    const T *source = static_cast<const T *>(args.source) + offset;
    const T *grad = static_cast<const T *>(args.grad) + offset;
    const statistics<T> row = given_statistics<T>(args, place);
    const bool adds = args.phase == ROWS_WHOLE || args.phase == ROWS_FIND;
    line_part part = {grid.lane(), 1 << args.lanes, 0, 1, args.packed != 0};
    pair sums = {0, 0}, *partial = static_cast<pair *>(args.partial) + place.row;
    if (args.phase == ROWS_GIVEN && place.exists)
        sums = static_cast<const pair *>(args.shares)[place.group];
    if (args.phase == ROWS_WRITE) {
#pragma unroll 1
        for (int64_t k = part.lane; place.exists && k < args.chunks; k += part.lanes)
            sums = sums + partial[k * args.rows];
    }
    // Gradients times weights, and differences from the mean.
    T slopes[ITEMS], off[ITEMS], plain = 0, unit = 0;
    // The elements are gone through once to find the sums, and once to write.
#pragma unroll 1
    for (int pass = adds ? 0 : 1; pass < 2; pass++) {
        if (pass == 1 && args.phase != ROWS_GIVEN) {
            sums = combine_lanes(grid, sums, sum_of_both());
            if (args.phase == ROWS_FIND) {
                if (place.exists && part.lane == 0)
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
                load_row(grad, first, range.end, part, slopes);
                load_row(source, first, range.end, part, off);
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    off[i] = item_number<PACK>(part, i) < part.left ? off[i] - row.mean : 0;
                scale_items(args, channels_of<T>(args, place.group), part, first, slopes);
            }
            if (pass == 0) {
                T terms[ITEMS];
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    terms[i] = slopes[i] * off[i];
                sums = sums + pair{add_in_pairs(slopes), add_in_pairs(terms) * (double)row.scale};
                continue;
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                slopes[i] = row.scale * (slopes[i] - plain - off[i] * unit);
            store_items<ITEMS>(static_cast<T *>(args.out) + offset + first, part, slopes);
        }
    }
}

// ---- backward: slopes of weight and bias --------------------------------------------------------

// Add up columns: a chunk of each in every block.
template <class T>
DEVICE void sum_columns(const pb_normal_sums &args) {
    constexpr int COUNT = 4;
    const lane_grid grid = {args.lanes, args.slots, args.strided != 0};
    const int64_t column = ((int64_t)blockIdx.x << args.slots) + grid.slot();
    const bool exists = column < args.columns;
    const int64_t start = blockIdx.y * args.chunk;
    int64_t end = blockIdx.y + 1 == gridDim.y ? args.length : start + args.chunk;
    end = exists ? end : start;
    const int64_t group = divide_any(column, args.channels);
    const T *source = static_cast<const T *>(args.source) + column * args.inner.size;
    const T *grad = static_cast<const T *>(args.grad) + column * args.inner.size;
    const T *means = static_cast<const T *>(args.mean) + group;
    const T *scales = static_cast<const T *>(args.scale) + group;
    const int lanes = 1 << args.lanes;
    pair sums = {0, 0};
#pragma unroll 1
    for (int64_t first = start + grid.lane(); first < end; first += COUNT * lanes) {
        T plain[COUNT], unit[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const int64_t position = first + k * lanes;
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
    sums = combine_lanes(grid, sums, sum_of_both());
    if (exists && grid.lane() == 0)
        static_cast<pair *>(args.partial)[blockIdx.y * args.columns + column] = sums;
}

// Add up the chunks of each column, into the first one, and write its slopes.
template <class T>
DEVICE void join_columns(const pb_normal_sums &args) {
    const lane_grid grid = {args.lanes, args.slots, args.strided != 0};
    const int64_t column = ((int64_t)blockIdx.x << args.slots) + grid.slot();
    const bool exists = column < args.columns;
    pair *partial = static_cast<pair *>(args.partial) + column;
    pair sums = {0, 0};
    for (int64_t chunk = grid.lane(); exists && chunk < args.chunks; chunk += 1 << args.lanes)
        sums = sums + partial[chunk * args.columns];
    sums = combine_lanes(grid, sums, sum_of_both());
    if (!exists || grid.lane() != 0)
        return;
    *partial = sums;
    static_cast<T *>(args.bias_out)[column] = (T)sums.plain;
    static_cast<T *>(args.weight_out)[column] = (T)sums.unit;
}

// Find the share of each element of a group in the sums over all of them, where samples share their
// statistics: a column of here is a group.
template <class T>
DEVICE void share_groups(const pb_normal_sums &args) {
    const lane_grid grid = {args.lanes, args.slots, false};
    const int64_t group = ((int64_t)blockIdx.x << args.slots) + grid.slot();
    const bool exists = group < args.columns;
    const pair *partial = static_cast<const pair *>(args.partial) + group * args.channels.size;
    const T *weight = static_cast<const T *>(args.weight) + group * args.weight_strides[0];
    const double count = (double)args.samples * args.channels.size * args.inner.size;
    pair sums = {0, 0};
    for (int64_t k = grid.lane(); exists && k < args.channels.size; k += 1 << args.lanes) {
        const double factor = weight[k * args.weight_strides[1]];
        sums = sums + pair{partial[k].plain * factor, partial[k].unit * factor};
    }
    sums = combine_lanes(grid, sums, sum_of_both());
    if (exists && grid.lane() == 0)
        static_cast<pair *>(args.shares)[group] = {sums.plain / count, sums.unit / count};
}

// ---- kernels ------------------------------------------------------------------------------------

#define NORMALIZES(name, T) \
    BUSY_KERNEL(standardize_##name, pb_normal, 3) { standardize<T>(args); } \
    BUSY_KERNEL(normal_slope_##name, pb_normal, sizeof(T) < 8 ? 3 : 2) { slope<T>(args); } \
    KERNEL(normal_columns_##name, pb_normal_sums) { sum_columns<T>(args); } \
    KERNEL(normal_join_##name, pb_normal_sums) { join_columns<T>(args); } \
    KERNEL(normal_shares_##name, pb_normal_sums) { share_groups<T>(args); }
NORMALIZES(f32, float)
NORMALIZES(f64, double)

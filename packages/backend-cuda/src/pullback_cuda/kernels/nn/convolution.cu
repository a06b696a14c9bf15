// Convolutions, forward and backward, as tiled matrix products.
//
// A block computes a tile of a product. Shared memory has two buffers, each with a few summands of
// the tile's rows and columns: while one is multiplied, the other is loaded. A few threads compute
// the offsets of summands one step ahead, for all threads.
#include "kernels/nn/convolution.cuh"

#define BLOCK 256
#define SIDE 16        // threads of a block along rows and columns of its tile
#define SMALL_DEPTH 16 // summands in a buffer of a small tile
#define LARGE_DEPTH 8
#define NOWHERE (-(1 << 30)) // a coordinate that no step brings inside

// The task of a block: a group, a phase, some of the summands. It is in shared memory, as values
// that are needed only at the begin and at the end should not fill registers.
template <class T>
struct conv_block {
    conv_line<int64_t> lines[CONV_RANK];
    const T *left, *right;
    int64_t group, rows, columns, summands;
    int64_t bounds[CONV_RANK];
    int64_t row_step; // from one row to the next in the left factor
    int64_t out_step; // and in the output

    // The lines must be known.
    DEVICE void begin(const conv_arguments &args, int64_t number) {
        const bool reads_windows = args.kind == CONV_BACKWARD_INPUT;
        int64_t taps = 1, outputs = 1;
        for (int d = 0; d < CONV_RANK; d++) {
            bounds[d] = reads_windows ? args.sides[d].count : args.sides[d].size;
            taps *= lines[d].taps;
            outputs *= lines[d].number;
        }
        group = number;
        left = static_cast<const T *>(args.left);
        right = static_cast<const T *>(args.right) +
                group * (reads_windows ? args.o * args.count : args.c * args.size);
        rows = reads_windows ? args.c : args.o;
        if (args.kind == CONV_BACKWARD_WEIGHT) {
            left += group * args.o * args.count;
            columns = args.c * args.kernel;
            summands = args.images * args.count;
            row_step = args.count;
            out_step = columns;
        } else {
            left += group * args.o * args.c * args.kernel;
            columns = args.images * outputs;
            summands = (reads_windows ? args.o : args.c) * taps;
            row_step = reads_windows ? args.kernel : args.c * args.kernel;
            out_step = reads_windows ? args.size : args.count;
        }
    }

    DEVICE int64_t flat(const int64_t *at) const {
        return (at[0] * bounds[1] + at[1]) * bounds[2] + at[2];
    }

    // Offsets of a summand's factors, left and right, and its coordinate along each dim.
    DEVICE void find_summand(const conv_arguments &args, int64_t number, int64_t &at_left,
                             int64_t &at_right, int64_t (&at)[CONV_RANK]) const {
        if (args.kind == CONV_BACKWARD_WEIGHT) {
            const int64_t image = split3(number, args.sides[0].count, args.sides[1].count,
                                         args.sides[2].count, args.narrow, at);
            at_left = number + image * (args.groups * args.o - 1) * args.count;
            for (int d = 0; d < CONV_RANK; d++)
                at[d] = at[d] * args.sides[d].stride - args.sides[d].padding;
            at_right = image * args.groups * args.c * args.size + flat(at);
            return;
        }
        const int64_t channel =
            split3(number, lines[0].taps, lines[1].taps, lines[2].taps, args.narrow, at);
        int64_t position = 0;
        for (int d = 0; d < CONV_RANK; d++) {
            position = position * args.sides[d].kernel + lines[d].kernel_start +
                       at[d] * lines[d].kernel_jump;
            at[d] *= lines[d].tap_jump;
        }
        if (args.kind == CONV_BACKWARD_INPUT) {
            at_left = channel * args.c * args.kernel + position;
            at_right = channel * args.count + flat(at);
        } else {
            at_left = channel * args.kernel + position;
            at_right = channel * args.size + flat(at);
        }
    }

    // Offset of a column's right factors, its coordinate along each dim, and its offset in the
    // output.
    DEVICE void find_column(const conv_arguments &args, int64_t number, int64_t &at_right,
                            int64_t (&at)[CONV_RANK], int64_t &at_out) const {
        if (args.kind == CONV_BACKWARD_WEIGHT) {
            const int64_t channel = split3(number, args.sides[0].kernel, args.sides[1].kernel,
                                           args.sides[2].kernel, args.narrow, at);
            for (int d = 0; d < CONV_RANK; d++)
                at[d] *= args.sides[d].dilation;
            at_right = channel * args.size + flat(at);
            at_out = group * args.o * columns + number;
            return;
        }
        const bool backward = args.kind == CONV_BACKWARD_INPUT;
        const int64_t image =
            split3(number, lines[0].number, lines[1].number, lines[2].number, args.narrow, at);
        at_out = 0;
        for (int d = 0; d < CONV_RANK; d++) {
            at_out = at_out * (backward ? args.sides[d].size : args.sides[d].count) + lines[d].out +
                     at[d] * lines[d].out_jump;
            at[d] = lines[d].start + at[d] * lines[d].jump;
        }
        at_out += (image * args.groups + group) * rows * out_step;
        at_right =
            image * args.groups * (backward ? args.o * args.count : args.c * args.size) + flat(at);
    }

    // The sum of products of a row and a column inside the input; products with padding, which are
    // NaN where a factor is infinite, are left out.
    DEVICE T sum_inside(const conv_arguments &args, int64_t row, int64_t column, int64_t first,
                        int64_t last) const {
        int64_t at_left, at_right, at_column, at_out, begin[CONV_RANK], at[CONV_RANK];
        T total = 0;
        find_column(args, column, at_column, begin, at_out);
        for (int64_t number = first; number < last; number++) {
            find_summand(args, number, at_left, at_right, at);
            bool is_inside = true;
            for (int d = 0; d < CONV_RANK; d++)
                is_inside = is_inside && (uint64_t)(begin[d] + at[d]) < (uint64_t)bounds[d];
            if (is_inside)
                total += left[row * row_step + at_left] * right[at_column + at_right];
        }
        return total;
    }
};

// Four neighbours, loaded together.
template <class T>
struct alignas(16) four {
    T at[4];
};

// The position of a column or a summand: its coordinate along each dim, and its offset as two
// numbers, far and near. A thread keeps the far offset of one of the two; the other has only a near
// offset, so that it fits into four numbers.
struct conv_position {
    int at[CONV_RANK];
    int near;

    DEVICE conv_position() {}
    DEVICE conv_position(int4 from) : at{from.x, from.y, from.z}, near(from.w) {}
};

// Shared memory of a block.
template <class T, int TILE, int DEPTH>
struct conv_shared {
    T left[2][DEPTH][TILE + 4];
    T right[2][DEPTH][TILE + 4];
    int4 columns[TILE];
    int4 summands[2][DEPTH];
    int64_t columns_far[TILE];
    int64_t columns_out[TILE];
    int64_t summands_far[2][DEPTH];
    int64_t summands_left[2][DEPTH];
    conv_block<T> block;
    int64_t first_row, first_column;
    int64_t first, last; // summands
    int is_infinite;
};

// DEPTH: summands in a buffer. ALONG: neighbouring threads load neighbouring summands of
// the right factor, else columns.
template <class T, int TILE, int DEPTH, bool ALONG>
struct conv_tile {
    typedef conv_shared<T, TILE, DEPTH> memory;
    static constexpr int EACH = TILE / SIDE;           // rows and columns of a thread
    static constexpr int LOADS = TILE * DEPTH / BLOCK; // of each factor, by a thread
    static constexpr int APART = BLOCK / DEPTH;        // rows or columns of a thread's loads
    const conv_arguments &args;
    memory &shared;
    const T *left, *right; // of this thread's first row, and of its column unless ALONG
    int64_t left_step;
    int rows_left; // from this thread's first row on
    int bounds[CONV_RANK];
    conv_position column; // unless ALONG
    T loaded_left[LOADS], loaded_right[LOADS];
    bool is_infinite;

    DEVICE conv_tile(const conv_arguments &given, memory &all)
        : args(given), shared(all), is_infinite(false) {}

    DEVICE void find_columns() {
        const conv_block<T> &block = shared.block;
        for (int i = threadIdx.x; i < TILE; i += BLOCK) {
            int64_t at[CONV_RANK] = {NOWHERE, NOWHERE, NOWHERE}, offset = 0, at_out = 0;
            if (shared.first_column + i < block.columns)
                block.find_column(args, shared.first_column + i, offset, at, at_out);
            shared.columns[i] =
                make_int4((int)at[0], (int)at[1], (int)at[2], ALONG ? (int)offset : 0);
            shared.columns_far[i] = ALONG ? 0 : offset;
            shared.columns_out[i] = at_out;
        }
    }

    // Find the summands of a step.
    DEVICE void find_summands(int step, int buffer) {
        const int i = threadIdx.x;
        if (i >= DEPTH)
            return;
        int64_t at[CONV_RANK] = {NOWHERE, NOWHERE, NOWHERE}, offset = 0, at_left = -1;
        const int64_t number = shared.first + (int64_t)step * DEPTH + i;
        if (number < shared.last)
            shared.block.find_summand(args, number, at_left, offset, at);
        shared.summands_left[buffer][i] = at_left;
        shared.summands[buffer][i] =
            make_int4((int)at[0], (int)at[1], (int)at[2], ALONG ? 0 : (int)offset);
        shared.summands_far[buffer][i] = ALONG ? offset : 0;
    }

    // Keep what this thread needs for all of its loads; the columns must have been found.
    DEVICE void begin() {
        const int64_t row = shared.first_row + threadIdx.x / DEPTH;
        left_step = APART * shared.block.row_step;
        left = shared.block.left + row * shared.block.row_step;
        right = shared.block.right;
        rows_left = (int)(shared.block.rows - row < TILE ? shared.block.rows - row : TILE);
        for (int d = 0; d < CONV_RANK; d++)
            bounds[d] = (int)shared.block.bounds[d];
        if (!ALONG) {
            column = shared.columns[threadIdx.x % TILE];
            right += shared.columns_far[threadIdx.x % TILE];
        }
    }

    DEVICE void load(int buffer) {
        const int64_t at_left = shared.summands_left[buffer][threadIdx.x % DEPTH];
        conv_position kept = column;
        const T *from = right;
        if (ALONG) {
            kept = shared.summands[buffer][threadIdx.x % DEPTH];
            from += shared.summands_far[buffer][threadIdx.x % DEPTH];
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const bool is_there = at_left >= 0 && i * APART < rows_left;
            loaded_left[i] = is_there ? left[i * left_step + at_left] : 0;
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const conv_position other =
                ALONG ? shared.columns[right_column(i)] : shared.summands[buffer][right_summand(i)];
            bool is_inside = true;
#pragma unroll
            for (int d = 0; d < CONV_RANK; d++)
                is_inside &= (unsigned)(kept.at[d] + other.at[d]) < (unsigned)bounds[d];
            loaded_right[i] = is_inside ? from[other.near] : 0;
        }
    }

    DEVICE int right_summand(int i) const {
        return ALONG ? threadIdx.x % DEPTH : threadIdx.x / TILE + i * (BLOCK / TILE);
    }
    DEVICE int right_column(int i) const {
        return ALONG ? threadIdx.x / DEPTH + i * APART : threadIdx.x % TILE;
    }

    DEVICE void store_loaded(int buffer) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            is_infinite |= loaded_left[i] - loaded_left[i] != 0;
            shared.left[buffer][threadIdx.x % DEPTH][threadIdx.x / DEPTH + i * APART] =
                loaded_left[i];
            shared.right[buffer][right_summand(i)][right_column(i)] = loaded_right[i];
        }
    }

    // A thread's rows and columns come in groups of four, SIDE * 4 apart.
    static DEVICE int tile_index(int thread, int i) {
        return i / 4 * (SIDE * 4) + thread * 4 + i % 4;
    }

    DEVICE void multiply(int buffer, T (&sums)[EACH][EACH]) const {
        const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll 8
        for (int k = 0; k < DEPTH; k++) {
            four<T> a[EACH / 4], b[EACH / 4];
#pragma unroll
            for (int i = 0; i < EACH / 4; i++) {
                a[i] = *reinterpret_cast<const four<T> *>(
                    &shared.left[buffer][k][tile_index(y, 4 * i)]);
                b[i] = *reinterpret_cast<const four<T> *>(
                    &shared.right[buffer][k][tile_index(x, 4 * i)]);
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sums[i][j] += a[i / 4].at[i % 4] * b[j / 4].at[j % 4];
        }
    }

    DEVICE void write(T *out, const T *bias, const T (&sums)[EACH][EACH]) const {
        const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
        const conv_block<T> &block = shared.block;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t row = shared.first_row + tile_index(y, i);
            if (row >= block.rows)
                break;
            const T more = bias == nullptr ? 0 : bias[block.group * block.rows + row];
            T *const line = out + row * block.out_step;
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (shared.first_column + tile_index(x, j) < block.columns)
                    line[shared.columns_out[tile_index(x, j)]] = sums[i][j] + more;
        }
    }

    // Compute NaN results of this thread again without padding, where a weight is not finite.
    DEVICE void write_again(T *out, const T *bias) const {
        const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
        const conv_block<T> &block = shared.block;
        for (int i = 0; i < EACH * EACH; i++) {
            const int n = tile_index(x, i % EACH);
            const int64_t row = shared.first_row + tile_index(y, i / EACH);
            if (row >= block.rows || shared.first_column + n >= block.columns)
                continue;
            T *const target = out + row * block.out_step + shared.columns_out[n];
            if (*target != *target)
                *target = block.sum_inside(args, row, shared.first_column + n, shared.first,
                                           shared.last) +
                          (bias == nullptr ? 0 : bias[block.group * block.rows + row]);
        }
    }
};

// Find the task of this block; false if there is none.
template <class T, int TILE, int DEPTH>
DEVICE bool begin_block(const conv_arguments &args, conv_shared<T, TILE, DEPTH> &shared,
                        int64_t &split) {
    // Blocks that share columns follow each other.
    int64_t rest = blockIdx.x, at[2], group, phase[CONV_RANK];
    at[0] = rest % args.row_tiles;
    rest /= args.row_tiles;
    at[1] = rest % args.column_tiles;
    rest /= args.column_tiles;
    group = rest % args.groups;
    rest /= args.groups;
    split = rest % args.splits;
    split3(rest / args.splits, args.sides[0].phases, args.sides[1].phases, args.sides[2].phases,
           false, phase);
    conv_block<T> &block = shared.block;
    if (threadIdx.x == 0) {
        for (int d = 0; d < CONV_RANK; d++) {
            if (args.kind == CONV_BACKWARD_INPUT)
                block.lines[d].backward(args.sides[d], phase[d]);
            else
                block.lines[d].forward(args.sides[d]);
        }
        block.begin(args, group);
        shared.first_row = at[0] * TILE;
        shared.first_column = at[1] * TILE;
        shared.first = split * args.chunk;
        shared.last =
            shared.first + args.chunk < block.summands ? shared.first + args.chunk : block.summands;
        shared.is_infinite = 0;
    }
    __syncthreads();
    return shared.first_column < block.columns;
}

template <class T, int TILE, int DEPTH, bool ALONG>
DEVICE void make_tile(const conv_arguments &args) {
    __shared__ conv_shared<T, TILE, DEPTH> shared;
    int64_t split;
    if (!begin_block(args, shared, split))
        return;
    conv_tile<T, TILE, DEPTH, ALONG> tile(args, shared);
    tile.find_columns();
    tile.find_summands(0, 0);
    tile.find_summands(1, 1);
    __syncthreads();
    tile.begin();
    T sums[tile.EACH][tile.EACH] = {};
    const int64_t count = shared.last - shared.first;
    const int steps = count > 0 ? (int)((count + DEPTH - 1) / DEPTH) : 0;
    if (steps > 0) {
        tile.load(0);
        tile.store_loaded(0);
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        const bool is_last = step + 1 == steps;
        if (!is_last)
            tile.load(~step & 1);
        tile.multiply(step & 1, sums);
        if (!is_last) {
            tile.store_loaded(~step & 1);
            tile.find_summands(step + 2, step & 1);
        }
        __syncthreads();
    }
    T *const out = args.partial == nullptr ? static_cast<T *>(args.out)
                                           : static_cast<T *>(args.partial) + split * args.elements;
    const T *const bias = args.partial == nullptr ? static_cast<const T *>(args.bias) : nullptr;
    tile.write(out, bias, sums);
    if (args.kind != CONV_BACKWARD_INPUT)
        return;
    if (tile.is_infinite)
        shared.is_infinite = 1;
    __syncthreads();
    if (shared.is_infinite)
        tile.write_again(out, bias);
}

KERNEL(conv_large_f32, conv_arguments) { make_tile<float, CONV_LARGE, LARGE_DEPTH, false>(args); }
KERNEL(conv_small_f32, conv_arguments) { make_tile<float, CONV_SMALL, SMALL_DEPTH, false>(args); }
KERNEL(conv_small_f64, conv_arguments) { make_tile<double, CONV_SMALL, SMALL_DEPTH, false>(args); }
KERNEL(conv_backward_weight_large_f32, conv_arguments) {
    make_tile<float, CONV_LARGE, LARGE_DEPTH, true>(args);
}
KERNEL(conv_backward_weight_small_f32, conv_arguments) {
    make_tile<float, CONV_SMALL, SMALL_DEPTH, true>(args);
}
KERNEL(conv_backward_weight_small_f64, conv_arguments) {
    make_tile<double, CONV_SMALL, SMALL_DEPTH, true>(args);
}

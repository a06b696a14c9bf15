// Attention and its derivatives by tiles of queries and keys: memory is linear in their numbers.
// Half-precision numbers are computed with in float. No sum depends on the order of blocks.
//
// Source: Dao et al., "FlashAttention", 2022, algorithms 1 and 4.
#include "kernels/common/dtypes.cuh"
#include "kernels/sequences/attention.h"

enum { TILE = ATTENTION_TILE, CHUNK = ATTENTION_CHUNK, EACH = CHUNK / TILE };

DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }
DEVICE float logarithm(float x) { return logf(x); }
DEVICE double logarithm(double x) { return log(x); }

// A row for each query or key of the tile; the last column keeps columns apart in shared memory.
template <class V>
struct square {
    V of[TILE][TILE + 1];
};

template <class V>
struct strip {
    V of[TILE][CHUNK];
};

// The first element of a head of the query, or, with a group, of what such heads share.
template <class T>
DEVICE T *head_of(const pb_attention &args, const pb_heads &operand, int64_t head, int64_t group) {
    int64_t offset = 0;
#pragma unroll
    for (int d = ATTENTION_LEAD - 1; d >= 0; d--) {
        const int64_t position = head % args.lead[d];
        offset += (d == ATTENTION_LEAD - 1 ? position / group : position) * operand.lead[d];
        head /= args.lead[d];
    }
    return static_cast<T *>(operand.data) + offset;
}

template <class T>
DEVICE typename traits<T>::compute element(const pb_heads &operand, const T *head, int64_t row,
                                           int64_t rows, int64_t column, int64_t columns) {
    return row < rows && column < columns ? load(head + row * operand.row + column * operand.step)
                                          : 0;
}

// The product of row `threadIdx.x / TILE` of the left tile and row `threadIdx.x % TILE` of the
// right one. All threads of the block take part.
template <class T, class V>
DEVICE V product_of_rows(const pb_heads &left, const T *left_head, int64_t left_first,
                         int64_t left_rows, const pb_heads &right, const T *right_head,
                         int64_t right_first, int64_t right_rows, int64_t size, square<V> &a,
                         square<V> &b) {
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    V sum = 0;
    for (int64_t start = 0; start < size; start += TILE) {
        a.of[row][column] =
            element(left, left_head, left_first + row, left_rows, start + column, size);
        b.of[row][column] =
            element(right, right_head, right_first + row, right_rows, start + column, size);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++)
            sum += a.of[row][k] * b.of[column][k];
        __syncthreads();
    }
    return sum;
}

// Copy a chunk of the elements of a tile's rows.
template <class T, class V>
DEVICE void load_strip(const pb_heads &operand, const T *head, int64_t first, int64_t rows,
                       int64_t start, int64_t size, strip<V> &out) {
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
#pragma unroll
    for (int c = 0; c < EACH; c++)
        out.of[row][column + c * TILE] =
            element(operand, head, first + row, rows, start + column + c * TILE, size);
}

// Add products of this thread's row of weights with the columns that it makes.
template <class V>
DEVICE void add_products(const square<V> &weights, const strip<V> &rows, V (&sums)[EACH]) {
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
#pragma unroll
    for (int k = 0; k < TILE; k++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            sums[c] += weights.of[row][k] * rows.of[k][column + c * TILE];
}

template <class T, class V>
DEVICE void store_row(const pb_heads &operand, T *head, int64_t row, int64_t rows, int64_t start,
                      int64_t size, const V (&values)[EACH], V factor) {
    const int column = threadIdx.x % TILE;
#pragma unroll
    for (int c = 0; c < EACH; c++)
        if (row < rows && start + column + c * TILE < size)
            store(head + row * operand.row + (start + column + c * TILE) * operand.step,
                  values[c] * factor);
}

// A product of a query and a key as a score; -infinity where the query does not see the key.
template <class V>
DEVICE V score_of(const pb_attention &args, int64_t head, int64_t query, int64_t key, V product) {
    V score = product * (V)args.scale;
    if (query >= args.queries || key >= args.keys || (args.is_causal && key > query))
        return -INFINITY;
    const int64_t at = query * args.mask.row + key * args.mask.step;
    if (args.masks == BOOL_MASK && head_of<uint8_t>(args, args.mask, head, 1)[at] == 0)
        return -INFINITY;
    if (args.masks == ADDED_MASK)
        score += head_of<V>(args, args.mask, head, 1)[at];
    return score;
}

// ---- forward -----------------------------------------------------------------------------------

template <class T>
DEVICE void attend(const pb_attention &args) {
    typedef typename traits<T>::compute V;
    __shared__ square<V> a, b, weights;
    __shared__ strip<V> values;
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    const int64_t chunks = args.out_size ? (args.out_size + CHUNK - 1) / CHUNK : 1;
    const int64_t tiles = (args.queries + TILE - 1) / TILE;
    for (int64_t unit = blockIdx.x; unit < args.heads * tiles * chunks; unit += gridDim.x) {
        const int64_t start = unit % chunks * CHUNK, first = unit / chunks % tiles * TILE;
        const int64_t head = unit / chunks / tiles, query = first + row;
        const T *query_head = head_of<const T>(args, args.query, head, 1);
        const T *key_head = head_of<const T>(args, args.key, head, args.group);
        const T *value_head = head_of<const T>(args, args.value, head, args.group);
        int64_t keys = args.keys;
        if (args.is_causal && first + TILE < keys)
            keys = first + TILE;
        V sums[EACH] = {}, largest = -INFINITY, total = 0;
        for (int64_t key = 0; key < keys; key += TILE) {
            const V score = score_of<V>(args, head, query, key + column,
                                        product_of_rows<T, V>(args.query, query_head, first,
                                                              args.queries, args.key, key_head, key,
                                                              args.keys, args.size, a, b));
            weights.of[row][column] = score;
            load_strip<T, V>(args.value, value_head, key, args.keys, start, args.out_size, values);
            __syncthreads();
            const V before = largest;
#pragma unroll
            for (int k = 0; k < TILE; k++)
                largest = weights.of[row][k] > largest ? weights.of[row][k] : largest;
            const V shift = largest == -INFINITY ? 0 : largest;
            const V factor = exponential(before - shift);
            __syncthreads();
            weights.of[row][column] = exponential(score - shift);
            __syncthreads();
            total *= factor;
#pragma unroll
            for (int k = 0; k < TILE; k++)
                total += weights.of[row][k];
#pragma unroll
            for (int c = 0; c < EACH; c++)
                sums[c] *= factor;
            add_products(weights, values, sums);
            __syncthreads();
        }
        store_row<T, V>(args.out, head_of<T>(args, args.out, head, 1), query, args.queries, start,
                        args.out_size, sums, total == 0 ? 0 : 1 / total);
        if (start == 0 && column == 0 && query < args.queries)
            head_of<V>(args, args.sums, head, 1)[query * args.sums.row] =
                largest + logarithm(total);
    }
}

// ---- backward ----------------------------------------------------------------------------------

// The sum of grad * out of query `threadIdx.x / TILE` of a tile; all its threads get it.
template <class T, class V>
DEVICE V mean_of(const pb_attention &args, int64_t head, int64_t query, square<V> &shared) {
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    const T *grad = head_of<const T>(args, args.grad, head, 1);
    const T *out = head_of<const T>(args, args.out, head, 1);
    V sum = 0;
    for (int64_t e = column; e < args.out_size; e += TILE)
        sum += element(args.grad, grad, query, args.queries, e, args.out_size) *
               element(args.out, out, query, args.queries, e, args.out_size);
    shared.of[row][column] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < TILE; k++)
        sum += shared.of[row][k];
    __syncthreads();
    return sum;
}

template <class V>
DEVICE V weight_of(const pb_attention &args, int64_t head, int64_t query, int64_t key, V product) {
    const V score = score_of<V>(args, head, query, key, product);
    if (score == -INFINITY)
        return 0;
    return exponential(score - head_of<V>(args, args.sums, head, 1)[query * args.sums.row]);
}

template <class T>
DEVICE void differentiate_queries(const pb_attention &args) {
    typedef typename traits<T>::compute V;
    __shared__ square<V> a, b, slopes;
    __shared__ strip<V> rows;
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    const int64_t chunks = (args.size + CHUNK - 1) / CHUNK;
    const int64_t tiles = (args.queries + TILE - 1) / TILE;
    for (int64_t unit = blockIdx.x; unit < args.heads * tiles * chunks; unit += gridDim.x) {
        const int64_t start = unit % chunks * CHUNK, first = unit / chunks % tiles * TILE;
        const int64_t head = unit / chunks / tiles, query = first + row;
        const T *query_head = head_of<const T>(args, args.query, head, 1);
        const T *key_head = head_of<const T>(args, args.key, head, args.group);
        const T *value_head = head_of<const T>(args, args.value, head, args.group);
        const T *grad_head = head_of<const T>(args, args.grad, head, 1);
        const V mean = mean_of<T, V>(args, head, query, slopes);
        int64_t keys = args.keys;
        if (args.is_causal && first + TILE < keys)
            keys = first + TILE;
        V sums[EACH] = {};
        for (int64_t key = 0; key < keys; key += TILE) {
            const V product =
                product_of_rows<T, V>(args.query, query_head, first, args.queries, args.key,
                                      key_head, key, args.keys, args.size, a, b);
            const V by_weight =
                product_of_rows<T, V>(args.grad, grad_head, first, args.queries, args.value,
                                      value_head, key, args.keys, args.out_size, a, b);
            slopes.of[row][column] =
                weight_of<V>(args, head, query, key + column, product) * (by_weight - mean);
            load_strip<T, V>(args.key, key_head, key, args.keys, start, args.size, rows);
            __syncthreads();
            add_products(slopes, rows, sums);
            __syncthreads();
        }
        store_row<T, V>(args.query_grad, head_of<T>(args, args.query_grad, head, 1), query,
                        args.queries, start, args.size, sums, (V)args.scale);
    }
}

template <class T>
DEVICE void differentiate_keys(const pb_attention &args) {
    typedef typename traits<T>::compute V;
    __shared__ square<V> a, b, weights, slopes;
    __shared__ strip<V> queries, grads;
    __shared__ V means[TILE];
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    const int64_t widest = args.size > args.out_size ? args.size : args.out_size;
    const int64_t chunks = (widest + CHUNK - 1) / CHUNK;
    const int64_t tiles = (args.keys + TILE - 1) / TILE;
    for (int64_t unit = blockIdx.x; unit < args.heads / args.group * tiles * chunks;
         unit += gridDim.x) {
        const int64_t start = unit % chunks * CHUNK, first = unit / chunks % tiles * TILE;
        const int64_t leader = unit / chunks / tiles * args.group, key = first + row;
        const T *key_head = head_of<const T>(args, args.key, leader, args.group);
        const T *value_head = head_of<const T>(args, args.value, leader, args.group);
        V key_sums[EACH] = {}, value_sums[EACH] = {};
        for (int64_t head = leader; head < leader + args.group; head++) {
            const T *query_head = head_of<const T>(args, args.query, head, 1);
            const T *grad_head = head_of<const T>(args, args.grad, head, 1);
            for (int64_t query = args.is_causal ? first : 0; query < args.queries; query += TILE) {
                const V mean = mean_of<T, V>(args, head, query + row, slopes);
                if (column == 0)
                    means[row] = mean;
                const V product =
                    product_of_rows<T, V>(args.key, key_head, first, args.keys, args.query,
                                          query_head, query, args.queries, args.size, a, b);
                const V by_weight =
                    product_of_rows<T, V>(args.value, value_head, first, args.keys, args.grad,
                                          grad_head, query, args.queries, args.out_size, a, b);
                load_strip<T, V>(args.query, query_head, query, args.queries, start, args.size,
                                 queries);
                load_strip<T, V>(args.grad, grad_head, query, args.queries, start, args.out_size,
                                 grads);
                __syncthreads();
                const V weight = weight_of<V>(args, head, query + column, key, product);
                weights.of[row][column] = weight;
                slopes.of[row][column] = weight * (by_weight - means[column]);
                __syncthreads();
                add_products(slopes, queries, key_sums);
                add_products(weights, grads, value_sums);
                __syncthreads();
            }
        }
        store_row<T, V>(args.key_grad, head_of<T>(args, args.key_grad, leader, args.group), key,
                        args.keys, start, args.size, key_sums, (V)args.scale);
        store_row<T, V>(args.value_grad, head_of<T>(args, args.value_grad, leader, args.group), key,
                        args.keys, start, args.out_size, value_sums, (V)1);
    }
}

#define ATTENTION(name, T) \
    KERNEL(attention_##name, pb_attention) { attend<T>(args); } \
    KERNEL(attention_queries_##name, pb_attention) { differentiate_queries<T>(args); } \
    KERNEL(attention_keys_##name, pb_attention) { differentiate_keys<T>(args); }
FOR_FLOATING(ATTENTION)

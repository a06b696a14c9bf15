// What decompositions need beside cuSOLVER: checks of elements, reflections, swaps, pairs.
#include "kernels/common/dtypes.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/indexing/indexed.cuh"
#include "kernels/linalg/decompose.h"

#define FOR_REAL_SOLVED(X) X(f32, float) X(f64, double)
#define FOR_SOLVED(X) FOR_REAL_SOLVED(X) FOR_COMPLEX(X)

// ---- checks ------------------------------------------------------------------------------------

// A block looks at a matrix.
template <class T>
DEVICE void screen(const screen_arguments &args) {
    for (int64_t batch = blockIdx.x; batch < args.batch; batch += gridDim.x) {
        T *matrix = static_cast<T *>(args.matrices) + batch * args.count;
        int found = 0;
        for (int64_t i = threadIdx.x; i < args.count; i += blockDim.x) {
            T value = matrix[i];
            if (!(value - value == (T)0))
                found |= value != value ? 2 : 1;
        }
        int bad = __syncthreads_or(found), nan = __syncthreads_or(found & 2);
        for (int64_t i = threadIdx.x; bad && i < args.count; i += blockDim.x)
            matrix[i] = (T)0;
        if (threadIdx.x == 0)
            args.flags[batch] = nan ? 2 : bad ? 1 : 0;
    }
}

#define SCREEN(name, T) \
    KERNEL(screen_##name, screen_arguments) { screen<T>(args); }
FOR_REAL_SOLVED(SCREEN)

DEVICE bool is_nan(float x) { return x != x; }
DEVICE bool is_nan(double x) { return x != x; }

template <class T>
DEVICE void check_diagonal(const diagonal_arguments &args) {
    __shared__ int first;
    for (int64_t batch = blockIdx.x; batch < args.batch; batch += gridDim.x) {
        if (threadIdx.x == 0)
            first = (int)args.n;
        __syncthreads();
        const T *matrix = static_cast<const T *>(args.matrices) + batch * args.n * args.n;
        for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x)
            if (is_nan(matrix[i * (args.n + 1)]))
                atomicMin(&first, (int)i);
        __syncthreads();
        if (threadIdx.x == 0 && first < args.n && args.codes[batch] == 0)
            args.codes[batch] = first + 1;
        __syncthreads();
    }
}

#define DIAGONAL(name, T) \
    KERNEL(diagonal_##name, diagonal_arguments) { check_diagonal<T>(args); }
FOR_SOLVED(DIAGONAL)

KERNEL(settle, settle_arguments) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < args.batch;
         i += (int64_t)gridDim.x * blockDim.x) {
        int32_t code = args.codes[i], flag = args.flags == nullptr ? 0 : args.flags[i];
        args.codes[i] = code != 0 || flag != 0;
        if (args.info != nullptr)
            args.info[i * args.info_stride] = flag == 2   ? args.of_nan
                                              : flag == 1 ? args.of_infinity
                                                          : code;
    }
}

// ---- reflections -------------------------------------------------------------------------------

DEVICE float conjugate(float x) { return x; }
DEVICE double conjugate(double x) { return x; }

// A warp makes a column: each thread has the same rows in every step. Reflections behind a
// column's own number do not reach it.
template <class T>
DEVICE void reflect(const reflections_arguments &args) {
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    const int64_t all = args.batch * args.columns;
    for (int64_t at = blockIdx.x * (int64_t)warps + (threadIdx.x >> 5); at < all;
         at += (int64_t)gridDim.x * warps) {
        const int64_t batch = at / args.columns, column = at % args.columns;
        T *out =
            static_cast<T *>(args.out) + batch * args.out_strides[0] + column * args.out_strides[2];
        for (int64_t i = lane; i < args.rows; i += 32)
            out[i * args.out_strides[1]] = cast<T, float>::of(i == column);
        int64_t step = args.count <= column ? args.count : column + 1;
        while (step-- > 0) {
            const T *vector = static_cast<const T *>(args.vectors) +
                              batch * args.vector_strides[0] + step * args.vector_strides[2];
            T along = cast<T, float>::of(0);
            for (int64_t i = (step & ~(int64_t)31) + lane; i < args.rows; i += 32)
                if (i > step)
                    along = along + conjugate(vector[i * args.vector_strides[1]]) *
                                        out[i * args.out_strides[1]];
                else if (i == step)
                    along = along + out[i * args.out_strides[1]];
            for (int distance = 16; distance; distance >>= 1)
                along = along + shuffle_xor(along, distance);
            along = along * static_cast<const T *>(
                                args.tau)[batch * args.tau_strides[0] + step * args.tau_strides[1]];
            for (int64_t i = (step & ~(int64_t)31) + lane; i < args.rows; i += 32)
                if (i >= step) {
                    T *element = out + i * args.out_strides[1];
                    T part = i == step ? along : along * vector[i * args.vector_strides[1]];
                    *element = *element - part;
                }
        }
    }
}

#define REFLECT(name, T) \
    KERNEL(reflect_##name, reflections_arguments) { reflect<T>(args); }
FOR_SOLVED(REFLECT)

// ---- swaps and pairs ---------------------------------------------------------------------------

// A thread makes the swaps of a matrix, one after another.
KERNEL(swaps, swaps_arguments) {
    for (int64_t batch = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; batch < args.batch;
         batch += (int64_t)gridDim.x * blockDim.x) {
        int64_t *out = args.out + batch * args.out_strides[0];
        const int32_t *swaps = args.swaps + batch * args.swap_strides[0];
        for (int64_t i = 0; i < args.rows; i++)
            out[i * args.out_strides[1]] = i;
        for (int64_t i = 0; i < args.count; i++) {
            int64_t other = (int64_t)swaps[i * args.swap_strides[1]] - 1;
            if (other < 0 || other >= args.rows || i >= args.rows) {
                report_index(args.failure, other, 1, args.rows);
                break;
            }
            int64_t kept = out[i * args.out_strides[1]];
            out[i * args.out_strides[1]] = out[other * args.out_strides[1]];
            out[other * args.out_strides[1]] = kept;
        }
    }
}

// The value with the positive imaginary part is the first of its pair.
template <class R>
DEVICE void widen_pairs(const pairs_arguments &args) {
    const int64_t size = args.n * args.n;
    for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; at < args.batch * size;
         at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t batch = at / size, column = at % size / args.n;
        R turn = static_cast<const complex<R> *>(args.values)[batch * args.n + column].imag;
        const R *vectors = static_cast<const R *>(args.vectors);
        complex<R> found = {vectors[at], (R)0};
        if (turn > (R)0 && column + 1 < args.n)
            found.imag = vectors[at + args.n];
        else if (turn < (R)0 && column > 0)
            found = {vectors[at - args.n], -vectors[at]};
        static_cast<complex<R> *>(args.out)[at] = found;
    }
}

#define PAIRS(name, R) \
    KERNEL(pairs_##name, pairs_arguments) { widen_pairs<R>(args); }
FOR_REAL_SOLVED(PAIRS)

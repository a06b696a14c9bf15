// Products of integers, which cuBLAS lacks, and copies of matrices to another memory layout.
#include "kernels/common/dtypes.cuh"
#include "kernels/linalg/matmul.h"

// ---- products of integers ----------------------------------------------------------------------

// Sums wrap around as C's unsigned numbers do; of bool, a product is `and` and a sum is `or`.
template <class T>
struct sums {
    typedef uint64_t type;
    static DEVICE uint64_t add(uint64_t sum, T x, T y) { return sum + (uint64_t)x * (uint64_t)y; }
};
template <>
struct sums<bool> {
    typedef bool type;
    static DEVICE bool add(bool sum, bool x, bool y) { return sum || (x && y); }
};

enum { TILE = 16 };

// A block makes tiles of 16 x 16 elements, a thread one element of each.
template <class T>
DEVICE void product(const product_arguments &args) {
    typedef typename sums<T>::type sum_type;
    __shared__ T left[TILE][TILE], right[TILE][TILE + 1];
    int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    int64_t across = (args.columns + TILE - 1) / TILE, down = (args.rows + TILE - 1) / TILE;
    for (int64_t tile = blockIdx.x; tile < args.batch * down * across; tile += gridDim.x) {
        int64_t batch = tile / (down * across);
        int64_t i = tile / across % down * TILE + row, j = tile % across * TILE + column;
        const T *a = static_cast<const T *>(args.left) + batch * args.left_strides[0];
        const T *b = static_cast<const T *>(args.right) + batch * args.right_strides[0];
        sum_type sum = 0;
        for (int64_t start = 0; start < args.inner; start += TILE) {
            int64_t k = start + column, l = start + row;
            left[row][column] = i < args.rows && k < args.inner
                                    ? a[i * args.left_strides[1] + k * args.left_strides[2]]
                                    : (T)0;
            right[row][column] = l < args.inner && j < args.columns
                                     ? b[l * args.right_strides[1] + j * args.right_strides[2]]
                                     : (T)0;
            __syncthreads();
            for (int step = 0; step < TILE; ++step)
                sum = sums<T>::add(sum, left[row][step], right[step][column]);
            __syncthreads();
        }
        if (i < args.rows && j < args.columns)
            static_cast<T *>(args.out)[batch * args.out_strides[0] + i * args.out_strides[1] +
                                       j * args.out_strides[2]] = (T)sum;
    }
}

#define PRODUCT(name, T) \
    KERNEL(bmm_##name, product_arguments) { product<T>(args); }
PRODUCT(b, bool)
FOR_INTEGRAL(PRODUCT)

// ---- copies to another layout ------------------------------------------------------------------

template <class T>
DEVICE T not_a_number() {
    return cast<T, float>::of(NAN);
}

// A tile goes through shared memory, so that both sides are read and written along their rows.
template <class T>
DEVICE void pack(const pack_arguments &args) {
    __shared__ T tiles[TILE][TILE + 1];
    int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    int64_t across = (args.shape[2] + TILE - 1) / TILE, down = (args.shape[1] + TILE - 1) / TILE;
    const T *from = static_cast<const T *>(args.from);
    T *to = static_cast<T *>(args.to);
    bool read_down = args.from_strides[1] == 1, write_down = args.to_strides[1] == 1;
    for (int64_t tile = blockIdx.x; tile < args.shape[0] * down * across; tile += gridDim.x) {
        int64_t batch = tile / (down * across);
        int64_t i = tile / across % down * TILE, j = tile % across * TILE;
        int r = read_down ? column : row, c = read_down ? row : column;
        if (i + r < args.shape[1] && j + c < args.shape[2])
            tiles[r][c] = from == nullptr
                              ? cast<T, float>::of(args.fill)
                              : from[batch * args.from_strides[0] + (i + r) * args.from_strides[1] +
                                     (j + c) * args.from_strides[2]];
        __syncthreads();
        r = write_down ? column : row;
        c = write_down ? row : column;
        bool lost = args.info != nullptr && args.info[batch] != 0;
        bool above = args.lower && i + r < j + c;
        if (i + r < args.shape[1] && j + c < args.shape[2])
            to[batch * args.to_strides[0] + (i + r) * args.to_strides[1] +
               (j + c) * args.to_strides[2]] = lost    ? not_a_number<T>()
                                               : above ? cast<T, float>::of(0)
                                                       : tiles[r][c];
        __syncthreads();
    }
}

#define PACK(name, T) \
    KERNEL(pack_##name, pack_arguments) { pack<T>(args); }
FOR_FLOATING(PACK)
FOR_COMPLEX(PACK)

KERNEL(addresses, addresses_arguments) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < args.count;
         i += (int64_t)gridDim.x * blockDim.x)
        args.to[i] = args.first + i * args.step;
}

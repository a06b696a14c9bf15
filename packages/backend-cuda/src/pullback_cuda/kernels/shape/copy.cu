// Copies between all element types: casts as C has them, from class to class.
#include "kernels/common/kernel.cuh"

#include "kernels/shape/copy.h"
#include "kernels/common/elementwise_driver.cuh"

// Integers of at most 32 bits, and bool, which is whether a number is not zero.
DEVICE int32_t to_int(const elementwise_arguments &args, int32_t x) {
    return args.out_type == TYPE_BOOL ? x != 0 : x;
}
DEVICE int32_t to_int(const elementwise_arguments &args, int64_t x) {
    return args.out_type == TYPE_BOOL ? x != 0 : (int32_t)x;
}
template <class R>
DEVICE int32_t real_to_int(const elementwise_arguments &args, R x) {
    if (args.out_type == TYPE_BOOL)
        return x != 0;
    // -1.0 becomes 255
    return args.out_type == TYPE_U8 ? (int32_t)truncate_to_int64(x) : truncate_to_int32(x);
}
DEVICE int32_t to_int(const elementwise_arguments &args, float x) { return real_to_int(args, x); }
DEVICE int32_t to_int(const elementwise_arguments &args, double x) { return real_to_int(args, x); }
DEVICE int32_t to_int(const elementwise_arguments &args, complex<double> x) {
    if (args.out_type == TYPE_BOOL)
        return x.real != 0 || x.imag != 0;
    return real_to_int(args, x.real);
}

DEVICE int64_t to_long(int32_t x) { return x; }
DEVICE int64_t to_long(float x) { return truncate_to_int64(x); }
DEVICE int64_t to_long(double x) { return truncate_to_int64(x); }
DEVICE int64_t to_long(complex<double> x) { return truncate_to_int64(x.real); }

template <class R, class T>
DEVICE R to_real(T x) {
    return (R)x;
}
template <class R>
DEVICE R to_real(complex<double> x) {
    return (R)x.real;
}

template <class T>
DEVICE complex<double> to_complex(const elementwise_arguments &, T x) {
    return complex<double>{(double)x, 0};
}
DEVICE complex<double> to_complex(const elementwise_arguments &args, int64_t x) {
    // In one step: two would round twice.
    return complex<double>{args.out_type == TYPE_C64 ? (double)(float)x : (double)x, 0};
}
DEVICE complex<double> to_complex(const elementwise_arguments &, complex<double> x) { return x; }

#define COPY(from, to, In, To, value) \
    ELEMENTWISE(copy_##from##_##to, 1, In, In, To, \
                (In::vector_size < To::vector_size ? In::vector_size : To::vector_size), \
                (const elementwise_arguments &args, In::compute x), value)

COPY(int, int, ints, ints, to_int(args, x))
COPY(int, long, ints, longs, to_long(x))
COPY(int, float, ints, floats, to_real<float>(x))
COPY(int, double, ints, doubles, to_real<double>(x))
COPY(int, complex, ints, complexes, to_complex(args, x))

COPY(long, int, longs, ints, to_int(args, x))
COPY(long, float, longs, floats, to_real<float>(x))
COPY(long, double, longs, doubles, to_real<double>(x))
COPY(long, complex, longs, complexes, to_complex(args, x))

COPY(float, int, floats, ints, to_int(args, x))
COPY(float, long, floats, longs, to_long(x))
COPY(float, float, floats, floats, x)
COPY(float, double, floats, doubles, to_real<double>(x))
COPY(float, complex, floats, complexes, to_complex(args, x))

COPY(double, int, doubles, ints, to_int(args, x))
COPY(double, long, doubles, longs, to_long(x))
COPY(double, float, doubles, floats, to_real<float>(x))
COPY(double, complex, doubles, complexes, to_complex(args, x))

COPY(complex, int, complexes, ints, to_int(args, x))
COPY(complex, long, complexes, longs, to_long(x))
COPY(complex, float, complexes, floats, to_real<float>(x))
COPY(complex, double, complexes, doubles, to_real<double>(x))
COPY(complex, complex, complexes, complexes, x)

// Between arrays of one type only the element's size matters.
#define MOVE(size, T) \
    ELEMENTWISE(copy_##size, 1, plain<T>, plain<T>, plain<T>, plain<T>::vector_size, \
                (const elementwise_arguments &args, T x), x)
MOVE(1, uint8_t)
MOVE(2, uint16_t)
MOVE(4, uint32_t)
MOVE(8, uint64_t)
MOVE(16, complex<double>)

// ---- transposed arrays -------------------------------------------------------------------------

// The input is contiguous along one dim and the output along another, so tiles go through shared
// memory: both sides are read and written along their contiguous dim.
template <class T>
DEVICE void copy_tile(const copy_tiles_arguments &args) {
    constexpr int TILE = COPY_TILE(sizeof(T)), STEP = ELEMENTWISE_THREADS / TILE;
    // A row spans an odd number of banks, so that a column has no bank conflicts.
    __shared__ T tile[TILE][TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    uint32_t rest = blockIdx.x;
    const uint32_t first_column = rest % args.column_tiles * TILE;
    rest /= args.column_tiles;
    const uint32_t first_row = rest % args.row_tiles * TILE;
    rest /= args.row_tiles;
    const char *in = (const char *)args.in + (int64_t)first_column * args.in_stride;
    char *out = (char *)args.out + (int64_t)first_row * args.out_stride;
    for (int d = 0; d < args.ndim; ++d) {
        const uint32_t index = rest % args.size[d];
        rest /= args.size[d];
        in += index * args.in_strides[d];
        out += index * args.out_strides[d];
    }
#pragma unroll
    for (int i = 0; i < TILE; i += STEP) {
        const uint32_t column = first_column + y + i, row = first_row + x;
        if (column < args.columns && row < args.rows)
            tile[y + i][x] = ((const T *)(in + (y + i) * args.in_stride))[row];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i += STEP) {
        const uint32_t column = first_column + x, row = first_row + y + i;
        if (column < args.columns && row < args.rows)
            ((T *)(out + (y + i) * args.out_stride))[column] = tile[x][y + i];
    }
}

KERNEL(copy_tiles_1, copy_tiles_arguments) { copy_tile<uint8_t>(args); }
KERNEL(copy_tiles_2, copy_tiles_arguments) { copy_tile<uint16_t>(args); }
KERNEL(copy_tiles_4, copy_tiles_arguments) { copy_tile<uint32_t>(args); }
KERNEL(copy_tiles_8, copy_tiles_arguments) { copy_tile<uint64_t>(args); }

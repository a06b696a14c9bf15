// LDL decompositions of symmetric and Hermitian matrices, stored as by sytrf and hetrf of LAPACK.
// cuSOLVER has none for Hermitian ones.
#include "kernels/common/dtypes.cuh"
#include "kernels/common/vectorized.cuh"
#include "kernels/indexing/indexed.cuh"
#include "kernels/linalg/ldl.h"

#define FOR_SOLVED(X) X(f32, float) X(f64, double) FOR_COMPLEX(X)

DEVICE double size_of(float x) { return fabs((double)x); }
DEVICE double size_of(double x) { return fabs(x); }
template <class R>
DEVICE double size_of(complex<R> z) {
    return fabs((double)z.real) + fabs((double)z.imag);
}

DEVICE float turned(float x, bool) { return x; }
DEVICE double turned(double x, bool) { return x; }
template <class R>
DEVICE complex<R> turned(complex<R> z, bool hermitian) {
    return hermitian ? conjugate(z) : z;
}

DEVICE float real_part(float x, bool) { return x; }
DEVICE double real_part(double x, bool) { return x; }
template <class R>
DEVICE complex<R> real_part(complex<R> z, bool hermitian) {
    return hermitian ? complex<R>{z.real, (R)0} : z;
}

template <class T>
DEVICE void swap_elements(T &x, T &y) {
    T kept = x;
    x = y;
    y = kept;
}

// ---- decompositions ----------------------------------------------------------------------------

// The largest of the numbers at(first), ... at(end - 1), and the first place where it is. Every
// thread of the block calls this and gets the same.
struct largest_element {
    double size;
    int64_t place;
};

template <class At>
DEVICE largest_element find_largest(int64_t first, int64_t end, At at) {
    __shared__ largest_element found[256];
    largest_element best = {-1, first};
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        double size = at(i);
        if (size > best.size)
            best = {size, i};
    }
    found[threadIdx.x] = best;
    for (int half = blockDim.x >> 1; half; half >>= 1) {
        __syncthreads();
        if ((int)threadIdx.x < half) {
            largest_element other = found[threadIdx.x + half];
            best = found[threadIdx.x];
            if (other.size > best.size || (other.size == best.size && other.place < best.place))
                found[threadIdx.x] = other;
        }
    }
    __syncthreads();
    best = found[0];
    __syncthreads();
    return best;
}

template <class T>
struct ldl_matrix {
    T *data;
    int64_t down, across, n;
    bool hermitian;

    DEVICE T &at(int64_t i, int64_t j) const { return data[i * down + j * across]; }

    // The row to swap with, and the size of the block; row -1: the column is 0. Bunch and Kaufman,
    // "Some stable methods for calculating inertia and solving symmetric linear systems", 1977.
    DEVICE int64_t choose(int64_t step, int &count) const {
        const double alpha = 0.6403882032022076; // (1 + sqrt(17)) / 8
        const double own = size_of(at(step, step));
        count = 1;
        largest_element below =
            find_largest(step + 1, n, [&](int64_t i) { return size_of(at(i, step)); });
        if (own == 0 && below.size <= 0)
            return -1;
        if (below.size <= 0 || own >= alpha * below.size || own != own)
            return step;
        const int64_t row = below.place;
        largest_element beside = find_largest(step, n, [&](int64_t t) {
            return t == row ? -1.0 : size_of(t < row ? at(row, t) : at(t, row));
        });
        if (own >= alpha * below.size * (below.size / beside.size))
            return step;
        if (!(size_of(at(row, row)) >= alpha * beside.size))
            count = 2;
        return row;
    }

    // Swap two rows and the same columns from `first` on, in the lower triangle.
    DEVICE void swap(int64_t step, int64_t first, int64_t second) const {
        for (int64_t t = first + 1 + threadIdx.x; t < n; t += blockDim.x) {
            if (t > second) {
                swap_elements(at(t, first), at(t, second));
            } else if (t < second) {
                T kept = at(t, first);
                at(t, first) = turned(at(second, t), hermitian);
                at(second, t) = turned(kept, hermitian);
            } else {
                at(second, first) = turned(at(second, first), hermitian);
                swap_elements(at(first, first), at(second, second));
                if (first != step)
                    swap_elements(at(first, step), at(second, step));
            }
        }
    }

    // Take a block's part from what is below and right of it. The rows of the block are free above
    // the diagonal: they keep the factors until the columns are no longer needed.
    DEVICE void eliminate(int64_t step, int count) const {
        const int64_t last = step + count - 1, m = n - last - 1;
        const T a = at(step, step), b = at(last, step), c = at(last, last);
        const T other = turned(b, hermitian);
        for (int64_t i = last + 1 + threadIdx.x; i < n; i += blockDim.x) {
            T x = at(i, step);
            if (count == 1) {
                at(step, i) = x / a;
                continue;
            }
            T y = at(i, last), along = a / other, beyond = c / b;
            T scale = along * beyond - cast<T, float>::of(1);
            at(step, i) = (x * beyond - y) / (other * scale);
            at(last, i) = (y * along - x) / (b * scale);
        }
        __syncthreads();
        for (int64_t t = threadIdx.x; t < m * m; t += blockDim.x) {
            const int64_t i = last + 1 + t % m, j = last + 1 + t / m;
            if (j > i)
                continue;
            T part = at(step, i) * turned(at(j, step), hermitian);
            if (count == 2)
                part = part + at(last, i) * turned(at(j, last), hermitian);
            part = at(i, j) - part;
            // What rounding leaves of imaginary parts would grow.
            at(i, j) = i == j ? real_part(part, hermitian) : part;
        }
        __syncthreads();
        for (int64_t i = last + 1 + threadIdx.x; i < n; i += blockDim.x)
            for (int64_t k = step; k <= last; k++) {
                at(i, k) = at(k, i);
                at(k, i) = cast<T, float>::of(0);
            }
        __syncthreads();
    }
};

// A block decomposes a matrix.
template <class T>
DEVICE void ldl_factor(const ldl_factor_arguments &args) {
    for (int64_t batch = blockIdx.x; batch < args.batch; batch += gridDim.x) {
        ldl_matrix<T> matrix = {static_cast<T *>(args.matrices) + batch * args.strides[0],
                                args.strides[1], args.strides[2], args.n, args.hermitian != 0};
        int32_t *pivots = args.pivots + batch * args.pivot_strides[0];
        for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x)
            matrix.at(i, i) = real_part(matrix.at(i, i), matrix.hermitian);
        __syncthreads();
        int32_t zero = 0;
        for (int64_t step = 0; step < args.n;) {
            int count;
            const int64_t chosen = matrix.choose(step, count), last = step + count - 1;
            if (threadIdx.x == 0)
                for (int64_t k = step; k <= last; k++)
                    pivots[k * args.pivot_strides[1]] = (int32_t)(chosen < 0   ? step + 1
                                                                  : count == 1 ? chosen + 1
                                                                               : -chosen - 1);
            __syncthreads();
            if (chosen < 0 && zero == 0)
                zero = (int32_t)step + 1;
            if (chosen > last)
                matrix.swap(step, last, chosen);
            __syncthreads();
            if (chosen >= 0)
                matrix.eliminate(step, count);
            step += count;
        }
        if (threadIdx.x == 0)
            args.info[batch * args.info_stride] = zero;
    }
}

#define FACTOR(name, T) \
    KERNEL(ldl_factor_##name, ldl_factor_arguments) { ldl_factor<T>(args); }
FOR_SOLVED(FACTOR)

// ---- solutions ---------------------------------------------------------------------------------

// A block is a warp and solves for a column.
template <class T>
struct ldl_column {
    const T *matrix;
    const int32_t *pivots;
    T *x;
    int64_t n, down, across, pivot_step, x_step;
    bool hermitian;

    DEVICE T lower(int64_t i, int64_t j) const { return matrix[i * down + j * across]; }
    DEVICE T &at(int64_t i) const { return x[i * x_step]; }
    DEVICE int64_t pivot(int64_t i) const { return pivots[i * pivot_step]; }

    DEVICE void swap(int64_t row) const {
        int64_t chosen = pivot(row) < 0 ? -pivot(row) - 1 : pivot(row) - 1;
        if (threadIdx.x == 0 && chosen != row)
            swap_elements(at(row), at(chosen));
    }

    DEVICE void divide(int64_t step, int64_t last) const {
        if (threadIdx.x != 0)
            return;
        T a = lower(step, step), x0 = at(step);
        if (last == step) {
            at(step) = x0 / real_part(a, hermitian);
            return;
        }
        T b = lower(last, step), other = turned(b, hermitian), x1 = at(last);
        T first = a / other, second = lower(last, last) / b;
        T scale = first * second - cast<T, float>::of(1);
        x0 = x0 / other;
        x1 = x1 / b;
        at(step) = (second * x0 - x1) / scale;
        at(last) = (first * x1 - x0) / scale;
    }

    DEVICE void forward() const {
        for (int64_t step = 0; step < n;) {
            const int64_t last = pivot(step) > 0 || step + 1 == n ? step : step + 1;
            swap(last);
            __syncthreads();
            for (int64_t i = last + 1 + threadIdx.x; i < n; i += 32)
                for (int64_t k = step; k <= last; k++)
                    at(i) = at(i) - lower(i, k) * at(k);
            __syncthreads();
            divide(step, last);
            step = last + 1;
        }
    }

    DEVICE void backward() const {
        for (int64_t last = n - 1; last >= 0;) {
            const int64_t step = pivot(last) > 0 || last == 0 ? last : last - 1;
            __syncthreads();
            for (int64_t k = step; k <= last; k++) {
                T sum = cast<T, float>::of(0);
                for (int64_t i = last + 1 + threadIdx.x; i < n; i += 32)
                    sum = sum + turned(lower(i, k), hermitian) * at(i);
                for (int distance = 16; distance; distance >>= 1)
                    sum = sum + shuffle_xor(sum, distance);
                if (threadIdx.x == 0)
                    at(k) = at(k) - sum;
            }
            swap(last);
            last = step - 1;
        }
    }
};

template <class T>
DEVICE void ldl_solve(const ldl_solve_arguments &args) {
    for (int64_t at = blockIdx.x; at < args.batch * args.columns; at += gridDim.x) {
        const int64_t batch = at / args.columns, column = at % args.columns;
        ldl_column<T> of = {static_cast<const T *>(args.matrices) + batch * args.strides[0],
                            args.pivots + batch * args.pivot_strides[0],
                            static_cast<T *>(args.x) + batch * args.x_strides[0] +
                                column * args.x_strides[2],
                            args.n,
                            args.strides[1],
                            args.strides[2],
                            args.pivot_strides[1],
                            args.x_strides[1],
                            args.hermitian != 0};
        int wrong = 0;
        for (int64_t i = threadIdx.x; i < args.n; i += 32) {
            int64_t pivot = of.pivot(i) < 0 ? -of.pivot(i) : of.pivot(i);
            if (pivot < 1 || pivot > args.n) {
                report_index(args.failure, pivot - 1, 1, args.n);
                wrong = 1;
            }
        }
        if (__syncthreads_or(wrong))
            continue;
        of.forward();
        of.backward();
        __syncthreads();
    }
}

#define SOLVE(name, T) \
    KERNEL(ldl_solve_##name, ldl_solve_arguments) { ldl_solve<T>(args); }
FOR_SOLVED(SOLVE)

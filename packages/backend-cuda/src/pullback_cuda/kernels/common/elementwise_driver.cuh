// The loop of all elementwise kernels.
//
// A thread computes two vectors of contiguous elements, which it loads and stores 16 bytes at a
// time; an input may be one element for a whole vector. The remaining elements come after the
// vectors: there a thread computes as many as a vector has, ELEMENTWISE_THREADS apart. Inputs are
// loaded before any output is stored, so an output may be an input.
#ifndef PULLBACK_CUDA_ELEMENTWISE_DRIVER_CUH
#define PULLBACK_CUDA_ELEMENTWISE_DRIVER_CUH

#include "kernels/common/elementwise_driver.h"
#include "kernels/common/storage.cuh"

// The offsets of M numbered elements (or vectors) of OPERANDS operands. `part`: bits by which the
// strides are too large, since they are those of vectors. Numbers out of range wrap around.
template <int OPERANDS, int M>
DEVICE void find_offsets(const elementwise_arguments &args, uint32_t (&index)[M],
                         int32_t (&offset)[OPERANDS][M], int part) {
    const int last = args.ndim - 1;
    uint32_t total[OPERANDS][M];
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k)
#pragma unroll
        for (int m = 0; m < M; ++m)
            total[k][m] = 0;
#pragma unroll 1
    for (int d = 0; d < last; ++d) {
        const uint32_t size = args.size[d], multiplier = args.multiplier[d], shift = args.shift[d];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const uint32_t quotient = quotient_of(index[m], multiplier, shift);
            const uint32_t rest = index[m] - quotient * size;
            index[m] = quotient;
#pragma unroll
            for (int k = 0; k < OPERANDS; ++k)
                total[k][m] += rest * (uint32_t)args.stride[d][k];
        }
    }
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) {
        const uint32_t stride = (uint32_t)(args.stride[last][k] >> part);
#pragma unroll
        for (int m = 0; m < M; ++m)
            offset[k][m] = (int32_t)(total[k][m] + index[m] * stride);
    }
}

// A host scalar, which the host gives as the type that is computed in.
template <class Compute>
DEVICE Compute scalar_of(const uint64_t (&bits)[2]) {
    union {
        uint64_t bits[2];
        Compute value;
    } both;
    both.bits[0] = bits[0];
    both.bits[1] = bits[1];
    return both.value;
}

template <class T, class Compute, int N>
DEVICE void load_vector_of(const elementwise_arguments &args, int input, int32_t offset,
                           Compute (&value)[N]) {
    const char *address = (const char *)args.data[input + 1] + offset;
    if (args.same >> input & 1) {
        const Compute one = args.scalars >> input & 1
                                ? scalar_of<Compute>(args.scalar[input])
                                : conversion<Compute, T>::in(*(const T *)address);
#pragma unroll
        for (int i = 0; i < N; ++i)
            value[i] = one;
    } else {
        load_vector<T>(address, value);
    }
}

template <class T, class Compute, int N>
DEVICE void load_elements(const elementwise_arguments &args, int input, const int32_t (&offset)[N],
                          uint32_t first, Compute (&value)[N]) {
    const bool scalar = args.scalars >> input & 1;
    const Compute one = scalar ? scalar_of<Compute>(args.scalar[input]) : one_of<Compute>();
#pragma unroll
    for (int i = 0; i < N; ++i) {
        value[i] = one;
        if (!scalar && first + i * ELEMENTWISE_THREADS < args.count)
            value[i] = conversion<Compute, T>::in(
                *(const T *)((const char *)args.data[input + 1] + offset[i]));
    }
}

// The elements of all inputs that a thread computes together.
template <class Operation>
struct loaded {
    typename Operation::First::compute x[Operation::vector_size];
    typename Operation::Rest::compute y[Operation::inputs > 1 ? Operation::inputs - 1 : 1]
                                       [Operation::vector_size];

    // Let a function load every input: it takes an element of its type, its number, and a target.
    template <class Function>
    DEVICE void fill(int type, Function load) {
        Operation::First::visit(type, [&](auto element) { load(element, 0, x); });
        if constexpr (Operation::inputs > 1)
            Operation::Rest::visit(type, [&](auto element) {
#pragma unroll
                for (int k = 1; k < Operation::inputs; ++k)
                    load(element, k, y[k - 1]);
            });
    }

    template <class Result>
    DEVICE void compute(const elementwise_arguments &args,
                        Result (&result)[Operation::vector_size]) {
#pragma unroll
        for (int i = 0; i < Operation::vector_size; ++i) {
            if constexpr (Operation::inputs == 1)
                result[i] = Operation::of(args, x[i]);
            else if constexpr (Operation::inputs == 2)
                result[i] = Operation::of(args, x[i], y[0][i]);
            else if constexpr (Operation::inputs == 3)
                result[i] = Operation::of(args, x[i], y[0][i], y[1][i]);
            else
                result[i] = Operation::of(args, x[i], y[0][i], y[1][i], y[2][i]);
        }
    }
};

// Run an operation: a struct with the number of `inputs`, the classes First, Rest and Out of the
// first input, the other inputs and the output, a `vector_size`, and a function `of` the
// arguments and one element of each input.
template <class Operation>
DEVICE void run_elementwise(const elementwise_arguments &args) {
    constexpr int OPERANDS = Operation::inputs + 1, N = Operation::vector_size;
    typedef typename Operation::Out::compute Result;
    loaded<Operation> input, next;
    Result result[N], next_result[N];
    int32_t out_offset[N], next_offset = 0;
    uint32_t first = 0;
    bool second = false;
    const bool vectorized = blockIdx.x < args.vector_blocks;
    if (vectorized) {
        uint32_t index[2];
        int32_t offset[OPERANDS][2];
        index[0] = blockIdx.x * (2 * ELEMENTWISE_THREADS) + threadIdx.x;
        index[1] = index[0] + ELEMENTWISE_THREADS;
        if (index[0] >= args.vectors)
            return;
        second = index[1] < args.vectors;
        find_offsets(args, index, offset, 0);
        input.fill(args.in_type, [&](auto element, int k, auto &target) {
            load_vector_of<decltype(element)>(args, k, offset[k + 1][0], target);
        });
        if (second)
            next.fill(args.in_type, [&](auto element, int k, auto &target) {
                load_vector_of<decltype(element)>(args, k, offset[k + 1][1], target);
            });
        out_offset[0] = offset[0][0];
        next_offset = offset[0][1];
    } else {
        uint32_t index[N];
        int32_t offset[OPERANDS][N];
        first = args.vectors * N + (blockIdx.x - args.vector_blocks) * (ELEMENTWISE_THREADS * N) +
                threadIdx.x;
        if (first >= args.count)
            return;
#pragma unroll
        for (int i = 0; i < N; ++i)
            index[i] = first + i * ELEMENTWISE_THREADS;
        find_offsets(args, index, offset, args.vectors ? __ffs(N) - 1 : 0);
        input.fill(args.in_type, [&](auto element, int k, auto &target) {
            load_elements<decltype(element)>(args, k, offset[k + 1], first, target);
        });
#pragma unroll
        for (int i = 0; i < N; ++i)
            out_offset[i] = offset[0][i];
    }
    input.compute(args, result);
    if (second)
        next.compute(args, next_result);
    char *data = (char *)args.data[0];
    Operation::Out::visit(args.out_type, [&](auto element) {
        typedef decltype(element) T;
        if (vectorized) {
            store_vector<T>(data + out_offset[0], result);
            if (second)
                store_vector<T>(data + next_offset, next_result);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (first + i * ELEMENTWISE_THREADS < args.count)
                    *(T *)(data + out_offset[i]) = conversion<Result, T>::out(result[i]);
        }
    });
}

// Kernels of one to four inputs: the name, the class of inputs, the class of outputs, and the value
// of x (and y, z and v). The expression may use `args`.
#ifdef PULLBACK_OPERATIONS_ONLY // a generated kernel uses the structs: see fused/text.py
#define ELEMENTWISE_KERNEL(name)
#else
#define ELEMENTWISE_KERNEL(name) \
    KERNEL(name, elementwise_arguments) { run_elementwise<name##_operation>(args); }
#endif

#define ELEMENTWISE(name, count, First_, Rest_, To, size, parameters, value) \
    struct name##_operation { \
        typedef First_ First; \
        typedef Rest_ Rest; \
        typedef To Out; \
        static constexpr int inputs = count, vector_size = size; \
        static DEVICE To::compute of parameters { \
            (void)args; \
            return value; \
        } \
    }; \
    ELEMENTWISE_KERNEL(name)

#define UNARY_TO(name, In, To, value) \
    ELEMENTWISE(name, 1, In, In, To, In::vector_size, \
                (const elementwise_arguments &args, In::compute x), value)
#define UNARY(name, In, value) UNARY_TO(name, In, In, value)

#define BINARY_TO(name, In, To, value) \
    ELEMENTWISE(name, 2, In, In, To, In::vector_size, \
                (const elementwise_arguments &args, In::compute x, In::compute y), value)
#define BINARY(name, In, value) BINARY_TO(name, In, In, value)

#define TERNARY(name, In, value) \
    ELEMENTWISE(name, 3, In, In, In, In::vector_size, \
                (const elementwise_arguments &args, In::compute x, In::compute y, In::compute z), \
                value)
#define QUATERNARY(name, In, value) \
    ELEMENTWISE(name, 4, In, In, In, In::vector_size, \
                (const elementwise_arguments &args, In::compute x, In::compute y, In::compute z, \
                 In::compute v), \
                value)

#endif

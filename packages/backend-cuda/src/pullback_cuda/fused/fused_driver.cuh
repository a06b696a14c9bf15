// The loop of generated kernels, which compute several elementwise operations at once.
//
// A thread computes FUSED_ELEMENTS elements: where all operands are contiguous, or one element for
// all, those that follow each other, which it loads and stores together; else elements that are
// ELEMENTWISE_THREADS apart. All inputs are loaded before anything is stored.
#ifndef PULLBACK_CUDA_FUSED_DRIVER_CUH
#define PULLBACK_CUDA_FUSED_DRIVER_CUH

#include "kernels/common/elementwise_driver.cuh"

#define FUSED_ELEMENTS 4
#define FUSED_DIMS 6

// Written by executor.pyx, in this order. Dim 0 is the fastest; strides are in bytes.
template <int OPERANDS, int SCALARS>
struct fused_arguments {
    void *data[OPERANDS];
    uint64_t scalar[SCALARS][2]; // as computed with, or as stored where they are only moved
    uint32_t count;
    uint32_t flat; // all operands are contiguous, or one element
    int32_t ndim;
    uint32_t size[FUSED_DIMS];
    uint32_t multiplier[FUSED_DIMS];
    uint32_t shift[FUSED_DIMS];
    int32_t stride[FUSED_DIMS][OPERANDS];
};

// Round the result of an operation, as storing it does: the compiler must not contract its product
// and the sum of the next operation. Complex products are rounded already (complex.cuh).
template <class T>
DEVICE T rounded(T value) {
    return value;
}
DEVICE float rounded(float value) { return __fadd_rn(value, -0.0f); }
DEVICE double rounded(double value) { return __dadd_rn(value, -0.0); }

// The elements of one thread: their offsets in each operand, and which of them there are.
template <int OPERANDS>
struct fused_place {
    int32_t offset[OPERANDS][FUSED_ELEMENTS];
    uint32_t left; // elements from the first one on
    bool whole;    // they are contiguous, and all there

    template <class Arguments>
    DEVICE bool find(const Arguments &args) {
        const uint32_t block = blockIdx.x * (ELEMENTWISE_THREADS * FUSED_ELEMENTS);
        const uint32_t step = args.flat ? 1 : ELEMENTWISE_THREADS;
        const uint32_t first = block + (args.flat ? threadIdx.x * FUSED_ELEMENTS : threadIdx.x);
        if (first >= args.count)
            return false;
        left = (args.count - first + step - 1) / step;
        whole = args.flat && left >= FUSED_ELEMENTS;
#pragma unroll
        for (int i = 0; i < FUSED_ELEMENTS; ++i) {
            uint32_t index = first + i * step;
#pragma unroll
            for (int k = 0; k < OPERANDS; ++k)
                offset[k][i] = 0;
#pragma unroll 1
            for (int d = 0; d < args.ndim; ++d) {
                const uint32_t quotient =
                    d == args.ndim - 1 ? 0 : quotient_of(index, args.multiplier[d], args.shift[d]);
                const uint32_t rest = index - quotient * args.size[d];
                index = quotient;
#pragma unroll
                for (int k = 0; k < OPERANDS; ++k)
                    offset[k][i] += (int32_t)(rest * (uint32_t)args.stride[d][k]);
            }
        }
        return true;
    }

    template <class T, class Arguments>
    DEVICE void load(const Arguments &args, int k, T (&value)[FUSED_ELEMENTS]) const {
        const char *data = (const char *)args.data[k];
        if (whole && args.stride[0][k] != 0) {
            elements<T, FUSED_ELEMENTS> stored =
                *reinterpret_cast<const elements<T, FUSED_ELEMENTS> *>(data + offset[k][0]);
#pragma unroll
            for (int i = 0; i < FUSED_ELEMENTS; ++i)
                value[i] = stored.at[i];
            return;
        }
#pragma unroll
        for (int i = 0; i < FUSED_ELEMENTS; ++i)
            if (i < left)
                value[i] = *(const T *)(data + offset[k][i]);
    }

    template <class T, class Arguments>
    DEVICE void store(const Arguments &args, int k, const T (&value)[FUSED_ELEMENTS]) const {
        char *data = (char *)args.data[k];
        if (whole) {
            elements<T, FUSED_ELEMENTS> stored;
#pragma unroll
            for (int i = 0; i < FUSED_ELEMENTS; ++i)
                stored.at[i] = value[i];
            *reinterpret_cast<elements<T, FUSED_ELEMENTS> *>(data + offset[k][0]) = stored;
            return;
        }
#pragma unroll
        for (int i = 0; i < FUSED_ELEMENTS; ++i)
            if (i < left)
                *(T *)(data + offset[k][i]) = value[i];
    }
};

#endif

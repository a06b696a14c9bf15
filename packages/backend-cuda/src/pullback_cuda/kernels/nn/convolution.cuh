// Offsets of the factors of a convolution's sums.
#ifndef PULLBACK_CUDA_CONVOLUTION_CUH
#define PULLBACK_CUDA_CONVOLUTION_CUH
#include "kernels/nn/convolution.h"
#include "kernels/common/kernel.cuh"

template <class Index>
DEVICE Index divide(Index number, Index by, bool narrow) {
    return narrow ? (Index)((uint32_t)number / (uint32_t)by) : number / by;
}

// Taps of outputs along one dim: tap t of output j reads coordinate start + j * jump +
// t * tap_jump, which is inside the input if it is within 0 .. bound - 1.
template <class Index>
struct conv_line {
    Index start, jump, tap_jump, bound;
    Index number;        // of outputs
    Index out, out_jump; // the coordinate of output j is out + j * out_jump
    Index taps;
    Index kernel_start, kernel_jump; // tap t is position kernel_start + t * kernel_jump

    DEVICE void forward(const conv_side &side) {
        start = (Index)-side.padding;
        jump = (Index)side.stride;
        tap_jump = (Index)side.dilation;
        bound = (Index)side.size;
        number = (Index)side.count;
        out = 0;
        out_jump = 1;
        taps = (Index)side.kernel;
        kernel_start = 0;
        kernel_jump = 1;
    }

    // For the elements of the image whose remainder modulo the stride is `phase`: those taps whose
    // distance from a window's begin leaves the right remainder.
    DEVICE void backward(const conv_side &side, Index phase) {
        const Index stride = (Index)side.stride, common = (Index)side.common;
        const Index wanted = (phase + (Index)side.padding) % stride, steps = stride / common;
        const Index first = wanted / common % steps * (Index)side.inverse % steps;
        const bool is_met = wanted % common == 0 && first < (Index)side.kernel;
        start = (phase + (Index)side.padding - first * (Index)side.dilation) / stride;
        jump = 1;
        tap_jump = -((Index)side.dilation / common);
        bound = (Index)side.count;
        number = ((Index)side.size - phase + stride - 1) / stride;
        out = phase;
        out_jump = stride;
        taps = is_met ? ((Index)side.kernel - 1 - first) / steps + 1 : 0;
        kernel_start = first;
        kernel_jump = steps;
    }
};

// Split a number into coordinates, the last of which runs fastest; returns what is left.
template <class Index>
DEVICE Index split3(Index number, Index n0, Index n1, Index n2, bool narrow, Index (&at)[3]) {
    Index rest = divide(number, n2, narrow);
    at[2] = number - rest * n2;
    Index next = divide(rest, n1, narrow);
    at[1] = rest - next * n1;
    rest = divide(next, n0, narrow);
    at[0] = next - rest * n0;
    return rest;
}

#endif

// How many numbers there are, their sum, and the sum of their squared differences from the mean.
#ifndef PULLBACK_CUDA_MOMENTS_CUH
#define PULLBACK_CUDA_MOMENTS_CUH

#include "kernels/common/kernel.cuh"

// The sum stays infinite where a mean that moves would become NaN.
struct moments {
    double count;
    double sum;
    double squares;
};

// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979, equation 2.1.
DEVICE moments merge_moments(const moments &x, const moments &y) {
    if (x.count == 0 || y.count == 0)
        return x.count == 0 ? y : x;
    // The difference of the means, times both counts.
    double count = x.count + y.count, gap = y.sum * x.count - x.sum * y.count;
    return {count, x.sum + y.sum,
            x.squares + y.squares + gap * (gap / (x.count * y.count * count))};
}

#endif

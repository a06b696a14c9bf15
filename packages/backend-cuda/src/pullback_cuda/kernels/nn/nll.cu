// The negative log likelihood of classes, forward and backward. Sums are kept in double.
#include "kernels/strides/coalesced_dims.cuh"
#include "kernels/common/group.cuh"
#include "kernels/nn/nll.h"

// Losses, and the weights of their classes.
struct weighted {
    double loss;
    double weight;
};

DEVICE weighted operator+(const weighted &x, const weighted &y) {
    return {x.loss + y.loss, x.weight + y.weight};
}

// The sum over a block, of threads that are a power of two; all get it.
DEVICE weighted add_block(const weighted &own) {
    const thread_groups threads = {31 - __clz((int)blockDim.x), 0, false};
    return group_reduce(threads, own, sum_of_both());
}

// True for a class that is not ignored; targets out of range are reported.
DEVICE bool counts(const pb_nll &args, int64_t target) {
    if (target == args.ignored)
        return false;
    if ((uint64_t)target < (uint64_t)args.classes.size)
        return true;
    report(args.failure, FAILURE_TARGET, PB_E_INDEX, target, args.classes.size);
    return false;
}

template <class T>
DEVICE T weight_of(const pb_nll &args, int64_t target) {
    return args.weights == nullptr ? 1 : static_cast<const T *>(args.weights)[target];
}

// The loss of each target, or the sums of a block.
template <class T>
DEVICE void pick(const pb_nll &args) {
    const T *source = static_cast<const T *>(args.source);
    weighted sums = {0, 0};
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t target = static_cast<const int64_t *>(args.targets)[i];
        T loss = 0;
        if (counts(args, target)) {
            const T weight = weight_of<T>(args, target);
            if (source != nullptr) {
                const int64_t sample = divide_any(i, args.inner);
                const int64_t position = i - sample * args.inner.size;
                loss = -source[(sample * args.classes.size + target) * args.inner.size + position];
                loss *= weight;
            }
            sums = sums + weighted{loss, weight};
        }
        if (args.reduction == NLL_EACH)
            static_cast<T *>(args.out)[i] = loss;
    }
    if (args.reduction == NLL_EACH)
        return;
    sums = add_block(sums);
    if (threadIdx.x == 0)
        static_cast<weighted *>(args.partial)[blockIdx.x] = sums;
}

// One block adds up the sums of all blocks.
template <class T>
DEVICE void add_up(const pb_nll &args) {
    weighted sums = {0, 0};
    for (int64_t k = threadIdx.x; k < args.blocks; k += blockDim.x)
        sums = sums + static_cast<const weighted *>(args.partial)[k];
    sums = add_block(sums);
    if (threadIdx.x != 0)
        return;
    if (args.total != nullptr)
        *static_cast<weighted *>(args.total) = sums;
    else
        *static_cast<T *>(args.out) =
            (T)(args.reduction == NLL_MEAN ? sums.loss / sums.weight : sums.loss);
}

// The gradient of an element of a class: the negative share of its target, or 0.
template <class T>
DEVICE T gradient_of(const pb_nll &args, double total, int64_t at, int64_t kind) {
    const int64_t target = static_cast<const int64_t *>(args.targets)[at];
    if (kind == 0 ? !counts(args, target) || target != 0 : target != kind || target == args.ignored)
        return 0;
    const T *grad = static_cast<const T *>(args.source);
    double share = -grad[args.reduction == NLL_EACH ? at : 0];
    if (args.weights != nullptr)
        share *= weight_of<T>(args, target);
    return (T)(args.reduction == NLL_MEAN ? share / total : share);
}

template <class T>
DEVICE void spread(const pb_nll &args) {
    constexpr int WIDTH = vector_width<T>::size;
    const double total =
        args.reduction == NLL_MEAN ? static_cast<const weighted *>(args.total)->weight : 1;
    const int each = args.vectorized ? WIDTH : 1;
    for (int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * each;
         first < args.count; first += (int64_t)gridDim.x * blockDim.x * each) {
        const int64_t row = divide_any(first, args.inner);
        int64_t position = first - row * args.inner.size, sample = divide_any(row, args.classes);
        int64_t kind = row - sample * args.classes.size;
        vector<T, WIDTH> grads;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            if (j >= each)
                break;
            grads.of[j] = gradient_of<T>(args, total, sample * args.inner.size + position, kind);
            if (++position == args.inner.size) {
                position = 0;
                if (++kind == args.classes.size) {
                    kind = 0;
                    sample++;
                }
            }
        }
        T *out = static_cast<T *>(args.out) + first;
        if (args.vectorized)
            store_vector(out, grads);
        else
            *out = grads.of[0];
    }
}

#define LIKELIHOODS(name, T) \
    KERNEL(nll_pick_##name, pb_nll) { pick<T>(args); } \
    KERNEL(nll_add_##name, pb_nll) { add_up<T>(args); } \
    KERNEL(nll_spread_##name, pb_nll) { spread<T>(args); }
LIKELIHOODS(f32, float)
LIKELIHOODS(f64, double)

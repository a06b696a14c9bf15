// Steps of optimizers over lists of tensors: a block updates a chunk of one tensor.
#include "kernels/common/storage.cuh"
#include "kernels/optim/optimizer_steps.h"

DEVICE float root_of(float x) { return sqrtf(x); }
DEVICE double root_of(double x) { return sqrt(x); }

// The rate of a tensor, and the factor of its roots.
struct tensor_rates {
    double rate;
    double root;
};

DEVICE double step_of(const pb_optim &args, int tensor) {
    const void *step = args.steps[tensor];
    return args.step_type == TYPE_F64 ? *static_cast<const double *>(step)
                                      : *static_cast<const float *>(step);
}

// Numbers in the type that a kernel computes in.
template <class C>
struct numbers {
    C sign, decay, keep, first, second, rest, root, eps, rate, momentum;
    int flags;

    DEVICE numbers(const pb_optim &args, const tensor_rates &of)
        : sign((C)(args.flags & OPTIM_MAXIMIZE ? -1 : 1)), decay((C)args.decay), keep((C)args.keep),
          first((C)args.first), second((C)args.second), rest((C)args.rest), root((C)of.root),
          eps((C)args.eps), rate((C)of.rate), momentum((C)args.momentum), flags(args.flags) {}

    DEVICE bool has(int flag) const { return (flags & flag) != 0; }

    // The gradient with its sign and its weight decay.
    DEVICE C gradient(C grad, C param) const {
        const C g = sign * grad;
        return has(OPTIM_DECAYS) ? g + decay * param : g;
    }
};

// Each optimizer updates v[0], the parameter, and v[1] and so on, its states.

struct sgd {
    static DEVICE tensor_rates rates(const pb_optim &args, double) { return {args.lr, 1}; }

    template <class C>
    static DEVICE void update(const numbers<C> &c, C (&v)[OPTIM_WRITTEN], C grad) {
        C d = c.gradient(grad, v[0]);
        if (c.has(OPTIM_BUFFERED)) {
            const C buffer = c.has(OPTIM_STARTS) ? d : v[1] * c.momentum + c.rest * d;
            v[1] = buffer;
            d = c.has(OPTIM_NESTEROV) ? d + c.momentum * buffer : buffer;
        }
        v[0] -= c.rate * d;
    }
};

struct adam {
    static DEVICE tensor_rates rates(const pb_optim &args, double step) {
        return {args.lr / (1 - pow(args.beta1, step)), 1 / sqrt(1 - pow(args.second, step))};
    }

    template <class C>
    static DEVICE void update(const numbers<C> &c, C (&v)[OPTIM_WRITTEN], C grad) {
        const C x = v[0] * c.keep, d = c.gradient(grad, x);
        v[1] += c.first * (d - v[1]);
        C square = v[2] * c.second + c.rest * d * d;
        v[2] = square;
        if (c.has(OPTIM_AMSGRAD)) {
            square = square > v[3] || square != square ? square : v[3]; // NaN wins
            v[3] = square;
        }
        v[0] = x - c.rate * v[1] / (root_of(square) * c.root + c.eps);
    }
};

struct rmsprop {
    static DEVICE tensor_rates rates(const pb_optim &args, double) { return {args.lr, 1}; }

    template <class C>
    static DEVICE void update(const numbers<C> &c, C (&v)[OPTIM_WRITTEN], C grad) {
        C d = c.gradient(grad, v[0]);
        v[1] = v[1] * c.second + c.rest * d * d;
        C square = v[1];
        if (c.has(OPTIM_CENTERED)) {
            v[2] += c.first * (d - v[2]);
            square -= v[2] * v[2];
        }
        d = d / (root_of(square) + c.eps);
        if (c.has(OPTIM_BUFFERED)) {
            C &buffer = c.has(OPTIM_CENTERED) ? v[3] : v[2];
            buffer = buffer * c.momentum + d;
            d = buffer;
        }
        v[0] -= c.rate * d;
    }
};

struct adagrad {
    static DEVICE tensor_rates rates(const pb_optim &args, double step) {
        return {args.lr / (1 + (step - 1) * args.lr_decay), 1};
    }

    template <class C>
    static DEVICE void update(const numbers<C> &c, C (&v)[OPTIM_WRITTEN], C grad) {
        const C d = c.gradient(grad, v[0]);
        v[1] += d * d;
        v[0] -= c.rate * d / (root_of(v[1]) + c.eps);
    }
};

// Update N consecutive elements of a tensor.
template <class Optimizer, class T, int N, class C>
DEVICE void update_elements(const pb_optim &args, const numbers<C> &c, int tensor, int64_t at) {
    C values[OPTIM_WRITTEN][N], grads[N];
#pragma unroll
    for (int k = 0; k < OPTIM_WRITTEN; k++)
        if (k < args.written)
            load_vector<T>(static_cast<const char *>(args.data[k * args.count + tensor]) +
                               at * sizeof(T),
                           values[k]);
    load_vector<T>(static_cast<const char *>(args.data[args.written * args.count + tensor]) +
                       at * sizeof(T),
                   grads);
#pragma unroll
    for (int i = 0; i < N; i++) {
        C v[OPTIM_WRITTEN];
#pragma unroll
        for (int k = 0; k < OPTIM_WRITTEN; k++)
            v[k] = k < args.written ? values[k][i] : 0;
        Optimizer::update(c, v, grads[i]);
#pragma unroll
        for (int k = 0; k < OPTIM_WRITTEN; k++)
            values[k][i] = v[k];
    }
#pragma unroll
    for (int k = 0; k < OPTIM_WRITTEN; k++)
        if (k < args.written)
            store_vector<T>(static_cast<char *>(args.data[k * args.count + tensor]) +
                                at * sizeof(T),
                            values[k]);
}

template <class Optimizer, class T, int N, class C>
DEVICE void update_chunk(const pb_optim &args, const numbers<C> &c, int tensor) {
    const int64_t begin = ((int64_t)blockIdx.x - args.first_blocks[tensor]) * OPTIM_CHUNK;
    const int64_t size = args.sizes[tensor];
    const int64_t end = begin + OPTIM_CHUNK < size ? begin + OPTIM_CHUNK : size;
    uintptr_t addresses = 0;
    for (int k = 0; k <= args.written; k++)
        addresses |= reinterpret_cast<uintptr_t>(args.data[k * args.count + tensor]);
    const bool aligned = addresses % (sizeof(T) * N) == 0;
    for (int64_t at = begin + threadIdx.x * N; at < end; at += (int64_t)blockDim.x * N) {
        if (aligned && at + N <= end)
            update_elements<Optimizer, T, N>(args, c, tensor, at);
        else
            for (int64_t i = at; i < end && i < at + N; i++)
                update_elements<Optimizer, T, 1>(args, c, tensor, i);
    }
}

template <class Optimizer, class Class>
DEVICE void take_step(const pb_optim &args, tensor_rates *shared) {
    typedef typename Class::compute C;
    if (args.found_inf != nullptr && *args.found_inf != 0)
        return;
    int tensor = args.count - 1;
    while (args.first_blocks[tensor] > (int64_t)blockIdx.x)
        tensor--;
    tensor_rates rates = {args.rates[tensor], args.roots[tensor]};
    if (args.flags & OPTIM_RATES) {
        if (threadIdx.x == 0)
            *shared = Optimizer::rates(args, step_of(args, tensor));
        __syncthreads();
        rates = *shared;
    }
    const numbers<C> c(args, rates);
    Class::visit(args.type, [&](auto stored) {
        update_chunk<Optimizer, decltype(stored), Class::vector_size>(args, c, tensor);
    });
}

#define STEPS(name) \
    KERNEL(optim_##name##_float, pb_optim) { \
        DYNAMIC_SHARED(tensor_rates, shared); \
        take_step<name, floats>(args, shared); \
    } \
    KERNEL(optim_##name##_double, pb_optim) { \
        DYNAMIC_SHARED(tensor_rates, shared); \
        take_step<name, doubles>(args, shared); \
    }
STEPS(sgd)
STEPS(adam)
STEPS(rmsprop)
STEPS(adagrad)

// The steps of a layer of long short-term memory, and their derivatives. A block has a row of the
// batch at a time; its threads share the units.
#include "kernels/common/dtypes.cuh"
#include "kernels/sequences/lstm.h"

DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }
DEVICE float tangent(float x) { return tanhf(x); }
DEVICE double tangent(double x) { return tanh(x); }

template <class T>
DEVICE T logistic(T x) {
    return 1 / (1 + exponential(-x));
}

DEVICE int64_t step_of(const pb_lstm &args, int64_t number) {
    return args.reverse ? args.steps - 1 - number : number;
}

template <class T>
DEVICE void run_rows(const pb_lstm &args) {
    const int64_t n = args.size;
    const T *weight = static_cast<const T *>(args.weight);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *before = static_cast<const T *>(args.hidden) + row * n;
        const T *cell = static_cast<const T *>(args.cell) + row * n;
        for (int64_t number = 0; number < args.steps; number++) {
            const int64_t at = step_of(args, number) * args.rows + row;
            const T *given = static_cast<const T *>(args.given) + at * 4 * n;
            T *gates = static_cast<T *>(args.gates) + at * 5 * n;
            T *out = static_cast<T *>(args.out) + at * n;
            for (int64_t j = threadIdx.x; j < 4 * n; j += blockDim.x) {
                T sum = given[j];
                for (int64_t k = 0; k < n; k++)
                    sum += weight[j * n + k] * before[k];
                gates[j] = j / n == 2 ? tangent(sum) : logistic(sum);
            }
            __syncthreads();
            for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
                const T next = gates[n + j] * cell[j] + gates[j] * gates[2 * n + j];
                gates[4 * n + j] = next;
                out[j] = gates[3 * n + j] * tangent(next);
                if (number == args.steps - 1)
                    static_cast<T *>(args.last_cell)[row * n + j] = next;
            }
            __syncthreads();
            before = out;
            cell = gates + 4 * n;
        }
    }
}

template <class T>
DEVICE void return_rows(const pb_lstm &args) {
    const int64_t n = args.size;
    const T *weight = static_cast<const T *>(args.weight);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        T *later = static_cast<T *>(args.hidden_grad) + row * n;
        T *cell_grad = static_cast<T *>(args.first_grad) + row * n;
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
            later[j] = 0;
            cell_grad[j] = static_cast<const T *>(args.cell_grad)[row * n + j];
        }
        for (int64_t number = args.steps - 1; number >= 0; number--) {
            const int64_t at = step_of(args, number) * args.rows + row;
            const T *gates = static_cast<const T *>(args.gates) + at * 5 * n;
            const T *grad = static_cast<const T *>(args.grad) + at * n;
            const T *before = static_cast<const T *>(args.cell) + row * n;
            if (number > 0)
                before = static_cast<const T *>(args.gates) +
                         (step_of(args, number - 1) * args.rows + row) * 5 * n + 4 * n;
            T *out = static_cast<T *>(args.given_grad) + at * 4 * n;
            for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
                const T i = gates[j], f = gates[n + j], g = gates[2 * n + j], o = gates[3 * n + j];
                const T bent = tangent(gates[4 * n + j]), of_hidden = grad[j] + later[j];
                const T of_cell = cell_grad[j] + of_hidden * o * (1 - bent * bent);
                out[j] = of_cell * g * (i * (1 - i));
                out[n + j] = of_cell * before[j] * (f * (1 - f));
                out[2 * n + j] = of_cell * i * (1 - g * g);
                out[3 * n + j] = of_hidden * bent * (o * (1 - o));
                cell_grad[j] = of_cell * f;
            }
            __syncthreads();
            for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
                T sum = 0;
                for (int64_t k = 0; k < 4 * n; k++)
                    sum += out[k] * weight[k * n + j];
                later[j] = sum;
            }
            __syncthreads();
        }
    }
}

#define LSTM(name, T) \
    KERNEL(lstm_steps_##name, pb_lstm) { run_rows<T>(args); } \
    KERNEL(lstm_steps_backward_##name, pb_lstm) { return_rows<T>(args); }
LSTM(f32, float)
LSTM(f64, double)

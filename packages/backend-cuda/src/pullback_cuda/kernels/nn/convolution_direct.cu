// Convolutions, forward and backward, with few channels in a group: a thread or a block for each
// element. Also the last step of split sums.
#include "kernels/nn/convolution.cuh"
#include "kernels/strides/indexer.cuh"

#define BLOCK 256
#define WHOLE_WARP 0xffffffffu

// The forward pass, or the backward pass for the input.
template <class T, class Index>
DEVICE void sum_taps(const conv_arguments &args) {
    const bool backward = args.kind == CONV_BACKWARD_INPUT, narrow = sizeof(Index) == 4;
    const T *const bias = static_cast<const T *>(args.bias);
    const Index channels = (Index)(backward ? args.o : args.c);
    const int64_t channel_size = backward ? args.count : args.size;
    for (int64_t number = thread_number(); number < args.elements; number += thread_count()) {
        conv_line<Index> lines[CONV_RANK];
        Index begin[CONV_RANK];
        int64_t rest = number;
#pragma unroll
        for (int d = CONV_RANK - 1; d >= 0; d--) {
            const int64_t next = quotient(rest, args.out_sides[d], narrow);
            const Index at = (Index)(rest - next * args.out_sides[d].size);
            const Index turn = backward ? at / (Index)args.sides[d].stride : at;
            rest = next;
            if (backward)
                lines[d].backward(args.sides[d], at - turn * (Index)args.sides[d].stride);
            else
                lines[d].forward(args.sides[d]);
            begin[d] = lines[d].start + turn * lines[d].jump;
        }
        const int64_t image = quotient(rest, args.out_channels, narrow);
        const int64_t channel = rest - image * args.out_channels.size;
        const int64_t group = quotient(channel, args.out_rows, narrow);
        const int64_t row = channel - group * args.out_rows.size;
        const T *right = static_cast<const T *>(args.right) +
                         (image * args.groups + group) * channels * channel_size;
        const T *left = static_cast<const T *>(args.left) +
                        (group * args.o * args.c + (backward ? row : row * args.c)) * args.kernel;
        T total = 0;
        for (Index c = 0; c < channels; c++) {
            for (Index i = 0; i < lines[0].taps; i++) {
                const Index x = begin[0] + i * lines[0].tap_jump;
                const Index index0 = lines[0].kernel_start + i * lines[0].kernel_jump;
                for (Index j = 0; j < lines[1].taps; j++) {
                    const Index y = begin[1] + j * lines[1].tap_jump;
                    const Index index1 = index0 * (Index)args.sides[1].kernel +
                                         lines[1].kernel_start + j * lines[1].kernel_jump;
                    const T *const weights = left + (int64_t)index1 * args.sides[2].kernel;
                    const bool is_line =
                        x >= 0 && x < lines[0].bound && y >= 0 && y < lines[1].bound;
                    const T *const line =
                        right + ((int64_t)x * lines[1].bound + y) * lines[2].bound;
                    for (Index k = 0; k < lines[2].taps; k++) {
                        const Index z = begin[2] + k * lines[2].tap_jump;
                        const bool is_inside = is_line && z >= 0 && z < lines[2].bound;
                        // The forward pass multiplies padding as zeros; backward has none.
                        if (is_inside || !backward)
                            total += weights[lines[2].kernel_start + k * lines[2].kernel_jump] *
                                     (is_inside ? line[z] : 0);
                    }
                }
            }
            left += (backward ? args.c : 1) * args.kernel;
            right += channel_size;
        }
        static_cast<T *>(args.out)[number] = total + (bias == nullptr ? 0 : bias[channel]);
    }
}

KERNEL(conv_direct_f32, conv_arguments) { sum_taps<float, int32_t>(args); }
KERNEL(conv_direct_f64, conv_arguments) { sum_taps<double, int32_t>(args); }
KERNEL(conv_direct_wide_f32, conv_arguments) { sum_taps<float, int64_t>(args); }
KERNEL(conv_direct_wide_f64, conv_arguments) { sum_taps<double, int64_t>(args); }

// The backward pass for the weight: a block for an element and a split of its sum.
template <class T>
DEVICE void sum_windows(const conv_arguments &args, int64_t task, T *sums) {
    const int64_t split = task / args.elements, element = task % args.elements;
    int64_t tap[CONV_RANK], at[CONV_RANK];
    const int64_t pair = split3(element, args.sides[0].kernel, args.sides[1].kernel,
                                args.sides[2].kernel, args.narrow, tap);
    const int64_t row = pair / args.c, channel = row / args.o * args.c + pair % args.c;
    const int64_t first = split * args.chunk, summands = args.images * args.count;
    const int64_t last = first + args.chunk < summands ? first + args.chunk : summands;
    T total = 0;
    for (int64_t number = first + threadIdx.x; number < last; number += BLOCK) {
        const int64_t image = split3(number, args.sides[0].count, args.sides[1].count,
                                     args.sides[2].count, args.narrow, at);
        int64_t offset = 0;
        bool is_inside = true;
        for (int d = 0; d < CONV_RANK; d++) {
            const int64_t x = at[d] * args.sides[d].stride - args.sides[d].padding +
                              tap[d] * args.sides[d].dilation;
            is_inside = is_inside && x >= 0 && x < args.sides[d].size;
            offset = offset * args.sides[d].size + x;
        }
        const T factor =
            is_inside
                ? static_cast<const T *>(
                      args.right)[(image * args.groups * args.c + channel) * args.size + offset]
                : 0;
        total += static_cast<const T *>(
                     args.left)[(image * (args.groups * args.o - 1) + row) * args.count + number] *
                 factor;
    }
    for (int step = 16; step > 0; step /= 2)
        total += __shfl_xor_sync(WHOLE_WARP, total, step);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < BLOCK / 32; i++)
            total += sums[i];
        T *const out = static_cast<T *>(args.partial == nullptr ? args.out : args.partial);
        out[split * args.elements + element] = total;
    }
    __syncthreads();
}

template <class T>
DEVICE void sum_all_windows(const conv_arguments &args) {
    __shared__ T sums[BLOCK / 32];
    for (int64_t task = blockIdx.x; task < args.elements * args.splits; task += gridDim.x)
        sum_windows(args, task, sums);
}

KERNEL(conv_backward_weight_direct_f32, conv_arguments) { sum_all_windows<float>(args); }
KERNEL(conv_backward_weight_direct_f64, conv_arguments) { sum_all_windows<double>(args); }

// The sum over the splits, in their order, and the bias.
template <class T>
DEVICE void add_splits(const conv_arguments &args) {
    const T *const partial = static_cast<const T *>(args.partial);
    const T *const bias = static_cast<const T *>(args.bias);
    const int64_t channel = args.kind == CONV_BACKWARD_INPUT ? args.size : args.count;
    for (int64_t i = thread_number(); i < args.elements; i += thread_count()) {
        T total = partial[i];
        for (int64_t split = 1; split < args.splits; split++)
            total += partial[split * args.elements + i];
        if (bias != nullptr)
            total += bias[i / channel % args.out_channels.size];
        static_cast<T *>(args.out)[i] = total;
    }
}

KERNEL(conv_sum_f32, conv_arguments) { add_splits<float>(args); }
KERNEL(conv_sum_f64, conv_arguments) { add_splits<double>(args); }

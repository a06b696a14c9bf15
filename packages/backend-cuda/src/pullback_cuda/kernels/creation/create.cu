// arange and linspace: numbers in equal steps.
#include "kernels/common/kernel.cuh"

#include "kernels/creation/create.h"
#include "kernels/common/storage.cuh"

// Number i of a line, from the nearer one of its ends; rounded as on every backend.
DEVICE double line_of(const create_arguments &args, int64_t i) {
    if (i < args.half)
        return args.start + rounded_product((double)i, args.width);
    return args.end + rounded_product((double)(i - (args.count - 1)), args.width);
}

DEVICE int64_t count_of(const create_arguments &args, int64_t i) {
    return (int64_t)((uint64_t)args.first + (uint64_t)i * (uint64_t)args.step);
}

// Write value(i) for all i, as elements of the class Out.
template <class Out, class Value>
DEVICE void write_all(const create_arguments &args, Value value) {
    const int64_t first = (int64_t)blockIdx.x * (CREATE_THREADS * CREATE_EACH) + threadIdx.x;
    Out::visit(args.type, [&](auto element) {
        typedef decltype(element) T;
#pragma unroll
        for (int k = 0; k < CREATE_EACH; ++k) {
            const int64_t i = first + k * CREATE_THREADS;
            if (i < args.count)
                *(T *)((char *)args.data + i * args.stride) =
                    conversion<typename Out::compute, T>::out((typename Out::compute)value(i));
        }
    });
}

KERNEL(count_int, create_arguments) {
    write_all<ints>(args, [&](int64_t i) { return count_of(args, i); });
}
KERNEL(count_long, create_arguments) {
    write_all<longs>(args, [&](int64_t i) { return count_of(args, i); });
}
KERNEL(line_float, create_arguments) {
    write_all<floats>(args, [&](int64_t i) { return line_of(args, i); });
}
KERNEL(line_double, create_arguments) {
    write_all<doubles>(args, [&](int64_t i) { return line_of(args, i); });
}

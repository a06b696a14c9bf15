// Random numbers: Philox4x32-10 (Salmon et al., SC'11) in counter mode, the same on every backend.
//
// A thread makes one block of four words, which become four numbers, or two of 64 bits with the low
// word first. Elements are numbered in the row-major order of the output, whatever its strides.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"
#include "kernels/creation/random.h"

struct philox {
    uint32_t word[4];

    DEVICE philox(uint64_t seed, uint64_t block) {
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
        uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = 0, d = 0;
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            uint64_t first = (uint64_t)0xD2511F53u * a, second = (uint64_t)0xCD9E8D57u * c;
            a = (uint32_t)(second >> 32) ^ b ^ key0;
            b = (uint32_t)second;
            c = (uint32_t)(first >> 32) ^ d ^ key1;
            d = (uint32_t)first;
            key0 += 0x9E3779B9u;
            key1 += 0xBB67AE85u;
        }
        word[0] = a;
        word[1] = b;
        word[2] = c;
        word[3] = d;
    }

    DEVICE uint64_t pair(int i) const { return word[2 * i] | (uint64_t)word[2 * i + 1] << 32; }
};

// Store the numbers of this thread's block that the output has.
template <class Out, int N>
DEVICE void store_numbers(const random_arguments &args, const typename Out::compute (&number)[N]) {
    const elementwise_arguments &layout = args.layout;
    uint32_t index[N];
    int32_t offset[1][N];
    const uint32_t first = (blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x) * N - args.skip;
#pragma unroll
    for (int i = 0; i < N; ++i)
        index[i] = first + i;
    find_offsets(layout, index, offset, 0);
    char *data = (char *)layout.data[0];
    Out::visit(layout.out_type, [&](auto element) {
        typedef decltype(element) T;
        if (layout.vectors && first + N <= layout.count) {
            store_vector<T>(data + offset[0][0], number);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (first + i < layout.count)
                    *(T *)(data + offset[0][i]) =
                        conversion<typename Out::compute, T>::out(number[i]);
        }
    });
}

DEVICE uint64_t own_block(const random_arguments &args) {
    return args.block + (blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x);
}

KERNEL(uniform_float, random_arguments) {
    const philox random(args.seed, own_block(args));
    // As many bits as the type has digits, so that no number rounds up to 1.
    const int type = args.layout.out_type;
    const int digits = type == TYPE_F32 ? 24 : type == TYPE_F16 ? 11 : 8;
    const float unit = __uint_as_float((127u - digits) << 23);
    float number[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        number[i] = (float)(random.word[i] >> (32 - digits)) * unit;
    store_numbers<floats>(args, number);
}

KERNEL(uniform_double, random_arguments) {
    const philox random(args.seed, own_block(args));
    double number[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
        number[i] = (double)(random.pair(i) >> 11) * 0x1p-53;
    store_numbers<doubles>(args, number);
}

// ---- normal numbers, two from two by the Box-Muller transform. The functions are those of fdlibm
// (Sun Microsystems, 1993: e_log.c, k_sin.c, k_cos.c). No product is fused with a sum, so that
// every backend makes the same numbers.

DEVICE double times(double x, double y) { return rounded_product(x, y); }

// log(x) of an x in (0, 1] that is not subnormal.
DEVICE double log_of_unit(double x) {
    const uint64_t start = (uint64_t)0x3FE6A09E << 32; // the square root of one half
    uint64_t shifted = (uint64_t)__double_as_longlong(x) + (((uint64_t)0x3FF00000 << 32) - start);
    double exponent = (double)((int32_t)(shifted >> 52) - 1023);
    double f = __longlong_as_double((int64_t)((shifted & 0x000FFFFFFFFFFFFFull) + start)) - 1.0;
    double s = f / (2.0 + f), z = times(s, s), w = times(z, z);
    double odd = 2.857142874366239149e-01 +
                 times(w, 1.818357216161805012e-01 + times(w, 1.479819860511658591e-01));
    double even = 2.222219843214978396e-01 + times(w, 1.531383769920937332e-01);
    double r = times(z, 6.666666666666735130e-01 + times(w, odd)) +
               times(w, 3.999999999940941908e-01 + times(w, even));
    double half_square = times(times(0.5, f), f);
    double low = times(s, half_square + r) + times(exponent, 1.90821492927058770002e-10);
    return times(exponent, 6.93147180369123816490e-01) - ((half_square - low) - f);
}

// The point on the circle at `part` of a full turn, in [0, 1).
DEVICE void turn(double radius, double part, double &first, double &second) {
    double quarters = part * 4.0;
    double rounded = quarters + 6755399441055744.0; // 1.5 * 2^52
    double x = times(quarters - (rounded - 6755399441055744.0), 1.5707963267948966);
    double z = times(x, x);
    double series = 1.58969099521155010221e-10;
    series = -2.50507602534068634195e-08 + times(z, series);
    series = 2.75573137070700676789e-06 + times(z, series);
    series = -1.98412698298579493134e-04 + times(z, series);
    series = 8.33333333332248946124e-03 + times(z, series);
    series = -1.66666666666666324348e-01 + times(z, series);
    double sine = x + times(times(x, z), series);
    series = 2.08757232129817482790e-09 - times(z, 1.13596475577881948265e-11);
    series = -2.75573143513906633035e-07 + times(z, series);
    series = 2.48015872894767294178e-05 + times(z, series);
    series = -1.38888888888741095749e-03 + times(z, series);
    series = 4.16666666666666019037e-02 + times(z, series);
    double cosine = 1.0 - (times(0.5, z) - times(times(z, z), series));
    // The quarter in the last two bits says which is which, and of what sign.
    uint64_t quarter = (uint64_t)__double_as_longlong(rounded);
    double high = quarter & 1 ? sine : cosine, low = quarter & 1 ? cosine : sine;
    first = times(radius, (quarter + 1) & 2 ? -high : high);
    second = times(radius, quarter & 2 ? -low : low);
}

DEVICE double radius_of(double scale, double unit) {
    return times(scale, sqrt(times(-2.0, log_of_unit(unit))));
}

KERNEL(normal_float, random_arguments) {
    const philox random(args.seed, own_block(args));
    float number[4];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        double first, second;
        turn(radius_of(args.scale, (double)(int32_t)((random.word[i] >> 8) + 1) * 0x1p-24),
             (double)(int32_t)(random.word[i + 1] >> 8) * 0x1p-24, first, second);
        number[i] = (float)first;
        number[i + 1] = (float)second;
    }
    store_numbers<floats>(args, number);
}

KERNEL(normal_double, random_arguments) {
    const philox random(args.seed, own_block(args));
    double number[2];
    turn(radius_of(args.scale, (double)(int64_t)((random.pair(0) >> 11) + 1) * 0x1p-53),
         (double)(int64_t)(random.pair(1) >> 11) * 0x1p-53, number[0], number[1]);
    store_numbers<doubles>(args, number);
}

// ---- integers, in the element type of the output -----------------------------------------------

// The remainder by the span is found with the high half of a product by its reciprocal; the
// quotient is then right or one too small.
DEVICE int64_t integer_of(const random_arguments &args, uint64_t number) {
    number -= __umul64hi(number, args.reciprocal) * args.span;
    if (number >= args.span)
        number -= args.span;
    return (int64_t)((uint64_t)args.low + number);
}

template <class Out>
DEVICE void random_integers(const random_arguments &args) {
    const philox random(args.seed, own_block(args));
    typename Out::compute number[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        int64_t value = integer_of(args, random.pair(i));
        if (args.layout.out_type == TYPE_BOOL)
            value = value != 0;
        number[i] = (typename Out::compute)value;
    }
    store_numbers<Out>(args, number);
}

KERNEL(randint_int, random_arguments) { random_integers<ints>(args); }
KERNEL(randint_long, random_arguments) { random_integers<longs>(args); }
KERNEL(randint_float, random_arguments) { random_integers<floats>(args); }
KERNEL(randint_double, random_arguments) { random_integers<doubles>(args); }

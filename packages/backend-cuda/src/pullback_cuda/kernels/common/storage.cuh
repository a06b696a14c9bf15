// Classes of element types with the same compute type: one kernel serves all types of a class.
//
// The type is a pb_dtype that all threads share, so that choosing by it costs next to nothing, once
// for several elements. `visit` calls a function with an element of the type that a number names.
#ifndef PULLBACK_CUDA_STORAGE_CUH
#define PULLBACK_CUDA_STORAGE_CUH

#include "kernels/common/dtypes.cuh"

// A function that is called, not copied to where it is used: for long ones.
#ifdef PULLBACK_EMULATION
#define OUT_OF_LINE static
#else
#define OUT_OF_LINE __device__ __noinline__
#endif

// As in abi.h.
enum {
    TYPE_BOOL,
    TYPE_U8,
    TYPE_I8,
    TYPE_I16,
    TYPE_I32,
    TYPE_I64,
    TYPE_F16,
    TYPE_BF16,
    TYPE_F32,
    TYPE_F64,
    TYPE_C64,
    TYPE_C128
};

// `vector_size`: how many elements are loaded together, 16 bytes of the widest type.

struct bools {
    typedef bool compute;
    static constexpr int vector_size = 4;
    template <class Function>
    static DEVICE void visit(int, Function function) {
        function(false);
    }
};

struct ints {
    typedef int32_t compute;
    static constexpr int vector_size = 4;
    template <class Function>
    static DEVICE void visit(int type, Function function) {
        if (type == TYPE_I32)
            function(int32_t());
        else if (type == TYPE_I16)
            function(int16_t());
        else if (type == TYPE_I8)
            function(int8_t());
        else // bool too
            function(uint8_t());
    }
};

struct longs {
    typedef int64_t compute;
    static constexpr int vector_size = 2;
    template <class Function>
    static DEVICE void visit(int, Function function) {
        function(int64_t());
    }
};

struct floats {
    typedef float compute;
    static constexpr int vector_size = 4;
    template <class Function>
    static DEVICE void visit(int type, Function function) {
        if (type == TYPE_F32)
            function(float());
        else if (type == TYPE_BF16)
            function(bfloat16());
        else
            function(half());
    }
};

struct doubles {
    typedef double compute;
    static constexpr int vector_size = 2;
    template <class Function>
    static DEVICE void visit(int, Function function) {
        function(double());
    }
};

// Real numbers that come from complex ones.
struct parts {
    typedef double compute;
    static constexpr int vector_size = 1;
    template <class Function>
    static DEVICE void visit(int type, Function function) {
        if (type == TYPE_F64)
            function(double());
        else
            function(float());
    }
};

// All complex numbers are computed with in double.
struct complexes {
    typedef complex<double> compute;
    static constexpr int vector_size = 1;
    template <class Function>
    static DEVICE void visit(int type, Function function) {
        if (type == TYPE_C128)
            function(complex<double>());
        else
            function(complex<float>());
    }
};

// Elements that are only moved, by their size.
template <class T>
struct plain {
    typedef T compute;
    static constexpr int vector_size = sizeof(T) < 4 ? 4 : 16 / sizeof(T);
    template <class Function>
    static DEVICE void visit(int, Function function) {
        function(T());
    }
};

// From an element to what its class computes in, and back: a plain cast but for these.
template <class Compute, class T>
struct conversion {
    static DEVICE Compute in(T stored) { return (Compute)stored; }
    static DEVICE T out(Compute value) { return (T)value; }
};
template <class T>
struct conversion<T, T> {
    static DEVICE T in(T stored) { return stored; }
    static DEVICE T out(T value) { return value; }
};
template <>
struct conversion<float, half> {
    static DEVICE float in(half stored) { return widen(stored); }
    static DEVICE half out(float value) { return narrow_to_half(value); }
};
template <>
struct conversion<float, bfloat16> {
    static DEVICE float in(bfloat16 stored) { return widen(stored); }
    static DEVICE bfloat16 out(float value) { return narrow_to_bfloat16(value); }
};
template <>
struct conversion<complex<double>, complex<float>> {
    static DEVICE complex<double> in(complex<float> stored) { return widen_complex(stored); }
    static DEVICE complex<float> out(complex<double> value) { return narrow_complex<float>(value); }
};

// ---- vectors of elements, up to 16 bytes at a time ---------------------------------------------

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) elements {
    T at[N];
};

// The value of absent elements: no operation fails for it.
template <class Compute>
DEVICE Compute one_of() {
    return (Compute)1;
}
template <>
DEVICE complex<double> one_of<complex<double>>() {
    return complex<double>{1, 0};
}

template <class T, class Compute, int N>
DEVICE void load_vector(const char *address, Compute (&value)[N]) {
    elements<T, N> stored = *reinterpret_cast<const elements<T, N> *>(address);
#pragma unroll
    for (int i = 0; i < N; ++i)
        value[i] = conversion<Compute, T>::in(stored.at[i]);
}

template <class T, class Compute, int N>
DEVICE void store_vector(char *address, const Compute (&value)[N]) {
    elements<T, N> stored;
#pragma unroll
    for (int i = 0; i < N; ++i)
        stored.at[i] = conversion<Compute, T>::out(value[i]);
    *reinterpret_cast<elements<T, N> *>(address) = stored;
}

#endif

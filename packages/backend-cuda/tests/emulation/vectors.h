// CUDA's vector types, with its alignment, and the functions that make them.
#ifndef PULLBACK_EMULATION_VECTORS_H
#define PULLBACK_EMULATION_VECTORS_H

#define EMULATED_VECTORS(T, name, align2, align4)                                                  \
    struct name##1 {                                                                               \
        T x;                                                                                       \
    };                                                                                             \
    struct __align__(align2) name##2 {                                                             \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3 {                                                                               \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __align__(align4) name##4 {                                                             \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##1 make_##name##1(T x) { return {x}; }                                      \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                              \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                      \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATED_VECTORS(signed char, char, 2, 4)
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned int, uint, 8, 16)
EMULATED_VECTORS(long, long, 16, 16)
EMULATED_VECTORS(unsigned long, ulong, 16, 16)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

#endif

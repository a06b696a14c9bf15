// Atomic functions. Threads give way to each other only in barriers and warp functions, and one
// launch runs at a time, so plain operations do.
#ifndef PULLBACK_EMULATION_ATOMICS_H
#define PULLBACK_EMULATION_ATOMICS_H

#define EMULATED_ATOMIC(name, T, result)                                                           \
    static inline T name(T *address, T value) {                                                    \
        const T old = *address;                                                                    \
        *address = static_cast<T>(result);                                                         \
        return old;                                                                                \
    }
#define EMULATED_ATOMICS(T)                                                                        \
    EMULATED_ATOMIC(atomicExch, T, value)                                                          \
    EMULATED_ATOMIC(atomicMin, T, value < old ? value : old)                                       \
    EMULATED_ATOMIC(atomicMax, T, value > old ? value : old)                                       \
    EMULATED_ATOMIC(atomicAnd, T, old &value)                                                      \
    EMULATED_ATOMIC(atomicOr, T, old | value)                                                      \
    EMULATED_ATOMIC(atomicXor, T, old ^ value)                                                     \
    static inline T atomicCAS(T *address, T expected, T value) {                                   \
        const T old = *address;                                                                    \
        if (old == expected)                                                                       \
            *address = value;                                                                      \
        return old;                                                                                \
    }

EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned int)
EMULATED_ATOMICS(unsigned long long)
EMULATED_ATOMIC(atomicMin, long long, value < old ? value : old)
EMULATED_ATOMIC(atomicMax, long long, value > old ? value : old)
EMULATED_ATOMIC(atomicAnd, long long, old &value)
EMULATED_ATOMIC(atomicOr, long long, old | value)
EMULATED_ATOMIC(atomicXor, long long, old ^ value)
EMULATED_ATOMIC(atomicExch, float, value)
EMULATED_ATOMIC(atomicAdd, int, static_cast<unsigned>(old) + static_cast<unsigned>(value))
EMULATED_ATOMIC(atomicAdd, unsigned int, old + value)
EMULATED_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATED_ATOMIC(atomicAdd, float, old + value)
EMULATED_ATOMIC(atomicAdd, double, old + value)
EMULATED_ATOMIC(atomicSub, int, static_cast<unsigned>(old) - static_cast<unsigned>(value))
EMULATED_ATOMIC(atomicSub, unsigned int, old - value)
EMULATED_ATOMIC(atomicInc, unsigned int, old >= value ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
#undef EMULATED_ATOMICS
#undef EMULATED_ATOMIC

static inline unsigned short atomicCAS(unsigned short *address, unsigned short expected,
                                       unsigned short value) {
    const unsigned short old = *address;
    if (old == expected)
        *address = value;
    return old;
}

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif

# build: small
# The instruction sets of this processor.
cdef extern from *:
    """
    #if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    #define PB_HAS(feature) __builtin_cpu_supports(feature)
    static void pb_init_cpu(void) { __builtin_cpu_init(); }
    static int pb_has_avx2(void) {
        return PB_HAS("avx2") && PB_HAS("fma") && PB_HAS("bmi") && PB_HAS("bmi2");
    }
    static int pb_has_avx512(void) {
        return pb_has_avx2() && PB_HAS("avx512f") && PB_HAS("avx512bw") && PB_HAS("avx512cd")
            && PB_HAS("avx512dq") && PB_HAS("avx512vl");
    }
    #else
    static void pb_init_cpu(void) {}
    static int pb_has_avx2(void) { return 0; }
    static int pb_has_avx512(void) { return 0; }
    #endif
    """
    void pb_init_cpu()
    bint pb_has_avx2()
    bint pb_has_avx512()


ALL_ISAS = ("baseline", "avx2", "avx512")


def supported_isas():
    """Return the names of the instruction sets that this processor has, the widest last."""
    pb_init_cpu()
    present = (True, pb_has_avx2(), pb_has_avx512())
    return [name for name, here in zip(ALL_ISAS, present) if here]

# Error functions that vectorise.
from libc.math cimport copysign, copysignf, fabs, fabsf
from libc.stdint cimport uint32_t, uint64_t

from pullback_cpu.kernels.vector_bits cimport *
from pullback_cpu.kernels.vector_exp cimport (
    ONE_FACTOR, ONE_FACTOR_F64, at_most_f32, at_most_f64, exp_tail_f32, exp_tail_f64, exp_wide,
    pow2_f32, reduce_exp_f32, reduce_exp_f64)


cdef inline float erf_f32(float x) noexcept nogil:
    # A polynomial up to 1.03, from there 1 - exp(p(|x|)).
    cdef uint32_t bits
    cdef float size = fabsf(x), one = 1, bound = 1.03, centred = size * size - <float>0.5
    cdef float centre = size + size * poly8_f32(       # erf_f32 centre
        centred, -0.0345312618, -0.28107217, 0.079410024, -0.018284129, 0.00347985188,
        -5.59436448e-4, 7.97367393e-5, -1.32921014e-5)
    cdef float z = at_most_f32(size, 4)
    cdef float power = fma_f32(z, fma_f32(z, poly5_f32(      # erf_f32 tail
        z, -0.638566732, -0.102756038, 0.0216773804, -0.00290921051, 1.82627424e-4),
        -1.12682378), -4.09788132e-4)
    cdef float rest, r = reduce_exp_f32(power, ONE_FACTOR, &bits, &rest)
    cdef float tail = one - pow2_f32(bits) * (one + (r + exp_tail_f32(r)))
    return copysignf(centre if size < bound else tail, x)


cdef inline float erfc_f32(float x) noexcept nogil:
    # exp(-z**2) Q(t) / (z + 3) where t = (z - 3) / (z + 3), after Shepherd and Laframboise,
    # Mathematics of Computation 36, 1981.
    cdef double z = at_most_f32(fabsf(x), 10.5), inverse = 1 / (z + 3), t = (z - 3) * inverse
    cdef double result = exp_wide(-z * z) * inverse * poly12_f64(     # erfc_wide
        t, 1.074006907084232, -0.88339445380667636, 0.59022835815336705,
        -0.31046722732976934, 0.11952773951151467, -0.026827775037408078,
        -0.0012124322468917246, 0.0030376204938054323, -5.463077492189242e-4,
        -2.8709655022495119e-4, 9.6750973548074561e-5, 3.9947997256598775e-5)
    return <float>(2 - result if x < 0 else result)


cdef inline double erf_f64(double x) noexcept nogil:
    # A polynomial up to 1.03, from there 1 - erfc(|x|) as in erfc_f32.
    cdef uint64_t bits
    cdef double size = fabs(x)
    cdef double centre = size + size * poly14_f64(     # erf_f64 centre
        size * size - 0.625, -0.068459380410239842, -0.26205021975931814,
        0.072869125754935524, -0.016628455021168963, 0.0031472421999893178,
        -5.0550980195508146e-4, 7.0327881423156203e-5, -8.617639980868629e-6,
        9.427748139437044e-7, -9.3110989908589788e-8, 8.3722625798497924e-9,
        -6.9640501562727618e-10, 5.9369133741796504e-11, 2.5497930127563573e-13)
    cdef double z = at_most_f64(size, 6), inverse = 1 / (z + 4), t = (z - 4) * inverse
    cdef double rest, r = reduce_exp_f64(-z * z, <double>ONE_FACTOR_F64, &bits, &rest)
    cdef double tail = double_of_bits(bits << 52) * (1 + (r + exp_tail_f64(r))) * inverse
    tail = 1 - tail * poly11_f64(      # erf_f64 tail
        t, 1.0959956612092783, -0.97654872209742694, 0.77320879913300766,
        -0.54085311463510333, 0.33085447755944242, -0.17400658562840562,
        0.076365941002745436, -0.026476548132834166, 0.0058205198952682984,
        -7.3887537221167224e-4, -8.6962901075124952e-4)
    return copysign(centre if size < 1.1 else tail, x)

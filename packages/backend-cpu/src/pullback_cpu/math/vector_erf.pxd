# Error functions that vectorise.
from libc.math cimport copysign, copysignf, fabs, fabsf
from libc.stdint cimport uint32_t, uint64_t

from pullback_cpu.math.vector_bits cimport *
from pullback_cpu.math.vector_exp cimport (
    ONE_FACTOR, ONE_FACTOR_F64, TWO_FACTORS_F64, at_most_f32, at_most_f64, exp_tail_f32,
    exp_tail_f64, exp_wide, pow2_f32, reduce_exp_f32, reduce_exp_f64, scale_f64)


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


cdef inline double next_of_two_f64(
        double t, double t_low, double *low, double c, double c_low, double high) noexcept nogil:
    """Return t (high + low) + c, and set what it lacks."""
    cdef double product = t * high, product_low = fma_f64(t, high, -product)
    cdef double total = c + product, part = total - c
    cdef double lost = (c - (total - part)) + (product - part)
    low[0] = lost + (c_low + add_product_f64(t, low[0], add_product_f64(t_low, high, product_low)))
    return total


cdef inline double erfc_f64(double x) noexcept nogil:
    # As in erfc_f32, in sums of two numbers: the power, the first terms of Q, and the quotient.
    cdef uint64_t bits
    cdef double z = at_most_f64(fabs(x), 27.5), square = z * z, square_low = fma_f64(z, z, -square)
    cdef double rest, r = reduce_exp_f64(-square, <double>TWO_FACTORS_F64, &bits, &rest)
    cdef double power = 1 + r, power_low = (r - (power - 1)) + (exp_tail_f64(r) + rest)
    power_low = add_product_f64(-square_low, power + power_low, power_low)
    cdef double above = z + 3, part = above - z, above_low = (z - (above - part)) + (3 - part)
    cdef double below = z - 3, taken = below - z, below_low = (z - (below - taken)) - (3 + taken)
    cdef double t = below / above
    cdef double t_low = (
        fma_f64(-t, above, below) + add_product_f64(-t, above_low, below_low)) / above
    cdef double high = poly10_f64(      # erfc_f64
        t, -4.749251735330696e-6, 2.7622099100373374e-6, 9.984896527097672e-7,
        -4.024937917548983e-7, -2.3199841633287917e-7, 4.0346579003141234e-8,
        4.8026652445196387e-8, 2.1891680746068146e-9, -6.16037276865365e-9,
        -1.500623785659824e-9)
    high = poly9_f64(
        t, -0.02682723462460156, -0.0012124166305432429, 0.003034062003114649,
        -5.483096520636865e-4, -2.7677786064997416e-4, 1.0756121238916684e-4,
        3.039821312112333e-5, -1.746939457976583e-5, high)
    cdef double low = 0
    high = next_of_two_f64(t, t_low, &low, 0.11952776128743385, -1.3161444249945544e-18, high)
    high = next_of_two_f64(t, t_low, &low, -0.3104672619005643, -1.4403772819342693e-17, high)
    high = next_of_two_f64(t, t_low, &low, 0.5902283571040994, 3.871035757638581e-17, high)
    high = next_of_two_f64(t, t_low, &low, -0.8833944531698836, -1.679845173203287e-17, high)
    high = next_of_two_f64(t, t_low, &low, 1.0740069070883398, -8.176067320012677e-17, high)
    # power * high / above
    cdef double product = power * high, product_low = fma_f64(power, high, -product)
    product_low += add_product_f64(power, low, power_low * high)
    cdef double result = product / above
    cdef double lost = fma_f64(-result, above, product)
    result += (lost + add_product_f64(-result, above_low, product_low)) / above
    result = scale_f64(result, bits)
    return 2 - result if x < 0 else result

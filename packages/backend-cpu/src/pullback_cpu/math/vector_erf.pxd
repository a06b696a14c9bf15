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


cdef inline double falling_erfc(double z, double square) noexcept nogil:
    """Return erfc(z) with the digits of a float32, for z from 0 to 10.5 and its square."""
    # exp(-z**2) Q(t) / (z + 3) where t = (z - 3) / (z + 3), after Shepherd and Laframboise,
    # Mathematics of Computation 36, 1981.
    cdef double inverse = 1 / (z + 3), t = (z - 3) * inverse
    return exp_wide(-square) * inverse * poly12_f64(     # erfc_wide
        t, 1.074006907084232, -0.88339445380667636, 0.59022835815336705,
        -0.31046722732976934, 0.11952773951151467, -0.026827775037408078,
        -0.0012124322468917246, 0.0030376204938054323, -5.463077492189242e-4,
        -2.8709655022495119e-4, 9.6750973548074561e-5, 3.9947997256598775e-5)


cdef inline float erfc_f32(float x) noexcept nogil:
    cdef double z = at_most_f32(fabsf(x), 10.5), result = falling_erfc(z, z * z)
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


# The normal distribution's function is erfc(-x / sqrt(2)) / 2, DLMF 7.18(iv).

cdef inline float ndtr_f32(float x) noexcept nogil:
    cdef double size = at_most_f32(fabsf(x), 14.5), z = size * 0.70710678118654752
    cdef double tail = 0.5 * falling_erfc(z, 0.5 * size * size)
    return <float>(tail if x < 0 else 1 - tail)


cdef inline double erfc_or_ndtr_f64(
        double x, double end, double share, double root) noexcept nogil:
    """Return share times erfc(root x), where root**2 is the share; from the end on it is 0."""
    # As in erfc_f32, with one division. The square, the power, t, the last step of Q and the
    # quotient keep what they lose.
    cdef uint64_t bits
    cdef double size = at_most_f64(fabs(x), end), z = root * size, part_of_square = share * size
    cdef double square = part_of_square * size
    cdef double square_low = fma_f64(part_of_square, size, -square)
    cdef double rest, r = reduce_exp_f64(-square, <double>TWO_FACTORS_F64, &bits, &rest)
    cdef double power = 1 + r, power_low = (r - (power - 1)) + (exp_tail_f64(r) + rest)
    power_low = add_product_f64(-square_low, power + power_low, power_low)
    cdef double above = z + 3, part = above - z, above_low = (z - (above - part)) + (3 - part)
    cdef double below = z - 3, taken = below - z, below_low = (z - (below - taken)) - (3 + taken)
    cdef double inverse = 1 / above, t = below * inverse
    cdef double t_low = inverse * (
        fma_f64(-t, above, below) + add_product_f64(-t, above_low, below_low))
    # Two chains of products and sums, which the processor takes side by side.
    cdef double fifth = (t * t) * (t * t) * t
    cdef double third = poly10_f64(      # erfc_f64
        t, -0.31046726190057099, 0.11952776128733435, -0.026827234624378242,
        -0.0012124166283913483, 0.0030340619998629136, -5.483096761876210e-4,
        -2.7677783590806082e-4, 1.0756137199337775e-4, 3.0398107903464988e-5,
        -1.7470060543434494e-5)
    third = add_product_f64(fifth * fifth, poly11_f64(
        t, -4.7490086572853766e-6, 2.7640141189326526e-6, 9.9826940134799175e-7,
        -4.0566491170114605e-7, -2.3225389488364869e-7, 4.3837412933470293e-8,
        4.8899272034166524e-8, 1.6701332469987859e-12, -7.0167032947974889e-9,
        -9.0510826846755971e-10, 3.0338490830614261e-10), third)
    cdef double second = add_product_f64(t, third, 0.59022835710410126)
    cdef double first = add_product_f64(t, second, -0.88339445316988362)
    cdef double slope = add_product_f64(t, add_product_f64(t, third, second), first)
    cdef double product = t * first, product_low = fma_f64(t, first, -product)
    cdef double high = 1.0740069070883398 + product, step = high - product
    cdef double low = (product - (high - step)) + (1.0740069070883398 - step)
    low += add_product_f64(t_low, slope, product_low - 8.722485166304518e-17)
    # power * high / above
    product = power * high
    product_low = fma_f64(power, high, -product) + add_product_f64(power, low, power_low * high)
    cdef double result = product * inverse
    cdef double lost = fma_f64(-result, above, product) + add_product_f64(
        -result, above_low, product_low)
    result = scale_f64(add_product_f64(lost, inverse, result), bits)
    cdef double base = 2 * share if x < 0 else 0., factor = -share if x < 0 else share
    return add_product_f64(factor, result, base)

"""The primitives of special functions: what each computes. See primitives.py.

All are required: elementary functions do not compose to them with all digits.
"""

from __future__ import annotations

OF_ONE = {
    "airy_ai": "Airy function Ai; NaN at both infinities",
    "airy_ai_prime": "derivative of the Airy function Ai; NaN at both infinities",
    "bessel_j0": "Bessel function of the first kind of order 0; NaN at infinity",
    "bessel_j1": "Bessel function of the first kind of order 1; NaN at infinity",
    "bessel_y0": "Bessel function of the second kind of order 0; -inf at 0, NaN below",
    "bessel_y1": "Bessel function of the second kind of order 1; -inf at 0, NaN below",
    "erfcx": "e^(x^2) * erfc(x)",
    "i0e": "e^-|x| times the modified Bessel function of the first kind of order 0",
    "i1e": "e^-|x| times the modified Bessel function of the first kind of order 1",
    "log_ndtr": "log of the probability that a standard normal number is below x",
    "modified_bessel_k0": "modified Bessel function of the second kind of order 0; inf at 0",
    "modified_bessel_k1": "modified Bessel function of the second kind of order 1; inf at 0",
    "ndtri": "the x below which a standard normal number is with that probability",
    "scaled_modified_bessel_k0": "e^x times modified_bessel_k0",
    "scaled_modified_bessel_k1": "e^x times modified_bessel_k1",
}
_POLYNOMIAL = "of degree trunc(y) at x; 0 for a negative degree, NaN for one above 2^24"
OF_TWO = {
    "igamma": "regularized lower incomplete gamma function P(x, y)",
    "igammac": "regularized upper incomplete gamma function Q(x, y)",
    "chebyshev_polynomial_t": f"Chebyshev polynomial of the first kind {_POLYNOMIAL}",
    "chebyshev_polynomial_u": f"Chebyshev polynomial of the second kind {_POLYNOMIAL}",
    "chebyshev_polynomial_v": f"Chebyshev polynomial of the third kind {_POLYNOMIAL}",
    "chebyshev_polynomial_w": f"Chebyshev polynomial of the fourth kind {_POLYNOMIAL}",
    "hermite_polynomial_h": f"physicist's Hermite polynomial {_POLYNOMIAL}",
    "hermite_polynomial_he": f"probabilist's Hermite polynomial {_POLYNOMIAL}",
    "laguerre_polynomial_l": f"Laguerre polynomial {_POLYNOMIAL}",
    "legendre_polynomial_p": f"Legendre polynomial {_POLYNOMIAL}",
}
# Each with a decomposition.
SHIFTED = {
    f"shifted_{_name}": f"{_name} at 2 x - 1" for _name in OF_TWO if _name.startswith("chebyshev")
}

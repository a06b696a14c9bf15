"""Print the polynomials of the vector functions: ``python minimax.py [NAME...]``.

``python minimax.py piecewise_poly.h`` prints the tables of that file.

Each line of FITS says what a polynomial stands for. Remez's exchange finds the one whose weighted
error is smallest; coefficients are rounded one after the other, and those that are left are
fitted again. Needs mpmath.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpmath import (
    asin,
    atan,
    besseli,
    cos,
    cosh,
    erf,
    erfc,
    erfinv,
    exp,
    expm1,
    fabs,
    floor,
    log,
    log1p,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

mp.prec = 200
LN2 = log(2)
Real = Callable[[mpf], mpf]


class Fit(NamedTuple):
    """A function, an interval, the exponents of the polynomial, and how errors weigh."""

    function: Real
    low: Any
    high: Any
    exponents: Sequence[int]
    weight: Real
    bits: int  # of a coefficient


def exchange(fit: Fit, points: list, fixed: dict[int, mpf], start: dict[int, mpf]) -> dict:
    """Return the best coefficients of the exponents of ``start``, never worse ones than those."""
    free = list(start)
    targets = [fit.function(x) - sum(c * x**e for e, c in fixed.items()) for x in points]
    weights = [fit.weight(x) for x in points]
    powers = [[x**e for e in free] for x in points]
    count = len(free) + 1
    chosen = [round(k * (len(points) - 1) / (count - 1)) for k in range(count)]
    coefficients, best, smallest = list(start.values()), start, mpf("inf")
    for _ in range(30):
        errors = [
            w * (t - sum(c * p for c, p in zip(coefficients, row, strict=True)))
            for w, t, row in zip(weights, targets, powers, strict=True)
        ]
        worst = max(map(fabs, errors))
        if worst < smallest:
            best, smallest = dict(zip(free, coefficients, strict=True)), worst
        # The extremes between the changes of sign; the smaller end goes while there are too many.
        extremes = [0]
        for k, error in enumerate(errors):
            if error * errors[extremes[-1]] < 0:
                extremes.append(k)
            elif fabs(error) > fabs(errors[extremes[-1]]):
                extremes[-1] = k
        while len(extremes) > count:
            extremes.pop(0 if fabs(errors[extremes[0]]) < fabs(errors[extremes[-1]]) else -1)
        if len(extremes) == count:
            chosen = extremes
        rows = [[*powers[k], (-1) ** j / weights[k]] for j, k in enumerate(chosen)]
        *coefficients, level = lu_solve(matrix(rows), matrix([targets[k] for k in chosen]))
        if smallest < fabs(level) * mpf("1.001"):
            break
    return best


def round_to(value: mpf, bits: int) -> mpf:
    """Return the value with this many bits."""
    with mp.workprec(bits):
        return +value


def minimax(fit: Fit) -> tuple[list[mpf], mpf]:
    """Return rounded coefficients, and the largest weighted error that they leave."""
    low, high = mpf(fit.low), mpf(fit.high)
    size = 24 * len(fit.exponents) + 1
    points = [
        (low + high - (high - low) * cos(pi * (k + mpf(1) / 2) / size)) / 2
        for k in range(size)
        if 2 * k + 1 != size
    ]
    fixed: dict[int, mpf] = {}
    free = dict.fromkeys(fit.exponents, mpf(0))
    while free:
        free = exchange(fit, points, fixed, free)
        lowest = min(free)
        fixed[lowest] = round_to(free.pop(lowest), fit.bits)
    worst = max(
        fabs(fit.weight(x) * (fit.function(x) - sum(c * x**e for e, c in fixed.items())))
        for x in points
    )
    return list(fixed.values()), worst


def even(function: Real, terms: int, top: Any, bits: int) -> Fit:
    """Return the fit of (function(x) / x - 1) / x**2 in the variable x**2."""
    return Fit(
        lambda u: (function(sqrt(u)) / sqrt(u) - 1) / u,
        0,
        mpf(top) ** 2,
        range(terms),
        lambda u: u * sqrt(u) / function(sqrt(u)),
        bits,
    )


def exp_fit(terms: int, bits: int) -> Fit:
    """Return the fit of what follows 1 + r in exp(r)."""
    return Fit(
        lambda r: (exp(r) - 1 - r) / r**2, -HALF, HALF, range(terms), lambda r: r**2 / exp(r), bits
    )


def log_fit(terms: int, bits: int) -> Fit:
    """Return the fit of what follows f - f**2 / 2 in log(1 + f)."""
    return Fit(
        lambda f: (log1p(f) - f + f**2 / 2) / f**3,
        *ROOTS,
        range(terms),
        lambda f: f**3 / log1p(f),
        bits,
    )


def sinc_fit(terms: int, bits: int) -> Fit:
    """Return the fit of what follows 1 in sin(pi r) / (pi r), in the variable r**2."""

    def rest(u: mpf) -> mpf:
        angle = pi * sqrt(u)
        return (sin(angle) / angle - 1) / u

    return Fit(rest, 0, mpf(1) / 4, range(terms), lambda u: u / (1 + u * rest(u)), bits)


def cos_fit(terms: int, top: Any, bits: int) -> Fit:
    """Return the fit of what follows 1 - x**2 / 2 in cos(x), in the variable x**2."""
    return Fit(
        lambda u: (cos(sqrt(u)) - 1 + u / 2) / u**2,
        0,
        mpf(top) ** 2,
        range(terms),
        lambda u: u**2 / cos(sqrt(u)),
        bits,
    )


def halved(fit: Fit, power: int) -> Fit:
    """Return the fit in half the variable, when a power of the variable multiplies it."""
    return Fit(
        lambda h: 2**power * fit.function(2 * h),
        fit.low,
        fit.high / 2,
        fit.exponents,
        lambda h: fit.weight(2 * h) / 2**power,
        fit.bits,
    )


def short_log_fit(terms: int, base: int, start: Real, bits: int) -> Fit:
    """Return the fit of log(1 + f) / f - start(f), to another base."""
    unit = log(mpf(base))
    return Fit(
        lambda f: log1p(f) / (unit * f) - start(f),
        *ROOTS,
        range(terms),
        lambda f: f * unit / log1p(f),
        bits,
    )


def erf_fit(terms: int, top: Any, centre: Any, bits: int) -> Fit:
    """Return the fit of erf(x) / x - 1 in the variable x**2 - centre, which cancels less."""

    def back(v: mpf) -> mpf:
        return sqrt(v + mpf(centre))

    return Fit(
        lambda v: erf(back(v)) / back(v) - 1,
        -mpf(centre),
        mpf(top) ** 2 - mpf(centre),
        range(terms),
        lambda v: back(v) / erf(back(v)),
        bits,
    )


def erfcx_fit(terms: int, centre: Any, low: Any, high: Any, weight: Real, bits: int = 53) -> Fit:
    """Return the fit of exp(z**2) erfc(z) (z + centre) in t = (z - centre) / (z + centre)."""
    centre, low, high = mpf(centre), mpf(low), mpf(high)

    def back(t: mpf) -> mpf:
        return centre * (1 + t) / (1 - t)

    def function(t: mpf) -> mpf:
        z = back(t)
        return exp(z * z) * erfc(z) * (z + centre)

    return Fit(
        function,
        (low - centre) / (low + centre),
        (high - centre) / (high + centre),
        range(terms),
        lambda t: weight(back(t)) / function(t),
        bits,
    )


def erfinv_fit(terms: int, top: Any, bits: int) -> Fit:
    """Return the fit of erfinv(x) / x in the variable -log(1 - x**2) - top / 2."""
    centre = mpf(top) / 2

    def function(u: mpf) -> mpf:
        x = sqrt(-expm1(-u - centre))
        return erfinv(x) / x

    return Fit(function, -centre, centre, range(terms), lambda u: 1 / function(u), bits)


def erfinv_tail(s: mpf) -> mpf:
    """Return erfinv(x) of s = sqrt(-log(1 - x**2)) by Newton's method on the tail of erf."""
    rest, y = exp(-s * s) / (1 + sqrt(-expm1(-s * s))), s * mpf("0.93")
    for _ in range(12):
        y += log(erfc(y) / rest) * erfc(y) * sqrt(pi) / 2 * exp(y * y)
    return y


def i1e_near(u: mpf) -> mpf:
    """Return i1e(x) / x (x + 6) of u - 1/2 = (x - 6) / (x + 6)."""
    x = 6 * (mpf(1) / 2 + u) / (mpf(3) / 2 - u)
    return (besseli(1, x) * exp(-x) / x if x else mpf(1) / 2) * (x + 6)


def i1e_far(v: mpf) -> mpf:
    """Return i1e(x) sqrt(x) of v = 1 / x."""
    v = v or mpf(2) ** -40
    return besseli(1, 1 / v) * exp(-1 / v) / sqrt(v)


HALF = LN2 / 2 + mpf(2) ** -20
QUARTER = pi / 4 + mpf("1e-4")
ROOTS = (sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1)
FITS = {
    "exp_f32": exp_fit(5, 24),
    "exp2_f32": Fit(lambda r: (2**r - 1) / r, "-0.5", "0.5", range(6), lambda r: r / 2**r, 24),
    "log_f32": log_fit(8, 24),
    "log2_f32": short_log_fit(10, 2, lambda f: (6 - 3 * f) / 4, 24),
    "log10_f32": short_log_fit(10, 10, lambda f: mpf(3) / 8, 24),
    "erf_f32 centre": erf_fit(8, "1.03", "0.5", 24),
    "erf_f32 tail": Fit(
        lambda z: log(erfc(z)), "1.03", 4, range(7), lambda z: erfc(z) / erf(z), 24
    ),
    "tanh_f32": even(tanh, 7, "0.9375", 24),
    "sin_f32": halved(even(sin, 3, QUARTER, 24), 1),
    "cos_f32": halved(cos_fit(3, QUARTER, 24), 2),
    "atan_f32": even(atan, 9, 1, 24),
    "atan_wide": even(atan, 10, 1, 53),
    "asin_f32": even(asin, 5, "0.5", 24),
    "exp_wide": exp_fit(6, 53),
    "log_wide": log_fit(11, 53),
    "sin_wide": even(sin, 5, pi / 2, 53),
    "tan_f32": even(tan, 7, pi / 4, 24),
    "sinh_wide": even(sinh, 3, HALF, 53),
    "cosh_wide": Fit(
        lambda u: (cosh(sqrt(u)) - 1) / u, 0, HALF**2, range(4), lambda u: u / cosh(sqrt(u)), 53
    ),
    "erfc_wide": erfcx_fit(12, 3, 0, "10.1", lambda z: 1),
    "softplus_f32": Fit(
        lambda u: (log1p(u) - u + u**2 / 2) / u**3, 0, 1, range(9), lambda u: u**3 / log1p(u), 24
    ),
    "exp_f64": exp_fit(10, 53),
    "log_f64": Fit(
        lambda w: (log((1 + sqrt(w)) / (1 - sqrt(w))) / sqrt(w) - 2) / w,
        0,
        mpf("0.1716") ** 2,
        range(7),
        lambda w: w / 2,
        53,
    ),
    "pow_f64": Fit(
        lambda w: ((log((1 + sqrt(w)) / (1 - sqrt(w))) / sqrt(w) - 2) / w - mpf(2) / 3) / w,
        0,
        mpf("0.1716") ** 2,
        range(8),
        lambda w: w**2 / 2,
        53,
    ),
    "sin_f64": even(sin, 6, pi / 4, 53),
    "cos_f64": cos_fit(6, pi / 4, 53),
    "tanh_f64": even(tanh, 11, "0.55", 53),
    "exp2_f64": Fit(lambda r: (2**r - 1) / r, "-0.5", "0.5", range(12), lambda r: r / 2**r, 53),
    "erf_f64 centre": erf_fit(14, "1.1", "0.625", 53),
    "erf_f64 tail": erfcx_fit(11, 4, "1.1", 6, lambda z: erfc(z)),
    "erfinv_f64": erfinv_fit(22, 5, 53),
    "erfinv_f32 centre": erfinv_fit(10, 5, 24),
    "erfinv_f32 tail": Fit(
        lambda u: erfinv_tail(u + 3), "-0.8", "1.2", range(9), lambda u: 1 / erfinv_tail(u + 3), 24
    ),
    "i1e_f32 near": Fit(i1e_near, "-0.5", "0.5", range(12), lambda u: 1 / i1e_near(u), 53),
    "i1e_f32 far": Fit(i1e_far, 0, mpf(1) / 6, range(8), lambda v: 1 / i1e_far(v), 24),
    # The first one in two numbers, and the others rounded.
    "erfc_f64": erfcx_fit(24, 3, 0, "26.6", lambda z: 1, 106),
    "sinc_f32": sinc_fit(5, 24),
    "sinc_f64": sinc_fit(8, 53),
}


def accurate_float(function: Real, near: mpf) -> mpf:
    """Return the float near a number whose value is nearest to a float itself.

    Source: Gal and Bachelis, "An accurate elementary mathematical library for the IEEE floating
    point standard", ACM Transactions on Mathematical Software 17(1), 1991.
    """
    unit = mpf(2) ** (floor(log(near, 2)) - 23)
    around = (round_to(near, 24) + k * unit for k in range(-4000, 4001))
    return min(around, key=lambda x: fabs(round_to(function(x), 24) / function(x) - 1))


def fit_interval(function: Real, width: mpf, terms: int, number: int) -> list[mpf]:
    """Return a centre c, and the coefficients of function(c + d), about a multiple of a width."""
    middle = number * width
    centre = accurate_float(function, middle) if number else mpf(0)
    value = round_to(function(centre), 24)
    low, high = max(middle - width / 2, mpf(0)) - centre, middle + width / 2 - centre
    coefficients, _ = minimax(
        Fit(
            lambda d: (function(centre + d) - value) / d,
            low,
            high,
            range(terms),
            lambda d: d / function(centre + d),
            24,
        )
    )
    return [centre, value, *coefficients]


PIECEWISE = {"erfc": (erfc, mpf(1) / 8, 7), "tanh": (tanh, mpf(10) / 34, 6)}


def print_piecewise() -> None:
    """Print piecewise_poly.h's tables: a line of centres, and one of each power's coefficients."""
    for name, (function, width, terms) in PIECEWISE.items():
        print(name)
        intervals = [fit_interval(function, width, terms, number) for number in range(32)]
        for row in zip(*intervals, strict=True):
            print("{" + ", ".join(mp.nstr(c, 9, min_fixed=-4) for c in row) + "},", flush=True)


def main(names: list[str]) -> None:
    """Print the coefficients, lowest power first, with the bits that the result has."""
    if names == ["piecewise_poly.h"]:
        print_piecewise()
        return
    for name in names or FITS:
        coefficients, worst = minimax(FITS[name])
        digits = {24: 9, 53: 17}.get(FITS[name].bits, 34)
        print(f"{name}: {float(-log(worst, 2)):.1f} bits")
        numbers = [mp.nstr(c, digits, min_fixed=-4) for c in coefficients]
        print("    " + ", ".join(numbers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Print the tables of special functions: ``python piecewise.py bessel > bessel.h``.

Each line of TABLES is a function by pieces, as src/pullback_cpu/math/tables/pieces.h explains. A
piece's polynomial interpolates between Chebyshev's nodes, which is nearly the best one. Numbers
have the digits that count in the sum. Needs mpmath.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import mpmath
from mpmath import mp, mpf

mp.prec = 160
TERMS = 15
BITS = 58  # of a sum's first term, that the terms keep
Real = Callable[[mpf], mpf]


class Row(NamedTuple):
    """A polynomial of a whole interval."""

    function: Real
    low: mpf
    high: mpf


class Table(NamedTuple):
    """A function between two numbers: x + shift has 2**bits pieces in each octave."""

    function: Real
    start: int
    end: int
    shift: int
    bits: int
    others: tuple[Row, ...]  # the pieces of other variables that follow


def coefficients(row: Row) -> tuple[list[mpf], mpf]:
    """Return the coefficients about the middle, and the error against the smallest value."""
    size = TERMS + 3
    middle, half = (row.low + row.high) / 2, (row.high - row.low) / 2
    angles = [mp.pi * (k + mpf(1) / 2) / size for k in range(size)]
    values = [row.function(middle + half * mp.cos(angle)) for angle in angles]
    series = [
        2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / size
        for j in range(size)
    ]
    # The sum of Chebyshev's polynomials, as one of powers.
    before, now = [mpf(1)], [mpf(0), mpf(1)]
    total = [mpf(0)] * TERMS
    for j in range(TERMS):
        for k, c in enumerate(before):
            total[k] += c * series[j] / (2 if j == 0 else 1)
        twice = [mpf(0), *(2 * c for c in now)]
        before, now = now, [c - (before[k] if k < len(before) else 0) for k, c in enumerate(twice)]
    error = mp.fsum(abs(c) for c in series[TERMS:]) / max(abs(v) for v in values)
    return [c / half**k for k, c in enumerate(total)], error


def rounded(values: list[mpf], half: mpf) -> list[str]:
    """Return C's hexadecimal numbers, with the bits that count where the variable is ``half``."""
    largest = max(abs(c) * half**k for k, c in enumerate(values))
    texts = []
    for k, c in enumerate(values):
        weight = abs(c) * half**k / largest
        bits = 53 if k == 0 else int(min(53, max(5, BITS + mp.log(weight, 2)))) if weight else 5
        with mp.workprec(min(53, 1 + 4 * ((bits + 2) // 4))):
            number = float(+c)
        mantissa, exponent = number.hex().split("p")
        texts.append(f"{mantissa.rstrip('0').rstrip('.')}p{exponent.lstrip('+')}")
    return texts


def pieces_of(table: Table) -> list[Row]:
    """Return the pieces from the start to the end."""
    y, rows = mpf(table.start + table.shift), []
    while y < table.end + table.shift:
        width = mpf(2) ** (mp.floor(mp.log(y + mpf(2) ** -60, 2)) - table.bits)
        rows.append(Row(table.function, y - table.shift, y - table.shift + width))
        y += width
    return rows


def scaled_i(order: int) -> Real:
    return lambda x: mp.besseli(order, x) * mp.exp(-x)


def scaled_k(order: int) -> Real:
    return lambda x: mp.besselk(order, x) * mp.exp(x)


def at_infinity(function: Real) -> Real:
    """Return the function of 1 / x, over the square root of the variable."""
    return lambda v: function(1 / v) / mp.sqrt(v)


def in_square(function: Real) -> Real:
    return lambda q: function(mp.sqrt(q))


def in_inverse_square(function: Real) -> Real:
    return lambda w: function(1 / mp.sqrt(w))


def modulus(order: int, which: int) -> Real:
    """Return P, or Q times x, of DLMF 10.17.3."""

    def function(x: mpf) -> mpf:
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        angle = x - (mpf(order) / 2 + mpf(1) / 4) * mp.pi
        c, s, root = mp.cos(angle), mp.sin(angle), mp.sqrt(mp.pi * x / 2)
        return root * (x * (y * c - j * s) if which else j * c + y * s)

    return function


def airy_modulus(which: int) -> Real:
    """Return the factors of sin and cos / zeta in DLMF 9.7.9, of the variable 1 / zeta**2."""

    def function(w: mpf) -> mpf:
        zeta = 1 / mp.sqrt(w)
        z = (zeta * mpf(3) / 2) ** (mpf(2) / 3)
        c, s = mp.cos(zeta + mp.pi / 4), mp.sin(zeta + mp.pi / 4)
        root = mp.sqrt(mp.pi) * z ** (mpf(1) / 4)
        a, b = mp.airyai(-z) * root, mp.airybi(-z) * root
        return (b * s - a * c) * zeta if which else a * s + b * c

    return function


def airy_right(s: mpf) -> mpf:
    return mp.airyai(s * s) * mp.exp(mpf(2) / 3 * s**3)


def airy_far(v: mpf) -> mpf:
    """Return Ai(x) exp(zeta) x**(1/4) of the variable 1 / x**(3/2)."""
    x = v ** (-mpf(2) / 3)
    return mp.airyai(x) * mp.exp(mpf(2) / 3 / v) * mp.sqrt(mp.sqrt(x))


def erfcx(x: mpf) -> mpf:
    return mp.exp(x * x) * mp.erfc(x)


def below(x: mpf) -> mpf:
    """Return -log Phi(-x) - x**2 / 2 of the normal distribution."""
    return -mp.log(erfcx(x / mp.sqrt(2)) / 2)


def above(x: mpf) -> mpf:
    """Return -log Phi(x) exp(x**2 / 2)."""
    return -mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) * mp.exp(x * x / 2)


ROOT = mp.findroot(lambda x: mp.psi(0, x), mpf("1.46"))
LEAST = mpf(2) ** -60


def over(low: float, high: float, *functions: Real) -> tuple[Row, ...]:
    return tuple(Row(f, mpf(low), mpf(high)) for f in functions)


def bessel(function: Real, order: int, start: int, *small: Real) -> Table:
    far = [in_inverse_square(modulus(order, which)) for which in (0, 1)]
    others = over(0, mpf(2) ** -9, *far) + over(0, start**2, *small)
    return Table(function, start, 25, 24 if start else 32, 4, others)


I1_OVER = in_square(lambda x: mp.besseli(1, x) / x)
J1_OVER = in_square(lambda x: 2 / mp.pi * mp.besselj(1, x) / x)
TABLES = {
    "modified": {
        "i0e": Table(scaled_i(0), 0, 15, 1, 2, over(0, 1 / 15, at_infinity(scaled_i(0)))),
        "i1e": Table(
            lambda x: scaled_i(1)(x) / x, 0, 15, 1, 2, over(0, 1 / 15, at_infinity(scaled_i(1)))
        ),
        "k0e": Table(
            scaled_k(0),
            1,
            16,
            0,
            2,
            over(0, 1 / 16, at_infinity(scaled_k(0)))
            + over(
                0,
                1,
                in_square(lambda x: mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)),
                in_square(lambda x: mp.besseli(0, x)),
            ),
        ),
        "k1e": Table(
            scaled_k(1),
            1,
            16,
            0,
            2,
            over(0, 1 / 16, at_infinity(scaled_k(1)))
            + over(
                0,
                1,
                in_square(lambda x: (mp.besselk(1, x) - 1 / x - mp.log(x) * mp.besseli(1, x)) / x),
                I1_OVER,
            ),
        ),
    },
    "bessel": {
        "j0": bessel(lambda x: mp.besselj(0, x), 0, 0),
        "j1": bessel(lambda x: mp.besselj(1, x) / x, 1, 0),
        "y0": bessel(
            lambda x: mp.bessely(0, x),
            0,
            4,
            in_square(lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)),
            in_square(lambda x: 2 / mp.pi * mp.besselj(0, x)),
        ),
        "y1": bessel(
            lambda x: mp.bessely(1, x),
            1,
            4,
            in_square(
                lambda x: (
                    (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x
                )
            ),
            J1_OVER,
        ),
    },
    "normal": {
        "erfcx": Table(
            erfcx, 0, 7, 1, 2, over(0, 1 / 49, in_inverse_square(lambda x: x * erfcx(x)))
        ),
        # Phi(-x) of x >= 0, and after it on the same pieces Phi(x).
        "log_ndtr": Table(
            below,
            0,
            15,
            1,
            2,
            over(0, 1 / 225, in_inverse_square(lambda x: below(x) - mp.log(x)))
            + tuple(pieces_of(Table(above, 0, 15, 1, 2, ())))
            + over(0, 1 / 225, in_inverse_square(lambda x: x * above(x))),
        ),
        "digamma": Table(
            lambda x: mp.psi(0, x) / (x - ROOT),
            1,
            16,
            0,
            2,
            over(
                0,
                1 / 256,
                in_inverse_square(lambda x: x * x * (mp.log(x) - 1 / (2 * x) - mp.psi(0, x))),
            ),
        ),
        "trigamma": Table(
            lambda x: mp.psi(1, x),
            1,
            16,
            0,
            2,
            over(
                0,
                1 / 256,
                in_inverse_square(lambda x: x**3 * (mp.psi(1, x) - 1 / x - 1 / (2 * x * x))),
            ),
        ),
        "airy_left": Table(
            lambda z: mp.airyai(-z), 0, 8, 8, 4, over(0, 1 / 256, airy_modulus(0), airy_modulus(1))
        ),
        "airy_right": Table(airy_right, 0, 3, 1, 2, over(0, 1 / 27, airy_far)),
    },
}


def lowered(row: Row) -> Row:
    """Return the interval without a point where the function is a limit."""
    function = row.function
    return Row(lambda x: function(x or LEAST), row.low, row.high)


def main(family: str) -> None:
    """Print the tables of a family as C."""
    print(f"/* Written by tools/piecewise.py {family}. */")
    for name, table in TABLES[family].items():
        near = pieces_of(table)
        rows = [lowered(row) for row in (*near, *table.others)]
        found = [coefficients(row) for row in rows]
        worst = [f"{float(-mp.log(error + LEAST * LEAST, 2)):.0f}" for _, error in found]
        print(f"{name}: {' '.join(worst)} bits", file=sys.stderr)
        print(f"static const double pb_{name}_rows[{len(rows)}][{TERMS}] = {{")
        for row, (values, _) in zip(rows, found, strict=True):
            half, line = (row.high - row.low) / 2, "    {"
            for text in rounded(values, half):
                if len(line) + len(text) > 96:
                    print(line.rstrip())
                    line = "     "
                line += text + ", "
            print(line.rstrip(", ") + "},")
        print("};")
        middles = [float((row.low + row.high) / 2).hex() for row in table.others][:4]
        print(f"static const pb_pieces pb_{name} = {{")
        scheme = table.start, table.end, table.shift, table.bits, len(near)
        print(f"    {', '.join(map(str, scheme))},")
        print(f"    {{{', '.join(middles)}}}, pb_{name}_rows}};")


if __name__ == "__main__":
    mpmath.mp.pretty = False
    main(*sys.argv[1:])

"""Windows of signals. Source: F. Harris, "On the use of windows for harmonic analysis", 1978."""

import math

from pullback.ops.creation.create import NEW, factories, run_arange, with_requires_grad
from pullback.ops.rules.dtypes import cast_to, default_dtype, unsupported, widest
from pullback.ops.table.samples import TESTED, case
from pullback.ops.table.schema import FLOATING, op, ops


def _checked_dtype(name, count, dtype):
    dtype = dtype or default_dtype()
    if dtype.is_complex:
        raise unsupported("arange_cpu", dtype)
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if count < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={count}")
    return dtype


def _window(name, signature, values, doc, reference):
    """Declare a window: ``values`` of positions, their last one and further arguments.

    It is computed in float64 and rounded once. A periodic one is the first part of a symmetric one
    that is longer by one.
    """

    def make(count, periodic, *rest):
        *parameters, dtype, _layout, device, _pin_memory, requires_grad = rest
        dtype = _checked_dtype(name, count, dtype)
        wide = widest(device)
        if count < 2:
            made = factories().fill_tensor(factories().empty_tensor((count,), wide, device), 1)
        else:
            positions = run_arange(factories().empty_tensor((count,), wide, device), 0, 1)
            made = values(positions, count if periodic else count - 1, *parameters)
        return with_requires_grad(cast_to(made, dtype), requires_grad)

    def expected(np, window_length, periodic=True, *parameters, dtype=None):
        if window_length < 2:
            return np.ones(window_length)
        return reference(np, window_length + periodic, *parameters)[:window_length]

    op(
        f"{name}(window_length: int, periodic: bool = True, {signature}{NEW}) -> Tensor",
        composite=make,
        method=False,
        dtypes=FLOATING,
        samples=lambda: [
            case(5, dtype=TESTED),
            case(6, False, dtype=TESTED),
            *(case(4, False, 0.3) for _ in (0,) if signature),
            case(2, dtype=TESTED),
            case(1),
            case(0),
        ],
        ref=expected,
        doc=f"{doc}\n\n`periodic` windows are for transforms; symmetric ones for filters.\n\n"
        "Raises: RuntimeError for a negative length or a dtype that is no floating one.",
    )


def cosines(*factors):
    """Return a sum of cosines of multiples of the position, with alternating signs."""

    def values(positions, last):
        total = 0.0
        for k, factor in enumerate(factors):
            wave = ops.cos(positions * (2 * math.pi * k / last)) if k else 1.0
            total = total + wave * (-factor if k % 2 else factor)
        return total

    return values


def triangle(positions, last):
    return 1 - ops.abs(positions * (2 / last) - 1)


def kaiser(positions, last, beta):
    offset = positions * (2 / last) - 1
    root = ops.sqrt(ops.clamp(1 - offset * offset, 0))
    top = factories().fill_tensor(
        factories().empty_tensor((), positions.dtype, positions.device), beta
    )
    return ops.i0(root * beta) / ops.i0(top)


_window(
    "hann_window",
    "",
    cosines(0.5, 0.5),
    "Return a Hann window: 1/2 - 1/2 cos(2 pi k / n).",
    lambda np, count: np.hanning(count),
)
_window(
    "hamming_window",
    "alpha: float = 0.54, beta: float = 0.46, ",
    lambda positions, last, alpha, beta: cosines(alpha, beta)(positions, last),
    "Return a Hamming window: alpha - beta cos(2 pi k / n).",
    lambda np, count, alpha=0.54, beta=0.46: (
        alpha - beta * np.cos(2 * np.pi * np.arange(count) / (count - 1))
    ),
)
_window(
    "blackman_window",
    "",
    cosines(0.42, 0.5, 0.08),
    "Return a Blackman window: 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n).",
    lambda np, count: np.blackman(count),
)
_window(
    "bartlett_window",
    "",
    triangle,
    "Return a Bartlett window: a triangle from 0 to 1 and back to 0.",
    lambda np, count: np.bartlett(count),
)
_window(
    "kaiser_window",
    "beta: float = 12.0, ",
    kaiser,
    "Return a Kaiser window: I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1.\n\n"
    "Source: J. Kaiser, R. Schafer, On the use of the I0-sinh window for spectrum analysis, 1980.",
    lambda np, count, beta=12.0: np.kaiser(count, beta),
)

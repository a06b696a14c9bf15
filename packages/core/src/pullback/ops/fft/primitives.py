"""The three transforms that all others are composed of, and their derivatives.

``normalization`` is 0 for none, 1 to divide by the square root of the number of points, and 2 to
divide by it. ``forward`` is the sign of the exponent: minus where it is true.
"""

from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import COMPLEX, FLOATING, HALF, op, ops

references = references_of("fft")

REAL_DTYPES = FLOATING & ~HALF


def _run(primitive, self, shape, dtype, dim, normalization, forward):
    out = new_empty(self, shape, dtype)
    if out.numel():
        run_primitive(primitive, out, self, dim, normalization, int(forward))
    return out


def _resized(self, dim, size):
    shape = list(self.shape)
    shape[dim] = size
    return shape


def _c2c(self, dim, normalization, forward):
    return _run("fft_c2c", self, self.shape, self.dtype, dim, normalization, forward)


def _r2c(self, dim, normalization, forward, onesided):
    shape = _resized(self, dim[-1], self.shape[dim[-1]] // 2 + 1) if onesided else self.shape
    return _run("fft_r2c", self, shape, self.dtype.to_complex(), dim, normalization, forward)


def _c2r(self, dim, normalization, forward, last_dim_size):
    shape = _resized(self, dim[-1], last_dim_size)
    return _run("fft_c2r", self, shape, self.dtype.to_real(), dim, normalization, forward)


def _scale_pairs(self, dim, points, factor):
    """Multiply the frequencies that stand for two, one of each sign, by a factor."""
    size = points // 2 + 1
    pairs = points - size
    if not pairs:
        return self
    parts = [self.narrow(dim, 0, 1), self.narrow(dim, 1, pairs) * factor]
    if 1 + pairs < size:
        parts.append(self.narrow(dim, 1 + pairs, 1))
    return ops.cat(parts, dim)


def _r2c_vjp(g, self_shape, dim, normalization, forward, onesided):
    if not onesided:
        return ops.real(ops.fft_c2c(g, dim, normalization, not forward))
    points = self_shape[dim[-1]]
    halved = _scale_pairs(g, dim[-1], points, 0.5)
    return ops.fft_c2r(halved, dim, normalization, not forward, points)


def _c2r_vjp(g, dim, normalization, forward, last_dim_size):
    half = ops.fft_r2c(g, dim, normalization, not forward, True)
    return _scale_pairs(half, dim[-1], last_dim_size, 2)


op(
    "fft_c2c(self: Tensor, dim: int[], normalization: int, forward: bool) -> Tensor",
    forward=_c2c,
    kernel="fft_c2c",
    vjp={
        "self": lambda g, dim, normalization, forward: ops.fft_c2c(
            g, dim, normalization, not forward
        )
    },
    jvp="linear",
    batch="along",
    node="FftC2CBackward0",
    method=False,
    function=False,
    dtypes=COMPLEX,
    ref=references.fft_c2c,
    samples=lambda: [
        case(T(4), (0,), 0, True),
        case(T(2, 3), (1,), 1, False),
        case(T(3, 2, 2), (0, 2), 2, True),
        case(T(0, 3), (1,), 0, True),
    ],
    doc="Return the discrete Fourier transform of complex numbers along dims.",
)
op(
    "fft_r2c(self: Tensor, dim: int[], normalization: int, forward: bool, onesided: bool) "
    "-> Tensor",
    forward=_r2c,
    kernel="fft_r2c",
    vjp={
        "self": lambda g, self_shape, dim, normalization, forward, onesided: _r2c_vjp(
            g, self_shape, dim, normalization, forward, onesided
        )
    },
    jvp="linear",
    batch="along",
    node="FftR2CBackward0",
    method=False,
    function=False,
    dtypes=REAL_DTYPES,
    ref=references.fft_r2c,
    samples=lambda: [
        case(T(4), (0,), 0, True, True),
        case(T(5), (0,), 2, False, True),
        case(T(2, 3), (1, 0), 1, False, True),
        case(T(3, 4), (0,), 0, False, False),
        case(T(3, 4), (0, 1), 0, True, False),
        case(T(1), (0,), 0, True, True),
        case(T(0, 3), (1,), 0, True, True),
    ],
    doc="Return the discrete Fourier transform of real numbers along dims: all of it, or half of "
    "the last dim, whose other half has the conjugates.",
)
op(
    "fft_c2r(self: Tensor, dim: int[], normalization: int, forward: bool, last_dim_size: int) "
    "-> Tensor",
    forward=_c2r,
    kernel="fft_c2r",
    vjp={
        "self": lambda g, dim, normalization, forward, last_dim_size: _c2r_vjp(
            g, dim, normalization, forward, last_dim_size
        )
    },
    jvp="linear",
    batch="along",
    node="FftC2RBackward0",
    method=False,
    function=False,
    dtypes=COMPLEX,
    ref=references.fft_c2r,
    samples=lambda: [
        case(T(3), (0,), 0, False, 4),
        case(T(3), (0,), 2, True, 5),
        case(T(2, 3), (1, 0), 1, True, 2),
        case(T(2, 3), (0, 1), 2, False, 4),
        case(T(1), (0,), 0, False, 1),
        case(T(0, 3), (1,), 0, True, 4),
    ],
    doc="Return the real transform of numbers that are the first half, along the last of the dims, "
    "of conjugate pairs.",
)

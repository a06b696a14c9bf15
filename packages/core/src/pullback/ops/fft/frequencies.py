"""The frequencies of transforms, and shifts of the zero frequency to the centre and back."""

from pullback.ops.creation.create import factory, put_into, result_dtype, with_requires_grad
from pullback.ops.rules.arguments import integers
from pullback.ops.rules.dtypes import default_dtype, unsupported
from pullback.ops.table.samples import TESTED, T, case
from pullback.ops.table.schema import FLOATING, op, ops

_NAMED = {"namespace": "fft", "dtypes": FLOATING}
_SAMPLES = [
    case(5, dtype=TESTED),
    case(4, 0.5, dtype=TESTED),
    case(1, 2, dtype=TESTED),
    case(4),
]


def _checked(name, dtype, out):
    dtype = result_dtype(dtype, out) or default_dtype()
    if dtype.kind not in "fc":
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if dtype.is_complex:
        raise unsupported("arange_cpu", dtype)
    return dtype


def _scaled(numbers, n, d):
    """Divide by the length of the signal, which may be 0."""
    return ops.mul_(numbers, 1.0 / (n * d) if n * d else float("inf"))


def _fftfreq(n, d, out, dtype, layout, device, pin_memory, requires_grad):
    dtype = _checked("fftfreq", dtype, out)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    numbers = ops.cat(
        [ops.arange(start, end, dtype=dtype, device=device)
         for start, end in ((0, (n + 1) // 2), (-(n // 2), 0))]
    )  # fmt: skip
    return put_into(out, with_requires_grad(_scaled(numbers, n, d), requires_grad))


def _rfftfreq(n, d, out, dtype, layout, device, pin_memory, requires_grad):
    dtype = _checked("rfftfreq", dtype, out)
    numbers = ops.arange(max(int(n / 2) + 1, 0), dtype=dtype, device=device)
    return put_into(out, with_requires_grad(_scaled(numbers, n, d), requires_grad))


factory(
    "fft_fftfreq",
    "n: int, d: float = 1.0",
    _fftfreq,
    "Return the frequencies of the results of `fft` for n points at distances d, in cycles per "
    "unit of d: those from 0 up, then the negative ones.",
    function="fftfreq",
    samples=_SAMPLES,
    ref=lambda np, n, d=1.0, dtype=None: np.fft.fftfreq(n, d),
    **_NAMED,
)
factory(
    "fft_rfftfreq",
    "n: int, d: float = 1.0",
    _rfftfreq,
    "Return the frequencies of the results of `rfft` for n points at distances d, in cycles per "
    "unit of d: those from 0 up, n / 2 included.",
    function="rfftfreq",
    samples=_SAMPLES,
    ref=lambda np, n, d=1.0, dtype=None: np.fft.rfftfreq(n, d),
    **_NAMED,
)


def _shift(name, back):
    def shift(self, dim):
        dims = tuple(range(self.ndim)) if dim is None else integers(dim, name, "dim")
        if any(not -self.ndim <= d < self.ndim for d in dims):
            return ops.roll(self, (0,) * len(dims), dims)  # raises
        sizes = [self.shape[d] for d in dims]
        return ops.roll(self, tuple([(n + back) // 2 for n in sizes]), dims)

    return shift


for _name, _back, _what in (
    ("fftshift", 0, "with the zero frequency moved from the front to the centre"),
    ("ifftshift", 1, "with the zero frequency moved from the centre to the front"),
):
    op(
        f"fft_{_name}(self: Tensor, dim: int[]? = None) -> Tensor",
        composite=_shift(f"fft_{_name}", _back),
        function=_name,
        namespace="fft",
        method=False,
        samples=lambda: [
            case(T(5)),
            case(T(2, 3)),
            case(T(3, 4), 1),
            case(T(3, 4), (0, -1)),
            case(T(0)),
        ],
        ref=(lambda np, self, dim=None: np.fft.fftshift(self, dim))
        if not _back
        else (lambda np, self, dim=None: np.fft.ifftshift(self, dim)),
        doc=f"Return a spectrum {_what}, along all dims or some.\n\n"
        "Raises: RuntimeError for a tensor without dims.",
    )

"""The functions of ``pullback.fft``: transforms of one dim, of two and of any number."""

from pullback.ops.rules.arguments import check_str, integers
from pullback.ops.rules.dims import check_dim
from pullback.ops.rules.dtypes import cast_to, default_dtype, type_name
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import ALL, BOOL, COMPLEX, FLOATING, HALF, INTEGRAL, op, ops

references = references_of("fft")

_TAKEN = ALL & ~HALF
_REAL = BOOL | INTEGRAL | (FLOATING & ~HALF)


# -- arguments -------------------------------------------------------------------------------------


def promoted(self):
    """Return a tensor of floats or complex numbers of 32 bits or more.

    Raises: RuntimeError for 16-bit floats.
    """
    if self.dtype.kind not in "fc":
        return cast_to(self, default_dtype())
    if self.dtype.itemsize == 2:
        raise RuntimeError(f"Unsupported dtype {type_name(self.dtype)}")
    return self


def _wrapped(dim, ndim):
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return check_dim(dim, ndim)


def normalization_of(norm, forward, name):
    """Return how a transform is divided, as a number: see the primitives."""
    if norm is None:
        return 0 if forward else 2
    check_str(norm, name, "norm")
    if norm in ("backward", "forward"):
        return 0 if forward == (norm == "backward") else 2
    if norm != "ortho":
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return 1


def _dims_and_sizes(self, s, dim, name):
    """Return the dims of a transform, counted from the front, and the sizes asked for or None."""
    ndim = self.ndim
    if dim is not None:
        dim = [_wrapped(d, ndim) for d in integers(dim, name, "dim")]
        if len(set(dim)) != len(dim):
            raise RuntimeError("FFT dims must be unique")
    if s is None:
        dim = range(ndim) if dim is None else dim
        return tuple(dim), [None] * len(dim)
    s = [None if size == -1 else size for size in integers(s, name, "s")]
    if dim is None:
        if len(s) > ndim:
            raise RuntimeError(
                f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions."
            )
        dim = range(ndim - len(s), ndim)
    if len(s) != len(dim):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    return tuple(dim), s


def _fit(self, dims, sizes):
    """Cut dims to sizes, or fill them with zeros at the end."""
    pads = [0] * (2 * self.ndim)
    for dim, size in zip(dims, sizes, strict=True):
        if self.shape[dim] > size:
            self = self.narrow(dim, 0, size)
        else:
            pads[2 * (self.ndim - 1 - dim) + 1] = size - self.shape[dim]
    return ops.pad(self, pads) if any(pads) else self


# -- the transforms --------------------------------------------------------------------------------


def _points(self, dims, sizes):
    """Return the sizes of dims, those of the tensor where none is asked for."""
    sizes = [self.shape[d] if size is None else size for d, size in zip(dims, sizes, strict=True)]
    for size in sizes:
        if size < 1:
            raise RuntimeError(f"Invalid number of data points ({size}) specified")
    return sizes


def _complex_result(self, dims, sizes, norm, forward, name):
    """Transform real or complex numbers to complex ones."""
    self = _fit(self, dims, _points(self, dims, sizes))
    normalization = normalization_of(norm, forward, name)
    if self.is_complex():
        return ops.fft_c2c(self, dims, normalization, forward) if dims else ops.clone(self)
    if not dims:
        return cast_to(self, self.dtype.to_complex())
    return ops.fft_r2c(self, dims, normalization, forward, False)


def _half_result(self, dims, sizes, norm, forward, name):
    """Transform real numbers to half of the conjugate pairs."""
    self = _fit(self, dims, _points(self, dims, sizes))
    return ops.fft_r2c(self, dims, normalization_of(norm, forward, name), forward, True)


def _real_result(self, dims, sizes, norm, forward, name):
    """Transform half of the conjugate pairs to real numbers."""
    last = 2 * (self.shape[dims[-1]] - 1) if sizes[-1] is None else sizes[-1]
    *sizes, last = _points(self, dims, [*sizes[:-1], last])
    self = _fit(cast_to(self, self.dtype.to_complex()), dims, [*sizes, last // 2 + 1])
    return ops.fft_c2r(self, dims, normalization_of(norm, forward, name), forward, last)


_RESULTS = {"complex": _complex_result, "half": _half_result, "real": _real_result}


def _check_is_real(self, name):
    if self.is_complex():
        wrong = type_name(self.dtype)
        if name == "ihfftn":
            raise RuntimeError(f"Only supports floating-point dtypes, but found: {wrong}")
        kind = "real-valued" if name.endswith("n") else "real"
        raise RuntimeError(f"{name} expects a {kind} input tensor, but got {wrong}")


def _of_one_dim(name, result, forward):
    run, inverse = _RESULTS[result], 0 if forward else 2
    plain = (COMPLEX if result == "complex" else 0) | (FLOATING & ~HALF if result != "real" else 0)
    onesided = result == "half"

    def transform(self, n, dim, norm):
        dtype = self.dtype
        if n is None and norm is None and plain >> dtype.code & 1:  # nothing to change or check
            ndim = self.ndim
            if -ndim <= dim < ndim and self.shape[dim]:
                if dtype.is_complex:
                    return ops.fft_c2c(self, (dim % ndim,), inverse, forward)
                return ops.fft_r2c(self, (dim % ndim,), inverse, forward, onesided)
        if onesided:
            _check_is_real(self, name)
        self = promoted(self)
        dims = (_wrapped(dim, self.ndim),)
        return run(self, dims, (n,), norm, forward, f"fft_{name}")

    return transform


def _of_dims(name, result, forward):
    general = name.replace("2", "n")

    def transform(self, s, dim, norm):
        if result == "half":
            _check_is_real(self, general)
        self = promoted(self)
        dims, sizes = _dims_and_sizes(self, s, dim, f"fft_{name}")
        if not dims and result != "complex":
            raise RuntimeError(f"{general} must transform at least one axis")
        return _RESULTS[result](self, dims, sizes, norm, forward, f"fft_{name}")

    return transform


# -- entries ---------------------------------------------------------------------------------------

_SHARED = {"namespace": "fft", "method": False, "out": True, "out_dtype": "fft"}
_NORMS = """

`norm` divides: "backward" the inverse transform by the number of points, "forward" the other one,
"ortho" both by its square root. {sizes}

Raises: RuntimeError for 16-bit floats and sizes below 1."""
_SIZE = "`n` is the number of points: the dim is cut to it or filled with zeros."
_SIZES = "`s` has the number of points of each dim, -1 for as many as there are."
_FUNCTIONS = {
    "fft": ("complex", True, "the discrete Fourier transform"),
    "ifft": ("complex", False, "the inverse discrete Fourier transform"),
    "rfft": ("half", True, "half of the discrete Fourier transform of real numbers"),
    "irfft": ("real", False, "the real inverse of `rfft`, by half of the conjugate pairs"),
    "hfft": ("real", True, "the real transform of a signal, by half of its conjugate pairs"),
    "ihfft": ("half", False, "the inverse of `hfft`: half of the conjugate pairs of a signal"),
}

for _name, (_result, _forward, _what) in _FUNCTIONS.items():
    _points_of = "2 (size - 1)" if _result == "real" else "the size"
    op(
        f"fft_{_name}(self: Tensor, n: int? = None, dim: int = -1, norm: str? = None) -> Tensor",
        autocast=("float32", None),
        composite=_of_one_dim(_name, _result, _forward),
        function=_name,
        dtypes=_REAL if _result == "half" else _TAKEN,
        ref=getattr(references, _name),
        samples=lambda: [
            case(T(4)),
            case(T(2, 3), 5, 0, "ortho"),
            case(T(3, 4), 2, norm="forward"),
            case(T(0), 3),
            case(T(0, 3)),
        ],
        doc=f"Return {_what} along a dim." + _NORMS.format(sizes=_SIZE),
        **_SHARED,
    )
    for _suffix, _default in (("2", "int[] = (-2, -1)"), ("n", "int[]? = None")):
        _along = "two dims" if _suffix == "2" else "dims, by default along all"
        op(
            f"fft_{_name}{_suffix}(self: Tensor, s: int[]? = None, dim: {_default}, "
            f"norm: str? = None) -> Tensor",
            autocast=("float32", None),
            composite=_of_dims(_name + _suffix, _result, _forward),
            function=_name + _suffix,
            dtypes=_REAL if _result == "half" else _TAKEN,
            ref=getattr(references, _name + "n"),
            samples=lambda: [
                case(T(3, 2)),
                case(T(2, 3, 2), (2, 4), (2, 0), "ortho"),
                case(T(0, 2, 3), dim=(1, 2)),
            ],
            doc=f"Return {_what} along {_along}." + _NORMS.format(sizes=_SIZES),
            **_SHARED,
        )

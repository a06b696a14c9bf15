"""Differences of neighbours as estimates of derivatives."""

from pullback.ops.rules.dims import wrap_dim
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import ALL, BOOL, UNSIGNED, op, ops

references = references_of("reductions")


def _dims_of(self, dim):
    if dim is None:
        return list(range(self.ndim))
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    dims = [wrap_dim(d, self.ndim, "gradient") for d in given]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return dims


def _spacings(self, spacing, dim, dims):
    """Return a number or a vector of coordinates for each dim."""
    if not isinstance(spacing, (tuple, list)):
        if hasattr(spacing, "shape"):
            if spacing.ndim:
                raise TypeError(
                    "gradient(): argument 'spacing' must be Number, tuple of Numbers, or tuple of "
                    "Tensors, not Tensor"
                )
            spacing = spacing.item()
        if spacing is not None and not isinstance(spacing, (int, float, complex)):
            raise TypeError(
                f"gradient(): argument 'spacing' must be Number, tuple of Numbers, or tuple of "
                f"Tensors, not {type(spacing).__name__}"
            )
        return [1 if spacing is None else spacing] * len(dims)
    for part in spacing:
        if not (hasattr(part, "narrow") or isinstance(part, (int, float, complex))):
            raise TypeError(
                f"gradient(): argument 'spacing' must be Number, tuple of Numbers, or tuple of "
                f"Tensors, not a {type(spacing).__name__} of {type(part).__name__}"
            )
    if len(spacing) == len(dims):
        return list(spacing)
    if dim is None:
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to 'self.dim() = {self.ndim}', since dim argument was not given, but got a "
            f"list of length {len(spacing)}"
        )
    raise RuntimeError(
        f"torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim "
        f"arguments to have the same length, but got a spacing argument of length {len(spacing)} "
        f"and a dim argument of length {len(dims)}."
    )


def _along(self, dim, space, order):
    """Return the estimates along a dim: central inside, one-sided at both ends."""
    size = self.shape[dim]

    def at(start, count=1):
        return self.narrow(dim, start, count)

    if hasattr(space, "narrow"):
        return _by_coordinates(self, dim, space, order)
    inner = (at(2, size - 2) - at(0, size - 2)) / (2 * space)
    if order == 1:
        first, last = (at(1) - at(0)) / space, (at(size - 1) - at(size - 2)) / space
    else:
        first = (at(0) * -1.5 + at(1) * 2 + at(2) * -0.5) / space
        last = (at(size - 3) * 0.5 + at(size - 2) * -2 + at(size - 1) * 1.5) / space
    return ops.cat([first, inner, last], dim)


def _by_coordinates(self, dim, coordinates, order):
    """B. Fornberg, "Generation of finite difference formulas", 1988: three unequal points."""
    size = self.shape[dim]
    if coordinates.ndim != 1 or coordinates.shape[0] != size:
        raise RuntimeError(
            f"gradient(): expected coordinates of dim {dim} to be a vector of {size} elements, but "
            f"got the shape {list(coordinates.shape)}"
        )
    tail = (1,) * (self.ndim - dim - 1)

    def step(start, count):
        gap = coordinates.narrow(0, start + 1, count) - coordinates.narrow(0, start, count)
        return gap.reshape((count, *tail))

    def at(start, count=1):
        return self.narrow(dim, start, count)

    count = size - 2
    left, right = step(0, count), step(1, count)
    inner = (
        at(0, count) * (-right / (left * (left + right)))
        + at(1, count) * ((right - left) / (left * right))
        + at(2, count) * (left / (right * (left + right)))
    )
    if order == 1:
        first = (at(1) - at(0)) / step(0, 1)
        last = (at(size - 1) - at(size - 2)) / step(size - 2, 1)
    else:
        a, b = step(0, 1), step(1, 1)
        first = (
            at(0) * (-(2 * a + b) / (a * (a + b)))
            + at(1) * ((a + b) / (a * b))
            + at(2) * (-a / (b * (a + b)))
        )
        a, b = step(size - 3, 1), step(size - 2, 1)
        last = (
            at(size - 3) * (b / (a * (a + b)))
            + at(size - 2) * (-(a + b) / (a * b))
            + at(size - 1) * ((a + 2 * b) / (b * (a + b)))
        )
    return ops.cat([first, inner, last], dim)


def _gradient(self, spacing, dim, edge_order):
    if self.dtype.kind == "u":
        raise RuntimeError(f"torch.gradient does not support {self.dtype.name} input.")
    if self.dtype.kind == "b":
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    dims = _dims_of(self, dim)
    spaces = _spacings(self, spacing, dim, dims)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    for d in dims:
        if self.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    return tuple([_along(self, d, space, edge_order) for d, space in zip(dims, spaces)])


_APART = {"expanded": "repeated coordinates have no distance"}
_UNEVEN = fixed((0.0, 1.0, 3.0, 3.5), kind="real")
op(
    "gradient(self: Tensor, *, spacing: any = None, dim: int[]? = None, edge_order: int = 1) "
    "-> Tensor[]",
    composite=_gradient,
    method=False,
    dtypes=ALL & ~BOOL & ~UNSIGNED,
    ref=references.gradient,
    doc="Return estimates of the derivative along each dim, by differences of neighbours.\n\n"
    "`spacing` is the distance of elements: a number for all dims, one for each, or for each a "
    "vector of coordinates. At the ends the estimate is one-sided, and exact for polynomials of "
    "degree `edge_order`.\n\nSource: Fornberg, 1988.\n\nRaises: RuntimeError for dims of less "
    "than edge_order + 1 elements.\n\n"
    ">>> import pullback\n"
    ">>> pullback.gradient(pullback.tensor([1., 4., 9.]))\n"
    "(tensor([3., 4., 5.]),)",
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), spacing=0.5, dim=-1, edge_order=2),
        case(T(2, 3), spacing=[2, 0.5], dim=(1, 0)),
        case(T(4), spacing=(_UNEVEN,), skip=_APART),
        case(T(2, 4), spacing=(_UNEVEN,), dim=1, edge_order=2, skip=_APART),
        case(T(2, 0), dim=0),
    ],
)

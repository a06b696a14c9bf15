"""Ops that choose elements along a dim: their forward pass and derivative."""

from pullback.ops.rules.dims import check_nonempty_dim, wrap_dim
from pullback.ops.rules.dtypes import check_dtype, dtype_named
from pullback.ops.table.schema import ops


def share_evenly(g, self, out):
    """Spread a gradient over the elements that equal the result; NaN equals NaN here."""
    chosen = (self == out) | ((self != self) & (out != out))
    return ops.where(chosen, g / chosen.sum(), 0)


def choose_along(name, kinds, choose, fields):
    """Return a forward pass that chooses one element along a dim: (values, indices)."""

    def forward(self, dim, keepdim):
        dim = wrap_dim(dim, self.ndim, name)
        check_dtype(name, self, kinds)
        if not self.ndim:
            return fields(self.clone(), ops.zeros_like(self, dtype=dtype_named("int64")))
        check_nonempty_dim(name, self, dim)
        inner = dim < self.ndim - 1
        chosen = choose(ops.movedim(self, dim, -1) if inner else self)
        if not keepdim:
            chosen = [part.squeeze(-1) for part in chosen]
        elif inner:
            chosen = [ops.movedim(part, -1, dim) for part in chosen]
        return fields(*(part.contiguous() for part in chosen))

    return forward


def restore_chosen(g, indices, like, dim, keepdim):
    """Put a gradient back to where elements were chosen along a dim."""
    if like.shape and not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return ops.scatter_add(ops._zeros_like(like), dim, indices, g)

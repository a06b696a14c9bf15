"""Dims of a call: their range and their order."""

import warnings


def wrap_dim(dim, ndim, name):
    """Return a dim counted from the front; 0-d tensors have dims 0 and -1.

    Raises: IndexError out of range, TypeError for anything but an integer.
    """
    if not hasattr(dim, "__index__"):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    return check_dim(dim.__index__(), max(ndim, 1))


def check_dim(dim, ndim):
    """Return an int that names one of some dims, counted from the front.

    Raises: IndexError out of range.
    """
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, "
            f"{ndim - 1}], but got {dim})"
        )
    return dim % ndim


def check_has_dims(self, dim):
    """Raise IndexError for a dim of a 0-d tensor, in ops that take none of these."""
    if not self.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


def wrap_dims(dim, ndim, name):
    """Return the dims of a reduction; None and () stand for all of them.

    Raises: as wrap_dim, and RuntimeError for a dim named twice.
    """
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    named = dim if isinstance(dim, (tuple, list)) else (dim,)
    found = []
    for d in named:
        d = wrap_dim(d, ndim, name)
        if d in found:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        found.append(d)
    return tuple(found) if ndim else ()


def count_of(self, dims):
    """Return how many elements share one result of a reduction."""
    count = 1
    for d in dims:
        count *= self.shape[d]
    return count


def check_nonempty_dim(name, self, dim):
    """Raise IndexError for a dim without elements."""
    if self.ndim and self.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def implicit_dim(name, self, stacklevel):
    """Return the dim that torch takes where none is given, with its warning."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to "
        f"include dim=X as an argument.",
        UserWarning,
        stacklevel=stacklevel,
    )
    return 0 if self.ndim in (0, 1, 3) else 1

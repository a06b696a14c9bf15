"""Dims and dtypes of a call: their range, their order, and walks along dims."""

import warnings
from functools import cache

from pullback.ops.table.schema import ops


def wrap_dim(dim, ndim, name):
    """Return a dim counted from the front; 0-d tensors have dims 0 and -1.

    Raises: IndexError out of range, TypeError for anything but an integer.
    """
    if not hasattr(dim, "__index__"):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    dim, ndim = dim.__index__(), max(ndim, 1)
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, "
            f"{ndim - 1}], but got {dim})"
        )
    return dim % ndim


def as_int(value, argument, name):
    """Return an argument as a Python int.

    Raises: TypeError for anything but an integer.
    """
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    return value.__index__()


def check_number(value, argument, name):
    """Raise TypeError for anything but a number."""
    if not isinstance(value, (int, float, complex)):
        raise TypeError(
            f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}"
        )


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
    """Raise IndexError if a dim has nothing to choose from."""
    if self.ndim and self.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def as_vector(self):
    """Return a 0-d tensor as a vector of one element, others as they are."""
    return self if self.ndim else self.reshape(1)


def kept_apart(self, source):
    """Return an operand of a write to self that the write does not change.

    Raises: RuntimeError if both are contiguous and share elements, as torch refuses it.
    """
    from pullback._c.dispatch.operands import may_overlap

    if is_meta(self, source) or not may_overlap(self, source):
        return source
    if self.is_contiguous() and source.is_contiguous():
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() "
            "the tensor before performing the operation."
        )
    return source.clone()


def is_meta(*tensors):
    """Tell whether there are no elements to look at."""
    return any(t is not None and t.device.type == "meta" for t in tensors)


def type_name(dtype):
    """Return torch's name of a dtype in messages of missing kernels."""
    return {
        "bool": "Bool",
        "uint8": "Byte",
        "int8": "Char",
        "int16": "Short",
        "int32": "Int",
        "int64": "Long",
        "float16": "Half",
        "bfloat16": "BFloat16",
        "float32": "Float",
        "float64": "Double",
        "complex64": "ComplexFloat",
        "complex128": "ComplexDouble",
    }.get(dtype.name, dtype.name)


def unsupported(name, dtype):
    """Return the exception for a dtype that an op does not have."""
    return NotImplementedError(f"\"{name}\" not implemented for '{type_name(dtype)}'")


def check_dtype(name, self, kinds):
    """Raise NotImplementedError for a dtype whose kind is not among ``kinds`` ("b", "iu", ...)."""
    if self.dtype.kind not in kinds:
        raise unsupported(name, self.dtype)


def require(name, dtypes, self):
    """Raise NotImplementedError unless the tensor's dtype is in a mask; returns the tensor."""
    if not dtypes >> self.dtype.code & 1:
        raise unsupported(name, self.dtype)
    return self


def accumulate_dtype(dtype):
    """Return the dtype that long computations in a dtype use: 16-bit floats get float32."""
    return dtype_named("float32") if dtype.is_floating_point and dtype.itemsize == 2 else dtype


@cache
def dtype_named(name):
    """Return a dtype by its name."""
    import pullback

    return getattr(pullback, name)


def default_dtype():
    """Return the dtype of Python floats."""
    import pullback

    return pullback.get_default_dtype()


def implicit_dim(name, self, stacklevel):
    """Return the dim that torch takes where none is given, with its warning."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to "
        f"include dim=X as an argument.",
        UserWarning,
        stacklevel=stacklevel,
    )
    return 0 if self.ndim in (0, 1, 3) else 1


def cast_to(self, dtype):
    """Return the tensor in a dtype; itself if it has that already."""
    return self if self.dtype == dtype else ops.cast(self, dtype)


def scan(combine, parts, dim, reverse=False):
    """Return the cumulative results of an associative operation along a dim.

    ``combine(left, right)`` joins the results of two neighbouring runs; each is a list of tensors,
    as ``parts`` is for runs of one element. With ``reverse`` the runs end at the last element.
    Source: Hillis and Steele, "Data parallel algorithms", 1986: log2(n) steps, which every device
    can take, and of which each is differentiable.
    """
    length, step = parts[0].shape[dim], 1
    while step < length:
        rest = length - step
        left = [part.narrow(dim, 0, rest) for part in parts]
        right = [part.narrow(dim, step, rest) for part in parts]
        joined = combine(left, right)
        if reverse:
            ends = [part.narrow(dim, rest, step) for part in parts]
            parts = [ops.cat([one, end], dim) for one, end in zip(joined, ends)]
        else:
            ends = [part.narrow(dim, 0, step) for part in parts]
            parts = [ops.cat([end, one], dim) for one, end in zip(joined, ends)]
        step *= 2
    return parts


def multiply_runs(left, right):
    """Join cumulative products."""
    return [left[0] * right[0]]


def recur_backwards(inputs, factors, dim):
    """Return s with s[k] = inputs[k] + factors[k] * s[k + 1] along a dim, and s[n] = 0.

    Source: Blelloch, "Prefix sums and their applications", 1990, section 1.4.
    """

    def combine(left, right):
        return [left[0] + left[1] * right[0], left[1] * right[1]]

    return scan(combine, [inputs, factors], dim, reverse=True)[0]


def shifted(self, dim, fill, forwards=True):
    """Return the elements shifted by one along a dim; ``fill`` is the value of the end."""
    count = self.shape[dim]
    if not count:
        return self
    edge = ops.full_like(self.detach().narrow(dim, 0, 1), fill)
    if forwards:
        return ops.cat([edge, self.narrow(dim, 0, count - 1)], dim)
    return ops.cat([self.narrow(dim, 1, count - 1), edge], dim)


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

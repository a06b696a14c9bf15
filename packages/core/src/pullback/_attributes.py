"""What scripts written for torch read from tensors: kinds of tensors, layouts, legacy methods."""

from __future__ import annotations

import builtins
import itertools
import warnings

from pullback._c.base import dtype as _dtype
from pullback._c.base.state import swap_grad_enabled
from pullback._c.graph.size import strided
from pullback._c.graph.tensor import Tensor, bind_attribute
from pullback._c.interop import arrays
from pullback._c.ops import create
from pullback._c.ops.clone import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    is_contiguous,
    memory_format,
)
from pullback._c.python.tensor_methods import is_set_to
from pullback._legacy_types import new, shown_type
from pullback.ops import ops

__all__ = ["get_device", "install"]

_CONSTANTS = {
    **dict.fromkeys(
        (
            *("is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mkldnn", "is_mps"),
            *("is_xla", "is_ipu", "is_xpu", "is_vulkan", "is_maia", "is_mtia"),
            "_has_symbolic_sizes_strides",
        ),
        False,
    ),
    "layout": strided,
}
# Methods of sparse layouts, each with what it expects.
_SPARSE = {
    **dict.fromkeys(("is_coalesced", "coalesce", "indices"), "sparse coordinate tensor"),
    "values": "sparse tensor",
    **dict.fromkeys(("crow_indices", "col_indices"), "sparse row compressed tensor"),
    **dict.fromkeys(("ccol_indices", "row_indices"), "sparse column compressed tensor"),
}


def get_device(input):
    """Return the number of a tensor's device; -1 on host devices.

    >>> import pullback
    >>> pullback.get_device(pullback.ones(2))
    -1
    """
    if not isinstance(input, Tensor):
        raise TypeError(
            f"get_device(): argument 'input' (position 1) must be Tensor, not "
            f"{type(input).__name__}"
        )
    return input.get_device()


# ---- layouts -------------------------------------------------------------------------------------


def _constant(value):
    return lambda self: value


def _refused(name, expected):
    def method(self):
        raise RuntimeError(f"{name} expected {expected} layout but got Strided")

    method.__name__ = name
    method.__doc__ = f"Raise RuntimeError: there are no tensors of a {expected} layout."
    return method


def sparse_dim(self):
    """Return the number of sparse dims, which is 0."""
    return 0


def dense_dim(self):
    """Return the number of dense dims, which is that of all dims."""
    return self.ndim


def to_dense(self, dtype=None, *, masked_grad=None):
    """Return the tensor itself, or a copy in another dtype."""
    return self if dtype is None else self.to(dtype)


def to_sparse(self, sparse_dim=None, *, layout=None):
    """Return the tensor in coordinate format (COO): the elements that are not zero.

    ``sparse_dim`` counts the leading dims that have indices, all unless given. Gradients do not
    flow through it.

    Raises: RuntimeError for another number of dims; NotImplementedError for layouts other than COO,
    and for a tensor that requires grad while gradients are recorded.

    >>> import pullback
    >>> pullback.tensor([0.0, 2.0]).to_sparse()
    tensor(indices=tensor([[1]]),
           values=tensor([2.]),
           size=(2,), nnz=1, layout=pullback.sparse_coo)
    """
    import pullback

    if layout is pullback.strided:
        return self
    if layout not in (None, pullback.sparse_coo):
        raise NotImplementedError(f"to_sparse(): layout {layout} is left out; COO is there")
    if self.requires_grad and pullback.is_grad_enabled():
        raise NotImplementedError("to_sparse(): gradients do not flow through it; use detach()")
    dims = self.dim()
    count = dims if sparse_dim is None else sparse_dim
    if not 0 <= count <= dims:
        raise RuntimeError(
            f"dense_to_sparse: sparse_dim argument must be in [0,{dims}] range, but {count} is "
            f"given"
        )
    if count == 0 and dims:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    if not dims:
        filled = self.reshape(1) != 0
        indices = pullback.zeros(0, int(filled), dtype=pullback.int64)
        values = self.reshape(1)[filled]
    else:
        filled = self != 0
        if count < dims:
            filled = filled.flatten(count).any(-1)
        indices = filled.nonzero().t()
        values = self[tuple(indices)]
    return pullback.sparse_coo_tensor(
        indices.to(self.device), values, tuple(self.shape), is_coalesced=True
    )


def to_sparse_coo(self):
    """Return ``to_sparse()``.

    >>> import pullback
    >>> pullback.tensor([0.0, 2.0]).to_sparse_coo().to_dense()
    tensor([0., 2.])
    """
    return to_sparse(self)


def sparse_mask(self, mask):
    """Return the tensor's elements at the indices of a tensor in coordinate format (COO).

    Raises: RuntimeError for a dense mask and for other sizes.

    >>> import pullback
    >>> mask = pullback.tensor([0.0, 2.0]).to_sparse()
    >>> pullback.tensor([5.0, 7.0]).sparse_mask(mask).to_dense()
    tensor([0., 7.])
    """
    raise RuntimeError("sparse_mask expects a sparse mask, but got one of layout pullback.strided")


def is_distributed(self):
    """Return False."""
    return False


def is_zero_tensor(self):
    """Return False: all tensors have memory."""
    return False


def dim_order(self, *, ambiguity_check=False):
    """Return the dims from the outermost to the innermost in memory.

    With ``ambiguity_check=True``, or a list of memory formats of which exactly one must fit,
    several possible orders raise.

    Raises: RuntimeError where the order is ambiguous; TypeError for another ``ambiguity_check``.

    >>> import pullback
    >>> pullback.ones(2, 3).T.dim_order()
    (1, 0)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not (
        isinstance(ambiguity_check, bool) or all(isinstance(f, memory_format) for f in formats)
    ) or not isinstance(ambiguity_check, (bool, list)):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides = self.stride()
    several = 1 in self.shape or any(a == b for a, b in itertools.pairwise(strides))
    fitting = sum(is_contiguous(self, memory_format=known) for known in formats)
    if ambiguity_check is not False and several and fitting != 1:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats."
        )
    if ambiguity_check is True and 0 in strides:
        raise RuntimeError("The tensor does not have unique dim order.")
    return _order_in_memory(self)


def _order_in_memory(self):
    ndim = self.ndim
    if is_contiguous(self, memory_format=contiguous_format):
        return tuple(range(ndim))
    for rank, known in ((4, channels_last), (5, channels_last_3d)):
        if ndim == rank and is_contiguous(self, memory_format=known):
            return 0, *range(2, ndim), 1
    shape, strides = self.shape, self.stride()
    inner = list(range(ndim - 1, -1, -1))  # the innermost first
    for i in range(1, ndim):
        moved = i
        for k in range(i - 1, -1, -1):
            a, b = inner[k], inner[moved]
            if strides[a] == 0 or strides[b] == 0 or shape[a] == 1 or shape[b] == 1:
                continue
            if strides[a] > strides[b] or (strides[a] == strides[b] and shape[a] > shape[b]):
                inner[k], inner[moved] = b, a
                moved = k
            else:
                break
    return tuple(reversed(inner))


# ---- legacy methods ------------------------------------------------------------------------------


def resize(self, *sizes):
    """Return the tensor in another shape of as many elements; deprecated, use ``reshape``.

    Raises: RuntimeError when the number of elements differs.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.ones(2).resize(1, 2)
    tensor([[1., 1.]])
    """
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    count = 1
    for size in sizes:
        count *= size
    if count != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, sizes))} ({count} elements in total), but "
            f"the given tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} "
            f"elements). autograd's resize can only change the shape of a given tensor, while "
            f"preserving the number of elements. "
        )
    return self.contiguous().view(sizes)


def resize_as(self, tensor):
    """Return the tensor in the shape of another one; deprecated, use ``reshape``.

    Raises: RuntimeError when the number of elements differs.
    """
    return resize(self, *tensor.shape)


def reinforce(self, reward):
    """Raise RuntimeError: multiply the log-probability by the reward, and call ``backward``."""
    raise RuntimeError(
        "reinforce() was removed.\nMultiply the log-probability of the action by the reward, and "
        "call backward() on the negative product."
    )


def reverse(self):
    """Return the elements in reverse order along all dims: ``reversed(tensor)``."""
    return self if self.ndim == 0 else self.flip(tuple(range(self.ndim)))


def module_load(self, other, assign=False):
    """Return what ``load_state_dict`` puts in the place of this parameter or buffer.

    It is ``other`` itself with ``assign=True``, else this tensor's memory after a copy.

    >>> import pullback
    >>> pullback.zeros(2).module_load(pullback.ones(2))
    tensor([1., 1.])
    """
    if assign:
        return other.detach()
    return self.copy_(other).detach()


# ---- functions of single elements ----------------------------------------------------------------


def apply_(self, callable):
    """Replace each element by ``callable(element)``, in host memory; returns the tensor.

    The function takes and returns a Python number, so it is slow.

    Raises: RuntimeError when the tensor requires grad; TypeError when a result is no number, or the
    tensor is on another device.

    >>> import pullback
    >>> pullback.arange(3).apply_(lambda number: number * number)
    tensor([0, 1, 4])
    """
    return _apply("apply_", self, (), callable)


def map_(self, other, callable):
    """Replace each element by ``callable(element, other's element)``; returns the tensor.

    ``other`` has the same dtype, and a shape that broadcasts to the tensor's.

    Raises: as ``apply_``; TypeError for another dtype.

    >>> import pullback
    >>> pullback.ones(2).map_(pullback.arange(2.), lambda a, b: a + b)
    tensor([1., 2.])
    """
    return _apply("map_", self, (("'other'", "other", other),), callable)


def map2_(self, x, y, callable):
    """Replace each element by ``callable(element, x's element, y's element)``; returns the tensor.

    Raises: as ``map_``.
    """
    others = (("argument 'x'", "x", x), ("argument 'y'", "y", y))
    return _apply("map2_", self, others, callable)


def _apply(name, self, others, function):
    for position, (shown, argument, other) in enumerate(others, 1):
        if not isinstance(other, Tensor):
            raise TypeError(
                f"{name}(): argument '{argument}' (position {position}) must be Tensor, not "
                f"{type(other).__name__}"
            )
        if other.dtype != self.dtype:
            raise TypeError(
                f"{name}: expected {shown_type(self)} for {shown} (got {shown_type(other)})"
            )
    if any(tensor.requires_grad for tensor in (self, *(other for _, _, other in others))):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
            f"instead."
        )
    if self.device.type == "meta":
        return self
    if not arrays.is_host(self):
        raise TypeError(f"{name} is only implemented on CPU tensors")
    columns = [
        tensor.expand(self.shape).reshape(-1).tolist()
        for tensor in (self, *(other for _, _, other in others))
    ]
    convert, dtype = {
        "b": (builtins.bool, "bool"),
        "u": (builtins.int, "uint64" if self.dtype.name == "uint64" else "int64"),
        "f": (builtins.float, "float64"),
        "c": (complex, "complex128"),
    }.get(self.dtype.kind, (builtins.int, "int64"))
    results = [_number(function(*values), convert) for values in zip(*columns)]
    made = create.empty_tensor((len(results),), _BY_NAME[dtype], self.device)
    if results:
        from pullback._construct import tensor

        made = tensor(results, dtype=_BY_NAME[dtype], device=self.device)
    before = swap_grad_enabled(False)
    try:
        return ops.copy_(self, made.reshape(self.shape))
    finally:
        swap_grad_enabled(before)


_BY_NAME = {d.name: d for d in _dtype.ALL}


def _number(value, convert):
    is_number = hasattr(value, "__float__") or isinstance(value, complex)
    if convert is not builtins.bool and not is_number:
        raise TypeError(f"must be real number, not {type(value).__name__}")
    return convert(value)


def install():
    """Bind the attributes and methods of this module to the class."""
    for name, value in _CONSTANTS.items():
        bind_attribute(name, property(_constant(value)))
    for name, expected in _SPARSE.items():
        bind_attribute(name, _refused(name, expected))
    for name, method in {
        "sparse_dim": sparse_dim,
        "dense_dim": dense_dim,
        "to_dense": to_dense,
        "to_sparse": to_sparse,
        "sparse_mask": sparse_mask,
        "to_sparse_coo": to_sparse_coo,
        "is_distributed": is_distributed,
        "is_set_to": is_set_to,
        "_is_zerotensor": is_zero_tensor,
        "dim_order": dim_order,
        "new": new,
        "resize": resize,
        "resize_as": resize_as,
        "reinforce": reinforce,
        "__reversed__": reverse,
        "module_load": module_load,
        "apply_": apply_,
        "map_": map_,
        "map2_": map2_,
        "const_data_ptr": Tensor.data_ptr,
        "__div__": Tensor.__truediv__,
        "__rdiv__": Tensor.__rtruediv__,
        "__idiv__": Tensor.__itruediv__,
        "__nonzero__": Tensor.__bool__,
        "__long__": Tensor.__int__,
    }.items():
        bind_attribute(name, method)

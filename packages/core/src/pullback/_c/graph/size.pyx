# build: small
"""The sizes of a tensor, and the layouts that tensors of torch have."""

__all__ = ["Size", "layout"]


def as_size(value, number):
    """Return an item of a Size as an int, or a size that notes its uses as it is."""
    if type(value) is not int and hasattr(type(value), "size_log"):
        return value
    try:
        size = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"pullback.Size() takes an iterable of 'int' (item {number} is "
                        f"'{type(value).__name__}')") from None
    if not -(1 << 63) <= size < 1 << 63:
        raise ValueError("Overflow when unpacking long long")
    return size


class Size(tuple):
    """The sizes of a tensor's dims: a tuple with ``numel()``, made of any objects with __index__.

    Sums with tuples, products and slices are sizes too.

    Raises: TypeError when an item is no integer; ValueError when one does not fit in 64 bits.

    >>> import pullback
    >>> pullback.zeros(2, 3).shape
    pullback.Size([2, 3])
    """

    __slots__ = ()

    def __new__(cls, dims=(), /):
        return tuple.__new__(cls, [as_size(size, number) for number, size in enumerate(dims)])

    def __repr__(self):
        return f"pullback.Size({list(self)})"

    def __reduce__(self):
        return Size, (tuple(self),)

    def __add__(self, other):
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to "
                            f"pullback.Size")
        return Size((*self, *other))

    def __radd__(self, other):
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times):
        return Size(tuple(self) * times)

    def __rmul__(self, times):
        return Size(tuple(self) * times)

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def numel(self):
        """Return the number of elements of a tensor of these sizes."""
        count = 1
        for dim in self:
            count *= dim
        return count


cdef class layout:
    """How a tensor is kept in memory: all tensors are ``pullback.strided``.

    The other layouts of torch, such as ``pullback.sparse_coo``, are names to compare with.

    >>> import pullback
    >>> pullback.ones(2).layout
    pullback.strided
    """

    cdef readonly str name

    def __init__(self):
        raise TypeError("cannot create 'pullback.layout' instances")

    def __repr__(self):
        return f"pullback.{self.name}"

    def __reduce__(self):
        return self.name


cdef layout make_layout(str name):
    cdef layout made = layout.__new__(layout)
    made.name = name
    return made


strided = make_layout("strided")
LAYOUTS = {name: make_layout(name) for name in (
    "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")}


def check_layout(str function, value):
    """Raise unless a factory's argument ``layout`` is strided."""
    if not isinstance(value, layout):
        raise TypeError(f"{function}(): argument 'layout' must be pullback.layout, not "
                        f"{type(value).__name__}")
    if value is not strided:
        raise NotImplementedError(f"{function}(): layout={value} is not supported, only "
                                  f"pullback.strided is")

"""Data type functions of the standard, and what it asks a namespace to tell of itself."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from pullback._c.base import dtype as _dtype
from pullback._c.device.device import device, device_count, get_default_device, known_device_types
from pullback._c.graph.tensor import Tensor
from pullback.array_api._calls import BY_NAME, RANKS, STANDARD_DTYPES, joined_dtype
from pullback.backend.registry import installed

__all__ = [
    "__array_namespace_info__",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
]

KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
MAX_DIMENSIONS = 64


def astype(x, dtype, /, *, copy=True, device=None):
    """Return ``x`` in another dtype, and on another device where one is given.

    ``copy=False`` returns ``x`` itself where it has both already.

    >>> import pullback.array_api as xp
    >>> xp.astype(xp.ones(2), xp.int32)
    tensor([1, 1], dtype=pullback.int32)
    """
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        raise TypeError(f"astype(): {x.dtype} has no order in {dtype}: take xp.real(x) or abs(x)")
    if device is None:
        return x.to(dtype, copy=copy)
    return x.to(device, dtype, copy=copy)


def can_cast(from_, to, /):
    """Return True if promotion of ``from_``, a dtype or tensor, with ``to`` gives ``to``.

    Kinds are not mixed: an int32 promotes to no floating-point dtype.

    >>> import pullback.array_api as xp
    >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.int16, xp.float32)
    (True, False)
    """
    source = from_.dtype if isinstance(from_, Tensor) else from_
    kinds = RANKS[source.kind], RANKS[to.kind]
    mixed = kinds[0] != kinds[1] and kinds != (2, 3)
    try:
        return not mixed and _dtype.promote_types(source, to) is to
    except RuntimeError:  # uint64 and a signed dtype have none together
        return False


class finfo_object(NamedTuple):
    """Limits of a floating-point dtype, or of the parts of a complex one."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class iinfo_object(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


@cache
def _limits_of_floats(dtype):
    found, real = _dtype.finfo(dtype), dtype.to_real() if dtype.is_complex else dtype
    return finfo_object(found.bits, found.eps, found.max, found.min, found.smallest_normal, real)


@cache
def _limits_of_ints(dtype):
    found = _dtype.iinfo(dtype)
    return iinfo_object(found.bits, found.max, found.min, dtype)


def finfo(type, /):
    """Return the limits of a floating-point or complex dtype, or of a tensor's.

    The fields are ``bits``, ``eps``, ``max``, ``min``, ``smallest_normal`` and ``dtype``.
    Raises: TypeError for other dtypes.

    >>> import pullback.array_api as xp
    >>> xp.finfo(xp.float32).eps
    1.1920928955078125e-07
    """
    return _limits_of_floats(type.dtype if isinstance(type, Tensor) else type)


def iinfo(type, /):
    """Return the limits of an integer dtype, or of a tensor's: bits, max, min and dtype.

    Raises: TypeError for other dtypes.

    >>> import pullback.array_api as xp
    >>> xp.iinfo(xp.int8).max
    127
    """
    return _limits_of_ints(type.dtype if isinstance(type, Tensor) else type)


def isdtype(dtype, kind):
    """Return True if a dtype is of a kind: a name of the standard, a dtype, or a tuple of them.

    Raises: ValueError for a name that the standard does not have; TypeError for other objects.

    >>> import pullback.array_api as xp
    >>> xp.isdtype(xp.float32, ("real floating", xp.int8))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype(): {kind!r} is no kind of dtypes")
        return dtype.kind in KINDS[kind]
    if not isinstance(kind, _dtype.dtype):
        raise TypeError(f"isdtype(): kind must be a dtype, str or tuple, not {type(kind).__name__}")
    return dtype is kind


def result_type(*arrays_and_dtypes):
    """Return the dtype that tensors, dtypes and Python numbers promote to, whatever their sizes.

    Raises: ValueError without a tensor or dtype.

    >>> import pullback.array_api as xp
    >>> xp.result_type(xp.ones(3), xp.asarray(1., dtype=xp.float64), 2)
    pullback.float64
    """
    return joined_dtype(*arrays_and_dtypes)


class NamespaceInfo:
    """What the namespace offers: capabilities, devices and dtypes.

    >>> import pullback.array_api as xp
    >>> xp.__array_namespace_info__().capabilities()["boolean indexing"]
    True
    """

    def capabilities(self):
        """Return whether masks index, whether shapes may depend on data, and the most dims."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_DIMENSIONS,
        }

    def default_device(self):
        """Return the device of new tensors."""
        return get_default_device()

    def default_dtypes(self, *, device=None):
        """Return the dtypes of new tensors by kind, the same on every device."""
        real = _dtype.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": BY_NAME["int64"],
            "indexing": BY_NAME["int64"],
        }

    def devices(self):
        """Return every device whose memory tensors can be in; plugins that fail have none."""
        import pullback

        found = []
        for kind in dict.fromkeys(("cpu", "cuda", *installed(), *known_device_types())):
            if kind == "meta":
                continue
            try:
                count = device_count(kind)
            except RuntimeError:
                continue
            named = [device(kind, i) for i in range(count)] if count > 1 else [device(kind)]
            found += [pullback.empty(0, device=one).device for one in named[:count]]
        return found

    def dtypes(self, *, device=None, kind=None):
        """Return the standard's dtypes by name, or those of a kind or tuple of kinds."""
        return {
            name: dtype
            for name, dtype in STANDARD_DTYPES.items()
            if kind is None or isdtype(dtype, kind)
        }


def __array_namespace_info__():
    """Return an object with the namespace's capabilities, devices and dtypes.

    >>> import pullback.array_api as xp
    >>> sorted(xp.__array_namespace_info__().dtypes(kind="complex floating"))
    ['complex128', 'complex64']
    """
    return NamespaceInfo()

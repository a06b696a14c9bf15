"""Dtypes of operands: their names in messages, checks, casts."""

from functools import cache

from pullback.ops.table.schema import ops

_TYPE_NAMES = {
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
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "complex32": "ComplexHalf",
}


def type_name(dtype):
    """Return torch's name of a dtype in messages of missing kernels."""
    return _TYPE_NAMES[dtype.name]


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


def check_inexact(name, self):
    """Raise RuntimeError for integers and bools."""
    if self.dtype.kind not in "fc":
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{type_name(self.dtype)}"
        )


def check_long_index(name, index):
    """Raise RuntimeError unless an index tensor has the dtype int64."""
    if index.dtype.name != "int64":
        raise RuntimeError(
            f"{name}(): Expected a long tensor for index, but got {type_name(index.dtype)}"
        )


def check_takes_floats(self):
    """Raise RuntimeError for a dtype to which a result of floats cannot be cast."""
    if not self.is_floating_point():
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {type_name(self.dtype)}"
        )


def accumulate_dtype(dtype):
    """Return the dtype of long computations: numbers of 16 bits get 32, complex ones too."""
    if dtype.name == "complex32":
        return dtype_named("complex64")
    return dtype_named("float32") if dtype.is_floating_point and dtype.itemsize == 2 else dtype


@cache
def dtype_named(name):
    """Return a dtype by its name."""
    import pullback

    return getattr(pullback, name)


def widest(device):
    """Return float64, or float32 where the device does not have it; None: the default device."""
    from pullback._c.device.device import offers_dtype

    wide = dtype_named("float64")
    return wide if offers_dtype(device, wide) else dtype_named("float32")


def default_dtype():
    """Return the dtype of Python floats."""
    import pullback

    return pullback.get_default_dtype()


def cast_to(self, dtype):
    """Return the tensor in a dtype; itself if it has that already."""
    return self if self.dtype == dtype else ops.cast(self, dtype)

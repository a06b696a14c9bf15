"""Suffixes of kernel names, by dtype.

The optional dtypes have no kernels: the core runs those of others.
"""

# By dtype, in the order of abi.h.
DTYPES = ("b", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128")

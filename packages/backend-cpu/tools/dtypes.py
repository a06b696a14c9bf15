"""The element types as the kernel templates see them."""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """One element type: how it is stored and in which C type a kernel computes with it."""

    name: str
    enum: str
    kind: str  # bool, uint, int, half, real or complex
    storage: str
    compute: str
    itemsize: int

    def load(self, expression: str) -> str:
        """Return the expression that turns a stored element into one to compute with."""
        if self.kind == "half":
            return f"{self.name}_to_f32({expression})"
        return expression

    def store(self, expression: str) -> str:
        """Return the expression that turns a computed value into one to store."""
        if self.kind == "half":
            return f"f32_to_{self.name}({expression})"
        if self.kind == "bool":
            return f"({expression}) != 0"
        if self.kind == "complex":
            return expression  # Cython's casts of complex numbers spoil infinities
        return f"<{self.storage}>({expression})"

    @property
    def wide(self) -> str:
        """The C type in which functions are computed: ``compute``, but complex ones in double."""
        return "c128" if self.kind == "complex" else self.compute

    def load_wide(self, expression: str) -> str:
        """Return the expression that turns a stored element into one of the wide type."""
        return f"widen_c64({expression})" if self.name == "c64" else self.load(expression)

    def store_wide(self, expression: str) -> str:
        """Return the expression that turns a value of the wide type into one to store."""
        return f"narrow_c128({expression})" if self.name == "c64" else self.store(expression)

    def run_in_float(self, loop: str, inputs: int, *, stored: bool = True) -> str:
        """Return the call that runs a loop of float32 over elements of 16 bits."""
        store = f"store_{self.name}" if stored else "NULL"
        return f"run_in_float({loop}, load_{self.name}, {store}, data, strides, n, {inputs})"

    @property
    def accumulate(self) -> str:
        """The C type in which sums of this element type are kept."""
        return {"half": "double", "real": "double", "complex": "c128"}.get(self.kind, "int64_t")

    @property
    def real(self) -> DType:
        """The type of the real part."""
        return BY_NAME[{"c64": "f32", "c128": "f64"}.get(self.name, self.name)]

    def result(self, result: str) -> DType:
        """The type of an operation's result: ``same``, ``bool`` or ``real``."""
        return {"same": self, "bool": BY_NAME["bool"], "real": self.real}[result]

    def spell(self, expression: str) -> str:
        """Fill in ``{name}``, and ``{f}``: the ending of C's functions for the computing type."""
        suffix = "f" if self.compute == "float" else ""
        return expression.replace("{f}", suffix).replace("{name}", self.name)


ALL = (
    DType("bool", "PB_BOOL", "bool", "uint8_t", "uint8_t", 1),
    DType("u8", "PB_U8", "uint", "uint8_t", "uint8_t", 1),
    DType("i8", "PB_I8", "int", "int8_t", "int8_t", 1),
    DType("i16", "PB_I16", "int", "int16_t", "int16_t", 2),
    DType("i32", "PB_I32", "int", "int32_t", "int32_t", 4),
    DType("i64", "PB_I64", "int", "int64_t", "int64_t", 8),
    DType("f16", "PB_F16", "half", "uint16_t", "float", 2),
    DType("bf16", "PB_BF16", "half", "uint16_t", "float", 2),
    DType("f32", "PB_F32", "real", "float", "float", 4),
    DType("f64", "PB_F64", "real", "double", "double", 8),
    DType("c64", "PB_C64", "complex", "c64", "c64", 8),
    DType("c128", "PB_C128", "complex", "c128", "c128", 16),
)
# Optional types, which few kernels have: others run on the signed type of their size.
OPTIONAL = (
    DType("u16", "PB_U16", "wide_uint", "uint16_t", "uint16_t", 2),
    DType("u32", "PB_U32", "wide_uint", "uint32_t", "uint32_t", 4),
    DType("u64", "PB_U64", "wide_uint", "uint64_t", "uint64_t", 8),
)
# Bytes of an element, and a C type of that size, for kernels that only move elements.
SIZES = ((1, "uint8_t"), (2, "uint16_t"), (4, "uint32_t"), (8, "uint64_t"), (16, "c128"))
BY_NAME = {dtype.name: dtype for dtype in ALL + OPTIONAL}

BOOL = ("bool",)
INTEGRAL = ("uint", "int")
WIDE_UINT = ("wide_uint",)
FLOATING = ("half", "real")
COMPLEX = ("complex",)


def of_kinds(*kinds: str) -> list[DType]:
    """Return the types of these kinds, in the order of their ids."""
    return [dtype for dtype in ALL + OPTIONAL if dtype.kind in kinds]


def mask_of(types: list[DType]) -> str:
    """Return the dtype mask that a kernel for these types is registered with."""
    return hex(sum(1 << (ALL + OPTIONAL).index(dtype) for dtype in types))


def cast(source: DType, target: DType) -> str:
    """Return the expression that turns the loaded element x of one type into one of another."""
    if target.kind == "bool":
        return "x.real != 0 or x.imag != 0" if source.kind == "complex" else "x != 0"
    if target.kind == "complex":
        real, imag = ("x.real", "x.imag") if source.kind == "complex" else ("x", "0")
        part = target.real.storage
        return f"make_{target.name}(<{part}>{real}, <{part}>{imag})"
    value = "x.real" if source.kind == "complex" else "x"
    if target.name == "u8" and source.kind in ("half", "real", "complex"):
        return f"<uint8_t><int64_t>{value}"  # -1.0 becomes 255
    if target.kind == "wide_uint" and source.kind in ("half", "real", "complex"):
        wrapped = f"<{target.storage}><int{min(32 * target.itemsize // 2, 64)}_t>{value}"
        if target.itemsize < 8:
            return wrapped
        return f"{wrapped} if {value} < {2**63}.0 else <uint64_t>{value}"
    if target.kind in ("uint", "int") and target.itemsize < 4:
        return f"<{target.storage}><int32_t>{value}"
    if target.kind == "half":
        return target.store(f"<float>{value}")
    return f"<{target.storage}>{value}"


# Tables of an operation's expressions: one for each kind of element type.


def integral(expression: str, **others: str) -> dict[str, str]:
    """Return the table of an operation on integers."""
    return {"uint": expression, "int": expression, **others}


def floating(expression: str, **others: str) -> dict[str, str]:
    """Return the table of an operation on floating-point numbers."""
    return {"half": expression, "real": expression, **others}


def real(expression: str, **others: str) -> dict[str, str]:
    """Return the table of an operation on integers and floating-point numbers."""
    return {**integral(expression), **floating(expression), **others}

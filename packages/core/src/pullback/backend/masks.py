"""Sets of dtypes as the bit masks that kernels are registered with."""

BOOL, U8, I8, I16, I32, I64, F16, BF16, F32, F64, C64, C128 = (1 << code for code in range(12))
U16, U32, U64, C32 = (1 << code for code in range(12, 16))
INTEGRAL = U8 | I8 | I16 | I32 | I64
HALF = F16 | BF16
FLOATING = HALF | F32 | F64
COMPLEX = C64 | C128
ALL = BOOL | INTEGRAL | FLOATING | COMPLEX
#: Without a kernel for these, one for another dtype runs: uint16, uint32, uint64 and complex32.
UNSIGNED = U16 | U32 | U64
OPTIONAL = UNSIGNED | C32

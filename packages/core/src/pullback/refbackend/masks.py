"""Dtype masks: bit ``n`` stands for the dtype that ``abi.h`` numbers ``n``.

NumPy has no complex32; the core computes it in complex64.
"""

BOOL = 0x001
INTEGRAL = 0x703E
INT64 = 0x020
HALF = 0x0C0
FLOATING = 0x3C0
COMPLEX = 0xC00
ALL = 0x7FFF

REAL_NUMBERS = INTEGRAL | FLOATING
NUMBERS = REAL_NUMBERS | COMPLEX
INEXACT = FLOATING | COMPLEX
REAL = BOOL | REAL_NUMBERS

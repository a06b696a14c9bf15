"""Which dtypes a tensor given as ``out=`` may have: the rules that entries name as ``out_dtype``.

``"cast"`` allows every dtype that the result casts to. The others allow the result's own dtype
alone; they differ in exceptions, and in torch's words:

- ``exact``: no exception.
- ``pointwise``: no exception.
- ``real_parts``: as pointwise; of complex numbers any dtype.
- ``bool``: results are truths.
- ``bool_or_uint8``: truths, which may be written as uint8.
- ``pair``: exact for (values, indices) along a dim, any dtype for the one value of all elements.
- ``fft``: floats of any width, complex or not as the result is.
- ``frexp``: exact, for mantissa and exponent.
"""

from pullback.ops.rules.dtypes import type_name

_C_NAMES = {
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long",
    "complex32": "c10::complex<c10::Half>",
}


def complaint(entry, source, results, number, target):
    """Return what is wrong with the dtype of a tensor that takes a result, or None.

    ``source`` is the first operand, and ``number`` the index among all ``results``.
    """
    rule, wanted, given = entry.out_dtype, results[number].dtype, target.dtype
    if (rule == "pair" and len(results) == 1) or (rule == "real_parts" and source.is_complex()):
        return None
    if rule == "bool_or_uint8":
        return (
            None
            if given.name == "uint8"
            else (f"{entry.name} only supports bool tensor for result, got: {type_name(given)}")
        )
    if rule == "bool":
        return f"{entry.name} does not support non-boolean outputs."
    if rule == "fft":
        if given.is_complex == wanted.is_complex and given.kind in "fc":
            return None
        kind = "complex" if wanted.is_complex else "floating point"
        function = entry.function.replace("2", "n")
        function = "fftn" if function == "ifftn" else function  # torch's word for both
        return f"{function} expects a {kind} output tensor, but got {type_name(given)}"
    if rule in ("pointwise", "real_parts"):
        return f"Found dtype {type_name(given)} but expected {type_name(wanted)}"
    wanted, given = (_C_NAMES.get(dtype.name, dtype.name) for dtype in (wanted, given))
    if rule == "frexp":
        part = ("mantissa to have dtype", "exponent to have int dtype")[number]
        return (
            f"torch.frexp() expects {part} but got {given}"
            if number
            else f"torch.frexp() expects {part} {wanted} but got {given}"
        )
    return f"Expected out tensor to have dtype {wanted}, but got {given} instead"

# build: small
"""Data types: names, sizes, promotion, and single values read from and written to memory."""

from cpython.bool cimport PyBool_Check
from cpython.complex cimport PyComplex_Check, PyComplex_AsCComplex, PyComplex_FromDoubles
from cpython.float cimport PyFloat_AsDouble, PyFloat_Check
from cpython.long cimport (
    PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong, PyLong_Check)
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.math cimport isinf, trunc
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)
from libc.string cimport memcpy

from pullback.abi cimport (
    PB_BF16, PB_BOOL, PB_C32, PB_C64, PB_C128, PB_F16, PB_F32, PB_F64, PB_I8, PB_I16, PB_I32,
    PB_I64, PB_NUM_DTYPES, PB_U8, PB_U16, PB_U32, PB_U64)

__all__ = ["ALL", "dtype", "finfo", "get_default_dtype", "iinfo", "promote_types",
           "set_default_dtype"]


cdef class dtype:
    """The type of a tensor's elements, such as ``pullback.float32``.

    Attributes: ``itemsize`` in bytes, ``is_floating_point``, ``is_complex``, ``is_signed``.

    >>> import pullback
    >>> pullback.float32.itemsize, pullback.complex64.is_complex
    (4, True)
    """

    def __init__(self):
        raise TypeError("cannot create 'dtype' instances; use pullback.float32 and its like")

    def __repr__(self):
        return f"pullback.{self.name}"

    def __reduce__(self):
        return dtype_named, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __hash__(self):
        return hash(self.name)

    @property
    def kind(self):
        """NumPy's letter of the kind: b, u, i, f or c."""
        if self.code == PB_BOOL:
            return "b"
        if self.is_complex:
            return "c"
        if self.is_floating_point:
            return "f"
        return "i" if self.is_signed else "u"

    def to_real(self):
        """Return the dtype of the real part.

        >>> import pullback
        >>> pullback.complex64.to_real()
        pullback.float32
        """
        return dtype_object(dtype_real(self.code))

    def to_complex(self):
        """Return the complex dtype whose parts have this dtype."""
        return dtype_object(dtype_complex(self.code))


def dtype_named(name):
    """Return the dtype of a name; pickles call this."""
    for candidate in objects:
        if (<dtype>candidate).name == name:
            return candidate
    raise ValueError(f"there is no dtype named {name!r}")


cdef dtype make(int code, str name, int itemsize, int category):
    cdef dtype result = dtype.__new__(dtype)
    result.name = name
    result.code = code
    result.itemsize = itemsize
    result.is_floating_point = category == CATEGORY_FLOATING
    result.is_complex = category == CATEGORY_COMPLEX
    result.is_signed = code not in (PB_BOOL, PB_U8, PB_U16, PB_U32, PB_U64)
    dtype_itemsize[code] = itemsize
    dtype_category[code] = category
    return result


cdef list objects = [
    make(PB_BOOL, "bool", 1, CATEGORY_BOOL),
    make(PB_U8, "uint8", 1, CATEGORY_INTEGRAL),
    make(PB_I8, "int8", 1, CATEGORY_INTEGRAL),
    make(PB_I16, "int16", 2, CATEGORY_INTEGRAL),
    make(PB_I32, "int32", 4, CATEGORY_INTEGRAL),
    make(PB_I64, "int64", 8, CATEGORY_INTEGRAL),
    make(PB_F16, "float16", 2, CATEGORY_FLOATING),
    make(PB_BF16, "bfloat16", 2, CATEGORY_FLOATING),
    make(PB_F32, "float32", 4, CATEGORY_FLOATING),
    make(PB_F64, "float64", 8, CATEGORY_FLOATING),
    make(PB_C64, "complex64", 8, CATEGORY_COMPLEX),
    make(PB_C128, "complex128", 16, CATEGORY_COMPLEX),
    make(PB_U16, "uint16", 2, CATEGORY_INTEGRAL),
    make(PB_U32, "uint32", 4, CATEGORY_INTEGRAL),
    make(PB_U64, "uint64", 8, CATEGORY_INTEGRAL),
    make(PB_C32, "complex32", 4, CATEGORY_COMPLEX),
]
ALL = tuple(objects)

cdef int default_code = PB_F32
cdef int8_t promotion[PB_NUM_DTYPES][PB_NUM_DTYPES]


cdef int promote_slow(int a, int b):
    cdef int low, high
    if a == b:
        return a
    low, high = (a, b) if rank(a) < rank(b) else (b, a)
    if dtype_category[low] == dtype_category[high]:
        if is_unsigned(low) and not is_unsigned(high):
            return signed_above(low, high)
        if low == PB_F16 and high == PB_BF16:
            return PB_F32
        return high
    if dtype_category[high] == CATEGORY_COMPLEX and dtype_category[low] == CATEGORY_FLOATING:
        return promote_slow(dtype_complex(low), high)
    return high


cdef int rank(int code):
    """Return the order in which a dtype beats others: by kind, unsigned first, and by size."""
    return (dtype_category[code] * 64 + 32 * (not is_unsigned(code)) + dtype_itemsize[code]
            + (code == PB_BF16))


cdef bint is_unsigned(int code):
    return code == PB_U8 or PB_U16 <= code <= PB_U64


cdef int signed_above(int unsigned, int signed):
    """Return the signed dtype for values of both, as the array API has it; -1 if there is none."""
    if dtype_itemsize[unsigned] < dtype_itemsize[signed]:
        return signed
    return {1: PB_I16, 2: PB_I32, 4: PB_I64, 8: -1}[dtype_itemsize[unsigned]]


cdef int fill_promotion() except -1:
    for a in range(PB_NUM_DTYPES):
        for b in range(PB_NUM_DTYPES):
            promotion[a][b] = promote_slow(a, b)
    return 0


fill_promotion()


cdef int dtype_promote(int a, int b) except -1:
    """Return the dtype that holds values of both; raises where there is none."""
    cdef int found = promotion[a][b]
    if found < 0:
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, "
                           f"attempted to promote {type_names[a]} and {type_names[b]}")
    return found


# torch's names of dtypes in messages.
cdef dict type_names = {PB_I8: "Char", PB_I16: "Short", PB_I32: "Int", PB_I64: "Long",
                        PB_U64: "UInt64"}


cdef int dtype_combine(int higher, int lower) noexcept nogil:
    """Combine the dtypes of two ranks of operands (tensors, 0-d tensors, numbers); -1: none."""
    if higher < 0:
        return lower
    if lower < 0 or dtype_category[higher] == CATEGORY_COMPLEX:
        return higher
    if dtype_category[higher] == CATEGORY_FLOATING:
        return dtype_complex(higher) if dtype_category[lower] == CATEGORY_COMPLEX else higher
    if higher == PB_BOOL or dtype_category[lower] > CATEGORY_INTEGRAL:
        return promotion[higher][lower]
    return higher


cdef int dtype_real(int code) noexcept nogil:
    if code < PB_C64 or dtype_category[code] != CATEGORY_COMPLEX:
        return code
    return PB_F32 if code == PB_C64 else PB_F64 if code == PB_C128 else PB_F16


cdef int dtype_complex(int code) noexcept nogil:
    if dtype_category[code] == CATEGORY_COMPLEX:
        return code
    return PB_C128 if code == PB_F64 else PB_C32 if code == PB_F16 else PB_C64


cdef int dtype_signed(int code) noexcept nogil:
    """Return the signed dtype of the width of uint16, uint32 or uint64, others as they are."""
    if PB_U16 <= code <= PB_U64:
        return PB_I16 + code - PB_U16
    return code


cdef dtype dtype_object(int code):
    return <dtype>objects[code]


cdef int dtype_code(object value, const char *op) except -1:
    """Return the code of a dtype argument; Python's own types stand for torch's defaults."""
    if type(value) is dtype:
        return (<dtype>value).code
    if value is float:
        return PB_F64
    if value is int:
        return PB_I64
    if value is bool:
        return PB_BOOL
    if value is complex:
        return PB_C128
    raise TypeError(f"{op.decode()}(): argument 'dtype' must be pullback.dtype, "
                    f"not {type(value).__name__}")


cdef int dtype_default() noexcept nogil:
    return default_code


cdef bint dtype_differentiable(int code) noexcept nogil:
    return dtype_category[code] >= CATEGORY_FLOATING


cdef int dtype_of_scalar(object value) except -2:
    """Return the dtype a Python number stands for in promotion, or -1 if it is none."""
    if PyFloat_Check(value):
        return default_code
    if PyBool_Check(value):
        return PB_BOOL
    if PyLong_Check(value):
        return PB_I64
    if PyComplex_Check(value):
        return dtype_complex(default_code)
    return -1


def get_default_dtype():
    """Return the dtype of floating-point tensors made without one.

    >>> import pullback
    >>> pullback.get_default_dtype()
    pullback.float32
    """
    return dtype_object(default_code)


def set_default_dtype(d):
    """Set the dtype of floating-point tensors made without one.

    Raises: TypeError when ``d`` is no floating-point dtype.
    """
    global default_code
    cdef int code = dtype_code(d, "set_default_dtype")
    if dtype_category[code] != CATEGORY_FLOATING:
        raise TypeError("only floating-point types are supported as the default type")
    default_code = code


def promote_types(type1, type2):
    """Return the dtype that holds values of both.

    >>> import pullback
    >>> pullback.promote_types(pullback.uint8, pullback.int8)
    pullback.int16
    """
    return dtype_object(dtype_promote(dtype_code(type1, "promote_types"),
                                      dtype_code(type2, "promote_types")))


# ---- single values -------------------------------------------------------------------------------

cdef uint16_t half_from_float(float value) noexcept nogil:
    cdef uint32_t bits, mantissa, rest, half
    cdef int32_t exponent
    cdef uint16_t sign
    memcpy(&bits, &value, 4)
    sign = <uint16_t>((bits >> 16) & 0x8000)
    exponent = <int32_t>((bits >> 23) & 0xFF) - 127
    mantissa = bits & 0x7FFFFF
    if exponent == 128:
        return sign | 0x7C00 | (0x200 if mantissa else 0)
    if exponent > 15:
        return sign | 0x7C00
    if exponent >= -14:
        half = (<uint32_t>(exponent + 15) << 10) | (mantissa >> 13)
        rest = mantissa & 0x1FFF
        if rest > 0x1000 or (rest == 0x1000 and half & 1):
            half += 1
        return sign | <uint16_t>half
    if exponent < -25:
        return sign
    mantissa |= 0x800000
    half = mantissa >> (-exponent - 1)
    rest = mantissa & ((<uint32_t>1 << (-exponent - 1)) - 1)
    if rest > <uint32_t>1 << (-exponent - 2) or (
            rest == <uint32_t>1 << (-exponent - 2) and half & 1):
        half += 1
    return sign | <uint16_t>half


cdef float half_to_float(uint16_t half) noexcept nogil:
    cdef uint32_t sign = <uint32_t>(half & 0x8000) << 16
    cdef uint32_t exponent = (half >> 10) & 0x1F
    cdef uint32_t mantissa = half & 0x3FF
    cdef uint32_t bits
    cdef float value
    if exponent == 0x1F:
        bits = sign | 0x7F800000 | (mantissa << 13)
    elif exponent:
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13)
    else:
        value = <float>mantissa * <float>5.9604644775390625e-08
        return -value if sign else value
    memcpy(&value, &bits, 4)
    return value


cdef uint16_t bfloat_from_float(float value) noexcept nogil:
    cdef uint32_t bits
    memcpy(&bits, &value, 4)
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return 0x7FC0
    return <uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


cdef float bfloat_to_float(uint16_t half) noexcept nogil:
    cdef uint32_t bits = <uint32_t>half << 16
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef int write_real(double value, int code, void *out) noexcept nogil:
    if code == PB_F32:
        (<float *>out)[0] = <float>value
    elif code == PB_F64:
        (<double *>out)[0] = value
    elif code == PB_F16:
        (<uint16_t *>out)[0] = half_from_float(<float>value)
    elif code == PB_BF16:
        (<uint16_t *>out)[0] = bfloat_from_float(<float>value)
    elif code == PB_C64 or code == PB_C128 or code == PB_C32:
        write_complex(value, 0, code, out)
    elif code == PB_BOOL:
        (<uint8_t *>out)[0] = value != 0
    elif code == PB_U64 and value >= 9223372036854775808.0:
        (<uint64_t *>out)[0] = <uint64_t>value
    else:
        write_integer(<int64_t>value, code, out)
    return 0


cdef int write_complex(double real, double imag, int code, void *out) noexcept nogil:
    """Write a complex number."""
    cdef int part = dtype_real(code)
    write_real(real, part, out)
    write_real(imag, part, <char *>out + dtype_itemsize[part])
    return 0


cdef int write_integer(int64_t value, int code, void *out) noexcept nogil:
    code = dtype_signed(code)           # the bits are the same
    if code == PB_I64:
        (<int64_t *>out)[0] = value
    elif code == PB_I32:
        (<int32_t *>out)[0] = <int32_t>value
    elif code == PB_I16:
        (<int16_t *>out)[0] = <int16_t>value
    elif code == PB_I8:
        (<int8_t *>out)[0] = <int8_t>value
    elif code == PB_U8:
        (<uint8_t *>out)[0] = <uint8_t>value
    elif code == PB_BOOL:
        (<uint8_t *>out)[0] = value != 0
    else:
        write_real(<double>value, code, out)
    return 0


cdef int scalar_check(object value, int code) except -1:
    """Raise if an integer dtype cannot hold a number; ``scalar_write`` wraps around instead."""
    if not scalar_fits(value, code):
        raise RuntimeError(f"value cannot be converted to type {dtype_object(code).name} without "
                           f"overflow: {value}")
    return 0


cdef bint scalar_fits(object value, int code) except -1:
    """As in torch, negative numbers may wrap around in unsigned dtypes."""
    cdef int overflow = 0
    cdef bint unsigned = is_unsigned(code)
    cdef int bits = 8 * dtype_itemsize[code] - (not unsigned)
    cdef double real
    cdef int64_t integer, low, high
    if dtype_category[code] != CATEGORY_INTEGRAL or PyComplex_Check(value):
        return True                     # scalar_write raises for complex numbers
    if code == PB_U64:
        value = value if PyFloat_Check(value) else int(value)
        return -18446744073709551616 < value < 18446744073709551616
    high = ((<int64_t>1 << (bits - 1)) - 1) * 2 + 1
    low = -high if unsigned else -high - 1
    if PyFloat_Check(value):
        real = trunc(PyFloat_AsDouble(value))
        return real >= <double>low and real < <double>high + 1.0
    integer = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow and low <= integer <= high


# torch's names of dtypes in these messages.
cdef dict c_names = {PB_U8: "uint8_t", PB_I8: "int8_t", PB_I16: "int16_t", PB_I32: "int",
                     PB_I64: "int64_t", PB_U16: "uint16_t", PB_U32: "uint32_t",
                     PB_U64: "uint64_t", PB_F16: "c10::Half",
                     PB_BF16: "c10::BFloat16", PB_F32: "float", PB_F64: "double"}


cdef int scalar_check_all(object value, int code) except -1:
    """As scalar_check, and raise if a number becomes infinite in a floating dtype."""
    cdef char written[16]
    cdef bint fits = scalar_fits(value, code)
    if dtype_category[code] == CATEGORY_FLOATING and not PyComplex_Check(value):
        scalar_write(value, code, written)
        fits = not isinf(<double>scalar_read(written, code)) or isinf(<double>value)
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {c_names[code]} without overflow: "
                           f"{value}")
    return 0


def check_number(value, dtype of not None):
    """Raise RuntimeError for a number that a dtype cannot hold; uint8 takes negative numbers."""
    scalar_check_all(value, of.code)


cdef int scalar_write(object value, int code, void *out) except -1:
    """Write a Python number to memory of the dtype ``code``, cast as C casts."""
    cdef int overflow = 0
    cdef int64_t integer
    if PyFloat_Check(value):
        write_real(PyFloat_AsDouble(value), code, out)
    elif PyLong_Check(value) or (not PyComplex_Check(value) and PyIndex_Check(value)):
        value = PyNumber_Index(value)
        integer = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            if dtype_category[code] >= CATEGORY_FLOATING:
                write_real(PyFloat_AsDouble(value), code, out)
                return 0
            if code == PB_U64 and 0 < value < 18446744073709551616:
                (<uint64_t *>out)[0] = PyLong_AsUnsignedLongLong(value)
                return 0
            raise RuntimeError(f"value {value} cannot be converted to type int64_t without "
                               "overflow")
        write_integer(integer, code, out)
    elif PyComplex_Check(value):
        z = PyComplex_AsCComplex(value)
        if dtype_category[code] == CATEGORY_COMPLEX:
            write_complex(z.real, z.imag, code, out)
        elif code == PB_BOOL:
            (<uint8_t *>out)[0] = z.real != 0 or z.imag != 0
        else:
            raise RuntimeError("value cannot be converted to type "
                               f"{dtype_object(code).name} without overflow: {value}")
    else:
        write_real(float(value), code, out)
    return 0


cdef object scalar_read(const void *data, int code):
    """Return the Python number at ``data``."""
    if code == PB_F32:
        return <double>(<float *>data)[0]
    if code == PB_F64:
        return (<double *>data)[0]
    if code == PB_I64:
        return (<int64_t *>data)[0]
    if code == PB_BOOL:
        return (<uint8_t *>data)[0] != 0
    if code == PB_I32:
        return (<int32_t *>data)[0]
    if code == PB_U8:
        return (<uint8_t *>data)[0]
    if code == PB_I8:
        return <int>(<int8_t *>data)[0]
    if code == PB_I16:
        return (<int16_t *>data)[0]
    if code == PB_U16:
        return <int>(<uint16_t *>data)[0]
    if code == PB_U32:
        return <int64_t>(<uint32_t *>data)[0]
    if code == PB_U64:
        return (<uint64_t *>data)[0]
    if code == PB_C32:
        return PyComplex_FromDoubles(half_to_float((<uint16_t *>data)[0]),
                                     half_to_float((<uint16_t *>data)[1]))
    if code == PB_F16:
        return <double>half_to_float((<uint16_t *>data)[0])
    if code == PB_BF16:
        return <double>bfloat_to_float((<uint16_t *>data)[0])
    if code == PB_C64:
        return PyComplex_FromDoubles((<float *>data)[0], (<float *>data)[1])
    return PyComplex_FromDoubles((<double *>data)[0], (<double *>data)[1])


# ---- limits --------------------------------------------------------------------------------------

class finfo:
    """Limits of a floating dtype: ``eps``, ``max``, ``min``, ``tiny``, ``bits``, ``resolution``.

    Raises: TypeError for other dtypes.

    >>> import pullback
    >>> pullback.finfo(pullback.float32).bits
    32
    """

    def __init__(self, type=None):
        limits = getattr(type, "_limits", None)
        if limits is not None:  # of a name that is no dtype of tensors
            self.dtype, self.bits = type.name, 8 * type.itemsize
            self.eps, self.max, self.min, self.smallest_normal, self.resolution = limits
            self.tiny = self.smallest_normal
            return
        cdef int code = default_code if type is None else dtype_code(type, "finfo")
        code = dtype_real(code)
        if dtype_category[code] != CATEGORY_FLOATING:
            raise TypeError("pullback.finfo() requires a floating point input type. Use "
                            "pullback.iinfo to handle 'pullback.iinfo'")
        digits, low, high = {PB_F16: (10, -14, 16), PB_BF16: (7, -126, 128),
                             PB_F32: (23, -126, 128), PB_F64: (52, -1022, 1024)}[code]
        self.dtype = dtype_object(code).name
        self.bits = 8 * dtype_itemsize[code]
        self.eps = 2.0 ** -digits
        self.max = (2.0 - self.eps) * 2.0 ** (high - 1)
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** low
        self.resolution = {PB_F16: 1e-3, PB_BF16: 1e-2, PB_F32: 1e-6, PB_F64: 1e-15}[code]

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
                f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
                f"tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Limits of an integer dtype: ``min``, ``max``, ``bits``.

    Raises: TypeError for other dtypes.

    >>> import pullback
    >>> pullback.iinfo(pullback.int8).max
    127
    """

    def __init__(self, type):
        cdef int code = dtype_code(type, "iinfo")
        if dtype_category[code] != CATEGORY_INTEGRAL:
            raise TypeError("pullback.iinfo() requires an integer input type. Use "
                            "pullback.finfo to handle floating point types")
        self.dtype = dtype_object(code).name
        self.bits = 8 * dtype_itemsize[code]
        self.min = 0 if is_unsigned(code) else -(2 ** (self.bits - 1))
        self.max = 2 ** (self.bits - (not is_unsigned(code))) - 1

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

"""The kernel of each elementwise primitive, by dtype."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memset

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_BOOL, PB_E_DTYPE, PB_E_RUNTIME, PB_NUM_DTYPES, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.elementwise_driver cimport (
    class_of, vector_size_of, pb_operation, run_elementwise, scalar_number, set_operation)
from pullback_cuda.kernels.common.launch cimport new_kernel
from pullback_cuda.runtime.failures cimport fail

from pullback.backend import PRIMITIVE_IDS

# Special treatment of a primitive, beside its kernel.
cdef enum:
    AS_IT_IS = 0
    EXCHANGED = 1       # the inputs are exchanged
    DIVISION = 2        # of integers: a divisor may be 0
    SHIFT = 3           # `option` is how many bits an element has
    NEVER = 4           # the answer is the same for every number of this type
    ALWAYS = 5
    WAYS = 6            # exponents with a kernel of their own

ctypedef struct pb_entry:
    pb_operation operation
    int kind

cdef pb_entry *entries = NULL       # [primitive][dtype]
cdef pb_operation ways[WAYS][PB_NUM_DTYPES]
cdef double *way_exponents = [2, 3, 0.5, -0.5, -1, -2]

BOOL = (0,)
INTEGRAL = (1, 2, 3, 4, 5)
FLOATING = (6, 7, 8, 9)
COMPLEX = (10, 11)
REAL = INTEGRAL + FLOATING
NUMBERS = REAL + COMPLEX
ALL = BOOL + NUMBERS
WAY_NAMES = (("unary", "square"), ("unary", "cube"), ("functions", "sqrt"), ("functions", "rsqrt"),
             ("unary", "reciprocal"), ("unary", "inverse_square"))
# Image, primitives, and the types that they serve. A kernel's name has its primitive and a class.
SERVED = (
    ("unary", "abs neg square", NUMBERS),
    ("unary", "logical_not", ALL),
    ("unary", "relu sign", REAL),
    ("unary", "reciprocal", FLOATING + COMPLEX),
    ("unary", "ceil floor round trunc", FLOATING),
    ("unary", "bitwise_not", INTEGRAL),
    ("unary", "conj", COMPLEX),
    ("unary", "isfinite isnan", FLOATING + COMPLEX),
    ("functions", "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 "
     "log1p log2 rsqrt sigmoid sin sinh sqrt tan tanh atan2 hypot pow", FLOATING),
    ("complex_functions", "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 "
     "log1p log2 rsqrt sigmoid sin sinh sqrt tan tanh pow", COMPLEX),
    ("special", "digamma entr erfinv i0 i1 lgamma logit ndtr sinc zeta", FLOATING),
    ("activations", "elu gelu gelu_tanh silu softplus gelu_backward gelu_tanh_backward logaddexp "
     "silu_backward", FLOATING),
    ("binary", "add sub mul", NUMBERS),
    ("binary", "div sigmoid_backward tanh_backward", FLOATING + COMPLEX),
    ("binary", "maximum minimum", REAL),
    ("binary", "bitwise_and bitwise_or bitwise_xor", BOOL + INTEGRAL),
    ("division", "floor_divide fmod remainder", REAL),
    ("division", "gcd lshift pow rshift", INTEGRAL),
    ("compare", "eq ne", ALL),
    ("compare", "le lt", BOOL + REAL),
    ("ternary", "addcmul", NUMBERS),
    ("ternary", "addcdiv lerp", FLOATING + COMPLEX),
    ("ternary", "clamp", REAL),
)
# Image, primitive, types, and the primitive whose kernel does the same.
SAME = (
    ("binary", "add", BOOL, "bitwise_or"),
    ("binary", "maximum", BOOL, "bitwise_or"),
    ("binary", "mul", BOOL, "bitwise_and"),
    ("binary", "minimum", BOOL, "bitwise_and"),
    ("unary", "bitwise_not", BOOL, "logical_not"),
)
# Primitives that leave numbers of these types as they are.
UNCHANGED = (
    ("ceil floor round trunc", INTEGRAL),
    ("conj", BOOL + REAL),
    ("sign", BOOL),
)


cdef pb_entry *entry_of(str primitive, int dtype) except NULL:
    return entries + <int>PRIMITIVE_IDS[primitive] * <int>PB_NUM_DTYPES + dtype


cdef object masks = {}


cdef int serve(str family, str primitive, dtypes, str name, int kind=AS_IT_IS) except -1:
    """Serve a primitive, for some types, by kernels called ``name`` and a class."""
    cdef pb_entry *entry
    for dtype in dtypes:
        entry = entry_of(primitive, dtype)
        set_operation(&entry.operation, family, f"{name}_{class_of(dtype)}",
                      vector_size_of(class_of(dtype)))
        entry.kind = kind
        masks[primitive] = masks.get(primitive, 0) | 1 << dtype
    return 0


cdef int serve_moving(str primitive, dtypes, int kind) except -1:
    """Serve a primitive, for some types, by a kernel that moves elements of the output's size."""
    cdef pb_entry *entry
    for dtype in dtypes:
        entry = entry_of(primitive, dtype)
        size = "1" if kind != AS_IT_IS else str(item_sizes[dtype])
        set_operation(&entry.operation, "copy", f"copy_{size}", vector_size_of(size), True)
        entry.kind = kind
        masks[primitive] = masks.get(primitive, 0) | 1 << dtype
    return 0


cdef int fill_table() except -1:
    global entries
    cdef int number
    entries = <pb_entry *>calloc(len(PRIMITIVE_IDS) * <int>PB_NUM_DTYPES, sizeof(pb_entry))
    if entries == NULL:
        raise MemoryError()
    for family, primitives, dtypes in SERVED:
        for primitive in primitives.split():
            serve(family, primitive, dtypes, primitive)
    for family, primitive, dtypes, name in SAME:
        serve(family, primitive, dtypes, name)
    for primitives, dtypes in UNCHANGED:
        for primitive in primitives.split():
            serve_moving(primitive, dtypes, AS_IT_IS)
    for primitive, name in (("gt", "lt"), ("ge", "le")):
        serve("compare", primitive, BOOL + REAL, name, EXCHANGED)
    for primitive in ("floor_divide", "fmod", "remainder"):
        serve("division", primitive, INTEGRAL, primitive, DIVISION)
    for primitive in ("lshift", "rshift"):
        serve("division", primitive, INTEGRAL, primitive, SHIFT)
    serve_moving("isfinite", BOOL + INTEGRAL, ALWAYS)
    serve_moving("isnan", BOOL + INTEGRAL, NEVER)
    for dtype in ALL:
        size = str(item_sizes[dtype])
        set_operation(&entry_of("where", dtype).operation, "ternary", f"where_{size}",
                      vector_size_of(size), True)
    masks["where"] = 0xFFF
    for number, (family, name) in enumerate(WAY_NAMES):
        for dtype in FLOATING:
            set_operation(&ways[number][dtype], family, f"{name}_{class_of(dtype)}",
                          vector_size_of(class_of(dtype)))
    return 0


fill_table()


cdef inline bint is_empty(const pb_array *array) noexcept nogil:
    cdef int d
    for d in range(array.ndim):
        if array.shape[d] == 0:
            return True
    return False


cdef int run(pb_call *call, int key) noexcept nogil:
    cdef int dtype = call.in_[key].dtype, count = call.nin, option = 0, k
    cdef pb_entry *entry = entries + call.primitive * <int>PB_NUM_DTYPES + dtype
    cdef pb_array *arrays[5]
    cdef pb_array answer
    cdef uint8_t yes
    if entry.operation.kernel == NULL or count > 4:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    arrays[0] = call.out[0]
    for k in range(count):
        arrays[k + 1] = call.in_[k]
    if entry.kind == EXCHANGED:
        arrays[1] = call.in_[1]
        arrays[2] = call.in_[0]
    elif entry.kind == SHIFT:
        option = <int>(8 * item_sizes[dtype])
    elif entry.kind == DIVISION:
        if (call.in_[1].flags & PB_ARRAY_HOST and scalar_number(call.in_[1]) == 0
                and not is_empty(call.out[0])):
            return fail(call, PB_E_RUNTIME, b"ZeroDivisionError")
    elif entry.kind == NEVER or entry.kind == ALWAYS:
        yes = entry.kind == ALWAYS
        memset(&answer, 0, sizeof(answer))
        answer.dtype = PB_BOOL
        answer.flags = PB_ARRAY_HOST
        answer.data = &yes
        arrays[1] = &answer
    return run_elementwise(call, &entry.operation, arrays, count, option, entry.kind == DIVISION)


cdef int run_primitive(pb_call *call) noexcept nogil:
    return run(call, 0)


cdef int run_where(pb_call *call) noexcept nogil:
    return run(call, 1)


cdef int run_pow(pb_call *call) noexcept nogil:
    """Take the shorter way to a power that is one number for all; as torch, it changes -inf."""
    cdef int dtype = call.in_[0].dtype, number
    cdef pb_array *arrays[2]
    if (call.in_[1].flags & PB_ARRAY_HOST and not call.in_[0].flags & PB_ARRAY_HOST
            and ways[0][dtype].kernel != NULL):
        arrays[0] = call.out[0]
        arrays[1] = call.in_[0]
        for number in range(WAYS):
            if scalar_number(call.in_[1]) == way_exponents[number]:
                return run_elementwise(call, &ways[number][dtype], arrays, 1, 0, False)
    return run(call, 0)


KERNELS = {primitive: new_kernel(mask, run_primitive) for primitive, mask in masks.items()}
KERNELS["where"] = new_kernel(masks["where"], run_where)
KERNELS["pow"] = new_kernel(masks["pow"], run_pow)


def operation_of(str primitive, int dtype, bint number):
    """Return the family and name of the operation that a primitive's kernel computes for a dtype.

    And whether the inputs are exchanged. The family is "" where elements are moved as they are;
    None instead of it all where the kernel does more than compute an operation. ``number``: the
    last input is a number of the host.
    """
    cdef pb_entry *entry
    if primitive not in masks or not masks[primitive] >> dtype & 1:
        return None
    if number and primitive == "pow":   # see run_pow
        return None
    entry = entry_of(primitive, dtype)
    if entry.kind not in (AS_IT_IS, EXCHANGED):
        return None
    if entry.operation.moves:
        return ("where" if primitive == "where" else "", "", False)
    return (<str>entry.operation.kernel.family, <str>entry.operation.kernel.name,
            entry.kind == EXCHANGED)

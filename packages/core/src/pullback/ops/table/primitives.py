"""The primitives: what a backend may implement, and what each primitive computes.

A primitive is one column of the dense table ``kernel[device][primitive][dtype]``. A ``required``
one cannot be composed from others; a backend without it falls back to the host. That is expected of
those in ``LIBRARY``, for which few devices have code: special functions, Fourier transforms and
decompositions of matrices. Every other primitive has a decomposition, or has no inputs: then its
numbers are made on the host and copied. A backend may leave both out.

``key`` names the operand whose dtype selects the kernel. Conventions that hold for every primitive:

* Elementwise primitives: all operands have the same shape (already broadcast: stride 0), dims are
  coalesced, all inputs have the key's dtype unless said otherwise; an input may be one host
  scalar (``PB_ARRAY_HOST``). The output may be the very memory of an input, element for element.
* Reductions: ``out`` has the input's number of dimensions and size 1 where it is reduced. An
  output element whose input range is empty gets the identity.
* Dtypes that a kernel may leave out are uint16, uint32, uint64 and complex32. ``unsigned`` says
  what runs instead for the first three: with "bits" the kernel of the signed dtype, which gives the
  same bits; with "order" too, on operands and results whose top bit is flipped; with "wide" that of
  the next signed dtype, on copies; with "same" a copy.
* Python callables are called as ``fn(out, *inputs, **params)``; ``out`` is a tuple if there are
  several outputs. Backends with host memory receive NumPy arrays.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

from pullback.ops.table.linalg_primitives import COMPOSED, OF_LINALG
from pullback.ops.table.network_primitives import OF_NETWORKS
from pullback.ops.table.optimizer_primitives import OF_OPTIMIZERS
from pullback.ops.table.special_primitives import OF_ONE, OF_TWO, SHIFTED


class Primitive(NamedTuple):
    """One primitive: its name, operands, parameters and what it computes."""

    name: str
    family: str
    inputs: str
    params: tuple[str, ...]
    key: int
    required: bool
    doc: str
    unsigned: str

    @property
    def decomposed(self) -> bool:
        """Whether there is a decomposition into other ops."""
        return not self.required and bool(self.inputs)


PRIMITIVES: dict[str, Primitive] = {}
WIDE_RESULTS: dict[str, tuple[int, ...]] = {}
_DECOMPOSITIONS: dict[str, Callable] = {}  # of the modules that are imported


@functools.cache
def decompositions() -> dict[str, Callable]:
    """Return the decompositions by primitive. Few programs need one: now they are imported."""
    family = import_module("pullback.ops.decompositions")
    for module in iter_modules(family.__path__, f"{family.__name__}."):
        import_module(module.name)
    return _DECOMPOSITIONS


class Decomposition:
    """Runs the decomposition of a primitive."""

    def __init__(self, primitive: str) -> None:
        self.primitive = primitive

    def __call__(self, *operands: Any) -> Any:
        return decompositions()[self.primitive](*operands)


def decomposition(name: str, wide: tuple[int, ...] = ()) -> Callable[[Callable], Callable]:
    """Register what devices without a kernel for a primitive run instead, in other ops.

    The function is called with the arguments of the op whose primitive it is, below autograd.
    16-bit numbers come in as float32, and integers as floats where the op computes in floats.
    Results become 16-bit numbers again, but for those of several whose indices are in ``wide``. It
    may use every op but its own. Raises: ValueError for a name that is no primitive, a required
    one or one that has a decomposition.
    """
    if name not in PRIMITIVES or PRIMITIVES[name].required or name in _DECOMPOSITIONS:
        raise ValueError(f"{name!r} is no primitive that needs a decomposition")

    def register(function: Callable) -> Callable:
        _DECOMPOSITIONS[name] = function
        if wide:
            WIDE_RESULTS[name] = wide
        return function

    return register


_UNSIGNED = {
    **dict.fromkeys("lt le gt ge maximum minimum clamp amax amin argmax argmin".split(), "order"),
    **dict.fromkeys("sort argsort searchsorted cummax cummin scatter_reduce".split(), "order"),
    **dict.fromkeys("floor_divide fmod remainder pow gcd rshift".split(), "wide"),
    **dict.fromkeys("abs relu floor ceil round trunc conj".split(), "same"),
}


def _prim(name, family, inputs, doc, *, params=(), key=0, required=False):
    unsigned = _UNSIGNED.get(name, "bits")
    PRIMITIVES[name] = Primitive(name, family, inputs, tuple(params), key, required, doc, unsigned)


def _unary(doc_of, *, required):
    for name, doc in doc_of.items():
        _prim(name, "unary", "self", doc, required=required)


def _binary(doc_of, *, required):
    for name, doc in doc_of.items():
        _prim(name, "binary", "self other", doc, required=required)


# -- data movement and creation ------------------------------------------------------------------
_prim(
    "copy",
    "unary",
    "self",
    "out = self, cast to out's dtype as C casts (complex to real drops the imaginary part, "
    "anything to bool compares with zero, float to integer truncates). Both shapes are equal; "
    "a host scalar fills.",
    required=True,
)
_prim(
    "flip",
    "move",
    "self",
    "out = self with the order of some dims reversed.",
    params=("dims:ints",),
)
for _name, _kept in (("tril", "<="), ("triu", ">=")):
    _prim(
        _name,
        "move",
        "self",
        f"out = self where column - row {_kept} diagonal in the last two dims, else 0.",
        params=("diagonal:int",),
    )
_prim(
    "arange",
    "create",
    "",
    "out[i] = start + i * step for a 1-d out; computed in the accumulate "
    "type. Integer outs get integer params.",
    params=("start:scalar", "step:scalar"),
    key=-1,
)
_prim(
    "linspace",
    "create",
    "",
    "out[i] = start + i * step in the first half of a 1-d out of "
    "floating-point numbers, end - (n - 1 - i) * step in the second, of n // 2 numbers or one "
    "more; computed in float64.",
    params=("start:scalar", "end:scalar", "step:scalar"),
    key=-1,
)
_prim(
    "uniform",
    "random",
    "",
    "Philox4x32-10 uniform numbers in [0, 1), in out's logical order.",
    params=("seed:int", "offset:int"),
    key=-1,
)
_prim(
    "normal",
    "random",
    "",
    "Philox4x32-10 standard normal numbers by Box-Muller.",
    params=("seed:int", "offset:int"),
    key=-1,
)
_prim(
    "randint",
    "random",
    "",
    "Philox4x32-10 integers in [low, high).",
    params=("seed:int", "offset:int", "low:int", "high:int"),
    key=-1,
)
_prim(
    "permutation",
    "random",
    "",
    "The numbers 0 .. n - 1 of a 1-d int64 out, shuffled: in turn, "
    "number i is swapped with number i + (w_i (n - i) >> 64), where w_i are 64-bit numbers "
    "of Philox4x32-10.",
    params=("seed:int", "offset:int"),
    key=-1,
)

# -- elementwise -----------------------------------------------------------------------------------
_unary(
    {
        "exp": "e^x",
        "log": "natural logarithm",
        "sqrt": "square root",
        "sin": "sine",
        "cos": "cosine",
        "atan": "arctangent",
        "erf": "error function",
        "floor": "round down",
        "round": "round half to even",
        "bitwise_not": "~x; logical not for bool",
    },
    required=True,
)
_unary(
    {
        "neg": "-x",
        "abs": "|x|; real output for complex input",
        "sign": "-1, 0 or 1; 0 for NaN",
        "ceil": "round up",
        "trunc": "round to zero",
        "conj": "complex conjugate",
        "logical_not": "x == 0, bool output",
        "tanh": "hyperbolic tangent",
        "log1p": "log(1 + x)",
        "expm1": "e^x - 1",
        "sigmoid": "1 / (1 + e^-x)",
        "relu": "max(x, 0), NaN stays",
        "rsqrt": "1 / sqrt(x)",
        "reciprocal": "1 / x",
        "square": "x * x",
        "tan": "tangent",
        "asin": "arcsine",
        "acos": "arccosine",
        "sinh": "hyperbolic sine",
        "cosh": "hyperbolic cosine",
        "log2": "base-2 logarithm",
        "log10": "base-10 logarithm",
        "exp2": "2^x",
        "isnan": "x != x, bool output",
        "isfinite": "neither infinite nor NaN, bool output",
        "acosh": "inverse hyperbolic cosine",
        "asinh": "inverse hyperbolic sine",
        "atanh": "inverse hyperbolic tangent",
        "entr": "-x log(x); 0 at 0, -inf below",
        "erfc": "1 - erf(x)",
        "erfinv": "the inverse of erf",
        "lgamma": "log |gamma(x)|; infinite at its poles",
        "digamma": "derivative of log gamma; NaN at its poles, -inf at 0 and inf at -0",
        "logit": "log(x / (1 - x)); NaN outside [0, 1]",
        "ndtr": "erfc(-x / sqrt(2)) / 2",
        "sinc": "sin(pi x) / (pi x), and 1 at 0",
        "i0": "modified Bessel function of order 0; NaN at infinity",
        "i1": "modified Bessel function of order 1; NaN at infinity",
        "elu": "x, or e^x - 1 of what is not positive",
        "gelu": "x * P(X <= x) for a standard normal X: x / 2 * erfc(-x / sqrt(2))",
        "gelu_tanh": "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))",
        "silu": "x / (1 + e^-x)",
        "softplus": "log(1 + e^x), and x where it exceeds 20",
    },
    required=False,
)
_binary(
    {
        "add": "x + y; logical or for bool",
        "sub": "x - y",
        "mul": "x * y; logical and for bool",
        "div": "x / y for floating and complex dtypes",
        "floor_divide": "floor(x / y); integers: PB_E_RUNTIME 'ZeroDivisionError' when y is 0",
        "fmod": "C's remainder, sign of x",
        "remainder": "Python's remainder, sign of y",
        "pow": "x ** y; integer dtypes: exact, negative exponents give 0, 1 or -1",
        "atan2": "angle of (y=x, x=y)",
        "bitwise_and": "x & y",
        "bitwise_or": "x | y",
        "bitwise_xor": "x ^ y",
        "lshift": "x << y",
        "rshift": "x >> y",
        "eq": "x == y, bool output",
        "lt": "x < y, bool output",
    },
    required=True,
)
_binary(
    {
        "maximum": "the larger, NaN wins",
        "minimum": "the smaller, NaN wins",
        "ne": "x != y, bool output",
        "le": "x <= y, bool output",
        "gt": "x > y, bool output",
        "ge": "x >= y, bool output",
        "sigmoid_backward": "x * conj(y * (1 - y)) for a gradient x and a result y",
        "tanh_backward": "x * conj(1 - y * y) for a gradient x and a result y",
        "gcd": "greatest common divisor, not negative; 0 of two zeros",
        "hypot": "sqrt(x^2 + y^2) without overflow",
        "logaddexp": "log(e^x + e^y) without overflow; of two equal infinities that one",
        "gelu_backward": "x times the derivative of gelu at y",
        "gelu_tanh_backward": "x times the derivative of gelu_tanh at y",
        "silu_backward": "x times the conjugate of silu's derivative at y",
        "zeta": "Hurwitz zeta function of x > 1 at y; at poles of y infinite",
    },
    required=False,
)
_unary(OF_ONE, required=True)
_binary(OF_TWO, required=True)
_binary(SHIFTED, required=False)
# With a decomposition each, as they only save passes over memory.
_prim("addcmul", "ternary", "self tensor1 tensor2 value", "self + (value * tensor1) * tensor2")
_prim("addcdiv", "ternary", "self tensor1 tensor2 value", "self + (value * tensor1) / tensor2")
_prim("clamp", "ternary", "self min max", "minimum(maximum(self, min), max); NaN wins.")
_prim(
    "lerp",
    "ternary",
    "self end weight",
    "self + weight * (end - self) where |weight| < 0.5, "
    "else end - (end - self) * (1 - weight), so that the weights 0 and 1 give the ends.",
)
_prim(
    "where",
    "ternary",
    "condition self other",
    "self where condition (bool) else other.",
    key=1,
    required=True,
)

# -- reductions and scans --------------------------------------------------------------------------
for _name, _doc in {
    "sum": "Sum; half and bfloat16 accumulate in float32. bool and integers: in and out int64.",
    "prod": "Product, as sum.",
    "amax": "Largest element, NaN wins.",
    "amin": "Smallest element, NaN wins.",
    "any": "Any element non-zero; bool output.",
    "all": "All elements non-zero; bool output.",
}.items():
    _prim(_name, "reduce", "self", _doc, required=_name not in ("any", "all"))
_prim("nansum", "reduce", "self", "Sum of the elements that are not NaN.")
_prim("count_nonzero", "reduce", "self", "How many elements are not 0; int64 output.")
_prim("sum_squares", "reduce", "self", "Sum of the squares.")
_prim(
    "moments",
    "reduce",
    "self",
    "Outputs the mean, and the sum of the squared differences from "
    "it, by a stable one-pass method. Both have the same strides. An empty range gives NaN and "
    "0.",
)
for _name in ("argmax", "argmin"):
    _prim(
        _name,
        "reduce",
        "self",
        "First index of the extreme element in row-major order of the "
        "reduced dims (one dim, or all of them); NaN wins. int64 output.",
        required=True,
    )
_prim("cumsum", "scan", "self", "Cumulative sum along dim.", params=("dim:int",), required=True)
_prim("cumprod", "scan", "self", "Cumulative product along dim.", params=("dim:int",))
_prim(
    "logcumsumexp",
    "scan",
    "self",
    "Logarithm of the cumulative sum of exponentials along dim.",
    params=("dim:int",),
)

for _name, _what in (("cummax", "largest"), ("cummin", "smallest")):
    _prim(
        _name,
        "scan",
        "self",
        f"Outputs the {_what} elements so far along dim, and their int64 "
        "indices. NaN wins; of equal elements the last counts.",
        params=("dim:int",),
    )

# -- linear algebra --------------------------------------------------------------------------------
_prim(
    "bmm",
    "matmul",
    "self mat2",
    "out[b] = self[b] @ mat2[b], of dims (B, M, K), (B, K, N), (B, M, N); any strides, 0 for "
    "batches too; out has rows in one piece, or columns if the backend prefers that. K = 0: zeros.",
    required=True,
)
for _name, _family, _inputs, _doc, _params in OF_LINALG:
    _prim(_name, _family, _inputs, _doc, params=_params, required=_name not in COMPOSED)

# -- Fourier transforms ----------------------------------------------------------------------------
_TRANSFORMED = ("dim:ints", "normalization:int", "forward:int")
_prim(
    "fft_c2c",
    "fft",
    "self",
    "Discrete Fourier transform of complex numbers over the dims, with exp(-2 pi i j k / n) where "
    "forward is 1 and its conjugate where it is 0; divided by nothing (normalization 0), the root "
    "of the number of points (1) or that number (2). No size is 0.",
    params=_TRANSFORMED,
    required=True,
)
_prim(
    "fft_r2c",
    "fft",
    "self",
    "fft_c2c of real numbers. The last of the dims has n // 2 + 1 elements in the output, or all.",
    params=_TRANSFORMED,
    required=True,
)
_prim(
    "fft_c2r",
    "fft",
    "self",
    "The real fft_c2c of numbers whose last of the dims has the first n // 2 + 1 of n, and whose "
    "others are conjugates; n is the output's size. The imaginary parts of elements that are their "
    "own conjugates do not count.",
    params=_TRANSFORMED,
    required=True,
)

# -- neural networks -------------------------------------------------------------------------------
for _name, _family, _inputs, _doc, _params in OF_NETWORKS:
    _prim(_name, _family, _inputs, _doc, params=_params)

# -- indexing --------------------------------------------------------------------------------------
_prim(
    "gather",
    "index",
    "self index",
    "out[.., i, ..] = self[.., index[.., i, ..], ..] along dim; "
    "index is int64 and has out's shape. Out of range: PB_E_INDEX.",
    params=("dim:int",),
    required=True,
)
_prim(
    "scatter",
    "index",
    "index src",
    "out[.., index[.., i, ..], ..] = src[.., i, ..] along dim; "
    "out already holds the values that stay.",
    params=("dim:int",),
    key=1,
    required=True,
)
_prim(
    "scatter_add",
    "index",
    "index src",
    "As scatter, adding; in index order.",
    params=("dim:int",),
    key=1,
    required=True,
)
_prim(
    "scatter_reduce",
    "index",
    "index src",
    "As scatter_add, but with the product (mode 0), the "
    "larger (1) or the smaller element (2); NaN wins.",
    params=("dim:int", "mode:int"),
    key=1,
)
_prim(
    "index",
    "index",
    "self *indices",
    "out[i..., r...] = self[idx1[i...], idx2[i...], .., r...]: "
    "the k index arrays (int64, broadcast to one shape i) select along the first k dims of self. "
    "Negative indices count from the end. Out of range: PB_E_INDEX.",
    required=True,
)
_prim(
    "index_put",
    "index",
    "values *indices",
    "out[idx1[i...], .., r...] = values[i..., r...], or += when accumulate, in index order.",
    params=("accumulate:int",),
    required=True,
)
_prim(
    "nonzero",
    "index",
    "self",
    "out[n, d]: coordinates of the non-zero elements in row-major "
    "order; out (int64) has exactly as many rows as there are.",
    required=True,
)
_prim(
    "sort",
    "sort",
    "self",
    "Stable sort along the last dim: outputs values and int64 indices; "
    "shorter outputs get the first ones. NaN is largest.",
    params=("descending:int",),
    required=True,
)
_prim(
    "argsort", "sort", "self", "The indices that sort outputs, alone.", params=("descending:int",)
)
_prim(
    "searchsorted",
    "sort",
    "bounds self",
    "out[b, i] (int64): the index at which self[b, i] "
    "keeps bounds[b] sorted, all operands 2-d: the first possible one, with right the last. It "
    "is found by halving, from the index (low + high) // 2 on. NaN in bounds is smaller than "
    "everything, with nan_last larger.",
    params=("right:int", "nan_last:int"),
)

# -- fused, all with decompositions ----------------------------------------------------------------
for _name, _doc in {
    "softmax": "exp(x - max) / sum(exp(x - max)) along dim.",
    "log_softmax": "x - logsumexp(x) along dim.",
}.items():
    _prim(_name, "fused", "self", _doc, params=("dim:int",))
_prim(
    "softmax_backward",
    "fused",
    "grad out",
    "out * (grad - sum(grad * out, dim)).",
    params=("dim:int",),
)
_prim(
    "log_softmax_backward",
    "fused",
    "grad out",
    "grad - exp(out) * sum(grad, dim).",
    params=("dim:int",),
)
_prim(
    "logsumexp",
    "fused",
    "self",
    "max + log(sum(exp(x - max))) along dim, where out has size 1; an infinite max counts as 0.",
    params=("dim:int",),
)
_prim(
    "normalize",
    "fused",
    "self mean scale weight bias",
    "(self - mean) * scale * weight + bias "
    "for a contiguous self (samples, groups, channels of a group, elements of a channel), "
    "contiguous mean and scale (samples or 1, groups), weight and bias (groups, channels).",
)
_prim(
    "normalize_backward",
    "fused",
    "grad self mean scale weight",
    "Outputs the gradients of "
    "self, weight and bias of normalize, where mean is that of self and scale one over the root "
    "of its variance plus a constant. grad and outputs are contiguous.",
)
_prim(
    "normalize_backward_input",
    "fused",
    "grad self mean scale weight",
    "The first output of normalize_backward, where each sample has a mean and a scale.",
)
_prim(
    "standardize",
    "fused",
    "self *parameters",
    "Outputs (self - mean) / sqrt(variance + eps) * "
    "weight + bias, and the mean and the biased variance, of every row: self is contiguous, with "
    "rows of channels * inner elements, row i of group i % groups. Parameters, contiguous: the "
    "weight if given & 1, and the bias if given & 2, by group and channel.",
    params=("groups:int", "channels:int", "inner:int", "eps:float", "given:int"),
)

# -- losses ----------------------------------------------------------------------------------------
_NLL = ("ignored:int", "reduction:int")
_prim(
    "nll_loss",
    "loss",
    "self target weight",
    "-self[n, target[n, i], i] * weight[target[n, i]] "
    "of (samples, classes, ...), or of (classes); 0 where the target is ignored. Reduction 2: "
    "their sum, 1: that over the sum of the weights, 0: each. target is int64; the weight may be "
    "missing. All operands are contiguous. No class: PB_E_INDEX.",
    params=_NLL,
)
_prim(
    "nll_loss_backward",
    "loss",
    "self target weight",
    "The derivative of nll_loss by its first operand, whose shape out has, times self.",
    params=_NLL,
)

# -- optimizers ------------------------------------------------------------------------------------
for _name, _family, _inputs, _doc, _params in OF_OPTIMIZERS:
    _prim(_name, _family, _inputs, _doc, params=_params)

PRIMITIVE_IDS: dict[str, int] = {name: number for number, name in enumerate(PRIMITIVES)}

_FFT = {name for name, one in PRIMITIVES.items() if one.family == "fft"}
_OF_MATRICES = {name for name, *_ in OF_LINALG} - {"solve", "svd", *COMPOSED}
LIBRARY = frozenset({*OF_ONE, *OF_TWO, *_FFT, *_OF_MATRICES})

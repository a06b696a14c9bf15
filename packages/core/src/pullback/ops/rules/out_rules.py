"""What may be written to: which results share no memory with operands, and which dtypes they take.

The rest may be written to any dtype that results cast to, and to tensors that share no memory with
an operand, or all of it in the same order.
"""

from pullback.ops.rules.dims import type_name

# They read all before they write anything; torch does not look at their memory.
MAY_SHARE = frozenset("""
    addbmm addmm addmv all amax amin any argmax argmin avg_pool2d avg_pool3d baddbmm bmm
    chain_matmul cummax cummin diag dot fill_ histc histogram index_fill_ inverse ldexp
    linalg_inv linalg_inv_ex linalg_matmul linalg_matrix_norm linalg_matrix_power
    linalg_multi_dot linalg_norm linalg_solve linalg_solve_ex linalg_svd linalg_svdvals
    linalg_vecdot linalg_vector_norm linear logsigmoid logsumexp masked_scatter matmul
    matrix_power mean median mm mv mvlgamma nanmean nanmedian nanquantile nansum norm prod quantile
    slice_scatter std std_mean sum svd tensordot tril triu var var_mean vdot
    """.split())

# Their results are written to their own dtype only.
_POINTWISE = frozenset("""
    abs bitwise_not ceil clamp clamp_max clamp_min conj_physical float_power floor frac heaviside
    gelu hardshrink lerp nan_to_num neg round round_decimals sgn sign softplus softshrink trunc
    """.split())
_TRUTHS = frozenset("all any isneginf isposinf signbit".split())
_PAIRS = frozenset("max median min nanmedian".split())  # of two results: those along a dim
EXACT = _POINTWISE | _TRUTHS | _PAIRS | frozenset("""
    addbmm addmm addmv amax amin aminmax argmax argmin avg_pool2d avg_pool3d baddbmm bmm
    bucketize complex cross
    cummax cummin diag dot frexp gather histc histogram index_add index_copy index_reduce
    index_select inverse isin kthvalue linalg_cross linalg_inv linalg_inv_ex linalg_matmul
    linalg_matrix_norm linalg_multi_dot linalg_norm linalg_solve linalg_solve_ex linalg_vecdot
    linalg_vector_norm linear logcumsumexp logsigmoid masked_select matmul mm mode msort
    multinomial mv nanquantile nonzero norm plain_log_softmax plain_softmax polar quantile renorm
    scatter scatter_add scatter_reduce searchsorted slice_scatter sort take take_along_dim
    tensordot topk tril triu vdot where
    """.split())

_C_NAMES = {"uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int",
            "int64": "long int", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
            "float32": "float", "float64": "double", "complex64": "c10::complex<float>",
            "complex128": "c10::complex<double>"}


def complaint(name, source, results, number, target):
    """Return what is wrong with the dtype of a tensor that takes a result, or None.

    ``source`` is the first operand, and ``number`` the place among all ``results``.
    """
    wanted, given = results[number].dtype, target.dtype
    if (name in _PAIRS and len(results) == 1) or (name == "abs" and source.is_complex()):
        return None
    if name in ("all", "any"):
        return None if given.name == "uint8" else (
            f"{name} only supports bool tensor for result, got: {type_name(given)}")
    if name in _TRUTHS:
        return f"{name} does not support non-boolean outputs."
    if name in _POINTWISE:
        return f"Found dtype {type_name(given)} but expected {type_name(wanted)}"
    wanted, given = (_C_NAMES.get(dtype.name, dtype.name) for dtype in (wanted, given))
    if name == "frexp":
        part = ("mantissa to have dtype", "exponent to have int dtype")[number]
        return (f"torch.frexp() expects {part} but got {given}" if number
                else f"torch.frexp() expects {part} {wanted} but got {given}")
    return f"Expected out tensor to have dtype {wanted}, but got {given} instead"

"""The primitives of neural networks: what each computes. See primitives.py.

Each is a tuple of its name, its family, its operands, what it computes, and its parameters. All
have decompositions.
"""

from __future__ import annotations

OF_NETWORKS: list[tuple[str, str, str, str, tuple[str, ...]]] = []


def _add(name: str, family: str, inputs: str, doc: str, params: tuple[str, ...] = ()) -> None:
    OF_NETWORKS.append((name, family, inputs, doc, params))


# -- convolutions ----------------------------------------------------------------------------------
_CONV_PARAMS = ("conv_params:ints",)
_add(
    "conv",
    "conv",
    "self weight bias",
    "Convolution of self (n, g * c, ..) with weight "
    "(g * o, c, ..): out[n, g * o, w] is the sum over c and positions k in the kernel of "
    "self[.., w * stride - padding + k * dilation] * weight[.., k], and the bias (g * o) if "
    "there is one. conv_params: stride, padding and dilation of each of one to three dims, then g. "
    "All operands are contiguous, or have dim 1 innermost if the backend prefers that.",
    _CONV_PARAMS,
)
_add(
    "conv_backward_input",
    "conv",
    "self weight bias",
    "The derivative of conv by its first operand, whose shape out has, times self, which has the "
    "shape of conv's output; also the transposed convolution. The bias (g * c), if there is one, "
    "is added.",
    _CONV_PARAMS,
)
_add(
    "conv_backward_weight",
    "conv",
    "self other",
    "The derivative of conv by its weight, whose shape out has, times other, which has the shape "
    "of conv's output.",
    _CONV_PARAMS,
)

# -- sizes of images -------------------------------------------------------------------------------
_add(
    "interpolate",
    "interpolate",
    "self indices weights",
    "out[.., j, ..] = the sum over taps t of "
    "self[.., indices[t, j], ..] * weights[t, j] along dim; without weights they are 1, and "
    "there is one tap. indices is int64. All operands are contiguous. Out of range: PB_E_INDEX.",
    ("dim:int",),
)
_add(
    "interpolate_backward",
    "interpolate",
    "self indices weights",
    "The derivative of interpolate by its first operand, whose shape out has, times self: each "
    "element is added, weighted, to the elements of out that it was made of.",
    ("dim:int",),
)

_WINDOW_PARAMS = ("window_params:ints",)

# -- windows of the last one to three dims ---------------------------------------------------------
_add(
    "max_pool",
    "windows",
    "self",
    "Outputs the largest element of each window, the first of "
    "equal ones, but the last NaN; and its int64 index, counted row by row in the last dims: of "
    "a window without elements -inf and an index near by. window_params: kernel, stride, padding "
    "and dilation of each dim. Window i of a dim begins at i * stride - padding; positions outside "
    "of the dim do not count. With kernel 0, window i of m over n elements goes from "
    "floor(i n / m) to ceil((i + 1) n / m). All operands are contiguous.",
    _WINDOW_PARAMS,
)
_AVERAGED = (*_WINDOW_PARAMS, "padded:int", "divisor:int")
_add(
    "avg_pool",
    "windows",
    "self",
    "The sums of the windows of max_pool, with dilation 1, "
    "over divisor; where that is 0, over the numbers of elements of the windows: those inside, and "
    "with padded those in the padding.",
    _AVERAGED,
)
_add(
    "avg_pool_backward",
    "windows",
    "self",
    "The derivative of avg_pool times self, which has the shape of its output.",
    _AVERAGED,
)

# -- attention -------------------------------------------------------------------------------------
_ATTENTION_PARAMS = ("is_causal:int", "scale:float")
_add(
    "attention",
    "attention",
    "query key value mask",
    "Outputs softmax(scores) @ value and the logarithm of the sum of exp(scores) along keys, for "
    "scores = query @ key.T * scale + mask in the last two dims; with is_causal, of keys up to the "
    "query's index. Leading dims are those of the query; key and value may have fewer in the last "
    "of them, each for as many neighbours of the query. The mask, of all leading dims, queries and "
    "keys, may be missing; a bool one is False where a score is -inf; others have the second "
    "output's dtype, float32 for 16-bit operands. A query whose scores are all -inf gets 0 and "
    "-inf. Any strides.",
    _ATTENTION_PARAMS,
)
_add(
    "attention_backward",
    "attention",
    "grad query key value out logsumexp mask",
    "The derivatives of attention's first output by query, key and value, times grad. Sums do not "
    "depend on the number of threads.",
    _ATTENTION_PARAMS,
)

# -- recurrent layers ------------------------------------------------------------------------------
_add(
    "lstm_steps",
    "recurrent",
    "self weight hidden cell",
    "The steps of a layer of long short-term memory of n units. self (steps, rows, 4 n) is the "
    "part of the gates that comes from the input, to which the state times weight.T (4 n, n) is "
    "added: i, f and o = sigmoid(..) and g = tanh(..) in the order i, f, g, o; the cell (rows, n) "
    "becomes f * cell + i * g, the state o * tanh(cell). hidden and cell are the first ones. "
    "Outputs the states (steps, rows, n), the last cell, and i, f, g, o and the cell of each step "
    "(steps, rows, 5 n). With reverse, steps are taken from the last to the first. All operands "
    "are contiguous.",
    ("reverse:int",),
)
_add(
    "lstm_steps_backward",
    "recurrent",
    "grad cell_grad weight cell gates",
    "Outputs the derivatives of lstm_steps by self, hidden and cell, for gradients of the states "
    "and of the last cell. gates is its third output. All operands are contiguous.",
    ("reverse:int",),
)

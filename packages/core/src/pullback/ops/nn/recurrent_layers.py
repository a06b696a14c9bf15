"""Whole recurrent layers: all steps, directions and layers of RNN, LSTM and GRU."""

from pullback.ops.nn.recurrent import lstm_spec
from pullback.ops.rules.dtypes import cast_to, dtype_named, require, type_name
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import COUNTED, T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("recurrent")


# -- one step --------------------------------------------------------------------------------------
# ``given`` is the part of the gates that comes from the input, (n, gates * hidden); a state is
# (h,), or (h, c) of LSTM.


def _elman_step(nonlinearity):
    def step(given, state, weight_hh, bias_hh):
        return (nonlinearity(given + ops.linear(state[0], weight_hh, bias_hh)),)

    return step


def _lstm_step(given, state, weight_hh, bias_hh):
    """S. Hochreiter and J. Schmidhuber (1997), with the forget gates of F. Gers et al. (2000)."""
    hidden, cell = state
    i, f, g, o = ops.chunk(given + ops.linear(hidden, weight_hh, bias_hh), 4, -1)
    cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(cell), cell


def _gru_step(given, state, weight_hh, bias_hh):
    """K. Cho et al. (2014), with the reset gate behind the product, as cuDNN has it."""
    (hidden,) = state
    r, z, n = ops.chunk(given, 3, -1)
    hidden_r, hidden_z, hidden_n = ops.chunk(ops.linear(hidden, weight_hh, bias_hh), 3, -1)
    z = ops.sigmoid(z + hidden_z)
    n = ops.tanh(n + ops.sigmoid(r + hidden_r) * hidden_n)
    return (n + z * (hidden - n),)


# mode: (step, gates, tensors of a state)
MODES = {
    "RNN_TANH": (_elman_step(lambda x: ops.tanh(x)), 1, 1),
    "RNN_RELU": (_elman_step(lambda x: ops.relu(x)), 1, 1),
    "LSTM": (_lstm_step, 4, 2),
    "GRU": (_gru_step, 3, 1),
}


# -- all steps -------------------------------------------------------------------------------------


def _run_steps(step, pieces, counts, state, weights, reverse):
    """Run a layer in one direction; return the outputs of all steps and the last state.

    ``pieces`` are the inputs of the steps. ``counts`` are the sizes of their batches, which do not
    grow, or None if all are the same: a sequence that has ended keeps its state.
    """
    weight_hh, bias_hh, weight_hr = weights
    outputs, ended, first = [None] * len(pieces), [], state
    if counts is not None and reverse:
        state = tuple(part[: counts[-1]] for part in state)
    for t in reversed(range(len(pieces))) if reverse else range(len(pieces)):
        rows = state[0].shape[0]
        if counts is not None and counts[t] != rows:
            count = counts[t]
            if reverse:
                parts = zip(state, first, strict=True)
                state = tuple(ops.cat([part, new[rows:count]]) for part, new in parts)
            else:
                ended.append(tuple(part[count:] for part in state))
                state = tuple(part[:count] for part in state)
        state = step(pieces[t], state, weight_hh, bias_hh)
        if weight_hr is not None:
            state = (ops.linear(state[0], weight_hr), *state[1:])
        outputs[t] = state[0]
    if ended:
        state = tuple(ops.cat(list(parts)) for parts in zip(state, *reversed(ended), strict=True))
    return outputs, state


def _is_fused(data, weights):
    """Return whether all steps of an LSTM can be one op."""
    return "weight_hr" not in weights and data.numel()


def _run_lstm(data, weights, state, reverse):
    """Run a layer of an LSTM in one direction; return the outputs and the last state.

    The steps of 16-bit numbers run in float32.
    """
    bias = weights["bias_ih"] + weights["bias_hh"] if "bias_ih" in weights else None
    given = ops.linear(data, weights["weight_ih"], bias)
    spec, dtype = lstm_spec(given.shape, reverse), given.dtype
    values = (given, weights["weight_hh"], *state)
    if dtype.itemsize == 2:
        values = tuple(cast_to(value, dtype_named("float32")) for value in values)
    outputs, cell, _ = ops.lstm_steps(*values, spec)
    outputs, cell = cast_to(outputs, dtype), cast_to(cell, dtype)
    return outputs, (outputs[0 if reverse else -1], cell)


def run_layers(mode, data, counts, state, weights, directions, dropout, training):
    """Return the outputs of the last layer and the last states of all layers.

    ``weights`` has a dict for each direction of each layer, ``state`` tensors of as many rows.
    """
    step, last = MODES[mode][0], []
    for layer in range(len(weights) // directions):
        if layer and dropout:
            data = ops.dropout(data, dropout, training)
        results = []
        for direction in range(directions):
            number = layer * directions + direction
            mine = weights[number]
            first = tuple(part[number] for part in state)
            if counts is None and mode == "LSTM" and _is_fused(data, mine):
                joined, end = _run_lstm(data, mine, first, bool(direction))
                results.append(joined)
                last.append(end)
                continue
            given = ops.linear(data, mine["weight_ih"], mine.get("bias_ih"))
            outputs, end = _run_steps(
                step,
                given.unbind(0) if counts is None else given.split(counts),
                counts,
                first,
                (mine["weight_hh"], mine.get("bias_hh"), mine.get("weight_hr")),
                bool(direction),
            )
            results.append(ops.stack(outputs) if counts is None else ops.cat(outputs))
            last.append(end)
        data = results[0] if len(results) == 1 else ops.cat(results, -1)
    return data, tuple(ops.stack(list(parts)) for parts in zip(*last, strict=True))


# -- torch's functions -----------------------------------------------------------------------------

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def _weights_of(name, params, has_biases, count, projected):
    """Return the dicts of weights, of a flat list."""
    names = [part for part in _NAMES if has_biases or not part.startswith("bias")]
    names = names if projected else names[:-1]
    if len(params) != count * len(names):
        raise RuntimeError(
            f"{name}(): expected {count * len(names)} weights: {', '.join(names)} of each layer "
            f"and direction, but got {len(params)}"
        )
    width = len(names)
    return [
        dict(zip(names, params[number * width : (number + 1) * width])) for number in range(count)
    ]


def _check(name, data, dims, hx, first, counts):
    if data.ndim != dims:
        raise RuntimeError(f"{name}(): expected input of {dims} dims, but got {data.ndim}")
    if data.dtype != first.dtype:
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {type_name(data.dtype)} and "
            f"{type_name(first.dtype)}"
        )
    require(name, FLOATING, data)
    rows = (counts or [0])[0] if counts is not None else data.shape[1]
    for state in hx:
        if state.ndim != 3 or state.shape[1] != rows:
            raise RuntimeError(
                f"{name}(): expected states of shape (layers * directions, {rows}, size), but got "
                f"{list(state.shape)}"
            )
    if not (len(counts) if counts is not None else data.shape[0]):
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")


def _run(name, data, counts, hx, params, has_biases, num_layers, dropout, train, bidirectional):
    mode = name.upper()
    if mode == "LSTM" and len(hx) != 2:
        raise RuntimeError("lstm expects two hidden states")
    if num_layers < 1 or not params:
        raise RuntimeError(f"{name}(): expected at least one layer, but got {num_layers}")
    directions = 2 if bidirectional else 1
    count = num_layers * directions
    projected = mode == "LSTM" and hx[0].shape[-1] != hx[1].shape[-1]
    weights = _weights_of(name, params, has_biases, count, projected)
    _check(name, data, 3 if counts is None else 2, hx, params[0], counts)
    if any(state.shape[0] != count for state in hx):
        raise RuntimeError(f"{name}(): expected states of {count} layers and directions")
    out, last = run_layers(mode, data, counts, hx, weights, directions, dropout, train)
    return out, *last


def _of_batch(name):
    def run(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        state = hx if name == "lstm" else (hx,)
        data = input.transpose(0, 1) if batch_first and input.ndim == 3 else input
        given = (has_biases, num_layers, dropout, train, bidirectional)
        out, *last = _run(name, data, None, state, params, *given)
        return (out.transpose(0, 1) if batch_first else out, *last)

    return run


def _of_packed(name):
    def run(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional):
        if batch_sizes.dtype.name != "int64" or batch_sizes.ndim != 1:
            raise RuntimeError(f"{name}(): expected batch_sizes to be a vector of int64")
        counts = batch_sizes.tolist()
        if (
            sum(counts) != data.shape[0]
            or counts != sorted(counts, reverse=True)
            or (counts and counts[-1] < 1)
        ):
            raise RuntimeError(
                f"{name}(): expected batch_sizes that do not grow and sum up to {data.shape[0]}, "
                f"but got {counts}"
            )
        state = hx if name == "lstm" else (hx,)
        given = (has_biases, num_layers, dropout, train, bidirectional)
        return _run(name, data, counts, state, params, *given)

    return run


def _chosen(name):
    """Return what runs the form of a call that its second argument, or the third, belongs to."""

    def run(input, hx, params, *rest):
        packed = not isinstance(hx, (tuple, list)) and (
            name == "lstm" or not isinstance(params, (tuple, list))
        )
        form = "packed" if packed else "batch"
        return getattr(ops, f"_{name}_{form}")(input, hx, params, *rest)

    return run


_OPTIONS = "has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool"
_UNCHECKED = "params: any, has_biases: any, num_layers: any, dropout: any, train: any"
_SHAPES = (
    "Shape: input (steps, n, inputs), with `batch_first` (n, steps, inputs), or data (rows, "
    "inputs) and batch_sizes of a PackedSequence; states (layers * directions, n, units). `params` "
    "are weight_ih, weight_hh, and with `has_biases` bias_ih and bias_hh, of each layer and "
    "direction."
)


def _small(*shape):
    return T(*shape, low=-0.5, high=0.5)


def _samples(name):
    gates, states = MODES[name.upper()][1:]

    def weights(count, biased):
        each = [_small(2 * gates, 1), _small(2 * gates, 2), _small(2 * gates), _small(2 * gates)]
        return (each if biased else each[:2]) * count

    def state(count):
        made = [_small(count, 2, 2)] * states
        return made if name == "lstm" else made[0]

    batch = [
        case(_small(2, 2, 1), state(1), weights(1, True), True, 1, 0.0, True, False, False),
        case(_small(2, 2, 1), state(2), weights(2, False), False, 1, 0.0, False, True, True),
    ]
    read = {**COUNTED, "expanded": "repeated batch sizes have another sum"}
    options = False, 1, 0.0, False, True
    sizes = fixed((2, 1), kind="int64")
    packed = [case(_small(3, 1), sizes, state(2), weights(2, False), *options, skip=read)]
    return batch, packed


_AT_ZERO = [[[0.0]]], [[[0.0]]], ([[1.0]], [[1.0]]), False, 1, 0.0, False, False
_ZERO = [[0.0]]
for _name, _doc in (
    (
        "lstm",
        "Return (output, h, c) of layers of long short-term memory.\n\nSource: Hochreiter "
        'and Schmidhuber, "Long short-term memory", 1997.',
    ),
    (
        "gru",
        "Return (output, h) of layers of gated recurrent units.\n\nSource: Cho et al., 2014, "
        "with the reset gate behind the product.",
    ),
    (
        "rnn_tanh",
        "Return (output, h) of layers of h' = tanh(W x + b + V h + c).\n\nSource: Elman, 1990.",
    ),
    (
        "rnn_relu",
        "Return (output, h) of layers of h' = relu(W x + b + V h + c).\n\nSource: Elman, 1990.",
    ),
):
    _hx = "Tensor[]" if _name == "lstm" else "Tensor"
    _batch, _packed = _samples(_name)
    _fields = dict(method=False, dtypes=FLOATING)
    _kinks = (
        [kink(*_AT_ZERO, False, to=([_ZERO], [_ZERO], _ZERO, _ZERO))] if _name == "rnn_relu" else ()
    )
    op(
        f"_{_name}_batch(input: Tensor, hx: {_hx}, params: Tensor[], {_OPTIONS}, "
        f"batch_first: bool) -> Tensor[]",
        composite=_of_batch(_name),
        function=False,
        ref=getattr(references, _name),
        samples=_batch,
        doc=f"Return {_name} of a batch.",
        **_fields,
    )
    op(
        f"_{_name}_packed(data: Tensor, batch_sizes: Tensor, hx: {_hx}, params: Tensor[], "
        f"{_OPTIONS}) -> Tensor[]",
        composite=_of_packed(_name),
        function=False,
        ref=getattr(references, f"{_name}_packed"),
        samples=_packed,
        doc=f"Return {_name} of packed sequences.",
        **_fields,
    )
    op(
        f"{_name}(input: Tensor, hx: any, {_UNCHECKED}, bidirectional: any, batch_first: any) "
        f"-> Tensor[]",
        composite=_chosen(_name),
        overload=f"_{_name}_packed",
        ref=getattr(references, _name),
        samples=_batch[:1],
        kinks=_kinks,
        doc=f"{_doc}\n\n{_SHAPES}\n\nRaises: RuntimeError for sizes that do not fit.",
        **_fields,
    )

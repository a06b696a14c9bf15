"""Steps of recurrent layers: of LSTM all at once, and single ones."""

import functools

from pullback.ops.rules.dtypes import check_takes_floats
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import OWN_DTYPE, new_empty, new_filled, put
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, HALF, INTEGRAL, NUMBERS, op, ops

references = references_of("recurrent")


@functools.lru_cache(maxsize=512)
def lstm_spec(size, reverse):
    """Return the output spec of lstm_steps, from the size of its first operand."""
    steps, rows, width = size
    units = width // 4
    shapes = (steps, rows, units), (rows, units), (steps, rows, 5 * units)
    return shapes, (OWN_DTYPE,) * 3, (int(reverse),)


@functools.lru_cache(maxsize=512)
def lstm_backward_spec(size, reverse):
    """Return the output spec of lstm_steps_backward, from the size of the states."""
    steps, rows, units = size
    return ((steps, rows, 4 * units), (rows, units), (rows, units)), (OWN_DTYPE,) * 3, (reverse,)


def _in_order(steps, reverse):
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _gates_of(self, weight, hidden, cell, reverse):
    """Return (i, f, g, o, cell, state) of each step."""
    found = [None] * self.shape[0]
    for step in _in_order(len(found), reverse):
        parts = ops.select(self, 0, step) + ops.matmul(hidden, weight.transpose(0, 1))
        i, f, g, o = ops.chunk(parts, 4, -1)
        i, f, g, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)
        cell = f * cell + i * g
        hidden = o * ops.tanh(cell)
        found[step] = i, f, g, o, cell, hidden
    return found


@decomposition("lstm_steps")
def composed_steps(self, weight, hidden, cell, spec):
    found = _gates_of(self, weight, hidden, cell, spec[2][0])
    last = found[_in_order(len(found), spec[2][0])[-1]]
    gates = [ops.cat(parts[:5], -1) for parts in found]
    return ops.stack([parts[5] for parts in found]), _copy(last[4]), ops.stack(gates)


def _copy(self):
    return put(new_empty(self, self.shape), self)


def _through_steps(grad, cell_grad, weight, cell, gates, reverse):
    """Return the derivatives by the operands but the weight; a formula of differentiable ops."""
    found = [None] * len(gates)
    order = list(_in_order(len(gates), reverse))
    later = 0
    for number, step in reversed(list(enumerate(order))):
        i, f, g, o, now = gates[step][:5]
        before = gates[order[number - 1]][4] if number else cell
        bent = ops.tanh(now)
        of_hidden = ops.select(grad, 0, step) + later
        of_cell = cell_grad + of_hidden * o * (1 - bent * bent)
        found[step] = ops.cat(
            [
                of_cell * g * (i * (1 - i)),
                of_cell * before * (f * (1 - f)),
                of_cell * i * (1 - g * g),
                of_hidden * bent * (o * (1 - o)),
            ],
            -1,
        )
        later = ops.matmul(found[step], weight)
        cell_grad = of_cell * f
    return ops.stack(found), later, cell_grad


@decomposition("lstm_steps_backward")
def composed_backward(self, cell_grad, weight, cell, gates, spec):
    parts = [ops.chunk(ops.select(gates, 0, step), 5, -1) for step in range(gates.shape[0])]
    return tuple(map(_copy, _through_steps(self, cell_grad, weight, cell, parts, spec[2][0])))


def _weight_grad(given_grad, hidden, states, reverse):
    """Return the derivative by the weight, which is multiplied with the state before each step."""
    count = states.shape[0] - 1
    first = ops.matmul(ops.select(given_grad, 0, count * reverse).transpose(0, 1), hidden)
    if not count:
        return first
    rows = ops.narrow(given_grad, 0, 1 - reverse, count).reshape((-1, given_grad.shape[2]))
    before = ops.narrow(states, 0, reverse, count).reshape((-1, states.shape[2]))
    return first + ops.matmul(rows.transpose(0, 1), before)


def _lstm_vjp(gs, self, weight, hidden, cell, out0, out2, spec):
    from pullback._c.base.state import is_grad_enabled

    reverse = spec[2][0]
    grad = new_filled(self, spec[0][0]) if gs[0] is None else gs[0]
    cell_grad = new_filled(self, spec[0][1]) if gs[1] is None else gs[1]
    if is_grad_enabled():
        gates = _gates_of(self, weight, hidden, cell, reverse)
        found = _through_steps(grad, cell_grad, weight, cell, gates, reverse)
        states = ops.stack([parts[5] for parts in gates])
    else:
        states = out0
        found = ops.lstm_steps_backward(
            grad, cell_grad, weight, cell, out2, lstm_backward_spec(tuple(states.shape), reverse)
        )
    return found[0], _weight_grad(found[0], hidden, states, reverse), *found[1:]


_PARTS = dict.fromkeys(
    ("grad", "gradgrad", "compiled", "kept"), "gates are for the derivative, and have none"
)
_SIZES = [((3, 2, 8), 0), ((2, 3, 12), 1), ((1, 1, 4), 0)]
_FUSED = dict(forward="structured", method=False, function=False, dtypes=FLOATING & ~HALF)


def _steps_sample(size, reverse):
    rows, units = size[1], size[2] // 4
    state = T(rows, units)
    return case(T(*size), T(4 * units, units), state, state, lstm_spec(size, reverse), skip=_PARTS)


def _backward_sample(size, reverse):
    steps, rows, units = size[0], size[1], size[2] // 4
    state = T(rows, units)
    spec = lstm_backward_spec((steps, rows, units), reverse)
    gates = T(steps, rows, 5 * units, low=-1, high=1)
    return case(
        T(steps, rows, units), state, T(4 * units, units, low=-1, high=1), state, gates, spec
    )


op(
    "lstm_steps(self: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, spec: any) -> Tensor[]",
    kernel="lstm_steps",
    vjp={("self", "weight", "hidden", "cell"): _lstm_vjp},
    node="LstmBackward0",
    doc="Return the states of all steps, the last cell, and the gates.\n\nSource: Hochreiter and "
    'Schmidhuber, "Long short-term memory", 1997; Gers et al., "Learning to forget", 2000.',
    ref=references.lstm_steps,
    samples=lambda: [_steps_sample(*one) for one in _SIZES],
    **_FUSED,
)
op(
    "lstm_steps_backward(self: Tensor, cell_grad: Tensor, weight: Tensor, cell: Tensor, "
    "gates: Tensor, spec: any) -> Tensor[]",
    kernel="lstm_steps_backward",
    doc="Return the derivatives of lstm_steps by its first operand and the first state and cell.",
    ref=references.lstm_steps_backward,
    samples=lambda: [_backward_sample(*one) for one in _SIZES],
    **_FUSED,
)


# -- cells -----------------------------------------------------------------------------------------


def _check_cell(input, states, w_ih, w_hh, gates):
    size = w_hh.size(1)
    if input.size(1) != w_ih.size(1):
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.size(1)} expected {w_ih.size(1)}"
        )
    if w_ih.size(0) != gates * size:
        raise RuntimeError(
            f"weight_ih first dim must be {gates} * hidden_size = {gates * size}, but got "
            f"{w_ih.size(0)}"
        )
    for number, state in enumerate(states):
        if state.size(0) != input.size(0):
            raise RuntimeError(
                f"Input batch size {input.size(0)} doesn't match hidden{number} batch size "
                f"{state.size(0)}"
            )
        if state.size(1) != size:
            raise RuntimeError(
                f"hidden{number} has inconsistent hidden_size: got {state.size(1)}, expected {size}"
            )


def _check_dtype(input):
    if not input.is_complex():
        check_takes_floats(input)


def _lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh):
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    _check_cell(input, hx, w_ih, w_hh, 4)
    _check_dtype(input)
    hidden, cell = hx
    i, f, g, o = ops.chunk(ops.linear(input, w_ih, b_ih) + ops.linear(hidden, w_hh, b_hh), 4, 1)
    cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(cell), cell


def _gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh):
    _check_cell(input, (hx,), w_ih, w_hh, 3)
    _check_dtype(input)
    r, z, n = ops.chunk(ops.linear(input, w_ih, b_ih), 3, 1)
    hidden_r, hidden_z, hidden_n = ops.chunk(ops.linear(hx, w_hh, b_hh), 3, 1)
    z = ops.sigmoid(z + hidden_z)
    n = ops.tanh(n + ops.sigmoid(r + hidden_r) * hidden_n)
    return n + z * (hx - n)


def _elman_cell(function):
    def cell(input, hx, w_ih, w_hh, b_ih, b_hh):
        _check_cell(input, (hx,), w_ih, w_hh, 1)
        return function(ops.linear(input, w_ih, b_ih) + ops.linear(hx, w_hh, b_hh))

    return cell


def _small(*shape):
    return T(*shape, low=-0.5, high=0.5)  # complex ones keep away from the poles of tanh


def _cell_sample(gates, states, biased):
    weights = _small(3 * gates, 2), _small(3 * gates, 3)
    biases = (_small(3 * gates), _small(3 * gates)) if biased else ()
    return case(_small(4, 2), states, *weights, *biases)


_WEIGHTS = "w_ih: Tensor, w_hh: Tensor, b_ih: Tensor? = None, b_hh: Tensor? = None"
_STATE = _small(4, 3)
_ZERO = [[0.0]]
_KINKS = [kink(_ZERO, [[1.0]], [[1.0]], _ZERO, to=(_ZERO, _ZERO, _ZERO, _ZERO))]
op(
    f"lstm_cell(input: Tensor, hx: Tensor[], {_WEIGHTS}) -> Tensor[]",
    autocast=(None, "lower"),
    composite=_lstm_cell,
    method=False,
    dtypes=FLOAT_COMPLEX,
    ref=references.lstm_cell,
    samples=lambda: [_cell_sample(4, [_STATE, _STATE], biased) for biased in (False, True)],
    doc="Return the state and the cell after a step of long short-term memory.\n\nShape: input "
    "(n, inputs) and hx, a pair of (n, units), with weights (4 units, inputs) and (4 units, "
    "units).\n\nRaises: RuntimeError for sizes that do not fit.\n\nSource: Hochreiter and "
    'Schmidhuber, "Long short-term memory", 1997.',
)
op(
    f"gru_cell(input: Tensor, hx: Tensor, {_WEIGHTS}) -> Tensor",
    autocast=(None, "lower"),
    composite=_gru_cell,
    method=False,
    dtypes=FLOAT_COMPLEX,
    ref=references.gru_cell,
    samples=lambda: [_cell_sample(3, _STATE, biased) for biased in (False, True)],
    doc="Return the state after a step of a gated recurrent unit.\n\nShape: input (n, inputs) and "
    "hx (n, units), with weights (3 units, inputs) and (3 units, units).\n\nRaises: RuntimeError "
    "for sizes that do not fit.\n\nSource: Cho et al., 2014, with the reset gate behind the "
    "product.",
)
for _name, _function, _dtypes, _points in (
    ("rnn_tanh_cell", lambda x: ops.tanh(x), NUMBERS, ()),
    ("rnn_relu_cell", lambda x: ops.relu(x), INTEGRAL | FLOATING, _KINKS),
):
    op(
        f"{_name}(input: Tensor, hx: Tensor, {_WEIGHTS}) -> Tensor",
        composite=_elman_cell(_function),
        autocast=(None, "lower"),
        method=False,
        dtypes=_dtypes,
        kinks=_points,
        ref=getattr(references, _name),
        samples=[_cell_sample(1, _STATE, biased) for biased in (False, True)],
        doc=f"Return {_name[4:8]}(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh).\n\nShape: input (n, "
        "inputs) and hx (n, units), with weights (units, inputs) and (units, units).\n\nRaises: "
        "RuntimeError for sizes that do not fit.\n\nSource: Elman, 1990.",
    )

"""References of recurrent layers.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


def _sigmoid(np, x):
    return 1 / (1 + np.exp(-x))


def lstm_steps(np, self, weight, hidden, cell, spec):
    """The states of all steps, the last cell, and the gates and cells."""
    steps, units = self.shape[0], cell.shape[1]
    states, gates = np.empty((steps, *cell.shape)), np.empty((*self.shape[:2], 5 * units))
    for step in reversed(range(steps)) if spec[2][0] else range(steps):
        sums = self[step] + hidden @ weight.T
        i, f, o = (_sigmoid(np, sums[:, at * units : (at + 1) * units]) for at in (0, 1, 3))
        g = np.tanh(sums[:, 2 * units : 3 * units])
        cell = f * cell + i * g
        states[step] = hidden = o * np.tanh(cell)
        gates[step] = np.concatenate([i, f, g, o, cell], 1)
    return states, cell, gates


def lstm_steps_backward(np, self, cell_grad, weight, cell, gates, spec):
    """The derivatives, for gates that may be any."""
    steps, units = self.shape[0], cell.shape[1]
    out, later = np.empty((*self.shape[:2], 4 * units)), np.zeros(cell.shape)
    forth = list(reversed(range(steps)) if spec[2][0] else range(steps))
    cells = [cell, *(gates[step][:, 4 * units :] for step in forth)]
    for number in reversed(range(steps)):
        i, f, g, o, now = np.split(gates[forth[number]], 5, 1)
        of_hidden = self[forth[number]] + later
        of_cell = cell_grad + of_hidden * o * (1 - np.tanh(now) ** 2)
        of_i, of_f = of_cell * g * i * (1 - i), of_cell * cells[number] * f * (1 - f)
        of_g, of_o = of_cell * i * (1 - g * g), of_hidden * np.tanh(now) * o * (1 - o)
        out[forth[number]] = np.concatenate([of_i, of_f, of_g, of_o], 1)
        later, cell_grad = out[forth[number]] @ weight, of_cell * f
    return out, later, cell_grad


def _sums(input, state, w_ih, w_hh, b_ih=None, b_hh=None):
    given, fed = input @ w_ih.T, state @ w_hh.T
    return given + (0 if b_ih is None else b_ih), fed + (0 if b_hh is None else b_hh)


def lstm_cell(np, input, hx, *weights):
    """The next state and cell."""
    i, f, g, o = np.split(sum(_sums(input, hx[0], *weights)), 4, 1)
    cell = _sigmoid(np, f) * hx[1] + _sigmoid(np, i) * np.tanh(g)
    return _sigmoid(np, o) * np.tanh(cell), cell


def gru_cell(np, input, hx, *weights):
    """The next state."""
    (r, z, n), (hidden_r, hidden_z, hidden_n) = (
        np.split(part, 3, 1) for part in _sums(input, hx, *weights)
    )
    z = _sigmoid(np, z + hidden_z)
    return (1 - z) * np.tanh(n + _sigmoid(np, r + hidden_r) * hidden_n) + z * hx


def rnn_tanh_cell(np, input, hx, *weights):
    """The next state."""
    return np.tanh(1.0 * sum(_sums(input, hx, *weights)))


def rnn_relu_cell(np, input, hx, *weights):
    """The next state."""
    return np.maximum(sum(_sums(input, hx, *weights)), 0)


def _layers(cell, has_cells=False):
    """The references of a kind of layers, of a batch and packed: step by step."""

    def run(np, sequences, hx, params, has_biases, layers, bidirectional):
        width, directions = 4 if has_biases else 2, 2 if bidirectional else 1
        states = hx if has_cells else [hx]
        last = [np.array(part, float) for part in states]
        for layer in range(layers):
            found = []
            for direction in range(directions):
                at = layer * directions + direction
                weights = params[at * width : (at + 1) * width]
                parts = []
                for n, sequence in enumerate(sequences):
                    state = [part[at, n : n + 1] for part in states]
                    outputs = []
                    for x in sequence[::-1] if direction else sequence:
                        given = state if has_cells else state[0]
                        state = cell(np, x[None], given, *weights)
                        state = list(state) if has_cells else [state]
                        outputs.append(state[0][0])
                    parts.append(np.array(outputs[::-1] if direction else outputs))
                    for part, value in zip(last, state):
                        part[at, n] = value[0]
                found.append(parts)
            sequences = [np.concatenate(parts, -1) for parts in zip(*found)]
        return sequences, last

    def batch(np, input, hx, params, has_biases, layers, dropout, train, bidirectional, first):
        data = input if first else input.swapaxes(0, 1)
        found, last = run(np, list(data), hx, params, has_biases, layers, bidirectional)
        out = np.stack(found)
        return out if first else out.swapaxes(0, 1), *last

    def packed(np, data, sizes, hx, params, has_biases, layers, dropout, train, bidirectional):
        starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = [
            [start + n for start, size in zip(starts, sizes) if n < size] for n in range(sizes[0])
        ]
        found, last = run(
            np, [data[row] for row in rows], hx, params, has_biases, layers, bidirectional
        )
        out = np.empty((len(data), found[0].shape[-1]))
        for row, part in zip(rows, found):
            out[row] = part
        return out, *last

    return batch, packed


lstm, lstm_packed = _layers(lstm_cell, True)
gru, gru_packed = _layers(gru_cell)
rnn_tanh, rnn_tanh_packed = _layers(rnn_tanh_cell)
rnn_relu, rnn_relu_packed = _layers(rnn_relu_cell)

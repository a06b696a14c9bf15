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
